package policy_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/policytest"
)

// An evaluation goes on for a moment when its caller no longer waits, and still tells its tracer what holds. The race detector watches.
func TestACancelledEvaluationAddsNoRuleToThoseThatHeld(t *testing.T) {
	p, err := policy.NewEngine(time.Minute, 4).NewPolicy(&switchboard.Tenant{ID: "acme"}, policytest.CompileLayer(t, policy.Operator, policytest.AllowAll+`
positive(x) if x > 0

deny["x/y"] contains "n" if {
	some a in input.call.arguments.n
	some b in input.call.arguments.n
	positive(a + b)
	a + b == 1
}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	trace := func(ctx context.Context, numbers int) (names string, err error) {
		q := policytest.NewQuestion(policy.PhaseCall, `{"n":[`+strings.Repeat("1,", numbers)+`1]}`, policytest.Brave)
		fired, err := policy.TraceFired(ctx, p, []*policy.CandidateQuestion{q})
		for _, id := range fired {
			names += id.Name + " "
		}
		return names, err
	}
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		if names, err := trace(ctx, 5000); !errors.Is(err, context.DeadlineExceeded) || names != "" {
			t.Errorf("cancelled after %d ms: %q, %v", i, names, err)
		}
		cancel()
	}
	if names, err := trace(t.Context(), 1); err != nil || !strings.Contains(names, "positive") || !strings.Contains(names, "allowed_tools") || strings.Contains(names, "deny") {
		t.Errorf("%q, %v", names, err)
	}
}
