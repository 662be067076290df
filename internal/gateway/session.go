package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// sessions holds the legacy sessions.
type sessions struct {
	onEnd       func(*session) // told once of each that has ended
	key         []byte         // of mark
	replayBytes atomic.Int64   // bytes of what can be resumed

	byID sync.Map // string → *session; what calls look up, without a lock

	mu          sync.Mutex
	count       int
	byPrincipal map[principalKey]map[*session]struct{}
	yielded     map[string][]*session // by id: what is under way here in sessions that go on elsewhere
}

// A session is what a legacy client keeps by its id, which only its own
// principal can use. See keep.go for where it is.
type session struct {
	id        string
	principal principalKey
	key       store.Key // where what is kept of it stands
	onEnd     func(*session)
	client    *clientState
	inFlight  requestTable

	replays replays

	// run is set before anybody can find the session.
	run *run.Run

	unwatch func()

	// What is kept of it in the store is of version kept, as far as we know; unkept is set
	// where that is not all. lost is set once another replica has taken the session over,
	// or it is over.
	storeMu       sync.Mutex
	storedVersion store.Version
	unsaved       bool
	lost          bool
	moves         int      // of the session to another home, so far
	earlierOwners []string // see keptSession

	// ctx ends with the session, and with it what is under way.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	users    int  // requests and streams
	yielded  bool // it goes on elsewhere, but for what is under way here
	ended    bool
	idleFrom time.Time
	timer    *time.Timer
	stream   context.CancelFunc // of the event stream that is open, if any
}

// reserve makes a session for p that nobody can find yet, with the id that it had at
// its home before, or "". The caller is its first user. It is nil where there are too
// many; each says whether of p's own.
func (ss *sessions) reserve(p switchboard.Principal, id string) (s *session, each bool) {
	o := principalKeyOf(p)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(ss.byPrincipal[o]) >= MaxSessionsEach && !ss.makeRoom(o) {
		return nil, true
	}
	if ss.count >= MaxSessions {
		return nil, false
	}
	if id == "" {
		id = rand.Text() // 128 bits and more
		id += ss.idSeal(o, id)
	}
	s = &session{id: id, principal: o, key: sessionKey(o, id), onEnd: ss.onEnd, client: newClient(id, p), users: 1}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.replays.totalBytes = &ss.replayBytes
	context.AfterFunc(s.ctx, func() {
		s.inFlight.cancelAll(errCancelled)
		s.replays.close()
	})
	if ss.byPrincipal == nil {
		ss.byPrincipal = map[principalKey]map[*session]struct{}{}
	}
	if ss.byPrincipal[o] == nil {
		ss.byPrincipal[o] = map[*session]struct{}{}
	}
	ss.byPrincipal[o][s] = struct{}{}
	ss.count++
	return s, false
}

// idSeal is what an id of a session of o ends with, and only one that we have minted: who
// makes ids up has none of them looked for.
func (ss *sessions) idSeal(o principalKey, random string) string {
	h := hmac.New(sha256.New, ss.key)
	h.Write([]byte(string(o.tenant) + "/" + o.id + "\x00" + random))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12])
}

// isMinted reports whether the id is of a session of o's that there is, or was.
func (ss *sessions) isMinted(o principalKey, id string) bool {
	n := max(0, len(id)-base64.RawURLEncoding.EncodedLen(12))
	return hmac.Equal([]byte(id[n:]), []byte(ss.idSeal(o, id[:n])))
}

func (ss *sessions) size() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.count
}

// makeRoom ends the owner's longest idle session, if one has been idle for
// long enough. The caller holds ss.mu.
func (ss *sessions) makeRoom(o principalKey) bool {
	var oldest *session
	var since time.Time
	for s := range ss.byPrincipal[o] {
		if idle, ok := s.idleSince(); ok && time.Since(idle) >= sessionGrace && (oldest == nil || idle.Before(since)) {
			oldest, since = s, idle
		}
	}
	if oldest == nil || !oldest.markEnded(false) {
		return false
	}
	ss.removeLocked(oldest)
	oldest.cancel(errCancelled)
	return true
}

// publish lets the session be found, once its run is bound; unless there is one of its id.
func (ss *sessions) publish(s *session, r *run.Run) bool {
	s.run = r
	s.unwatch = r.Watch(s.client.queue, false)
	_, taken := ss.byID.LoadOrStore(s.id, s)
	return !taken
}

// find returns p's session of that id and counts the caller as a user of it,
// who has to call leave. A session of somebody else does not exist.
func (ss *sessions) find(id string, p switchboard.Principal) *session {
	v, ok := ss.byID.Load(id)
	if !ok {
		return nil
	}
	if s := v.(*session); s.use(p, false) {
		return s
	}
	return nil
}

// findAll returns p's session of that id as find does, and before that, in the order of time,
// what is left of it from when its home was here. The caller has to leave each.
func (ss *sessions) findAll(id string, p switchboard.Principal) (all []*session) {
	v, _ := ss.byID.Load(id) // first: it may move meanwhile, and then is left
	ss.mu.Lock()
	left := slices.Clone(ss.yielded[id])
	ss.mu.Unlock()
	if s, ok := v.(*session); ok && !slices.Contains(left, s) {
		left = append(left, s)
	}
	return slices.DeleteFunc(left, func(s *session) bool { return !s.use(p, true) })
}

// use counts one more user of s, if it is p's and has not ended; nor moved, unless left is
// set.
func (s *session) use(p switchboard.Principal, left bool) bool {
	if s.principal != principalKeyOf(p) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.yielded && !left {
		return false
	}
	s.users++
	if s.timer != nil {
		s.timer.Stop()
	}
	return true
}

// idleLimit is for how long s is kept when nobody uses it. The caller holds s.mu.
func (s *session) idleLimit() time.Duration {
	if s.yielded {
		return replayedFor
	}
	return SessionIdle
}

// release ends one use of s. The session ends when nobody has used it for a while.
func (ss *sessions) release(s *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	s.idleFrom = time.Now()
	switch {
	case s.ended:
		s.cancel(errCancelled)
	case s.timer == nil:
		s.timer = time.AfterFunc(s.idleLimit(), func() {
			if s.markEnded(false) {
				ss.remove(s)
				s.cancel(errCancelled)
			}
		})
	default:
		s.timer.Reset(s.idleLimit())
	}
}

// end ends s, and what is under way in it.
func (ss *sessions) end(s *session) {
	if s.markEnded(true) {
		ss.remove(s)
	}
	s.cancel(errCancelled)
}

// endAll ends every session, but leaves to finish what is under way.
func (ss *sessions) endAll() {
	for s := range ss.all() {
		if s.markEnded(true) {
			ss.remove(s)
		}
	}
}

// yield has s found no more, but for what is under way in it, since it goes on elsewhere.
func (ss *sessions) yield(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.yielded || s.ended {
		return
	}
	s.yielded = true
	if s.unwatch != nil {
		s.unwatch()
	}
	if s.users == 0 {
		s.timer.Reset(s.idleLimit())
	}
	if ss.yielded == nil {
		ss.yielded = map[string][]*session{}
	}
	ss.yielded[s.id] = append(ss.yielded[s.id], s) // before it cannot be found otherwise
	ss.removeOwned(s)
}

// all are the sessions that can be found, and what is left of those that have moved.
func (ss *sessions) all() iter.Seq[*session] {
	return func(yield func(*session) bool) {
		ss.mu.Lock()
		left := slices.Concat(slices.Collect(maps.Values(ss.yielded))...)
		ss.mu.Unlock()
		for _, s := range left {
			if !yield(s) {
				return
			}
		}
		ss.byID.Range(func(_, v any) bool { return yield(v.(*session)) })
	}
}

func (ss *sessions) remove(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.removeLocked(s)
}

// removeLocked takes s out of the tables. The caller holds ss.mu.
func (ss *sessions) removeLocked(s *session) {
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

// removeOwned takes s out of the tables of sessions that have their home here. The caller holds
// ss.mu.
func (ss *sessions) removeOwned(s *session) {
	ss.byID.CompareAndDelete(s.id, s)
	delete(ss.byPrincipal[s.principal], s)
	if len(ss.byPrincipal[s.principal]) == 0 {
		delete(ss.byPrincipal, s.principal)
	}
	ss.count--
}

// markEnded marks s as ended, once. With busy unset it does so only where nobody
// uses it.
func (s *session) markEnded(busy bool) bool {
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
	go s.onEnd(s) // it may wait for servers; whoever ends a session does not
	return true
}

// idleSince says since when nobody uses s, if so.
func (s *session) idleSince() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idleFrom, s.users == 0
}

// replaceStream makes stop the end of the session's event stream, and ends the one
// that was open: its client has come back before we knew that it was gone.
func (s *session) replaceStream(stop context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		s.stream()
	}
	if s.stream = stop; s.ended || s.yielded {
		stop()
	}
}

// closeStream ends the session's event stream, if one is open.
func (s *session) closeStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		s.stream()
	}
}

// checkTarget reports whether a request that names t may be one of this session.
func (s *session) checkTarget(t runTarget) *failure {
	if t.task != "" && t.task != s.run.Task() || t.run != "" && t.run != s.run.ID() {
		return invalidRequest("this session is bound to another task or run than the request names; open a session for it")
	}
	return nil
}
