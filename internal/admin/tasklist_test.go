package admin

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A task is decided once for each state and each health of servers.
func TestTheToolsOfATaskAreDecidedAgainOnlyIfSomethingHasChanged(t *testing.T) {
	r, _ := twoTenants(t)
	rows := TaskNames(r, "acme")
	OfferTasks(t.Context(), r, rows)
	if len(rows) != 1 || !slices.Equal(rows[0].Tools, []string{"a/open"}) || rows[0].Listed == 0 || rows[0].Budget == 0 || rows[0].Caller != switchboard.LocalID {
		t.Fatalf("the tasks of acme are %+v", rows)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	again := TaskNames(r, "")
	OfferTasks(over, r, again)
	if !slices.Equal(again[0].Tools, []string{"a/open"}) {
		t.Errorf("the known task is decided again: %+v", again[0])
	}
	if len(again) < 2 || !strings.Contains(again[1].Why, "no time") {
		t.Errorf("without time, the other tasks are %+v", again[1:])
	}
	r.offers.seen.Unfit = map[switchboard.ToolID]string{{Server: "u"}: "lost"}
	again = TaskNames(r, "acme")
	OfferTasks(over, r, again)
	if !slices.Equal(again[0].Tools, []string{"a/open"}) {
		t.Errorf("a server of another tenant has changed, and the task is decided again: %+v", again[0])
	}
	r.offers.seen.Unfit = map[switchboard.ToolID]string{{Server: "a"}: "lost"}
	again = TaskNames(r, "acme")
	OfferTasks(over, r, again)
	if len(again[0].Tools) > 0 {
		t.Errorf("the health of servers has changed, and the task is not decided again: %+v", again[0])
	}
}

func TestAWhatIfTakesOnlyWhatTheTenantHas(t *testing.T) {
	r, _ := twoTenants(t)
	for _, tt := range []struct {
		name string
		w    DecisionWhatIf
		want string // in the record of the decision, or in the refusal
	}{
		{"another mode", DecisionWhatIf{Mode: switchboard.Observe}, `"mode":"observe"`},
		{"a server out", DecisionWhatIf{Without: []switchboard.ServerID{"a"}}, takenOut},
		{"another instant, which no policy asks for", DecisionWhatIf{At: time.Unix(0, 0)}, `"principal"`},
		{"a tier that the tenant has not", DecisionWhatIf{Tier: "gold"}, `tenant acme has no tier "gold"`},
		{"a server of another tenant", DecisionWhatIf{Without: []switchboard.ServerID{"u"}}, `tenant acme has no server "u"`},
	} {
		x, err := r.Explain(t.Context(), operator, ExplainQuery{WhatIf: tt.w})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = string(x.Decision)
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
	was := &decide.Decision{Tenant: "acme", Principal: switchboard.Principal{Tier: "silver"}}
	tiers := NewDecisionReader(r).tiersBeside(was)
	for tier, want := range map[string]bool{"": true, "silver": true, "gold": false} {
		if err := (&DecisionWhatIf{Tier: tier}).checkTier(was.Tenant, tiers); (err == nil) != want {
			t.Errorf("beside the recorded tier silver, %q is refused with %v", tier, err)
		}
	}
	if x, err := r.Explain(t.Context(), operator, ExplainQuery{}); err != nil || strings.Contains(string(x.Decision), takenOut) {
		t.Errorf("a what-if changes later decisions: %+v %v", x, err)
	}
}
