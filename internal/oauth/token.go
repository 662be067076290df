package oauth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	maxToken    = 8 << 10 // bytes of one token or code
	maxLifetime = 10 * 365 * 24 * time.Hour
)

// Tokens are what an authorization server gave for one connection.
type Tokens struct {
	Access  switchboard.Secret
	Refresh switchboard.Secret // empty if there is none
	Scopes  []string           // that were granted; nil if neither side has stated any
	Expires time.Time          // of Access; zero if it is not known
}

// ErrNoRevocation says that the provider has no revocation endpoint: its tokens end by expiry only.
var ErrNoRevocation = errors.New("the authorization server has no revocation endpoint")

// tokenWire is the answer of a token endpoint: RFC 6749 section 5.1 and 5.2.
type tokenWire struct {
	Access    string         `json:"access_token"`
	Type      string         `json:"token_type"`
	ExpiresIn jsontext.Value `json:"expires_in"` // a number; of some authorization servers a string
	Refresh   string         `json:"refresh_token"`
	Scope     *string        `json:"scope"`
	Error     string         `json:"error"` // some authorization servers refuse with status 200
}

// errorWire is an error of an authorization server: RFC 6749 section 5.2, RFC 7591 section 3.2.2.
type errorWire struct {
	Code        string `json:"error"`
	Description string `json:"error_description"`
}

// Refresh exchanges the refresh token of the tokens for new ones: RFC 6749 section 6. If the authorization server returns no refresh token, the old one
// stays good and is part of the result. An error's kind says whether the old refresh token may be sent again.
func (c *Client) Refresh(ctx context.Context, p *Provider, r *ClientRegistration, old *Tokens) (*Tokens, error) {
	if err := c.checkUse(p, r); err != nil {
		return nil, err
	}
	refresh := old.Refresh.Reveal()
	if refresh == "" {
		return nil, fail(Refused, "there is no refresh token; connect again")
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}, "resource": {p.Resource}}
	t, err := c.token(ctx, p, r, form, old.Scopes, refresh)
	if err != nil {
		return nil, err
	}
	if t.Refresh.Reveal() == "" {
		t.Refresh = old.Refresh
	}
	return t, nil
}

// ClientCredentials asks for a token of Switchboard's own: RFC 6749 section 4.4. The registration has a secret or a key.
func (c *Client) ClientCredentials(ctx context.Context, p *Provider, r *ClientRegistration, scopes []string) (*Tokens, error) {
	if err := c.checkUse(p, r); err != nil {
		return nil, err
	}
	scopes, err := checkScopes(scopes)
	if err != nil {
		return nil, fail(Misconfigured, "the request has %w", err)
	}
	if r.Secret.Reveal() == "" && r.Key.Reveal() == "" {
		return nil, fail(Misconfigured, "the client %.100q has neither secret nor key, which client credentials need", r.ClientID)
	}
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {p.Resource}}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	return c.token(ctx, p, r, form, scopes)
}

// Revoke revokes the tokens: RFC 7009. An authorization server that revokes the refresh token revokes the access tokens of its grant too, so the access token is
// sent only if there is no refresh token.
func (c *Client) Revoke(ctx context.Context, p *Provider, r *ClientRegistration, t *Tokens) error {
	if err := c.checkUse(p, r); err != nil {
		return err
	}
	if p.RevocationEndpoint == "" {
		return ErrNoRevocation
	}
	token, kind := t.Refresh.Reveal(), "refresh_token"
	if token == "" {
		token, kind = t.Access.Reveal(), "access_token"
	}
	if token == "" {
		return nil
	}
	a, hide, err := c.ask(ctx, p, r, p.RevocationEndpoint, url.Values{"token": {token}, "token_type_hint": {kind}}, token)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return a.refusal("revoke the token", p, hide)
	}
	return nil
}

// token sends a token request, and checks the answer. scopes are those that the tokens may have at most; secrets are in the form.
func (c *Client) token(ctx context.Context, p *Provider, r *ClientRegistration, form url.Values, scopes []string, secrets ...string) (*Tokens, error) {
	asked := time.Now()
	a, hide, err := c.ask(ctx, p, r, p.TokenEndpoint, form, secrets...)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		return nil, a.refusal("give a token", p, hide)
	}
	var w tokenWire
	if err := a.read(&w); err != nil {
		return nil, fail(Lost, "the issuer %.200s answered, but %w", p.Issuer, err)
	}
	if w.Access == "" && w.Error != "" {
		return nil, a.refusal("give a token", p, hide)
	}
	return w.tokens(p, scopes, asked, hide)
}

// tokens checks an answer with a token. What is wrong with it makes it Refused: the code or the refresh token has been used, and the result is not
// acceptable.
func (w *tokenWire) tokens(p *Provider, scopes []string, asked time.Time, hide secretMasker) (*Tokens, error) {
	switch {
	case !strings.EqualFold(w.Type, "Bearer"):
		return nil, fail(Refused, "the issuer %.200s gave a token of the type %q, and only Bearer can be used", p.Issuer, hide.text(w.Type, 40))
	case w.Access == "" || len(w.Access) > maxToken || !isVisible(w.Access):
		return nil, fail(Refused, "the issuer %.200s gave an access token that is empty, has more than %d bytes, or has characters that no header may have", p.Issuer, maxToken)
	case w.Refresh != "" && (len(w.Refresh) > maxToken || !isVisible(w.Refresh)):
		return nil, fail(Refused, "the issuer %.200s gave a refresh token that has more than %d bytes, or characters that are not allowed", p.Issuer, maxToken)
	}
	t := &Tokens{Access: switchboard.NewSecret(w.Access), Refresh: switchboard.NewSecret(w.Refresh), Scopes: scopes}
	// RFC 6749 section 5.1: no scope means the scopes that were asked for.
	if w.Scope != nil && strings.TrimSpace(*w.Scope) != "" {
		granted, err := checkScopes(strings.Fields(*w.Scope))
		if err != nil {
			return nil, fail(Refused, "the issuer %.200s granted %s", p.Issuer, hide.text(err.Error(), 200))
		}
		if over := without(granted, scopes); len(scopes) > 0 && len(over) > 0 {
			return nil, fail(Refused, "the issuer %.200s gave a token with the scopes %s, which were not asked for; if it should have them, add them to the server's row", p.Issuer, hide.text(fmt.Sprintf("%q", over), 200))
		}
		t.Scopes = granted
	}
	seconds, ok := readSeconds(w.ExpiresIn)
	if !ok {
		return nil, fail(Refused, "the issuer %.200s gave a token with an expires_in that is no number", p.Issuer)
	}
	if seconds >= 0 {
		t.Expires = asked.Add(min(time.Duration(min(seconds, maxLifetime.Seconds())*float64(time.Second)), maxLifetime))
	}
	return t, nil
}

// readSeconds reads a number, or a string that holds one. The result is -1 if there is none.
func readSeconds(v jsontext.Value) (seconds float64, ok bool) {
	text := strings.Trim(string(v), `"`)
	if text == "" || text == "null" {
		return -1, true
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) {
		return 0, false
	}
	return n, true
}

// ask sends a form to an endpoint, as the registered client. It returns the answer, and a masker that hides the secrets in it.
func (c *Client) ask(ctx context.Context, p *Provider, r *ClientRegistration, endpoint string, form url.Values, secrets ...string) (*httpAnswer, secretMasker, error) {
	u, err := c.checkAddress(endpoint)
	if err != nil {
		return nil, nil, fail(Misconfigured, "an endpoint of the issuer %.200s cannot be used: %w", p.Issuer, err)
	}
	header := http.Header{}
	secret := r.Secret.Reveal()
	method, err := r.method(p)
	if err != nil {
		return nil, nil, err
	}
	switch method {
	case methodBasic: // RFC 6749 section 2.3.1: both are form-encoded first
		credentials := base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(r.ClientID) + ":" + url.QueryEscape(secret)))
		header.Set("Authorization", "Basic "+credentials)
		secrets = append(secrets, credentials)
	case methodPost:
		form.Set("client_id", r.ClientID)
		form.Set("client_secret", secret)
	case methodKey:
		assertion, err := r.assert(p, time.Now())
		if err != nil {
			return nil, nil, fail(Misconfigured, "the key of the client %.100q: %w", r.ClientID, err)
		}
		form.Set("client_id", r.ClientID)
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", assertion)
		secrets = append(secrets, assertion)
	default:
		form.Set("client_id", r.ClientID)
	}
	hide := newMasker(append(secrets, secret)...)
	a, err := c.post(ctx, u, "application/x-www-form-urlencoded", form.Encode(), header)
	return a, hide, err
}

// method returns how the client proves who it is: as its registration says, else as the authorization server supports it.
func (r *ClientRegistration) method(p *Provider) (string, error) {
	secret, key := r.Secret.Reveal() != "", r.Key.Reveal() != ""
	m := r.Method
	switch {
	case m != "":
	case key:
		m = methodKey
	case !secret:
		m = methodNone
	case p.AuthMethods == nil || slices.Contains(p.AuthMethods, methodBasic): // RFC 8414 section 2
		m = methodBasic
	case slices.Contains(p.AuthMethods, methodPost):
		m = methodPost
	default:
		return "", fail(Misconfigured, "the issuer %.200s accepts no client secret, only %.200q", p.Issuer, p.AuthMethods)
	}
	if (m == methodBasic || m == methodPost) && !secret || m == methodKey && !key {
		return "", fail(Misconfigured, "the client %.100q has nothing for %s", r.ClientID, m)
	}
	if !slices.Contains([]string{methodNone, methodBasic, methodPost, methodKey}, m) {
		return "", fail(Misconfigured, "the client %.100q has the token_endpoint_auth_method %.100q, which Switchboard does not support", r.ClientID, m)
	}
	return m, nil
}

// final are the errors of a token endpoint after which only the person can help: the code or the refresh token is of no more use, or the
// authorization server wants to see the person (OpenID Connect Core 1.0 section 3.1.2.6, which some use here too). The last two are GitHub's.
var final = []string{"invalid_grant", "access_denied", "interaction_required", "login_required", "consent_required", "bad_refresh_token", "bad_verification_code"}

// refusal explains an answer that is no success. what says what the authorization server did not do.
func (a *httpAnswer) refusal(what string, p *Provider, hide secretMasker) error {
	var w errorWire
	told := a.status < 500 && a.read(&w) == nil && w.Code != ""
	e := &RequestError{Code: hide.text(w.Code, 60)}
	switch {
	case a.status == http.StatusTooManyRequests || told && (w.Code == "temporarily_unavailable" || w.Code == "slow_down"):
		e.Kind, e.RetryAfter = Busy, a.retryAfter()
	case told && slices.Contains(final, w.Code):
		e.Kind = Refused
	case told && w.Code == "server_error":
		e.Kind = Lost
	case told, a.status >= 300 && a.status < 400, a.status == http.StatusNotFound, a.status == http.StatusMethodNotAllowed, a.status == http.StatusGone:
		e.Kind = Misconfigured
	default:
		e.Kind = Lost
	}
	said := ""
	if told {
		said = fmt.Sprintf(": %s", strings.TrimSpace(e.Code+" "+hide.text(w.Description, 200)))
	} else if a.status >= 300 && a.status < 400 {
		said = "; redirects are not followed"
	}
	e.Err = fmt.Errorf("the issuer %.200s did not %s, and answered %d%s", p.Issuer, what, a.status, said)
	return e
}
