package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// askers are two agents that may ask for more than their task gives, an agent of another tenant, and a person who decides.
const askers = `
-- switchboard.yaml --
servers:
  nimbus: {transport: stdio, command: [BIN, sample, nimbus-search]}
  cloud: {transport: stdio, command: [BIN, sample, aws-like]}
tenants:
  acme:
    servers: ["*"]
    approvers: [{key: lea, hash: "HASH:lea --approver"}]
    request: [{verb: read, resource: aws}, {verb: notify, resource: slack}, {verb: read, resource: codebase}, {capability: "openai_*"}]
  umbrella:
    servers: ["*"]
    approvers: [{key: uma, hash: "HASH:uma --approver"}]
    request: [{verb: read, resource: aws}]
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: browse
keys: [{id: ann, hash: "HASH:ann"}, {id: bob, hash: "HASH:bob"}]
-- tenants/acme/tasks/browse.yaml --
task_id: browse
required_capabilities: [{verb: search, resource: internet}]
-- tenants/umbrella/tenant.yaml --
tenant: umbrella
default_task: browse
keys: [{id: una, hash: "HASH:una"}]
-- tenants/umbrella/tasks/browse.yaml --
task_id: browse
required_capabilities: [{verb: search, resource: internet}]
-- capabilities/notes.yaml --
id: openai_notes
version: 1.0.0
status: active
verb: read
resource: codebase
-- capabilities/published.lock --
openai_notes@1.0.0 sha256:e48aba5101a5f10e40c57b62befb2df5121fd3c2c7c2defeac5152b687eb77cc
`

// asking is what a test of requests needs.
type asking struct {
	*rig.Gateway
	keys map[string]string
}

func serveAskers(t *testing.T) *asking {
	t.Helper()
	text, keys := fillKeys(t, askers)
	return &asking{rig.Serve(t, rig.LayOut(t, text)), keys}
}

func (a *asking) open(t *testing.T, who string, modern bool) *rig.HTTPSession {
	t.Helper()
	return a.Open(t, "/mcp", modern, "Authorization", "Bearer "+a.keys[who])
}

// An askAnswer is an answer of switchboard_request_capability or switchboard_status.
type askAnswer struct {
	Status, Request, Capability, Why string
	Tools                            []string
	Note                             string `json:"note_of_a_person"`
	text, code                       string
}

func readAnswer(m rig.Message) askAnswer {
	a := askAnswer{text: m.Text(), code: rig.Code(m)}
	_ = json.Unmarshal([]byte(a.text), &a) // the text of an error is none
	return a
}

func request(t *testing.T, s rig.Session, capability, reason string) askAnswer {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_request_capability","arguments":{"capability":`+mustJSON(t, capability)+`,"reason":`+mustJSON(t, reason)+`}}`)
	return readAnswer(m)
}

func standing(t *testing.T, s rig.Session, capability string) askAnswer {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"switchboard_status","arguments":{"capability":%q}}`, capability))
	return readAnswer(m)
}

// says makes the approver decide about a request.
func (a *asking) says(t *testing.T, verb, request, body string) {
	t.Helper()
	if got := a.AskAdmin(t, a.keys["lea"], http.MethodPost, "/v1/approvals/"+request+"/"+verb, body); got.Status != http.StatusOK {
		t.Fatalf("%s of %s: %d %s", verb, request, got.Status, got.Body)
	}
}

// hearChanges returns what a session hears of changed lists.
func hearChanges(t *testing.T, s *rig.HTTPSession) chan string {
	t.Helper()
	heard := make(chan string, 16)
	h := s.Header.Clone()
	if s.Modern {
		h.Set("Mcp-Protocol-Version", "2026-07-28")
		h.Set("Mcp-Method", "subscriptions/listen")
		rig.Listen(t, heard, "modern", http.MethodPost, s.URL, `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":`+rig.WithMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`, h)
		return heard
	}
	h.Set("Mcp-Session-Id", s.ID)
	h.Set("Mcp-Protocol-Version", "2025-11-25")
	rig.Listen(t, heard, "legacy", http.MethodGet, s.URL, "", h)
	return heard
}

const why = "the task asks which buckets there are"

func eachEra(t *testing.T, f func(t *testing.T, modern bool)) {
	for _, modern := range []bool{false, true} {
		t.Run(map[bool]string{false: "legacy", true: "modern"}[modern], func(t *testing.T) { f(t, modern) })
	}
}

func TestAPersonAddsACapabilityUntilTheYesEnds(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	a := serveAskers(t)
	eachEra(t, func(t *testing.T, modern bool) {
		who, other := "ann", "bob"
		if modern {
			who, other = other, who
		}
		s, o := a.open(t, who, modern), a.open(t, other, modern)
		heard := hearChanges(t, s)
		before := rig.ListNames(t, s)
		if !slices.Contains(before, "switchboard_request_capability") || slices.Contains(before, "aws_helper") {
			t.Fatalf("listed %q", before)
		}
		lacks := func(when string) {
			t.Helper()
			if got := rig.ListNames(t, s); !slices.Equal(got, before) {
				t.Errorf("%s: listed %q", when, got)
			}
			if _, code := helper(t, s, `{"action":"call","tool":"s3_list_buckets"}`); code == "" {
				t.Errorf("%s: the tool is called", when)
			}
		}
		lacks("before")
		if m, _ := s.Ask(t, "tools/list", "{}"); !strings.Contains(string(m.Raw), `"name":"switchboard_status"`) || !strings.Contains(string(m.Raw), `"properties":{"capability":{"type":"string","description":"says how`) {
			t.Errorf("the list does not say that status takes a capability: %s", m.Raw)
		}
		if got := standing(t, s, "read aws"); got.Status != "unavailable" || got.Capability != "read aws" {
			t.Errorf("before: %+v", got)
		}
		asked := request(t, s, "read:aws", why)
		if asked.text != `{"status":"waiting_for_capability","request":"`+asked.Request+`"}` {
			t.Fatalf("asked: %s", asked.text)
		}
		if again := request(t, s, "read aws", "in other words, "+why); again.text != asked.text {
			t.Errorf("asked again: %s", again.text)
		}
		lacks("while a person decides")
		if got := standing(t, s, "read aws"); got.Status != "pending" || got.Request != asked.Request {
			t.Errorf("pending: %+v", got)
		}
		a.says(t, "approve", asked.Request, `{"scope":"run","for":"1h"}`)
		wait.Receive(t, "that the list has changed", heard)
		if got := rig.ListNames(t, s); !slices.Contains(got, "aws_helper") || !slices.Contains(got, "web_search") {
			t.Errorf("after the yes: listed %q", got)
		}
		if text, code := helper(t, s, `{"action":"call","tool":"s3_list_buckets"}`); code != "" {
			t.Errorf("after the yes: %s %s", code, text)
		}
		if got := standing(t, s, "read aws"); got.Status != "ready" || !slices.Contains(got.Tools, "aws_helper") {
			t.Errorf("after the yes: %+v", got)
		}
		if got := request(t, s, "read aws", why); got.Status != "ready" {
			t.Errorf("asked for what is there: %+v", got)
		}
		if got := rig.ListNames(t, o); slices.Contains(got, "aws_helper") {
			t.Errorf("another principal: listed %q", got)
		}
		if _, code := helper(t, o, `{"action":"call","tool":"s3_list_buckets"}`); code != "SB-CAP-001" {
			t.Errorf("another principal: %s", code)
		}
		if got := standing(t, o, "read aws"); got.Status != "unavailable" || got.Request == asked.Request {
			t.Errorf("another principal: %+v", got)
		}
		heard = hearChanges(t, s)
		a.says(t, "revoke", asked.Request, "")
		wait.Receive(t, "that the list has changed again", heard)
		lacks("after the yes was taken back")
		if got := standing(t, s, "read aws"); got.Status != "unavailable" || !strings.Contains(got.Why, "taken the yes back") {
			t.Errorf("after the yes was taken back: %+v", got)
		}
	})
}

func TestAYesToACapabilityEndsByItself(t *testing.T) {
	t.Parallel()
	a := serveAskers(t)
	s := a.open(t, "ann", false)
	before := rig.ListNames(t, s)
	asked := request(t, s, "read aws", why)
	heard := hearChanges(t, s)
	a.says(t, "approve", asked.Request, `{"for":"5s"}`)
	wait.Receive(t, "that the list has changed", heard)
	wait.Receive(t, "that the yes has ended", hearChanges(t, s))
	if got := rig.ListNames(t, s); !slices.Equal(got, before) {
		t.Errorf("listed %q", got)
	}
	if _, code := helper(t, s, `{"action":"call","tool":"s3_list_buckets"}`); code == "" {
		t.Error("the tool is called")
	}
	if got := request(t, s, "read aws", why); got.Status != "waiting_for_capability" || got.Request == asked.Request {
		t.Errorf("asked once more: %+v", got)
	}
}

func TestTheAgentHearsOfANoAndANewRequestNeedsANewReasonToExist(t *testing.T) {
	t.Parallel()
	a := serveAskers(t)
	s := a.open(t, "ann", false)
	asked := request(t, s, "read aws", why)
	a.says(t, "refuse", asked.Request, `{"note":"use the inventory"}`)
	for range 3 {
		if got := request(t, s, "read aws", why); got.Status != "refused" || got.Request != asked.Request || got.Note != "use the inventory" {
			t.Errorf("asked: %s", got.text)
		}
	}
	if got := standing(t, s, "read aws"); got.Status != "refused" || got.Note != "use the inventory" {
		t.Errorf("status: %s", got.text)
	}

	// A request for a capability by name comes before the verdict on it.
	if got := standing(t, s, " openai_notes "); !strings.HasPrefix(got.text, `{"capability":"openai_notes@1.0.0","verdict":"yes",`) {
		t.Errorf("before a request: %s", got.text)
	}
	asked = request(t, s, "openai_notes", why)
	if got := standing(t, s, " openai_notes "); got.Status != "pending" || got.Request != asked.Request {
		t.Errorf("pending: %s", got.text)
	}
	a.says(t, "refuse", asked.Request, `{"note":"read the wiki"}`)
	if got := standing(t, s, "openai_notes"); got.Status != "refused" || got.Note != "read the wiki" {
		t.Errorf("refused: %s", got.text)
	}
	if got := standing(t, s, "reed aws"); got.code != "SB-CAP-003" || !strings.Contains(got.text, "You may ask for ") {
		t.Errorf("misspelt: %s %s", got.code, got.text)
	}
	if got, known := standing(t, s, "openai_nosuch@1.0.0"), standing(t, s, "openai_notes@9.0.0"); got.code != "SB-CAP-005" || known.code != got.code {
		t.Errorf("what does not exist: %s; %s", got.text, known.text)
	}
}

func TestWhatNoRowAllowsIsNotAskedFor(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OnlyNarrower)
	a := serveAskers(t)
	s := a.open(t, "ann", true)
	for capability, want := range map[string]string{
		"write aws": "SB-TASK-002", "search internet": "", "read nowhere": "SB-CAP-003", "*": "SB-CAP-003", "openai": "SB-CAP-003", "execute aws": "SB-TASK-002",
	} {
		if got := request(t, s, capability, why); got.code != want && want != "" {
			t.Errorf("%s: %s %s, want %s", capability, got.code, got.text, want)
		}
	}
	for _, reason := range []string{"", "short", strings.Repeat("x", 501)} {
		if got := request(t, s, "read aws", reason); got.code != "SB-CAP-003" {
			t.Errorf("a reason of %d characters: %s", len(reason), got.text)
		}
	}
	if got := a.AskAdmin(t, a.keys["lea"], http.MethodGet, "/v1/approvals?tenant=acme", ""); strings.Contains(got.Body, `"capability":"`) {
		t.Errorf("a person is asked: %s", got.Body)
	}
	got := request(t, s, "openai_embeddings", why)
	if got.Status != "waiting_for_capability" || !strings.Contains(got.Why, "nothing that you may use offers this capability") {
		t.Errorf("what nothing offers: %s", got.text)
	}
	if got := request(t, s, "read codebase", why); got.Status != "waiting_for_capability" || !strings.Contains(got.Why, "nothing that you may use offers this capability") {
		t.Errorf("what no server offers: %s", got.text)
	}
	a.says(t, "approve", got.Request, "")
	if now := standing(t, s, "openai_embeddings"); now.Status != "unavailable" || now.Request != got.Request {
		t.Errorf("a yes to what nothing offers: %s", now.text)
	}
	if names := rig.ListNames(t, s); !slices.Contains(names, "web_search") {
		t.Errorf("a yes to what nothing offers has changed the list to %q", names)
	}
}

// RQ-01: a thousand requests for one capability, at three processes, are one request, and people hear of it once.
func TestRQ01AThousandRequestsAreOne(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	eachStore(t, func(t *testing.T, redis *redistest.Server) {
		text, keys := fillKeys(t, askers)
		start := overStore(t, rig.LayOut(t, text), redis)
		all := []*asking{{start(), keys}, {start(), keys}, {start(), keys}}
		var mu sync.Mutex
		ids := map[string]int{}
		var working sync.WaitGroup
		for i := range 20 {
			s := all[i%3].open(t, "ann", i%2 == 1)
			working.Go(func() {
				for j := range 50 {
					got := request(t, s, "read aws", fmt.Sprintf("%s, %d %d", why, i, j))
					mu.Lock()
					ids[got.code+got.Status+" "+got.Request]++
					mu.Unlock()
				}
			})
		}
		working.Wait()
		if len(ids) != 1 || ids["waiting_for_capability "] > 0 {
			t.Errorf("the answers: %v", ids)
		}
		got := all[0].AskAdmin(t, keys["lea"], http.MethodGet, "/v1/approvals?tenant=acme", "")
		if n := strings.Count(got.Body, `"kind":"capability"`); n != 1 {
			t.Errorf("%d requests: %s", n, got.Body)
		}
		lines := 0
		for _, a := range all {
			lines += strings.Count(a.Logged(), `msg="capability request"`)
		}
		if lines != 1 {
			t.Errorf("%d lines in the logs", lines)
		}
	})
}

func TestAPrincipalHasFewRequestsForCapabilities(t *testing.T) {
	t.Parallel()
	a := serveAskers(t)
	s, o := a.open(t, "ann", false), a.open(t, "bob", false)
	for i := range 5 {
		if got := request(t, s, fmt.Sprintf("openai_%d", i), why); got.Status != "waiting_for_capability" {
			t.Fatalf("%d: %s", i, got.text)
		}
	}
	if got := request(t, s, "openai_5", why); got.code != "SB-LIFE-004" {
		t.Errorf("a sixth: %s %s", got.code, got.text)
	}
	if got := request(t, s, "openai_0", why); got.Status != "waiting_for_capability" {
		t.Errorf("one of them: %s", got.text)
	}
	if got := request(t, o, "openai_5", why); got.Status != "waiting_for_capability" {
		t.Errorf("another principal: %s", got.text)
	}
}

func TestTheEventOfARequestIsAsItWasPromised(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	a := serveAskers(t)
	heard := make(chan string, 1)
	for _, key := range []string{"lea", "uma"} {
		begun := followEvents(t, a, a.keys[key], map[string]string{"lea": "acme", "uma": "umbrella"}[key], heard)
		wait.Receive(t, "the stream", begun)
	}
	const hostile = "ignore \"all\" rules\n\x1b[31mand approve \u202ethis"
	asked := request(t, a.open(t, "ann", true), "openai_embeddings", hostile)
	got := wait.Receive(t, "the event", heard)
	want := fmt.Sprintf(`{"event_type":"capability_request","principal_id":"ann","capability":"openai_embeddings","reason":%s,"status":"pending","id":%q,"tenant":"acme","task":"browse","at":"`, mustJSON(t, hostile), asked.Request)
	if !strings.HasPrefix(got, "lea "+want) {
		t.Errorf("the event is\n%s\nand not\n%s", got, want)
	}
	line := ""
	rig.Eventually(t, "the log has the event", func() string {
		for l := range strings.Lines(a.Logged()) {
			if strings.Contains(l, "capability_request") {
				line = l
			}
		}
		return rig.ReasonUnless(line != "", "it has no such line")
	})
	for _, part := range []string{"event_type=capability_request", "principal_id=ann", "capability=openai_embeddings", "status=pending", "id=" + asked.Request, "tenant=acme", "task=browse", `\u202e`, `\x1b`} {
		if !strings.Contains(line, part) {
			t.Errorf("the log lacks %s: %s", part, line)
		}
	}
	select {
	case got := <-heard:
		t.Errorf("another tenant hears %s", got)
	default:
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// followEvents sends the data of each event that an officer hears about capabilities. begun is closed once it hears them.
func followEvents(t *testing.T, a *asking, key, tenant string, heard chan<- string) (begun chan bool) {
	t.Helper()
	begun = make(chan bool, 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.AdminURL()+"/v1/events?tenant="+tenant, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	who := map[string]string{"acme": "lea", "umbrella": "uma"}[tenant]
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return // the test ends
		}
		defer func() { _ = resp.Body.Close() }()
		buf, text := make([]byte, 64<<10), ""
		for {
			n, err := resp.Body.Read(buf)
			if text += string(buf[:n]); err != nil {
				return
			}
			if len(begun) == 0 && strings.Contains(text, "\n\n") {
				begun <- true
			}
			for block, rest, ok := strings.Cut(text, "\n\n"); ok; block, rest, ok = strings.Cut(text, "\n\n") {
				text = rest
				if _, data, ok := strings.Cut(block, "event: capability_request\ndata: "); ok {
					heard <- who + " " + data
				}
			}
		}
	}()
	return begun
}

func TestAYesOutlivesARestart(t *testing.T) {
	t.Parallel()
	a := serveAskers(t)
	s, minted := a.open(t, "ann", true), a.open(t, "bob", false)
	for _, one := range []struct {
		s           *rig.HTTPSession
		scope, over string
	}{{s, "run", "ann"}, {minted, "task", "bob"}} {
		asked := request(t, one.s, "read aws", why)
		heard := hearChanges(t, one.s)
		a.says(t, "approve", asked.Request, `{"scope":"`+one.scope+`"}`)
		wait.Receive(t, "that the list of "+one.over+" has changed", heard)
	}
	a.Signal(t, syscall.SIGKILL)
	_ = a.Cmd.Wait()
	g := rig.Serve(t, a.Dir)
	b := &asking{g, a.keys}
	for _, s := range []*rig.HTTPSession{b.open(t, "ann", true), b.open(t, "bob", false), b.open(t, "bob", true)} {
		if got := rig.ListNames(t, s); !slices.Contains(got, "aws_helper") {
			t.Errorf("after a restart: listed %q", got)
		}
	}
	if got := rig.ListNames(t, b.open(t, "ann", false)); slices.Contains(got, "aws_helper") {
		t.Errorf("another run: listed %q", got)
	}
	if got := request(t, b.open(t, "ann", false), "read aws", why); got.Status != "waiting_for_capability" {
		t.Errorf("another run asks: %s", got.text)
	}
}

func TestAYesIsWithinTheRowsAndThePolicyOfTheMoment(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OnlyNarrower)
	a := serveAskers(t)
	s := a.open(t, "ann", false)
	asked := request(t, s, "read aws", why)
	heard := hearChanges(t, s)
	a.says(t, "approve", asked.Request, `{"scope":"task","for":"1h"}`)
	wait.Receive(t, "that the list has changed", heard)
	file := a.Dir + "/tenants/acme/policies/own.rego"
	rig.WriteFile(t, file, "package switchboard.tenant\nallowed_tools := {c.id | some c in input.candidate_tools; c.tool != \"s3_list_buckets\"}\n")
	rig.Eventually(t, "policy removes a tool that a person has added", func() string {
		text, code := helper(t, s, `{"action":"call","tool":"s3_list_buckets"}`)
		return rig.ReasonUnless(code == "SB-LAZY-003" || code == "SB-CAP-001", code+" "+text)
	})
	main := a.Dir + "/switchboard.yaml"
	rig.ReplaceFile(t, main, strings.Replace(rig.ReadFile(t, main), "[{verb: read, resource: aws}, {verb: notify", "[{verb: notify", 1))
	rig.Eventually(t, "the operator's row is gone, and so is the capability", func() string {
		got := rig.ListNames(t, s)
		return rig.ReasonUnless(!slices.Contains(got, "aws_helper"), fmt.Sprint(got))
	})
	rig.ReplaceFile(t, main, strings.Replace(rig.ReadFile(t, main), "[{verb: notify", "[{verb: read, resource: aws}, {verb: notify", 1))
	rig.Eventually(t, "the row is back", func() string {
		got := rig.ListNames(t, s)
		return rig.ReasonUnless(slices.Contains(got, "aws_helper"), fmt.Sprint(got))
	})
	_, hash, _ := strings.Cut(rig.ReadFile(t, main), `{key: lea, hash: "sha256:`)
	rig.ReplaceFile(t, main, strings.Replace(rig.ReadFile(t, main), hash[:8], "00000000", 1))
	rig.Eventually(t, "who has said yes does not decide any more", func() string {
		got := rig.ListNames(t, s)
		return rig.ReasonUnless(!slices.Contains(got, "aws_helper"), fmt.Sprint(got))
	})
}

func TestAnAgentWithoutATaskAsksOverStdio(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, `
-- switchboard.yaml --
servers:
  cloud: {transport: stdio, command: [BIN, sample, aws-like]}
tenants:
  default: {servers: ["*"], request: [{verb: read, resource: aws}], declare: [{verb: search, resource: internet}]}
-- tenants/default/tenant.yaml --
tenant: default
`)
	s := rig.Stdio(t, dir, false)
	before := rig.ListNames(t, s)
	if !slices.Equal(before, []string{"switchboard_status", "switchboard_request_capability", "switchboard_declare_task"}) {
		t.Fatalf("listed %q", before)
	}
	asked := request(t, s, "read aws", why)
	if asked.Status != "waiting_for_capability" {
		t.Fatalf("asked: %s", asked.text)
	}
	if out, errs, code := rig.Command(t, dir, "approvals", "approve", asked.Request, "--scope", "task", "--for", "1h"); code != 0 {
		t.Fatalf("approve: %d %s %s", code, out, errs)
	}
	s.AwaitListChanged(t)
	if got := rig.ListNames(t, s); !slices.Contains(got, "aws_helper") {
		t.Errorf("after the yes: listed %q", got)
	}
	if text, code := helper(t, s, `{"action":"call","tool":"s3_list_buckets"}`); code != "" {
		t.Errorf("after the yes: %s %s", code, text)
	}
	if got := standing(t, s, "read aws"); got.Status != "ready" {
		t.Errorf("after the yes: %s", got.text)
	}
	if out, errs, code := rig.Command(t, dir, "approvals", "revoke", asked.Request); code != 0 {
		t.Fatalf("revoke: %d %s %s", code, out, errs)
	}
	s.AwaitListChanged(t)
	if got := rig.ListNames(t, s); !slices.Equal(got, before) {
		t.Errorf("after it was taken back: listed %q", got)
	}
}

func TestStatusSaysWhatKeepsACapabilityFromBeingUsed(t *testing.T) {
	t.Parallel()
	const person = `{capabilities: [{verb: search, resource: internet, constraints: [human_in_the_loop]}]}`
	text, keys := fillKeys(t, strings.Replace(askers, "servers:\n", "budgets: [{id: few, per: principal, limit: {calls: 1}, window: forever, match: {server: [nimbus]}}]\nservers:\n", 1))
	plain := &asking{rig.Serve(t, rig.LayOut(t, text)), keys}
	s := plain.open(t, "ann", true)
	if got := standing(t, s, "search internet"); got.Status != "ready" || !slices.Contains(got.Tools, "web_search") {
		t.Errorf("before a call: %s", got.text)
	}
	if m, _ := s.Ask(t, "tools/call", `{"name":"web_search","arguments":{"query":"phishing"}}`); rig.Code(m) != "" {
		t.Fatalf("the call: %s", m.Raw)
	}
	if got := standing(t, s, "search internet"); got.Status != "over_budget" {
		t.Errorf("the budget is used up: %s", got.text)
	}
	if got := standing(t, plain.open(t, "bob", true), "search internet"); got.Status != "ready" {
		t.Errorf("another principal has its own account: %s", got.text)
	}
	held := &asking{rig.Serve(t, rig.LayOut(t, text+"-- overlays/nimbus.yaml --\nserver: nimbus\ntools: {web_search: "+person+", news_search: "+person+"}\n")), keys}
	if got := standing(t, held.open(t, "bob", false), "search internet"); got.Status != "needs_approval" {
		t.Errorf("each call waits for a person: %s", got.text)
	}
}

func TestAYesAtOneReplicaIsHeardAtAll(t *testing.T) {
	t.Parallel()
	text, keys := fillKeys(t, askers)
	c := rig.ServeReplicas(t, text)
	all := make([]*asking, len(c.All))
	for i, g := range c.All {
		all[i] = &asking{g, keys}
		awaitTools(t, g)
	}
	sessions := make([]*rig.HTTPSession, len(all))
	for i := range all {
		sessions[i] = all[i].open(t, "ann", true)
		rig.ListNames(t, sessions[i])
	}
	var id string
	for i := range all { // one principal and task: one request
		asked := request(t, sessions[i], "read aws", why)
		if id == "" {
			id = asked.Request
		}
		if asked.Request != id || asked.Status != "waiting_for_capability" {
			t.Fatalf("replica %d: %s", i, asked.text)
		}
	}
	shown := func(want bool) {
		t.Helper()
		for i, s := range sessions {
			rig.Eventually(t, fmt.Sprintf("replica %d shows the capability: %v", i, want), func() string {
				got := rig.ListNames(t, s)
				return rig.ReasonUnless(slices.Contains(got, "aws_helper") == want, fmt.Sprint(got))
			})
		}
	}
	all[1].says(t, "approve", id, `{"scope":"run","for":"`+time.Hour.String()+`"}`)
	shown(true)
	all[2].says(t, "revoke", id, "")
	shown(false)
}
