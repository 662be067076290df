package served_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A receipt is what the tests look at of one.
type receiptLine struct {
	ID    string
	Entry struct {
		Receipt struct {
			Time, Kind, Method, Tool, Server, Arguments, Outcome, Code, Of, Decision, Basis, Note string
			Tools                                                                                 []string
			Effect                                                                                bool
			ServedBy                                                                              string `json:"served_by"`
			Tries                                                                                 []struct{ Tool, Of string }
		}
	}
}

// receipts lists those of a folder, the oldest first.
func receipts(t *testing.T, dir string, args ...string) (all []receiptLine) {
	t.Helper()
	out, errs, code := rig.Command(t, dir, append([]string{"receipts", "export"}, args...)...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	return exported(t, out)
}

// exported returns the receipts that export has printed.
func exported(t *testing.T, out string) (all []receiptLine) {
	t.Helper()
	for line := range strings.Lines(out) {
		var one receiptLine
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

// AU-05: whatever becomes of a call, it has one receipt of how it ended, and one of its
// intent if it was sent and may have an effect.
func TestEveryCallHasOneReceiptOfItsEnd(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	dir := rig.LayOut(t, samples)
	g := rig.Serve(t, dir)
	calls := 0
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		for _, params := range []string{
			`{"name":"web_search","arguments":{"query":"x"}}`,
			`{"name":"no_such_tool","arguments":{}}`,
			`{"name":"watch_web","arguments":{"query":"x"}}`,       // another server's, and hidden
			"{\"name\":\"\\u001b[31m\\nforged\",\"arguments\":{}}", // AU-04
			`{"name":"web_search","arguments":{"query":17}}`,
		} {
			_, _ = s.Ask(t, "tools/call", params)
			calls++
		}
	}
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	n, turnedAway := 0, ""
	for _, r := range receipts(t, dir) {
		got := r.Entry.Receipt
		switch got.Kind {
		case "call":
			n++
			if got.Outcome == "" || got.Decision == "" || got.Basis == "" || got.Effect != (got.Of != "") {
				t.Errorf("%+v", r)
			}
			if got.Outcome == "refused" && got.Of != "" {
				t.Errorf("it was not sent, and has an intent: %+v", r)
			}
			if got.Code == "SB-CAP-001" {
				turnedAway += got.Tool + " "
			}
		}
	}
	const odd = "hmac-sha256:" // what does not read as a name has a digest in its place
	if strings.Count(turnedAway, "no_such_tool watch_web "+odd) != 2 || strings.Count(turnedAway, " ") != 6 {
		t.Errorf("turned away were %q", turnedAway)
	}
	if n != calls {
		t.Errorf("%d calls have %d receipts of their end", calls, n)
	}
	checkIntents(t, receipts(t, dir))
	if out, errs, code := rig.Command(t, dir, "receipts", "verify"); code != 0 {
		t.Errorf("%s%s", out, errs)
	}
	if out, errs, code := rig.Command(t, dir, "receipts", "replay"); code != 0 || !strings.Contains(out, "the same to the byte") {
		t.Errorf("%s%s", out, errs)
	}
}

// checkIntents checks that there are intents, and that one receipt of a call names each, as that of an attempt at the intent's server.
func checkIntents(t *testing.T, all []receiptLine) {
	t.Helper()
	named := map[string][]string{} // the servers of the attempts, by the id of the intent
	for _, e := range all {
		r := e.Entry.Receipt
		if r.Kind != "call" {
			continue
		}
		by := r.Server
		if r.ServedBy != "" {
			by, _, _ = strings.Cut(r.ServedBy, "/")
		}
		named[r.Of] = append(named[r.Of], by)
		for _, try := range r.Tries {
			by, _, _ := strings.Cut(try.Tool, "/")
			named[try.Of] = append(named[try.Of], by)
		}
	}
	if !slices.ContainsFunc(all, func(e receiptLine) bool { return e.Entry.Receipt.Kind == "intent" }) {
		t.Error("no call has an intent")
	}
	for _, e := range all {
		if r := e.Entry.Receipt; r.Kind == "intent" && !slices.Equal(named[e.ID], []string{r.Server}) {
			t.Errorf("the intent %s at %s is named by attempts at %q", e.ID, r.Server, named[e.ID])
		}
	}
}

// Law 9, SB-RCPT-001: what may have an effect is not done where it cannot be recorded, and
// what only reads is.
func TestNothingIsDoneThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	dir := rig.LayOut(t, samples)
	full := filepath.Join(dir, ".switchboard")
	if err := os.MkdirAll(full, 0o700); err != nil {
		t.Fatal(err)
	}
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true)
	if m, _ := s.Ask(t, "tools/call", `{"name":"web_search","arguments":{"query":"x"}}`); m.Error != nil {
		t.Fatal(m.Raw)
	}
	rig.Eventually(t, "all of it has receipts", func() string { // so that what is written next is an intent
		kinds := map[string]bool{}
		for _, r := range receipts(t, dir) {
			kinds[r.Entry.Receipt.Kind] = true
		}
		if !kinds["decision"] || !kinds["call"] {
			return fmt.Sprint(kinds)
		}
		return ""
	})
	// Another process goes on with the chain: this one must not write to it any more.
	fence(t, filepath.Join(full, "store.db"))
	refused := false
	for i := range 20 {
		m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"web_search","arguments":{"query":"q%d"}}`, i))
		if strings.Contains(string(m.Raw), "SB-RCPT-001") {
			refused = true
		}
	}
	if !refused {
		t.Error("nothing was refused while another process wrote the chain")
	}
	rig.Eventually(t, "it goes on with another chain", func() string {
		m, _ := s.Ask(t, "tools/call", `{"name":"web_search","arguments":{"query":"again"}}`)
		if m.Error != nil || strings.Contains(string(m.Raw), "SB-RCPT-001") {
			return string(m.Raw)
		}
		return ""
	})
}

// Receipts of calls that only read are made while nobody may write the chain: what is lost of
// them is counted, in /metrics and status, and the chain that is gone on with says how many.
func TestReceiptsThatAreLostAreCountedAndARecordSaysSo(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	dir := rig.LayOut(t, judged)
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true)
	read := func() {
		t.Helper()
		if m, _ := s.Ask(t, "tools/call", `{"name":"find","arguments":{}}`); m.Error != nil || rig.Code(m) != "" {
			t.Fatalf("a call that reads: %s", m.Raw)
		}
	}
	const lost = "switchboard_records_lost_total"
	read()
	if _, values := g.Metrics(); values[lost] != 0 {
		t.Fatalf("%g are lost before anything is", values[lost])
	}
	fence(t, filepath.Join(dir, ".switchboard", "store.db"))
	rig.Eventually(t, "receipts are lost, and it goes on with another chain", func() string {
		read()
		if _, values := g.Metrics(); values[lost] == 0 {
			return "none is"
		}
		if !strings.Contains(g.Logged(), "we continue with another") {
			return "it does not"
		}
		return ""
	})
	type said struct {
		Entry struct {
			Receipt struct {
				Lost struct{ Receipts int }
			}
		}
	}
	rig.Eventually(t, "a receipt says how many", func() string {
		read()
		_, values := g.Metrics()
		out, errs, _ := rig.Command(t, dir, "receipts", "export", "--kind", "lost")
		var sum int
		for line := range strings.Lines(out) {
			var one said
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			sum += one.Entry.Receipt.Lost.Receipts
		}
		if sum == 0 || float64(sum) != values[lost] {
			return fmt.Sprintf("%d are said to be, and %g are counted\n%s%s", sum, values[lost], out, errs)
		}
		return ""
	})
	_, values := g.Metrics()
	g.Do(0, fmt.Sprintf(`%g records? lost: they were created faster`, values[lost]), "status")
}

// Of the chains in a shared store, one that is not as it was left is let alone, and keeps
// nobody from serving.
func TestADamagedChainInASharedStoreIsPassedOver(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	dir := rig.LayOut(t, strings.Replace(samples, "-- switchboard.yaml --\n", fmt.Sprintf(`-- secret --
what all of them know
-- switchboard.yaml --
store: %q
cluster: {secret: "${file:secret}", listen: "127.0.0.1:0"}
`, redis.URL()), 1))
	st, err := store.Open(t.Context(), redis.URL(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, log := range []string{"receipts/r1", "receipts/r2"} {
		if err := st.Append(t.Context(), log, 0, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	g := rig.Serve(t, dir)
	if m, _ := g.Open(t, "/mcp", true).Ask(t, "tools/call", `{"name":"web_search","arguments":{"query":"x"}}`); rig.Code(m) != "" {
		t.Errorf("%s", m.Raw)
	}
	if log := g.Logged(); !strings.Contains(log, "node=r1") || !strings.Contains(log, "node=r2") {
		t.Errorf("it does not say which chains it has passed over:\n%s", log)
	}
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	out, _, code := rig.Command(t, dir, "receipts", "verify")
	if code != 1 || !strings.Contains(out, "r1: NOT AS IT WAS WRITTEN: entry 1: ") || !strings.Contains(out, "r3: as it was written: 1 to ") {
		t.Errorf("exit %d: %s", code, out)
	}
}

// fence writes to the chain of the first node of a store, as another process would.
func fence(t *testing.T, path string) {
	t.Helper()
	st, err := store.OpenFile(path, store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }() // what it has written is durable
	rig.Eventually(t, "another process writes", func() string {
		span, err := st.Span(t.Context(), "receipts/n1")
		if err == nil {
			err = st.Append(t.Context(), "receipts/n1", span.Last, []byte("{}"))
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// judged is a configuration in which much is refused.
const judged = `
-- switchboard.yaml --
servers:
  desk: {transport: stdio, trust: operator, command: [FAKE, '{"name":"post","inputSchema":{"type":"object"}}', '{"name":"find","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}']}
  cloud: {transport: stdio, command: [BIN, sample, aws-like]}
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: work
-- tenants/default/tasks/work.yaml --
task_id: work
token_budget: 700
required_capabilities:
  - {tools: ["desk/*"]}
  - {verb: read, resource: aws, load: on_demand, group: aws, stub: aws_helper}
-- tenants/default/tasks/impossible.yaml --
task_id: impossible
required_capabilities:
  - {verb: write, resource: knowledge_graph}
-- tenants/default/policies/own.rego --
package switchboard.tenant
allowed_tools := {c.id | some c in input.candidate_tools}
deny[c.id] contains "no" if { some c in input.candidate_tools; input.call.arguments.a == "no" }
deny["cloud/ec2_describe_instances"] contains "no" if input.phase == "expand"
`

// receiptIn is the id of its receipt that a refusal gives; "" where it gives none.
func receiptIn(m rig.Message) string {
	var data struct{ Receipt string }
	var result struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	if m.Error != nil {
		_ = json.Unmarshal(m.Error.Data, &data)
	} else if json.Unmarshal(m.Result, &result) == nil {
		_ = json.Unmarshal(result.Meta["io.switchboard/error"], &data)
	}
	return data.Receipt
}

// Part 06: whoever is refused is told which receipt says so, in both eras, unless what it
// asked for does not exist for it.
func TestARefusalNamesItsReceipt(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, judged)
	g := rig.Serve(t, dir)
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		for _, tt := range []struct{ name, params, code, kind string }{
			{"a call that policy denies", `{"name":"post","arguments":{"a":"no"}}`, "SB-POL-001", "call"},
			{"one that only reads", `{"name":"find","arguments":{"a":"no"}}`, "SB-POL-001", "call"},
			{"one whose server ends", `{"name":"post","arguments":{"do":"die"}}`, "SB-EXEC-004", "call"},
			{"a tool that is not expanded, with arguments that do not fit", `{"name":"s3_get_object","arguments":{}}`, "SB-LAZY-004", "call"},
			{"a tool that may not be expanded", `{"name":"ec2_describe_instances","arguments":{}}`, "SB-LAZY-002", "call"},
			{"what is not in the group", `{"name":"aws_helper","arguments":{"action":"call","tool":"nosuch"}}`, "SB-LAZY-003", "call"},
			{"an expansion of what is not in the group", `{"name":"aws_helper","arguments":{"action":"expand","tools":["nosuch"]}}`, "SB-LAZY-003", "expand"},
			{"one that policy denies", `{"name":"aws_helper","arguments":{"action":"expand","tools":["ec2_describe_instances"]}}`, "SB-LAZY-002", "expand"},
			{"one for which there is no room", `{"name":"aws_helper","arguments":{"action":"expand","service":"s3"}}`, "SB-LAZY-001", "expand"},
			{"a tool that there is not", `{"name":"nosuch","arguments":{}}`, "SB-CAP-001", ""},
		} {
			m, _ := s.Ask(t, "tools/call", tt.params)
			refusedWith(t, dir, fmt.Sprintf("%s, modern %v", tt.name, modern), m, tt.code, tt.kind)
		}
	}
	m, _ := g.Open(t, "/mcp/tasks/impossible", true).Ask(t, "tools/list", "")
	refusedWith(t, dir, "a task that cannot be met, modern", m, "SB-CAP-004", "decision")
	legacy := &rig.HTTPSession{URL: g.URL + "/mcp/tasks/impossible"}
	m = legacy.Send(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	refusedWith(t, dir, "a task that cannot be met, legacy", m, "SB-CAP-004", "decision")
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/v1/tasks/impossible/runs", nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	m = rig.ParseMessage([]byte(`{"error":{"code":1,"data":` + string(text) + `}}`))
	refusedWith(t, dir, "a run of it", m, "SB-CAP-004", "decision")
}

// refusedWith checks that the answer is a refusal with the code, and that its receipt, where
// it has one, is of the kind and says the same.
func refusedWith(t *testing.T, dir, what string, m rig.Message, code, kind string) {
	t.Helper()
	id := receiptIn(m)
	if got := rig.Code(m); got != code || (id == "") != (kind == "") {
		t.Errorf("%s: %q with the receipt %q, want %q: %s", what, got, id, code, m.Raw)
	}
	if id == "" {
		return
	}
	rig.Eventually(t, what+" has a receipt", func() string {
		out, errs, exit := rig.Command(t, dir, "receipts", "show", id)
		if exit != 0 || !strings.Contains(out, `"code": "`+code+`"`) || !strings.Contains(out, `"kind": "`+kind+`"`) {
			return out + errs
		}
		return ""
	})
}

// One receipt for each expansion and collapse that has changed something, and for each that
// was refused: of which tools, by which decision.
func TestWhatIsExpandedHasAReceipt(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, judged)
	g := rig.Serve(t, dir)
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		for _, args := range []string{
			`{"action":"expand","tools":["s3_list_buckets"]}`,
			`{"action":"expand","tools":["s3_list_buckets"]}`, // it is already
			`{"action":"collapse","tools":["s3_list_buckets"]}`,
			`{"action":"collapse","tools":["s3_list_buckets"]}`, // so it is
			`{"action":"expand","tools":["ec2_describe_instances","s3_list_buckets"]}`,
			`{"action":"list"}`, `{"action":"search","query":"buckets"}`,
		} {
			_, _ = helper(t, s, args)
		}
	}
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	got := ""
	for _, r := range receipts(t, dir) {
		r := r.Entry.Receipt
		if r.Kind == "expand" || r.Kind == "collapse" {
			got += fmt.Sprintln(r.Kind, r.Tools, r.Outcome, r.Code, r.Note)
			if r.Decision == "" || r.Basis == "" {
				t.Errorf("it does not say by which decision: %+v", r)
			}
		}
	}
	const once = "expand [cloud/s3_list_buckets] ok  group aws\ncollapse [cloud/s3_list_buckets] ok  group aws\n" +
		"expand [cloud/ec2_describe_instances cloud/s3_list_buckets] refused SB-LAZY-002 group aws\n"
	if got != once+once {
		t.Errorf("got\n%s", got)
	}
	// The first sight of the tools has a receipt, too.
	for pattern, want := range map[string]int{"s3_list*": 7, "cloud/ec2_*": 3, "nosuch": 0} {
		if n := len(receipts(t, dir, "--tool", pattern)); n != want {
			t.Errorf("of %s there are %d, want %d", pattern, n, want)
		}
	}
	out, errs, _ := rig.Command(t, dir, "receipts", "list", "--kind", "expand", "--limit", "1")
	if !strings.Contains(out, "cloud/ec2_describe_instances cloud/s3_list_buckets") {
		t.Errorf("%s%s", out, errs)
	}
}

// One receipt says what an operator is about to do, and one what has come of it; and there
// is one for each configuration that is put in force, or refused.
func TestWhatAnOperatorDoesHasAReceipt(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, judged)
	g := rig.Serve(t, dir)
	g.Do(0, "", "server", "disable", "cloud", "--reason", "it is moved")
	g.Do(0, "", "server", "enable", "cloud")
	g.Do(0, "", "server", "restart", "desk")
	task := filepath.Join(dir, "tenants/default/tasks/more.yaml")
	data := "file:" + filepath.Join(dir, ".switchboard", "store.db") // also while the configuration is refused
	reloads := func(want int) {
		t.Helper()
		rig.Eventually(t, "a reload has a receipt", func() string {
			out, _, _ := rig.Command(t, dir, "receipts", "list", "--kind", "admin", "--store", data)
			if strings.Count(out, "  reload") != want {
				return out
			}
			return ""
		})
	}
	rig.ReplaceFile(t, task, "task_id: more\nrequired_capabilities:\n  - {tools: [\"desk/*\"]}\n")
	reloads(1)
	rig.ReplaceFile(t, task, "task_id: more\nmistyped: yes\n")
	reloads(2)
	main := filepath.Join(dir, "switchboard.yaml")
	rig.ReplaceFile(t, main, rig.ReadFile(t, main)+"mistyped: yes\n")
	reloads(3)
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	got, ids := "", map[string]string{}
	for _, r := range receipts(t, dir, "--kind", "admin", "--store", data) {
		about := r.Entry.Receipt
		what := strings.TrimSpace(about.Method + " " + about.Server)
		ids[r.ID] = what
		got += fmt.Sprintf("%s, %s, %s %s", what, about.Note, about.Outcome, about.Code)
		if about.Of != "" && ids[about.Of] != what {
			t.Errorf("%s is what came of %s", what, ids[about.Of])
		}
		got += "\n"
	}
	const want = "disable cloud, it is moved,  \ndisable cloud, it is moved, ok \nenable cloud, ,  \nenable cloud, , ok \n" +
		"restart desk, ,  \nrestart desk, , ok \nreload, tasks +default/more, ok \nreload, faulty parts +tenant default, ok \nreload, , refused SB-CONF-001\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A key is rotated under load, without a restart, and a kill at any moment of it takes
// nothing from the chain.
func TestAKeyIsRotatedWithoutARestart(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, judged)
	keys := func() int {
		t.Helper()
		out, errs, code := rig.Command(t, dir, "receipts", "verify")
		if code != 0 {
			t.Fatalf("%s%s", out, errs)
		}
		return 1 + strings.Count(out, "then key")
	}
	for round := range 3 {
		g := rig.Serve(t, dir)
		s := g.Open(t, "/mcp", true)
		call := func() {
			t.Helper()
			if m, _ := s.Ask(t, "tools/call", `{"name":"post","arguments":{}}`); m.Error != nil || strings.Contains(string(m.Raw), "SB-") {
				t.Fatalf("%s", m.Raw)
			}
		}
		call()
		if n := keys(); n != 1+2*round {
			t.Errorf("round %d begins with %d keys", round, n)
		}
		if out, errs, code := rig.Command(t, dir, "receipts", "rotate"); code != 0 || !strings.Contains(out, "a new key signs from now on") {
			t.Fatalf("%s%s", out, errs)
		}
		rig.Eventually(t, "the process that runs takes the key", func() string {
			call()
			if n := keys(); n != 2+2*round {
				return fmt.Sprint(n)
			}
			return ""
		})
		// And one more, that it may have taken or not when it is killed.
		if out, errs, code := rig.Command(t, dir, "receipts", "rotate"); code != 0 {
			t.Fatalf("%s%s", out, errs)
		}
		g.Signal(t, syscall.SIGKILL)
		_ = g.Cmd.Wait()
	}
	g := rig.Serve(t, dir)
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	if n := keys(); n != 7 {
		t.Errorf("there are %d keys", n)
	}
	if n := len(receipts(t, dir, "--kind", "key")); n != 7 { // none came in twice
		t.Errorf("%d receipts bring in a key", n)
	}
}

// Issue 7: what a served run keeps is replayed to the byte where it can be, and the rest
// counted; and a flipped policy shows exactly the decisions that it changes, here those
// that the rule itself tells of each call.
func TestAFlippedPolicyChangesExactlyTheCallsThatItWould(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.Deterministic)
	const calls = 120 // by each of two tenants, each with arguments of its own
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "open"), fmt.Sprintf(rig.Tool, "close"))+"\nTENANTS\n", "", map[string]rig.TenantConfig{
		"acme":     {Rego: sizeRule, More: "record: policy_inputs\n"},
		"umbrella": {Rego: sizeRule},
	})
	random := rand.New(rand.NewPCG(7, 7))
	denied := map[string]int{} // of acme's calls, by the tool, which the proposed rule would deny
	allowed := 0               // of those that were denied and would not be
	for n, tenant := range slices.Repeat([]string{"acme", "umbrella"}, calls) {
		s := h.OpenAs(tenant, n%4 < 2)
		size, name, want := random.IntN(100), []string{"open", "close"}[random.IntN(2)], ""
		if size > 90 {
			want = "SB-POL-001"
		}
		if got := rig.Call(t, s, name, fmt.Sprintf(`{"size":%d,"n":%d}`, size, n)); got != want {
			t.Fatalf("%s of %d: %q, want %q", name, size, got, want)
		}
		switch {
		case tenant != "acme":
		case size > 90 && size != 95:
			allowed++
		case size <= 90 && size%3 == 0:
			denied["a/"+name]++
		}
	}
	rig.WriteFile(t, filepath.Join(h.Dir, "flipped", "own.rego"), "package switchboard.tenant\n"+strings.Replace(sizeRule, "input.call.arguments.size > 90", "flipped(input.call.arguments.size)", 1)+
		"flipped(n) if { n <= 90; n % 3 == 0 }\nflipped(95)\n")
	var d diff
	rig.Eventually(t, "the calls are recorded", func() string {
		if d, _ = policyDiff(t, h.Dir, "--against", "."); d.Calls < 2*calls || strings.Contains(fmt.Sprint(d.NotReplayed), "not archived") {
			return fmt.Sprintf("%+v", d)
		}
		return ""
	})
	var again diff
	out, errs, code := rig.Command(t, h.Dir, "receipts", "replay", "--json")
	if err := json.Unmarshal([]byte(out), &again); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	const why = "their arguments were not recorded"
	if len(again.Broken) > 0 || again.Calls != 2*calls || again.Replayed != again.Decisions-calls || len(again.NotReplayed) != 1 ||
		again.NotReplayed[0].Decisions != calls || !strings.HasPrefix(again.NotReplayed[0].Why, why) {
		t.Errorf("replayed is %+v", again)
	}
	d, code = policyDiff(t, h.Dir, "--against", "flipped", "--tenant", "acme")
	found, freed := map[string]int{}, 0
	for _, c := range d.Changes {
		switch {
		case c.Of == "call" && c.Change == "denied":
			found[c.Tool] += c.Decisions
		case c.Of == "call" && c.Change == "allowed":
			freed += c.Decisions
		default:
			t.Errorf("nobody has proposed that: %+v", c)
		}
	}
	if code != 1 || !maps.Equal(found, denied) || freed != allowed || d.Changed != allowed+denied["a/open"]+denied["a/close"] || d.Calls != calls || len(d.Broken) > 0 {
		t.Errorf("exit %d: denied are %v and allowed %d, want %v and %d: %+v", code, found, freed, denied, allowed, d)
	}
}

// sizeRule denies what is large.
const sizeRule = rig.AllowAll + `
deny[c.id] contains "too large" if {
	some c in input.candidate_tools
	input.call.arguments.size > 90
}
`

// shownPolicy checks that a receipt shows the policy that decided: the digest that status has, and the files with their digests.
// Decisions are archived a moment after their receipts.
func shownPolicy(t *testing.T, g *rig.Gateway, id string) {
	t.Helper()
	type policy struct {
		Digest string
		Layers []struct {
			Layer, Why string
			Files      []struct{ Path, Digest string }
		}
	}
	var p policy
	rig.Eventually(t, "the policy of the receipt is archived", func() string {
		out, errs, _ := rig.Command(t, g.Dir, "receipts", "show", id, "--json")
		var shown struct{ Policies []policy }
		if err := json.Unmarshal([]byte(out), &shown); err != nil || len(shown.Policies) != 1 || len(shown.Policies[0].Layers) == 0 {
			return fmt.Sprintf("%v: %s%s", err, out, errs)
		}
		p = shown.Policies[0]
		for _, l := range p.Layers {
			if p.Digest == "" || l.Why != "" {
				return out
			}
		}
		return ""
	})
	if want := g.Status().Policies[0].Digest; p.Digest != want {
		t.Errorf("the receipt %s was decided by the policy %s, and status has %s", id, p.Digest, want)
	}
	said, _, _ := rig.Command(t, g.Dir, "receipts", "show", id)
	for _, l := range p.Layers {
		if len(l.Files) == 0 {
			t.Errorf("the %s's layer of the receipt %s shows no files", l.Layer, id)
		}
		for _, f := range l.Files {
			if !strings.Contains(said, f.Digest+"  "+f.Path) {
				t.Errorf("%s is not in\n%s", f.Path, said)
			}
			if text, err := os.ReadFile(filepath.Join(g.Dir, map[string]string{"operator": "policies", "tenant": "tenants/default/policies"}[l.Layer], f.Path)); err == nil && canonical.Sum(text) != switchboard.Digest(f.Digest) {
				t.Errorf("%s has the digest %s, and not %s", f.Path, canonical.Sum(text), f.Digest)
			}
		}
	}
}

func TestNames11AResultNamesItsReceiptIfTheCallOrTheTenantAsksForIt(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, judged)
	g := rig.Serve(t, dir)
	receiptIn := func(m rig.Message) string {
		var r struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
		_ = json.Unmarshal(m.Result, &r)
		var id string
		_ = json.Unmarshal(r.Meta["io.switchboard/receipt"], &id)
		return id
	}
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		for _, call := range []string{`"name":"find","arguments":{}`, `"name":"post","arguments":{}`} {
			if m, _ := s.Ask(t, "tools/call", "{"+call+"}"); receiptIn(m) != "" {
				t.Errorf("modern %v: nobody has asked for it: %s", modern, m.Raw)
			}
			m, _ := s.Ask(t, "tools/call", `{"_meta":{"io.switchboard/receipt":true},`+call+`}`)
			id := receiptIn(m)
			rig.Eventually(t, "the receipt is there", func() string {
				if out, errs, code := rig.Command(t, dir, "receipts", "show", id, "--json"); code != 0 || !strings.Contains(out, `"outcome":"ok"`) {
					return fmt.Sprintf("the receipt %q of %s: %s%s", id, m.Raw, out, errs)
				}
				return ""
			})
			shownPolicy(t, g, id)
		}
	}
	tenant := filepath.Join(dir, "tenants/default/tenant.yaml")
	rig.WriteFile(t, tenant, rig.ReadFile(t, tenant)+"\nreceipt_ids: true\n")
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		rig.Eventually(t, "the tenant's calls name their receipts", func() string {
			m, _ := s.Ask(t, "tools/call", `{"name":"find","arguments":{}}`)
			if receiptIn(m) == "" {
				return string(m.Raw)
			}
			return ""
		})
	}
	rig.Eventually(t, "the reload has a receipt", func() string {
		out, errs, _ := rig.Command(t, dir, "receipts", "list", "--kind", "admin", "--json")
		if !strings.Contains(out, "tenants ~default") || !strings.Contains(out, `"configuration":"`) {
			return out + errs
		}
		return ""
	})
}
