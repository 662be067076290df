package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// lazy is a configuration in which all of a cloud's tools are on demand. BUDGET
// and RULES are filled in.
const lazy = `
-- switchboard.yaml --
token_budget: BUDGET
servers:
  nimbus: {transport: stdio, command: [BIN, sample, nimbus-search]}
  cloud: {transport: stdio, command: [BIN, sample, aws-like]}
  hidden: {transport: stdio, command: [BIN, sample, aws-like]}
tenants:
  default: {servers: [nimbus, cloud]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: work
-- tenants/default/tasks/work.yaml --
task_id: work
required_capabilities:
  - {verb: search, resource: internet, constraints: [readonly]}
  - {verb: read, resource: aws, load: on_demand, group: aws, stub: aws_helper}
-- tenants/default/policies/own.rego --
package switchboard.tenant
allowed_tools := {c.id | some c in input.candidate_tools}
RULES
`

func lazily(budget int, rules string) string {
	return strings.NewReplacer("BUDGET", fmt.Sprint(budget), "RULES", rules).Replace(lazy)
}

// helper asks the stub, and returns what it says to the model, with the code of a
// refusal.
func helper(t *testing.T, s rig.Session, args string) (text, code string) {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", `{"name":"aws_helper","arguments":`+args+`}`)
	return m.Text(), rig.Code(m)
}

// A runStatus is what switchboard_status says of a run.
type runStatus struct {
	Budget int `json:"token_budget"`
	Used   int `json:"tokens_used"`
	Left   int `json:"tokens_left"`

	Instructions int `json:"instructions_tokens"`

	Listed []struct {
		Name   string
		Tokens int
	}
	Groups []struct {
		Stub     string
		Tools    int
		Expanded []string
	}
}

func tokens(t *testing.T, s rig.Session) (st runStatus) {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_status"}`)
	if err := json.Unmarshal([]byte(m.Text()), &st); err != nil {
		t.Fatalf("switchboard_status: %v: %s", err, m.Raw)
	}
	return st
}

func TestAGroupIsOneStubUntilItsToolsAreExpanded(t *testing.T) {
	t.Parallel()
	rig.EachSession(t, rig.LayOut(t, lazily(8000, "")), func(t *testing.T, name string, s rig.Session) {
		legacy := strings.HasSuffix(name, "legacy")
		first := rig.ListNames(t, s)
		if !slices.Contains(first, "aws_helper") || slices.ContainsFunc(first, func(n string) bool { return strings.HasPrefix(n, "s3_") }) {
			t.Fatalf("listed %q", first)
		}
		before := tokens(t, s)
		text, code := helper(t, s, `{"action":"list"}`)
		if code != "" || !strings.Contains(text, "\n- s3: ") || !strings.Contains(text, "\n- ec2: ") {
			t.Errorf("list: %s %s", code, text)
		}
		text, code = helper(t, s, `{"action":"search","query":"list the buckets"}`)
		if code != "" || !strings.Contains(text, "\n- s3_list_buckets (") {
			t.Errorf("search: %s %s", code, text)
		}
		// One round trip, and neither the list nor the budget changes.
		text, code = helper(t, s, `{"action":"call","tool":"s3_list_buckets","arguments":{}}`)
		if code != "" || !strings.Contains(text, "Buckets") {
			t.Errorf("call: %s %s", code, text)
		}
		if m, _ := s.Ask(t, "tools/call", `{"name":"s3_get_object","arguments":{}}`); rig.Code(m) != "SB-LAZY-004" || !strings.Contains(m.Text(), "aws_helper") {
			t.Errorf("called by name before it is expanded, with arguments that do not fit: %s", m.Raw)
		}
		if after := tokens(t, s); after.Used != before.Used || !slices.Equal(rig.ListNames(t, s), first) {
			t.Errorf("looking around cost %d tokens", after.Used-before.Used)
		}

		text, code = helper(t, s, `{"action":"expand","tools":["s3_list_buckets","ec2_describe_instances"]}`)
		if code != "" || !strings.Contains(text, `"name":"s3_list_buckets"`) || !strings.Contains(text, `"inputSchema"`) {
			t.Errorf("expand: %s %s", code, text)
		}
		after := tokens(t, s)
		if want := []string{"ec2_describe_instances", "s3_list_buckets"}; after.Used <= before.Used || !slices.Equal(slices.Sorted(slices.Values(after.Groups[0].Expanded)), want) {
			t.Errorf("%d tokens were used and %d are, and %q are expanded", before.Used, after.Used, after.Groups[0].Expanded)
		}
		if got := slices.Contains(rig.ListNames(t, s), "s3_list_buckets"); got != legacy {
			t.Errorf("it is in the list: %v", got)
		}
		if m, _ := s.Ask(t, "tools/call", `{"name":"s3_list_buckets","arguments":{}}`); m.Error != nil || !strings.Contains(string(m.Raw), "Buckets") {
			t.Errorf("called by name: %s", m.Raw)
		}
		text, code = helper(t, s, `{"action":"expand","tools":["s3_list_buckets"]}`)
		if again := tokens(t, s); code != "" || !strings.Contains(text, "already") || again.Used != after.Used {
			t.Errorf("expanded twice: %s %s", code, text)
		}
		text, code = helper(t, s, `{"action":"collapse","service":"s3"}`)
		if code != "" || !strings.Contains(text, "1 tool collapsed") {
			t.Errorf("collapse: %s %s", code, text)
		}
		text, code = helper(t, s, `{"action":"collapse","tools":["ec2_describe_instances"]}`)
		if end := tokens(t, s); code != "" || end.Used != before.Used || !slices.Equal(rig.ListNames(t, s), first) {
			t.Errorf("collapse: %s %s, and %d tokens are used", code, text, end.Used)
		}
		if m, _ := s.Ask(t, "tools/call", `{"name":"s3_list_buckets","arguments":{}}`); rig.Code(m) != "" || !slices.Equal(tokens(t, s).Groups[0].Expanded, []string{"s3_list_buckets"}) {
			t.Errorf("called by name after it was collapsed: %s", m.Raw)
		}
	})
}

// What is not the task's, and what does not exist, cannot be told apart, whatever is
// asked of a stub.
func TestAStubTellsNothingOfWhatIsHidden(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	rig.EachSession(t, rig.LayOut(t, lazily(8000, `deny[c.id] contains "no" if { some c in input.candidate_tools; c.tool == "s3_list_buckets" }`)), func(t *testing.T, _ string, s rig.Session) {
		for _, args := range []string{`{"action":"list"}`, `{"action":"list","service":"s3"}`, `{"action":"search","query":"list buckets","limit":20}`, `{"action":"search","query":"s3_list_buckets"}`} {
			if text, code := helper(t, s, args); code != "" || strings.Contains(text, "s3_list_buckets (") || strings.Contains(text, "hidden") {
				t.Errorf("%s: %s %s", args, code, text)
			}
		}
		for _, ask := range []string{`{"action":"call","tool":%q,"arguments":{}}`, `{"action":"expand","tools":[%q]}`, `{"action":"collapse","tools":[%q]}`} {
			hidden, code := helper(t, s, fmt.Sprintf(ask, "s3_list_buckets"))
			missing, _ := helper(t, s, fmt.Sprintf(ask, "s3_list_bucketz"))
			// What is suggested hangs on the words that were asked for, and never names what is hidden.
			hidden, suggested, _ := strings.Cut(strings.Replace(hidden, "s3_list_buckets", "s3_list_bucketz", 1), "Did you mean")
			missing, _, _ = strings.Cut(missing, "Did you mean")
			if code != "SB-LAZY-003" || hidden != missing || strings.Contains(suggested, "s3_list_buckets") {
				t.Errorf("%s: a hidden tool: %s %s; one that does not exist: %s", ask, code, hidden, missing)
			}
			essential, code := helper(t, s, fmt.Sprintf(ask, "web_search"))
			if code != "SB-LAZY-003" {
				t.Errorf("%s: a tool that is not of the group: %s %s", ask, code, essential)
			}
		}
		m, _ := s.Ask(t, "tools/call", `{"name":"s3_list_buckets","arguments":{}}`)
		n, _ := s.Ask(t, "tools/call", `{"name":"s3_list_bucketz","arguments":{}}`)
		if rig.Code(m) != "SB-CAP-001" || rig.Code(n) != "SB-CAP-001" {
			t.Errorf("by name: %s, and %s", m.Raw, n.Raw)
		}
	})
}

func TestAnExpansionThatPolicyDeniesIsRefusedWhole(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	rule := `deny[c.id] contains "no writes now" if { input.phase == "expand"; some c in input.candidate_tools; startswith(c.tool, "ec2_") }`
	rig.EachSession(t, rig.LayOut(t, lazily(8000, rule)), func(t *testing.T, _ string, s rig.Session) {
		before := tokens(t, s)
		text, code := helper(t, s, `{"action":"expand","tools":["s3_list_buckets","ec2_describe_instances"]}`)
		if code != "SB-LAZY-002" || !strings.Contains(text, "ec2_describe_instances") || strings.Contains(text, "writes") {
			t.Errorf("%s %s", code, text)
		}
		if after := tokens(t, s); after.Used != before.Used || len(after.Groups[0].Expanded) != 0 {
			t.Errorf("a part of it was expanded: %+v", after.Groups)
		}
		if _, code := helper(t, s, `{"action":"expand","tools":["s3_list_buckets"]}`); code != "" {
			t.Errorf("what is allowed: %s", code)
		}
		// To execute a member is to expand it first.
		if text, code := helper(t, s, `{"action":"call","tool":"ec2_describe_instances"}`); code != "SB-LAZY-002" {
			t.Errorf("call: %s %s", code, text)
		}
	})
}

func TestNoServiceIsNoneThatCanBeExpanded(t *testing.T) {
	t.Parallel()
	rig.EachSession(t, rig.LayOut(t, lazily(8000, "")), func(t *testing.T, _ string, s rig.Session) {
		for _, action := range []string{"expand", "collapse"} {
			if text, code := helper(t, s, `{"action":"`+action+`","service":""}`); code != "SB-LAZY-003" {
				t.Errorf("%s: %s %s", action, code, text)
			}
		}
	})
}

func TestAnExpansionOverTheBudgetIsRefusedWithWhatWouldMakeRoom(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, lazily(8000, ""))
	s := rig.Serve(t, dir).Open(t, "/mcp", false)
	first := tokens(t, s)
	base := first.Used - first.Instructions // which make room for tools
	helper(t, s, `{"action":"expand","service":"s3"}`)
	all := tokens(t, s).Used
	rig.WriteFile(t, filepath.Join(dir, "switchboard.yaml"), strings.Replace(rig.ReadFile(t, filepath.Join(dir, "switchboard.yaml")), "8000", fmt.Sprint(all), 1))
	rig.EachSession(t, dir, func(t *testing.T, _ string, s rig.Session) {
		if _, code := helper(t, s, `{"action":"expand","service":"s3"}`); code != "" {
			t.Fatalf("what just fits: %s", code)
		}
		listed := rig.ListNames(t, s)
		text, code := helper(t, s, `{"action":"expand","tools":["ec2_describe_instances"]}`)
		if code != "SB-LAZY-001" || !strings.Contains(text, "so 0 are left") || !strings.Contains(text, "ollapse s3_") {
			t.Fatalf("%s %s", code, text)
		}
		if st := tokens(t, s); st.Used != all || st.Left != 0 || st.Budget != all || !slices.Equal(rig.ListNames(t, s), listed) {
			t.Errorf("the refusal changed something: %+v", st)
		}
		_, rest, _ := strings.Cut(text, "ollapse ")
		suggested, _, _ := strings.Cut(rest, " first")
		quoted, _ := json.Marshal(strings.Split(suggested, ", "))
		helper(t, s, `{"action":"collapse","tools":`+string(quoted)+`}`)
		if text, code := helper(t, s, `{"action":"expand","tools":["ec2_describe_instances"]}`); code != "" {
			t.Errorf("after what was suggested: %s %s", code, text)
		}
	})
	rig.WriteFile(t, filepath.Join(dir, "switchboard.yaml"), strings.Replace(rig.ReadFile(t, filepath.Join(dir, "switchboard.yaml")), fmt.Sprint(all), fmt.Sprint(base-1), 1))
	m, _ := rig.Serve(t, dir).Open(t, "/mcp", true).Ask(t, "tools/list", "")
	if rig.Code(m) != "SB-LAZY-001" || !strings.Contains(string(m.Raw), "aws_helper") || !strings.Contains(string(m.Raw), fmt.Sprintf("budget is %d", base-1)) {
		t.Errorf("essential tools alone are over the budget: %s", m.Raw)
	}
}

// PO-04
func TestAToolThatIsDeniedAfterItWasExpandedIsGoneAndItsCallsAreRefused(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	dir := rig.LayOut(t, lazily(8000, ""))
	g := rig.Serve(t, dir)
	legacy, modern := g.Open(t, "/mcp", false), g.Open(t, "/mcp", true)
	heard := make(chan string, 1)
	stream := func() {
		rig.Listen(t, heard, "legacy", http.MethodGet, legacy.URL, "", http.Header{"Mcp-Session-Id": {legacy.ID}, "Mcp-Protocol-Version": {"2025-11-25"}})
	}
	stream()
	for _, s := range []rig.Session{legacy, modern} {
		if _, code := helper(t, s, `{"action":"expand","tools":["s3_list_buckets"]}`); code != "" {
			t.Fatal(code)
		}
	}
	wait.Receive(t, "that the tools are expanded", heard)
	stream()
	file := filepath.Join(dir, "tenants/default/policies/own.rego")
	rig.WriteFile(t, file, rig.ReadFile(t, file)+"\n"+`deny[c.id] contains "no" if { some c in input.candidate_tools; c.tool == "s3_list_buckets" }`)
	wait.Receive(t, "that the legacy client's list is another", heard)
	for name, s := range map[string]rig.Session{"legacy": legacy, "modern": modern} {
		rig.Eventually(t, name+" does not list it", func() string { // each run is bound again by itself
			if got := rig.ListNames(t, s); slices.Contains(got, "s3_list_buckets") {
				return fmt.Sprintf("lists %q", got)
			}
			return ""
		})
		if m, _ := s.Ask(t, "tools/call", `{"name":"s3_list_buckets","arguments":{}}`); rig.Code(m) != "SB-CAP-001" {
			t.Errorf("%s: by name: %s", name, m.Raw)
		}
		if text, code := helper(t, s, `{"action":"call","tool":"s3_list_buckets"}`); code != "SB-LAZY-003" {
			t.Errorf("%s: through the stub: %s %s", name, code, text)
		}
	}
}

func TestALegacyClientIsToldOfAnExpansionAndAModernOneIsNot(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, lazily(8000, "")))
	legacy, modern := g.Open(t, "/mcp", false), g.Open(t, "/mcp", true)
	heard := make(chan string, 8)
	rig.Listen(t, heard, "legacy", http.MethodGet, legacy.URL, "", http.Header{"Mcp-Session-Id": {legacy.ID}, "Mcp-Protocol-Version": {"2025-11-25"}})
	rig.Listen(t, heard, "modern", http.MethodPost, modern.URL, `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":`+rig.WithMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`,
		http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}})
	for _, s := range []rig.Session{modern, legacy} {
		if _, code := helper(t, s, `{"action":"expand","tools":["s3_list_buckets","s3_get_object"]}`); code != "" {
			t.Fatal(code)
		}
	}
	if got := wait.Receive(t, "that the tools are expanded", heard); !strings.Contains(got, "legacy") {
		t.Errorf("%s was told", got)
	}
	select {
	case got := <-heard:
		t.Errorf("%s was told too", got)
	default:
	}
	if got := rig.ListNames(t, modern); slices.Contains(got, "s3_list_buckets") {
		t.Errorf("a modern list has changed: %q", got)
	}
}

const ceiling = `
-- switchboard.yaml --
servers:
  nimbus: {transport: stdio, command: [BIN, sample, nimbus-search]}
  chat: {transport: stdio, command: [BIN, sample, notifier]}
  cloud: {transport: stdio, command: [BIN, sample, aws-like]}
tenants:
  default: {servers: ["*"], trust: declared, token_budget: 5000, declare: [{verb: search, resource: internet, constraints: [readonly]}, {verb: read, resource: aws}]}
-- tenants/default/tenant.yaml --
tenant: default
-- tenants/default/tasks/other.yaml --
task_id: other
required_capabilities: [{verb: notify, resource: slack}]
`

func TestAClientDeclaresItsTaskOnceAndWithinTheCeiling(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OnlyNarrower)
	rig.EachSession(t, rig.LayOut(t, ceiling), func(t *testing.T, name string, s rig.Session) {
		legacy := strings.HasSuffix(name, "legacy")
		own := []string{"switchboard_status", "switchboard_declare_task"}
		if got := rig.ListNames(t, s); !slices.Equal(got, own) {
			t.Fatalf("listed %q", got)
		}
		declare := func(args string) (text, code string) {
			m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_declare_task","arguments":`+args+`}`)
			return m.Text(), rig.Code(m)
		}
		for args, want := range map[string]string{
			`{"required_capabilities":[{"verb":"notify","resource":"slack"}]}`:                               "SB-TASK-002",
			`{"required_capabilities":[{"verb":"search","resource":"cloud"}]}`:                               "SB-TASK-002",
			`{"required_capabilities":[{"verb":"search","resource":"internet","constraints":["no_such"]}]}`:  "SB-TASK-002",
			`{"required_capabilities":[{"verb":"search","resource":"internet"}],"token_budget":5001}`:        "SB-TASK-002",
			`{"required_capabilities":[{"verb":"search","resource":"internet"}],"token_budget":10}`:          "SB-LAZY-001",
			`{"required_capabilities":[{"verb":"search","resource":"internet","constraints":["pii_safe"]}]}`: "SB-CAP-004",
			`{"required_capabilities":[{"verb":"search","resource":"internet"}],"mode":"autopilot"}`:         "SB-CAP-003",
			`{"required_capabilities":[{"verb":"search","resource":"internet","tools":["*/*"]}]}`:            "SB-CAP-003",
			`{"required_capabilities":[{"tools":["*/*"]}]}`:                                                  "SB-CAP-003",
			`{"required_capabilities":[{"verb":"search","resource":"internet"}],"token_budget":400}`:         "SB-LAZY-001",
			`{"required_capabilities":[]}`: "SB-CAP-003",
			`{}`:                           "SB-CAP-003",
		} {
			if text, code := declare(args); code != want {
				t.Errorf("%s: %s %s, want %s", args, code, text, want)
			}
		}
		if got := rig.ListNames(t, s); !slices.Equal(got, own) {
			t.Fatalf("a refusal has changed the list to %q", got)
		}
		if m, _ := s.Ask(t, "tools/call", `{"name":"web_search","arguments":{"query":"x"}}`); rig.Code(m) != "SB-CAP-001" {
			t.Errorf("before it is declared: %s", m.Raw)
		}
		const task = `{"required_capabilities":[{"verb":"search","resource":"internet"},{"verb":"read","resource":"aws","load":"on_demand"}]}`
		text, code := declare(task)
		if code != "" || !strings.Contains(text, `"name":"web_search"`) || !strings.Contains(text, `"name":"aws_helper"`) {
			t.Fatalf("%s %s", code, text)
		}
		if got := rig.ListNames(t, s); slices.Contains(got, "web_search") != legacy || slices.Contains(got, "aws_helper") != legacy {
			t.Errorf("now %q are listed", got)
		}
		if m, _ := s.Ask(t, "tools/call", `{"name":"web_search","arguments":{"query":"phishing"}}`); rig.Code(m) != "" {
			t.Errorf("what was declared: %s", m.Raw)
		}
		if text, code := helper(t, s, `{"action":"call","tool":"s3_list_buckets"}`); code != "" {
			t.Errorf("through the stub: %s %s", code, text)
		}
		// The row's constraint came along: what also writes is not there.
		if m, _ := s.Ask(t, "tools/call", `{"name":"notify","arguments":{}}`); rig.Code(m) != "SB-CAP-001" {
			t.Errorf("what was not declared: %s", m.Raw)
		}
		if st := tokens(t, s); st.Budget != 5000 || st.Used > 5000 {
			t.Errorf("%+v", st)
		}
		if text, code := declare(`{"required_capabilities":[{"verb":"read","resource":"aws"}]}`); code != "SB-TASK-002" || !strings.Contains(text, "bound already") {
			t.Errorf("a second time: %s %s", code, text)
		}
		if text, code := declare(task); code != "" || !strings.Contains(text, `"name":"web_search"`) {
			t.Errorf("the same once more: %s %s", code, text)
		}
	})
}

func TestADeclaredTaskStaysBoundUntilTheCeilingForbidsIt(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OnlyNarrower)
	dir := rig.LayOut(t, ceiling)
	g := rig.Serve(t, dir)
	legacy, modern := g.Open(t, "/mcp", false), g.Open(t, "/mcp", true)
	changes := func(change func()) {
		heard := make(chan string, 1)
		rig.Listen(t, heard, "legacy", http.MethodGet, legacy.URL, "", http.Header{"Mcp-Session-Id": {legacy.ID}, "Mcp-Protocol-Version": {"2025-11-25"}})
		change()
		wait.Receive(t, "that the legacy client's list is another", heard)
	}
	all := map[string]rig.Session{"legacy": legacy, "modern": modern}
	changes(func() {
		for name, s := range all {
			m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_declare_task","arguments":{"required_capabilities":[{"verb":"search","resource":"internet"},{"verb":"read","resource":"aws","load":"on_demand"}]}}`)
			if rig.Code(m) != "" {
				t.Fatalf("%s: %s", name, m.Raw)
			}
		}
	})
	reloads := func(change func()) {
		before := g.Reloads(rig.Reloaded)
		changes(change)
		g.AwaitReload(t, before, rig.Reloaded) // and so no run is bound as before
	}
	reloads(func() { // one tool less, of which the stub tells
		rig.WriteFile(t, filepath.Join(dir, "tenants/default/policies/own.rego"), `package switchboard.tenant
allowed_tools := {c.id | some c in input.candidate_tools; c.tool != "s3_list_buckets"}
`)
	})
	for name, s := range all {
		if m, _ := s.Ask(t, "tools/call", `{"name":"web_search","arguments":{"query":"phishing"}}`); rig.Code(m) != "" {
			t.Errorf("%s: what was declared: %s", name, m.Raw)
		}
		if text, code := helper(t, s, `{"action":"call","tool":"s3_list_buckets"}`); code != "SB-LAZY-003" {
			t.Errorf("%s: what is denied now: %s %s", name, code, text)
		}
	}
	file := filepath.Join(dir, "switchboard.yaml")
	reloads(func() {
		rig.ReplaceFile(t, file, strings.Replace(rig.ReadFile(t, file), ", {verb: read, resource: aws}", "", 1))
	})
	for name, s := range all {
		if m, _ := s.Ask(t, "tools/call", `{"name":"web_search","arguments":{"query":"phishing"}}`); rig.Code(m) != "SB-TASK-002" {
			t.Errorf("%s: beyond the ceiling: %s", name, m.Raw)
		}
	}
}

func TestWithServersAloneOneStubTakesThePlaceOfAllThatIsTooMuch(t *testing.T) {
	t.Parallel()
	for budget, folded := range map[int]bool{600: true, 60000: false} {
		dir := rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
token_budget: %d
servers:
  nimbus: {transport: stdio, command: [BIN, sample, nimbus-search]}
  cloud: {transport: stdio, command: [BIN, sample, aws-like]}
`, budget))
		rig.EachSession(t, dir, func(t *testing.T, _ string, s rig.Session) {
			got := rig.ListNames(t, s)
			if !folded {
				if !slices.Contains(got, "s3_list_buckets") || slices.Contains(got, "tools_helper") || slices.Contains(got, "switchboard_status") {
					t.Errorf("listed %q", got)
				}
				return
			}
			if !slices.Equal(got, []string{"switchboard_status", "tools_helper"}) {
				t.Fatalf("listed %q", got)
			}
			ask := func(args string) string {
				m, _ := s.Ask(t, "tools/call", `{"name":"tools_helper","arguments":`+args+`}`)
				return m.Text()
			}
			if got := ask(`{"action":"list"}`); !strings.Contains(got, "\n- cloud: ") || !strings.Contains(got, "\n- nimbus: ") {
				t.Errorf("list: %s", got)
			}
			if got := ask(`{"action":"call","tool":"s3_list_buckets"}`); !strings.Contains(got, "Buckets") {
				t.Errorf("call: %s", got)
			}
		})
		out, errs, code := rig.Command(t, dir, "call", "s3_list_buckets")
		if code != 0 || !strings.Contains(out, "Buckets") {
			t.Errorf("switchboard call: exit %d: %s%s", code, out, errs)
		}
	}
}

func TestWhereItIsAskedForWhatWasUsedLongestAgoMakesRoom(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, lazily(1022, ""))
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/tenant.yaml"), "tenant: default\ndefault_task: work\nlazy: {on_full: collapse_oldest}\n")
	s := rig.Serve(t, dir).Open(t, "/mcp", false)
	all := []string{"s3_list_buckets", "ec2_describe_regions", "iam_list_users", "sqs_list_queues", "lambda_list_functions", "iam_list_policies"}
	for i, name := range all {
		if text, code := helper(t, s, fmt.Sprintf(`{"action":"expand","tools":[%q]}`, name)); code != "" {
			t.Fatalf("%s: %s %s", name, code, text)
		}
		if i > 0 { // so that another is the oldest
			s.Ask(t, "tools/call", `{"name":"s3_list_buckets","arguments":{}}`)
		}
	}
	st := tokens(t, s)
	if st.Used > 1022 || !slices.Contains(st.Groups[0].Expanded, "s3_list_buckets") || !slices.Contains(st.Groups[0].Expanded, "iam_list_policies") || slices.Contains(st.Groups[0].Expanded, "ec2_describe_regions") {
		t.Errorf("of 1022 tokens %d are used, and expanded are %q", st.Used, st.Groups[0].Expanded)
	}
}

func TestTheExamplesOfTheLazyPageAreGood(t *testing.T) {
	t.Parallel()
	text := rig.ReadFile(t, "../../docs/lazy.md")
	_, rest, _ := strings.Cut(text, "```rego\n")
	rule, _, _ := strings.Cut(rest, "```")
	yaml := blocks(t, "docs/lazy.md")
	if len(yaml) != 1 || rule == "" {
		t.Fatalf("docs/lazy.md has %d blocks of YAML, and this test knows 1; its rule: %q", len(yaml), rule)
	}
	dir := rig.LayOut(t, "\n-- switchboard.yaml --\nservers:\n  x: {transport: stdio, command: [x]}\n"+yaml[0]+
		"\n-- tenants/acme/tenant.yaml --\ntenant: acme\n-- tenants/acme/policies/own.rego --\npackage switchboard.tenant\n"+rig.AllowAll+rule)
	if out, errs, code := rig.Command(t, dir, "validate", "--tenant", "acme"); code != 0 {
		t.Errorf("validate: exit %d\n%s%s", code, out, errs)
	}
}

// A server whose tools grow beyond what there is room for changes nothing for the
// others: what is expanded gives way, and then what has grown.
func TestAToolThatGrowsBeyondTheBudgetIsWithheldAndStatusSaysSo(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, `
-- switchboard.yaml --
token_budget: 722
servers:
  calm: {transport: stdio, command: [FAKE, '{"name":"calm","inputSchema":{"type":"object"}}', '{"name":"spare","inputSchema":{"type":"object"}}']}
  grows: {transport: stdio, command: [FAKE, '{"name":"grow","inputSchema":{"type":"object"}}']}
tenants:
  default: {servers: ["*"], allow: [by_name], trial: [grows]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: work
-- tenants/default/tasks/work.yaml --
task_id: work
required_capabilities:
  - {tools: ["grows/*", "calm/calm"]}
  - {tools: ["calm/spare"], load: on_demand, group: aws}
`)
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false)
	if _, code := helper(t, s, `{"action":"expand","tools":["spare"]}`); code != "" {
		t.Fatal(code)
	}
	big, _ := json.Marshal(`{"name":"big","description":"` + strings.Repeat("grown out of all proportion ", 200) + `","inputSchema":{"type":"object"}}`)
	s.Ask(t, "tools/call", `{"name":"grow","arguments":{"do":"grow","bytes":`+string(big)+`}}`)
	want := []string{"switchboard_status", "grow", "calm", "aws_helper"}
	rig.Eventually(t, "the list is without what has grown", func() string {
		got := rig.ListNames(t, s)
		if slices.Contains(got, "big") {
			t.Fatalf("listed %q", got)
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			return fmt.Sprintf("listed %q", got)
		}
		return ""
	})
	if st := tokens(t, s); st.Used > 600 || len(st.Groups[0].Expanded) != 0 {
		t.Errorf("%+v", st)
	}
	if m, _ := s.Ask(t, "tools/call", `{"name":"big","arguments":{}}`); rig.Code(m) != "SB-LAZY-001" {
		t.Errorf("what is withheld: %s", m.Raw)
	}
	if m, _ := s.Ask(t, "tools/call", `{"name":"calm","arguments":{}}`); rig.Code(m) != "" {
		t.Errorf("what is not: %s", m.Raw)
	}
	if out, _, _ := rig.Command(t, dir, "status", "--url", g.URL); !strings.Contains(out, "withheld, since it has grown beyond the token budget: big") {
		t.Errorf("status does not say so:\n%s", out)
	}
}

// What stands in the way of a tool stands in the way of the stub that calls it.
func TestAToolThatNeedsAPersonIsRefusedThroughItsStubToo(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	rig.EachSession(t, rig.LayOut(t, `
-- switchboard.yaml --
approvals: {wait: 1s}
servers:
  chat: {transport: stdio, command: [BIN, sample, notifier]}
tenants:
  default: {servers: ["*"]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: work
-- tenants/default/tasks/work.yaml --
task_id: work
required_capabilities: [{verb: notify, resource: slack, load: on_demand, group: aws}]
`), func(t *testing.T, _ string, s rig.Session) {
		if text, code := helper(t, s, `{"action":"call","tool":"notify","arguments":{"channel":"x","text":"y"}}`); code != "SB-APPR-001" {
			t.Errorf("through the stub: %s %s", code, text)
		}
		helper(t, s, `{"action":"expand","tools":["notify"]}`)
		if m, _ := s.Ask(t, "tools/call", `{"name":"notify","arguments":{"channel":"x","text":"y"}}`); rig.Code(m) != "SB-APPR-001" {
			t.Errorf("by name: %s", m.Raw)
		}
		// JS-01: a message that two readers could read otherwise never gets so far.
		for _, args := range []string{`{"action":"call","tool":"notify","tool":"other"}`, `{"action":"call","tool":"notify","arguments":{"channel":"a","channel":"b"}}`} {
			if m, _ := s.Ask(t, "tools/call", `{"name":"aws_helper","arguments":`+args+`}`); m.Error == nil || m.Error.Code != -32600 && m.Error.Code != -32700 {
				t.Errorf("%s: %s", args, m.Raw)
			}
		}
	})
}

// A key that names tasks allows these, and no task that is made up.
func TestAKeyThatNamesItsTasksDeclaresNone(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OnlyNarrower)
	free, rows := rig.NewKey(t, "free")
	bound, more := rig.NewKey(t, "bound", "--task", "other")
	dir := rig.LayOut(t, strings.Replace(ceiling, "tenant: default\n", "tenant: default\nkeys:\n"+rows+more, 1))
	g := rig.Serve(t, dir)
	const args = `{"name":"switchboard_declare_task","arguments":{"required_capabilities":[{"verb":"search","resource":"internet"}]}}`
	for _, modern := range []bool{false, true} {
		for key, may := range map[string]bool{free: true, bound: false} {
			s := g.Open(t, "/mcp", modern, "Authorization", "Bearer "+key)
			if got := slices.Contains(rig.ListNames(t, s), "switchboard_declare_task"); got != may {
				t.Errorf("modern %v: it may declare: %v, want %v", modern, got, may)
			}
			if m, _ := s.Ask(t, "tools/call", args); (rig.Code(m) == "") != may {
				t.Errorf("modern %v: %s", modern, m.Raw)
			}
		}
	}
}

// AZ-01: how long an answer takes does not tell a tool that is hidden from one that
// does not exist, whatever a stub is asked.
func TestTheTimeOfAnAnswerTellsNothingOfWhatIsHidden(t *testing.T) {
	t.Parallel()
	s := rig.Serve(t, rig.LayOut(t, lazily(8000, `deny[c.id] contains "no" if { some c in input.candidate_tools; c.tool == "s3_list_buckets" }`))).Open(t, "/mcp", true)
	for _, ask := range []string{
		`{"action":"call","tool":%q,"arguments":{}}`, `{"action":"expand","tools":[%q]}`, `{"action":"collapse","tools":[%q]}`,
		`{"action":"search","query":%q}`, `{"action":"list","service":%q}`,
	} {
		took := map[string][]time.Duration{}
		for range 60 {
			for _, name := range []string{"s3_list_buckets", "s3_list_bucketz"} {
				start := time.Now()
				helper(t, s, fmt.Sprintf(ask, name))
				took[name] = append(took[name], time.Since(start))
			}
		}
		median := func(name string) time.Duration {
			slices.Sort(took[name])
			return took[name][len(took[name])/2]
		}
		hidden, missing := median("s3_list_buckets"), median("s3_list_bucketz")
		if ratio := float64(hidden) / float64(missing); ratio > 5 || ratio < 0.2 {
			t.Errorf("%s: %v for a tool that is hidden, and %v for one that does not exist", ask, hidden, missing)
		}
	}
}

// A modern client listens before a server exists that its task needs.
func TestAClientThatListensWhileItsTaskCannotBeMetIsToldWhenItCan(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OnlyNarrower)
	dir := rig.LayOut(t, samples)
	task := filepath.Join(dir, "tenants/default/tasks/later.yaml")
	rig.WriteFile(t, task, "task_id: later\nrequired_capabilities:\n  - {verb: read, resource: knowledge_graph}\n")
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp/tasks/later", true)
	if m, _ := s.Ask(t, "tools/list", `{}`); rig.Code(m) != "SB-CAP-004" {
		t.Fatalf("before, tools/list answers %s", m.Raw)
	}
	heard := make(chan string, 1)
	rig.Listen(t, heard, "modern", http.MethodPost, s.URL, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":`+rig.WithMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`,
		http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}})
	rig.ReplaceFile(t, task, "task_id: later\nrequired_capabilities:\n  - {verb: search, resource: internet}\n")
	wait.Receive(t, "the client hears of its tools", heard)
	if names := rig.ListNames(t, s); !slices.Contains(names, "web_search") {
		t.Errorf("after, the tools are %q", names)
	}
}
