package decide_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A task also gets the other things that a server offers, unless it takes only single tools.
func TestATaskUsesAServerAsAWholeUnlessItTakesSingleTools(t *testing.T) {
	capability := switchboard.Requirement{}
	one := switchboard.Requirement{Select: switchboard.SelectTool}
	named := func(patterns ...string) switchboard.Requirement { return switchboard.Requirement{Tools: patterns} }
	oneNamed := switchboard.Requirement{Tools: []string{"docs/*"}, Select: switchboard.SelectTool}
	for _, tt := range []struct {
		name         string
		requirements []switchboard.Requirement
		selected     string // server/tool:requirement,requirement
		toolless     string
		want         string // servers; ! marks those that a pattern names
	}{
		{"nothing", nil, "", "", ""},
		{"by capability", []switchboard.Requirement{capability}, "docs/a:0 docs/b:0", "", "docs"},
		{"one tool by capability", []switchboard.Requirement{one}, "docs/a:0", "", ""},
		{"one tool, and others by another requirement", []switchboard.Requirement{one, capability}, "docs/a:0 docs/b:1", "", "docs"},
		{"one tool that another requirement selects too", []switchboard.Requirement{one, capability}, "docs/a:0,1", "", "docs"},
		{"a tool by name", []switchboard.Requirement{named("docs/a")}, "docs/a:0", "", ""},
		{"some tools by name", []switchboard.Requirement{named("docs/a*", "docs/b")}, "docs/a:0 docs/b:0", "", ""},
		{"all tools by name", []switchboard.Requirement{named("docs/*")}, "docs/a:0", "", "docs!"},
		{"all tools of all by name", []switchboard.Requirement{named("*/*")}, "x/a:0 docs/a:0", "", "x! docs!"},
		{"all of some servers by name", []switchboard.Requirement{named("d*/*", "x/a")}, "x/a:0 docs/a:0", "", "docs!"},
		{"one of all by name", []switchboard.Requirement{oneNamed}, "docs/a:0", "docs", ""},
		{"by capability and by name", []switchboard.Requirement{capability, named("docs/*")}, "docs/a:0,1", "", "docs!"},
		{"a server without tools by name", []switchboard.Requirement{named("docs/*")}, "", "docs other", "docs!"},
		{"a tool of a server without tools", []switchboard.Requirement{named("docs/a")}, "", "docs", ""},
		{"a capability finds no server without tools", []switchboard.Requirement{capability}, "", "docs", ""},
		{"in the order of the tools", []switchboard.Requirement{capability, capability}, "z/a:1 a/a:0", "", "z a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var selected []decide.Selected
			for s := range strings.FieldsSeq(tt.selected) {
				tool, by, _ := strings.Cut(s, ":")
				id, err := switchboard.ParseToolID(tool)
				if err != nil {
					t.Fatal(err)
				}
				sel := decide.Selected{Tool: &switchboard.Tool{ID: id}}
				for r := range strings.SplitSeq(by, ",") {
					var i int
					_, _ = fmt.Sscan(r, &i)
					sel.Requirements = append(sel.Requirements, i)
				}
				selected = append(selected, sel)
			}
			var toolless []switchboard.ServerID
			for id := range strings.FieldsSeq(tt.toolless) {
				toolless = append(toolless, switchboard.ServerID(id))
			}
			var got []string
			for _, use := range decide.Whole(&switchboard.Task{Requirements: tt.requirements}, selected, toolless) {
				got = append(got, string(use.Server)+map[bool]string{true: "!"}[use.Named])
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
