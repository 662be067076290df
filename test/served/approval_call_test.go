package served_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

var approvalRounds = flag.Int("approvals", 2, "how many `rounds` of a hundred callers use one yes over three replicas in TestAP01OneYesIsOneExecutionOverThreeReplicas; 200 is what is promised")

var approvalRepeats = flag.Int("approval-repeats", 200, "how `many` times TestAP08AnotherWordIsAnotherRequestAndARepeatIsNone repeats a call that was refused; 10000 is what is promised")

// waitingArchive is a world in which calls of send need a person. Tenant default has no approver: whoever reads the data folder decides.
const waitingArchive = `
-- switchboard.yaml --
servers:
  SERVER
approvals: {APPROVALS}
tenants:
  default: {servers: ["*"], allow: [by_name]}
  acme: {servers: ["*"], allow: [by_name], approvers: [{key: boss, hash: "HASH:boss"}]}
  umbrella: {servers: ["*"], allow: [by_name]}
-- overlays/a.yaml --
server: a
tools:
  send: {capabilities: [{verb: write, resource: fs, constraints: [human_in_the_loop]}]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: all
keys: [{id: ci, hash: "HASH:ci", tasks: [all, other]}, {id: cd, hash: "HASH:cd"}]
-- tenants/acme/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
-- tenants/acme/tasks/other.yaml --
task_id: other
required_capabilities: [{tools: ["*/*"]}]
-- tenants/acme/policies/own.rego --
package switchboard.tenant

allowed_tools contains c.id if some c in input.candidate_tools
-- tenants/umbrella/tenant.yaml --
tenant: umbrella
default_task: all
keys: [{id: ci, hash: "HASH:umbrella"}]
-- tenants/umbrella/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
`

// A waitingWorld serves waitingArchive.
type waitingWorld struct {
	*rig.Gateway
	dir, marks string
	keys       officers
}

// layOutWaiting writes the files, with these settings of approvals and more arguments of the fake server.
func layOutWaiting(t *testing.T, approvals string, fake ...string) *waitingWorld {
	t.Helper()
	w := &waitingWorld{keys: officers{}, marks: filepath.Join(t.TempDir(), "marks")}
	row := rig.FakeRow("a", append(fake, "marks="+w.marks, fmt.Sprintf(rig.Tool, "send"), fmt.Sprintf(rig.Tool, "look"))...)
	text := strings.Replace(waitingArchive, "SERVER", row, 1)
	text = strings.Replace(text, "APPROVALS", approvals, 1)
	for _, who := range []string{"boss", "ci", "cd", "umbrella"} {
		prefix := identity.AgentPrefix
		if who == "boss" {
			prefix = identity.PersonPrefix
		}
		key, hash := identity.Mint(prefix)
		w.keys[who] = key
		text = strings.Replace(text, `"HASH:`+who+`"`, fmt.Sprintf("%q", hash), 1)
	}
	w.dir = rig.LayOut(t, text)
	return w
}

// overStore makes the files of a folder use the Redis, if there is one, and returns what starts a process on them.
func overStore(t *testing.T, dir string, redis *redistest.Server) (start func() *rig.Gateway) {
	t.Helper()
	if redis == nil {
		return func() *rig.Gateway { return rig.Serve(t, dir) }
	}
	main := filepath.Join(dir, "switchboard.yaml")
	rig.WriteFile(t, filepath.Join(dir, "secret"), survivorSecret)
	rig.WriteFile(t, main, fmt.Sprintf("store: %q\ncluster: {secret: \"${file:secret}\", listen: \"127.0.0.1:0\"}\n", redis.URL())+rig.ReadFile(t, main))
	return func() *rig.Gateway { return rig.Serve(t, dir, "--data", filepath.Join(t.TempDir(), "data")) }
}

func serveWaiting(t *testing.T, approvals string, fake ...string) *waitingWorld {
	t.Helper()
	w := layOutWaiting(t, approvals, fake...)
	w.Gateway = rig.Serve(t, w.dir)
	return w
}

func (w *waitingWorld) as(t *testing.T, who, path string, modern bool) *rig.HTTPSession {
	t.Helper()
	return w.Open(t, path, modern, "Authorization", "Bearer "+w.keys[who])
}

// pending returns the ids of what waits in a tenant, as its approver sees them; key "" reads the data folder.
func (w *waitingWorld) pending(t *testing.T, key, tenant string) (ids []string) {
	t.Helper()
	a := w.AskAdmin(t, key, "GET", "/v1/approvals?state=pending&tenant="+tenant, "")
	var list struct {
		Approvals []struct {
			ID string `json:"id"`
		} `json:"approvals"`
	}
	if err := json.Unmarshal([]byte(a.Body), &list); err != nil || a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	for _, r := range list.Approvals {
		ids = append(ids, r.ID)
	}
	return ids
}

// onlyPending waits until one request waits, and returns it.
func (w *waitingWorld) onlyPending(t *testing.T, key, tenant string) string {
	t.Helper()
	for began := time.Now(); ; <-time.After(wait.Pause(time.Since(began), 0)) {
		if ids := w.pending(t, key, tenant); len(ids) == 1 {
			return ids[0]
		} else if time.Since(began) > wait.Bound {
			t.Fatalf("pending: %q", ids)
		}
	}
}

// say says what an approver does with a request.
func (w *waitingWorld) say(t *testing.T, key, id, what string) {
	t.Helper()
	if a := w.AskAdmin(t, key, "POST", "/v1/approvals/"+id+"/"+what, `{"note":"in the name of the company"}`); a.Status != http.StatusOK {
		t.Fatalf("%s: %d %s", what, a.Status, a.Body)
	}
}

// ask makes a call that is not approved in time, and returns its request.
func (w *waitingWorld) ask(t *testing.T, s rig.Session, arguments string) string {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", `{"name":"send","arguments":`+arguments+`}`)
	rig.SayStoreIsLate(t, m)
	found := requestID.FindStringSubmatch(string(m.Raw))
	if rig.Code(m) != "SB-APPR-001" || found == nil || !strings.Contains(string(m.Result), `"isError":true`) || !strings.Contains(string(m.Result), `"request":"`+found[1]+`"`) {
		t.Fatalf("%s: %.600s", arguments, m.Raw)
	}
	return found[1]
}

// resume calls switchboard_resume, and returns the code of the answer; "" for a result.
func resume(t *testing.T, s rig.Session, id string) (code string, m rig.Message) {
	t.Helper()
	m, _ = s.Ask(t, "tools/call", `{"name":"switchboard_resume","arguments":{"request":"`+id+`"}}`)
	return rig.Code(m), m
}

func (w *waitingWorld) made(t *testing.T) int {
	t.Helper()
	return strings.Count(rig.ReadFile(t, w.marks), "send")
}

// eachClient runs f with clients of both eras: of a key over HTTP, and of the local user over stdio, which are processes of their own on the folder. key is
// that of who decides about the calls of the tenant, and n counts the clients.
func (w *waitingWorld) eachClient(t *testing.T, f func(t *testing.T, s rig.Session, key, tenant string, n int)) {
	for i, modern := range []bool{false, true} {
		era := map[bool]string{false: "legacy", true: "modern"}[modern]
		t.Run("http/"+era, func(t *testing.T) { f(t, w.as(t, "ci", "/mcp", modern), w.keys["boss"], "acme", 2*i+1) })
		t.Run("stdio/"+era, func(t *testing.T) { f(t, rig.Stdio(t, w.dir, modern, "--tenant", "default"), "", "default", 2*i+2) })
	}
}

func TestACallGoesOnInTheSameTurnWhenAPersonSaysYes(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.OneDecision)
	w := serveWaiting(t, "wait: 5m")
	made := 0
	w.eachClient(t, func(t *testing.T, s rig.Session, key, tenant string, n int) {
		var m rig.Message
		var wg sync.WaitGroup
		call := fmt.Sprintf(`{"name":"send","arguments":{"n":%d.0}}`, n)
		wg.Go(func() { m, _ = s.Ask(t, "tools/call", call) })
		id := w.onlyPending(t, key, tenant)
		if w.made(t) != made {
			t.Error("it was made before the yes")
		}
		w.say(t, key, id, "approve")
		wg.Wait()
		if made++; !strings.Contains(string(m.Result), fmt.Sprintf(`{\"n\":%d.0}`, n)) || w.made(t) != made {
			t.Errorf("%.500s, made %d times", m.Raw, w.made(t))
		}
		wg.Go(func() { m, _ = s.Ask(t, "tools/call", call) })
		second := w.onlyPending(t, key, tenant)
		if second == id {
			t.Error("the used yes is asked about again")
		}
		w.say(t, key, second, "refuse")
		wg.Wait()
		if rig.Code(m) != "SB-APPR-002" || !strings.Contains(string(m.Result), "in the name of the company") || w.made(t) != made {
			t.Errorf("refused: %.500s", m.Raw)
		}
		if code := rig.Call(t, s, "look", `{}`); code != "" {
			t.Errorf("a tool that asks nobody: %s", code)
		}
	})
}

// AP-10: a call that has waited is made by switchboard_resume, byte for byte, once, and only for who asked.
func TestAP10OnlyWhoAskedResumesACall(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	w := serveWaiting(t, "wait: 1s")
	w.eachClient(t, func(t *testing.T, s rig.Session, key, _ string, n int) {
		if m, _ := s.Ask(t, "tools/list", ""); !strings.Contains(string(m.Result), `"name":"switchboard_resume"`) {
			t.Errorf("listed: %s", m.Raw)
		}
		before := w.made(t)
		sent := fmt.Sprintf(`{ "n" : %d.50,"long":"%s", "é":"\u0061\/" }`, n, strings.Repeat("x", 4000))
		id := w.ask(t, s, sent)
		if code, m := resume(t, s, id); code != "SB-APPR-001" {
			t.Errorf("before the yes: %.300s", m.Raw)
		}
		w.say(t, key, id, "approve")
		code, m := resume(t, s, id)
		if code != "" || w.made(t) != before+1 || !strings.Contains(string(m.Result), strings.ReplaceAll(fmt.Sprintf(`"n":%d.50`, n), `"`, `\"`)) {
			t.Errorf("%.500s", m.Raw)
		}
		if code, m := resume(t, s, id); code != "SB-APPR-003" || w.made(t) != before+1 {
			t.Errorf("once more: %.300s", m.Raw)
		}
	})
	ci := w.as(t, "ci", "/mcp", true)
	id := w.ask(t, ci, `{"to":"ops"}`)
	w.say(t, w.keys["boss"], id, "approve")
	_, unknown := resume(t, ci, "aaaaaaaaaaaaaaaa-1")
	for who, s := range map[string]rig.Session{
		"another principal": w.as(t, "cd", "/mcp", true), "another task": w.as(t, "ci", "/mcp/tasks/other", true), "another tenant": w.as(t, "umbrella", "/mcp", true),
	} {
		code, m := resume(t, s, id)
		if code != "SB-APPR-003" || string(m.Result) != string(unknown.Result) {
			t.Errorf("%s: %.400s, and for an unknown request %.400s", who, m.Raw, unknown.Raw)
		}
	}
	if code, m := resume(t, ci, id); code != "" {
		t.Errorf("who asked: %.300s", m.Raw)
	}
	gone := w.ask(t, ci, `{"to":"withdrawn"}`)
	if m, _ := ci.Ask(t, "tools/call", `{"name":"switchboard_resume","arguments":{"request":"`+gone+`","withdraw":true}}`); rig.Code(m) != "" {
		t.Errorf("withdrawn: %.300s", m.Raw)
	}
	if a := w.AskAdmin(t, w.keys["boss"], "POST", "/v1/approvals/"+gone+"/approve", ""); a.Status != http.StatusConflict {
		t.Errorf("approved after it was withdrawn: %d %s", a.Status, a.Body)
	}
}

// askable makes a call as a modern client that servers may ask.
func askable(t *testing.T, s *rig.HTTPSession, params string) rig.Message {
	t.Helper()
	body, extra := s.Request("tools/call", params)
	m, _ := s.Post(t, strings.Replace(body, `"io.modelcontextprotocol/clientCapabilities":{}`, canBeAsked, 1), extra)
	return m
}

func TestAResumedCallTakesTheClientsAnswersToItsServer(t *testing.T) {
	t.Parallel()
	for era, fake := range map[string][]string{"legacy": nil, "modern": {"modern"}} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := serveWaiting(t, "wait: 1s", fake...)
			ci := w.as(t, "ci", "/mcp", true)
			arguments := `{"do":"ask","method":"elicitation/create","params":"{\"message\":\"who?\"}"}`
			id := w.ask(t, ci, arguments)
			w.say(t, w.keys["boss"], id, "approve")
			answer := `"inputResponses":{"1":{"action":"accept","content":{"name":"Ann"}},"` + fakeserver.Key + `":{"action":"accept","content":{"name":"Ann"}}}`
			call := `{"name":"switchboard_resume","arguments":{"request":"` + id + `"}`
			m := askable(t, ci, call+"}")
			if !strings.Contains(string(m.Result), "input_required") {
				t.Fatalf("it does not ask: %.500s", m.Raw)
			}
			m = askable(t, ci, call+`,"requestState":`+field(t, m.Result, "requestState")+`,`+answer+`}`)
			if got := text(t, m); !strings.Contains(got, `"name":"Ann"`) || fake != nil && !strings.Contains(got, fakeserver.State) {
				t.Errorf("the server hears %.500s", m.Raw)
			}
			if code, m := resume(t, ci, id); code != "SB-APPR-003" {
				t.Errorf("once more: %.500s", m.Raw)
			}
		})
	}
}

// AP-01: a hundred callers with one yes, at three processes on one folder, make one call, by the server's own count. See also TestAP01OneYesIsOneExecutionOverThreeReplicas.
func TestAP01OneYesIsOneExecution(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	w := layOutWaiting(t, "wait: 1s")
	const callers = 100
	sessions := make([]*rig.HTTPSession, 12)
	all := []*rig.Gateway{rig.Serve(t, w.dir), rig.Serve(t, w.dir), rig.Serve(t, w.dir)}
	for i := range sessions {
		w.Gateway = all[i%3]
		sessions[i] = w.as(t, "ci", "/mcp", i%2 == 0)
	}
	id := w.ask(t, sessions[0], `{"round":1}`)
	w.say(t, w.keys["boss"], id, "approve")
	var wg sync.WaitGroup
	var good, others atomic.Int64
	for i := range callers {
		s := sessions[i%len(sessions)]
		wg.Go(func() {
			body, extra := s.Request("tools/call", map[bool]string{
				true:  `{"name":"send","arguments":{"round":1}}`,
				false: `{"name":"switchboard_resume","arguments":{"request":"` + id + `"}}`,
			}[i%3 > 0])
			m, _, err := s.Exchange(strings.Replace(body, `"id":7`, fmt.Sprintf(`"id":%d`, 100+i), 1), extra)
			switch code := rig.Code(m); {
			case err != nil:
				t.Error(err)
			case code == "":
				good.Add(1)
			case code == "SB-APPR-001" || code == "SB-APPR-003" || code == "SB-LIFE-004":
				others.Add(1)
			default:
				t.Errorf("%.300s", m.Raw)
			}
		})
	}
	wg.Wait()
	if made := strings.Count(rig.ReadFile(t, w.marks), "\n"); made != 1 || good.Load() != 1 || others.Load() != callers-1 {
		t.Fatalf("%d were executed, %d got a result, %d did not", made, good.Load(), others.Load())
	}
}

// AP-02: a yes is for these arguments, whatever the order of their members, and for no others.
func TestAP02AYesIsForExactlyTheseArguments(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	w := serveWaiting(t, "wait: 1s")
	ci := w.as(t, "ci", "/mcp", true)
	id := w.ask(t, ci, `{"to":"é","n":1,"list":[1,2]}`)
	w.say(t, w.keys["boss"], id, "approve")
	asked := map[string]bool{id: true}
	for _, other := range []string{
		`{"to":"e\u0301","n":1,"list":[1,2]}`, `{"to":"é","n":1.0,"list":[1,2]}`, `{"to":"é","n":1,"list":[2,1]}`, `{"to":"é","n":"1","list":[1,2]}`,
		`{"to":"é","n":1,"list":[1,2],"more":null}`, `{"to":"É","n":1,"list":[1,2]}`, `{"to":"é\u200b","n":1,"list":[1,2]}`,
	} {
		if got := w.ask(t, ci, other); asked[got] {
			t.Errorf("%s has the request of others, %s", other, got)
		} else {
			asked[got] = true
		}
	}
	if made := w.made(t); made != 0 {
		t.Errorf("%d calls were made", made)
	}
	if code := rig.Call(t, ci, "send", `{ "list":[1,2], "n":1, "to":"\u00e9" }`); code != "" || w.made(t) != 1 {
		t.Errorf("the same arguments in another order: %s, made %d", code, w.made(t))
	}
}

// AP-04: what has changed after the yes is not made with it.
func TestAP04AChangeAfterTheYesStopsTheCall(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	w := serveWaiting(t, "wait: 1s")
	ci := w.as(t, "ci", "/mcp", true)
	id := w.ask(t, ci, `{}`)
	w.say(t, w.keys["boss"], id, "approve")
	policy := filepath.Join(w.dir, "tenants/acme/policies/own.rego")
	allow := rig.ReadFile(t, policy)
	for _, tt := range []struct{ name, rule, want string }{
		{"a veto of the call", `deny["a/send"] contains "no" if input.phase == "call"`, "SB-POL-001"},
		{"a veto of this approver", `deny["a/send"] contains "not by the boss" if input.approver.id == "boss"`, "SB-APPR-003"},
		{"another rule asks too", `obligations["a/send"] contains {"type": "require_approval", "quorum": 2}`, "SB-APPR-001"},
	} {
		rig.WriteFile(t, policy, allow+"\n"+tt.rule+"\n")
		w.Reload(t)
		m, _ := ci.Ask(t, "tools/call", `{"name":"send","arguments":{}}`)
		if rig.Code(m) != tt.want || w.made(t) != 0 {
			t.Errorf("%s: %.300s", tt.name, m.Raw)
		}
		if tt.want == "SB-APPR-001" && requestID.FindStringSubmatch(string(m.Raw))[1] == id {
			t.Errorf("%s: the request is the same", tt.name)
		}
	}
	rig.WriteFile(t, policy, allow)
	rig.ReplaceFile(t, filepath.Join(w.dir, "switchboard.yaml"), strings.Replace(rig.ReadFile(t, filepath.Join(w.dir, "switchboard.yaml")), `{\"name\":\"send\",`, `{\"name\":\"send\",\"description\":\"Sends to all.\",`, 1))
	w.Reload(t)
	w.Accept(t, "a", "tool", "send")
	rig.Eventually(t, "the tool has another definition", func() string {
		m, _ := ci.Ask(t, "tools/list", "")
		if !strings.Contains(string(m.Result), "Sends to all.") {
			return string(m.Result)
		}
		return ""
	})
	m, _ := ci.Ask(t, "tools/call", `{"name":"send","arguments":{}}`)
	if code := rig.Code(m); code != "SB-APPR-001" || requestID.FindStringSubmatch(string(m.Raw))[1] == id || w.made(t) != 0 {
		t.Errorf("another definition: %.300s", m.Raw)
	}
	if code, m := resume(t, ci, id); code != "SB-APPR-003" || w.made(t) != 0 {
		t.Errorf("another definition, resumed: %.300s", m.Raw)
	}
}

// AP-05: at three processes, decisions of several people and a withdrawal compete: one of them is first, and all others are told which.
func TestAP05OneStepIsFirst(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.Deterministic)
	eachStore(t, func(t *testing.T, redis *redistest.Server) {
		w := layOutWaiting(t, "wait: 1s")
		start := overStore(t, w.dir, redis)
		all := []*rig.Gateway{start(), start(), start()}
		w.Gateway = all[0]
		for round := range 4 {
			ci := w.as(t, "ci", "/mcp", round%2 == 0)
			id := w.ask(t, ci, fmt.Sprintf(`{"round":%d}`, round))
			var wg sync.WaitGroup
			var firsts atomic.Int64
			for i := range 8 {
				what := map[bool]string{true: "approve", false: "refuse"}[i%2 == 0]
				wg.Go(func() {
					switch a := all[i%3].AskAdmin(t, w.keys["boss"], "POST", "/v1/approvals/"+id+"/"+what, ""); a.Status {
					case http.StatusOK:
						firsts.Add(1)
					case http.StatusConflict:
					default:
						t.Errorf("%s: %d %s", what, a.Status, a.Body)
					}
				})
			}
			wg.Go(func() {
				m, _, err := ci.Exchange(ci.Request("tools/call", `{"name":"switchboard_resume","arguments":{"request":"`+id+`","withdraw":true}}`))
				if err == nil && rig.Code(m) == "" {
					firsts.Add(1)
				}
			})
			wg.Wait()
			if firsts.Load() != 1 {
				t.Errorf("round %d: %d were first", round, firsts.Load())
			}
		}
	})
}

// AP-08: one word differs, so a person is asked again; many repeats of one call are one request and one notice.
func TestAP08AnotherWordIsAnotherRequestAndARepeatIsNone(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.Deterministic)
	o, w := newOncall(t), layOutWaiting(t, "wait: 1s")
	main := filepath.Join(w.dir, "switchboard.yaml")
	rig.WriteFile(t, filepath.Join(w.dir, "whsec"), noticeSecret)
	rig.WriteFile(t, main, rig.ReadFile(t, main)+"notify: {oncall: {url: \""+o.URL+"\", secret: \"${file:whsec}\"}}\n")
	w.Gateway = rig.Serve(t, w.dir)
	ci := w.as(t, "ci", "/mcp", true)
	first := w.ask(t, ci, `{"text":"hello all"}`)
	second := w.ask(t, ci, `{"text":"hello you"}`)
	if first == second {
		t.Error("they are one request")
	}
	w.say(t, w.keys["boss"], first, "refuse")
	began := time.Now()
	for range *approvalRepeats {
		if code := rig.Call(t, ci, "send", `{"text":"hello all"}`); code != "SB-APPR-002" {
			t.Fatal(code)
		}
	}
	t.Logf("%d repeats took %v", *approvalRepeats, time.Since(began))
	if ids := w.pending(t, w.keys["boss"], "acme"); len(ids) != 1 || ids[0] != second {
		t.Errorf("pending: %q", ids)
	}
	if n := strings.Count(w.Logged(), "a person is asked for approval"); n != 2 {
		t.Errorf("the log output has %d requests", n)
	}
	if strings.Contains(w.Logged(), "hello all") {
		t.Error("the log output has arguments")
	}
	about := map[string]int{}
	for _, body := range o.await(t, 3) {
		var n struct {
			Type string
			Data struct{ Request string }
		}
		if err := json.Unmarshal([]byte(body), &n); err != nil {
			t.Fatal(err)
		}
		about[n.Type+" "+n.Data.Request]++
	}
	if about["approval.requested "+first] != 1 || about["approval.requested "+second] != 1 || about["approval.decided "+first] != 1 {
		t.Errorf("people are told %v", about)
	}
}

// AP-09: clients that accept every form, with nothing or something else in it, decide nothing; one that decides does.
func TestAP09AFormWithoutADecisionDecidesNothing(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	w := serveWaiting(t, "wait: 2s, self: true, ask_client: true")
	made := 0
	for _, tt := range people {
		t.Run(tt.name, func(t *testing.T) {
			for i, form := range []map[string]any{{}, {"name": "approve"}, {"decision": "refuse", "note": "too early"}, {"decision": "approve"}} {
				call := tt.connect(t, w.URL+"/mcp", &person{name: "eve", form: form, header: http.Header{"Authorization": {"Bearer " + w.keys["ci"]}}})
				text, err := call(t.Context(), "send", map[string]any{"n": i, "client": tt.name})
				want := "SB-APPR-001"
				switch form["decision"] {
				case "refuse":
					want = "SB-APPR-002"
				case "approve":
					made++
					want = tt.name
				}
				if err != nil && form["decision"] == nil { // a client may refuse to send what does not fit
					t.Logf("%v: %v", form, err)
				} else if !strings.Contains(text, want) {
					t.Errorf("%v: %q %v, want %s", form, text, err, want)
				}
				if w.made(t) != made {
					t.Errorf("%v: %d calls were made, want %d", form, w.made(t), made)
				}
			}
		})
	}
}

// AP-09 on the wire: clients of both eras, over HTTP and stdio, that answer each form with nothing get nothing. No library fills in or checks an answer.
func TestAP09AClientThatAnswersEachFormWithNothingGetsNothing(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	w := serveWaiting(t, "wait: 1s, self: true, ask_client: true")
	empty := []string{`{}`, `{"action":"accept"}`, `{"action":"accept","content":{}}`, `{"action":"accept","content":null}`}
	check := func(t *testing.T, answer string, m rig.Message) {
		t.Helper()
		if rig.Code(m) != "SB-APPR-001" {
			t.Errorf("answer %s: %.300s", answer, m.Raw)
		}
		if n := w.made(t); n != 0 {
			t.Fatalf("answer %s: %d calls were made", answer, n)
		}
	}
	modern := func(t *testing.T, send func(params string) rig.Message) {
		for n, answer := range empty {
			call := fmt.Sprintf(`{"name":"send","arguments":{"n":%d}`, n)
			m := send(call + "}")
			if !strings.Contains(string(m.Result), `"decision"`) {
				t.Fatalf("no form: %.500s", m.Raw)
			}
			check(t, answer, send(call+`,"requestState":`+field(t, m.Result, "requestState")+`,"inputResponses":{"1":`+answer+`}}`))
		}
	}
	t.Run("http/modern", func(t *testing.T) {
		ci := w.as(t, "ci", "/mcp", true)
		modern(t, func(params string) rig.Message { return askable(t, ci, params) })
	})
	t.Run("stdio/modern", func(t *testing.T) {
		s := rig.Stdio(t, w.dir, true, "--tenant", "default")
		modern(t, func(params string) rig.Message {
			s.Next++
			params = strings.Replace(rig.WithMeta(params), `"io.modelcontextprotocol/clientCapabilities":{}`, canBeAsked, 1)
			return s.Send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, s.Next, params))
		})
	})
	t.Run("stdio/legacy", func(t *testing.T) {
		s := rig.StdioAtOnce(t, w.dir, true, "--tenant", "default") // without an initialization of its own
		s.Modern = false
		s.Ask(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}`)
		fmt.Fprintln(s.In, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		s.Ask(t, "tools/list", "")
		for n, answer := range empty {
			fmt.Fprintf(s.In, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"send","arguments":{"legacy":%d}}}`+"\n", 100+n, n)
			for asked := false; ; {
				line, err := s.ReadLine()
				wait.Read(t, "the call's answer", err)
				m := rig.ParseMessage(line)
				if strings.Contains(string(line), `"elicitation/create"`) {
					asked = true
					fmt.Fprintf(s.In, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", field(t, line, "id"), answer)
				} else if m.Result != nil || m.Error != nil {
					if !asked {
						t.Fatalf("no form: %.500s", m.Raw)
					}
					check(t, answer, m)
					break
				}
			}
		}
	})
}

// An agent without a person declines by itself what it is asked. Its call then waits for an approver in the same turn.
func TestACallWaitsForItsApproverAfterItsClientHasDeclined(t *testing.T) {
	t.Parallel()
	w := serveWaiting(t, "wait: 5m, self: true, ask_client: true")
	ci := w.as(t, "ci", "/mcp", true)
	const call = `{"name":"send","arguments":{}`
	m := askable(t, ci, call+"}")
	if !strings.Contains(string(m.Result), `"decision"`) {
		t.Fatalf("no form: %.500s", m.Raw)
	}
	id := w.onlyPending(t, w.keys["boss"], "acme")
	answered := make(chan rig.Message, 1)
	go func() {
		answered <- askable(t, ci, call+`,"requestState":`+field(t, m.Result, "requestState")+`,"inputResponses":{"1":{"action":"cancel"}}}`)
	}()
	select {
	case m := <-answered:
		t.Fatalf("it does not wait: %.500s", m.Raw)
	case <-time.After(time.Second): // a call that does not wait is answered by then, unless the machine is busy
	}
	w.say(t, w.keys["boss"], id, "approve")
	m = wait.Receive(t, "the answer of the call that waited", answered)
	if rig.Code(m) != "" || w.made(t) != 1 {
		t.Errorf("%.500s, made %d times", m.Raw, w.made(t))
	}
}

// AP-12: killed between the yes, its use and the answer, a call is made once at most.
func TestAP12AKillBetweenYesAndAnswerExecutesOnceAtMost(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	eachStore(t, func(t *testing.T, redis *redistest.Server) {
		w := layOutWaiting(t, "wait: 1s")
		start := overStore(t, w.dir, redis)
		w.Gateway = start()
		ci := w.as(t, "ci", "/mcp", redis == nil)
		never := filepath.Join(t.TempDir(), "never")
		arguments := fmt.Sprintf(`{"do":"await","until":%q}`, never)
		id := w.ask(t, ci, arguments)
		w.say(t, w.keys["boss"], id, "approve")
		var wg sync.WaitGroup
		wg.Go(func() { _, _, _ = ci.Exchange(ci.Request("tools/call", `{"name":"send","arguments":`+arguments+`}`)) })
		rig.Eventually(t, "the server has the call", func() string {
			if w.made(t) != 1 {
				return "not yet"
			}
			return ""
		})
		w.Signal(t, syscall.SIGKILL)
		_ = w.Cmd.Wait()
		wg.Wait()
		w.Gateway = start()
		rig.WriteFile(t, never, "")
		ci = w.as(t, "ci", "/mcp", redis == nil)
		if again := w.ask(t, ci, arguments); again == id || w.made(t) != 1 {
			t.Errorf("after the kill it asks for %s, and was made %d times", again, w.made(t))
		}
		code, m := resume(t, ci, id)
		rig.SayStoreIsLate(t, m)
		if code != "SB-APPR-003" || w.made(t) != 1 {
			t.Errorf("resumed after the kill: %.300s", m.Raw)
		}
	})
}
