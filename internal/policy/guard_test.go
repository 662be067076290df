package policy_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/policytest"
)

// gate is a guard in front of a server that answers every call with result.
type gate struct {
	policy *policy.Policy
	lost   []string // roles that every principal has lost since its request arrived
	log    bytes.Buffer
	calls  []*switchboard.Call
	noted  []policy.Ruling
	caller switchboard.Caller
	fails  error // the error of every call, if set
}

func (g *gate) note(_ *switchboard.Call, _ *policy.Policy, _ time.Time, r policy.Ruling) {
	g.noted = append(g.noted, r)
}

func newGate(p *policy.Policy, result string) *gate {
	g := &gate{policy: p}
	current := func(p switchboard.Principal) (switchboard.Principal, *policy.Policy, error) {
		p.Roles = slices.DeleteFunc(slices.Clone(p.Roles), func(r string) bool { return slices.Contains(g.lost, r) })
		return p, g.policy, nil
	}
	g.caller = policy.Guard(current, g.note, slog.New(slog.NewTextHandler(&g.log, nil)),
		switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
			g.calls = append(g.calls, c)
			if g.fails != nil {
				return switchboard.Result{}, g.fails
			}
			return switchboard.Result{JSON: []byte(result)}, nil
		}))
	return g
}

// bind decides about three candidates under g's policy, and returns a call of one of them.
func (g *gate) bind(t testing.TB, one *switchboard.Tool, args string) *switchboard.Call {
	t.Helper()
	q := policytest.NewQuestion(policy.PhaseSelect, "", policytest.Three...)
	in := []decide.Candidate{{Tool: policytest.Brave}, {Tool: policytest.Google}, {Tool: policytest.Poster}}
	left, err := g.policy.Stage().Apply(t.Context(), &decide.Question{Principal: q.Principal, Task: q.Task, Requirement: q.Requirement, Now: time.Now()}, in, decide.Ignore)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range left {
		if c.Tool == one {
			return &switchboard.Call{Principal: q.Principal, Task: "browse", Tool: one, Server: one.ID.Server, Judgments: []*switchboard.Judgment{c.Judgment}, Params: []byte(`{"arguments":` + args + `}`)}
		}
	}
	t.Fatalf("%s was not selected", one.ID)
	return nil
}

func code(err error) switchboard.Code {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own.Code
	}
	return ""
}

func TestARuleReadsTheArgumentsThatTheServerWouldGet(t *testing.T) {
	g := newGate(policytest.NewPolicy(t, "", policytest.AllowAll+`
deny[c.id] contains "outside" if {
	some c in input.candidate_tools
	input.phase == "call"
	not inside
}
inside if {
	is_string(input.call.arguments.path)
	startswith(input.call.arguments.path, "/w/")
	not contains(input.call.arguments.path, "..")
}`, ""), `{}`)
	for args, want := range map[string]switchboard.Code{
		`{"path":"/w/a"}`:            "",
		`{"path":"\u002fw\/a"}`:      "", // the same text in another spelling
		`{"path":"/w/../etc"}`:       switchboard.CodeDenied,
		`{"path":"/w/\u002e./etc"}`:  switchboard.CodeDenied,
		`{"path":["/w/a"]}`:          switchboard.CodeDenied,
		`{"path":7}`:                 switchboard.CodeDenied,
		`{}`:                         switchboard.CodeDenied,
		`{"Path":"/w/a"}`:            switchboard.CodeDenied,
		`{"path":"/W/a"}`:            switchboard.CodeDenied,
		`{"path":"/w/a","n":1e9999}`: switchboard.CodePolicyFailed,
		`{"path":"/w/a","x":"` + strings.Repeat("x", policy.MaxArguments) + `"}`: switchboard.CodePolicyFailed,
	} {
		calls := len(g.calls)
		_, err := g.caller.Call(t.Context(), g.bind(t, policytest.Brave, args))
		if code(err) != want || (len(g.calls) > calls) != (want == "") {
			t.Errorf("%.60s: %v, want %q; %d calls", args, err, want, len(g.calls)-calls)
		}
		if err != nil && strings.Contains(strings.TrimSuffix(err.Error(), errors.Unwrap(err).Error()), "outside") {
			t.Errorf("the caller sees the rule: %v", err)
		}
	}
	call := g.bind(t, policytest.Brave, `{}`)
	call.Params = []byte(`{}`)
	if _, err := g.caller.Call(t.Context(), call); code(err) != switchboard.CodeDenied {
		t.Errorf("without arguments: %v", err)
	}
}

func TestACallWithoutAJudgmentIsRefused(t *testing.T) {
	law.Hold(t, law.OneDecision)
	g := newGate(policytest.NewPolicy(t, "", policytest.AllowAll, ""), `{}`)
	call := g.bind(t, policytest.Brave, `{}`)
	for name, change := range map[string]func(*switchboard.Call){
		"no judgment":            func(c *switchboard.Call) { c.Judgments = nil },
		"one of somebody else's": func(c *switchboard.Call) { c.Judgments = []*switchboard.Judgment{{}} },
	} {
		c := *call
		change(&c)
		if _, err := g.caller.Call(t.Context(), &c); code(err) != switchboard.CodeNoSuchTool || len(g.calls) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := *call
	c.Tool = policytest.Tool("brave/delete")
	g.policy = policytest.NewPolicy(t, "", policytest.AllowAll, policytest.AllowAll)
	if _, err := g.caller.Call(t.Context(), &c); code(err) != switchboard.CodeNoSuchTool || len(g.calls) > 0 {
		t.Errorf("a tool that was not a candidate: %v", err)
	}
}

func TestANewVetoAppliesToACallThatWasSelectedBefore(t *testing.T) {
	law.Hold(t, law.OneDecision)
	g := newGate(policytest.NewPolicy(t, "", policytest.AllowAll, ""), `{}`)
	call := g.bind(t, policytest.Brave, `{}`)
	if _, err := g.caller.Call(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	g.policy = policytest.NewPolicy(t, "", policytest.AllowAll+`deny["brave/search"] contains "no more"`, "")
	if _, err := g.caller.Call(t.Context(), call); code(err) != switchboard.CodeNoSuchTool {
		t.Errorf("after the reload: %v", err)
	}
	g.policy = policytest.NewPolicy(t, "", policytest.AllowAll, "")
	if _, err := g.caller.Call(t.Context(), call); err != nil {
		t.Errorf("after another: %v", err)
	}
	g.policy = policytest.NewPolicy(t, "", policytest.AllowAll, policytest.AllowAll+`deny["brave/search"] contains "now" if input.phase == "call"`)
	if _, err := g.caller.Call(t.Context(), call); code(err) != switchboard.CodeDenied {
		t.Errorf("denied when called, not when listed: %v", err)
	}
}

func TestALostRoleCountsAtOnce(t *testing.T) {
	law.Hold(t, law.OneDecision)
	g := newGate(policytest.NewPolicy(t, "", policytest.AllowAll+`deny[c.id] contains "x" if { some c in input.candidate_tools; not "analyst" in input.principal.roles }`, ""), `{}`)
	call := g.bind(t, policytest.Brave, `{}`)
	g.lost = []string{"analyst"}
	if _, err := g.caller.Call(t.Context(), call); code(err) != switchboard.CodeNoSuchTool {
		t.Errorf("%v", err)
	}
	if len(call.Principal.Roles) != 1 {
		t.Errorf("the caller's own call was changed: %+v", call.Principal)
	}
}

func TestTheClockCanHideAToolOrDenyItsCalls(t *testing.T) {
	law.Hold(t, law.OneDecision)
	const late = `late if time.clock(time.now_ns())[0] >= 9` + "\n"
	// Of the engine that all tests share, so outside the bubble:
	hiding := policytest.NewPolicy(t, "", late+policytest.AllowAll+`deny["brave/search"] contains "x" if late`, "")
	forbidding := policytest.NewPolicy(t, "", late+policytest.AllowAll+`deny["brave/search"] contains "x" if { input.phase == "call"; late }`, "")
	synctest.Test(t, func(t *testing.T) { // begins at midnight
		hides, forbids := newGate(hiding, `{}`), newGate(forbidding, `{}`)
		a, b := hides.bind(t, policytest.Brave, `{}`), forbids.bind(t, policytest.Brave, `{}`)
		for hour, want := range []struct{ a, b switchboard.Code }{8: {}, 9: {switchboard.CodeNoSuchTool, switchboard.CodeDenied}} {
			if hour < 8 {
				time.Sleep(time.Hour)
				continue
			}
			if _, err := hides.caller.Call(t.Context(), a); code(err) != want.a {
				t.Errorf("at %d, hidden: %v, want %q", hour, err, want.a)
			}
			if _, err := forbids.caller.Call(t.Context(), b); code(err) != want.b {
				t.Errorf("at %d, forbidden: %v, want %q", hour, err, want.b)
			}
			time.Sleep(time.Hour)
		}
	})
}

func TestAToolThatMayNotBeListedIsNotSelected(t *testing.T) {
	law.Hold(t, law.OneDecision)
	p := policytest.NewPolicy(t, "", policytest.AllowAll+`deny["brave/search"] contains "x" if input.phase == "list"`, "")
	q := policytest.NewQuestion(policy.PhaseSelect, "", policytest.Brave, policytest.Google)
	left, err := p.Stage().Apply(t.Context(), &decide.Question{Principal: q.Principal, Task: q.Task, Requirement: q.Requirement, Now: policytest.Monday}, []decide.Candidate{{Tool: policytest.Brave}, {Tool: policytest.Google}}, decide.Ignore)
	if err != nil || len(left) != 1 || left[0].Tool != policytest.Google {
		t.Errorf("%v, %v", left, err)
	}
}

func TestACallIsJudgedAmongAllCandidatesIfALayerComparesThem(t *testing.T) {
	g := newGate(policytest.NewPolicy(t, "", policytest.AllowAll+`deny[c.id] contains "x" if {
	some c in input.candidate_tools
	count(input.candidate_tools) == 3
	input.call.arguments.n == 1
}`, ""), `{}`)
	if _, err := g.caller.Call(t.Context(), g.bind(t, policytest.Brave, `{"n":1}`)); code(err) != switchboard.CodeDenied {
		t.Errorf("%v", err)
	}
}

func TestARulingIsNotedIfALayerWasAskedOrTheCallIsDenied(t *testing.T) {
	const path = `deny[c.id] contains "outside" if { some c in input.candidate_tools; input.call.arguments.path == "/etc" }`
	for name, tt := range map[string]struct {
		rules, args string
		asked, no   bool
		change      func(g *gate)
	}{
		"what still holds":                {policytest.AllowAll, `{}`, false, false, nil},
		"arguments were read":             {policytest.AllowAll + path, `{"path":"/w"}`, true, false, nil},
		"and are denied":                  {policytest.AllowAll + path, `{"path":"/etc"}`, true, true, nil},
		"the clock was read":              {policytest.AllowAll + `deny[c.id] contains "late" if { some c in input.candidate_tools; input.now > "9" }`, `{}`, true, false, nil},
		"nobody can be told, as it holds": {policytest.AllowAll + `obligations["brave/search"] contains {"type": "notify", "who": "ops"}`, `{}`, false, true, nil},
		"the policy is another now":       {policytest.AllowAll, `{}`, true, true, func(g *gate) { g.policy = policytest.NewPolicy(t, "", `allowed_tools contains "no/body"`, "") }},
		"the caller is another now":       {policytest.AllowAll, `{}`, true, false, func(g *gate) { g.lost = []string{"analyst"} }},
	} {
		g := newGate(policytest.NewPolicy(t, "", tt.rules, ""), `{}`)
		call := g.bind(t, policytest.Brave, tt.args)
		want := []policy.Ruling{{Asked: tt.asked}}
		if tt.change != nil {
			was := g.policy
			tt.change(g)
			want[0].Mixed = g.policy != was
		}
		_, err := g.caller.Call(t.Context(), call)
		if !tt.asked && !tt.no {
			want = nil
		}
		if len(g.noted) != len(want) || (err != nil) != tt.no {
			t.Errorf("%s: %v, and the notes are %+v", name, err, g.noted)
			continue
		}
		for i, r := range g.noted {
			if r.Asked != want[i].Asked || r.Mixed != want[i].Mixed || !errors.Is(r.Err, err) {
				t.Errorf("%s: noted is %+v, want %+v with %v", name, r, want[i], err)
			}
		}
	}
}

func TestARecordedCallIsJudgedAlikeAgain(t *testing.T) {
	law.Hold(t, law.Deterministic)
	const rules = policytest.AllowAll + `
deny[c.id] contains "outside" if { some c in input.candidate_tools; input.phase == "call"; not startswith(input.call.arguments.path, "/w") }
obligations[c.id] contains {"type": "log", "level": "info"} if { some c in input.candidate_tools; input.call.arguments.path == "/w/noted" }
obligations[c.id] contains {"type": "enforce_timeout", "timeout": "3s"} if some c in input.candidate_tools`
	for _, args := range []string{`{"path":"/w"}`, `{"path":"/w/noted"}`, `{"path":"/etc"}`, `{}`, `{"path":1e9999}`} {
		g := newGate(policytest.NewPolicy(t, "", rules, ""), `{}`)
		call := g.bind(t, policytest.Brave, args)
		was := g.policy.JudgeCall(t.Context(), call, policytest.Monday)
		again := *call
		again.Judgments = []*switchboard.Judgment{policy.NewJudgment(&switchboard.Task{ID: "browse"}, call.Judgments[0].Requirement, policytest.Three)}
		for name, p := range map[string]*policy.Policy{"the same": g.policy, "recalling": g.policy.Memoized()} {
			now := p.JudgeCall(t.Context(), &again, policytest.Monday)
			if !reflect.DeepEqual(now.Err, was.Err) || was.Err == nil && !reflect.DeepEqual(now.Obligations, was.Obligations) {
				t.Errorf("%s, %s: it was %v %+v, and is %v %+v", args, name, was.Err, was.Obligations, now.Err, now.Obligations)
			}
		}
	}
}

func TestAnItemIsAllowedIfAToolOfItsServerIs(t *testing.T) {
	g := newGate(policytest.NewPolicy(t, "", policytest.AllowAll, ""), `{}`)
	call := *g.bind(t, policytest.Brave, `{}`)
	call.Tool, call.Method = nil, "resources/read"
	if _, err := g.caller.Call(t.Context(), &call); err != nil {
		t.Error(err)
	}
	g.policy = policytest.NewPolicy(t, "", policytest.AllowAll+`deny["brave/search"] contains "x"`, "")
	if _, err := g.caller.Call(t.Context(), &call); code(err) != switchboard.CodeDenied {
		t.Errorf("an item of a vetoed server: %v", err)
	}
	if err := g.policy.JudgeCall(t.Context(), &call, time.Now()).Err; code(err) != switchboard.CodeDenied {
		t.Errorf("a question outside calls: %v", err)
	}
}

func TestObligationsAreCarriedOutOrTheCallIsRefused(t *testing.T) {
	oblige := func(o string) *policy.Policy {
		return policytest.NewPolicy(t, "", policytest.AllowAll+`obligations["brave/search"] contains `+o, "")
	}
	g := newGate(oblige(`{"type": "enforce_timeout", "timeout": "3s"}`), `{}`)
	if _, err := g.caller.Call(t.Context(), g.bind(t, policytest.Brave, `{}`)); err != nil || g.calls[0].Obligations.Timeout != 3*time.Second {
		t.Errorf("a timeout: %v, %+v", err, g.calls[0].Obligations)
	}
	g = newGate(oblige(`{"type": "notify", "who": "ops"}`), `{}`)
	if _, err := g.caller.Call(t.Context(), g.bind(t, policytest.Brave, `{}`)); code(err) != switchboard.CodeObligation || len(g.calls) > 0 {
		t.Errorf("notify: %v", err)
	}
	g = newGate(oblige(`{"type": "notify", "who": "oncall"}`), `{}`)
	if _, err := g.caller.Call(t.Context(), g.bind(t, policytest.Brave, `{}`)); err != nil || !slices.Equal(g.calls[0].Obligations.Notify, []string{"oncall"}) {
		t.Errorf("notify somebody who is known: %v, %+v", err, g.calls)
	}
	g = newGate(oblige(`{"type": "log", "level": "warn"}`), `{}`)
	if _, err := g.caller.Call(t.Context(), g.bind(t, policytest.Brave, `{"q":"secret"}`)); err != nil {
		t.Error(err)
	}
	if said := g.log.String(); !strings.Contains(said, "level=WARN msg=call") || !strings.Contains(said, "tool=brave/search") || strings.Contains(said, "secret") {
		t.Errorf("logged: %s", said)
	}
	g = newGate(oblige(`{"type": "log", "level": "pray"}`), `{}`)
	if _, err := g.caller.Call(t.Context(), &switchboard.Call{Tool: policytest.Brave}); code(err) != switchboard.CodeNoSuchTool {
		t.Errorf("an unknown obligation: %v", err)
	}
	// An obligation that only a call has.
	g = newGate(policytest.NewPolicy(t, "", policytest.AllowAll+`obligations["brave/search"] contains {"type": "pray"} if input.phase == "call"`, ""), `{}`)
	if _, err := g.caller.Call(t.Context(), g.bind(t, policytest.Brave, `{}`)); code(err) != switchboard.CodeObligation || len(g.calls) > 0 {
		t.Errorf("an unknown obligation of the call: %v", err)
	}
}

func TestRedactedValuesAreGoneAndOtherBytesStay(t *testing.T) {
	for _, tt := range []struct{ pointers, in, want string }{
		{`"/structuredContent/user/email"`, `{"structuredContent" : {"user":{"email":"a@b","n":1.0}}, "x":1}`, `{"structuredContent" : {"user":{"email":"[redacted]","n":1.0}}, "x":1}`},
		{`"/nothing/here"`, `{"a": 1}`, `{"a": 1}`},
		{`"/a"`, `{"a":{"b":1},"a":2}`, `{"a":"[redacted]"}`},
		{`"/content/1/text"`, `{"content":[{"text":"a"},{"text":"b"}]}`, `{"content":[{"text":"a"},{"text":"[redacted]"}]}`},
		{`"/content/01/text"`, `{"content":[{"text":"a"},{"text":"b"}]}`, `{"content":[{"text":"a"},{"text":"b"}]}`},
		{`"/content/9"`, `{"content":[1]}`, `{"content":[1]}`},
		{`"/a~1b/c~0d"`, `{"a/b":{"c~d":1}}`, `{"a/b":{"c~d":"[redacted]"}}`},
		{`"/\u00e9"`, `{"\u00e9":1}`, `{"\u00e9":"[redacted]"}`},
		{`"/a", "/b"`, `{"a":1,"b":2,"c":3}`, `{"a":"[redacted]","b":"[redacted]","c":3}`},
		{`"/"`, `{"":1}`, `{"":"[redacted]"}`},
	} {
		g := newGate(policytest.NewPolicy(t, "", policytest.AllowAll+`obligations["brave/search"] contains {"type": "redact", "fields": [`+tt.pointers+`]}`, ""), tt.in)
		r, err := g.caller.Call(t.Context(), g.bind(t, policytest.Brave, `{}`))
		if err != nil || string(r.JSON) != tt.want {
			t.Errorf("%s: %v\n%s, want\n%s", tt.pointers, err, r.JSON, tt.want)
		}
	}
}

// A call that only the clock denies is allowed later, and the client is told so.
func TestADenialByTheClockAloneSaysLater(t *testing.T) {
	const early = `deny[c.id] contains "early" if { input.phase == "call"; some c in input.candidate_tools; time.clock(time.parse_rfc3339_ns(input.now))[0] < 2 }` + "\n"
	for name, tt := range map[string]struct {
		rules, args string
		want        switchboard.Retry
	}{
		"by the clock":                  {early, `{}`, switchboard.RetryLater},
		"by the arguments":              {early + `deny[c.id] contains "path" if { some c in input.candidate_tools; input.call.arguments.path == "/etc" }`, `{"path":"/etc"}`, switchboard.RetryNo},
		"by a clock that never changes": {`deny[c.id] contains "never" if { input.phase == "call"; some c in input.candidate_tools; input.now > "2" }`, `{}`, switchboard.RetryNo},
	} {
		p := policytest.NewPolicy(t, "", policytest.AllowAll+tt.rules, "") // of the engine that all tests share, so outside the bubble
		synctest.Test(t, func(t *testing.T) {                              // it is midnight
			g := newGate(p, `{}`)
			_, err := g.caller.Call(t.Context(), g.bind(t, policytest.Brave, tt.args))
			own, ok := errors.AsType[*switchboard.Error](err)
			if !ok || own.Code != switchboard.CodeDenied || own.Retry() != tt.want {
				t.Errorf("%s: %+v, want retryable: %s", name, err, tt.want)
			}
		})
	}
}

// Values that detectors find are redacted if a policy requires it, or if the operator's overlay
// does, whatever policies say: in results, in a server's earlier notifications and questions, and
// in its errors.
func TestNames16DetectedValuesReachNoClient(t *testing.T) {
	const said, left = "ann@example.com, 4111111111111111", "[redacted], [redacted]"
	const asks = policytest.AllowAll + `obligations["brave/search"] contains {"type": "redact", "detectors": ["email", "card"]}`
	overlaid := *policytest.Brave
	overlaid.Redact = []switchboard.Detector{switchboard.DetectCard, switchboard.DetectEmail}
	for name, tt := range map[string]struct {
		rules string
		tool  *switchboard.Tool
		want  string
	}{
		"by a policy":            {asks, policytest.Brave, left},
		"by an overlay":          {policytest.AllowAll, &overlaid, left},
		"by both, each its part": {policytest.AllowAll + `obligations["brave/search"] contains {"type": "redact", "detectors": ["ip"]}`, &overlaid, left},
		"by nobody":              {policytest.AllowAll, policytest.Brave, said},
		"by no policy at all":    {"", &overlaid, left},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(policytest.NewPolicy(t, "", tt.rules, ""), `{"content":[{"type":"text","text":"`+said+`"}]}`)
			c := g.bind(t, policytest.Brave, `{}`)
			c.Tool = tt.tool
			for _, j := range c.Judgments {
				for i, one := range j.Candidates {
					if one == policytest.Brave {
						j.Candidates = slices.Clone(j.Candidates)
						j.Candidates[i] = tt.tool
					}
				}
			}
			var heard []string
			c.Notify = func(n switchboard.Notification) { heard = append(heard, string(n.Params)) }
			c.Client.Ask = func(_ context.Context, _ string, params []byte) ([]byte, error) {
				heard = append(heard, string(params))
				return nil, nil
			}
			r, err := g.caller.Call(t.Context(), c)
			if want := `{"content":[{"type":"text","text":"` + tt.want + `"}]}`; err != nil || string(r.JSON) != want {
				t.Errorf("%v: %s, want %s", err, r.JSON, want)
			}
			passed := g.calls[0]
			passed.Notify(switchboard.Notification{Params: []byte(`{"progressToken":1,"message":"` + said + `"}`)})
			_, _ = passed.Client.Ask(t.Context(), "elicitation/create", []byte(`{"mode":"form","message":"`+said+`"}`))
			if want := []string{`{"progressToken":1,"message":"` + tt.want + `"}`, `{"mode":"form","message":"` + tt.want + `"}`}; !slices.Equal(heard, want) {
				t.Errorf("the client gets %q, want %q", heard, want)
			}
			g.fails = &switchboard.Error{Code: switchboard.CodeServerFailed, Text: said}
			if _, err := g.caller.Call(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("an error says %v, want %s", err, tt.want)
			}
			g.fails = &switchboard.ServerError{Object: []byte(`{"code":-32000,"message":"` + said + `","data":["` + said + `"]}`)}
			_, err = g.caller.Call(t.Context(), c)
			if server, ok := errors.AsType[*switchboard.ServerError](err); !ok || string(server.Object) != `{"code":-32000,"message":"`+tt.want+`","data":["`+tt.want+`"]}` {
				t.Errorf("the server's error is %v", err)
			}
		})
	}
}

// Resources and prompts are treated as the tools of their server: what is redacted in results of
// these is redacted in them.
func TestNames16ItemsAreRedactedLikeTheToolsOfTheirServer(t *testing.T) {
	g := newGate(policytest.NewPolicy(t, "", policytest.AllowAll+`obligations["brave/search"] contains {"type": "redact", "detectors": ["email"], "fields": ["/x"]}`, ""), `{"contents":[{"uri":"a:b","text":"ann@example.com"}],"x":"secret"}`)
	c := g.bind(t, policytest.Brave, `{}`)
	c.Tool = nil
	r, err := g.caller.Call(t.Context(), c)
	if want := `{"contents":[{"uri":"a:b","text":"[redacted]"}],"x":"[redacted]"}`; err != nil || string(r.JSON) != want {
		t.Errorf("%v: %s, want %s", err, r.JSON, want)
	}
}

// Policies that know other recipients allow other calls.
func TestTheDigestOfAPolicyDependsOnTheRecipients(t *testing.T) {
	seen := map[switchboard.Digest]int{}
	for i, names := range [][]string{nil, {"a"}, {"b"}, {"a", "b"}, {"ab"}} {
		p, err := policytest.Engine.NewPolicy(&switchboard.Tenant{ID: "acme", Recipients: names}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if other, had := seen[p.Digest()]; had {
			t.Errorf("cases %d and %d have one digest", other, i)
		}
		seen[p.Digest()] = i
	}
}
