package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// attempts is what a page of somebody else's tries, at the admin address ADMIN. It returns what it could read of each answer.
const attempts = `(async () => {
	const got = {}
	const tries = {
		"read the status": () => fetch("ADMIN/v1/status", {credentials: "include"}).then(r => r.text()),
		"read the page": () => fetch("ADMIN/", {credentials: "include"}).then(r => r.text()),
		"read without CORS": () => fetch("ADMIN/v1/status", {credentials: "include", mode: "no-cors"}).then(r => r.text()),
		"disable a server, as JSON": () => fetch("ADMIN/v1/servers/a/disable", {method: "POST", credentials: "include", headers: {"Content-Type": "application/json"}, body: "{}"}).then(r => r.text()),
		"disable a server, as text": () => fetch("ADMIN/v1/servers/a/disable", {method: "POST", credentials: "include", mode: "no-cors", body: "{}"}).then(r => r.text()),
		"delete a file": () => fetch("ADMIN/v1/files/switchboard.yaml", {method: "DELETE", credentials: "include"}).then(r => r.text()),
		"follow what changes": () => new Promise((done, fail) => {
			const s = new EventSource("ADMIN/live?view=/now", {withCredentials: true})
			s.onopen = () => done("told"); s.onerror = () => { s.close(); fail("blocked") }
		}),
		"run it as a script": () => new Promise((done, fail) => {
			const s = document.createElement("script")
			s.onload = () => done("it ran"); s.onerror = () => fail("blocked"); s.src = "ADMIN/v1/status"
			document.head.append(s)
		}),
		"show it as an image": () => new Promise((done, fail) => {
			const i = new Image()
			i.onload = () => done("shown"); i.onerror = () => fail("blocked"); i.src = "ADMINSTYLE"
		}),
		"use its style": () => new Promise((done, fail) => {
			const l = document.createElement("link")
			l.rel = "stylesheet"; l.onload = () => done("used"); l.onerror = () => fail("blocked"); l.href = "ADMINSTYLE"
			document.head.append(l)
		}),
	}
	for (const name in tries) {
		try { got[name] = await tries[name]() } catch { got[name] = "" }
	}
	// Forms go where they want; what they do there counts. Each has a frame of its own.
	const forms = [["/sign-out", "application/x-www-form-urlencoded"], ["/sign-in", "application/x-www-form-urlencoded"], ["/v1/servers/a/disable", "text/plain"]]
	for (const [path, type] of forms) {
		const frame = document.createElement("iframe")
		frame.name = "f" + path
		document.body.append(frame)
		const form = document.createElement("form")
		form.method = "post"; form.action = "ADMIN" + path; form.enctype = type; form.target = frame.name
		const field = document.createElement("input")
		field.name = '{"reason":"'; field.value = '"}'
		form.append(field)
		document.body.append(form)
		const over = new Promise(done => { frame.onload = done; setTimeout(done, 2000) })
		form.submit()
		await over
	}
	const frame = document.createElement("iframe")
	const over = new Promise(done => { frame.onload = done; setTimeout(done, 2000) })
	frame.src = "ADMIN/"
	document.body.append(frame)
	await over
	try { got["look into a frame"] = frame.contentDocument ? frame.contentDocument.body.innerText : "" } catch { got["look into a frame"] = "" }
	return got
})()`

// OR-06, OR-01, OR-02: whatever a page of somebody else's tries in the browser of an operator who is signed in, it reads nothing and does nothing.
func TestOR06APageOfSomebodyElsesReadsNothingAndDoesNothing(t *testing.T) {
	w := serve(t, false, nil)
	b, _ := w.openPage(t)
	style := evaluate[string](b, `document.querySelector("link[rel=stylesheet]").getAttribute("href")`)
	evil := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		_, _ = rw.Write([]byte("<!doctype html><title>evil</title><body>win something</body>"))
	}))
	defer evil.Close()
	port := evil.URL[strings.LastIndex(evil.URL, ":"):]
	adminPort := w.at[strings.LastIndex(w.at, ":"):]

	// To browsers, another port of this machine is the same site: it sends the cookies along.
	for _, from := range []string{"http://evil.test" + port, "http://127.0.0.1" + port} {
		b.do(chromedp.Navigate(from + "/"))
		got, err := chromedp.Run(b.ctx, chromedp.Evaluate[map[string]string](strings.NewReplacer("ADMINSTYLE", w.at+style, "ADMIN", w.at).Replace(attempts), chromedp.EvalAwaitPromise))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) < 10 {
			t.Errorf("from %s, only this was tried: %v", from, got)
		}
		for name, text := range got {
			if text != "" {
				t.Errorf("from %s, it could %s: %.200q", from, name, text)
			}
		}
		w.checkUntouched(t, b, from)
	}

	// Rebinding: a name of theirs that leads to the admin address.
	rebound := "http://evil.test" + adminPort
	b.do(chromedp.Navigate(rebound + "/"))
	b.await("this host name is not the admin address")
	b.do(chromedp.Navigate(rebound + "/v1/status"))
	b.await("this host name is not allowed here")
	w.checkUntouched(t, b, rebound)
}

// checkUntouched checks that the operator is signed in still, and that nothing was changed.
func (w *world) checkUntouched(t *testing.T, b *browser, from string) {
	t.Helper()
	if st := w.Status(); len(st.Servers) != 1 || st.Servers[0].State != "ready" {
		t.Errorf("after %s, the servers are %+v", from, st.Servers)
	}
	if history := w.Do(0, "", "config", "history", "--json"); strings.Contains(history, "local") {
		t.Errorf("after %s, the history is %s", from, history)
	}
	b.do(chromedp.Navigate(w.at + "/"))
	b.await("You are local, an operator")
}

// A link from elsewhere leads an operator who is signed in to the page, and nowhere else.
func TestALinkFromElsewhereLeadsToThePageOnly(t *testing.T) {
	w := serve(t, true, startNPM)
	b := newBrowser(t)
	w.signIn(b)
	page := ""
	elsewhere := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		_, _ = rw.Write([]byte(page))
	}))
	defer elsewhere.Close()
	for path, want := range map[string]string{
		"/":                      "You are idp/ann, an operator", // the strict cookie is sent only at the second step
		"/sign-in/code?code=abc": "nothing is here",
		"/v1/status":             "requests of other sites' pages are not allowed here",
	} {
		page = fmt.Sprintf(`<a id="go" href=%q>look</a>`, w.at+path)
		b.do(chromedp.Navigate(elsewhere.URL), chromedp.Click(chromedp.CSS("#go")))
		b.await(want)
	}
}
