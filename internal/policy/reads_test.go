package policy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

func compiled(t testing.TB, word, text string) (*Policy, error) {
	t.Helper()
	l, err := Compile(Operator, []switchboard.PolicyFile{
		{Name: "a.rego", Path: "a.rego", Data: []byte("package switchboard\n" + text)},
		{Name: "lib.rego", Path: "lib.rego", Data: []byte(lib)},
	})
	if err != nil {
		return nil, err
	}
	return testEngine.NewPolicy(&switchboard.Tenant{ID: "acme", Policy: []byte(word), Flows: switchboard.FlowsAsk}, l, nil)
}

var testEngine = NewEngine(10*time.Second, 0)

const allowed = "allowed_tools contains c.id if some c in input.candidate_tools\n"

// lib is referred to by names that are known only during the evaluation.
const lib = `package switchboard.lib
calls if input.call.arguments.n > 3
phases if input.phase == "call"
tiers if input.user_tier == "pro"
`

func TestDependenciesOfALayerAreFoundInItsCompiledRules(t *testing.T) {
	one := func(cond string) string {
		return allowed + "deny[c.id] contains \"x\" if {\n\tsome c in input.candidate_tools\n\t" + cond + "\n}\n"
	}
	const hours = `{"hours":{"from":9}}`
	for name, tt := range map[string]struct {
		word, rules string
		reads       inputSet
		alone       bool
	}{
		"nothing but the candidate":      {"{}", one(`c.class == "x"`), 0, true},
		"the tier, the mode, the task":   {"{}", one(`input.user_tier == "x"; input.mode == "assist"; input.task.task_id == "x"`), 0, true},
		"the phase":                      {"{}", one(`input.phase == "call"`), readsPhase, true},
		"the arguments":                  {"{}", one(`input.call.arguments.path == "/"`), readsCall, true},
		"the time":                       {"{}", one(`input.now > "2026"`), readsClock, true},
		"the clock":                      {"{}", one(`time.now_ns() > 7`), readsClock, true},
		"chance":                         {"{}", one(`rand.intn("x", 2) == 1`), readsClock, true},
		"a number of its own":            {"{}", one(`uuid.rfc4122("x") != c.id`), readsClock, true},
		"what a token says of the time":  {"{}", one(`io.jwt.decode_verify("x", {"secret": "y"})[0]`), readsClock, true},
		"the input as a whole":           {"{}", one(`x := input; x.mode == "assist"`), readsAll, false},
		"a member of it by object.get":   {"{}", one(`object.get(input, "mode", "") == "assist"`), readsAll, false},
		"what walk finds":                {"{}", one(`walk(input, [_, "call"])`), readsAll, false},
		"any member":                     {"{}", one(`some k, "call" in input; k != "x"`), readsAll, false},
		"a member by a variable":         {"{}", one(`some k in ["phase"]; input[k] == "call"`), readsAll, false},
		"in a comprehension":             {"{}", one(`count([1 | input.call.arguments.x == 1]) == 1`), readsCall, true},
		"in every":                       {"{}", one(`every k in c.capabilities { k.verb == input.phase }`), readsPhase, true},
		"in a negation":                  {"{}", one(`not input.call.arguments.safe`), readsCall, true},
		"through a helper":               {"{}", one("helps(c)") + "helps(c) if { c.class == \"x\"; late }\nlate if input.now > \"2026\"\n", readsClock, true},
		"through an else":                {"{}", one("helps(c) == 2") + "helps(c) := 1 if c.class == \"x\" else := 2 if input.phase == \"call\"\n", readsPhase, true},
		"through a default":              {"{}", one("late") + "default late := false\nlate if input.now > \"2026\"\n", readsClock, true},
		"through data, by a name":        {"{}", one(`some n in input.principal.roles; data.switchboard.lib[n]`), readsCall | readsPhase, true},
		"under another name by with":     {"{}", one(`late with input.now as "x"`) + "late if input.now > \"2026\"\n", readsClock | readsAll, false},
		"a rule that nobody asks":        {"{}", one(`c.class == "x"`) + "late if input.now > \"2026\"\n", 0, true},
		"a rule that cannot fire":        {"{}", one(`hours := input.tenant_policy.hours; input.now > hours.from`), 0, true},
		"it can, by the tenant's word":   {hours, one(`hours := input.tenant_policy.hours; input.now > hours.from`), readsClock, true},
		"its helpers cannot either":      {"{}", one(`input.tenant_policy.hours.from; late`) + "late if input.now > \"2026\"\n", 0, true},
		"but then they can":              {hours, one(`input.tenant_policy.hours.from; late`) + "late if input.now > \"2026\"\n", readsClock, true},
		"what may fail comes first":      {"{}", one(`startswith(input.call.arguments.x, "a"); input.tenant_policy.hours`), readsCall, true},
		"what is negated says nothing":   {"{}", one(`not input.tenant_policy.hours; input.now > "2026"`), readsClock, true},
		"the other candidates, by count": {"{}", one(`count(input.candidate_tools) > 1`), 0, false},
		"another candidate":              {"{}", one(`some d in input.candidate_tools; d.class == "x"`), 0, false},
		"the candidate's place":          {"{}", allowed + "deny[c.id] contains \"x\" if { some i; c := input.candidate_tools[i]; i > 0 }\n", 0, false},
		"another candidate's id":         {"{}", allowed + "deny[id] contains \"x\" if { some c in input.candidate_tools; id := \"brave/search\"; c.class == \"x\" }\n", 0, false},
		"what became of the others":      {"{}", one(`not c.id in allowed_tools`), 0, false},
		"a helper that reads them all":   {"{}", one("many") + "many if count(input.candidate_tools) > 1\n", 0, false},
		"an id, whatever is there":       {"{}", allowed + `deny["brave/search"] contains "x" if input.mode == "assist"` + "\n", 0, true},
		"the id at once":                 {"{}", "allowed_tools contains input.candidate_tools[_].id\n", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := compiled(t, tt.word, tt.rules)
			if err != nil {
				t.Fatal(err)
			}
			if v := p.layers[0]; v.reads != tt.reads || v.judgesAlone != tt.alone {
				t.Errorf("reads %04b, alone %v; want %04b, %v\n%s", v.reads, v.judgesAlone, tt.reads, tt.alone, tt.rules)
			}
		})
	}
}

// conditions read the input in every way; some of them fail for some arguments.
var conditions = []string{
	`input.user_tier == "pro"`,
	`c.class == "of-brave"`,
	`c.server != "google"`,
	`input.phase == "call"`,
	`input.phase != "list"`,
	`input.call.arguments.n > 3`,
	`not input.call.arguments.n == 3`,
	`startswith(input.call.arguments.s, "a")`,
	`c.annotations.n == input.call.arguments.n`,
	`object.get(input, "phase", "") == "call"`,
	`object.get(input.call, ["arguments", "n"], 0) == 3`,
	`object.get(input.tenant_policy, "hours", 7) == 7`,
	`time.clock(time.now_ns())[0] < 12`,
	`input.now > "2026-11-23T12"`,
	`input.tenant_policy.hours; input.now > "2026-11-23T12"`,
	`hours := input.tenant_policy.hours; hours == 1; input.call.arguments.n == 3`,
	`not input.tenant_policy.hours; input.call.arguments.n == 3`,
	`startswith(input.call.arguments.s, "a"); input.tenant_policy.hours`,
	`walk(input, [_, "call"])`,
	`some k, v in input; k == "phase"; v == "list"`,
	`some k in ["phase", "mode"]; input[k] == "call"`,
	`x := input; x.phase == "call"`,
	`count([1 | some d in input.candidate_tools; d.server == c.server]) == 1`,
	`count(input.candidate_tools) > 2`,
	`count({v | some v in input.call.arguments}) > 1`,
	`every k in c.capabilities { k.verb == "search" }`,
	`every k in c.capabilities { k.verb != input.call.arguments.s }`,
	`help(c)`,
	`late`,
	`some n in ["calls", "tiers"]; data.switchboard.lib[n]`,
	`data.switchboard.lib.tiers`,
	`some n in input.principal.roles; data.switchboard.lib[n]`,
	`late with input.now as "2027"`,
	`input.mode == "autopilot"`,
	`time.parse_rfc3339_ns(c.annotations.since) > 0`,
	`"sees" in input.run.touched`,
	`not "brings" in input.run.touched`,
	`input.mode == "autopilot"; "carries" in c.flow; "brings" in input.run.touched`,
	`input.mode == "assist"; "sees" in input.run.touched`,
	`"carries" in c.flow; count(input.run.touched) == 2`,
	`input.flows == "ask"; "sees" in c.flow; "sees" in input.run.touched`,
	`input.flows == "never"; input.run.touched`,
	`touched`,
}

const helpers = `
help(c) if { c.class == "of-brave"; late }
help(c) if c.annotations.n == 3
else := input.phase == "list"
late if input.now > "2026-11-23T12"
touched if input.run.touched == ["brings"]
`

// A remembered answer, and an answer about one candidate alone, must always equal the answer of
// every layer about all candidates at every call.
func TestARememberedAnswerEqualsANewOne(t *testing.T) {
	law.Hold(t, law.Deterministic)
	var lasting, alone, asked, refused int
	def := func(name string, extra string) *switchboard.Tool {
		return &switchboard.Tool{
			ID: switchboard.ToolID{Server: switchboard.ServerID(name), Name: "search"}, Class: "of-" + name,
			Contract:     switchboard.Contract{Flow: switchboard.Flow{Bits: map[string]switchboard.FlowBits{"brave": switchboard.AllFlows, "google": switchboard.Sees}[name]}},
			Definition:   []byte(`{"annotations":{` + extra + `}}`),
			Capabilities: []switchboard.Capability{{Verb: switchboard.Search, Resource: "internet"}},
		}
	}
	candidates := []decide.Candidate{
		{Tool: def("brave", `"n":3,"since":"2026-01-01T00:00:00Z"`)}, {Tool: def("google", `"n":4`)}, {Tool: def("last", `"since":"yesterday"`)},
	}
	rapid.Check(t, func(t *rapid.T) {
		cond := rapid.SampledFrom(conditions)
		body := func(label string, n int) string {
			return strings.Join(rapid.SliceOfN(cond, 0, n).Draw(t, label), "\n\t")
		}
		rule := func(head, label string) string {
			return head + " if {\n\tsome c in input.candidate_tools\n\t" + body(label, 2) + "\n}\n"
		}
		text := helpers + rule("allowed_tools contains c.id", "allow")
		if rapid.Bool().Draw(t, "more") {
			text += allowed
		}
		for range rapid.IntRange(0, 2).Draw(t, "vetoes") {
			text += rule(`deny[c.id] contains "x"`, "deny")
		}
		if rapid.Bool().Draw(t, "fixed") {
			text += "deny[\"brave/search\"] contains \"y\" if {\n\tc := {\"class\": \"of-brave\", \"server\": \"x\", \"capabilities\": [], \"annotations\": {}}\n\tc.class\n\t" + body("fixed", 1) + "\n}\n"
		}
		if rapid.Bool().Draw(t, "obliges") {
			text += rule(`obligations[c.id] contains {"type": "log", "level": "info"}`, "oblige")
		}
		p, err := compiled(nopT{}, rapid.SampledFrom([]string{"{}", `{"hours":1}`}).Draw(t, "word"), text)
		if err != nil {
			t.Skip(err)
		}
		who := switchboard.Principal{Tenant: "acme", ID: "ann", Roles: []string{"calls", "phases"}, Tier: rapid.SampledFrom([]string{"pro", "free"}).Draw(t, "tier")}
		who.Mode = rapid.SampledFrom([]switchboard.Mode{"", switchboard.Assist}).Draw(t, "mode")
		task := &switchboard.Task{ID: "browse"}
		need := &switchboard.Requirement{Verb: switchboard.Search, Resource: "internet"}
		morning := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
		in := append([]decide.Candidate(nil), candidates...)
		left, err := p.Stage().Apply(context.Background(), &decide.Question{Principal: who, Task: task, Requirement: need, Now: morning}, in, decide.Ignore)
		if err != nil {
			t.Fatal(err)
		}
		if p.Lasting() {
			lasting++
		}
		if p.layers[0].judgesAlone {
			alone++
		}
		for _, c := range left {
			for i, args := range []string{`{"n":3,"s":"a"}`, `{"n":4,"s":"b"}`, `{"s":1}`, `{}`, `{}`, `{}`} {
				touched := switchboard.Touched{Bits: switchboard.FlowBits(i % 4), Known: i < 5 && c.Tool.Contract.Flow.Bits != 0}
				for _, now := range []time.Time{morning, morning.Add(3 * time.Hour)} {
					call := &switchboard.Call{Touched: touched, Principal: who, Tool: c.Tool, Judgments: []*switchboard.Judgment{c.Judgment}, Params: []byte(`{"arguments":` + args + `}`)}
					ruling := p.JudgeCall(context.Background(), call, now)
					got, gotErr := ruling.Obligations, ruling.Err
					want, wantErr := always(p, c, args, touched, who, task, need, now)
					asked++
					if wantErr {
						refused++
					}
					kept, err := SelectArguments([]byte(args), p.Arguments())
					if err != nil {
						t.Fatal(err)
					}
					late := *call
					late.Judgments, late.Params = []*switchboard.Judgment{NewJudgment(task, need, c.Judgment.Candidates)}, fmt.Appendf(nil, `{"arguments":%s}`, kept)
					if r := p.JudgeCall(context.Background(), &late, now); fmt.Sprint(r.Err) != fmt.Sprint(gotErr) || gotErr == nil && fmt.Sprint(r.Obligations) != fmt.Sprint(got) {
						t.Fatalf("%s at %s with %s: it was %+v %v, and of %s it is %+v %v later\n%s", c.Tool.ID, now, args, got, gotErr, kept, r.Obligations, r.Err, text)
					}
					if (gotErr != nil) != wantErr || gotErr == nil && fmt.Sprint(got) != fmt.Sprint(want) {
						t.Fatalf("%s at %s with %s: remembered %+v %v, asked again %+v, refused %v\nreads %04b alone %v\n%s", c.Tool.ID, now, args, got, gotErr, want, wantErr, p.reads, p.layers[0].judgesAlone, text)
					}
				}
			}
		}
	})
	t.Logf("%d lasting policies, %d that judge alone; %d calls, of which %d were refused", lasting, alone, asked, refused)
	if !testing.Short() && (lasting == 0 || alone == 0 || refused == 0 || refused == asked) {
		t.Error("all policies were of one kind")
	}
}

// always asks about all candidates: whether they are listed, and whether the call may be made.
func always(p *Policy, c decide.Candidate, args string, touched switchboard.Touched, who switchboard.Principal, task *switchboard.Task, need *switchboard.Requirement, now time.Time) (o switchboard.Obligations, refused bool) {
	q := &CandidateQuestion{Phase: PhaseList, Principal: who, Task: task, Requirement: need, Candidates: c.Judgment.Candidates, Now: now}
	at := -1
	for i, t := range q.Candidates {
		if t == c.Tool {
			at = i
		}
	}
	if p.Judge(context.Background(), q).Verdicts[at].Denied != nil {
		return o, true
	}
	q.Phase, q.Arguments, q.Touched = PhaseCall, []byte(args), touched
	v := p.Judge(context.Background(), q).Verdicts[at]
	return v.Obligations, v.Denied != nil
}

// nopT replaces a test that has nothing to report.
type nopT struct{ testing.TB }

func (nopT) Helper() {}

func TestTheArgumentsThatAPolicyReadsAreFound(t *testing.T) {
	one := func(cond string) string {
		return allowed + "deny[c.id] contains \"x\" if {\n\tsome c in input.candidate_tools\n\t" + cond + "\n}\n"
	}
	for rules, want := range map[string]string{
		one(`input.now > "2026"`):             `[]`,
		one(`input.call.arguments.path == 1`): `[[path]]`,
		one(`input.call["arguments"].path.deep[0].x == 1; input.call.arguments.n > 1`):            `[[n] [path deep]]`,
		one(`input.call.arguments.path; input.call.arguments.path.deep`):                          `[[path]]`,
		one(`input.call.arguments.b; helps`) + `helps if startswith(input.call.arguments.a, "x")`: `[[a] [b]]`,
		one(`input.call.arguments[_] == 1; input.call.arguments.b`):                               `[[]]`,
		one(`args := input.call.arguments; args.path == 1`):                                       `[[]]`,
		one(`some k in ["arguments"]; input.call[k].path`):                                        `[[]]`,
		one(`count(input.call) > 1`):                                                              `[[]]`,
		one(`object.get(input, ["call", "arguments", "x"], 1) == 1`):                              `[[]]`,
		one(`input.tenant_policy.egress; input.call.arguments.url`):                               `[]`,
		one(`x := input.call.arguments.opts.deep; walk(x, [_, 1])`):                               `[[opts deep]]`,
	} {
		p, err := compiled(t, "{}", rules)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(p.Arguments()); got != want {
			t.Errorf("%s\nlooks at %s, want %s", rules, got, want)
		}
	}
}
