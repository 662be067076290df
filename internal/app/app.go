// Package app wires the parts into a running Switchboard, rebuilds the state that decisions read
// when the configuration or a server changes, and stops everything in reverse order. It is the only
// package that knows all the others.
//
// Everything that a decision reads is one immutable state behind one pointer. Only the connections
// to servers, the runs and the store live longer than a state.
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
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/api"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/admin/page"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/cache"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/commit"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/connlimit"
	"github.com/summit-switchboard/switchboard/internal/constraint"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/credential"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/heap"
	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/idempotency"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/idleconn"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/notice"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/preview"
	"github.com/summit-switchboard/switchboard/internal/recall"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/revocation"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/signin"
	"github.com/summit-switchboard/switchboard/internal/standing"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/telemetry"
	"github.com/summit-switchboard/switchboard/internal/turn"
	"github.com/summit-switchboard/switchboard/internal/upstream"
	"github.com/summit-switchboard/switchboard/internal/vault"
	"github.com/summit-switchboard/switchboard/internal/verdict"
	"github.com/summit-switchboard/switchboard/internal/watch"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

// DefaultTenant is the tenant of keyless callers if no other tenant is named.
const DefaultTenant switchboard.TenantID = "default"

// Bounds of the listener and of stopping.
const (
	headerTimeout = 10 * time.Second // for a client to send its request's head
	idleTimeout   = 2 * time.Minute  // for a kept-alive connection to be used again
	maxHeader     = 64 << 10
	lastResponses = time.Second // for clients to read the last responses, also those to calls that were cut
	sweepInterval = 5 * time.Minute
	clockInterval = time.Minute // how often runs are bound again because of the clock
)

// Options say what to run.
type Options struct {
	// Load reads the configuration. It adds the sources of values and manifests to the options. It is
	// called again for each reload.
	Load func(context.Context, config.Options) (*config.Config, error)

	// Tenant is the tenant of keyless callers. "" means DefaultTenant.
	Tenant switchboard.TenantID

	// Serves makes New open the address for Serve before it starts anything. Listen overrides the
	// address of the configuration; "" keeps that one.
	Serves bool
	Listen string

	Officers OfficerOptions

	// WholeResults gives clients results of any length in full.
	WholeResults bool

	// Configured is called with each configuration that counts from then on: at the start before anything else is
	// started, and after each reload. nil means no call.
	Configured func(*config.Config)

	// KeepStderr keeps a line of a server's stderr; see upstream.Options.
	KeepStderr func(id switchboard.ServerID, line string, leftOut int)

	Log     *slog.Logger
	Name    string
	Version string

	// Data is the folder for the files that Switchboard itself writes. "" means that no data outlives
	// this process, even if the configuration names a store.
	Data string

	// Replica says that other replicas share the configured store, if that store can be shared.
	Replica bool

	// Hurry receives a signal when stopping must not wait any longer for calls in flight. nil means
	// that no signal comes.
	Hurry <-chan os.Signal

	// Guard is the command that ends the processes of servers when Switchboard is killed; see
	// upstream.Options.
	Guard []string
}

// OfficerOptions say what there is for officers.
type OfficerOptions struct {
	// Listen opens the admin address, for people and for programs that look in from the side.
	Listen bool

	// File is the main file of the configuration, as Load names it, if officers may change it and the files beside it. "" means
	// that it is a file of another program.
	File string
}

// An App is a running Switchboard. It is safe for concurrent use.
type App struct {
	options Options
	log     *slog.Logger
	parts

	files    *watch.Files
	listener net.Listener // nil if nothing is served over HTTP
	adminAt  *adminListener
	memory   *heap.Freer

	// building is held while a new state is built and swapped in, so that a reload and a change of a
	// server's offer happen one after the other.
	building    sync.Mutex
	state       atomic.Pointer[servingState]
	reloading   reloadState
	ready       chan struct{} // closed once state holds the servers' first offers
	keysChanged signal        // the keys may have changed

	grace *gracePeriod
	stop  context.CancelFunc
	work  sync.WaitGroup
}

// parts are the long-lived parts of an App. A reload keeps them.
type parts struct {
	store    store.Store
	cluster  *cluster.Cluster // the zero value if there are no other replicas
	ledger   *receipt.Ledger
	recorder *replay.Recorder
	serverParts
	engine *policy.Engine
	health *health.Monitor
	binder *bind.Binder
	runParts
	meter   *run.Meter
	keys    *idempotency.Keys
	gateway *gateway.Gateway
	admin   adminParts

	committer *commit.Committer
	metrics   telemetry.Recorder
}

// serverParts are the servers, what is remembered of them, and the tokens for them.
type serverParts struct {
	recall      *recall.Memory
	fleet       *upstream.Fleet
	atoms       *atom.Prober
	vault       *vault.Vault
	credentials *credential.Broker
	suspects    *suspectLog
}

// adminParts are the parts for officers.
type adminParts struct {
	reads       *admin.Reader
	api         *api.API
	editor      *change.Editor
	revoked     *revocation.RevokedKeys
	events      *event.Recent
	notices     *notice.Outbox
	comparisons *whatif.Comparisons
	history     *history.History
	changes     *health.ChangeLog
	approvals   *approval.Keeper
	decider     *approvals.Decider
	standing    *standing.Yeskeeper

	pageParts
}

// pageParts are the parts for the people on the page.
type pageParts struct {
	providers *signin.Providers
	sessions  *signin.Sessions
	page      *page.Page
	signedIn  *identity.SignedIn // they can call tools on the page
}

// A reloadState lets one reload happen at a time, and keeps the fault of the last one; nil if it was accepted.
type reloadState struct {
	mu    sync.Mutex
	fault atomic.Pointer[reloadFault]
}

// reloadFault says why the last reload was refused, when, and since when every reload was refused.
type reloadFault struct {
	err         error
	when, since time.Time
}

// New reads the configuration and starts its servers without waiting for them. If the configuration
// is refused, the error is switchboard.Faults. The caller must call Stop in the end.
func New(ctx context.Context, o Options) (_ *App, err error) {
	if o.Tenant == "" {
		o.Tenant = DefaultTenant
	}
	started := time.Now()
	a := &App{options: o, log: o.Log, ready: make(chan struct{}), keysChanged: make(signal, 1), memory: heap.NewFreer(heap.Free)}
	a.suspects = newSuspectLog(o.Log, a.state.Load)
	a.engine = policy.NewEngine(0, 0)
	a.files = watch.NewFiles(o.Log)
	r, err := a.loadConfig(ctx, nil)
	if err != nil {
		return nil, err
	}
	c := r.config
	if o.Configured != nil {
		o.Configured(c)
	}
	if o.Serves {
		if a.listener, err = listen(cmp.Or(o.Listen, c.Listen), c.Keyless()); err != nil {
			return nil, err
		}
		a.listener = withTLS(a.listener, c.TLS, o.Log)
		defer func() {
			if err != nil {
				_ = a.listener.Close()
			}
		}()
	}
	if o.Officers.Listen {
		if a.adminAt, err = listenForOfficers(c); err != nil {
			return nil, err
		}
		a.adminAt.Listener = withTLS(a.adminAt.Listener, c.Admin.TLS, o.Log)
		defer func() {
			if err != nil {
				a.adminAt.close()
			}
		}()
	}
	if err := checkPrivate(o.Data); err != nil {
		return nil, err
	}
	if a.store, err = openStore(ctx, o, c); err != nil {
		return nil, err
	}
	a.store = &meteredStore{a.store, &a.metrics}
	if a.cluster, err = openCluster(a.store, o, c, a.metrics.CountHop); err != nil {
		return nil, errors.Join(err, a.store.Close())
	}
	if a.ledger, a.recorder, err = openLedger(ctx, o, c, a.store); err != nil {
		a.cluster.Close()
		return nil, errors.Join(err, a.store.Close())
	}
	if a.vault, err = openVault(ctx, a.store, storePath(o, c.Store), c, vault.Options{
		Keys:  []switchboard.Secret{a.ledger.Key("vault")}, // that all replicas have
		Ended: a.connectionEnded, Orphaned: func(o vault.Owner, c vault.ServerConnection) { a.credentials.RevokeLater(o, c) }, Log: o.Log,
		Lost: func(o vault.Owner, cause error) { credential.RecordLost(a.ledger, o, cause) },
	}); err != nil {
		err = errors.Join(err, a.ledger.Close(ctx))
		a.cluster.Close()
		return nil, errors.Join(err, a.store.Close())
	}
	current := live{&a.state, a.recorder}
	a.credentials = credential.NewBroker(credential.Options{Vault: a.vault, Receipts: a.ledger, Document: current.clientDocument, Log: o.Log})
	offers := &offerFeed{changed: recall.NewServerSet(), store: a.store, log: o.Log}
	a.recall = recall.New(a.store, a.ledger.Key(offersKeyPurpose), o.Log)
	a.admin.events = event.NewRecent(a.cluster.Self())
	a.admin.changes = health.NewChangeLog(a.store, o.Log)
	a.admin.history = history.New(history.Options{Store: a.store, Log: o.Log})
	a.admin.revoked = revocation.Open(ctx, a.store, a.keysChanged.send, o.Log)
	a.admin.providers = signin.NewProviders(a.ledger.Key("sign-in"))
	a.admin.providers.Set(signInIssuers(c))
	a.admin.signedIn = &identity.SignedIn{List: func() (map[string]map[string][]string, error) { return claimsOfSignedIn(a.admin.sessions) }}
	a.admin.sessions = signin.NewSessions(a.store, a.admin.signedIn.Reread, func() {
		a.admin.signedIn.Reread()
		a.keysChanged.send()
	})
	ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	changed := make(chan struct{}, 1)
	moved := make(chan struct{}, 1) // the health of a server has changed
	a.fleet = upstream.New(upstream.Options{
		Log:           o.Log,
		KeepStderr:    o.KeepStderr,
		StartDeadline: c.StartDeadline,
		OnePrincipal:  hasOneUser(c),
		Neighbors:     current.neighbors,
		Guard:         o.Guard,
		Name:          o.Name,
		Version:       o.Version,
		OnChange: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
		OnOffer:     offers.changed.Add,
		OnAnswer:    a.recall.Answered,
		Recall:      a.recall.Offer,
		Credentials: a.credentials.Of,
		OnLink:      func(id switchboard.ServerID, up bool, why *upstream.Failure) { reportLink(a.health, id, up, why) },
	})
	a.grace = newGracePeriod(current.grace, o.Hurry)
	a.health = health.New(health.Options{
		Log:   o.Log,
		Probe: func(ctx context.Context, s *switchboard.Server) error { return current.probeServer(ctx, a.fleet, s) },
		Changed: func(t health.Transition) {
			countTransition(&a.metrics, t)
			a.admin.changes.Note(t)
			if t.Tool == "" {
				a.admin.events.Add(event.Occurrence{Type: event.Server, Server: t.Server, Subject: string(t.To)})
			}
			select {
			case moved <- struct{}{}:
			default:
			}
		},
		Probed:   a.metrics.CountProbe,
		Moved:    func(m health.Move) { a.metrics.CountMove(m.Tool.Server, m.To.Server) },
		Patience: c.StartDeadline,
		Store:    a.store,
		Replica:  a.cluster.Self(),
	})
	a.atoms = openAtoms(a, current)
	info := gateway.ServerInfo(o.Name, o.Version)
	starting := make([]switchboard.ServerID, len(c.Servers))
	for i := range c.Servers {
		starting[i] = c.Servers[i].ID
	}
	slices.Sort(starting)
	a.binder = bind.New(bind.Options{
		State: func() *bind.State { return a.state.Load().State },
		Unfit: a.health.Unfit, Atoms: a.atoms, Fit: a.health.Fit, Record: a.recorder.Decision, Bound: a.memory.FreeSoon, ServerInfo: info, Log: o.Log,
	}, starting)
	a.runs = run.New(a.binder, surface.New(surface.Input{Own: []*switchboard.Tool{gateway.Status}, ServerInfo: info}), a.store)
	a.admin.notices = notice.New(notice.Options{Store: a.store, Count: a.metrics.CountNotice, Log: o.Log}, c.Recipients)
	limits := constraint.NewLimiter(a.store, current.limits)
	guard := func(next switchboard.Caller) switchboard.Caller {
		return policy.Guard(current.currentPolicy, current.recordRuling, o.Log, next)
	}
	a.admin.approvals = newApprovals(a, current)
	joinGrants(a, a.admin.approvals)
	a.admin.standing = newStanding(a, current)
	a.admin.approvals.SetStanding(a.admin.standing)
	admit := func(next switchboard.Caller) switchboard.Caller {
		return verdict.Admit(presentRegistry(current), a.atoms, next)
	}
	again := func(next switchboard.Caller) switchboard.Caller { return guard(admit(next)) } // after the wait for a person
	approved := func(next switchboard.Caller) switchboard.Caller { return again(a.admin.approvals.Require(next)) }
	cached := cache.New(a.store, func(c *switchboard.Call) cache.Terms {
		consent, known := a.credentials.ConsentOf(c.Server, &c.Principal)
		if !known {
			return cache.Terms{}
		}
		return current.cacheTerms(c.Server, consent)
	}, a.ledger.Digests().Arguments, a.metrics.CountCacheableCall)
	// Above contract.Translate, a guard must ask about the tool that is called, too.
	translated := func(next switchboard.Caller) switchboard.Caller { return contract.Translate(guard(next)) }
	results := preview.New(preview.Options{Store: a.store, LimitFor: current.resultBound, Count: current.countTokens, Guard: translated, Log: o.Log})
	a.meter = run.NewMeter(current.countTokens)
	a.meter.Lists = run.NewListMeter(current.countTokens, func(tenant switchboard.TenantID, n switchboard.ListCost) {
		a.admin.history.CountLists(tenant, n)
		a.metrics.CountLists(tenant, n)
	})
	a.keys = idempotency.New(a.store, translated, a.ledger.Digests().Arguments, a.metrics.CountKeyedCall, o.Log)
	a.admin.reads = admin.NewReader(admin.ReaderOptions{
		Configuration: a.served, Binder: a.binder, Runs: a.runs, Meter: a.meter, Fleet: a.fleet, Health: a.health, Store: a.store, Cluster: a.cluster,
		Ledger: a.ledger, Recorder: a.recorder, Atoms: a.atoms, Notices: a.admin.notices.Backlogs, Ready: a.ready, Stopping: a.grace.ctx,
		ProcessFacts: admin.ProcessFacts{Started: started, Version: o.Version, Addresses: a.Addresses, Changes: a.admin.changes, Findings: a.suspects.findings},
	})
	a.admin.editor = newEditor(a)
	actions := admin.NewActions(admin.ActionsOptions{
		Configuration: a.served, Revoked: a.admin.revoked, Events: a.admin.events, Fleet: a.fleet, Health: a.health, Ledger: a.ledger, Cluster: a.cluster, Store: a.store, Stopping: a.grace.ctx, Log: o.Log,
	})
	a.admin.decider = newDecider(a, current, actions)
	a.admin.page = page.New(page.Options{
		Providers: a.admin.providers, Sessions: a.admin.sessions, Officers: func() *identity.Officers { return a.state.Load().Officers }, URL: current.adminURL,
		Tenants: func() []switchboard.TenantID { return admin.TenantIDs(a.admin.reads) }, Version: o.Version, Cursor: a.admin.events.End, API: func(officer *switchboard.Officer) http.Handler { return api.HandlerFor(a.admin.api, officer) },
		Connections: a.credentials, Document: current.clientDocument,
		Work: a.work.Go, Stopping: ctx, Failed: func(r *http.Request, err error) { a.admin.api.SlowDown(r, err) }, Log: o.Log,
	})
	scraper := &admin.Scraper{Reader: a.admin.reads, Recorder: &a.metrics, Engine: a.engine, Past: a.admin.history}
	a.admin.comparisons = whatif.New(o.Log)
	a.admin.api = api.New(api.Options{
		Comparisons: a.admin.comparisons,
		Compare: func(ctx context.Context, s replay.Bounds, p *replay.Proposal, progress func(done, of int)) (*replay.Diff, error) {
			a.recorder.Settle(ctx)
			return replay.CompareWithin(ctx, a.store, s, p, progress)
		},
		Reader: a.admin.reads, Scraper: scraper,
		Actions: actions,
		Editor:  a.admin.editor, Events: a.admin.events, People: api.PeopleOptions{Page: a.admin.page, Sessions: a.admin.sessions, Approvals: a.admin.decider, Trier: newTrier(a)},
		Keys: a.keys, DigestRequest: a.ledger.Digests().AdminRequest,
		Authenticate: front{a, current}.authenticateOfficer, URL: current.adminURL, Version: o.Version, Stopping: a.grace.ctx, Log: o.Log,
	})
	connectFirst := func(next switchboard.Caller) switchboard.Caller {
		return a.credentials.ConnectFirst(func(ticket string) string { return connectURL(current.adminURL(), a.adminAt, ticket) }, approved, next)
	}
	a.committer = commit.New(commit.Options{
		Store: a.store, Charges: budget.NewBook(current.budgets), Intents: a.ledger, Approvals: a.admin.approvals, Notifier: budgetTeller{a.admin.notices}, Currency: current.currency,
		Spent: func(c *switchboard.Call, amount switchboard.Micros) {
			a.admin.history.CountSpend(c.Principal.Tenant, c.Server, amount)
			a.metrics.CountSpend(c.Principal.Tenant, c.Server, amount)
		}, Log: o.Log,
	})
	chain := &callChain{
		persons:     personWraps{func(next switchboard.Caller) switchboard.Caller { return a.admin.approvals.Approve(again, next) }, connectFirst, admit},
		keptResults: keptResults{results, cached, a.keys}, notices: a.admin.notices, metrics: &a.metrics, history: a.admin.history, turns: new(turn.Turns), ledger: a.ledger, health: a.health, guard: guard, limits: limits, committer: a.committer,
		inputCheck: current.inputCheck, resultChecks: resultChecks{current.cleansResults, current.permitQuestion}, log: o.Log,
	}
	a.gateway = gateway.New(gateway.Options{
		Runs:          a.runs,
		Caller:        wrapCaller(a.fleet, chain.wrappers()),
		Results:       results,
		Approvals:     a.admin.approvals,
		Meter:         a.meter,
		WholeResults:  o.WholeResults,
		Sessions:      gateway.SessionOptions{Store: a.store, Cluster: a.cluster, Key: a.ledger.Key("sessions")},
		Authenticator: front{a, current},
		Servers:       front{a, current},
		Tasks:         front{a, current},
		Recorder:      front{a, current},
		Desk:          lazyexpand.New(lazyexpand.Options{Authorize: a.binder.Permit, Check: current.checkArguments, Record: a.recorder.Expansion, Docs: a.admin.reads.Docs(), Log: o.Log}),
		Log:           o.Log,
		Name:          o.Name,
		Version:       o.Version,
	})
	a.gateway.Allow(c.Hosts, c.Origins)
	scraper.Front = a.gateway
	a.recall.RecallManifests(ctx, c)
	r.logWarnings(o.Log)
	r.digest = r.digestWith(a.configurationKey())
	a.cluster.PublishConfiguration(r.digest)
	a.state.Store(a.newState(r, nil, starting, nil))
	if err := a.health.JoinStore(ctx); err != nil {
		a.Stop()
		return nil, fmt.Errorf("%s: which servers are out of service cannot be read: %w", switchboard.CodeConfig, err)
	}
	if err := a.committer.Recover(ctx); err != nil {
		a.Stop()
		return nil, fmt.Errorf("%s: what was held and used for the last calls cannot be read: %w", switchboard.CodeConfig, err)
	}
	if err := a.admin.editor.Recover(ctx); err != nil {
		o.Log.Warn("whether the last change of a file was made is not known", "err", err)
	}
	a.recall.ReadOffers(ctx)
	a.setServers(c.Servers)
	a.atoms.Use(c.Registry)
	a.rebuildState(ctx)
	a.work.Go(func() { a.followServers(ctx, changed, moved) })
	a.work.Go(func() { a.recall.KeepOffers(ctx, a.fleet) })
	a.work.Go(func() { a.recall.KeepManifests(ctx, c, nil) })
	a.work.Go(func() { a.followClock(ctx) })
	a.work.Go(func() { a.followKeys(ctx) })
	a.work.Go(func() { a.suspects.run(ctx) })
	a.work.Go(func() { a.admin.events.Share(ctx, a.store, a.admin.revoked.CatchUp) })
	a.work.Go(func() { a.sweepExpired(ctx) })
	a.work.Go(func() { a.admin.notices.Run(ctx) })
	a.work.Go(func() { tellAsked(ctx, a) })
	if len(c.Vault.Keys) > 1 {
		a.work.Go(func() { resealConnections(ctx, a.vault, o.Log) })
	}
	a.work.Go(func() { a.meter.Run(ctx) })
	a.work.Go(func() { a.meter.Lists.Run(ctx) })
	a.work.Go(func() { a.admin.history.Run(ctx) })
	a.work.Go(func() { a.admin.changes.Run(ctx) })
	a.work.Go(func() { offers.publish(ctx, a.fleet) })
	a.work.Go(func() { a.ledger.Trim(ctx) })
	a.work.Go(func() { a.ledger.Follow(ctx) })
	a.work.Go(func() { a.runs.FollowStore(ctx) })
	a.work.Go(func() { a.grants.Run(ctx) })
	a.work.Go(func() { a.gateway.Follow(ctx) })
	a.adminAt.serve(a.newHTTPServer(showTLS(a.admin.api)), a.log)
	a.cluster.Serve(a.gateway)
	a.cluster.Join(ctx)
	return a, nil
}

// followServers rebuilds the state whenever a server's offer changes. It closes ready when all
// servers have answered or the start deadline is over.
func (a *App) followServers(ctx context.Context, changed, moved <-chan struct{}) {
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
			a.rebuildState(ctx)
			close(a.ready)
			settled = nil
		case <-changed:
			awaitStarting(ctx, a.fleet, changed)
			a.rebuildState(ctx)
		case <-moved:
			a.runs.ReplaceServers(ctx, a.binder.Lost)
		}
	}
}

// startWait is how long a new state waits for more servers to answer while some are starting. It
// avoids decisions that hold only for a moment.
const startWait = 500 * time.Millisecond

// awaitStarting waits until no server is starting, for startWait at most.
func awaitStarting(ctx context.Context, fleet *upstream.Fleet, changed <-chan struct{}) {
	over := time.NewTimer(startWait)
	defer over.Stop()
	for len(fleet.Starting()) > 0 {
		select {
		case <-changed:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// sweepExpired renews the values in the store that are in use and evicts those that are not, every
// few minutes. It runs apart from everything else because it waits for the store.
func (a *App) sweepExpired(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a.runs.Sweep(ctx)
		forgetRevoked(ctx, a)
		a.gateway.Sweep(ctx)
		if f := a.reloading.fault.Load(); f != nil {
			a.log.Error("the configuration is refused; the one that runs is older", "since", f.since, "running_from", a.state.Load().loadedAt, "err", f.err)
		}
		a.state.Load().logFaultyParts(a.log)
	}
}

// forgetRevoked deletes revocations of keys that no file names any more.
func forgetRevoked(ctx context.Context, a *App) {
	c := a.state.Load().config
	if len(c.Faulty) > 0 { // a faulty file may name keys that were not read
		return
	}
	err := a.admin.revoked.Forget(ctx, func(hash [32]byte) bool {
		return slices.ContainsFunc(c.Keys, func(k config.Key) bool { return k.Hash == hash }) ||
			slices.ContainsFunc(c.People, func(p config.PersonKey) bool { return p.Hash == hash })
	})
	if err != nil && ctx.Err() == nil {
		a.log.Warn("old revocations stay in the store", "err", err)
	}
}

// followClock binds runs again where policy reads the clock, so that clients learn of a changed
// list. It does so at the beginning of each minute, when most rules of that kind change.
func (a *App) followClock(ctx context.Context) {
	for {
		now := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-time.After(now.Truncate(clockInterval).Add(clockInterval).Sub(now)):
			a.runs.Refresh(ctx, a.runs.All()...)
		}
	}
}

// A signal wakes one goroutine, once for any number of sends before it looks. It has the capacity one.
type signal chan struct{}

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// followKeys ends the streams of clients when their key is removed, is revoked or expires.
func (a *App) followKeys(ctx context.Context) {
	revoked := make(signal, 1)
	a.work.Go(func() { endRevoked(ctx, a, revoked) })
	for {
		var due <-chan time.Time
		if end := a.state.Load().Ring.NextExpiry(time.Now()); !end.IsZero() {
			due = time.After(min(time.Until(end), clockInterval)) // also if the clock is set meanwhile
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-a.keysChanged:
		}
		a.gateway.RecheckStreams()
		a.admin.api.RecheckStreams()
		revoked.send()
	}
}

// setServers replaces the servers that Switchboard connects to and monitors.
func (a *App) setServers(servers []switchboard.Server) {
	a.health.SetServers(servers)
	a.credentials.Keep(servers)
	a.fleet.Set(servers)
}

// rebuildState builds a state from the running configuration and the servers' present offers.
func (a *App) rebuildState(ctx context.Context) {
	a.building.Lock()
	defer a.building.Unlock()
	was := a.state.Load()
	starting := a.fleet.Starting() // read before the offers: a server that answers in between counts as both
	a.swapState(ctx, a.newState(was.loadedConfig, a.fleet.Offers(), starting, was))
}

// swapState publishes s and binds all runs again. The caller holds a.building.
func (a *App) swapState(ctx context.Context, s *servingState) {
	was := a.state.Swap(s)
	a.memory.FreeSoon()
	a.suspects.changed.send()
	if was.Config.Registry != s.Config.Registry {
		a.atoms.Use(s.Config.Registry)
	}
	if was.Catalog.Digest() != s.Catalog.Digest() {
		a.log.Info("catalog", "digest", s.Catalog.Digest(), "tools", len(s.Catalog.Tools()), "faults", len(s.Catalog.Faults()))
		for _, f := range s.Catalog.Faults() {
			a.log.Warn("tool refused", "why", f.Error())
		}
		for _, why := range admin.ProbeFaults(s.State, func(switchboard.ServerID) bool { return true }) {
			a.log.Warn("a server is not probed as configured", "why", why)
		}
	}
	if faults := s.EquivalentFaults(""); !slices.Equal(was.EquivalentFaults(""), faults) {
		for _, f := range faults {
			a.log.Warn("not an equivalent", "why", f.Error())
		}
	}
	if faults := s.ProviderFaults(""); !slices.Equal(was.ProviderFaults(""), faults) {
		for _, f := range faults {
			a.log.Warn("not a provider", "why", f.Error())
		}
	}
	if was.loadedConfig != s.loadedConfig {
		a.keysChanged.send()
	}
	a.runs.Rebind(ctx)
	a.runs.ReplaceServers(ctx, a.binder.Lost) // another server may be able to serve now
	a.binder.Started(s.Starting)
	for _, r := range a.runs.All() {
		if err := r.Err(); err != nil && !run.IsStarting(err) && !hasSignedOut(r, err) {
			a.log.Warn("a run shows nothing: its task cannot be met now", "tenant", r.Principal().Tenant, "principal", r.Principal().ID, "task", r.Task(), "err", err)
		}
	}
}

// hasSignedOut reports whether a run shows nothing because its person is not signed in any more.
func hasSignedOut(r *run.Run, err error) bool {
	e, ok := errors.AsType[*switchboard.Error](err)
	return ok && e.Code == switchboard.CodeNotAuthenticated && r.Principal().Auth == switchboard.AuthSignIn
}

// Watch reloads whenever one of the configuration's files changes, reload receives, or another replica
// publishes a reload, until ctx is done; see watch.Run.
func (a *App) Watch(ctx context.Context, reload <-chan os.Signal) { a.watch(ctx, reload, nil) }

func (a *App) watch(ctx context.Context, reload <-chan os.Signal, newWatcher func() (*fsnotify.Watcher, error)) {
	var rereading sync.WaitGroup
	rereading.Go(func() { rereadSecrets(ctx, a) })
	defer rereading.Wait()
	watch.Run(ctx, watch.Options{Files: a.files, Store: a.store, Log: a.log, Reload: a.reload, NewWatcher: newWatcher}, reload)
}

// reload reads the configuration again. Every step that can fail happens before anything live is
// changed: on an error the running state stays, and Status reports the error. New servers get the
// start deadline to answer before decisions use them. Calls in flight finish with the state that
// they started with.
//
// reload calls differs before that wait if the other replicas must know of the result: the
// configuration has changed, is refused, or is accepted again.
func (a *App) reload(ctx context.Context, differs func()) {
	a.reloading.mu.Lock()
	defer a.reloading.mu.Unlock()
	was := a.state.Load()
	r, err := a.rereadConfig(ctx, was)
	same := err == nil && r == was.loadedConfig
	defer func() { a.metrics.CountReload(same, err) }()
	if !same || a.reloading.fault.Load() != nil {
		differs()
	}
	if err != nil {
		a.recorder.Reload("", "", err)
		f := &reloadFault{err: err, when: time.Now()}
		f.since = f.when
		if was := a.reloading.fault.Load(); was != nil {
			f.since = was.since
		}
		a.reloading.fault.Store(f)
		a.admin.events.Add(event.Occurrence{Type: event.Configuration, Subject: "refused"})
		a.log.Error("reload refused; the running configuration stays", "err", err, "since", f.since, "running_from", was.loadedAt)
		return
	}
	if a.reloading.fault.Swap(nil) != nil {
		a.log.Info("the configuration is accepted again")
	}
	if same {
		a.log.Info("read again; nothing has changed")
		return
	}
	c := r.config
	a.building.Lock()
	defer a.building.Unlock()
	if a.options.Configured != nil {
		a.options.Configured(c)
	}
	a.recall.ReadOffers(ctx)
	a.fleet.SetOnePrincipal(hasOneUser(c) && hasOneUser(was.config)) // while one of the two has several users, they do not share
	a.setServers(withRemoved(c.Servers, was.config.Servers))
	a.fleet.Ready(ctx)
	a.gateway.Allow(c.Hosts, c.Origins)
	a.admin.providers.Set(signInIssuers(c))
	a.admin.notices.Set(c.Recipients)
	a.binder.Reconfigured()
	starting := a.fleet.Starting() // read before the offers, as in rebuildState
	a.swapState(ctx, a.newState(r, a.fleet.Offers(), starting, was))
	a.fleet.SetOnePrincipal(hasOneUser(c))
	a.setServers(c.Servers)
	a.cluster.PublishConfiguration(r.digest)
	r.logWarnings(a.log)
	a.work.Go(func() { a.recall.KeepManifests(ctx, c, was.config) })
	changed := config.Changes(was.config, c)
	a.recorder.Reload(r.digest, changed, nil)
	a.admin.events.Add(event.Occurrence{Type: event.Configuration, Subject: string(r.digest)})
	a.log.Info("reloaded", "configuration", r.digest, "changed", changed)
}

// rereadConfig reads the configuration again. It returns the loadedConfig of was if nothing has
// changed. The error says why the new configuration cannot replace the running one.
func (a *App) rereadConfig(ctx context.Context, was *servingState) (*loadedConfig, error) {
	r, err := a.loadConfig(ctx, was.loadedConfig)
	if err != nil {
		return nil, err
	}
	c := r.config
	a.recall.RecallManifests(ctx, c)
	switch {
	case !reflect.DeepEqual([]any{c.Store, c.Cluster}, []any{was.config.Store, was.config.Cluster}):
		return nil, errors.New("store, durability or cluster was changed, which is read once: restart Switchboard")
	case !reflect.DeepEqual(c.Vault, was.config.Vault):
		return nil, errors.New("the key of the vault was changed, which is read once: restart Switchboard")
	case c.Equal(was.config):
		was.read.Renew(r.read)
		return was.loadedConfig, nil
	case c.Keyless() && a.listener != nil && !isLoopback(a.listener.Addr()):
		return nil, fmt.Errorf("the last key was removed, and other machines can reach %s: then each of them could call; keep a key, or listen at %s and restart Switchboard", a.listener.Addr(), config.DefaultListen)
	}
	r.inheritTimes(was.loadedConfig)
	r.digest = r.digestWith(a.configurationKey())
	return r, nil
}

// configurationKey returns the key for digests of configurations: the key that all replicas share,
// or our own key if there are no others.
func (a *App) configurationKey() []byte {
	if key := a.cluster.Key(configurationKeyPurpose); key != nil {
		return key
	}
	return []byte(a.ledger.Key(offersKeyPurpose).Reveal())
}

// loadConfig reads the configuration and notes which files to watch. Faulty parts keep the content
// that they have in was, which is nil at the start.
func (a *App) loadConfig(ctx context.Context, was *loadedConfig) (*loadedConfig, error) {
	note, done := a.files.Begin()
	o := config.Options{Watch: note}
	l := newCompiledLayers(nil)
	if was != nil {
		o.Previous, l = was.config, newCompiledLayers(was.layers)
	}
	o.CheckPolicies = l.check
	c, err := a.options.Load(ctx, o)
	read := done()
	if err != nil {
		return nil, err
	}
	if err := checkTenant(c, a.options.Tenant); err != nil {
		return nil, err
	}
	r, err := compilePolicies(c, a.engine, l, nil)
	if err == nil {
		r.read = read
	}
	return r, err
}

// withRemoved returns the new servers and the old servers that were removed. The removed ones serve
// until no decision names them.
func withRemoved(now, before []switchboard.Server) []switchboard.Server {
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

// tenantNames returns the ids of the tenants, sorted.
func tenantNames(c *config.Config) (names []string) {
	for id := range c.Tenants {
		names = append(names, string(id))
	}
	slices.Sort(names)
	return names
}

// checkTenant returns an error if no tenant would be served, or if keyless callers would have no
// tenant.
func checkTenant(c *config.Config, local switchboard.TenantID) error {
	switch {
	case len(c.Tenants) == 0 && len(c.Refused) > 0, c.Refused[local] && c.Keyless():
		return c.Err()
	case c.Tenants[local] != nil || !c.Keyless():
		return nil
	}
	return fmt.Errorf("%s: keyless callers belong to tenant %q, which is not configured%s; name one with --tenant, or make keys with \"switchboard key new\"", switchboard.CodeConfig, local, config.SuggestName(string(local), "tenants", tenantNames(c)))
}

// Reads returns what answers the operators' reads.
func (a *App) Reads() *admin.Reader { return a.admin.reads }

// served returns the configuration that is served, for the operators' reads.
func (a *App) served() admin.Configuration {
	s := a.state.Load()
	c := admin.Configuration{State: s.State, Digest: s.digest, Loaded: s.loadedAt, FaultySince: s.faultySince, PolicySince: s.policySince, StateOf: func(c *config.Config) (*bind.State, error) { return stateOf(a, c) }}
	if f := a.reloading.fault.Load(); f != nil {
		c.Refused = &admin.RefusedReload{When: f.when, Since: f.since, Why: f.err.Error()}
	}
	return c
}

// Ready waits until the servers have answered or the start deadline is over.
func (a *App) Ready(ctx context.Context) error {
	select {
	case <-a.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listen opens an address for Serve. Without keys, it refuses addresses that other machines can
// reach.
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

// isLoopback reports whether only this machine can reach the address.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Addresses returns the addresses for agents and for officers, each nil if it is not served.
func (a *App) Addresses() (agents, officers net.Addr) {
	if a.listener != nil {
		agents = a.listener.Addr()
	}
	if a.adminAt != nil {
		officers = a.adminAt.Addr()
	}
	return agents, officers
}

// PageAddress returns an address at which a browser signs in to the page of a as the local operator, once, within a minute.
func PageAddress(ctx context.Context, a *App) (string, error) {
	if a.adminAt == nil {
		return "", errors.New("there is no admin address")
	}
	code, err := a.admin.sessions.NewCode(ctx, signin.Holder{Local: true})
	return "http://" + a.adminAt.Addr().String() + page.CodePath + "?code=" + code, err
}

// ServesTLS reports which of the addresses of a are served with TLS.
func ServesTLS(a *App) (agents, officers bool) {
	_, agents = a.listener.(*secureListener)
	if a.adminAt != nil {
		_, officers = a.adminAt.Listener.(*secureListener)
	}
	return agents, officers
}

// Serve answers MCP over HTTP until ctx is done; see Options.Serves. Then it refuses new work, lets
// calls in flight finish, answers the clients of calls that have not finished, and closes. All of
// this happens within the configuration's grace; Stop gets the rest of that time.
func (a *App) Serve(ctx context.Context) error {
	idle := idleconn.New(connlimit.New(a.listener), idleconn.Options{May: connlimit.IsKnown, Timeout: idleTimeout, Kept: a.memory.FreeSoon})
	defer idle.Close() //nolint:errcheck // the server closes it unless it could not serve
	s := a.newHTTPServer(a.gateway)
	s.ConnState = idle.Observe
	served := make(chan error, 2)
	go func() { served <- s.Serve(idle) }()
	go func() { served <- s.Serve(idle.Returned()) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	a.log.Info("stopping", "calls_in_flight", a.gateway.CallsInFlight())
	noticed := time.After(a.drainNotice())
	// It still listens, so that new clients get an answer instead of a broken connection.
	if n := a.gateway.Drain(a.grace.endOfCalls()); n > 0 {
		a.log.Warn("calls cut", "calls", n)
	}
	select {
	case <-noticed:
	case <-a.grace.endOfCalls():
	}
	last, cancel := context.WithTimeout(a.grace.ctx, lastResponses)
	defer cancel()
	if err := s.Shutdown(last); err != nil {
		_ = s.Close() // also the connections of clients that have not read their answer
	}
	for range 2 {
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
	}
	return nil
}

// newHTTPServer returns a server of the handler.
func (a *App) newHTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		// No mux: it would answer odd paths before our own checks run. For the same reason the server must
		// not answer "OPTIONS *" itself.
		Handler:                      h,
		DisableGeneralOptionsHandler: true,

		ConnContext:       connContext,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
}

// connContext adds what authentication needs to know about the connection c.
func connContext(ctx context.Context, c net.Conn) context.Context {
	kept, ok := c.(*idleconn.Conn)
	if !ok {
		ctx = withSecure(ctx, c)
		return connlimit.WithConn(identity.WithPeer(ctx, identity.PeerOf(c)), c)
	}
	peer := kept.Memo(func() any { return identity.PeerOf(c) }).(identity.Peer)
	return connlimit.WithConn(identity.WithPeer(ctx, peer), kept.Conn)
}

// drainNotice returns for how long, at least, /readyz must say that this replica stops. A load
// balancer then has asked /readyz before we close. If it opened a connection while we close, it
// could not know whether its request was executed.
func (a *App) drainNotice() time.Duration {
	if !a.options.Replica || !a.state.Load().config.Store.Shared() {
		return 0
	}
	return 3 * time.Second
}

// ServeStdio answers MCP on in and out for the local principal of the tenant, until in ends or ctx
// is done.
func (a *App) ServeStdio(ctx context.Context, in io.Reader, out io.Writer, task switchboard.TaskID) error {
	local := func() switchboard.Principal { return a.state.Load().Ring.Local() }
	return a.gateway.ServeStdio(ctx, gateway.Stdio{In: in, Out: out, Principal: local, Task: task, Grace: a.grace.endOfCalls})
}

// Stop ends all connections and processes. Call it once, after Serve and ServeStdio have returned.
func (a *App) Stop() {
	a.stop()
	if a.listener != nil {
		_ = a.listener.Close() // unless Serve has
	}
	cut := a.grace.endOfCalls()
	defer a.grace.cancel()
	go func() { // calls that officers make have no client for whom Serve and ServeStdio could cut them
		<-cut
		if n := a.gateway.CutCalls(); n > 0 {
			a.log.Warn("calls cut", "calls", n)
		}
	}()
	a.adminAt.stop(a.grace.ctx)
	a.admin.comparisons.Close()
	a.gateway.Close()
	a.cluster.Leave(a.grace.ctx)
	a.cluster.Close()
	a.atoms.Close()
	a.health.Close()
	a.fleet.Close(a.grace.ctx)
	a.work.Wait()
	a.meter.Lists.Close()
	a.admin.history.Close(a.grace.ctx)
	a.admin.changes.Close(a.grace.ctx)
	a.keys.Close()
	a.admin.revoked.Close()
	a.admin.sessions.Close()
	a.admin.approvals.Close()
	a.vault.Close()
	a.recorder.Close()
	if err := a.committer.Close(a.grace.ctx); err != nil {
		a.log.Warn("the costs of the last calls were not settled; what is held for them counts as spent", "err", err)
	}
	if err := a.ledger.Close(a.grace.ctx); err != nil {
		a.log.Warn("the last receipts were not written", "err", err)
	}
	if err := a.store.Close(); err != nil {
		a.log.Warn("the store was not closed", "err", err)
	}
}
