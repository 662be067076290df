// Package credential gives the requests to hosted servers their tokens.
//
// It decides which connection a request uses, which server waits for a connection, and how a person makes one and ends it. Package oauth
// speaks to the authorization servers, and decides what may be believed of them. Package vault keeps the tokens, and decides who renews
// them. Package link sends them.
//
// The server's row decides about the connection (design part 11, "Behind: credentials"):
//
//	no row     the operator's, for Switchboard's own requests and for the local user; it is used once the server demands it
//	operator   the operator's, for everybody
//	user       the principal's; the operator's for Switchboard's own requests and for the local user, who is the operator
//	client     Switchboard's own, by the client credentials grant, for everybody
package credential

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/oauth"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// Options are the options of a Broker.
type Options struct {
	Vault    *vault.Vault
	Receipts ReceiptKeeper // nil means none

	// Document returns the https URL at which providers can read our client ID metadata document; "" if there is none. It may be nil.
	Document func() string

	Log *slog.Logger // nil means no log
}

// A Broker has the credentials of all servers. It is safe for concurrent use.
type Broker struct {
	vault    *vault.Vault
	receipts ReceiptKeeper
	document func() string
	log      *slog.Logger

	servers sync.Map // switchboard.ServerID → *credentials, as the configuration has it now
	tickets ticketBook
	bell    consentBell
}

// NewBroker returns a Broker.
func NewBroker(o Options) *Broker {
	b := &Broker{vault: o.Vault, receipts: o.Receipts, document: o.Document, log: o.Log}
	if b.document == nil {
		b.document = func() string { return "" }
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	return b
}

// Of returns the credentials for a server over HTTP with this configuration; nil if its row has a static one.
func (b *Broker) Of(s *switchboard.Server) link.Credentials {
	if !s.SignsIn() {
		b.servers.Delete(s.ID)
		return nil
	}
	copied := *s
	c := &credentials{broker: b, server: &copied, obtaining: make(chan struct{}, 1)}
	b.servers.Store(s.ID, c)
	return c
}

// clientPerson stands for Switchboard itself in the place of a person. No principal has such an id.
const clientPerson = "(client)"

// IsOfClient reports whether the connection is Switchboard's own, by the client credentials grant.
func IsOfClient(o vault.Owner) bool { return o.Person == clientPerson }

// IsOfEachCaller reports whether each caller of the server has a connection of its own.
func (b *Broker) IsOfEachCaller(id switchboard.ServerID) bool {
	s := b.serverOf(id)
	return s != nil && s.Credential.Kind == switchboard.CredentialUser
}

// Keep forgets the servers that are not among these.
func (b *Broker) Keep(servers []switchboard.Server) {
	b.servers.Range(func(id, _ any) bool {
		if !slices.ContainsFunc(servers, func(s switchboard.Server) bool { return s.ID == id }) {
			b.servers.Delete(id)
		}
		return true
	})
}

// OwnerOf returns the owner of the connection for the principal's requests to the server. nil stands for Switchboard's own requests.
func OwnerOf(s *switchboard.Server, p *switchboard.Principal) vault.Owner {
	o := vault.Owner{Server: s.ID, Resource: s.URL}
	switch {
	case s.Credential.Kind == switchboard.CredentialClient:
		o.Person = clientPerson
	case s.Credential.Kind == switchboard.CredentialUser && !isOperator(p):
		o.Tenant, o.Person = p.Tenant, p.ID
	}
	return o
}

// isOperator reports whether the principal uses the operator's connection everywhere: it is Switchboard itself, or the local user, who can read the
// operator's files.
func isOperator(p *switchboard.Principal) bool { return p == nil || p.ID == switchboard.LocalID }

// How long what was found out about a server holds.
const (
	demandHolds  = 4 * time.Minute  // that a server without a row demands a token; then it is asked again without one
	renewedHolds = 30 * time.Second // a token that was renewed because of a refusal, and is refused again
	refusedHolds = 2 * time.Minute  // that the server refuses also the token that replaced a refused one
)

// credentials are the credentials for one server. They implement link.Credentials.
type credentials struct {
	broker *Broker
	server *switchboard.Server

	free atomic.Bool // it has no row, no connection, and has not demanded one lately: requests carry no token

	mu        sync.Mutex
	challenge oauth.Challenge // the last one
	demanded  time.Time       // when the server demanded a token from a request without one; zero: it has not
	described bool            // its metadata says where to sign in
	refused   map[vault.Owner]tokenRefusal

	obtaining chan struct{} // has an element while a token of Switchboard's own is obtained, which guards made
	made      time.Time     // when the last one was obtained
	paused    time.Time     // until when none is asked for, because of failure
	failure   error

	within sync.Map // vault.Owner → true: its connection's scopes are within those of the row
}

// A tokenRefusal says that the server has refused a token.
type tokenRefusal struct {
	generation link.TokenGeneration
	again      link.TokenGeneration // the token that was got because of it
	at         time.Time
}

// Held implements link.Credentials.
func (c *credentials) Held(p *switchboard.Principal) (link.ShownToken, bool) {
	if c.free.Load() {
		return link.ShownToken{}, true
	}
	owner := OwnerOf(c.server, p)
	t, ok := c.broker.vault.Access(owner)
	if !ok || t.Due || c.isForeign(p) || !c.isWithin(owner) {
		return link.ShownToken{}, false
	}
	return link.ShownToken{Token: t.Access, Generation: link.TokenGeneration(t.Generation)}, true
}

// isForeign reports whether a caller with a key asks for the operator's connection without a row that says so.
func (c *credentials) isForeign(p *switchboard.Principal) bool {
	return c.server.Credential.Kind == "" && !isOperator(p)
}

// isWithin reports whether the row of the server is known to allow all scopes of the owner's connection.
func (c *credentials) isWithin(o vault.Owner) bool {
	if c.server.Credential.Scopes == nil {
		return true
	}
	_, ok := c.within.Load(o)
	return ok
}

// bound returns vault.ErrConnectAgain if the row of the server, which has changed since the consent, does not allow all scopes of the owner's connection. The
// connection stays: another replica may have a newer row.
func (c *credentials) bound(ctx context.Context, o vault.Owner) error {
	if c.isWithin(o) {
		return nil
	}
	made, err := c.broker.vault.Read(ctx, o)
	if err != nil {
		return err
	}
	for _, s := range made.Scopes {
		if !slices.Contains(c.server.Credential.Scopes, s) {
			return vault.ErrConnectAgain
		}
	}
	c.within.Store(o, true)
	return nil
}

// Get implements link.Credentials.
func (c *credentials) Get(ctx context.Context, p *switchboard.Principal) (link.ShownToken, error) {
	owner := OwnerOf(c.server, p)
	t, err := c.token(ctx, owner)
	if err == nil {
		err = c.bound(ctx, owner)
	}
	if err == nil && !c.isForeign(p) {
		return link.ShownToken{Token: t.Access, Generation: link.TokenGeneration(t.Generation)}, nil
	}
	kind := c.server.Credential.Kind
	switch {
	case kind == switchboard.CredentialClient && (errors.Is(err, vault.ErrNone) || errors.Is(err, vault.ErrConnectAgain) || errors.Is(err, vault.ErrUnreadable)):
		return c.obtain(ctx, owner)
	case kind == "" && errors.Is(err, vault.ErrNone):
		return c.withoutRow(ctx, p)
	case kind == "" && !c.isDemanded() && errors.Is(err, store.ErrUnavailable): // it worked without a token, as far as is known
		return link.ShownToken{}, nil
	case err == nil, errors.Is(err, vault.ErrNone), errors.Is(err, vault.ErrConnectAgain), errors.Is(err, vault.ErrUnreadable):
		return link.ShownToken{}, c.connectFirst(p, err)
	case errors.Is(err, vault.ErrNotSent), errors.Is(err, vault.ErrPaused):
		return link.ShownToken{}, c.away(err)
	case ctx.Err() != nil:
		return link.ShownToken{}, ctx.Err()
	}
	e := switchboard.Refuse(switchboard.CodeStoreUnavailable, "the token for the tool's server cannot be read now; the call was not sent; try again later")
	e.Cause, e.RetryAfter = err, time.Second
	return link.ShownToken{}, e
}

// token returns the owner's token, and another one than the server has refused.
func (c *credentials) token(ctx context.Context, owner vault.Owner) (vault.Token, error) {
	c.mu.Lock()
	r, refused := c.refused[owner]
	c.mu.Unlock()
	if refused && r.again == r.generation && time.Since(r.at) < refusedHolds { // the token that replaced a refused one was refused too
		now, err := c.broker.vault.Read(ctx, owner)
		if err != nil {
			return vault.Token{}, err
		}
		if link.TokenGeneration(now.Generation) == r.generation {
			return vault.Token{}, vault.ErrConnectAgain
		}
	}
	t, err := c.broker.vault.Token(ctx, owner, c.renew)
	if err == nil && refused && link.TokenGeneration(t.Generation) != r.generation && r.again == (link.TokenGeneration{}) {
		c.mu.Lock()
		if c.refused[owner] == r {
			c.refused[owner] = tokenRefusal{generation: r.generation, again: link.TokenGeneration(t.Generation), at: time.Now()}
		}
		c.mu.Unlock()
	}
	return t, err
}

// Refused implements link.Credentials.
func (c *credentials) Refused(p *switchboard.Principal, shown link.ShownToken, challenge []string) {
	owner := OwnerOf(c.server, p)
	parsed, _ := oauth.ParseChallenge(challenge)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.challenge = parsed
	if shown.Token.Reveal() == "" {
		c.demanded, c.described = time.Now(), false
		c.free.Store(false)
		return
	}
	if c.refused == nil {
		c.refused = map[vault.Owner]tokenRefusal{}
	}
	was := c.refused[owner]
	if was.again != (link.TokenGeneration{}) && was.generation == shown.Generation {
		return // a late answer: the token was replaced meanwhile
	}
	c.broker.vault.Reject(owner, vault.Generation(shown.Generation)) // Held does not return it any more
	now := tokenRefusal{generation: shown.Generation, at: time.Now()}
	if was.again == shown.Generation && time.Since(was.at) < renewedHolds {
		now.again = shown.Generation
	}
	if c.server.Credential.Kind == switchboard.CredentialClient && time.Since(c.made) < renewedHolds {
		c.paused, c.failure = time.Now().Add(refusedHolds), errRefusedAtOnce
	}
	c.refused[owner] = now
}

// isDemanded reports whether the server has demanded a token lately.
func (c *credentials) isDemanded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.demanded.IsZero() && time.Since(c.demanded) <= demandHolds
}

// withoutRow returns the credential for a server without a row about it, for which there is no connection: none, until the server demands
// one. Then its metadata says whether a person can connect it at all.
func (c *credentials) withoutRow(ctx context.Context, p *switchboard.Principal) (link.ShownToken, error) {
	c.mu.Lock()
	challenge, described := c.challenge, c.described
	c.mu.Unlock()
	if !c.isDemanded() {
		c.free.Store(true)
		return link.ShownToken{}, nil
	}
	if !described {
		o, err := c.broker.client(c.server)
		if err == nil {
			_, err = o.Discover(ctx, challenge, oauth.ForPerson)
		}
		if err != nil {
			c.mu.Lock()
			c.demanded = time.Time{} // ask it again, the next time
			c.mu.Unlock()
			if kind := oauth.KindOf(err); kind != oauth.Refused && kind != oauth.Misconfigured {
				return link.ShownToken{}, c.away(err)
			}
			e := switchboard.Refuse(switchboard.CodeServerFailed, "the tool's server demands a token, and does not say where to sign in; its operator must look at how it is configured")
			e.Cause, e.Unsent = err, true
			e.Hint = "if it wants a fixed token, write it into headers of server " + string(c.server.ID)
			return link.ShownToken{}, e
		}
		c.mu.Lock()
		c.described = true
		c.mu.Unlock()
	}
	return link.ShownToken{}, c.connectFirst(p, nil)
}

// connectFirst returns the error of a request without a connection.
func (c *credentials) connectFirst(p *switchboard.Principal, cause error) error {
	e := &switchboard.Error{Code: switchboard.CodeConnectFirst, Unsent: true, Cause: cause}
	switch {
	case c.isForeign(p):
		e.Text = "the tool's server demands a sign-in, and its operator has not said whose; the call was not sent"
		e.Hint = `the operator writes credential: {user: {}} into the row of server ` + string(c.server.ID) + `, so that each caller connects, or credential: {operator: {}}`
	case OwnerOf(c.server, p).Person != "":
		e.Text = "the tool's server acts for you only after you have connected it; the call was not sent"
	default:
		e.Text = "the tool's server demands a sign-in, and nobody has connected it yet; the call was not sent"
		if p == nil {
			e.Text = "it demands a sign-in, and nobody has connected it yet"
		}
		e.Hint = "connect it: switchboard server connect " + string(c.server.ID)
	}
	if errors.Is(cause, vault.ErrConnectAgain) || errors.Is(cause, vault.ErrUnreadable) {
		ended := "its connection has ended"
		if errors.Is(cause, vault.ErrUnreadable) {
			ended = "its connection cannot be read with the key of the vault"
		}
		e.Text = strings.NewReplacer("nobody has connected it yet", ended, "only after you have connected it", "only after you have connected it again").Replace(e.Text)
	}
	return e
}

// away returns the error of a request for which the provider gives no token now.
func (c *credentials) away(cause error) error {
	e := switchboard.Refuse(switchboard.CodeProviderAway, "the provider of the tool's server gives no token now; the call was not sent; try again later")
	e.Cause, e.RetryAfter, e.Unsent = cause, max(obtainPause, pauseOf(cause)), true
	return e
}
