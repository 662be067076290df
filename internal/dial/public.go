package dial

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

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
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: Timeout, KeepAlive: keepAliveInterval, Control: func(network, dialled string, _ syscall.RawConn) error {
		return checkPublic(host, network, dialled)
	}}
	return d.DialContext(ctx, network, address)
}

// checkPublic returns an error, a *NotPublicError, if the address is not public.
func checkPublic(host, network, dialled string) error {
	to, err := netip.ParseAddrPort(dialled)
	if err != nil {
		return err
	}
	// The registries do not have the metadata service of Azure, which has a public address.
	if guardian.Safe(network, dialled, nil) != nil || OnLink(to.Addr()) {
		return &NotPublicError{Host: host, Addr: to.Addr()}
	}
	return nil
}
