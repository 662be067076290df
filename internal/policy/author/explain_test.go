package author_test

import (
	"encoding/json"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/test/policytest"
)

func TestADenialNamesItsRuleWithFileLineAndValues(t *testing.T) {
	p := policytest.NewPolicy(t, `{"no":["brave"]}`, `
deny[c.id] contains reason if {
	some c in input.candidate_tools
	some server in input.tenant_policy.no
	c.server == server
	reason := sprintf("not %s", [server])
}
allowed_tools contains c.id if {
	some c in input.candidate_tools
	some k in c.capabilities
	verb := k.verb
	verb in {"search"}
}`, `
allowed_tools contains c.id if {
	some c in input.candidate_tools
	wanted := "google"
	c.server == wanted
}`)
	got := author.Explain(t.Context(), p, policytest.NewQuestion(policy.PhaseSelect, "", policytest.Three...))
	want := map[string]string{
		"brave/search": `[{"layer":"operator","rule":"deny","file":"policies/test.rego","line":3,"reason":"not brave","values":{"server":"\"brave\""}},` +
			`{"layer":"tenant","rule":"allowed_tools","file":"policies/test.rego","line":6,"failed":"c.server == wanted","values":{"wanted":"\"google\""}}]`,
		"google/search": `null`,
		"poster/post": `[{"layer":"operator","rule":"allowed_tools","file":"policies/test.rego","line":13,"failed":"verb in {\"search\"}","values":{"k":"{\"constraints\": [], \"resource\": \"internet\", \"source\": \"tool\", \"verb\": \"write\"}","verb":"\"write\""}},` +
			`{"layer":"tenant","rule":"allowed_tools","file":"policies/test.rego","line":6,"failed":"c.server == wanted","values":{"wanted":"\"google\""}}]`,
	}
	for _, c := range policytest.Three {
		text, _ := json.Marshal(got[c.ID])
		if string(text) != want[c.ID.String()] {
			t.Errorf("%s:\n%s, want\n%s", c.ID, text, want[c.ID.String()])
		}
	}
}
