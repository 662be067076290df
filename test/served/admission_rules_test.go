package served_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/policies"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// blastTool is a tool that the operator's overlay labels.
const blastTool = `{"name":"blast","description":"Sends a mail to everybody.","inputSchema":{"type":"object"}}`

const overlayOfBlast = "server: a\ntools:\n  blast: {side_effects: [%s]}\n"

// The shipped rules let in what the first sight lets in, except what is prohibited. A person's yes does not change that; the operator's own facts and rules do.
func TestWhatIsProhibitedIsLetInByNobody(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work"), blastTool)))
	overlay := filepath.Join(dir, "overlays", "a.yaml")
	rig.WriteFile(t, overlay, fmt.Sprintf(overlayOfBlast, "mass-messages"))
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false)
	lists := func(want bool) {
		t.Helper()
		rig.Eventually(t, fmt.Sprintf("that the client lists blast is %v", want), func() string {
			got := rig.ListNames(t, s)
			return rig.ReasonUnless(slices.Contains(got, "work") && slices.Contains(got, "blast") == want, fmt.Sprint(got))
		})
	}
	lists(false)
	const why = "the operator's rules keep it out: its risk is prohibited: it writes to masses of people"
	if m, _ := s.Ask(t, "tools/call", `{"name":"blast","arguments":{}}`); m.Error == nil {
		t.Errorf("a call is answered %s", m.Raw)
	}
	if out, _, _ := rig.Command(t, dir, "explain", "--json", "--url", g.URL); !strings.Contains(out, "SB-LIFE-003") || !strings.Contains(out, "it is new: "+why) {
		t.Errorf("explain prints\n%s", out)
	}
	out, _, _ := rig.Command(t, dir, "pins", "diff", "a/blast", "--url", g.URL)
	if !strings.Contains(out, "a/blast is new: "+why) || !strings.Contains(out, "its risk is prohibited") {
		t.Errorf("pins diff prints\n%s", out)
	}
	digest := regexp.MustCompile(`--digest (d1:[0-9a-f]{64})`).FindStringSubmatch(out)
	if digest == nil {
		t.Fatalf("pins diff names no digest:\n%s", out)
	}
	if out, errs, code := rig.Command(t, dir, "pins", "accept", "a/blast", "--digest", digest[1], "--url", g.URL); code != 0 || !strings.Contains(out, "it is not in use: "+why) {
		t.Errorf("exit %d, and accept prints\n%s%s", code, out, errs)
	}
	lists(false)
	rig.Eventually(t, "the decisions without the tool are replayed as they were", func() string {
		d, code := policyDiff(t, dir, "--against", ".")
		return rig.ReasonUnless(code == 0 && d.Decisions > 0 && d.Replayed == d.Decisions && d.Changed == 0 && len(d.Broken) == 0, fmt.Sprintf("exit %d, %+v", code, d))
	})
	rig.WriteFile(t, overlay, fmt.Sprintf(overlayOfBlast, "contacts-people"))
	lists(true)
	rig.WriteFile(t, overlay, fmt.Sprintf(overlayOfBlast, "costs-money"))
	lists(false)
	rig.WriteFile(t, overlay, strings.Replace(fmt.Sprintf(overlayOfBlast, "costs-money"), "]}", "], budget: {limit: 5.00, window: 1d}}", 1))
	lists(true)
}

// stricterRule is that of the documents.
const stricterRule = `package switchboard

keep_out[c.id] contains "a person must look at what can harm" if {
	some c in input.candidate_tools
	c.evidence.risk in {"medium", "high"}
	not c.evidence.let_in_by == "person"
}
`

// failingRule cannot be evaluated for the tool blast.
const failingRule = `package switchboard

keep_out[c.id] contains "never" if {
	some c in input.candidate_tools
	c.tool == "blast"
	to_number(c.tool) == 1
}
`

func TestAnOperatorsStricterRuleLetsInWhatAPersonHasAccepted(t *testing.T) {
	t.Parallel()
	looks := `{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`
	dir := rig.LayOut(t, shippedPolicies(t)+"-- policies/stricter.rego --\n"+stricterRule+rig.Fakes(rig.FakeRow("a", looks, blastTool)))
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false)
	lists := func(what string, want ...string) {
		t.Helper()
		rig.Eventually(t, what, func() string {
			got := slices.DeleteFunc(rig.ListNames(t, s), func(name string) bool { return name != "look" && name != "blast" })
			slices.Sort(got)
			return rig.ReasonUnless(slices.Equal(got, want), fmt.Sprint(got))
		})
	}
	lists("only what reads is let in at first sight", "look")
	out, _, _ := rig.Command(t, dir, "pins", "diff", "a/blast", "--url", g.URL)
	digest := regexp.MustCompile(`--digest (d1:[0-9a-f]{64})`).FindStringSubmatch(out)
	if digest == nil || !strings.Contains(out, "a person must look at what can harm") {
		t.Fatalf("pins diff prints\n%s", out)
	}
	if a := g.AskAdmin(t, "", http.MethodPost, "/v1/pins/accept?server=a&name=blast", `{"digest":"`+digest[1]+`"}`); a.Status != http.StatusOK || !strings.Contains(a.Body, `"state":"active"`) {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	lists("what a person has accepted is let in", "blast", "look")
	rig.WriteFile(t, filepath.Join(dir, "policies", "failing.rego"), failingRule)
	g.Reload(t)
	lists("rules that fail take nothing out that a person has let in", "blast", "look")
}

// What policy diff says of a proposed rule comes true when the rule is put in place, and again when it is removed. Status and metrics count what is kept out as that.
func TestAProposedRuleSaysWhatItWouldKeepOut(t *testing.T) {
	t.Parallel()
	looks := `{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`
	dir := rig.LayOut(t, shippedPolicies(t)+rig.Fakes(rig.FakeRow("a", looks, blastTool)))
	proposed := filepath.Join(t.TempDir(), "stricter.rego")
	rig.WriteFile(t, proposed, stricterRule)
	g := rig.Serve(t, dir)
	rig.ListNames(t, g.Open(t, "/mcp", false))
	says := func(what, against, kind, why string) {
		t.Helper()
		rig.Eventually(t, what, func() string {
			d, code := policyDiff(t, dir, "--against", against)
			for _, c := range d.Changes {
				if c.Change != kind || c.Tool != "a/blast" || !strings.Contains(c.Why, why) {
					return fmt.Sprintf("exit %d, %+v", code, d)
				}
			}
			return rig.ReasonUnless(code == 1 && len(d.Changes) == 1 && len(d.Broken) == 0, fmt.Sprintf("exit %d, %+v", code, d))
		})
	}
	const why = "the operator's rules keep it out: a person must look at what can harm"
	says("it would be kept out", proposed, "denied", "admission: it is new: "+why)
	rig.WriteFile(t, filepath.Join(dir, "policies", "stricter.rego"), stricterRule)
	g.Reload(t)
	rig.Eventually(t, "it is kept out", func() string {
		got := rig.ListNames(t, g.Open(t, "/mcp", false))
		return rig.ReasonUnless(slices.Contains(got, "look") && !slices.Contains(got, "blast"), fmt.Sprint(got))
	})
	if a := g.AskAdmin(t, "", http.MethodGet, "/v1/status", ""); !strings.Contains(a.Body, `"definitions":{"kept_out":1}`) {
		t.Errorf("/v1/status: %s", a.Body)
	}
	if _, values := g.Metrics(); values["switchboard_definitions a kept_out"] != 1 || values["switchboard_definitions a active"] != 1 {
		t.Errorf("the metrics are %v", values)
	}
	if out, _, _ := rig.Command(t, dir, "status", "--url", g.URL); !strings.Contains(out, "a has definitions to look at: 1 kept out by the operator's rules (switchboard pins list") {
		t.Errorf("status:\n%s", out)
	}
	shipped := t.TempDir()
	if err := os.CopyFS(shipped, policies.Shipped); err != nil {
		t.Fatal(err)
	}
	says("it would be let in again", shipped, "allowed", "it was not: admission: it is new: "+why)
}

func TestRulesThatFailLetNothingIn(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, shippedPolicies(t)+"-- policies/failing.rego --\n"+failingRule+rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work"), blastTool)))
	g := rig.Serve(t, dir)
	if got := rig.ListNames(t, g.Open(t, "/mcp", false)); !slices.Contains(got, "work") || slices.Contains(got, "blast") {
		t.Errorf("the client lists %q", got)
	}
	if out, _, _ := rig.Command(t, dir, "explain", "--url", g.URL); !strings.Contains(out, "the operator's rules for that could not be evaluated") {
		t.Errorf("explain prints\n%s", out)
	}
}

// A tool that came after the first list of its server is used on trial. Each of its calls needs a person, unless the operator says that it only reads.
func TestAToolOnTrialAsksUnlessItOnlyReads(t *testing.T) {
	t.Parallel()
	const archive = `
-- switchboard.yaml --
servers:
  SERVER
approvals: {wait: 1s}
tenants:
  default: {servers: ["*"], allow: [by_name], trial: ["a/*"]}
-- overlays/a.yaml --
server: a
tools:
  peek: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
`
	marks := filepath.Join(t.TempDir(), "marks")
	w := &waitingWorld{dir: rig.LayOut(t, strings.Replace(archive, "SERVER", rig.FakeRow("a", "marks="+marks, admittedWork, turnTool), 1)), marks: marks}
	w.Gateway = rig.Serve(t, w.dir)
	s := w.Open(t, "/mcp", false)
	rig.ListNames(t, s)
	for _, name := range []string{"peek", "send"} {
		if m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"turn","arguments":{"do":"grow","bytes":%q}}`, fmt.Sprintf(rig.Tool, name))); m.Error != nil {
			t.Fatalf("%s", m.Raw)
		}
	}
	rig.Eventually(t, "the new tools are on trial", func() string {
		got := rig.ListNames(t, s)
		return rig.ReasonUnless(slices.Contains(got, "peek") && slices.Contains(got, "send"), fmt.Sprint(got))
	})
	if m, _ := s.Ask(t, "tools/call", `{"name":"work","arguments":{}}`); rig.Code(m) != "" {
		t.Errorf("a tool that is not on trial: %s", m.Raw)
	}
	if m, _ := s.Ask(t, "tools/call", `{"name":"peek","arguments":{}}`); rig.Code(m) != "" {
		t.Errorf("a tool on trial that only reads: %s", m.Raw)
	}
	id := w.ask(t, s, "{}")
	if n := w.made(t); n != 0 {
		t.Errorf("%d calls were made before a person has said yes", n)
	}
	if a := w.AskAdmin(t, "", http.MethodGet, "/v1/approvals/"+id+"?tenant=default", ""); !strings.Contains(a.Body, "it is on trial") {
		t.Errorf("the person reads %d %s", a.Status, a.Body)
	}
	w.say(t, "", id, "approve")
	if code, m := resume(t, s, id); code != "" || w.made(t) != 1 {
		t.Errorf("after a yes, %d calls are made, and the answer is %s", w.made(t), m.Raw)
	}
	w.Accept(t, "a", "tool", "send")
	rig.Eventually(t, "a tool that a person has let in is called without asking", func() string {
		m, _ := s.Ask(t, "tools/call", `{"name":"send","arguments":{}}`)
		return rig.Code(m)
	})
}
