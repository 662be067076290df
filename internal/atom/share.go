package atom

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Store has the results and the leases. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

const (
	// Group is the group of all values of this package in the store.
	Group = "atoms"

	topic         = "atoms"
	saltName      = "salt"
	prefixOutcome = "result/"
	prefixLease   = "probe/"

	readInterval  = 500 * time.Millisecond // for results without a notice: all replicas must hear within a second
	storeTimeout  = 500 * time.Millisecond
	leaseTime     = 20 * time.Second // longer than two attempts and the pause between them
	leaseInterval = 250 * time.Millisecond
	outcomeTTL    = 30 * 24 * time.Hour // for atoms that no registry has any more
)

// A storedOutcomes is the content of the store at one read.
type storedOutcomes struct {
	salt  []byte
	rows  map[string]store.Value // by the name of a result
	began time.Time              // when the read began
}

// nameOf returns the name of an atom's result in the store.
func nameOf(a *capability.Atom, salt []byte) string {
	probe := struct {
		ID, Tool, HTTP, TCP, Env, File string

		OAuth switchboard.ServerID `json:",omitzero"` // without it, results keep their names

		Headers   map[string]string
		Arguments json.RawMessage
		Is        map[string]json.RawMessage
	}{a.ID, a.Probe.Tool.String(), a.Probe.HTTP, a.Probe.TCP, a.Probe.Env, a.Probe.File, a.Probe.OAuth, map[string]string{}, a.Probe.Arguments, a.Probe.Is}
	for name, secret := range a.Probe.Headers {
		probe.Headers[name] = secret.Reveal()
	}
	mac := hmac.New(sha256.New, salt)
	_, _ = mac.Write(canonical.Encode(probe)) // it never fails
	return a.ID + "/" + hex.EncodeToString(mac.Sum(nil)[:12])
}

// watch returns an atom without a result.
func (p *Prober) watch(a *capability.Atom, name string) *watchedAtom {
	return &watchedAtom{atom: a, name: name, jitter: mathrand.Float64(), lease: lease.New(p.o.Store, lease.Options{
		Key: store.Key{Group: Group, Name: prefixLease + name}, TTL: leaseTime, Data: []byte(rand.Text()),
	})}
}

// hear applies what the store has about an atom. The caller holds mu.
func (w *watchedAtom) hear(v store.Value) {
	o, ok := decodeOutcome(&v)
	newer := ok && v.Version != w.version && (w.outcome == nil || o.At.After(w.outcome.At))
	w.version = v.Version
	if w.outcome != nil && !w.outcome.saved && !newer {
		return // our own result, which the store did not take, is newer
	}
	if o.saved, w.outcome = true, nil; ok {
		w.outcome = &o
	}
}

// follow follows the changes of the store until Close.
func (p *Prober) follow(changes *feed.Feed[struct{}]) {
	defer changes.Close()
	for failed := false; ; {
		if _, _, err := changes.Next(p.ctx); err != nil {
			return // the Prober is closed
		}
		if !p.idle() {
			failed = p.readLogged(failed)
		}
	}
}

// readLogged reads the store, applies it to all atoms, and logs the first of several failures.
func (p *Prober) readLogged(failed bool) bool {
	p.exchange <- struct{}{}
	defer func() { <-p.exchange }()
	stored, err := p.readStore()
	if err == nil {
		p.mu.Lock()
		p.hear(stored)
		p.publish(p.known.Load().atoms)
		p.mu.Unlock()
	} else if !failed && p.ctx.Err() == nil && !errors.Is(err, store.ErrConflict) {
		p.o.Log.Warn("the states of atoms cannot be read from the store; those that are not red are unknown soon", "err", err)
	}
	return err != nil
}

// readStore reads the store. The caller has filled exchange.
func (p *Prober) readStore() (s storedOutcomes, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, storeTimeout)
	defer cancel()
	s = storedOutcomes{rows: map[string]store.Value{}, began: time.Now()}
	all, err := p.o.Store.List(ctx, Group)
	if err != nil {
		return s, err
	}
	for _, v := range all {
		if v.Name == saltName {
			s.salt = v.Data
		} else if name, ok := strings.CutPrefix(v.Name, prefixOutcome); ok {
			s.rows[name] = v.Value
		}
	}
	if len(s.salt) == 0 {
		s.salt, err = p.makeSalt(ctx)
	}
	return s, err
}

// hear applies what was read from the store. The caller has filled exchange, and holds mu.
func (p *Prober) hear(s storedOutcomes) {
	if string(s.salt) != string(p.salt) {
		p.salt = s.salt
		for id, w := range p.atoms {
			p.atoms[id] = p.watch(w.atom, nameOf(w.atom, s.salt))
		}
	}
	p.read = s.began
	for _, w := range p.atoms {
		w.hear(s.rows[w.name])
	}
}

// makeSalt stores a salt, and returns it. If another replica stores one meanwhile, the error is store.ErrConflict, and the next
// read finds it.
func (p *Prober) makeSalt(ctx context.Context) ([]byte, error) {
	v, err := p.o.Store.Value(ctx, store.Key{Group: Group, Name: saltName})
	switch {
	case err != nil && !errors.Is(err, store.ErrUnopened):
		return nil, err
	case len(v.Data) > 0: // it was stored just now
		return v.Data, nil
	}
	salt := []byte(rand.Text())
	_, err = p.o.Store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{{Name: saltName, Was: v.Version, Data: salt}}})
	return salt, err
}

// A job is the work of one run.
type job struct {
	prober  *Prober
	watched *watchedAtom
	atom    *capability.Atom
	name    string
	lease   *lease.Lease
	was     store.Version // of the result when the run began
}

// run probes the atom, or waits for the result of another replica's probe. It returns how long the atom rests then.
func (j *job) run() time.Duration {
	p := j.prober
	for deadline := time.Now().Add(2 * leaseTime); ; {
		select {
		case p.slots <- struct{}{}:
		case <-p.ctx.Done():
			return 0
		}
		rest, done := j.tryRun()
		<-p.slots
		if done {
			return rest
		}
		news := p.known.Load().replaced
		if j.heard() || time.Now().After(deadline) {
			return pauseAfter
		}
		select {
		case <-p.ctx.Done():
			return 0
		case <-news:
		case <-time.After(leaseInterval):
		}
		if j.heard() {
			return pauseAfter
		}
	}
}

// heard reports whether the atom has another result in the store than when the run began.
func (j *job) heard() bool {
	j.prober.mu.Lock()
	defer j.prober.mu.Unlock()
	return j.watched.version != j.was
}

// tryRun probes the atom if this replica gets the lease. done is false if another replica has the lease. If the store cannot be
// used, this replica probes for itself.
func (j *job) tryRun() (rest time.Duration, done bool) {
	p := j.prober
	was, alone := store.Version(0), false
	switch v, err := j.take(); {
	case p.ctx.Err() != nil:
		return 0, true
	case errors.Is(err, store.ErrConflict):
		return 0, false
	case err != nil:
		alone = true // perhaps with the lease
	default:
		was = v.Version
		if o, ok := decodeOutcome(&v); ok && was != j.was && time.Since(o.At).Abs() < patience {
			j.release()
			p.readLogged(true)
			return pauseAfter, true // another replica has probed it just now
		}
	}
	defer j.release()
	o, ok := j.probe()
	switch {
	case p.ctx.Err() != nil:
		return 0, true
	case !ok:
		return untoldPause, true
	case alone:
		j.keep(j.continued(o), 0)
	default:
		j.save(j.continued(o), was)
	}
	return pauseAfter, true
}

// take takes the lease, and returns the result that the store has then.
func (j *job) take() (store.Value, error) {
	p := j.prober
	ctx, cancel := context.WithTimeout(p.ctx, storeTimeout)
	defer cancel()
	if err := j.lease.Take(ctx); err != nil {
		return store.Value{}, err
	}
	v, err := p.o.Store.Value(ctx, store.Key{Group: Group, Name: prefixOutcome + j.name})
	if errors.Is(err, store.ErrUnopened) {
		err = nil // it is replaced
	}
	return v, err
}

func (j *job) release() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.prober.ctx), storeTimeout)
	defer cancel()
	_ = j.lease.Release(ctx) // else it expires
}

// probe probes the atom, and once more if it fails. ok is false if there is no result.
func (j *job) probe() (o outcome, ok bool) {
	p := j.prober
	o.At = time.Now()
	err := p.checkOnce(p.ctx, &j.atom.Probe)
	if err != nil && !errors.Is(err, errUntold) {
		select {
		case <-p.ctx.Done():
			return o, false
		case <-time.After(tryAgain):
		}
		o.At = time.Now()
		err = p.checkOnce(p.ctx, &j.atom.Probe)
	}
	if errors.Is(err, errUntold) {
		return o, false
	}
	o.Well, o.ended = err == nil, time.Now()
	if err != nil {
		o.Reason, o.Failed = err.Error(), 1
	}
	if p.o.Probed != nil {
		p.o.Probed(o.Well)
	}
	return o, true
}

// save stores a result in the place of the version was, and tells the other replicas.
func (j *job) save(o outcome, was store.Version) {
	p := j.prober
	p.exchange <- struct{}{}
	defer func() { <-p.exchange }()
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // an outcome always has a JSON form
	}
	ctx, cancel := context.WithTimeout(p.ctx, storeTimeout)
	defer cancel()
	version, err := p.o.Store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{
		{Name: prefixOutcome + j.name, Was: was, Data: text, TTL: outcomeTTL},
	}})
	if errors.Is(err, store.ErrConflict) {
		return // this replica lost its lease, and another one has probed the atom since: its result is heard soon
	}
	j.keep(o, version)
	if err == nil {
		_ = p.o.Store.Publish(ctx, topic, []byte(j.atom.ID)) // a replica that misses the notice reads the store soon
	}
}

// continued returns the result with the part that it has from the one before.
func (j *job) continued(o outcome) outcome {
	j.prober.mu.Lock()
	defer j.prober.mu.Unlock()
	o.Since = o.At
	if before := j.watched.outcome; before != nil && before.Well == o.Well {
		o.Since = before.Since
		o.Failed += before.Failed
	}
	return o
}

// keep applies a result of this process. version is 0 if the store does not have it.
func (j *job) keep(o outcome, version store.Version) {
	p := j.prober
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := j.watched.outcome; version == 0 && o.Well && now != nil && now.At.After(o.At) {
		return // this process was paused
	}
	o.saved = version != 0
	j.watched.outcome = &o
	if o.saved {
		j.watched.version = version
	}
	p.publish(p.known.Load().atoms)
}

// decode reports whether data is JSON for v.
func decode(data []byte, v any) bool { return json.Unmarshal(data, v) == nil }
