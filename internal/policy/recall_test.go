package policy

import (
	"reflect"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestWhatIsRecalledIsWhatWouldBeAnswered(t *testing.T) {
	tools := []*switchboard.Tool{
		{ID: switchboard.ToolID{Server: "a", Name: "x"}},
		{ID: switchboard.ToolID{Server: "b", Name: "x"}},
	}
	for _, condition := range []string{
		`true`,
		`input.principal.id == "ann"`,
		`input.principal["id"] == "ann"`,
		`some field in ["id"]; input.principal[field] == "ann"`,
		`who := input.principal; who.id == "ann"`,
		`walk(input.principal, [_, "ann"])`,
		`everything := input; everything.principal.id == "ann"`,
		`some field in ["principal"]; input[field].id == "ann"`,
		`helper`,
		`input.task.task_id == "t"`,
		`input.principal.auth == "local"`,
		`"admin" in input.principal.roles`,
		`input.user_tier == "pro"`,
		`input.mode == "observe"`,
		`input.now == "2026-11-21T09:00:00Z"`,
		`time.clock(time.now_ns())[0] == 9`,
		`rand.intn("x", 2) == 0`,
		`input.phase == "select"`,
		`input.call.arguments.path == "x"`,
		`input.requirement.verb == "read"`,
		`"readonly" in input.requirement.constraints`,
		`count(input.candidate_tools) == 2`,
	} {
		text := "package switchboard\n\nallowed_tools contains c.id if { some c in input.candidate_tools; " + condition + " }\n"
		if condition == "helper" {
			text += `helper if input.principal.id == "ann"`
		}
		layer, err := Compile(Operator, []switchboard.PolicyFile{{Name: "p.rego", Path: "p.rego", Data: []byte(text)}})
		if err != nil {
			t.Fatalf("%s: %v", condition, err)
		}
		p, err := NewEngine(0, 0).New(&switchboard.Tenant{ID: "acme"}, layer, nil)
		if err != nil {
			t.Fatal(err)
		}
		recalling := p.Recalling()
		all := 0
		ask := func(q Question) {
			all++
			if got, want := recalling.Judge(t.Context(), &q), p.Judge(t.Context(), &q); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: of %+v in %+v it recalls %+v, and would answer %+v", condition, q.Principal, *q.Task, got.Verdicts[0].Denied, want.Verdicts[0].Denied)
			}
		}
		base := Question{
			Phase: PhaseSelect, Task: &switchboard.Task{ID: "t"}, Requirement: &switchboard.Requirement{Verb: "read", Resource: "fs"}, Candidates: tools,
			Principal: switchboard.Principal{Tenant: "acme", ID: "ann", Auth: switchboard.AuthLocal}, Now: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC),
		}
		for _, change := range []func(q *Question){
			func(*Question) {},
			func(q *Question) { q.Principal.ID = "bob" },
			func(q *Question) { q.Principal.Auth = switchboard.AuthAPIKey },
			func(q *Question) { q.Principal.Roles = []string{"admin"} },
			func(q *Question) { q.Principal.Tier = "pro" },
			func(q *Question) { q.Principal.Mode = switchboard.Observe },
			func(q *Question) { q.Task = &switchboard.Task{ID: "t", Mode: switchboard.Observe} },
			func(q *Question) { q.Task = &switchboard.Task{ID: "u"} },
			func(q *Question) { q.Now = q.Now.Add(time.Hour) },
			func(q *Question) { q.Phase = PhaseCall; q.Arguments = []byte(`{"path":"x"}`) },
			func(q *Question) { q.Phase = PhaseCall; q.Arguments = []byte(`{"path":"y"}`) },
			func(q *Question) { q.Phase = PhaseList },
			func(q *Question) { q.Requirement = &switchboard.Requirement{Verb: "write", Resource: "fs"} },
			func(q *Question) {
				q.Requirement = &switchboard.Requirement{Verb: "read", Resource: "fs", Constraints: []switchboard.Constraint{"readonly"}}
			},
			func(q *Question) { q.Candidates = tools[:1] },
			func(q *Question) { q.Candidates = tools[1:] },
		} {
			q := base
			change(&q)
			ask(q)
		}
		if n := len(recalling.recall.answers); condition == "true" && (n == 0 || n >= all) {
			t.Errorf("of %d answers %d are remembered", all, n)
		}
	}
}
