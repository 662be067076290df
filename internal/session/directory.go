package session

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

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Directory holds the sessions of this replica. Use NewDirectory. It is safe for concurrent use.
type Directory struct {
	onEnd       func(*Session) // called once for each session that has ended
	key         []byte         // of idSeal
	replayBytes atomic.Int64   // of events that can be resumed

	byID sync.Map // string → *Session; found without a lock, for calls

	mu          sync.Mutex
	count       int
	byPrincipal map[PrincipalKey]map[*Session]struct{}
	yielded     map[string][]*Session // by id: sessions that another replica took over while requests still ran here
}

// NewDirectory returns an empty directory. key authenticates session ids, so that an id which no
// replica minted costs no read of the store. onEnd is called once for each session that has ended.
func NewDirectory(key []byte, onEnd func(*Session)) *Directory {
	return &Directory{key: key, onEnd: onEnd}
}

// Reserve makes a session for p that cannot be found yet. id is the id of a session that is taken
// over, or "". The caller is its first user. It returns nil if there are too many sessions; each
// reports whether there are too many of p.
func (d *Directory) Reserve(p switchboard.Principal, id string) (s *Session, each bool) {
	o := KeyOf(p)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byPrincipal[o]) >= MaxSessionsEach && !d.makeRoom(o) {
		return nil, true
	}
	if d.count >= MaxSessions {
		return nil, false
	}
	if id == "" {
		id = rand.Text() // at least 128 random bits
		id += d.idSeal(o, id)
	}
	s = &Session{id: id, principal: o, key: sessionKey(o, id), onEnd: d.onEnd, Client: NewClientState(id, p), usage: usage{users: 1}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.Replays.totalBytes = &d.replayBytes
	context.AfterFunc(s.ctx, func() {
		s.InFlight.CancelAll(ErrCancelled)
		s.Replays.close()
	})
	if d.byPrincipal == nil {
		d.byPrincipal = map[PrincipalKey]map[*Session]struct{}{}
	}
	if d.byPrincipal[o] == nil {
		d.byPrincipal[o] = map[*Session]struct{}{}
	}
	d.byPrincipal[o][s] = struct{}{}
	d.count++
	return s, false
}

// idSeal returns the end of a session id of o, which shows that we minted the id. Ids without it
// are not looked up in the store.
func (d *Directory) idSeal(o PrincipalKey, random string) string {
	h := hmac.New(sha256.New, d.key)
	h.Write([]byte(string(o.Tenant) + "/" + o.ID + "\x00" + random))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12])
}

// IsMinted reports whether the id is one of o that we have minted.
func (d *Directory) IsMinted(o PrincipalKey, id string) bool {
	n := max(0, len(id)-base64.RawURLEncoding.EncodedLen(12))
	return hmac.Equal([]byte(id[n:]), []byte(d.idSeal(o, id[:n])))
}

// Size returns the number of sessions that this replica owns.
func (d *Directory) Size() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// makeRoom ends the longest idle session of o, if that has been idle for idleGrace. The caller
// holds d.mu.
func (d *Directory) makeRoom(o PrincipalKey) bool {
	var oldest *Session
	var since time.Time
	for s := range d.byPrincipal[o] {
		if idle, ok := s.idleSince(); ok && time.Since(idle) >= idleGrace && (oldest == nil || idle.Before(since)) {
			oldest, since = s, idle
		}
	}
	if oldest == nil || !oldest.markEnded(false) {
		return false
	}
	d.removeLocked(oldest)
	oldest.cancel(ErrCancelled)
	return true
}

// Publish makes the session findable, after Bind. It returns false if a session with the same id can
// be found already.
func (d *Directory) Publish(s *Session) bool {
	s.unwatch = s.run.Watch(s.Client.Queue, false)
	_, taken := d.byID.LoadOrStore(s.id, s)
	return !taken
}

// Find returns p's session of that id and counts the caller as a user, who must call Release. It
// does not return sessions of other principals.
func (d *Directory) Find(id string, p switchboard.Principal) *Session {
	v, ok := d.byID.Load(id)
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
func (d *Directory) FindAll(id string, p switchboard.Principal) (all []*Session) {
	v, _ := d.byID.Load(id) // first: a session that moves meanwhile is then among the yielded ones
	d.mu.Lock()
	yielded := slices.Clone(d.yielded[id])
	d.mu.Unlock()
	if s, ok := v.(*Session); ok && !slices.Contains(yielded, s) {
		yielded = append(yielded, s)
	}
	return slices.DeleteFunc(yielded, func(s *Session) bool { return !s.use(p, true) })
}

// Release removes a user of s. A session that has no users for idleLimit ends.
func (d *Directory) Release(s *Session) {
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
				d.remove(s)
				s.cancel(ErrCancelled)
			}
		})
	default:
		s.usage.timer.Reset(s.idleLimit())
	}
}

// End ends s and cancels its requests in flight.
func (d *Directory) End(s *Session) {
	if s.markEnded(true) {
		d.remove(s)
	}
	s.cancel(ErrCancelled)
}

// EndAll ends every session, but lets the requests in flight finish.
func (d *Directory) EndAll() {
	for s := range d.all() {
		if s.markEnded(true) {
			d.remove(s)
		}
	}
}

// yield removes s from the lookup table because another replica owns it now. Requests that still
// run here keep it alive.
func (d *Directory) yield(s *Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
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
	if d.yielded == nil {
		d.yielded = map[string][]*Session{}
	}
	d.yielded[s.id] = append(d.yielded[s.id], s) // before it leaves the lookup table
	d.removeOwned(s)
}

// all returns the sessions that can be found, and those that were yielded.
func (d *Directory) all() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		d.mu.Lock()
		yielded := slices.Concat(slices.Collect(maps.Values(d.yielded))...)
		d.mu.Unlock()
		for _, s := range yielded {
			if !yield(s) {
				return
			}
		}
		d.byID.Range(func(_, v any) bool { return yield(v.(*Session)) })
	}
}

func (d *Directory) remove(s *Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.removeLocked(s)
}

// removeLocked removes s from all tables. The caller holds d.mu.
func (d *Directory) removeLocked(s *Session) {
	yielded := d.yielded[s.id]
	switch i := slices.Index(yielded, s); {
	case i < 0:
		d.removeOwned(s)
	case len(yielded) == 1:
		delete(d.yielded, s.id)
	default:
		d.yielded[s.id] = slices.Delete(yielded, i, i+1)
	}
}

// removeOwned removes s from the tables of the sessions that this replica owns. The caller holds
// d.mu.
func (d *Directory) removeOwned(s *Session) {
	d.byID.CompareAndDelete(s.id, s)
	delete(d.byPrincipal[s.principal], s)
	if len(d.byPrincipal[s.principal]) == 0 {
		delete(d.byPrincipal, s.principal)
	}
	d.count--
}

// TooMany says why no session is opened. own means that the principal has reached its limit.
func TooMany(own bool) *switchboard.Error {
	if own {
		return switchboard.Refuse(switchboard.CodeOverloaded, "%d of your sessions are open, the limit for one principal; end one with DELETE, or try again once one has been idle for a minute", MaxSessionsEach)
	}
	return switchboard.Refuse(switchboard.CodeOverloaded, "the limit of open sessions is reached; try again later")
}
