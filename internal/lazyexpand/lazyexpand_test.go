package lazyexpand

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// tool returns a tool with a definition that costs so many tokens, as price counts them.
func tool(id string, tokens int) *switchboard.Tool {
	server, name, _ := strings.Cut(id, "/")
	return &switchboard.Tool{
		ID:         switchboard.ToolID{Server: switchboard.ServerID(server), Name: name},
		Definition: fmt.Appendf(nil, `{"name":%q,"description":"Does %s.","price":"%s"}`, name, name, strings.Repeat("$", tokens)),
	}
}

// price counts the tokens of tools that were made by tool.
func price(definition []byte) int { return strings.Count(string(definition), "$") }

// show returns the surface of a task with a group g, from lines such as "aws/x 300",
// or "*aws/x 300" for an essential tool.
func show(t testing.TB, prev *surface.Surface, budget int, collapse bool, lines ...string) *surface.Surface {
	t.Helper()
	task := &switchboard.Task{Requirements: []switchboard.Requirement{{}, {OnDemand: true, Group: "g", Stub: "g_helper"}}}
	var selected []decide.Selected
	for _, l := range lines {
		var id string
		var tokens int
		if _, err := fmt.Sscanf(l, "%s %d", &id, &tokens); err != nil {
			t.Fatal(l, err)
		}
		id, essential := strings.CutPrefix(id, "*")
		by := []int{1}
		if essential {
			by = []int{0}
		}
		selected = append(selected, decide.Selected{Tool: tool(id, tokens), Requirements: by})
	}
	in := surface.Input{Task: task, Selected: selected, Prev: prev, Budget: budget, CollapseOldest: collapse, Count: price}
	in.Memberships, in.Groups = Plan(task, selected, func(switchboard.ServerID) []switchboard.Service { return nil }, price)
	return surface.New(in)
}

// expanded returns s with these members expanded, oldest first.
func expanded(s *surface.Surface, names ...string) *surface.Surface {
	var xs []*surface.Expansion
	for _, n := range names {
		e, _ := s.Lookup(n)
		xs = append(xs, surface.Expand(e.Tool.ID))
	}
	return s.WithExpanded(xs, nil)
}

// usable returns the names that a client may call, without stubs.
func usable(s *surface.Surface) (names []string) {
	for e := range s.Charged() {
		if e.Role != surface.Stub {
			names = append(names, e.Name)
		}
	}
	return names
}

func TestAGroupIsSplitIntoServices(t *testing.T) {
	said := []switchboard.Service{{Name: "storage", Tools: []string{"s3_*", "*Bucket"}}, {Name: "machines", Tools: []string{"ec2_*"}}}
	for _, tt := range []struct {
		name  string
		tools []string
		said  map[switchboard.ServerID][]switchboard.Service
		want  []string
	}{
		{"by what names begin with", []string{"aws/s3_get", "aws/s3_put", "aws/ec2_run", "aws/ec2_stop"}, nil, []string{"s3", "s3", "ec2", "ec2"}},
		{"in any spelling", []string{"a/listUsers", "a/listGroups", "a/get-user", "a/get.group"}, nil, []string{"list", "list", "get", "get"}},
		{"what is alone in its beginning is other", []string{"a/s3_get", "a/s3_put", "a/ping", "a/who"}, nil, []string{"s3", "s3", "other", "other"}},
		{"where all begin alike there is one", []string{"a/s3_get", "a/s3_put"}, nil, []string{"g", "g"}},
		{"where each begins otherwise there is one", []string{"a/get", "a/put"}, nil, []string{"g", "g"}},
		{"several servers are the services", []string{"a/s3_get", "a/s3_put", "b/x"}, nil, []string{"a", "a", "b"}},
		{
			"as configured, and then as above",
			[]string{"aws/s3_get", "aws/listBucket", "aws/ec2_run", "aws/iam_a", "aws/iam_b"},
			map[switchboard.ServerID][]switchboard.Service{"aws": said},
			[]string{"storage", "storage", "machines", "iam", "iam"},
		},
		{
			"as configured, and then by server",
			[]string{"aws/s3_get", "aws/iam_a", "b/x"},
			map[switchboard.ServerID][]switchboard.Service{"aws": said},
			[]string{"storage", "aws", "b"},
		},
	} {
		var ids []switchboard.ToolID
		for _, l := range tt.tools {
			ids = append(ids, tool(l, 0).ID)
		}
		if got := assignServices("g", ids, func(id switchboard.ServerID) []switchboard.Service { return tt.said[id] }); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestAToolWithAnEssentialRequirementIsNoMember(t *testing.T) {
	task := &switchboard.Task{Requirements: []switchboard.Requirement{{OnDemand: true, Group: "g", Stub: "g_helper"}, {}}}
	selected := []decide.Selected{{Tool: tool("a/both", 1), Requirements: []int{0, 1}}, {Tool: tool("a/one", 1), Requirements: []int{0}}}
	places, groups := Plan(task, selected, func(switchboard.ServerID) []switchboard.Service { return nil }, price)
	if want := []surface.Membership{{}, {Group: "g", Service: "g"}}; !slices.Equal(places, want) || len(groups) != 1 {
		t.Errorf("%+v, %d groups", places, len(groups))
	}
	if places, groups := Plan(task, selected[:1], nil, price); len(groups) != 0 || places[0] != (surface.Membership{}) {
		t.Errorf("a group without members has %d stubs", len(groups))
	}
}

func TestTheFewestToolsMakeRoom(t *testing.T) {
	for _, tt := range []struct {
		tokens []int
		over   int
		want   []int
	}{
		{[]int{100, 200, 300}, 1, []int{100}},
		{[]int{100, 200, 300}, 150, []int{200}},
		{[]int{100, 200, 300}, 300, []int{300}},
		{[]int{100, 200, 300}, 301, []int{300, 100}},
		{[]int{100, 200, 300}, 401, []int{300, 200}},
		{[]int{100, 200, 300}, 600, []int{300, 200, 100}},
		{[]int{100, 200, 300}, 601, nil},
		{nil, 1, nil},
	} {
		var all []chargedEntry
		for i, n := range tt.tokens {
			all = append(all, chargedEntry{surface.Entry{Name: fmt.Sprint(i)}, n})
		}
		var got []int
		for _, c := range fewestCovering(all, tt.over) {
			got = append(got, c.tokens)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("of %v for %d: %v, want %v", tt.tokens, tt.over, got, tt.want)
		}
	}
}

func TestATaskWithEssentialToolsOverItsBudgetDoesNotStart(t *testing.T) {
	if s, err := Fit(show(t, nil, 1000, false, "*a/x 600", "*a/y 400", "a/z 9000"), nil); err != nil || !slices.Equal(usable(s), []string{"x", "y"}) {
		t.Fatalf("%v, %v", s, err)
	}
	_, err := Fit(show(t, nil, 999, false, "*a/x 400", "*a/y 600", "a/z 9000"), nil)
	if err == nil || !strings.Contains(err.Error(), "SB-LAZY-001") || !strings.Contains(err.Error(), "cost 1,000 tokens, and its budget is 999:\n     600  y\n     400  x\n") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(fmt.Sprint(err), "  z") {
		t.Errorf("the refusal names on-demand tools: %v", err)
	}
}

func TestToolsThatGrowLaterAreWithheld(t *testing.T) {
	for _, tt := range []struct {
		name     string
		was, now []string
		expanded []string
		want     []string
		withheld int
	}{
		{"nothing has", []string{"*a/x 500", "a/y 300", "a/z 200"}, []string{"*a/x 500", "a/y 300", "a/z 200"}, []string{"y", "z"}, []string{"x", "y", "z"}, 0},
		{"the oldest that is expanded", []string{"*a/x 500", "a/y 300", "a/z 200"}, []string{"*a/x 501", "a/y 300", "a/z 200"}, []string{"y", "z"}, []string{"x", "z"}, 0},
		{"all that are expanded", []string{"*a/x 500", "a/y 300", "a/z 200"}, []string{"*a/x 801", "a/y 300", "a/z 200"}, []string{"y", "z"}, []string{"x"}, 0},
		{"then what has grown", []string{"*a/w 400", "*a/x 500", "a/y 10"}, []string{"*a/w 400", "*a/x 700", "a/y 10"}, []string{"y"}, []string{"w"}, 1},
		{"the largest first", []string{"*a/v 400", "*a/w 100", "*a/x 100"}, []string{"*a/v 400", "*a/w 700", "*a/x 300"}, nil, []string{"v", "x"}, 1},
		{"and what is new", []string{"*a/v 400"}, []string{"*a/v 400", "*a/w 700"}, nil, []string{"v"}, 1},
	} {
		prev := expanded(show(t, nil, 1000, false, tt.was...), tt.expanded...)
		s, err := Fit(show(t, prev, 1000, false, tt.now...), prev)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := usable(s); !slices.Equal(got, tt.want) || len(s.Withheld()) != tt.withheld {
			t.Errorf("%s: %q with %q withheld, want %q", tt.name, got, s.Withheld(), tt.want)
		}
		if _, sum := chargedEntries(s); sum > 1000 {
			t.Errorf("%s: %d tokens are charged", tt.name, sum)
		}
	}
}

func TestWithheldToolsReturnWhenThereIsRoom(t *testing.T) {
	prev := show(t, nil, 1000, false, "*a/v 400", "*a/w 100")
	grown, err := Fit(show(t, prev, 1000, false, "*a/v 400", "*a/w 700"), prev)
	if err != nil || len(grown.Withheld()) != 1 {
		t.Fatal(grown.Withheld(), err)
	}
	again, err := Fit(show(t, grown, 1000, false, "*a/v 400", "*a/w 600"), grown)
	if err != nil || len(again.Withheld()) != 0 {
		t.Errorf("withheld %q, %v", again.Withheld(), err)
	}
	still, err := Fit(show(t, grown, 1000, false, "*a/v 400", "*a/w 700"), grown)
	if err != nil || len(still.Withheld()) != 1 {
		t.Errorf("withheld %q, %v", still.Withheld(), err)
	}
}

func TestExpandedToolsStayBesideWithheldOnesWhenTheRunIsBoundAgain(t *testing.T) {
	prev := show(t, nil, 1000, false, "*a/v 400", "*a/w 100", "a/x 200")
	grown, err := Fit(show(t, prev, 1000, false, "*a/v 400", "*a/w 700", "a/x 200"), prev)
	if err != nil || len(grown.Withheld()) != 1 {
		t.Fatal(grown.Withheld(), err)
	}
	x, _ := grown.Lookup("x")
	grown = grown.WithExpanded([]*surface.Expansion{surface.Expand(x.Tool.ID)}, grown.Withheld())
	for what, want := range map[string][]string{"*a/w 700": {"v", "x"}, "*a/w 400": {"v", "w", "x"}} {
		again, err := Fit(show(t, grown, 1000, false, "*a/v 400", what, "a/x 200"), grown)
		if err != nil || !slices.Equal(usable(again), want) {
			t.Errorf("%s: %q, %v, want %q", what, usable(again), err, want)
		}
	}
	again, err := Fit(show(t, grown, 1000, false, "*a/v 900", "*a/w 700", "a/x 200"), grown)
	if err != nil || !slices.Equal(usable(again), []string{"v"}) {
		t.Errorf("%q, %v", usable(again), err)
	}
}

func TestADeclaredTaskOverItsBudgetDoesNotStart(t *testing.T) {
	unbound := surface.New(surface.Input{})
	if s, err := Fit(show(t, unbound, 1000, false, "*a/v 400", "*a/w 700"), unbound); !strings.Contains(fmt.Sprint(err), "SB-LAZY-001") {
		t.Errorf("%v, %v", s, err)
	}
}

func TestAnExpansionIsWithinTheBudgetOrRefusedWithTheArithmetic(t *testing.T) {
	s := expanded(show(t, nil, 1000, false, "*a/w 400", "a/x 250", "a/y 250", "a/z 300", "a/huge 700"), "x", "y")
	entry := func(name string) surface.Entry { e, _ := s.Lookup(name); return e }
	for _, tt := range []struct {
		ask  string
		want string
	}{
		{"z", "needs 300 tokens, and of the budget of 1,000 tokens 900 are in use, so 100 are left / collapse y first, which frees 250 tokens; or use action call, which needs no room"},
		{"huge", "needs 700 tokens, and of the budget of 1,000 tokens 900 are in use, so 100 are left / it does not fit even if everything else is collapsed: expand fewer tools, or use action call, which needs no room"},
	} {
		_, err := planExpansion(s, []surface.Entry{entry(tt.ask)}, nil)
		e, _ := errors.AsType[*switchboard.Error](err)
		if e == nil || e.Code != switchboard.CodeOverBudget || strings.TrimPrefix(e.Text, "not expanded: that ")+" / "+e.Hint != tt.want {
			t.Errorf("%s: %v", tt.ask, err)
		}
	}
	x, z := entry("x"), entry("z")
	if _, err := planExpansion(s, []surface.Entry{z}, []surface.Entry{x, z}); !strings.Contains(hint(err), "collapse y first") {
		t.Errorf("a requested tool is to be collapsed for the request: %v", err)
	}
	s = expanded(show(t, nil, 1000, true, "*a/w 400", "a/x 250", "a/y 250", "a/z 300", "a/huge 700"), "y", "x")
	if m, err := planExpansion(s, []surface.Entry{entry("z")}, nil); err != nil || !slices.Equal(m.collapsed, []string{"y"}) || m.used+m.asked != 950 {
		t.Errorf("the oldest expansion is not collapsed: %+v, %v", m, err)
	}
	e, _ := s.Lookup("y")
	e.Expanded.Use()
	if m, err := planExpansion(s, []surface.Entry{entry("z")}, nil); err != nil || !slices.Equal(m.collapsed, []string{"x"}) {
		t.Errorf("the latest used expansion is collapsed: %+v, %v", m, err)
	}
	if m, err := planExpansion(s, []surface.Entry{entry("huge")}, nil); err == nil {
		t.Errorf("tools are collapsed for a request that never fits: %+v", m)
	}
}

func TestAnExpansionIsAFunctionOfTheSurfaceAndTheNames(t *testing.T) {
	s := show(t, nil, 1000, false, "a/x 250", "a/y 250")
	s = expanded(s, "y")
	stub := s.Stubs()[0].Name
	for range 2 {
		x, err := expandOn(s, stub, []string{"x", "y"}, true)
		if err != nil {
			t.Fatal(err)
		}
		if got := toolIDs(x.added); len(got) != 1 || got[0].Name != "x" || len(x.reply.Defines) != 2 || x.reply.Budget.Added != 250 {
			t.Errorf("added %v, %d definitions, %+v", got, len(x.reply.Defines), x.reply.Budget)
		}
		if len(s.Expanded()) != 1 || len(x.surface.Expanded()) != 2 {
			t.Errorf("%d are expanded on the old surface, %d on the new one", len(s.Expanded()), len(x.surface.Expanded()))
		}
	}
	x, err := expandOn(s, stub, []string{"y"}, true)
	if err != nil || x.surface != nil || x.reply.Budget.Added != 0 {
		t.Errorf("everything is expanded: a new surface %v, %+v, %v", x.surface != nil, x.reply.Budget, err)
	}
	if _, err := expandOn(s, stub, []string{"z"}, true); err == nil || !strings.Contains(err.Error(), string(switchboard.CodeNotInGroup)) {
		t.Errorf("a name outside of the group: %v", err)
	}
}

func hint(err error) string {
	e, ok := errors.AsType[*switchboard.Error](err)
	if !ok {
		return ""
	}
	return e.Hint
}

// takes has the definition of a group's only tool.
func takes(tool string) []byte {
	if tool != "x" {
		return nil
	}
	return []byte(`{"name":"x","inputSchema":{"type":"object","properties":{"input":{"type":"object"}}}}`)
}

func TestAStubRefusesBadArgumentsWithAnExample(t *testing.T) {
	for args, want := range map[string]string{
		`{"action":"run"}`:                 `there is no action "run"`,
		`{"action":7}`:                     `"action" must be a string`,
		`{"tools":["x"]}`:                  `say which action: {"action":"expand"`,
		`{"action":"list","x":1}`:          `action list does not take "x"; write {"action":"list"}`,
		`{"action":"list","Service":"s3"}`: `action list does not take "Service"`,
		`{"action":"list","query":"x"}`:    `action list does not take "query"`,
		`{"action":"search"}`:              `action search takes query, such as {"action":"search"`,
		`{"action":"search","query":"  "}`: `the query is empty`,
		`{"action":"search","query":"` + strings.Repeat("x", maxQuery+1) + `"}`: `longer than`,
		`{"action":"search","query":"x","limit":0}`:                             `"limit" must be a whole number`,
		`{"action":"search","query":"x","limit":2.5}`:                           `"limit" must be a whole number`,
		`{"action":"expand"}`:                                                   `action expand takes tools or service`,
		`{"action":"expand","tools":[]}`:                                        `"tools" must be a list`,
		`{"action":"expand","tools":[1]}`:                                       `"tools" must be a list`,
		`{"action":"expand","tools":["x"],"service":"y"}`:                       `action expand takes tools or service`,
		`{"action":"call","arguments":{}}`:                                      `action call takes one tool, such as`,
		`{"action":"call","tools":["x","y"]}`:                                   `action call takes one tool, such as`,
		`{"action":"call","tool":"x","arguments":[]}`:                           `"arguments" must be an object`,
		`{"action":"call","tool":"x","arguments":"7"}`:                          `"arguments" must be an object`,
		`{"action":"call","tool":"x","arguments":"{\"a\":1,\"a\":2}"}`:          `"arguments" must be an object`,
		`{"action":"call","tool":"x","arguments":"{} {}"}`:                      `"arguments" must be an object`,
		`{"action":"call","tool":"x","arguments":{},"path":"y"}`:                `put "path" into "arguments"`,
	} {
		if _, err := parse([]byte(args), takes); err == nil || !strings.Contains(err.Error(), "SB-CAP-003") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %s", args, err, want)
		}
	}
}

func TestAStubAcceptsEachSpellingWithOneMeaning(t *testing.T) {
	for args, want := range map[string]string{
		``:                                 "{list    0 [] }",
		`{}`:                               "{list    0 [] }",
		`{"action":"list"}`:                "{list    0 [] }",
		`{"action":" List "}`:              "{list    0 [] }",
		`{"service":"s3"}`:                 "{list s3   0 [] }",
		`{"action":"list","service":"s3"}`: "{list s3   0 [] }",
		`{"action":"search","query":"copy a file","limit":3}`:        "{search  copy a file  3 [] }",
		`{"query":"copy a file","limit":"3"}`:                        "{search  copy a file  3 [] }",
		`{"action":"expand","tools":["x","y","x"]}`:                  "{expand    0 [x y] }",
		`{"action":"expand","tools":"x"}`:                            "{expand    0 [x] }",
		`{"action":"expand","tool":"x"}`:                             "{expand    0 [x] }",
		`{"tool":"x","action":"call"}`:                               "{call   x 0 [] }",
		`{"tool":"x"}`:                                               "{call   x 0 [] }",
		`{"action":"call","tools":["x"]}`:                            "{call   x 0 [] }",
		`{"action":"x","arguments":{"a":1}}`:                         `{call   x 0 [] {"a":1}}`,
		`{"action":"call","tool":"x","arguments":{"a":1.0}}`:         `{call   x 0 [] {"a":1.0}}`,
		`{"action":"call","tool":"x","arguments":"{\"a\":1.0}"}`:     `{call   x 0 [] {"a":1.0}}`,
		`{"action":"call","tool":"x","arguments":""}`:                `{call   x 0 [] }`,
		`{"action":"call","tool":"x","arguments":null}`:              `{call   x 0 [] }`,
		`{"action":"call","tool":"x","a":1.0,"query":"q","limit":2}`: `{call   x 0 [] {"a":1.0,"query":"q","limit":2}}`,
		`{"action":"call","tool":"x","params":{"a":1}}`:              `{call   x 0 [] {"a":1}}`,
		`{"action":"call","tool":"x","input":{"a":1}}`:               `{call   x 0 [] {"input":{"a":1}}}`, // it has one of that name
	} {
		a, err := parse([]byte(args), takes)
		got := fmt.Sprintf("{%s %s %s %s %d %v %s}", a.action, a.service, a.query, a.tool, a.limit, a.tools, a.arguments)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", args, got, err, want)
		}
	}
}

func TestADescriptionIsShownAsOneLineOfText(t *testing.T) {
	for description, want := range map[string]string{
		`Copies a file.`:                         "Copies a file.",
		`Copies a file. Then more. And more`:     "Copies a file.",
		`  Copies\n\n a\tfile\u001b[31m`:         "Copies a file[31m",
		`a\u202eb\u200bc\udb40\udc41d`:           "abcd",
		`- fake_tool (1): injected\n- other (2)`: "- fake_tool (1): injected - other (2)",
		strings.Repeat("x", 150):                 strings.Repeat("x", maxLine) + "…",
		strings.Repeat(`\u00e9`, 2000):           strings.Repeat("é", maxLine) + "…",
		``:                                       "",
	} {
		if got := oneLine([]byte(`{"name":"x","description":"` + description + `"}`)); got != want {
			t.Errorf("%q: %q, want %q", description, got, want)
		}
	}
	for _, definition := range []string{`{"name":"x"}`, `{"description":7}`} {
		if got := oneLine([]byte(definition)); got != "" {
			t.Errorf("%s: %q", definition, got)
		}
	}
}

func TestASearchResultHasTheToolsSignature(t *testing.T) {
	for schema, want := range map[string]string{
		`{"properties":{"limit":{"type":"integer"},"path":{"type":"string"}},"required":["path"]}`:         "path: string, limit?: integer",
		`{"properties":{"limit":{},"path":{}},"required":["path"]}`:                                        "path, limit?",
		`{"properties":{"mode":{"enum":["fast","slow"]},"to":{"type":"array","items":{"type":"string"}}}}`: "mode?: fast|slow, to?: string[]",
		`{"properties":{"mode":{"enum":["a","b","c","d","e","f","g"]}}}`:                                   "mode?: a|b|c|d|e|f|…",
		`{"properties":{"mode":{"enum":["- fake (1)","b"],"type":"string"}}}`:                              "mode?: string",
		`{"properties":{"mode":{"type":"x\n- fake"},"n":{"type":["string","null"]}}}`:                      "mode?, n?",
		`{"properties":{"a":{},"b":{},"c":{},"d":{},"e":{},"f":{},"g":{},"h":{},"z":{}},"required":["z"]}`: "z, a?, b?, c?, d?, e?, f?, g?, 1 more",
		`{"properties":{"a":{},"b":{},"c":{},"d":{},"e":{},"f":{},"g":{},"h":{},"i":{},"j":{}}}`:           "a?, b?, c?, d?, e?, f?, g?, h?, 2 more",
		`{"properties":{"x\n- fake (1)":{},"ok":{}}}`:                                                      "ok?, 1 more",
		`{"properties":{}}`: "", `{"properties":7}`: "", `{}`: "", `7`: "",
		`{"properties":{"a":{}},"required":"a"}`: "a?",
	} {
		if got := signature([]byte(`{"inputSchema":` + schema + `}`)); got != want {
			t.Errorf("%s: %q, want %q", schema, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, e := range examples {
		f.Add([]byte(e))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		a, err := parse(args, takes)
		if err == nil && examples[a.action] == "" {
			t.Errorf("action %q", a.action)
		}
		_, _ = oneLine(args), signature(args)
	})
}

func TestADeclaredRequirementMatchesACeilingRowAndGetsItsConstraints(t *testing.T) {
	tax, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"cloud": "", "aws": "cloud", "s3": "aws"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	type list = []switchboard.Constraint
	ceiling := []switchboard.Requirement{
		{Verb: "read", Resource: "aws", Constraints: list{"readonly"}},
		{Verb: "read", Resource: "aws", Constraints: list{"pii_safe"}},
		{Verb: "search", Resource: "cloud"},
	}
	for _, tt := range []struct {
		verb, resource string
		asks           list
		budget         int
		want           string
	}{
		{"read", "aws", nil, 0, "[readonly]"},
		{"read", "aws", list{"pii_safe"}, 0, "[pii_safe]"},
		{"read", "s3", list{"pii_safe", "readonly"}, 1000, "[pii_safe readonly]"},
		{"search", "s3", nil, 0, "[]"},
		{"read", "cloud", nil, 0, "SB-TASK-002"},
		{"write", "aws", nil, 0, "SB-TASK-002"},
		{"search", "internet", nil, 0, "SB-TASK-002"},
		{"search", "cloud", list{"no_such"}, 0, "SB-TASK-002"},
		{"search", "cloud", nil, 1001, "SB-TASK-002"},
	} {
		asked := &switchboard.Task{TokenBudget: tt.budget, Requirements: []switchboard.Requirement{{Verb: switchboard.Verb(tt.verb), Resource: switchboard.Resource(tt.resource), Constraints: tt.asks}}}
		task, err := LimitToCeiling(asked, ceiling, tax, 1000, nil)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(task.Requirements[0].Constraints)
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s %s %s of %d tokens: %s, want %s", tt.verb, tt.resource, tt.asks, tt.budget, got, tt.want)
		}
		if !slices.Equal(asked.Requirements[0].Constraints, tt.asks) {
			t.Error("the given task has changed")
		}
	}
}

func TestADeclaredTaskHasALimitedNumberOfRequirements(t *testing.T) {
	for n, ok := range map[int]bool{maxDeclared: true, maxDeclared + 1: false} {
		args := `{"required_capabilities":[` + strings.TrimSuffix(strings.Repeat(`{"verb":"read","resource":"aws"},`, n), ",") + `]}`
		if _, err := ParseDeclared([]byte(args)); (err == nil) != ok {
			t.Errorf("%d: %v", n, err)
		}
	}
}
