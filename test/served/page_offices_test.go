package served_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// An officeWorld is a Switchboard with two tenants, and the ids of things of acme that only acme's officers may see.
type officeWorld struct {
	*rig.Gateway
	keys  officers
	alice *rig.HTTPSession // an agent of acme

	request  string // that waits
	standing string
	change   string // of tenants/acme/tenant.yaml
	receipt  string // of a call, as NODE/NUMBER
	decision string // its digest
	diff     string // a comparison
	budget   string // of alice
}

// serveOffices serves an officeWorld. Server b and task kiln are acme's alone.
func serveOffices(t *testing.T) *officeWorld {
	t.Helper()
	dir, keys := layOutOfficers(t)
	main := filepath.Join(dir, "switchboard.yaml")
	second := strings.ReplaceAll(rig.FakeRow("b", fmt.Sprintf(rig.Tool, "pay"), fmt.Sprintf(rig.Tool, "look")), "FAKE", fmt.Sprintf("%q, fake", rig.FakeProgram))
	text := strings.NewReplacer("servers:\n", "approvals: {wait: 1s, standing: 8h}\nservers:\n  "+second+"\n", `umbrella: {servers: ["*"]`, `umbrella: {servers: [a]`).Replace(rig.ReadFile(t, main))
	rig.WriteFile(t, main, text)
	file := filepath.Join(dir, "tenants/acme/tenant.yaml")
	rig.WriteFile(t, file, strings.Replace(rig.ReadFile(t, file), "{id: alice,", "{id: alice, tasks: [all, kiln],", 1)+"budgets: [{id: few, limit: {calls: 100}, window: forever, per: principal}]\n")
	rig.WriteFile(t, filepath.Join(dir, "tenants/acme/tasks/kiln.yaml"), "task_id: kiln\nrequired_capabilities: [{tools: [\"b/look\"]}]\n")
	rig.WriteFile(t, filepath.Join(dir, "policies/ask.rego"), "package switchboard\n\n"+rig.AllowAll+"\nobligations[\"b/pay\"] contains {\"type\": \"require_approval\"}\n")
	w := &officeWorld{Gateway: rig.Serve(t, dir), keys: keys}
	w.alice = w.Open(t, "/mcp", false, "Authorization", "Bearer "+keys["agent"])
	if got := rig.Call(t, w.alice, "look", `{}`); got != "" {
		t.Fatalf("the call of look: %s", got)
	}
	pay := func(to string) {
		t.Helper()
		if got := rig.Call(t, w.alice, "pay", `{"to":"`+to+`"}`); got != "SB-APPR-001" {
			t.Fatalf("the call of pay: %s", got)
		}
	}
	ask := func(who, method, path, body string, into any, header ...string) rig.Answer {
		t.Helper()
		a := w.AskAdmin(t, keys[who], method, path, body, header...)
		if a.Status >= 300 || json.Unmarshal([]byte(a.Body), into) != nil {
			t.Fatalf("%s %s: %d %s", method, path, a.Status, a.Body)
		}
		return a
	}
	var requests struct{ Approvals []struct{ ID string } }
	pay("board@x.org")
	ask("approver", "GET", "/v1/approvals", "", &requests)
	var made struct{ ID string }
	ask("approver", "POST", "/v1/approvals/"+requests.Approvals[0].ID+"/standing", `{"uses":2,"for":"30m","arguments":{"/to":{"equals":"board@x.org"}}}`, &made)
	w.standing = made.ID
	pay("ops@x.org")
	ask("approver", "GET", "/v1/approvals", "", &requests) // the newest first
	w.request = requests.Approvals[0].ID
	var was struct{ Text string }
	etag := ask("admin", "GET", changePath("tenants/acme/tenant.yaml"), "", &was).Header.Get("ETag")
	var changed struct{ Change struct{ ID string } }
	ask("admin", "PUT", changePath("tenants/acme/tenant.yaml"), textBody(t, was.Text+"ranking: {adjust: [{server: a, by: 1}]}\n"), &changed, "If-Match", etag)
	w.change = changed.Change.ID
	rig.Eventually(t, "the receipt of the call is written", func() string {
		var page struct {
			Receipts []struct {
				ID      string
				Receipt struct{ Decision string }
			}
		}
		a := ask("operator", "GET", "/v1/receipts?tenant=acme&kind=call&outcome=ok", "", &page)
		if len(page.Receipts) == 0 {
			return a.Body
		}
		w.receipt, w.decision = page.Receipts[0].ID, page.Receipts[0].Receipt.Decision
		return ""
	})
	ask("author", "POST", "/v1/policy-diffs", `{"receipt":"`+w.receipt+`"}`, &made)
	w.diff = made.ID
	var accounts struct{ Budgets []struct{ Budget, Of string } }
	ask("admin", "GET", "/v1/budgets", "", &accounts)
	for _, a := range accounts.Budgets {
		if w.budget == "" || a.Of != "" {
			w.budget = a.Budget
		}
	}
	if w.budget == "" || w.decision == "" || w.diff == "" {
		t.Fatalf("the world lacks ids: %+v", w)
	}
	return w
}

// A foundForm is a form of a view that changes something.
type foundForm struct{ path, act string }

var (
	hrefs     = regexp.MustCompile(`href="(/[^"]*)"`)
	postForms = regexp.MustCompile(`(?s)<form method="post" action="([^"]*)".*?</form>`)
	actsOf    = regexp.MustCompile(`name="act" value="([^"]*)"`)
	kinds     = regexp.MustCompile(`[0-9][^/?&]*|[0-9a-z]{16}-[0-9]+`)
)

// crawl follows all links of the page from Now on. It returns the forms that change something, and calls see with each answer.
func (b *adminBrowser) crawl(see func(address string, status int, page string)) (forms map[foundForm]bool) {
	forms = map[foundForm]bool{}
	seen, asked := map[string]int{}, map[string]bool{}
	for queue := []string{"/now"}; len(queue) > 0; queue = queue[1:] {
		address := queue[0]
		path, query, _ := strings.Cut(address, "?")
		names, _ := url.ParseQuery(query)
		kind := kinds.ReplaceAllString(path, "N")
		for name := range names {
			kind += " " + name
		}
		if strings.HasPrefix(path, "/assets/") || asked[address] || seen[kind] == 2 {
			continue
		}
		asked[address] = true
		seen[kind]++
		status, page := b.get(b.base + address)
		see(address, status, page)
		for _, f := range postForms.FindAllStringSubmatch(page, -1) {
			acts := actsOf.FindAllStringSubmatch(f[0], -1)
			action, _, _ := strings.Cut(f[1], "#")
			if acts == nil {
				forms[foundForm{action, ""}] = true
			}
			for _, act := range acts {
				forms[foundForm{action, act[1]}] = true
			}
		}
		for _, link := range hrefs.FindAllStringSubmatch(page, -1) {
			to, _, _ := strings.Cut(html.UnescapeString(link[1]), "#")
			queue = append(queue, to)
		}
	}
	return forms
}

// submit sends a form of a view with a token of the session that is valid. pairs are the names and values of further fields.
func (b *adminBrowser) submit(path, act string, pairs ...string) (status int, page string) {
	b.t.Helper()
	_, start := b.get(b.base + "/now")
	fields := url.Values{"act": {act}, "token": {valueOf(start, "token")}}
	for i := 0; i+1 < len(pairs); i += 2 {
		fields.Set(pairs[i], pairs[i+1])
	}
	return b.post(path, fields)
}

// PG-03: no view of a viewer leads to what a viewer may not do, and whoever sends it by hand is refused.
func TestPG03AViewerFindsNoFormOfOtherOfficesAndIsRefusedByHand(t *testing.T) {
	t.Parallel()
	w := serveOffices(t)
	change, file, pin := "/configuration/changes/"+w.change, "tenant=acme&path=veto.rego", "server=b&kind=tool&name=look"
	// Each form of each view: who may use it, and what a viewer is answered.
	table := []struct {
		path, act string
		pairs     []string
		want      int
	}{
		{"/ranking", "save", []string{"etag", `"x"`, "reason", "mine"}, 403},
		{"/ranking", "undo", []string{"change", w.change}, 403},
		{"/ranking", "compare", nil, 403},
		{"/servers/a", "disable", []string{"reason", "mine"}, 403},
		{"/servers/a", "enable", nil, 403},
		{"/servers/a", "restart", nil, 403},
		{"/servers/a", "probe", nil, 403},
		{"/pins/one", "accept", []string{"at", pin, "digest", "d1:" + strings.Repeat("0", 64)}, 403},
		{"/pins/one", "suspend", []string{"at", pin, "reason", "mine"}, 403},
		{"/pins/one", "retire", []string{"at", pin, "reason", "mine"}, 403},
		{"/pins/one", "deprecate", []string{"at", pin, "successor", "b/pay"}, 403},
		{"/approvals/" + w.request, "approve", nil, 403},
		{"/approvals/" + w.request, "refuse", nil, 403},
		{"/approvals/" + w.request, "revoke", nil, 403},
		{"/approvals/" + w.request, "standing", []string{"uses", "1", "for", "1h", "arguments", "{}"}, 403},
		{"/approvals/standing", "end", []string{"id", w.standing}, 403},
		{"/receipts", "verify", nil, 403},
		{"/receipts/" + w.receipt, "replay", nil, 403},
		{"/policies", "test", nil, 403},
		{"/policies/file", "check", []string{"at", file, "text", "package switchboard.tenant"}, 403},
		{"/policies/file", "test", []string{"at", file, "text", "package switchboard.tenant"}, 403},
		{"/policies/file", "try", []string{"at", file, "text", "package switchboard.tenant"}, 403},
		{"/policies/file", "compare", []string{"at", file, "text", "package switchboard.tenant"}, 403},
		{"/policies/file", "look", []string{"at", file, "text", "package switchboard.tenant", "compare", w.diff}, 403},
		{"/policies/file", "save", []string{"at", file, "text", "package switchboard.tenant", "reason", "mine"}, 403},
		{"/policies/file", "undo", []string{"at", file, "change", w.change}, 403},
		{"/budgets", "adjust", []string{"budget", w.budget, "of", "alice", "of_tenant", "acme", "by", "1", "reason", "mine"}, 403},
		{change, "revert", nil, 404}, // whoever may not see a file sees no change of it
	}
	known := map[foundForm]bool{{"/sign-out", ""}: true, {"/capabilities", "probe"}: true} // which everybody may use
	plain := func(path string) string {
		return kinds.ReplaceAllString(strings.Replace(path, "/servers/b", "/servers/a", 1), "N")
	}
	for _, row := range table {
		known[foundForm{plain(row.path), row.act}] = true
	}
	for _, who := range []string{"operator", "approver", "admin", "author"} {
		found := 0
		for f := range openAdmin(t, w.Gateway, w.keys[who]).crawl(func(string, int, string) {}) {
			if found++; !known[foundForm{plain(f.path), f.act}] {
				t.Errorf("the form %q of %s, which the %s finds, has no row in this test", f.act, f.path, who)
			}
		}
		if found < 2 {
			t.Errorf("the %s finds %d forms", who, found)
		}
	}

	viewer := openAdmin(t, w.Gateway, w.keys["viewer"])
	pages := 0
	forms := viewer.crawl(func(address string, status int, page string) {
		if pages++; status != http.StatusOK {
			t.Errorf("a link of a viewer leads to %s: %d %.300s", address, status, page)
		}
		if strings.Contains(page, "ops@x.org") {
			t.Errorf("%s shows a viewer the arguments of a call", address)
		}
	})
	if pages < 20 {
		t.Errorf("the walk has seen %d pages", pages)
	}
	for f := range forms {
		if f.path != "/sign-out" && f != (foundForm{"/capabilities", "probe"}) {
			t.Errorf("a viewer finds the form %q of %s", f.act, f.path)
		}
	}
	for _, path := range []string{"/ranking?tenant=acme", "/pins", "/pins.json?tenant=acme", "/pins/one?" + pin, "/pins/one.json?" + pin, change, change + ".json"} { // the JSON of Ranking is the list of servers
		want := http.StatusForbidden
		if strings.HasPrefix(path, change) {
			want = http.StatusNotFound
		}
		if status, page := viewer.get(viewer.base + path); status != want {
			t.Errorf("GET %s: %d %.300s", path, status, page)
		}
	}
	state := func() string {
		texts := []string{rig.ReadFile(t, filepath.Join(w.Dir, "tenants/acme/tenant.yaml"))}
		for _, path := range []string{"/v1/approvals/" + w.request, "/v1/standing-approvals", "/v1/budgets", "/v1/configuration/changes"} {
			who := "approver"
			if strings.HasSuffix(path, "changes") {
				who = "admin"
			}
			texts = append(texts, regexp.MustCompile(`"pace":{[^}]*}`).ReplaceAllString(w.AskAdmin(t, w.keys[who], "GET", path, "").Body, ""))
		}
		texts = append(texts, w.AskAdmin(t, "", "GET", "/v1/pins", "").Body)
		for _, s := range w.Status().Servers {
			texts = append(texts, s.ID+" "+s.State)
		}
		return strings.Join(texts, "\n")
	}
	before := state()
	for _, row := range table {
		if status, page := viewer.submit(row.path, row.act, append([]string{"at", "tenant=acme"}, row.pairs...)...); status != row.want {
			t.Errorf("the form %q of %s, sent by a viewer: %d, want %d: %.500s", row.act, row.path, status, row.want, page)
		}
	}
	if after := state(); after != before {
		t.Errorf("a viewer has changed\n%s\nto\n%s", before, after)
	}
}

var changing = regexp.MustCompile(`<time [^>]*>[^<]*</time>|name="token" value="[^"]*"|"(at|now|looked_back_to)":"[^"]*"`)

// PG-04: to an officer of another tenant, each id of acme is one that exists nowhere: in every address of every view, in its JSON, and in every form.
func TestPG04IDsOfAnotherTenantAreLikeIDsThatExistNowhere(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	w := serveOffices(t)
	uma := openAdmin(t, w.Gateway, w.keys["other admin"])
	node, _, _ := strings.Cut(w.receipt, "/")
	// ids are those of acme, and of the same form those of nothing.
	type pair struct{ theirs, nowhere string }
	tenant, server, key, task := pair{"acme", "nosuch"}, pair{"b", "zz"}, pair{"alice", "zoe"}, pair{"kiln", "nilk"}
	receipt, request, change := pair{w.receipt, node + "/999999"}, pair{w.request, "aaaaaaaaaaaaaaaa-1"}, pair{w.change, "999999"}
	digest, diff := pair{w.decision, "sha256:" + strings.Repeat("0", 64)}, pair{w.diff, "aaaaaaaaaaaaaaaa"}
	budget := pair{w.budget, "nosuch/few"}
	same := func(what string, id pair, ask func(id string) (status int, page string)) {
		t.Helper()
		plain := func(page string) string { // both ids, as a short one can be a part of every page
			page = strings.ReplaceAll(changing.ReplaceAllString(page, ""), "%2F", "/")
			for _, text := range []string{id.theirs, id.nowhere, url.QueryEscape(id.theirs), url.QueryEscape(id.nowhere), html.EscapeString(id.theirs)} {
				if len(text) > 8 {
					page = strings.ReplaceAll(page, text, "ID")
				} else {
					page = regexp.MustCompile(`\b`+text+`\b`).ReplaceAllString(page, "ID")
				}
			}
			return page
		}
		rig.Eventually(t, what+" is as if it did not exist", func() string { // lists of her own can change between the two
			status, page := ask(id.theirs)
			none, nothing := ask(id.nowhere)
			return rig.ReasonUnless(status == none && plain(page) == plain(nothing), fmt.Sprintf("%d %s\nand of nothing\n%d %s", status, page, none, nothing))
		})
	}
	for _, tt := range []struct {
		id    pair
		paths []string
	}{
		{tenant, []string{"/now?tenant=ID", "/decision?tenant=ID", "/decision?tenant=ID&task=all", "/decision?tenant=ID&recorded=1", "/ranking?tenant=ID", "/servers?tenant=ID", "/servers/a?tenant=ID", "/approvals?tenant=ID", "/approvals/decided?tenant=ID", "/approvals/standing?tenant=ID", "/receipts?tenant=ID", "/budgets?tenant=ID", "/tasks?tenant=ID", "/capabilities?tenant=ID", "/configuration?tenant=ID", "/decision?tenant=umbrella&task=all&file=tenants/ID/tenant.yaml", "/decision?tenant=umbrella&task=all&file=tenants/ID/tenant.yaml&text=x"}},
		{server, []string{"/servers/ID", "/servers/ID?tenant=umbrella", "/decision?tenant=umbrella&task=all&without=ID", "/receipts?tool=ID/pay", "/pins?server=ID", "/pins/one?server=ID&kind=tool&name=look"}},
		{key, []string{"/decision?tenant=umbrella&task=all&principal=ID", "/decision?recorded=1&principal=ID", "/receipts?principal=ID"}},
		{task, []string{"/decision?tenant=umbrella&task=ID", "/decision?recorded=1&task=ID", "/receipts?task=ID"}},
		{receipt, []string{"/receipts/ID", "/receipts/ID?tenant=umbrella", "/decision?record=ID", "/decision?record=ID&mode=assist", "/receipts?after=2026-11-28T00:00:00Z+ID"}},
		{request, []string{"/approvals/ID", "/approvals/ID?tenant=umbrella"}},
		{change, []string{"/configuration/changes/ID", "/ranking?tenant=umbrella&saved=ID"}},
		{digest, []string{"/decision?recorded=1&tenant=umbrella&digest=ID"}},
		{budget, []string{"/budgets?budget=ID&of=alice"}},
	} {
		for _, path := range tt.paths {
			view, query, _ := strings.Cut(path, "?")
			for _, address := range []string{path, view + ".json?" + query} {
				same(address, tt.id, func(id string) (int, string) {
					at, query, _ := strings.Cut(address, "?")
					return uma.get(uma.base + strings.ReplaceAll(at, "ID", id) + "?" + strings.ReplaceAll(query, "ID", url.QueryEscape(id)))
				})
			}
		}
	}
	// A comparison is shown beside a receipt of her own.
	var own struct{ Receipts []struct{ ID string } }
	rig.Eventually(t, "umbrella has a receipt", func() string {
		rig.ListNames(t, w.Open(t, "/mcp", true, "Authorization", "Bearer "+w.keys["other agent"]))
		a := w.AskAdmin(t, w.keys["other admin"], "GET", "/v1/receipts?kind=decision", "")
		return rig.ReasonUnless(json.Unmarshal([]byte(a.Body), &own) == nil && len(own.Receipts) > 0, a.Body)
	})
	same("a replay", diff, func(id string) (int, string) {
		return uma.get(uma.base + "/receipts/" + own.Receipts[0].ID + "?replay=" + id)
	})
	same("a server that was out", server, func(id string) (int, string) {
		return uma.get(uma.base + "/decision?record=" + own.Receipts[0].ID + "&without=" + id)
	})

	for _, tt := range []struct {
		id        pair
		path, act string
		pairs     []string
	}{
		{tenant, "/ranking", "save", []string{"at", "tenant=ID", "etag", `"x"`}},
		{tenant, "/ranking", "compare", []string{"at", "tenant=ID"}},
		{tenant, "/servers/a", "disable", []string{"at", "tenant=ID"}},
		{tenant, "/budgets", "adjust", []string{"budget", "few", "of", "alice", "of_tenant", "ID", "by", "1", "reason", "x"}},
		{tenant, "/capabilities", "probe", []string{"at", "tenant=ID"}},
		{change, "/ranking", "undo", []string{"at", "tenant=umbrella", "change", "ID"}},
		{change, "/configuration/changes/ID", "revert", nil},
		{server, "/servers/ID", "probe", nil},
		{server, "/pins/one", "suspend", []string{"at", "server=ID&kind=tool&name=look"}},
		{request, "/approvals/ID", "approve", nil},
		{request, "/approvals/ID", "refuse", nil},
		{request, "/approvals/ID", "revoke", nil},
		{request, "/approvals/ID", "standing", []string{"uses", "1", "for", "1h", "arguments", "{}"}},
		{pair{w.standing, "aaaaaaaaaaaaaaaa"}, "/approvals/standing", "end", []string{"id", "ID"}},
		{receipt, "/receipts/ID", "replay", nil},
		{budget, "/budgets", "adjust", []string{"budget", "ID", "of", "alice", "of_tenant", "umbrella", "by", "1", "reason", "x"}},
	} {
		same("the form "+tt.act+" of "+tt.path, tt.id, func(id string) (int, string) {
			pairs := make([]string, len(tt.pairs))
			for i := range pairs {
				pairs[i] = strings.ReplaceAll(tt.pairs[i], "ID", id)
			}
			return uma.submit(strings.ReplaceAll(tt.path, "ID", id), tt.act, pairs...)
		})
	}
	if a := w.AskAdmin(t, w.keys["approver"], "GET", "/v1/approvals/"+w.request, ""); !strings.Contains(a.Body, `"state":"pending"`) {
		t.Errorf("the request of acme is %s", a.Body)
	}
}

// PG-06: a yes is for the arguments that were looked at. A call with others is not approved by it, whatever the form says.
func TestPG06AYesIsForTheArgumentsThatWereLookedAt(t *testing.T) {
	t.Parallel()
	w := serveOffices(t)
	lea := openAdmin(t, w.Gateway, w.keys["approver"])
	if _, page := lea.get(lea.base + "/approvals/" + w.request); !strings.Contains(page, "ops@x.org") {
		t.Fatalf("the approver looks at %s", page)
	}
	// Between look and click, the agent asks for something else.
	if got := rig.Call(t, w.alice, "pay", `{"to":"eve@x.org"}`); got != "SB-APPR-001" {
		t.Fatalf("the call with other arguments: %s", got)
	}
	if status, page := lea.submit("/approvals/"+w.request, "approve", "arguments", `{"to":"eve@x.org"}`, "id", "other"); status != http.StatusOK {
		t.Errorf("the yes: %d %s", status, page)
	}
	if got := rig.Call(t, w.alice, "pay", `{"to":"eve@x.org"}`); got != "SB-APPR-001" {
		t.Errorf("after a yes to other arguments, the call gets %q", got)
	}
	if got := rig.Call(t, w.alice, "pay", `{"to":"ops@x.org","more":1}`); got != "SB-APPR-001" {
		t.Errorf("with one argument more, the call gets %q", got)
	}
	if got := rig.Call(t, w.alice, "pay", `{"to":"ops@x.org"}`); got != "" {
		t.Errorf("the call that was looked at gets %q", got)
	}
	if got := rig.Call(t, w.alice, "pay", `{"to":"ops@x.org"}`); got != "SB-APPR-001" {
		t.Errorf("a second call gets %q: a yes is for one", got)
	}
}
