package browser_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/summit-switchboard/switchboard/test/rig"
)

var toReceipt = regexp.MustCompile(`href="(/receipts/[^"?]+)"`)

// The story "find the call that went wrong last night and replay it": in a real browser, at 360 px, by keyboard alone, and without scripts.
func TestAPersonFindsTheCallThatWentWrongAndReplaysIt(t *testing.T) {
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w := &world{at: at}
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"servers:\n  "+rig.FakeRow("notes", fmt.Sprintf(rig.Tool, "find"), fmt.Sprintf(rig.Tool, "drop"))+`
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: desk
record: policy_inputs
-- tenants/default/tasks/desk.yaml --
task_id: desk
required_capabilities: [{tools: ["*/*"]}]
-- policies/own.rego --
package switchboard

allowed_tools contains c.id if some c in input.candidate_tools

deny[c.id] contains "not on a Friday" if {
	some c in input.candidate_tools
	input.call.arguments.day == "Friday"
}
`)
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	s := w.Open(t, "/mcp", true)
	for _, day := range []string{"Monday", "Friday"} {
		if got := rig.Call(t, s, "find", `{"day":"`+day+`"}`); (got != "") != (day == "Friday") {
			t.Fatalf("on %s, the call gets %q", day, got)
		}
	}
	b, _ := w.openPage(t)
	saw := watch(b)
	b.do(chromedp.EmulateViewport(360, 800), chromedp.Navigate(w.at+"/receipts?since=2026-01-01T00:00"))
	b.await("Receipts")
	rig.Eventually(t, "the receipt is written", func() string {
		b.do(chromedp.Reload())
		shown := b.text()
		return rig.ReasonUnless(strings.Contains(shown, "refused SB-POL-001"), shown)
	})

	// By keyboard: the outcome is chosen, and the only call opens.
	b.do(chromedp.Focus(chromedp.CSS("#outcome")), chromedp.KeyEvent("refused"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("SB-POL-001"), chromedp.KeyEvent(kb.Enter))
	rig.Eventually(t, "the list has the refused call alone", func() string {
		n := evaluate[int](b, `document.querySelectorAll("tbody tr").length`)
		return rig.ReasonUnless(n == 1 && strings.Contains(evaluate[string](b, "location.search"), "code=SB-POL-001"), b.text())
	})
	b.do(chromedp.Focus(chromedp.CSS(`td a[href^="/receipts/"]`)), chromedp.KeyEvent(kb.Enter))
	b.await("A call: refused SB-POL-001")
	b.do(chromedp.Focus(chromedp.CSS(`#replay ~ form button, button[value="replay"]`)), chromedp.KeyEvent(kb.Enter))
	b.await("The same.")
	said := evaluate[string](b, `document.querySelector("section[aria-labelledby=replay]").innerText`)
	if !strings.Contains(said, "2 decisions, made again: the same to the byte as they were recorded") || !strings.Contains(said, "Replay again") || !strings.Contains(said, "switchboard receipts replay ") {
		t.Errorf("the replay says\n%s", said)
	}
	if got := evaluate[[]float64](b, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] || got[1] != 360 {
		t.Errorf("the page is %v px wide in a window of %v px", got[0], got[1])
	}
	id := evaluate[string](b, `location.pathname`)
	if out, errs, code := rig.Command(t, w.dir, "receipts", "replay", strings.TrimPrefix(id, "/receipts/")); code != 0 || !strings.Contains(out, "2 decisions, 2 replayed: 2 the same to the byte") {
		t.Errorf("the command says %d %s%s", code, out, errs)
	}

	// What happened leads to the decision that gave the task its tools.
	b.do(chromedp.Focus(chromedp.CSS(`a[href*="digest=sha256"]`)), chromedp.KeyEvent(kb.Enter))
	b.await("Recorded decisions")
	if got := evaluate[int](b, `document.querySelectorAll("tbody tr").length`); got < 1 {
		t.Errorf("the decision is not found:\n%s", b.text())
	}

	b.do(chromedp.Navigate(w.at + "/receipts"))
	b.press("Verify")
	b.await("entries are as they were written")
	b.await("No checkpoint was given")

	// The same without a browser.
	c := b.sessionCookie()
	_, list := w.get(t, c, "/receipts?outcome=refused")
	found := toReceipt.FindStringSubmatch(list)
	if found == nil || found[1] != id {
		t.Fatalf("the list has no link to %s: %s", id, list)
	}
	status, page, next := w.post(t, c, id, "act", "replay")
	if status != http.StatusSeeOther || !strings.HasPrefix(next, id+"?replay=") {
		t.Fatalf("without a browser, the form leads with %d to %q: %s", status, next, page)
	}
	address, _, _ := strings.Cut(next, "#")
	rig.Eventually(t, "the replay ends", func() string {
		_, page := w.get(t, c, address)
		return rig.ReasonUnless(strings.Contains(page, "The same."), page)
	})
	if faults, origins := saw.seen(); len(faults) > 0 || len(origins) != 1 || origins[0] != w.at {
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}
}
