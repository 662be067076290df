// Package atom probes the atoms of the registry: the accounts, keys, channels and servers that capabilities depend on.
//
// It decides when an atom is probed, by which replica, and whether the atom was well. Whether a capability may be used
// then is decided by package verdict.
//
// # Results
//
// A failed probe is made once more after a second; if it fails again, the atom is red. The result stands in the store, and all
// replicas read it. One replica probes an atom at a time: it holds the lease of that atom. The health of a server costs nothing to look
// at, so each replica looks at its own; it is not stored.
//
// A good result counts only while this process knows that there is no newer one: while it can read the store, or for a
// moment after a probe of its own. Otherwise the atom is unknown. A red atom stays red until a probe succeeds.
//
// # Secrets
//
// The name of a result in the store depends on the atom and on its whole probe, secrets included, so a result never outlives a
// change of the probe. A random salt in the store keeps the secrets from being guessed by that name. Reasons are in our own words,
// because an answer could repeat a secret.
package atom

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	atOnce      = 8               // probes of one process
	tryAgain    = time.Second     // after the first failure of a probe
	patience    = 5 * time.Second // of a call that waits for a probe
	pauseAfter  = time.Second     // between two probes of one atom
	untoldPause = 5 * time.Second // after a probe that could not be made, unless a caller waits for the next one

	// A red atom is probed again after firstRedPause. The pause doubles with each failure, up to lastRedPause or Every.
	firstRedPause = time.Minute
	lastRedPause  = time.Hour
)

// Options are the settings of a Prober.
type Options struct {
	Store Store
	Log   *slog.Logger // nil means no log output

	Folder string // of the configuration: file probes look within it

	// Server returns the health of a server: why it is not well, or "". known is false if the server has not answered yet.
	Server func(id switchboard.ServerID) (why string, known bool)

	// Connection returns why the connection that Switchboard's own requests to a server use is of no use, or "". known is false if
	// that cannot be found out now. The reason holds no secret.
	Connection func(ctx context.Context, id switchboard.ServerID) (why string, known bool)

	// Find finds a tool, and Call calls it. Call gets only tools that provably change nothing.
	Find func(id switchboard.ToolID) (*switchboard.Tool, bool)
	Call func(ctx context.Context, tool *switchboard.Tool, arguments json.RawMessage) (switchboard.Result, error)

	// Probed, if not nil, is told of each probe that this process has made, with its second attempt, and whether the atom was well.
	Probed func(well bool)

	// Dial opens connections; nil means dial.Context.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// A Prober probes the atoms of the current registry. Use Open. It is safe for concurrent use.
type Prober struct {
	o      Options
	send   func(*http.Request) (*http.Response, error) // of http probes
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	slots  chan struct{} // has one element for each probe in flight
	wake   chan struct{} // of capacity one: schedule looks again

	// exchange has one element from an exchange with the store until its result is applied, so that an older read never
	// replaces a newer result. It is filled before mu is locked.
	exchange chan struct{}

	mu    sync.Mutex // guards the fields below and those of all watched atoms
	atoms map[string]*watchedAtom
	salt  []byte
	read  time.Time // when the last successful read of the store began

	known atomic.Pointer[knowledge] // replaced with mu held
}

// A watchedAtom is an atom that has a probe, other than a server's health.
type watchedAtom struct {
	atom  *capability.Atom
	name  string // of its result in the store
	lease *lease.Lease

	outcome *outcome // nil: not known
	version store.Version

	running *probeRun // the probe in flight; nil for none
	rest    time.Time // no probe begins before
	later   time.Time // the schedule begins no probe before
	jitter  float64   // 0 to 1
}

// A probeRun is one probe with its second attempt, or the wait for the result of another replica's probe.
type probeRun struct{ done chan struct{} }

// Open returns a Prober without atoms. The caller must Close it.
func Open(o Options) *Prober {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Prober{
		o: o, send: newClient(o.Dial).Do, slots: make(chan struct{}, atOnce), wake: make(chan struct{}, 1), exchange: make(chan struct{}, 1),
		salt: []byte(rand.Text()), // until the store has one
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.known.Store(&knowledge{replaced: make(chan struct{})})
	changes := feed.Watch(o.Store, topic, readInterval)
	p.work.Go(func() { p.follow(changes) })
	p.work.Go(p.schedule)
	return p
}

// Close ends the probes, and waits until they have ended.
func (p *Prober) Close() {
	p.mu.Lock()
	p.cancel() // with mu held, so that no run begins after this
	p.mu.Unlock()
	p.work.Wait()
}

// Use replaces the registry. The result of an atom stays as long as its probe stays the same.
func (p *Prober) Use(r *capability.Registry) {
	p.exchange <- struct{}{} // so that the salt stays
	defer func() { <-p.exchange }()
	var probed []*capability.Atom
	for _, a := range r.Atoms {
		if !a.Probe.None() && a.Probe.Server == "" {
			probed = append(probed, a)
		}
	}
	var stored storedOutcomes
	var err error
	if len(probed) > 0 {
		stored, err = p.readStore()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.atoms
	p.atoms = make(map[string]*watchedAtom, len(probed))
	for _, a := range probed {
		w, name := was[a.ID], nameOf(a, p.salt)
		if w == nil || w.name != name {
			w = p.watch(a, name)
		}
		w.atom, p.atoms[a.ID] = a, w
	}
	if err == nil && len(probed) > 0 {
		p.hear(stored)
	}
	p.publish(r.Atoms)
}

// idle reports whether no atom has a result.
func (p *Prober) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.atoms) == 0
}

// publish replaces the knowledge. The caller holds mu.
func (p *Prober) publish(atoms map[string]*capability.Atom) {
	was := p.known.Load()
	k := &knowledge{atoms: atoms, outcomes: make(map[string]outcome, len(p.atoms)), read: p.read, replaced: make(chan struct{})}
	for id, a := range atoms {
		if w := p.atoms[id]; w != nil && w.outcome != nil {
			k.outcomes[id] = *w.outcome
			p.logChange(a, was.outcomes[id], *w.outcome)
		}
		if a.Probe.Server != "" {
			k.servers = append(k.servers, a)
		}
	}
	p.known.Store(k)
	close(was.replaced)
	p.look()
}

// logChange logs that an atom has become well or red.
func (p *Prober) logChange(a *capability.Atom, from, to outcome) {
	switch {
	case !to.Well && (from.Well || from.At.IsZero()):
		p.o.Log.Warn("an atom is red", "atom", a.ID, "kind", a.Kind, "reason", to.Reason)
	case to.Well && !from.Well && !from.At.IsZero():
		p.o.Log.Info("an atom is well again", "atom", a.ID, "kind", a.Kind)
	}
}

// look makes schedule look again.
func (p *Prober) look() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// schedule begins the probes that are due.
func (p *Prober) schedule() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		wait := time.Hour
		p.mu.Lock()
		now := time.Now()
		for _, w := range p.atoms {
			at, ok := w.next(p.read)
			switch {
			case !ok || w.running != nil:
			case at.After(now):
				wait = min(wait, at.Sub(now))
			default:
				p.begin(w)
			}
		}
		p.mu.Unlock()
		timer.Reset(wait)
	}
}

// next returns when the atom is probed next; false means only at a use. read is when the store was last read.
func (w *watchedAtom) next(read time.Time) (at time.Time, ok bool) {
	every := w.atom.Every
	switch o := w.outcome; {
	case o != nil && !o.saved && read.After(o.ended): // the store is back, and does not have the result
	case o == nil && every > 0:
	case o == nil:
		return at, false
	case !o.Well:
		pause := min(firstRedPause<<min(max(o.Failed-1, 0), 10), lastRedPause)
		if every > 0 {
			pause = min(pause, every)
		}
		at = o.At.Add(pause)
	case every > 0:
		at = o.At.Add(every - time.Duration(w.jitter*float64(every/10)))
	default:
		return at, false
	}
	if w.later.After(at) {
		at = w.later
	}
	return at, true
}

// nextProbes returns when each atom is probed next.
func (p *Prober) nextProbes() map[string]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[string]time.Time, len(p.atoms))
	for id, w := range p.atoms {
		if at, ok := w.next(p.read); ok {
			all[id] = at
		}
	}
	return all
}

// Due probes the atoms, and waits for the results until ctx is done, and 5 s at most. All callers that wait for one atom wait for
// one probe, which goes on if they give up. Take a new View afterwards.
func (p *Prober) Due(ctx context.Context, ids ...string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, r := range p.want(ids) {
		select {
		case <-r.done:
		case <-ctx.Done():
			return
		}
	}
}

// Want begins the probes that Due waits for.
func (p *Prober) Want(ids ...string) { p.want(ids) }

func (p *Prober) want(ids []string) (all []*probeRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if w := p.atoms[id]; w != nil {
			all = append(all, p.begin(w))
		}
	}
	return all
}

// begin begins a probe, unless one is in flight. An atom that was probed just now rests first; if its
// probe is changed meanwhile, none begins. The caller holds mu.
func (p *Prober) begin(w *watchedAtom) *probeRun {
	if w.running != nil {
		return w.running
	}
	r := &probeRun{make(chan struct{})}
	if p.ctx.Err() != nil {
		close(r.done)
		return r
	}
	w.running = r
	was := w.version // before the rest: what is heard meanwhile counts
	wait := time.NewTimer(time.Until(w.rest))
	p.work.Go(func() {
		select {
		case <-wait.C:
		case <-p.ctx.Done():
			wait.Stop()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.atoms[w.atom.ID] == w {
			j := job{prober: p, watched: w, atom: w.atom, name: w.name, lease: w.lease, was: was}
			p.mu.Unlock()
			rest := j.run()
			p.mu.Lock()
			now := time.Now()
			w.rest, w.later, w.jitter = now.Add(min(rest, pauseAfter)), now.Add(rest), mathrand.Float64()
		}
		w.running = nil
		close(r.done)
		p.look()
	})
	return r
}

// code returns the code of one of our own errors.
func code(err error) string {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return ": " + string(own.Code)
	}
	return ""
}
