package replay

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestAComparisonWithinBoundsSaysHowFarItHasLooked(t *testing.T) {
	var made *bind.State
	var c *config.Config
	rapid.Custom(func(t *rapid.T) bool {
		c = drawConfig(t)
		c.Policies = []switchboard.PolicyFile{{Name: "p.rego", Path: "p.rego", Data: []byte("package switchboard\n\nallowed_tools contains c.id if some c in input.candidate_tools\n")}}
		c.TenantPolicies = nil
		made = newState(t, c, drawOffers(t))
		return true
	}).Example(1)
	const n = 2*partSize + 10
	in := newMemoryRecords(t)
	for i := range n {
		d, err := made.Tenants["acme"].RunPipeline(t.Context(), switchboard.Principal{Tenant: "acme", ID: fmt.Sprint("p", i), Auth: switchboard.AuthAPIKey}, c.Tenants["acme"].Tasks["a"], decide.Observed{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		in.recorder.Decision(made.Tenants["acme"], d, nil)()
	}
	in.readAll(t)
	// The newest partSize are decided differently under the proposal.
	p, err := ProposePolicies(nil, []ProposedFile{{File: switchboard.PolicyFile{Name: "new.rego", Path: "new.rego", Data: []byte(fmt.Sprintf(
		"package switchboard\n\ndeny[c.id] contains \"new\" if { some c in input.candidate_tools; to_number(trim_prefix(input.principal.id, \"p\")) >= %d }\n", n-partSize))}}})
	if err != nil {
		t.Fatal(err)
	}
	since := time.Now().Add(-time.Hour)
	compare := func(s Bounds) *Diff {
		t.Helper()
		s.Since = since
		last := 0
		d, err := CompareWithin(t.Context(), in, s, p, func(done, _ int) { last = done })
		if err != nil {
			t.Fatal(err)
		}
		if last != d.Looked.Decisions {
			t.Errorf("the progress ended at %d, the result says %+v", last, d.Looked)
		}
		return d
	}
	whole, err := Compare(t.Context(), in, since, "", p, nil)
	if err == nil && len(whole.NotReplayed) > 0 {
		wait.Late(t, "a busy machine did not archive all decisions: %+v", whole.NotReplayed)
		return
	}
	if err != nil || whole.Changed != partSize {
		t.Fatalf("%v: without bounds, %d of %d decisions changed, of %d that were replayed: %+v", err, whole.Changed, whole.Decisions, whole.Replayed, whole.NotReplayed)
	}
	if d := compare(Bounds{}); d.Looked.Decisions != n || d.Looked.Of != n || !d.Looked.Complete() || !d.Looked.Back.Equal(since) || d.Changed != whole.Changed || len(d.Changes) != len(whole.Changes) {
		t.Errorf("all: %+v, looked %+v", d, d.Looked)
	}
	for byTask, want := range map[bool]switchboard.TaskID{false: "", true: "a"} {
		denied := 0
		for _, change := range compare(Bounds{ByTask: byTask}).Changes {
			if change.Kind != ChangeDenied {
				continue
			}
			if denied++; change.Task != want {
				t.Errorf("by task %t: %+v", byTask, change)
			}
		}
		if denied == 0 {
			t.Errorf("by task %t, nothing is denied", byTask)
		}
	}
	if d := compare(Bounds{}); len(d.Callers) != maxCallers || d.Callers[0] != (ChangedCaller{"acme", fmt.Sprint("p", n-partSize), 1}) {
		t.Errorf("the callers are %+v", d.Callers)
	}
	d := compare(Bounds{Limit: 300, Tenant: "acme"})
	if d.Looked.Decisions != 300 || d.Looked.Of != n || d.Looked.OrMore || d.Decisions != 300 || d.Replayed != 300 || d.Changed != whole.Changed || !d.Looked.Back.After(since) {
		t.Errorf("the newest 300: %+v, looked %+v", d, d.Looked)
	}
	if d := compare(Bounds{Tenant: "umbrella"}); d.Looked.Of != 0 || !d.Looked.Complete() {
		t.Errorf("of another tenant: %+v", d.Looked)
	}
	if d := compare(Bounds{Time: time.Nanosecond}); d.Looked.Decisions != 0 || d.Looked.Complete() || d.Changed != 0 {
		t.Errorf("without time: %+v, looked %+v", d, d.Looked)
	}
	p, err = ProposePolicies(nil, []ProposedFile{{File: switchboard.PolicyFile{Name: "p.rego", Path: "p.rego"}, Removed: true}, {File: switchboard.PolicyFile{Name: "q.rego", Path: "q.rego", Data: []byte("package switchboard\n\nallowed_tools := set()\n")}}})
	if err != nil {
		t.Fatal(err)
	}
	if d := compare(Bounds{Limit: 10}); d.Changed != 10 {
		t.Errorf("without the file that allows: %+v", d)
	}
}

func TestADiffWithoutValuesKeepsCodesAndCounts(t *testing.T) {
	d := &Diff{Changes: []DecisionChange{
		{Kind: ChangeDenied, Of: kindCall, Tool: "a/x", Why: "SB-POL-001: the tenant's policy denies it: /home/ann", Decisions: 2},
		{Kind: ChangeDenied, Of: kindCall, Tool: "a/x", Why: "SB-POL-001: the tenant's policy denies it: /home/bob", Decisions: 3},
		{Kind: ChangeAsked, Of: kindCall, Tool: "a/x", From: "notify ann", To: "notify bob", Decisions: 1},
		{Kind: ChangeDenied, Tool: "a/x", Why: "policy: the tenant's policy denies it: its contract has ended", Decisions: 1},
	}}
	want := []DecisionChange{
		{Kind: ChangeDenied, Of: kindCall, Tool: "a/x", Why: "SB-POL-001", Decisions: 5},
		{Kind: ChangeAsked, Of: kindCall, Tool: "a/x", Decisions: 1},
		d.Changes[3],
	}
	got := d.WithoutValues().Changes
	if fmt.Sprint(got) != fmt.Sprint(want) || d.Changes[0].Why == "SB-POL-001" {
		t.Errorf("%+v, want %+v", got, want)
	}
}
