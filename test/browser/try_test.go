package browser_test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// serveTools serves tools that read, change, and wait for a person, to the local user.
func serveTools(t *testing.T) (w *world, made func(tool string) int) {
	t.Helper()
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w = &world{at: at}
	marks := filepath.Join(t.TempDir(), "marks")
	look := `{"name":"look","title":"Look <b>here</b>","description":"Looks at a file.","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","required":["path"],"properties":{` +
		`"path":{"type":"string","description":"Which <file>."},"depth":{"type":"integer"},"kind":{"enum":["file","folder"]},"deep":{"type":"boolean"},"filter":{"type":"object"}},"additionalProperties":false}}`
	row := strings.TrimSuffix(rig.FakeRow("a", "marks="+marks, look, fmt.Sprintf(rig.Tool, "mail"), fmt.Sprintf(rig.Tool, "write")), "}") + ", trust: operator}"
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"approvals: {wait: 1s}\nservers:\n  "+row+`
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
-- policies/rules.rego --
package switchboard

allowed_tools contains c.id if some c in input.candidate_tools

deny["a/look"] contains "not there" if {
	input.phase == "call"
	input.call.arguments.path == "/etc/passwd"
}

obligations["a/mail"] contains {"type": "require_approval", "reason": "it leaves the company"}
`)
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	return w, func(tool string) int {
		text, _ := os.ReadFile(marks) // there is none before the first call
		return strings.Count(string(text), tool+"\n")
	}
}

// The story "try a tool": in a real browser, at 360 px and by keyboard alone, and by plain HTTP without scripts.
func TestAPersonTriesTools(t *testing.T) {
	w, made := serveTools(t)
	b, _ := w.openPage(t)
	saw := watch(b)
	b.do(chromedp.EmulateViewport(360, 800), chromedp.Navigate(w.at+"/try"))
	b.await("You call tools as local")
	tab := func(label string) {
		t.Helper()
		for range 60 {
			b.do(chromedp.KeyEvent(kb.Tab))
			if got := evaluate[string](b, `(document.activeElement.textContent.trim() || document.activeElement.id).replace(/\s+/g, " ")`); got == label {
				return
			}
		}
		t.Fatalf("the key Tab does not reach %q; the browser shows\n%s", label, b.text())
	}
	enter := func(label string) {
		t.Helper()
		tab(label)
		b.do(chromedp.KeyEvent(kb.Enter))
	}
	fits := func() {
		t.Helper()
		if got := evaluate[[]float64](b, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] || got[1] != 360 {
			t.Errorf("the page is %v px wide in a window of %v px:\n%s", got[0], got[1], b.text())
		}
	}

	// A tool that only reads is called at once, with what the form has.
	b.do(chromedp.Focus(chromedp.CSS("#tool")), chromedp.KeyEvent("look"))
	enter("Show the tool")
	b.await("a call only reads")
	fits()
	if got := b.text(); !strings.Contains(got, "Look <b>here</b>") || !strings.Contains(got, "filter, as JSON") || !strings.Contains(got, "path (required)") {
		t.Errorf("the form is\n%s", got)
	}
	b.do(chromedp.Focus(chromedp.CSS("#argument-0")), chromedp.KeyEvent("README"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("12"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("folder"))
	enter("Show the arguments as JSON")
	b.await("Call it with this JSON")
	rig.Eventually(t, "the JSON is written", func() string {
		got := evaluate[string](b, `document.querySelector("#json")?.value ?? ""`)
		return rig.ReasonUnless(got == "{\n  \"path\": \"README\",\n  \"depth\": 12,\n  \"kind\": \"folder\"\n}", got)
	})
	if made("look") != 0 {
		t.Error("writing the JSON has called the tool")
	}
	enter("Call it")
	b.await("The call got a result")
	fits()
	if got := b.text(); !strings.Contains(got, `"README"`) || !strings.Contains(got, "look at server a") || !strings.Contains(got, " bytes") || !strings.Contains(got, "local of tenant default, task all") || made("look") != 1 {
		t.Errorf("made %d; the result is\n%s", made("look"), got)
	}
	b.do(chromedp.Reload())
	b.await("The call got a result")
	if made("look") != 1 {
		t.Errorf("a reload has called the tool; made %d", made("look"))
	}
	rig.Eventually(t, "the receipt is there", func() string {
		b.do(chromedp.Focus(chromedp.CSS(`dd a[href^="/receipts/"]`)), chromedp.KeyEvent(kb.Enter))
		got := b.awaitEither("A call: ok", "there is no")
		if got != "A call: ok" {
			b.do(chromedp.NavigateBack())
		}
		return rig.ReasonUnless(got == "A call: ok", got)
	})

	// A refusal by policy, with its code. The JSON alone is sent.
	b.do(chromedp.Navigate(w.at+"/try?task=all&tool=look"), chromedp.Focus(chromedp.CSS("#json")), chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(`{"path":"/etc/passwd"}`))
	enter("Call it with this JSON")
	b.await("SB-POL-001")
	fits()
	if got := b.text(); !strings.Contains(got, "The call got no result") || made("look") != 1 {
		t.Errorf("made %d; the refusal is\n%s", made("look"), got)
	}
	b.do(chromedp.Navigate(w.at+"/try?task=all&tool=look"), chromedp.Focus(chromedp.CSS("#json")), chromedp.KeyEvent("not "))
	enter("Call it with this JSON")
	b.await("the arguments are no JSON object")
	if got := evaluate[string](b, `document.querySelector("#json")?.value ?? ""`); !strings.Contains(got, "not ") {
		t.Errorf("what was typed is not kept: %q", got)
	}

	// A call with an effect asks first.
	b.do(chromedp.Navigate(w.at+"/try?task=all&tool=write"), chromedp.Focus(chromedp.CSS("#json")))
	enter("Call it with this JSON")
	b.await("Make this call?")
	fits()
	if got := b.text(); !strings.Contains(got, "One call of write at server a, by local for task all, with exactly these arguments.") || made("write") != 0 {
		t.Errorf("made %d; the question is\n%s", made("write"), got)
	}
	b.do(chromedp.Reload()) // of the answer to a form
	b.await("Make this call?")
	if made("write") != 0 {
		t.Error("a reload of the question has called the tool")
	}
	enter("Yes, make the call")
	b.await("The call got a result")
	if made("write") != 1 {
		t.Errorf("made %d", made("write"))
	}

	// A call that waits for a person shows its request, and is made when the person has said yes.
	b.do(chromedp.Navigate(w.at+"/try?task=all&tool=mail"), chromedp.Focus(chromedp.CSS("#json")))
	enter("Call it with this JSON")
	b.await("Make this call?")
	enter("Yes, make the call")
	if b.awaitEither("SB-APPR-001", "The call is being made") != "SB-APPR-001" {
		rig.Eventually(t, "the call waits", func() string {
			b.do(chromedp.Reload())
			return rig.ReasonUnless(b.awaitEither("SB-APPR-001", "The call is being made") == "SB-APPR-001", "it is being made")
		})
	}
	b.await("is pending")
	fits()
	held := evaluate[string](b, `location.href`)
	b.do(chromedp.Focus(chromedp.CSS(`main a[href^="/approvals/"]`)), chromedp.KeyEvent(kb.Enter))
	b.await("Your decision")
	b.do(chromedp.Focus(chromedp.CSS("#note")), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter)) // Yes
	b.await("The request is approved now")
	b.do(chromedp.Navigate(held))
	b.await("is approved")
	enter("Make the call now")
	b.await("The call got a result")
	if made("mail") != 1 {
		t.Errorf("made %d", made("mail"))
	}
	if faults, origins := saw.seen(); len(faults) > 1 || len(origins) != 1 || origins[0] != w.at { // the one is the answer 400
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}
	w.tryWithoutScripts(t, b.sessionCookie(), made)
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// tryWithoutScripts calls a tool by plain HTTP. A form that is sent twice makes one call.
func (w *world) tryWithoutScripts(t *testing.T, c *network.Cookie, made func(string) int) {
	t.Helper()
	send := func(fields url.Values) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.at+"/try", strings.NewReader(fields.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", w.at)
		req.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	formIn := func(page string) url.Values {
		fields := url.Values{}
		for _, f := range hiddenField.FindAllStringSubmatch(page, -1) {
			fields.Set(f[1], html.UnescapeString(f[2]))
		}
		return fields
	}
	_, page := w.get(t, c, "/try?task=all&tool=write")
	fields := formIn(page)
	fields.Set("act", "call")
	fields.Set("json", `{"n":1}`)
	asked := send(fields)
	text, _ := io.ReadAll(asked.Body)
	_ = asked.Body.Close()
	if asked.StatusCode != http.StatusOK || !strings.Contains(string(text), "Make this call?") || made("write") != 1 {
		t.Fatalf("it does not ask: %d %s", asked.StatusCode, text)
	}
	fields = formIn(string(text[:strings.Index(string(text), "Yes, make the call")]))
	fields.Set("act", "make")
	var to []string
	for range 2 {
		resp := send(fields)
		_ = resp.Body.Close()
		to = append(to, resp.Header.Get("Location"))
		if resp.StatusCode != http.StatusSeeOther {
			t.Errorf("the form is answered with %d", resp.StatusCode)
		}
	}
	if to[0] != to[1] || made("write") != 2 {
		t.Errorf("a form that is sent twice leads to %q; made %d", to, made("write"))
	}
	if status, page := w.get(t, c, to[0]); status != http.StatusOK || !strings.Contains(page, "The call got a result") {
		t.Errorf("the result: %d %s", status, page)
	}
	path, query, _ := strings.Cut(to[0], "?")
	if status, page := w.get(t, c, path+".json?"+url.Values{"tenant": {"default"}}.Encode()); status != http.StatusOK || !strings.Contains(page, `"tool":"write"`) {
		t.Errorf("as JSON: %d %s (%s)", status, page, query)
	}
	fields.Set("token", strings.Repeat("0", 128))
	resp := send(fields)
	text, _ = io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden || made("write") != 2 {
		t.Errorf("with a foreign token: %d %s", resp.StatusCode, text)
	}
}
