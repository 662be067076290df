package author_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAnEvaluationShowsTheValueOfEveryExpression(t *testing.T) {
	source := &author.Sources{Kind: policy.Tenant, Tenant: "acme", Files: []switchboard.PolicyFile{{Name: "own.rego", Path: "own.rego", Data: []byte(`package switchboard.tenant

allowed_tools contains c.id if some c in input.candidate_tools

deny[c.id] contains "closed" if {
	some c in input.candidate_tools
	c.server == "brave"
	limit := count(input.principal.roles)
	limit > 5
	c.class == "free"
}
`)}}}
	input := map[string]any{
		"now": "2026-11-23T10:30:00Z", "principal": map[string]any{"id": "ann", "roles": []any{"a", "b"}},
		"candidate_tools": []any{map[string]any{"id": "brave/search", "server": "brave"}, map[string]any{"id": "google/search", "server": "google"}},
	}
	evaluate := func(expressions bool) *author.Evaluation {
		t.Helper()
		got, err := author.EvaluateFor(t.Context(), &switchboard.Tenant{ID: "acme"}, input, nil, []*author.Sources{source}, expressions)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := evaluate(false); got.Layers[0].Expressions != nil {
		t.Errorf("nobody has asked for %+v", got.Layers[0].Expressions)
	}
	var lines []string
	found := evaluate(true).Layers[0].Expressions
	for _, x := range found {
		lines = append(lines, fmt.Sprintf("%d:%d %s: %d %d", x.Line, x.Column, x.Text, x.Held, x.Failed))
	}
	want := []string{
		"3:24 c.id: 2 0",
		"3:32 some c in input.candidate_tools: 2 0",
		"5:6 c.id: 0 0",
		"6:2 some c in input.candidate_tools: 2 0",
		`7:2 c.server == "brave": 1 1`,
		"8:2 limit := count(input.principal.roles): 1 0",
		"8:11 count(input.principal.roles): 1 0",
		"8:17 input.principal.roles: 1 0",
		"9:2 limit > 5: 0 1",
		`10:2 c.class == "free": 0 0`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("the expressions are\n%s", strings.Join(lines, "\n"))
	}
	for at, want := range map[int]string{6: `{"id": "brave/search", "server": "brave"}`, 9: "limit > 5\n|\n2"} {
		if i := slices.IndexFunc(found, func(x author.ExpressionValue) bool { return x.Line == at }); !strings.Contains(found[i].Values, want) || strings.Contains(found[i].Values, "undefined") {
			t.Errorf("line %d lacks the value %s:\n%s", at, want, found[i].Values)
		}
	}
}
