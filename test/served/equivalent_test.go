package served_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// twoSearches are two web searches of different servers, whose arguments have
// different names. mark is a file that says which calls were executed.
func twoSearches(t *testing.T, modern bool, label, declared string) (dir, mark string, brave *httptest.Server) {
	t.Helper()
	mark = filepath.Join(t.TempDir(), "calls")
	start := func(tool string) *httptest.Server {
		args := []string{"marks=" + mark, tool}
		if modern {
			args = append(args, "modern")
		}
		s := httptest.NewServer(fakeserver.New(args))
		t.Cleanup(s.Close)
		return s
	}
	const out = `"outputSchema":{"type":"object","required":["hits"],"properties":{"hits":{"type":"integer"}}}`
	brave = start(`{"name":"search_web","inputSchema":{"type":"object","properties":{"query":{"type":"string"},"country":{"type":"string"},"do":{},"bytes":{}},"required":["query"]}}`)
	google := start(`{"name":"web_search","inputSchema":{"type":"object","properties":{"q":{"type":"string"},"safe":{"type":"boolean"},"num":{"type":"integer"},"do":{},"bytes":{}},"required":["q","safe"]}}`)
	shaped := start(`{"name":"shaped","inputSchema":{"type":"object"},` + out + `}`)
	dir = rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
start_deadline: 30s
servers:
  brave: {transport: http, url: %q}
  google: {transport: http, url: %q}
  shaped: {transport: http, url: %q}
tenants:
  default: {servers: ["*"]}
-- overlays/brave.yaml --
server: brave
tools:
  search_web:
    capabilities: [{verb: search, resource: internet%s}]
    equivalents:
%s
-- overlays/google.yaml --
server: google
tools:
  web_search: {capabilities: [{verb: search, resource: internet%s}]}
-- overlays/shaped.yaml --
server: shaped
tools:
  shaped: {capabilities: [{verb: read, resource: fs}]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: browse
ranking: {prefer: [{verb: search, resource: internet, servers: [brave]}]}
-- tenants/default/tasks/browse.yaml --
task_id: browse
required_capabilities:
  - {verb: search, resource: internet, select: tool}
  - {verb: read, resource: fs}
`, brave.URL, google.URL, shaped.URL, label, declared, label))
	return dir, mark, brave
}

const toGoogle = `
      - tool: google/web_search
        map: {query: q}
        constants: {safe: true}
        defaults: {num: 10}
        drop: [country]`

func TestACallMovesToADeclaredEquivalentWithItsArguments(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprint("modern servers ", modern), func(t *testing.T) {
			dir, _, brave := twoSearches(t, modern, "", toGoogle)
			g := rig.Serve(t, dir)
			for _, era := range []bool{false, true} {
				s := g.Open(t, "/mcp", era)
				m, _ := s.Ask(t, "tools/call", `{"name":"search_web","arguments":{"query":"phishing","country":"de"}}`)
				if got, want := m.Text(), `{"country":"de","query":"phishing"}`; got != want {
					t.Fatalf("%s, want %s", got, want)
				}
			}
			out, _, _ := rig.Command(t, dir, "explain", "--url", g.URL)
			if !strings.Contains(out, "its calls may move to google/web_search") {
				t.Errorf("explain does not say where calls may move:\n%s", out)
			}
			legacy, now := g.Open(t, "/mcp", false), g.Open(t, "/mcp", true)
			listed := rig.ListNames(t, legacy)
			brave.Close()
			for name, s := range map[string]rig.Session{"legacy": legacy, "modern": now} {
				m, _ := s.Ask(t, "tools/call", `{"name":"search_web","arguments":{"query":"phish\u0069ng","country":"de"}}`)
				if got, want := m.Text(), `{"num":10,"q":"phish\u0069ng","safe":true}`; got != want {
					t.Errorf("%s: %s, want %s", name, got, want)
				}
				// What the other server would not understand does not go there.
				m, _ = s.Ask(t, "tools/call", `{"name":"search_web","arguments":{"query":"x","page":2}}`)
				if code := rig.Code(m); !strings.HasPrefix(code, "SB-") {
					t.Errorf("%s: an argument of which nobody knows: %s", name, m.Raw)
				}
			}
			if again := rig.ListNames(t, legacy); fmt.Sprint(again) != fmt.Sprint(listed) {
				t.Errorf("the list was %v and is %v", listed, again)
			}
		})
	}
}

func TestNoCallMovesWhereNothingIsDeclared(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	dir, mark, brave := twoSearches(t, true, ", constraints: [readonly]", "      []")
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true)
	if got := rig.ListNames(t, s); len(got) != 2 {
		t.Fatal(got)
	}
	brave.Close()
	for range 2 {
		m, _ := s.Ask(t, "tools/call", `{"name":"search_web","arguments":{"query":"x"}}`)
		if code := rig.Code(m); !strings.HasPrefix(code, "SB-") {
			t.Errorf("it was served: %s", m.Raw)
		}
	}
	if calls, err := os.ReadFile(mark); err == nil {
		t.Errorf("executed: %s", calls)
	}
}

func TestADeclarationThatCannotBeRightIsShownAndMovesNothing(t *testing.T) {
	t.Parallel()
	dir, _, brave := twoSearches(t, true, "", "      - {tool: google/web_search, map: {query: qq}, defaults: {num: many}}")
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true)
	m, _ := s.Ask(t, "tools/call", `{"name":"search_web","arguments":{"query":"x"}}`)
	if got := m.Text(); got != `{"query":"x"}` {
		t.Fatal(got)
	}
	status, _, code := rig.Command(t, dir, "status", "--url", g.URL)
	explain, _, _ := rig.Command(t, dir, "explain", "--url", g.URL)
	for _, want := range []string{
		`overlays/brave.yaml:6:16: server "brave", tool "search_web": equivalent google/web_search: map: it has no argument "qq"`,
		`defaults: the value of "num" does not fit: at "": want integer, not string`,
		`nothing becomes its argument "safe", which it requires`,
	} {
		for where, text := range map[string]string{"status": status, "explain": explain, "the log": strings.ReplaceAll(g.Logged(), `\"`, `"`)} {
			if !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), want) {
				t.Errorf("%s does not say %s:\n%s", where, want, text)
			}
		}
	}
	if code != 1 {
		t.Errorf("status exits with %d", code)
	}
	if strings.Contains(explain, "may move to") {
		t.Errorf("explain says that calls move:\n%s", explain)
	}
	brave.Close()
	m, _ = s.Ask(t, "tools/call", `{"name":"search_web","arguments":{"query":"x"}}`)
	if !strings.HasPrefix(rig.Code(m), "SB-") {
		t.Errorf("it was served: %s", m.Raw)
	}
}

// PI-02
func TestAResultThatIsNotWhatItsToolPromisesIsNotPassedOn(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprint("modern servers ", modern), func(t *testing.T) {
			dir, mark, _ := twoSearches(t, modern, "", toGoogle)
			extra := ""
			if modern {
				extra = `"resultType":"complete",`
			}
			n := 0
			rig.EachSession(t, dir, func(t *testing.T, _ string, s rig.Session) {
				call := func(result string) rig.Message {
					n++
					m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"shaped","arguments":{"do":"result","bytes":%q}}`, result))
					return m
				}
				good := `{` + extra + `"content":[{"type":"text","text":"7"}],"structuredContent":{"hits":7.0}}`
				if m := call(good); m.Error != nil || !strings.Contains(string(m.Raw), `"structuredContent":{"hits":7.0}`) {
					t.Errorf("what fits: %s", m.Raw)
				}
				if m := call(`{` + extra + `"isError":true,"content":[{"type":"text","text":"no"}]}`); m.Error != nil || m.Text() != "no" {
					t.Errorf("an answer that is an error: %s", m.Raw)
				}
				for _, bad := range []string{
					`{` + extra + `"content":[],"structuredContent":{"hits":"s3cret"}}`,
					`{` + extra + `"content":[]}`,
				} {
					m := call(bad)
					if rig.Code(m) != "SB-EXEC-003" || !strings.Contains(string(m.Raw), "output schema") || strings.Contains(string(m.Raw), "s3cret") {
						t.Errorf("%s was answered with %s", bad, m.Raw)
					}
				}
			})
			calls, err := os.ReadFile(mark)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(string(calls), "shaped\n"); got != n {
				t.Errorf("%d calls were executed %d times", n, got)
			}
		})
	}
}

// A server that does not keep its word has failed, and where a repeat is
// harmless another one may keep it.
func TestAResultOfTheWrongShapeMovesTheCallWhereARepeatIsHarmless(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const tool = `{"name":"count","inputSchema":{"type":"object"},"outputSchema":{"type":"object","required":["hits"]}%s}`
	var servers, marks []string
	for _, answer := range []string{`{}`, `{"hits":1}`} {
		mark := filepath.Join(dir, fmt.Sprint("calls-", len(servers)))
		f := fakeserver.New([]string{"marks=" + mark, fmt.Sprintf(tool, "")})
		f.Says = `{"content":[],"structuredContent":` + answer + `}`
		s := httptest.NewServer(f)
		t.Cleanup(s.Close)
		servers, marks = append(servers, s.URL), append(marks, mark)
	}
	for _, readonly := range []bool{true, false} {
		label := ""
		if readonly {
			label = ", constraints: [readonly]"
		}
		g := rig.Serve(t, rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
servers:
  a: {transport: http, url: %q, trust: operator}
  b: {transport: http, url: %q, trust: operator}
tenants:
  default: {servers: ["*"]}
-- overlays/a.yaml --
server: a
tools:
  count: {capabilities: [{verb: search, resource: internet%s}]}
-- overlays/b.yaml --
server: b
tools:
  count: {capabilities: [{verb: search, resource: internet%s}]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: work
-- tenants/default/tasks/work.yaml --
task_id: work
required_capabilities:
  - {verb: search, resource: internet}
`, servers[0], servers[1], label, label)))
		m, _ := g.Open(t, "/mcp", true).Ask(t, "tools/call", `{"name":"count","arguments":{}}`)
		switch {
		case readonly && !strings.Contains(string(m.Result), `"hits":1`):
			t.Errorf("the call did not move: %s", m.Raw)
		case !readonly && !strings.HasPrefix(rig.Code(m), "SB-EXEC-"):
			t.Errorf("the call was repeated: %s", m.Raw)
		}
	}
	for i, want := range []int{2, 1} {
		calls, err := os.ReadFile(marks[i])
		if got := strings.Count(string(calls), "count\n"); err != nil || got != want {
			t.Errorf("server %d executed %d calls, want %d (%v)", i, got, want, err)
		}
	}
}

// A call that a budget refuses moves to a declared equivalent, in both eras. If no equivalent has room either, the answer says which budget, what is left
// and until when, and nothing is sent.
func TestACallOverItsBudgetMovesToADeclaredEquivalent(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	dir, mark, _ := twoSearches(t, true, "", toGoogle)
	price := func(file string) {
		name := filepath.Join(dir, "overlays", file+".yaml")
		text := rig.ReadFile(t, name)
		at := strings.Index(text, "capabilities:")
		if file == "google" {
			text = strings.Replace(text, "{capabilities:", "{price: {call: 0.004}, capabilities:", 1)
		} else {
			text = text[:at] + "price: {call: 0.001}\n    " + text[at:]
		}
		rig.WriteFile(t, name, text)
	}
	price("brave")
	price("google")
	main := filepath.Join(dir, "switchboard.yaml")
	rig.WriteFile(t, main, rig.ReadFile(t, main)+`currency: EUR
budgets:
  - {id: first, match: {server: [brave]}, limit: 0.002, window: 1d}
  - {id: second, match: {server: [google]}, limit: 0.01, window: month}
`)
	g := rig.Serve(t, dir)
	open := []rig.Session{g.Open(t, "/mcp", false), g.Open(t, "/mcp", true)}
	own, moved := 0, 0
	for i := range 4 {
		m, _ := open[i%2].Ask(t, "tools/call", fmt.Sprintf(`{"name":"search_web","arguments":{"query":"call %d","country":"de"}}`, i))
		switch m.Text() {
		case fmt.Sprintf(`{"country":"de","query":"call %d"}`, i):
			own++
		case fmt.Sprintf(`{"num":10,"q":"call %d","safe":true}`, i):
			if moved++; own < 2 {
				t.Error("it moved while the budget had room")
			}
		default:
			t.Errorf("call %d: %s", i, m.Raw)
		}
	}
	if own != 2 || moved != 2 {
		t.Errorf("%d calls were made by the tool, and %d by its equivalent", own, moved)
	}
	for _, s := range open {
		m, _ := s.Ask(t, "tools/call", `{"name":"search_web","arguments":{"query":"x","country":"de"}}`)
		if rig.Code(m) != "SB-COST-001" {
			t.Errorf("over both budgets: %s", m.Raw)
		}
		for _, want := range []string{`"error_code":"BUDGET_EXCEEDED"`, `"budget":"`, `"left":"0.00`, `"unit":"EUR"`, `"until":"20`, `"retryable":"later"`, `"isError":true`} {
			if !strings.Contains(string(m.Raw), want) {
				t.Errorf("the answer lacks %s: %s", want, m.Raw)
			}
		}
	}
	if calls := rig.ReadFile(t, mark); strings.Count(calls, "\n") != 4 {
		t.Errorf("executed: %s", calls)
	}
	rig.Eventually(t, "each server's calls are settled in its own budget", func() string {
		out, errs, code := rig.Command(t, dir, "budget", "status")
		return rig.ReasonUnless(code == 0 && regexp.MustCompile(`(?m)/first .* 0\.002 +0\.00 +0\.00 `).MatchString(out) && regexp.MustCompile(`(?m)/second .* 0\.008 +0\.00 +0\.002 `).MatchString(out), out+errs)
	})
}
