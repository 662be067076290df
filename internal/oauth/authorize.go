package oauth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// attemptHolds is how long a person may take to consent.
const attemptHolds = 10 * time.Minute

// An Attempt is a consent in progress. It belongs to one person, and is good once: the caller keeps it sealed, and deletes it before it redeems the code.
type Attempt struct {
	State    switchboard.Secret
	Verifier switchboard.Secret // of PKCE: RFC 7636 section 4.1
	Issuer   string
	ClientID string
	Resource string
	Redirect string
	Scopes   []string
	Ends     time.Time
}

// Begin begins a consent. The person's browser must go to the address, and comes back to redirect with the answer for Redeem.
func (c *Client) Begin(p *Provider, r *ClientRegistration, redirect string, scopes []string) (address string, _ *Attempt, _ error) {
	if err := c.checkUse(p, r); err != nil {
		return "", nil, err
	}
	if !p.S256 || p.AuthorizationEndpoint == "" {
		return "", nil, fail(Misconfigured, "the issuer %.200s has no authorization code flow with PKCE", p.Issuer)
	}
	if r.Source == Registered && r.Redirect != redirect {
		return "", nil, fail(Misconfigured, "the client %.100q is registered for the redirect %.200q, not for %.200q", r.ClientID, r.Redirect, redirect)
	}
	u, err := c.checkAddress(p.AuthorizationEndpoint)
	if err != nil {
		return "", nil, fail(Misconfigured, "the authorization_endpoint of the issuer %.200s cannot be used: %w", p.Issuer, err)
	}
	scopes, err = checkScopes(scopes)
	if err != nil {
		return "", nil, fail(Misconfigured, "the request has %w", err)
	}
	a := &Attempt{
		State: switchboard.NewSecret(rand.Text()), Verifier: switchboard.NewSecret(oauth2.GenerateVerifier()),
		Issuer: p.Issuer, ClientID: r.ClientID, Resource: p.Resource, Redirect: redirect, Scopes: scopes, Ends: time.Now().Add(attemptHolds),
	}
	asked := url.Values{
		"response_type": {"code"}, "client_id": {r.ClientID}, "redirect_uri": {redirect}, "state": {a.State.Reveal()}, "resource": {p.Resource},
		"code_challenge": {oauth2.S256ChallengeFromVerifier(a.Verifier.Reveal())}, "code_challenge_method": {"S256"},
	}
	if len(scopes) > 0 {
		asked.Set("scope", strings.Join(scopes, " "))
	}
	if slices.Contains(scopes, offlineAccess) { // OpenID Connect Core 1.0 section 11: else the scope is ignored
		asked.Set("prompt", "consent")
	}
	// RFC 6749 section 3.1: the endpoint's own query stays, and no parameter may appear twice.
	own, err := url.ParseQuery(u.RawQuery)
	for name := range own {
		if asked.Has(name) || name == "scope" || name == "request" || name == "request_uri" || name == "response_mode" {
			return "", nil, fail(Misconfigured, "the authorization_endpoint of the issuer %.200s has the parameter %.50q already", p.Issuer, name)
		}
	}
	if err != nil {
		return "", nil, fail(Misconfigured, "the authorization_endpoint of the issuer %.200s has a query that cannot be read", p.Issuer)
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += asked.Encode()
	return u.String(), a, nil
}

// Redeem exchanges the answer of the authorization server, the query with which the browser came back, for tokens. It sends the code to nobody unless the
// answer is of this attempt and of its issuer: RFC 9207 section 2.4. On every error the attempt is of no more use.
func (c *Client) Redeem(ctx context.Context, p *Provider, r *ClientRegistration, a *Attempt, query url.Values) (*Tokens, error) {
	if err := c.checkUse(p, r); err != nil {
		return nil, err
	}
	code, err := a.code(p, r, query)
	if err != nil {
		return nil, err
	}
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {a.Redirect}, "code_verifier": {a.Verifier.Reveal()}, "resource": {a.Resource},
	}
	return c.token(ctx, p, r, form, a.Scopes, code, a.Verifier.Reveal(), a.State.Reveal())
}

// code checks the answer, in this order: it is of this attempt, of this issuer, and no error. Nothing of an answer of somebody else is shown.
func (a *Attempt) code(p *Provider, r *ClientRegistration, query url.Values) (string, error) {
	for _, name := range []string{"state", "iss", "code", "error", "error_description"} {
		if len(query[name]) > 1 {
			return "", fail(Refused, "the answer has %s twice", name)
		}
	}
	state, issuer, code := query.Get("state"), query.Get("iss"), query.Get("code")
	want := a.State.Reveal()
	switch {
	case want == "" || subtle.ConstantTimeCompare([]byte(state), []byte(want)) != 1:
		return "", fail(Refused, "the answer belongs to another attempt (state); start again")
	case !time.Now().Before(a.Ends):
		return "", fail(Refused, "the attempt has expired; start again")
	case a.Issuer != p.Issuer || a.Resource != p.Resource || a.ClientID != r.ClientID:
		return "", fail(Refused, "the server has changed its authorization server meanwhile; start again")
	case query.Has("iss") && issuer != a.Issuer:
		return "", fail(Refused, "the answer is of the issuer %.200q, and %.200q was asked", issuer, a.Issuer)
	case !query.Has("iss") && p.StatesIssuer:
		return "", fail(Refused, "the answer does not state its issuer (iss), and %.200q promises that it does", a.Issuer)
	case query.Has("error"):
		return "", a.denial(query)
	case code == "" || len(code) > maxToken || !isVisible(code):
		return "", fail(Refused, "the answer has no code that can be used; start again")
	}
	return code, nil
}

// denial says why the authorization server gave no code: RFC 6749 section 4.1.2.1.
func (a *Attempt) denial(query url.Values) error {
	hide := newMasker(a.State.Reveal(), a.Verifier.Reveal(), query.Get("code"))
	code := hide.text(query.Get("error"), 60)
	e := &RequestError{Kind: Refused, Code: code}
	switch code {
	case "access_denied":
		e.Err = fail(Refused, "the person, or the authorization server, said no (access_denied)")
	case "temporarily_unavailable", "server_error":
		e.Err = fail(Refused, "the authorization server has a fault of its own (%s); start again later", code)
	default:
		e.Err = fail(Refused, "the authorization server refused with %q %q", code, hide.text(query.Get("error_description"), 200))
		e.Kind = Misconfigured
	}
	return e
}

// checkUse checks that the provider's endpoints and the registration may be used.
func (c *Client) checkUse(p *Provider, r *ClientRegistration) error {
	if err := c.checkProvider(p); err != nil {
		return err
	}
	return r.fits(p)
}
