package vault

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// A slot is what this process knows of one connection.
type slot struct {
	owner Owner
	name  string // of the row
	alike *slot  // another slot with the same hash

	known  atomic.Pointer[known] // nil: nothing that may be used
	used   atomic.Int64          // unix nanoseconds of the last use, to usedStep
	paused atomic.Int64          // unix nanoseconds before which no renewal begins by itself, because the last one here has failed

	io     chan struct{} // of capacity one: full during a read or a write of the row, which guards the fields up to ended
	memory memory
	bad    store.Version // of the row that did not open
	held   *held         // tokens that are not in the store yet
	ended  bool          // a known consent has ended, and Options.Ended was not called yet

	mu     sync.Mutex
	flight *flight // the renewal in this process
}

// A known is a connection as it may be used without a look at the store. It is immutable.
type known struct {
	token    Token
	due      time.Time // when to renew it; zero: unknown
	version  store.Version
	final    bool // it cannot be renewed
	rejected bool // the server has refused the token
}

// shouldRenew reports whether it is time to renew a token that is still good.
func (k *known) shouldRenew(now time.Time) bool {
	return !k.final && !k.due.IsZero() && !now.Before(k.due)
}

// A held is a set of tokens that came from the provider and could not be written yet.
type held struct {
	row   *connectionRow // as it will be written, except its count
	claim string
}

// usedStep is how often the last use of a slot is written, so that processors do not wait for each other.
const usedStep = int64(time.Minute)

func newSlot(o Owner) *slot { return &slot{owner: o, name: o.rowName(), io: make(chan struct{}, 1)} }

// claimName returns the name of the value that says that a renewal has the row now, or that there is a pause.
func (s *slot) claimName() string { return s.name + claimSuffix }

const claimSuffix = ".claim"

func (s *slot) touch(now time.Time) {
	if n := now.UnixNano(); n-s.used.Load() > usedStep {
		s.used.Store(n)
	}
}

// followed reports whether somebody has used the connection lately.
func (s *slot) followed(now time.Time) bool {
	return now.UnixNano()-s.used.Load() < int64(followedFor)
}

func (s *slot) lock(ctx context.Context) error {
	select {
	case s.io <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// accept keeps what a row says that was read or written just now. The error is ErrUnreadable if a newer row was seen before: somebody
// has put an old one back. The caller has locked the slot.
func (s *slot) accept(r *connectionRow, version store.Version) error {
	was := s.memory.consent
	if !s.memory.accept(r.consent, r.count) {
		return ErrUnreadable
	}
	s.ended = s.ended || was != 0 && was != r.consent
	if s.held != nil && (s.held.row.consent != r.consent || s.held.claim != r.Claim) {
		s.held = nil
	}
	if s.held != nil {
		r = s.held.row
	}
	s.show(r, version)
	return nil
}

// show makes the tokens of the row the known ones.
func (s *slot) show(r *connectionRow, version store.Version) {
	k := &known{token: r.token(), due: r.due(), version: version, final: r.connectAgain()}
	was := s.known.Load()
	if was != nil && was.token.Generation == k.token.Generation {
		k.rejected = was.rejected
	} else {
		s.paused.Store(0)
	}
	s.known.Store(k)
}

// reject records that the server has refused the token of the generation.
func (s *slot) reject(g Generation) {
	for {
		was := s.known.Load()
		if was == nil || was.token.Generation != g || was.rejected {
			return
		}
		k := *was
		k.rejected = true
		if s.known.CompareAndSwap(was, &k) {
			return
		}
	}
}

// gone records that there is no row. The caller has locked the slot.
func (s *slot) gone() {
	s.ended = s.ended || s.memory.consent != 0
	s.memory.end()
	s.held = nil
	s.known.Store(nil)
}

// unreadable records that the row does not open, and reports whether that is new. The caller has locked the slot.
func (s *slot) unreadable(version store.Version) (fresh bool) {
	s.ended = s.ended || s.known.Load() != nil
	s.held = nil
	s.known.Store(nil)
	fresh, s.bad = s.bad != version, version
	return fresh
}

// A memory knows which rows of one connection are older than one that this process has seen.
type memory struct {
	consent uint64 // 0: none
	count   uint64 // the highest
	dead    []uint64
}

// maxDead is how many ended consents of one connection are remembered.
const maxDead = 32

// accept reports whether the row is at least as new as all that were seen.
func (m *memory) accept(consent, count uint64) bool {
	if slices.Contains(m.dead, consent) {
		return false
	}
	if consent == m.consent {
		if count < m.count {
			return false
		}
		m.count = count
		return true
	}
	m.end()
	m.consent, m.count = consent, count
	return true
}

// end records that the consent has ended.
func (m *memory) end() {
	if m.consent == 0 {
		return
	}
	m.dead = append(m.dead, m.consent)
	if len(m.dead) > maxDead {
		m.dead = m.dead[1:]
	}
	m.consent, m.count = 0, 0
}

// slotParts is the number of maps that slots are spread over: a new slot makes a copy of one of them.
const slotParts = 64

// slotTable finds slots, without a lock. Slots stay: there are as many as owners.
type slotTable struct {
	seed   maphash.Seed
	parts  [slotParts]atomic.Pointer[map[uint64]*slot] // by the hash of the owner
	names  sync.Map                                    // of *slot by the name of the row
	adding sync.Mutex                                  // held while a part is replaced
}

// hash returns a hash of the owner. Connections of one person at servers of one name in several tenants have the same.
func (t *slotTable) hash(o Owner) uint64 {
	return maphash.String(t.seed, o.Person)*31 + maphash.String(t.seed, string(o.Server))
}

// find returns the slot of the owner, or nil.
func (t *slotTable) find(o Owner) *slot {
	hash := t.hash(o)
	if m := t.parts[hash%slotParts].Load(); m != nil {
		for s := (*m)[hash]; s != nil; s = s.alike {
			if s.owner == o {
				return s
			}
		}
	}
	return nil
}

// add returns the slot of the owner, and makes it if there is none.
func (t *slotTable) add(o Owner) *slot {
	if s := t.find(o); s != nil {
		return s
	}
	t.adding.Lock()
	defer t.adding.Unlock()
	if s := t.find(o); s != nil {
		return s
	}
	s, next := newSlot(o), map[uint64]*slot{}
	hash := t.hash(o)
	part := &t.parts[hash%slotParts]
	if was := part.Load(); was != nil {
		next = maps.Clone(*was)
	}
	s.alike = next[hash]
	next[hash] = s
	t.names.Store(s.name, s)
	part.Store(&next)
	return s
}

// named returns the slot of the row with the name, or nil.
func (t *slotTable) named(name string) *slot {
	s, _ := t.names.Load(name)
	found, _ := s.(*slot)
	return found
}
