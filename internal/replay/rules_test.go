package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// Each rule counts in the decisions in which it held, and a rule that never held is not there.
func TestRulesAreCountedInTheDecisionsInWhichTheyHeld(t *testing.T) {
	var made *bind.State
	var c *config.Config
	rapid.Custom(func(t *rapid.T) bool {
		c = drawConfig(t)
		c.Policies = []switchboard.PolicyFile{{Name: "p.rego", Path: "p.rego", Data: []byte(`package switchboard

allowed_tools contains c.id if some c in input.candidate_tools

deny[c.id] contains "odd" if {
	some c in input.candidate_tools
	is_odd
}

is_odd if to_number(input.principal.id) % 2 == 1

deny[c.id] contains "never" if {
	some c in input.candidate_tools
	c.server == "nowhere"
}
`)}}
		c.TenantPolicies = nil
		made = newState(t, c, drawOffers(t))
		return true
	}).Example(1)
	const n = 2*rulePart + 10 // a number of whole parts, and one that is not
	in := newMemoryRecords(t)
	for i := range n {
		d, err := made.Tenants["acme"].RunPipeline(t.Context(), switchboard.Principal{Tenant: "acme", ID: fmt.Sprint(i), Auth: switchboard.AuthAPIKey}, c.Tenants["acme"].Tasks["a"], decide.Observed{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		in.recorder.Decision(made.Tenants["acme"], d, nil)()
	}
	in.readAll(t)
	since := time.Now().Add(-time.Hour)
	count := func(s Bounds) (*RuleCounts, map[string]int) {
		t.Helper()
		s.Since = since
		found, err := NewDecisionOpener(in).CountRules(t.Context(), s, &RuleMemory{})
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]int{}
		for id, of := range found.Fired {
			by[strings.Join(strings.Fields(strings.TrimPrefix(id.Text, "deny[c.id] contains ")), " ")] = of.Decisions
			if of.Last.Before(since) {
				t.Errorf("%s has held at %v", id.Name, of.Last)
			}
		}
		return found, by
	}
	all, by := count(Bounds{})
	if len(all.NotReplayed) > 0 {
		wait.Late(t, "a busy machine did not archive all decisions: %+v", all.NotReplayed)
		return
	}
	want := map[string]int{
		`allowed_tools contains c.id if some c in input.candidate_tools`: n,
		`"odd" if { some c in input.candidate_tools is_odd }`:            n / 2,
		`is_odd if to_number(input.principal.id) % 2 == 1`:               n / 2,
	}
	if fmt.Sprint(by) != fmt.Sprint(want) || all.Decisions != n || !all.Looked.Complete() || !all.Looked.Back.Equal(since) || all.NotReplayed != nil {
		t.Errorf("%v, want %v; looked %+v, not replayed %+v", by, want, all.Looked, all.NotReplayed)
	}
	if some, by := count(Bounds{Limit: 50, Tenant: "acme"}); some.Decisions != 50 || some.Looked.Of != n || some.Looked.Complete() || by[`allowed_tools contains c.id if some c in input.candidate_tools`] != 50 {
		t.Errorf("the newest 50: %v, looked %+v", by, some.Looked)
	}
	if none, by := count(Bounds{Time: time.Nanosecond}); none.Decisions != 0 || none.Looked.Complete() || len(by) > 0 {
		t.Errorf("without time: %v, looked %+v", by, none.Looked)
	}
	if other, by := count(Bounds{Tenant: "umbrella"}); other.Looked.Of != 0 || len(by) > 0 {
		t.Errorf("of another tenant: %v, looked %+v", by, other.Looked)
	}
}
