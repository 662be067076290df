package identity

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestTheKernelNamesTheUserAtTheOtherEnd(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Skip("this machine has no ", address)
		}
		client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		uid, inode, err := findSocket(client.LocalAddr(), client.RemoteAddr())
		if err != nil || uid != os.Getuid() || inode == "" || inode == "0" {
			t.Errorf("%s: uid %d, inode %q, %v", address, uid, inode, err)
		}
		from, to := netip.MustParseAddrPort(client.LocalAddr().String()), netip.MustParseAddrPort(client.RemoteAddr().String())
		for name, ask := range map[string]func(a, b netip.AddrPort) (int, string, error){"the kernel": askKernelForSocket, "its table": findSocketInTable} {
			if u, i, err := ask(from, to); err != nil || u != uid || i != inode {
				t.Errorf("%s, %s: uid %d, inode %q, %v", address, name, u, i, err)
			}
			// Nobody connects from where somebody listens. The kernel's answer is that listener.
			if _, _, err := ask(to, netip.AddrPortFrom(from.Addr(), from.Port()^1)); err == nil {
				t.Errorf("%s, %s: finds a connection that does not exist", address, name)
			}
		}
		if why := refusePeer(server.LocalAddr(), server.RemoteAddr()); why != nil {
			t.Errorf("%s: %s", address, why)
		}
		_, _, _ = client.Close(), server.Close(), l.Close()
		if why := refusePeer(server.LocalAddr(), server.RemoteAddr()); why != nil && !strings.Contains(why.Error(), "cannot be told") {
			t.Errorf("%s, after it is closed: %s", address, why)
		}
	}
}

// A process without descriptors cannot ask. It must not take a stranger, or a program of its own, for its user, nor remember that it could not ask.
func TestWithoutFileDescriptorsNobodyIsTakenForTheUser(t *testing.T) {
	asked, why := 0, error(errNoDescriptors)
	peer := rememberAnswer(func() error { asked++; return why })
	if err := peer(); !errors.Is(err, errNoDescriptors) {
		t.Errorf("without descriptors: %v", err)
	}
	why = nil
	for range 2 {
		if err := peer(); err != nil || asked != 2 {
			t.Errorf("then: %v, asked %d times", err, asked)
		}
	}
	for _, err := range []error{&os.PathError{Err: syscall.EMFILE}, os.NewSyscallError("socket", syscall.ENFILE)} {
		if !lacksDescriptors(err) {
			t.Errorf("%v is not understood", err)
		}
	}
}

func FuzzALineOfTheKernelIsReadOrRefused(f *testing.F) {
	f.Add("0100007F:1CFC")
	f.Add("00000000000000000000000001000000:1CFC")
	f.Add("0000000000000000FFFF00000100007F:0050")
	f.Add("0100007F:01CFC")
	f.Add(":")
	f.Add("zz:1")
	f.Fuzz(func(t *testing.T, text string) {
		if matchesAddress(text, netip.MustParseAddrPort("127.0.0.1:7420")) && !strings.HasSuffix(strings.ToUpper(text), ":1CFC") {
			t.Errorf("%q counts as port 7420", text)
		}
	})
}

func BenchmarkPeerOnceForAConnection(b *testing.B) {
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	client, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = client.Close(), l.Close() }()
	for b.Loop() {
		if why := refusePeer(client.RemoteAddr(), client.LocalAddr()); why != nil {
			b.Fatal(why)
		}
	}
}
