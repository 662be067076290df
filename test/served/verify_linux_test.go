package served_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
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
