package policy

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// FuzzArgumentsReadAsOPAReadsThem checks that OPA's own reader returns the same value for every
// text that parseValue accepts.
func FuzzArgumentsReadAsOPAReadsThem(f *testing.F) {
	for _, s := range []string{
		`null`, `true`, `[]`, `{}`, `-0`, `1.50`, `1e2`, `"a\u00e9\ud83d\ude00\n"`, `{"a":[1,{"b":null}],"c":{"":false}}`, ` [ 1 , 2 ] `,
		`{"a":1,"a":2}`, `[1`, `{"a":`, `"\ud800"`, `1 2`, `[1,]`, ``, `tru`, `{"a":1}}`, strings.Repeat("[", 70) + strings.Repeat("]", 70), "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := ParseValue(raw)
		if err != nil {
			return
		}
		want, err := ast.ValueFromReader(bytes.NewReader(raw))
		if err != nil || got.Compare(want) != 0 {
			t.Errorf("%q: %v, but OPA reads %v (%v)", raw, got, want, err)
		}
	})
}

func TestArgumentsThatAreNotJSONAreNotJudged(t *testing.T) {
	for _, s := range []string{``, `tru`, `[1`, `{"a":`, `{"a"}`, `1 2`, `[1,]`, `{"a":1}}`, `{"a":1,"a":2}`, `"\ud800"`, "\"\xff\""} {
		if v, err := ParseValue([]byte(s)); err == nil {
			t.Errorf("%q is read as %v", s, v)
		}
	}
}

// Tools that differ in one thing alone must not share the term of it.
func TestATermThatIsSharedIsTheTermOfTheToolItself(t *testing.T) {
	plain := func(change func(*switchboard.Tool)) *switchboard.Tool {
		tool := &switchboard.Tool{
			ID: switchboard.ToolID{Server: "a", Name: "one"}, Definition: []byte(`{"annotations":{"x":1}}`),
			Capabilities: []switchboard.Capability{{Verb: "read", Resource: "fs", Constraints: []switchboard.Constraint{"a"}, Source: switchboard.FromTool}},
		}
		change(tool)
		return tool
	}
	capability := func(change func(*switchboard.Capability)) *switchboard.Tool {
		return plain(func(tool *switchboard.Tool) { change(&tool.Capabilities[0]) })
	}
	tools := []*switchboard.Tool{
		plain(func(*switchboard.Tool) {}),
		plain(func(tool *switchboard.Tool) { tool.Definition = []byte(`{"annotations":{"x":2}}`) }),
		plain(func(tool *switchboard.Tool) { tool.Definition = []byte(`{}`) }),
		plain(func(tool *switchboard.Tool) { tool.Definition = []byte(`{"annotations":[]}`) }),
		plain(func(tool *switchboard.Tool) {
			tool.Contract.ReadOnly = switchboard.Fact{Holds: true, Source: switchboard.FromHint}
		}),
		plain(func(tool *switchboard.Tool) {
			tool.Contract.ReadOnly = switchboard.Fact{Holds: true, Source: switchboard.FromHint, Trusted: true}
		}),
		plain(func(tool *switchboard.Tool) { tool.Contract.Timeout = time.Second }),
		plain(func(tool *switchboard.Tool) { tool.Capabilities = nil }),
		capability(func(c *switchboard.Capability) { c.Verb = "write" }),
		capability(func(c *switchboard.Capability) { c.Resource = "aws" }),
		capability(func(c *switchboard.Capability) { c.Source = switchboard.FromOverlay }),
		capability(func(c *switchboard.Capability) { c.Constraints = nil }),
		capability(func(c *switchboard.Capability) { c.Constraints = []switchboard.Constraint{"a", "b"} }),
		capability(func(c *switchboard.Capability) { c.Constraints = []switchboard.Constraint{"ab"} }),
		plain(func(tool *switchboard.Tool) { tool.Contract.Risk = switchboard.RiskHigh }),
		plain(func(tool *switchboard.Tool) { tool.Admission = &switchboard.Admission{State: switchboard.LifeTesting} }),
		plain(func(tool *switchboard.Tool) { tool.Evidence = &switchboard.ToolEvidence{Person: true} }),
		plain(func(tool *switchboard.Tool) { tool.Evidence = &switchboard.ToolEvidence{Read: true} }),
		plain(func(tool *switchboard.Tool) {
			tool.Evidence = &switchboard.ToolEvidence{Read: true, Findings: []switchboard.RuleFinding{{Rule: "use-me", Tier: "looking"}}}
		}),
	}
	var together termBuilder
	for i, tool := range slices.Concat(tools, tools) {
		got, err := together.build(tool, switchboard.KindTool)
		want, alone := new(termBuilder).build(tool, switchboard.KindTool)
		if err != nil || alone != nil || got.Value.Compare(want.Value) != 0 {
			t.Errorf("tool %d is %v (%v), want %v (%v)", i, got, err, want, alone)
		}
		again, _ := together.build(tool, switchboard.KindTool)
		for _, part := range []string{"annotations", "contract"} {
			if key := ast.StringTerm(part); got.Value.(ast.Object).Get(key) != again.Value.(ast.Object).Get(key) {
				t.Errorf("tool %d does not share its %s", i, part)
			}
		}
	}
}

// What nobody knows about a tool is left out, so that a rule can tell it from "no" and from "none".
func TestWhatNobodyKnowsIsNotInTheEvidence(t *testing.T) {
	for want, tool := range map[string]switchboard.Tool{
		`{"state": "active"}`: {},
		`{"report": {"failed": ["missing"], "leave": "walls", "score": 0.9, "verified": false, "walls": ["files", "network"]}, "state": "active"}`: {ToolStanding: switchboard.ToolStanding{
			Evidence: &switchboard.ToolEvidence{Report: &switchboard.ReportFacts{Score: 900, Leave: "walls", Walls: []string{"files", "network"}, Failed: []string{"missing"}}},
		}},
		`{"findings": [], "risk": "safe", "state": "active"}`: {
			Contract: switchboard.Contract{Risk: switchboard.RiskSafe}, ToolStanding: switchboard.ToolStanding{Evidence: &switchboard.ToolEvidence{Read: true}},
		},
		`{"diff": "words", "findings": [{"rule": "secrecy", "tier": "looking"}], "frozen": true, "let_in_by": "person", "state": "deprecated"}`: {ToolStanding: switchboard.ToolStanding{
			Admission: &switchboard.Admission{State: switchboard.LifeDeprecated, Frozen: true, Why: "its server offers another definition"},
			Evidence:  &switchboard.ToolEvidence{Diff: "words", Person: true, Read: true, Findings: []switchboard.RuleFinding{{Rule: "secrecy", Tier: "looking"}}},
		}},
	} {
		term, err := new(termBuilder).build(&tool, switchboard.KindTool)
		if err != nil {
			t.Fatal(err)
		}
		if got := term.Value.(ast.Object).Get(keyEvidence).String(); got != want {
			t.Errorf("the evidence is %s, want %s", got, want)
		}
		term, err = new(termBuilder).build(&tool, switchboard.KindPrompt)
		if err != nil || term.Value.(ast.Object).Get(keyEvidence) != nil {
			t.Errorf("a prompt is %v, %v; nothing is known about it", term, err)
		}
	}
}

// BenchmarkArguments compares parseValue with OPA's own reader.
func BenchmarkArguments(b *testing.B) {
	for name, raw := range map[string]string{
		"1 MB of text": `{"x":"` + strings.Repeat("a", 1_000_000) + `"}`,
		"small":        `{"query":"the weather","limit":10,"tags":["a","b"],"deep":{"a":{"b":null}}}`,
	} {
		for who, read := range map[string]func([]byte) (ast.Value, error){
			"ours": ParseValue, "opa": func(raw []byte) (ast.Value, error) { return ast.ValueFromReader(bytes.NewReader(raw)) },
		} {
			b.Run(name+"/"+who, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := read([]byte(raw)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
