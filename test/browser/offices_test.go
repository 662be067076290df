package browser_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// The story "sign in and out as two offices": in a real browser, without scripts, at 360 px, and by keyboard alone. An approver of one tenant and a viewer of
// another use one browser, one after the other.
func TestTwoPeopleSignInAndOutAndEachSeesWhatTheirOfficeMay(t *testing.T) {
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w := &world{at: at}
	ann, annsHash := identity.Mint(identity.PersonPrefix)
	vic, vicsHash := identity.Mint(identity.PersonPrefix)
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"servers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work"))+fmt.Sprintf(`
tenants:
  default: {servers: ["*"]}
  acme: {servers: ["*"], allow: [by_name], approvers: [{key: ann, hash: %q}]}
  umbrella: {servers: ["*"], allow: [by_name], offices: [viewer]}
-- tenants/acme/tenant.yaml --
tenant: acme
-- tenants/umbrella/tenant.yaml --
tenant: umbrella
members: [{key: vic, hash: %q, offices: [viewer]}]
`, annsHash, vicsHash))
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	b := newBrowser(t)
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	saw := watch(b)
	enter := func(label string) {
		t.Helper()
		for range 40 {
			b.do(chromedp.KeyEvent(kb.Tab))
			if evaluate[string](b, `document.activeElement.textContent.trim()`) == label {
				b.do(chromedp.KeyEvent(kb.Enter))
				return
			}
		}
		t.Fatalf("the key Tab does not reach %q; the browser shows\n%s", label, b.text())
	}
	b.do(chromedp.EmulateViewport(360, 800), chromedp.Navigate(w.at+"/"))
	for _, person := range []struct {
		name, key, office string
		sees, not         []string
	}{
		{"ann", ann, "approver of tenant acme", []string{"Approvals"}, []string{"umbrella", "Ranking"}},
		{"vic", vic, "viewer of tenant umbrella", []string{"Receipts"}, []string{"acme", "Sign in with a key"}},
	} {
		b.await("Your person's key")
		b.do(chromedp.KeyEvent(kb.Tab)) // past the link to the content, which is the form
		b.do(chromedp.Focus(chromedp.CSS("#key")), chromedp.KeyEvent(person.key), chromedp.KeyEvent(kb.Enter))
		b.await("Your offices: " + person.office)
		if got := evaluate[[]float64](b, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] || got[1] != 360 {
			t.Errorf("the page is %v px wide in a window of %v px", got[0], got[1])
		}
		shown := b.text()
		for _, text := range person.sees {
			if !strings.Contains(shown, text) {
				t.Errorf("%s does not see %q:\n%s", person.name, text, shown)
			}
		}
		for _, text := range person.not {
			if strings.Contains(shown, text) {
				t.Errorf("%s sees %q:\n%s", person.name, text, shown)
			}
		}
		c := b.sessionCookie()
		enter("Sign out")
		b.await("Your person's key")
		if got := w.ask(t, c); got != 401 {
			t.Errorf("after %s has signed out, the session's cookie gets %d", person.name, got)
		}
		b.do(chromedp.NavigateBack())
		if got := b.awaitEither("Your person's key", "Your offices"); got == "Your offices" {
			t.Errorf("after %s has signed out, Back shows what %s saw", person.name, person.name)
		}
	}
	if faults, origins := saw.seen(); len(faults) > 0 || len(origins) != 1 || origins[0] != w.at {
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}
}
