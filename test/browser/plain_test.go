package browser_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// Each kind of form is used once in a browser that runs no scripts.
func TestEachKindOfFormWorksInABrowserWithoutScripts(t *testing.T) {
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w := &world{at: at}
	row := func(id, class string, tools ...string) string {
		return "  " + strings.TrimSuffix(rig.FakeRow(id, tools...), "}") + ", class: " + class + "}\n"
	}
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"approvals: {wait: 1s, standing: 8h}\nbudgets: [{id: all, limit: {calls: 50}, window: forever}]\nservers:\n"+
		row("atlas", "paid_api", fmt.Sprintf(rig.Tool, "search"))+row("wiki", "local_knowledge", fmt.Sprintf(rig.Tool, "mail"), fmt.Sprintf(rig.Tool, "pay"))+`
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
ranking:
  classes: [local_knowledge, paid_api]
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
-- policies/ask.rego --
package switchboard

`+rig.AllowAll+`
obligations[c.id] contains {"type": "require_approval"} if {
	some c in input.candidate_tools
	c.server == "wiki"
}
`)
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	s := w.Open(t, "/mcp", false)
	if got := rig.Call(t, s, "search", `{}`); got != "" {
		t.Fatalf("the call of search: %s", got)
	}
	for _, tool := range []string{"mail", "pay"} {
		if got := rig.Call(t, s, tool, `{"to":"ops@x.org"}`); got != "SB-APPR-001" {
			t.Fatalf("the call of %s: %s", tool, got)
		}
	}
	b, _ := w.openPage(t)
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	saw := watch(b)
	_, list := w.get(t, b.sessionCookie(), "/approvals")
	requests := toRequest.FindAllStringSubmatch(list, -1)
	if len(requests) != 2 {
		t.Fatalf("the list has no two requests: %s", list)
	}
	act := func(value string) { b.do(chromedp.Click(chromedp.CSS(fmt.Sprintf("button[value=%q]", value)))) }
	open := func(path string) { b.do(chromedp.Navigate(w.at + path)) }
	text := func(name string) string {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(w.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}

	// Approve, which opens the next request; a standing yes, and its end; refuse.
	open(requests[1][1])
	act("approve")
	b.await("You have said yes to the request before")
	b.do(chromedp.Click(chromedp.CSS("summary")))
	act("standing")
	b.await("This request still waits for your yes")
	act("refuse")
	b.await("The request is refused now")
	open("/approvals/standing")
	act("end")
	b.await("people are asked again")

	// Move, save, undo, and revert.
	before := text("tenants/default/tenant.yaml")
	open("/ranking?tenant=default")
	b.press("Up: paid_api")
	b.await("You look at a proposal")
	b.press("Save")
	b.await("Saved as change 1")
	if got := text("tenants/default/tenant.yaml"); !strings.Contains(got, "[paid_api, local_knowledge]") {
		t.Errorf("after the form, the file is\n%s", got)
	}
	b.press("Undo change 1")
	b.await("it took change 1 back")
	open("/configuration/changes/2")
	b.press("Take change 2 back")
	b.await("Change 3")
	if text("tenants/default/tenant.yaml") == before {
		t.Error("change 2 is not taken back")
	}

	// A server.
	open("/servers/atlas")
	act("probe")
	b.await("it gets a request without side effects now")
	act("disable")
	b.await("it takes no new calls until it is enabled")
	act("enable")
	b.await("it takes calls again")
	act("restart")
	b.await("or soon in any case")

	// A pin.
	open("/pins/one?" + url.Values{"server": {"atlas"}, "kind": {"tool"}, "name": {"search"}}.Encode())
	act("suspend")
	b.await("atlas/search is suspended")
	act("accept")
	b.await("atlas/search is active")
	b.do(chromedp.SendKeys(chromedp.CSS("#successor"), "wiki/mail"))
	act("deprecate")
	b.await("atlas/search is deprecated")
	act("retire")
	b.await("atlas/search is retired")
	act("accept")
	b.await("atlas/search is active")

	// A budget.
	open("/budgets?" + url.Values{"budget": {"operator/all"}}.Encode())
	b.do(chromedp.SendKeys(chromedp.CSS("#by"), "7"), chromedp.SendKeys(chromedp.CSS("#reason"), "a batch that was not counted"))
	b.press("Correct it")
	b.await("8 of 50 calls") // one call was made

	// Receipts, and the sign-out.
	open("/receipts")
	act("verify")
	b.await("entries are as they were written")
	rig.Eventually(t, "the receipt of a call is listed", func() string {
		open("/receipts?kind=call&outcome=ok")
		return rig.ReasonUnless(strings.Contains(b.text(), "atlas/search"), b.text())
	})
	b.do(chromedp.Click(chromedp.CSS(`td a[href^="/receipts/"]`)))
	b.await("What happened")
	act("replay")
	b.awaitEither("The same", "being made again")
	b.press("Sign out")
	b.await("Sign in")
	if faults, origins := saw.seen(); len(faults) > 0 || len(origins) != 1 || origins[0] != w.at {
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}
}
