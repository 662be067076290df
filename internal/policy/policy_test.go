package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/policytest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// allowed lists the candidates that are not denied.
func allowed(q *policy.CandidateQuestion, a *policy.Answer) string {
	var ids []string
	for i, v := range a.Verdicts {
		if v.Denied == nil {
			ids = append(ids, q.Candidates[i].ID.String())
		}
	}
	return strings.Join(ids, " ")
}

func TestACandidateRemainsIfEveryLayerAllowsItAndNoneDeniesIt(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	for name, tt := range map[string]struct{ word, operator, tenant, want string }{
		"no layer allows everything":             {"", "", "", "brave/search google/search poster/post"},
		"a layer of which nothing fires":         {"", `allowed_tools contains "brave/search" if input.user_tier == "none"`, "", ""},
		"an array is read as a set":              {"", `allowed_tools := [c.id | some c in input.candidate_tools; c.server == "brave"]`, "", "brave/search"},
		"one layer allows some":                  {"", `allowed_tools contains "brave/search"`, "", "brave/search"},
		"the other cannot widen it":              {"", `allowed_tools contains "brave/search"`, policytest.AllowAll, "brave/search"},
		"the other narrows it":                   {"", policytest.AllowAll, `allowed_tools contains "google/search"`, "google/search"},
		"a denial of either beats what both do":  {"", policytest.AllowAll + `deny["brave/search"] contains "no"`, policytest.AllowAll + `deny["poster/post"] contains "no"`, "google/search"},
		"ids that are no candidates do nothing":  {"", policytest.AllowAll + `deny["nobody/home"] contains "no"`, "", "brave/search google/search poster/post"},
		"the principal's tier is read":           {"", policytest.AllowAll + `deny[c.id] contains "x" if { some c in input.candidate_tools; input.user_tier == "pro"; c.server == "brave" }`, "", "google/search poster/post"},
		"its roles":                              {"", policytest.AllowAll + `deny["brave/search"] contains "x" if "analyst" in input.principal.roles`, "", "google/search poster/post"},
		"its id and how it is known":             {"", policytest.AllowAll + `deny["brave/search"] contains "x" if { input.principal.id == "ann"; input.principal.auth == "api_key" }`, "", "google/search poster/post"},
		"the tenant":                             {"", policytest.AllowAll + `deny["brave/search"] contains "x" if input.tenant_id == "acme"`, "", "google/search poster/post"},
		"its own word":                           {`{"no":["brave"]}`, policytest.AllowAll + `deny[c.id] contains "x" if { some c in input.candidate_tools; c.server in input.tenant_policy.no }`, "", "google/search poster/post"},
		"the task and the requirement":           {"", policytest.AllowAll + `deny["brave/search"] contains "x" if { input.task.task_id == "browse"; input.requirement.verb == "search"; input.requirement.resource == "internet" }`, "", "google/search poster/post"},
		"class, trust and version of the server": {"", policytest.AllowAll + `deny[c.id] contains "x" if { some c in input.candidate_tools; c.class == "of-brave"; c.trust == "declared"; c.version == "1.2.3" }`, "", "google/search poster/post"},
		"capabilities and whose word they are":   {"", policytest.AllowAll + `deny[c.id] contains "x" if { some c in input.candidate_tools; some k in c.capabilities; k.verb == "write"; k.source == "tool"; not "readonly" in k.constraints }`, "", "brave/search google/search"},
		"annotations, with numbers as spelt":     {"", policytest.AllowAll + `deny[c.id] contains "x" if { some c in input.candidate_tools; c.annotations.readOnlyHint == true; json.marshal(c.annotations.x) == "1.0" }`, "", ""},
		"the contract, and whose word it is":     {"", policytest.AllowAll + `deny[c.id] contains "x" if { some c in input.candidate_tools; json.marshal(c.contract) == "{\"deterministic\":false,\"idempotent\":false,\"readonly\":true,\"repeatable\":false,\"sources\":{\"readonly\":{\"source\":\"hint\",\"trusted\":false},\"stateful\":{\"source\":\"overlay\",\"trusted\":true}},\"stateful\":true,\"timeout_ms\":2500}" }`, "", "brave/search google/search"},
		"the contract of which nobody speaks":    {"", policytest.AllowAll + `deny[c.id] contains "x" if { some c in input.candidate_tools; json.marshal(c.contract) == "{\"deterministic\":false,\"idempotent\":false,\"readonly\":false,\"repeatable\":false,\"sources\":{},\"stateful\":false}" }`, "", "poster/post"},
		"that a repeat is harmless":              {"", policytest.AllowAll + `deny[c.id] contains "x" if { some c in input.candidate_tools; not c.contract.repeatable }`, "", ""},
		"the mode, which is autopilot by itself": {"", policytest.AllowAll + `deny["brave/search"] contains "x" if input.mode == "autopilot"`, "", "google/search poster/post"},
		"the time of the question, to builtins":  {"", policytest.AllowAll + `deny["brave/search"] contains "x" if { time.clock(time.now_ns())[0] == 10; input.now == "2026-11-23T10:30:00Z" }`, "", "google/search poster/post"},
	} {
		t.Run(name, func(t *testing.T) {
			q := policytest.NewQuestion(policy.PhaseSelect, "", policytest.Three...)
			a := policytest.NewPolicy(t, tt.word, tt.operator, tt.tenant).Judge(t.Context(), q)
			if got := allowed(q, a); got != tt.want {
				t.Errorf("left: %s; want %s\n%+v", got, tt.want, a)
			}
		})
	}
}

// The Switchboard that tests start does not watch OPA. This test does, if it has the race detector.
func TestManyCallersShareAPolicy(t *testing.T) {
	p := policytest.NewPolicy(t, `{"no":["brave"]}`, policytest.AllowAll+`deny[c.id] contains "x" if { some c in input.candidate_tools; c.server in input.tenant_policy.no }`,
		policytest.AllowAll+`deny["poster/post"] contains concat(" ", ["it", input.user_tier]) if time.clock(time.now_ns())[0] == 10`)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 10 {
				q := policytest.NewQuestion(policy.PhaseSelect, "", policytest.Three...)
				if got := allowed(q, p.Judge(t.Context(), q)); got != "google/search" {
					t.Errorf("left: %s", got)
				}
			}
		})
	}
	callers.Wait()
}

func TestADenialHasTheReasonsOfItsLayer(t *testing.T) {
	p := policytest.NewPolicy(t, "", policytest.AllowAll+`deny["brave/search"] contains x if some x in ["b", "a"]`, policytest.AllowAll+`deny["brave/search"] contains "c"`)
	a := p.Judge(t.Context(), policytest.NewQuestion(policy.PhaseSelect, "", policytest.Three...))
	if got, want := a.Verdicts[0].Denied.String(), "the operator's policy denies it: a; b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p = policytest.NewPolicy(t, "", `allowed_tools contains "who/knows"`, "")
	a = p.Judge(t.Context(), policytest.NewQuestion(policy.PhaseSelect, "", policytest.Brave))
	if got, want := a.Verdicts[0].Denied.String(), "the operator's policy denies it: nothing in allowed_tools allows it"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := fmt.Sprint(a.Unknown); got != "[who/knows]" {
		t.Errorf("unknown ids: %s", got)
	}
}

func TestALayerThatCannotBeEvaluatedDenies(t *testing.T) {
	patient, hasty := policy.NewEngine(time.Minute, 4), policy.NewEngine(50*time.Millisecond, 4)
	const loop = `x := count([1 | some i in numbers.range(1, 2000); some j in numbers.range(1, 2000); i * j == 0])` + "\n"
	for name, tt := range map[string]struct {
		rules string
		code  switchboard.Code
		says  string
	}{
		"allowed_tools is a boolean":          {`allowed_tools := json.unmarshal("true")`, switchboard.CodePolicyFailed, "neither a set nor an array"},
		"allowed_tools is an object":          {`allowed_tools := json.unmarshal("{}")`, switchboard.CodePolicyFailed, "neither a set nor an array"},
		"an id is no string":                  {`allowed_tools contains json.unmarshal("7")`, switchboard.CodePolicyFailed, "not the id"},
		"an id in an array is no string":      {`allowed_tools := json.unmarshal("[7]")`, switchboard.CodePolicyFailed, "not the id"},
		"deny is a list":                      {policytest.AllowAll + `deny := json.unmarshal("[]")`, switchboard.CodePolicyFailed, "not an object of sets"},
		"deny has no sets":                    {policytest.AllowAll + `deny["brave/search"] := json.unmarshal("7")`, switchboard.CodePolicyFailed, "not a set"},
		"a reason is no string":               {policytest.AllowAll + `deny["brave/search"] contains json.unmarshal("7")`, switchboard.CodePolicyFailed, "not a reason"},
		"a rule has two values":               {policytest.AllowAll + `y := 1 if true` + "\n" + `y := 2 if input.user_tier == "pro"` + "\n" + `deny["x/y"] contains "n" if y == 3`, switchboard.CodePolicyFailed, "conflict"},
		"a builtin fails in a veto":           {policytest.AllowAll + `deny["x/y"] contains "n" if time.parse_rfc3339_ns(input.user_tier) > 0`, switchboard.CodePolicyFailed, "time.parse_rfc3339_ns"},
		"a builtin divides by nothing":        {policytest.AllowAll + `deny["x/y"] contains "n" if 1 / count(input.user_tier) - 3 == 1 / (count(input.user_tier) - 3)`, switchboard.CodePolicyFailed, "divide by zero"},
		"it loops":                            {loop + `allowed_tools contains "brave/search" if x == 0`, switchboard.CodePolicyFailed, "longer than it may"},
		"an obligation is not known":          {policytest.AllowAll + `obligations["brave/search"] contains {"type": "pray"}`, switchboard.CodeObligation, "not one of"},
		"an obligation has no type":           {policytest.AllowAll + `obligations["brave/search"] contains {"level": "info"}`, switchboard.CodeObligation, "not one of"},
		"an obligation is no object":          {policytest.AllowAll + `obligations["brave/search"] contains json.unmarshal("\"log\"")`, switchboard.CodeObligation, "want an object"},
		"an obligation has a member too many": {policytest.AllowAll + `obligations["brave/search"] contains {"type": "log", "level": "info", "to": "me"}`, switchboard.CodeObligation, "no member"},
		"an obligation lacks a member":        {policytest.AllowAll + `obligations["brave/search"] contains {"type": "redact"}`, switchboard.CodeObligation, "lacks fields or detectors"},
		"a detector that is none":             {policytest.AllowAll + `obligations["brave/search"] contains {"type": "redact", "detectors": ["emial"]}`, switchboard.CodeObligation, `"emial" is not a detector`},
		"a detector among fields":             {policytest.AllowAll + `obligations["brave/search"] contains {"type": "redact", "fields": ["email"]}`, switchboard.CodeObligation, "write it under detectors"},
		"an obligation is malformed":          {policytest.AllowAll + `obligations["brave/search"] contains {"type": "rate_limit", "rate": "60/fortnight"}`, switchboard.CodeObligation, "60/min"},
		"an obligation of many years":         {policytest.AllowAll + `obligations["brave/search"] contains {"type": "rate_limit", "rate": "1/d", "burst": 3651}`, switchboard.CodeObligation, "at most 3650"},
	} {
		t.Run(name, func(t *testing.T) {
			l := policytest.CompileLayer(t, policy.Operator, tt.rules)
			engine := patient
			if name == "it loops" {
				engine = hasty
			}
			p, err := engine.NewPolicy(&switchboard.Tenant{ID: "acme"}, l, nil)
			if err != nil {
				t.Fatal(err)
			}
			v := p.Judge(t.Context(), policytest.NewQuestion(policy.PhaseSelect, "", policytest.Three...)).Verdicts[0]
			if v.Denied == nil || v.Denied.Code != tt.code || !strings.Contains(v.Denied.String(), tt.says) {
				t.Errorf("%+v, want %s with %q", v.Denied, tt.code, tt.says)
			}
		})
	}
}

// Mistakes that would fail at the first call are found when the layer is compiled, as far as Rego
// has types.
func TestAnAnswerOfAWrongTypeIsAFaultOfItsRule(t *testing.T) {
	for rules, want := range map[string]string{
		`allowed_tools := true`:                                      "policies/test.rego:2:1: allowed_tools is boolean; write: allowed_tools contains c.id if { … }",
		`allowed_tools contains 7`:                                   "policies/test.rego:2:1: allowed_tools is set[number]; write: allowed_tools contains c.id if { … }",
		`allowed_tools := [1, 2]`:                                    "policies/test.rego:2:1: allowed_tools is array<number, number>; write: allowed_tools contains c.id if { … }",
		`allowed_tools["x"] contains "y"`:                            "allowed_tools is object",
		policytest.AllowAll + `deny contains "brave/search"`:         `deny is set[string]; write: deny[c.id] contains "…" if { … }`,
		policytest.AllowAll + `deny["brave/search"] := "no"`:         "deny is object",
		policytest.AllowAll + `deny["brave/search"] contains 7`:      "deny is object",
		policytest.AllowAll + `obligations["brave/search"] := "log"`: "obligations is object",
		`x := 1`:                                                    "policies/test.rego:1:1: nothing adds to allowed_tools, so this layer denies every tool",
		`deny["brave/search"] contains "no"`:                        "nothing adds to allowed_tools",
		`allowed_tools := ["brave/search"]`:                         "",
		`allowed_tools := input.tenant_policy.tools`:                "",
		`allowed_tools := {c.id | some c in input.candidate_tools}`: "",
		policytest.AllowAll + `deny := {c.id: {"no"} | some c in input.candidate_tools}`: "",
	} {
		_, err := policy.Compile(policy.Operator, []switchboard.PolicyFile{{Path: "test.rego", Name: "policies/test.rego", Data: []byte("package switchboard\n" + rules)}})
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s\n%s, want %q", rules, got, want)
		}
	}
}

// A layer that calls only quick builtins is evaluated on the goroutine of the call, and stops at
// its time limit.
func TestARuleThatIteratesTooLongIsStopped(t *testing.T) {
	e := policy.NewEngine(30*time.Millisecond, 1)
	p, err := e.NewPolicy(&switchboard.Tenant{ID: "acme"}, policytest.CompileLayer(t, policy.Operator, policytest.AllowAll+`deny["x/y"] contains "n" if {
	some a in input.call.arguments.n
	some b in input.call.arguments.n
	some c in input.call.arguments.n
	a + b + c == 1
}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	v := p.Judge(t.Context(), policytest.NewQuestion(policy.PhaseCall, `{"n":[`+strings.Repeat("1,", 3000)+`1]}`, policytest.Brave)).Verdicts[0]
	if v.Denied == nil || v.Denied.Code != switchboard.CodePolicyFailed || !strings.Contains(v.Denied.String(), "longer than it may") {
		t.Errorf("%+v", v.Denied)
	}
	if took := time.Since(began); took > 5*time.Second {
		wait.Late(t, "the answer took %v", took)
	}
}

func TestRulesThatReachOutsideOrAreMisspeltDoNotCompile(t *testing.T) {
	for rules, says := range map[string]string{
		`allowed_tools contains "x" if http.send({"method": "get", "url": "http://a.example"}).status_code == 200`: "undefined function http.send",
		`allowed_tools contains "x" if net.lookup_ip_addr("a.example") != set()`:                                   "undefined function net.lookup_ip_addr",
		`allowed_tools contains "x" if opa.runtime().env.SECRET == "x"`:                                            "undefined function opa.runtime",
		`deny[c.id] contains "x" if { some c in input.candidate_tool; c.class == "x" }`:                            "undefined ref: input.candidate_tool",
		`deny[c.id] contains "x" if { some c in input.candidate_tools; c.clas == "x" }`:                            "undefined ref",
		`deny["x"] contains "x" if input.principal.role == "x"`:                                                    "undefined ref: input.principal.role",
		`deny["x"] contains "x" if input.call.argument.path == "x"`:                                                "undefined ref: input.call.argument",
		`denny["a/x"] contains "x" if true`:                                                                        `rule "denny" decides nothing, because no answer depends on it; did you mean "deny"?`,
		`denny[c.id] contains "x" if { some c in input.candidate_tools }`:                                          `rule "denny" decides nothing, because no answer depends on it; did you mean "deny"?`,
		`Deny[c.id] contains "x" if { some c in input.candidate_tools }`:                                           `did you mean "deny"?`,
		`allowed_tool contains "x"`:                                                                                `did you mean "allowed_tools"?`,
		`dney[c.id] contains "x" if { some c in input.candidate_tools }`:                                           `did you mean "deny"?`,
		`oblgations[c.id] contains {} if { some c in input.candidate_tools }`:                                      `did you mean "obligations"?`,
		`allowed_tool := ["x"]`: `did you mean "allowed_tools"?`,
		`deny[i] contains "x" if { some i, _ in input.candidate_tools }`:          `deny is object[number: set[string]]; write: deny[c.id] contains`,
		`deny[1] contains "x" if true`:                                            `deny is object`,
		`obligations[c.id] contains "log" if { some c in input.candidate_tools }`: `obligations is object[string: set[string]]; write: obligations[c.id] contains {…}`,
		"package elsewhere\nx := 1":                                               "write package switchboard",
		"package switchboard.tenant\nx := 1":                                      "write package switchboard",
		"x := ":                                                                   "rego_parse_error",
	} {
		_, err := policy.Compile(policy.Operator, []switchboard.PolicyFile{policytest.Source(policy.Operator, rules)})
		var faults switchboard.Faults
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), says) || faults[0].File != "policies/test.rego" || faults[0].Line == 0 {
			t.Errorf("%s\n%v, want %q with its line", rules, err, says)
		}
	}
	for _, rules := range []string{
		`key := "x"`, `env contains "x"`, `any[c.id] contains "x" if { some c in input.candidate_tools }`, "dense := 1", `many contains "x"`, "deny_all := true",
		`obligations[c.id] contains o if { some c in input.candidate_tools; o := c.annotations }`, // of any type
	} {
		if _, err := policy.Compile(policy.Operator, []switchboard.PolicyFile{policytest.Source(policy.Operator, policytest.AllowAll+rules)}); err != nil {
			t.Errorf("%s: %v", rules, err)
		}
	}
	for _, rules := range []string{"package switchboard\nx := 1", "package switchboard.tenants\nx := 1"} {
		if _, err := policy.Compile(policy.Tenant, []switchboard.PolicyFile{policytest.Source(policy.Tenant, rules)}); err == nil {
			t.Errorf("a tenant's file may say %s", rules)
		}
	}
}

func TestDataFilesAreReadAndStayWithinTheirLayer(t *testing.T) {
	file := func(path, text string) switchboard.PolicyFile {
		return switchboard.PolicyFile{Name: "p/" + path, Path: path, Data: []byte(text)}
	}
	rules := policytest.Source(policy.Operator, `allowed_tools contains id if some id in data.lists.good`)
	for name, tt := range map[string]struct {
		kind  policy.LayerKind
		files []switchboard.PolicyFile
		says  string
	}{
		"JSON":                         {policy.Operator, []switchboard.PolicyFile{rules, file("a.json", `{"lists":{"good":["brave/search"]}}`)}, ""},
		"YAML":                         {policy.Operator, []switchboard.PolicyFile{rules, file("a/b.yaml", "lists:\n  good: [brave/search]\n")}, ""},
		"of several files":             {policy.Operator, []switchboard.PolicyFile{rules, file("a.json", `{"lists":{"good":["brave/search"]}}`), file("b.json", `{"lists":{"bad":[]}}`)}, ""},
		"twice":                        {policy.Operator, []switchboard.PolicyFile{rules, file("a.json", `{"lists":{"good":[]}}`), file("b.json", `{"lists":{"good":[]}}`)}, "data.lists.good is also set in another file"},
		"no object":                    {policy.Operator, []switchboard.PolicyFile{file("a.json", `[]`)}, "one object"},
		"no JSON":                      {policy.Operator, []switchboard.PolicyFile{file("a.json", `{`)}, "not JSON"},
		"two values":                   {policy.Operator, []switchboard.PolicyFile{file("a.json", `{} {}`)}, "text after"},
		"where a rule stands":          {policy.Operator, []switchboard.PolicyFile{rules, file("a.json", `{"switchboard":{"allowed_tools":["x"]}}`)}, "conflict"},
		"the operator's in a tenant's": {policy.Tenant, []switchboard.PolicyFile{file("a.json", `{"lists":{}}`)}, "does not belong to the tenant"},
		"the tenant's in an operator's": {
			policy.Operator,
			[]switchboard.PolicyFile{file("a.json", `{"switchboard":{"tenant":{"x":1}}}`)},
			"does not belong to the operator",
		},
		"the tenant's own": {policy.Tenant, []switchboard.PolicyFile{file("a.json", `{"switchboard":{"tenant":{"x":1}}}`)}, ""},
	} {
		_, err := policy.Compile(tt.kind, tt.files)
		if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
	}
}

func TestTheStrictestObligationCounts(t *testing.T) {
	one := func(o string) string { return `obligations["brave/search"] contains ` + o + "\n" }
	p := policytest.NewPolicy(t, "", policytest.AllowAll+
		one(`{"type": "enforce_timeout", "timeout": "5s"}`)+one(`{"type": "rate_limit", "rate": "60/min", "burst": 10}`)+
		one(`{"type": "redact", "fields": ["/b"]}`)+one(`{"type": "log", "level": "info"}`)+
		one(`{"type": "require_approval", "who": ["lead", "boss"], "expires": "2h"}`)+one(`{"type": "notify", "who": ["ops"]}`),
		policytest.AllowAll+
			one(`{"type": "enforce_timeout", "timeout": "3s"}`)+one(`{"type": "enforce_timeout", "timeout": "9s"}`)+one(`{"type": "rate_limit", "rate": "10/h", "burst": 20}`)+
			one(`{"type": "redact", "fields": {"/a", "/b"}}`)+one(`{"type": "log", "level": "warn"}`)+
			one(`{"type": "require_approval", "who": ["boss"], "quorum": 3, "standing": false}`)+one(`{"type": "notify", "who": "sec"}`))
	v := p.Judge(t.Context(), policytest.NewQuestion(policy.PhaseSelect, "", policytest.Brave)).Verdicts[0]
	o := v.Obligations
	if v.Denied != nil || o.Timeout != 3*time.Second || o.Rate != (switchboard.Rate{Every: 6 * time.Minute, Burst: 10}) ||
		!slices.Equal(o.Redact, []string{"/a", "/b"}) || o.Log != "warn" || !slices.Equal(o.Approval.Who, []string{"boss"}) ||
		o.Approval.Expires != 2*time.Hour || o.Approval.Quorum != 3 || !o.Approval.NoStanding || !slices.Equal(o.Notify, []string{"ops", "sec"}) {
		t.Errorf("%+v %+v", v.Denied, o)
	}
}

// Law 7: the tools of one server must not remove those of another.
func TestACandidateThatMakesALayerFailFailsAlone(t *testing.T) {
	bad := policytest.Tool("bad/tool", policytest.SearchCapability)
	bad.Definition = []byte(`{"name":"tool","annotations":{"since":"yesterday"}}`)
	p := policytest.NewPolicy(t, "", policytest.AllowAll+`deny[c.id] contains "old" if { some c in input.candidate_tools; time.parse_rfc3339_ns(c.annotations.since) < 7 }`, "")
	q := policytest.NewQuestion(policy.PhaseSelect, "", policytest.Brave, bad, policytest.Google)
	a := p.Judge(t.Context(), q)
	if got := allowed(q, a); got != "brave/search google/search" || a.Verdicts[1].Denied.Code != switchboard.CodePolicyFailed {
		t.Errorf("left: %s; %v", got, a.Verdicts[1].Denied)
	}
}

func TestTheSameQuestionHasTheSameAnswerEvenWithRandomBuiltins(t *testing.T) {
	law.Hold(t, law.Deterministic)
	p := policytest.NewPolicy(t, "", `allowed_tools contains c.id if { some i, c in input.candidate_tools; rand.intn(c.id, 2) == 1 }
deny[c.id] contains uuid.rfc4122(c.id) if some c in input.candidate_tools`, "")
	first := p.Judge(t.Context(), policytest.NewQuestion(policy.PhaseSelect, "", policytest.Three...))
	for range 20 {
		again := p.Judge(context.Background(), policytest.NewQuestion(policy.PhaseSelect, "", policytest.Three...))
		for i := range again.Verdicts {
			if got, want := again.Verdicts[i].Denied.String(), first.Verdicts[i].Denied.String(); got != want {
				t.Fatalf("%s, and before %s", got, want)
			}
		}
	}
}

func TestADenialOfAllLayersNamesNoLayer(t *testing.T) {
	d := &policy.Denial{Code: switchboard.CodeObligation, Reasons: []string{`notify "oncall": there is no such recipient`}}
	if got, want := d.String(), `policy asks for what cannot be done: notify "oncall": there is no such recipient`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
