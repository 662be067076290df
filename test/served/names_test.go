package served_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/fault"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A rival is a fake over HTTP that answers each call with its own name. It can be killed, and comes
// back at the same address.
type rival struct {
	*fakeserver.Server
	name, address string
	server        *httptest.Server
}

func newRival(t *testing.T, name string, tools ...string) *rival {
	t.Helper()
	r := &rival{Server: fakeserver.New(tools), name: name}
	r.Says = fmt.Sprintf(`{"content":[{"type":"text","text":"served by %s"}]}`, name)
	r.server = httptest.NewServer(r.Server)
	r.address = r.server.Listener.Addr().String()
	t.Cleanup(func() { r.server.Close() })
	return r
}

func (r *rival) kill() {
	r.server.CloseClientConnections()
	r.server.Close()
}

func (r *rival) revive(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	r.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: r.Server}} //nolint:gosec // a test's
	r.server.Start()
}

// searches is the definition of a tool that searches the internet; schema is what its input schema
// holds besides the query.
func searches(name, schema string) string {
	return fmt.Sprintf(`{"name":%q,"_meta":{"x-summit-capabilities":[{"verb":"search","resource":"internet","constraints":["readonly"]}]},`+
		`"inputSchema":{"type":"object","properties":{"query":{"type":"string"}}%s}}`, name, schema)
}

const twoClasses = "tenant: default\ndefault_task: t\nranking: {classes: [%s]}\n"

// rivalry lays out a configuration in which ha, of class paid_api, comes before hb, of class free_api.
func rivalry(t *testing.T, ha, hb *rival) (dir string) {
	t.Helper()
	return rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
servers:
  ha: {transport: http, url: "http://%s/mcp", class: paid_api, health: {every: 1s}}
  hb: {transport: http, url: "http://%s/mcp", class: free_api, health: {every: 1s}}
tenants: {default: {servers: ["*"]}}
-- tenants/default/tenant.yaml --
`+fmt.Sprintf(twoClasses, "paid_api, free_api")+`
-- tenants/default/tasks/t.yaml --
task_id: t
required_capabilities: [{verb: search, resource: internet}]
-- tenants/default/tasks/as.yaml --
task_id: as
required_capabilities: [{verb: search, resource: internet, select: tool, as: find}]
`, ha.address, hb.address))
}

// calls returns what a call of the tool says: a text, or the code of a refusal.
func calls(t *testing.T, s rig.Session, tool string) string {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"query":"x"}}`, tool))
	if code := rig.Code(m); code != "" {
		return code
	}
	return m.Text()
}

// awaits calls the tool until it says want. It returns what the calls said before.
func awaits(t *testing.T, who string, s rig.Session, tool, want string) (before []string) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%s: %s says %q", who, tool, want), func() string {
		if got := calls(t, s, tool); got != want {
			before = append(before, got)
			return fmt.Sprintf("after %q", before)
		}
		return ""
	})
	return before
}

// clients are a client of each kind, of the tasks t and as.
func clients(t *testing.T, g *rig.Gateway) map[string]rig.Session {
	t.Helper()
	return map[string]rig.Session{
		"legacy": g.Open(t, "/mcp", false), "modern": g.Open(t, "/mcp", true),
		"legacy, as": g.Open(t, "/mcp/tasks/as", false), "modern, as": g.Open(t, "/mcp/tasks/as", true),
		"stdio": rig.Stdio(t, g.Dir, false), "stdio, modern": rig.Stdio(t, g.Dir, true),
	}
}

func nameFor(who string) string {
	if strings.HasSuffix(who, "as") {
		return "find"
	}
	return "web_search"
}

// listBytes is the result of tools/list, without what tells the client of this one answer.
func listBytes(t *testing.T, s rig.Session) string {
	t.Helper()
	m, _ := s.Ask(t, "tools/list", "{}")
	var list struct{ Tools json.RawMessage }
	if err := json.Unmarshal(m.Result, &list); err != nil {
		t.Fatalf("tools/list: %v: %s", err, m.Raw)
	}
	return string(list.Tools)
}

func TestNames1AFallbackKeepsTheName(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	ha, hb := newRival(t, "ha", searches("web_search", "")), newRival(t, "hb", searches("web_search", ""))
	g := rig.Serve(t, rivalry(t, ha, hb))
	all := clients(t, g)
	before := map[string]string{}
	for who, s := range all {
		if got := calls(t, s, nameFor(who)); got != "served by ha" {
			t.Fatalf("%s: at first it is %s", who, got)
		}
		before[who] = listBytes(t, s)
	}
	ha.kill()
	for who, s := range all {
		for _, code := range awaits(t, who, s, nameFor(who), "served by hb") {
			if code != "SB-DISC-002" && code != "SB-ROUT-001" && code != "served by ha" {
				t.Errorf("%s: meanwhile a call gave %s", who, code)
			}
		}
		if got := listBytes(t, s); got != before[who] {
			t.Errorf("%s: the list was %s and is %s", who, before[who], got)
		}
	}
}

func TestNames1AToolThatDoesNotStandInIsToldWithItsDefinition(t *testing.T) {
	t.Parallel()
	ha, hb := newRival(t, "ha", searches("web_search", "")), newRival(t, "hb", searches("web_search", `,"required":["query"]`))
	g := rig.Serve(t, rivalry(t, ha, hb))
	all := clients(t, g)
	for who, s := range all {
		calls(t, s, nameFor(who))
		listBytes(t, s)
	}
	ha.kill()
	for who, s := range all {
		name := nameFor(who)
		// A client that asks for the list again knows the new definition. This one calls.
		awaits(t, who, s, name, "SB-CAP-008")
		m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"query":"x"}}`, name))
		if code := rig.Code(m); code == "SB-CAP-008" && (!strings.Contains(m.Text(), `"required":["query"]`) || !strings.Contains(m.Text(), `"name":"`+name+`"`) ||
			!strings.Contains(string(m.Raw), `"retryable":"yes"`)) {
			t.Errorf("%s: the answer does not say how to go on: %s", who, m.Raw)
		}
		awaits(t, who, s, name, "served by hb")
	}
}

func TestNames2TheListDoesNotDependOnWhatWasBefore(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.Deterministic)
	ha, hb := newRival(t, "ha", searches("web_search", "")), newRival(t, "hb", searches("web_search", ""), searches("web_find", ""))
	dir := rivalry(t, ha, hb)
	g := rig.Serve(t, dir)
	old := map[bool]rig.Session{false: g.Open(t, "/mcp", false), true: g.Open(t, "/mcp", true)}
	for _, s := range old {
		rig.ListNames(t, s)
	}
	check := func(when, want string) {
		t.Helper()
		for modern, s := range old {
			rig.Eventually(t, fmt.Sprintf("%s: the client that was there before sees %s, modern: %v", when, want, modern), func() string {
				if got := strings.Join(rig.ListNames(t, s), " "); got != want {
					return got
				}
				return ""
			})
			if fresh := g.Open(t, "/mcp", modern); listBytes(t, fresh) != listBytes(t, s) {
				t.Errorf("%s, modern %v: a fresh client gets %s, and the one that was there before %s", when, modern, listBytes(t, fresh), listBytes(t, s))
			}
		}
		out, errs, code := rig.Command(t, dir, "tools", "--json", "--url", g.URL)
		if code != 0 {
			t.Fatalf("tools: %s", errs)
		}
		for name := range strings.FieldsSeq(want) {
			if !strings.Contains(out, `"`+name+`"`) {
				t.Errorf("%s: switchboard tools does not show %s:\n%s", when, name, out)
			}
		}
	}
	check("at first", "web_search")
	tenant := filepath.Join(dir, "tenants/default/tenant.yaml")
	rig.WriteFile(t, tenant, fmt.Sprintf(twoClasses, "free_api, paid_api"))
	check("after the classes are swapped", "web_find web_search")
	rig.WriteFile(t, tenant, fmt.Sprintf(twoClasses, "paid_api, free_api"))
	check("after they are swapped back", "web_search")
	for modern, s := range old {
		if got := calls(t, s, "web_find"); got != "SB-CAP-008" && got != "SB-CAP-004" {
			t.Errorf("modern %v: a tool that was shown and is not selected any more says %s", modern, got)
		}
	}
}

func TestNames3WhereNoServerIsFitWhatIsBoundStaysBound(t *testing.T) {
	t.Parallel()
	ha, hb := newRival(t, "ha", searches("web_search", "")), newRival(t, "hb", searches("google_search", ""))
	g := rig.Serve(t, rivalry(t, ha, hb))
	all := map[string]rig.Session{"legacy": g.Open(t, "/mcp", false), "modern": g.Open(t, "/mcp", true)}
	for _, s := range all {
		rig.ListNames(t, s)
	}
	ha.kill()
	for who, s := range all {
		rig.Eventually(t, who+" is told that google_search serves", func() string {
			if got := rig.ListNames(t, s); !slices.Equal(got, []string{"google_search"}) {
				return fmt.Sprint(got)
			}
			return ""
		})
	}
	hb.kill()
	for who, s := range all {
		awaits(t, who, s, "google_search", "SB-ROUT-001")
		for range 5 {
			if got := rig.ListNames(t, s); !slices.Equal(got, []string{"google_search"}) {
				t.Errorf("%s: the list is %q", who, got)
			}
		}
		m, _ := s.Ask(t, "tools/call", `{"name":"google_search","arguments":{}}`)
		if rig.Code(m) != "SB-ROUT-001" || !strings.Contains(string(m.Raw), `"retryable":"later"`) {
			t.Errorf("%s: a call says %s", who, m.Raw)
		}
	}
	hb.revive(t)
	for who, s := range all {
		awaits(t, who, s, "google_search", "served by hb")
	}
}

func TestNames14NamesHoldWhenAServerComesUpLaterOrIsAwayAtARestart(t *testing.T) {
	t.Parallel()
	ha, hb := newRival(t, "ha", searches("web_search", "")), newRival(t, "hb", searches("web_search", ""))
	dir := rivalry(t, ha, hb)
	// Both tools are in the list, so that both have their long names once both are known.
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/tasks/both.yaml"), "task_id: both\nrequired_capabilities: [{tools: [\"*/*\"]}]\n")
	config, err := os.ReadFile(filepath.Join(dir, "switchboard.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rig.WriteFile(t, filepath.Join(dir, "switchboard.yaml"), strings.Replace(string(config), `servers: ["*"]}`, `servers: ["*"], allow: [by_name]}`, 1))
	hb.kill()
	g := rig.Serve(t, dir)
	legacy, modern := g.Open(t, "/mcp/tasks/both", false), g.Open(t, "/mcp/tasks/both", true)
	for _, s := range []rig.Session{legacy, modern} {
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{"web_search"}) {
			t.Fatalf("while hb is away the list is %q", got)
		}
	}
	hb.revive(t)
	rig.Eventually(t, "hb is there", func() string {
		if got := rig.ListNames(t, g.Open(t, "/mcp/tasks/both", false)); !slices.Equal(got, []string{"ha__web_search", "hb__web_search"}) {
			return fmt.Sprint(got)
		}
		return ""
	})
	for who, s := range map[string]rig.Session{"legacy": legacy, "modern": modern} {
		if got := calls(t, s, "web_search"); got != "served by ha" {
			t.Errorf("%s: the name that it was shown says %s", who, got)
		}
	}
	hb.kill()
	again := rig.Serve(t, dir)
	for _, old := range []bool{false, true} {
		if got := rig.ListNames(t, again.Open(t, "/mcp/tasks/both", old)); !slices.Equal(got, []string{"ha__web_search", "hb__web_search"}) {
			t.Errorf("after a restart without hb, modern %v, the list is %q", old, got)
		}
	}
	if got := calls(t, again.Open(t, "/mcp/tasks/both", true), "web_search"); got != "served by ha" {
		t.Errorf("after a restart the name that a modern client was shown says %s", got)
	}
}

// A client that fails to notice costs nothing: the table says how many of its calls fail in each case, and
// how long it takes until the other server serves.
func TestNames4TheFirstFailureIsTheOnlyOne(t *testing.T) {
	t.Parallel()
	type way struct {
		name   string
		fails  func(t *testing.T, a *fault.HTTP)
		failed int // calls of one client that fail, at most
	}
	all := func(kind fault.Kind) func(*testing.T, *fault.HTTP) {
		return func(_ *testing.T, a *fault.HTTP) {
			for _, method := range []string{"", "ping", "tools/list", "server/discover"} {
				a.Arm(fault.Order{Kind: kind, Method: method})
			}
		}
	}
	for _, w := range []way{
		{"refused", func(_ *testing.T, a *fault.HTTP) { a.Arm(fault.Order{Kind: fault.Refuse}) }, 1},
		{"503", all(fault.Status503), 1},
		{"hung", all(fault.HangBefore), 1},
	} {
		for _, tr := range []fault.Transport{fault.Legacy, fault.Modern} {
			t.Run(fmt.Sprintf("%s, %s", w.name, tr), func(t *testing.T) {
				t.Parallel()
				p := newPair(t, tr, ", timeout: 1s, health: {every: 30s, timeout: 1s}")
				g := rig.Serve(t, p.dir)
				clients := map[string]rig.Session{"legacy": g.Open(t, "/mcp", false), "modern": g.Open(t, "/mcp", true)}
				for who, s := range clients {
					if got := p.served(t, s, fault.Stateful, "before-"+who); got != "a" {
						t.Fatalf("%s: at first %s serves", who, got)
					}
				}
				w.fails(t, p.a)
				began := time.Now()
				failed := map[string][]string{}
				for i := 0; len(failed["done"]) < 2 && i < 50; i++ {
					for who, s := range clients {
						if slices.Contains(failed["done"], who) {
							continue
						}
						if got := p.served(t, s, fault.Stateful, fmt.Sprintf("call-%s-%d", who, i)); got == "b" {
							failed["done"] = append(failed["done"], who)
						} else {
							failed[who] = append(failed[who], got)
						}
					}
				}
				took := time.Since(began).Round(time.Millisecond)
				t.Logf("| %s | %s | legacy client: %d failed, modern client: %d failed | %s |", w.name, tr, len(failed["legacy"]), len(failed["modern"]), took)
				for who := range clients {
					if len(failed[who]) > w.failed {
						t.Errorf("%s: calls gave %q before the other server served; want at most %d failures", who, failed[who], w.failed)
					}
				}
			})
		}
	}
}

// Number 3, and the run goes on: the only other server comes later.
func TestNames3ARunLeavesAServerThatIsAwayAsSoonAsAnotherCanServe(t *testing.T) {
	t.Parallel()
	ha, hb := newRival(t, "ha", searches("web_search", "")), newRival(t, "hb", searches("web_search", ""))
	dir := rivalry(t, ha, hb)
	main := filepath.Join(dir, "switchboard.yaml")
	whole := rig.ReadFile(t, main)
	alone := regexp.MustCompile(`(?m)^  hb: .*\n`).ReplaceAllString(whole, "")
	rig.WriteFile(t, main, alone)
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/tenant.yaml"), fmt.Sprintf(twoClasses, "paid_api"))
	g := rig.Serve(t, dir)
	all := map[string]rig.Session{"legacy": g.Open(t, "/mcp", false), "modern": g.Open(t, "/mcp", true)}
	for who, s := range all {
		awaits(t, who, s, "web_search", "served by ha")
		rig.ListNames(t, s)
	}
	ha.kill()
	for who, s := range all {
		awaits(t, who, s, "web_search", "SB-ROUT-001")
	}
	rig.WriteFile(t, main, whole)
	g.Reload(t)
	for who, s := range all {
		awaits(t, who, s, "web_search", "served by hb")
	}
}

// The example of docs/lazy.md and the shipped setting say that nothing is written to S3 at certain hours. Here
// these are all hours.
func TestNames5NoWritesToS3InBusinessHours(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	_, rest, _ := strings.Cut(rig.ReadFile(t, "../../docs/lazy.md"), "```rego\n")
	example, _, _ := strings.Cut(rest, "```")
	example = strings.NewReplacer("hour >= 9", "hour >= 0", "hour < 17", "hour < 24").Replace(example)
	shipped := `policy: {business_hours: {zone: UTC, days: [monday, tuesday, wednesday, thursday, friday, saturday, sunday], from: "00:00", to: "24:00", deny: [{tool: "cloud/s3_*", verb: write}]}}`
	config := strings.Replace(lazily(8000, ""), "{verb: read, resource: aws, load", "{verb: write, resource: aws, load", 1)
	for name, dir := range map[string]string{
		"the example": rig.LayOut(t, strings.Replace(config, "input.candidate_tools}\n", "input.candidate_tools}\n"+example, 1)),
		"the setting": rig.LayOut(t, strings.Replace(config, "default_task: work\n", "default_task: work\n"+shipped+"\n", 1)),
	} {
		g := rig.Serve(t, dir)
		for _, modern := range []bool{false, true} {
			s := g.Open(t, "/mcp", modern)
			before := tokens(t, s)
			for what, got := range map[string]func() string{
				"expand": func() string {
					_, code := helper(t, s, `{"action":"expand","tools":["s3_put_object"]}`)
					return code
				},
				"call": func() string {
					_, code := helper(t, s, `{"action":"call","tool":"s3_put_object","arguments":{"bucket":"b","key":"k","body":"x"}}`)
					return code
				},
				"by its own name": func() string {
					m, _ := s.Ask(t, "tools/call", `{"name":"s3_put_object","arguments":{"bucket":"b","key":"k","body":"x"}}`)
					return rig.Code(m)
				},
			} {
				if code := got(); code != "SB-LAZY-002" && code != "SB-POL-001" {
					t.Errorf("%s, modern %v: %s gives %q", name, modern, what, code)
				}
			}
			if after := tokens(t, s); after.Used != before.Used {
				t.Errorf("%s, modern %v: that has cost %d tokens", name, modern, after.Used-before.Used)
			}
			if m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"s3_create_bucket","arguments":{"bucket":"new-%v"}}`, modern)); name == "the example" && rig.Code(m) != "" {
				t.Errorf("%s, modern %v: another tool: %s", name, modern, m.Raw)
			}
		}
	}
}

func TestNames8ACallOfAMemberByItsOwnNameExpandsAndExecutes(t *testing.T) {
	t.Parallel()
	rig.EachSession(t, rig.LayOut(t, lazily(8000, "")), func(t *testing.T, who string, s rig.Session) {
		before := tokens(t, s)
		m, _ := s.Ask(t, "tools/call", `{"name":"s3_list_buckets","arguments":{}}`)
		if rig.Code(m) != "" || !strings.Contains(string(m.Raw), "Buckets") {
			t.Errorf("a call by its own name: %s", m.Raw)
		}
		after := tokens(t, s)
		if !slices.Equal(after.Groups[0].Expanded, []string{"s3_list_buckets"}) || after.Used <= before.Used {
			t.Errorf("it was not expanded: %+v", after)
		}
		if legacy := strings.HasSuffix(who, "legacy"); slices.Contains(rig.ListNames(t, s), "s3_list_buckets") != legacy {
			t.Errorf("it is in the list of a legacy client, and of no other: %q", rig.ListNames(t, s))
		}
		if text, code := helper(t, s, `{}`); code != "" || !strings.Contains(text, "\n- s3: ") {
			t.Errorf("{}: %s %s", code, text)
		}
	})
	// Where there is no room, it is executed and not listed.
	first := tokens(t, rig.Serve(t, rig.LayOut(t, lazily(8000, ""))).Open(t, "/mcp", false))
	rig.EachSession(t, rig.LayOut(t, lazily(first.Used-first.Instructions+10, "")), func(t *testing.T, _ string, s rig.Session) {
		before := tokens(t, s)
		m, _ := s.Ask(t, "tools/call", `{"name":"s3_list_buckets","arguments":{}}`)
		if rig.Code(m) != "" || !strings.Contains(string(m.Raw), "Buckets") {
			t.Errorf("a call by its own name, without room: %s", m.Raw)
		}
		if after := tokens(t, s); after.Used != before.Used || len(after.Groups[0].Expanded) != 0 {
			t.Errorf("it was expanded: %+v", after)
		}
	})
}

// With servers alone, one stub takes the place of all tools once they are too many. A name that was shown before
// keeps working: the tool is on demand now, and a call of it expands and executes it.
func TestNames8ANameThatWasShownWorksWhenAStubHasTakenItsPlace(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	big := make([]string, 40)
	for i := range big {
		big[i] = fmt.Sprintf(`{"name":"big_%d","description":%q,"inputSchema":{"type":"object"}}`, i, strings.Repeat("words that cost tokens ", 40))
	}
	ha, hb := newRival(t, "ha", searches("web_search", "")), newRival(t, "hb", big...)
	hb.kill()
	g := rig.Serve(t, rig.LayOut(t, fmt.Sprintf("-- switchboard.yaml --\ntoken_budget: 2000\nservers:\n  ha: {transport: http, url: \"http://%s/mcp\"}\n  hb: {transport: http, url: \"http://%s/mcp\"}\n", ha.address, hb.address)))
	all := map[string]rig.Session{"legacy": g.Open(t, "/mcp", false), "modern": g.Open(t, "/mcp", true)}
	for who, s := range all {
		if got := rig.ListNames(t, s); !slices.Contains(got, "web_search") {
			t.Fatalf("%s: at first the list is %q", who, got)
		}
	}
	hb.revive(t)
	rig.Eventually(t, "a stub stands for all", func() string {
		if got := rig.ListNames(t, g.Open(t, "/mcp", false)); !slices.Contains(got, "tools_helper") || slices.Contains(got, "web_search") {
			return fmt.Sprint(got)
		}
		return ""
	})
	for who, s := range all {
		if got := calls(t, s, "web_search"); got != "served by ha" {
			t.Errorf("%s: the name that it was shown says %s", who, got)
		}
	}
}
