package wall_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/internal/wall"
	"github.com/summit-switchboard/switchboard/test/dns"
	"github.com/summit-switchboard/switchboard/test/system"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// guardAsking is a guard that asks the server of DNS in its first argument. A real one asks those of the machine.
func guardAsking(args []string) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, args[0])
	}}
	process.Guard(os.Stdin, os.Stdout, args[1:])
}

func init() {
	// Each says "out" only after an answer.
	escapes["talk"] = func(word string) error {
		network, to, _ := strings.Cut(word, " ")
		conn, err := net.DialTimeout(network, to, 10*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()                                           //nolint:errcheck // the program ends
		_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond)) // an answer that comes later has been counted
		if network == "tcp" {
			_ = conn.SetDeadline(time.Now().Add(wait.Bound))
		}
		if _, err := conn.Write([]byte("hello")); err != nil {
			return err
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			if err := tcp.CloseWrite(); err != nil {
				return err
			}
		}
		answer := make([]byte, 64)
		n, err := io.ReadAtLeast(conn, answer, len("hello back"))
		if string(answer[:n]) != "hello back" {
			return fmt.Errorf("the answer is %q, %w", answer[:n], err)
		}
		return nil
	}
	escapes["network"] = func(string) error {
		runtime.LockOSThread()
		return unix.Unshare(unix.CLONE_NEWUSER | unix.CLONE_NEWNET)
	}
	escapes["lookup"] = func(name string) error { _, err := net.LookupHost(name); return err }
	// It holds a connection and never ends.
	escapes["hold"] = func(to string) error {
		conn, err := net.Dial("tcp", to)
		if err != nil {
			return err
		}
		fmt.Println("held")
		_, err = io.Copy(io.Discard, conn)
		return err
	}
	escapes["listen"] = func(to string) error {
		l, err := net.Listen("tcp", to)
		if err != nil {
			return err
		}
		fmt.Println("listens")
		_, err = l.Accept()
		return err
	}
}

// A neighbor is a server on this machine that answers, and counts what has arrived.
type neighbor struct {
	at      netip.AddrPort
	arrived atomic.Int64
	peers   chan string   // gets why Switchboard refuses the process at the other end as its user
	ended   chan struct{} // gets a value when a connection has ended
}

// startNeighbor starts a server at an address of TCP or UDP.
func startNeighbor(t *testing.T, network, at string) *neighbor {
	t.Helper()
	n := &neighbor{peers: make(chan string, 64), ended: make(chan struct{}, 64)}
	if strings.HasPrefix(network, "udp") {
		l, err := net.ListenPacket(network, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		n.at = netip.MustParseAddrPort(l.LocalAddr().String())
		go func() {
			b := make([]byte, 64)
			for {
				_, from, err := l.ReadFrom(b)
				if err != nil {
					return
				}
				n.arrived.Add(1)
				_, _ = l.WriteTo([]byte("hello back"), from)
			}
		}()
		return n
	}
	l, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	n.at = netip.MustParseAddrPort(l.Addr().String())
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n.arrived.Add(1)
			n.peers <- fmt.Sprint(identity.PeerOf(conn)())
			go func() {
				said, _ := io.ReadAll(conn) // until the program has ended its side
				_, _ = fmt.Fprintf(conn, "%s back", said)
				_ = conn.Close()
				n.ended <- struct{}{}
			}()
		}
	}()
	return n
}

// host returns the neighbor as a permission names it.
func (n *neighbor) host() switchboard.HostPort {
	return switchboard.HostPort{Name: n.at.Addr().String(), Port: n.at.Port()}
}

// permit is the level strict with hosts.
func (p *place) permit(hosts ...switchboard.HostPort) switchboard.Confinement {
	c := p.strict()
	c.Hosts = hosts
	slices.SortFunc(c.Hosts, switchboard.CompareHostPorts)
	return c
}

// needNetworks skips the test where the machine gives a program no network of its own.
func needNetworks(t *testing.T) {
	t.Helper()
	needLandlock(t)
	system.NeedNetworks(t)
}

// asAnotherUser runs the test once more as a user who is not root, and reports whether this process is not that run.
func asAnotherUser(t *testing.T) bool {
	t.Helper()
	if os.Getenv(asUser) != "" {
		return false
	}
	if os.Getuid() != 0 {
		t.Skip("skipped: another user (this test is run as one already)")
	}
	runAsAnotherUser(t)
	return true
}

func TestAProgramReachesItsPermittedHostsAndNothingElse(t *testing.T) {
	needNetworks(t)
	newPlace(t, openFolder(t)).checkHosts(t)
}

func TestAProgramOfAnotherUserReachesItsPermittedHostsAndNothingElse(t *testing.T) {
	if !asAnotherUser(t) {
		needNetworks(t)
		newPlace(t, filepath.Join(os.Getenv(asUser), "place")).checkHosts(t)
	}
}

// beyondHosts are what a program with permitted hosts tries, and never gets.
var beyondHosts = []struct{ name, escape, word string }{
	{"another port of a permitted address", "talk", "tcp OTHER"},
	{"another port over IPv6", "talk", "tcp OTHER6"},
	{"the permitted port at another address", "talk", "tcp 127.0.0.2:PORT"},
	{"an address of this machine", "talk", "tcp OWN:PORT"},
	{"an address elsewhere", "talk", "tcp 192.0.2.1:80"},
	{"an address elsewhere, over IPv6", "talk", "tcp [2001:db8::1]:80"},
	{"UDP", "talk", "udp UDP"},
	{"UDP to a permitted address and port", "talk", "udp PERMITTED"},
	{"UDP elsewhere, as DNS uses it", "talk", "udp 192.0.2.1:53"},
	{"DNS: the name of another host", "lookup", "other.example.com"},
	{"DNS: a name below a permitted one, with data in it", "lookup", "data.api.example.com"},
	{"an abstract socket", "abstract", "ABSTRACT"},
	{"the socket of docker or of an ssh agent", "unix", "DOCKER"},
	{"a pair of sockets, connected to syslog", "pair", "SYSLOG"},
	{"netlink, to change its network", "netlink", ""},
	{"another network namespace", "network", ""},
}

func (p *place) checkHosts(t *testing.T) {
	four, other := startNeighbor(t, "tcp", "127.0.0.1:0"), startNeighbor(t, "tcp", "127.0.0.1:0")
	six, byName := startNeighbor(t, "tcp", "[::1]:0"), startNeighbor(t, "tcp", "127.0.0.1:0")
	udp, samePort := startNeighbor(t, "udp", "127.0.0.1:0"), startNeighbor(t, "udp", four.at.String())
	otherSix := startNeighbor(t, "tcp", "[::1]:0")
	everywhere := startNeighbor(t, "tcp4", "0.0.0.0:0")
	walls := p.permit(four.host(), six.host(), switchboard.HostPort{Name: "localhost", Port: byName.at.Port()}, switchboard.HostPort{Name: "api.example.com", Port: 443})
	for _, to := range []string{four.at.String(), six.at.String(), fmt.Sprintf("localhost:%d", byName.at.Port())} {
		said, effect := p.try(t, walls, "talk", "tcp "+to)
		if said != "out" {
			t.Errorf("a permitted host, %s: %s", to, said)
		}
		if !slices.Contains(effect.Walls, wall.Network) || len(effect.Missing) > 0 || effect.PID == 0 {
			t.Errorf("the walls in effect are %+v", effect)
		}
	}
	if n := four.arrived.Load() + six.arrived.Load() + byName.arrived.Load(); n != 3 {
		t.Errorf("%d connections have arrived at the permitted hosts, want 3", n)
	}
	// Switchboard's own addresses take nothing from a program that Switchboard has started.
	for _, n := range []*neighbor{four, six, byName} {
		if why := <-n.peers; why != "it comes from a program that Switchboard itself started" {
			t.Errorf("%s: the process at the other end is refused with %q", n.at, why)
		}
	}
	at := strings.NewReplacer("PERMITTED", four.at.String(), "OTHER6", otherSix.at.String(), "OTHER", other.at.String(), "UDP", udp.at.String(),
		"PORT", strconv.Itoa(int(everywhere.at.Port())), "OWN", ownAddress(t).String(), "ABSTRACT", p.words["abstract"], "DOCKER", p.words["docker"], "SYSLOG", p.words["syslog"])
	for _, a := range beyondHosts {
		if got, _ := p.try(t, walls, a.escape, at.Replace(a.word)); !strings.HasPrefix(got, "stopped: ") {
			t.Errorf("%s: %s", a.name, got)
		}
	}
	for name, n := range map[string]*neighbor{"the other port": other, "the other port of IPv6": otherSix, "UDP": udp, "UDP at the same port": samePort, "every address": everywhere} {
		if arrived := n.arrived.Load(); arrived > 0 {
			t.Errorf("%s: %d have arrived", name, arrived)
		}
	}
	if got, _ := p.try(t, walls, "lookup", "api.example.com"); got != "out" {
		t.Errorf("the name of a permitted host: %s", got)
	}
	// The other escapes, with the network that such a program has.
	for _, a := range attempts {
		if slices.Contains([]string{"tcp", "udp", "mptcp", "replace"}, a.escape) || a.needs == "programs of 32 bits" {
			continue // above, or it makes a socket of IP, with which it reaches nothing more
		}
		if got, _ := p.try(t, walls, a.escape, p.words[a.word]); !strings.HasPrefix(got, "stopped: ") {
			t.Errorf("%s: %s", a.name, got)
		}
	}
}

// ownAddress returns an address of this machine that is none of loopback, or one that no machine has.
func ownAddress(t *testing.T) netip.Addr {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Is4() && !prefix.Addr().IsLoopback() {
			return prefix.Addr()
		}
	}
	return netip.MustParseAddr("192.0.2.2")
}

// A port that the program opens is one of its own network.
func TestNobodyReachesAPortOfAProgramWithPermittedHosts(t *testing.T) {
	needNetworks(t)
	p := newPlace(t, openFolder(t))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	_ = free.Close()
	s := p.server
	s.Walls = p.permit(switchboard.HostPort{Name: "127.0.0.1", Port: 9})
	s.Command = append(slices.Clone(s.Command), "listen", at)
	proc, err := p.spawn.Start(&s)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Stop(nil)
	var says string
	if _, err := fmt.Fscan(proc.Stdout, &says); err != nil || says != "listens" {
		t.Fatalf("%q, %v", says, err)
	}
	if conn, err := net.Dial("tcp", at); err == nil {
		_ = conn.Close()
		t.Error("it is reached")
	}
}

// What is left when the program ends, its guard is told to end, or its guard is killed: no process, no connection, no descriptor.
func TestNothingIsLeftOfAProgramWithPermittedHosts(t *testing.T) {
	needNetworks(t)
	p := newPlace(t, openFolder(t))
	four := startNeighbor(t, "tcp", "127.0.0.1:0")
	s := p.server
	s.Walls = p.permit(four.host())
	s.Command = append(slices.Clone(s.Command), "hold", four.at.String())
	before := -1
	for i, how := range []string{"the program is killed", "the guard is told to end", "the guard is killed"} {
		proc, err := p.spawn.Start(&s)
		if err != nil {
			t.Fatal(err)
		}
		var says string
		if _, err := fmt.Fscan(proc.Stdout, &says); err != nil || says != "held" {
			t.Fatalf("%q, %v", says, err)
		}
		wait.Until(t, "the guard has carried the connection", func() bool { return four.arrived.Load() == int64(i+1) })
		guard := parentOf(t, proc.PID)
		if guard == os.Getpid() {
			t.Fatal("the reported process is the guard and not the program")
		}
		hurry := make(chan struct{})
		close(hurry)
		switch how {
		case "the program is killed":
			err = syscall.Kill(proc.PID, syscall.SIGKILL)
		case "the guard is killed":
			err = syscall.Kill(guard, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		if how != "the guard is told to end" {
			<-proc.Ended
		}
		if !proc.Stop(hurry) {
			t.Errorf("%s: the guard is not gone", how)
		}
		select {
		case <-four.ended:
		case <-time.After(wait.Bound):
			t.Errorf("%s: its connection is open", how)
		}
		wait.Until(t, how+": a process is left", func() bool {
			return errors.Is(syscall.Kill(proc.PID, 0), syscall.ESRCH) && errors.Is(syscall.Kill(guard, 0), syscall.ESRCH)
		})
		_, _ = proc.Stdout.Close(), proc.Stderr.Close()
		if before < 0 {
			before = openFiles(t)
		}
		wait.Until(t, how+": a file more than before is open", func() bool { return openFiles(t) <= before })
	}
}

// The guard sweeps and watches as it does for a program in the network of the machine (ST-06).
func TestTheGuardOfAProgramWithPermittedHostsSweepsAndWatches(t *testing.T) {
	needNetworks(t)
	newPlace(t, openFolder(t)).checkGuard(t)
}

func TestTheGuardOfAnotherUserSweepsAndWatchesThere(t *testing.T) {
	if !asAnotherUser(t) {
		needNetworks(t)
		newPlace(t, filepath.Join(os.Getenv(asUser), "place")).checkGuard(t)
	}
}

func (p *place) checkGuard(t *testing.T) {
	t.Helper()
	walls := p.permit(switchboard.HostPort{Name: "127.0.0.1", Port: 9})
	p.checkSweep(t, walls)
	p.checkLimits(t, walls)
}

// A thread in the network of the machine does not pass for one with a network of its own.
func TestWallsForHostsNeedANetworkOfTheirOwn(t *testing.T) {
	needLandlock(t)
	out, err := exec.CommandContext(t.Context(), os.Args[0], "raise-here").CombinedOutput()
	if want := "SB-DISC-004: sandbox: strict demands walls that this machine lacks: network: this thread has no network of its own\n"; err != nil || string(out) != want {
		t.Errorf("%v %s", err, out)
	}
}

// raiseHere takes on the walls of a program with hosts, and prints the error.
func raiseHere() {
	s := &switchboard.Server{Command: []string{"/bin/true"}, Walls: switchboard.Confinement{Level: switchboard.SandboxStrict, Hosts: []switchboard.HostPort{{Name: "127.0.0.1", Port: 9}}}}
	runtime.LockOSThread()
	_, _, err := wall.Plan(s, "/bin/true", nil, wall.Machine{}).Start(&wall.Launch{Path: "/bin/true", Args: []string{"true"}, Files: [3]int{3, 3, 3}})
	fmt.Println(err)
}

// parentOf returns the parent of a process.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

// openFiles returns how many files this process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A name leads the program to a public address, through the server of DNS of the machine, and to no other one, whenever it is asked. The whole test
// runs in a network of its own, in which a public address is one of this machine.
func TestANameLeadsAProgramToPublicAddressesAlone(t *testing.T) {
	needNetworks(t)
	if os.Getenv("WALL_TEST_NETWORK") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env, cmd.SysProcAttr = append(os.Environ(), "WALL_TEST_NETWORK=1"), system.InOwnNetwork()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	// The whole network of own leads to loopback, and own alone is an address of this machine.
	const own, public, private = "93.184.215.1", "93.184.215.14", "10.9.8.7"
	raiseLoopback(t, own, private)
	names, err := dns.Listen(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, openFolder(t))
	p.spawn = process.NewSpawner([]string{p.server.Command[0], "guard-asking", names.Addr})
	t.Cleanup(p.spawn.Close)
	out, in := startNeighbor(t, "tcp", public+":443"), startNeighbor(t, "tcp", private+":443")
	local, self := startNeighbor(t, "tcp", "127.0.0.1:443"), startNeighbor(t, "tcp", own+":443")
	for _, name := range []string{"api.example.com", "inner.example.com", "local.example.com", "other.example.com"} {
		names.Set(name, public)
	}
	names.Set("inner.example.com", private)
	names.Set("local.example.com", "127.0.0.1")
	names.Set("self.example.com", own)
	walls := p.permit(switchboard.HostPort{Name: "api.example.com", Port: 443}, switchboard.HostPort{Name: "inner.example.com", Port: 443}, switchboard.HostPort{Name: "local.example.com", Port: 443}, switchboard.HostPort{Name: "self.example.com", Port: 443})
	said := func(to string) (said, stderr string) {
		t.Helper()
		s := p.server
		s.Walls = walls
		s.Command = append(slices.Clone(s.Command), "talk", "tcp "+to)
		proc, err := p.spawn.Start(&s)
		if err != nil {
			t.Fatal(err)
		}
		defer proc.Stop(nil)
		text, _ := io.ReadAll(proc.Stdout)
		words, _ := io.ReadAll(proc.Stderr)
		return strings.TrimSpace(string(text)), string(words)
	}
	if got, words := said("api.example.com:443"); got != "out" || words != "" {
		t.Errorf("a name with a public address: %s; %s", got, words)
	}
	for to, want := range map[string]string{
		"inner.example.com:443": `the program does not reach inner.example.com:443: the host "inner.example.com" leads to 10.9.8.7, which is not a public address`,
		"local.example.com:443": "leads to 127.0.0.1, which is not a public address",
		"self.example.com:443":  "leads to 93.184.215.1, which is an address of this machine",
		"other.example.com:443": `switchboard: the program asked for the host "other.example.com", which its permissions do not name`,
	} {
		if got, words := said(to); !strings.HasPrefix(got, "stopped: ") || !strings.Contains(words, want) {
			t.Errorf("%s: %s; its stderr is %s", to, got, words)
		}
	}
	names.Set("api.example.com", "127.0.0.1") // the owner of the name changes the answer
	if got, _ := said("api.example.com:443"); !strings.HasPrefix(got, "stopped: ") {
		t.Errorf("a name that leads elsewhere now: %s", got)
	}
	if out.arrived.Load() != 1 || in.arrived.Load() != 0 || local.arrived.Load() != 0 || self.arrived.Load() != 0 {
		t.Errorf("%d, %d, %d and %d connections have arrived, want 1, 0, 0 and 0", out.arrived.Load(), in.arrived.Load(), local.arrived.Load(), self.arrived.Load())
	}
}

// raiseLoopback brings up the loopback interface of this process, with further addresses.
func raiseLoopback(t *testing.T, addresses ...string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing is sent
	set := func(name string, call uint, change func(r *unix.Ifreq)) {
		r, err := unix.NewIfreq(name)
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		if err := unix.IoctlIfreq(fd, call, r); err != nil {
			t.Fatal(err)
		}
	}
	set("lo", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING) })
	for i, a := range addresses {
		set(fmt.Sprintf("lo:%d", i), unix.SIOCSIFADDR, func(r *unix.Ifreq) { _ = r.SetInet4Addr(netip.MustParseAddr(a).AsSlice()) })
	}
}

// Where the machine forbids namespaces, the program is not started.
func TestWithoutNamespacesNoPermittedHosts(t *testing.T) {
	needLandlock(t)
	if dir := os.Getenv("WALL_TEST_NO_NAMESPACES"); dir != "" {
		newPlace(t, dir).checkRefusal(t)
		return
	}
	runWithoutNamespaces(t, openFolder(t))
}

func TestWithoutNamespacesNoPermittedHostsForAnotherUser(t *testing.T) {
	switch dir := os.Getenv("WALL_TEST_NO_NAMESPACES"); {
	case dir != "":
		newPlace(t, dir).checkRefusal(t)
	case !asAnotherUser(t):
		needLandlock(t)
		runWithoutNamespaces(t, filepath.Join(os.Getenv(asUser), "place"))
	}
}

// runWithoutNamespaces runs the same test where namespaces are forbidden.
func runWithoutNamespaces(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "without-namespaces", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "WALL_TEST_NO_NAMESPACES="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func (p *place) checkRefusal(t *testing.T) {
	t.Helper()
	s := p.server
	s.Walls = p.permit(switchboard.HostPort{Name: "127.0.0.1", Port: 9})
	_, err := p.spawn.Start(&s)
	missing, ok := errors.AsType[*wall.UnavailableError](err)
	if !ok || missing.Lack.Wall != wall.Network || !strings.Contains(err.Error(), "SB-DISC-004") || !strings.Contains(err.Error(), "network namespace") {
		t.Errorf("the error is %v", err)
	}
	if got, _ := p.try(t, p.strict(), "nothing", ""); got != "out" {
		t.Errorf("without hosts: %s", got)
	}
}

// withoutNamespaces runs the rest of the arguments as where namespaces are forbidden.
func withoutNamespaces(command []string) {
	var filter []unix.SockFilter
	filter = append(filter, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0})
	for _, call := range []uint32{unix.SYS_UNSHARE, unix.SYS_CLONE3} {
		refusal := unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		if call == unix.SYS_CLONE3 {
			refusal = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		}
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1}, unix.SockFilter{Code: unix.BPF_RET, K: refusal})
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, Jf: 1},
		unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	)
	if err := wall.FilterForTest(filter); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, syscall.Exec(command[0], command, os.Environ()))
	os.Exit(1)
}

func TestThePageShowsWhatAProgramWithPermittedHostsTries(t *testing.T) {
	page, err := os.ReadFile("../../docs/walls.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range beyondHosts {
		names = append(names, a.name)
	}
	want := strings.Join(names, "; ")
	if _, rest, ok := strings.Cut(string(page), "<!-- beyond hosts -->"); !ok || !strings.HasPrefix(rest, want+"<!--") {
		t.Errorf("the page does not have this list:\n%s", want)
	}
}
