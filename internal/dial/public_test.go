package dial

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
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
	names := listenForNames(t)
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

// A program reaches what the operator wrote: an address, or a name with a public address. The owner of a name cannot lead it inward.
func TestSS01SS05AProgramsNameLeadsToPublicAddressesOnly(t *testing.T) {
	useHosts(t, "127.0.0.1 localhost\n10.0.0.5 db.example.com\n127.0.1.1 here.example.com\n169.254.169.254 meta.example.com\n93.184.215.20 self.example.com\n0.0.0.0 ads.example.com\n:: ads.example.com\n")
	useInterfaces(t, nil, "127.0.0.1/8", "93.184.215.20/24", "2606:4700:4700::20/64")
	for _, tt := range []struct {
		host, addr string
		may        bool
	}{
		{"api.example.com", "93.184.215.14", true},
		{"api.example.com", "2606:4700:4700::1111", true},
		{"api.example.com", "93.184.215.20", false}, // an interface of this machine has it
		{"api.example.com", "::ffff:93.184.215.20", false},
		{"api.example.com", "2606:4700:4700::20", false},
		{"localhost", "93.184.215.20", false},
		{"self.example.com", "93.184.215.20", true},
		{"self.example.com", "2606:4700:4700::20", false},
		{"93.184.215.20", "93.184.215.20", true},
		{"ads.example.com", "0.0.0.0", false}, // a list against advertising blocks the name
		{"ads.example.com", "::", false},
		{"ads.example.com", "::ffff:0.0.0.0", false},
		{"0.0.0.0", "0.0.0.0", true},
		{"api.example.com", "10.0.0.5", false}, // another name has it in the file of hosts
		{"api.example.com", "127.0.0.1", false},
		{"api.example.com", "0.0.0.0", false},
		{"api.example.com", "169.254.169.254", false},
		{"api.example.com", "168.63.129.16", false},
		{"api.example.com", "fd00::1", false},
		{"api.example.com", "64:ff9b::7f00:1", false},
		{"redis", "10.0.0.5", false}, // dial.Context takes a name without a dot for one of this machine
		{"redis", "127.0.0.1", false},
		{"api.test", "127.0.0.1", false},
		{"x.localhost", "127.0.0.1", false},
		{"localhost", "127.0.0.1", true},
		{"localhost", "::1", true},
		{"localhost", "10.0.0.5", false},
		{"localhost", "169.254.169.254", false},
		{"db.example.com", "10.0.0.5", true},
		{"db.example.com", "10.0.0.6", false},
		{"here.example.com", "127.0.1.1", true},
		{"meta.example.com", "169.254.169.254", false},
		{"10.0.0.5", "10.0.0.5", true},
		{"127.0.0.1", "127.0.0.1", true},
		{"169.254.169.254", "169.254.169.254", true}, // validate warns
		{"fd00::1", "fd00::1", true},
	} {
		network := "tcp4"
		if strings.Contains(tt.addr, ":") {
			network = "tcp6"
		}
		if err := checkForProgram(tt.host, network, netip.AddrPortFrom(netip.MustParseAddr(tt.addr), 443)); (err == nil) != tt.may {
			t.Errorf("%s at %s: %v", tt.host, tt.addr, err)
		}
	}
	names := listenForNames(t)
	names.Set("api.example.com", "127.0.0.1")
	if _, err := ForProgram(t.Context(), "tcp", "api.example.com:443"); !isNotPublic(err) {
		t.Errorf("the address that is dialled is not checked: %v", err)
	}
}

func isNotPublic(err error) bool {
	_, ok := errors.AsType[*NotPublicError](err)
	return ok
}

func TestSS05AProgramsNameLeadsNowhereWhereTheAddressesOfTheMachineAreUnknown(t *testing.T) {
	useHosts(t, "93.184.215.20 self.example.com\n")
	useInterfaces(t, errors.New("no netlink"))
	for host, may := range map[string]bool{"api.example.com": false, "self.example.com": true, "93.184.215.20": true} {
		if err := checkForProgram(host, "tcp4", netip.MustParseAddrPort("93.184.215.20:443")); (err == nil) != may {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestSS05TheErrorSaysThatAnAddressIsOneOfThisMachine(t *testing.T) {
	useHosts(t, "")
	useInterfaces(t, nil, "93.184.215.20/24")
	const want = `the host "api.example.com" leads to 93.184.215.20, which is an address of this machine`
	if err := checkForProgram("api.example.com", "tcp4", netip.MustParseAddrPort("93.184.215.20:443")); !isNotPublic(err) || err.Error() != want {
		t.Errorf("the error is %v", err)
	}
}

// useInterfaces gives the machine other addresses.
func useInterfaces(t *testing.T, err error, prefixes ...string) {
	t.Helper()
	was := interfaceAddrs
	t.Cleanup(func() { interfaceAddrs = was })
	interfaceAddrs = func() (all []net.Addr, _ error) {
		for _, p := range prefixes {
			ip, n, err := net.ParseCIDR(p)
			if err != nil {
				t.Error(err)
			}
			all = append(all, &net.IPNet{IP: ip, Mask: n.Mask})
		}
		return all, err
	}
}
