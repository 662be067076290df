package wall_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/internal/wall"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// asUser is the variable that makes this test run its escapes as another user.
const asUser = "WALL_TEST_PLACE"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "guard":
			process.Guard(os.Stdin, os.Stdout, os.Args[2:])
			return
		case "guard-asking":
			guardAsking(os.Args[2:])
			return
		case "escape":
			escape(os.Args[2:])
			return
		case "raise-here":
			raiseHere()
			return
		case "without-namespaces":
			withoutNamespaces(os.Args[2:])
		case "without-landlock":
			withoutLandlock(os.Args[2:])
		}
	}
	os.Exit(m.Run())
}

// A place is what the escapes of one test are about: files and sockets of others, and another process.
type place struct {
	dir    string // with folders for all to see: home, data, other, own
	words  map[string]string
	server switchboard.Server
	spawn  *process.Spawner
}

// newPlace makes a place in a folder that the user of the test may write.
func newPlace(t *testing.T, dir string) *place {
	t.Helper()
	p := &place{dir: dir, words: map[string]string{}}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("HOME", filepath.Join(dir, "home"))
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program := write("bin/program", string(self), 0o755)
	p.words["secret"] = write("home/.ssh/id", "secret", 0o600)
	p.words["profile"] = write("home/.config/google-chrome/Default/Cookies", "secret", 0o600)
	p.words["note"] = write("home/notes/today", "a note", 0o600)
	p.words["home"] = filepath.Join(dir, "home")
	p.words["store"] = write("data/store.db", "secret", 0o600)
	p.words["operator"] = write("data/operator.json", "secret", 0o600)
	p.words["config"] = write("conf/switchboard.yaml", "servers: {}", 0o600)
	p.words["other"] = write("other/file", "theirs", 0o600)
	p.words["own"] = filepath.Dir(write("own/file", "mine", 0o600))
	p.words["link"] = filepath.Join(p.words["own"], "link") + " " + p.words["secret"]
	p.words["elf32"] = write("bin/elf32", string(elf32()), 0o755)
	p.words["setuid"] = os.Getenv(asUser) + "/setuid"
	victim := exec.Command(program, "escape", "wait")
	victim.Env = []string{"TOKEN=secret"}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = victim.Process.Kill(), victim.Wait() })
	p.words["pid"] = strconv.Itoa(victim.Process.Pid)
	for _, name := range []string{"environ", "mem", "fd/0"} {
		p.words[name] = "/proc/" + p.words["pid"] + "/" + name
	}
	p.words["leash"], p.words["report"], p.words["memory"] = "fd/0", "fd/1", "mem"
	p.words["abstract"] = fmt.Sprintf("wall-test-%d", os.Getpid())
	p.words["docker"] = filepath.Join(dir, "docker.sock")
	p.words["syslog"] = filepath.Join(dir, "syslog.sock")
	p.listen(t)
	p.server = switchboard.Server{Command: []string{program, "escape"}, Dir: p.words["own"], Env: map[string]switchboard.Secret{
		"GORACE": switchboard.NewSecret("atexit_sleep_ms=0"), // else a program with the race detector sleeps for a second at its end
	}}
	p.spawn = process.NewSpawner([]string{program, "guard"})
	p.spawn.Own = func() []string { return []string{filepath.Join(dir, "data"), p.words["config"]} }
	t.Cleanup(p.spawn.Close)
	return p
}

// listen opens the sockets that escapes connect to.
func (p *place) listen(t *testing.T) {
	t.Helper()
	for name, at := range map[string][2]string{
		"abstract": {"unix", "@" + p.words["abstract"]}, "docker": {"unix", p.words["docker"]}, "tcp4": {"tcp", "127.0.0.1:0"}, "tcp6": {"tcp", "[::1]:0"},
	} {
		l, err := net.Listen(at[0], at[1])
		if err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		t.Cleanup(func() { _ = l.Close() })
		if at[0] == "tcp" {
			p.words[name] = l.Addr().String()
		}
	}
	for name, at := range map[string][2]string{"udp": {"udp", "127.0.0.1:0"}, "syslog": {"unixgram", p.words["syslog"]}} {
		l, err := net.ListenPacket(at[0], at[1])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if name == "udp" {
			p.words[name] = l.LocalAddr().String()
		}
	}
}

// try lets a program at a level try an escape. It returns the program's words, or how it ended if it said none.
func (p *place) try(t *testing.T, walls switchboard.Confinement, escape, word string) (said string, effect wall.InEffect) {
	t.Helper()
	s := p.server
	s.Walls = walls
	s.Command = append(slices.Clone(s.Command), escape)
	proc, err := p.spawn.Start(&s)
	if err != nil {
		t.Fatalf("%s at %s: %v", escape, walls.Level, err)
	}
	_, _ = fmt.Fprintln(proc.Stdin, strings.ReplaceAll(word, " ", "|"))
	out, _ := io.ReadAll(proc.Stdout)
	<-proc.Ended
	said = strings.TrimSpace(string(out))
	if said == "" {
		words, _ := io.ReadAll(proc.Stderr)
		said = "stopped: " + proc.ExitStatus() + " " + string(words[:min(len(words), 300)])
	}
	proc.Stop(nil)
	return said, *proc.Walls
}

// An attempt is a row of the table: what a program tries, and whether it gets out at sandbox: standard. At sandbox: off it always gets out, and at sandbox:
// strict it never does.
type attempt struct {
	name, escape, word string
	standard           bool // it gets out at the level standard, as docs/walls.md says

	// needs says what an attempt needs so that it works without walls; "" means nothing.
	needs string
}

var attempts = []attempt{
	{name: "the keys of ssh", escape: "read", word: "secret"},
	{name: "the profile of a browser", escape: "read", word: "profile"},
	{name: "a note in the home", escape: "read", word: "note", standard: true},
	{name: "a new file in the home", escape: "make", word: "home"},
	{name: "the store", escape: "read", word: "store"},
	{name: "the store, overwritten", escape: "overwrite", word: "store"},
	{name: "the store, cut off", escape: "cut", word: "store"},
	{name: "operator.json", escape: "read", word: "operator"},
	{name: "switchboard.yaml", escape: "overwrite", word: "config"},
	{name: "the folder of another server, read", escape: "read", word: "other", standard: true},
	{name: "the folder of another server, written", escape: "overwrite", word: "other"},
	{name: "a link out of its folder", escape: "link", word: "link"},
	{name: "the environment of another process", escape: "read", word: "environ"},
	{name: "the memory of another process", escape: "open", word: "mem"},
	{name: "the files of another process", escape: "follow", word: "fd/0"},
	{name: "process_vm_readv", escape: "vm", word: "pid"},
	{name: "a signal to another process", escape: "signal", word: "pid"},
	{name: "a signal to its guard", escape: "parent"},
	{name: "what Switchboard tells its guard", escape: "leash", word: "leash"},
	{name: "what its guard reports", escape: "leash", word: "report"},
	{name: "the memory of its guard", escape: "leash", word: "memory"},
	{name: "the limits of another process", escape: "limits", word: "pid"},
	{name: "the priority of another process", escape: "priority", word: "pid"},
	{name: "ptrace", escape: "ptrace", word: "pid"},
	{name: "an abstract socket", escape: "abstract", word: "abstract"},
	{name: "the socket of docker or of an ssh agent", escape: "unix", word: "docker", standard: true},
	{name: "a pair of sockets, connected to syslog", escape: "pair", word: "syslog", standard: true},
	{name: "TCP", escape: "tcp", word: "tcp4", standard: true},
	{name: "TCP over IPv6", escape: "tcp", word: "tcp6", standard: true, needs: "IPv6"},
	{name: "UDP, as DNS uses it", escape: "udp", word: "udp", standard: true},
	{name: "MPTCP", escape: "mptcp", standard: true, needs: "MPTCP"},
	{name: "a raw socket", escape: "raw", needs: "root"},
	{name: "a packet socket", escape: "packet", needs: "root"},
	{name: "netlink", escape: "netlink", standard: true},
	{name: "io_uring", escape: "io_uring", needs: "io_uring"},
	{name: "keyctl", escape: "keyctl", needs: "keyrings"},
	{name: "userfaultfd", escape: "userfaultfd", needs: "userfaultfd"},
	{name: "bpf", escape: "bpf", needs: "root and bpf"},
	{name: "perf_event_open", escape: "perf", needs: "perf events"},
	{name: "mount", escape: "mount", word: "own", needs: "root"},
	{name: "a user namespace", escape: "namespace", standard: true, needs: "user namespaces"},
	{name: "a program of 32 bits", escape: "program", word: "elf32", needs: "programs of 32 bits"},
	{name: "calls of x32", escape: "x32", needs: "x32"},
	{name: "another program", escape: "program", word: "true", standard: true},
	{name: "a setuid program", escape: "euid", word: "setuid", needs: "a setuid program"},
	{name: "rewriting its own program", escape: "replace"},
	{name: "capabilities", escape: "capabilities", needs: "root"},
	{name: "a core dump", escape: "core", needs: "core dumps"},
	{name: "6,000 descriptors", escape: "descriptors", standard: true, needs: "6,000 descriptors"},
	{name: "/etc/shadow", escape: "read", word: "shadow", needs: "root"},
}

// strict is the level with what the escapes themselves need: their folder, and a program of 32 bits that the kernel refuses.
func (p *place) strict() switchboard.Confinement {
	return switchboard.Confinement{Level: switchboard.SandboxStrict, Write: []string{p.words["own"]}, Exec: []string{p.words["elf32"], p.words["setuid"]}}
}

func (p *place) check(t *testing.T) {
	p.words["true"], p.words["shadow"] = "/bin/true", "/etc/shadow"
	program := p.server.Command[0]
	original, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			word := p.words[a.word]
			if a.word != "" && word == "" {
				t.Skipf("this machine has no %s", a.needs)
			}
			off, _ := p.try(t, switchboard.Confinement{Level: switchboard.SandboxOff}, a.escape, word)
			if off != "out" {
				if a.needs == "" {
					t.Errorf("at sandbox: off it is stopped, so it proves nothing: %s", off)
				} else {
					t.Logf("this machine or this user has no %s, so it proves nothing: %s", a.needs, off)
				}
			}
			if a.escape == "replace" { // it was replaced
				_ = os.Remove(program)
				if err := os.WriteFile(program, original, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if got, _ := p.try(t, switchboard.Confinement{Level: switchboard.SandboxStandard}, a.escape, word); (got == "out") != a.standard && off == "out" {
				t.Errorf("at sandbox: standard: %s", got)
			}
			if got, _ := p.try(t, p.strict(), a.escape, word); !strings.HasPrefix(got, "stopped: ") {
				t.Errorf("at sandbox: strict: %s", got)
			}
		})
	}
}

// needLandlock skips the test where the kernel lacks what the level strict demands.
func needLandlock(t *testing.T) {
	t.Helper()
	abi, _, _ := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if const6 := uintptr(6); abi > 1<<16 || abi < const6 {
		t.Skipf("skipped: walls (this kernel has version %d of Landlock, and the tests need 6)", int(abi))
	}
}

func TestAProgramDoesNotGetOut(t *testing.T) {
	needLandlock(t)
	dir := openFolder(t)
	if os.Getuid() == 0 {
		makeSetuid(t, dir, 65534)
		t.Setenv(asUser, dir)
	}
	newPlace(t, filepath.Join(dir, "place")).check(t)
}

// All of it again as a user who is not root.
func TestAProgramOfAnotherUserDoesNotGetOut(t *testing.T) {
	needLandlock(t)
	if place := os.Getenv(asUser); place != "" {
		newPlace(t, filepath.Join(place, "place")).check(t)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("skipped: another user (this test is run as one already)")
	}
	runAsAnotherUser(t)
}

// runAsAnotherUser runs the same test as a user who is not root.
func runAsAnotherUser(t *testing.T) {
	t.Helper()
	dir := openFolder(t)
	makeSetuid(t, dir, 0)
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test")
	if err := errors.Join(os.WriteFile(program, self, 0o755), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env, cmd.Dir = append(os.Environ(), asUser+"="+dir, "TMPDIR="+dir), dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// openFolder is t.TempDir for every user.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for d := dir; d != "/" && d != "/tmp"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) // it is ours, or open already
	}
	return dir
}

// makeSetuid makes a program that runs as another user.
func makeSetuid(t *testing.T, dir string, uid int) {
	t.Helper()
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "setuid")
	if err := errors.Join(os.WriteFile(path, self, 0o755), os.Chown(path, uid, uid), os.Chmod(path, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
}

// elf32 returns a program of 32 bits that does nothing: exit(0) by the 32-bit table of calls.
func elf32() []byte {
	code := []byte{0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80} // mov eax, 1; xor ebx, ebx; int 0x80
	const base, head = 0x08048000, 52 + 32
	var b bytes.Buffer
	b.Write([]byte{0x7f, 'E', 'L', 'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	size := uint32(head + len(code))
	for _, v := range []any{
		uint16(2), uint16(3), uint32(1), uint32(base + head), uint32(52), uint32(0), uint32(0), uint16(52), uint16(32), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(0), uint32(base), uint32(base), size, size, uint32(5), uint32(0x1000),
	} {
		_ = binary.Write(&b, binary.LittleEndian, v) // into memory
	}
	b.Write(code)
	return b.Bytes()
}

// withoutLandlock runs the rest of the arguments as on a kernel without Landlock: its calls do not exist.
func withoutLandlock(command []string) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 2},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: unix.SYS_LANDLOCK_RESTRICT_SELF, Jt: 1},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := wall.FilterForTest(filter); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, syscall.Exec(command[0], command, os.Environ()))
	os.Exit(1)
}

// On a kernel without Landlock, the level standard has the other walls, says which ones are missing, and the level strict refuses.
func TestWithoutLandlockStrictRefusesAndStandardSaysWhatIsMissing(t *testing.T) {
	if os.Getenv("WALL_TEST_OLD_KERNEL") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "without-landlock", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), "WALL_TEST_OLD_KERNEL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	p := newPlace(t, openFolder(t))
	s := p.server
	s.Walls = p.strict()
	_, err := p.spawn.Start(&s)
	missing, ok := errors.AsType[*wall.UnavailableError](err)
	if !ok || missing.Lack.Wall != wall.Files || !strings.HasPrefix(err.Error(), "start ") || !strings.Contains(err.Error(), "SB-DISC-004") {
		t.Errorf("at sandbox: strict: %v", err)
	}
	_, effect := p.try(t, switchboard.Confinement{Level: switchboard.SandboxStandard}, "nothing", "")
	var lacks []string
	for _, m := range effect.Missing {
		lacks = append(lacks, m.Wall)
	}
	if want := []string{wall.Files, wall.Signals}; !slices.Equal(lacks, want) || slices.Contains(effect.Walls, wall.Files) || !slices.Contains(effect.Walls, wall.Calls) {
		t.Errorf("at sandbox: standard: %+v", effect)
	}
	for _, a := range attempts {
		if slices.Contains([]string{"vm", "ptrace", "io_uring", "keyctl", "userfaultfd", "bpf", "perf", "mount", "capabilities", "core", "euid"}, a.escape) || a.word == "elf32" {
			if got, _ := p.try(t, switchboard.Confinement{Level: switchboard.SandboxStandard}, a.escape, p.words[a.word]); !strings.HasPrefix(got, "stopped: ") {
				t.Errorf("%s: %s", a.name, got)
			}
		}
	}
}

// Some containers have no folder for temporary files, or nothing that may be written.
func TestWithoutAFolderForTemporaryFilesStrictRefusesAndStandardSaysSo(t *testing.T) {
	needLandlock(t)
	p := newPlace(t, openFolder(t))
	t.Setenv("TMPDIR", "/nowhere")
	s := p.server
	s.Walls = p.strict()
	_, err := p.spawn.Start(&s)
	if missing, ok := errors.AsType[*wall.UnavailableError](err); !ok || missing.Lack.Wall != wall.Temp || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("at sandbox: strict: %v", err)
	}
	_, effect := p.try(t, switchboard.Confinement{Level: switchboard.SandboxStandard}, "nothing", "")
	if len(effect.Missing) != 1 || effect.Missing[0].Wall != wall.Temp || slices.Contains(effect.Walls, wall.Temp) || !slices.Contains(effect.Walls, wall.Files) {
		t.Errorf("at sandbox: standard: %+v", effect)
	}
}

// Two threads of the guard: the one with the walls starts the program, and the other ones end it, and everything that it has started (ST-06).
func TestTheGuardEndsWhatItCannotBeReachedBy(t *testing.T) {
	needLandlock(t)
	p := newPlace(t, openFolder(t))
	p.checkSweep(t, switchboard.Confinement{Level: switchboard.SandboxStandard}, p.strict())
}

// checkSweep starts a program that starts a daemon, and ends it.
func (p *place) checkSweep(t *testing.T, levels ...switchboard.Confinement) {
	t.Helper()
	for _, walls := range levels {
		s := p.server
		s.Walls = walls
		s.Command = append(slices.Clone(s.Command), "daemon", "now")
		proc, err := p.spawn.Start(&s)
		if err != nil {
			t.Fatal(err)
		}
		var pid int
		if _, err := fmt.Fscan(proc.Stdout, &pid); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); err != nil {
			t.Fatalf("the daemon does not run: %v", err)
		}
		hurry := make(chan struct{})
		close(hurry)
		if !proc.Stop(hurry) {
			t.Error("its guard is not gone")
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("at %q the daemon is still there: %v", walls.Level, err)
		}
	}
}

// What a program uses beyond its limits ends it, with the reason.
func TestAProgramThatUsesTooMuchIsEnded(t *testing.T) {
	needLandlock(t)
	p := newPlace(t, openFolder(t))
	p.checkLimits(t, p.strict())
}

// checkLimits starts programs that use more than they may.
func (p *place) checkLimits(t *testing.T, walls switchboard.Confinement) {
	t.Helper()
	limits := wall.StrictLimits
	t.Cleanup(func() { wall.StrictLimits = limits })
	wall.StrictLimits.Memory, wall.StrictLimits.Processes = 64<<20, 12
	for escape, tt := range map[string]struct{ word, want string }{
		"memory": {"256", "it used more than 64 MiB of memory"}, "processes": {"40", "it ran more than 12 processes"},
	} {
		began := time.Now()
		s := p.server
		s.Walls = walls
		s.Walls.Exec = append(slices.Clone(walls.Exec), s.Command[0])
		s.Command = append(slices.Clone(s.Command), escape, tt.word)
		proc, err := p.spawn.Start(&s)
		if err != nil {
			t.Fatal(err)
		}
		<-proc.Ended
		if got := proc.ExitStatus(); got != tt.want {
			t.Errorf("%s: it ended with %q", escape, got)
		}
		if took := time.Since(began); took > 8*time.Second {
			wait.Late(t, "%s: it took %v", escape, took)
		}
		proc.Stop(nil)
	}
}

// A start with walls, and one without. The difference is what walls cost; docs/walls.md has the figures.
func BenchmarkStart(b *testing.B) {
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		b.Fatal(err)
	}
	spawn := process.NewSpawner([]string{program, "guard"})
	defer spawn.Close()
	for _, walls := range []switchboard.Confinement{
		{Level: switchboard.SandboxOff},
		{Level: switchboard.SandboxStandard},
		{Level: switchboard.SandboxStrict},
		{Level: switchboard.SandboxStrict, Hosts: []switchboard.HostPort{{Name: "api.example.com", Port: 443}}},
	} {
		name := string(walls.Level)
		if len(walls.Hosts) > 0 {
			name += "-hosts"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p, err := spawn.Start(&switchboard.Server{Command: []string{program, "escape", "nothing", ""}, Walls: walls})
				if err != nil {
					b.Fatal(err)
				}
				<-p.Ended
				b.StopTimer()
				p.Stop(nil)
				b.StartTimer()
			}
		})
	}
}

func TestThePageShowsTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/walls.md")
	if err != nil {
		t.Fatal(err)
	}
	want := "| what it tries | `standard` | `strict` |\n| --- | --- | --- |\n"
	for _, a := range attempts {
		want += fmt.Sprintf("| %s | %s | no |\n", a.name, map[bool]string{true: "yes", false: "no"}[a.standard])
	}
	if _, rest, ok := strings.Cut(string(page), "<!-- escapes -->\n"); !ok || !strings.HasPrefix(rest, want) {
		t.Errorf("the page does not have this table:\n%s", want)
	}
}
