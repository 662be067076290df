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
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/acquire"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/api"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/admin/page"
	"github.com/summit-switchboard/switchboard/internal/admin/past"
	"github.com/summit-switchboard/switchboard/internal/admin/verification"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/cache"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/commit"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/constraint"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/credential"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/evidence"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/heap"
	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/idempotency"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/notice"
	"github.com/summit-switchboard/switchboard/internal/npm"
	"github.com/summit-switchboard/switchboard/internal/pin"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/preview"
	"github.com/summit-switchboard/switchboard/internal/proposal"
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

	// Hurry is closed when stopping must not wait any longer for calls in flight. nil means that it waits.
	Hurry <-chan struct{}

	// Guard is the command that ends the processes of servers when Switchboard is killed; see
	// upstream.Options.
	Guard []string
}

// OfficerOptions say what there is for officers.
type OfficerOptions struct {
	// Row is the folder with the row by which commands find this process. No program of a server sees it. "" means that there is none.
	Row string

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

// serverParts are the servers, what is remembered and let in of them, and the tokens for them.
type serverParts struct {
	recall      *recall.Memory
	pins        *pin.Board
	evidence    *evidence.ReportBook
	verifier    *verification.Verifier
	fleet       *upstream.Fleet
	atoms       *atom.Prober
	vault       *vault.Vault
	credentials *credential.Broker
	suspects    *suspectLog
}

// adminParts are the parts for officers.
type adminParts struct {
	reads   *admin.Reader
	api     *api.API
	editor  *change.Editor
	revoked *revocation.RevokedKeys
	events  *event.Recent
	notices *notice.Outbox
	pastParts
	approvals    *approval.Keeper
	decider      *approvals.Decider
	standing     *standing.Yeskeeper
	proposals    *proposal.Keeper
	acquisitions *acquire.Keeper
	reread       signal // the files were read again

	pageParts
}

// pastParts are the parts that know what was.
type pastParts struct {
	comparisons *whatif.Comparisons
	history     *history.History
	memory      *memory.Memory
	changes     *health.ChangeLog
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

	hurried atomic.Int32 // how many proposals are being taken back; see awaitServers

	start *config.Config // of the start: some settings are read only then
}

// reloadFault says why the last reload was refused, when, and since when every reload was refused.
type reloadFault struct {
	err         error
	when, since time.Time
}

// closeOpened closes the ledger, the cluster and the store. The vault is closed before.
func closeOpened(ctx context.Context, a *App) error {
	err := a.ledger.Close(ctx)
	a.cluster.Close()
	return errors.Join(err, a.store.Close())
}

// New reads the configuration and starts its servers without waiting for them. If the configuration
// is refused, the error is switchboard.Faults. The caller must call Stop in the end.
func New(ctx context.Context, o Options) (_ *App, err error) {
	if o.Tenant == "" {
		o.Tenant = DefaultTenant
	}
	started := time.Now()
	a := &App{options: o, log: o.Log, ready: make(chan struct{}), keysChanged: make(signal, 1), memory: heap.NewFreer(heap.Free)}
	a.admin.reread = make(signal, 1)
	a.suspects = newSuspectLog(o.Log, a.state.Load)
	a.engine = policy.NewEngine(0, 0)
	a.files = watch.NewFiles(o.Log)
	read, err := readConfig(ctx, a, nil)
	if err != nil {
		return nil, err
	}
	c := read.config
	compiled := sync.OnceValues(func() (*loadedConfig, error) { return read.compile(a.engine) })
	go compiled() //nolint:errcheck // the next call returns the error, and meanwhile the store is opened
	defer func() {
		if err != nil {
			_, _ = compiled() // it has ended when New has
		}
	}()
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
		return nil, errors.Join(err, closeOpened(ctx, a))
	}
	r, err := compiled()
	if err != nil {
		a.vault.Close()
		return nil, errors.Join(err, closeOpened(ctx, a))
	}
	current := live{&a.state, a.recorder}
	a.credentials = credential.NewBroker(credential.Options{Vault: a.vault, Receipts: a.ledger, Document: current.clientDocument, Log: o.Log})
	offers := &offerFeed{changed: recall.NewServerSet(), store: a.store, log: o.Log}
	a.recall = recall.New(a.store, a.ledger.Key(offersKeyPurpose), o.Log)
	pinsChanged := make(signal, 1)
	a.pins = openPins(a, pinsChanged.send)
	a.evidence = openEvidence(a, pinsChanged.send)
	a.admin.events = event.NewRecent(a.cluster.Self())
	a.admin.changes = health.NewChangeLog(a.store, o.Log)
	a.admin.history = history.New(history.Options{Store: a.store, Log: o.Log})
	a.admin.memory = memory.New(memory.Options{Store: a.store, Log: o.Log})
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
		Own:           func() []string { return ownFiles(a, c) },
		Prepare:       npm.NewKeeper(packagesFolder(o.Data), a.store, o.Log).Prepare,
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
	touch := func(next switchboard.Caller) switchboard.Caller { return policy.Touch(current.currentPolicy, next) }
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
	// Above contract.Translate, a guard must ask about the tool that is called, too. What it lets pass is answered with a server's data.
	translated := func(next switchboard.Caller) switchboard.Caller { return contract.Translate(guard(touch(next))) }
	results := preview.New(preview.Options{Store: a.store, LimitFor: current.resultBound, Count: current.countTokens, Guard: translated, Log: o.Log})
	a.meter = run.NewMeter(current.countTokens)
	a.meter.Lists = run.NewListMeter(current.countTokens, func(tenant switchboard.TenantID, n switchboard.ListCost) {
		a.admin.history.CountLists(tenant, n)
		a.metrics.CountLists(tenant, n)
	}, a.memory.FreeSoon)
	a.keys = idempotency.New(a.store, translated, a.ledger.Digests().Arguments, a.metrics.CountKeyedCall, o.Log)
	a.admin.reads = admin.NewReader(admin.ReaderOptions{
		Configuration: a.served, Binder: a.binder, Runs: a.runs, Meter: a.meter, Fleet: a.fleet, Health: a.health, Store: a.store, Cluster: a.cluster,
		Ledger: a.ledger, Recorder: a.recorder, Atoms: a.atoms, Notices: a.admin.notices.Backlogs, Ready: a.ready, Stopping: a.grace.ctx,
		ProcessFacts: admin.ProcessFacts{Started: started, Version: o.Version, Addresses: a.Addresses, Changes: a.admin.changes, Findings: a.suspects.findings, Definitions: func() map[switchboard.ServerID]map[string]int {
			return countDefinitions(a.pins.Counts(), a.state.Load())
		}},
	})
	a.admin.editor = newEditor(a)
	actions := admin.NewActions(admin.ActionsOptions{
		Configuration: a.served, Revoked: a.admin.revoked, Events: a.admin.events, Fleet: a.fleet, Health: a.health, Ledger: a.ledger, Cluster: a.cluster, Store: a.store, Stopping: a.grace.ctx, Log: o.Log,
	})
	a.admin.decider = newDecider(a, current, actions)
	a.admin.proposals = newProposals(a, actions)
	a.admin.page = page.New(page.Options{
		Providers: a.admin.providers, Sessions: a.admin.sessions, Officers: func() *identity.Officers { return a.state.Load().Officers }, URL: current.adminURL,
		Tenants: func() []switchboard.TenantID { return admin.TenantIDs(a.admin.reads) }, Version: o.Version, Cursor: a.admin.events.End, API: func(officer *switchboard.Officer) http.Handler { return api.HandlerFor(a.admin.api, officer) },
		Connections: a.credentials, Document: current.clientDocument,
		Work: a.work.Go, Stopping: ctx, Failed: func(r *http.Request, err error) { a.admin.api.SlowDown(r, err) }, Opened: a.memory.FreeSoon, Log: o.Log,
	})
	scraper := &admin.Scraper{Reader: a.admin.reads, Recorder: &a.metrics, Engine: a.engine, Past: a.admin.history, Memory: a.admin.memory}
	a.admin.comparisons = whatif.New(o.Log)
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
		persons:     personWraps{approve: func(next switchboard.Caller) switchboard.Caller { return a.admin.approvals.Approve(again, next) }, connectFirst: connectFirst, admit: admit, touch: touch},
		keptResults: keptResults{results, cached, a.keys}, notices: a.admin.notices, metrics: &a.metrics, history: a.admin.history, turns: new(turn.Turns), ledger: a.ledger, health: a.health, guard: guard, limits: limits, committer: a.committer,
		inputCheck: current.inputCheck, resultChecks: resultChecks{current.cleansResults, current.permitQuestion}, log: o.Log,
	}
	a.verifier = newVerifier(a, chain)
	a.admin.acquisitions = newAcquisitions(a)
	a.admin.api = api.New(api.Options{
		Records: api.RecordOptions{
			Past: past.New(a.admin.reads, a.admin.memory), Comparisons: a.admin.comparisons,
			Compare: func(ctx context.Context, s replay.Bounds, p *replay.Proposal, progress func(done, of int)) (*replay.Diff, error) {
				a.recorder.Settle(ctx)
				return replay.CompareWithin(ctx, a.store, s, p, progress)
			},
		},
		Reader: a.admin.reads, Scraper: scraper,
		Actions: actions,
		Editor:  a.admin.editor, Events: a.admin.events, People: api.PeopleOptions{Page: a.admin.page, Sessions: a.admin.sessions, Approvals: a.admin.decider, Pins: newRegistrar(a, actions), Trier: newTrier(a), Verifier: a.verifier, Proposals: a.admin.proposals, Acquisitions: a.admin.acquisitions},
		Keys: a.keys, DigestRequest: a.ledger.Digests().AdminRequest,
		Authenticate: front{a, current}.authenticateOfficer, URL: current.adminURL, Version: o.Version, Stopping: a.grace.ctx, Log: o.Log,
	})
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
	a.reloading.start = r.config
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
	a.pins.Read(ctx)
	if err := a.evidence.Read(ctx); err != nil {
		a.Stop()
		return nil, fmt.Errorf("%s: the reports of verifications cannot be read: %w", switchboard.CodeConfig, err)
	}
	a.setServers(c.Servers)
	a.atoms.Use(c.Registry)
	a.rebuildState(ctx)
	a.work.Go(func() { a.followServers(ctx, offerSignals{changed, moved, pinsChanged}) })
	a.work.Go(func() { a.pins.Run(ctx) })
	a.work.Go(func() { a.evidence.Follow(ctx) })
	a.work.Go(func() { a.verifier.Run(ctx, func() []*switchboard.Server { return serversInForce(a) }) })
	a.work.Go(func() { a.recall.KeepOffers(ctx, a.fleet) })
	a.work.Go(func() { a.recall.KeepManifests(ctx, c, nil) })
	a.work.Go(func() { a.followClock(ctx) })
	a.work.Go(func() { a.followKeys(ctx) })
	a.work.Go(func() { a.suspects.run(ctx) })
	a.work.Go(func() { a.admin.events.Share(ctx, a.store, a.admin.revoked.CatchUp) })
	a.work.Go(func() { a.sweepExpired(ctx) })
	a.work.Go(func() { a.admin.notices.Run(ctx) })
	a.work.Go(func() { tellAsked(ctx, a) })
	a.work.Go(func() { followProposals(ctx, a) })
	a.work.Go(func() { followAcquisitions(ctx, a) })
	if len(c.Vault.Keys) > 1 {
		a.work.Go(func() { resealConnections(ctx, a.vault, o.Log) })
	}
	a.work.Go(func() { a.meter.Run(ctx) })
	a.work.Go(func() { a.meter.Lists.Run(ctx) })
	a.work.Go(func() { a.admin.history.Run(ctx) })
	a.work.Go(func() { a.admin.changes.Run(ctx) })
	a.work.Go(func() { offers.publish(ctx, a.fleet) })
	a.work.Go(func() { a.ledger.Trim(ctx) })
	if a.ledger.Durable() {
		a.work.Go(func() { a.admin.memory.Run(ctx) })
	}
	a.work.Go(func() { a.ledger.Follow(ctx) })
	a.work.Go(func() { a.runs.FollowStore(ctx) })
	a.work.Go(func() { a.grants.Run(ctx) })
	a.work.Go(func() { a.gateway.Follow(ctx) })
	a.adminAt.serve(a.newHTTPServer(showTLS(a.admin.api)), a.log)
	a.cluster.Serve(a.gateway)
	a.cluster.Join(ctx)
	return a, nil
}
