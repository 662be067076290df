package health_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/health"
)

func TestThePastHasTheLastChangesOfAServerWithTheirCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		begun := time.Now()
		if err := w.Disable(context.Background(), "a", "it is moved"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := w.Enable(context.Background(), "a"); err != nil {
			t.Fatal(err)
		}
		past := w.Past("a")
		if len(past) != 3 || past[0].To != health.Healthy || past[1].To != health.Disabled || past[1].Cause.Message != "it is moved" || past[2].From != health.Disabled || past[2].To != health.Healthy {
			t.Errorf("the past is %+v", past)
		}
		if at := past[2].At.Sub(begun); at != time.Minute {
			t.Errorf("it is enabled after %s", at)
		}
		for range 40 {
			_ = w.Disable(context.Background(), "b", "again")
			_ = w.Enable(context.Background(), "b")
		}
		if past := w.Past("b"); len(past) != 64 || past[63].To != health.Healthy {
			t.Errorf("%d changes are kept, and the last one is %+v", len(past), past[len(past)-1])
		}
		if w.Past("c") != nil {
			t.Error("an unknown server has a past")
		}
	})
}

func TestAServerIsProbedAtOnceIfAPersonAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.ProbeSoon("a")
		synctest.Wait()
		if len(w.probes) != 1 {
			t.Errorf("the probes are %q", w.probes)
		}
		w.mu.Lock()
		w.dead["a"] = errors.New("it is ill")
		w.mu.Unlock()
		w.ProbeSoon("a")
		synctest.Wait()
		if st, _ := w.Status("a"); st.State != health.Quarantine {
			t.Errorf("after a failed probe it is %s", st.State)
		}
		w.ProbeSoon("nobody")
	})
}
