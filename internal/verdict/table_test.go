package verdict_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/boundary"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
	"github.com/summit-switchboard/switchboard/policies"
)

var update = flag.Bool("update", false, "write the golden files")

// layerOf returns the layer of the registry's rows, with the rules in text in place of boundaries.rego unless it is nil.
func layerOf(t testing.TB, r *capability.Registry, text []byte) *policy.Layer {
	t.Helper()
	l, err := boundary.Layer(r.Boundaries)
	if text != nil {
		if l, err = policy.Compile(policy.Boundaries, []switchboard.PolicyFile{{Name: "boundaries.rego", Path: "boundaries.rego", Data: text}}); err == nil {
			var rows []byte
			if rows, err = json.Marshal(map[string]any{"boundaries": r.Boundaries}); err == nil {
				l, err = l.WithData(rows)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// judge returns the verdict on the capability under the rules in text; nil means boundaries.rego.
func (f *fixture) judge(t testing.TB, id string, text []byte) verdict.Verdict {
	t.Helper()
	r := f.registry(t)
	all, err := boundary.NewAnswers(layerOf(t, r, text), r, nil).Judge(t.Context(), r.Versions(id)[:1], f.atomStates)
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// atomStates is boundary.AtomStates.
func (f *fixture) atomStates(time.Duration, ...string) map[string]capability.State { return f.states }

// render writes the verdict as a person reads it.
func render(v verdict.Verdict) string {
	return fmt.Sprintf("%s: %s\n  blocking %q\n  warnings %q\n  required_actions %q", v.Capability, v.Verdict, v.Blocking, v.Warnings, v.RequiredActions)
}

func TestEachVerdictHasItsReasons(t *testing.T) {
	t.Parallel()
	f := readFixture(t)
	if len(f.versions) != 30 || len(f.atoms) != 12 || len(f.rows) != 9 {
		t.Fatalf("the fixture has %d capabilities, %d atoms, %d boundaries", len(f.versions), len(f.atoms), len(f.rows))
	}
	list := func(s ...string) []string { return append([]string{}, s...) }
	for _, want := range []verdict.Verdict{
		{
			Capability: "cap.memory.recall@1.0.0", Verdict: verdict.Yes,
			Blocking: list(), Warnings: list(), RequiredActions: list(),
		},
		{ // its token is stale
			Capability: "cap.publish.fb_page@1.0.0", Verdict: verdict.AfterProbe, Blocking: list(),
			Warnings:        list("key.meta_page_token: stale", "policy:only_brian_publishes: acts as brian"),
			RequiredActions: list("probe:key.meta_page_token"),
		},
		{ // its account has the right name and is red
			Capability: "cap.publish.linkedin@1.0.0", Verdict: verdict.No, Blocking: list("acc.brian.linkedin: red"),
			Warnings:        list("key.linkedin_token: stale", "policy:only_brian_publishes: acts as brian"),
			RequiredActions: list("probe:key.linkedin_token"),
		},
		{ // the row for paid model calls is not about it
			Capability: "cap.card.charge@1.0.0", Verdict: verdict.AfterApproval, Blocking: list(),
			Warnings:        list("policy:mind_the_meter: advised against"),
			RequiredActions: list("approval:finance"),
		},
		{ // it is an exception of the row for publishers
			Capability: "cap.publish.daily_blog@1.0.0", Verdict: verdict.AfterProbe, Blocking: list(),
			Warnings:        list("acc.site.blog: unknown"),
			RequiredActions: list("probe:acc.site.blog"),
		},
		{ // as it is, without the exception
			Capability: "cap.publish.guest_post@1.0.0", Verdict: verdict.Blocked,
			Blocking:        list("policy:only_brian_publishes: no brian account in deps"),
			Warnings:        list("acc.site.blog: unknown"),
			RequiredActions: list("probe:acc.site.blog"),
		},
	} {
		id, _, _ := strings.Cut(want.Capability, "@")
		if got := f.judge(t, id, nil); render(got) != render(want) {
			t.Errorf("got %s\nwant %s", render(got), render(want))
		}
	}
}

func TestTheVerdictsOnAllCapabilitiesAreGolden(t *testing.T) {
	t.Parallel()
	f := readFixture(t)
	r := f.registry(t)
	var versions []*capability.ContractVersion
	for _, id := range r.IDs() {
		versions = append(versions, r.Versions(id)...)
	}
	all, err := boundary.NewAnswers(layerOf(t, r, nil), r, nil).Judge(t.Context(), versions, f.atomStates)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	seen := map[verdict.Name]bool{}
	for _, v := range all {
		fmt.Fprintln(&b, render(v))
		seen[v.Verdict] = true
	}
	if len(seen) != len(verdict.Names) {
		t.Errorf("the fixture shows only %v", seen)
	}
	const file = "testdata/verdicts.golden"
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(b.Bytes(), want) {
		t.Errorf("%v; the verdicts are now:\n%s", err, b.Bytes())
	}
}

// putBack returns boundaries.rego with a fault that was once made.
func putBack(t *testing.T, right, fault string) []byte {
	t.Helper()
	if bytes.Count(policies.Boundaries, []byte(right)) != 1 {
		t.Fatalf("boundaries.rego has no %q, or has it twice", right)
	}
	return bytes.Replace(policies.Boundaries, []byte(right), []byte(fault), 1)
}

func TestARowFiresOnlyIfAllItsClausesHold(t *testing.T) {
	t.Parallel()
	f := readFixture(t)
	fault := putBack(t, `	side_effect_holds(row, contract)
	cost_class_holds(row, contract)
	risk_level_holds(row, contract)
	id_holds(row, contract)
`, `	some holds in [
		[x | x := "effect"; row.side_effects_any; side_effect_holds(row, contract)],
		[x | x := "class"; row.cost_class; cost_class_holds(row, contract)],
		[x | x := "risk"; row.risk_level; risk_level_holds(row, contract)],
		[x | x := "id"; row.id_matches; id_holds(row, contract)],
	]
	count(holds) > 0
`)
	got, faulty := f.judge(t, "cap.card.charge", nil), f.judge(t, "cap.card.charge", fault)
	if got.Verdict != verdict.AfterApproval || len(got.Blocking) > 0 {
		t.Errorf("a metered charge is under the row for paid model calls:\n%s", render(got))
	}
	if faulty.Verdict != verdict.Blocked || !slices.Contains(faulty.Blocking, "policy:no_paid_model_calls") {
		t.Errorf("with the fault put back the verdict is the same, so this test shows nothing:\n%s", render(faulty))
	}
}

func TestAPatternIsAboutTheWholeIDAndNoOther(t *testing.T) {
	t.Parallel()
	f := readFixture(t)
	for id, want := range map[string]verdict.Name{
		"cap.mac.see_screen": verdict.Yes, "cap.mac.run_commands": verdict.Yes,
		"cap.mac.run_command": verdict.Blocked, "cap.mac.drive_chrome": verdict.Blocked,
	} {
		if got := f.judge(t, id, nil); got.Verdict != want {
			t.Errorf("want %s, got %s", want, render(got))
		}
	}
	if v := f.judge(t, "cap.mac.run_commands", putBack(t, "`^(?:%s)$`", "`^(?:%s)`")); v.Verdict != verdict.Blocked {
		t.Errorf("a pattern for a part of the id blocks nothing more, so this test shows nothing:\n%s", render(v))
	}
	f.row("hands_off_the_mac").IDMatches = `cap\.mac\..*`
	if v := f.judge(t, "cap.mac.see_screen", nil); v.Verdict != verdict.Blocked {
		t.Errorf("the wide pattern blocks nothing more, so this test shows nothing:\n%s", render(v))
	}
}

func TestTheRowForPublishersIsAboutPublishersAlone(t *testing.T) {
	t.Parallel()
	f := readFixture(t)
	if v := f.judge(t, "cap.chat.notify", nil); v.Verdict != verdict.Yes {
		t.Errorf("an external write that publishes nothing: %s", render(v))
	}
	f.row("only_brian_publishes").IDMatches, f.row("only_brian_publishes").SideEffectsAny = "", []string{"writes-external"}
	if v := f.judge(t, "cap.chat.notify", nil); v.Verdict != verdict.Blocked {
		t.Errorf("the row for every external write blocks nothing more, so this test shows nothing:\n%s", render(v))
	}
}
