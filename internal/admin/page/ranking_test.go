package page_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

// A rankedWorld answers as the API does about one tenant with a ranking.
type rankedWorld struct {
	t       *testing.T
	file    string
	servers []admin.ServerStatus
	trial   change.Trial
	changes []change.Revision
	compare whatif.Comparison
	status  admin.StatusReport
	saved   *http.Request // the last change that was not only tried
	text    string        // that was sent last
	refuse  *access.Problem
}

func (a *rankedWorld) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body any
	switch path := r.URL.Path; {
	case path == "/v1/servers":
		body = map[string]any{"servers": a.servers}
	case path == "/v1/tenants":
		body = map[string]any{"tenants": []any{}}
	case path == "/v1/status":
		body = a.status
	case path == "/v1/configuration/file" && r.Method == "GET" && a.file == "":
		w.WriteHeader(404)
		body = access.ProblemOf(404, &switchboard.Error{Text: "there is no file"})
	case path == "/v1/configuration/file" && r.Method == "GET":
		w.Header().Set("ETag", change.ETagOf([]byte(a.file)))
		body = map[string]string{"text": a.file}
	case path == "/v1/configuration/file" || strings.HasPrefix(path, "/v1/configuration/changes/") && r.Method == "POST":
		var sent struct{ Text string }
		_ = json.NewDecoder(r.Body).Decode(&sent)
		a.text = sent.Text
		if r.URL.Query().Get("dry_run") != "" {
			body = map[string]any{"trial": a.trial}
			break
		}
		a.saved = r
		if a.refuse != nil {
			w.WriteHeader(a.refuse.Status)
			body = a.refuse
			break
		}
		body = map[string]any{"change": change.Revision{ID: "12"}}
	case path == "/v1/configuration/changes":
		body = map[string]any{"changes": a.changes}
	case strings.HasPrefix(path, "/v1/configuration/changes/"):
		body = struct {
			change.Revision
			Diff string `json:"diff"`
		}{a.changes[0], a.trial.Diff}
	case strings.HasPrefix(path, "/v1/policy-diffs"):
		body = a.compare
	default:
		a.t.Errorf("the view asks for %s", path)
	}
	_ = json.NewEncoder(w).Encode(body)
}

// typed are the values of fields, which forms send as they are.
var typed = regexp.MustCompile(` value="[^"]*"`)

const rankedFile = "tenant: acme\nranking:\n  classes: [local, paid]\n  prefer: [{verb: search, resource: internet, servers: [nimbus, atlas]}]\n  adjust: [{server: \"n*\", by: -50}]\n"

func newRankedWorld(t *testing.T) *rankedWorld {
	server := func(id, class string, state health.State) admin.ServerStatus {
		return admin.ServerStatus{ServerStatus: upstream.ServerStatus{ID: switchboard.ServerID(id)}, Class: class, Health: health.Status{State: state}}
	}
	return &rankedWorld{
		t: t, file: rankedFile,
		servers: []admin.ServerStatus{server("atlas", "paid", health.Healthy), server("nimbus", "paid", health.Quarantine), server("wiki", "free", health.Healthy), server("plain", "", health.Healthy)},
		trial:   change.Trial{Same: []change.TaskChange{{Tenant: "acme", Task: "browse", Before: []string{"wiki/lookup"}, After: []string{"wiki/lookup"}}}},
	}
}

// follow asks for an address, and for those that it leads to.
func (d *desk) follow(t *testing.T, address string, cookie []string) (at, page string) {
	t.Helper()
	for range 3 {
		w := d.ask("GET", address, host, "", cookie...)
		if w.Code == http.StatusOK {
			return address, html.UnescapeString(w.Body.String())
		}
		if w.Code != http.StatusSeeOther {
			t.Fatalf("%s: %d %s", address, w.Code, w.Body)
		}
		address, _, _ = strings.Cut(w.Header().Get("Location"), "#")
	}
	t.Fatalf("%s leads on and on", address)
	return "", ""
}

func TestTheAddressOfARankingHoldsWhatIsProposed(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	d.tenants = []switchboard.TenantID{"acme", "umbrella"}
	a := newRankedWorld(t)
	d.api = a
	cookie := d.signIn(t)
	if _, page := d.follow(t, "/ranking", cookie); !strings.Contains(page, "Choose a tenant") {
		t.Errorf("without a tenant: %s", page)
	}
	_, page := d.follow(t, "/ranking?tenant=acme", cookie)
	for _, want := range []string{"What tasks get now", "wiki/lookup", "free</bdi> <small>not ranked: 0 points", "-50 points with adjustments", "quarantine", "Servers without a class"} {
		if !strings.Contains(page, want) {
			t.Errorf("the view lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "Save it") || a.text != rankedFile {
		t.Errorf("nothing is proposed, and the API is asked about %q:\n%s", a.text, page)
	}
	a.trial = change.Trial{
		Tasks: []change.TaskChange{{Tenant: "acme", Task: "browse", Before: []string{"x/one", "y/two"}, After: []string{"y/two", "x/one", "z/three"}}},
		Same:  []change.TaskChange{{Tenant: "acme", Task: "tidy"}}, MoreSame: 3, Untried: 7, Diff: "--- a\n+++ b\n@@ -3 +3 @@\n-  classes: [local, paid]\n+  classes: [paid, local]\n",
	}
	at, page := d.follow(t, "/ranking?tenant=acme&move=class%2Fup%2F1", cookie)
	if want := strings.Replace(rankedFile, "[local, paid]", "[paid, local]", 1); a.text != want {
		t.Errorf("the API is asked about\n%s\nwant\n%s", a.text, want)
	}
	for _, want := range []string{
		"y/two</bdi> <small>was 2</small>", "z/three</bdi> <small>new</small>", "tidy</bdi>, and 3 more", "7 further tasks were not tried",
		"<del>-  classes: [local, paid]</del>", "<ins>+  classes: [paid, local]</ins>", "switchboard config set tenants/acme/tenant.yaml ranking/classes", "Save it",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the view of the proposal lacks %q:\n%s", want, page)
		}
	}
	if again, same := d.follow(t, at, cookie); again != at || typed.ReplaceAllString(same, "") != typed.ReplaceAllString(page, "") || strings.Contains(at, "move") {
		t.Errorf("the address %s leads to %s, and to another page", at, again)
	}
	back, page := d.follow(t, at+"&move=class%2Fdown%2F0", cookie)
	if back != "/ranking?tenant=acme" || strings.Contains(page, "Save it") {
		t.Errorf("a move back leads to %s:\n%s", back, page)
	}
	if wrong, page := d.follow(t, at+"&move=adjust%2Fby%2F0&by=much", cookie); !strings.Contains(wrong, "draft") || !strings.Contains(page, "points are a whole number") || !strings.Contains(page, "Save it") {
		t.Errorf("a wrong number leads to %s:\n%s", wrong, page)
	}
	for _, bad := range []string{"%7B", strings.Repeat("x", 20_000)} {
		if _, page := d.follow(t, "/ranking?tenant=acme&draft="+bad, cookie); !strings.Contains(page, "no ranking that can be read") || strings.Contains(page, "Save it") {
			t.Errorf("%.20s: %s", bad, page)
		}
	}
	for file, want := range map[string]string{"": "has no file", "tenant: acme\nranking: {classes: 5}\n": "cannot be read", "a: [": "cannot be read"} {
		a.file = file
		for _, address := range []string{"/ranking?tenant=acme", at, at + "&move=class%2Fup%2F1"} {
			if _, page := d.follow(t, address, cookie); !strings.Contains(page, want) || strings.Contains(page, "Save it") {
				t.Errorf("%q at %s: %s", file, address, page)
			}
		}
	}
}

// PG-02: each form without a token, with a foreign token, with an old token or with an old entity tag is refused, and what was typed is kept.
func TestPG02AFormThatIsRefusedDoesNothingAndKeepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	a := newRankedWorld(t)
	d.api, d.tenants = a, []switchboard.TenantID{"acme"}
	a.changes = []change.Revision{{ID: "3", FileRevision: change.FileRevision{Path: "tenants/acme/tenant.yaml"}}}
	old, cookie := d.signIn(t), d.signIn(t)
	token := func(cookie []string) string {
		page := d.ask("GET", "/ranking?tenant=acme", host, "", cookie...).Body.String()
		_, rest, _ := strings.Cut(page, `name="token" value="`)
		token, _, _ := strings.Cut(rest, `"`)
		return token
	}
	const draft = `{"classes":[{"class":"paid","score":0}]}`
	state := url.Values{"tenant": {"acme"}, "draft": {draft}, "base": {strings.Trim(change.ETagOf([]byte(rankedFile)), `"`)}}.Encode()
	send := func(path string, fields url.Values) (int, string) {
		w := d.ask("POST", path, host, fields.Encode(), append(cookie, "Origin", "http://"+host, "Content-Type", form)...)
		return w.Code, w.Body.String()
	}
	own := token(cookie)
	if own == "" || own == token(old) {
		t.Fatal("two sessions have one token")
	}
	for _, path := range []string{"/ranking", "/configuration/changes/3"} {
		for name, bad := range map[string]string{"without a token": "", "a foreign token": strings.Repeat("0", 64), "an old token": token(old)} {
			for _, act := range map[string][]string{"/ranking": {"save", "undo", "compare"}, "/configuration/changes/3": {"revert"}}[path] {
				fields := url.Values{"act": {act}, "at": {state}, "etag": {change.ETagOf([]byte(rankedFile))}, "reason": {"atlas is faster"}, "change": {"3"}}
				if bad != "" {
					fields.Set("token", bad)
				}
				code, page := send(path, fields)
				if code != http.StatusForbidden || !strings.Contains(page, `value="atlas is faster"`) || !strings.Contains(page, "belongs to another session") || a.saved != nil {
					t.Errorf("%s, %s %s: %d %s", name, path, act, code, page)
				}
				if path == "/ranking" && !strings.Contains(page, html.EscapeString(`"class":"paid"`)) {
					t.Errorf("%s, %s: the draft is lost: %s", name, act, page)
				}
			}
		}
	}
	fields := url.Values{"act": {"save"}, "token": {own}, "at": {state}, "etag": {`"old"`}, "reason": {"atlas is faster"}}
	ended := d.ask("POST", "/ranking", host, fields.Encode(), "Origin", "http://"+host, "Content-Type", form).Body.String()
	for name, value := range map[string]string{"reason": "atlas is faster", "at": state, "act": "save"} {
		if !strings.Contains(ended, `<input type="hidden" name="`+name+`" value="`+html.EscapeString(value)+`">`) {
			t.Errorf("without a session, the form loses %s: %s", name, ended)
		}
	}
	problem := access.ProblemOf(412, &switchboard.Error{Code: switchboard.CodeChangedMeanwhile, Text: "somebody has changed the file"})
	a.refuse = &problem
	code, page := send("/ranking", fields)
	if code != http.StatusPreconditionFailed || a.saved.Header.Get("If-Match") != `"old"` || !strings.Contains(page, "somebody has changed the file") || !strings.Contains(page, `value="atlas is faster"`) || !strings.Contains(page, html.EscapeString(change.ETagOf([]byte(rankedFile)))) {
		t.Errorf("an old entity tag: %d %s", code, page)
	}
	a.refuse = nil
	w := d.ask("POST", "/ranking", host, fields.Encode(), append(cookie, "Origin", "http://"+host, "Content-Type", form)...)
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/ranking?saved=12&tenant=acme" {
		t.Errorf("a good form leads to %d %v", w.Code, w.Header())
	}
}

// rankingScene shows Ranking, Configuration and a change. Several texts make a command, which must not be cut. A proposal that no command can write is shown
// otherwise.
func rankingScene(t *testing.T) hostileScene {
	d := newDesk(t, "")
	a := newRankedWorld(t)
	d.api, d.tenants = a, []switchboard.TenantID{"acme"}
	cookie := d.signIn(t)
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	return hostileScene{[]string{"/ranking", "/configuration", "/configuration/changes/1"}, hostileTexts(t, 100), func(t *testing.T, path string, texts ...string) string {
		t.Helper()
		turn := inTurn(texts)
		next := func() string { return turn() + " x" } // never a plain word, which some parts are only for
		x := next()
		a.file = "tenant: acme\nranking: {classes: [old]}\n"
		a.servers = []admin.ServerStatus{{ServerStatus: upstream.ServerStatus{ID: switchboard.ServerID(next())}, Class: "old", Health: health.Status{State: health.State(x)}}, {ServerStatus: upstream.ServerStatus{ID: switchboard.ServerID(next())}, Class: "not " + next()}}
		a.trial = change.Trial{Warnings: []string{next()}, Diff: "@@ -1 +1 @@\n-" + next() + "\n+" + next() + "\n", Tasks: []change.TaskChange{{Tenant: switchboard.TenantID(next()), Task: switchboard.TaskID(x), Before: []string{next()}, After: []string{"new"}}, {Task: "t", Why: x}}, Same: []change.TaskChange{{Task: switchboard.TaskID(next())}}}
		a.changes = []change.Revision{{ID: x, When: at, By: next(), FileRevision: change.FileRevision{Office: switchboard.Office(x), Path: "tenants/acme/tenant.yaml", BeforeDigest: "x"}, Reason: next(), Reverts: next()}}
		a.compare = whatif.Comparison{State: whatif.Done, Result: &replay.Diff{Changed: 1, Decisions: 1, Changes: []replay.DecisionChange{{Kind: x, Task: switchboard.TaskID(next()), Requirement: x, Tool: next(), From: x, To: next(), Why: x}}, NotReplayed: []replay.NotReplayed{{Why: next()}}}}
		a.status = admin.StatusReport{Digest: switchboard.Digest(x), Warnings: []string{next()}, Refused: &admin.RefusedReload{Why: next()}, Faulty: []admin.PartStatus{{Part: next(), Tenant: switchboard.TenantID(x), State: next(), Faults: []string{next()}}}}
		if path == "/ranking" {
			draft, err := json.Marshal(map[string]any{
				"classes": []any{map[string]any{"class": x, "score": 0}}, "prefer": []any{map[string]any{"verb": x, "resource": next(), "servers": []string{x, next()}}}, "adjust": []any{map[string]any{"server": "no " + next(), "by": 5}},
			})
			if err != nil {
				t.Fatal(err)
			}
			path += "?" + url.Values{"draft": {string(draft)}, "compare": {"1"}, "base": {x}, "wrong": {x}}.Encode()
		}
		return d.open(t, path, cookie)
	}, "with an editor: switchboard config get"}
}

func TestConfigurationSaysWhatIsWrongAndWhoChangedWhat(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	a := newRankedWorld(t)
	d.api = a
	cookie := d.signIn(t)
	if _, page := d.follow(t, "/configuration", cookie); !strings.Contains(page, "Nothing: the files on disk have no fault") || !strings.Contains(page, "No officer has changed a file") || strings.Contains(page, "<table") {
		t.Errorf("an empty world: %s", page)
	}
	raw := `{"configuration_loaded":"2026-11-28T12:00:00Z","configuration_digest":"sha256:aa","replica":{"id":"one"},"other_replicas":[{"id":"two","serves":"sha256:aa"},{"id":"three","serves":"sha256:bb"},{"id":"four"}],
		"configuration_refused":{"why":"switchboard.yaml:3:1: no","since":"2026-11-28T12:00:00Z"},"configuration_faulty_parts":[{"part":"tenant acme","tenant":"acme","state":"kept","faults":["tenants/acme/tenant.yaml:4:2: bad"]},{"part":"other","state":"kept"}]}`
	if err := json.Unmarshal([]byte(raw), &a.status); err != nil {
		t.Fatal(err)
	}
	a.changes = []change.Revision{{ID: "9", When: time.Now(), By: "ann", FileRevision: change.FileRevision{Office: "admin", Tenant: "acme", Path: "tenants/acme/tenant.yaml", BeforeDigest: "x"}, Reason: "faster", Reverts: "8"}, {ID: "7", By: "ops", FileRevision: change.FileRevision{Tenant: "umbrella", Path: "tenants/umbrella/tenant.yaml"}}}
	_, page := d.follow(t, "/configuration", cookie)
	for _, want := range []string{"switchboard.yaml:3:1: no", "tenants/acme/tenant.yaml:4:2: bad", "Only who may change the files", "two</bdi></th><td><code><bdi class=\"theirs\">sha256:aa</bdi></code></td><td>the same", "<strong>another configuration</strong>", "not known", `href="/configuration/changes/9"`, "took change", "umbrella"} {
		if !strings.Contains(page, want) {
			t.Errorf("the view lacks %q:\n%s", want, page)
		}
	}
	if _, page := d.follow(t, "/configuration?tenant=acme", cookie); strings.Contains(page, "umbrella") || !strings.Contains(page, `href="/configuration/changes/9?tenant=acme"`) {
		t.Errorf("of one tenant: %s", page)
	}
	var lines strings.Builder
	for i := range 500 {
		fmt.Fprintf(&lines, "+%d\n", i)
	}
	a.trial.Diff = "--- x\n+++ y\n@@ -1 +1 @@\n" + lines.String()
	if _, page := d.follow(t, "/configuration/changes/9", cookie); !strings.Contains(page, "<ins>+398</ins>") || strings.Contains(page, "<ins>+399") || !strings.Contains(page, "and 101 more lines") || !strings.Contains(page, "switchboard config revert") || strings.Contains(page, "--- x") {
		t.Errorf("a change: %s", page)
	}
}
