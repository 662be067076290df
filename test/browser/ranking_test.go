package browser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// A person changes a ranking, looks at what it would do, saves it, and undoes it, by keyboard alone, in a window of 360 px.
func TestAPersonChangesARankingLooksSavesAndUndoes(t *testing.T) {
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w := &world{at: at}
	row := func(id, class, tool string) string {
		return "  " + strings.TrimSuffix(rig.FakeRow(id, fmt.Sprintf(rig.Tool, tool)), "}") + ", class: " + class + "}\n"
	}
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"servers:\n"+row("atlas", "paid_api", "search")+row("wiki", "local_knowledge", "lookup")+
		"tenants:\n  default: {servers: [\"*\"], allow: [by_name]}\n  umbrella: {servers: [\"*\"]}\n-- tenants/umbrella/tenant.yaml --\ntenant: umbrella\nranking: {clases: [a]}\n-- tenants/default/tenant.yaml --\ntenant: default # ours\ndefault_task: all\nranking:\n  classes: [local_knowledge, paid_api] # the best first\n"+
		"-- tenants/default/tasks/all.yaml --\ntask_id: all\nrequired_capabilities: [{tools: [\"*/*\"]}]\n")
	file := filepath.Join(w.dir, "tenants/default/tenant.yaml")
	text := func() string {
		t.Helper()
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	client := w.Open(t, "/mcp", true)
	lists := func(want string) {
		t.Helper()
		rig.Eventually(t, "the client's list", func() string {
			got := strings.Join(rig.ListNames(t, client), " ")
			return rig.ReasonUnless(got == want, got)
		})
	}
	lists("lookup search")
	before := text()
	b, _ := w.openPage(t)
	saw := watch(b)
	b.do(chromedp.EmulateViewport(360, 800), chromedp.Navigate(at+"/ranking?tenant=default"))
	b.await("What tasks get now")

	// enter presses a button that has the focus, after it was reached with the key Tab.
	enter := func(label string) {
		t.Helper()
		for range 60 {
			b.do(chromedp.KeyEvent(kb.Tab))
			if got := evaluate[string](b, `document.activeElement.textContent.trim().replace(/\s+/g, " ")`); got == label {
				b.do(chromedp.KeyEvent(kb.Enter))
				return
			}
		}
		t.Fatalf("the key Tab does not reach %q; the browser shows\n%s", label, b.text())
	}
	enter("Up: paid_api")
	b.await("You look at a proposal")
	if got := evaluate[string](b, `document.querySelector(".effect").innerText.replace(/\s+/g, " ")`); got != "all Now wiki/lookup atlas/search After atlas/search was 2 wiki/lookup was 1" {
		t.Errorf("the effect is %q", got)
	}
	if got := evaluate[string](b, `[...document.querySelectorAll(".diff ins, .diff del")].map(e => e.innerText).join("\n")`); got != "-  classes: [local_knowledge, paid_api] # the best first\n+  classes: [paid_api, local_knowledge] # the best first" {
		t.Errorf("the difference is\n%s", got)
	}
	if got := evaluate[[]float64](b, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] || got[1] != 360 {
		t.Errorf("the page is %v px wide in a window of %v px", got[0], got[1])
	}
	proposal := evaluate[string](b, `location.pathname + location.search`)
	if text() != before {
		t.Errorf("a look has changed the file:\n%s", text())
	}
	enter("Compare with last week's decisions")
	rig.Eventually(t, "the comparison ends", func() string {
		shown := b.text()
		if strings.Contains(shown, "so far") {
			b.do(chromedp.Reload())
		}
		return rig.ReasonUnless(strings.Contains(shown, "It has looked at "), shown)
	})
	b.do(chromedp.Focus(chromedp.CSS("#reason")), chromedp.KeyEvent("atlas is faster"), chromedp.KeyEvent(kb.Enter))
	b.await("Saved as change 1")
	if got := text(); got != strings.Replace(before, "[local_knowledge, paid_api]", "[paid_api, local_knowledge]", 1) {
		t.Errorf("the file is\n%s", got)
	}
	lists("search lookup")
	enter("Undo change 1")
	b.await("it took change 1 back")
	if text() != before {
		t.Errorf("after the undo the file is\n%s", text())
	}
	lists("lookup search")

	// The history shows both, and takes the second back.
	b.do(chromedp.Navigate(at + "/configuration"))
	b.await("took change 1 back")
	if shown := b.text(); !strings.Contains(shown, `tenants/umbrella/tenant.yaml:2:11: ranking: "clases" is not a key here`) {
		t.Errorf("the fault of the other tenant is not shown:\n%s", shown)
	}
	enter("1, the difference")
	b.await("atlas is faster")
	enter("Take change 1 back")
	b.await("SB-CONF-002") // the file has been changed since
	b.do(chromedp.Navigate(at + "/configuration/changes/2"))
	b.await("This took change 1 back")
	enter("Take change 2 back")
	b.await("Change 3")
	if text() == before {
		t.Error("change 2 is not taken back")
	}

	// A class that is dragged by its grip moves like one whose button is pressed.
	b.do(chromedp.Navigate(at + "/ranking?tenant=default"))
	b.await("What tasks get now")
	middle := func(selector string) []float64 {
		t.Helper()
		return evaluate[[]float64](b, fmt.Sprintf(`(() => { const e = document.querySelector(%q).getBoundingClientRect(); return [e.left + e.width / 2, e.top + e.height / 2] })()`, selector))
	}
	evaluate[bool](b, `(document.querySelector(".lanes").scrollIntoView(), true)`)
	from, to := middle(".lanes li:last-child .grip"), middle(".lanes li:first-child")
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, from[0], from[1], chromedp.ButtonLeft), chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, to[0], to[1], chromedp.ButtonLeft),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, to[0], to[1], chromedp.ButtonLeft))
	b.await("You look at a proposal")
	if got := evaluate[string](b, `document.querySelector(".lanes li").querySelector("h3").innerText`); !strings.Contains(got, "local_knowledge") {
		t.Errorf("after the drag, the first class is %q", got)
	}

	// The same without scripts: the address of the proposal has its whole state, and what was proposed is what the file has now.
	c := b.sessionCookie()
	if status, page := w.get(t, c, proposal); status != 200 || !strings.Contains(page, "What tasks get now") {
		t.Errorf("without a browser: %d %s", status, page)
	}
	if status, page := w.get(t, c, "/ranking.json?tenant=default"); status != 200 || !strings.Contains(page, `"class":"paid_api"`) {
		t.Errorf("as JSON: %d %s", status, page)
	}
	if faults, origins := saw.seen(); len(faults) > 1 || len(origins) != 1 || origins[0] != w.at { // the one is the answer 412
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}
}
