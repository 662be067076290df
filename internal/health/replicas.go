package health

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Store shares the health of servers between replicas. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

// What the store has: which servers operators have disabled, by id; and for each shared server, by id and address, the
// hint that it is down and the lease to probe it.
const (
	// Group is the group of all values of this package in the store.
	Group = "servers"

	topic          = "servers"
	prefixDisabled = "off/"
	prefixHint     = "down/"
	prefixLease    = "probe/"

	readInterval  = 5 * time.Second // for changes without a notice
	storeTimeout  = 500 * time.Millisecond
	conflictPause = time.Second // before this replica tries again to take the lease of another one
)

// sharedName returns the name of the server among the replicas. It is "" for a server that no other replica reaches: each
// replica has its own processes.
func sharedName(o *Options, s *switchboard.Server) string {
	if o.Store == nil || o.Replica == "" || s.Transport != switchboard.TransportHTTP {
		return ""
	}
	sum := sha256.Sum256([]byte(s.URL))
	return string(s.ID) + "/" + hex.EncodeToString(sum[:12])
}

// storedHealth is the content of the store at one read.
type storedHealth struct {
	disabled map[switchboard.ServerID]*Cause
	hints    map[string]hint
	leases   map[string]probeLease
	number   int64 // of the read
}

// shared returns what the store has about the server with that shared name.
func (k *storedHealth) shared(name string) storeRead {
	return storeRead{k.hints[name], k.leases[name], k.number}
}

// JoinStore reads the health of servers from the store, and follows its changes until Close. Call it before Set, and only
// with a Store.
func (m *Monitor) JoinStore(ctx context.Context) error {
	changes := feed.Watch(m.o.Store, topic, readInterval)
	if err := m.readStore(ctx); err != nil {
		changes.Close()
		return err
	}
	m.work.Go(func() {
		defer changes.Close()
		for failed := false; ; {
			if _, _, err := changes.Next(m.ctx); err != nil {
				return // the Monitor is closed
			}
			ctx, cancel := context.WithTimeout(m.ctx, storeTimeout)
			err := m.readStore(ctx)
			cancel()
			if err != nil && !failed && m.ctx.Err() == nil {
				m.o.Log.Warn("the health of servers at other replicas cannot be read; this replica decides alone", "err", err)
			}
			failed = err != nil
		}
	})
	return nil
}

// readStore reads the store, and applies it to all servers.
func (m *Monitor) readStore(ctx context.Context) error {
	m.setLock.Lock()
	defer m.setLock.Unlock()
	k := storedHealth{map[switchboard.ServerID]*Cause{}, map[string]hint{}, map[string]probeLease{}, m.reads.Add(1)}
	all, err := m.o.Store.List(ctx, Group)
	if err != nil {
		return err
	}
	for _, v := range all {
		if id, ok := strings.CutPrefix(v.Name, prefixDisabled); ok {
			cause := Cause{Stage: StageOperator}
			_ = json.Unmarshal(v.Data, &cause) // the server is disabled even if the cause is unreadable
			k.disabled[switchboard.ServerID(id)] = &cause
		} else if name, ok := strings.CutPrefix(v.Name, prefixHint); ok {
			k.hints[name] = decodeHint(v.Data)
		} else if name, ok := strings.CutPrefix(v.Name, prefixLease); ok {
			k.leases[name] = probeLease{string(v.Data), v.Expires}
		}
	}
	m.stored = k
	for id, s := range *m.servers.Load() {
		s.disable(k.disabled[id])
		if s.share != nil {
			s.share.apply(k.shared(s.share.name))
		}
	}
	return nil
}

// decodeHint returns the hint; the zero hint if it is unreadable.
func decodeHint(data []byte) (h hint) {
	if json.Unmarshal(data, &h) != nil {
		return hint{}
	}
	return h
}

// saveDisabled saves that the server is disabled, or with nil that it is not any more.
func (m *Monitor) saveDisabled(ctx context.Context, id switchboard.ServerID, cause *Cause) error {
	if m.o.Store == nil {
		return nil
	}
	w := store.Write{Name: prefixDisabled + string(id), Was: store.Any}
	if cause != nil {
		text, err := json.Marshal(cause)
		if err != nil {
			return err
		}
		w.Data = text
	}
	if _, err := m.o.Store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{w}, Durable: true}); err != nil {
		return switchboard.Unavailable("what an operator does to a server cannot be kept, so nothing was done", err)
	}
	_ = m.o.Store.Publish(ctx, topic, []byte(id)) // a replica that misses the notice reads the store soon
	return nil
}

// An outageStore shares with the other replicas that one server is down. If the store cannot be used, this replica
// decides alone.
type outageStore struct {
	server  *serverMonitor
	name    string        // see sharedName
	lease   *lease.Lease  // to probe the server
	changed chan struct{} // holds one signal when run must look again
}

func newOutageStore(s *serverMonitor, name string) *outageStore {
	o := &s.monitor.o
	return &outageStore{server: s, name: name, changed: make(chan struct{}, 1), lease: lease.New(o.Store, lease.Options{
		Key: store.Key{Group: Group, Name: prefixLease + name}, TTL: leaseTime, Data: []byte(o.Replica),
	})}
}

// stepSoon makes run look whether this replica has to write something.
func (o *outageStore) stepSoon() { signal(o.changed) }

// run writes hints, and ends them, until the server is removed.
func (o *outageStore) run() {
	s := o.server
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-o.changed:
		}
		s.mu.Lock()
		w, ok := s.state.step(rand.Float64(), time.Now())
		s.mu.Unlock()
		if !ok {
			continue
		}
		err := o.write(w)
		s.update(func(st *serverState, _ time.Time) { st.outage = st.outage.wrote(w, err == nil, s.monitor.reads.Add(1)) })
	}
}

// apply applies what was read from the store.
func (o *outageStore) apply(r storeRead) {
	s, heal := o.server, false
	s.update(func(st *serverState, now time.Time) {
		was := st.outage.hint.valid(now)
		st.outage, heal = st.outage.next(r, st.own(now), st.quarantine.cause != nil, now)
		if was && !st.outage.hint.valid(now) && st.own(now) != Healthy {
			st.probes.wanted = true // it works for another replica, so probe it soon
		}
	})
	if heal {
		s.breaker.heal()
	}
}

// acquire reports whether this replica may probe the server now. While a hint is valid it needs the lease, and takes
// over the quarantine from the replica that has written the hint. A nil outageStore is for a server that is not shared.
func (o *outageStore) acquire() bool {
	if o == nil {
		return true
	}
	s := o.server
	s.mu.Lock()
	now, before := time.Now(), s.state.outage.hint
	shared := before.valid(now)
	wait, _ := s.state.plan(s.planInput(now))
	due := shared && wait == 0 && !s.state.outage.writing // the hint may have changed since the plan
	s.state.outage.probing = due                          // so that run does not release the lease
	s.mu.Unlock()
	if !due {
		return !shared
	}
	l, ok := o.takeOver(before)
	if !ok {
		s.update(func(st *serverState, _ time.Time) { st.outage.lease, st.outage.probing = l, false })
		return false
	}
	s.update(func(st *serverState, _ time.Time) { st.outage = st.outage.begin(l, before) })
	if !s.breaker.isOpen() {
		s.breaker.blame(before.Cause, false)
		s.breaker.trip(errDown)
	}
	s.update(func(st *serverState, now time.Time) {
		st.quarantine = st.quarantine.next(quarantineEvent{kind: onAdopted, at: now, from: before})
	})
	return true
}

// takeOver takes the lease. ok is false if another replica holds it, or if the hint has changed since before. Without the
// store this replica has the lease for itself.
func (o *outageStore) takeOver(before hint) (l probeLease, ok bool) {
	m := o.server.monitor
	ctx, cancel := context.WithTimeout(m.ctx, storeTimeout)
	defer cancel()
	l = probeLease{m.o.Replica, time.Now().Add(leaseTime)}
	switch err := o.lease.Take(ctx); {
	case errors.Is(err, store.ErrConflict):
		return probeLease{"another replica", time.Now().Add(conflictPause)}, false
	case err != nil:
		return l, true
	}
	r := storeRead{lease: l, number: m.reads.Add(1)}
	var err error
	if r.hint, err = o.readHint(ctx); err != nil {
		return l, true
	}
	o.apply(r)
	return l, r.hint.same(&before) && r.hint.valid(time.Now())
}

// errDown trips the breaker of a replica that takes over a quarantine.
var errDown = errors.New("another replica has found the server down")

// write writes to the store.
func (o *outageStore) write(w hintWrite) error {
	var writes []store.Write
	switch {
	case w.hint != nil:
		text, err := json.Marshal(w.hint)
		if err != nil {
			return err
		}
		writes = append(writes, store.Write{Name: prefixHint + o.name, Was: store.Any, Data: text, TTL: time.Until(w.hint.expiry())})
	case w.end != nil:
		text, err := json.Marshal(w.end)
		if err != nil {
			return err
		}
		writes = append(writes, store.Write{Name: prefixHint + o.name, Was: store.Any, Data: text, TTL: hintGrace})
	}
	m := o.server.monitor
	ctx, cancel := context.WithTimeout(m.ctx, storeTimeout)
	defer cancel()
	var err error
	if w.release {
		err = o.lease.Release(ctx, writes...)
	} else {
		_, err = m.o.Store.Apply(ctx, store.Change{Group: Group, Writes: writes})
	}
	if err != nil {
		return err
	}
	_ = m.o.Store.Publish(ctx, topic, []byte(o.server.id)) // a replica that misses the notice reads the store soon
	return nil
}

// readHint returns the hint in the store; the zero hint if there is none.
func (o *outageStore) readHint(ctx context.Context) (hint, error) {
	v, err := o.server.monitor.o.Store.Value(ctx, store.Key{Group: Group, Name: prefixHint + o.name})
	return decodeHint(v.Data), err
}
