package browser_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// A witness records what the page of a browser must never do.
type witness struct {
	mu      sync.Mutex
	faults  []string
	origins map[string]bool // of all requests
}

// watch records the reports of the content security policy, other errors of the browser, and where requests go.
func watch(b *browser) *witness {
	b.t.Helper()
	w := &witness{origins: map[string]bool{}}
	err := chromedp.Listen(b.ctx, func(ev any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch ev := ev.(type) {
		case *log.EventEntryAdded:
			w.faults = append(w.faults, fmt.Sprintf("%s: %s %s", ev.Entry.Source, ev.Entry.Text, ev.Entry.URL))
		case *network.EventRequestWillBeSent:
			if u, err := url.Parse(ev.Request.URL); err == nil {
				w.origins[u.Scheme+"://"+u.Host] = true
			}
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

// seen returns what was recorded.
func (w *witness) seen() (faults, origins []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for origin := range w.origins {
		origins = append(origins, origin)
	}
	return w.faults, origins
}

// evaluate returns the value of an expression in the page.
func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// get asks the page without a browser: no script runs.
func (w *world) get(t *testing.T, c *network.Cookie, path string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.at+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(all)
}

// post sends the form of a view without a browser, with the token of its session. pairs are the names and values of its fields.
func (w *world) post(t *testing.T, c *network.Cookie, path string, pairs ...string) (status int, text, next string) {
	t.Helper()
	_, page := w.get(t, c, path)
	_, rest, _ := strings.Cut(page, `name="token" value="`)
	token, _, _ := strings.Cut(rest, `"`)
	fields := url.Values{"token": {token}}
	for i := 0; i+1 < len(pairs); i += 2 {
		fields.Set(pairs[i], pairs[i+1])
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.at+path, strings.NewReader(fields.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", w.at)
	req.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(all), resp.Header.Get("Location")
}

var firstConcern = regexp.MustCompile(`(?s)<li class="concern">.*?</li>`)

// Now in a real browser, without scripts, at 360 px, and by keyboard alone.
func TestNowShowsFirstWhatNeedsAPerson(t *testing.T) {
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w := &world{at: at}
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"servers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work"))+"\n  broken: {transport: stdio, command: [\"false\"]}\n")
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	rig.Eventually(t, "the broken server is in quarantine", func() string {
		said := w.Do(0, "", "now", "--json")
		return rig.ReasonUnless(strings.Contains(said, `"state":"quarantine"`), said)
	})

	var opened struct{ URL string }
	if err := json.Unmarshal([]byte(w.Do(0, "", "page", "--json")), &opened); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t)
	saw := watch(b)
	b.do(chromedp.EmulateViewport(360, 800), chromedp.Navigate(opened.URL))
	b.await("You are local, an operator")
	if got := evaluate[string](b, `location.pathname + " " + document.title`); got != "/now Now · Switchboard" {
		t.Errorf("the browser is at %s", got)
	}
	if got := evaluate[string](b, `document.querySelector(".concerns > li").innerText`); !strings.Contains(got, "broken is in quarantine") || !strings.Contains(got, "switchboard server restart broken") {
		t.Errorf("the first thing that needs a person is\n%s", got)
	}
	if got := evaluate[[]float64](b, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] || got[1] != 360 {
		t.Errorf("the page is %v px wide in a window of %v px", got[0], got[1])
	}

	// The focus goes through the head in the order of reading, and is visible each time.
	const focused = `(() => {
		const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
		return e.innerText.trim() + (s.outlineStyle !== "none" && r.width > 0 && r.left >= 0 ? "" : " (not visible)");
	})()`
	views := evaluate[[]string](b, `[...document.querySelectorAll("nav a")].map(a => a.innerText)`)
	if views[0] != "Now" {
		t.Errorf("the views are %q", views)
	}
	for _, want := range slices.Concat([]string{"Skip to the content", "Switchboard", "Sign out"}, views) {
		b.do(chromedp.KeyEvent(kb.Tab))
		if got := evaluate[string](b, focused); got != want {
			t.Errorf("the focus is on %q, want %q", got, want)
		}
	}
	for range views[1:] { // back to the first one
		b.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	b.await("What needs a person")

	// The same without scripts, and as JSON.
	c := b.sessionCookie()
	status, text := w.get(t, c, "/now")
	if first := firstConcern.FindString(text); status != http.StatusOK || !strings.Contains(first, ">broken</bdi> is in quarantine") {
		t.Errorf("without a browser: %d %s", status, text)
	}
	type overview struct {
		Concerns []struct{ Kind, Subject string }
		Servers  int
	}
	rig.Eventually(t, "the JSON of the view says what the API says", func() string { // what is wrong can change between the two
		var page, api overview
		_, ofPage := w.get(t, c, "/now.json")
		_, ofAPI := w.get(t, c, "/v1/now")
		same := json.Unmarshal([]byte(ofPage), &page) == nil && json.Unmarshal([]byte(ofAPI), &api) == nil && slices.Equal(page.Concerns, api.Concerns)
		return rig.ReasonUnless(same && len(page.Concerns) > 0 && page.Servers == 2, fmt.Sprintf("the JSON of the view is\n%s\nand that of the API\n%s", ofPage, ofAPI))
	})
	if status, text = w.get(t, c, "/now?tenant=nobody"); status != http.StatusNotFound || !strings.Contains(text, "there is no tenant") {
		t.Errorf("a tenant that is not there: %d %s", status, text)
	}
	if faults, origins := saw.seen(); len(faults) > 0 || len(origins) != 1 || origins[0] != w.at {
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}
}
