package system

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// InOwnNetwork returns how a process is started in a network of its own, with the capabilities to change it.
func InOwnNetwork() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if os.Getuid() != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE}
	}
	return attr
}

// NeedNetworks skips the test where the machine gives a program no network of its own.
func NeedNetworks(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "true")
	cmd.SysProcAttr = InOwnNetwork()
	if err := cmd.Run(); err != nil {
		t.Skipf("skipped: network namespaces (this machine forbids them: %v)", err)
	}
}

// CatchPackets has all packets leave by the loopback device of this process's own network (see InOwnNetwork), and returns the number of those that were sent since.
func CatchPackets(t *testing.T) (sent func() int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	up, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOOPBACK)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
		t.Fatalf("the loopback device does not come up: %v", err)
	}
	device := []byte("lo\x00")
	everywhere := routeEntry{dst: [16]byte{unix.AF_INET}, gateway: [16]byte{unix.AF_INET}, mask: [16]byte{unix.AF_INET}, flags: unix.RTF_UP, device: &device[0]}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCADDRT, uintptr(unsafe.Pointer(&everywhere))); errno != 0 { //nolint:gosec // the kernel reads the entry, which is alive
		t.Fatalf("the route cannot be set: %v", errno)
	}
	catchIPv6(t, device)
	before := packetsSent(t)
	return func() int { return packetsSent(t) - before }
}

// catchIPv6 sends all packets for IPv6 addresses to the device.
func catchIPv6(t *testing.T, device []byte) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	index, err := net.InterfaceByName(unix.ByteSliceToString(device))
	if err != nil {
		t.Fatal(err)
	}
	everywhere := routeEntryIPv6{metric: 1, flags: unix.RTF_UP, device: int32(index.Index)}                                         //nolint:gosec // it is small
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCADDRT, uintptr(unsafe.Pointer(&everywhere))); errno != 0 { //nolint:gosec // the kernel reads the entry, which is alive
		t.Fatalf("the route for IPv6 cannot be set: %v", errno)
	}
}

// A routeEntryIPv6 is the struct in6_rtmsg of linux/ipv6_route.h.
type routeEntryIPv6 struct {
	_      [3][16]byte // destination, source, gateway
	_      uint32
	_, _   uint16 // bits of the destination and of the source: 0 is any
	metric uint32
	_      uint64
	flags  uint32
	device int32
}

// A routeEntry is the struct rtentry of linux/route.h.
type routeEntry struct {
	_                  uintptr
	dst, gateway, mask [16]byte
	flags              uint16
	_                  int16
	_, _               uintptr
	_                  int16
	device             *byte
	_, _               uintptr
	_                  uint16
}

// packetsSent returns how many packets have left by the loopback device.
func packetsSent(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, counts, _ := strings.Cut(line, ":")
		var received, errs, drop, fifo, frame, compressed, multicast, bytes, packets int
		if strings.TrimSpace(name) != "lo" {
			continue
		}
		var octets int
		if _, err := fmt.Sscan(counts, &octets, &received, &errs, &drop, &fifo, &frame, &compressed, &multicast, &bytes, &packets); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return packets
	}
	t.Fatal("there is no loopback device")
	return 0
}
