package bind

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/ranking"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// offeredTools is a first stage that finds these tools for every requirement.
type offeredTools []*switchboard.Tool

func (offeredTools) Name() string { return decide.StageFilter }

func (o offeredTools) Apply(_ context.Context, _ *decide.Question, in []decide.Candidate, _ decide.Drop) ([]decide.Candidate, error) {
	for _, t := range o {
		in = append(in, decide.Candidate{Tool: t})
	}
	return in, nil
}

func TestToolsTieIfOnlyTheirNamesOrderThem(t *testing.T) {
	read := switchboard.Requirement{Verb: "read", Resource: "fs", Select: switchboard.SelectTool}
	named := switchboard.Requirement{Tools: []string{"*/*"}, Select: switchboard.SelectTool}
	server := switchboard.Requirement{Verb: "read", Resource: "fs"}
	best := switchboard.Ranking{Adjust: []switchboard.Adjust{{Server: "b", By: 1}}}
	prefer := switchboard.Ranking{Prefer: []switchboard.Prefer{{Verb: "read", Resource: "fs", Servers: []switchboard.ServerID{"b"}}}}
	const (
		rank       = "rank the servers"
		constraint = "require a constraint"
	)
	for _, tt := range []struct {
		name  string
		need  switchboard.Requirement
		r     switchboard.Ranking
		tools []string // in the order of their ids
		tied  []string
		says  []string
		not   string // the warning must not contain it
	}{
		{"two servers", read, switchboard.Ranking{}, []string{"a/x", "b/x"}, []string{"b/x"}, []string{"only its name puts a/x before b/x;", rank, `tools: ["a/x"]`, constraint}, ""},
		{"two tools of one server", read, switchboard.Ranking{}, []string{"a/x", "a/y"}, []string{"a/y"}, []string{"a/x before a/y;", `tools: ["a/x"]`, constraint}, rank},
		{"tools by a pattern", named, switchboard.Ranking{}, []string{"a/x", "b/x"}, []string{"b/x"}, []string{rank, `tools: ["a/x"]`}, constraint},
		{"some rank behind", read, best, []string{"a/x", "b/x", "b/y"}, []string{"b/y"}, []string{"b/x before b/y;"}, "a/x"},
		{"a server that is preferred ties with none", read, prefer, []string{"a/x", "b/x"}, nil, nil, ""},
		{"but its own tools tie", read, prefer, []string{"a/x", "b/x", "b/y"}, []string{"b/y"}, []string{"b/x before b/y;"}, rank},
		{"a better score", read, best, []string{"a/x", "b/x"}, nil, nil, ""},
		{"one candidate", read, switchboard.Ranking{}, []string{"a/x"}, nil, nil, ""},
		{"none", read, switchboard.Ranking{}, nil, nil, nil, ""},
		{"the whole server is taken", server, switchboard.Ranking{}, []string{"a/x", "b/x"}, nil, nil, ""},
		{"many", read, switchboard.Ranking{}, []string{"a/x", "b/x", "c/x", "d/x", "e/x", "f/x", "g/x"}, []string{"b/x", "c/x", "d/x", "e/x", "f/x", "g/x"}, []string{"before b/x, c/x, d/x, e/x, f/x and 1 more;"}, "g/x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var tools offeredTools
			for _, s := range tt.tools {
				id, err := switchboard.ParseToolID(s)
				if err != nil {
					t.Fatal(err)
				}
				tools = append(tools, &switchboard.Tool{ID: id})
			}
			d, err := decide.Pipeline{tools, ranking.New(tt.r, tools)}.Decide(t.Context(), decide.Input{
				Tenant: &switchboard.Tenant{ID: "acme"}, Principal: switchboard.Principal{Tenant: "acme"},
				Task: &switchboard.Task{ID: "work", Requirements: []switchboard.Requirement{tt.need}},
			})
			if err != nil {
				t.Fatal(err)
			}
			tied, warning := FindTie(&d.Outcomes[0])
			if !slices.Equal(tied, tt.tied) || (warning == "") != (tied == nil) {
				t.Errorf("tied are %q, want %q: %s", tied, tt.tied, warning)
			}
			for _, text := range tt.says {
				if !strings.Contains(warning, text) {
					t.Errorf("%q does not say %q", warning, text)
				}
			}
			if tt.not != "" && strings.Contains(warning, tt.not) {
				t.Errorf("%q says %q", warning, tt.not)
			}
		})
	}
}

func TestATieIsLoggedOncePerChange(t *testing.T) {
	var all tieLog
	one := tieKey{"acme", "work", "read fs", "only its name puts a/x before b/x"}
	other := one
	other.warning = "only its name puts a/x before c/x"
	for i, tt := range []struct {
		k    tieKey
		want bool
	}{{one, true}, {one, false}, {other, true}, {one, false}} {
		if got := all.addNew(tt.k); got != tt.want {
			t.Errorf("%d: %v is new: %v, want %v", i, tt.k, got, tt.want)
		}
	}
	all.clear()
	if !all.addNew(one) {
		t.Error("after clear, the tie is not new")
	}
	for range maxTies + 1 {
		other.warning += "."
		all.addNew(other)
	}
	if len(all.logged) > maxTies {
		t.Errorf("%d ties are remembered", len(all.logged))
	}
}
