package dial

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"code.dny.dev/ssrf"
)

// A NotPublicError says that Public opened no connection, because a host leads to an address that is not public.
type NotPublicError struct {
	Host string // as the stranger wrote it
	Addr netip.Addr
}

// Error names the host and the address.
func (e *NotPublicError) Error() string {
	return fmt.Sprintf("the host %.253q leads to %s, which is not a public address", e.Host, e.Addr)
}

// guardian knows the addresses that the registries of IANA reserve for special purposes, with those of IPv6 that contain an IPv4
// address: 6to4, NAT64, Teredo. Strangers may use every port.
var guardian = ssrf.New(ssrf.WithAnyPort())

// Public opens a connection like net.Dialer.DialContext, to an address that a stranger wrote: a server or an authorization server, in its metadata.
// It is stricter than Context, which serves URLs of the operator: the connection leads to no address of this machine, of a private network, of
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

// ForProgram opens a connection like net.Dialer.DialContext, to a host that the operator has permitted to the program of a server. An address is
// dialled as it is: the operator wrote it. A name leads to public addresses alone, because its owner may have written the program too, and could
// otherwise lead it to everything that this machine reaches. There are two exceptions, both made on this machine: localhost leads to
// loopback, and a name leads to the address that the file of hosts gives it, unless that is on the link.
func ForProgram(ctx context.Context, network, address string) (net.Conn, error) {
	return open(ctx, network, address, checkForProgram)
}

// checkForProgram returns an error, a *NotPublicError, if the host must not lead a program to the address.
func checkForProgram(host, network string, to netip.AddrPort) error {
	switch _, err := netip.ParseAddr(host); {
	case err == nil, host == "localhost" && isLoopback(to.Addr()):
		return nil
	case !OnLink(to.Addr()) && hostsFileHas(host, to.Addr()):
		return nil
	}
	return checkPublic(host, network, to)
}
