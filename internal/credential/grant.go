package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/oauth"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// A renewalGrant is what the vault keeps sealed with a connection, so that its tokens can be renewed and revoked.
type renewalGrant struct {
	Provider     *oauth.Provider `json:"provider"`
	Registration []byte          `json:"registration"` // sealed form
	Tokens       []byte          `json:"tokens"`       // sealed form, without the access token
}

// newConnection returns the connection for the vault.
func newConnection(p *oauth.Provider, r *oauth.ClientRegistration, t *oauth.Tokens) (vault.ServerConnection, error) {
	registration, err := r.Seal()
	if err != nil {
		return vault.ServerConnection{}, err
	}
	rest := *t
	rest.Access = switchboard.Secret{}
	tokens, err := rest.Seal()
	if err != nil {
		return vault.ServerConnection{}, err
	}
	text, err := json.Marshal(renewalGrant{Provider: p, Registration: registration, Tokens: tokens})
	if err != nil {
		return vault.ServerConnection{}, err
	}
	return vault.ServerConnection{Access: t.Access, Expires: t.Expires, Grant: switchboard.NewSecret(string(text)), Scopes: t.Scopes}, nil
}

// open returns the parts of a connection's grant.
func openGrant(c *vault.ServerConnection) (*oauth.Provider, *oauth.ClientRegistration, *oauth.Tokens, error) {
	var g renewalGrant
	if err := json.Unmarshal([]byte(c.Grant.Reveal()), &g); err != nil || g.Provider == nil {
		return nil, nil, nil, errors.New("what was kept with the connection cannot be read") // never with its text
	}
	r, err := oauth.UnsealRegistration(g.Registration)
	if err != nil {
		return nil, nil, nil, err
	}
	t, err := oauth.UnsealTokens(g.Tokens)
	if err != nil {
		return nil, nil, nil, err
	}
	t.Access = c.Access
	return g.Provider, r, t, nil
}

// renew gets new tokens for a connection: vault.Ask. The vault calls it once for each set of tokens.
func (c *credentials) renew(ctx context.Context, old vault.ServerConnection) (vault.ServerConnection, error) {
	p, r, t, err := openGrant(&old)
	if err != nil {
		return vault.ServerConnection{}, fmt.Errorf("%w: %w", vault.ErrRefused, err)
	}
	if issuer := c.server.Credential.Issuer; issuer != "" && issuer != p.Issuer {
		return vault.ServerConnection{}, fmt.Errorf("%w: the server's row has another issuer since", vault.ErrRefused)
	}
	if r.Source == oauth.Configured {
		now := configured(&c.server.Credential)
		if now == nil || now.ClientID != r.ClientID {
			return vault.ServerConnection{}, fmt.Errorf("%w: the server's row has another client id since", vault.ErrRefused)
		}
		r = now // its secret may have been replaced
	}
	if !r.Expires.IsZero() && time.Now().After(r.Expires) {
		return vault.ServerConnection{}, fmt.Errorf("%w: the registration at the provider has expired", vault.ErrRefused)
	}
	o, err := c.broker.client(c.server)
	if err != nil {
		return vault.ServerConnection{}, fmt.Errorf("%w: %w", vault.ErrNotSent, err)
	}
	var fresh *oauth.Tokens
	if c.server.Credential.Kind == switchboard.CredentialClient {
		fresh, err = o.ClientCredentials(ctx, p, r, c.server.Credential.Scopes)
	} else {
		fresh, err = o.Refresh(ctx, p, r, t)
	}
	if err != nil {
		c.broker.log.Warn("the token of a server was not renewed", "server", string(c.server.ID), "error", err)
		if isUnknownClient(err) && r.Source != oauth.Configured {
			return vault.ServerConnection{}, fmt.Errorf("%w: the provider no longer knows the registration: %w", vault.ErrRefused, err)
		}
		switch oauth.KindOf(err) {
		case oauth.Refused:
			return vault.ServerConnection{}, fmt.Errorf("%w: %w", vault.ErrRefused, err)
		case oauth.NotSent, oauth.Busy, oauth.Misconfigured:
			return vault.ServerConnection{}, &vault.RenewalPause{Wait: pauseOf(err), Err: fmt.Errorf("%w: %w", vault.ErrNotSent, err)}
		}
		return vault.ServerConnection{}, err
	}
	return newConnection(p, r, fresh)
}

// isUnknownClient reports whether the provider does not take the client any more: RFC 6749 section 5.2. The next consent registers it anew.
func isUnknownClient(err error) bool {
	failed, ok := errors.AsType[*oauth.RequestError](err)
	return ok && (failed.Code == "invalid_client" || failed.Code == "unauthorized_client")
}

// configured returns the registration of a server's row; nil if the row has none. Its issuer is the one that the row states, and never one that the
// server names: otherwise a server could have the secret sent to a provider of its own.
func configured(c *switchboard.Credential) *oauth.ClientRegistration {
	if c.ClientID == "" {
		return nil
	}
	return &oauth.ClientRegistration{Source: oauth.Configured, Issuer: c.Issuer, ClientID: c.ClientID, Secret: c.ClientSecret, Key: c.ClientKey}
}

// obtain gets a token of Switchboard's own, and keeps it: the client credentials grant. Replicas that do so at the same time each get one, and
// the last one is kept.
func (c *credentials) obtain(ctx context.Context, owner vault.Owner) (link.ShownToken, error) {
	select {
	case c.obtaining <- struct{}{}:
		defer func() { <-c.obtaining }()
	case <-ctx.Done():
		return link.ShownToken{}, ctx.Err()
	}
	if t, ok := c.broker.vault.Access(owner); ok { // another request has got it meanwhile
		return link.ShownToken{Token: t.Access, Generation: link.TokenGeneration(t.Generation)}, nil
	}
	c.mu.Lock()
	paused, failure := c.paused, c.failure
	c.mu.Unlock()
	if left := time.Until(paused); left > 0 {
		return link.ShownToken{}, c.notObtained(&vault.RenewalPause{Wait: left, Err: failure})
	}
	made, err := c.obtainOnce(ctx, owner)
	if err != nil {
		if ctx.Err() == nil {
			c.mu.Lock()
			c.paused, c.failure = time.Now().Add(max(obtainPause, pauseOf(err))), err
			c.mu.Unlock()
			c.broker.log.Warn("a server's provider gives Switchboard no token", "server", string(c.server.ID), "error", err)
		}
		return link.ShownToken{}, c.notObtained(err)
	}
	c.mu.Lock()
	c.made = time.Now()
	c.mu.Unlock()
	return link.ShownToken{Token: made.Access, Generation: link.TokenGeneration(made.Generation)}, nil
}

// errRefusedAtOnce says that the server refuses a token that the provider gave Switchboard just before.
var errRefusedAtOnce = &oauth.RequestError{Kind: oauth.Misconfigured, Err: errors.New("the server refuses the token that its provider has just given: perhaps it is for another audience")}

// notObtained returns the error of a request for which no token of Switchboard's own could be got. If the provider refuses the row's client, waiting
// does not help, and no person can connect anything: the operator corrects the row.
func (c *credentials) notObtained(cause error) error {
	switch oauth.KindOf(cause) {
	case oauth.Refused, oauth.Misconfigured:
	default:
		return c.away(cause)
	}
	e := switchboard.Refuse(switchboard.CodeServerFailed, "the provider of the tool's server gives Switchboard itself no token")
	e.Cause, e.Unsent = cause, true
	e.Hint = `correct credential: {client: …} in the row of server ` + string(c.server.ID) + `: the issuer, the id, and the secret or key that the provider gave Switchboard; a changed file is used at once`
	return e
}

// obtainPause is how long no token is asked for again after a failure, unless the provider asks for more.
const obtainPause = 5 * time.Second

// pauseOf returns how long the provider must not be asked again, as it has said with Retry-After or the vault knows; at most vault.MaxPause.
func pauseOf(err error) time.Duration {
	var d time.Duration
	if p, ok := errors.AsType[*vault.RenewalPause](err); ok {
		d = p.Wait
	} else if failed, ok := errors.AsType[*oauth.RequestError](err); ok {
		d = failed.RetryAfter
	}
	return min(d, vault.MaxPause)
}

func (c *credentials) obtainOnce(ctx context.Context, owner vault.Owner) (vault.ServerConnection, error) {
	o, err := c.broker.client(c.server)
	if err != nil {
		return vault.ServerConnection{}, err
	}
	c.mu.Lock()
	challenge := c.challenge
	c.mu.Unlock()
	p, err := o.Discover(ctx, challenge, oauth.ForProgram)
	if err != nil {
		return vault.ServerConnection{}, err
	}
	r := configured(&c.server.Credential)
	scopes, err := p.ChooseScopes(challenge, c.server.Credential.Scopes)
	if err != nil {
		return vault.ServerConnection{}, err
	}
	t, err := o.ClientCredentials(ctx, p, r, scopes)
	if err != nil {
		return vault.ServerConnection{}, err
	}
	made, err := newConnection(p, r, t)
	if err != nil {
		return made, err
	}
	made.Label = "client " + r.ClientID
	made, err = c.broker.vault.Save(ctx, owner, made)
	if err == nil {
		addReceipt(c.broker.receipts, receiptOf(methodConnect, owner, receipt.Subject{}, "provider "+p.Issuer+"; scopes "+strings.Join(scopes, " ")))
	}
	return made, err
}
