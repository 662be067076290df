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

// A budget runs out, and a person sees when, what another limit would have done, and corrects it: at 360 px, by keyboard, and without scripts.
func TestABudgetRunsOutAndIsCorrectedInABrowser(t *testing.T) {
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w := &world{at: at}
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"currency: EUR\nbudgets: [{id: all, limit: 7.50, window: month}]\nservers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work"))+
		"\n-- overlays/a.yaml --\nserver: a\ntools:\n  work: {price: {call: 2.50}}\n")
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	s := w.Open(t, "/mcp", true)
	for range 3 {
		rig.Call(t, s, "work", "{}")
	}
	b, _ := w.openPage(t)
	saw := watch(b)
	b.do(chromedp.EmulateViewport(360, 800), chromedp.Navigate(w.at+"/budgets"))
	b.await("used up")
	for _, want := range []string{"operator/all", "7.50 of 7.50 EUR", "ends in"} {
		if got := b.text(); !strings.Contains(got, want) {
			t.Errorf("the view lacks %q:\n%s", want, got)
		}
	}
	if got := evaluate[[]float64](b, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] || got[1] != 360 {
		t.Errorf("the page is %v px wide in a window of %v px", got[0], got[1])
	}

	// What would a limit of 5.00 have refused? From the link of the account on, only keys are pressed.
	b.do(chromedp.Focus(`.rows a`), chromedp.KeyEvent(kb.Enter))
	b.await("Correct operator/all")
	b.do(chromedp.Focus("#most"), chromedp.KeyEvent("5"+kb.Enter))
	b.await("would have refused 1, which cost 2.50 EUR")

	// The correction: the provider has credited a call.
	b.do(chromedp.Focus("#by"), chromedp.KeyEvent("-2.50"+kb.Tab+"the provider has credited a call"+kb.Enter))
	b.await("5.00 of 7.50 EUR")
	rig.Call(t, s, "work", "{}") // there is room for one call again
	rig.Eventually(t, "the correction has a receipt with its reason", func() string {
		_, said := w.get(t, b.sessionCookie(), "/v1/receipts")
		return rig.ReasonUnless(strings.Contains(said, "the provider has credited a call"), said)
	})

	rig.Eventually(t, "the receipts of four calls are compared with another limit, without a browser", func() string {
		status, text := w.get(t, b.sessionCookie(), "/budgets?most=2+calls")
		return rig.ReasonUnless(status == http.StatusOK && strings.Contains(text, "would have refused <strong>2</strong>"), text)
	})
	if faults, origins := saw.seen(); len(faults) > 0 || len(origins) != 1 || origins[0] != w.at {
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}
}
