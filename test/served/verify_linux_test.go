package served_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A verifiedTool is what a report says about a tool.
type verifiedTool struct {
	Tool     string   `json:"tool"`
	Leave    string   `json:"leave"`
	Walls    []string `json:"walls"`
	Score    int      `json:"score"`
	Verified bool     `json:"verified"`
	Why      string   `json:"why"`
	Void     string   `json:"void"`
	Calls    int      `json:"calls"`
	Receipt  string   `json:"receipt"`
	Tests    []struct {
		Name    string `json:"name"`
		Outcome string `json:"outcome"`
		Why     string `json:"why"`
		Unmade  bool   `json:"unmade"`
	} `json:"tests"`

	text string // of the report, without its times and its receipt
}

// timesOfReport finds what differs from report to report about the same.
var timesOfReport = regexp.MustCompile(`"(?:at|receipt)":"[^"]*",?|"took_ms":\d+,?`)

// withoutTimes returns the bytes of a report beside its times and its receipt.
func withoutTimes(report []byte) string {
	return strings.ReplaceAll(timesOfReport.ReplaceAllString(string(report), ""), ",}", "}")
}

// outcome returns how a test has ended.
func (v *verifiedTool) outcome(test string) string {
	outcome, _ := v.ending(test)
	return outcome
}

// ending returns how a test has ended, and why.
func (v *verifiedTool) ending(test string) (outcome, why string) {
	for _, t := range v.Tests {
		if t.Name == test {
			return t.Outcome, t.Why
		}
	}
	return "", ""
}

// verifyServer verifies a server with the command, and returns the reports by tool.
func verifyServer(t *testing.T, dir string, g *rig.Gateway, args ...string) map[string]verifiedTool {
	t.Helper()
	out, errs, _ := rig.Command(t, dir, append(append([]string{"verify"}, args...), "--json", "--url", g.URL)...)
	var answer struct {
		Reports []json.RawMessage `json:"reports"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err, out, errs)
	}
	all := map[string]verifiedTool{}
	for _, raw := range answer.Reports {
		r := verifiedTool{text: withoutTimes(raw)}
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatal(err, string(raw))
		}
		all[r.Tool] = r
	}
	return all
}

// A tool that was seen to lie about itself is suspended for everyone; the program in use was not called, and nothing outside the scratch folder has changed. A person lets it
// in again, in spite of the report.
func TestAToolThatFailsAMustIsSuspendedUntilAPersonLetsItIn(t *testing.T) {
	t.Parallel()
	needsLandlock(t)
	dir := rig.LayOut(t, rig.Fakes(`bench: {transport: stdio, dir: work, command: [FAKE, workbench], env: {API_TOKEN: "${env:BENCH_TOKEN}", CALLS: "${env:BENCH_CALLS}"}}`)+"-- work/note.txt --\nmine\n")
	cmd := rig.Switchboard(t, "-v", "serve", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "BENCH_TOKEN=the-real-token", "BENCH_CALLS="+filepath.Join(dir, "work", "calls.txt"))
	g := rig.ServeBy(t, dir, cmd)
	s := g.Open(t, "/mcp", false)
	lists := func(tool string, want bool) {
		t.Helper()
		rig.Eventually(t, "the client lists "+tool, func() string {
			m, _ := s.Ask(t, "tools/list", "{}")
			return rig.ReasonUnless(strings.Contains(string(m.Result), `"`+tool+`"`) == want, string(m.Result))
		})
	}
	lists("keep_note", true)

	plan, _, code := rig.Command(t, dir, "verify", "bench", "--plan", "--url", g.URL)
	if code != 0 || !strings.Contains(plan, "bench/read_note: ") || !strings.Contains(plan, "in walls without network and with a scratch folder") || !strings.Contains(plan, `without path: {}`) {
		t.Errorf("the plan is\n%s", plan)
	}
	if _, err := os.Stat(filepath.Join(dir, "work", "calls.txt")); err == nil {
		t.Error("the plan has called something")
	}
	all := verifyServer(t, dir, g, "bench")
	if r := all["read_note"]; !r.Verified || r.Score < 850 || r.Leave != "walls" || len(r.Walls) == 0 || r.Calls == 0 || r.outcome("readonly") != "passed" {
		t.Errorf("read_note: %+v", r)
	}
	if r := all["keep_note"]; r.Verified || r.outcome("readonly") != "failed" {
		t.Errorf("keep_note: %+v", r)
	}
	if r := all["show_setting"]; r.Verified || r.outcome("hostile") != "failed" {
		t.Errorf("show_setting: %+v", r)
	}
	for _, name := range []string{"calls.txt", "kept.txt"} { // the program in use would have made them in its own folder
		if _, err := os.Stat(filepath.Join(dir, "work", name)); err == nil {
			t.Errorf("%s stands outside the scratch folder", name)
		}
	}
	lists("keep_note", false)
	lists("show_setting", false)
	lists("read_note", true)
	if code := rig.Call(t, s, "keep_note", `{"text":"x"}`); code != "SB-LIFE-001" && code != "SB-CAP-001" {
		t.Errorf("a call of the suspended tool: %q", code)
	}
	out, _, _ := rig.Command(t, dir, "pins", "list", "--state", "suspended", "--url", g.URL)
	if !strings.Contains(out, "it has failed a test that it must pass: readonly") {
		t.Errorf("the pins are\n%s", out)
	}

	// Each has a receipt of its own kind, and the chain with the receipts of the calls holds.
	out = g.AskAdmin(t, "", http.MethodGet, "/v1/receipts?kind=verify", "").Body
	if strings.Count(out, `"kind":"verify"`) != 3 || strings.Contains(out, "the-real-token") {
		t.Errorf("the receipts are\n%s", out)
	}
	if out, errs, code := rig.Command(t, dir, "receipts", "verify", "--url", g.URL); code != 0 {
		t.Errorf("the receipts do not verify: %s%s", out, errs)
	}

	// The same again, beside its times.
	first, second := all["keep_note"], verifyServer(t, dir, g, "bench", "keep_note")["keep_note"]
	if first.text != second.text || first.Receipt == second.Receipt {
		t.Errorf("two verifications, %s and %s:\n%s\n%s", first.Receipt, second.Receipt, first.text, second.text)
	}

	var pin struct {
		Digest string `json:"digest"`
	}
	if err := json.Unmarshal([]byte(g.AskAdmin(t, "", http.MethodGet, "/v1/pins/one?server=bench&name=keep_note", "").Body), &pin); err != nil {
		t.Fatal(err)
	}
	if out, errs, _ := rig.Command(t, dir, "pins", "diff", "bench/keep_note", "--url", g.URL); !strings.Contains(out, "its report does not speak for it: it fails readonly") {
		t.Errorf("pins diff shows\n%s%s", out, errs)
	}
	accept := []string{"pins", "accept", "bench/keep_note", "--digest", pin.Digest, "--url", g.URL}
	if out, errs, code := rig.Command(t, dir, accept...); code == 0 || !strings.Contains(errs, "say why you let it in all the same") {
		t.Errorf("a yes without a reason: %d\n%s%s", code, out, errs)
	}
	if out, errs, code := rig.Command(t, dir, append(accept, "--reason", "it keeps a cache")...); code != 0 {
		t.Errorf("a yes with a reason: %d\n%s%s", code, out, errs)
	}
	lists("keep_note", true)
}

// A hosted server that says of itself that it only reads is not called: nobody whom the operator trusts says so. With the operator's word, it is.
func TestWithoutLeaveAHostedServerGetsNoCall(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	fake := fakeserver.New([]string{`{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if strings.Contains(string(body), `"method":"tools/call"`) {
			calls.Add(1)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	dir := rig.LayOut(t, rig.Fakes(`hosted: {transport: http, url: "`+server.URL+`/mcp"}`))
	g := rig.Serve(t, dir)
	if r := verifyServer(t, dir, g, "hosted")["look"]; r.Verified || r.Calls != 0 || r.Leave != "" || !strings.Contains(r.Why, "no trusted source says that it only reads") {
		t.Errorf("without leave: %+v", r)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("the server got %d calls", n)
	}
	rig.WriteFile(t, filepath.Join(dir, "overlays", "hosted.yaml"), "server: hosted\ntools:\n  look: {capabilities: [{verb: read, resource: internet, constraints: [readonly]}]}\n")
	g.Reload(t)
	if r := verifyServer(t, dir, g, "hosted")["look"]; !r.Verified || r.Leave != "readonly" || calls.Load() != int64(r.Calls) {
		t.Errorf("with the operator's word: %+v; %d calls", r, calls.Load())
	}
}

// The rule of the page about verification: a tool that can harm comes in after a report that speaks for it. The same facts are there for rules of one's own.
func TestARuleKeepsAToolOutUntilItIsVerified(t *testing.T) {
	t.Parallel()
	page := rig.ReadFile(t, "../../docs/verify.md")
	_, rule, found := strings.Cut(page, "```rego policies/verified.rego\n")
	rule, _, _ = strings.Cut(rule, "```")
	if !found {
		t.Fatal("docs/verify.md shows no rule")
	}
	const notVerified = "it is not verified, and no person has let it in"
	for name, tt := range map[string]struct {
		rule, why string
		accepted  bool // whether a tool that has failed a must is let in by a person's yes
	}{
		"the page's rule": {rule, notVerified, true},
		"a rule about the score": {`package switchboard

keep_out[c.id] contains "its score is low" if {
	some c in input.candidate_tools
	c.server == "lab"
	not scores(c)
}

scores(c) if c.evidence.report.score >= 0.85
`, "its score is low", false},
		"a rule about the tests that it must pass": {`package switchboard

keep_out[c.id] contains "nothing is known" if {
	some c in input.candidate_tools
	c.server == "lab"
	not c.evidence.report
}

keep_out[c.id] contains "it takes calls without an argument" if {
	some c in input.candidate_tools
	"missing" in c.evidence.report.failed
}
`, "nothing is known", false},
		"a rule about leave": {`package switchboard

keep_out[c.id] contains "it was not tried at the lab" if {
	some c in input.candidate_tools
	c.server == "lab"
	not tried(c)
}

tried(c) if {
	c.evidence.report.leave == "test"
	c.evidence.report.failed == []
}
`, "it was not tried at the lab", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(fakeserver.New([]string{`{"name":"send","inputSchema":{"type":"object"}}`, `{"name":"blind","inputSchema":{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}}`}))
			t.Cleanup(server.Close)
			dir := rig.LayOut(t, shippedPolicies(t)+"-- policies/verified.rego --\n"+tt.rule+rig.Fakes(`lab: {transport: http, url: "`+server.URL+`/mcp", verify: {environment: test}}`, rig.FakeRow("a", `{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)))
			g := rig.Serve(t, dir)
			g.AwaitServers()
			s := g.Open(t, "/mcp", false)
			mine := func() []string {
				return slices.DeleteFunc(rig.ListNames(t, s), func(tool string) bool { return tool != "send" && tool != "blind" })
			}
			if got := mine(); len(got) > 0 {
				t.Errorf("before any report, the client lists %q", got)
			}
			if out, _, _ := rig.Command(t, dir, "explain", "--tool", "lab/send", "--url", g.URL); !strings.Contains(out, tt.why) {
				t.Errorf("explain does not say %q:\n%s", tt.why, out)
			}
			if m, _ := s.Ask(t, "tools/call", `{"name":"send","arguments":{}}`); rig.Code(m) == "" {
				t.Errorf("a call is answered %s", m.Raw)
			}
			reports := verifyServer(t, dir, g, "lab")
			if r := reports["send"]; !r.Verified || r.Leave != "test" {
				t.Fatalf("send: %+v", r)
			}
			if r := reports["blind"]; r.Verified || r.outcome("missing") != "failed" {
				t.Fatalf("blind: %+v", r)
			}
			rig.Eventually(t, "what is verified is let in, and nothing else", func() string {
				got := mine()
				return rig.ReasonUnless(slices.Equal(got, []string{"send"}), fmt.Sprint(got))
			})
			if m, _ := s.Ask(t, "tools/call", `{"name":"send","arguments":{}}`); rig.Code(m) != "" {
				t.Errorf("a call is refused: %s", m.Raw)
			}
			var pin struct{ Digest string }
			if err := json.Unmarshal([]byte(g.AskAdmin(t, "", http.MethodGet, "/v1/pins/one?server=lab&name=blind", "").Body), &pin); err != nil {
				t.Fatal(err)
			}
			if out, errs, code := rig.Command(t, dir, "pins", "accept", "lab/blind", "--digest", pin.Digest, "--reason", "it is ours", "--url", g.URL); code != 0 || strings.Contains(out, "it is not in use") == tt.accepted {
				t.Errorf("a person's yes: exit %d\n%s%s", code, out, errs)
			}
			if got := mine(); slices.Contains(got, "blind") != tt.accepted {
				t.Errorf("after a person's yes to a tool that has failed a must (score %d), the client lists %q", reports["blind"].Score, got)
			}
			// What can a caller use, at what score: the command of docs/verify.md.
			out, errs, code := rig.Command(t, dir, "tools", "--url", g.URL)
			if header, _, _ := strings.Cut(out, "\n"); code != 0 || !strings.Contains(header, "SCORE") {
				t.Errorf("tools: exit %d\n%s%s", code, out, errs)
			}
			for tool, score := range map[string]string{"send": "1", "look": "-"} {
				if !regexp.MustCompile(`(?m)^` + tool + `\s+\S+\s+` + tool + `\s+` + score + `(\s|$)`).MatchString(out) {
					t.Errorf("%s has not the score %s:\n%s", tool, score, out)
				}
			}
		})
	}
}

// The walls that the program had are facts, too.
func TestARuleReadsInWhichWallsAToolWasSeen(t *testing.T) {
	t.Parallel()
	needsLandlock(t)
	const rule = `package switchboard

keep_out[c.id] contains "it was not seen in walls" if {
	some c in input.candidate_tools
	c.server == "bench"
	not walled(c)
}

walled(c) if {
	c.evidence.report.leave == "walls"
	count(c.evidence.report.walls) > 1
}
`
	dir := rig.LayOut(t, shippedPolicies(t)+"-- policies/walled.rego --\n"+rule+rig.Fakes(`bench: {transport: stdio, dir: work, command: [FAKE, workbench]}`, rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work")))+"-- work/note.txt --\nmine\n")
	g := rig.Serve(t, dir)
	g.AwaitServers()
	s := g.Open(t, "/mcp", false)
	if got := rig.ListNames(t, s); !slices.Equal(got, []string{"work"}) {
		t.Errorf("before any report, the client lists %q", got)
	}
	verifyServer(t, dir, g, "bench", "read_note")
	rig.Eventually(t, "what was seen in walls is let in, and nothing else", func() string {
		got := rig.ListNames(t, s)
		return rig.ReasonUnless(slices.Contains(got, "read_note") && !slices.Contains(got, "keep_note"), fmt.Sprint(got))
	})
}
