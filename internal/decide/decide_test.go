package decide_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// offer is a first stage that finds these tools for every requirement, and no tool for a requirement that searches.
type offer []*switchboard.Tool

func (offer) Name() string { return decide.StageFilter }

func (o offer) Apply(_ context.Context, q *decide.Question, in []decide.Candidate, _ decide.Drop) ([]decide.Candidate, error) {
	if q.Requirement.Verb == switchboard.Search {
		return in, nil
	}
	for _, t := range o {
		in = append(in, decide.Candidate{Tool: t})
	}
	return in, nil
}

// veto is a stage that drops a server's tools.
type veto switchboard.ServerID

func (veto) Name() string { return "veto" }

func (v veto) Apply(_ context.Context, _ *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	return slices.DeleteFunc(in, func(c decide.Candidate) bool {
		out := c.Tool.ID.Server == switchboard.ServerID(v)
		if out {
			drop(c, decide.Reason{Text: "rule 7 of " + string(v)})
		}
		return out
	}), nil
}

// silent is a stage that drops all candidates and gives no reason.
type silent struct{}

func (silent) Name() string { return "silent" }

func (silent) Apply(context.Context, *decide.Question, []decide.Candidate, decide.Drop) ([]decide.Candidate, error) {
	return nil, nil
}

// broken is a stage that cannot decide.
type broken struct{ error }

func (broken) Name() string { return "broken" }

func (b broken) Apply(context.Context, *decide.Question, []decide.Candidate, decide.Drop) ([]decide.Candidate, error) {
	return nil, b.error
}

func tools(t *testing.T, ids ...string) (ts []*switchboard.Tool) {
	t.Helper()
	for _, s := range ids {
		id, err := switchboard.ParseToolID(s)
		if err != nil {
			t.Fatal(err)
		}
		ts = append(ts, &switchboard.Tool{ID: id})
	}
	return ts
}

func input(rs ...switchboard.Requirement) decide.Input {
	return decide.Input{
		Tenant:    &switchboard.Tenant{ID: "acme"},
		Principal: switchboard.Principal{Tenant: "acme", ID: "ann", Auth: switchboard.AuthAPIKey},
		Task:      &switchboard.Task{ID: "browse", Requirements: rs},
		Snapshot:  decide.SnapshotDigests{Catalog: "sha256:c", Tenant: "sha256:t", Taxonomy: "sha256:x"},
	}
}

func capability(v switchboard.Verb, s switchboard.Select) switchboard.Requirement {
	return switchboard.Requirement{Verb: v, Resource: "fs", Select: s}
}

func show(selected []decide.Selected) (ids []string) {
	for _, s := range selected {
		ids = append(ids, s.Tool.ID.String()+fmt.Sprint(s.Requirements))
	}
	return ids
}

// decided returns the decision, and why it failed or what it refuses.
func decided(t *testing.T, p decide.Pipeline, in decide.Input) (*decide.Decision, error) {
	t.Helper()
	d, err := p.Decide(t.Context(), in)
	if err == nil {
		err = d.Err()
	}
	return d, err
}

func TestSelection(t *testing.T) {
	byName := switchboard.Requirement{Tools: []string{"*/*"}}
	oneByName := switchboard.Requirement{Tools: []string{"*/*"}, Select: switchboard.SelectTool}
	optional := switchboard.Requirement{Verb: "search", Resource: "fs", Optional: true}
	for _, tt := range []struct {
		name string
		rs   []switchboard.Requirement
		want []string
	}{
		{"no requirements", nil, nil},
		{"the first one's server, by default", []switchboard.Requirement{capability("read", "")}, []string{"a/x[0]", "a/y[0]"}},
		{"and when asked", []switchboard.Requirement{capability("read", switchboard.SelectServer)}, []string{"a/x[0]", "a/y[0]"}},
		{"the first one alone", []switchboard.Requirement{capability("read", switchboard.SelectTool)}, []string{"a/x[0]"}},
		{"all that is named", []switchboard.Requirement{byName}, []string{"a/x[0]", "a/y[0]", "b/x[0]"}},
		{"one of what is named", []switchboard.Requirement{oneByName}, []string{"a/x[0]"}},
		{
			"a tool that two requirements select stands once, where the first has it",
			[]switchboard.Requirement{capability("read", switchboard.SelectTool), byName, capability("write", "")},
			[]string{"a/x[0 1 2]", "a/y[1 2]", "b/x[1]"},
		},
		{"an optional requirement is unmet", []switchboard.Requirement{optional, capability("read", switchboard.SelectTool)}, []string{"a/x[1]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := decided(t, decide.Pipeline{offer(tools(t, "a/x", "a/y", "b/x"))}, input(tt.rs...))
			if err != nil {
				t.Fatal(err)
			}
			if got := show(d.Selected); !slices.Equal(got, tt.want) {
				t.Errorf("selected %q, want %q", got, tt.want)
			}
		})
	}
}

func TestEachOfManyToolsIsSelectedOnce(t *testing.T) {
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("a/t%04d", i))
	}
	all := switchboard.Requirement{Tools: []string{"*/*"}}
	d, err := decided(t, decide.Pipeline{offer(tools(t, ids...))}, input(all, capability("read", switchboard.SelectTool), all))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Selected) != 1000 || !slices.Equal(d.Selected[0].Requirements, []int{0, 1, 2}) || !slices.Equal(d.Selected[999].Requirements, []int{0, 2}) {
		t.Errorf("%d selected, the first by %v, the last by %v", len(d.Selected), d.Selected[0].Requirements, d.Selected[999].Requirements)
	}
}

func TestOneUnmetRequirementFailsTheWholeTask(t *testing.T) {
	search := switchboard.Requirement{Verb: "search", Resource: "internet", Constraints: []switchboard.Constraint{"readonly"}}
	for _, tt := range []struct {
		name  string
		p     decide.Pipeline
		rs    []switchboard.Requirement
		want  switchboard.Error // Cause is not compared
		cause string            // empty if the error has no cause
	}{
		{
			"nothing was ever there",
			decide.Pipeline{offer(tools(t, "a/x"))},
			[]switchboard.Requirement{capability("read", ""), search},
			switchboard.Error{
				Text:        "task browse may not start: no tool that is offered can search internet [readonly]",
				Requirement: "search internet [readonly]", Stage: "filter",
			},
			"",
		},
		{
			"a stage dropped the last",
			decide.Pipeline{offer(tools(t, "a/x", "b/x")), veto("b"), veto("a")},
			[]switchboard.Requirement{capability("read", ""), search},
			switchboard.Error{
				Text:        "task browse may not start: no tool meets the requirement read fs: the last candidate fell at veto",
				Requirement: "read fs", Stage: "veto",
			},
			"the last of 2 candidates was a/x: rule 7 of a; search internet [readonly] is not met either: no tool has this capability",
		},
		{
			"by name",
			decide.Pipeline{offer(nil)},
			[]switchboard.Requirement{{Tools: []string{"x/*", "y/z"}}},
			switchboard.Error{
				Text:        "task browse may not start: nothing that is offered matches tools x/*, y/z, or one of them",
				Requirement: "tools x/*, y/z", Stage: "filter",
			},
			"",
		},
		{
			"no stages at all", nil,
			[]switchboard.Requirement{capability("read", "")},
			switchboard.Error{
				Text:        "task browse may not start: no tool that is offered can read fs",
				Requirement: "read fs", Stage: "filter",
			},
			"",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := decided(t, tt.p, input(tt.rs...))
			got, ok := errors.AsType[*switchboard.Error](err)
			if !ok {
				t.Fatalf("error = %v, want a *switchboard.Error", err)
			}
			tt.want.Code, tt.want.Hint, tt.want.Cause = switchboard.CodeUnmet, "the operator sees every candidate with: switchboard explain browse", got.Cause
			if !reflect.DeepEqual(*got, tt.want) {
				t.Errorf("error is\n %+v, want\n %+v", *got, tt.want)
			}
			cause := ""
			if got.Cause != nil {
				cause = got.Cause.Error()
			}
			if cause != tt.cause {
				t.Errorf("cause is\n %v, want\n %v", cause, tt.cause)
			}
			if len(d.Selected) != 0 {
				t.Errorf("yet %q would be shown", show(d.Selected))
			}
		})
	}
}

func TestAStageThatCannotDecideFailsTheWholeTask(t *testing.T) {
	down := errors.New("bundle not loaded")
	for _, optional := range []bool{false, true} {
		r := capability("read", "")
		r.Optional = optional
		_, err := decided(t, decide.Pipeline{offer(tools(t, "a/x")), broken{down}}, input(r))
		got, ok := errors.AsType[*switchboard.Error](err)
		if !ok || !errors.Is(err, down) || got.Code != switchboard.CodeTaskRefused || got.Stage != "broken" || strings.Contains(got.Text, "bundle") {
			t.Errorf("optional %v: error = %#v, want SB-TASK-002 at broken, the cause for the operator only", optional, err)
		}
	}
}

func TestTheRefusalOfAStageIsReturnedAsItIs(t *testing.T) {
	own := switchboard.Refuse(switchboard.CodeNotAuthorized, "no")
	if _, err := decided(t, decide.Pipeline{broken{own}}, input(capability("read", ""))); !errors.Is(err, own) {
		t.Errorf("error = %v, want %v", err, own)
	}
}

func TestNoCandidateDisappearsWithoutAReason(t *testing.T) {
	d, err := decide.Pipeline{offer(tools(t, "a/x")), silent{}}.Decide(t.Context(), input(capability("read", "")))
	if err == nil {
		t.Errorf("decided %s, want an error", d.Canonical())
	}
}

func TestACancelledDecisionSelectsNothing(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client has gone")
	cancel(gone)
	p, in := decide.Pipeline{offer(tools(t, "a/x"))}, input(capability("read", ""))
	if d, err := p.Decide(ctx, in); d != nil || !errors.Is(err, gone) {
		t.Errorf("Decide = %v, %v", d, err)
	}
}

func TestAPrincipalOfAnotherTenantGetsNothing(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	p := decide.Pipeline{offer(tools(t, "a/x"))}
	stranger := input(capability("read", ""))
	stranger.Principal.Tenant = "zebra"
	noTask, noTenant := input(), input()
	noTask.Task, noTenant.Tenant = nil, nil
	for want, in := range map[switchboard.Code]decide.Input{switchboard.CodeNotAuthorized: stranger, switchboard.CodeNoSuchTask: noTask} {
		_, err := decided(t, p, in)
		if got, ok := errors.AsType[*switchboard.Error](err); !ok || got.Code != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
	if _, err := decided(t, p, noTenant); err == nil {
		t.Error("without a tenant, Decide made a decision")
	}
}

func TestOthersStayInOrder(t *testing.T) {
	d, err := decided(t, decide.Pipeline{offer(tools(t, "a/x", "b/y", "b/x", "c/x")), veto("c")}, input(capability("read", "")))
	if err != nil {
		t.Fatal(err)
	}
	o := d.Outcomes[0]
	var others []string
	for _, c := range o.Others {
		others = append(others, c.Tool.ID.String())
	}
	if want := []string{"b/y", "b/x"}; !slices.Equal(others, want) || o.Considered() != 4 || len(o.Dropped) != 1 {
		t.Errorf("others %q of %d, want %q of 4", others, o.Considered(), want)
	}
}
