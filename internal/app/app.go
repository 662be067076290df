// Package app wires the parts into a running Switchboard, rebuilds what a
// decision reads when the configuration or a server changes, and undoes it all
// in reverse. It is the only package that knows all the others.
//
// What a decision reads is one immutable state behind one pointer. Long-lived
// beside it are only the connections to servers, the runs, and the store.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/cache"
	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/constraint"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/idempotency"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/preview"
	"github.com/summit-switchboard/switchboard/internal/question"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/telemetry"
	"github.com/summit-switchboard/switchboard/internal/turn"
	"github.com/summit-switchboard/switchboard/internal/upstream"
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
)

// DefaultTenant is the tenant of keyless use where none is named.
const DefaultTenant switchboard.TenantID = "default"

// Bounds of the listener and of stopping.
const (
	headerTimeout = 10 * time.Second // for a client to send its request's head
	idleTimeout   = 2 * time.Minute  // for a kept-alive connection to be used again
	maxHeader     = 64 << 10
	lastWords     = time.Second // for clients to hear that a call was cut, or to read the last answer
	sweepEvery    = 5 * time.Minute
	tidySoon      = 200 * time.Millisecond
	tidyEvery     = time.Minute
	clockEvery    = time.Minute // how often the clock may change what clients see without their asking
)

// Options say what to run.
type Options struct {
	// Load reads the configuration with these options, to which it adds where values and
	// manifests come from. It is called again for each reload.
	Load func(context.Context, config.Options) (*config.Config, error)

	// Tenant is that of keyless callers. "" means DefaultTenant.
	Tenant switchboard.TenantID

	// Serves makes New open the address for Serve before it starts anything. Listen
	// overrides the configuration's address; "" keeps it.
	Serves bool
	Listen string

	// WholeResults gives clients results of any length whole.
	WholeResults bool

	Log     *slog.Logger
	Name    string
	Version string

	// Data is the folder for what Switchboard writes itself; "" means that nothing
	// outlives this process, whatever store the configuration names.
	Data string

	// Replica says that it is one of those that share the configured store, where
	// that has room for several.
	Replica bool

	// Hurry says something when stopping shall not wait for calls under way
	// any longer; nil means that nobody is in a hurry.
	Hurry <-chan os.Signal

	// Guard is the command that ends what servers have started when
	// Switchboard is killed; see upstream.Options.
	Guard []string
}

// An App is a running Switchboard. It is safe for concurrent use.
type App struct {
	o       Options
	log     *slog.Logger
	started time.Time

	engine   *policy.Engine
	fleet    *upstream.Fleet
	health   *health.Monitor
	records  *ledger
	runs     *run.Registry
	meter    *run.Meter
	gateway  *gateway.Gateway
	store    store.Store
	keys     *idempotency.Keys
	operator identity.Operator
	cluster  *cluster.Cluster // the zero one where there are no other replicas

	listener net.Listener // nil where nothing is served over HTTP

	info    []byte           // what modern clients are told that answers
	nothing *surface.Surface // what a run without a task shows

	// building is held while a new state is made and swapped in, so that a
	// reload and a server's change do not overtake each other.
	building sync.Mutex
	state    atomic.Pointer[state]
	ready    chan struct{} // closed once state holds the servers' first offers
	waiting  atomic.Pointer[waiting]

	rekeyed chan struct{} // holds one signal when there may be other keys

	fault atomic.Pointer[reloadFault]
	seen  atomic.Pointer[map[string]stamp] // the files and folders that the last load looked at, and what it found
	home  string                           // the folder in which we were started

	tidying atomic.Bool  // it is about to be done
	tidied  atomic.Int64 // when it was done, in unix nanoseconds

	metrics telemetry.Recorder

	offers     *news // that the other replicas are told of
	answered   *news // that are to be remembered
	memories   atomic.Pointer[map[switchboard.ServerID]memory]
	everything everything // for operators
	ties       ties       // that the log has

	stopping *stopping
	stop     context.CancelFunc
	work     sync.WaitGroup
}

// waiting are the servers for which runs wait.
type waiting struct {
	starting []switchboard.ServerID
	next     chan struct{} // closed when another waiting has taken its place
}

// reloadFault is why the last reload was refused, and since when all were.
type reloadFault struct {
	err         error
	when, since time.Time
}

// New reads the configuration and starts the servers that it names, without
// waiting for them. The error is switchboard.Faults where the configuration is
// refused. Call Stop in the end.
func New(ctx context.Context, o Options) (_ *App, err error) {
	if o.Tenant == "" {
		o.Tenant = DefaultTenant
	}
	a := &App{o: o, log: o.Log, started: time.Now(), ready: make(chan struct{}), rekeyed: make(chan struct{}, 1), engine: policy.NewEngine(0, 0), offers: newNews(), answered: newNews()}
	a.home, _ = os.Getwd() // else paths stay as they are given
	r, err := a.load(ctx, nil)
	if err != nil {
		return nil, err
	}
	c := r.config
	if o.Serves {
		if a.listener, err = listen(cmp.Or(o.Listen, c.Listen), c.Keyless()); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				_ = a.listener.Close()
			}
		}()
	}
	if err := checkPrivate(o.Data); err != nil {
		return nil, err
	}
	if a.store, err = openStore(ctx, o, c); err != nil {
		return nil, err
	}
	a.store = &metered{a.store, &a.metrics}
	if a.cluster, err = openCluster(a.store, o, c, a.metrics.Hopped); err != nil {
		return nil, errors.Join(err, a.store.Close())
	}
	if a.records, err = openLedger(ctx, o, c, a.store); err != nil {
		a.cluster.Close()
		return nil, errors.Join(err, a.store.Close())
	}
	if o.Serves && o.Data != "" {
		var unknown error
		if a.operator, unknown = identity.OpenOperator(o.Data); unknown != nil {
			o.Log.Warn("nobody can disable, enable or restart servers", "err", unknown)
		}
	}
	ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	changed := make(chan struct{}, 1)
	moved := make(chan struct{}, 1) // a server's health has
	a.fleet = upstream.New(upstream.Options{
		Log:           o.Log,
		StartDeadline: c.StartDeadline,
		OnePrincipal:  c.Keyless(),
		Neighbors: func(p switchboard.Principal) (n slot.Neighbors) {
			n.Tenants, n.Principals = a.state.Load().ring.Neighbors(p)
			return n
		},
		Guard:   o.Guard,
		Name:    o.Name,
		Version: o.Version,
		OnChange: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
		OnOffer:  a.offers.add,
		OnAnswer: a.answered.add,
		Recall:   a.recalled,
		OnLink:   a.linked,
	})
	a.stopping = newStopping(func() time.Duration { return a.state.Load().config.Grace }, o.Hurry)
	a.health = health.New(health.Options{
		Log:   o.Log,
		Probe: a.probe,
		Changed: func(t health.Transition) {
			a.count(t)
			select {
			case moved <- struct{}{}:
			default:
			}
		},
		Probed:   a.metrics.Probed,
		Moved:    a.countMove,
		Patience: c.StartDeadline,
		Store:    a.store,
		Self:     a.cluster.Self(),
	})
	a.info = gateway.ServerInfo(o.Name, o.Version)
	a.nothing = surface.New(surface.Input{Own: []*switchboard.Tool{gateway.Status}, Info: a.info})
	a.runs = run.New(a, a.nothing, a.store)
	limits := constraint.NewLimiter(a.store, func(id switchboard.TenantID) []switchboard.Limit {
		if t := a.state.Load().tenants[id]; t != nil {
			return t.Limits
		}
		return nil
	})
	guard := func(next switchboard.Caller) switchboard.Caller {
		return policy.Guard(a.current, a.noteRuling, o.Log, next)
	}
	// Who reads on in a kept result needs what a call needs.
	approved := func(next switchboard.Caller) switchboard.Caller { return guard(constraint.Approve(next)) }
	cached := cache.New(a.store, a.cacheTerms, a.records.digests.Arguments, a.metrics.Cached)
	results := preview.New(preview.Options{Store: a.store, Bound: a.resultBound, Count: a.tokens, Guard: approved, Log: o.Log})
	a.meter = run.NewMeter(a.tokens)
	a.keys = idempotency.New(a.store, guard, a.records.digests.Arguments, a.metrics.Keyed, o.Log)
	a.gateway = gateway.New(gateway.Options{
		Runs: a.runs,
		Caller: results.Bounded(a.metrics.Calls(new(turn.Turns).Take(a.records.around(results.Reread(a.keys.Once(a.health.Fallback(guard(contract.Arguments(a.checkOf, constraint.Approve(cached.Serve(limits.Limit(
			a.health.Admit(turn.End(idempotency.Sent(a.metrics.Attempts(scan.Results(a.cleans, contract.Results(question.Vet(a.mayAsk, o.Log, a.fleet))))))))))))))))))),
		Results:      results,
		Meter:        a.meter,
		WholeResults: o.WholeResults,
		ReceiptIDs: func(id switchboard.TenantID) bool {
			t := a.state.Load().tenants[id]
			return t != nil && t.ReceiptIDs
		},
		Store:        a.store,
		Cluster:      a.cluster,
		SessionKey:   a.records.sessionKey,
		Authenticate: a.authenticate,
		Subscribe:    a.subscribe,
		Ended:        a.fleet.Forget,
		RootsChanged: a.fleet.RootsChanged,
		Desk:         lazyexpand.New(lazyexpand.Options{Permit: a.permit, Check: a.checkArguments, Record: a.expanded, Docs: &a.everything.docs, Log: o.Log}),
		Declare:      a.declare,
		Status:       a.statusOf,
		Fitness:      a.fitness,
		Inspect: map[string]func(context.Context, switchboard.Principal, url.Values) ([]byte, error){
			"/v1/status":  a.inspectStatus,
			"/v1/explain": a.inspectExplain,
			"/v1/search":  a.inspectSearch,
		},
		Metrics: a.scrape,
		Operate: a.operate,
		Denied:  a.denied,
		Refused: a.metrics.Refused,
		Grace:   a.stopping.over,
		Hosts:   c.Hosts,
		Origins: c.Origins,
		Log:     o.Log,
		Name:    o.Name,
		Version: o.Version,
	})
	a.recallManifests(ctx, c)
	a.warn(r)
	r.digest = r.sum(a.configurationKey())
	a.cluster.Serving(r.digest)
	starting := make([]switchboard.ServerID, len(c.Servers))
	for i := range c.Servers {
		starting[i] = c.Servers[i].ID
	}
	slices.Sort(starting)
	a.state.Store(a.newState(r, nil, starting, nil))
	a.waiting.Store(&waiting{starting, make(chan struct{})})
	if err := a.health.Join(ctx); err != nil {
		a.Stop()
		return nil, fmt.Errorf("%s: which servers are out of service cannot be read: %w", switchboard.CodeConfig, err)
	}
	a.recall(ctx)
	a.set(c.Servers)
	a.refresh(ctx)
	a.work.Go(func() { a.follow(ctx, changed, moved) })
	a.work.Go(func() { a.remember(ctx) })
	a.work.Go(func() { a.keepManifests(ctx, c, nil) })
	a.work.Go(func() { a.followClock(ctx) })
	a.work.Go(func() { a.followKeys(ctx) })
	a.work.Go(func() { a.sweep(ctx) })
	a.work.Go(func() { a.meter.Run(ctx) })
	a.work.Go(func() { a.tellOffers(ctx) })
	a.work.Go(func() { a.records.trim(ctx) })
	a.work.Go(func() { a.records.follow(ctx) })
	a.work.Go(func() { a.runs.Follow(ctx) })
	a.work.Go(func() { a.gateway.Follow(ctx) })
	a.cluster.Serve(a.gateway)
	a.cluster.Join(ctx)
	return a, nil
}

// follow takes in what the servers offer, whenever one changes. It is ready once all have
// answered or the start deadline is over.
func (a *App) follow(ctx context.Context, changed, moved <-chan struct{}) {
	settled := make(chan struct{})
	a.work.Go(func() {
		a.fleet.Ready(ctx)
		close(settled)
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-settled:
			a.refresh(ctx)
			close(a.ready)
			settled = nil
		case <-changed:
			a.gather(ctx, changed)
			a.refresh(ctx)
		case <-moved:
			a.runs.Leave(ctx, a.lost)
		}
	}
}

// gatherTime is how long a new state waits for more servers to answer, while some are
// starting. It spares decisions that hold for a moment only.
const gatherTime = 500 * time.Millisecond

// gather waits until no server is starting, for gatherTime at most.
func (a *App) gather(ctx context.Context, changed <-chan struct{}) {
	over := time.NewTimer(gatherTime)
	defer over.Stop()
	for len(a.fleet.Starting()) > 0 {
		select {
		case <-changed:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// sweep has kept for longer what is in use, and lets go of what is not, every few
// minutes. It waits for the store for each, which nothing else shall wait for.
func (a *App) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a.runs.Sweep(ctx)
		a.gateway.Sweep(ctx)
		if f := a.fault.Load(); f != nil {
			a.log.Error("the configuration is refused; the one that runs is older", "since", f.since, "running_from", a.state.Load().when, "err", f.err)
		}
		a.logFaulty(a.state.Load().reading)
	}
}

// followClock binds runs again where policy looks at the clock, so that clients
// hear when it has changed their lists. It does so as minutes begin, which is
// when most rules of that kind turn.
func (a *App) followClock(ctx context.Context) {
	for {
		now := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-time.After(now.Truncate(clockEvery).Add(clockEvery).Sub(now)):
			a.runs.Refresh(ctx, a.runs.All()...)
		}
	}
}

// followKeys ends the streams of those whose key is gone or has expired.
func (a *App) followKeys(ctx context.Context) {
	for {
		var due <-chan time.Time
		if end := a.state.Load().ring.NextEnd(time.Now()); !end.IsZero() {
			due = time.After(min(time.Until(end), clockEvery)) // a clock that is set is seen soon
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-a.rekeyed:
		}
		a.gateway.Recheck()
	}
}

// refresh makes a state of the running configuration and what the servers
// offer now.
func (a *App) refresh(ctx context.Context) {
	a.building.Lock()
	defer a.building.Unlock()
	was := a.state.Load()
	starting := a.fleet.Starting() // before their offers: who answers in between counts as both
	a.swap(ctx, a.newState(was.reading, a.fleet.Offers(), starting, was))
}

// swap puts s in place and binds all runs again. The caller holds a.building.
func (a *App) swap(ctx context.Context, s *state) {
	was := a.state.Swap(s)
	a.tidy()
	if was.catalog.Digest() != s.catalog.Digest() {
		a.log.Info("catalog", "digest", s.catalog.Digest(), "tools", len(s.catalog.Tools()), "faults", len(s.catalog.Faults()))
		for _, f := range s.catalog.Faults() {
			a.log.Warn("tool refused", "why", f.Error())
		}
		for _, why := range s.probeFaults(func(switchboard.ServerID) bool { return true }) {
			a.log.Warn("a server is not probed as it is configured", "why", why)
		}
	}
	if faults := s.undeclared(""); !slices.Equal(was.undeclared(""), faults) {
		for _, f := range faults {
			a.log.Warn("not an equivalent", "why", f.Error())
		}
	}
	if was.reading != s.reading {
		select {
		case a.rekeyed <- struct{}{}:
		default:
		}
	}
	a.runs.Rebind(ctx)
	a.runs.Leave(ctx, a.lost) // where nothing else could serve until now
	close(a.waiting.Swap(&waiting{s.starting, make(chan struct{})}).next)
	for _, r := range a.runs.All() {
		if err := r.Err(); err != nil && !errors.As(err, new(*run.Starting)) {
			a.log.Warn("a run shows nothing: its task cannot be met now", "tenant", r.Principal().Tenant, "principal", r.Principal().ID, "task", r.Task(), "err", err)
		}
	}
}

// reload reads the configuration again. All that can fail happens before
// anything that runs is touched: on an error the running state stays as it is,
// and Status says so. New servers get the start deadline to answer before
// decisions see them; calls in flight finish with what they started with.
// differs is called before that wait where there is something to tell the other
// replicas: another configuration, or one that is refused, or is no more.
func (a *App) reload(ctx context.Context, differs func()) {
	was := a.state.Load()
	r, err := a.readAgain(ctx, was)
	same := err == nil && r == was.reading
	defer func() { a.metrics.Reloaded(same, err) }()
	if !same || a.fault.Load() != nil {
		differs()
	}
	if err != nil {
		a.records.reloaded("", "", err)
		f := &reloadFault{err: err, when: time.Now()}
		f.since = f.when
		if was := a.fault.Load(); was != nil {
			f.since = was.since
		}
		a.fault.Store(f)
		a.log.Error("reload refused; the running configuration stays", "err", err, "since", f.since, "running_from", was.when)
		return
	}
	if a.fault.Swap(nil) != nil {
		a.log.Info("the configuration is good again")
	}
	if same {
		a.log.Info("read again; nothing has changed")
		return
	}
	c := r.config
	a.building.Lock()
	defer a.building.Unlock()
	a.recall(ctx)
	a.set(both(c.Servers, was.config.Servers))
	a.fleet.Ready(ctx)
	a.gateway.Allow(c.Hosts, c.Origins)
	a.ties.forget()
	starting := a.fleet.Starting() // before their offers, as in refresh
	a.swap(ctx, a.newState(r, a.fleet.Offers(), starting, was))
	a.set(c.Servers)
	a.cluster.Serving(r.digest)
	a.warn(r)
	a.work.Go(func() { a.keepManifests(ctx, c, was.config) })
	changed := changedBy(was.config, c)
	a.records.reloaded(r.digest, changed, nil)
	a.log.Info("reloaded", "configuration", r.digest, "changed", changed)
}

// warn logs which parts of the configuration are faulty, and what is most likely a mistake in it.
func (a *App) warn(r *reading) {
	a.logFaulty(r)
	for _, w := range r.config.Warnings {
		a.log.Warn("the configuration", "warning", w.String())
	}
}

// logFaulty logs which parts of the configuration are faulty.
func (a *App) logFaulty(r *reading) {
	for _, p := range r.config.Faulty {
		a.log.Error("a part of the configuration is faulty; the rest is in force", "part", p.Name, "so", p.State(), "since", r.faulty[p.Name], "err", p.Faults)
	}
}

// readAgain reads the configuration again. It returns the reading of was if nothing has
// changed. The error says why the new configuration cannot replace the one that runs.
func (a *App) readAgain(ctx context.Context, was *state) (*reading, error) {
	r, err := a.load(ctx, was.reading)
	if err != nil {
		return nil, err
	}
	c := r.config
	a.recallManifests(ctx, c)
	switch {
	case !reflect.DeepEqual([]any{c.Store, c.Cluster}, []any{was.config.Store, was.config.Cluster}):
		return nil, errors.New("store, durability or cluster was changed, which is read once: restart Switchboard")
	case reflect.DeepEqual(c, was.config):
		return was.reading, nil
	case c.Keyless() != was.ring.Keyless():
		return nil, errors.New("the first key was added or the last one removed: who shares which server changes with that; restart Switchboard")
	}
	r.inherit(was.reading)
	r.digest = r.sum(a.configurationKey())
	return r, nil
}

// configurationKey is the key for digests of configurations: that of all replicas, or ours
// where there are none.
func (a *App) configurationKey() []byte {
	if key := a.cluster.Key(configurationKey); key != nil {
		return key
	}
	return []byte(a.records.offerKey.Reveal())
}

// load reads the configuration, and remembers what to watch. Parts that are faulty stay as they
// are in was, which is nil at a start.
func (a *App) load(ctx context.Context, was *reading) (*reading, error) {
	seen := map[string]stamp{}
	o := config.Options{Watch: func(path string) {
		if path = a.absolute(path); seen[path] == (stamp{}) {
			seen[path] = stampOf(path) // before it is read: what changes meanwhile is found to differ
		}
	}}
	l := newLayers(nil)
	if was != nil {
		o.Was, l = was.config, newLayers(was.layers)
	}
	o.CheckPolicies = l.check
	c, err := a.o.Load(ctx, o)
	a.seen.Store(&seen)
	if err != nil {
		return nil, err
	}
	if err := checkTenant(c, a.o.Tenant); err != nil {
		return nil, err
	}
	return read(c, a.engine, l)
}

// both returns the new servers, and the old ones that are gone: these serve on
// until no decision names them.
func both(now, before []switchboard.Server) []switchboard.Server {
	all := append([]switchboard.Server(nil), now...)
	in := map[switchboard.ServerID]bool{}
	for _, s := range now {
		in[s.ID] = true
	}
	for _, s := range before {
		if !in[s.ID] {
			all = append(all, s)
		}
	}
	return all
}

// tenantNames are the tenants, sorted.
func tenantNames(c *config.Config) (names []string) {
	for id := range c.Tenants {
		names = append(names, string(id))
	}
	slices.Sort(names)
	return names
}

// checkTenant reports that nobody would be served, or that keyless callers would be nobody.
func checkTenant(c *config.Config, local switchboard.TenantID) error {
	switch {
	case len(c.Tenants) == 0 && len(c.Refused) > 0, c.Refused[local] && c.Keyless():
		return c.Err()
	case c.Tenants[local] != nil || !c.Keyless():
		return nil
	}
	return fmt.Errorf("%s: keyless callers belong to tenant %q, which is not configured%s; name one with --tenant, or make keys with \"switchboard key new\"", switchboard.CodeConfig, local, config.Instead(string(local), "tenants", tenantNames(c)))
}

// Resolve implements run.Binder.
func (a *App) Resolve(p switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error) {
	return a.state.Load().resolve(p, task)
}

// Bind implements run.Binder. It waits for no server.
func (a *App) Bind(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, was run.Before) (*surface.Surface, error) {
	switch {
	case was.Declared != nil:
		task = was.Declared.ID
	case task == "":
		return a.state.Load().unbound(p, a.info), nil
	}
	st := a.state.Load()
	s, err := st.bind(ctx, p, task, was, a.unfit(was), a.info, func(t *tenant, d *decide.Decision, refused error) func() recorded {
		if len(t.own(st.starting)) == 0 { // else another tool may still come first
			a.warnOfTies(d)
		}
		return a.records.decision(t, d, refused)
	})
	a.tidy()
	if err != nil && s == nil {
		a.log.Warn("task not bound", "tenant", p.Tenant, "principal", p.ID, "task", task, "err", err)
	}
	return s, err
}

// Starting implements run.Binder.
func (a *App) Starting(id switchboard.TenantID) ([]switchboard.ServerID, <-chan struct{}) {
	w := a.waiting.Load()
	if len(w.starting) == 0 {
		return nil, w.next
	}
	t := a.state.Load().tenants[id]
	if t == nil {
		return nil, w.next
	}
	return t.own(w.starting), w.next
}

// Lasts implements run.Binder.
func (a *App) Lasts(id switchboard.TenantID) bool {
	p := a.state.Load().policies[id]
	return p == nil || !p.ReadsClock()
}

// tidy gives memory back, soon, and not often. Reading the files, compiling
// policies and deciding about many tools are rare and leave much that nobody
// needs; the runtime would keep it for minutes.
func (a *App) tidy() {
	if !a.tidying.CompareAndSwap(false, true) {
		return
	}
	last := time.Unix(0, a.tidied.Load())
	time.AfterFunc(max(tidySoon, time.Until(last.Add(tidyEvery))), func() {
		a.tidied.Store(time.Now().UnixNano())
		a.tidying.Store(false)
		runtime.GC() // a sync.Pool, such as of encoders, keeps what it has for one more
		debug.FreeOSMemory()
	})
}

// Ready waits until the servers have answered, or the start deadline is over.
func (a *App) Ready(ctx context.Context) error {
	select {
	case <-a.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listen opens an address for Serve. Beyond this machine it refuses to listen without keys.
func listen(addr string, keyless bool) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: listen address %q: want HOST:PORT, such as 127.0.0.1:7420: %w", switchboard.CodeConfig, addr, err)
	}
	if ip := net.ParseIP(host); keyless && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%s: listen address %q can be reached from other machines, and no key exists: make one with \"switchboard key new\", or listen on 127.0.0.1", switchboard.CodeConfig, addr)
	}
	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: another program listens at %s. Is it Switchboard? \"switchboard status --url http://%s\" says so. To serve beside it: --listen 127.0.0.1:0, which picks a free port, or listen: in switchboard.yaml", switchboard.CodeConfig, addr, addr)
	case err != nil:
		return nil, fmt.Errorf("%s: listen address %q: %w", switchboard.CodeConfig, addr, err)
	}
	return l, nil
}

// Addr is where Serve answers; nil where nothing is served over HTTP.
func (a *App) Addr() net.Addr {
	if a.listener == nil {
		return nil
	}
	return a.listener.Addr()
}

// Serve answers MCP over HTTP until ctx is done; see Options.Serves. Then it refuses new work,
// lets what is under way finish, tells the clients of calls that have not, and
// closes: all within the configuration's grace, of which Stop gets what is left.
func (a *App) Serve(ctx context.Context) error {
	s := &http.Server{
		// No mux: it would answer paths that it finds odd before any of our
		// checks. Neither may the server answer "OPTIONS *" itself.
		Handler:                      a.gateway,
		DisableGeneralOptionsHandler: true,

		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return withGuest(identity.WithConn(ctx, c), c)
		},
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(newDoor(a.listener)) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	a.log.Info("stopping", "calls_in_flight", a.gateway.Calls())
	noticed := time.After(a.untilNoticed())
	// Until then it listens: whoever comes is told, not left to guess.
	if n := a.gateway.Drain(a.stopping.over()); n > 0 {
		a.log.Warn("calls cut", "calls", n)
	}
	select {
	case <-noticed:
	case <-a.stopping.over():
	}
	last, cancel := context.WithTimeout(a.stopping.all, lastWords)
	defer cancel()
	if err := s.Shutdown(last); err != nil {
		_ = s.Close() // whoever has not read its answer by now
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// untilNoticed is how long we tell that we are stopping, at least, so that whoever sends
// clients to one of several replicas has asked /readyz by then: a connection that it makes
// as we close is lost, and it cannot know whether its request was.
func (a *App) untilNoticed() time.Duration {
	if !a.o.Replica || !a.state.Load().config.Store.Shared() {
		return 0
	}
	return 3 * time.Second
}

// ServeStdio answers MCP on in and out for the local principal of the tenant,
// until in ends or ctx is done.
func (a *App) ServeStdio(ctx context.Context, in io.Reader, out io.Writer, task switchboard.TaskID) error {
	return a.gateway.ServeStdio(ctx, in, out, func() switchboard.Principal { return a.state.Load().ring.Local() }, task)
}

// Stop ends all connections and processes. Call it once, after Serve and
// ServeStdio have returned.
func (a *App) Stop() {
	a.stop()
	if a.listener != nil {
		_ = a.listener.Close() // unless Serve has
	}
	a.stopping.begin()
	defer a.stopping.end()
	a.gateway.Close()
	a.cluster.Leave(a.stopping.all)
	a.cluster.Close()
	a.health.Close()
	a.fleet.Close(a.stopping.all)
	a.work.Wait()
	a.keys.Close()
	if err := a.records.close(a.stopping.all); err != nil {
		a.log.Warn("the last receipts were not written", "err", err)
	}
	if err := a.store.Close(); err != nil {
		a.log.Warn("the store was not closed", "err", err)
	}
}
