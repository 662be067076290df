package served_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
)

var flowRounds = flag.Int("flow-rounds", 3, "how many `runs` over three replicas TestNoReplicaCarriesDataOutThatAnotherHasRead makes")

// flowArchive has the servers of three published attacks. Each tenant treats flows in its own way.
const flowArchive = `
-- switchboard.yaml --
servers:
  forge: {transport: http, url: "FORGE"}
  desk: {transport: http, url: "DESK"}
  web: {transport: http, url: "WEB"}
  notes: {transport: http, url: "NOTES"}
approvals: {wait: 1s}
tenants:
  pilot: {servers: ["*"], allow: [by_name]}
  helper: {servers: ["*"], allow: [by_name], approvers: [{key: boss, hash: "HASH:boss"}]}
  asker: {servers: ["*"], allow: [by_name], flows: ask}
  never: {servers: ["*"], allow: [by_name]}
-- taxonomy.yaml --
resources: {tickets: , database: {parent: fs}}
-- overlays/forge.yaml --
server: forge
tools:
  read_issue: {capabilities: [{verb: read, resource: codebase, constraints: [readonly]}], flow: [brings]}
  read_file: {capabilities: [{verb: read, resource: codebase, constraints: [readonly]}], flow: [sees]}
  open_pull_request: {capabilities: [{verb: write, resource: codebase}]}
-- overlays/desk.yaml --
server: desk
tools:
  read_ticket: {capabilities: [{verb: read, resource: tickets, constraints: [readonly]}], flow: [brings]}
  query: {capabilities: [{verb: read, resource: database, constraints: [readonly]}]}
  send_message: {capabilities: [{verb: notify, resource: slack, constraints: [readonly]}]}
-- overlays/web.yaml --
server: web
tools:
  fetch: {capabilities: [{verb: read, resource: internet, constraints: [readonly]}]}
-- overlays/notes.yaml --
server: notes
tools:
  read_note: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}]}
`

// flowTenant is the folder of one tenant of flowArchive.
const flowTenant = `
-- tenants/NAME/tenant.yaml --
tenant: NAME
default_task: all
SETTING
keys: [{id: ci, hash: "HASH:NAME"}]
-- tenants/NAME/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
`

// A flowWorld is the files of flowArchive, and the servers behind it.
type flowWorld struct {
	archive string
	keys    officers
	servers []*fakeserver.Attack
}

func newFlowWorld(t *testing.T) *flowWorld {
	t.Helper()
	w := &flowWorld{archive: flowArchive, keys: officers{}}
	for name, a := range map[string]*fakeserver.Attack{"FORGE": fakeserver.Forge(), "DESK": fakeserver.Desk(), "WEB": fakeserver.Web(), "NOTES": fakeserver.Notes()} {
		s := httptest.NewServer(a.Handler())
		t.Cleanup(s.Close)
		w.archive = strings.Replace(w.archive, `"`+name+`"`, fmt.Sprintf("%q", s.URL), 1)
		w.servers = append(w.servers, a)
	}
	for name, setting := range map[string]string{"pilot": "", "helper": "mode: assist", "asker": "", "never": "flows: never"} {
		w.archive += strings.NewReplacer("NAME", name, "SETTING", setting).Replace(flowTenant)
	}
	for _, who := range []string{"pilot", "helper", "asker", "never", "boss"} {
		prefix := identity.AgentPrefix
		if who == "boss" {
			prefix = identity.PersonPrefix
		}
		key, hash := identity.Mint(prefix)
		w.keys[who] = key
		w.archive = strings.Replace(w.archive, `"HASH:`+who+`"`, fmt.Sprintf("%q", hash), 1)
	}
	return w
}

// left returns how many texts with something private have left.
func (w *flowWorld) left() (n int) {
	for _, a := range w.servers {
		n += len(a.Left())
	}
	return n
}

// obey is an agent that does what a text says, whoever wrote it. It begins with the call that its user wants, and returns the code of
// the first refusal, "" if there is none, with its message.
func obey(t *testing.T, s rig.Session, tool, arguments string) (code string, m rig.Message) {
	t.Helper()
	orders, last := []string{tool + " " + arguments}, ""
	for n := 0; n < len(orders); n++ {
		tool, arguments, _ := strings.Cut(orders[n], " ")
		quoted, _ := json.Marshal(last)
		arguments = strings.ReplaceAll(arguments, "RESULT", strings.Trim(string(quoted), `"`))
		m, _ = s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments))
		rig.SayStoreIsLate(t, m)
		if code := rig.Code(m); code != "" {
			return code, m
		}
		last = m.Text()
		for line := range strings.Lines(last) {
			if order, ok := strings.CutPrefix(strings.TrimSpace(line), "CALL "); ok && len(orders) < 10 {
				orders = append(orders, order)
			}
		}
		if len(orders) > 3 { // the second page says the same again
			orders = orders[:3]
		}
	}
	return "", m
}

// The attacks begin with what the user wants: the issue, the ticket, the page.
var flowAttacks = map[string][2]string{
	"an issue, a private repository, a public pull request": {"read_issue", `{"number":7}`},
	"a ticket, a database, a message":                       {"read_ticket", `{"number":7}`},
	"a page, a file, an address":                            {"fetch", `{"url":"https://cats.example/"}`},
}

func TestAnAgentThatObeysAStrangerCarriesNothingOut(t *testing.T) {
	t.Parallel()
	w := newFlowWorld(t)
	dir := rig.LayOut(t, w.archive)
	g := rig.Serve(t, dir)
	for attack, first := range flowAttacks {
		for tenant, want := range map[string]string{"pilot": "", "helper": "SB-APPR-001", "asker": "SB-APPR-001", "never": "SB-POL-001"} {
			for _, modern := range []bool{false, true} {
				before := w.left()
				s := g.Open(t, "/mcp", modern, "Authorization", "Bearer "+w.keys[tenant])
				code, m := obey(t, s, first[0], first[1])
				if code != want {
					t.Errorf("%s, tenant %s, modern %t: %q, want %q: %.400s", attack, tenant, modern, code, want, m.Raw)
				}
				if left := w.left() - before; left != map[bool]int{true: 1, false: 0}[want == ""] {
					t.Errorf("%s, tenant %s: %d texts have left", attack, tenant, left)
				}
			}
		}
	}
	recorded := 0
	for _, r := range flowReceipts(t, dir) {
		if r.Tenant == "pilot" && r.Kind == "call" && slices.Equal(r.Touched, []string{"brings", "sees"}) {
			recorded++
		}
	}
	if recorded < 2*len(flowAttacks) {
		t.Errorf("%d receipts say what the run of the pilot had touched", recorded)
	}
	text := g.Explain(t, "pilot", "all", "ci")
	for _, want := range []string{`"brings":["`, "forge/read_issue", "notes/read_note", "desk/send_message"} {
		if !strings.Contains(text, want) {
			t.Errorf("explain does not name %s: %.2000s", want, text)
		}
	}
	if log := g.Logged(); !strings.Contains(log, "can carry private data out by the words of a stranger") {
		t.Error("a bind names no combination")
	}
	out, errs, _ := rig.Command(t, dir, "validate")
	if !strings.Contains(out+errs, "tenants/pilot/tasks/all.yaml: its tools can carry private data out") || strings.Contains(out+errs, "tenants/never/tasks") {
		t.Errorf("validate: %s%s", out, errs)
	}
}

// A flowReceipt is what this test reads of a receipt.
type flowReceipt struct {
	Tenant, Kind, Tool string
	Touched            []string
}

func flowReceipts(t *testing.T, dir string) (all []flowReceipt) {
	t.Helper()
	out, errs, code := rig.Command(t, dir, "receipts", "export")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for line := range strings.Lines(out) {
		var one struct{ Entry struct{ Receipt flowReceipt } }
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, one.Entry.Receipt)
	}
	return all
}

// What a person approves goes out once, and the yes is about the rule of flows.
func TestAPersonLetsDataOutOnceByName(t *testing.T) {
	t.Parallel()
	w := newFlowWorld(t)
	g := rig.Serve(t, rig.LayOut(t, w.archive))
	s := g.Open(t, "/mcp", false, "Authorization", "Bearer "+w.keys["helper"])
	if code := rig.Call(t, s, "fetch", `{"url":"https://cats.example/"}`); code != "" {
		t.Errorf("nothing was touched, and a page is refused: %s", code)
	}
	code, m := obey(t, s, "fetch", `{"url":"https://cats.example/"}`)
	found := requestID.FindStringSubmatch(string(m.Raw))
	if code != "SB-APPR-001" || found == nil {
		t.Fatalf("%q: %.400s", code, m.Raw)
	}
	a := g.AskAdmin(t, w.keys["boss"], "GET", "/v1/approvals/"+found[1], "")
	if a.Status != http.StatusOK || !strings.Contains(a.Body, "policies/flows.rego") || !strings.Contains(a.Body, "the run has read private data and text of strangers") {
		t.Errorf("the approver sees %d %.1500s", a.Status, a.Body)
	}
	if a := g.AskAdmin(t, w.keys["boss"], "POST", "/v1/approvals/"+found[1]+"/approve", `{}`); a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if code, m := resume(t, s, found[1]); code != "" || w.left() != 1 {
		t.Errorf("after the yes: %.400s, %d left", m.Raw, w.left())
	}
	if code, _ := resume(t, s, found[1]); code != "SB-APPR-003" || w.left() != 1 {
		t.Errorf("once more: %s, %d left", code, w.left())
	}
}

// The requests of a session go to three replicas in turn.
func TestNoReplicaCarriesDataOutThatAnotherHasRead(t *testing.T) {
	t.Parallel()
	w := newFlowWorld(t)
	c := rig.ServeReplicas(t, w.archive)
	for round := range *flowRounds {
		s := (&rig.Gateway{T: t, URL: c.URL}).Open(t, "/mcp", false, "Authorization", "Bearer "+w.keys["never"], rig.ClientHeader, fmt.Sprint("client-", round))
		code, m := obey(t, s, "fetch", `{"url":"https://cats.example/"}`)
		if code != "SB-POL-001" {
			t.Errorf("round %d: %q: %.400s", round, code, m.Raw)
		}
	}
	if left := w.left(); left > 0 {
		t.Errorf("%d texts have left", left)
	}
}
