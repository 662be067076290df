// Package vault keeps connections: the consent of a person at a server, with its tokens. They are sealed, in the store.
//
// The package decides who may use a connection now, and that each grant is used once: over all goroutines, processes and
// replicas that share the store, also if they are killed. It knows no OAuth. Its callers obtain tokens, revoke them, and
// decide who may connect. What they must keep to renew tokens (a refresh token, the provider, the client's registration) is
// an opaque text to this package, the grant.
//
// # What the seal promises
//
// A row is sealed with AES-256-GCM, and bound to its owner (tenant, person, server and the URL that it is for) and to its
// generation. An attacker who can write the store and has no key can destroy a connection, and nothing more:
//
//   - A row with changed bytes, and a row that was moved to another owner, do not open.
//   - An older row that was put back is refused by each process that has used the connection since the newer row was
//     written, also if the connection was deleted meanwhile. A process that has started later cannot know of the newer
//     row. It uses the old tokens, for the same person at the same server: the server or the provider refuses them if
//     they were replaced or revoked.
//
// # While the store is away
//
// A known token is used until it expires. One without a known expiry is used for an hour after the last look at the store.
// Nothing is renewed, because a renewal needs a claim in the store.
package vault

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The errors that callers branch on. An error of the store wraps store.ErrUnavailable.
var (
	// ErrNone says that there is no such connection or ticket.
	ErrNone = errors.New("there is no connection")

	// ErrConnectAgain says that only a new consent of the person gives new tokens.
	ErrConnectAgain = errors.New("the connection cannot be renewed; the person must connect again")

	// ErrUnreadable says that the row in the store does not open: another program changed or moved it, put an old one back,
	// or the key is another one. Save and Delete replace it.
	ErrUnreadable = errors.New("the connection in the store cannot be read")

	// ErrPaused says that the provider could not be reached a moment ago, and that no process tries again until the pause is over.
	ErrPaused = errors.New("the provider could not be reached a moment ago")

	// ErrFull says that no more connections, or no more tickets of this person, can be kept.
	ErrFull = errors.New("there are too many")
)

const (
	topic = "connection"

	// maxRows is the most connections of one group. It is less than one read of the store returns.
	maxRows = 8192

	fileInterval   = 500 * time.Millisecond // other processes that share a file send no notices
	sharedInterval = 5 * time.Second        // for notices that were lost
	storeTimeout   = 5 * time.Second

	// early is how long before its expiry a token is renewed. A token that lives for less than twice as long is renewed
	// after half of its life.
	early = time.Minute

	// unseenFor is how long a token without a known expiry is used after the last look at the store.
	unseenFor = time.Hour

	// followedFor is how long a connection is followed after its last use.
	followedFor = 10 * time.Minute
)

// A Store keeps connections. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
	Status() store.Status
}

// An Owner identifies a connection. Two owners that differ in any field have different connections.
type Owner struct {
	Tenant switchboard.TenantID `json:"tenant,omitempty"`
	Person string               `json:"person,omitempty"` // "" for the connection of the catalog, which an operator makes
	Server switchboard.ServerID `json:"server"`

	// Resource is the URL that the tokens are for. A server that gets another URL has no connection any more.
	Resource string `json:"resource"`
}

// A Generation identifies one set of tokens of a connection. It changes with each renewal and each consent.
type Generation struct {
	Consent uint64 // random, for each consent
	Tokens  uint64 // counts the sets of tokens of the consent
}

// A ServerConnection is a consent with its tokens.
type ServerConnection struct {
	Generation Generation         // set by the vault
	Access     switchboard.Secret // sent to the server
	Expires    time.Time          // of Access; zero: unknown
	Grant      switchboard.Secret // what the caller needs to renew Access; "" if it cannot be renewed
	Renewed    time.Time          // when Access came; set by the vault

	Subject string // who the person is at the server's provider
	Label   string // how people call the connection
	Scopes  []string
	Wanted  []string  // scopes that the server has demanded since; set by Want
	Made    time.Time // when the person consented; set by the vault if it is zero
}

// A Token is what a request to a server needs.
type Token struct {
	Access     switchboard.Secret
	Generation Generation
	Expires    time.Time // zero: unknown
	Due        bool      // set by Access: Token begins a renewal, and returns this one
}

// Options are the options of a Vault.
type Options struct {
	// Keys are secret texts of at least 16 bytes. The first seals; all of them open.
	Keys []switchboard.Secret

	// Orphaned gets new tokens of a connection that was deleted or destroyed during the renewal, so that the caller revokes them. It
	// must not wait. If it is nil, the tokens stay valid at the provider.
	Orphaned func(Owner, ServerConnection)

	// Ended is called after connections were deleted or replaced, here or elsewhere, so that the caller shuts their links. It must
	// not wait. It may be nil.
	Ended func(Owner)

	// Lost is called when this process has found out that only the person can give a connection new tokens, and why. It is called once for
	// each such connection, over all processes that are not killed meanwhile. It must not wait. It may be nil.
	Lost func(Owner, error)

	Log *slog.Logger // nil means no log
}

// A Vault keeps connections and tickets. Use Open. It is safe for concurrent use.
type Vault struct {
	rows      *rowStore
	renewer   *renewer
	slots     slotTable    // of the connections that this process has used
	confirmed atomic.Int64 // unix nanoseconds of the last complete look at the store
	stop      context.CancelFunc
	following chan struct{} // closed when the following has ended
}

// Open returns a Vault that follows the store until Close. It does not use the store yet.
func Open(ctx context.Context, s Store, o Options) (*Vault, error) {
	sealer, err := newSealer(o.Keys)
	if err != nil {
		return nil, err
	}
	if o.Orphaned == nil {
		o.Orphaned = func(Owner, ServerConnection) {}
	}
	if o.Ended == nil {
		o.Ended = func(Owner) {}
	}
	if o.Lost == nil {
		o.Lost = func(Owner, error) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	rows := &rowStore{store: s, sealer: sealer, ended: o.Ended, log: o.Log, id: newID()}
	v := &Vault{rows: rows, renewer: &renewer{rows: rows, orphaned: o.Orphaned, lost: o.Lost, ctx: ctx, times: usualTimes}, stop: stop, following: make(chan struct{})}
	v.slots.seed = maphash.MakeSeed()
	v.confirmed.Store(time.Now().UnixNano())
	every := sharedInterval
	if s.Status().Kind == "file" {
		every = fileInterval
	}
	changes := feed.Open(s, feed.Options[string]{Topic: topic, Every: every, Decode: decodeNotice, Self: rows.id})
	go func() {
		defer close(v.following)
		v.follow(ctx, changes)
	}()
	return v, nil
}

// Close ends the following. It waits for the renewals that have begun, because a provider answers them only once: up to
// closeTime. Then they are interrupted, and their persons must connect again.
func (v *Vault) Close() {
	v.renewer.flights.close(closeTime)
	v.stop()
	v.renewer.later.close(closeTime)
	<-v.following
}

// Reject records that the server has refused the token of the generation: this process does not serve it any more.
func (v *Vault) Reject(o Owner, seen Generation) {
	if s := v.slots.find(o); s != nil {
		s.reject(seen)
	}
}

// Access returns the token of a connection that this process knows. It never waits. If ok is false, ask Token or Read.
func (v *Vault) Access(o Owner) (t Token, ok bool) {
	s := v.slots.find(o)
	if s == nil {
		return Token{}, false
	}
	known := s.known.Load()
	if known == nil {
		return Token{}, false
	}
	now := time.Now()
	if !v.mayServe(known, now) {
		return Token{}, false
	}
	s.touch(now)
	t = known.token
	t.Due = v.isDue(s, known, now)
	return t, true
}

// mayServe reports whether a known token may be sent to its server.
func (v *Vault) mayServe(k *known, now time.Time) bool {
	if k.rejected {
		return false
	}
	if k.token.Expires.IsZero() {
		return now.UnixNano()-v.confirmed.Load() < int64(unseenFor)
	}
	return now.Before(k.token.Expires)
}

// isDue reports whether a renewal of a token that is still good should begin now.
func (v *Vault) isDue(s *slot, k *known, now time.Time) bool {
	return k.shouldRenew(now) && now.UnixNano() > s.paused.Load()
}

// Token returns the token of a connection for one request. If the token expires soon, a renewal begins in the background: until
// then the old one is good. If it has expired, Token waits for the renewal. The errors are the errors of Read and Renew.
func (v *Vault) Token(ctx context.Context, o Owner, ask Ask) (Token, error) {
	s := v.slots.add(o)
	if s.known.Load() == nil {
		if _, err := v.Read(ctx, o); err != nil {
			return Token{}, err
		}
	}
	k, now := s.known.Load(), time.Now()
	if k == nil { // deleted just now
		return Token{}, ErrNone
	}
	s.touch(now)
	if !v.mayServe(k, now) {
		return v.renew(ctx, s, k.token.Generation, ask)
	}
	if v.isDue(s, k, now) {
		v.renewer.join(s, k.token.Generation, ask)
	}
	return k.token, nil
}

func (c *ServerConnection) token() Token {
	return Token{Access: c.Access, Generation: c.Generation, Expires: c.Expires}
}

// Read returns the connection as the store has it, and follows it from now on. The errors are ErrNone, ErrUnreadable and
// errors of the store. A connection that must be made again is no error; see Renew.
func (v *Vault) Read(ctx context.Context, o Owner) (ServerConnection, error) {
	s := v.slots.add(o)
	r, _, err := v.rows.read(ctx, s)
	if err != nil {
		return ServerConnection{}, err
	}
	s.touch(time.Now())
	return r.connection(), nil
}

// Save keeps a new consent, durably. It replaces an earlier one of the owner. The earlier tokens are not revoked, because some
// providers then revoke the new ones too. Save returns the connection with its Generation.
func (v *Vault) Save(ctx context.Context, o Owner, c ServerConnection) (ServerConnection, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s, now := v.slots.add(o), time.Now().UTC()
	if c.Made.IsZero() {
		c.Made = now
	}
	r := &connectionRow{consent: newConsent(), count: 1, Owner: o, State: stateReady, Consent: consent{Subject: c.Subject, Label: c.Label, Scopes: c.Scopes, Made: c.Made}}
	r.setTokens(&c, now)
	data, err := v.rows.sealer.sealRow(s.name, r)
	if err != nil {
		return ServerConnection{}, err
	}
	rows, err := v.rows.store.List(ctx, groupOf(s.name))
	if err != nil {
		return ServerConnection{}, fmt.Errorf("keep a connection: %w", err)
	}
	if len(rows) >= maxRows {
		return ServerConnection{}, fmt.Errorf("%w: connections", ErrFull)
	}
	if err := s.lock(ctx); err != nil {
		return ServerConnection{}, err
	}
	version, err := v.rows.store.Apply(ctx, store.Change{Group: groupOf(s.name), Durable: true, Writes: []store.Write{
		{Name: s.name, Was: store.Any, Data: data}, {Name: s.claimName(), Was: store.Any},
	}})
	if err == nil {
		err = s.accept(r, version)
	} else {
		s.known.Store(nil) // it is unknown which row is there
	}
	v.rows.unlock(s)
	if err != nil {
		return ServerConnection{}, fmt.Errorf("keep a connection: %w", err)
	}
	s.touch(time.Now())
	v.rows.publish(ctx, s)
	return r.connection(), nil
}

// Delete deletes the connection, durably. It is not used any more: here when Delete returns, and elsewhere soon after. Delete
// returns what was there, so that the caller revokes its tokens. The errors are ErrNone, ErrUnreadable if the row that was
// deleted did not open, and errors of the store.
func (v *Vault) Delete(ctx context.Context, o Owner) (ServerConnection, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s := v.slots.add(o)
	if err := s.lock(ctx); err != nil {
		return ServerConnection{}, err
	}
	c, err := v.rows.deleteLocked(ctx, s)
	v.rows.unlock(s)
	if err == nil || errors.Is(err, ErrUnreadable) {
		v.rows.publish(ctx, s)
	}
	return c, err
}
