package browser_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// The veto of the story, with a mistake and without, and its tests.
const (
	wrongVeto = `package switchboard.tenant

deny[c.id] contains "nobody deletes" if {
some c in input.candidate_tools
c.tool = = "delete"
}
`
	rightVeto = `package switchboard.tenant

deny[c.id] contains "nobody deletes" if {
some c in input.candidate_tools
c.tool == "delete"
}
`
	vetoTests = `package switchboard.tenant_test

import data.switchboard.tenant

test_nobody_deletes if {
tenant.deny["files/delete"] with input as {"candidate_tools": [{"id": "files/delete", "tool": "delete"}]}
}
`
)

// A person writes a veto, tests it, sees whose decisions it would have changed, saves it, and undoes it: by keyboard alone, in a window of 360 px. Of scripts, the view has only the one of times.
func TestAPersonWritesAVetoTestsItLooksAndSaves(t *testing.T) {
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w := &world{at: at}
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"servers:\n  "+rig.FakeRow("files", fmt.Sprintf(rig.Tool, "read"), fmt.Sprintf(rig.Tool, "delete"))+
		"\ntenants:\n  default: {servers: [\"*\"], allow: [by_name]}\n-- tenants/default/tenant.yaml --\ntenant: default\ndefault_task: all\n"+
		"-- tenants/default/tasks/all.yaml --\ntask_id: all\nrequired_capabilities: [{tools: [\"*/*\"]}]\n"+
		"-- tenants/default/policies/own.rego --\npackage switchboard.tenant\n\nallowed_tools contains c.id if some c in input.candidate_tools\n\ndeny[c.id] contains \"never\" if {\n\tsome c in input.candidate_tools\n\tc.tool == \"format\"\n}\n")
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
	lists("delete read")
	b, _ := w.openPage(t)
	saw := watch(b)
	c := b.sessionCookie()
	rig.Eventually(t, "the decision is recorded", func() string {
		_, said := w.get(t, c, "/v1/decisions?tenant=default")
		return rig.ReasonUnless(strings.Contains(said, `"task":"all"`), said)
	})
	b.do(chromedp.EmulateViewport(360, 800), chromedp.Navigate(at+"/policies?tenant=default"))
	b.await("How often each rule held")

	// enter presses what has the focus, after it was reached with the key Tab.
	enter := func(label string) {
		t.Helper()
		for range 90 {
			b.do(chromedp.KeyEvent(kb.Tab))
			if got := evaluate[string](b, `document.activeElement.textContent.trim().replace(/\s+/g, " ")`); got == label {
				b.do(chromedp.KeyEvent(kb.Enter))
				return
			}
		}
		t.Fatalf("the key Tab does not reach %q; the browser shows\n%s", label, b.text())
	}
	fits := func() {
		t.Helper()
		if got := evaluate[[]float64](b, `[document.documentElement.scrollWidth, innerWidth, document.scripts.length]`); got[0] > got[1] || got[1] != 360 || got[2] != 1 { // the script of times
			t.Errorf("the page is %v px wide in a window of %v px, and has %v scripts:\n%s", got[0], got[1], got[2], b.text())
		}
	}
	// write replaces the text of a field.
	write := func(field, text string) {
		t.Helper()
		b.do(chromedp.Focus(chromedp.CSS(field)))
		evaluate[bool](b, `(document.activeElement.select(), true)`) // what Ctrl and A do
		b.do(chromedp.KeyEvent(text))
	}
	enter("Count them")
	b.await("rules never held") // the shipped ones too, since the person is an operator
	if shown := b.text(); !strings.Contains(shown, "tenants/default/policies/own.rego:3") || !strings.Contains(shown, "tenants/default/policies/own.rego:5") {
		t.Errorf("the view lacks a rule:\n%s", shown)
	}
	fits()

	b.do(chromedp.Focus(chromedp.CSS("#path")), chromedp.KeyEvent("veto.rego"), chromedp.KeyEvent(kb.Enter))
	b.await("a new file")
	fits()
	write("#text", wrongVeto)
	enter("Check it")
	b.await("veto.rego:5:")
	if shown := b.text(); !strings.Contains(shown, "rego_parse_error") || !strings.Contains(evaluate[string](b, `document.querySelector("#result pre").innerText`), `c.tool = = "delete"`) {
		t.Errorf("the fault is shown without its line:\n%s", shown)
	}
	fits()
	write("#text", rightVeto)
	write("#tests", vetoTests)
	enter("Check it")
	b.await("files/read")
	enter("Run the tests")
	b.await("The only test passed")
	fits()
	enter("Try it on a recorded decision")
	enter("Try it")
	b.await("the tenant's policy denies it: nobody deletes")
	if shown := b.text(); !strings.Contains(shown, `c.tool == "delete"`) || !strings.Contains(shown, "switchboard.tenant.deny") {
		t.Errorf("the values of the expressions are not shown:\n%s", shown)
	}
	fits()
	enter("Compare with last week's decisions")
	rig.Eventually(t, "the comparison ends", func() string {
		shown := b.text()
		if strings.Contains(shown, "so far") {
			b.press("See how far the comparison is")
		}
		return rig.ReasonUnless(strings.Contains(shown, "Whose decisions:"), shown)
	})
	if shown := b.text(); !strings.Contains(shown, "the tool could not serve: files/delete") || !strings.Contains(shown, "local 1 ×") {
		t.Errorf("the comparison does not name the caller:\n%s", shown)
	}
	fits()
	file := filepath.Join(w.dir, "tenants/default/policies/veto.rego")
	if _, err := os.Stat(file); err == nil {
		t.Error("a look has written the file")
	}
	lists("delete read")
	b.do(chromedp.Focus(chromedp.CSS("#reason")), chromedp.KeyEvent("deleting needs a person"))
	enter("Save")
	b.await("Saved as change 2")
	if got := rig.ReadFile(t, file); got != rightVeto || rig.ReadFile(t, strings.Replace(file, "veto", "veto_test", 1)) != vetoTests {
		t.Errorf("the file is\n%s", got)
	}
	lists("read")

	// Somebody else changes the file meanwhile: what was typed is kept.
	write("#text", rightVeto+"# mine\n")
	rig.WriteFile(t, file, rightVeto+"# theirs\n")
	enter("Save")
	b.await("Somebody has changed the file since you began")
	if got := evaluate[string](b, `document.querySelector("#text").value`); !strings.HasSuffix(got, "# mine\n") || !strings.Contains(b.text(), "-# theirs") {
		t.Errorf("what was typed is %q, and the view\n%s", got, b.text())
	}
	enter("Save mine over the file as it is now")
	b.await("Saved as change 3")
	enter("Undo change 3")
	b.await("it took change 3 back")
	if got := rig.ReadFile(t, file); got != rightVeto+"# theirs\n" {
		t.Errorf("after the undo the file is\n%s", got)
	}

	// The session ends meanwhile: the tab keeps what was typed while its person signs in in another one.
	write("#text", rightVeto+"# later\n")
	var sessions struct{ Sessions []struct{ ID string } }
	if err := json.Unmarshal([]byte(w.AskAdmin(t, "", "GET", "/v1/sessions", "").Body), &sessions); err != nil || len(sessions.Sessions) != 1 {
		t.Fatalf("%v: %+v", err, sessions)
	}
	w.Do(0, "", "sessions", "end", sessions.Sessions[0].ID)
	enter("Save")
	b.await("What you typed is kept on this page")
	fits()
	b.do(chromedp.Focus(chromedp.CSS("#key")), chromedp.KeyEvent("swo_wrong"), chromedp.KeyEvent(kb.Enter)) // the answer is in another tab
	var opened struct{ URL string }
	if err := json.Unmarshal([]byte(w.Do(0, "", "page", "--json")), &opened); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(b.ctx, target.CreateTarget, target.CreateTargetParams{URL: opened.URL}); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the person is signed in again", func() string {
		is := b.sessionCookie()
		return rig.ReasonUnless(is != nil && is.Value != c.Value, "it has the old cookie")
	})
	enter("Go on with what I typed")
	b.await("it was not sent again")
	if got := evaluate[string](b, `document.querySelector("#text").value`); got != rightVeto+"# later\n" {
		t.Errorf("what was typed before is %q", got)
	}
	enter("Save")
	b.await("Saved as change 5")
	if faults, origins := saw.seen(); len(faults) > 3 || len(origins) != 1 || origins[0] != w.at { // three are answers 412, 401 and 403
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}
}
