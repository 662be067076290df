package page_test

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/signin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

// typedAreas are the fields with texts, which stay as they are.
var typedAreas = regexp.MustCompile(`(?s)<textarea.*?</textarea>`)

// policyAPI returns an API of a tenant's policies, in which everything that others can write is one of the texts, in turn.
func policyAPI(texts ...string) http.Handler {
	turn := 0
	next := func() string {
		turn++
		return texts[turn%len(texts)]
	}
	file := func(test bool) admin.PolicyFileRow {
		return admin.PolicyFileRow{Path: next(), Digest: switchboard.Digest(next()), Bytes: 1234, Test: test}
	}
	at := author.SourceLine{File: next(), Line: 3}
	run := admin.PolicyTestRun{Passed: 1, Failed: 1, Report: &author.TestReport{Tests: []author.TestResult{
		{SourceLine: at, Name: next(), Outcome: author.Passed, Output: next()},
		{SourceLine: at, Name: next(), Outcome: author.Failed, At: &at, Values: next(), Error: next()},
	}}}
	revision := change.Revision{ID: "7", By: next(), Reason: next(), FileRevision: change.FileRevision{Path: "tenants/acme/policies/veto.rego"}}
	return route(map[string]any{
		"/v1/tenants/acme/policies": admin.PolicyList{Tenant: "acme", State: next(), Faults: []string{next()}, Digest: switchboard.Digest(next()), Files: []admin.PolicyFileRow{file(false), file(true)}, Operator: []admin.PolicyFileRow{file(false)}},
		"/v1/tenants/acme/policies/rules": admin.PolicyRules{Looked: &replay.LookedAt{Decisions: 3, Of: 9, Back: noon}, Rules: []admin.PolicyRuleRow{
			{SourceLine: at, Layer: policy.Operator, Rule: next()}, {SourceLine: at, Layer: policy.Tenant, Rule: next(), Decisions: 1234, Last: noon},
		}, NotReplayed: []replay.NotReplayed{{Why: next(), Decisions: 2}}},
		"POST /v1/tenants/acme/policies/test": run,
		"/v1/configuration/file":              map[string]string{"text": next()},
		"/v1/configuration/changes":           map[string]any{"changes": []change.Revision{revision}},
		"/v1/decisions":                       admin.DecisionPage{Decisions: []admin.DecisionRow{{ID: "n1/4", Time: noon, Task: switchboard.TaskID(next()), Principal: admin.DecisionPrincipal{ID: next()}, Code: switchboard.Code(next())}}},
		"POST /v1/policies/check":             admin.PolicyCheck{Warnings: []author.Warning{{File: next(), Line: 3, Column: 2, About: next(), Text: next()}}, Silent: []switchboard.ServerID{switchboard.ServerID(next())}},
		"PUT /v1/configuration/file": map[string]any{"trial": change.Trial{Diff: "--- a\n+++ b\n@@ -1 +1 @@\n-" + next(), Faults: []string{}, Tasks: []change.TaskChange{
			{Task: switchboard.TaskID(next()), Before: []string{next()}, After: []string{}}, {Task: "b", Why: next()},
		}}},
		"POST /v1/policies/eval": admin.PolicyEvaluation{Evaluation: &author.Evaluation{
			Candidates: []author.JudgedCandidate{{ID: next(), Code: switchboard.Code(next()), Why: next()}},
			Layers: []author.LayerValues{{
				Layer: "tenant", Rules: []author.RuleValue{{Rule: next(), At: []author.SourceLine{at}, Value: next()}},
				Expressions: []author.ExpressionValue{{SourceLine: at, Column: 2, Text: next(), Held: 1, Values: next()}, {SourceLine: at, Text: next()}},
			}},
		}},
		"POST /v1/policy-diffs": whatif.Comparison{ID: "c1", State: whatif.Done, Result: &replay.Diff{
			Decisions: 9, Changed: 2, Looked: &replay.LookedAt{Decisions: 9, Of: 9},
			Changes: []replay.DecisionChange{{Kind: replay.ChangeDenied, Task: switchboard.TaskID(next()), Tool: next(), Why: next(), Decisions: 2}},
			Callers: []replay.ChangedCaller{{Principal: next(), Decisions: 2}},
		}},
	})
}

// policiesScene shows the policies of a tenant, and the form of a file with each of its answers.
func policiesScene(t *testing.T) hostileScene {
	d := newDesk(t, "")
	d.tenants = []switchboard.TenantID{"acme"}
	cookie := d.signIn(t)
	d.api = policyAPI("text")
	token := formTokenOf.FindStringSubmatch(d.open(t, "/policies?tenant=acme", cookie))
	if token == nil {
		t.Fatal("the view has no form")
	}
	return hostileScene{[]string{"/policies?tenant=acme&rules=week", "/policies/file?tenant=acme&path=veto.rego&saved=7"}, hostileTexts(t, lineBytes), func(t *testing.T, address string, texts ...string) string {
		t.Helper()
		d.api = policyAPI(texts...)
		all := d.open(t, address, cookie)
		if !strings.HasPrefix(address, "/policies/file") {
			return all
		}
		for _, act := range []string{"check", "test", "try", "compare"} {
			fields := url.Values{"act": {act}, "token": {token[1]}, "at": {"tenant=acme&path=veto.rego"}, "text": {"typed"}, "tests": {"typed too"}, "decision": {"n1/4"}, "etag": {`"abc"`}}
			w := d.ask("POST", "/policies/file", host, fields.Encode(), append([]string{"Content-Type", form, "Origin", "http://" + host}, cookie...)...)
			if w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", act, w.Code, w.Body)
			}
			all += w.Body.String()
		}
		return typedAreas.ReplaceAllString(all, "<textarea></textarea>")
	}, ""}
}

// openPolicies signs in to a desk, and opens the view of tenant acme. token is that of its forms.
func openPolicies(t *testing.T) (d *desk, cookie []string, token string) {
	t.Helper()
	d = newDesk(t, "")
	d.tenants = []switchboard.TenantID{"acme"}
	cookie = d.signIn(t)
	d.api = policyAPI("text")
	return d, cookie, formTokenOf.FindStringSubmatch(d.ask("GET", "/policies?tenant=acme", host, "", cookie...).Body.String())[1]
}

// PG-02 on Policies: a form without its token, or with an old entity tag, is refused, and what was typed is kept with the tag that it was begun with: also if the view
// itself is refused, or if the session has ended.
func TestPG02TypedPoliciesAreKept(t *testing.T) {
	t.Parallel()
	d, cookie, token := openPolicies(t)
	refuse := func(status int, problem string) {
		good := policyAPI("text")
		d.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet || strings.Contains(r.URL.RawQuery, "dry_run") {
				good.ServeHTTP(w, r)
				return
			}
			answer(status, "application/problem+json", problem).ServeHTTP(w, r)
		})
	}
	send := func(token, act string) (int, string) {
		fields := url.Values{"act": {act}, "token": {token}, "at": {"tenant=acme&path=veto.rego"}, "text": {"a\r\n\tmine = = 1\r\n<b>"}, "etag": {`"old"`}, "reason": {"because"}}
		w := d.ask("POST", "/policies/file", host, fields.Encode(), append([]string{"Content-Type", form, "Origin", "http://" + host}, cookie...)...)
		return w.Code, w.Body.String()
	}
	kept := func(name string, status int, page string, want int, tag string, says ...string) {
		t.Helper()
		for _, say := range append(says, "mine = = 1", "&lt;b&gt;</textarea>", `value="because"`, `name="etag" value="`+tag+`"`) {
			if status != want || !strings.Contains(page, say) {
				t.Errorf("%s: %d, want %d, and the page lacks %s:\n%s", name, status, want, say, page)
			}
		}
	}
	d.asked = nil
	status, page := send("wrong", "save")
	kept("a foreign token", status, page, 403, "&#34;old&#34;", "another session")
	if asked := strings.Join(d.asked, " "); strings.Contains(asked, "PUT") {
		t.Errorf("without the token, the API is asked %s", asked)
	}
	refuse(412, `{"status":412,"code":"SB-CONF-002","detail":"the file has been changed"}`)
	status, page = send(token, "save")
	kept("an old entity tag", status, page, 412, "", "Somebody has changed the file", "Save mine over the file as it is now", "change <bdi class=\"theirs\">7</bdi>")
	const fault = `{"status":422,"code":"SB-CONF-001","detail":"tenants/acme/policies/veto.rego:2:9: rego_parse_error: unexpected\nand another"}`
	refuse(422, fault)
	status, page = send(token, "save")
	kept("a fault", status, page, 422, "&#34;old&#34;", "veto.rego:2:9</bdi></strong>", "rego_parse_error", "    mine = = 1", "and another")
	for _, act := range []string{"check", "test", "try", "compare"} {
		status, page = send(token, act)
		kept(act, status, page, 200, "&#34;old&#34;", "It would be refused:", "veto.rego:2:9</bdi></strong>", "mine = = 1\n</pre>")
	}

	// goOn sends what a page has kept, and wants the view with it.
	goOn := func(name string, status int, page string, want int, says string) {
		t.Helper()
		_, section, _ := strings.Cut(page, `aria-labelledby="kept"`)
		fields := url.Values{}
		for _, field := range hiddenField.FindAllStringSubmatch(section[:strings.Index(section+"</section>", "</section>")], -1) {
			fields.Add(field[1], html.UnescapeString(field[2]))
		}
		if status != want || !strings.Contains(page, says) || fields.Get("text") != "a\r\n\tmine = = 1\r\n<b>" || fields.Has("token") {
			t.Errorf("%s: %d, want %d, and it keeps %q:\n%s", name, status, want, fields, page)
		}
		d.api, d.asked = policyAPI("text"), nil
		w := d.ask("POST", "/policies/file", host, fields.Encode(), append([]string{"Content-Type", form, "Origin", "http://" + host}, cookie...)...)
		kept(name+", and on", w.Code, w.Body.String(), 403, "&#34;old&#34;", "was not sent again")
		if asked := strings.Join(d.asked, " "); strings.Contains(asked, "PUT") {
			t.Errorf("%s: the API is asked %s", name, asked)
		}
	}
	for refused, problem := range map[int]string{503: `{"status":503,"code":"SB-STORE-001","detail":"the store is away"}`, 403: `{"status":403,"detail":"no more"}`, 404: `{"status":404,"detail":"no such tenant"}`, 429: `{"status":429,"detail":"too much"}`} {
		for _, act := range []string{"save", "check", "look"} {
			d.api = answer(refused, "application/problem+json", problem)
			status, page = send(token, act)
			goOn(fmt.Sprint("the view is refused with ", refused, " ", act), status, page, refused, problem[strings.LastIndex(problem, `":"`)+3:len(problem)-2])
		}
	}
	row := d.row
	const signIn, wait, signOut = "Sign in with a key in a new tab", "Try again in a moment", "Sign out in a new tab"
	for _, tt := range []struct {
		name   string
		end    func()
		status int
		says   string // of signIn, wait and signOut, this one alone
	}{
		{"the session has ended", func() {
			if err := d.sessions.EndOwn(t.Context(), strings.SplitAfterN(cookie[1], "=", 2)[1]); err != nil {
				t.Fatal(err)
			}
		}, 401, signIn},
		{"the browser has forgotten the session", func() { cookie = nil }, 401, signIn},
		{"the key has expired", func() { d.row.Expires = noon }, 401, signIn},
		{"the store of the sessions is away", func() { d.kept.away = true }, 503, wait},
		{"the person has no office", func() {
			secret, err := d.sessions.Start(t.Context(), signin.Holder{Person: &identity.Person{Issuer: "idp", Subject: "ann"}})
			if err != nil {
				t.Fatal(err)
			}
			cookie = []string{"Cookie", strings.SplitAfterN(cookie[1], "=", 2)[0] + secret}
		}, 403, signOut},
	} {
		tt.end()
		status, page = send(token, "save")
		if strings.Count(page, `target="_blank"`) != strings.Count(page, "in a new tab</button>") {
			t.Errorf("%s: the sign-in takes the page away: %s", tt.name, page)
		}
		for _, other := range []string{signIn, wait, signOut} {
			if strings.Contains(page, other) != (other == tt.says) {
				t.Errorf("%s: the page has %q, or lacks it: %s", tt.name, other, page)
			}
		}
		if strings.Contains(page, "sign in below") != (tt.says == signIn) {
			t.Errorf("%s: the page asks to sign in, or does not: %s", tt.name, page)
		}
		opened := d.ask("GET", "/policies?tenant=acme", host, "", cookie...)
		if cookie != nil && (opened.Code != status || strings.Contains(opened.Body.String(), wait) != (tt.says == wait)) {
			t.Errorf("%s: a view is %d %s", tt.name, opened.Code, opened.Body)
		}
		d.row, d.kept.away = row, false
		cookie = d.signIn(t)
		goOn(tt.name, status, page, tt.status, tt.says)
	}
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// The lines of a file keep their ends, although browsers send them with other ones.
func TestAFileOfPoliciesKeepsItsLineEnds(t *testing.T) {
	t.Parallel()
	d, cookie, token := openPolicies(t)
	const notSaved = "it is not saved"
	for _, tt := range []struct{ name, file, typed, want string }{
		{"a new file", "", "a\nb\n", "a\nb\n"},
		{"one with line feeds", "a\nb\n", "a\nc\n", "a\nc\n"},
		{"one as Windows has it", "a\r\nb\r\nc\r\n", "a\nx\ny\nc\n", "a\r\nx\r\ny\r\nc\r\n"},
		{"unchanged", "a\r\nb\r\n", "a\nb\n", notSaved},
		{"unchanged, with both ends", "a\r\nb\nc\rd", "a\nb\nc\nd", notSaved},
		{"both ends, changed below", "a\r\nb\nc\n", "a\nb\nc\nd\n", "a\r\nb\nc\nd\n"},
		{"both ends, changed above", "b\r\nc\r\nd\n", "a\nb\nc\nd\n", "a\r\nb\r\nc\r\nd\n"},
		{"without an end", "a\r\nb", "a\nb\n", "a\r\nb\r\n"},
		{"emptied", "a\r\nb\r\n", "", ""},
		{"equal lines", "x\r\nx\nx\r\n", "x\nx\n", "x\r\nx\n"},
	} {
		saved := notSaved
		good := policyAPI("text")
		d.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path != "/v1/configuration/file":
				good.ServeHTTP(w, r)
			case r.Method == http.MethodPut:
				var body struct{ Text string }
				_ = json.NewDecoder(r.Body).Decode(&body)
				saved = body.Text
				answer(200, "application/json", `{"change":{"id":"8"}}`).ServeHTTP(w, r)
			case tt.file == "":
				answer(404, "application/problem+json", `{"status":404,"detail":"there is none"}`).ServeHTTP(w, r)
			default:
				text, _ := json.Marshal(map[string]string{"text": tt.file})
				answer(200, "application/json", string(text)).ServeHTTP(w, r)
			}
		})
		fields := url.Values{"act": {"save"}, "token": {token}, "at": {"tenant=acme&path=veto.rego"}, "text": {strings.ReplaceAll(tt.typed, "\n", "\r\n")}, "etag": {`"x"`}}
		w := d.ask("POST", "/policies/file", host, fields.Encode(), append([]string{"Content-Type", form, "Origin", "http://" + host}, cookie...)...)
		if w.Code != http.StatusSeeOther || saved != tt.want {
			t.Errorf("%s: %d, saved %q, want %q", tt.name, w.Code, saved, tt.want)
		}
	}
}

// A text that the form does not take stays in it, and nothing is done.
func TestTextsThatPoliciesDoNotTakeAreKept(t *testing.T) {
	t.Parallel()
	d, cookie, token := openPolicies(t)
	long := func(n int) string { return strings.Repeat("語", n-4) + "last" }
	for _, tt := range []struct{ name, field, text, says string }{
		{"the rules", "text", long(40_001), "the text has 40001 characters, and this form takes at most 40000"},
		{"the most that browsers send", "text", long(80_000), "the text has 80000 characters"},
		{"the tests", "tests", long(20_001), "the text of the tests has 20001 characters"},
		{"the arguments", "arguments", long(16_001), "the text of the arguments has 16001 characters"},
		{"emptied tests", "tests", " \r\n", "the tests are empty, and an empty text does not remove their file"},
	} {
		for _, act := range []string{"check", "test", "try", "compare", "save"} {
			d.asked = nil
			fields := url.Values{"act": {act}, "token": {token}, "at": {"tenant=acme&path=veto.rego"}, "text": {"typed"}, "tests": {long(20_000)}, "etag": {`"x"`}, "tests_etag": {`"y"`}}
			fields.Set(tt.field, tt.text)
			w := d.ask("POST", "/policies/file", host, fields.Encode(), append([]string{"Content-Type", form, "Origin", "http://" + host}, cookie...)...)
			page := w.Body.String()
			if w.Code != http.StatusUnprocessableEntity || !strings.Contains(page, tt.says) || !strings.Contains(page, "\n"+tt.text+"</textarea>") || strings.Contains(strings.Join(d.asked, " "), "POST") || strings.Contains(strings.Join(d.asked, " "), "PUT") {
				t.Errorf("%s, %s: %d, asked %s", act, tt.name, w.Code, d.asked)
			}
		}
	}
	// A file that is too long already is not offered.
	d.api = route(map[string]any{
		"/v1/configuration/file": map[string]string{"text": long(40_001)}, "/v1/tenants/acme/policies": admin.PolicyList{Tenant: "acme"}, "/v1/configuration/changes": map[string]any{}, "/v1/decisions": admin.DecisionPage{},
	})
	if page := d.ask("GET", "/policies/file?tenant=acme&path=veto.rego", host, "", cookie...).Body.String(); strings.Contains(page, "<textarea") || !strings.Contains(page, "longer than the 40,000 characters") {
		t.Errorf("a long file: %.5000s", page)
	}
	// Typed tests stay, although those of the file are too long for the form.
	d.api = route(map[string]any{
		"/v1/configuration/file": map[string]string{"text": long(20_001)}, "/v1/tenants/acme/policies": admin.PolicyList{Tenant: "acme"}, "/v1/configuration/changes": map[string]any{}, "/v1/decisions": admin.DecisionPage{},
	})
	for _, tt := range []struct {
		name  string
		typed []string
		areas int // with texts
	}{{"typed tests", []string{"my tests"}, 2}, {"no tests in the form", nil, 1}} {
		fields := url.Values{"act": {"check"}, "token": {"old"}, "at": {"tenant=acme&path=veto.rego"}, "text": {"typed"}, "etag": {`"x"`}}
		if tt.typed != nil {
			fields["tests"] = tt.typed
		}
		page := d.ask("POST", "/policies/file", host, fields.Encode(), append([]string{"Content-Type", form, "Origin", "http://" + host}, cookie...)...).Body.String()
		if strings.Count(page, "<textarea") != tt.areas || strings.Contains(page, "\nmy tests</textarea>") != (tt.typed != nil) || strings.Contains(page, "Its tests, in") != (tt.typed == nil) {
			t.Errorf("%s: %.9000s", tt.name, page)
		}
	}
	// A form that is too large is not read. Without a session less is.
	for _, tt := range []struct {
		bytes, want int
		with        []string
	}{{700 << 10, 401, nil}, {800 << 10, 413, nil}, {1 << 20, 422, cookie}, {2 << 20, 413, cookie}} {
		fields := url.Values{"act": {"save"}, "token": {token}, "at": {"tenant=acme&path=veto.rego"}, "text": {strings.Repeat("x", tt.bytes)}}
		w := d.ask("POST", "/policies/file", host, fields.Encode(), append([]string{"Content-Type", form, "Origin", "http://" + host}, tt.with...)...)
		if page := w.Body.String(); w.Code != tt.want || !strings.Contains(page, "nothing was done") || strings.Contains(page, fields.Get("text")) != (tt.want != http.StatusRequestEntityTooLarge) {
			t.Errorf("%d bytes: %d, want %d: %.500s", tt.bytes, w.Code, tt.want, page)
		}
	}
}

// Strangers can send forms too, so few large ones are kept at once. All texts that the form accepts are kept, whatever their characters are.
func TestLargeFormsWithoutASessionAreKeptAFewAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	send := func(body io.Reader, length int) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(identity.WithPeer(t.Context(), func() error { return nil }), "POST", "/policies/file", body)
		r.Host, r.ContentLength = host, int64(length)
		r.Header.Set("Content-Type", form)
		r.Header.Set("Origin", "http://"+host)
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		return w
	}
	most := url.Values{"act": {"save"}, "at": {"tenant=acme&path=veto.rego"}, "text": {strings.Repeat("語", 40_000)}, "tests": {strings.Repeat("語", 20_000)}, "arguments": {strings.Repeat("語", 16_000)}}.Encode()
	keeps := func() bool {
		w := send(strings.NewReader(most), len(most))
		return w.Code == http.StatusUnauthorized && strings.Count(w.Body.String(), "語") == 76_000
	}
	if !keeps() {
		t.Error("the longest texts that the form accepts are not kept")
	}
	var slow sync.WaitGroup
	var ends []*io.PipeWriter
	for range 4 {
		body, end := io.Pipe()
		ends = append(ends, end)
		slow.Go(func() { send(body, len(most)) })
		if _, err := end.Write([]byte("act=save")); err != nil { // it has arrived when the page reads it
			t.Error(err)
		}
	}
	if w := send(strings.NewReader(most), len(most)); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "load this page again") {
		t.Errorf("a form too many is %d %.3000s", w.Code, w.Body)
	}
	small := "act=save&text=mine"
	if w := send(strings.NewReader(small), len(small)); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), `value="mine"`) {
		t.Errorf("meanwhile, a small form is %d %s", w.Code, w.Body)
	}
	for _, end := range ends {
		_ = end.Close()
	}
	slow.Wait()
	if !keeps() {
		t.Error("when the others are gone, the texts are not kept")
	}
}

func TestPoliciesOfferOnlyWhatTheOfficerMayDo(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	d.tenants = []switchboard.TenantID{"acme"}
	d.row.Operator, d.row.Tenant, d.row.Offices = false, "acme", []switchboard.Office{switchboard.OfficeViewer}
	cookie := d.signIn(t)
	d.api = policyAPI("text")
	page := d.ask("GET", "/policies?tenant=acme&rules=week", host, "", cookie...).Body.String()
	for _, want := range []string{"<strong>never</strong>", ">1,234</td>", "3 of 9 decisions, back to", "<summary>1 rule of the operator's layer; 1 rule never held</summary>", "Not known for 2", "switchboard policy rules --tenant acme"} {
		if !strings.Contains(page, want) {
			t.Errorf("the view lacks %q:\n%s", want, page)
		}
	}
	if own, others, found := strings.Cut(page, "<summary>1 rule of the operator's layer"); !found || !strings.Contains(own, "Rules of the tenant&#39;s layer") || strings.Contains(own, "<strong>never</strong>") || !strings.Contains(others, "Rules of the operator&#39;s layer") {
		t.Errorf("the tenant's rules do not come first:\n%s", page)
	}
	if strings.Contains(page, "/policies/file") || strings.Contains(page, "Run the tests") {
		t.Errorf("a viewer is offered to write:\n%s", page)
	}
	d.api = answer(403, "application/problem+json", `{"status":403,"detail":"no"}`)
	if w := d.ask("GET", "/policies/file?tenant=acme&path=x.rego", host, "", cookie...); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "<textarea") {
		t.Errorf("the file for a viewer: %d %s", w.Code, w.Body)
	}
}
