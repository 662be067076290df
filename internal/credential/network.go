package credential

import (
	"context"
	"net"
	"net/url"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/oauth"
	"github.com/summit-switchboard/switchboard/internal/route"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// client returns the OAuth client for a server. It reaches the server and the provider of the server's row as the row says: through the proxy, and with the
// certificates. It reaches a provider that the server itself names through the same proxy, which then decides about its address, or else at public addresses
// only. That provider sees no certificate of ours.
func (b *Broker) client(s *switchboard.Server) (*oauth.Client, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	report := func(err error) {
		b.log.Warn("a file of a server's certificates is not used", "server", string(s.ID), "error", err)
	}
	toServer := route.New(u, s.Network, report)
	name := s.Network.ServerName
	if s.Credential.Issuer != "" {
		name = "" // it is not that of the provider
	}
	trusted, err := toServer.TLSConfig(name)
	if err != nil {
		return nil, err
	}
	public, err := route.New(u, switchboard.Network{CA: s.Network.CA, Proxy: s.Network.Proxy}, report).TLSConfig("")
	if err != nil {
		return nil, err
	}
	dialPublic := func(ctx context.Context, network, address string) (net.Conn, error) {
		way := route.New(&url.URL{Scheme: "https", Host: address}, switchboard.Network{Proxy: s.Network.Proxy}, report)
		if proxy, _ := way.Proxy(); proxy != "" {
			return way.DialContext(ctx, network, address)
		}
		return dial.Public(ctx, network, address)
	}
	dialTrusted := func(ctx context.Context, network, address string) (net.Conn, error) {
		way := route.New(&url.URL{Scheme: u.Scheme, Host: address}, switchboard.Network{Proxy: s.Network.Proxy}, report)
		return way.DialContext(ctx, network, address)
	}
	return oauth.New(s.URL, oauth.Options{Issuer: s.Credential.Issuer, Public: dialPublic, Trusted: dialTrusted, PublicTLS: public, TrustedTLS: trusted})
}
