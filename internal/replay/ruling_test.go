package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// argumentDigest returns the digest of the arguments of a call.
var argumentDigest = receipt.NewDigests(switchboard.NewSecret("a secret")).Arguments

var callArguments = []string{
	`{"path":"/etc/passwd","n":4.0}`, `{"path":"/w","n":1e1,"opts":{"deep":true,"other":"x"}}`, `{"opts":{"deep":[{"x":null}]}}`, `{"opts":{"deep":[1,2,3,4],"other":[]}}`, `{"z":"x"}`, `{}`,
}

// argumentRules are the rules that read the arguments or the cost of a call.
var argumentRules = slices.DeleteFunc(slices.Clone(denyRules), func(rule string) bool { return !strings.Contains(rule, "input.call.") })

// callAndRecord calls every tool that the configuration shows, and records policy's rulings. It
// returns the number of records, and how many of them can be replayed.
func callAndRecord(t *rapid.T, dir *memoryRecords, c *config.Config, offers []switchboard.Offer) (n, replayable int) {
	st := newState(t, c, offers)
	for _, p := range []switchboard.Principal{{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal}, {Tenant: "umbrella", ID: "ci", Auth: switchboard.AuthAPIKey}} {
		p, err := st.CurrentPrincipal(p)
		if err != nil {
			t.Fatal(err)
		}
		own := st.Tenants[p.Tenant]
		d, err := st.DecideConfigured(t.Context(), p, "a", decide.Observed{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range d.Selected {
			call := &switchboard.Call{
				Principal: p, Task: "a", Server: s.Tool.ID.Server, Method: "tools/call", Tool: s.Tool.Called(), Judgments: s.Judgments,
				Params: []byte(`{"name":"x","arguments":` + rapid.SampledFrom(callArguments).Draw(t, "arguments") + `}`),
			}
			if rapid.IntRange(0, 3).Draw(t, "a prompt") == 0 {
				call.Tool, call.Method = nil, "prompts/get"
			}
			at := time.Now().Add(-time.Duration(rapid.Int64Range(0, int64(20*time.Hour)).Draw(t, "ago")))
			ruling := own.Rules.JudgeCall(t.Context(), call, at)
			if !ruling.Asked && ruling.Err == nil {
				continue
			}
			made := newRulingRecord(own, basisTextsOf(own), call, own.Rules, at, ruling, argumentDigest(call), nil)
			dir.add(made)
			n++
			if own.RecordInputs || len(own.Rules.Arguments()) == 0 {
				replayable++
			} else if bytes.Contains(made.text, []byte("/etc")) {
				t.Fatalf("arguments are recorded although the tenant does not want them: %s", made.text)
			}
		}
	}
	// Two tools of one server may lead to the same call of a prompt.
	entries := dir.readAll(t)
	if len(entries) < n {
		replayable = -1
	}
	return len(entries), replayable
}

func TestAReplayReproducesEveryRulingOnACallToTheByte(t *testing.T) {
	law.Hold(t, law.Deterministic)
	if err := flag.Set("rapid.checks", "60"); err != nil { // each compiles policies three times; about one in four replays calls
		t.Fatal(err)
	}
	some := 0
	rapid.Check(t, func(t *rapid.T) {
		dir := newMemoryRecords(t)
		c := drawConfig(t)
		if rapid.IntRange(0, 3).Draw(t, "reads arguments") > 0 { // or nearly all the tools are denied before a call
			c.Policies = []switchboard.PolicyFile{
				{Name: "arguments.rego", Path: "arguments.rego", Data: []byte("package switchboard\n\n" + allowRules[0] + "\n" + rapid.SampledFrom(argumentRules).Draw(t, "rule on arguments") + "\n")},
				{Name: "any.rego", Path: "any.rego", Data: []byte("package switchboard\n\n" + rapid.SampledFrom(denyRules).Draw(t, "any rule") + "\n")},
			}
		}
		n, replayable := callAndRecord(t, dir, c, drawOffers(t))
		for name, p := range map[string]*Proposal{"nothing": {}, "the configuration as it is": {config: c}} {
			d := compareAll(t, dir, p)
			if d.Decisions != n || d.Calls != n || replayable >= 0 && d.Replayed != replayable || len(d.Broken) > 0 {
				t.Fatalf("under %s, of %d calls %d can be replayed: %+v", name, n, replayable, d)
			}
			for _, not := range d.NotReplayed {
				if not.Why != whyNoArguments || not.Of != kindCall {
					t.Fatalf("under %s: %+v", name, d.NotReplayed)
				}
			}
			if d.Changed != 0 || len(d.Changes) > 0 {
				t.Fatalf("under %s: %+v", name, d.Changes)
			}
			some += d.Replayed
		}
	})
	if some == 0 {
		t.Error("nothing was replayed")
	}
}

// newPathCaller returns a tenant whose policy is rego, and a function that calls its tool a/x with
// arguments and records policy's ruling.
func newPathCaller(t testing.TB, dir *memoryRecords, rego string, inputs bool, price ...switchboard.ElementPrice) (*bind.Tenant, func(arguments string, secrets ...string) *decisionRecord) {
	t.Helper()
	tax, err := switchboard.NewTaxonomy(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := func(text string) []switchboard.PolicyFile {
		return []switchboard.PolicyFile{{Name: "p.rego", Path: "p.rego", Data: []byte("package switchboard\n\nallowed_tools contains c.id if some c in input.candidate_tools\n" + text)}}
	}
	overlays := map[switchboard.ToolID]switchboard.Overlay{}
	if price != nil {
		overlays[switchboard.ToolID{Server: "a", Name: "x"}] = switchboard.Overlay{Price: &switchboard.Price{Call: 1, Each: price}}
	}
	st := newState(t, &config.Config{
		Taxonomy: tax, Servers: []switchboard.Server{{ID: "a"}}, Policies: file(rego), Overlays: overlays,
		Tenants: map[switchboard.TenantID]*switchboard.Tenant{"acme": {
			ID: "acme", Servers: []switchboard.ServerID{"a"}, ByName: true, RecordInputs: inputs,
			Tasks: map[switchboard.TaskID]*switchboard.Task{"all": {ID: "all", Requirements: []switchboard.Requirement{{Tools: []string{"a/*"}}}}},
		}},
	}, []switchboard.Offer{{Server: "a", Tools: [][]byte{[]byte(`{"name":"x","inputSchema":{"type":"object"}}`)}}})
	own := st.Tenants["acme"]
	who := switchboard.Principal{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal}
	d, err := own.RunPipeline(t.Context(), who, own.Tasks["all"], decide.Observed{}, time.Now())
	if err != nil || len(d.Selected) != 1 {
		t.Fatal(d, err)
	}
	return own, func(arguments string, secrets ...string) *decisionRecord {
		t.Helper()
		c := &switchboard.Call{
			Principal: who, Task: "all", Server: "a", Method: "tools/call", Tool: d.Selected[0].Tool, Judgments: d.Selected[0].Judgments,
			Params: []byte(`{"name":"x","arguments":` + arguments + `}`),
		}
		now := time.Now()
		made := newRulingRecord(own, basisTextsOf(own), c, own.Rules, now, own.Rules.JudgeCall(t.Context(), c, now), argumentDigest(c), secrets)
		dir.add(made)
		return made
	}
}

// The arguments are not recorded: a price needs only their numbers of elements.
func TestAReplayKnowsWhatACallCost(t *testing.T) {
	dir := newMemoryRecords(t)
	const rule = `deny[c.id] contains sprintf("dear: %v", [input.call.cost]) if { some c in input.candidate_tools; input.call.cost > 0.00001 }`
	_, call := newPathCaller(t, dir, rule, false, switchboard.ElementPrice{Pointer: "/texts", Micros: 5})
	for _, args := range []string{`{"texts":["a"]}`, `{"texts":["a","b"]}`, `{"texts":"a"}`, `{}`} {
		if text := string(call(args).text); strings.Contains(text, `"a"`+"]") {
			t.Errorf("the arguments are recorded: %s", text)
		}
	}
	dir.readAll(t)
	if d := compareAll(t, dir, &Proposal{}); d.Calls != 4 || d.Replayed != 4 || len(d.Broken) > 0 {
		t.Errorf("%+v", d)
	}
	p := &Proposal{operator: []switchboard.PolicyFile{{Name: "p.rego", Path: "p.rego", Data: []byte("package switchboard\n\nallowed_tools contains c.id if some c in input.candidate_tools\n" +
		`deny[c.id] contains "dear" if { some c in input.candidate_tools; input.call.cost > 0.000005 }`)}}}
	want := []DecisionChange{
		{Kind: ChangeDenied, Of: kindCall, Tenant: "acme", Tool: "a/x", Why: "SB-POL-001: the operator's policy denies it: dear", Decisions: 1},
	}
	if d := compareAll(t, dir, p); !slices.Equal(d.Changes, want) || d.Replayed != 4 {
		t.Errorf("%+v, want %+v", d, want)
	}
}

const pathRule = `deny[c.id] contains sprintf("outside: %s", [input.call.arguments.path]) if { some c in input.candidate_tools; not startswith(object.get(input, ["call", "arguments", "path"], "/w"), "/w") }`

func TestAProposedRuleOnArgumentsSaysWhichCallsItWouldDeny(t *testing.T) {
	dir := newMemoryRecords(t)
	_, call := newPathCaller(t, dir, `deny[c.id] contains "no" if { some c in input.candidate_tools; input.call.arguments.path == "/w/secret" }`, true)
	call(`{"path":"/w/a"}`)
	call(`{"path":"/etc"}`)
	call(`{"path":"/etc"}`) // the same call
	call(`{"path":"/tmp"}`)
	call(`{"path":"/w/secret"}`)
	dir.readAll(t)
	for file, want := range map[string][]DecisionChange{
		"denies more": {
			{Kind: ChangeDenied, Of: kindCall, Tenant: "acme", Tool: "a/x", Why: "SB-POL-001: the operator's policy denies it: outside: /etc", Decisions: 1},
			{Kind: ChangeDenied, Of: kindCall, Tenant: "acme", Tool: "a/x", Why: "SB-POL-001: the operator's policy denies it: outside: /tmp", Decisions: 1},
		},
		"denies nothing": {
			{Kind: ChangeAllowed, Of: kindCall, Tenant: "acme", Tool: "a/x", Why: "it was not: SB-POL-001: the operator's policy denies it: no", Decisions: 1},
		},
		"asks something": {
			{Kind: ChangeAsked, Of: kindCall, Tenant: "acme", Tool: "a/x", From: "nothing", To: "log warn", Why: "obligations of the policies", Decisions: 3},
		},
		"hides it": {
			{Kind: ChangeDenied, Of: kindCall, Tenant: "acme", Tool: "a/x", Why: "SB-CAP-001: the operator's policy denies it: gone", Decisions: 3},
		},
		"looks at what was not recorded": nil,
	} {
		p := &Proposal{files: []ProposedFile{{File: switchboard.PolicyFile{Name: "new.rego", Path: "new.rego"}}}}
		switch file {
		case "denies more":
			p.files[0].File.Data = []byte("package switchboard\n\ndeny[c.id] contains sprintf(\"outside: %s\", [input.call.arguments.path]) if { some c in input.candidate_tools; not startswith(input.call.arguments.path, \"/w\") }\n")
		case "denies nothing":
			p = &Proposal{operator: []switchboard.PolicyFile{{Name: "p.rego", Path: "p.rego", Data: []byte("package switchboard\n\nallowed_tools contains c.id if some c in input.candidate_tools\n")}}}
		case "asks something":
			p.files[0].File.Data = []byte("package switchboard\n\nobligations[c.id] contains {\"type\": \"log\", \"level\": \"warn\"} if some c in input.candidate_tools\n")
		case "hides it":
			p.files[0].File.Data = []byte("package switchboard\n\ndeny[c.id] contains \"gone\" if some c in input.candidate_tools\n")
		default:
			p.files[0].File.Data = []byte("package switchboard\n\ndeny[c.id] contains \"mode\" if { some c in input.candidate_tools; input.call.arguments.mode == \"w\" }\n")
			d := compareAll(t, dir, p)
			if want := []NotReplayed{{Why: whyArguments, Of: kindCall, Decisions: 4}}; !slices.Equal(d.NotReplayed, want) || d.Replayed != 0 || len(d.Changes) > 0 {
				t.Errorf("%s: %+v", file, d)
			}
			continue
		}
		if d := compareAll(t, dir, p); !slices.Equal(d.Changes, want) || d.Calls != 4 || d.Replayed != 4 || len(d.Broken) > 0 {
			t.Errorf("%s: %+v, want %+v", file, d, want)
		}
	}
}

func TestOnlyTheArgumentsThatPoliciesReadAreRecorded(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	const path = `deny[c.id] contains input.call.arguments.path if { some c in input.candidate_tools; not startswith(input.call.arguments.path, "/w") }`
	for name, tt := range map[string]struct {
		rego, arguments string
		inputs          bool
		secrets         []string
		values          string
		why             bool
	}{
		"what it looks at":         {path, `{"text":"private","path":"/w"}`, true, nil, `{"path":"/w"}`, false},
		"and why it is denied":     {path, `{"text":"private","path":"/etc"}`, true, nil, `{"path":"/etc"}`, true},
		"nothing, unless wanted":   {path, `{"path":"/etc"}`, false, nil, ``, false},
		"nothing that it does not": {`deny[c.id] contains "late" if { some c in input.candidate_tools; input.now < "1" }`, `{"path":"/etc"}`, true, nil, ``, false},
		"all, where it may":        {`deny[c.id] contains "x" if { some c in input.candidate_tools; some v in input.call.arguments; v == "x" }`, `{"b":1.0, "a":"x"}`, true, nil, `{"a":"x","b":1.0}`, true},
		"no credential":            {path, `{"path":"/w?token=ghp_0123456789abcdef"}`, true, nil, ``, false},
		"no value of such a name":  {`deny[c.id] contains "x" if { some c in input.candidate_tools; input.call.arguments.auth.password == "x" }`, `{"auth":{"password":"guess"}}`, true, nil, ``, false},
		"no key of ours":           {path, `{"path":"/etc/swb_x"}`, true, nil, ``, false},
		"no secret of a server":    {path, `{"path":"/etc/hunter2"}`, true, []string{"hunter2"}, ``, false},
		"nothing that is large":    {path, `{"path":"` + strings.Repeat("x", maxRecordedArguments) + `"}`, true, nil, ``, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newMemoryRecords(t)
			_, call := newPathCaller(t, dir, tt.rego, tt.inputs)
			made := call(tt.arguments, tt.secrets...)
			var said archivedRuling
			var r callRuling
			if err := errors.Join(json.Unmarshal(made.text, &said), json.Unmarshal(said.Ruling, &r)); err != nil {
				t.Fatal(err)
			}
			dir.readAll(t)
			if string(r.Arguments.Values) != tt.values || (r.Why != "") != tt.why || r.Arguments.Digest == "" || bytes.Contains(made.text, []byte("private")) {
				t.Errorf("recorded is %s", made.text)
			}
			replayed := 1
			if tt.values == "" && !strings.Contains(tt.rego, "now") {
				replayed = 0
			}
			if d := compareAll(t, dir, &Proposal{}); d.Replayed != replayed || len(d.Broken)+d.Changed > 0 {
				t.Errorf("%+v", d)
			}
		})
	}
}

func TestACallDuringAReloadIsNotReplayed(t *testing.T) {
	dir := newMemoryRecords(t)
	own, _ := newPathCaller(t, dir, pathRule, true)
	d, err := own.RunPipeline(t.Context(), switchboard.Principal{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal}, own.Tasks["all"], decide.Observed{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := &switchboard.Call{Principal: d.Principal, Task: "all", Server: "a", Method: "tools/call", Tool: d.Selected[0].Tool, Judgments: d.Selected[0].Judgments, Params: []byte(`{}`)}
	other, _ := newPathCaller(t, newMemoryRecords(t), pathRule, true)
	stranger := *c
	stranger.Judgments = []*switchboard.Judgment{policy.NewJudgment(own.Tasks["all"], c.Judgments[0].Requirement, []*switchboard.Tool{{ID: c.Tool.ID}})}
	for name, made := range map[string]*decisionRecord{
		"by another policy than is in force":    newRulingRecord(own, basisTextsOf(own), c, other.Rules, time.Now(), policy.Ruling{Asked: true}, argumentDigest(c), nil),
		"selected under another":                newRulingRecord(own, basisTextsOf(own), c, own.Rules, time.Now(), policy.Ruling{Asked: true, Mixed: true}, argumentDigest(c), nil),
		"of a tool that is not the same":        newRulingRecord(own, basisTextsOf(own), &stranger, own.Rules, time.Now(), policy.Ruling{Asked: true}, argumentDigest(c), nil),
		"of what is known, which is no mixture": newRulingRecord(own, basisTextsOf(own), c, own.Rules, time.Now(), policy.Ruling{Asked: true}, argumentDigest(c), nil),
	} {
		dir := newMemoryRecords(t)
		dir.add(made)
		dir.readAll(t)
		d := compareAll(t, dir, &Proposal{})
		if want := []NotReplayed{{Why: whyMixed, Of: kindCall, Decisions: 1}}; slices.Equal(d.NotReplayed, want) == strings.Contains(name, "no mixture") || len(d.Broken) > 0 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
