package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// ends is a Caller that ends each call as its Target says.
var ends = switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
	switch c.Target {
	case "":
		return switchboard.Result{}, nil
	case "answer":
		return switchboard.Result{}, fmt.Errorf("wrapped: %w", &switchboard.ServerError{Server: c.Server})
	case "cancelled":
		return switchboard.Result{}, fmt.Errorf("wrapped: %w", context.Canceled)
	case "strange":
		return switchboard.Result{}, errors.New("strange")
	}
	return switchboard.Result{}, switchboard.Refuse(switchboard.Code(c.Target), "no")
})

// busy returns a Recorder that has counted some of each event.
func busy(t *testing.T) *Recorder {
	t.Helper()
	r := &Recorder{}
	all := r.Calls(r.Attempts(ends))
	for _, target := range []string{"", "", "", "answer", "cancelled", "strange", "SB-EXEC-001", "SB-EXEC-001", "SB-NONE-999"} {
		for _, tenant := range []switchboard.TenantID{"acme", "beta"} {
			_, _ = all.Call(t.Context(), &switchboard.Call{Principal: switchboard.Principal{Tenant: tenant}, Server: "files", Target: target})
		}
	}
	r.CountRefusal("SB-AUTH-001")
	r.CountRefusal("SB-NONE-999")
	r.CountMove("files", "search")
	r.CountStateChange("files", false, "quarantine", "call")
	r.CountStateChange("files", true, "quarantine", "call")
	r.CountDefinitionChange("files", "frozen", "words")
	r.CountDefinitionChange("files", "frozen", "words")
	r.CountDefinitionChange("search", "active", "")
	r.CountProbe("files", nil)
	r.CountProbe("search", errors.New("no"))
	r.CountStoreOperation("apply", "ok", time.Millisecond)
	r.CountStoreOperation("apply", "conflict", time.Millisecond)
	r.CountHop("answered")
	r.CountHop("gone")
	r.CountKeyedCall("first")
	r.CountCacheableCall("hit")
	r.CountNotice("oncall", "delivered")
	r.CountNotice("oncall", "delivered")
	r.CountNotice("oncall", "given_up")
	r.CountAtomProbe(true)
	r.CountAtomProbe(true)
	r.CountAtomProbe(false)
	r.CountReload(false, nil)
	r.CountReload(true, nil)
	r.CountReload(true, nil)
	r.CountReload(false, errors.New("no"))
	return r
}

func view() *View {
	return &View{
		Version: "v1", Configuration: "sha256:0123456789abcdef", Refused: true, Faulty: 12, States: []string{"healthy", "quarantine"}, AllTenants: true, Tools: 3, Runs: 4, Sessions: 5, Streams: 6, Evaluations: 7, FailedEvaluations: 1, OverrunEvaluations: 11, OverdueEvaluations: 2, LostRecords: 2, WaitingReceipts: 8, MemoryLag: &MemoryLag{300, 1.5}, TakenOverSessions: 9, RestoredRuns: 10, StoreKind: "redis", StoreFault: true,
		Atoms: map[string]int{"fresh": 3, "red": 1},
		Servers: []Server{
			{ID: "files", State: "healthy", Connections: 1, InFlight: 2, Waiting: 3, Restarts: 4, Definitions: map[string]int{"frozen": 2, "suspended": 0}},
			{ID: "search", State: "quarantine", Definitions: map[string]int{"active": 1}},
		},
	}
}

// scraped returns the series of a scrape with their values.
func scraped(t *testing.T, r *Recorder, v *View) map[string]float64 {
	t.Helper()
	kind, text, err := r.Scrape(v, http.Header{})
	if err != nil || !strings.HasPrefix(kind, "text/plain; version=0.0.4") {
		t.Fatalf("%q, %v", kind, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	got := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			series := strings.TrimPrefix(name, "switchboard_") + "{" + strings.Join(labels, ",") + "}"
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				got[series] = float64(m.Histogram.GetSampleCount())
			case dto.MetricType_COUNTER:
				got[series] = m.Counter.GetValue()
			default:
				got[series] = m.Gauge.GetValue()
			}
		}
	}
	return got
}

func TestAScrapeHasEveryCount(t *testing.T) {
	got := scraped(t, busy(t), view())
	for series, want := range map[string]float64{
		"calls_total{ok,files,acme}":                               3,
		"calls_total{server_error,files,acme}":                     1,
		"calls_total{cancelled,files,beta}":                        1,
		"calls_total{internal,files,beta}":                         2, // with the unknown code
		"calls_total{SB-EXEC-001,files,beta}":                      2,
		"calls_moved_total{files,search}":                          1,
		"refusals_total{SB-AUTH-001}":                              1,
		"server_calls_total{SB-EXEC-001,files}":                    4,
		"server_call_duration_seconds{files}":                      18,
		"server_calls_in_flight{files}":                            2,
		"server_calls_waiting{files}":                              3,
		"server_state{files,healthy}":                              1,
		"server_state{files,quarantine}":                           0,
		"server_state{search,quarantine}":                          1,
		"server_state_changes_total{call,server,files,quarantine}": 1,
		"server_state_changes_total{call,tool,files,quarantine}":   1,
		"server_probes_total{ok,files}":                            1,
		"server_probes_total{failed,search}":                       1,
		"definitions{files,frozen}":                                2,
		"definitions{files,suspended}":                             0,
		"definition_changes_total{words,files,frozen}":             2,
		"definition_changes_total{,search,active}":                 1,
		"server_connections{files}":                                1,
		"server_restarts_total{files}":                             4,
		"catalog_tools{}":                                          3,
		"runs{}":                                                   4,
		"sessions{}":                                               5,
		"streams{}":                                                6,
		"reloads_total{ok}":                                        1,
		"reloads_total{unchanged}":                                 2,
		"reloads_total{refused}":                                   1,
		"configuration_hash{}":                                     0x0123456789ab,
		"configuration_refused{}":                                  1,
		"configuration_faulty_parts{}":                             12,
		"policy_evaluations_total{}":                               7,
		"policy_evaluation_failures_total{}":                       1,
		"policy_evaluations_ran_over_total{}":                      11,
		"policy_evaluations_overdue{}":                             2,
		"records_lost_total{}":                                     2,
		"receipts_waiting{}":                                       8,
		"memory_lag_receipts{}":                                    300,
		"memory_lag_seconds{}":                                     1.5,
		"sessions_taken_over_total{}":                              9,
		"runs_restored_total{}":                                    10,
		"hops_total{answered}":                                     1,
		"hops_total{gone}":                                         1,
		"idempotent_calls_total{first}":                            1,
		"cacheable_calls_total{hit}":                               1,
		"notices_total{delivered,oncall}":                          2,
		"notices_total{given_up,oncall}":                           1,
		"atoms{fresh}":                                             3,
		"atoms{red}":                                               1,
		"atom_probes_total{ok}":                                    2,
		"atom_probes_total{failed}":                                1,
		"store_operations_total{apply,ok}":                         1,
		"store_operations_total{apply,conflict}":                   1,
		"store_operation_duration_seconds{apply}":                  2,
		"store_available{redis}":                                   0,
	} {
		if n, ok := got[series]; !ok || n != want {
			t.Errorf("%s is %v, present %v; want %v", series, n, ok, want)
		}
	}
	if got["go_goroutines{}"] == 0 || got["process_resident_memory_bytes{}"] == 0 {
		t.Errorf("the metrics of the process are missing: %v", got)
	}
}

func TestATenantSeesNothingOfOthers(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	v := view()
	v.AllTenants, v.Tenant, v.Servers = false, "acme", v.Servers[:1]
	r := busy(t)
	r.CountStateChange("search", false, "quarantine", "secret-of-search")
	r.CountDefinitionChange("search", "suspended", "freer")
	for series := range scraped(t, r, v) {
		name, labels, _ := strings.Cut(series, "{")
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		allowed := []string{"build_info", "catalog_tools", "configuration_hash", "configuration_refused", "configuration_faulty_parts", "calls_total", "server_state", "server_state_changes_total", "server_probes_total", "server_connections", "server_restarts_total", "definitions", "definition_changes_total"}
		if !slices.Contains(allowed, name) || strings.Contains(labels, "beta") || strings.Contains(labels, "search") {
			t.Errorf("acme sees %s", series)
		}
	}
}

func TestPrometheusLintsTheMetricsWithoutFindings(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(&scrapeCollector{busy(t), view()})
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	for _, accept := range []string{"", "text/plain", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "no/such"} {
		if kind, text, err := busy(t).Scrape(view(), http.Header{"Accept": {accept}}); err != nil || len(text) == 0 || kind == "" {
			t.Errorf("%q: %q, %v", accept, kind, err)
		}
	}
}

func TestEveryMetricHasARowInTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	descs := make(chan *prometheus.Desc, 100)
	(&scrapeCollector{}).Describe(descs)
	close(descs)
	n := 0
	for d := range descs {
		n++
		name := strings.Split(d.String(), `"`)[1]
		if !strings.Contains(string(page), "\n| `"+name+"`") {
			t.Errorf("docs/operate.md has no row for %s", name)
		}
	}
	if rows := strings.Count(string(page), "\n| `switchboard_"); rows != n {
		t.Errorf("docs/operate.md has %d rows, and there are %d metrics", rows, n)
	}
}

func TestCountsOfConcurrentCallsAreExact(t *testing.T) {
	r := &Recorder{}
	all := r.Calls(r.Attempts(ends))
	const callers, calls, servers = 8, 500, 20
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			for i := range calls {
				_, _ = all.Call(t.Context(), &switchboard.Call{Server: switchboard.ServerID(fmt.Sprint("s", i%servers)), Principal: switchboard.Principal{Tenant: "acme"}})
			}
		})
	}
	work.Wait()
	got := scraped(t, r, view())
	for i := range servers {
		if n := got[fmt.Sprintf("calls_total{ok,s%d,acme}", i)]; n != callers*calls/servers {
			t.Errorf("server %d: %v calls", i, n)
		}
		if n := got[fmt.Sprintf("server_call_duration_seconds{s%d}", i)]; n != callers*calls/servers {
			t.Errorf("server %d: %v times", i, n)
		}
	}
}

func TestTheCountsHaveRoomForEveryOutcome(t *testing.T) {
	if len(outcomes) > maxOutcomes || len(codeIndex) != len(outcomes) {
		t.Errorf("%d outcomes, %d different, and room for %d", len(outcomes), len(codeIndex), maxOutcomes)
	}
	if want := []string{outcomeOK, outcomeServerError, outcomeCancelled, outcomeInternal}; !reflect.DeepEqual(outcomes[:4], want) {
		t.Errorf("they begin with %v", outcomes[:4])
	}
}

func TestCountingACallAllocatesNothing(t *testing.T) {
	r := &Recorder{}
	all := r.Calls(r.Attempts(ends))
	c := &switchboard.Call{Server: "files", Principal: switchboard.Principal{Tenant: "acme"}}
	if n := testing.AllocsPerRun(1000, func() { _, _ = all.Call(t.Context(), c) }); n != 0 {
		t.Errorf("%v allocations for each call", n)
	}
}

func BenchmarkCounting(b *testing.B) {
	r := &Recorder{}
	for _, one := range []struct {
		name   string
		caller switchboard.Caller
	}{{"nothing", ends}, {"calls", r.Calls(ends)}, {"calls and attempts", r.Calls(r.Attempts(ends))}} {
		b.Run(one.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range 30 { // as many as an installation may have
				_, _ = one.caller.Call(b.Context(), &switchboard.Call{Server: switchboard.ServerID(fmt.Sprint("server-", i)), Principal: switchboard.Principal{Tenant: "acme"}})
			}
			c := &switchboard.Call{Server: "server-7", Principal: switchboard.Principal{Tenant: "acme"}}
			for b.Loop() {
				_, _ = one.caller.Call(b.Context(), c)
			}
		})
	}
}

func TestADurationCountsInTheFirstBucketThatHoldsIt(t *testing.T) {
	for d, want := range map[time.Duration]int{0: 0, time.Millisecond: 0, time.Millisecond + 1: 1, 100 * time.Millisecond: 6, time.Minute: len(bucketBounds) - 1, time.Hour: len(bucketBounds)} {
		if got := bucketIndex(d); got != want {
			t.Errorf("%v falls into bucket %d, want %d", d, got, want)
		}
	}
	var s series
	for _, d := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, time.Hour} {
		s.took[bucketIndex(d)].Add(1)
		s.nanoseconds.Add(int64(d))
	}
	var m dto.Metric
	if err := s.histogram(durations, "files").Write(&m); err != nil {
		t.Fatal(err)
	}
	h := m.Histogram
	if h.GetSampleCount() != 4 || h.GetSampleSum() != 3600.003 || h.Bucket[0].GetCumulativeCount() != 2 || h.Bucket[1].GetCumulativeCount() != 3 || h.Bucket[len(bucketBounds)-1].GetCumulativeCount() != 3 {
		t.Errorf("the histogram is %v", h)
	}
}

func TestACallThatItsClientCancelsCountsAsCancelledAlsoWithAnUnknownOutcome(t *testing.T) {
	unknown := switchboard.Refuse(switchboard.CodeOutcomeUnknown, "it may have been executed")
	stopping := switchboard.Refuse(switchboard.CodeOverloaded, "Switchboard is stopping")
	for _, tt := range []struct {
		name  string
		cause error
		want  string
	}{
		{"its client cancels it", errors.New("cancelled by the client"), outcomeCancelled},
		{"its client has gone", context.Canceled, outcomeCancelled},
		{"we stop", stopping, string(unknown.Code)},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(tt.cause)
		if got := outcomes[outcomeIndex(ctx, unknown)]; got != tt.want {
			t.Errorf("%s: counted as %s, want %s", tt.name, got, tt.want)
		}
	}
	if got := outcomes[outcomeIndex(t.Context(), unknown)]; got != string(unknown.Code) {
		t.Errorf("without a cancellation: counted as %s", got)
	}
}
