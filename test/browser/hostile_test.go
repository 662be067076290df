package browser_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/summit-switchboard/switchboard/test/realdata"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// hostileTexts returns texts that try to be more than text: some of ours, and the first of the naughty strings that have markup, if they are here. The tests of package page show
// all of them.
func hostileTexts(t *testing.T) []string {
	t.Helper()
	all := []string{
		`<script>document.title = "ran"</script>`, `"><img src=x onerror='document.title = "ran"'>`, `' onmouseover='document.title = "ran"`, `javascript:document.title="ran"`,
		`<iframe src="https://evil.test/"></iframe>`, `</title></bdi></code></textarea><svg onload='document.title = "ran"'>`, `<link rel=stylesheet href=//evil.test/x.css>`, "a\u202egnp.exe \u200b\U000e0041 \x1b[31m",
	}
	var naughty []string
	err := realdata.Lines(realdata.File("badinput", "blns", "blns.txt"), func(line []byte) error {
		if text := strings.TrimSpace(string(line)); strings.Contains(text, "<") && len(naughty) < 6 {
			naughty = append(naughty, text)
		}
		return nil
	})
	if err != nil {
		t.Logf("the naughty strings are not here, so the test has only its own: %v", err)
	}
	return append(all, naughty...)
}

// PG-01 in a real browser: texts of others on every view make no request, run no script, and violate no policy.
func TestPG01TextOfOthersInABrowserMakesNoRequestAndRunsNoScript(t *testing.T) {
	findChromium(t)
	texts := hostileTexts(t)
	encode := func(v any) string {
		t.Helper()
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	var tools []string
	for i, text := range texts {
		tools = append(tools, encode(map[string]any{
			"name": fmt.Sprintf("t%d", i), "title": text, "description": text, "inputSchema": map[string]any{"type": "object", "properties": map[string]any{"to": map[string]string{"description": text}}},
		}))
	}
	offers := filepath.Join(t.TempDir(), "tools.json") // the configuration refuses characters that are not visible
	if err := os.WriteFile(offers, []byte(encode(tools)), 0o600); err != nil {
		t.Fatal(err)
	}
	at, listen, lead := placeAdmin(t, false)
	w := &world{at: at}
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"approvals: {wait: 1s}\nbudgets: [{id: all, limit: {calls: 100}, window: forever}]\nservers:\n  "+rig.FakeRow("a", "args="+offers)+"\n  broken: {transport: stdio, command: [sh, -c, "+encode("echo '"+strings.ReplaceAll(texts[0], "'", "")+"' >&2; exit 3")+`]}
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["a/*"]}]
-- policies/ask.rego --
package switchboard

`+rig.AllowAll+`
obligations["a/t1"] contains {"type": "require_approval", "reason": `+encode(texts[1])+`}

deny["a/t2"] contains `+encode(texts[0]+texts[5])+` if input.call.arguments.to
`)
	w.Gateway = rig.ServeAtOnce(t, w.dir)
	lead(w.AdminURL())
	s := w.Open(t, "/mcp", false)
	call := func(tool, arguments string) { s.Ask(t, "tools/call", `{"name":"`+tool+`","arguments":`+arguments+`}`) }
	rig.Eventually(t, "the server has answered", func() string {
		names := strings.Join(rig.ListNames(t, s), " ")
		return rig.ReasonUnless(strings.Contains(names, "t1"), names)
	})
	call("t1", encode(map[string]any{"to": strings.Join(texts, " "), texts[1]: texts[0]}))
	call("t2", encode(map[string]string{"to": texts[0]}))
	call(strings.Join(texts[:3], " ")[:60], `{}`)
	for _, text := range texts {
		call("t0", encode(map[string]string{"do": "error", "bytes": encode(map[string]any{"code": 1, "message": text})}))
	}
	if a := w.AskAdmin(t, "", http.MethodPost, "/v1/servers/a/disable", encode(map[string]string{"reason": texts[0] + texts[1]})); a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}

	b, _ := w.openPage(t)
	saw := watch(b)
	c := b.sessionCookie()
	views := []string{"/servers/a", "/servers/broken", "/pins?server=a", "/pins/one?server=a&kind=tool&name=t0", "/pins/one?server=a&kind=tool&name=t1", "/approvals/decided", "/approvals/standing", "/decision?tenant=default&recorded=1"}
	for _, list := range []string{"/approvals", "/receipts"} {
		_, page := w.get(t, c, list)
		for i, part := range strings.Split(page, `href="`+list+`/`)[1:] {
			if to, _, _ := strings.Cut(part, `"`); i < 6 {
				views = append(views, list+"/"+to)
			}
		}
	}
	for _, text := range texts {
		x := url.QueryEscape(text)
		views = append(views, "/pins?server="+x+"&state="+x, "/pins/one?server="+x+"&kind=tool&name="+x, "/receipts?tool="+x+"&principal="+x+"&task="+x+"&code="+x+"&checkpoint="+x, "/decision?tenant=default&task=all&tier="+x+"&without="+x+"&file=tenants/default/tenant.yaml&text="+x, "/decision?tenant="+x, "/budgets?tenant=default&budget="+x+"&of="+x+"&most="+x, "/ranking?tenant=default&wrong="+x+"&draft="+x)
	}
	for _, view := range b.addressesOfViews() {
		views = append(views, strings.TrimPrefix(view, w.at))
	}
	const check = `(() => {
		const wrong = [];
		if (document.title.includes("ran")) wrong.push("a script ran");
		for (const e of document.querySelectorAll("img, iframe, object, embed, base, script:not([src^='/assets/']), link:not([href^='/assets/']), style")) wrong.push(e.outerHTML);
		for (const e of document.querySelectorAll("a, form")) if (new URL(e.href || e.action, location.href).origin !== location.origin) wrong.push(e.outerHTML);
		for (const e of document.querySelectorAll("*")) for (const a of e.attributes) if (a.name.startsWith("on") || a.name === "style") wrong.push(e.outerHTML);
		return wrong.join("\n");
	})()`
	seen := 0
	for _, view := range views {
		b.do(chromedp.Navigate(w.at + view))
		if wrong := evaluate[string](b, check); wrong != "" {
			t.Errorf("%s: %s", view, wrong)
		}
		seen += strings.Count(evaluate[string](b, `document.body.innerText`), "<script>document.title")
	}
	if seen < 10 {
		t.Errorf("the texts are on %d places of %d views", seen, len(views))
	}
	faults, origins := saw.seen()
	for _, fault := range faults { // answers that refuse are no faults of the page
		if !strings.Contains(fault, "the server responded with a status of 4") {
			t.Errorf("the browser reports %s", fault)
		}
	}
	if len(origins) != 1 || origins[0] != w.at {
		t.Errorf("the browser has asked %q", origins)
	}
}
