package decide_test

import (
	"context"
	"flag"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	registry "github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s (-update writes it anew): got\n%s", file, got)
	}
}

// lacking is a stage that drops a server's tools because their capability lacks a constraint, or because they have
// none, and ranks the others.
type lacking switchboard.ServerID

func (lacking) Name() string { return "prune" }

func (l lacking) Apply(_ context.Context, _ *decide.Question, in []decide.Candidate, drop decide.Drop) (on []decide.Candidate, _ error) {
	for i, c := range in {
		if c.Tool.ID.Server != switchboard.ServerID(l) {
			c.Place, c.Score = int32(i), -10*i
			on = append(on, c)
			continue
		}
		why := decide.Reason{Missing: "readonly"}
		if len(c.Tool.Capabilities) > 0 {
			why.Capability = &c.Tool.Capabilities[0]
		}
		drop(c, why)
	}
	return on, nil
}

func TestTheRecord(t *testing.T) {
	ts := tools(t, `a/x`, `a/"y"é\`, `b/x`, `b/z`, `c/v`, `d/x`, `d/y`)
	ts[0].Capabilities = []switchboard.Capability{{Verb: "read", Resource: "fs", Constraints: []switchboard.Constraint{"pii_safe", "readonly"}, Source: switchboard.FromOverlay}}
	ts[2].Capabilities = []switchboard.Capability{{Verb: "write", Resource: "fs", Constraints: []switchboard.Constraint{"pii_safe"}, Source: switchboard.FromManifest}}
	ts[0].Stale = true // not recorded
	in := input(
		switchboard.Requirement{Verb: "read", Resource: "fs", Constraints: []switchboard.Constraint{"readonly"}, Select: switchboard.SelectTool, As: "reader"},
		switchboard.Requirement{Tools: []string{"a/*", "d/x"}},
		switchboard.Requirement{Verb: "search", Resource: "internet", Optional: true, OnDemand: true, Group: "web", Stub: "web_helper"},
	)
	in.Task.TokenBudget = 6000
	in.Principal.Roles, in.Principal.Tier, in.Principal.Mode = []string{"admin", "analyst"}, "pro", switchboard.Assist
	in.Now = time.Date(2026, 11, 21, 9, 0, 0, 5e6, time.FixedZone("", 3600))
	in.Unfit = decide.Unfit{{Server: "d", Name: "y"}: "probation", {Server: "b"}: "quarantine"}
	d, err := decided(t, decide.Pipeline{offer(ts), lacking("b"), veto("c")}, in)
	if err != nil {
		t.Fatal(err)
	}
	pretty := jsontext.Value(d.Canonical())
	if err := pretty.Indent(); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/record.json", append(pretty, '\n'))
	if want := canonical.Sum(d.Canonical()); d.Digest() != want {
		t.Errorf("digest %s, want %s", d.Digest(), want)
	}
}

// TestTheRecordIsCanonical compares the hand-written form with package canonical, for arbitrary strings.
func TestTheRecordIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.String()
		list := func(label string) (cs []switchboard.Constraint) {
			for _, s := range rapid.SliceOfN(word, 0, 2).Draw(t, label) {
				cs = append(cs, switchboard.Constraint(s))
			}
			return cs
		}
		draw := func(label string) string { return word.Draw(t, label) }
		tool := &switchboard.Tool{ID: switchboard.ToolID{Server: switchboard.ServerID(draw("server")), Name: draw("tool")}}
		if rapid.Bool().Draw(t, "labelled") {
			tool.Capabilities = []switchboard.Capability{{Verb: "read", Resource: "fs", Constraints: list("carries"), Source: switchboard.Source(draw("source"))}}
		}
		c := decide.Candidate{Tool: tool, Score: rapid.Int().Draw(t, "score"), Place: rapid.Int32Range(0, 9).Draw(t, "place")}
		why := decide.Reason{Text: draw("text")}
		if rapid.Bool().Draw(t, "missing") {
			why = decide.Reason{Missing: "m" + switchboard.Constraint(draw("constraint"))}
			if len(tool.Capabilities) > 0 {
				why.Capability = &tool.Capabilities[0]
			}
		}
		req := &switchboard.Requirement{
			Verb: switchboard.Verb(draw("verb")), Resource: switchboard.Resource(draw("resource")), Constraints: list("wants"),
			Tools: rapid.SliceOfN(word, 0, 2).Draw(t, "patterns"), Select: switchboard.Select(draw("select")),
			Optional: rapid.Bool().Draw(t, "optional"), As: draw("as"),
			OnDemand: rapid.Bool().Draw(t, "on demand"), Group: draw("group"), Stub: draw("stub"), Request: draw("request"),
		}
		o := decide.RequirementOutcome{Requirement: req}
		if rapid.Bool().Draw(t, "met") {
			o.Selected, o.Others = []decide.Candidate{c, c}, []decide.Candidate{c}
		} else {
			o.Unmet = &decide.Unmet{Stage: draw("stage"), Reason: why}
			if rapid.Bool().Draw(t, "candidates") {
				o.Unmet.Tool, o.Dropped = tool, []decide.Dropped{{Candidate: c, Stage: draw("stage"), Reason: why}}
			}
		}
		d := decide.Decision{
			Tenant: switchboard.TenantID(draw("tenant")),
			Principal: switchboard.Principal{
				Tenant: switchboard.TenantID(draw("tenant")), ID: draw("who"), Auth: switchboard.Auth(draw("auth")),
				Roles: rapid.SliceOfN(word, 0, 2).Draw(t, "roles"), Tier: draw("tier"), Mode: rapid.SampledFrom(switchboard.Modes).Draw(t, "mode"),
			},
			Task:     &switchboard.Task{ID: switchboard.TaskID(draw("task")), Mode: rapid.SampledFrom(append([]switchboard.Mode{""}, switchboard.Modes...)).Draw(t, "task mode"), TokenBudget: rapid.IntRange(0, 9).Draw(t, "budget")},
			Now:      time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")),
			Snapshot: decide.SnapshotDigests{Catalog: switchboard.Digest(draw("digest"))},
			Outcomes: []decide.RequirementOutcome{o, o}, Selected: []decide.Selected{{Tool: tool, Requirements: []int{0, 1}}},
		}
		if rapid.Bool().Draw(t, "unfit") {
			d.Unfit = decide.Unfit{{Server: "s", Name: draw("unfit tool")}: draw("state"), {Server: "s2"}: draw("state")}
			d.Atoms = decide.Atoms{draw("atom"): registry.State(draw("state")), "srv.z": registry.Stale}
		}
		got := d.Canonical()
		want, err := canonical.Append(nil, got)
		if err != nil {
			t.Fatalf("%v in\n%s", err, got)
		}
		if string(got) != string(want) {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
		read, err := decide.ReadRecord(got)
		if err != nil {
			t.Fatal(err)
		}
		was := decide.Recorded{Tenant: d.Tenant, Principal: d.Principal, Task: d.Task.ID, Snapshot: d.Snapshot, Now: d.Now.UTC(), Unfit: d.Unfit, Atoms: d.Atoms}
		if !reflect.DeepEqual(read, was) {
			t.Fatalf("of\n%s\nit reads %+v,\nwant     %+v", got, read, was)
		}
	})
}

func TestARecordOfAnotherVersionIsRefused(t *testing.T) {
	for _, text := range []string{`{"task":"t","tenant":"acme","v":1}`, `{"task":{"task_id":"t"},"tenant":"acme"}`, `{"v":3}`, `{"task":{"task_id":"t"},"tenant":"acme","v":2}`, `{`} {
		if r, err := decide.ReadRecord([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", text, r)
		}
	}
}
