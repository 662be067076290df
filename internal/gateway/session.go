package gateway

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// sessions holds the legacy sessions.
type sessions struct {
	over func(*session) // told once of each that has ended
	kept atomic.Int64   // bytes of what can be resumed

	byID sync.Map // string → *session; what calls look up, without a lock

	mu    sync.Mutex
	count int
	each  map[owner]map[*session]struct{}
}

// A session is what a legacy client keeps by its id, which only its own
// principal can use.
type session struct {
	id     string
	owner  owner
	over   func(*session)
	client *client
	flight flight

	replays replays

	// run is set before anybody can find the session.
	run *run.Run

	unwatch func()

	// ctx ends with the session, and with it what is under way.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	users  int // requests and streams
	ended  bool
	idle   time.Time
	timer  *time.Timer
	stream context.CancelFunc // of the event stream that is open, if any
}

// reserve makes a session for p that nobody can find yet. The caller is its
// first user. It is nil where there are too many; each says whether of p's own.
func (ss *sessions) reserve(p switchboard.Principal) (s *session, each bool) {
	o := ownerOf(p)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(ss.each[o]) >= MaxSessionsEach && !ss.makeRoom(o) {
		return nil, true
	}
	if ss.count >= MaxSessions {
		return nil, false
	}
	id := rand.Text() // 128 bits and more
	s = &session{id: id, owner: o, over: ss.over, client: newClient(id, p), users: 1}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.replays.inAll = &ss.kept
	context.AfterFunc(s.ctx, func() {
		s.flight.end(errCancelled)
		s.replays.end()
	})
	if ss.each == nil {
		ss.each = map[owner]map[*session]struct{}{}
	}
	if ss.each[o] == nil {
		ss.each[o] = map[*session]struct{}{}
	}
	ss.each[o][s] = struct{}{}
	ss.count++
	return s, false
}

// makeRoom ends the owner's longest idle session, if one has been idle for
// long enough. The caller holds ss.mu.
func (ss *sessions) makeRoom(o owner) bool {
	var oldest *session
	var since time.Time
	for s := range ss.each[o] {
		if idle, ok := s.idleSince(); ok && time.Since(idle) >= sessionGrace && (oldest == nil || idle.Before(since)) {
			oldest, since = s, idle
		}
	}
	if oldest == nil || !oldest.finish(false) {
		return false
	}
	ss.forget(oldest)
	oldest.cancel(errCancelled)
	return true
}

// open lets the session be found, once its run is bound.
func (ss *sessions) open(s *session, r *run.Run) {
	s.run = r
	s.unwatch = r.Watch(s.client.news)
	ss.byID.Store(s.id, s)
}

// find returns p's session of that id and counts the caller as a user of it,
// who has to call leave. A session of somebody else does not exist.
func (ss *sessions) find(id string, p switchboard.Principal) *session {
	v, ok := ss.byID.Load(id)
	if !ok {
		return nil
	}
	s := v.(*session)
	if s.owner != ownerOf(p) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	s.users++
	if s.timer != nil {
		s.timer.Stop()
	}
	return s
}

// leave ends one use of s. SessionIdle after the last, the session ends.
func (ss *sessions) leave(s *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	s.idle = time.Now()
	switch {
	case s.ended:
		s.cancel(errCancelled)
	case s.timer == nil:
		s.timer = time.AfterFunc(SessionIdle, func() {
			if s.finish(false) {
				ss.remove(s)
				s.cancel(errCancelled)
			}
		})
	default:
		s.timer.Reset(SessionIdle)
	}
}

// end ends s, and what is under way in it.
func (ss *sessions) end(s *session) {
	if s.finish(true) {
		ss.remove(s)
	}
	s.cancel(errCancelled)
}

// endAll ends every session, but leaves to finish what is under way.
func (ss *sessions) endAll() {
	ss.byID.Range(func(_, v any) bool {
		s := v.(*session)
		if s.finish(true) {
			ss.remove(s)
		}
		return true
	})
}

func (ss *sessions) remove(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.forget(s)
}

// forget takes s out of the tables. The caller holds ss.mu.
func (ss *sessions) forget(s *session) {
	ss.byID.Delete(s.id)
	delete(ss.each[s.owner], s)
	if len(ss.each[s.owner]) == 0 {
		delete(ss.each, s.owner)
	}
	ss.count--
}

// finish marks s as ended, once. With busy unset it does so only where nobody
// uses it.
func (s *session) finish(busy bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.users > 0 && !busy {
		return false
	}
	s.ended = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.unwatch != nil {
		s.unwatch()
	}
	go s.over(s) // it may wait for servers; whoever ends a session does not
	return true
}

// idleSince says since when nobody uses s, if so.
func (s *session) idleSince() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle, s.users == 0
}

// listen makes stop the end of the session's event stream, and ends the one
// that was open: its client has come back before we knew that it was gone.
func (s *session) listen(stop context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		s.stream()
	}
	s.stream = stop
}

// fits reports whether a request that names t may be one of this session.
func (s *session) fits(t target) *failure {
	if t.task != "" && t.task != s.run.Task() || t.run != "" && t.run != s.run.ID() {
		return invalidRequest("this session is bound to another task or run than the request names; open a session for it")
	}
	return nil
}
