package browser_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// decisionWorld is a tenant with two tiers, and a rule that keeps a tool from the lower one. LISTEN and SERVERS are filled in.
const decisionWorld = `
-- switchboard.yaml --
LISTEN
servers:
SERVERS
tenants:
  default: {servers: ["*"], allow: [by_name], tier: [free, pro]}
-- overlays/notes.yaml --
server: notes
tools:
  find: {capabilities: [{verb: search, resource: fs, constraints: [readonly]}]}
-- overlays/wiki.yaml --
server: wiki
tools:
  look: {capabilities: [{verb: search, resource: fs, constraints: [readonly]}]}
  dig: {capabilities: [{verb: search, resource: fs}]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: desk
ranking:
  prefer: [{verb: search, resource: fs, servers: [notes, wiki]}]
-- tenants/default/tasks/desk.yaml --
task_id: desk
required_capabilities:
  - {tools: ["notes/read", "notes/write"]}
  - {verb: search, resource: fs, constraints: [readonly], select: tool}
-- tenants/default/tasks/only-read.yaml --
task_id: only-read
required_capabilities:
  - {tools: ["notes/read"]}
-- tenants/default/policies/own.rego --
package switchboard.tenant

allowed_tools contains c.id if some c in input.candidate_tools

deny[c.id] contains "only the tier pro writes" if {
	some c in input.candidate_tools
	c.tool == "write"
	input.user_tier != "pro"
}
`

// serveDecisions serves decisionWorld.
func serveDecisions(t *testing.T) *world {
	t.Helper()
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w := &world{at: at}
	servers := "  " + rig.FakeRow("notes", fmt.Sprintf(rig.Tool, "read"), fmt.Sprintf(rig.Tool, "write"), fmt.Sprintf(rig.Tool, "find")) + "\n  " + rig.FakeRow("wiki", fmt.Sprintf(rig.Tool, "look"), fmt.Sprintf(rig.Tool, "dig"))
	w.dir = rig.LayOut(t, strings.NewReplacer("LISTEN\n", listen, "SERVERS", servers).Replace(decisionWorld))
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	return w
}

// openAt signs the browser in as the local user, 360 px wide, and opens a view.
func (w *world) openAt(t *testing.T, b *browser, path string) {
	t.Helper()
	var opened struct{ URL string }
	if err := json.Unmarshal([]byte(w.Do(0, "", "page", "--json")), &opened); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(360, 800), chromedp.Navigate(opened.URL))
	b.await("You are local, an operator")
	b.do(chromedp.Navigate(w.at + path))
}

// Two stories in a real browser, without scripts, at 360 px, and by keyboard alone: why was a tool dropped, and what if the tier were another one?
func TestDecisionSaysWhichRuleDroppedAToolAndWhatIfTheTierWereAnother(t *testing.T) {
	w := serveDecisions(t)
	b := newBrowser(t)
	saw := watch(b)
	w.openAt(t, b, "/tasks")
	b.await("only-read")
	b.do(chromedp.Focus("main a[href*='task=desk']"), chromedp.KeyEvent(kb.Enter))
	b.await("dropped at policy")
	b.await("The rule deny of the tenant says only the tier pro writes")
	rule := evaluate[string](b, `document.querySelector(".rule strong").innerText`)
	if !strings.HasSuffix(rule, "tenants/default/policies/own.rego, line 5") {
		t.Errorf("the rule is at %q", rule)
	}
	if got := evaluate[string](b, `document.querySelector(".rule").closest("details").innerText`); !strings.Contains(got, "notes/write") || !strings.Contains(got, "dropped at policy") {
		t.Errorf("the rule is said to have dropped\n%s", got)
	}
	if got := evaluate[[]float64](b, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] || got[1] != 360 {
		t.Errorf("the page is %v px wide in a window of %v px", got[0], got[1])
	}

	b.do(chromedp.Focus("form.ask summary"), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("pro"), chromedp.KeyEvent(kb.Enter))
	b.await("What would change")
	if got := evaluate[string](b, `document.querySelector(".compare tbody tr").innerText`); !strings.Contains(got, "notes/write was, at policy") {
		t.Errorf("with the tier pro it says\n%s", got)
	}
	asked, err := url.Parse(evaluate[string](b, `location.href`))
	if err != nil || asked.Query().Get("tier") != "pro" || asked.Query().Get("task") != "desk" {
		t.Errorf("the address is %v %v", asked, err)
	}
	faults, origins := saw.seen()
	origins = slices.DeleteFunc(origins, func(o string) bool { return o == "data://" }) // an icon of the browser's own for a field
	if len(faults) > 0 || len(origins) != 1 || origins[0] != w.at {
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}

	// The same without a browser: the address has the whole what-if.
	c := b.sessionCookie()
	for query, want := range map[string]string{
		asked.RawQuery:                                                         "switchboard explain desk --tier pro --tenant default",
		"tenant=default&task=desk&tier=none":                                   "tenant default has no tier",
		"tenant=default&task=nope":                                             "there is no task",
		"tenant=default&task=desk&without=x":                                   "has no server",
		"tenant=default&task=desk&mode=assist":                                 "Nothing: each requirement would get the tools that it gets now",
		"tenant=default&task=desk&at=2026-12-24T22:00":                         "No policy of the tenant reads the clock",
		"tenant=default&task=desk&file=tenants/default/tasks/desk.yaml":        "required_capabilities:",
		"tenant=default&task=desk&file=tenants/default/tasks/desk.yaml&text=x": "SB-CONF-001",
		"tenant=default&task=desk&file=switchboard.yaml&text=x":                "an address tries no main file",
		"tenant=default&task=desk&file=tenants/default/policies/own.rego&text=" + url.QueryEscape("package switchboard.tenant\n"+rig.AllowAll): "notes/write</bdi> was, at",
		"tenant=default&task=desk&without=notes": "the what-if takes its server out",
		"tenant=default&recorded=1":              "No decision was recorded",
	} {
		status, text := w.get(t, c, "/decision?"+query)
		if !strings.Contains(text, want) || strings.Contains(strings.ReplaceAll(text, `<script defer src="/assets/`, ""), "<script") {
			t.Errorf("%s: %d, without %q:\n%s", query, status, want, text)
		}
	}
	if status, text := w.get(t, c, "/decision.json?"+asked.RawQuery); status != http.StatusOK || !strings.Contains(text, `{"tool":"notes/write","score":0,`) {
		t.Errorf("the JSON of the what-if: %d %s", status, text)
	}
	if got := w.Do(0, "", "explain", "desk", "--tier", "pro", "--tenant", "default"); !strings.Contains(got, "notes/write") || strings.Contains(got, "only the tier pro") {
		t.Errorf("explain with the what-if prints\n%s", got)
	}
}
