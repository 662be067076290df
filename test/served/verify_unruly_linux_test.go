package served_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// keepsOutWhatWasSeen is a rule of the operator: a tool with evidence of a verification is not let in. So a tool that stays has none.
const keepsOutWhatWasSeen = `-- policies/seen.rego --
package switchboard

keep_out[c.id] contains "it has evidence" if {
	some c in input.candidate_tools
	c.evidence.report
}
`

// listsUntil waits until a client lists a tool, or does not.
func listsUntil(t *testing.T, s rig.Session, tool string, want bool) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("that the client lists %s is %v", tool, want), func() string {
		got := rig.ListNames(t, s)
		return rig.ReasonUnless(slices.Contains(got, tool) == want, fmt.Sprint(got))
	})
}

// A server that changes a tool while it is verified has a void report, whether it announces the change or not, and whether it is a program in walls or hosted: the report is
// no evidence, and suspends nothing. A report on another tool of the same server is both.
func TestAToolThatChangesWhileItIsVerifiedHasAVoidReport(t *testing.T) {
	t.Parallel()
	needsLandlock(t)
	lab := httptest.NewServer(fakeserver.New([]string{"unruly"}))
	t.Cleanup(lab.Close)
	for server, row := range map[string]string{
		"program": `program: {transport: stdio, dir: work, command: [FAKE, unruly], env: {WRITTEN: written.txt}}`,
		"hosted":  `hosted: {transport: http, url: "` + lab.URL + `/mcp", verify: {environment: test}}`,
	} {
		dir := rig.LayOut(t, rig.Fakes(row)+"-- work/note.txt --\nmine\n"+shippedPolicies(t)+keepsOutWhatWasSeen)
		g := rig.Serve(t, dir)
		s := g.Open(t, "/mcp", true)
		for _, tool := range []string{"change_itself", "change_silently"} {
			listsUntil(t, s, tool, true)
			r := verifyServer(t, dir, g, server, tool)[tool]
			if r.Void != "the server has changed the tool during the verification" || r.Verified || r.Calls == 0 {
				t.Errorf("%s of the %s: %s", tool, server, r.text)
			}
		}
		if r := verifyServer(t, dir, g, server, "answer_twice")["answer_twice"]; !r.Verified || r.Void != "" {
			t.Errorf("answer_twice of the %s: %s", server, r.text)
		}
		listsUntil(t, s, "answer_twice", false) // so the reports count by now
		if server == "program" {                // the hosted server has changed the tools for its clients, too
			listsUntil(t, s, "change_itself", true)
			listsUntil(t, s, "change_silently", true)
		}
		if out, errs, _ := rig.Command(t, dir, "pins", "list", "--state", "suspended", "--url", g.URL); strings.Contains(out+errs, "it has failed a test") {
			t.Errorf("a void report has suspended a tool of the %s:\n%s%s", server, out, errs)
		}
	}
}

// What a real program does to its verification is in its report, and nothing of it reaches a person, or the program that serves clients.
func TestAProgramThatMisbehavesIsReportedAndDisturbsNobody(t *testing.T) {
	t.Parallel()
	needsLandlock(t)
	row := func(id, more string) string {
		return id + `: {transport: stdio, dir: work, ` + more + ` command: [FAKE, unruly, "--token=for-the-real-service"], env: {CALLS: "${env:UNRULY_CALLS}"}}`
	}
	dir := rig.LayOut(t, rig.Fakes(row("unruly", ""), row("impatient", "timeout: 1s,"))+"-- work/note.txt --\nmine\n")
	calls := filepath.Join(dir, "work", "calls.txt")
	cmd := rig.Switchboard(t, "-v", "serve", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "UNRULY_CALLS="+calls)
	g := rig.ServeBy(t, dir, cmd)
	g.AwaitServers()
	asked := make(chan string, 16)
	ann := gosdkPerson(t, g.URL+"/mcp", &person{name: "ann", asked: asked}, "2025-11-25")

	for _, tt := range []struct {
		about, server, tool string
		verified            bool
		test, outcome, why  string // of one test
	}{
		{"it asks a person and a model, and both are refused", "unruly", "ask_client", true, "valid", "passed", ""},
		{"later answers are not shifted", "unruly", "answer_twice", true, "missing", "passed", ""},
		{"it ends", "unruly", "die", false, "valid", "failed", "the server ended or broke the connection"},
		{"it does not answer", "impatient", "hang", false, "time", "failed", "a call had no answer within 1s"},
		{"it answers with 64 MiB", "unruly", "answer_64_mib", false, "valid", "failed", "the answer is no valid one"},
		{"it tells its arguments, where the secret is replaced", "unruly", "tell_arguments", false, "hostile", "failed", "an answer discloses an argument of its program"},
	} {
		r := verifyServer(t, dir, g, tt.server, tt.tool)[tt.tool]
		outcome, why := r.ending(tt.test)
		if r.Verified != tt.verified || r.Void != "" || r.Leave != "walls" || r.Calls == 0 || outcome != tt.outcome || !strings.Contains(why, tt.why) {
			t.Errorf("%s: %s", tt.about, r.text)
		}
	}
	if out := g.AskAdmin(t, "", http.MethodGet, "/v1/verifications?server=unruly", "").Body + g.AskAdmin(t, "", http.MethodGet, "/v1/receipts?kind=verify", "").Body; strings.Contains(out, "for-the-real-service") || !strings.Contains(out, "tell_arguments") {
		t.Errorf("the reports and receipts are\n%s", out)
	}
	if text, err := os.ReadFile(calls); err == nil {
		t.Errorf("the program that serves clients was called:\n%s", text)
	}
	if n := len(asked); n > 0 {
		t.Errorf("a person was asked %d times", n)
	}
	if text, err := ann(t.Context(), "unruly__ask_client", map[string]any{}); err != nil || len(asked) == 0 {
		t.Errorf("when a person calls the tool, she is asked %d times: %s, %v", len(asked), text, err)
	}
}

// On a machine without a wall that strict has, a program is not called, and its tools have no evidence.
func TestWhereAWallIsMissingAProgramIsNotCalled(t *testing.T) {
	t.Parallel()
	needsLandlock(t)
	dir := rig.LayOut(t, rig.Fakes(`unruly: {transport: stdio, dir: work, command: [FAKE, unruly], env: {CALLS: "${env:UNRULY_CALLS}"}}`)+"-- work/note.txt --\nmine\n"+shippedPolicies(t)+keepsOutWhatWasSeen)
	calls := filepath.Join(dir, "work", "calls.txt")
	cmd := exec.Command(rig.FakeProgram, "without-landlock", rig.Plain, "-v", "serve", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "UNRULY_CALLS="+calls)
	g := rig.ServeBy(t, dir, cmd)
	s := g.Open(t, "/mcp", true)
	all := verifyServer(t, dir, g, "unruly")
	for tool, r := range all {
		if r.Verified || r.Calls != 0 || r.Leave != "" || len(r.Walls) > 0 || !strings.Contains(r.Why, "SB-DISC-004") {
			t.Errorf("%s: %s", tool, r.text)
		}
		listsUntil(t, s, tool, true)
	}
	if len(all) < 8 {
		t.Errorf("there are %d reports", len(all))
	}
	if text, err := os.ReadFile(calls); err == nil {
		t.Errorf("it was called:\n%s", text)
	}
}

// countCall tells count the tool of a request that calls one.
func countCall(r *http.Request, count func(tool string)) {
	body, _ := io.ReadAll(r.Body)
	var q fakeserver.Request
	if json.Unmarshal(body, &q) == nil && q.Method == "tools/call" {
		count(q.Params.Name)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
}

// The operator's policy also holds for verifications: what it denies them is not called.
func TestATestThatPolicyDeniesIsNotMade(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	calls := map[string]int{}
	fake := fakeserver.New([]string{fmt.Sprintf(rig.Tool, "look"), fmt.Sprintf(rig.Tool, "peek")})
	lab := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		countCall(r, func(tool string) {
			mu.Lock()
			defer mu.Unlock()
			calls[tool]++
		})
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(lab.Close)
	dir := rig.LayOut(t, rig.Fakes(`lab: {transport: http, url: "`+lab.URL+`/mcp", verify: {environment: test}}`)+shippedPolicies(t)+`-- policies/verified.rego --
package switchboard

deny["lab/look"] contains "it is not for verifications" if input.tenant_id == "switchboard.verify"
`)
	g := rig.Serve(t, dir)
	all := verifyServer(t, dir, g, "lab")
	look, peek := all["look"], all["peek"]
	if outcome, why := look.ending("valid"); look.Verified || look.Calls != 0 || outcome != "skipped" || !strings.Contains(why, "Switchboard did not make the call") {
		t.Errorf("the tool that policy denies: %s", look.text)
	}
	for _, test := range look.Tests {
		if test.Outcome != "skipped" {
			t.Errorf("the test %s was made: %s", test.Name, look.text)
		}
	}
	if !peek.Verified || peek.Calls == 0 {
		t.Errorf("the other tool: %s", peek.text)
	}
	mu.Lock()
	if calls["look"] != 0 || calls["peek"] != peek.Calls {
		t.Errorf("the server got the calls %v", calls)
	}
	mu.Unlock()
	if code := rig.Call(t, g.Open(t, "/mcp", true), "look", `{}`); code != "" {
		t.Errorf("a client's call: %s", code)
	}
}

// Two replicas report the same bytes about a server, except for times. Each receipt names the archived text of its report.
func TestTwoReplicasReportTheSameBytesWhichTheirReceiptsName(t *testing.T) {
	t.Parallel()
	needsLandlock(t)
	c := rig.ServeReplicas(t, rig.Fakes(`bench: {transport: stdio, dir: work, command: [FAKE, workbench], env: {API_TOKEN: "${file:token}"}}`,
		`unruly: {transport: stdio, dir: work, command: [FAKE, unruly, "--token=for-the-real-service"]}`, `impatient: {transport: stdio, dir: work, timeout: 1s, command: [FAKE, unruly]}`)+"-- work/note.txt --\nmine\n-- token --\nthe-real-token\n")
	records, err := store.OpenRedis(t.Context(), c.Redis.URL(), store.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = records.Close() })
	for server, tools := range map[string][]string{"bench": {"read_note", "keep_note", "show_setting"}, "unruly": {"answer_twice", "die", "tell_arguments"}, "impatient": {"hang"}} {
		for _, tool := range tools {
			a, b := verifyServer(t, c.Dir, c.All[0], server, tool)[tool], verifyServer(t, c.Dir, c.All[1], server, tool)[tool]
			if a.text != b.text || a.Receipt == b.Receipt || a.Calls == 0 {
				t.Errorf("%s at two replicas, %s and %s:\n%s\n%s", tool, a.Receipt, b.Receipt, a.text, b.text)
			}
			for i, r := range []verifiedTool{a, b} {
				var row struct {
					Receipt struct {
						Report switchboard.Digest `json:"report"`
					} `json:"receipt"`
				}
				body := c.All[i].AskAdmin(t, "", http.MethodGet, "/v1/receipt?id="+r.Receipt, "").Body
				if err := json.Unmarshal([]byte(body), &row); err != nil || row.Receipt.Report == "" {
					t.Fatalf("the receipt %s is %s, %v", r.Receipt, body, err)
				}
				var text []byte
				rig.Eventually(t, "the report is archived", func() string {
					text, err = archive.Read(t.Context(), records, row.Receipt.Report)
					return rig.ReasonUnless(err == nil, fmt.Sprint(err))
				})
				if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(text)); sum != string(row.Receipt.Report) {
					t.Errorf("the archived report has the digest %s, and its receipt names %s", sum, row.Receipt.Report)
				}
				served, err := canonical.Append(nil, []byte(r.text))
				if err != nil || withoutTimes(text) != string(served) {
					t.Errorf("the archived report is\n%s\nand the served one is\n%s\n%v", text, served, err)
				}
			}
		}
	}
}
