// Package oauth makes Switchboard an OAuth client of the authorization servers of MCP servers: the MCP authorization specification of
// 2025-11-25 and 2026-07-28.
//
// It decides what may be believed of a server and of its authorization server: whose metadata, which endpoints, which answers, which
// tokens. It makes the requests. It stores nothing: its caller keeps the Provider, the ClientRegistration and the Tokens of a connection, sealed, and
// decides when to ask whom.
//
// Strangers write the metadata. A server names its authorization server, which names its endpoints, so each address is checked as a URL
// and again when it is dialled. Only the operator's own choices, the server's host and the issuer of its row, may be inside the network.
//
// The order of the steps:
//
//	c, err := oauth.New("https://mcp.example.com/mcp", oauth.Options{})
//	challenge, _ := oauth.ParseChallenge(response.Header.Values("WWW-Authenticate"))
//	p, err := c.Discover(ctx, challenge, oauth.ForPerson)
//	r, err := c.ChooseRegistration(ctx, p, oauth.Ways{Document: documentURL, Request: oauth.RegistrationRequest{Redirect: redirect}})
//	scopes, err := p.ChooseScopes(challenge, allowed)
//	address, attempt, err := c.Begin(p, r, redirect, scopes)
//	// The person's browser goes to the address, and comes back to redirect with a query.
//	tokens, err := c.Redeem(ctx, p, r, attempt, query)
//	tokens, err = c.Refresh(ctx, p, r, tokens)
//	err = c.Revoke(ctx, p, r, tokens)
package oauth

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"

	"github.com/summit-switchboard/switchboard/internal/dial"
)

// A Dialer opens a connection, as net.Dialer.DialContext does.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Options are the operator's settings for one server. The zero Options work.
type Options struct {
	// Issuer is the authorization server that the server's row names, byte for byte. It is then the only one that is used, and its host
	// may be inside the network. "" means: the one that the server names.
	Issuer string

	// Public opens connections to the hosts of strangers; nil means dial.Public. A Dialer that goes through a proxy leaves the check of addresses
	// to the proxy, unless it resolves the name itself.
	Public  Dialer
	Trusted Dialer // to the server's host and to the Issuer's; nil means dial.Context

	PublicTLS  *tls.Config // nil means the roots of the system
	TrustedTLS *tls.Config
}

// A Client asks the authorization server of one MCP server. Several goroutines may use it at once.
type Client struct {
	server  *url.URL
	options Options
}

// New returns a client for the MCP server at the URL, as the operator wrote it.
func New(serverURL string, o Options) (*Client, error) {
	u, err := url.Parse(serverURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("the server's url %.200q is no http or https URL", serverURL)
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	if o.Public == nil {
		o.Public = dial.Public
	}
	if o.Trusted == nil {
		o.Trusted = dial.Context
	}
	c := &Client{server: u, options: o}
	if o.Issuer != "" {
		if err := c.checkIssuer(o.Issuer); err != nil {
			return nil, fmt.Errorf("the issuer of the server's row: %w", err)
		}
	}
	return c, nil
}

// A Provider is what is known of an MCP server and of its authorization server. It has no secret. As JSON it is kept with a connection.
type Provider struct {
	Resource    string   `json:"resource"` // the identifier of the MCP server: RFC 9728 section 2
	Scopes      []string `json:"scopes,omitempty"`
	Issuer      string   `json:"issuer"` // byte for byte
	AuthMethods []string `json:"auth_methods,omitempty"`

	AuthorizationEndpoint string `json:"authorization_endpoint,omitempty"`
	TokenEndpoint         string `json:"token_endpoint"`
	RegistrationEndpoint  string `json:"registration_endpoint,omitempty"`
	RevocationEndpoint    string `json:"revocation_endpoint,omitempty"`

	StatesIssuer      bool `json:"states_issuer,omitempty"`      // authorization_response_iss_parameter_supported: RFC 9207
	MetadataDocuments bool `json:"metadata_documents,omitempty"` // client_id_metadata_document_supported
	OfflineAccess     bool `json:"offline_access,omitempty"`     // it knows the scope offline_access
	S256              bool `json:"s256,omitempty"`               // PKCE: RFC 7636
}
