package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/dns"
)

const onLink, loop = "link-local or metadata", "loopback"

func TestSS01SS03NoNameLeadsToAnAddressOnTheLinkInAnyOfItsForms(t *testing.T) {
	for _, host := range []string{"mcp.example.com", "far.test", "far", "localhost", "metadata.google.internal", "2852039166", "0xa9.254.1", "127.1"} {
		for addr, want := range map[string]string{
			"169.254.169.254":               onLink,
			"169.254.0.1":                   onLink,
			"fe80::1":                       onLink,
			"fe80::1%1":                     onLink,
			"febf::1":                       onLink,
			"fd00:ec2::254":                 onLink,
			"fd00:ec2::23":                  onLink,
			"fd20:ce::254":                  onLink,
			"100.100.100.200":               onLink,
			"168.63.129.16":                 onLink,
			"::ffff:169.254.169.254":        onLink,
			"::ffff:100.100.100.200":        onLink,
			"::169.254.169.254":             onLink,
			"::ffff:0:169.254.169.254":      onLink,
			"64:ff9b::169.254.169.254":      onLink,
			"64:ff9b::a9fe:a9fe":            onLink,
			"64:ff9b:1::169.254.169.254":    onLink,
			"64:ff9b:1:a9fe:a9:fe00::":      onLink,
			"2002:a9fe:a9fe::1":             onLink,
			"2001:0:a9fe:a9fe::1":           onLink,
			"2001:0:c000:201:0:0:5601:5601": onLink, // the client of Teredo, inverted
			"192.0.2.1":                     "",
			"10.0.0.5":                      "",
			"172.16.0.1":                    "",
			"192.168.1.1":                   "",
			"100.64.0.1":                    "",
			"198.18.0.1":                    "",
			"169.253.0.1":                   "",
			"fec0::1":                       "",
			"fd00::1":                       "",
			"fd20:ce::253":                  "",
			"2001:db8::1":                   "",
			"2001:1::a9fe:a9fe":             "",
			"64:ff9b::192.0.2.1":            "",
			"2002:c000:201::1":              "",
			"2001:db8::169.254.169.254":     "",
			"64:ff9b:2::169.254.169.254":    "",
			"2001:0:c000:201:0:0:3fff:fdfe": "",
			"64:ff9b:1::192.0.2.1":          "",
			"64:ff9b:1:c000:2:100::":        "",
		} {
			if got := kindOf(checkAddress(host, netip.MustParseAddr(addr))); got != want {
				t.Errorf("%s at %s: %q, want %q", host, addr, got, want)
			}
		}
	}
}

func TestSS05APublicNameDoesNotLeadToLoopback(t *testing.T) {
	useHosts(t, "127.0.0.1 localhost\n127.0.1.1\tHere.example.com here # there.example.com\n::1 six.example.com\n127.0.0.1\nnone other.example.com\n")
	for host, want := range map[string]string{
		"mcp.example.com":        loop,
		"mcp.example.com.":       loop,
		"localhost.example.com":  loop,
		"127.0.0.1.example.com":  loop,
		"127.1":                  loop, // some system resolvers accept such a form
		"0x7f.0.0.1":             loop,
		"there.example.com":      loop, // in a comment
		"other.example.com":      loop,
		"six.example.com":        loop, // the hosts file has another address for it
		"home.arpa.example.com":  loop,
		"xhome.arpa":             loop,
		"localhost":              "",
		"a.localhost":            "",
		"LOCALHOST.":             "",
		"printer.local":          "",
		"host.docker.internal":   "",
		"redis":                  "",
		"nas.home.arpa":          "",
		"far.test":               "",
		"here.example.com":       "",
		"HERE.example.com.":      "",
		"127.0.0.1":              "",
		"::1":                    "",
		"::ffff:127.0.0.1":       "",
		"0.0.0.0":                "",
		"169.254.169.254":        "",
		"fe80::1%eth0":           "",
		"64:ff9b::169.254.1.1":   "",
		"2002:a9fe:a9fe::1":      "",
		"100.100.100.200":        "",
		"::ffff:169.254.169.254": "",
	} {
		if got := kindOf(checkAddress(host, netip.MustParseAddr("127.0.1.1"))); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
	for _, addr := range []string{
		"127.0.0.1", "127.255.255.254", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1",
		"64:ff9b:1::127.0.0.1", "64:ff9b:1:7f00::100:0:0", "2002:7f00:1::", "2002::1", "2001:0:7f00:1::",
	} {
		if got := kindOf(checkAddress("mcp.example.com", netip.MustParseAddr(addr))); got != loop {
			t.Errorf("%s: %q", addr, got)
		}
	}
	hostsFile = filepath.Join(t.TempDir(), "none")
	if got := kindOf(checkAddress("here.example.com", netip.MustParseAddr("127.0.1.1"))); got != loop {
		t.Errorf("without a hosts file: %q", got)
	}
}

// listenForNames starts a DNS server that this process asks until the test ends.
func listenForNames(t *testing.T) *dns.Server {
	t.Helper()
	names, err := dns.Listen(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	was := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = was })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, names.Addr)
	}}
	return names
}

// Each time, the address that is dialled is checked.
func TestSS05ANameIsCheckedAtEachConnection(t *testing.T) {
	names := listenForNames(t)
	useHosts(t, "")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var accepted atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			_ = c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, step := range []struct {
		host, want string
		to         []string
	}{
		{"far.test", "", []string{"127.0.0.1"}},
		{"far.test", onLink, []string{"fe80::1"}}, // the system sends nothing there without a zone, even if we are wrong
		{"far.test", "", []string{"127.0.0.1"}},
		{"far.test", "", []string{"fe80::1", "127.0.0.1"}},
		{"far.example.com", loop, []string{"127.0.0.1"}},
		{"127.0.0.1", "", nil},
	} {
		names.Set(step.host, step.to...)
		c, err := Context(t.Context(), "tcp", net.JoinHostPort(step.host, port))
		if kindOf(err) != step.want || (err == nil) != (step.want == "") {
			t.Errorf("%s at %s: %v, want %q", step.host, step.to, err, step.want)
		}
		if err == nil {
			_, _ = c.Read(make([]byte, 1)) // until the connection was accepted
			_ = c.Close()
		}
	}
	if n := accepted.Load(); n != 4 {
		t.Errorf("%d connections arrived, want 4", n)
	}
}

// A name with an address of IPv6 that never answers costs a moment, and not the connection: the addresses are raced. An address that dial
// refuses does not stop the race.
func TestABlackHoledAddressDoesNotStopTheOthers(t *testing.T) {
	names := listenForNames(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	blackHole(t, l.Addr().(*net.TCPAddr).Port)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, addresses := range [][]string{{"::1", "127.0.0.1"}, {"::1", "fe80::1", "169.254.169.254", "127.0.0.1"}} {
		names.Set("far.test", addresses...)
		began := time.Now()
		c, err := Context(t.Context(), "tcp", net.JoinHostPort("far.test", port))
		if err != nil {
			t.Fatalf("%q: %v", addresses, err)
		}
		took := time.Since(began)
		if _ = c.Close(); took > Timeout/3 {
			t.Errorf("%q: the connection took %v", addresses, took)
		}
		t.Logf("%q: %v", addresses, took)
	}
}

func kindOf(err error) string {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.Kind
	}
	return ""
}

// useHosts gives the test its own hosts file.
func useHosts(t *testing.T, text string) {
	t.Helper()
	was := hostsFile
	t.Cleanup(func() { hostsFile = was })
	hostsFile = filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hostsFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
