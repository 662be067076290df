package passage

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// hosts returns hosts from texts such as example.com:443.
func hosts(texts ...string) (all []switchboard.HostPort) {
	for _, text := range texts {
		at := strings.LastIndexByte(text, ':')
		h := switchboard.HostPort{Name: strings.Trim(text[:at], "[]")}
		_, _ = fmt.Sscan(text[at+1:], &h.Port)
		all = append(all, h)
	}
	return all
}

// show writes a network as text, in its order.
func show(s innerNetwork) string {
	var b strings.Builder
	for _, a := range s.addresses {
		fmt.Fprintf(&b, "address %s%s\n", a.Addr, map[bool]string{true: " optional"}[a.optional])
	}
	for _, d := range s.doors {
		fmt.Fprintf(&b, "door %s to %s%s\n", d.at, d.to, map[bool]string{true: " optional"}[d.optional])
	}
	for _, h := range slices.Sorted(func(yield func(string) bool) {
		for name, ip := range s.names {
			if !yield(name + " is " + ip.String()) {
				return
			}
		}
	}) {
		fmt.Fprintln(&b, h)
	}
	fmt.Fprintln(&b, "DNS at", s.resolvers)
	return b.String()
}

func TestANetworkHasThePermittedHostsAndNothingElse(t *testing.T) {
	file := map[string][]netip.Addr{
		"here.example.com":  {netip.MustParseAddr("127.0.1.1"), netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")},
		"no.example.com":    {netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("::"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("224.0.0.1")},
		"many.example.com":  slices.Repeat([]netip.Addr{netip.MustParseAddr("10.0.0.8")}, 9),
		"other.example.com": {netip.MustParseAddr("10.0.0.9")}, // nobody may reach it
	}
	file["many.example.com"] = append(file["many.example.com"], netip.MustParseAddr("10.0.0.10"))
	for name, tt := range map[string]struct{ hosts, nameservers, want string }{
		"names, each with an address of its own": {
			"a.example.com:443 a.example.com:8443 b.example.com:443", "10.0.0.1 8.8.8.8", `address 10.0.0.1
address 8.8.8.8
door 127.64.0.1:443 to a.example.com:443
door 127.64.0.1:8443 to a.example.com:8443
door 127.64.0.2:443 to b.example.com:443
a.example.com is 127.64.0.1
b.example.com is 127.64.0.2
DNS at [10.0.0.1 8.8.8.8 127.0.0.1]
`,
		},
		"addresses": {
			"10.0.0.5:5432 127.0.0.1:80 [2001:db8::1]:443 [::1]:80", "127.0.0.53", `address 10.0.0.5
address 2001:db8::1
door 10.0.0.5:5432 to 10.0.0.5:5432
door 127.0.0.1:80 to 127.0.0.1:80
door [2001:db8::1]:443 to [2001:db8::1]:443
door [::1]:80 to [::1]:80
DNS at [127.0.0.53 127.0.0.1]
`,
		},
		"localhost, and an address that it has too": {
			"127.0.0.1:80 localhost:80 localhost:81", "", `door 127.0.0.1:80 to 127.0.0.1:80
door [::1]:80 to localhost:80 optional
door 127.0.0.1:81 to localhost:81
door [::1]:81 to localhost:81 optional
localhost is 127.0.0.1
DNS at [127.0.0.1]
`,
		},
		"what the file of hosts says": {
			"here.example.com:80 many.example.com:80 no.example.com:80", "", `address 10.0.0.7 optional
address fd00::7 optional
address 10.0.0.8 optional
door 127.64.0.1:80 to here.example.com:80
door 127.0.1.1:80 to here.example.com:80 optional
door 10.0.0.7:80 to here.example.com:80 optional
door [fd00::7]:80 to here.example.com:80 optional
door 127.64.0.2:80 to many.example.com:80
door 10.0.0.8:80 to many.example.com:80 optional
door 127.64.0.3:80 to no.example.com:80
here.example.com is 127.64.0.1
many.example.com is 127.64.0.2
no.example.com is 127.64.0.3
DNS at [127.0.0.1]
`,
		},
		"addresses that are taken already": {
			"127.64.0.1:80 a.example.com:80 b.example.com:80", "127.64.0.2", `door 127.64.0.1:80 to 127.64.0.1:80
door 127.64.0.3:80 to a.example.com:80
door 127.64.0.4:80 to b.example.com:80
a.example.com is 127.64.0.3
b.example.com is 127.64.0.4
DNS at [127.64.0.2 127.0.0.1]
`,
		},
		"nameservers that a network of its own cannot have": {
			"a.example.com:80", "fe80::1%eth0 2001:db8::53 0.0.0.0 10.0.0.4", `address 2001:db8::53 optional
door 127.64.0.1:80 to a.example.com:80
a.example.com is 127.64.0.1
DNS at [2001:db8::53 127.0.0.1]
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var nameservers []netip.Addr
			for ip := range strings.FieldsSeq(tt.nameservers) {
				nameservers = append(nameservers, netip.MustParseAddr(ip))
			}
			got := show(layOut(hosts(strings.Fields(tt.hosts)...), nameservers, func(name string) []netip.Addr { return file[name] }))
			if got != tt.want {
				t.Errorf("got:\n%swant:\n%s", got, tt.want)
			}
		})
	}
}

func TestNameserversAreReadAsLibrariesReadThem(t *testing.T) {
	const text = `# nameserver 192.0.2.1
; nameserver 192.0.2.2
domain example.com
nameserver	10.0.0.1
nameserver 10.0.0.1
  nameserver ::ffff:10.0.0.2 # a comment
nameserver fe80::1%eth0
nameserver nonsense
nameserver
nameservers 192.0.2.3
search a.example.com b.example.com
`
	if got := fmt.Sprint(parseNameservers([]byte(text))); got != "[10.0.0.1 10.0.0.2 fe80::1%eth0]" {
		t.Error(got)
	}
}

func TestARefusalSaysWhatToDo(t *testing.T) {
	for set, want := range map[string]string{
		"": "the container that Switchboard runs in, forbids namespaces: allow them, or write network: none or any",
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns=1": "kernel.apparmor_restrict_unprivileged_userns to 0",
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns=0": "allow them",
		"/proc/sys/kernel/unprivileged_userns_clone=0":             "set the sysctl kernel.unprivileged_userns_clone to 1",
		"/proc/sys/user/max_user_namespaces=0":                     "set the sysctl user.max_user_namespaces to 10000",
		"/proc/sys/user/max_net_namespaces=0":                      "set the sysctl user.max_net_namespaces to 10000",
	} {
		file, value, _ := strings.Cut(set, "=")
		got := whyForbidden(syscall.EPERM, func(path string) string {
			if path == file {
				return value
			}
			return "10"
		})
		if !strings.Contains(got, want) || !strings.Contains(got, "operation not permitted") {
			t.Errorf("%q: %s", set, got)
		}
	}
}
