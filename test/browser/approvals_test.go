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

// serveAsking serves two tools whose calls need a yes.
func serveAsking(t *testing.T) (w *world, s *rig.HTTPSession) {
	t.Helper()
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w = &world{at: at}
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"approvals: {wait: 1s, standing: 8h}\nservers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "mail"), fmt.Sprintf(rig.Tool, "pay"))+`
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
-- policies/ask.rego --
package switchboard

allowed_tools contains c.id if some c in input.candidate_tools

obligations[c.id] contains {"type": "require_approval", "reason": "it leaves the company"} if some c in input.candidate_tools
`)
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	s = w.Open(t, "/mcp", false)
	for _, tool := range []string{"mail", "pay"} {
		if got := rig.Call(t, s, tool, `{"to":"ops@x.org"}`); got != "SB-APPR-001" {
			t.Fatalf("the call of %s: %s", tool, got)
		}
	}
	return w, s
}

var toRequest = regexp.MustCompile(`href="(/approvals/[^"/]+-1)"`)

// The stories "say yes to a waiting call, and see it run" and "refuse with a note that the agent gets": in a real browser, without scripts, at 360 px, and by keyboard alone.
func TestAPersonSaysYesToOneCallAndNoToTheNext(t *testing.T) {
	w, s := serveAsking(t)
	b, _ := w.openPage(t)
	saw := watch(b)
	b.do(chromedp.EmulateViewport(360, 800), chromedp.Navigate(w.at+"/approvals"))
	b.await("local asks for a/mail")
	c := b.sessionCookie()
	_, list := w.get(t, c, "/approvals")
	found := toRequest.FindAllStringSubmatch(list, -1)
	if len(found) != 2 {
		t.Fatalf("the list has no two requests: %s", list)
	}
	mail := found[1][1] // the newest comes first
	b.do(chromedp.Focus(chromedp.CSS(fmt.Sprintf("a[href=%q]", mail))), chromedp.KeyEvent(kb.Enter))
	b.await("Your decision")
	if got := b.text(); !strings.Contains(got, "A yes allows one call of a/mail, exactly this, by local") || !strings.Contains(got, `"to": "ops@x.org"`) || !strings.Contains(got, "it leaves the company") || !strings.Contains(got, "so does an agent that runs programs as you") {
		t.Errorf("the request is\n%s", got)
	}
	if got := evaluate[[]float64](b, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] {
		t.Errorf("the view of a request is %v px wide in a window of %v px", got[0], got[1])
	}
	b.do(chromedp.Focus(chromedp.CSS("#note")), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter)) // Yes
	b.await("You have said yes to the request before")
	b.await("local asks for a/pay") // the next one
	if m, _ := s.Ask(t, "tools/call", `{"name":"mail","arguments":{"to":"ops@x.org"}}`); rig.Code(m) != "" {
		t.Errorf("after the yes, the call gets %s", m.Raw)
	}
	if _, text := w.get(t, c, mail); !strings.Contains(text, "The request is used") || strings.Contains(text, `value="approve"`) {
		t.Errorf("the used request is %s", text)
	}

	b.do(chromedp.Focus(chromedp.CSS("#note")), chromedp.KeyEvent("pay the other account"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter)) // No
	b.await("The request is refused now")
	if m, _ := s.Ask(t, "tools/call", `{"name":"pay","arguments":{"to":"ops@x.org"}}`); rig.Code(m) != "SB-APPR-002" || !strings.Contains(string(m.Raw), "pay the other account") {
		t.Errorf("after the no, the call gets %s", m.Raw)
	}
	for path, want := range map[string]string{"/approvals": "No call waits for a person", "/approvals/decided": "used", "/approvals/standing": "No person has said yes in advance"} {
		if status, text := w.get(t, c, path); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s without a browser: %d %s", path, status, text)
		}
	}

	// The receipt of the call that the yes has allowed tells the whole story.
	b.do(chromedp.Navigate(w.at + "/receipts?tool=a%2Fmail&outcome=ok"))
	b.await("a/mail")
	if got := evaluate[[]float64](b, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] {
		t.Errorf("the list of receipts is %v px wide in a window of %v px", got[0], got[1])
	}
	b.do(chromedp.Focus(chromedp.CSS(`td a[href^="/receipts/"]`)), chromedp.KeyEvent(kb.Enter))
	b.await("A person's yes was used")
	if got := b.text(); !strings.Contains(got, "A call: ok") || !strings.Contains(got, "the call of a/mail was about to be made") {
		t.Errorf("the story of the call is\n%s", got)
	}
	b.do(chromedp.Navigate(w.at + "/receipts"))
	b.press("Verify")
	b.await("entries are as they were written")
	if faults, origins := saw.seen(); len(faults) > 0 || len(origins) != 1 || origins[0] != w.at {
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}
}

// A yes in advance is made from a request, spares people the asking, and ends when a person says so.
func TestAPersonSaysYesInAdvanceAndEndsIt(t *testing.T) {
	w, s := serveAsking(t)
	b, _ := w.openPage(t)
	_, list := w.get(t, b.sessionCookie(), "/approvals")
	pay := toRequest.FindStringSubmatch(list)[1]
	b.do(chromedp.Navigate(w.at+pay), chromedp.Click(chromedp.CSS("summary")))
	b.press("Say yes in advance")
	b.await("is made. This request still waits for your yes")
	if got := rig.Call(t, s, "pay", `{"to":"ops@x.org"}`); got != "" {
		t.Errorf("a call like the one of the request gets %s", got)
	}
	b.do(chromedp.Navigate(w.at + "/approvals/standing"))
	b.await("1 of 10 calls used")
	b.press("End it")
	b.await("people are asked again")
	if got := rig.Call(t, s, "pay", `{"to":"ops@x.org"}`); got != "SB-APPR-001" {
		t.Errorf("after its end, the call gets %s", got)
	}
}
