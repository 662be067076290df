package telemetry

import (
	"bytes"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A View holds the values of the moment, and the counts that other packages keep.
type View struct {
	Version string
	Servers []Server
	States  []string // all states that a server can have
	Tools   int      // in the catalog

	// AllTenants says that the caller may see the numbers of all tenants. Otherwise it sees only those of Tenant.
	AllTenants bool
	Tenant     switchboard.TenantID

	// Configuration is the digest of the served configuration; "" if there are no replicas to compare it
	// with. Refused says that a newer configuration was refused. Faulty is how many parts of the
	// configuration are faulty.
	Configuration switchboard.Digest
	Refused       bool
	Faulty        int

	Currency string // of all prices; "" if it has no name

	// Budgets has the budgets of Tenant; those of all tenants if AllTenants is set.
	Budgets []BudgetFigure

	// The next fields are served only if AllTenants is set.
	Atoms                                  map[string]int // the number of atoms by state; nil if there are none
	Runs, Sessions, Streams                int
	Evaluations, FailedEvaluations         int64 // evaluations of policies, and how many of them failed
	OverrunEvaluations, OverdueEvaluations int64 // how many of them ran longer than their time limit, and how many do so now
	LostRecords                            int64 // decisions that could not be recorded
	WaitingReceipts                        int   // receipts that wait to be written
	MemoryLag                              *MemoryLag
	TakenOverSessions, RestoredRuns        int64 // sessions and runs, from other replicas
	StoreKind                              string
	StoreFault                             bool
}

// A MemoryLag says how far the memory of tools is behind the receipts; nil if that is not known now.
type MemoryLag struct {
	Receipts uint64
	Seconds  float64 // since the oldest of these receipts was written
}

// A BudgetFigure holds the values of one budget, for its present window. They are for people: budgets themselves count whole numbers.
type BudgetFigure struct {
	Tenant switchboard.TenantID
	Budget string // its name
	Unit   string // "calls", the currency, or ""

	Limit, Settled, Held float64

	// HasLimit says that the budget has one account. Otherwise each account has the limit, and the others are sums.
	HasLimit bool
}

// A Server holds the values of one server.
type Server struct {
	ID    switchboard.ServerID
	State string // one of View.States

	Connections, InFlight, Waiting int
	Restarts                       int64

	// Definitions counts the definitions that the server offers, by each state that a definition can have; nil if the server has offered nothing.
	Definitions map[string]int
}

// Scrape returns all counts and the view, in the format that the headers of the request ask for, and the
// content type of that format.
func (r *Recorder) Scrape(v *View, accept http.Header) (contentType string, text []byte, err error) {
	own := prometheus.NewPedanticRegistry()
	if err := own.Register(&scrapeCollector{r, v}); err != nil {
		return "", nil, err
	}
	families, err := prometheus.Gatherers{own, r.process.registry()}.Gather()
	if err != nil {
		return "", nil, err
	}
	format := expfmt.NegotiateAccept(accept, expfmt.DefaultAcceptedFormats()...)
	var b bytes.Buffer
	enc := expfmt.NewEncoder(&b, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return "", nil, err
		}
	}
	return string(format), b.Bytes(), nil
}

// A processRegistry holds the metrics of the process and the Go runtime. It is made at the first scrape.
type processRegistry struct {
	once sync.Once
	r    *prometheus.Registry
}

func (p *processRegistry) registry() *prometheus.Registry {
	p.once.Do(func() {
		p.r = prometheus.NewRegistry()
		p.r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	})
	return p.r
}

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("switchboard_"+name, help, labels, nil)
}

// The metrics. docs/operate.md has a row for each of them.
var (
	buildInfo = newDesc("build_info", "What runs; always 1.", "version", "goversion")

	callsTotal           = newDesc("calls_total", "Calls of clients, by tenant, the server that they were for, and their outcome: ok, server_error, cancelled, internal or the code of a refusal.", "tenant", "server", "outcome")
	callsMoved           = newDesc("calls_moved_total", "Calls that another server served, by the server that they were for and the one that served them.", "from", "to")
	refusals             = newDesc("refusals_total", "Refusals to clients, of calls and other requests, by code.", "code")
	attempts             = newDesc("server_calls_total", "Calls sent to each server, by outcome; a call that moves counts at each server.", "server", "outcome")
	durations            = newDesc("server_call_duration_seconds", "Duration of the calls sent to each server.", "server")
	inFlight             = newDesc("server_calls_in_flight", "Calls in flight at each server.", "server")
	waiting              = newDesc("server_calls_waiting", "Calls that wait for a slot at each server.", "server")
	states               = newDesc("server_state", "1 for the state that each server is in, 0 for the others.", "server", "state")
	stateChange          = newDesc("server_state_changes_total", "Changes of the state of each server, or of single tools of it, by the new state and the stage where the trouble began.", "server", "of", "state", "cause")
	probed               = newDesc("server_probes_total", "Probes of each server, by result: ok or failed.", "server", "result")
	connections          = newDesc("server_connections", "Processes or sessions of each server.", "server")
	restarts             = newDesc("server_restarts_total", "How often each server came back.", "server")
	definitions          = newDesc("definitions", "Definitions that each server offers, by their state: active, frozen, testing, deprecated, suspended, retired, new or kept_out.", "server", "state")
	definitionChanges    = newDesc("definition_changes_total", "Changes of the states of definitions without a person's decision, by the new state and by the class of the offered definition.", "server", "state", "class")
	configurationHash    = newDesc("configuration_hash", "A number that is the same for all replicas that serve the same configuration.")
	configurationRefused = newDesc("configuration_refused", "1 while the newest configuration is refused and an older one is served; else 0.")
	configurationFaulty  = newDesc("configuration_faulty_parts", "Parts of the configuration with faults: tenants, tools, files of overlays, manifests.")
	tools                = newDesc("catalog_tools", "Tools in the catalog.")
	runs                 = newDesc("runs", "Runs in memory.")
	sessions             = newDesc("sessions", "Sessions of clients of the legacy era.")
	streams              = newDesc("streams", "Streams that bring notifications to clients.")
	reloads              = newDesc("reloads_total", "Readings of the configuration after the first, by result: ok, unchanged or refused.", "result")
	evaluations          = newDesc("policy_evaluations_total", "Evaluations of policies.")
	unjudged             = newDesc("policy_evaluation_failures_total", "Evaluations of policies that failed and therefore denied.")
	ranOver              = newDesc("policy_evaluations_ran_over_total", "Evaluations of policies that ran longer than their time limit.")
	overdue              = newDesc("policy_evaluations_overdue", "Evaluations of policies that are running now beyond their time limit.")
	unrecorded           = newDesc("records_lost_total", "Receipts, and the texts that they refer to, that could not be written.")
	unwritten            = newDesc("receipts_waiting", "Receipts that wait to be written.")
	lagReceipts          = newDesc("memory_lag_receipts", "Receipts of all replicas that are not counted in the memory of tools yet.")
	lagSeconds           = newDesc("memory_lag_seconds", "How long ago the oldest of these receipts was written; 0 if there are none.")
	hops                 = newDesc("hops_total", "Requests that were forwarded to another replica, by outcome: answered, gone, broken, cut or unavailable.", "outcome")
	takenOver            = newDesc("sessions_taken_over_total", "Sessions of clients of the legacy era that were taken over from another replica.")
	restored             = newDesc("runs_restored_total", "Runs that were restored from the state that another replica had stored.")
	keyed                = newDesc("idempotent_calls_total", "Calls with an idempotency key, by outcome: first, replayed, waited, conflict, unknown, cancelled or unavailable.", "outcome")
	cached               = newDesc("cacheable_calls_total", "Calls with a result that may be cached, by outcome: hit, shared or miss.", "outcome")
	noticed              = newDesc("notices_total", "Attempts to deliver notices, by recipient and outcome: delivered or failed; and notices that were given up: given_up.", "recipient", "outcome")
	atoms                = newDesc("atoms", "What capabilities depend on, by state: fresh, stale, unknown or red.", "state")
	atomProbed           = newDesc("atom_probes_total", "Probes of what capabilities depend on, by result: ok or failed.", "result")
	stored               = newDesc("store_operations_total", "Operations of the store, by outcome: ok, conflict, unavailable, invalid or cancelled.", "operation", "outcome")
	storing              = newDesc("store_operation_duration_seconds", "Duration of the operations of the store.", "operation")
	budgetLimit          = newDesc("budget_limit", "The limit of each budget of a whole tenant, in its present window. Amounts are of the currency, or numbers of calls.", "tenant", "budget", "unit")
	budgetSettled        = newDesc("budget_settled", "What is settled in each budget, in its present window: the sum over all accounts of the budget.", "tenant", "budget", "unit")
	budgetHeld           = newDesc("budget_held", "What is held in each budget for calls that are not settled yet, in its present window: the sum over all accounts of the budget.", "tenant", "budget", "unit")
	spentTotal           = newDesc("spent_total", "What was settled for attempts at each server, by tenant. Amounts are of the currency.", "tenant", "server", "unit")
	listsTotal           = newDesc("lists_total", "Lists of tools that clients got, of tasks with tools of servers, by tenant.", "tenant")
	listTokens           = newDesc("list_tokens_total", "Tokens of the definitions in lists of tools, and of the answers of stubs, by tenant.", "tenant")
	fullListTokens       = newDesc("full_list_tokens_total", "Tokens of all definitions that the servers behind these lists offer, once for each list, by tenant.", "tenant")
	listsUncounted       = newDesc("lists_uncounted_total", "Lists and answers of stubs that are in no other metric of lists, because too many waited to be counted, by tenant.", "tenant")
	available            = newDesc("store_available", "1 while the store can be used, 0 while it cannot.", "kind")
)

// A scrapeCollector collects all metrics once. It implements prometheus.Collector.
type scrapeCollector struct {
	r *Recorder
	v *View
}

// Describe implements prometheus.Collector.
func (s *scrapeCollector) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		buildInfo, callsTotal, callsMoved, refusals, attempts, durations, inFlight, waiting, states, stateChange, probed, connections,
		restarts, definitions, definitionChanges, configurationHash, configurationRefused, configurationFaulty, tools, runs, sessions, streams, reloads, evaluations, unjudged, ranOver, overdue, unrecorded, unwritten, lagReceipts, lagSeconds, hops, takenOver, restored, keyed, cached, noticed, atoms, atomProbed, stored, storing, budgetLimit, budgetSettled, budgetHeld, spentTotal, listsTotal, listTokens, fullListTokens, listsUncounted, available,
	} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (s *scrapeCollector) Collect(c chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	ended := func(d *prometheus.Desc, counts *[maxOutcomes]atomic.Int64, labels ...string) {
		for i, outcome := range outcomes {
			if n := counts[i].Load(); n > 0 || i == indexOK {
				count(d, n, append(slices.Clip(labels), outcome)...)
			}
		}
	}
	r, v := s.r, s.v
	gauge(buildInfo, 1, v.Version, runtime.Version())
	gauge(tools, v.Tools)
	gauge(configurationRefused, gaugeOf(v.Refused))
	gauge(configurationFaulty, v.Faulty)
	if n, ok := digestPrefix(v.Configuration); ok {
		gauge(configurationHash, n)
	}
	for i := range v.Budgets {
		b := &v.Budgets[i]
		amount := func(d *prometheus.Desc, n float64) {
			c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, string(b.Tenant), b.Budget, b.Unit)
		}
		if b.HasLimit {
			amount(budgetLimit, b.Limit)
		}
		amount(budgetSettled, b.Settled)
		amount(budgetHeld, b.Held)
	}
	mine := map[switchboard.ServerID]bool{}
	for _, server := range v.Servers {
		id := string(server.ID)
		mine[server.ID] = true
		for _, state := range v.States {
			gauge(states, gaugeOf(state == server.State), id, state)
		}
		gauge(connections, server.Connections, id)
		count(restarts, server.Restarts, id)
		for state, n := range server.Definitions {
			gauge(definitions, n, id, state)
		}
		if v.AllTenants {
			gauge(inFlight, server.InFlight, id)
			gauge(waiting, server.Waiting, id)
		}
	}
	for k, n := range r.calls.values() {
		if v.AllTenants || k.tenant == v.Tenant {
			ended(callsTotal, &n.ended, string(k.tenant), string(k.server))
		}
	}
	for tenant, n := range r.costs.lists.values() {
		if v.AllTenants || tenant == v.Tenant {
			count(listsTotal, n.lists.Load(), string(tenant))
			count(listTokens, n.tokens.Load(), string(tenant))
			count(fullListTokens, n.full.Load(), string(tenant))
			count(listsUncounted, n.uncounted.Load(), string(tenant))
		}
	}
	for k, n := range r.costs.spent.values() {
		if v.AllTenants || k.tenant == v.Tenant {
			c <- prometheus.MustNewConstMetric(spentTotal, prometheus.CounterValue, float64(n.Load())/1e6, string(k.tenant), string(k.server), v.Currency)
		}
	}
	for k, n := range r.changes.values() {
		if v.AllTenants || mine[k.server] {
			count(stateChange, n.Load(), string(k.server), k.what, k.to, k.cause)
		}
	}
	for k, n := range r.pins.values() {
		if v.AllTenants || mine[k.server] {
			count(definitionChanges, n.Load(), string(k.server), k.state, k.class)
		}
	}
	for k, n := range r.probes.values() {
		if v.AllTenants || mine[k.server] {
			count(probed, n.Load(), string(k.server), k.result())
		}
	}
	if !v.AllTenants {
		return
	}
	for id, n := range r.attempts.values() {
		ended(attempts, &n.ended, string(id))
		c <- n.histogram(durations, string(id))
	}
	for k, n := range r.movedCalls.values() {
		count(callsMoved, n.Load(), string(k[0]), string(k[1]))
	}
	for i, code := range outcomes {
		if n := r.refusals[i].Load(); n > 0 {
			count(refusals, n, code)
		}
	}
	for i, result := range reloadResults {
		count(reloads, r.reloads[i].Load(), result)
	}
	gauge(runs, v.Runs)
	gauge(sessions, v.Sessions)
	gauge(streams, v.Streams)
	count(evaluations, v.Evaluations)
	count(unjudged, v.FailedEvaluations)
	count(ranOver, v.OverrunEvaluations)
	gauge(overdue, int(v.OverdueEvaluations))
	count(unrecorded, v.LostRecords)
	gauge(unwritten, v.WaitingReceipts)
	if lag := v.MemoryLag; lag != nil {
		c <- prometheus.MustNewConstMetric(lagReceipts, prometheus.GaugeValue, float64(lag.Receipts))
		c <- prometheus.MustNewConstMetric(lagSeconds, prometheus.GaugeValue, lag.Seconds)
	}
	count(takenOver, v.TakenOverSessions)
	count(restored, v.RestoredRuns)
	for d, counts := range map[*prometheus.Desc]*lockFreeMap[string, atomic.Int64]{hops: &r.hops, keyed: &r.keyedCalls, cached: &r.cacheableCalls} {
		for outcome, n := range counts.values() {
			count(d, n.Load(), outcome)
		}
	}
	for k, n := range r.notices.values() {
		count(noticed, n.Load(), k.recipient, k.outcome)
	}
	for state, n := range v.Atoms {
		gauge(atoms, n, state)
	}
	for i, result := range probeResults {
		if len(v.Atoms) > 0 {
			count(atomProbed, r.atomProbes[i].Load(), result)
		}
	}
	for k, n := range r.storeOperations.values() {
		count(stored, n.Load(), k.what, k.outcome)
	}
	for what, n := range r.storeTimes.values() {
		c <- n.histogram(storing, what)
	}
	if v.StoreKind != "" {
		gauge(available, gaugeOf(!v.StoreFault), v.StoreKind)
	}
}

// gaugeOf returns 1 for true and 0 for false.
func gaugeOf(so bool) int {
	if so {
		return 1
	}
	return 0
}

// digestPrefix returns the beginning of a digest as a number that a float64 holds exactly; ok is false if
// there is no digest.
func digestPrefix(d switchboard.Digest) (n int, ok bool) {
	const digits = 12
	_, hex, _ := strings.Cut(string(d), ":")
	if len(hex) < digits {
		return 0, false
	}
	u, err := strconv.ParseUint(hex[:digits], 16, 64)
	return int(u), err == nil //nolint:gosec // 48 bits
}

// histogram returns the durations as a metric. A call that ends during the scrape is in all buckets or in
// none; the sum may have it alone.
func (s *series) histogram(d *prometheus.Desc, label string) prometheus.Metric {
	buckets, total := make(map[float64]uint64, len(bucketBounds)), uint64(0)
	for i := range s.took {
		total += uint64(s.took[i].Load()) //nolint:gosec // it only grows
		if i < len(bucketBounds) {
			buckets[bucketBounds[i].Seconds()] = total
		}
	}
	return prometheus.MustNewConstHistogram(d, total, float64(s.nanoseconds.Load())/1e9, buckets, label)
}

func (p serverProbe) result() string { return probeResults[gaugeOf(p.good)] }
