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

	"github.com/go-json-experiment/json"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// How a client proves to the token endpoint that it is itself: the values of token_endpoint_auth_method, RFC 7591 section 2.
const (
	methodNone    = "none"
	methodBasic   = "client_secret_basic"
	methodPost    = "client_secret_post"
	methodKey     = "private_key_jwt"
	maxClientText = 4 << 10 // bytes of a client id or secret
)

// A Source says where a client registration comes from.
type Source string

// The sources.
const (
	Configured Source = "configured" // the server's row
	Documented Source = "document"   // Switchboard's client ID metadata document
	Registered Source = "registered" // dynamic registration; the caller keeps it
)

// A ClientRegistration is how an authorization server knows Switchboard. Its JSON hides the secrets; Seal and UnsealRegistration do not.
type ClientRegistration struct {
	Source   Source
	Issuer   string // the authorization server that it belongs to. Only a registration without secret and key may leave it empty: it is good anywhere
	ClientID string
	Secret   switchboard.Secret // of client_secret_basic and client_secret_post
	Key      switchboard.Secret // of private_key_jwt: a private key in PEM, PKCS #8, PKCS #1 or SEC 1
	KeyID    string             // of Key, as the authorization server knows it; "" if it has one key only
	Method   string             // token_endpoint_auth_method; "" lets the metadata of the authorization server decide
	Redirect string             // that a dynamic registration is for
	Expires  time.Time          // of the secret; zero means never
}

// Ways are the ways in which Switchboard can be known to an authorization server.
type Ways struct {
	Configured *ClientRegistration // of the server's row; nil if the row has none
	Document   string              // the https URL of Switchboard's client ID metadata document; "" if it has no public URL
	Kept       *ClientRegistration // an earlier result of ChooseRegistration for this server; nil if there is none
	Request    RegistrationRequest // for a new registration; no Redirect means that none is wanted
}

// A RegistrationRequest describes Switchboard to an authorization server that registers clients: RFC 7591 section 2.
type RegistrationRequest struct {
	Name     string   // that people see; "" means Switchboard
	URL      string   // of Switchboard; may be empty
	Redirect string   // where the person's browser comes back to
	Scopes   []string // that will be asked for; may be empty
}

// ChooseRegistration returns how to be known at the provider, in the order of the MCP specification: the configured registration, the metadata document,
// dynamic registration. A kept registration is used again while it fits; after an error with the Code invalid_client, its caller drops it. If none of these ways is open, the error says what to do.
func (c *Client) ChooseRegistration(ctx context.Context, p *Provider, w Ways) (*ClientRegistration, error) {
	if w.Configured != nil {
		r := *w.Configured
		r.Source = Configured
		if err := r.fits(p); err != nil {
			return nil, err
		}
		return &r, nil
	}
	if w.Document != "" && p.MetadataDocuments {
		if err := checkDocumentURL(w.Document); err != nil {
			return nil, err
		}
		return &ClientRegistration{Source: Documented, ClientID: w.Document, Method: methodNone}, nil
	}
	if k := w.Kept; k != nil && k.Source == Registered && k.Issuer == p.Issuer && k.Redirect == w.Request.Redirect && (k.Expires.IsZero() || time.Until(k.Expires) > time.Minute) {
		return k, nil
	}
	if p.RegistrationEndpoint != "" && w.Request.Redirect != "" {
		return c.Register(ctx, p, w.Request)
	}
	return nil, fail(Misconfigured, "the issuer %.200s registers no clients by itself: register Switchboard there, and write the client id into the server's row", p.Issuer)
}

// fits checks that the registration may be used at the provider. Without its issuer, a server could send a secret to an authorization server of
// its own by naming that in its metadata.
func (r *ClientRegistration) fits(p *Provider) error {
	switch {
	case !isVisible(r.ClientID) || len(r.ClientID) > maxClientText:
		return fail(Misconfigured, "the client id %.100q has characters that no authorization server accepts", r.ClientID)
	case r.Issuer == "" && (r.Secret.Reveal() != "" || r.Key.Reveal() != ""):
		return fail(Misconfigured, "the client %.100q has a secret, and its issuer is not stated: write the issuer into the server's row, so that the secret goes nowhere else", r.ClientID)
	case r.Issuer != "" && r.Issuer != p.Issuer:
		return fail(Misconfigured, "the client %.100q is registered at the issuer %.200q, and the server now names %.200q", r.ClientID, r.Issuer, p.Issuer)
	}
	return nil
}

// checkDocumentURL checks the URL of the metadata document: an https URL with a path, without fragment and dots (client ID metadata document draft, section 3).
func checkDocumentURL(address string) error {
	u, err := parseAddress(address)
	if err == nil && (u.Scheme != "https" || strings.Trim(u.Path, "/") == "" || hasDots(u.EscapedPath())) {
		err = errors.New("it is no https URL with a path")
	}
	if err != nil {
		return fail(Misconfigured, "the URL of the client metadata document %.200q cannot be used: %w", address, err)
	}
	return nil
}

// registrationWire is the JSON of a client's metadata: RFC 7591 section 2 and section 3.2.1, and of the metadata document.
type registrationWire struct {
	ClientID        string   `json:"client_id,omitzero"`
	ClientSecret    string   `json:"client_secret,omitzero"`
	SecretExpiresAt int64    `json:"client_secret_expires_at,omitzero"`
	Name            string   `json:"client_name,omitzero"`
	URL             string   `json:"client_uri,omitzero"`
	Redirects       []string `json:"redirect_uris,omitzero"`
	GrantTypes      []string `json:"grant_types,omitzero"`
	ResponseTypes   []string `json:"response_types,omitzero"`
	Method          string   `json:"token_endpoint_auth_method,omitzero"`
	ApplicationType string   `json:"application_type,omitzero"`
	Scope           string   `json:"scope,omitzero"`
}

// wire returns the JSON form. A redirect to this machine makes a native application: OpenID Connect Dynamic Client Registration 1.0
// section 2 allows http for those only.
func (r RegistrationRequest) wire(method string) registrationWire {
	kind := "web"
	if u, err := url.Parse(r.Redirect); err == nil && isLoopbackHost(u.Hostname()) {
		kind = "native"
	}
	name := r.Name
	if name == "" {
		name = "Switchboard"
	}
	return registrationWire{
		Name: name, URL: r.URL, Redirects: []string{r.Redirect}, GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"},
		Method: method, ApplicationType: kind, Scope: strings.Join(r.Scopes, " "),
	}
}

// MetadataDocument returns the document that Switchboard serves at the URL, which is its client id at authorization servers that read such documents.
func MetadataDocument(address string, r RegistrationRequest) ([]byte, error) {
	if err := checkDocumentURL(address); err != nil {
		return nil, err
	}
	w := r.wire(methodNone)
	w.ClientID = address
	return json.Marshal(w)
}

// Register registers Switchboard at the provider: RFC 7591 section 3. The caller keeps the result.
func (c *Client) Register(ctx context.Context, p *Provider, r RegistrationRequest) (*ClientRegistration, error) {
	if err := c.checkProvider(p); err != nil {
		return nil, err
	}
	u, err := c.checkAddress(p.RegistrationEndpoint)
	if err != nil {
		return nil, fail(Misconfigured, "the issuer %.200s has no registration_endpoint that can be used: %w", p.Issuer, err)
	}
	w := r.wire("")
	w.Method = registrationMethod(p.AuthMethods, w.ApplicationType)
	body, err := json.Marshal(w)
	if err != nil {
		return nil, fail(Misconfigured, "the registration request: %w", err)
	}
	a, err := c.post(ctx, u, "application/json", string(body), nil)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusCreated && a.status != http.StatusOK {
		return nil, a.refusal("register Switchboard", p, nil)
	}
	var got registrationWire
	if err := a.read(&got); err != nil {
		return nil, fail(Misconfigured, "the issuer %.200s answered the registration, but %w", p.Issuer, err)
	}
	return got.registration(p, r, w.Method)
}

// registrationMethod chooses how to prove to the token endpoint who asks. A secret protects refresh tokens; a Switchboard on the person's own machine
// needs none, since everybody there could read it.
func registrationMethod(supported []string, kind string) string {
	order := []string{methodBasic, methodPost, methodNone}
	if kind == "native" {
		order = []string{methodNone, methodBasic, methodPost}
	}
	if supported == nil { // RFC 8414 section 2
		return methodBasic
	}
	for _, m := range order {
		if slices.Contains(supported, m) {
			return m
		}
	}
	return methodNone
}

// registration checks the answer to a registration.
func (w *registrationWire) registration(p *Provider, r RegistrationRequest, asked string) (*ClientRegistration, error) {
	out := &ClientRegistration{
		Source: Registered, Issuer: p.Issuer, ClientID: w.ClientID, Secret: switchboard.NewSecret(w.ClientSecret), Redirect: r.Redirect, Method: w.Method,
	}
	if out.Method == "" {
		out.Method = asked
	}
	if out.Method != methodNone && w.ClientSecret == "" && w.Method == "" {
		out.Method = methodNone
	}
	wrong := ""
	switch {
	case !isVisible(w.ClientID) || len(w.ClientID) > maxClientText:
		wrong = "has no client_id that can be used"
	case w.ClientSecret != "" && (!isVisible(w.ClientSecret) || len(w.ClientSecret) > maxClientText):
		wrong = "has a client_secret that cannot be used"
	case w.Redirects != nil && !slices.Contains(w.Redirects, r.Redirect):
		wrong = fmt.Sprintf("is for other redirect_uris than %q", r.Redirect)
	case !slices.Contains([]string{methodNone, methodBasic, methodPost}, out.Method):
		wrong = fmt.Sprintf("has the token_endpoint_auth_method %.100q, which was not asked for", out.Method)
	case out.Method != methodNone && w.ClientSecret == "":
		wrong = "has no client_secret"
	}
	if wrong != "" {
		return nil, fail(Misconfigured, "the registration at the issuer %.200s %s: register Switchboard there yourself, and write the client id into the server's row", p.Issuer, wrong)
	}
	if w.SecretExpiresAt > 0 && w.ClientSecret != "" {
		out.Expires = time.Unix(w.SecretExpiresAt, 0)
	}
	return out, nil
}

// isVisible reports whether the text has visible ASCII characters only, so that it is safe in a header, and at least one.
func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s != ""
}
