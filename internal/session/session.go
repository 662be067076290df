// Package session is the state that a client's connection leaves behind in Switchboard: the legacy
// sessions and their copies in the store, the events that a client can resume, its open questions,
// subscriptions and requests in flight, and the calls that wait for a modern client's answer.
//
// It decides how long that state lives, how much of it one principal may have, and which replica owns
// a session. It knows nothing of HTTP or stdio. Package gateway reads the requests, forwards them to
// the owner of a session, and turns the errors of this package into protocol errors.
package session

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits for sessions.
const (
	// MaxSessions limits the sessions of all principals, MaxSessionsEach those of one principal. A
	// principal that has MaxSessionsEach loses its longest idle session to a new one, if that session
	// has been idle for idleGrace.
	MaxSessions     = 10_000
	MaxSessionsEach = 256

	// Idle is how long an unused session is kept.
	Idle      = 30 * time.Minute
	idleGrace = time.Minute
)

// ErrCancelled is the cause of the cancellation of a request by its client.
var ErrCancelled = errors.New("cancelled by the client")

// A PrincipalKey identifies a principal in counters and tables.
type PrincipalKey struct {
	Tenant switchboard.TenantID
	ID     string
}

// KeyOf returns the key of p.
func KeyOf(p switchboard.Principal) PrincipalKey { return PrincipalKey{p.Tenant, p.ID} }

// A Table holds the sessions of this replica. Use NewTable. It is safe for concurrent use.
type Table struct {
	onEnd       func(*Session) // called once for each session that has ended
	key         []byte         // of idSeal
	replayBytes atomic.Int64   // of events that can be resumed

	byID sync.Map // string → *Session; found without a lock, for calls

	mu          sync.Mutex
	count       int
	byPrincipal map[PrincipalKey]map[*Session]struct{}
	yielded     map[string][]*Session // by id: sessions that another replica took over while requests still ran here
}

// NewTable returns an empty table. key authenticates session ids, so that an id which no replica
// minted costs no read of the store. onEnd is called once for each session that has ended.
func NewTable(key []byte, onEnd func(*Session)) *Table { return &Table{key: key, onEnd: onEnd} }

// A Session is the state of one legacy client's connection. Only the principal that opened it can use
// it. keep.go says which replica owns it.
type Session struct {
	id        string
	principal PrincipalKey
	key       store.Key // of the session in the store

	Client   *Client
	InFlight Requests
	Replays  Replays

	// run is set before the session can be found.
	run     *run.Run
	unwatch func()

	onEnd  func(*Session)
	copy   storedCopy
	owners ownerHistory
	usage  usage

	// ctx ends with the session, and cancels the requests in flight.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// A storedCopy is what a session knows about its copy in the store.
type storedCopy struct {
	mu      sync.Mutex
	version store.Version // the last one that is known to be ours
	unsaved bool          // the last save failed
	lost    bool          // another replica has taken the session over, or the session has ended
}

// An ownerHistory says which replicas owned a session before this one.
type ownerHistory struct {
	moves   int      // how often the session was taken over
	earlier []string // see Stored.EarlierOwners
}

// A usage counts the users of a session, which ends when it has none for a while.
type usage struct {
	mu       sync.Mutex
	users    int  // requests and streams
	yielded  bool // another replica owns the session; requests still run here
	ended    bool
	idleFrom time.Time
	timer    *time.Timer
	stream   context.CancelFunc // closes the open notification stream; nil if none is open
}

// ID returns the id of the session, which is as good as a password.
func (s *Session) ID() string { return s.id }

// Run returns the run of the session.
func (s *Session) Run() *run.Run { return s.run }

// Moves returns how often the session was taken over.
func (s *Session) Moves() int { return s.owners.moves }

// Context ends with the session.
func (s *Session) Context() context.Context { return s.ctx }

// Bind sets the run of a session that cannot be found yet. primers says whether the client takes
// primers: see Replays.
func (s *Session) Bind(r *run.Run, primers bool) { s.run, s.Replays.sendsPrimers = r, primers }

// Reserve makes a session for p that cannot be found yet. id is the id of a session that is taken
// over, or "". The caller is its first user. It returns nil if there are too many sessions; each
// reports whether there are too many of p.
func (ss *Table) Reserve(p switchboard.Principal, id string) (s *Session, each bool) {
	o := KeyOf(p)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(ss.byPrincipal[o]) >= MaxSessionsEach && !ss.makeRoom(o) {
		return nil, true
	}
	if ss.count >= MaxSessions {
		return nil, false
	}
	if id == "" {
		id = rand.Text() // at least 128 random bits
		id += ss.idSeal(o, id)
	}
	s = &Session{id: id, principal: o, key: sessionKey(o, id), onEnd: ss.onEnd, Client: NewClient(id, p), usage: usage{users: 1}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.Replays.totalBytes = &ss.replayBytes
	context.AfterFunc(s.ctx, func() {
		s.InFlight.CancelAll(ErrCancelled)
		s.Replays.close()
	})
	if ss.byPrincipal == nil {
		ss.byPrincipal = map[PrincipalKey]map[*Session]struct{}{}
	}
	if ss.byPrincipal[o] == nil {
		ss.byPrincipal[o] = map[*Session]struct{}{}
	}
	ss.byPrincipal[o][s] = struct{}{}
	ss.count++
	return s, false
}

// idSeal returns the end of a session id of o, which shows that we minted the id. Ids without it
// are not looked up in the store.
func (ss *Table) idSeal(o PrincipalKey, random string) string {
	h := hmac.New(sha256.New, ss.key)
	h.Write([]byte(string(o.Tenant) + "/" + o.ID + "\x00" + random))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12])
}

// IsMinted reports whether the id is one of o that we have minted.
func (ss *Table) IsMinted(o PrincipalKey, id string) bool {
	n := max(0, len(id)-base64.RawURLEncoding.EncodedLen(12))
	return hmac.Equal([]byte(id[n:]), []byte(ss.idSeal(o, id[:n])))
}

// Size returns the number of sessions that this replica owns.
func (ss *Table) Size() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.count
}

// makeRoom ends the longest idle session of o, if that has been idle for idleGrace. The caller
// holds ss.mu.
func (ss *Table) makeRoom(o PrincipalKey) bool {
	var oldest *Session
	var since time.Time
	for s := range ss.byPrincipal[o] {
		if idle, ok := s.idleSince(); ok && time.Since(idle) >= idleGrace && (oldest == nil || idle.Before(since)) {
			oldest, since = s, idle
		}
	}
	if oldest == nil || !oldest.markEnded(false) {
		return false
	}
	ss.removeLocked(oldest)
	oldest.cancel(ErrCancelled)
	return true
}

// Publish makes the session findable, after Bind. It returns false if a session with the same id can
// be found already.
func (ss *Table) Publish(s *Session) bool {
	s.unwatch = s.run.Watch(s.Client.Queue, false)
	_, taken := ss.byID.LoadOrStore(s.id, s)
	return !taken
}

// Find returns p's session of that id and counts the caller as a user, who must call Release. It
// does not return sessions of other principals.
func (ss *Table) Find(id string, p switchboard.Principal) *Session {
	v, ok := ss.byID.Load(id)
	if !ok {
		return nil
	}
	if s := v.(*Session); s.use(p, false) {
		return s
	}
	return nil
}

// FindAll returns p's session of that id as Find does, preceded by the sessions of that id that
// were yielded here, in the order of time. The caller must Release each.
func (ss *Table) FindAll(id string, p switchboard.Principal) (all []*Session) {
	v, _ := ss.byID.Load(id) // first: a session that moves meanwhile is then among the yielded ones
	ss.mu.Lock()
	left := slices.Clone(ss.yielded[id])
	ss.mu.Unlock()
	if s, ok := v.(*Session); ok && !slices.Contains(left, s) {
		left = append(left, s)
	}
	return slices.DeleteFunc(left, func(s *Session) bool { return !s.use(p, true) })
}

// use adds a user to s, if s belongs to p and has not ended. A yielded session takes users only if
// yielded is set.
func (s *Session) use(p switchboard.Principal, left bool) bool {
	if s.principal != KeyOf(p) {
		return false
	}
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	if s.usage.ended || s.usage.yielded && !left {
		return false
	}
	s.usage.users++
	if s.usage.timer != nil {
		s.usage.timer.Stop()
	}
	return true
}

// idleLimit returns how long s is kept without users. The caller holds s.usage.mu.
func (s *Session) idleLimit() time.Duration {
	if s.usage.yielded {
		return replayedFor
	}
	return Idle
}

// Release removes a user of s. A session that has no users for idleLimit ends.
func (ss *Table) Release(s *Session) {
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	if s.usage.users--; s.usage.users > 0 {
		return
	}
	s.usage.idleFrom = time.Now()
	switch {
	case s.usage.ended:
		s.cancel(ErrCancelled)
	case s.usage.timer == nil:
		s.usage.timer = time.AfterFunc(s.idleLimit(), func() {
			if s.markEnded(false) {
				ss.remove(s)
				s.cancel(ErrCancelled)
			}
		})
	default:
		s.usage.timer.Reset(s.idleLimit())
	}
}

// End ends s and cancels its requests in flight.
func (ss *Table) End(s *Session) {
	if s.markEnded(true) {
		ss.remove(s)
	}
	s.cancel(ErrCancelled)
}

// EndAll ends every session, but lets the requests in flight finish.
func (ss *Table) EndAll() {
	for s := range ss.all() {
		if s.markEnded(true) {
			ss.remove(s)
		}
	}
}

// yield removes s from the lookup table because another replica owns it now. Requests that still
// run here keep it alive.
func (ss *Table) yield(s *Session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	if s.usage.yielded || s.usage.ended {
		return
	}
	s.usage.yielded = true
	if s.unwatch != nil {
		s.unwatch()
	}
	if s.usage.users == 0 {
		s.usage.timer.Reset(s.idleLimit())
	}
	if ss.yielded == nil {
		ss.yielded = map[string][]*Session{}
	}
	ss.yielded[s.id] = append(ss.yielded[s.id], s) // before it leaves the lookup table
	ss.removeOwned(s)
}

// all returns the sessions that can be found, and those that were yielded.
func (ss *Table) all() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		ss.mu.Lock()
		left := slices.Concat(slices.Collect(maps.Values(ss.yielded))...)
		ss.mu.Unlock()
		for _, s := range left {
			if !yield(s) {
				return
			}
		}
		ss.byID.Range(func(_, v any) bool { return yield(v.(*Session)) })
	}
}

func (ss *Table) remove(s *Session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.removeLocked(s)
}

// removeLocked removes s from all tables. The caller holds ss.mu.
func (ss *Table) removeLocked(s *Session) {
	left := ss.yielded[s.id]
	switch i := slices.Index(left, s); {
	case i < 0:
		ss.removeOwned(s)
	case len(left) == 1:
		delete(ss.yielded, s.id)
	default:
		ss.yielded[s.id] = slices.Delete(left, i, i+1)
	}
}

// removeOwned removes s from the tables of the sessions that this replica owns. The caller holds
// ss.mu.
func (ss *Table) removeOwned(s *Session) {
	ss.byID.CompareAndDelete(s.id, s)
	delete(ss.byPrincipal[s.principal], s)
	if len(ss.byPrincipal[s.principal]) == 0 {
		delete(ss.byPrincipal, s.principal)
	}
	ss.count--
}

// markEnded marks s as ended, once, and reports whether it did. Unless busy is set, it does so only
// if s has no users.
func (s *Session) markEnded(busy bool) bool {
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	if s.usage.ended || s.usage.users > 0 && !busy {
		return false
	}
	s.usage.ended = true
	if s.usage.timer != nil {
		s.usage.timer.Stop()
	}
	if s.unwatch != nil {
		s.unwatch()
	}
	go s.onEnd(s) // may wait for servers, for which the caller of markEnded does not wait
	return true
}

// idleSince returns since when s has no users; ok is false if it has some.
func (s *Session) idleSince() (time.Time, bool) {
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	return s.usage.idleFrom, s.usage.users == 0
}

// ReplaceStream makes stop the function that closes the notification stream, and closes the stream
// before it: a client may return before we notice that its connection was lost.
func (s *Session) ReplaceStream(stop context.CancelFunc) {
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	if s.usage.stream != nil {
		s.usage.stream()
	}
	if s.usage.stream = stop; s.usage.ended || s.usage.yielded {
		stop()
	}
}

// closeStream closes the notification stream, if one is open.
func (s *Session) closeStream() {
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	if s.usage.stream != nil {
		s.usage.stream()
	}
}

// Deliver handles a response or a cancellation, and reports whether it refers to something here.
func (s *Session) Deliver(m *wire.Message) bool {
	if m.Kind == wire.Response {
		return s.Client.Questions.Resolve(*m)
	}
	return s.InFlight.Cancel(m.Params)
}

// TooMany says why no session is opened. own means that the principal has reached its limit.
func TooMany(own bool) *switchboard.Error {
	if own {
		return switchboard.Refuse(switchboard.CodeOverloaded, "%d of your sessions are open, the limit for one principal; end one with DELETE, or try again once one has been idle for a minute", MaxSessionsEach)
	}
	return switchboard.Refuse(switchboard.CodeOverloaded, "the limit of open sessions is reached; try again later")
}
