package policy

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// Conditions that read the input in every way, and conditions that can fail.
var recalledConditions = []string{
	`true`,
	`input.principal.id == "ann"`,
	`input.principal["id"] == "ann"`,
	`some field in ["id"]; input.principal[field] == "ann"`,
	`who := input.principal; who.id == "ann"`,
	`walk(input.principal, [_, "ann"])`,
	`everything := input; everything.principal.id == "ann"`,
	`some field in ["principal"]; input[field].id == "ann"`,
	`ann`,
	`not ann`,
	`ann with input.principal.id as "ann"`,
	`input.task.task_id == "t"`,
	`input.principal.auth == "local"`,
	`"admin" in input.principal.roles`,
	`input.user_tier == "pro"`,
	`input.mode == "observe"`,
	`input.now == "2026-11-21T09:00:00Z"`,
	`time.clock(time.now_ns())[0] == 9`,
	`rand.intn("x", 2) == 0`,
	`rand.intn(c.id, 2) == 0`,
	`input.phase == "select"`,
	`input.call.arguments.path == "x"`,
	`input.requirement.verb == "read"`,
	`"readonly" in input.requirement.constraints`,
	`count(input.candidate_tools) == 2`,
	`input.tenant_policy.on; ann`,
	`input.tenant_policy.off; ann`,
	`1 / count(input.principal.roles) > 0`,
	`input.principal.id == "bob"; 1 / count(input.task.task_id) > 2`,
	`c.id in data.switchboard.allowed_tools`,
	`not deny["a/x"]`,
}

// Rules that contain a condition.
var recalledRules = []string{
	`allowed_tools contains c.id if { some c in input.candidate_tools; %s }`,
	`deny[c.id] contains "!" if { some c in input.candidate_tools; %s }`,
	`deny[c.id] contains sprintf("not for %%s", [input.principal.id]) if { some c in input.candidate_tools; %s }`,
	`deny["b/x"] contains sprintf("%%d", [n]) if { some n in numbers.range(10, 40); c := input.candidate_tools[0]; %s }`,
	`obligations[c.id] contains {"type": "log", "level": "info"} if { some c in input.candidate_tools; %s }`,
	`obligations[c.id] contains {"type": "enforce_timeout", "timeout": sprintf("%%ds", [count(input.task.task_id)])} if { some c in input.candidate_tools; %s }`,
	`allowed_tools := {c.id | some c in input.candidate_tools; %s }`,
	`default deny := {}`,
}

func TestARecalledAnswerEqualsANewOne(t *testing.T) {
	law.Hold(t, law.Deterministic)
	tools := []*switchboard.Tool{
		{ID: switchboard.ToolID{Server: "a", Name: "x"}},
		{ID: switchboard.ToolID{Server: "b", Name: "x"}},
	}
	cut := 0
	rapid.Check(t, func(t *rapid.T) {
		text := "package switchboard\n\nann if input.principal.id == \"ann\"\n"
		if rapid.Bool().Draw(t, "all") {
			text += allowed
		}
		for range rapid.IntRange(1, 5).Draw(t, "rules") {
			rule := rapid.SampledFrom(recalledRules).Draw(t, "rule")
			if strings.Contains(rule, "%s }") {
				rule = fmt.Sprintf(rule, rapid.SampledFrom(recalledConditions).Draw(t, "condition"))
			}
			text += rule + "\n"
		}
		layer, err := Compile(Operator, []switchboard.PolicyFile{{Name: "p.rego", Path: "p.rego", Data: []byte(text)}})
		if err != nil {
			t.Skip(err) // rules that conflict
		}
		p, err := testEngine.NewPolicy(&switchboard.Tenant{ID: "acme", Policy: []byte(`{"on":true}`)}, layer, nil)
		if err != nil {
			t.Fatal(err)
		}
		recalling := p.Memoized()
		if len(recalling.memo.parts[Operator]) > 1 {
			cut++
		}
		base := CandidateQuestion{
			Phase: PhaseSelect, Task: &switchboard.Task{ID: "t"}, Requirement: &switchboard.Requirement{Verb: "read", Resource: "fs"}, Candidates: tools,
			Principal: switchboard.Principal{Tenant: "acme", ID: "ann", Auth: switchboard.AuthLocal}, Now: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC),
		}
		for _, change := range []func(q *CandidateQuestion){
			func(*CandidateQuestion) {},
			func(q *CandidateQuestion) { q.Principal.ID = "bob" },
			func(q *CandidateQuestion) { q.Principal.Auth = switchboard.AuthAPIKey },
			func(q *CandidateQuestion) { q.Principal.Roles = []string{"admin"} },
			func(q *CandidateQuestion) { q.Principal.Tier = "pro" },
			func(q *CandidateQuestion) { q.Principal.Mode = switchboard.Observe },
			func(q *CandidateQuestion) { q.Task = &switchboard.Task{ID: "t", Mode: switchboard.Observe} },
			func(q *CandidateQuestion) { q.Task = &switchboard.Task{ID: "u"} },
			func(q *CandidateQuestion) { q.Principal.ID, q.Task = "bob", &switchboard.Task{ID: "u"} },
			func(q *CandidateQuestion) { q.Now = q.Now.Add(time.Hour) },
			func(q *CandidateQuestion) { q.Phase = PhaseCall; q.Arguments = []byte(`{"path":"x"}`) },
			func(q *CandidateQuestion) { q.Phase = PhaseCall; q.Arguments = []byte(`{"path":"y"}`) },
			func(q *CandidateQuestion) { q.Phase = PhaseCall; q.Arguments = []byte(`{"path":1e9999}`) },
			func(q *CandidateQuestion) { q.Phase = PhaseCall; q.Arguments = []byte(`{}`) },
			func(q *CandidateQuestion) { q.Phase = PhaseCall },
			func(q *CandidateQuestion) { q.Phase = PhaseList },
			func(q *CandidateQuestion) { q.Requirement = &switchboard.Requirement{Verb: "write", Resource: "fs"} },
			func(q *CandidateQuestion) {
				q.Requirement = &switchboard.Requirement{Verb: "read", Resource: "fs", Constraints: []switchboard.Constraint{"readonly"}}
			},
			func(q *CandidateQuestion) { q.Candidates = tools[:1] },
			func(q *CandidateQuestion) { q.Candidates = tools[1:] },
		} {
			q := base
			change(&q)
			if got, want := recalling.Judge(t.Context(), &q), p.Judge(t.Context(), &q); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s\nof %+v in %+v it recalls\n%s, and would answer\n%s", text, q.Principal, *q.Task, told(got), told(want))
			}
		}
	})
	if cut == 0 {
		t.Error("no layer was divided")
	}
}

func told(a *Answer) (s string) {
	for _, v := range a.Verdicts {
		s += fmt.Sprintf("%v %+v; ", v.Denied, v.Obligations)
	}
	return s + fmt.Sprint(a.Unknown)
}

func TestAQuestionThatIsEqualForAPartIsAskedOnce(t *testing.T) {
	for rules, want := range map[string]int{
		allowed: 1,
		allowed + `deny["a/x"] contains "not you" if input.principal.id == "3"`:                         1 + 10,
		allowed + `deny["a/x"] contains "not here" if input.task.task_id == "3"`:                        1 + 5,
		allowed + `deny["a/x"] contains "neither" if { input.principal.id == "3"; input.task.task_id }`: 1 + 50,
		allowed + `deny["a/x"] contains "late" if input.now > "3"`:                                      1, // the late rule is asked again each time
		`allowed_tools := {c.id | some c in input.candidate_tools; input.principal.id != "3"}`:          10,
		`allowed_tools := {c.id | some c in input.candidate_tools; input.now > "0"}`:                    0,
	} {
		p, err := compiled(t, "{}", rules)
		if err != nil {
			t.Fatal(err)
		}
		p = p.Memoized()
		for who := range 10 {
			for task := range 5 {
				p.Judge(t.Context(), &CandidateQuestion{
					Phase: PhaseSelect, Task: &switchboard.Task{ID: switchboard.TaskID(fmt.Sprint(task))}, Requirement: &switchboard.Requirement{Verb: "read", Resource: "fs"},
					Candidates: []*switchboard.Tool{{ID: switchboard.ToolID{Server: "a", Name: "x"}}},
					Principal:  switchboard.Principal{Tenant: "acme", ID: fmt.Sprint(who)}, Now: time.Unix(int64(who*5+task), 0),
				})
			}
		}
		if n := len(p.memo.answers); n != want {
			t.Errorf("%s\n%d answers are remembered, want %d", rules, n, want)
		}
	}
}

func TestALayerIsDividedOnlyIfItsAnswersAreUnions(t *testing.T) {
	const mine = `deny["a/x"] contains "not you" if input.principal.id == "3"` + "\n"
	for rules, want := range map[string]int{
		allowed:        1,
		allowed + mine: 2,
		allowed + mine + `deny["a/x"] contains "late" if input.now > "3"`:                                      3,
		allowed + mine + `deny["a/x"] contains "off" if { input.tenant_policy.hours; input.now > "3" }`:        2, // it cannot fire
		`allowed_tools := {c.id | some c in input.candidate_tools}` + "\n" + mine:                              1, // two of these rules may conflict
		allowed + mine + `default obligations := {}`:                                                           1,
		allowed + mine + `deny["a/x"] contains "dice" if rand.intn("x", 3) == 0`:                               1, // the numbers depend on the order of the rules
		allowed + mine + `deny["a/x"] contains "dice" if uuid.rfc4122("x") > "8"`:                              1,
		allowed + mine + `deny["a/x"] contains "all" if { everything := input; everything.mode == "observe" }`: 3,
	} {
		p, err := compiled(t, "{}", rules)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(p.Memoized().memo.parts[Operator]); got != want {
			t.Errorf("%s\nis divided into %d, want %d", rules, got, want)
		}
	}
}
