package credential

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/oauth"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// askTimeout limits the request that finds out what a server demands.
const askTimeout = 15 * time.Second

// ErrNotDemanded says that a server answers without a token.
var ErrNotDemanded = errors.New("the server answers without a token: it needs no connection")

// A Consent is a connection in the making: the person's browser is at the provider. It is good once. Seal hides nothing.
type Consent struct {
	Owner   vault.Owner
	Issuer  string
	Scopes  []string
	Address string          // where the person's browser goes
	By      receipt.Subject // who connects; the caller of Begin sets it

	provider     *oauth.Provider
	registration *oauth.ClientRegistration
	attempt      *oauth.Attempt
}

// Begin begins a consent of the owner at a server. The provider sends the browser back to redirect. The error is ErrNotDemanded, or says what to do.
func (b *Broker) Begin(ctx context.Context, s *switchboard.Server, owner vault.Owner, redirect string) (*Consent, error) {
	return beginConsent(ctx, b, s, owner, redirect, "")
}

// beginConsent is Broker.Begin, for a redirect that is in the client ID metadata document; "" means that there is none.
func beginConsent(ctx context.Context, b *Broker, s *switchboard.Server, owner vault.Owner, redirect, document string) (*Consent, error) {
	if !s.SignsIn() || s.Credential.Kind == switchboard.CredentialClient {
		return nil, fmt.Errorf("server %s is not connected by a person: its row in switchboard.yaml says which credential it uses", s.ID)
	}
	o, err := b.client(s)
	if err != nil {
		return nil, err
	}
	challenge, err := b.askChallenge(ctx, s)
	if err != nil && (s.Credential.Kind == "" || !errors.Is(err, ErrNotDemanded)) {
		return nil, err
	}
	p, err := o.Discover(ctx, challenge, oauth.ForPerson)
	if err != nil {
		return nil, err
	}
	scopes, err := p.ChooseScopes(b.widen(ctx, s, owner, p.Issuer, challenge), s.Credential.Scopes)
	if err != nil {
		return nil, err
	}
	r, err := o.ChooseRegistration(ctx, p, oauth.Ways{
		Configured: configured(&s.Credential), Document: document, Request: oauth.RegistrationRequest{Redirect: redirect, Scopes: scopes},
	})
	if err != nil {
		return nil, err
	}
	address, attempt, err := o.Begin(p, r, redirect, scopes)
	if err != nil {
		return nil, err
	}
	return &Consent{Owner: owner, Issuer: p.Issuer, Scopes: scopes, Address: address, provider: p, registration: r, attempt: attempt}, nil
}

// IsAnswer reports whether the query is the provider's answer to this consent. Other programs can guess the address, but not the state.
func (c *Consent) IsAnswer(query url.Values) bool {
	state := query["state"]
	return len(state) == 1 && subtle.ConstantTimeCompare([]byte(state[0]), []byte(c.attempt.State.Reveal())) == 1
}

// End ends a consent with the query of the returning browser, and keeps the connection. The tokens of an earlier connection are not revoked: some providers
// would revoke the new ones with them.
func (b *Broker) End(ctx context.Context, s *switchboard.Server, c *Consent, query url.Values) error {
	if c.Owner.Server != s.ID || c.Owner.Resource != s.URL {
		return errors.New("the server has another address since this sign-in began; begin again")
	}
	note := "provider " + c.Issuer + "; scopes " + strings.Join(c.Scopes, " ")
	return withReceipts(ctx, b.receipts, receiptOf(methodConnect, c.Owner, c.By, note), func() (string, error) { return "", c.redeem(ctx, b, s, query) })
}

// redeem gets the tokens of a consent, and keeps them.
func (c *Consent) redeem(ctx context.Context, b *Broker, s *switchboard.Server, query url.Values) error {
	o, err := b.client(s)
	if err != nil {
		return err
	}
	t, err := o.Redeem(ctx, c.provider, c.registration, c.attempt, query)
	if err != nil {
		return err
	}
	made, err := newConnection(c.provider, c.registration, t)
	if err != nil {
		return err
	}
	made.Label = c.Issuer
	return b.keep(ctx, c.Owner, made)
}

// keep keeps a connection that a person has just made, and wakes the calls that wait for it.
func (b *Broker) keep(ctx context.Context, o vault.Owner, made vault.ServerConnection) error {
	if _, err := b.vault.Save(ctx, o, made); err != nil {
		return err
	}
	b.bell.ring(o)
	return nil
}

// Disconnect ends the owner's connection: it is deleted, and its tokens are revoked where the provider can do so (RFC 7009). The error is
// vault.ErrNone if there is none; any other one says that the tokens may live on until they expire.
func (b *Broker) Disconnect(ctx context.Context, s *switchboard.Server, owner vault.Owner, by receipt.Subject) error {
	return withReceipts(ctx, b.receipts, receiptOf(methodDisconnect, owner, by, ""), func() (string, error) {
		was, err := b.vault.Delete(ctx, owner)
		if err != nil {
			return "", err
		}
		if err = b.revoke(ctx, s, was); err != nil {
			return sayRevoked(err), unrevokedError{err}
		}
		return sayRevoked(nil), nil
	})
}

// revokeTime limits a revocation in the background.
const revokeTime = 20 * time.Second

// RevokeLater revokes, in the background, tokens that came for a connection that was ended meanwhile.
func (b *Broker) RevokeLater(o vault.Owner, c vault.ServerConnection) {
	s := b.serverOf(o.Server)
	if s == nil {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), revokeTime)
		defer cancel()
		if err := b.revoke(ctx, s, c); err != nil && !errors.Is(err, oauth.ErrNoRevocation) {
			b.log.Warn("tokens of a connection that has ended were not revoked; they live on until they expire", "server", string(s.ID), "error", err)
		}
	}()
}

// revoke revokes the tokens of a connection that is not used any more.
func (b *Broker) revoke(ctx context.Context, s *switchboard.Server, c vault.ServerConnection) error {
	p, r, t, err := openGrant(&c)
	if err != nil {
		return err
	}
	o, err := b.client(s)
	if err != nil {
		return err
	}
	if now := configured(&s.Credential); r.Source == oauth.Configured && now != nil && now.ClientID == r.ClientID && (now.Issuer == "" || now.Issuer == p.Issuer) {
		r = now
	}
	return o.Revoke(ctx, p, r, t)
}

// DemandsToken asks a server whether it demands a token that a sign-in gives. A server with a static credential is not asked.
func (b *Broker) DemandsToken(ctx context.Context, s *switchboard.Server) (bool, error) {
	if !s.SignsIn() {
		return false, nil
	}
	switch _, err := b.askChallenge(ctx, s); {
	case errors.Is(err, ErrNotDemanded):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// The requests that find out what a server demands. Some servers demand a token for initialize, others only for the list. A server of the modern era
// knows no initialize, and one over HTTP with SSE refuses both: it demands the token for its stream.
const (
	initializeBody = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"switchboard","version":"1"}}}`
	legacyListBody = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	modernListBody = `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"switchboard","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
)

// askChallenge finds out what the server demands, without a token. The error is ErrNotDemanded if it demands nothing.
func (b *Broker) askChallenge(ctx context.Context, s *switchboard.Server) (oauth.Challenge, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	via := link.NewHTTPClients(s.URL, s.Network, func(err error) {
		b.log.Warn("a file of a server's certificates is not used", "server", string(s.ID), "error", err)
	})
	defer via.Close()
	first, err := askWithoutToken(ctx, via.Client, s, http.MethodPost, initializeBody, nil)
	if err != nil {
		return oauth.Challenge{}, err
	}
	body, header := modernListBody, map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
	switch {
	case first.StatusCode == http.StatusUnauthorized:
		return challengeOf(first), nil
	case first.StatusCode/100 == 2:
		body, header = legacyListBody, map[string]string{"Mcp-Protocol-Version": "2025-11-25"}
		if session := first.Header.Get("Mcp-Session-Id"); session != "" {
			header["Mcp-Session-Id"] = session
		}
	}
	second, err := askWithoutToken(ctx, via.Client, s, http.MethodPost, body, header)
	switch {
	case err != nil:
		return oauth.Challenge{}, err
	case second.StatusCode == http.StatusUnauthorized:
		return challengeOf(second), nil
	case first.StatusCode/100 == 2, second.StatusCode/100 == 2:
		return oauth.Challenge{}, ErrNotDemanded
	}
	stream, err := askWithoutToken(ctx, via.Client, s, http.MethodGet, "", nil)
	switch {
	case err != nil:
		return oauth.Challenge{}, err
	case stream.StatusCode == http.StatusUnauthorized:
		return challengeOf(stream), nil
	case stream.StatusCode/100 == 2 && strings.HasPrefix(stream.Header.Get("Content-Type"), "text/event-stream"):
		return oauth.Challenge{}, ErrNotDemanded
	}
	return oauth.Challenge{}, fmt.Errorf("server %s answered with HTTP status %s, and neither with 401 nor as an MCP server", s.ID, first.Status)
}

// challengeOf returns what a response with status 401 demands.
func challengeOf(resp *http.Response) oauth.Challenge {
	c, _ := oauth.ParseChallenge(resp.Header.Values("WWW-Authenticate"))
	return c
}

// askWithoutToken sends a request without a token, and returns the response without its body. With GET it asks for a stream.
func askWithoutToken(ctx context.Context, client *http.Client, s *switchboard.Server, method, body string, header map[string]string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.URL, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil
	for name, value := range s.Headers {
		req.Header.Set(name, value.Reveal())
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	req.Header.Set("Accept", "text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		if request, ok := errors.AsType[*url.Error](err); ok {
			err = request.Err // without the address, which may hold a secret
		}
		return nil, fmt.Errorf("server %s cannot be reached: %w", s.ID, err)
	}
	defer resp.Body.Close()        //nolint:errcheck // it was only read
	if method == http.MethodPost { // a stream does not end
		_, _ = io.CopyN(io.Discard, resp.Body, link.MaxErrorBody)
	}
	return resp, nil
}

// sealedConsent is a Consent as text, to be encrypted.
type sealedConsent struct {
	Owner        vault.Owner     `json:"owner"`
	Issuer       string          `json:"issuer"`
	Scopes       []string        `json:"scopes,omitempty"`
	By           receipt.Subject `json:"by"`
	Provider     *oauth.Provider `json:"provider"`
	Registration []byte          `json:"registration"`
	Attempt      []byte          `json:"attempt"`
}

// Seal returns the consent with its secrets in plain text, to be encrypted: for a ticket of the vault.
func (c *Consent) Seal() ([]byte, error) {
	registration, err := c.registration.Seal()
	if err != nil {
		return nil, err
	}
	attempt, err := c.attempt.Seal()
	if err != nil {
		return nil, err
	}
	return json.Marshal(sealedConsent{c.Owner, c.Issuer, c.Scopes, c.By, c.provider, registration, attempt})
}

// UnsealConsent reads the bytes of Seal. The consent has no Address.
func UnsealConsent(plain []byte) (*Consent, error) {
	var s sealedConsent
	if err := json.Unmarshal(plain, &s); err != nil || s.Provider == nil {
		return nil, errors.New("this sign-in cannot be read; begin again") // never with its text
	}
	registration, err := oauth.UnsealRegistration(s.Registration)
	if err != nil {
		return nil, err
	}
	attempt, err := oauth.UnsealAttempt(s.Attempt)
	if err != nil {
		return nil, err
	}
	return &Consent{Owner: s.Owner, Issuer: s.Issuer, Scopes: s.Scopes, By: s.By, provider: s.Provider, registration: registration, attempt: attempt}, nil
}
