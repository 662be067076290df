package passage

import (
	"bufio"
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// These bound what one network has.
const (
	maxNameservers = 3 // that libraries read from a file
	maxHostsFile   = 8 // addresses that the file of hosts gives a name
)

// dnsPort is where DNS is answered.
const dnsPort = 53

var (
	localhost4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	localhost6 = netip.IPv6Loopback()
)

// A door is a port in the program's network, with the host that it leads to.
type door struct {
	at netip.AddrPort
	to switchboard.HostPort

	// optional says that the program has another way to the host: the network may lack this door.
	optional bool
}

// An innerNetwork is all that exists in the network of a program.
type innerNetwork struct {
	addresses []innerAddress        // of the loopback interface, besides its own
	doors     []door                // in no order; each place once
	names     map[string]netip.Addr // what DNS answers
	resolvers []netip.Addr          // where it answers
}

// An innerAddress is an address that the loopback interface gets.
type innerAddress struct {
	netip.Addr
	optional bool // the network may lack it
}

// layOut returns the network of a program that may reach these hosts. nameservers are the addresses in the machine's resolv.conf: programs ask them. hostsFile
// returns the addresses that the file of hosts gives a name: programs read that file too, and connect to them.
func layOut(hosts []switchboard.HostPort, nameservers []netip.Addr, hostsFile func(name string) []netip.Addr) innerNetwork {
	n := innerNetwork{names: map[string]netip.Addr{}}
	var named []switchboard.HostPort
	for _, h := range hosts {
		if ip, err := netip.ParseAddr(h.Name); err == nil {
			n.open(ip, h, false)
		} else {
			named = append(named, h)
		}
	}
	for _, ip := range nameservers[:min(len(nameservers), maxNameservers)] {
		if ip.Zone() == "" && isOfOneHost(ip) {
			n.add(ip, ip.Is6())
			n.resolvers = append(n.resolvers, ip)
		}
	}
	if !slices.Contains(n.resolvers, localhost4) {
		n.resolvers = append(n.resolvers, localhost4) // libraries ask it where they know no other
	}
	next := netip.AddrFrom4([4]byte{127, 64, 0, 1})
	for _, h := range named {
		if h.Name == "localhost" {
			n.names[h.Name] = localhost4
			n.open(localhost4, h, false)
			n.open(localhost6, h, true)
			continue
		}
		if _, known := n.names[h.Name]; !known {
			for n.has(next) {
				next = next.Next()
			}
			n.names[h.Name] = next
			next = next.Next()
		}
		n.open(n.names[h.Name], h, false)
		for i, ip := range hostsFile(h.Name) {
			if i < maxHostsFile && isOfOneHost(ip) {
				n.open(ip, h, true)
			}
		}
	}
	return n
}

// open adds a door, and its address. If the place has a door already, that one stays.
func (n *innerNetwork) open(ip netip.Addr, to switchboard.HostPort, optional bool) {
	at := netip.AddrPortFrom(ip, to.Port)
	if slices.ContainsFunc(n.doors, func(d door) bool { return d.at == at }) {
		return
	}
	n.doors = append(n.doors, door{at, to, optional})
	n.add(ip, optional)
}

// add adds an address, unless the loopback interface has it without our help.
func (n *innerNetwork) add(ip netip.Addr, optional bool) {
	if !ip.IsLoopback() && !slices.ContainsFunc(n.addresses, func(a innerAddress) bool { return a.Addr == ip }) {
		n.addresses = append(n.addresses, innerAddress{ip, optional})
	}
}

// has reports whether the address has a meaning already.
func (n *innerNetwork) has(ip netip.Addr) bool {
	return slices.Contains(n.resolvers, ip) || slices.ContainsFunc(n.doors, func(d door) bool { return d.at.Addr() == ip })
}

// isOfOneHost reports whether an address can be one of an interface that needs no name of a network card.
func isOfOneHost(ip netip.Addr) bool {
	return ip.IsValid() && !ip.IsUnspecified() && !ip.IsMulticast() && (ip.Is4() || !ip.IsLinkLocalUnicast())
}

// parseNameservers returns the addresses of a resolv.conf, as resolv.conf(5) describes it.
func parseNameservers(text []byte) (all []netip.Addr) {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if ip, err := netip.ParseAddr(fields[1]); err == nil && !slices.Contains(all, ip.Unmap()) {
			all = append(all, ip.Unmap())
		}
	}
	return all
}
