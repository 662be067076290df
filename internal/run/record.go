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
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Store saves runs for later processes and for other replicas. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

// Where runs are stored. The minted runs and the base runs of a principal are in one group. What
// were shown stands by its digest, since many runs share it.
const (
	topicRuns  = "runs"
	groupRuns  = "runs/" // followed by tenant and principal
	groupSeen  = "run-seen/"
	prefixRun  = "run/"
	prefixBase = "base/"

	seenTTL = 2 * Idle // longer than a record that was just written can refer to it
)

// maxSavedTexts limits the digests in recordStore.savedTexts.
const maxSavedTexts = 10_000

// renewInterval is how old the record of a run in use becomes before it is written again.
const renewInterval = Idle / 6

// A runRecord is the stored form of a run: everything that does not follow from its principal, the configuration and
// the offers.
type runRecord struct {
	Task     switchboard.TaskID     `json:"task,omitempty"`
	Declared *switchboard.Task      `json:"declared,omitempty"`
	Left     []switchboard.ServerID `json:"left,omitempty"`
	Surface  surface.State          `json:"surface"`
	Seen     []seenRecord           `json:"seen,omitempty"`
	Forgot   bool                   `json:"forgot,omitempty"`  // see Run
	Dropped  switchboard.Digest     `json:"dropped,omitempty"` // likewise
}

// A seenRecord refers to the text of a client's Seen.
type seenRecord struct {
	Client string             `json:"client,omitempty"`
	Seen   switchboard.Digest `json:"seen"`           // the text is stored in groupSeen
	Told   []string           `json:"told,omitempty"` // names that were being announced to it when this was written
}

// withoutTold returns the record without announced names. Records are compared in this form, because announcements
// end soon.
func (rec runRecord) withoutTold() runRecord {
	rec.Seen = slices.Clone(rec.Seen)
	for i := range rec.Seen {
		rec.Seen[i].Told = nil
	}
	return rec
}

// A savedRecord is what the store has of a run, as far as this process knows.
type savedRecord struct {
	version   store.Version // 0 means nothing
	text      string        // the encoded record, without announced names
	writtenAt time.Time     // when this process wrote it; zero if another process did
}

// A recordStore reads and writes the records of runs.
type recordStore struct {
	store     Store
	processID string // distinguishes our notices from those of other processes

	mu         sync.Mutex
	savedTexts map[switchboard.Digest]time.Time // when each text was last written
}

func newRecordStore(st Store) recordStore {
	return recordStore{store: st, processID: rand.Text(), savedTexts: map[switchboard.Digest]time.Time{}}
}

// storeKey returns the store key of r's record.
func (r *Run) storeKey() store.Key {
	k := store.Key{Group: groupRuns + string(r.principal.Tenant) + "/" + r.principal.ID, Name: prefixBase + string(r.task)}
	if r.id != "" {
		k.Name = prefixRun + string(r.id)
	}
	return k
}

// storeNeeded returns the refusal of a request that needs the store while the store is unavailable.
func storeNeeded(err error) error {
	return switchboard.Unavailable("the store cannot be read or written now, so nothing was done", err)
}

// errNoChange says that a change has nothing to save.
var errNoChange = errors.New("nothing")

// maybeSaved returns the error of a change that may have been saved. If the store's answer is lost, the change may
// appear when the store is back.
func maybeSaved(err error) error {
	refused := switchboard.Unavailable("the store has not confirmed this, so it may have been done; a repeated request does no harm", err)
	refused.Unsent = false
	return refused
}

// saveView saves s as the view of r, and publishes a notice to the other processes. The caller holds r's lock, or r
// is not shared yet. If another process was first, the error is store.ErrConflict.
func (k *recordStore) saveView(ctx context.Context, r *Run, s *view) error {
	if err := k.saveSeenTexts(ctx, r.clientsToSave(s)); err != nil {
		return err
	}
	first := r.binding.saved.version == 0
	if err := k.writeRecord(ctx, r, newRecord(r, s)); err != nil {
		return err
	}
	r.history.markSaved(r.view.Load())
	if first && r.id != "" {
		return nil
	}
	if notice, err := json.Marshal(notice{r.storeKey(), k.processID}); err == nil {
		_ = k.store.Publish(ctx, topicRuns, notice) // the store tells a subscriber that it has missed notices
	}
	return nil
}

// writeRecord writes the record of r by compare-and-set.
func (k *recordStore) writeRecord(ctx context.Context, r *Run, rec runRecord) error {
	key, text := r.storeKey(), encodeRecord(rec)
	version, err := k.store.Apply(ctx, store.Change{Group: key.Group, Writes: []store.Write{
		{Name: key.Name, Was: r.binding.saved.version, Data: []byte(text), TTL: Idle},
	}})
	if err == nil {
		r.binding.saved = savedRecord{version, encodeRecord(rec.withoutTold()), time.Now()}
	}
	return err
}

// deleteRecord deletes both values of r: its record, and what it has touched. If another process has written one of them since, it deletes none.
// The caller holds r's lock.
func (k *recordStore) deleteRecord(ctx context.Context, r *Run) error {
	key := r.storeKey()
	writes := []store.Write{{Name: key.Name, Was: r.binding.saved.version}}
	if was := store.Version(r.touched.version.Load()); was != 0 {
		writes = append(writes, store.Write{Name: touchKey(r).Name, Was: was})
	}
	_, err := k.store.Apply(ctx, store.Change{Group: key.Group, Writes: writes})
	return err
}

// renewRecord extends the expiry of r's record if r is in use. The caller holds r's lock.
func (k *recordStore) renewRecord(ctx context.Context, r *Run) error {
	s := r.view.Load()
	if k.differsFromSaved(r, s) { // an earlier save has failed
		return k.saveView(ctx, r, s)
	}
	if r.binding.saved.version == 0 || time.Since(r.binding.saved.writtenAt) < renewInterval || r.idleSince(r.binding.saved.writtenAt) {
		return nil
	}
	if err := k.saveSeenTexts(ctx, r.clientsToSave(s)); err != nil {
		return err
	}
	return k.writeRecord(ctx, r, newRecord(r, s).withoutTold())
}

// Restored counts the runs that were restored from another process's record.
func (g *Runs) Restored() int64 { return g.restoredCount.Load() }

// differsFromSaved reports whether s differs from the stored record of r. A base run needs no record while it shows
// the same as a new one and no client has seen it.
func (k *recordStore) differsFromSaved(r *Run, s *view) bool {
	st := s.lastBound.State()
	if r.binding.saved.version == 0 && r.id == "" && len(r.history.all()) == 0 && s.declared == nil && len(s.abandoned)+len(st.Expanded)+len(st.Withheld) == 0 {
		return false
	}
	return encodeRecord(newRecord(r, s).withoutTold()) != r.binding.saved.text
}

// loadRecord returns the record under the key; the zero values if there is none. If its seal does not open, the error
// is store.ErrUnopened, and was has the version alone.
func (k *recordStore) loadRecord(ctx context.Context, key store.Key) (rec runRecord, was savedRecord, err error) {
	v, err := k.store.Value(ctx, key)
	if errors.Is(err, store.ErrUnopened) {
		return rec, savedRecord{version: v.Version}, err
	}
	if err != nil || v.Version == 0 {
		return rec, was, err
	}
	if err := json.Unmarshal(v.Data, &rec); err != nil {
		return rec, was, fmt.Errorf("%s/%s: %w", key.Group, key.Name, err)
	}
	return rec, savedRecord{v.Version, encodeRecord(rec.withoutTold()), time.Time{}}, nil
}

// loadSeenClients returns the clients of the record with everything that they were shown. It does not read texts
// again that known has already. If a text is missing or does not match its digest, its client counts as lost.
func (k *recordStore) loadSeenClients(ctx context.Context, rec *runRecord, known shownClients) (shownClients, error) {
	all := make(shownClients, 0, len(rec.Seen))
	for _, one := range rec.Seen {
		if seen := known.seenBy(one.Client); seen != nil && seen.Digest() == one.Seen {
			all = append(all, shownClient{id: one.Client, seen: seen})
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
		all = append(all, shownClient{id: one.Client, seen: seen})
	}
	return all, nil
}

// applyRecord applies what another process announces to clients of r, and which clients it has evicted.
func (r *Run) applyRecord(rec *runRecord) {
	r.history.applyEvicted(rec)
	for _, one := range rec.Seen {
		if len(one.Told) > 0 {
			r.announced.set(one.Client, one.Told, time.Now().Add(announceGrace))
		}
	}
}

// toBefore returns what the run showed, for a process that has not shown it.
func (rec *runRecord) toBefore() Before {
	return Before{Surface: surface.Restore(rec.Surface), Abandoned: rec.Left, Declared: rec.Declared}
}

func seenKey(d switchboard.Digest) store.Key {
	return store.Key{Group: groupSeen + string(d), Name: "seen"}
}

// saveSeenTexts writes what clients were shown, except texts that were written recently.
func (k *recordStore) saveSeenTexts(ctx context.Context, all shownClients) error {
	for _, c := range all {
		digest := c.seen.Digest()
		k.mu.Lock()
		when := k.savedTexts[digest]
		k.mu.Unlock()
		if time.Since(when) < seenTTL-Idle-renewInterval {
			continue
		}
		key := seenKey(digest)
		if _, err := k.store.Apply(ctx, store.Change{Group: key.Group, Writes: []store.Write{
			{Name: key.Name, Was: store.Any, Data: c.seen.Text(), TTL: seenTTL},
		}}); err != nil {
			return err
		}
		k.mu.Lock()
		if len(k.savedTexts) > maxSavedTexts {
			maps.DeleteFunc(k.savedTexts, func(_ switchboard.Digest, when time.Time) bool { return time.Since(when) > seenTTL/2 })
		}
		k.savedTexts[digest] = time.Now()
		k.mu.Unlock()
	}
	return nil
}

// forgetSavedTexts makes the next save write these texts again.
func (k *recordStore) forgetSavedTexts(all shownClients) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range all {
		delete(k.savedTexts, c.seen.Digest())
	}
}

func newRecord(r *Run, s *view) runRecord {
	rec := runRecord{Task: r.task, Declared: s.declared, Left: s.abandoned, Surface: s.lastBound.State(), Forgot: r.history.evicted.Load()}
	if d := r.history.evictedList.Load(); d != nil {
		rec.Dropped = *d
	}
	for _, c := range r.clientsToSave(s) {
		rec.Seen = append(rec.Seen, seenRecord{c.id, c.seen.Digest(), r.announced.names(c.id)})
	}
	return rec
}

func encodeRecord(rec runRecord) string {
	text, err := json.Marshal(rec)
	if err != nil {
		panic("record of a run: " + err.Error()) // impossible: all parts were parsed from JSON
	}
	return string(text)
}

// A notice says that the record of a run has changed.
type notice struct {
	Key  store.Key `json:"key"`
	From string    `json:"from"`
}

func decodeNotice(data []byte) (key store.Key, from string, err error) {
	var n notice
	err = json.Unmarshal(data, &n)
	return n.Key, n.From, err
}

// FollowStore applies the changes that other processes make to runs, until ctx is done.
func (g *Runs) FollowStore(ctx context.Context) {
	f := feed.Open(g.records.store, feed.Options[store.Key]{Topic: topicRuns, Decode: decodeNotice, Self: g.records.processID})
	defer f.Close()
	var changed map[store.Key]bool
	all := true // notices may have been missed before the subscription
	for {
		for _, r := range g.All() {
			if all || changed[r.storeKey()] {
				_ = r.withBindLock(ctx, func() error { return g.syncWithStore(ctx, r) }) // if it fails, the next notice or Sweep tries again
			}
		}
		var err error
		if changed, all, err = f.Next(ctx); err != nil {
			return
		}
	}
}

// CatchUp applies what another process has changed in r by now, if the store can be read: a client may reach this
// process before the notice does. Concurrent calls share one read of the store. A slow store delays a call by
// saveTimeout at most.
func (g *Runs) CatchUp(ctx context.Context, r *Run) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	came := time.Now().UnixNano()
	_ = r.withBindLock(ctx, func() error {
		if r.binding.lastSync > came {
			return nil
		}
		began := time.Now().UnixNano()
		err := g.syncWithStore(ctx, r)
		if err == nil {
			r.binding.lastSync = began
		}
		return err
	})
}

// syncWithStore applies what another process has changed in r, if anything. The caller holds r's lock.
func (g *Runs) syncWithStore(ctx context.Context, r *Run) error {
	rec, was, err := g.records.loadRecord(ctx, r.storeKey())
	if errors.Is(err, store.ErrUnopened) { // r's next save replaces it; what other processes have shown is lost
		r.history.evicted.Store(true)
		g.records.forgetSavedTexts(r.clientsToSave(r.view.Load()))
		r.binding.saved = was
		return nil
	}
	if err != nil {
		return err
	}
	if was.version == r.binding.saved.version {
		r.history.unread.Store(false)
		return nil
	}
	now := r.view.Load()
	if was.version == 0 { // the record has expired or was lost; this process still has the run
		g.records.forgetSavedTexts(r.clientsToSave(now))
		r.binding.saved = savedRecord{}
		r.history.unread.Store(false)
		return nil
	}
	seen, err := g.records.loadSeenClients(ctx, &rec, r.history.all())
	if err != nil {
		return err
	}
	mine := newRecord(r, now)
	r.history.set(r.history.all().mergeUnsaved(seen), now)
	r.applyRecord(&rec)
	r.history.unread.Store(false)
	mine.Seen, rec.Seen, mine.Forgot, rec.Forgot, mine.Dropped, rec.Dropped = nil, nil, false, false, "", ""
	if encodeRecord(mine) == encodeRecord(rec) { // only what clients were shown has changed
		r.binding.saved = was
		return nil
	}
	before := rec.toBefore()
	before.Added = g.additions.to(ctx, r.principal, before.taskOr(r.task), r.id)
	s := g.decideView(ctx, r, before)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.binding.saved = was
	r.showView(s)
	return nil
}

// withBindLock calls f while no other goroutine changes r.
func (r *Run) withBindLock(ctx context.Context, f func() error) error {
	select {
	case r.binding.lock <- struct{}{}:
		defer func() { <-r.binding.lock }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// updateAndSave shows and saves the result of change. If another process was first, it applies that process's change
// and calls change again. After an error r shows what it showed before; after SB-ROUT-004 that may change once the
// store is back. The caller holds r's lock.
func (g *Runs) updateAndSave(ctx context.Context, r *Run, change func(was view) (view, error)) error {
	for {
		s, err := change(*r.view.Load())
		if err != nil {
			return err
		}
		switch err := g.records.saveView(ctx, r, &s); {
		case err == nil:
			r.showView(s)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, store.ErrConflict):
			return maybeSaved(err)
		}
		if err := g.syncWithStore(ctx, r); err != nil {
			return storeNeeded(err)
		}
	}
}
