package health_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestUnfitCandidatesAreDroppedUnlessNoneIsFit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		unfit string // "server state, server/tool state"
		tools string // candidates
		want  string // that go on
	}{
		{"all is well", "", "a/x b/x", "a/x b/x"},
		{"the first server is out", "a quarantine", "a/x a/y b/x", "b/x"},
		{"it has only just started", "a starting", "a/x b/x", "b/x"},
		{"it is on probation", "a probation", "a/x b/x", "b/x"},
		{"an operator has taken it out", "a disabled", "a/x b/x", "b/x"},
		{"one tool fails alone", "a/x quarantine", "a/x a/y b/x", "a/y b/x"},
		{"a tool of the same name elsewhere is another", "b/x quarantine", "a/x b/x", "a/x"},
		{"none is fit: the first is bound", "a quarantine, b starting", "a/x b/x", "a/x b/x"},
		{"one that was given up is back, and its successor serves", "a left", "a/x b/x", "b/x"},
		{"its successor fails too", "a left, b quarantine", "a/x b/x", "a/x"},
		{"what is elsewhere does not matter", "c quarantine", "a/x b/x", "a/x b/x"},
	} {
		unfit := decide.Unfit{}
		for row := range strings.SplitSeq(tt.unfit, ", ") {
			if what, state, ok := strings.Cut(row, " "); ok {
				server, tool, _ := strings.Cut(what, "/")
				unfit[switchboard.ToolID{Server: switchboard.ServerID(server), Name: tool}] = state
			}
		}
		var in []decide.Candidate
		for name := range strings.FieldsSeq(tt.tools) {
			id, err := switchboard.ParseToolID(name)
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, decide.Candidate{Tool: &switchboard.Tool{ID: id}})
		}
		n, dropped := len(in), 0
		apply := func(r *switchboard.Requirement, drop decide.Drop) string {
			out, err := health.Stage.Apply(t.Context(), &decide.Question{Requirement: r, Unfit: unfit}, slices.Clone(in), drop)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, c := range out {
				names = append(names, c.Tool.ID.String())
			}
			return strings.Join(names, " ")
		}
		got := apply(&switchboard.Requirement{Verb: switchboard.Read, Resource: "fs"}, func(_ decide.Candidate, why decide.Reason) {
			if why.Text == "" {
				t.Errorf("%s: no reason", tt.name)
			}
			dropped++
		})
		if got != tt.want || dropped != n-len(strings.Fields(got)) {
			t.Errorf("%s: %s goes on, and %d do not; want %s", tt.name, got, dropped, tt.want)
		}
		// Who names a tool means that one.
		if named := apply(&switchboard.Requirement{Tools: []string{"*/x"}}, decide.Ignore); named != tt.tools {
			t.Errorf("%s: by name %s goes on", tt.name, named)
		}
	}
}

func TestTheReasonNamesTheStateOfTheServer(t *testing.T) {
	q := &decide.Question{Requirement: &switchboard.Requirement{Verb: switchboard.Read, Resource: "fs"}, Unfit: decide.Unfit{{Server: "a"}: "quarantine", {Server: "b"}: health.GivenUp}}
	var in []decide.Candidate
	for _, s := range []switchboard.ServerID{"a", "b", "c"} {
		in = append(in, decide.Candidate{Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: s, Name: "x"}}})
	}
	var got []string
	if _, err := health.Stage.Apply(t.Context(), q, in, func(c decide.Candidate, why decide.Reason) {
		got = append(got, fmt.Sprintf("%s: %s", c.Tool.ID, why))
	}); err != nil {
		t.Fatal(err)
	}
	want := "a/x: it is not fit to serve now: quarantine; b/x: its server was given up for another, which still serves"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("%s; want %s", s, want)
	}
}
