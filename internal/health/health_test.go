package health_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world has servers with configured results, and a Monitor of them.
type world struct {
	*health.Monitor
	caller switchboard.Caller // through Admit

	mu     sync.Mutex
	begun  time.Time
	dead   map[switchboard.ServerID]error // by server: the error of its calls and probes
	broken map[string]error               // by tool: the error of its calls
	calls  []string
	probes []string
	story  []string // transitions
}

func newWorld(t testing.TB, servers ...switchboard.ServerID) *world {
	var all []switchboard.Server
	for _, id := range servers {
		all = append(all, switchboard.Server{ID: id})
	}
	return watch(t, health.Options{}, all...)
}

func watch(t testing.TB, o health.Options, servers ...switchboard.Server) *world {
	w := &world{dead: map[switchboard.ServerID]error{}, broken: map[string]error{}, begun: time.Now()}
	o.Probe = func(_ context.Context, s *switchboard.Server) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.probes = append(w.probes, string(s.ID))
		return w.dead[s.ID]
	}
	o.Changed = func(tr health.Transition) {
		w.mu.Lock()
		defer w.mu.Unlock()
		who := string(tr.Server)
		if tr.Tool != "" {
			who += "/" + tr.Tool
		}
		w.story = append(w.story, fmt.Sprintf("%s %s", who, tr.To))
	}
	w.Monitor = health.New(o)
	if o.Store != nil {
		if err := w.JoinStore(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	w.caller = w.Admit(switchboard.CallerFunc(w.serve))
	w.SetServers(servers)
	for _, s := range servers {
		w.ReportLink(s.ID, true, health.Cause{})
	}
	synctest.Wait()
	w.story = nil
	t.Cleanup(w.Close)
	return w
}

func (w *world) serve(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
	time.Sleep(100 * time.Millisecond) // so that consecutive crashes count separately
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, c.Tool.ID.String())
	err := w.dead[c.Server]
	if err == nil {
		err = w.broken[c.Tool.ID.String()]
	}
	return switchboard.Result{JSON: []byte(`{}`)}, err
}

func (w *world) set(id switchboard.ServerID, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[id] = err
}

func (w *world) told() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := strings.Join(w.story, ", ")
	w.story = nil
	return s
}

// call calls "server/tool".
func (w *world) call(t testing.TB, what string) error {
	id, err := switchboard.ParseToolID(what)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.caller.Call(context.Background(), &switchboard.Call{Server: id.Server, Tool: &switchboard.Tool{ID: id}})
	return err
}

var (
	hung    = &switchboard.Error{Code: switchboard.CodeOutcomeUnknown, Text: "no answer", ServerFailed: true, Cause: errors.New("no answer in time")}
	cut     = &switchboard.Error{Code: switchboard.CodeOutcomeUnknown, Text: "cut off", ServerFailed: true, ConnectionLost: true}
	refused = &switchboard.Error{Code: switchboard.CodeServerUnreachable, Text: "refused", ServerFailed: true, Unsent: true}
	denied  = &switchboard.Error{Code: switchboard.CodeRateLimit, Text: "not now", Unsent: true}
	answer  = &switchboard.ServerError{Object: []byte(`{"code":-32602}`)}
)

func code(err error) switchboard.Code {
	if e, ok := errors.AsType[*switchboard.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestAFailingServerIsQuarantinedAndReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.set("a", hung)
		if err := w.call(t, "a/x"); !errors.Is(err, hung) {
			t.Fatal(err)
		}
		if got := w.told(); !strings.Contains(got, "a quarantine") {
			t.Fatalf("after a failed call and a failed probe: %q", got)
		}
		st, _ := w.Status("a")
		if st.Cause == nil || st.Cause.Stage != health.StageCall || st.Cause.Message != "no answer in time" || st.NextProbe.IsZero() {
			t.Errorf("the status has no cause, or no time of the next probe: %+v", st)
		}
		err := w.call(t, "a/x")
		if own, _ := errors.AsType[*switchboard.Error](err); own == nil || own.Code != switchboard.CodeNoneHealthy || !own.Unsent || own.RetryAfter <= 0 {
			t.Errorf("a call of a quarantined server ends with %#v", err)
		}
		if n := len(w.calls); n != 1 {
			t.Errorf("%d calls reached it, want 1", n)
		}
		time.Sleep(10 * time.Second) // its probes fail
		if got := w.told(); got != "" {
			t.Errorf("while its probes fail: %q", got)
		}
		w.set("a", nil)
		time.Sleep(10 * time.Second)
		if got := w.told(); !strings.Contains(got, "a probation, a healthy") {
			t.Errorf("once it works again: %q", got)
		}
		if err := w.call(t, "a/x"); err != nil {
			t.Error(err)
		}
	})
}

// Calls fail, and the probes between them succeed.
func TestAServerIsQuarantinedAfterFiveFailedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.broken["a/x"] = hung
		for i := range 5 {
			if got := w.told(); got != "" {
				t.Fatalf("after %d failures: %q", i, got)
			}
			_ = w.call(t, "a/x")
		}
		if got := w.told(); !strings.Contains(got, "a quarantine") {
			t.Errorf("after five failures: %q", got)
		}
		if n := len(w.probes); n < 5 {
			t.Errorf("it was probed %d times, want once after each failure", n)
		}
	})
}

// A tool hangs for longer than the window while other tools answer: it is quarantined alone.
func TestEightCallsOfAHangingToolDoNotQuarantineAServerWithOtherToolsThatAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		slow := w.Admit(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			time.Sleep(5 * time.Minute)
			return switchboard.Result{}, hung
		}))
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() {
				_, _ = slow.Call(t.Context(), &switchboard.Call{Server: "a", Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "hangs"}}})
			})
		}
		time.Sleep(time.Minute)
		if err := w.call(t, "a/x"); err != nil {
			t.Fatal(err)
		}
		calls.Wait()
		if got := w.told(); got != "a/hangs quarantine" {
			t.Errorf("then: %q", got)
		}
	})
}

// A server has just failed and its probe is in flight: calls that another server could take wait,
// and other calls do not.
func TestNoNewCallGoesToAServerBetweenItsFailureAndItsProbe(t *testing.T) {
	for name, tt := range map[string]struct {
		probe   error
		sibling bool // another tool of the server has just worked
	}{
		"it answers": {nil, false}, "it does not answer": {hung, false},
		"it answers, and so did another tool": {nil, true}, "it does not answer, though another tool has": {hung, true},
	} {
		probe := tt.probe
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, answers := make(chan struct{}, 9), make(chan error)
				m := health.New(health.Options{Probe: func(_ context.Context, s *switchboard.Server) error {
					if s.ID != "a" {
						return nil
					}
					asked <- struct{}{}
					return <-answers
				}})
				t.Cleanup(m.Close)
				m.SetServers([]switchboard.Server{{ID: "a"}, {ID: "b"}})
				m.ReportLink("a", true, health.Cause{})
				m.ReportLink("b", true, health.Cause{})
				fails := !tt.sibling
				reached := 0
				caller := m.Admit(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
					reached++
					if fails {
						return switchboard.Result{}, hung
					}
					return switchboard.Result{JSON: []byte(`{}`)}, nil
				}))
				call := func(others ...switchboard.ToolID) error {
					_, err := caller.Call(t.Context(), &switchboard.Call{Server: "a", Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "x"}}, Alternatives: others})
					return err
				}
				if tt.sibling {
					if _, err := caller.Call(t.Context(), &switchboard.Call{Server: "a", Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "y"}}}); err != nil {
						t.Fatal(err)
					}
					fails, reached = true, 0
					time.Sleep(time.Second)
				}
				if err := call(); err == nil {
					t.Fatal("the first call has not failed")
				}
				<-asked
				fails = false
				if err := call(); err != nil { // no other server can take it
					t.Errorf("a call without another candidate: %v", err)
				}
				done := make(chan error, 1)
				go func() { done <- call(switchboard.ToolID{Server: "b", Name: "x"}) }()
				synctest.Wait()
				if reached != 2 {
					t.Errorf("%d calls have reached the server before its probe has ended, want 2", reached)
				}
				answers <- probe
				err := <-done
				if want := map[bool]switchboard.Code{true: "", false: switchboard.CodeNoneHealthy}[probe == nil]; code(err) != want {
					t.Errorf("the call that has waited ends with %v, want %q", err, want)
				}
			})
		})
	}
}

// The gateway recovers from panics. A panic during a trial does not keep the server on probation.
func TestAPanicDuringATrialEndsTheTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := health.New(health.Options{Probe: func(context.Context, *switchboard.Server) error { return nil }})
		t.Cleanup(m.Close)
		m.SetServers([]switchboard.Server{{ID: "a"}})
		m.ReportLink("a", true, health.Cause{})
		way := "fails"
		caller := m.Admit(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			switch way {
			case "fails":
				return switchboard.Result{}, hung
			case "panics":
				panic("during the call")
			}
			return switchboard.Result{JSON: []byte(`{}`)}, nil
		}))
		call := func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("panic: %v", p)
				}
			}()
			_, err = caller.Call(t.Context(), &switchboard.Call{Server: "a", Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "x"}}})
			return err
		}
		for range 5 {
			_ = call()
			synctest.Wait()
		}
		way = "panics"
		for range 20 { // until one call is admitted, as the trial
			time.Sleep(500 * time.Millisecond)
			if err := call(); err != nil && strings.HasPrefix(err.Error(), "panic") {
				break
			}
		}
		way = "works"
		var err error
		for range 200 {
			time.Sleep(time.Second)
			if err = call(); err == nil {
				return
			}
		}
		t.Errorf("after 200 seconds: %v", err)
	})
}

// A call that fails after its server was disabled does not cause a probe.
func TestADisabledServerIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int64
		m := health.New(health.Options{Store: store.NewMemory(), Probe: func(context.Context, *switchboard.Server) error { probes.Add(1); return hung }})
		t.Cleanup(m.Close)
		m.SetServers([]switchboard.Server{{ID: "a"}})
		m.ReportLink("a", true, health.Cause{})
		end := make(chan struct{})
		caller := m.Admit(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			<-end
			return switchboard.Result{}, hung
		}))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = caller.Call(t.Context(), &switchboard.Call{Server: "a", Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "x"}}})
		}()
		synctest.Wait()
		if err := m.Disable(t.Context(), "a", "for repairs"); err != nil {
			t.Fatal(err)
		}
		close(end)
		<-done
		time.Sleep(10 * time.Second)
		if n := probes.Load(); n > 0 {
			t.Errorf("it was probed %d times", n)
		}
	})
}

// A crash cuts off all calls in flight: that is one failure. If each call waits in
// vain until its own timeout, each is a failure.
func TestCallsThatAreCutOffTogetherAreOneFailure(t *testing.T) {
	for err, rounds := range map[error]int{cut: 5, hung: 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "a")
			w.broken["a/x"] = err
			var calls sync.WaitGroup
			for round := range rounds {
				if got := w.told(); got != "" {
					t.Errorf("%v: after %d rounds: %q", err, round, got)
				}
				for range 4 {
					calls.Go(func() { _ = w.call(t, "a/x") })
				}
				calls.Wait()
			}
			if got := w.told(); !strings.Contains(got, "a quarantine") {
				t.Errorf("%v: after %d rounds: %q", err, rounds, got)
			}
		})
	}
}

// A server is unfit at once if its process has ended or its port refuses connections. A connection that
// is lost in another way may return soon.
func TestALostServerIsUnfitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.set("a", refused)
		w.ReportLink("a", false, health.Cause{Stage: "serve", Message: "reset"})
		if got := w.told(); got != "" || !w.Fit(switchboard.ToolID{Server: "a"}) {
			t.Errorf("a connection that breaks: %q", got)
		}
		w.ReportLink("a", true, health.Cause{})
		w.ReportLink("a", false, health.Cause{Stage: "serve", Message: "it has ended", Gone: true})
		if got := w.told(); got != "a lost" || w.Fit(switchboard.ToolID{Server: "a"}) {
			t.Errorf("a process that ends: %q", got)
		}
		w.ReportLink("a", true, health.Cause{})
		if got := w.told(); got != "a healthy" {
			t.Errorf("it is back: %q", got)
		}
		w.ReportLink("a", false, health.Cause{Stage: "serve", Message: "it has ended", Gone: true})
		time.Sleep(3 * time.Second)
		if got := w.told(); got != "a lost, a quarantine" {
			t.Errorf("it stays away: %q", got)
		}
	})
}

func TestAQuarantinedServerStaysQuarantinedWhenItsConnectionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.set("a", hung)
		_ = w.call(t, "a/x")
		w.told()
		w.ReportLink("a", false, health.Cause{Stage: "serve", Message: "it has ended", Gone: true})
		if got := w.told(); got != "" {
			t.Errorf("then: %q", got)
		}
	})
}

// When a server works again, its tools are tried again, too.
func TestAToolIsTriedAsSoonAsItsServerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.set("a", hung)
		for range 40 { // its quarantines grow, and its tool's as well
			_ = w.call(t, "a/x")
			time.Sleep(time.Second)
		}
		w.set("a", nil)
		var err error
		for range 4 { // calls want the server, so its probes are soon
			err = w.call(t, "a/x")
			time.Sleep(time.Second)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

func TestOnlyTheServersOwnFaultCounts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		gone  bool // the client went away
		trips bool
	}{
		{"an answer of the tool's", nil, false, false},
		{"an error that the server answers with", answer, false, false},
		{"a refusal of ours", denied, false, false},
		{"an error that says nothing", errors.New("x"), false, false},
		{"silence that the client did not wait out", hung, true, false},
		{"silence", hung, false, true},
		{"no connection", refused, false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "a")
			w.set("a", tt.err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.gone {
				cancel()
			}
			for range 50 {
				_, _ = w.caller.Call(ctx, &switchboard.Call{Server: "a", Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "x"}}})
			}
			if got := strings.Contains(w.told(), "quarantine"); got != tt.trips {
				t.Errorf("%s: quarantined %v, want %v", tt.name, got, tt.trips)
			}
		})
	}
}

func TestAToolThatFailsAloneIsQuarantinedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.broken["a/bad"] = hung
		_ = w.call(t, "a/good")
		for range 6 {
			_ = w.call(t, "a/bad")
		}
		if got := w.told(); got != "a/bad quarantine" {
			t.Fatalf("told %q", got)
		}
		if err := w.call(t, "a/good"); err != nil {
			t.Errorf("the other tool: %v", err)
		}
		if code(w.call(t, "a/bad")) != switchboard.CodeNoneHealthy {
			t.Error("the tool is called in quarantine")
		}
		if w.Fit(switchboard.ToolID{Server: "a", Name: "bad"}) || !w.Fit(switchboard.ToolID{Server: "a", Name: "good"}) {
			t.Error("the published states are wrong")
		}
		delete(w.broken, "a/bad")
		time.Sleep(3 * time.Second)
		if err := w.call(t, "a/bad"); err != nil {
			t.Error(err)
		}
		if got := w.told(); got != "a/bad probation, a/bad healthy" {
			t.Errorf("told %q", got)
		}

		// A server that reconnects may have been repaired.
		w.broken["a/bad"] = hung
		for range 5 {
			_ = w.call(t, "a/bad")
		}
		w.ReportLink("a", false, health.Cause{})
		w.ReportLink("a", true, health.Cause{})
		if got := w.told(); got != "a/bad quarantine, a/bad probation" {
			t.Errorf("told %q", got)
		}
	})
}

func TestAServerIsQuarantinedIfAllItsToolsBeginToFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		for _, tool := range []string{"a/x", "a/y", "a/x"} {
			if err := w.call(t, tool); err != nil {
				t.Fatal(err)
			}
		}
		w.set("a", hung)
		for range 3 {
			_ = w.call(t, "a/x")
			_ = w.call(t, "a/y")
		}
		if got := w.told(); got != "a quarantine" {
			t.Errorf("told %q", got)
		}
	})
}

func TestAShortLossOfTheConnectionChangesNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		lost := health.Cause{Stage: "serve", Message: "the process ended", Since: time.Now()}
		w.ReportLink("a", false, lost)
		time.Sleep(time.Second)
		w.ReportLink("a", true, health.Cause{})
		if got := w.told(); got != "" {
			t.Errorf("after a second: %q", got)
		}
		w.ReportLink("a", false, lost)
		time.Sleep(3 * time.Second)
		if got := w.told(); got != "a quarantine" {
			t.Errorf("after three seconds: %q", got)
		}
		if err := w.call(t, "a/x"); err != nil {
			t.Errorf("a call that waits for the connection: %v", err)
		}
		time.Sleep(10 * time.Second)
		if code(w.call(t, "a/x")) != switchboard.CodeNoneHealthy {
			t.Error("a call still waits after ten seconds")
		}
		w.ReportLink("a", true, health.Cause{})
		if got := w.told(); got != "a healthy" {
			t.Errorf("when it is back: %q", got)
		}
	})
}

func TestProbesQuarantineASilentServerWithoutCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(w.probes) < 4 || len(w.probes) > 10 {
			t.Errorf("%d probes of two idle servers in two minutes", len(w.probes))
		}
		w.set("b", errors.New("no pong"))
		time.Sleep(time.Minute)
		if got := w.told(); got != "b quarantine" {
			t.Errorf("told %q", got)
		}
		if st, _ := w.Status("b"); st.Cause == nil || st.Cause.Stage != health.StageProbe || st.Cause.Message != "no pong" {
			t.Errorf("status: %+v", st)
		}
	})
}

func TestADisabledServerTakesNoCallsUntilItIsEnabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		if err := w.Disable(t.Context(), "a", "upgrade"); err != nil {
			t.Error(err)
		}
		if code(w.call(t, "a/x")) != switchboard.CodeNoneHealthy || len(w.calls) != 0 {
			t.Error("it is called")
		}
		synctest.Wait()
		// A reload, or a change of its address, does not enable it.
		w.SetServers([]switchboard.Server{{ID: "a", URL: "http://other"}})
		w.ReportLink("a", true, health.Cause{})
		if code(w.call(t, "a/x")) != switchboard.CodeNoneHealthy || w.Fit(switchboard.ToolID{Server: "a"}) {
			t.Error("a reload has enabled it")
		}
		if err := w.Enable(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if err := w.call(t, "a/x"); err != nil {
			t.Error(err)
		}
		if got := w.told(); got != "a disabled, a healthy" {
			t.Errorf("told %q", got)
		}
	})
}

func TestAServerOfUnknownHealthIsUnfit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.SetServers([]switchboard.Server{{ID: "a"}})
		if w.Fit(switchboard.ToolID{Server: "a", Name: "x"}) {
			t.Error("a server that has not answered is fit")
		}
		w.ReportLink("a", false, health.Cause{Stage: "connect", Message: "no such file"})
		if got := w.told(); got != "a quarantine" {
			t.Errorf("told %q", got)
		}
		w.ReportLink("a", true, health.Cause{})
		if !w.Fit(switchboard.ToolID{Server: "a", Name: "x"}) {
			t.Error("it is not fit though it has answered")
		}
		w.SetServers(nil)
		if len(w.Unfit()) != 0 {
			t.Errorf("states of removed servers remain: %v", w.Unfit())
		}
	})
}

// A probe of a closed port costs little, so it is repeated soon while clients want the server.
// A server that is there and fails gets a longer pause, and so does one that no client wants.
func TestAnUnreachableServerIsProbedSoonerThanAFailingOne(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fails  error
		asked  bool
		most   time.Duration // from the server's return to the first answer
		least  time.Duration
		probes int // at most, while it fails
	}{
		{"unreachable, and calls want it", refused, true, 150 * time.Millisecond, 0, 8},
		{"unreachable, without calls", refused, false, time.Minute, 200 * time.Millisecond, 1},
		{"failing", hung, true, time.Second, 500 * time.Millisecond, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				time.Sleep(10 * time.Second)
				w.set("a", tt.fails)
				for range 5 {
					_ = w.call(t, "a/x")
				}
				if got := w.told(); !strings.Contains(got, "a quarantine") {
					t.Fatal(got)
				}
				began := time.Now()
				works := began.Add(350 * time.Millisecond)
				for fit := false; !fit; fit = w.Fit(switchboard.ToolID{Server: "a", Name: "x"}) {
					time.Sleep(10 * time.Millisecond)
					if time.Now().Equal(works) {
						w.mu.Lock()
						if n := len(w.probes); n > tt.probes {
							t.Errorf("it was probed %d times", n)
						}
						w.mu.Unlock()
						w.set("a", nil)
					}
					if st, _ := w.Status("a"); tt.asked || st.State == health.Probation {
						_ = w.call(t, "a/x")
					}
				}
				if took := time.Since(works); took < tt.least || took > tt.most+100*time.Millisecond {
					t.Errorf("it serves %s after it is back", took)
				}
			})
		})
	}
}

// The early probes of an unreachable server do not lengthen its quarantine, and their
// number is limited.
func TestAnUnreachableServerIsNotProbedTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.set("a", refused)
		until := time.Now().Add(time.Minute)
		for time.Now().Before(until) {
			_ = w.call(t, "a/x")
			time.Sleep(10 * time.Millisecond)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.probes); n < 40 || n > 90 {
			t.Errorf("it was probed %d times in a minute", n)
		}
	})
}

func TestALinkReportDuringSetIsNotLost(t *testing.T) {
	for range 200 {
		m := health.New(health.Options{})
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			for {
				if _, ok := m.Status("a"); ok {
					m.ReportLink("a", true, health.Cause{})
					return
				}
				runtime.Gosched()
			}
		}()
		m.SetServers([]switchboard.Server{{ID: "a"}})
		<-heard
		if st, _ := m.Status("a"); st.State != health.Healthy || len(m.Unfit()) > 0 {
			t.Fatalf("it is %s, and not fit: %v", st.State, m.Unfit())
		}
		m.Close()
	}
}

func TestCloseWaitsForTheGoroutinesOfAConcurrentSet(t *testing.T) {
	var servers []switchboard.Server
	for i := range 20 {
		servers = append(servers, switchboard.Server{ID: switchboard.ServerID(fmt.Sprint("s", i))})
	}
	for range 50 {
		m := health.New(health.Options{})
		set := make(chan struct{})
		go func() {
			defer close(set)
			m.SetServers(servers)
		}()
		for ok := false; !ok; _, ok = m.Status("s0") {
			runtime.Gosched()
		}
		m.Close()
		<-set
	}
}
