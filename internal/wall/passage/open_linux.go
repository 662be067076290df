package passage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// needed are the capabilities for a network of one's own: to make it, to give it addresses, and to listen at ports below 1024.
var needed = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE}

// Prepare changes how a process is started so that the process can call Open. A user without the capabilities for that gets them in a user
// namespace, in which the user and the group are the same. There they give rights over the namespaces that are made in it, and over nothing else.
func Prepare(attr *syscall.SysProcAttr) {
	if hasNeeded() {
		return
	}
	attr.Cloneflags |= unix.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	attr.AmbientCaps = append(attr.AmbientCaps, needed...) // a program loses the others at its start, unless its user is root
}

// hasNeeded reports whether this process has the capabilities.
func hasNeeded() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if unix.Capget(&header, &caps[0]) != nil {
		return false
	}
	for _, c := range needed {
		if caps[0].Effective&(1<<c) == 0 {
			return false
		}
	}
	return true
}

// Open gives the calling thread a network of its own, and opens the doors to the hosts in it. The caller must hold the thread until it ends, and calls Serve
// when the program has been started. The error says why there is no such network, with the remedy.
func Open(hosts []switchboard.HostPort) (*Passage, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, errors.New(WhyForbidden(err))
	}
	if err := raiseLoopback(); err != nil {
		return nil, fmt.Errorf("set up the loopback interface of its network: %w", err)
	}
	p := newPassage(layOut(hosts, machineNameservers(), dial.HostsFileAddresses))
	if err := p.listen(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// listen opens all listeners, in the network of this thread.
func (p *Passage) listen() error {
	for _, a := range p.inner.addresses {
		if err := addAddress(a.Addr); err != nil && !a.optional {
			return fmt.Errorf("give its network the address %s: %w", a.Addr, err)
		}
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	ctx := context.Background()
	taken := map[netip.AddrPort]bool{}
	for _, d := range p.inner.doors {
		l, err := lc.Listen(ctx, "tcp", d.at.String())
		switch {
		case err == nil:
			p.listeners, taken[d.at] = append(p.listeners, openDoor{d, l}), true
		case !d.optional:
			return fmt.Errorf("open its way to %s: %w", d.to, err)
		}
	}
	for _, ip := range p.inner.resolvers {
		at := netip.AddrPortFrom(ip, dnsPort)
		u, err := lc.ListenPacket(ctx, "udp", at.String())
		if err == nil {
			p.udpDNS = append(p.udpDNS, u)
		}
		if err == nil && !taken[at] {
			var t net.Listener
			if t, err = lc.Listen(ctx, "tcp", at.String()); err == nil {
				p.tcpDNS = append(p.tcpDNS, t)
			}
		}
		if err != nil && ip.Is4() {
			return fmt.Errorf("answer DNS in its network: %w", err)
		}
	}
	return nil
}

// raiseLoopback brings up the loopback interface of this thread's network.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing is sent
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// loopbackIndex is the number of the loopback interface in every network.
const loopbackIndex = 1

// addAddress gives the loopback interface of this thread's network an address: rtnetlink(7).
func addAddress(ip netip.Addr) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s) //nolint:errcheck // the answer is read
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return err
	}
	if err := unix.Sendto(s, encodeNewAddress(ip), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	var answer [4096]byte
	n, _, err := unix.Recvfrom(s, answer[:], 0)
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel gave another answer than expected")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); code != 0 {
		return syscall.Errno(-code)
	}
	return nil
}

// encodeNewAddress returns the request for an address.
func encodeNewAddress(ip netip.Addr) []byte {
	data := ip.AsSlice()
	b := make([]byte, unix.NLMSG_HDRLEN, 128)
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_NEWADDR)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	family := byte(unix.AF_INET)
	if ip.Is6() {
		family = unix.AF_INET6
	}
	b = append(b, family, byte(ip.BitLen()), 0, unix.RT_SCOPE_UNIVERSE)
	b = binary.NativeEndian.AppendUint32(b, loopbackIndex)
	attribute := func(kind uint16, data []byte) {
		b = binary.NativeEndian.AppendUint16(b, uint16(4+len(data)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = append(b, data...) // a multiple of four bytes
	}
	attribute(unix.IFA_LOCAL, data)
	attribute(unix.IFA_ADDRESS, data)
	// Without this flag, an address of IPv6 cannot be used at once: the kernel asks first whether the link has it already.
	attribute(unix.IFA_FLAGS, binary.NativeEndian.AppendUint32(nil, unix.IFA_F_NODAD|unix.IFA_F_PERMANENT))
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

// switches are settings that forbid users a network of their own, with the remedy.
var switches = []struct{ file, forbids, remedy string }{
	{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor forbids user namespaces to this user: give Switchboard a profile with the rule userns, or set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0"},
	{"/proc/sys/kernel/unprivileged_userns_clone", "0", "set the sysctl kernel.unprivileged_userns_clone to 1"},
	{"/proc/sys/user/max_user_namespaces", "0", "set the sysctl user.max_user_namespaces to 10000"},
	{"/proc/sys/user/max_net_namespaces", "0", "set the sysctl user.max_net_namespaces to 10000"},
}

// WhyForbidden says why this machine forbids a network of one's own, with the remedy.
func WhyForbidden(err error) string {
	return whyForbidden(err, func(path string) string {
		text, _ := os.ReadFile(path)
		return strings.TrimSpace(string(text))
	})
}

func whyForbidden(err error, read func(path string) string) string {
	if wrapped, ok := errors.AsType[*os.PathError](err); ok {
		err = wrapped.Err
	}
	remedy := "this machine, or the container that Switchboard runs in, forbids namespaces: allow them"
	for _, s := range switches {
		if read(s.file) == s.forbids {
			remedy = s.remedy
			break
		}
	}
	return fmt.Sprintf("single hosts need a network namespace, and the kernel refuses it: %v; %s, or write network: none or any", err, remedy)
}
