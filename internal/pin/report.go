package pin

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A ChangeReport has the changes of the definitions of one server since its last report.
type ChangeReport struct {
	Server      switchboard.ServerID
	Since       time.Time      // the first of the changes
	Changes     int            // more than Definitions if some have changed again
	Definitions int            // that have changed
	States      map[string]int // their number by the newest state
	Named       []StateChange  // the newest change of some definitions, the worst states first
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (b *changeBook) send() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run reports what is due until ctx is done, and then everything.
func (b *changeBook) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
			defer cancel()
			b.flush(last, time.Time{})
			return
		case <-b.wake:
		case <-timer.C:
		}
		if next := b.flush(ctx, time.Now()); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// flush reports what is due at an instant, and returns when more is due. The zero instant means that everything is due.
func (b *changeBook) flush(ctx context.Context, at time.Time) (next time.Time) {
	b.mu.Lock()
	all := maps.Clone(b.servers)
	b.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if due := b.reportServer(ctx, id, at); !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next
}

// reportServer reports the changes of a server if they are due, and returns when more are due; the zero time means that nothing is pending.
func (b *changeBook) reportServer(ctx context.Context, id switchboard.ServerID, at time.Time) (due time.Time) {
	b.mu.Lock()
	s := b.servers[id]
	if s.due.IsZero() || !at.IsZero() && s.due.After(at) {
		defer b.mu.Unlock()
		return s.due
	}
	taken := *s
	s.pending, s.extra, s.due = map[admission.PinKey]pendingChange{}, 0, time.Time{}
	taken.states = maps.Clone(s.states)
	b.mu.Unlock()

	r, last, err := b.settle(ctx, id, &taken, at.IsZero())
	if r != nil {
		b.report(r)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.last = latest(s.last, last)
	if err != nil { // the older changes come first
		newer := s.pending
		s.pending, s.since, s.extra = taken.pending, taken.since, s.extra+taken.extra
		for k, p := range newer {
			b.join(s, k, p)
		}
		s.due = time.Now().Add(retryInterval)
		if errors.Is(err, errTooSoon) {
			s.due = last.Add(reportInterval)
		} else if b.failing.CompareAndSwap(false, true) {
			b.log.Warn("changes of the definitions of servers get their receipts later: the store does not answer", "err", err)
		}
		return s.due
	}
	b.failing.Store(false)
	if !s.due.IsZero() { // there are newer ones
		s.due = latest(s.due, s.last.Add(reportInterval))
	}
	return s.due
}

// errTooSoon means that another process has reported changes of the server less than reportInterval ago.
var errTooSoon = errors.New("the last report is too new")

// settle writes to the store what is reported from now on, and returns the report; nil means that other processes have reported all of it. last is the time of the newest
// report. So of several processes that see the same changes, one reports them.
func (b *changeBook) settle(ctx context.Context, id switchboard.ServerID, taken *changesOfServer, force bool) (r *ChangeReport, last time.Time, err error) {
	for attempt := 1; ; attempt++ {
		r, last, err = b.trySettle(ctx, id, taken, force)
		if attempt == maxAttempts || !errors.Is(err, store.ErrConflict) {
			return r, last, err
		}
	}
}

func (b *changeBook) trySettle(ctx context.Context, id switchboard.ServerID, taken *changesOfServer, force bool) (r *ChangeReport, last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	v, err := b.store.Value(ctx, store.Key{Group: groupReported, Name: string(id)})
	if err != nil {
		return nil, last, err
	}
	var reported reportedStates
	if v.Data != nil {
		if err := unpack(v.Data, &reported); err != nil {
			b.log.Warn("which changes of the definitions of a server have receipts cannot be read; some may get one more", "server", id, "err", err)
			reported = reportedStates{}
		}
	}
	now := time.Now().UTC()
	last = reported.At
	if last.After(now) { // by a clock that is ahead
		last = now
	}
	r = &ChangeReport{Server: id, Since: taken.since.UTC(), Changes: taken.extra, States: map[string]int{}}
	next := reportedStates{At: now, States: maps.Clone(reported.States)}
	if next.States == nil {
		next.States = map[admission.PinKey]machineState{}
	}
	for k, p := range taken.pending {
		present := taken.states[k]
		same := reported.States[k] == present
		if next.States[k] = present; present == (machineState{}) {
			delete(next.States, k)
		}
		another := same && (p.from != present || !p.at.After(reported.At)) // process has reported it
		if p.newest != nil && (p.own || !another) {
			r.add(*p.newest, p.changes)
		}
	}
	switch {
	case r.Changes == 0 && maps.Equal(next.States, reported.States):
		return nil, last, nil
	case r.Changes == 0:
		next.At = reported.At
	case !force && now.Sub(last) < reportInterval && !reported.At.IsZero():
		return nil, last, errTooSoon
	}
	boundStates(next.States)
	data, err := pack(next)
	if err != nil {
		return nil, last, err
	}
	if _, err = b.store.Apply(ctx, store.Change{Group: groupReported, Durable: true, Writes: []store.Write{{Name: string(id), Was: v.Version, Data: data}}}); err != nil {
		return nil, last, err
	}
	if r.Changes == 0 {
		return nil, last, nil
	}
	r.trim()
	return r, now, nil
}

// boundStates removes states beyond maxReportedBytes. After a restart, their changes may be reported once more.
func boundStates(all map[admission.PinKey]machineState) {
	size := 0
	for _, k := range slices.SortedFunc(maps.Keys(all), admission.PinKey.Compare) {
		m := all[k]
		if size += len(k.Name) + len(m.Admitted) + len(m.Offered); size > maxReportedBytes {
			delete(all, k)
		}
	}
}

// add adds the newest change of a definition that has changed so often.
func (r *ChangeReport) add(c StateChange, changes int) {
	r.Changes += changes
	r.Definitions++
	r.States[c.State]++
	r.Named = append(r.Named, c)
}

// trim leaves the worst changes in the report, sorted, within its bounds.
func (r *ChangeReport) trim() {
	slices.SortFunc(r.Named, func(a, b StateChange) int {
		return cmp.Or(slices.Index(States, a.State)-slices.Index(States, b.State), a.Key.Compare(b.Key))
	})
	size := 0
	for i := range r.Named {
		c := &r.Named[i]
		if size += len(c.Key.Name) + len(c.Admitted) + len(c.Offered) + len(c.Why); i == maxNamed || i > 0 && size > maxNamedBytes {
			r.Named = slices.Clip(r.Named[:i])
			return
		}
	}
}
