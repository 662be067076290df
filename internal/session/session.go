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
	"errors"
	"sync"
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

// A Session is the state of one legacy client's connection. Only the principal that opened it can use
// it. replicator.go says which replica owns it.
type Session struct {
	id        string
	principal PrincipalKey
	key       store.Key // of the session in the store

	Client   *ClientState
	InFlight Requests
	Replays  Replays

	// run is set before the session can be found.
	run     *run.Run
	ownsRun bool // the run was minted for this session
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

// Bind sets the run of a session that cannot be found yet. owns says whether the run was minted for it; then the run is released when
// the session ends. primers says whether the client takes primers: see Replays.
func (s *Session) Bind(r *run.Run, owns, primers bool) {
	s.run, s.ownsRun, s.Replays.sendsPrimers = r, owns, primers
}

// use adds a user to s, if s belongs to p and has not ended. A yielded session takes users only if
// includeYielded is set.
func (s *Session) use(p switchboard.Principal, includeYielded bool) bool {
	if s.principal != KeyOf(p) {
		return false
	}
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	if s.usage.ended || s.usage.yielded && !includeYielded {
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
	yielded := s.usage.yielded
	if s.ownsRun && !yielded {
		run.Release(s.run)
	}
	go func() { // may wait for servers, for which the caller of markEnded does not wait
		s.onEnd(s)
		if yielded { // the run lives on where the session does
			s.run.Forget()
		}
	}()
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
