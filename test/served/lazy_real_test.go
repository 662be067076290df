package served_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/token"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/realdata"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// realServers serves some of the real servers' tools, as their servers gave them, and
// returns the servers of a configuration, with how many tools each has.
func realServers(t *testing.T, most int) (yaml string, ids []string) {
	t.Helper()
	text, err := os.ReadFile(realdata.File("catalog", "subset.json"))
	if err != nil {
		t.Skipf("skipped: the real catalog is not here: %v", err)
	}
	var all []struct{ Tools []json.RawMessage }
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i, s := range all {
		if len(ids) == most || len(s.Tools) < 2 || len(s.Tools) > 60 {
			continue
		}
		args := []string{"modern"}
		for _, tool := range s.Tools {
			args = append(args, string(tool))
		}
		srv := httptest.NewServer(fakeserver.New(args))
		t.Cleanup(srv.Close)
		ids = append(ids, fmt.Sprint("r", i))
		fmt.Fprintf(&b, "  r%d: {transport: http, url: %q}\n", i, srv.URL)
	}
	return b.String(), ids
}

// received returns the definitions that the client gets, by name, and what they cost
// by the bytes as they came.
func received(t *testing.T, c *token.Counter, s rig.Session) (raw []byte, cost map[string]int, sum int) {
	t.Helper()
	m, _ := s.Ask(t, "tools/list", "")
	var list struct{ Tools []json.RawMessage }
	if err := json.Unmarshal(m.Result, &list); err != nil {
		t.Fatalf("tools/list: %v: %.300s", err, m.Raw)
	}
	return m.Result, priced(t, c, list.Tools), sumOf(priced(t, c, list.Tools))
}

func priced(t *testing.T, c *token.Counter, tools []json.RawMessage) map[string]int {
	t.Helper()
	cost := map[string]int{}
	for _, raw := range tools {
		var tool struct{ Name string }
		if err := json.Unmarshal(raw, &tool); err != nil {
			t.Fatal(err)
		}
		cost[tool.Name] = c.Count(raw)
	}
	return cost
}

func sumOf(cost map[string]int) (sum int) {
	for _, n := range cost {
		sum += n
	}
	return sum
}

var arithmetic = regexp.MustCompile(`needs ([\d,]+) tokens, and of the budget of ([\d,]+) tokens ([\d,]+) are in use, so ([\d,]+) are left`)

// What is charged is what is listed, to the token, and never over the budget; and what
// is refused changes nothing: for made-up tasks, budgets and rows of operations over
// real tools.
func TestWhatIsChargedIsWhatIsListedAndNeverOverTheBudget(t *testing.T) {
	t.Parallel()
	yaml, ids := realServers(t, 16)
	c, err := token.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	const tasks = 10
	r := rand.New(rand.NewPCG(law.Seed(t), 0))
	var b strings.Builder
	fmt.Fprintf(&b, "\n-- switchboard.yaml --\ntoken_budget: 1000000\nservers:\n%stenants:\n  default: {servers: [\"*\"], allow: [by_name]}\n-- tenants/default/tenant.yaml --\ntenant: default\n", yaml)
	for i := range tasks {
		fmt.Fprintf(&b, "-- tenants/default/tasks/t%d.yaml --\ntask_id: t%d\ntoken_budget: %d\nrequired_capabilities:\n", i, i, 1500+r.IntN(9000))
		for _, id := range ids {
			if r.IntN(3) > 0 {
				fmt.Fprintf(&b, "  - {tools: [\"%s/*\"], load: on_demand, group: g%d}\n", id, r.IntN(3))
			}
		}
		fmt.Fprintf(&b, "  - {tools: [\"%s/*\"], load: on_demand, group: g0}\n", ids[0])
	}
	g := rig.Serve(t, rig.LayOut(t, b.String()))
	done, refused := 0, 0
	for i := range tasks {
		for _, modern := range []bool{false, true} {
			s := g.Open(t, fmt.Sprint("/mcp/tasks/t", i), modern)
			w := &lazyWorld{t: t, c: c, s: s, modern: modern, r: r, where: fmt.Sprintf("task %d, modern %v", i, modern)}
			w.know()
			for range 40 {
				ok := w.step()
				done++
				if !ok {
					refused++
				}
				if t.Failed() {
					return
				}
			}
		}
	}
	t.Logf("%d operations, %d of them refused", done, refused)
	if refused < done/20 || refused > done*19/20 {
		t.Errorf("%d of %d operations were refused: the test shows little", refused, done)
	}
}

// A lazyWorld is one client, and what it has learnt.
type lazyWorld struct {
	t      *testing.T
	c      *token.Counter
	s      rig.Session
	modern bool
	r      *rand.Rand
	where  string

	stubs    []string
	members  map[string][]string // by stub
	services map[string][]string
	known    map[string]int // what definitions cost that were seen
}

func (w *lazyWorld) ask(stub, args string) (text, code string, spent map[string]int) {
	w.t.Helper()
	m, _ := w.s.Ask(w.t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, stub, args))
	var r struct {
		Meta struct {
			Tokens map[string]int `json:"io.switchboard/tokens"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(m.Result, &r)
	return m.Text(), rig.Code(m), r.Meta.Tokens
}

var row = regexp.MustCompile(`(?m)^- (\S+) \(([\d,]+)`)

// know learns what there is.
func (w *lazyWorld) know() {
	w.members, w.services, w.known = map[string][]string{}, map[string][]string{}, map[string]int{}
	for _, g := range tokens(w.t, w.s).Groups {
		w.stubs = append(w.stubs, g.Stub)
		text, _, _ := w.ask(g.Stub, `{"action":"list"}`)
		names := regexp.MustCompile(`(?m)^- ([^ :]+): \d+ tool`).FindAllStringSubmatch(text, -1)
		read := func(service, text string) {
			w.services[g.Stub] = append(w.services[g.Stub], service)
			for _, m := range row.FindAllStringSubmatch(text, -1) {
				w.members[g.Stub] = append(w.members[g.Stub], m[1])
				w.known[m[1]] = number(w.t, m[2])
			}
		}
		for _, m := range names {
			text, _, _ := w.ask(g.Stub, fmt.Sprintf(`{"action":"list","service":%q}`, m[1]))
			read(m[1], text)
		}
		if len(names) == 0 {
			service := regexp.MustCompile(`tools? of (\S+), with`).FindStringSubmatch(text)
			read(service[1], text)
		}
		if len(w.members[g.Stub]) != g.Tools {
			w.t.Errorf("%s: %s lists %d of %d tools", w.where, g.Stub, len(w.members[g.Stub]), g.Tools)
		}
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.ReplaceAll(s, ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A lazyState is all that an operation could change.
type lazyState struct {
	raw      string // the list
	used     int
	expanded []string // sorted
}

// state checks that what there is fits together.
func (w *lazyWorld) state() (st lazyState) {
	w.t.Helper()
	raw, cost, sum := received(w.t, w.c, w.s)
	status := tokens(w.t, w.s)
	st.raw, st.used = string(raw), status.Used
	rows := 0
	for _, l := range status.Listed {
		rows += l.Tokens
		if n, ok := cost[l.Name]; ok && n != l.Tokens {
			w.t.Errorf("%s: %s costs %d as it came, and is charged %d", w.where, l.Name, n, l.Tokens)
		}
	}
	for _, g := range status.Groups {
		st.expanded = append(st.expanded, g.Expanded...)
	}
	slices.Sort(st.expanded)
	charged := sum
	if w.modern {
		for _, name := range st.expanded {
			charged += w.known[name]
			if _, listed := cost[name]; listed {
				w.t.Errorf("%s: a modern client has %s listed", w.where, name)
			}
		}
	}
	charged, rows = charged+status.Instructions, rows+status.Instructions
	if charged != status.Used || rows != status.Used || status.Used > status.Budget || status.Left != status.Budget-status.Used {
		w.t.Errorf("%s: %d tokens are listed or expanded, %d are charged, %d by its rows, of a budget of %d, of which %d are left", w.where, charged, status.Used, rows, status.Budget, status.Left)
	}
	return st
}

// step does something, and reports whether it was not refused.
func (w *lazyWorld) step() bool {
	stub := w.stubs[w.r.IntN(len(w.stubs))]
	pick := func(most int) (names []string) {
		for range 1 + w.r.IntN(most) {
			names = append(names, w.members[stub][w.r.IntN(len(w.members[stub]))])
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	before := w.state()
	args, asked := "", []string(nil)
	switch action := w.r.IntN(10); {
	case action < 4:
		asked = pick(6)
		args = fmt.Sprintf(`{"action":"expand","tools":%s}`, quoted(asked))
	case action < 5:
		args = fmt.Sprintf(`{"action":"expand","service":%q}`, w.services[stub][w.r.IntN(len(w.services[stub]))])
	case action < 7:
		args = fmt.Sprintf(`{"action":"collapse","tools":%s}`, quoted(pick(4)))
	case action < 8:
		args = fmt.Sprintf(`{"action":"call","tool":%q,"arguments":{"query":"x"}}`, pick(1)[0])
	case action < 9:
		args = `{"action":"search","query":"list or read something"}`
	default:
		args = fmt.Sprintf(`{"action":"expand","tools":%s}`, quoted(append(pick(2), "no_such_tool")))
	}
	text, code, spent := w.ask(stub, args)
	after := w.state()
	switch {
	case code == "":
		if strings.Contains(args, `"expand"`) {
			w.expanded(args, text, spent, before.used, after.used)
			for _, name := range asked {
				if !slices.Contains(after.expanded, name) {
					w.t.Errorf("%s: %s: %s is not expanded", w.where, args, name)
				}
			}
		}
		if strings.Contains(args, `"call"`) && (after.raw != before.raw || after.used != before.used) {
			w.t.Errorf("%s: a call through the stub has changed the list or the budget", w.where)
		}
		return true
	case after.raw != before.raw || after.used != before.used || !slices.Equal(after.expanded, before.expanded):
		w.t.Errorf("%s: %s was refused with %s, and something has changed", w.where, args, code)
	}
	if code != "SB-LAZY-001" {
		return false
	}
	m := arithmetic.FindStringSubmatch(text)
	if m == nil {
		w.t.Fatalf("%s: no arithmetic in %s", w.where, text)
	}
	needs, budget, used, left := number(w.t, m[1]), number(w.t, m[2]), number(w.t, m[3]), number(w.t, m[4])
	want := 0
	for _, name := range asked {
		if !slices.Contains(before.expanded, name) {
			want += w.known[name]
		}
	}
	if asked != nil && needs != want || used != before.used || left != budget-used || needs <= left {
		w.t.Errorf("%s: %s: %s; %d are in use, and it needs %d", w.where, args, text, before.used, want)
	}
	_, rest, ok := strings.Cut(text, "ollapse ")
	suggested, _, ok2 := strings.Cut(rest, " first, which")
	if !ok || !ok2 {
		return false // nothing would make room
	}
	names := strings.Split(suggested, ", ")
	for i, name := range names {
		own, of, elsewhere := strings.Cut(name, " of ")
		names[i] = own
		if elsewhere == slices.Contains(w.members[stub], own) || elsewhere && !slices.Contains(w.members[of], own) {
			w.t.Errorf("%s: %s is not where the suggestion says: %s", w.where, own, suggested)
		}
	}
	for _, stub := range w.stubs {
		mine := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(w.members[stub], n) })
		if len(mine) > 0 {
			w.ask(stub, fmt.Sprintf(`{"action":"collapse","tools":%s}`, quoted(mine)))
		}
	}
	if text, code, _ := w.ask(stub, args); code != "" {
		w.t.Errorf("%s: %s: what was suggested makes no room: %s %s", w.where, args, code, text)
	}
	return false
}

// expanded checks what an expansion says.
func (w *lazyWorld) expanded(args, text string, spent map[string]int, before, after int) {
	_, list, _ := strings.Cut(text, ":\n[")
	var tools []json.RawMessage
	if err := json.Unmarshal([]byte("["+list), &tools); err != nil {
		w.t.Errorf("%s: %s: it does not return the definitions: %v", w.where, args, err)
		return
	}
	for name, n := range priced(w.t, w.c, tools) {
		if w.known[name] != n {
			w.t.Errorf("%s: %s was to cost %d tokens, and costs %d", w.where, name, w.known[name], n)
		}
	}
	if spent["used"] != after || spent["added"] != after-before {
		w.t.Errorf("%s: %s: it says %v; %d tokens were used and %d are", w.where, args, spent, before, after)
	}
}

func quoted(names []string) string {
	text, _ := json.Marshal(names) // strings: it cannot fail
	return string(text)
}

// RX-07
func TestFiveThousandExpansionsAtOnceKeepToTheBudget(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingAckedLost)
	g := rig.Serve(t, rig.LayOut(t, lazily(1500, "")))
	c, err := token.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	// One run, and fifty sessions that name it.
	path := "/mcp/runs/" + rig.MintRun(t, g, "", "work")
	all := []string{"s3_list_buckets", "s3_get_object", "ec2_describe_instances", "iam_list_users", "lambda_list_functions", "sqs_list_queues", "logs_get_log_events", "dynamodb_scan", "dynamodb_query", "cloudwatch_get_metrics"}
	var wait sync.WaitGroup
	codes := make([]map[string]int, 50)
	for i := range codes {
		codes[i] = map[string]int{}
		s := g.Open(t, path, i%2 == 0)
		wait.Go(func() {
			for j := range 100 {
				action := "expand"
				if (i+j)%7 == 0 {
					action = "collapse"
				}
				_, code := helper(t, s, fmt.Sprintf(`{"action":%q,"tools":%s}`, action, quoted([]string{all[(i+j)%len(all)], all[(i*j)%len(all)]})))
				codes[i][code]++
				if j%25 == 0 {
					if _, _, sum := received(t, c, s); sum > 1500 {
						t.Errorf("%d tokens are listed, of 1500", sum)
					}
				}
			}
		})
	}
	wait.Wait()
	got := map[string]int{}
	for _, m := range codes {
		for code, n := range m {
			got[code] += n
		}
	}
	if got[""]+got["SB-LAZY-001"] != 5000 || got[""] == 0 {
		t.Errorf("ended in %v", got)
	}
	s := g.Open(t, path, false)
	_, _, sum := received(t, c, s)
	if st := tokens(t, s); st.Used != sum+st.Instructions || st.Used > 1500 {
		t.Errorf("%d tokens are listed, and %d charged with %d for instructions, of 1500", sum, st.Used, st.Instructions)
	}
}
