// Package dial opens the connections to servers and for manifests.
//
// The operator writes the URLs. But DNS answers for the host names in them, and the owner of a name can change the answer at any time
// (DNS rebinding). So dial decides which addresses a name may lead to. It checks the address of each connection before the connection is
// opened. If the URL itself holds an address, the operator chose that address, and dial does not refuse it. Package config decides which
// URLs are valid.
package dial

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// Timeout bounds how long a connection may take to be opened.
	Timeout = 10 * time.Second

	keepAliveInterval = 30 * time.Second
)

// hostsFile names the hosts that the operator of the machine gave addresses to.
var hostsFile = "/etc/hosts"

// A RefusedError says that dial opened no connection, because a host name leads to a refused address.
type RefusedError struct {
	Host   string
	Addr   netip.Addr
	Kind   string // of the address
	Remedy string // what the operator can do
}

// Error names the host and the address.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the name %s leads to the %s address %s, which only a URL with the address itself may lead to", e.Host, e.Kind, e.Addr)
}

// Context opens a connection like net.Dialer.DialContext. It refuses addresses that the host in
// address must not lead to.
func Context(ctx context.Context, network, address string) (net.Conn, error) {
	return open(ctx, network, address, func(host, _ string, to netip.AddrPort) error { return checkAddress(host, to.Addr()) })
}

// open opens a connection to the first address of a host that passes the check.
func open(ctx context.Context, network, address string, check func(host, network string, to netip.AddrPort) error) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: Timeout, KeepAlive: keepAliveInterval, Control: func(network, dialled string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(dialled)
		if err != nil {
			return err
		}
		return check(host, network, to)
	}}
	return d.DialContext(ctx, network, address)
}

// checkAddress returns an error, a *RefusedError, if host may not lead to ip.
func checkAddress(host string, ip netip.Addr) error {
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	switch {
	case OnLink(ip):
		return &RefusedError{host, ip, "link-local or metadata", "check who answers for the name in DNS; if the server is there, write its address into the URL"}
	case slices.ContainsFunc(withEmbedded(ip), isLoopback) && !isLocalName(host) && !hostsFileHas(host, ip):
		return &RefusedError{host, ip, "loopback", "check who answers for the name in DNS; if the server is there, write localhost into the URL, or give the name this address in " + hostsFile}
	}
	return nil
}

// OnLink reports whether ip is link-local, or is the address of a cloud's metadata service, which
// gives out credentials.
func OnLink(ip netip.Addr) bool {
	return slices.ContainsFunc(withEmbedded(ip), func(ip netip.Addr) bool {
		return slices.ContainsFunc(linkNetworks, func(p netip.Prefix) bool { return p.Contains(ip) })
	})
}

// linkNetworks are the networks of OnLink.
var linkNetworks = parsePrefixes(
	"169.254.0.0/16", "fe80::/10", // link-local
	"fd00:ec2::/32",      // EC2: metadata, credentials of pods
	"fd20:ce::254/128",   // Google Cloud
	"100.100.100.200/32", // Alibaba Cloud
	"168.63.129.16/32",   // Azure
)

func parsePrefixes(all ...string) (out []netip.Prefix) {
	for _, s := range all {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// isLoopback reports whether a connection to ip stays on this machine. Linux takes the unspecified address for isLoopback.
func isLoopback(ip netip.Addr) bool { return ip.IsLoopback() || ip.IsUnspecified() }

// The networks of IPv6 addresses that contain an IPv4 address.
var (
	embeddedLast32 = parsePrefixes("::/96", "::ffff:0:0:0/96", "64:ff9b::/96") // IPv4-compatible, SIIT, NAT64
	localNAT64     = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour      = netip.MustParsePrefix("2002::/16")
	teredo         = netip.MustParsePrefix("2001::/32")
)

// withEmbedded returns ip and the IPv4 addresses that it contains: a gateway between IPv6 and IPv4 may pass a connection on to one.
func withEmbedded(ip netip.Addr) []netip.Addr {
	ip = ip.Unmap().WithZone("")
	all := []netip.Addr{ip}
	b := ip.As16()
	add := func(a, b, c, d byte) { all = append(all, netip.AddrFrom4([4]byte{a, b, c, d})) }
	if slices.ContainsFunc(embeddedLast32, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		add(b[12], b[13], b[14], b[15])
	}
	if localNAT64.Contains(ip) { // RFC 6052: the position of the address depends on the length of the gateway's prefix
		if slices.Max(b[12:]) > 0 {
			add(b[12], b[13], b[14], b[15])
		}
		if slices.Max(b[6:11]) > 0 {
			add(b[6], b[7], b[9], b[10])
		}
	}
	if sixToFour.Contains(ip) {
		add(b[2], b[3], b[4], b[5])
	}
	if teredo.Contains(ip) { // the server, and the client
		add(b[4], b[5], b[6], b[7])
		add(^b[12], ^b[13], ^b[14], ^b[15])
	}
	return all
}

// isLocalName reports whether the name is one that no public DNS answers for: it has no dot, or a top-level domain that is not delegated.
func isLocalName(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	at := strings.LastIndexByte(host, '.')
	if at < 0 {
		return true
	}
	return slices.Contains([]string{"localhost", "local", "internal", "test"}, host[at+1:]) || strings.HasSuffix(host, ".home.arpa")
}

// hostsFileHas reports whether the file of hosts gives the name this address. It is read only for names that lead to an address that is refused otherwise.
func hostsFileHas(host string, ip netip.Addr) bool {
	return slices.Contains(HostsFileAddresses(host), ip.Unmap().WithZone(""))
}

// HostsFileAddresses returns the addresses that the file of hosts of this machine gives a name.
func HostsFileAddresses(host string) (all []netip.Addr) {
	f, err := os.Open(hostsFile)
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // it was only read
	for s := bufio.NewScanner(f); s.Scan(); {
		line, _, _ := strings.Cut(s.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		named, err := netip.ParseAddr(fields[0])
		if err == nil && slices.ContainsFunc(fields[1:], func(name string) bool { return strings.EqualFold(name, strings.TrimSuffix(host, ".")) }) {
			all = append(all, named.Unmap().WithZone(""))
		}
	}
	return all
}
