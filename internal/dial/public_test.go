package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/test/dns"
)

func TestSS01SS03AStrangersHostLeadsToPublicAddressesOnly(t *testing.T) {
	for addr, public := range map[string]bool{
		"93.184.215.14":                 true,
		"8.8.8.8":                       true,
		"2606:4700:4700::1111":          true,
		"168.63.129.15":                 true,
		"168.63.129.16":                 false, // Azure's metadata service
		"127.0.0.1":                     false,
		"127.255.255.254":               false,
		"0.0.0.0":                       false,
		"10.1.2.3":                      false,
		"172.16.0.1":                    false,
		"172.31.255.255":                false,
		"192.168.1.1":                   false,
		"100.64.0.1":                    false,
		"100.100.100.200":               false,
		"169.254.169.254":               false,
		"198.18.0.1":                    false,
		"192.0.0.8":                     false,
		"192.0.2.1":                     false,
		"224.0.0.1":                     false,
		"240.0.0.1":                     false,
		"255.255.255.255":               false,
		"::":                            false,
		"::1":                           false,
		"::127.0.0.1":                   false,
		"::ffff:127.0.0.1":              false,
		"::ffff:8.8.8.8":                false,
		"::ffff:0:127.0.0.1":            false,
		"fe80::1":                       false,
		"fec0::1":                       false,
		"fc00::1":                       false,
		"fd00:ec2::254":                 false,
		"fd20:ce::254":                  false,
		"ff02::1":                       false,
		"64:ff9b::a9fe:a9fe":            false,
		"64:ff9b:1::a9fe:a9fe":          false,
		"2002:7f00:1::":                 false,
		"2002:a9fe:a9fe::1":             false,
		"2001:0:a9fe:a9fe::1":           false,
		"2001:0:c000:201:0:0:5601:5601": false,
		"2001:db8::1":                   false,
		"100::1":                        false,
	} {
		network := "tcp4"
		if strings.Contains(addr, ":") {
			network = "tcp6"
		}
		err := checkPublic("x.example.com", network, netip.AddrPortFrom(netip.MustParseAddr(addr), 8443))
		if (err == nil) != public {
			t.Errorf("%s: %v, want public: %t", addr, err, public)
		}
		if refused, ok := errors.AsType[*NotPublicError](err); err != nil && (!ok || refused.Host != "x.example.com" || refused.Addr != netip.MustParseAddr(addr)) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// Unlike Context, Public does not believe an address because it is written out: the stranger wrote it.
func TestSS01SS05PublicOpensNoConnectionInward(t *testing.T) {
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
	names, err := dns.Listen(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	was := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = was })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, names.Addr)
	}}
	names.Set("idp.example.com", "127.0.0.1")
	names.Set("far.test", "127.0.0.1")
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1", "localhost", "idp.example.com", "far.test"} {
		c, err := Public(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = c.Close()
		}
		if _, ok := errors.AsType[*NotPublicError](err); !ok {
			t.Errorf("%s: %v", host, err)
		}
	}
	if n := accepted.Load(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}
