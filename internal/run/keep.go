package run

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Store keeps runs for those who come after us, and beside us. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

// How runs are kept. A minted run and a base run of a principal stand in one group. What clients
// were shown stands by its digest, since many runs share it.
const (
	topicRuns  = "runs"
	groupRuns  = "runs/" // and the principal
	groupSeen  = "run-seen/"
	prefixRun  = "run/"
	prefixBase = "base/"

	seenLives = 2 * Idle // longer than any run that has just been kept refers to it
)

// maxSeenKnown bounds the texts that a process remembers to have written.
const maxSeenKnown = 10_000

// touchEvery is how old what is kept of a run may be that is in use.
const touchEvery = Idle / 6

// A record is what is kept of a run: all that does not follow from its principal and
// from what is configured and offered.
type record struct {
	Task     switchboard.TaskID     `json:"task,omitempty"`
	Declared *switchboard.Task      `json:"declared,omitempty"`
	Left     []switchboard.ServerID `json:"left,omitempty"`
	Surface  surface.State          `json:"surface"`
	Seen     []recordedSeen         `json:"seen,omitempty"`
	Forgot   bool                   `json:"forgot,omitempty"`  // see Run
	Dropped  switchboard.Digest     `json:"dropped,omitempty"` // likewise
}

// A recordedSeen names what a client was shown.
type recordedSeen struct {
	Client string             `json:"client,omitempty"`
	Seen   switchboard.Digest `json:"seen"`           // of a text that stands elsewhere
	Told   []string           `json:"told,omitempty"` // names of which it was being told when this was kept
}

// withoutTold returns the record as it is compared: what clients are being told is over soon.
func (rec record) withoutTold() record {
	rec.Seen = slices.Clone(rec.Seen)
	for i := range rec.Seen {
		rec.Seen[i].Told = nil
	}
	return rec
}

// kept is what of a run is in the store, as far as we know.
type kept struct {
	version store.Version // 0 means nothing
	text    string        // the record, without what clients were being told
	when    time.Time     // that we wrote it; zero for what another process has written
}

// keeper reads and writes what is kept of runs.
type keeper struct {
	store Store
	self  string // tells our notices from those of others

	mu   sync.Mutex
	seen map[switchboard.Digest]time.Time // when these texts were written last
}

func newKeeper(st Store) keeper {
	return keeper{store: st, self: rand.Text(), seen: map[switchboard.Digest]time.Time{}}
}

// key is where what is kept of r stands.
func (r *Run) key() store.Key {
	k := store.Key{Group: groupRuns + string(r.principal.Tenant) + "/" + r.principal.ID, Name: prefixBase + string(r.task)}
	if r.id != "" {
		k.Name = prefixRun + string(r.id)
	}
	return k
}

// needed says why something that needs the store was not done.
func needed(err error) error {
	return switchboard.Unavailable("what is needed for this cannot be kept or found just now, so nothing was done", err)
}

// errNothing is why a change keeps nothing: there is nothing to change.
var errNothing = errors.New("nothing")

// unsure says of a change that it was not heard to be kept. A store whose answer is lost may
// have kept it, and then it shows when the store is back.
func unsure(err error) error {
	refused := switchboard.Unavailable("whether this was kept cannot be told just now, so it may have been done; to ask for it once more does no harm", err)
	refused.Unsent = false
	return refused
}

// save keeps s as what r shows, and tells the others who hold r. The caller holds
// r.binding, or is alone with r. The error is store.ErrConflict where another process
// was first.
func (k *keeper) save(ctx context.Context, r *Run, s *shown) error {
	if err := k.writeSeen(ctx, r.seenWith(s)); err != nil {
		return err
	}
	first := r.kept.version == 0
	if err := k.put(ctx, r, recordOf(r, s)); err != nil {
		return err
	}
	r.saved()
	if first && r.id != "" {
		return nil
	}
	if notice, err := json.Marshal(notice{r.key(), k.self}); err == nil {
		_ = k.store.Publish(ctx, topicRuns, notice) // who misses it is told so by the store
	}
	return nil
}

// put writes what is kept of r.
func (k *keeper) put(ctx context.Context, r *Run, rec record) error {
	key, text := r.key(), textOf(rec)
	version, err := k.store.Apply(ctx, store.Change{Group: key.Group, Writes: []store.Write{
		{Name: key.Name, Was: r.kept.version, Data: []byte(text), TTL: Idle},
	}})
	if err == nil {
		r.kept = kept{version, textOf(rec.withoutTold()), time.Now()}
	}
	return err
}

// forget lets go of what is kept of r, unless another process has used it since. The
// caller holds r.binding.
func (k *keeper) forget(ctx context.Context, r *Run) error {
	key := r.key()
	_, err := k.store.Apply(ctx, store.Change{Group: key.Group, Writes: []store.Write{{Name: key.Name, Was: r.kept.version}}})
	return err
}

// touch keeps r for longer, where it is in use. Who calls it holds r.binding.
func (k *keeper) touch(ctx context.Context, r *Run) error {
	s := r.shown.Load()
	if k.changed(r, s) { // it could not be kept when it was
		return k.save(ctx, r, s)
	}
	if r.kept.version == 0 || time.Since(r.kept.when) < touchEvery || r.idleSince(r.kept.when) {
		return nil
	}
	if err := k.writeSeen(ctx, r.seenWith(s)); err != nil {
		return err
	}
	return k.put(ctx, r, recordOf(r, s).withoutTold())
}

// Restored counts the runs that went on with what another process had kept of them.
func (g *Registry) Restored() int64 { return g.restored.Load() }

// changed reports whether s is not what is kept of r. Of a base run nothing is, as
// long as it shows what it would show to whoever comes first, and no client was shown it.
func (k *keeper) changed(r *Run, s *shown) bool {
	st := s.named.State()
	if r.kept.version == 0 && r.id == "" && len(r.clients()) == 0 && s.declared == nil && len(s.left)+len(st.Expanded)+len(st.Withheld) == 0 {
		return false
	}
	return textOf(recordOf(r, s).withoutTold()) != r.kept.text
}

// load returns what is kept under the key; none where nothing is. If that does not open, the error is store.ErrUnopened,
// and kept has the version alone.
func (k *keeper) load(ctx context.Context, key store.Key) (rec record, was kept, err error) {
	v, err := k.store.Value(ctx, key)
	if errors.Is(err, store.ErrUnopened) {
		return rec, kept{version: v.Version}, err
	}
	if err != nil || v.Version == 0 {
		return rec, was, err
	}
	if err := json.Unmarshal(v.Data, &rec); err != nil {
		return rec, was, fmt.Errorf("%s/%s: %w", key.Group, key.Name, err)
	}
	return rec, kept{v.Version, textOf(rec.withoutTold()), time.Time{}}, nil
}

// readSeen returns what the clients of the record were shown. Texts that are among those that are
// known already are not read again. If a text is gone, or is not the text of its digest, nobody knows what its client was shown.
func (k *keeper) readSeen(ctx context.Context, rec *record, known clients) (clients, error) {
	all := make(clients, 0, len(rec.Seen))
	for _, one := range rec.Seen {
		if seen := known.of(one.Client); seen != nil && seen.Digest() == one.Seen {
			all = append(all, client{id: one.Client, seen: seen})
			continue
		}
		v, err := k.store.Value(ctx, seenKey(one.Seen))
		if err != nil && !errors.Is(err, store.ErrUnopened) {
			return nil, err
		}
		seen := surface.Lost
		if err == nil && v.Version != 0 {
			if text, err := surface.ReadSeen(one.Seen, v.Data); err == nil {
				seen = text
			}
		}
		all = append(all, client{id: one.Client, seen: seen})
	}
	return all, nil
}

// hearForgotten notes which clients another process has forgotten.
func (r *Run) hearForgotten(rec *record) {
	if rec.Forgot {
		r.forgot.Store(true)
	}
	if rec.Dropped != "" {
		r.drop(rec.Dropped)
	}
}

// hear notes what another process tells clients of r, and which it has forgotten.
func (r *Run) hear(rec *record) {
	r.hearForgotten(rec)
	for _, one := range rec.Seen {
		if len(one.Told) > 0 {
			r.tellAll(one.Client, one.Told, time.Now().Add(toldFor))
		}
	}
}

// before is what was shown, as a process that has not shown it knows it.
func (rec *record) before() Before {
	return Before{Surface: surface.Restore(rec.Surface), Left: rec.Left, Declared: rec.Declared}
}

func seenKey(d switchboard.Digest) store.Key {
	return store.Key{Group: groupSeen + string(d), Name: "seen"}
}

// writeSeen keeps what clients were shown, unless that was done not long ago.
func (k *keeper) writeSeen(ctx context.Context, all clients) error {
	for _, c := range all {
		digest := c.seen.Digest()
		k.mu.Lock()
		when := k.seen[digest]
		k.mu.Unlock()
		if time.Since(when) < seenLives-Idle-touchEvery {
			continue
		}
		key := seenKey(digest)
		if _, err := k.store.Apply(ctx, store.Change{Group: key.Group, Writes: []store.Write{
			{Name: key.Name, Was: store.Any, Data: c.seen.Text(), TTL: seenLives},
		}}); err != nil {
			return err
		}
		k.mu.Lock()
		if len(k.seen) > maxSeenKnown {
			maps.DeleteFunc(k.seen, func(_ switchboard.Digest, when time.Time) bool { return time.Since(when) > seenLives/2 })
		}
		k.seen[digest] = time.Now()
		k.mu.Unlock()
	}
	return nil
}

// forgetSeen has what clients were shown written again, when it is kept next.
func (k *keeper) forgetSeen(all clients) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range all {
		delete(k.seen, c.seen.Digest())
	}
}

func recordOf(r *Run, s *shown) record {
	rec := record{Task: r.task, Declared: s.declared, Left: s.left, Surface: s.named.State(), Forgot: r.forgot.Load()}
	if d := r.dropped.Load(); d != nil {
		rec.Dropped = *d
	}
	for _, c := range r.seenWith(s) {
		rec.Seen = append(rec.Seen, recordedSeen{c.id, c.seen.Digest(), r.toldNames(c.id)})
	}
	return rec
}

func textOf(rec record) string {
	text, err := json.Marshal(rec)
	if err != nil {
		panic("record of a run: " + err.Error()) // it is made of what was parsed
	}
	return string(text)
}

// A notice says that what is kept of a run has changed.
type notice struct {
	Key  store.Key `json:"key"`
	From string    `json:"from"`
}

// Follow has the runs show what other processes have made of them, until ctx is done.
func (g *Registry) Follow(ctx context.Context) {
	changed := map[store.Key]bool{}
	var mu sync.Mutex
	all := true // nobody has listened before
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	stop := g.keep.store.Subscribe(topicRuns, func(data []byte) {
		var n notice
		mu.Lock()
		defer mu.Unlock()
		switch err := json.Unmarshal(data, &n); {
		case data == nil || err != nil:
			all = true
		case n.From == g.keep.self:
			return
		default:
			changed[n.Key] = true
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		mu.Lock()
		keys, every := changed, all
		changed, all = map[store.Key]bool{}, false
		mu.Unlock()
		for _, r := range g.All() {
			if every || keys[r.key()] {
				_ = r.hold(ctx, func() error { return g.sync(ctx, r) }) // the next notice or touch will
			}
		}
	}
}

// CatchUp has r show what another process has made of it by now, where that can be found
// out: a client may be sent to this one before its notice is here. Calls that come together ask the store once, and none waits
// long for a store that is slow.
func (g *Registry) CatchUp(ctx context.Context, r *Run) {
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	came := time.Now().UnixNano()
	_ = r.hold(ctx, func() error {
		if r.synced > came {
			return nil
		}
		began := time.Now().UnixNano()
		err := g.sync(ctx, r)
		if err == nil {
			r.synced = began
		}
		return err
	})
}

// sync shows what another process has made of r, if one has. The caller holds
// r.binding.
func (g *Registry) sync(ctx context.Context, r *Run) error {
	rec, was, err := g.keep.load(ctx, r.key())
	if errors.Is(err, store.ErrUnopened) { // what r shows replaces it; what another process has shown, nobody knows
		r.forgot.Store(true)
		g.keep.forgetSeen(r.seenWith(r.shown.Load()))
		r.kept = was
		return nil
	}
	if err != nil {
		return err
	}
	if was.version == r.kept.version {
		r.unread.Store(false)
		return nil
	}
	now := r.shown.Load()
	if was.version == 0 { // it has expired, as it may, or was lost; we still know it
		g.keep.forgetSeen(r.seenWith(now))
		r.kept = kept{}
		r.unread.Store(false)
		return nil
	}
	seen, err := g.keep.readSeen(ctx, &rec, r.clients())
	if err != nil {
		return err
	}
	mine := recordOf(r, now)
	r.setClients(r.clients().merged(seen))
	r.hear(&rec)
	r.unread.Store(false)
	mine.Seen, rec.Seen, mine.Forgot, rec.Forgot, mine.Dropped, rec.Dropped = nil, nil, false, false, "", ""
	if textOf(mine) == textOf(rec) { // other clients were shown something, and nothing else has changed
		r.kept = was
		return nil
	}
	s := g.next(ctx, r, rec.before())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.kept = was
	r.show(s)
	return nil
}

// hold has f called while nothing else changes r.
func (r *Run) hold(ctx context.Context, f func() error) error {
	select {
	case r.binding <- struct{}{}:
		defer func() { <-r.binding }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// update shows what change makes of what r shows, and keeps it: after what another
// process has made of r, where one was quicker. Where it returns an error, r shows what it
// did; but with SB-ROUT-004 that may change once the store is back. The caller holds r.binding.
func (g *Registry) update(ctx context.Context, r *Run, change func(was shown) (shown, error)) error {
	for {
		s, err := change(*r.shown.Load())
		if err != nil {
			return err
		}
		switch err := g.keep.save(ctx, r, &s); {
		case err == nil:
			r.show(s)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, store.ErrConflict):
			return unsure(err)
		}
		if err := g.sync(ctx, r); err != nil {
			return needed(err)
		}
	}
}
