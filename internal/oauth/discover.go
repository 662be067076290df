package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Bounds of a discovery.
const (
	discoverTimeout = 40 * time.Second
	maxIssuers      = 4 // that are asked, of those that a server names
	maxScopes       = 256
)

// A GrantKind distinguishes the tokens of persons from those of Switchboard itself.
type GrantKind string

// The uses.
const (
	ForPerson  GrantKind = "person"  // the authorization code flow: an authorization endpoint and PKCE are required
	ForProgram GrantKind = "program" // client credentials
)

// resourceMetadata describes an MCP server: RFC 9728 section 2.
type resourceMetadata struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	Scopes               []string `json:"scopes_supported"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	DPoPRequired         bool     `json:"dpop_bound_access_tokens_required"`
}

// serverMetadata describes an authorization server: RFC 8414 section 2.
type serverMetadata struct {
	Issuer            string   `json:"issuer"`
	Authorization     string   `json:"authorization_endpoint"`
	Token             string   `json:"token_endpoint"`
	Registration      string   `json:"registration_endpoint"`
	Revocation        string   `json:"revocation_endpoint"`
	Scopes            []string `json:"scopes_supported"`
	ClientAuth        []string `json:"token_endpoint_auth_methods_supported"`
	ChallengeMethods  []string `json:"code_challenge_methods_supported"`
	StatesIssuer      bool     `json:"authorization_response_iss_parameter_supported"`
	MetadataDocuments bool     `json:"client_id_metadata_document_supported"`
}

// errAbsent says that there is no document at a URL. The next URL of the order may have it.
var errAbsent = errors.New("there is no metadata")

// Discover finds out which authorization server gives tokens for the server. The challenge is the server's, or the zero Challenge.
//
// The server describes itself at the URL of its challenge, at its well-known URL, or at that of its origin. The first document whose resource
// is the server counts. If there is none at all, the server's origin is the issuer: the specification of 2025-03-26, which servers of that time follow.
// A document that is there and cannot be used never leads to that fallback.
func (c *Client) Discover(ctx context.Context, ch Challenge, use GrantKind) (*Provider, error) {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	described, err := c.askServer(ctx, ch)
	if err != nil {
		return nil, err
	}
	issuers, legacy := described.AuthorizationServers, false
	if issuers == nil {
		issuers, legacy = []string{originOf(c.server)}, true
	}
	if pinned := c.options.Issuer; pinned != "" {
		if !legacy && !slices.Contains(issuers, pinned) {
			return nil, fail(Misconfigured, "the server names the issuers %.300q, and its row has %q; they must be equal byte for byte", issuers, pinned)
		}
		issuers, legacy = []string{pinned}, false
	}
	var first error
	for _, issuer := range issuers[:min(len(issuers), maxIssuers)] {
		p, err := c.askIssuer(ctx, issuer, legacy, use)
		if err == nil {
			p.Resource, p.Scopes = described.Resource, described.Scopes
			return p, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// askServer returns the server's description of itself. It has no authorization servers if the server has none at any of the URLs.
func (c *Client) askServer(ctx context.Context, ch Challenge) (*resourceMetadata, error) {
	addresses := []string{insertWellKnown(c.server, "oauth-protected-resource"), originOf(c.server) + "/.well-known/oauth-protected-resource"}
	if ch.ResourceMetadata != "" {
		addresses = slices.Insert(addresses, 0, ch.ResourceMetadata)
	}
	var first error // of a document that is there
	for i, address := range addresses {
		if slices.Contains(addresses[:i], address) {
			continue
		}
		m, err := c.askResource(ctx, address)
		switch {
		case err == nil:
			return m, nil
		case KindOf(err) != Misconfigured: // the server does not answer, so nothing is known of its documents
			return nil, err
		case first == nil && !errors.Is(err, errAbsent):
			first = err
		}
	}
	if first != nil {
		return nil, first
	}
	own := *c.server
	if own.Path == "/" && own.RawQuery == "" { // the specification prefers the form without the slash
		own.Path, own.RawPath = "", ""
	}
	return &resourceMetadata{Resource: own.String()}, nil
}

// askResource reads and checks protected resource metadata: RFC 9728 section 3.
func (c *Client) askResource(ctx context.Context, address string) (*resourceMetadata, error) {
	u, err := c.checkAddress(address)
	if own, wrong := parseAddress(address); err != nil && wrong == nil && originOf(own) == originOf(c.server) {
		u, err = own, nil // the operator chose http for the server; its metadata is no secret
	}
	if err != nil {
		return nil, fail(Misconfigured, "the server's challenge has the resource_metadata %.200q, which cannot be used: %w", address, err)
	}
	var m resourceMetadata
	if err := c.document(ctx, u, &m); err != nil {
		return nil, err
	}
	resource, err := parseAddress(m.Resource)
	switch {
	case err != nil || !c.describes(resource):
		return nil, fail(Misconfigured, "the metadata at %.200s is of the resource %.200q, not of the server %s: correct the server's url in its row, or the metadata at the server", u, m.Resource, c.server)
	case len(m.AuthorizationServers) == 0:
		return nil, fail(Misconfigured, "the metadata at %.200s names no authorization_servers", u)
	case m.BearerMethods != nil && !slices.Contains(m.BearerMethods, "header"):
		return nil, fail(Misconfigured, "the server takes tokens with %.100q only, and Switchboard sends them in the header Authorization", m.BearerMethods)
	case m.DPoPRequired:
		return nil, fail(Misconfigured, "the server takes only tokens bound to a key (DPoP, RFC 9449), which Switchboard does not support")
	}
	if m.Scopes, err = checkScopes(m.Scopes); err != nil {
		return nil, fail(Misconfigured, "the metadata at %.200s has scopes_supported with %w", u, err)
	}
	return &m, nil
}

// askIssuer reads and checks the metadata of an authorization server, at its well-known URLs in the order of the MCP specification.
func (c *Client) askIssuer(ctx context.Context, issuer string, legacy bool, use GrantKind) (*Provider, error) {
	if err := c.checkIssuer(issuer); err != nil {
		return nil, fail(Misconfigured, "%w", err)
	}
	u, err := url.Parse(issuer)
	if err != nil {
		return nil, fail(Misconfigured, "%w", err)
	}
	addresses := []string{insertWellKnown(u, "oauth-authorization-server"), insertWellKnown(u, "openid-configuration")}
	if strings.Trim(u.Path, "/") != "" {
		addresses = append(addresses, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
	}
	var first error
	for _, address := range addresses {
		p, err := c.askMetadata(ctx, address, issuer, legacy, use)
		switch {
		case err == nil:
			return p, nil
		case KindOf(err) != Misconfigured:
			return nil, err
		case first == nil && !errors.Is(err, errAbsent):
			first = err
		}
	}
	if first == nil {
		first = fail(Misconfigured, "the issuer %.200s has no metadata at %s: state the issuer in the server's row, or ask the people who run the server", issuer, strings.Join(addresses, ", "))
	}
	return nil, first
}

// askMetadata reads and checks the metadata of an authorization server at one URL: RFC 8414 section 3.3.
func (c *Client) askMetadata(ctx context.Context, address, issuer string, legacy bool, use GrantKind) (*Provider, error) {
	u, err := c.checkAddress(address)
	if err != nil {
		return nil, fail(Misconfigured, "the issuer %.200q cannot be used: %w", issuer, err)
	}
	var m serverMetadata
	if err := c.document(ctx, u, &m); err != nil {
		return nil, err
	}
	// A legacy server has not named its issuer, only an origin, which has two spellings.
	if m.Issuer != issuer && (!legacy || m.Issuer != issuer+"/") {
		return nil, fail(Misconfigured, "the metadata at %.200s is of the issuer %.200q, not of %.200q; they must be equal byte for byte", u, m.Issuer, issuer)
	}
	p := &Provider{
		Issuer: m.Issuer, AuthMethods: bound(m.ClientAuth, 32, 64), StatesIssuer: m.StatesIssuer, MetadataDocuments: m.MetadataDocuments,
		AuthorizationEndpoint: m.Authorization, TokenEndpoint: m.Token, RegistrationEndpoint: m.Registration, RevocationEndpoint: m.Revocation,
		OfflineAccess: slices.Contains(m.Scopes, offlineAccess), S256: slices.Contains(m.ChallengeMethods, "S256"),
	}
	if use == ForPerson {
		if m.Authorization == "" {
			return nil, fail(Misconfigured, "the issuer %.200s has no authorization_endpoint", issuer)
		}
		if !p.S256 {
			return nil, fail(Misconfigured, "the issuer %.200s does not state that it supports PKCE with S256 (code_challenge_methods_supported), without which codes can be stolen", issuer)
		}
	}
	if err := c.checkProvider(p); err != nil {
		return nil, err
	}
	return p, nil
}

// checkProvider checks issuer and endpoints. A Provider that was kept is checked at each use, since the operator's row may have changed.
func (c *Client) checkProvider(p *Provider) error {
	if err := c.checkIssuer(p.Issuer); err != nil {
		return fail(Misconfigured, "%w", err)
	}
	if c.options.Issuer != "" && p.Issuer != c.options.Issuer {
		return fail(Misconfigured, "the server's row has the issuer %q, and this is %.200q", c.options.Issuer, p.Issuer)
	}
	for _, endpoint := range [][2]string{
		{"token_endpoint", p.TokenEndpoint},
		{"authorization_endpoint", p.AuthorizationEndpoint},
		{"registration_endpoint", p.RegistrationEndpoint},
		{"revocation_endpoint", p.RevocationEndpoint},
	} {
		name, address := endpoint[0], endpoint[1]
		if address == "" && name != "token_endpoint" {
			continue
		}
		if _, err := c.checkAddress(address); err != nil {
			return fail(Misconfigured, "the issuer %.200s has the %s %.200q, which cannot be used: %w", p.Issuer, name, address, err)
		}
	}
	return nil
}

// document reads a JSON document. Its error is errAbsent where a server answers that it has none: many answer every path with a page.
func (c *Client) document(ctx context.Context, u *url.URL, into any) error {
	a, err := c.get(ctx, u)
	switch {
	case err != nil:
		return err
	case a.status == http.StatusTooManyRequests:
		return &RequestError{Kind: Busy, RetryAfter: a.retryAfter(), Err: fmt.Errorf("%.200s answered %d", u, a.status)}
	case a.status >= http.StatusInternalServerError:
		return fail(Lost, "%.200s answered %d", u, a.status)
	case a.status >= 300 && a.status < 400:
		return fail(Misconfigured, "%.200s answered %d; redirects are not followed: %w", u, a.status, errAbsent)
	case a.status != http.StatusOK || !a.json:
		return fail(Misconfigured, "%.200s: %w", u, errAbsent)
	}
	if err := a.read(into); err != nil {
		return fail(Misconfigured, "the answer of %.200s cannot be used: %w", u, err)
	}
	return nil
}

// bound returns at most n of the texts, without those over length.
func bound(all []string, n, length int) []string {
	all = slices.DeleteFunc(slices.Clone(all), func(s string) bool { return len(s) > length })
	return all[:min(len(all), n)]
}
