package browser_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// servePair serves two servers with a tool of the same purpose, of which the first is preferred, and a client with a run that uses the first.
func servePair(t *testing.T) (w *world, s *rig.HTTPSession) {
	t.Helper()
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w = &world{at: at}
	label := "{capabilities: [{verb: read, resource: fs, constraints: [readonly]}]}"
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"servers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "fetch"))+"\n  "+rig.FakeRow("b", fmt.Sprintf(rig.Tool, "get"))+`
tenants:
  default: {servers: ["*"]}
-- overlays/a.yaml --
server: a
tools: {fetch: `+label+`}
-- overlays/b.yaml --
server: b
tools: {get: `+label+`}
-- tenants/default/tenant.yaml --
tenant: default
default_task: triage
ranking: {prefer: [{verb: read, resource: fs, servers: [a, b]}]}
-- tenants/default/tasks/triage.yaml --
task_id: triage
required_capabilities: [{verb: read, resource: fs, select: tool, as: read}]
`)
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	s = w.Open(t, "/mcp", false)
	if got := rig.Call(t, s, "read", `{}`); got != "" {
		t.Fatalf("the first call: %s", got)
	}
	return w, s
}

// The story "take a server out and see runs move": in a real browser, without scripts, at 360 px, and by keyboard alone.
func TestAnOperatorTakesAServerOutAndSeesRunsMove(t *testing.T) {
	w, s := servePair(t)
	b, _ := w.openPage(t)
	saw := watch(b)
	b.do(chromedp.EmulateViewport(360, 800), chromedp.Navigate(w.at+"/servers"))
	b.await("is healthy")
	if got := evaluate[[]float64](b, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] {
		t.Errorf("the list is %v px wide in a window of %v px", got[0], got[1])
	}
	b.do(chromedp.Focus(chromedp.CSS(`a[href="/servers/a"]`)), chromedp.KeyEvent(kb.Enter))
	b.await("What you can do")
	if got := b.text(); !strings.Contains(got, "It is healthy") || !strings.Contains(got, "Runs of task triage move to b.") || !strings.Contains(got, "read fs [readonly] (overlay)") {
		t.Errorf("the server's view says\n%s", got)
	}
	if got := evaluate[[]float64](b, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] {
		t.Errorf("the view of a server is %v px wide in a window of %v px", got[0], got[1])
	}

	b.do(chromedp.Focus(chromedp.CSS("#reason")), chromedp.KeyEvent("it is moved"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.await("a is disabled: it takes no new calls until it is enabled")
	b.await("disabled by local: it is moved")
	rig.Eventually(t, "the run has moved", func() string {
		if got := rig.Call(t, s, "read", `{}`); got != "" {
			return got
		}
		_, of := w.get(t, b.sessionCookie(), "/servers/b")
		return rig.ReasonUnless(strings.Contains(of, "would move") || strings.Contains(of, "find no other server for"), of)
	})
	b.do(chromedp.Navigate(w.at + "/servers/a"))
	b.await("No run at this process uses the server now")

	// The same without scripts, and as JSON.
	c := b.sessionCookie()
	if status, text := w.get(t, c, "/servers/a"); status != http.StatusOK || !strings.Contains(text, "It is disabled by an operator") || !strings.Contains(text, `<rect class="between"`) {
		t.Errorf("without a browser: %d %s", status, text)
	}
	_, ofPage := w.get(t, c, "/servers/a.json")
	if !strings.Contains(ofPage, `"disabled by local: it is moved"`) || !strings.Contains(ofPage, `"tenants":["default"]`) {
		t.Errorf("the JSON of the view is %s", ofPage)
	}
	b.press("Enable")
	b.await("a is healthy: it takes calls again")
	b.press("Probe")
	b.await("it gets a request without side effects now")
	if faults, origins := saw.seen(); len(faults) > 0 || len(origins) != 1 || origins[0] != w.at {
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}
	w.Do(0, `(?s)Tenants that may use it: default\n.*operator: disabled by local: it is moved\n.*healthy`, "server", "show", "a")
}
