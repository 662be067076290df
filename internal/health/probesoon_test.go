package health_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/summit-switchboard/switchboard/internal/health"
)

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
