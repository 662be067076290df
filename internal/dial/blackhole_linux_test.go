package dial

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// blackHole makes a port of ::1 that answers no connection: its queue is full, and Linux drops what comes then.
func blackHole(t *testing.T, port int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skipf("skipped: this machine has no IPv6: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}); err != nil {
		t.Skipf("skipped: this machine has no IPv6: %v", err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 8 { // until one does not get in
		c, err := net.DialTimeout("tcp6", (&net.TCPAddr{IP: net.IPv6loopback, Port: port}).String(), 200*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the queue does not fill")
}
