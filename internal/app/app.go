// Package app wires the parts into a running Switchboard, rebuilds what a
// decision reads when the configuration or a server changes, and undoes it all
// in reverse. It is the only package that knows all the others.
//
// What a decision reads is one immutable state behind one pointer. Long-lived
// beside it are only the connections to servers, the runs, and the counts of
// rate limits.
package app

import (
	"context"
	"encoding/json"
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
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/constraint"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/record"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

// DefaultTenant is the tenant of keyless use where none is named.
const DefaultTenant switchboard.TenantID = "default"

// Bounds of the listener and of stopping.
const (
	headerTimeout = 10 * time.Second // for a client to send its request's head
	idleTimeout   = 2 * time.Minute  // for a kept-alive connection to be used again
	maxHeader     = 64 << 10
	drainTimeout  = 10 * time.Second // for calls in flight when stopping, and for clients to hear what became of them
	lastWords     = time.Second      // of drainTimeout, for clients to hear that a call was cut
	sweepEvery    = 5 * time.Minute
	tidySoon      = 200 * time.Millisecond
	tidyEvery     = time.Minute
	clockEvery    = time.Minute // how often the clock may change what clients see without their asking
)

// Options say what to run.
type Options struct {
	// Load reads the configuration, and tells saw of each file and folder that
	// it looks at. It is called again for each reload.
	Load func(ctx context.Context, saw func(path string)) (*config.Config, error)

	// Tenant is that of keyless callers. "" means DefaultTenant.
	Tenant switchboard.TenantID

	// Listen overrides the configuration's address for Serve; "" keeps it.
	Listen string

	Log     *slog.Logger
	Name    string
	Version string

	// Data is the folder where decisions are recorded; "" means that they are
	// not.
	Data string

	// Guard is the command that ends what servers have started when
	// Switchboard is killed; see upstream.Options.
	Guard []string
}

// An App is a running Switchboard. It is safe for concurrent use.
type App struct {
	o       Options
	log     *slog.Logger
	started time.Time

	engine  *policy.Engine
	fleet   *upstream.Fleet
	records *record.Log // nil where nothing is recorded
	runs    *run.Registry
	gateway *gateway.Gateway

	info    []byte           // what modern clients are told that answers
	nothing *surface.Surface // what a run without a task shows

	// building is held while a new state is made and swapped in, so that a
	// reload and a server's change do not overtake each other.
	building sync.Mutex
	state    atomic.Pointer[state]
	ready    chan struct{} // closed once state holds the servers' first offers

	fault atomic.Pointer[reloadFault]
	seen  atomic.Pointer[map[string]bool] // the files and folders that the last load looked at

	tidying atomic.Bool  // it is about to be done
	tidied  atomic.Int64 // when it was done, in unix nanoseconds

	stop context.CancelFunc
	work sync.WaitGroup
}

// reloadFault is why the last reload was refused, and since when all were.
type reloadFault struct {
	err         error
	when, since time.Time
}

// New reads the configuration and starts the servers that it names, without
// waiting for them. The error is config.Faults where the configuration is
// refused. Call Stop in the end.
func New(ctx context.Context, o Options) (*App, error) {
	if o.Tenant == "" {
		o.Tenant = DefaultTenant
	}
	a := &App{o: o, log: o.Log, started: time.Now(), ready: make(chan struct{}), engine: policy.NewEngine(0, 0)}
	r, err := a.load(ctx)
	if err != nil {
		return nil, err
	}
	c := r.config
	if o.Data != "" {
		a.records = record.New(o.Data, record.Options{Log: o.Log})
	}
	ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	changed := make(chan struct{}, 1)
	a.fleet = upstream.New(upstream.Options{
		Log:           o.Log,
		StartDeadline: c.StartDeadline,
		OnePrincipal:  len(c.Keys) == 0,
		Guard:         o.Guard,
		Name:          o.Name,
		Version:       o.Version,
		OnChange: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	})
	a.info = gateway.ServerInfo(o.Name, o.Version)
	a.nothing = surface.New(nil, nil, nil, nil, a.info)
	a.runs = run.New(a, a.nothing)
	limits := constraint.NewLimiter(func(id switchboard.TenantID) []switchboard.Limit {
		if t := a.state.Load().tenants[id]; t != nil {
			return t.Limits
		}
		return nil
	})
	a.gateway = gateway.New(gateway.Options{
		Runs:         a.runs,
		Caller:       policy.Guard(a.current, o.Log, constraint.Approve(limits.Limit(a.fleet))),
		Authenticate: func(r *http.Request) (switchboard.Principal, error) { return a.state.Load().ring.Authenticate(r) },
		Subscribe:    a.subscribe,
		Ended:        a.fleet.Forget,
		RootsChanged: a.fleet.RootsChanged,
		Status:       a.statusText,
		Fitness:      a.fitness,
		Inspect: map[string]func(context.Context, switchboard.Principal, url.Values) ([]byte, error){
			"/v1/status":  a.inspectStatus,
			"/v1/explain": a.inspectExplain,
		},
		Hosts:   c.Hosts,
		Origins: c.Origins,
		Log:     o.Log,
		Name:    o.Name,
		Version: o.Version,
	})
	a.state.Store(newState(r, o.Tenant, nil, nil))
	a.fleet.Set(c.Servers)
	a.work.Go(func() { a.follow(ctx, changed) })
	a.work.Go(func() { a.followClock(ctx) })
	return a, nil
}

// follow takes in what the servers offer: once all have answered or the start
// deadline is over, and whenever one changes after that.
func (a *App) follow(ctx context.Context, changed <-chan struct{}) {
	a.fleet.Ready(ctx)
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	a.refresh(ctx)
	close(a.ready)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			a.refresh(ctx)
		case <-sweep.C:
			a.runs.Sweep()
			if f := a.fault.Load(); f != nil {
				a.log.Error("the configuration is refused; the one that runs is older", "since", f.since, "running_from", a.state.Load().when, "err", f.err)
			}
		}
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

// refresh makes a state of the running configuration and what the servers
// offer now.
func (a *App) refresh(ctx context.Context) {
	a.building.Lock()
	defer a.building.Unlock()
	was := a.state.Load()
	a.swap(ctx, newState(was.reading, a.o.Tenant, a.fleet.Offers(), was))
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
	}
	a.runs.Rebind(ctx)
	for _, r := range a.runs.All() {
		if err := r.Err(); err != nil {
			a.log.Warn("a run shows nothing: its task cannot be met now", "tenant", r.Principal().Tenant, "principal", r.Principal().ID, "task", r.Task(), "err", err)
		}
	}
}

// Reload reads the configuration again. All that can fail happens before
// anything that runs is touched: on an error the running state stays as it is,
// and Status says so. New servers get the start deadline to answer before
// decisions see them; calls in flight finish with what they started with.
func (a *App) Reload(ctx context.Context) error {
	err := a.reload(ctx)
	if err != nil {
		f := &reloadFault{err: err, when: time.Now()}
		f.since = f.when
		if was := a.fault.Load(); was != nil {
			f.since = was.since
		}
		a.fault.Store(f)
		a.log.Error("reload refused; the running configuration stays", "err", err, "since", f.since, "running_from", a.state.Load().when)
		return err
	}
	if a.fault.Swap(nil) != nil {
		a.log.Info("the configuration is good again")
	}
	return nil
}

func (a *App) reload(ctx context.Context) error {
	r, err := a.load(ctx)
	if err != nil {
		return err
	}
	c := r.config
	was := a.state.Load()
	if reflect.DeepEqual(c, was.config) {
		a.log.Info("read again; nothing has changed")
		return nil
	}
	r.inherit(was.reading)
	if (len(c.Keys) == 0) != was.ring.Keyless() {
		return errors.New("the first key was added or the last one removed: who shares which server changes with that; restart Switchboard")
	}
	a.building.Lock()
	defer a.building.Unlock()
	a.fleet.Set(both(c.Servers, was.config.Servers))
	a.fleet.Ready(ctx)
	a.gateway.Allow(c.Hosts, c.Origins)
	a.swap(ctx, newState(r, a.o.Tenant, a.fleet.Offers(), was))
	a.fleet.Set(c.Servers)
	a.log.Info("reloaded")
	return nil
}

// load reads the configuration, and remembers what to watch.
func (a *App) load(ctx context.Context) (*reading, error) {
	seen := map[string]bool{}
	c, err := a.o.Load(ctx, func(path string) { seen[path] = true })
	a.seen.Store(&seen)
	if err != nil {
		return nil, err
	}
	if err := checkTenant(c, a.o.Tenant); err != nil {
		return nil, err
	}
	return read(c, a.engine)
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

// checkTenant reports that keyless callers would be nobody.
func checkTenant(c *config.Config, local switchboard.TenantID) error {
	if c.Tenants[local] != nil || len(c.Keys) > 0 {
		return nil
	}
	return fmt.Errorf("%s: keyless callers belong to tenant %q, which is not configured; name one with --tenant, or make keys with \"switchboard key new\"", switchboard.CodeConfig, local)
}

// Resolve implements run.Binder.
func (a *App) Resolve(p switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error) {
	return a.state.Load().resolve(p, task)
}

// Bind implements run.Binder. It waits for the servers' first answers.
func (a *App) Bind(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, prev *surface.Surface) (*surface.Surface, error) {
	if err := a.Ready(ctx); err != nil {
		return nil, err
	}
	if task == "" {
		return a.nothing, nil
	}
	s, err := a.state.Load().bind(ctx, p, task, prev, a.info, a.record)
	a.tidy()
	if err != nil {
		a.log.Warn("task not bound", "tenant", p.Tenant, "principal", p.ID, "task", task, "err", err)
	}
	return s, err
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

// Listen opens the address for Serve. Beyond this machine it refuses to listen
// without keys.
func (a *App) Listen() (net.Listener, error) {
	c := a.state.Load().config
	addr := c.Listen
	if a.o.Listen != "" {
		addr = a.o.Listen
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%s: listen address %q: want HOST:PORT, such as 127.0.0.1:7420: %w", switchboard.CodeConfig, addr, err)
	}
	if ip := net.ParseIP(host); len(c.Keys) == 0 && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%s: listen address %q can be reached from other machines, and no key exists: make one with \"switchboard key new\", or listen on 127.0.0.1", switchboard.CodeConfig, addr)
	}
	return net.Listen("tcp", addr)
}

// Serve answers MCP over HTTP on l until ctx is done. Then it takes no new
// work, lets calls in flight finish, tells the clients of those that have not,
// and closes.
func (a *App) Serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{
		// No mux: it would answer paths that it finds odd before any of our
		// checks. Neither may the server answer "OPTIONS *" itself.
		Handler:                      a.gateway,
		DisableGeneralOptionsHandler: true,

		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	a.log.Info("stopping", "calls_in_flight", a.gateway.Calls())
	a.gateway.Close()
	ctx = context.WithoutCancel(ctx)
	grace, cancel := context.WithTimeout(ctx, drainTimeout-lastWords)
	defer cancel()
	if err := s.Shutdown(grace); err != nil {
		if n := a.gateway.Cut(); n > 0 {
			a.log.Warn("calls cut", "calls", n)
		}
		last, cancel := context.WithTimeout(ctx, lastWords)
		defer cancel()
		if err := s.Shutdown(last); err != nil {
			_ = s.Close() // whoever has not read its answer by now
		}
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
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
	a.gateway.Close()
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	a.fleet.Close(ctx)
	a.work.Wait()
	a.records.Close()
}

// Status is what Switchboard says of itself.
type Status struct {
	Version string    `json:"version"`
	PID     int       `json:"pid,omitzero"` // the operator's to know
	Started time.Time `json:"started"`
	Loaded  time.Time `json:"configuration_loaded"`
	Refused *Refused  `json:"configuration_refused,omitempty"`

	// Records says how recording goes; the operator's to know.
	Records *record.Status `json:"records,omitempty"`

	Catalog struct {
		Digest switchboard.Digest `json:"digest"`
		Tools  int                `json:"tools"`
		Faults []string           `json:"faults,omitzero"` // the operator's to know; nil where they are not said
	} `json:"catalog"`
	Policies []PolicyStatus `json:"policies"`
	Servers  []ServerStatus `json:"servers"`
	Tasks    []TaskStatus   `json:"tasks"`
}

// Refused says that the last reload did not happen.
type Refused struct {
	When  time.Time `json:"when"`
	Since time.Time `json:"since"`         // of all that were refused one after the other, the first
	Why   string    `json:"why,omitempty"` // for the operator alone: the faults may be of any tenant's files
}

// PolicyStatus is which policy a tenant has, and since when it is this one.
type PolicyStatus struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Digest switchboard.Digest   `json:"digest"`
	Loaded time.Time            `json:"loaded"`
}

// ServerStatus is how one server fares, and how many of its tools are fit to be
// offered, of those that the catalog was made of; the rest is refused.
type ServerStatus struct {
	upstream.ServerStatus
	Served  int `json:"tools_served"`
	Refused int `json:"tools_refused"`
}

// TaskStatus is a task that runs have bound.
type TaskStatus struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Task   switchboard.TaskID   `json:"task"`
	Runs   int                  `json:"runs"`
	Tools  int                  `json:"tools"`
	Why    string               `json:"why,omitempty"` // it shows nothing
}

// Status says how things are for the tenant: its servers and its tasks. The
// empty tenant means all of them, for the operator.
func (a *App) Status(id switchboard.TenantID) Status {
	st := a.state.Load()
	s := Status{Version: a.o.Version, PID: os.Getpid(), Started: a.started, Loaded: st.when, Policies: st.status(id), Servers: []ServerStatus{}, Tasks: []TaskStatus{}}
	s.Catalog.Faults = []string{}
	if id == "" {
		s.Records = a.records.Status()
	}
	if f := a.fault.Load(); f != nil {
		s.Refused = &Refused{When: f.when, Since: f.since}
		if id == "" {
			s.Refused.Why = f.err.Error()
		}
	}
	mine := func(server switchboard.ServerID) bool {
		return id == "" || st.tenants[id] != nil && st.tenants[id].serves(server)
	}
	s.Catalog.Digest = st.catalog.Digest()
	if t := st.tenants[id]; t != nil {
		s.Catalog.Digest = t.view.Digest()
	}
	served := map[switchboard.ServerID]int{}
	for _, t := range st.catalog.Tools() {
		served[t.ID.Server]++
		if mine(t.ID.Server) {
			s.Catalog.Tools++
		}
	}
	for _, f := range st.catalog.Faults() {
		if mine(f.Server) {
			s.Catalog.Faults = append(s.Catalog.Faults, f.Error())
		}
	}
	for _, server := range a.fleet.Status() {
		if mine(server.ID) {
			n := served[server.ID]
			s.Servers = append(s.Servers, ServerStatus{server, n, len(st.offers[server.ID].Tools) - n})
		}
	}
	s.Tasks = a.tasks(id)
	return s
}

// fitness is what /readyz answers with, to anybody: no word of any tenant's.
func (a *App) fitness() (ready bool, text []byte) {
	var f struct {
		Ready   bool `json:"ready"`
		Refused *age `json:"configuration_refused,omitempty"`
	}
	select {
	case <-a.ready:
		f.Ready = true
	default:
	}
	if fault := a.fault.Load(); fault != nil {
		f.Refused = &age{int64(time.Since(fault.since).Seconds())}
	}
	return f.Ready, encode(f)
}

type age struct {
	Seconds int64 `json:"age_seconds"`
}

// statusText is switchboard_status: what a principal may know.
func (a *App) statusText(p switchboard.Principal) []byte { return encode(a.statusFor(p)) }

// statusFor is Status as p may see it. Messages of failures are the operator's:
// they hold the words of servers and of the system.
func (a *App) statusFor(p switchboard.Principal) Status {
	s := a.Status(p.Tenant)
	if p.Auth != switchboard.AuthLocal {
		s.PID, s.Catalog.Faults = 0, nil
		for i := range s.Servers {
			s.Servers[i].PIDs = nil
			if f := s.Servers[i].LastFailure; f != nil {
				s.Servers[i].LastFailure = &upstream.Failure{Stage: f.Stage, Since: f.Since}
			}
		}
	}
	return s
}

// inspectStatus is Status over HTTP. The local principal is the operator.
func (a *App) inspectStatus(_ context.Context, p switchboard.Principal, _ url.Values) ([]byte, error) {
	if p.Auth == switchboard.AuthLocal {
		return encode(a.Status("")), nil
	}
	return a.statusText(p), nil
}

// inspectExplain is Explain over HTTP, of the task that the query names.
func (a *App) inspectExplain(ctx context.Context, p switchboard.Principal, q url.Values) ([]byte, error) {
	x, err := a.Explain(ctx, p, switchboard.TaskID(q.Get("task")))
	if err != nil {
		return nil, err
	}
	return encode(x), nil
}

// encode returns v's JSON. v is made of our own types, which always encode, and
// the same way every time: maps are sorted.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("encode: " + err.Error())
	}
	return text
}
