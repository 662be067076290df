package dial

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"code.dny.dev/ssrf"
)

// A NotPublicError says that Public or ForProgram opened no connection, because a host leads to an address that is not public, or to one of this machine.
type NotPublicError struct {
	Host string // as the stranger or the operator wrote it
	Addr netip.Addr
	Own  bool // it may be public, and is one of this machine
}

// Error names the host and the address.
func (e *NotPublicError) Error() string {
	if e.Own {
		return fmt.Sprintf("the host %.253q leads to %s, which is an address of this machine", e.Host, e.Addr)
	}
	return fmt.Sprintf("the host %.253q leads to %s, which is not a public address", e.Host, e.Addr)
}

// guardian knows the addresses that the registries of IANA reserve for special purposes, with those of IPv6 that contain an IPv4
// address: 6to4, NAT64, Teredo. Strangers may use every port.
var guardian = ssrf.New(ssrf.WithAnyPort())

// Public opens a connection like net.Dialer.DialContext, to an address that a stranger wrote: a server or an authorization server, in its metadata.
// It is stricter than Context, which serves URLs of the operator: the connection leads to no address of loopback, of a private network, of
// the link or of a cloud's metadata service, even if the host is the address itself.
func Public(ctx context.Context, network, address string) (net.Conn, error) {
	return open(ctx, network, address, checkPublic)
}

// checkPublic returns an error, a *NotPublicError, if the address is not public.
func checkPublic(host, network string, to netip.AddrPort) error {
	// The registries do not have the metadata service of Azure, which has a public address.
	if guardian.Safe(network, to.String(), nil) != nil || OnLink(to.Addr()) {
		return &NotPublicError{Host: host, Addr: to.Addr()}
	}
	return nil
}

// interfaceAddrs returns the addresses of this machine.
var interfaceAddrs = net.InterfaceAddrs

// ForProgram opens a connection like net.Dialer.DialContext, to a host that the operator has permitted to the program of a server. An address is
// dialled as it is: the operator wrote it. A name leads to public addresses alone, because its owner may have written the program too, and could
// otherwise lead it to everything that this machine reaches. It leads to none that an interface of this machine has: no firewall stands before those.
// There are two exceptions, both made on this machine: localhost leads to loopback, and a name leads to the address that the file of hosts gives it,
// unless that is on the link, or is the unspecified one, with which lists against advertising block a name.
func ForProgram(ctx context.Context, network, address string) (net.Conn, error) {
	return open(ctx, network, address, checkForProgram)
}

// checkForProgram returns an error, mostly a *NotPublicError, if the host must not lead a program to the address.
func checkForProgram(host, network string, to netip.AddrPort) error {
	ip := to.Addr().Unmap().WithZone("")
	switch _, err := netip.ParseAddr(host); {
	case err == nil, host == "localhost" && isLoopback(ip):
		return nil
	case !OnLink(ip) && !ip.IsUnspecified() && hostsFileHas(host, ip):
		return nil
	}
	if err := checkPublic(host, network, to); err != nil {
		return err
	}
	own, err := interfaceAddrs()
	if err != nil {
		return fmt.Errorf("list the addresses of this machine, to which no name may lead a program: %w", err)
	}
	if slices.ContainsFunc(own, func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.IP.Equal(ip.AsSlice()) }) {
		return &NotPublicError{Host: host, Addr: ip, Own: true}
	}
	return nil
}
