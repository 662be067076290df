package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
)

// groupMarks is the group of the store with the mark of each chain, by node; leaseName is the lease beside them.
const (
	groupMarks = "memory"
	leaseName  = "fold lease" // no node has a space in its name
)

// Folded returns the number of the last entry of a chain that all pages have counted. Receipts behind it must not be trimmed.
func Folded(ctx context.Context, s Store, node string) (uint64, error) {
	v, err := s.Value(ctx, store.Key{Group: groupMarks, Name: node})
	if err != nil && !errors.Is(err, store.ErrUnopened) || len(v.Data) == 0 {
		return 0, ignoreUnopened(err)
	}
	n, err := strconv.ParseUint(string(v.Data), 10, 64)
	if err != nil {
		return 0, nil // the chain is read again from its beginning; no entry counts twice
	}
	return n, nil
}

// ignoreUnopened returns nil for a value that a writer without our key has written. It is replaced like a missing one.
func ignoreUnopened(err error) error {
	if errors.Is(err, store.ErrUnopened) {
		return nil
	}
	return err
}

// A Lag says what the fold has still to do, at all nodes together.
type Lag struct {
	Receipts uint64    // that the store has, and that not all pages have counted
	Since    time.Time // when the oldest of them was written; zero if there are none
}

// Lag returns how far the fold is behind.
func (m *Memory) Lag(ctx context.Context) (lag Lag, err error) {
	extents, err := receipt.Extents(ctx, m.o.Store)
	if err != nil {
		return Lag{}, err
	}
	for node, all := range extents {
		after, err := Folded(ctx, m.o.Store, node)
		if err != nil {
			return Lag{}, err
		}
		if all.First > 0 {
			after = max(after, all.First-1) // the others were removed
		}
		if after >= all.Last {
			continue
		}
		lag.Receipts += all.Last - after
		if _, err := receipt.ReadSome(ctx, m.o.Store, node, after, headEntries, func(e *receipt.ChainEntry) bool {
			if e.Fault == nil && (lag.Since.IsZero() || e.Receipt.Time.Before(lag.Since)) {
				lag.Since = e.Receipt.Time
			}
			return e.Fault != nil // the next one may have a time
		}); err != nil {
			return Lag{}, err
		}
	}
	return lag, nil
}

// Run folds receipts until ctx is done, whenever this process has the lease. Several processes may run it over one store.
func (m *Memory) Run(ctx context.Context) {
	l := lease.New(m.o.Store, lease.Options{Key: store.Key{Group: groupMarks, Name: leaseName}, TTL: leaseTime, Data: []byte(rand.Text())})
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = l.Release(ctx) // otherwise it expires
	}()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		m.report(ctx, m.fold(ctx, func() error { return l.Renew(ctx) }))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// report logs the first of several faults.
func (m *Memory) report(ctx context.Context, err error) {
	failed := err != nil && !errors.Is(err, store.ErrConflict) // another process has the lease
	switch {
	case ctx.Err() != nil:
	case failed && !m.failed:
		m.o.Log.Warn("receipts are not folded into the memory; they are kept until they are", "err", err)
	case !failed && m.failed && err == nil:
		m.o.Log.Info("receipts are folded into the memory again")
	}
	if failed || err == nil {
		m.failed = failed
	}
}

// Fold folds what there is now, without the lease.
func (m *Memory) Fold(ctx context.Context) error { return m.fold(ctx, func() error { return nil }) }

// errNoLease says that fold ended because the lease could not be renewed.
var errNoLease = errors.New("the lease was not renewed")

// fold folds all chains up to their present ends. It calls renew before each chunk, and ends when that fails. A fault of one chain or page does not keep it from the
// others. If there is nothing new, it writes nothing.
func (m *Memory) fold(ctx context.Context, renew func() error) error {
	extents, err := receipt.Extents(ctx, m.o.Store)
	if err != nil {
		return err
	}
	var faults []error
	for _, node := range slices.Sorted(maps.Keys(extents)) {
		err := m.foldChain(ctx, node, extents[node], renew)
		if errors.Is(err, errNoLease) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("the receipts of node %s: %w", node, err))
		}
	}
	return errors.Join(faults...)
}

// foldChain folds the entries of a chain behind its mark. A page that cannot be written gets no further entries, and the mark stays before those that it lacks.
func (m *Memory) foldChain(ctx context.Context, node string, all receipt.Extent, renew func() error) error {
	after, err := Folded(ctx, m.o.Store, node)
	if err != nil {
		return err
	}
	if all.First > 0 && after < all.First-1 {
		if after > 0 {
			m.o.Log.Warn("receipts were removed before they were folded, so the memory does not count them", "node", node, "receipts", all.First-1-after)
		}
		after = all.First - 1
	}
	failed := map[pageKey]error{}
	for after < all.Last {
		if err := renew(); err != nil {
			return fmt.Errorf("%w: %w", errNoLease, err)
		}
		t := newTally(oldest(time.Now()), nil)
		to, err := m.read(ctx, node, after, min(all.Last, after+chunkEntries), t)
		if err != nil {
			return err
		}
		if to == after {
			break // it was trimmed
		}
		if err := m.write(ctx, node, after, to, t, failed); err != nil {
			return err
		}
		after = to
	}
	for k, err := range failed {
		return fmt.Errorf("%d pages cannot be written: tenant %q, %s: %w", len(failed), k.tenant, k.day, err)
	}
	return nil
}

// read counts the entries of a chain behind after, up to last. It returns the number of the last one. If some were trimmed, the next entry may be behind last: it does
// not count here, because it counts later.
func (m *Memory) read(ctx context.Context, node string, after, last uint64, t *tally) (to uint64, err error) {
	for to = after; to < last; {
		began, before := time.Now(), to
		_, err := receipt.ReadCounted(ctx, m.o.Store, node, to, int(min(pieceEntries, last-to)), func(e *receipt.ChainEntry) bool { //nolint:gosec // it is small
			if e.Seq > last {
				return false
			}
			t.count(e)
			to = e.Seq
			return true
		})
		if err != nil {
			return to, err
		}
		if to == before {
			break
		}
		if to < last {
			if err := rest(ctx, min(3*time.Since(began), maxRest)); err != nil {
				return to, err
			}
		}
	}
	return to, nil
}

// rest waits, so that calls have the processors.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// write adds to the pages what the tally has counted of the chain's entries behind after, up to to. It adds pages that cannot be written to failed, and leaves out those
// that are there. If there are none, it writes the mark.
func (m *Memory) write(ctx context.Context, node string, after, to uint64, t *tally, failed map[pageKey]error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for _, k := range slices.SortedFunc(maps.Keys(t.pages), pageKey.compare) {
		if failed[k] != nil {
			continue
		}
		err := m.addTo(ctx, k, node, after, to, t.pages[k])
		switch {
		case err == nil, m.leavesOut(k, err):
		case ctx.Err() != nil:
			return err
		default:
			failed[k] = err
		}
	}
	if len(failed) > 0 {
		return nil
	}
	_, err := m.o.Store.Apply(ctx, markOf(node, to))
	return err
}

// leavesOut reports whether the page can never be written by this version, and logs it.
func (m *Memory) leavesOut(k pageKey, err error) bool {
	never := errors.Is(err, errFormat) || errors.Is(err, store.ErrInvalid)
	if never {
		m.o.Log.Error("receipts are not counted, because their page of the memory cannot be written; \"switchboard memory rebuild\" of the latest version counts them", "tenant", k.tenant, "day", k.day, "err", err)
	}
	return never
}

// markOf returns the change that writes the mark of a chain. An older mark may replace a newer one: then entries are read again, and are not counted again.
func markOf(node string, seq uint64) store.Change {
	return store.Change{Group: groupMarks, Writes: []store.Write{{Name: node, Was: store.Any, Data: strconv.AppendUint(nil, seq, 10)}}}
}

// addTo adds to a page what the entries of a chain behind after, up to to, came to. If the page has counted some of them already, it adds the others.
func (m *Memory) addTo(ctx context.Context, k pageKey, node string, after, to uint64, counted *page) error {
	return m.update(ctx, k, func(p *page) (*page, error) {
		switch at := p.cursors[node]; {
		case at >= to:
			return nil, nil
		case at > after:
			t := newTally(k.day, &k)
			if _, err := m.read(ctx, node, at, to, t); err != nil {
				return nil, err
			}
			if counted, after = t.pages[k], at; counted == nil {
				counted = newPage()
			}
		}
		p.add(counted)
		p.cursors[node] = to
		return p, nil
	})
}

var errBusy = errors.New("other processes write it all the time")

// update changes a page by compare-and-set. next returns the page to write in the place of the one that it gets, or nil for no write.
func (m *Memory) update(ctx context.Context, k pageKey, next func(*page) (*page, error)) error {
	ttl := time.Until(k.day.Start().Add(24*time.Hour + Keep))
	if ttl <= 0 {
		return nil
	}
	for range maxConflicts {
		v, unopened := m.o.Store.Value(ctx, k.key())
		if ignoreUnopened(unopened) != nil {
			return unopened
		}
		now, err := decodePage(v.Data)
		switch err = cmp.Or(unopened, err); {
		case errors.Is(err, errFormat):
			return fmt.Errorf("the page of %s: %w", k.day, err)
		case err != nil:
			m.o.Log.Error("a page of the memory cannot be read and begins anew; \"switchboard memory rebuild\" counts its receipts again if none was removed", "tenant", k.tenant, "day", k.day, "err", err)
			now = newPage()
			now.anew = true
		}
		p, err := next(now)
		if err != nil || p == nil {
			return err
		}
		w := store.Write{Name: k.key().Name, Was: v.Version, Data: p.encode(), TTL: ttl}
		if _, err = m.o.Store.Apply(ctx, store.Change{Group: k.key().Group, Writes: []store.Write{w}}); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return errBusy
}
