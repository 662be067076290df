package page_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/admin/now"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const host = "127.0.0.1:7422"

// signIn returns the header with the cookie of a new session.
func (d *desk) signIn(t *testing.T) (header []string) {
	t.Helper()
	w := d.ask("POST", "/sign-in", host, "key="+d.key, "Origin", "http://"+host, "Content-Type", form)
	for _, c := range w.Result().Cookies() {
		if c.Value != "" {
			return []string{"Cookie", c.Name + "=" + c.Value}
		}
	}
	t.Fatalf("the sign-in is answered with %d %s", w.Code, w.Body)
	return nil
}

// answer returns a handler that gives one answer.
func answer(status int, contentType, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	})
}

// overviewOf returns an overview, as the API answers it, in which everything that others can write is one of the texts, in turn.
func overviewOf(t *testing.T, texts ...string) string {
	t.Helper()
	text, turn := texts[0], 0
	next := func() string {
		turn++
		text = texts[turn%len(texts)]
		return text
	}
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	tenant := switchboard.TenantID(text)
	o := now.Overview{At: at, More: []now.KindCount{{Kind: now.KindApproval, Count: 1234, Command: "switchboard approvals list"}}, Spans: make([]now.SpanTally, 4)}
	for _, kind := range []now.ConcernKind{now.KindReload, now.KindPart, now.KindStore, now.KindRecords, now.KindServer, now.KindAtom, now.KindTool, now.KindUnknown, now.ConcernKind(text)} {
		o.Concerns = append(o.Concerns, now.Concern{Kind: kind, Tenant: tenant, Subject: next(), State: text, Says: []string{text, text}, Since: at, Command: "switchboard " + text})
	}
	asks := &approvals.ApprovalRow{ID: next(), Principal: text, Tool: text, Tenant: tenant}
	able := &approvals.ApprovalRow{ID: next(), Principal: text, Capability: text}
	o.Concerns = append(o.Concerns, now.Concern{Kind: now.KindApproval, Subject: text, Approval: asks, Yours: true}, now.Concern{Kind: now.KindApproval, Subject: text, Approval: able},
		now.Concern{Kind: now.KindBudget, Subject: next(), Budget: &budget.StatementRow{Of: text, Unit: text, Limit: text, Left: text, Warned: 80}})
	o.Spans[3].Tally, o.Spans[3].TokensSpared = history.Tally{Calls: 12_345, Lists: 7, ListTokens: 100_000, FullTokens: 1_334_567, Uncounted: 3}, 1_234_567
	o.Spends = []now.SpendRow{{Unit: text, Amounts: []string{"0.00", "0.00", "1.25", "310.50"}}}
	o.Refusals = []now.RefusalRow{{Code: text, Counts: make([]int64, 4)}}
	for i := range 24 {
		o.Hours = append(o.Hours, history.Point{Start: at.Add(time.Duration(i) * time.Hour), Tally: history.Tally{Calls: int64(i)}})
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// nowScene shows Now.
func nowScene(t *testing.T) hostileScene {
	d := newDesk(t, "")
	cookie := d.signIn(t)
	return hostileScene{[]string{"/now"}, hostileTexts(t, lineBytes), func(t *testing.T, address string, texts ...string) string {
		t.Helper()
		d.api = answer(200, "application/json", overviewOf(t, texts...))
		return d.open(t, address, cookie)
	}, ""}
}

func TestATextOfOthersIsFramedSpeltOutAndCut(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\nb": `<p><bdi class="theirs">a</bdi></p><p><bdi class="theirs">b</bdi></p>`, "a\u202eb": `<bdi class="theirs">a\u{202e}b</bdi>`, strings.Repeat("ä", 5000): "and 4,500 more characters",
	} {
		scene := nowScene(t)
		if page := scene.show(t, "/now", text); !strings.Contains(strings.ReplaceAll(page, "</p>\n<p>", "</p><p>"), want) {
			t.Errorf("%.20q is not shown as %s:\n%s", text, want, page)
		}
	}
}

func TestAViewShowsWhatTheAPIAnswersItsOfficer(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	d.row.Operator, d.row.Tenant, d.row.Offices = false, "acme", []switchboard.Office{switchboard.OfficeViewer}
	d.tenants = []switchboard.TenantID{"acme", "umbrella"}
	if w := d.ask("GET", "/now", host, ""); w.Code != 200 || !strings.Contains(w.Body.String(), "Sign in") || len(d.asked) > 0 {
		t.Errorf("without a session: %d %s", w.Code, w.Body)
	}
	if w := d.ask("GET", "/now.json", host, ""); w.Code != http.StatusUnauthorized || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("without a session, the JSON is %d %s", w.Code, w.Body)
	}
	cookie := d.signIn(t)
	text := overviewOf(t, "x")
	d.api = answer(200, "application/json", text)
	get := func(path string, header ...string) *httptest.ResponseRecorder {
		return d.ask("GET", path, host, "", append(cookie, header...)...)
	}
	for _, tt := range []struct{ path, accept string }{{"/now.json?tenant=acme", "text/html"}, {"/now?tenant=acme", "application/json"}, {"/now?tenant=acme", "application/json;q=0.9, text/html"}} {
		if w := get(tt.path, "Accept", tt.accept); w.Body.String() != text || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s with %s is %d %v %.100s", tt.path, tt.accept, w.Code, w.Header(), w.Body)
		}
	}
	w := get("/now?tenant=acme", "Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	for _, want := range []string{`<a href="/now?tenant=acme" aria-current="page">Now</a>`, "And 1,234 more of the kind approval: <code><bdi class=\"theirs\">switchboard approvals list</bdi></code>", "switchboard now --tenant acme", "Switchboard 1.2.3", `href="/now.json?tenant=acme"`, "12,345", "viewer of tenant acme"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, w.Body)
		}
	}
	if strings.Contains(w.Body.String(), "umbrella") || strings.Contains(w.Body.String(), "<select") {
		t.Errorf("an officer of one tenant reads of others, or has a choice:\n%s", w.Body)
	}
	if strings.Count(w.Body.String(), "<script") != strings.Count(w.Body.String(), `<script defer src="/assets/`) || strings.Contains(w.Body.String(), "style=") {
		t.Error("the page has a script or a style in it")
	}
	if got := d.asked[len(d.asked)-1]; got != "ann GET /v1/now?tenant=acme" {
		t.Errorf("the API is asked %s", got)
	}

	// PG-04: what the API says about another tenant, with its status.
	problem := string(access.ProblemOf(404, &switchboard.Error{Text: "there is no tenant <umbrella>"}).Encode())
	d.api = answer(404, "application/problem+json", problem)
	if w := get("/now?tenant=umbrella"); w.Code != 404 || !strings.Contains(w.Body.String(), "there is no tenant &lt;umbrella&gt;") {
		t.Errorf("another tenant: %d %s", w.Code, w.Body)
	}
	if w := get("/now.json?tenant=umbrella"); w.Code != 404 || w.Body.String() != problem {
		t.Errorf("another tenant as JSON: %d %s", w.Code, w.Body)
	}
	d.api = answer(200, "application/json", "{")
	if w := get("/now"); w.Code != http.StatusInternalServerError {
		t.Errorf("an answer that cannot be read: %d", w.Code)
	}
	if w := get("/now", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"); w.Code != http.StatusForbidden {
		t.Errorf("a page of another site reads the view: %d", w.Code)
	}
	if w := get("/now?tenant=%22x", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"); w.Code != 200 || !strings.Contains(w.Body.String(), `<a href="/now?tenant=%22x"`) {
		t.Errorf("a link of another site: %d %s", w.Code, w.Body)
	}
	if w := get("/"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/now" {
		t.Errorf("the start is %d %v", w.Code, w.Header())
	}
	if w := get("/then"); w.Code != 404 {
		t.Errorf("a view that is not there: %d", w.Code)
	}
}

func TestNowSaysInWordsThatNothingIsThere(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	for servers, want := range map[int]string{0: "there is no server yet", 3: "Nothing: no server has failed"} {
		d.api = answer(200, "application/json", fmt.Sprintf(`{"at":"2026-11-28T12:00:00Z","concerns":[],"servers":%d,"spans":[{},{},{},{}],"hours":[]}`, servers))
		page := d.ask("GET", "/now", host, "", cookie...).Body.String()
		ofAcme := d.ask("GET", "/now?tenant=acme", host, "", cookie...).Body.String()
		if !strings.Contains(ofAcme, `Nothing in tenant <bdi class="theirs">acme</bdi>`) {
			t.Errorf("%d servers: the view does not name its tenant: %s", servers, ofAcme)
		}
		if !strings.Contains(page, want) || !strings.Contains(page, "No agent has called a tool in the last 14 days") || strings.Contains(page, "<table") || strings.Contains(page, "<svg") {
			t.Errorf("%d servers: %s", servers, page)
		}
	}
}

func TestNowShowsTheTokensSparedAndTheSpendOfEachSpan(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	d.api = answer(200, "application/json", overviewOf(t, "EUR"))
	page := d.ask("GET", "/now", host, "", cookie...).Body.String()
	for _, want := range []string{
		`<th scope="row">tokens spared</th><td>0 <small></small></td><td>0 <small></small></td><td>0 <small></small></td><td>1,234,567 <small>92.5 %</small></td>`,
		`<th scope="row">spent</th>`, `<td>310.50 <small><bdi class="theirs">EUR</bdi></small></td>`, `3 lists and searches of the last 14 days could not be counted`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
}

func TestAnOfficerOfSeveralTenantsChoosesOne(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	d.tenants = []switchboard.TenantID{"acme", "umbrella"}
	cookie := d.signIn(t)
	d.api = answer(200, "application/json", overviewOf(t, "x"))
	page := d.ask("GET", "/now?tenant=umbrella", host, "", cookie...).Body.String()
	for _, want := range []string{`<option value="">All tenants</option>`, `<option value="acme">acme</option>`, `<option value="umbrella" selected>umbrella</option>`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
	if w := d.ask("GET", "/now?tenant=", host, "", cookie...); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/now" {
		t.Errorf("all tenants: %d %v", w.Code, w.Header())
	}
}

// Without sharing, each change would cost as many answers as there are pages.
func TestPG07AChangeCostsOneAnswerForAllOpenPages(t *testing.T) {
	d, host := newDesk(t, ""), "127.0.0.1:7422"
	cookie := d.signIn(t)
	d.api = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"tasks":[]}`)
	})
	read := func(header ...string) {
		if w := d.ask("GET", "/tasks", host, "", append(header, cookie...)...); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "has a task") {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	began := time.Now()
	const pages = 200
	d.asked = nil
	for range pages {
		read("Hx-Request", "true")
	}
	if most := 2 + 2*int(time.Since(began)/time.Second); len(d.asked) > most {
		t.Errorf("%d pages that read themselves again make the API answer %d times, want at most %d", pages, len(d.asked), most)
	}
	before := len(d.asked)
	read()
	if len(d.asked) != before+1 {
		t.Error("a page that a person opens gets an old answer")
	}
}

// The scripts and the templates are read when a browser comes first, and stay.
func TestThePageTakesLittleMemory(t *testing.T) {
	inUse := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := inUse()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	d.api = answer(200, "application/json", `{"tasks":[]}`)
	for range 10 {
		if w := d.ask("GET", "/tasks", "127.0.0.1:7422", "", cookie...); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if n := d.opened.Load(); n != 2 { // the page that leads on from the sign-in, and Tasks
		t.Errorf("memory is freed after %d first views, want 2", n)
	}
	grown := inUse() - before
	t.Logf("it takes %d KiB", grown>>10)
	if grown > 2<<20 {
		t.Errorf("the page takes %d bytes", grown)
	}
	runtime.KeepAlive(d)
}
