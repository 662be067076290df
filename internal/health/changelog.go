package health

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of a ChangeLog.
const (
	KeptChanges  = 500 // of one server, of all processes
	KeptFor      = 14 * 24 * time.Hour
	maxKeptBytes = 256 << 10 // of one server
	maxWatches   = 256       // processes of that time, unless more watch now; see addWatch
	maxCauseText = 500       // bytes
	maxBefore    = 32        // processes that a server's state before its first change is kept of

	// All servers have equal shares of these, so one that changes all the time takes nothing from the others. The bytes are about those of the JSON.
	maxAllChanges = 25_000
	maxAllBytes   = 8 << 20

	logInterval    = time.Minute
	maxJitter      = logInterval / 5 // that a save comes earlier, so that replicas do not all write at one instant
	watchInterval  = 5 * time.Minute // how often a process writes that it still watches
	logTimeout     = 20 * time.Second
	lastTimeout    = 5 * time.Second // of the last save
	oneTimeout     = time.Second     // of the save of one server
	logReadTimeout = 500 * time.Millisecond
	logConflicts   = 20                    // of one write, with other processes that write at the same time
	maxPause       = 50 * time.Millisecond // after a conflict
	maxFailed      = 3                     // servers whose save fails, before the rest waits for the next save
)

// The groups of the store.
const (
	groupChanges = "server-changes" // by server
	groupWatches = "server-watches" // of all processes, in the value allWatches
	allWatches   = "all"
)

// A PastChange is a change of the state of a server or of one of its tools, as one process has seen it.
type PastChange struct {
	At      time.Time `json:"at"`
	Process string    `json:"process"`        // which process has seen it: a name of its own for each start
	Tool    string    `json:"tool,omitempty"` // "" for the server itself
	From    State     `json:"from"`
	To      State     `json:"to"`
	Cause   *Cause    `json:"cause,omitempty"` // nil for a change to healthy
}

func (c *PastChange) compare(d *PastChange) int {
	return cmp.Or(c.At.Compare(d.At), strings.Compare(c.Process, d.Process), strings.Compare(c.Tool, d.Tool), strings.Compare(string(c.To), string(d.To)))
}

// A ServerPast is what is known about the states of one server in the last 14 days.
type ServerPast struct {
	Since     time.Time    // what was before is not known
	Changes   []PastChange // the oldest first
	Band      []BandPart   // the oldest first
	StoreAway bool         // the store cannot be read now: only the changes that this process has seen are there
}

// A BandPart is a time in which a server had one state. If several processes watched the server, the part has the worst of their states.
type BandPart struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	State State     `json:"state"`
}

// A watch is the time that a process has watched servers.
type watch struct {
	Process string    `json:"process"`
	From    time.Time `json:"from"`
	Until   time.Time `json:"until"`
	Ended   bool      `json:"ended,omitempty"` // it has stopped; else it may have watched for longer than it has written
}

// serverChanges are the changes of one server, as the store keeps them.
type serverChanges struct {
	Since   time.Time    `json:"since,omitzero"`  // older changes are forgotten; zero: none is
	Before  []PastChange `json:"before,omitzero"` // of the forgotten ones, the last of each process, without its cause: the state that Changes begin with
	Changes []PastChange `json:"changes"`
}

// A changeShare is what a ChangeLog keeps of one server.
type changeShare struct{ changes, bytes int }

// shareOf returns the share of each of so many servers.
func shareOf(servers int) changeShare {
	servers = max(servers, 1)
	return changeShare{max(1, min(KeptChanges, maxAllChanges/servers)), min(maxKeptBytes, maxAllBytes/servers)}
}

// size returns about how many bytes of JSON the change has.
func (c *PastChange) size() int {
	n := 120 + len(c.Tool)
	if c.Cause != nil {
		n += 60 + len(c.Cause.Stage) + len(c.Cause.Message)
	}
	return n
}

// A ChangeStore keeps the changes for all processes. See store.Store.
type ChangeStore interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Status() store.Status
}

// A ChangeLog keeps the changes of the states of servers: at most KeptChanges of each server, for KeptFor, and less of each if there are many servers. Each process adds
// the changes that it saw to the store, about once a minute and when it stops. It also writes until when it watched, because no state is known while no process runs.
// Use NewChangeLog. It is safe for concurrent use.
type ChangeLog struct {
	store ChangeStore // nil: nothing outlives the process
	log   *slog.Logger
	me    watch

	mu      sync.Mutex
	seen    map[switchboard.ServerID]*serverChanges // by this process
	unsaved map[switchboard.ServerID]bool

	saving  sync.Mutex
	watched time.Time            // when me was written last; guarded by saving
	tried   switchboard.ServerID // the server that was saved last, or could not be; guarded by saving
	failed  bool                 // the last save failed; guarded by saving
}

// NewChangeLog returns the ChangeLog of this process, which watches from now on. A store in memory is left out, because it would keep
// everything a second time.
func NewChangeLog(s ChangeStore, log *slog.Logger) *ChangeLog {
	if s != nil && s.Status().Kind == "memory" {
		s = nil
	}
	return &ChangeLog{store: s, log: log, me: watch{Process: strings.ToLower(rand.Text()[:8]), From: time.Now().Round(0).UTC()}, seen: map[switchboard.ServerID]*serverChanges{}, unsaved: map[switchboard.ServerID]bool{}}
}

// Note adds a transition that has just happened. It does not block.
func (l *ChangeLog) Note(t Transition) {
	c := PastChange{At: time.Now().Round(0).UTC(), Process: l.me.Process, Tool: t.Tool, From: t.From, To: t.To}
	if t.Cause != nil {
		cause := *t.Cause
		cause.Message = strings.ToValidUTF8(cause.Message[:min(len(cause.Message), maxCauseText)], "")
		c.Cause = &cause
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[t.Server] == nil {
		l.seen[t.Server] = &serverChanges{}
		for _, s := range l.seen { // the shares are smaller now
			s.add(c.At, shareOf(len(l.seen)))
		}
	}
	l.seen[t.Server].add(c.At, shareOf(len(l.seen)), c)
	l.unsaved[t.Server] = true
}

// add adds changes that are not there yet, and removes what is too old or too much.
func (s *serverChanges) add(now time.Time, most changeShare, all ...PastChange) {
	s.Changes = append(s.Changes, all...)
	slices.SortFunc(s.Changes, func(c, d PastChange) int { return c.compare(&d) })
	s.Changes = slices.CompactFunc(s.Changes, func(c, d PastChange) bool { return c.compare(&d) == 0 })
	gone, bytes := len(s.Changes), 0
	for gone > 0 && len(s.Changes)-gone < most.changes {
		c := &s.Changes[gone-1]
		if bytes += c.size(); bytes > most.bytes || c.At.Before(now.Add(-KeptFor)) {
			break
		}
		gone--
	}
	if gone > 0 {
		s.forgetBefore(s.Changes[gone-1].At.Add(1))
		s.addBefore(s.Changes[:gone]...)
		s.Changes = slices.Delete(s.Changes, 0, gone)
	}
}

// addBefore keeps the last change of the server itself of each process, of the newest maxBefore processes.
func (s *serverChanges) addBefore(all ...PastChange) {
	last := map[string]PastChange{}
	for _, c := range slices.Concat(s.Before, all) {
		if was, ok := last[c.Process]; c.Tool == "" && (!ok || c.At.After(was.At)) {
			c.Cause = nil
			last[c.Process] = c
		}
	}
	s.Before = slices.SortedFunc(maps.Values(last), func(c, d PastChange) int { return c.compare(&d) })
	s.Before = s.Before[max(0, len(s.Before)-maxBefore):]
}

// addAll adds what another process, or this one before, knows.
func (s *serverChanges) addAll(now time.Time, most changeShare, other *serverChanges) {
	s.addBefore(other.Before...)
	s.add(now, most, other.Changes...)
	s.forgetBefore(other.Since)
}

// forgetBefore notes that changes before an instant are not known.
func (s *serverChanges) forgetBefore(since time.Time) {
	if since.After(s.Since) {
		s.Since = since
	}
}

// Run saves until ctx is done.
func (l *ChangeLog) Run(ctx context.Context) {
	if l.store == nil {
		return
	}
	l.save(ctx, false) // others see that this process watches
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(logInterval - mathrand.N(maxJitter)):
			l.save(ctx, false)
		}
	}
}

// Close saves the last changes, and until when this process has watched. Call it after Run has returned.
func (l *ChangeLog) Close(ctx context.Context) {
	if l.store != nil {
		l.save(ctx, true)
	}
}

// save writes what the store does not have yet. What cannot be written stays in memory, for the next save.
func (l *ChangeLog) save(ctx context.Context, last bool) {
	l.saving.Lock()
	defer l.saving.Unlock()
	timeout := logTimeout
	if last {
		timeout = lastTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	now := time.Now().Round(0).UTC()
	var failed []error
	if last || now.Sub(l.watched) >= watchInterval {
		err := l.update(ctx, store.Key{Group: groupWatches, Name: allWatches}, func(data []byte) any {
			return addWatch(decoded[[]watch](data), l.meUntil(now, last), now)
		})
		if err == nil {
			l.watched = now
		} else {
			failed = append(failed, err)
		}
	}
	for _, id := range l.nextUnsaved() {
		if len(failed) >= maxFailed || ctx.Err() != nil {
			failed = append(failed, ctx.Err())
			break
		}
		l.tried = id
		if err := l.saveServer(ctx, id, now); err != nil {
			failed = append(failed, err)
		}
	}
	err := errors.Join(failed...)
	switch {
	case err == nil && l.failed:
		l.log.Info("the changes of the states of servers are written again")
	case err != nil && !l.failed:
		l.log.Warn("the changes of the states of servers cannot be written; they stay in memory until they can", "err", err)
	}
	l.failed = err != nil
}

// nextUnsaved returns the servers to save, beginning behind the last one that was tried. So a server that fails each time does not keep the others waiting.
func (l *ChangeLog) nextUnsaved() []switchboard.ServerID {
	l.mu.Lock()
	servers := slices.Sorted(maps.Keys(l.unsaved))
	l.mu.Unlock()
	i, found := slices.BinarySearch(servers, l.tried)
	if found {
		i++
	}
	return slices.Concat(servers[i:], servers[:i])
}

func (l *ChangeLog) meUntil(now time.Time, last bool) watch {
	me := l.me
	me.Until, me.Ended = now, last
	return me
}

// saveServer adds what this process has seen of a server to the value of the store. To add it twice changes nothing.
func (l *ChangeLog) saveServer(ctx context.Context, id switchboard.ServerID, now time.Time) error {
	l.mu.Lock()
	mine, most := *l.seen[id], shareOf(len(l.seen))
	mine.Changes, mine.Before = slices.Clone(mine.Changes), slices.Clone(mine.Before)
	delete(l.unsaved, id)
	l.mu.Unlock()
	err := l.update(ctx, store.Key{Group: groupChanges, Name: string(id)}, func(data []byte) any {
		s := decoded[serverChanges](data)
		s.addAll(now, most, &mine)
		return s
	})
	if err != nil {
		l.mu.Lock()
		l.unsaved[id] = true
		l.mu.Unlock()
	}
	return err
}

// decoded returns a value of the store, which is JSON. One that does not decode is the zero value.
func decoded[T any](data []byte) (value T) {
	if json.Unmarshal(data, &value) != nil {
		var none T
		return none
	}
	return value
}

// update changes a value of the store by compare-and-set, for oneTimeout at most.
func (l *ChangeLog) update(ctx context.Context, k store.Key, with func(data []byte) any) error {
	ctx, cancel := context.WithTimeout(ctx, oneTimeout)
	defer cancel()
	for range logConflicts {
		v, err := l.store.Value(ctx, k)
		if err != nil && !errors.Is(err, store.ErrUnopened) {
			return err
		}
		data, err := json.Marshal(with(v.Data))
		if err != nil {
			return err
		}
		if bytes.Equal(data, v.Data) {
			return nil
		}
		_, err = l.store.Apply(ctx, store.Change{Group: k.Group, Writes: []store.Write{{Name: k.Name, Was: v.Version, Data: data, TTL: KeptFor}}})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		select {
		case <-time.After(mathrand.N(maxPause)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return store.ErrConflict
}

// addWatch adds or replaces a watch, and removes what is too old or too much: the shortest watches first, so that a process that starts again and again does not push
// the others out. It keeps all processes that may still watch, such as new replicas.
func addWatch(all []watch, w watch, now time.Time) []watch {
	all = slices.DeleteFunc(all, func(o watch) bool { return o.Process == w.Process || o.Until.Before(now.Add(-KeptFor)) })
	slices.SortFunc(all, func(a, b watch) int {
		return cmp.Or(cmp.Compare(b.Until.Sub(b.From), a.Until.Sub(a.From)), b.Until.Compare(a.Until))
	})
	kept := all[:0]
	for i, o := range all {
		if i < maxWatches-1 || o.mayGoOn(now) {
			kept = append(kept, o)
		}
	}
	all = append(kept, w)
	slices.SortFunc(all, func(a, b watch) int { return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.Process, b.Process)) })
	return all
}

// mayGoOn reports whether the process may still watch: it writes that it does only every watchInterval, and may be late.
func (w *watch) mayGoOn(now time.Time) bool {
	return !w.Ended && now.Sub(w.Until) < watchInterval+2*logInterval
}

// extend sets the end of a watch of a process that has not said that it stops.
func (w *watch) extend(states []PastChange, now time.Time) {
	if w.Ended {
		return
	}
	if w.mayGoOn(now) {
		w.Until = now
	}
	for i := range states {
		if c := &states[i]; c.Process == w.Process && c.At.After(w.Until) {
			w.Until = c.At
		}
	}
}

// Past returns what is known about a server; a nil ChangeLog knows nothing. If the store cannot be read, that is what this process has seen.
// present is the state of the server in this process, which it has always had if no change of it was noted; "" if that is not known.
func (l *ChangeLog) Past(ctx context.Context, id switchboard.ServerID, present State) *ServerPast {
	if l == nil {
		return &ServerPast{}
	}
	now := time.Now().Round(0).UTC()
	var kept serverChanges
	var watches []watch
	p := &ServerPast{}
	if l.store != nil {
		ctx, cancel := context.WithTimeout(ctx, logReadTimeout)
		defer cancel()
		p.StoreAway = errors.Join(readValue(ctx, l.store, store.Key{Group: groupChanges, Name: string(id)}, &kept), readValue(ctx, l.store, store.Key{Group: groupWatches, Name: allWatches}, &watches)) != nil
	}
	l.mu.Lock()
	if mine := l.seen[id]; mine != nil {
		kept.addAll(now, shareOf(len(l.seen)), mine)
	}
	l.mu.Unlock()
	states := slices.Concat(kept.Before, kept.Changes)
	for i := range watches {
		watches[i].extend(states, now)
	}
	watches = addWatch(watches, l.meUntil(now, false), now)
	if present != "" && !slices.ContainsFunc(states, func(c PastChange) bool { return c.Process == l.me.Process && c.Tool == "" }) {
		states = append(states, PastChange{At: l.me.From, Process: l.me.Process, From: present, To: present})
	}
	p.Changes, p.Since = kept.Changes, watches[0].From
	for _, w := range watches {
		if w.From.Before(p.Since) {
			p.Since = w.From
		}
	}
	for _, oldest := range []time.Time{kept.Since, now.Add(-KeptFor)} {
		if oldest.After(p.Since) {
			p.Since = oldest
		}
	}
	p.Band = worstStates(states, watches, p.Since)
	return p
}

// readValue reads a value of the store, which is JSON. One that is not there, or does not decode, is the zero value.
func readValue[T any](ctx context.Context, s ChangeStore, k store.Key, to *T) error {
	v, err := s.Value(ctx, k)
	if err != nil && !errors.Is(err, store.ErrUnopened) {
		return err
	}
	*to = decoded[T](v.Data)
	return nil
}

// worst are the states from the best to the worst.
var worst = []State{Healthy, Starting, Probation, NeedsConnection, Disabled, Lost, Quarantine}

// worstStates returns the states of a server since an instant: at each time the worst that a process saw. No part covers the times when no process
// watched or knew the server.
func worstStates(changes []PastChange, watches []watch, since time.Time) (band []BandPart) {
	by, instants := map[string][]PastChange{}, []time.Time{since}
	for _, c := range changes {
		if c.Tool == "" {
			by[c.Process] = append(by[c.Process], c)
			instants = append(instants, c.At)
		}
	}
	for _, w := range watches {
		instants = append(instants, w.From, w.Until)
	}
	slices.SortFunc(instants, time.Time.Compare)
	instants = slices.CompactFunc(instants, time.Time.Equal)
	for i := range len(instants) - 1 {
		from, to, rank := instants[i], instants[i+1], -1
		for _, w := range watches {
			if from.Before(since) || from.Before(w.From) || !from.Before(w.Until) {
				continue
			}
			rank = max(rank, slices.Index(worst, stateAt(by[w.Process], from)))
		}
		switch last := len(band) - 1; {
		case rank < 0:
		case last >= 0 && band[last].State == worst[rank] && band[last].To.Equal(from):
			band[last].To = to
		default:
			band = append(band, BandPart{from, to, worst[rank]})
		}
	}
	return band
}

// stateAt returns the state at an instant, by the changes that one process saw; "" if it saw none.
func stateAt(changes []PastChange, at time.Time) State {
	next, _ := slices.BinarySearchFunc(changes, at, func(c PastChange, at time.Time) int {
		if c.At.After(at) {
			return 1
		}
		return -1
	})
	switch {
	case next > 0:
		return changes[next-1].To
	case len(changes) > 0:
		return changes[0].From
	}
	return ""
}
