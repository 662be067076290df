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

// sessions holds the legacy sessions of this replica.
type sessions struct {
	onEnd       func(*session) // called once for each session that has ended
	key         []byte         // of idSeal
	replayBytes atomic.Int64   // of events that can be resumed

	byID sync.Map // string → *session; found without a lock, for calls

	mu          sync.Mutex
	count       int
	byPrincipal map[principalKey]map[*session]struct{}
	yielded     map[string][]*session // by id: sessions that another replica took over while requests still ran here
}

// A session is the state of one legacy client's connection. Only the principal that opened it can
// use it. keep.go says which replica owns it.
type session struct {
	id        string
	principal principalKey
	key       store.Key // of the session in the store
	onEnd     func(*session)
	client    *clientState
	inFlight  requestTable

	replays replays

	// run is set before the session can be found.
	run *run.Run

	unwatch func()

	// storedVersion is the last version in the store that is known to be ours. unsaved is set if
	// the last save failed. lost is set once another replica has taken the session over, or the
	// session has ended.
	storeMu       sync.Mutex
	storedVersion store.Version
	unsaved       bool
	lost          bool
	moves         int      // how often the session was taken over
	earlierOwners []string // see storedSession

	// ctx ends with the session, and cancels the requests in flight.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	users    int  // requests and streams
	yielded  bool // another replica owns the session; requests still run here
	ended    bool
	idleFrom time.Time
	timer    *time.Timer
	stream   context.CancelFunc // closes the open notification stream; nil if none is open
}

// reserve makes a session for p that cannot be found yet. id is the id of a session that is taken
// over, or "". The caller is its first user. It returns nil if there are too many sessions; each
// reports whether there are too many of p.
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
		id = rand.Text() // at least 128 random bits
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

// idSeal returns the end of a session id of o, which shows that we minted the id. Ids without it
// are not looked up in the store.
func (ss *sessions) idSeal(o principalKey, random string) string {
	h := hmac.New(sha256.New, ss.key)
	h.Write([]byte(string(o.tenant) + "/" + o.id + "\x00" + random))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12])
}

// isMinted reports whether the id is one of o that we have minted.
func (ss *sessions) isMinted(o principalKey, id string) bool {
	n := max(0, len(id)-base64.RawURLEncoding.EncodedLen(12))
	return hmac.Equal([]byte(id[n:]), []byte(ss.idSeal(o, id[:n])))
}

func (ss *sessions) size() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.count
}

// makeRoom ends the longest idle session of o, if that has been idle for sessionGrace. The caller
// holds ss.mu.
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

// publish makes the session findable, with its run. It returns false if a session with the same id
// can be found already.
func (ss *sessions) publish(s *session, r *run.Run) bool {
	s.run = r
	s.unwatch = r.Watch(s.client.queue, false)
	_, taken := ss.byID.LoadOrStore(s.id, s)
	return !taken
}

// find returns p's session of that id and counts the caller as a user, who must call release. It
// does not return sessions of other principals.
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

// findAll returns p's session of that id as find does, preceded by the sessions of that id that
// were yielded here, in the order of time. The caller must release each.
func (ss *sessions) findAll(id string, p switchboard.Principal) (all []*session) {
	v, _ := ss.byID.Load(id) // first: a session that moves meanwhile is then among the yielded ones
	ss.mu.Lock()
	left := slices.Clone(ss.yielded[id])
	ss.mu.Unlock()
	if s, ok := v.(*session); ok && !slices.Contains(left, s) {
		left = append(left, s)
	}
	return slices.DeleteFunc(left, func(s *session) bool { return !s.use(p, true) })
}

// use adds a user to s, if s belongs to p and has not ended. A yielded session takes users only if
// yielded is set.
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

// idleLimit returns how long s is kept without users. The caller holds s.mu.
func (s *session) idleLimit() time.Duration {
	if s.yielded {
		return replayedFor
	}
	return SessionIdle
}

// release removes a user of s. A session that has no users for idleLimit ends.
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

// end ends s and cancels its requests in flight.
func (ss *sessions) end(s *session) {
	if s.markEnded(true) {
		ss.remove(s)
	}
	s.cancel(errCancelled)
}

// endAll ends every session, but lets the requests in flight finish.
func (ss *sessions) endAll() {
	for s := range ss.all() {
		if s.markEnded(true) {
			ss.remove(s)
		}
	}
}

// yield removes s from the lookup table because another replica owns it now. Requests that still
// run here keep it alive.
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
	ss.yielded[s.id] = append(ss.yielded[s.id], s) // before it leaves the lookup table
	ss.removeOwned(s)
}

// all returns the sessions that can be found, and those that were yielded.
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

// removeLocked removes s from all tables. The caller holds ss.mu.
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

// removeOwned removes s from the tables of the sessions that this replica owns. The caller holds
// ss.mu.
func (ss *sessions) removeOwned(s *session) {
	ss.byID.CompareAndDelete(s.id, s)
	delete(ss.byPrincipal[s.principal], s)
	if len(ss.byPrincipal[s.principal]) == 0 {
		delete(ss.byPrincipal, s.principal)
	}
	ss.count--
}

// markEnded marks s as ended, once, and reports whether it did. Unless busy is set, it does so only
// if s has no users.
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
	go s.onEnd(s) // may wait for servers, for which the caller of markEnded does not wait
	return true
}

// idleSince returns since when s has no users; ok is false if it has some.
func (s *session) idleSince() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idleFrom, s.users == 0
}

// replaceStream makes stop the function that closes the notification stream, and closes the stream
// before it: a client may return before we notice that its connection was lost.
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

// closeStream closes the notification stream, if one is open.
func (s *session) closeStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		s.stream()
	}
}

// checkTarget refuses a request that names another task or run than the session has.
func (s *session) checkTarget(t runTarget) *failure {
	if t.task != "" && t.task != s.run.Task() || t.run != "" && t.run != s.run.ID() {
		return invalidRequest("this session is bound to another task or run than the request names; open a session for it")
	}
	return nil
}
