package policy

import (
	"fmt"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestTheCallsThatWhatARunHasTouchedMattersToAreFoundInTheCompiledRules(t *testing.T) {
	one := func(cond string) string {
		return allowed + "deny[c.id] contains \"x\" if {\n\tsome c in input.candidate_tools\n\t" + cond + "\n}\n"
	}
	const both = `"sees" in input.run.touched`
	for name, tt := range map[string]struct {
		flows switchboard.Flows
		rules string
		want  []touchRule
	}{
		"no rule reads it":             {"", one(`c.class == "x"`), nil},
		"a rule for every call":        {"", one(both), []touchRule{{}}},
		"for what carries data out":    {"", one(`"carries" in c.flow; ` + both), []touchRule{{ruleNeeds{flow: switchboard.Carries}, false}}},
		"for two bits":                 {"", one(`"carries" in c.flow; "sees" in c.flow; ` + both), []touchRule{{ruleNeeds{flow: switchboard.Carries | switchboard.Sees}, false}}},
		"in one mode":                  {"", one(`input.mode == "assist"; ` + both), []touchRule{{ruleNeeds{mode: switchboard.Assist}, false}}},
		"in several modes":             {"", one(`input.mode in {"assist", "observe"}; ` + both), []touchRule{{}}},
		"not in one mode":              {"", one(`not input.mode == "assist"; ` + both), []touchRule{{}}},
		"with a setting":               {"ask", one(`input.flows == "ask"; ` + both), []touchRule{{ruleNeeds{flows: switchboard.FlowsAsk}, false}}},
		"without the setting":          {"", one(`input.flows == "ask"; ` + both), nil},
		"with the default":             {"", one(`input.flows == "record"; ` + both), []touchRule{{ruleNeeds{flows: switchboard.FlowsRecord}, false}}},
		"after what may fail":          {"", one(`startswith(c.class, "x"); input.flows == "ask"; ` + both), []touchRule{{}}},
		"through a helper":             {"", one(`"carries" in c.flow; late`) + "late if " + both + "\n", []touchRule{{ruleNeeds{flow: switchboard.Carries}, false}}},
		"the bit in a helper":          {"", one(`out(c); `+both) + "out(c) if \"carries\" in c.flow\n", []touchRule{{}}},
		"of another candidate":         {"", one(`some d in input.candidate_tools; "carries" in d.flow; ` + both), []touchRule{{}}},
		"of something else":            {"", one(`some d in [{"flow": ["carries"]}]; "carries" in d.flow; ` + both), []touchRule{{}}},
		"negated":                      {"", one(`not "carries" in c.flow; ` + both), []touchRule{{}}},
		"the input as a whole":         {"", one(`"carries" in c.flow; x := input; x.mode == "assist"`), []touchRule{{}}},
		"it asks":                      {"", allowed + "obligations[c.id] contains {\"type\": \"require_approval\"} if {\n\tsome c in input.candidate_tools\n\t" + both + "\n}\n", []touchRule{{asks: true}}},
		"it asks nobody":               {"", allowed + "obligations[c.id] contains {\"type\": \"log\", \"level\": \"info\"} if {\n\tsome c in input.candidate_tools\n\t" + both + "\n}\n", []touchRule{{}}},
		"another answer depends on it": {"", allowed + "deny[id] contains \"x\" if {\n\tsome id in allowed_tools\n\t" + both + "\n}\n", []touchRule{{}}},
	} {
		l, err := Compile(Operator, []switchboard.PolicyFile{{Name: "a.rego", Path: "a.rego", Data: []byte("package switchboard\n" + tt.rules)}})
		if err != nil {
			t.Fatal(name, err)
		}
		p, err := testEngine.NewPolicy(&switchboard.Tenant{ID: "acme", Flows: tt.flows}, l)
		if err != nil {
			t.Fatal(name, err)
		}
		if got := p.layers[0].touchRules; fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %+v, want %+v\n%s", name, got, tt.want, tt.rules)
		}
		if p.reads&readsTouched != 0 {
			t.Errorf("%s: what a run has touched counts as a late input", name)
		}
	}
}
