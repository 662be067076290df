package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/trial"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// tryArchive is a tenant with two members who may call tools, and one who may not; and a tenant whose persons sign in at an issuer too.
const tryArchive = `
-- switchboard.yaml --
issuers: {idp: {url: "ISSUER", sign_in: {id: sb}}}
currency: EUR
operators: [{key: ops, hash: "HASH:operator"}]
servers:
  SERVER
tenants:
  acme: {servers: ["*"], allow: [by_name], roles: [clerk], offices: [admin, viewer], approvers: [{key: lea, hash: "HASH:approver"}, {key: vic, hash: "HASH:vic"}]}
  umbrella: {servers: ["*"], allow: [by_name], offices: [viewer], issuers: [idp], approvers: [{key: lou, hash: "HASH:lou"}]}
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: all
approvals: {wait: 1s}
budgets: [{id: few, limit: {calls: 5}, per: principal, window: 1d, match: {tool: ["a/paid"]}}]
keys: [{id: vic, hash: "HASH:agent"}]
members:
  - {key: vic, hash: "HASH:vic", offices: [viewer], tasks: [all], roles: [clerk]}
  - {key: wim, hash: "HASH:wim", offices: [viewer], tasks: [all], mode: observe}
  - {key: ann, hash: "HASH:admin", offices: [admin]}
  - {key: ops, hash: "HASH:operator", offices: [viewer], tasks: [all]}
-- tenants/acme/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
-- tenants/umbrella/tenant.yaml --
tenant: umbrella
default_task: all
members:
  - {key: uma, hash: "HASH:other", offices: [viewer], tasks: [all]}
  - {issuer: idp, claim: team, value: platform, offices: [viewer], tasks: [all]}
-- tenants/umbrella/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
-- policies/rules.rego --
package switchboard

allowed_tools contains c.id if some c in input.candidate_tools

deny["a/work"] contains "not there" if {
	input.phase == "call"
	input.call.arguments.path == "/etc/passwd"
}

deny["a/paid"] contains "only clerks" if {
	input.phase == "call"
	not "clerk" in input.principal.roles
}

obligations["a/mail"] contains {"type": "require_approval", "reason": "it leaves the company"}
`

// A triedWorld serves tryArchive.
type triedWorld struct {
	*rig.Gateway
	dir, marks string
	keys       officers
	issuer     *issuer
}

func serveTries(t *testing.T) *triedWorld {
	t.Helper()
	w := &triedWorld{keys: officers{}, marks: filepath.Join(t.TempDir(), "marks"), issuer: newIssuer(t)}
	row := rig.FakeRow("a", "marks="+w.marks, `{"name":"work","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`, fmt.Sprintf(rig.Tool, "mail"), fmt.Sprintf(rig.Tool, "paid"),
		`{"name":"region","inputSchema":{"type":"object","properties":{"at":{"type":"string","x-mcp-header":"Region"}}}}`)
	text := strings.NewReplacer("SERVER", strings.TrimSuffix(row, "}")+", trust: operator}", "ISSUER", w.issuer.URL).Replace(tryArchive)
	for _, who := range []string{"operator", "approver", "lou", "vic", "wim", "admin", "other", "agent"} {
		prefix := identity.PersonPrefix
		if who == "agent" {
			prefix = identity.AgentPrefix
		}
		key, hash := identity.Mint(prefix)
		w.keys[who] = key
		text = strings.ReplaceAll(text, `"HASH:`+who+`"`, fmt.Sprintf("%q", hash))
	}
	w.dir = rig.LayOut(t, text)
	w.Gateway = rig.Serve(t, w.dir)
	return w
}

// try makes a call as a person.
func (w *triedWorld) try(t *testing.T, who, body string, header ...string) (*trial.TryOutcome, rig.Answer) {
	t.Helper()
	a := w.AskAdmin(t, w.keys[who], "POST", "/v1/try", body, header...)
	out := &trial.TryOutcome{}
	if a.Status == http.StatusOK {
		if err := json.Unmarshal([]byte(a.Body), out); err != nil {
			t.Fatalf("%v: %s", err, a.Body)
		}
	}
	return out, a
}

// made returns how often the server has executed a tool.
func (w *triedWorld) made(tool string) int {
	text, _ := os.ReadFile(w.marks) // there is none before the first call
	return strings.Count(string(text), tool+"\n")
}

func codeOf(out *trial.TryOutcome) string {
	if out.Refused == nil {
		return ""
	}
	return string(out.Refused.Code)
}

// A person's call is on the path of an agent: the same binding, policy, approval, budget, idempotency and receipt, as a principal of its own.
func TestAPersonsCallIsOnThePathOfAnAgent(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	w := serveTries(t)

	var offer trial.TryOffer
	a := w.AskAdmin(t, w.keys["vic"], "GET", "/v1/try?tool=work", "")
	if err := json.Unmarshal([]byte(a.Body), &offer); err != nil || offer.Principal != "vic@page" || len(offer.Tasks) != 1 {
		t.Fatalf("%v: %d %s", err, a.Status, a.Body)
	}
	changes := map[string]bool{}
	for _, tool := range offer.Tools {
		changes[tool.Name] = tool.Changes
		if (len(tool.Schema) > 0) != (tool.Name == "work") {
			t.Errorf("the schema of %s is %s", tool.Name, tool.Schema)
		}
	}
	if len(changes) < 3 || changes["work"] || !changes["mail"] || !changes["paid"] {
		t.Errorf("the tools are %v", changes)
	}

	// The result, with its server, size and receipt. Numbers are sent as they are spelt.
	work := `{"tool":"work","arguments":{"n":1.50, "text":"<&>"}}`
	out, a := w.try(t, "vic", work, "Idempotency-Key", "try-1")
	if codeOf(out) != "" || out.Server != "a" || out.Receipt == "" || out.Bytes == 0 || !strings.Contains(string(out.Result), "1.50") {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	again, b := w.try(t, "vic", work, "Idempotency-Key", "try-1")
	if b.Header.Get("Idempotency-Replayed") != "true" || b.Body != a.Body || again.Receipt != out.Receipt || w.made("work") != 1 {
		t.Errorf("the repeat: %d %s; made %d", b.Status, b.Body, w.made("work"))
	}
	if c := w.AskAdmin(t, w.keys["vic"], "GET", "/v1/try/try-1", ""); c.Status != http.StatusOK || c.Body != a.Body || w.made("work") != 1 {
		t.Errorf("read again: %d %s; made %d", c.Status, c.Body, w.made("work"))
	}
	for _, who := range []string{"wim", "approver", "operator"} {
		if c := w.AskAdmin(t, w.keys[who], "GET", "/v1/try/try-1?tenant=acme", ""); c.Status != http.StatusNotFound {
			t.Errorf("%s reads the call of another person: %d %s", who, c.Status, c.Body)
		}
	}
	rig.Eventually(t, "the receipt names the person", func() string {
		c := w.AskAdmin(t, w.keys["vic"], "GET", "/v1/receipt?tenant=acme&id="+url.QueryEscape(out.Receipt), "")
		return rig.ReasonUnless(strings.Contains(c.Body, `"id":"vic@page"`) && strings.Contains(c.Body, `"auth":"person_key"`), c.Body)
	})

	// An argument that the tool wants in a header too.
	if out, a := w.try(t, "vic", `{"tool":"region","arguments":{"at":"Zürich"}}`); codeOf(out) != "" || w.made("region") != 1 {
		t.Errorf("a tool with an argument in a header: %d %s", a.Status, a.Body)
	}

	// Policy refuses by the arguments, and by the roles of the row.
	if out, a := w.try(t, "vic", `{"tool":"work","arguments":{"path":"/etc/passwd"}}`); codeOf(out) != "SB-POL-001" || out.Receipt == "" || w.made("work") != 1 {
		t.Errorf("a veto: %d %s", a.Status, a.Body)
	}
	if out, a := w.try(t, "wim", `{"tool":"paid"}`); codeOf(out) != "SB-POL-001" {
		t.Errorf("without the role: %d %s", a.Status, a.Body)
	}
	if out, a := w.try(t, "vic", `{"tool":"nosuch"}`); codeOf(out) != "SB-CAP-001" {
		t.Errorf("a tool that is not there: %d %s", a.Status, a.Body)
	}
	if out, a := w.try(t, "vic", `{"tool":"work","task":"nosuch"}`); codeOf(out) != "SB-TASK-001" {
		t.Errorf("a task that is not there: %d %s", a.Status, a.Body)
	}

	// The budget counts for the person, not for the agent with the same name.
	agent := w.Open(t, "/mcp", true, "Authorization", "Bearer "+w.keys["agent"])
	for i := range 6 {
		want := ""
		if i == 5 {
			want = "SB-COST-001"
		}
		if out, a := w.try(t, "vic", `{"tool":"paid"}`); codeOf(out) != want {
			t.Errorf("call %d: %d %s", i+1, a.Status, a.Body)
		}
	}
	if got := rig.Call(t, agent, "paid", "{}"); got != "SB-POL-001" || w.made("paid") != 5 { // it has no role
		t.Errorf("the agent gets %q; made %d", got, w.made("paid"))
	}

	// A call waits for a person, who is not the one that asked. Then it is resumed as agents do it.
	out, a = w.try(t, "vic", `{"tool":"mail","arguments":{"to":"ops@x.org"}}`)
	if codeOf(out) != "SB-APPR-001" || out.Request == "" || w.made("mail") != 0 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if c := w.AskAdmin(t, w.keys["vic"], "POST", "/v1/approvals/"+out.Request+"/approve", `{}`); c.Status != http.StatusForbidden || !strings.Contains(c.Body, "yourself") {
		t.Errorf("who asked decides: %d %s", c.Status, c.Body)
	}
	rename := func(from, to string) { // the id of vic's key of a person
		for _, name := range []string{"switchboard.yaml", "tenants/acme/tenant.yaml"} {
			file := filepath.Join(w.dir, name)
			rig.WriteFile(t, file, strings.Replace(rig.ReadFile(t, file), "{key: "+from+",", "{key: "+to+",", 1))
		}
		w.Reload(t)
	}
	rename("vic", "victor")
	if c := w.AskAdmin(t, w.keys["vic"], "POST", "/v1/approvals/"+out.Request+"/approve", `{}`); c.Status != http.StatusForbidden || !strings.Contains(c.Body, "yourself") {
		t.Errorf("who asked decides by another id: %d %s", c.Status, c.Body)
	}
	rename("victor", "vic")
	if c := w.AskAdmin(t, w.keys["approver"], "POST", "/v1/approvals/"+out.Request+"/approve", `{}`); c.Status != http.StatusOK {
		t.Fatalf("%d %s", c.Status, c.Body)
	}
	resume := fmt.Sprintf(`{"tool":"switchboard_resume","arguments":{"request":%q}}`, out.Request)
	if out, a := w.try(t, "wim", resume); codeOf(out) == "" || w.made("mail") != 0 {
		t.Errorf("another person resumes it: %d %s", a.Status, a.Body)
	}
	if out, a := w.try(t, "vic", resume); codeOf(out) != "" || w.made("mail") != 1 {
		t.Errorf("resumed: %d %s; made %d", a.Status, a.Body, w.made("mail"))
	}

	// Who has no task calls nothing, and an operator's key never does, even if it has a row under members.
	for who, want := range map[string]int{"admin": http.StatusForbidden, "approver": http.StatusForbidden, "operator": http.StatusForbidden} {
		if _, a := w.try(t, who, `{"tool":"work"}`); a.Status != want || !strings.Contains(a.Body, "SB-AUTH-002") {
			t.Errorf("%s calls: %d %s", who, a.Status, a.Body)
		}
	}
	if c := w.AskAdmin(t, w.keys["other"], "POST", "/v1/try?tenant=acme", `{"tool":"work"}`); c.Status != http.StatusNotFound {
		t.Errorf("a person of another tenant: %d %s", c.Status, c.Body)
	}
	if c := w.AskAdmin(t, "", "POST", "/v1/try?tenant=acme", `{"tool":"work"}`); c.Status != http.StatusForbidden { // there are keys
		t.Errorf("whoever reads the data folder: %d %s", c.Status, c.Body)
	}
	if m, _ := w.Open(t, "/mcp", true, "Authorization", "Bearer "+w.keys["vic"]).Ask(t, "tools/list", ""); rig.Code(m) != "SB-AUTH-001" {
		t.Errorf("the person's key at /mcp: %s", m.Raw)
	}

	// The row counts at each call.
	file := filepath.Join(w.dir, "tenants/acme/tenant.yaml")
	rig.WriteFile(t, file, strings.Replace(rig.ReadFile(t, file), "offices: [viewer], tasks: [all], roles: [clerk]", "offices: [viewer]", 1))
	w.Reload(t)
	if _, a := w.try(t, "vic", `{"tool":"work"}`); a.Status != http.StatusForbidden || w.made("work") != 1 {
		t.Errorf("after the row has lost its task: %d %s", a.Status, a.Body)
	}
	w.callSignedIn(t)
}

// callSignedIn makes calls as a person who has signed in at the issuer. A call that waits for an approval is not made any more when the person has signed out.
func (w *triedWorld) callSignedIn(t *testing.T) {
	t.Helper()
	before := w.made("work")
	ann := w.issuer.signIn(t, w.Gateway)
	status, text := ann.try(`{"tool":"work"}`)
	var out trial.TryOutcome
	if err := json.Unmarshal([]byte(text), &out); err != nil || status != http.StatusOK || codeOf(&out) != "" || out.Principal != "idp/ann@page" || out.Task != "all" || w.made("work") != before+1 {
		t.Fatalf("%v: %d %s", err, status, text)
	}
	rig.Eventually(t, "the receipt names the person who has signed in", func() string {
		c := w.AskAdmin(t, w.keys["operator"], "GET", "/v1/receipt?tenant=umbrella&id="+url.QueryEscape(out.Receipt), "")
		return rig.ReasonUnless(strings.Contains(c.Body, `"id":"idp/ann@page"`) && strings.Contains(c.Body, `"auth":"sign_in"`), c.Body)
	})

	mailed, answered := w.made("mail"), make(chan string, 1)
	go func() {
		_, text := ann.try(`{"tool":"mail","arguments":{"to":"ops@x.org"}}`)
		answered <- text
	}()
	var waiting struct {
		Approvals []struct{ ID string }
	}
	rig.Eventually(t, "the call waits for a person", func() string {
		c := w.AskAdmin(t, w.keys["lou"], "GET", "/v1/approvals?state=pending", "")
		return rig.ReasonUnless(json.Unmarshal([]byte(c.Body), &waiting) == nil && len(waiting.Approvals) == 1, c.Body)
	})
	_, page := ann.get(ann.base + "/now")
	token := formToken.FindStringSubmatch(page)
	if token == nil {
		t.Fatalf("there is no form to sign out with: %s", page)
	}
	ann.post("/sign-out", url.Values{"token": {token[1]}})
	if status, text := ann.try(`{"tool":"work"}`); status == http.StatusOK || w.made("work") != before+1 {
		t.Errorf("after the sign-out: %d %s", status, text)
	}
	file := filepath.Join(w.dir, "tenants/acme/tenant.yaml")
	rig.WriteFile(t, file, strings.Replace(rig.ReadFile(t, file), "{key: wim,", "{key: willem,", 1))
	w.Reload(t)
	for line := range strings.Lines(w.Logged()) {
		if strings.Contains(line, "a run shows nothing") && strings.Contains(line, "idp/ann@page") {
			t.Errorf("the log warns about the run of a person who has signed out: %s", line)
		}
	}
	request := "/v1/approvals/" + waiting.Approvals[0].ID
	if c := w.AskAdmin(t, w.keys["lou"], "POST", request+"/approve", `{}`); c.Status == http.StatusOK || !strings.Contains(c.Body, "may call nothing any more") {
		t.Errorf("a yes for a person who has signed out: %d %s", c.Status, c.Body)
	}
	if c := w.AskAdmin(t, w.keys["lou"], "POST", request+"/refuse", `{}`); c.Status != http.StatusOK {
		t.Errorf("a no: %d %s", c.Status, c.Body)
	}
	again := w.issuer.signIn(t, w.Gateway)
	if status, text := again.try(`{"tool":"work"}`); status != http.StatusOK || w.made("work") != before+2 {
		t.Errorf("just after another sign-in: %d %s", status, text)
	}
	if text := wait.Receive(t, "the answer of the call that waited", answered); !strings.Contains(text, "SB-APPR-002") || w.made("mail") != mailed {
		t.Errorf("the call that waited gets %s; made %d", text, w.made("mail")-mailed)
	}
}

// Where neither an issuer nor an agent's key exists, whoever reads the data folder is the local user. A long result is cut, and says so.
func TestTheLocalUserTriesAToolAndALongResultIsCut(t *testing.T) {
	t.Parallel()
	long := `{"content":[{"type":"text","text":"` + strings.Repeat(`\"\u2028é`, 4_000) + `"}]}`
	dir := rig.LayOut(t, rig.Fakes(fmt.Sprintf("a: {transport: http, url: %q}", rig.ServeResult(t, "work", "", long)), rig.FakeRow("b", "says="+`{"content":[{"type":"text","text":"short"}]}`, fmt.Sprintf(rig.Tool, "rest"))))
	g := rig.Serve(t, dir)
	a := g.AskAdmin(t, "", "POST", "/v1/try", `{"tool":"work"}`, "Idempotency-Key", "long")
	var out trial.TryOutcome
	if err := json.Unmarshal([]byte(a.Body), &out); err != nil || out.Principal != "local" || !out.Cut || out.Bytes < 40_000 || len(a.Body) > 64<<10 || out.Beginning == "" || out.Result != nil {
		t.Errorf("%v: %d %d bytes %.400s", err, a.Status, len(a.Body), a.Body)
	}
	if b := g.AskAdmin(t, "", "GET", "/v1/try/long", ""); b.Body != a.Body {
		t.Errorf("again: %d %.400s", b.Status, b.Body)
	}
	said, errs, code := rig.Command(t, dir, "try", "rest")
	if code != 1 || !strings.Contains(errs, "add --yes") {
		t.Errorf("the command asks first: %d %s %s", code, said, errs)
	}
	if said, errs, code = rig.Command(t, dir, "try", "rest", "--yes"); code != 0 || said != "short\n" || !strings.Contains(errs, "receipt ") {
		t.Errorf("the command: %d %s %s", code, said, errs)
	}
	if said, errs, code = rig.Command(t, dir, "try"); code != 0 || !strings.Contains(said, "may change something") {
		t.Errorf("the list: %d %s %s", code, said, errs)
	}
	if said, errs, code = rig.Command(t, dir, "try", "--result", "long"); code != 0 || !strings.Contains(said, "this is its beginning") {
		t.Errorf("the result again: %d %.200s %s", code, said, errs)
	}
}

// A call from the page has no client. While it waits for an approver it must not keep a process whose client has left.
func TestACallFromThePageThatWaitsForAPersonDelaysNoStopOverStdio(t *testing.T) {
	t.Parallel()
	row := rig.FakeRow("a", `{"name":"work","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)
	archive := strings.NewReplacer("start_deadline", "grace: 2s\nstart_deadline", "allow: [by_name]", "allow: [by_name], approvals: {wait: 5m}", "default_task", "approvals: {wait: 5m}\ndefault_task").Replace(rig.Fakes(strings.TrimSuffix(row, "}") + ", trust: operator}"))
	dir := rig.LayOut(t, archive+"-- policies/ask.rego --\npackage switchboard\n"+rig.AllowAll+`obligations["a/work"] contains {"type": "require_approval"}`+"\n")
	s := rig.Stdio(t, dir, false)
	said, errs, code := rig.Command(t, dir, "page", "--json")
	var opened struct{ URL string }
	if err := json.Unmarshal([]byte(said), &opened); err != nil || code != 0 {
		t.Fatalf("%v: %s%s", err, said, errs)
	}
	at, err := url.Parse(opened.URL)
	if err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, at.Scheme+"://"+at.Host)
	b.get(opened.URL)
	_, page := b.get(b.base + "/try?task=all&tool=work")
	token, key := formToken.FindStringSubmatch(page), callKey.FindStringSubmatch(page)
	if token == nil || key == nil {
		t.Fatalf("there is no form to call with: %s", page)
	}
	if status, page := b.post("/try", url.Values{"at": {"?task=all&tool=work"}, "token": {token[1]}, "key": {key[1]}, "act": {"call"}}); status != http.StatusOK {
		t.Fatalf("%d %s", status, page)
	}
	rig.Eventually(t, "the call waits for a person", func() string {
		said, errs, _ := rig.Command(t, dir, "approvals", "list")
		return rig.ReasonUnless(strings.Contains(said, "a/work"), said+errs)
	})
	began := time.Now()
	_ = s.In.Close()
	for err == nil {
		_, err = s.ReadLine()
	}
	if took := time.Since(began); wait.TimedOut(err) || took > 8*time.Second { // more than the grace only where the machine is busy
		wait.Late(t, "it is there after %s; the grace is 2s", took)
	}
}

// callKey matches the key of the calls of a form.
var callKey = regexp.MustCompile(`name="key" value="([^"]+)"`)
