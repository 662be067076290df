package passage

import (
	"bufio"
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of what is in one network.
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

// A site is what exists in the program's network.
type site struct {
	addresses []siteAddress         // of the loopback interface, besides its own
	doors     []door                // sorted by nothing; each place once
	names     map[string]netip.Addr // what DNS answers
	resolvers []netip.Addr          // where it answers
}

// A siteAddress is an address that the loopback interface gets.
type siteAddress struct {
	netip.Addr
	optional bool // the network may lack it
}

// layOut returns what exists in the network of a program that may reach these hosts. nameservers are those of the machine: programs ask them. hostsFile
// returns the addresses that the file of hosts gives a name: programs read that file too, and connect to what it says.
func layOut(hosts []switchboard.HostPort, nameservers []netip.Addr, hostsFile func(name string) []netip.Addr) site {
	s := site{names: map[string]netip.Addr{}}
	var named []switchboard.HostPort
	for _, h := range hosts {
		if ip, err := netip.ParseAddr(h.Name); err == nil {
			s.open(ip, h, false)
		} else {
			named = append(named, h)
		}
	}
	for _, ip := range nameservers[:min(len(nameservers), maxNameservers)] {
		if ip.Zone() == "" && isOfOneHost(ip) {
			s.add(ip, ip.Is6())
			s.resolvers = append(s.resolvers, ip)
		}
	}
	if !slices.Contains(s.resolvers, localhost4) {
		s.resolvers = append(s.resolvers, localhost4) // libraries ask it where they know no other
	}
	next := netip.AddrFrom4([4]byte{127, 64, 0, 1})
	for _, h := range named {
		if h.Name == "localhost" {
			s.names[h.Name] = localhost4
			s.open(localhost4, h, false)
			s.open(localhost6, h, true)
			continue
		}
		if _, known := s.names[h.Name]; !known {
			for s.has(next) {
				next = next.Next()
			}
			s.names[h.Name] = next
			next = next.Next()
		}
		s.open(s.names[h.Name], h, false)
		for i, ip := range hostsFile(h.Name) {
			if i < maxHostsFile && isOfOneHost(ip) {
				s.open(ip, h, true)
			}
		}
	}
	return s
}

// open adds a door, and its address. If the place has a door already, that one stays.
func (s *site) open(ip netip.Addr, to switchboard.HostPort, optional bool) {
	at := netip.AddrPortFrom(ip, to.Port)
	if slices.ContainsFunc(s.doors, func(d door) bool { return d.at == at }) {
		return
	}
	s.doors = append(s.doors, door{at, to, optional})
	s.add(ip, optional)
}

// add adds an address, unless the loopback interface has it without our help.
func (s *site) add(ip netip.Addr, optional bool) {
	if !ip.IsLoopback() && !slices.ContainsFunc(s.addresses, func(a siteAddress) bool { return a.Addr == ip }) {
		s.addresses = append(s.addresses, siteAddress{ip, optional})
	}
}

// has reports whether the address has a meaning already.
func (s *site) has(ip netip.Addr) bool {
	return slices.Contains(s.resolvers, ip) || slices.ContainsFunc(s.doors, func(d door) bool { return d.at.Addr() == ip })
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
