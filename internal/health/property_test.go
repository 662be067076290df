package health_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// After any sequence of events: a server in quarantine, or disabled, is not
// called, and a server on probation gets one call at a time.
func TestNoSequenceOfEventsCallsAnUnfitServerExceptForOneTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) { // a T itself has no deadline in a bubble
			var m *health.Monitor
			var inFlight, trials atomic.Int64
			var fails atomic.Bool
			took := time.Duration(0)
			state := func() health.State { st, _ := m.Status("a"); return st.State }
			work := func(ctx context.Context) error {
				n := inFlight.Add(1)
				defer inFlight.Add(-1)
				switch state() {
				case health.Disabled:
					t.Errorf("it is called though it is disabled")
				case health.Probation:
					trials.Add(1)
					if n > 1 { // earlier calls have ended: the clock has not moved
						t.Errorf("%d trials at once", n)
					}
				}
				select {
				case <-time.After(took):
				case <-ctx.Done():
				}
				if fails.Load() {
					return hung
				}
				return nil
			}
			m = health.New(health.Options{Probe: func(ctx context.Context, _ *switchboard.Server) error {
				if fails.Load() {
					return hung
				}
				return nil
			}})
			defer m.Close()
			m.SetServers([]switchboard.Server{{ID: "a"}})
			m.ReportLink("a", true, health.Cause{})
			caller := m.Admit(switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
				if s := state(); s == health.Quarantine && linkUp(m) {
					t.Errorf("it is called in quarantine")
				}
				return switchboard.Result{}, work(ctx)
			}))
			t.Repeat(map[string]func(*rapid.T){
				"calls": func(t *rapid.T) {
					synctest.Wait()                                                                // a probe of this instant may trip the breaker between the admission of a call and our look at the state
					took = time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond // no call ends before all of them are admitted
					n := rapid.IntRange(1, 8).Draw(t, "n")
					done := make(chan struct{})
					for range n {
						go func() {
							defer func() { done <- struct{}{} }()
							_, _ = caller.Call(context.Background(), &switchboard.Call{Server: "a", Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "x"}}})
						}()
					}
					for range n {
						<-done
					}
				},
				"fails":   func(*rapid.T) { fails.Store(true) },
				"works":   func(*rapid.T) { fails.Store(false) },
				"lost":    func(*rapid.T) { m.ReportLink("a", false, health.Cause{Stage: "serve", Message: "x"}) },
				"back":    func(*rapid.T) { m.ReportLink("a", true, health.Cause{}) },
				"disable": func(*rapid.T) { _ = m.Disable(context.Background(), "a", "x") },
				"enable":  func(*rapid.T) { _ = m.Enable(context.Background(), "a") },
				"wait": func(t *rapid.T) {
					time.Sleep(time.Duration(rapid.IntRange(1, 90_000).Draw(t, "ms")) * time.Millisecond)
				},
			})
		})
	})
}

// linkUp reports whether a quarantine comes from the breaker, and not from a lost
// connection, which calls wait for.
func linkUp(m *health.Monitor) bool {
	st, _ := m.Status("a")
	return st.Cause != nil && (st.Cause.Stage == health.StageCall || st.Cause.Stage == health.StageProbe)
}
