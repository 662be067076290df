package served_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// samples is a configuration with the sample servers, and one task.
const samples = `
-- switchboard.yaml --
approvals: {wait: 1s}
servers:
  atlas: {transport: stdio, command: [BIN, sample, atlas-search], class: house, trust: operator}
  nimbus: {transport: stdio, command: [BIN, sample, nimbus-search], class: paid}
  chat: {transport: stdio, command: [BIN, sample, notifier]}
  cloud: {transport: stdio, command: [BIN, sample, aws-like]}
tenants:
  default: {servers: ["*"]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: research
ranking:
  classes: [paid, house]
-- tenants/default/tasks/research.yaml --
task_id: research
required_capabilities:
  - {verb: search, resource: internet, constraints: [readonly]}
  - {verb: notify, resource: slack}
-- tenants/default/tasks/impossible.yaml --
task_id: impossible
required_capabilities:
  - {verb: search, resource: internet}
  - {verb: write, resource: knowledge_graph}
`

func TestExactlyTheSelectedToolsAreListedAndCallable(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	dir := rig.LayOut(t, samples)
	rig.EachSession(t, dir, func(t *testing.T, _ string, s rig.Session) {
		got := rig.ListNames(t, s)
		want := []string{"news_search", "web_search", "notify"}
		for _, name := range want[:2] {
			if !slices.Contains(got, name) {
				t.Errorf("listed %q, want %s among them", got, name)
			}
		}
		if slices.ContainsFunc(got, func(n string) bool { return strings.HasPrefix(n, "s3_") || n == "search_web" }) {
			t.Errorf("listed %q, which has tools that were not selected", got)
		}
		m, _ := s.Ask(t, "tools/call", `{"name":"web_search","arguments":{"query":"phishing"}}`)
		if m.Error != nil || !strings.Contains(string(m.Result), `"content"`) {
			t.Errorf("web_search: %s", m.Raw)
		}
	})
}

// PO-01, PO-02, AZ-06: hidden means that it does not exist, in every era, on
// every transport, by any spelling.
func TestAToolThatWasNotSelectedIsUnknownByAnySpelling(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	dir := rig.LayOut(t, samples)
	refused := 0
	rig.EachSession(t, dir, func(t *testing.T, _ string, s rig.Session) {
		for _, name := range []string{
			"search_web", "atlas__search_web", "atlas/search_web", "atlas.search_web", "s3_delete_bucket", "cloud__s3_delete_bucket",
			"Web_Search", "web_search ", " web_search", "web-search", "web%5Fsearch", "ｗeb_search", "web_search\\u0000", "nimbus__web_search",
			"switchboard_status", "no_such_tool_at_all",
		} {
			m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"%s","arguments":{}}`, name))
			if m.Error == nil || m.Error.Code != -32602 {
				t.Errorf("%q: %s", name, m.Raw)
				continue
			}
			refused++
			var decoded string
			_ = json.Unmarshal([]byte(`"`+name+`"`), &decoded)
			if m.Error.Message != "Unknown tool: "+decoded || string(m.Error.Data) != `{"code":"SB-CAP-001","retryable":"no"}` {
				t.Errorf("%q: message %q, data %s", name, m.Error.Message, m.Error.Data)
			}
		}
	})
	if want := 4 * 16; refused != want {
		t.Errorf("%d refusals, want %d", refused, want)
	}
}

func TestATaskThatLacksSomethingDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, samples)
	g := rig.Serve(t, dir)
	modern := g.Open(t, "/mcp/tasks/impossible", true)
	legacy := &rig.HTTPSession{URL: g.URL + "/mcp/tasks/impossible"}
	list, _ := modern.Ask(t, "tools/list", "")
	initialize := legacy.Send(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	for name, m := range map[string]rig.Message{"modern": list, "legacy": initialize} {
		if m.Error == nil || !strings.Contains(string(m.Error.Data), `"SB-CAP-004"`) || !strings.Contains(m.Error.Message, "write knowledge_graph") {
			t.Errorf("%s: %s", name, m.Raw)
		}
		if strings.Contains(string(m.Raw), "atlas") || strings.Contains(string(m.Raw), "nimbus") {
			t.Errorf("%s: the refusal tells of servers: %s", name, m.Raw)
		}
	}
	out, errs, code := rig.Command(t, dir, "explain", "impossible")
	if code != 1 || !strings.Contains(out, "NOT MET") {
		t.Errorf("explain: exit %d\n%s%s", code, out, errs)
	}
}

func TestWithoutATaskThereIsOnlyTheStatusTool(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, strings.ReplaceAll(samples, "default_task: research\n", ""))
	rig.EachSession(t, dir, func(t *testing.T, _ string, s rig.Session) {
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{"switchboard_status"}) {
			t.Fatalf("listed %q", got)
		}
		m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_status","arguments":{}}`)
		if m.Error != nil || !strings.Contains(string(m.Result), "nimbus") {
			t.Errorf("switchboard_status: %s", m.Raw)
		}
	})
}

func TestAToolThatNeedsAPersonIsRefusedForTheModelToRead(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, samples)
	rig.EachSession(t, dir, func(t *testing.T, _ string, s rig.Session) {
		m, _ := s.Ask(t, "tools/call", `{"name":"notify","arguments":{"channel":"x","text":"y"}}`)
		if !strings.Contains(string(m.Result), `"isError":true`) || !strings.Contains(string(m.Result), "SB-APPR-001") {
			t.Errorf("notify: %s", m.Raw)
		}
	})
}

func TestTheTaskComesFromTheURLTheHeaderOrTheCommandLine(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, samples+`-- tenants/default/tasks/tell.yaml --
task_id: tell
required_capabilities:
  - {verb: notify, resource: slack}
`)
	g := rig.Serve(t, dir)
	for name, s := range map[string]rig.Session{
		"URL, modern":    g.Open(t, "/mcp/tasks/tell", true),
		"URL, legacy":    g.Open(t, "/mcp/tasks/tell", false),
		"header, modern": g.Open(t, "/mcp", true, "Switchboard-Task", "tell"),
		"header, legacy": g.Open(t, "/mcp", false, "Switchboard-Task", "tell"),
		"command line":   rig.Stdio(t, dir, false, "--task", "tell"),
	} {
		got := rig.ListNames(t, s)
		if len(got) == 0 || slices.Contains(got, "web_search") {
			t.Errorf("%s: listed %q", name, got)
		}
	}
	for _, path := range []string{"/mcp/tasks/none"} {
		m, _ := g.Open(t, path, true).Ask(t, "tools/list", "")
		if m.Error == nil || !strings.Contains(string(m.Error.Data), "SB-TASK-001") {
			t.Errorf("%s: %s", path, m.Raw)
		}
	}
}
