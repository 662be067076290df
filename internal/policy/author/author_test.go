package author_test

import (
	"encoding/json"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/policies"
	"github.com/summit-switchboard/switchboard/test/policytest"
)

// authored returns a layer of one file and, if given, its tests.
func authored(kind policy.LayerKind, text string, tests ...string) *author.Sources {
	s := &author.Sources{Kind: kind, Name: "policies", Files: []switchboard.PolicyFile{policytest.Source(kind, text)}}
	for _, t := range tests {
		s.Files = append(s.Files, switchboard.PolicyFile{Name: "policies/a_test.rego", Path: "a_test.rego", Data: []byte(t)})
	}
	return s
}

// warningTexts returns the text of each warning.
func warningTexts(warnings []author.Warning) []string {
	out := []string{}
	for _, w := range warnings {
		out = append(out, w.String())
	}
	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const someTests = `package switchboard_test

import data.switchboard

one := {"candidate_tools": [{"id": "a/b"}]}

test_passes if "a/b" in switchboard.allowed_tools with input as one

test_fails_at_the_last_that_it_came_to if {
	some word in ["x", "y"]
	word != "z"
	allowed := switchboard.allowed_tools with input as one
	allowed == {"a/b", word}
}

test_fails_within_every if {
	every id in ["a/b", "c/d"] {
		print("looking at", id)
		id in switchboard.allowed_tools with input as one
	}
}

test_fails_for_want_of_a_value if {
	low(3) == 4
}

low(x) := x + 1 if x < 3

test_cannot_be_evaluated if to_number("x") == 1

todo_test_waits if false
`

func TestAFailedTestNamesItsExpressionAndValues(t *testing.T) {
	r, err := author.RunTests(t.Context(), authored(policy.Operator, policytest.AllowAll, someTests), "", false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, test := range r.Tests {
		text := test.String() + " " + string(test.Outcome) + " " + strings.TrimPrefix(test.Name, "data.switchboard_test.")
		if test.At != nil {
			text += " at " + test.At.String()
		}
		for _, s := range []string{test.Values, test.Error, test.Output} {
			if s != "" {
				text += "\n" + s
			}
		}
		got = append(got, text)
	}
	same(t, "tests", got, []string{
		"policies/a_test.rego:7 pass test_passes",
		`policies/a_test.rego:9 fail test_fails_at_the_last_that_it_came_to at policies/a_test.rego:13
allowed == {"a/b", word}
|                  |
|                  "y"
{"a/b"}`,
		`policies/a_test.rego:16 fail test_fails_within_every at policies/a_test.rego:19
id in switchboard.allowed_tools with input as one
|     |                                       |
|     |                                       {"candidate_tools": [{"id": "a/b"}]}
|     {"a/b"}
"c/d"
looking at a/b
looking at c/d`,
		`policies/a_test.rego:23 fail test_fails_for_want_of_a_value at policies/a_test.rego:24
low(3) == 4
|
undefined`,
		`policies/a_test.rego:29 error test_cannot_be_evaluated at policies/a_test.rego:29
to_number: strconv.ParseFloat: parsing "x": invalid syntax`,
		"policies/a_test.rego:31 skipped todo_test_waits",
	})
}

func TestCoverageNamesTheLinesThatNoTestReached(t *testing.T) {
	s := authored(policy.Operator, policytest.AllowAll+`
deny[c.id] contains "no" if {
	some c in input.candidate_tools
	c.class == "x"
	c.server == "y"
}

deny["a/b"] contains "never" if input.mode == "observe"
`, someTests)
	r, err := author.RunTests(t.Context(), s, "", true)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(r.Coverage)
	want := `[{"file":"policies/test.rego","percent":20,"missed":[{"first":4,"last":4},{"first":6,"last":7},{"first":10,"last":10}]}]`
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestMistakesInTestFilesAreFaults(t *testing.T) {
	for text, want := range map[string]string{
		"package switchboard_test\ntest_x if input.candidates\n": "policies/a_test.rego:2:11: rego_type_error: undefined ref: input.candidates",
		"package switchboard_test\ntest_x if {\n":                "policies/a_test.rego:3:0: rego_parse_error: unexpected eof token",
		"package switchboard_test\ntest_x if http.send({})\n":    "policies/a_test.rego:2:11: rego_type_error: undefined function http.send",
		"": "policies/a_test.rego: rego_parse_error: empty module",
	} {
		s := authored(policy.Operator, policytest.AllowAll, text)
		_, err := author.RunTests(t.Context(), s, "", false)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\n%v, want %s", text, err, want)
		}
		if err := s.CompileTests(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\n%v, want %s", text, err, want)
		}
	}
}

func TestLintWarnsOfLikelyMistakes(t *testing.T) {
	known := author.KnownNames{
		Servers: []switchboard.ServerID{"brave", "quiet"}, Silent: []switchboard.ServerID{"quiet"},
		Tools: []switchboard.ToolID{{Server: "brave", Name: "search"}},
	}
	const each = "\tsome c in input.candidate_tools\n"
	for name, c := range map[string]struct {
		rules string
		want  []string
	}{
		"nothing, where all is well": {rules: `
deny[c.id] contains "no" if {
	some c in input.candidate_tools
	dangerous(c)
	count(input.candidate_tools) > 3
	not calm
	not empty(input.tenant_policy)
	input.principal.id != "ann/x"
}
empty(x) if x == {}
dangerous(c) if c.id in {"brave/search", "quiet/any"}
dangerous(c) if c.server == "quiet"
calm if startswith(input.tenant_policy.word, "x")
`},
		"a rule that nobody asks": {
			rules: "veto[c.id] contains \"no\" if some c in input.candidate_tools\n",
			want:  []string{`policies/test.rego:3:1: veto: none of allowed_tools, deny, obligations, keep_out depends on it, so it decides nothing; give it one of these names, or remove it (unreached)`},
		},
		"a veto for one requirement": {
			rules: "deny[c.id] contains \"no\" if {\n" + each + "\tinput.requirement.verb == \"write\"\n}\n",
			want:  []string{`policies/test.rego:5:2: deny: it reads input.requirement, so a tool that it vetoes for one requirement of a task can be selected for another; read the candidate's own capabilities, or have the operator write policies: {veto: task} in switchboard.yaml (requirement)`},
		},
		"a veto that asks a rule about the requirement": {
			rules: "deny[c.id] contains \"no\" if {\n" + each + "\twriting\n}\nwriting if input.requirement.verb == \"write\"\n",
			want:  []string{`policies/test.rego:7:12: deny: it reads input.requirement, so a tool that it vetoes for one requirement of a task can be selected for another; read the candidate's own capabilities, or have the operator write policies: {veto: task} in switchboard.yaml (requirement)`},
		},
		"what is never used": {
			rules: "deny[c.id] contains \"no\" if {\n" + each + "\tx := c.class\n}\n",
			want:  []string{`policies/test.rego:5:2: assigned var x unused; remove it, or use it (unused)`},
		},
		"two passes over the candidates": {
			rules: "deny[c.id] contains \"no\" if {\n" + each + "\tsome d in input.candidate_tools\n\tc.tool == d.tool\n}\n",
			want:  []string{`policies/test.rego:3:1: deny: it iterates over the candidates for each candidate; decide about each one alone, or iterate over them once in a rule of its own (quadratic)`},
		},
		"a question about another answer": {
			rules: "obligations[c.id] contains {\"type\": \"log\", \"level\": \"info\"} if {\n" + each + "\tnot deny[c.id]\n}\ndeny[c.id] contains \"no\" if some c in input.candidate_tools\n",
			want:  []string{`policies/test.rego:5:6: obligations: for each candidate it evaluates deny, which iterates over the candidates itself; make that a function of one candidate (quadratic)`},
		},
		"a function that goes over the candidates": {
			rules: "deny[c.id] contains \"no\" if {\n" + each + "\talone(c)\n}\nalone(c) if count([1 | some d in input.candidate_tools; d.server == c.server]) == 1\n",
			want:  []string{`policies/test.rego:5:2: deny: for each candidate it evaluates alone, which iterates over the candidates itself; make that a function of one candidate (quadratic)`},
		},
		"a not that is undefined": {
			rules: "deny[c.id] contains \"no\" if {\n" + each + "\tnot lower(input.call.arguments.path) in {\"a\"}\n}\n",
			want:  []string{"policies/test.rego:5:2: deny: if input.call.arguments.path is missing, the whole rule is undefined, because the arguments of a `not` are evaluated before it; put the condition into a rule of its own, and negate that (not)"},
		},
		"a pattern that repeats by count": {
			rules: "deny[c.id] contains \"no\" if {\n" + each + "\tregex.match(`(a?){500}(a?){499}b`, c.tool)\n}\n",
			want:  []string{"policies/test.rego:5:2: deny: the pattern has 5997 instructions, because it repeats by count; texts of more than 2798 bytes are refused with SB-POL-002; write * or + for the count, or a smaller count (cost)"},
		},
		"a pattern that a client sends": {
			rules: "deny[c.id] contains \"no\" if {\n" + each + "\tregex.match(input.call.arguments.pattern, c.tool)\n}\n",
			want:  []string{"policies/test.rego:5:2: deny: the pattern is not a constant, and regex.match gets a value that a client sends; a pattern that costs too much is refused with SB-POL-002; write the pattern as a constant (cost)"},
		},
		"a builtin whose cost grows with what a client sends": {
			rules: "deny[c.id] contains \"no\" if {\n" + each + "\tgraphql.is_valid(input.call.arguments.query, \"type Query { a: Int }\")\n}\n",
			want:  []string{"policies/test.rego:5:2: deny: graphql.is_valid gets a value that a client sends, and is refused with SB-POL-002 for operands of more than 4096 bytes; compare its count, or a number itself, with a bound first (cost)"},
		},
		"tools and servers that are not there": {
			rules: `
allowed_tools contains "brave/serch"
deny["search"] contains "no"
deny[c.id] contains "no" if {
	some c in input.candidate_tools
	c.id in banned
	c.server != "braev"
	"quiet/any" == c.id
}
banned := ["brave/find", "gone/x"]
`,
			want: []string{
				`policies/test.rego:4:24: allowed_tools: server brave has no tool "serch"; write it as the server does (stranger)`,
				`policies/test.rego:5:6: deny: "search" is not a tool of a server here; write server/tool, with one of brave, quiet (stranger)`,
				`policies/test.rego:9:14: deny: there is no server "braev"; there are brave, quiet (stranger)`,
				`policies/test.rego:12:12: deny: server brave has no tool "find"; write it as the server does (stranger)`,
				`policies/test.rego:12:26: deny: "gone/x" is not a tool of a server here; write server/tool, with one of brave, quiet (stranger)`,
			},
		},
	} {
		text := policytest.AllowAll + c.rules
		same(t, name, warningTexts(author.Lint(authored(policy.Operator, text), policytest.CompileLayer(t, policy.Operator, text), known)), c.want)
	}
}

// RX-09: the author of a policy is warned of a call that a client can get refused, with the builtin
// and the limit.
func TestAttack1TheCheckNamesCallsThatAClientCanMakeTooCostly(t *testing.T) {
	const each = "deny[c.id] contains \"no\" if {\n\tsome c in input.candidate_tools\n"
	const graphql = "graphql.is_valid gets a value that a client sends, and is refused with SB-POL-002 for operands of more than 4096 bytes"
	for rules, want := range map[string]string{
		each + "graphql.is_valid(input.call.arguments.q, `type Query { a: Int }`) }":                                     graphql,
		each + "graphql.is_valid(input.call.uri, `x`) }":                                                                 graphql,
		each + "graphql.is_valid(input.call[x], `x`) }":                                                                  graphql,
		each + "q := input.call.arguments.q\ngraphql.is_valid(lower(q), `x`) }":                                          graphql,
		each + "{\"q\": q} = input.call.arguments\ngraphql.is_valid(q, `x`) }":                                           graphql,
		each + "some q in input.call.arguments.all\ngraphql.is_valid(q, `x`) }":                                          graphql,
		each + "every q in input.call.arguments.all { graphql.is_valid(q, `x`) } }":                                      graphql,
		each + "walk(input.call.arguments, [_, q])\ngraphql.is_valid(q, `x`) }":                                          graphql,
		each + "all := [q | some q in input.call.arguments.all]\ngraphql.is_valid(all[0], `x`) }":                        graphql,
		each + "bad(input.call.arguments.q) }\nbad(q) if graphql.is_valid(q, `x`)":                                       graphql,
		each + "bad(c, input.call.arguments.q) }\nbad(_, q) if worse(q)\nworse(q) if graphql.is_valid(q, `x`)":           graphql,
		each + "graphql.is_valid(query, `x`) }\nquery := input.call.arguments.q":                                         graphql,
		each + "graphql.is_valid(given(1), `x`) }\ngiven(_) := input.call.arguments.q":                                   graphql,
		each + "some q in queries\ngraphql.is_valid(q, `x`) }\nqueries contains q if some q in input.call.arguments.all": graphql,

		each + "numbers.range(1, input.call.arguments.n)[_] == 5 }":                     "numbers.range gets a value that a client sends, and is refused with SB-POL-002 for a range of more than 262144 numbers",
		each + "net.cidr_expand(input.call.arguments.net)[_] == `10.0.0.1` }":           "a network of more than 2^16 addresses",
		each + "bits.lsh(1, input.call.arguments.n) == 8 }":                             "a shift by more than 4096 bits",
		each + "sprintf(input.call.arguments.format, [1]) == `1` }":                     "a format of more than 16777216 bytes",
		each + "replace(input.call.arguments.a, `a`, input.call.arguments.b) == `1` }":  "a result of more than 16777216 bytes",
		each + "yaml.is_valid(input.call.arguments.y) }":                                "operands of more than 1048576 bytes",
		each + "io.jwt.verify_hs256(input.call.arguments.t, `key`) }":                   "operands of more than 16384 bytes",
		each + "regex.globs_match(input.call.arguments.a, `a*`) }":                      "patterns with more than 18 repetitions",
		each + "glob.match(`https://*.example.com/**`, [], input.call.arguments.url) }": "glob.match gets a text that a client sends, and is refused with SB-POL-002 for one of more than 1158 bytes, because the pattern \"https://*.example.com/**\" has 2 wildcards",
		each + "glob.match(input.call.arguments.glob, [], c.tool) }":                    "the pattern is not a constant, and glob.match gets a value that a client sends",
		each + "regex.match(input.tenant_policy.form, input.call.arguments.x) }":        "the pattern is not a constant, and regex.match gets a value that a client sends",
		each + "regex.match(form, input.call.arguments.x) }\nform := `(a?){500}`":       "the pattern has 3000 instructions, because it repeats by count; texts of more than 5592 bytes are refused with SB-POL-002",
		each + "count(regex.find_n(`(a?){500}`, c.tool, -1)) == 1 }":                    "because it repeats by count",

		each + "count(input.call.arguments.q) < 1000\ngraphql.is_valid(input.call.arguments.q, `x`) }":  "",
		each + "bad(input.call.arguments.q) }\nbad(q) if { count(q) < 1000; graphql.is_valid(q, `x`) }": "",
		each + "input.call.arguments.n < 100\nnumbers.range(1, input.call.arguments.n)[_] == 5 }":       "",
		each + "graphql.is_valid(c.tool, `x`)\ninput.call.arguments.q == `x` }":                         "",
		each + "graphql.is_valid(input.tenant_policy.q, `x`) }":                                         "",
		each + "numbers.range(1, count(input.call.arguments.q))[_] == 5 }":                              "",
		each + "x := sprintf(`%s`, [input.call.arguments.q])\nx == `1` }":                               "",
		each + "replace(input.call.arguments.a, `a`, `b`) == `1` }":                                     "",
		each + "glob.match(`https://**`, [], input.call.arguments.url) }":                               "",
		each + "glob.match(`*-*-*`, [], c.tool) }":                                                      "",
		each + "regex.match(`^[a-z]+$`, input.call.arguments.x) }":                                      "",
		each + "regex.match(form, input.call.arguments.x) }\nform := `^[a-z]{1,5}$`":                    "",
		each + "regex.match(input.tenant_policy.form, c.tool) }":                                        "",
		each + "json.unmarshal(input.call.arguments.x).a == 1 }":                                        "",
	} {
		text := policytest.AllowAll + rules + "\n"
		var got []string
		for _, w := range author.Lint(authored(policy.Operator, text), policytest.CompileLayer(t, policy.Operator, text), author.KnownNames{}) {
			if w.About == "cost" {
				got = append(got, w.String())
			}
		}
		if len(got) != min(len(want), 1) || !strings.Contains(strings.Join(got, ""), want) {
			t.Errorf("%s\n%q, want %q", rules, got, want)
		}
	}
}

func TestServersAreAskedOnlyForRulesThatNameTools(t *testing.T) {
	for rules, want := range map[string]bool{
		"": false,
		`deny[c.id] contains "no" if { some c in input.candidate_tools; c.server == "brave" }`:    false,
		`deny[c.id] contains "no" if { some c in input.candidate_tools; c.id == "brave/search" }`: true,
		`deny["brave/search"] contains "no"`:                                                      true,
	} {
		if got := author.NamesTools(policytest.CompileLayer(t, policy.Operator, policytest.AllowAll+rules)); got != want {
			t.Errorf("%s: %t, want %t", rules, got, want)
		}
	}
}

// madeUpCount matches the number of made-up tools, which depends on the texts of the rules.
var madeUpCount = regexp.MustCompile(`\([0-9]+ made-up`)

func TestTryWarnsOfALayerThatAlwaysAnswersTheSame(t *testing.T) {
	const all = " (N made-up tools and 3 real ones, in every mode, when selecting and when calling)"
	who := &switchboard.Tenant{ID: "acme", Policy: []byte(`{"no": "brave", "only": ["dear/x*"]}`), Tier: "pro"}
	for rules, want := range map[string]string{
		`allowed_tools contains "no/body"`: "policies: tenant acme: nothing that was tried is allowed" + all + "; most often because: nothing in allowed_tools allows it (denies-all)",
		policytest.AllowAll + `deny[c.id] contains "bad word" if { some c in input.candidate_tools; input.tenant_policy.no }`:                              "policies: tenant acme: nothing that was tried is allowed" + all + "; most often because: bad word (denies-all)",
		policytest.AllowAll + `deny[c.id] contains "no" if { some c in input.candidate_tools; startswith(c.tool, "rm-"); c.class == "x"; c.trust == "y" }`: "policies: tenant acme: nothing that was tried is denied or has an obligation" + all + "; is a rule missing, or do the rules depend on something that was not tried? (allows-all)",

		policytest.AllowAll + `deny[c.id] contains "no" if { some c in input.candidate_tools; c.server == input.tenant_policy.no }`:          "",
		policytest.AllowAll + `deny[c.id] contains "no" if { some c in input.candidate_tools; c.server == "other" }`:                         "",
		policytest.AllowAll + `deny[c.id] contains "no" if { some c in input.candidate_tools; c.id == "other/tool" }`:                        "",
		policytest.AllowAll + `deny[c.id] contains "no" if { some c in input.candidate_tools; c.class == "dear" }`:                           "",
		policytest.AllowAll + `deny[c.id] contains "no" if { some c in input.candidate_tools; input.phase == "call" }`:                       "",
		policytest.AllowAll + `deny[c.id] contains "no" if { some c in input.candidate_tools; input.call.arguments.x == 1 }`:                 "",
		policytest.AllowAll + `deny[c.id] contains "no" if { some c in input.candidate_tools; startswith(c.tool, "rm") }`:                    "",
		policytest.AllowAll + `deny[c.id] contains "no" if { some c in input.candidate_tools; input.mode == "observe" }`:                     "",
		policytest.AllowAll + `deny[c.id] contains "no" if { some c in input.candidate_tools; input.user_tier == "" }`:                       "",
		policytest.AllowAll + `deny[c.id] contains "no" if { some c in input.candidate_tools; input.user_tier == "pro" }`:                    "",
		policytest.AllowAll + `deny[c.id] contains "no" if { some c in input.candidate_tools; "readonly" in input.requirement.constraints }`: "",
		`allowed_tools contains c.id if { some c in input.candidate_tools; startswith(c.id, trim_right(input.tenant_policy.only[0], "*")) }`: "",
		policytest.AllowAll + `deny[c.id] contains "often" if { some c in input.candidate_tools; c.server != "google" }
deny[c.id] contains "an exception" if { some c in input.candidate_tools; c.server == "google" }`: "policies: tenant acme: nothing that was tried is allowed" + all + "; most often because: often (denies-all)",
		policytest.AllowAll + `obligations[c.id] contains {"type": "log", "level": "info"} if some c in input.candidate_tools`:                         "",
		`allowed_tools contains c.id if { some c in input.candidate_tools; some k in c.capabilities; "pii_safe" in k.constraints; k.verb == "write" }`: "",
	} {
		got := strings.Join(warningTexts(author.Try(t.Context(), policytest.Engine, who, authored(policy.Operator, rules), policytest.CompileLayer(t, policy.Operator, rules), policytest.Three)), "\n")
		if got = madeUpCount.ReplaceAllString(got, "(N made-up"); got != want {
			t.Errorf("%s\n%s\nwant\n%s", rules, got, want)
		}
	}
}

func TestSettingsThatNoRuleReadsAreFound(t *testing.T) {
	const word = `{"read": 1, "raed": 2, "also": {"this": 3}}`
	for rules, want := range map[string]string{
		"":                                      "also raed read",
		`x if input.tenant_policy.read == 1`:    "also raed",
		`x if input.tenant_policy["read"] == 1`: "also raed",
		`x := object.get(input.tenant_policy, "read", 0)`:                                                "also raed",
		`x if lower(object.get(input.tenant_policy, ["also", "this"], 0)) == input.tenant_policy.read.x`: "raed",
		`x if object.get(input.tenant_policy, "read", false)`:                                            "also raed",
		`x := input.tenant_policy`:                                                                       "",
		`x if some k in ["read"]; input.tenant_policy[k]`:                                                "",
		`x := object.get(input, ["tenant_policy", "raed"], 0)`:                                           "",
		`x := object.get(input.tenant_policy, lower("READ"), 0)`:                                         "",
	} {
		if strings.Contains(rules, "some k") {
			rules = `x if { some k in ["read"]; input.tenant_policy[k] }`
		}
		got, err := author.Unread([]byte(word), authored(policy.Operator, rules), authored(policy.Tenant, policytest.AllowAll))
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v %v, want %s", rules, got, err, want)
		}
	}
}

func TestAnEvaluationShowsTheValueOfEveryRule(t *testing.T) {
	operator := policytest.CompileLayer(t, policy.Operator, policytest.AllowAll+`
deny[c.id] contains "no" if {
	some c in input.candidate_tools
	c.server in closed
}
closed contains "brave" if input.mode == "observe"
never if input.user_tier == "x"
shout := upper(input.user_tier)
at := time.now_ns()
broken if to_number(input.user_tier) == 1
f(x) := x
`)
	tenant := policytest.CompileLayer(t, policy.Tenant, `allowed_tools contains "google/search"`+"\n"+`allowed_tools contains "gone/x"`)
	input := map[string]any{
		"now": "2026-11-23T10:30:00Z", "mode": "observe", "user_tier": "pro", "tenant_policy": map[string]any{"n": json.Number("1.0")},
		"candidate_tools": []any{map[string]any{"id": "brave/search", "server": "brave"}, map[string]any{"id": "google/search", "server": "google"}},
	}
	got, err := author.Evaluate(t.Context(), policytest.Engine, input, nil, operator, tenant)
	if err != nil {
		t.Fatal(err)
	}
	got.Input = nil
	text, _ := json.Marshal(got)
	want := `{"input":null,"candidates":[` +
		`{"id":"brave/search","allowed":false,"code":"SB-POL-001","why":"the operator's policy denies it: no"},` +
		`{"id":"google/search","allowed":true}],"unknown":["gone/x"],"layers":[{"layer":"operator","rules":[` +
		`{"rule":"switchboard.allowed_tools","at":[{"file":"policies/test.rego","line":2}],"value":["brave/search","google/search"]},` +
		`{"rule":"switchboard.at","at":[{"file":"policies/test.rego","line":11}],"value":1795429800000000000},` +
		`{"rule":"switchboard.broken","at":[{"file":"policies/test.rego","line":12}],"error":"policies/test.rego:12: eval_builtin_error: to_number: strconv.ParseFloat: parsing \"pro\": invalid syntax"},` +
		`{"rule":"switchboard.closed","at":[{"file":"policies/test.rego","line":8}],"value":["brave"]},` +
		`{"rule":"switchboard.deny","at":[{"file":"policies/test.rego","line":4}],"value":{"brave/search":["no"]}},` +
		`{"rule":"switchboard.never","at":[{"file":"policies/test.rego","line":9}],"undefined":true},` +
		`{"rule":"switchboard.shout","at":[{"file":"policies/test.rego","line":10}],"value":"PRO"}]},` +
		`{"layer":"tenant","rules":[{"rule":"switchboard.tenant.allowed_tools","at":[{"file":"policies/test.rego","line":2},{"file":"policies/test.rego","line":3}],"value":["gone/x","google/search"]}]}]}`
	if string(text) != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
}

func TestAnInputIsCheckedAgainstItsSchema(t *testing.T) {
	operator := policytest.CompileLayer(t, policy.Operator, policytest.AllowAll)
	for text, want := range map[string]string{
		`{"now": "2026-11-23T10:30:00Z", "tenant_policy": {"any": [1, null]}, "call": {"arguments": {"x": 1}}}`: "",
		`{}`:                           "input.now: want a time such as 2026-11-21T09:00:00Z",
		`{"now": "today"}`:             "input.now: want a time such as 2026-11-21T09:00:00Z",
		`{"candidates": []}`:           `input: there is no "candidates"; there are approver, ask, call, candidate_tools, flows, least_trust, mode, now, phase, principal, requirement, run, task, tenant_id, tenant_policy, user_tier`,
		`{"mode": "auto"}`:             "input.mode: want one of [observe assist autopilot]",
		`{"mode": 1}`:                  "input.mode: want a text",
		`{"mode": []}`:                 "input.mode: want a text",
		`{"tenant_policy": null}`:      "input.tenant_policy: want an object",
		`{"principal": "ann"}`:         "input.principal: want an object",
		`{"principal": {"roles": {}}}`: "input.principal.roles: want a list",
		`{"candidate_tools": [{"id": "a/b", "kynd": "x"}]}`:        `input.candidate_tools[0]: there is no "kynd"; there are annotations, capabilities, class, contract, enforced, evidence, flow, id, kind, server, tool, trust, version`,
		`{"candidate_tools": [{"contract": {"stateful": "yes"}}]}`: "input.candidate_tools[0].contract.stateful: want true or false",
		`{"candidate_tools": [{"contract": {"sources": true}}]}`:   "input.candidate_tools[0].contract.sources: want an object",
		`{"candidate_tools": [{"contract": {"timeout_ms": 1.5}}]}`: "input.candidate_tools[0].contract.timeout_ms: want a whole number",
		`{"mode": true}`: "input.mode: want a text",
		`{"now": "2026-11-23T10:30:00Z", "candidate_tools": [{"id": "a/b", "contract": {"stateful": true, "timeout_ms": 5000}}]}`: "",
		`{"now": "2026-11-23T10:30:00Z", "candidate_tools": [{"id": "ab"}]}`:                                                      `input.candidate_tools[0].id: tool "ab": want the form server/tool`,
		`{"now": "2026-11-23T10:30:00Z", "requirement": {"constraints": ["readonly"]}}`:                                           "",
	} {
		var input map[string]any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&input); err != nil {
			t.Fatal(err)
		}
		_, err := author.Evaluate(t.Context(), policytest.Engine, input, nil, operator)
		if got := ""; err != nil {
			got = err.Error()
			if got != want {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		} else if want != "" {
			t.Errorf("%s: no error, want %s", text, want)
		}
	}
}

func TestTheShippedPoliciesHaveNoWarnings(t *testing.T) {
	names, err := fs.Glob(policies.Shipped, "*")
	if err != nil {
		t.Fatal(err)
	}
	s := &author.Sources{Kind: policy.Operator, Name: "policies", Shipped: true}
	boundaries := &author.Sources{Kind: policy.Boundaries, Name: "boundaries", Shipped: true}
	for _, n := range names {
		text, err := policies.Shipped.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		of := s
		if policies.IsBoundaries(n) {
			of = boundaries
		}
		of.Files = append(of.Files, switchboard.PolicyFile{Name: n, Path: n, Data: text})
	}
	for _, of := range []*author.Sources{s, boundaries} {
		l, err := policy.Compile(of.Kind, of.Files)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "lint", warningTexts(author.Lint(of, l, author.KnownNames{})), nil)
	}
	who := &switchboard.Tenant{ID: "acme", Policy: []byte(`{"allow": [], "deny": [], "tiers": {}, "trust": [], "approval": {}, "business_hours": {}, "egress": [], "alow": []}`)}
	unread, err := author.Unread(who.Policy, s)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "unread", unread, []string{"alow"})
}
