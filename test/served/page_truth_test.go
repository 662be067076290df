package served_test

import (
	"encoding/json"
	"fmt"
	"html"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
)

var (
	rowsOfTable  = regexp.MustCompile(`(?s)<tr>(.*?)</tr>`)
	cellsOfRow   = regexp.MustCompile(`(?s)<t[hd][^>]*>(.*?)</t[hd]>`)
	tagsInCell   = regexp.MustCompile(`<[^>]*>`)
	numberInCell = regexp.MustCompile(`^-?[0-9][0-9,]*(\.[0-9]+)?`)
)

// tableOf returns the cells of the table in the region with the label, by the first cell of each row. The head is the row "".
func tableOf(page, label string) map[string][]string {
	_, rest, _ := strings.Cut(page, `aria-label="`+label+`"`)
	table, _, _ := strings.Cut(rest, "</table>")
	rows := map[string][]string{}
	for i, row := range rowsOfTable.FindAllStringSubmatch(table, -1) {
		var cells []string
		for _, cell := range cellsOfRow.FindAllStringSubmatch(row[1], -1) {
			cells = append(cells, strings.Join(strings.Fields(html.UnescapeString(tagsInCell.ReplaceAllString(cell[1], " "))), " "))
		}
		if i == 0 {
			rows[""] = cells
		} else if len(cells) > 0 {
			rows[cells[0]] = cells
		}
	}
	return rows
}

// stagesOf returns the texts of the stages of a requirement, by their names.
func stagesOf(page string, requirement int) map[string]string {
	stages := map[string]string{}
	lists := strings.Split(page, `<ol class="flow"`)[1:]
	if requirement >= len(lists) {
		return stages
	}
	list, _, _ := strings.Cut(lists[requirement], "</ol>")
	for _, item := range strings.Split(list, "<li>")[1:] {
		words := strings.Fields(tagsInCell.ReplaceAllString(item, " "))
		stages[words[0]] = strings.Join(words, " ")
	}
	return stages
}

// A comparer compares the numbers of a view with those of other places.
type comparer struct {
	rows map[string][]string
	n    int      // numbers that were compared
	bad  []string // what differs
}

// number compares the number in the cell of a row, under the column whose head begins so.
func (c *comparer) number(row, column string, want float64) {
	c.n++
	cells, place := c.rows[row], -1
	for i, head := range c.rows[""] {
		if strings.HasPrefix(strings.ToLower(head), strings.ToLower(column)) {
			place = i
			break
		}
	}
	if place < 0 || place >= len(cells) {
		c.bad = append(c.bad, fmt.Sprintf("there is no number in row %q, column %q of %q", row, column, c.rows))
		return
	}
	text := cells[place]
	got, err := strconv.ParseFloat(strings.ReplaceAll(numberInCell.FindString(text), ",", ""), 64)
	near := 0.0
	switch {
	case strings.HasPrefix(text, "–"): // none
		got, err = 0, nil
	case strings.HasSuffix(text, " ms"):
		near = max(0.05, want*0.01) + 0.5
	case strings.HasSuffix(text, " s") && err == nil:
		got *= 1000
		near = 501
	}
	if err != nil || math.Abs(got-want) > near {
		c.bad = append(c.bad, fmt.Sprintf("row %q, column %q has %q, want %v", row, column, text, want))
	}
}

// says compares a text.
func (c *comparer) says(page, want string) {
	if c.n++; !strings.Contains(page, want) {
		c.bad = append(c.bad, fmt.Sprintf("the view lacks %q", want))
	}
}

// equal compares two numbers of other places than views.
func (c *comparer) equal(what string, got, want float64) {
	if c.n++; got != want {
		c.bad = append(c.bad, fmt.Sprintf("%s: %v, want %v", what, got, want))
	}
}

// A tallyOf counts calls, as the API does.
type tallyOf struct {
	Span                          string
	Calls, Failed, Refused, Moved int64
	P50                           float64 `json:"p50_ms"`
	P95                           float64 `json:"p95_ms"`
	Refusals                      map[string]int64
}

// Each number on each view is that of the API, of /metrics and of the receipts, at that moment: after calls that got a result, failed, were refused, were moved,
// and while one is in flight.
func TestEachNumberOnTheViewsIsThatOfTheAPITheMetricsAndTheReceipts(t *testing.T) {
	t.Parallel()
	until := filepath.Join(t.TempDir(), "until")
	first := httptest.NewServer(fakeserver.New([]string{fmt.Sprintf(rig.Tool, "fetch")}))
	t.Cleanup(first.Close)
	label := "{capabilities: [{verb: read, resource: fs, constraints: [readonly]}]}"
	dir := rig.LayOut(t, "-- switchboard.yaml --\nbudgets: [{id: all, limit: {calls: 100}, window: forever}]\nservers:\n  a: {transport: http, url: \""+first.URL+"\"}\n  "+
		rig.FakeRow("b", fmt.Sprintf(rig.Tool, "get"))+"\n  "+rig.FakeRow("c", fmt.Sprintf(rig.Tool, "work"), fmt.Sprintf(rig.Tool, "stay"))+`
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- overlays/a.yaml --
server: a
tools: {fetch: `+strings.TrimSuffix(label, "}")+`, equivalents: [{tool: b/get}]}}
-- overlays/b.yaml --
server: b
tools: {get: `+label+`}
-- overlays/c.yaml --
server: c
provides: [{capability: io.look@^1, tools: {look: work}}]
-- capabilities/atoms.yaml --
key.here: {kind: key, critical: true, fresh_for: 24h, probe: {file: here}}
key.gone: {kind: key, critical: true, fresh_for: 24h, probe: {file: gone}}
key.unseen: {kind: key, fresh_for: 24h}
-- capabilities/look.yaml --
{id: io.look, version: 1.0.0, status: active, verb: search, resource: internet, requires: {resources: [key.here]},
  required_tools: {look: {description: Looks., input_schema: {type: object, properties: {}, additionalProperties: false}}}}
-- capabilities/gone.yaml --
{id: cap.gone, version: 1.0.0, status: active, verb: read, resource: fs, requires: {resources: [key.gone]}}
-- capabilities/unseen.yaml --
{id: cap.unseen, version: 1.0.0, status: active, verb: read, resource: fs, requires: {resources: [key.unseen]}}
-- here --
a key
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
ranking: {prefer: [{verb: read, resource: fs, servers: [a, b]}]}
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities: [{verb: read, resource: fs, select: tool, as: read}, {tools: ["c/*"]}]
-- policies/own.rego --
package switchboard

`+rig.AllowAll+`
deny["c/work"] contains "not today" if input.call.arguments.day == "today"
`)
	publish(t, dir)
	t.Cleanup(func() { rig.WriteFile(t, until, "") }) // before the Switchboard stops
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false) // whose run is bound to a
	call := func(tool, arguments, want string) {
		t.Helper()
		if got := rig.Call(t, s, tool, arguments); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Fatalf("the call of %s: %q, want %q", tool, got, want)
		}
	}
	for range 3 {
		call("work", `{}`, "")
	}
	call("read", `{}`, "")
	call("work", `{"day":"today"}`, "SB-POL-001")
	for range 2 {
		s.Ask(t, "tools/call", `{"name":"work","arguments":{"do":"error","bytes":"{\"code\":1,\"message\":\"no\"}"}}`)
	}
	first.CloseClientConnections()
	first.Close()
	call("read", `{}`, "") // which b serves
	other := g.Open(t, "/mcp", false)
	body, extra := other.Request("tools/call", fmt.Sprintf(`{"name":"stay","arguments":{"do":"await","until":%q}}`, until))
	go func() { _, _, _ = other.Exchange(body, extra) }()

	b := openAdmin(t, g, "")
	made := g.AskAdmin(t, "", "POST", "/v1/page-codes", "")
	var code struct{ Path string }
	if err := json.Unmarshal([]byte(made.Body), &code); err != nil || made.Status != http.StatusCreated {
		t.Fatalf("%d %s", made.Status, made.Body)
	}
	b.get(b.base + code.Path)
	read := func(address string, into any) {
		t.Helper()
		if status, text := b.get(b.base + address); status != http.StatusOK || json.Unmarshal([]byte(text), into) != nil {
			t.Fatalf("%s: %d %s", address, status, text)
		}
	}
	// agree compares until all that changes while it is read has settled.
	agree := func(view string, compare func(c *comparer, page string)) {
		t.Helper()
		numbers := 0
		rig.Eventually(t, "the numbers of "+view+" are those of other places", func() string {
			status, page := b.get(b.base + view)
			c := &comparer{}
			if compare(c, page); status != http.StatusOK {
				c.bad = append(c.bad, fmt.Sprint(status))
			}
			numbers = c.n
			return rig.ReasonUnless(len(c.bad) == 0, strings.Join(c.bad, "\n")+"\n"+page)
		})
		if numbers < 3 {
			t.Errorf("of %s, %d numbers were compared", view, numbers)
		}
	}
	// count returns how many receipts of calls fit.
	count := func(query string) (n float64) {
		for after := ""; ; {
			var page struct {
				Receipts []json.RawMessage
				Next     string
			}
			read("/v1/receipts?kind=call&limit=500&"+query+"&after="+strings.ReplaceAll(after, "+", "%2B"), &page)
			if n, after = n+float64(len(page.Receipts)), strings.ReplaceAll(page.Next, " ", "%20"); after == "" {
				return n
			}
		}
	}

	agree("/now", func(c *comparer, page string) {
		var o struct {
			Spans    []tallyOf
			Refusals []struct {
				Code   string
				Counts []float64
			}
			Hours []tallyOf
		}
		read("/now.json", &o)
		c.rows = tableOf(page, "Calls in four spans of time")
		for i, span := range []string{"1 min", "1 h", "24 h", "14 d"} {
			s := o.Spans[i]
			for row, want := range map[string]float64{"calls": float64(s.Calls), "failed": float64(s.Failed), "refused": float64(s.Refused), "moved": float64(s.Moved), "p50": s.P50, "p95": s.P95} {
				c.number(row, span, want)
			}
		}
		day := o.Spans[3]
		_, metrics := g.Metrics()
		var all, moved, refused float64
		for name, n := range metrics {
			switch {
			case strings.HasPrefix(name, "switchboard_calls_total "):
				if all += n; strings.Contains(name, "SB-POL-001") {
					refused += n
				}
			case strings.HasPrefix(name, "switchboard_calls_moved_total "):
				moved += n
			}
		}
		c.equal("calls of the history and of /metrics", float64(day.Calls), all)
		c.equal("moved calls of the history and of /metrics", float64(day.Moved), moved)
		c.equal("refused calls of the history and of /metrics", float64(day.Refused), refused)
		c.equal("calls of the history and receipts", float64(day.Calls), count(""))
		c.equal("refused calls of the history and receipts", float64(day.Refused), count("code=SB-POL-001"))
		c.equal("calls without a result of the history and receipts", float64(day.Failed+day.Refused), count("")-count("outcome=ok"))
		c.equal("moved calls", float64(day.Moved), 1)
		c.equal("refused calls", float64(day.Refused), 1)
		c.rows = tableOf(page, "Refused calls by code")
		for _, r := range o.Refusals {
			for i, span := range []string{"1 min", "1 h", "24 h", "14 d"} {
				c.number(r.Code, span, r.Counts[i])
			}
		}
		var hours tallyOf
		for _, h := range o.Hours {
			hours.Calls += h.Calls
		}
		c.equal("calls of all hours", float64(hours.Calls), float64(o.Spans[2].Calls))
	})
	sums := func(server, step string) (sum tallyOf) {
		var past struct{ Series []struct{ Points []tallyOf } }
		read("/v1/metrics/history?server="+server+"&step="+step, &past)
		for _, series := range past.Series {
			for _, p := range series.Points {
				sum.Calls, sum.Failed, sum.Refused, sum.Moved = sum.Calls+p.Calls, sum.Failed+p.Failed, sum.Refused+p.Refused, sum.Moved+p.Moved
			}
		}
		return sum
	}
	agree("/servers", func(c *comparer, page string) {
		var all struct {
			Servers []struct {
				ID     string
				Served float64 `json:"tools_served"`
			}
		}
		read("/servers.json", &all)
		c.rows = tableOf(page, "Servers")
		_, metrics := g.Metrics()
		for _, one := range all.Servers {
			sum := sums(one.ID, "1m")
			c.number(one.ID, "tools", one.Served)
			c.number(one.ID, "calls, 1 h", float64(sum.Calls))
			c.number(one.ID, "failed", float64(sum.Failed))
			of := 0.0
			for name, n := range metrics {
				if words := strings.Fields(name); words[0] == "switchboard_calls_total" && strings.Contains(" "+strings.Join(words[1:], " ")+" ", " "+one.ID+" ") {
					of += n
				}
			}
			c.equal("calls of "+one.ID+" and /metrics", float64(sum.Calls), of)
		}
		c.equal("servers", float64(len(all.Servers)), float64(len(c.rows)-1))
	})
	agree("/servers/c", func(c *comparer, page string) {
		sum := sums("c", "1m")
		c.rows = tableOf(page, "Calls of the last day")
		for _, row := range []string{"1 h", "24 h"} {
			c.number(row, "calls", float64(sum.Calls))
			c.number(row, "failed", float64(sum.Failed))
			c.number(row, "refused", float64(sum.Refused))
			c.number(row, "moved", float64(sum.Moved))
		}
	})
	agree("/budgets", func(c *comparer, page string) {
		var all struct {
			Budgets []struct{ Budget, Tenant, Limit, Settled, Held, Left, Unit string }
		}
		read("/budgets.json", &all)
		_, metrics := g.Metrics()
		if len(all.Budgets) != 1 {
			c.bad = append(c.bad, fmt.Sprint(all.Budgets))
		}
		for _, a := range all.Budgets {
			shown := strings.Join(strings.Fields(html.UnescapeString(tagsInCell.ReplaceAllString(page, " "))), " ")
			c.says(shown, a.Settled+" of "+a.Limit+" "+a.Unit)
			c.says(shown, a.Left+" "+a.Unit+" left")
			c.says(shown, a.Held+" held")
			number := func(text string) float64 {
				n, err := strconv.ParseFloat(text, 64)
				if err != nil {
					c.bad = append(c.bad, err.Error())
				}
				return n
			}
			c.equal("held", number(a.Held), 1)
			for name, n := range metrics {
				words := strings.Fields(name)
				for metric, want := range map[string]string{"limit": a.Limit, "settled": a.Settled, "held": a.Held} {
					if words[0] == "switchboard_budget_"+metric {
						c.equal(name, n, number(want))
					}
				}
			}
			c.equal("settled, and receipts of calls that were sent", number(a.Settled), count("")-count("outcome=refused"))
		}
	})
	agree("/tasks", func(c *comparer, page string) {
		var all struct {
			Tasks []struct {
				Task    string
				Default bool
				Tools   []string
				Listed  float64
				Whole   float64 `json:"all_tools"`
				Budget  float64 `json:"token_budget"`
			}
		}
		read("/tasks.json", &all)
		c.rows = tableOf(page, "Tasks")
		for _, one := range all.Tasks {
			row := one.Task
			if one.Default {
				row += " default"
			}
			c.number(row, "Listed first", one.Listed)
			c.number(row, "Without stubs", one.Whole)
			c.number(row, "Budget", one.Budget)
			c.says(page, one.Tools[0])
		}
	})
	agree("/decision?tenant=default&task=all", func(c *comparer, page string) {
		var d struct {
			Requirements []struct {
				Selected, Others []any
				Dropped          []struct{ Stage string }
			}
		}
		read("/decision.json?tenant=default&task=all", &d)
		for i, r := range d.Requirements {
			flow := stagesOf(page, i)
			left := len(r.Selected) + len(r.Others) + len(r.Dropped)
			for _, stage := range []string{"filter", "prune", "policy", "verdict", "rank", "health", "select"} {
				dropped, fate := 0, "dropped"
				for _, one := range r.Dropped {
					if one.Stage == stage {
						dropped++
					}
				}
				if stage == "select" {
					dropped, fate = dropped+len(r.Others), "behind"
				}
				left -= dropped
				want := fmt.Sprint(stage, " ", left)
				if dropped > 0 {
					want += fmt.Sprint(" ", dropped, " ", fate)
				}
				if c.n++; flow[stage] != want {
					c.bad = append(c.bad, fmt.Sprintf("stage %q says %q, want %q", stage, flow[stage], want))
				}
			}
		}
	})
	if a := g.AskAdmin(t, "", "GET", "/v1/resolve?tenant=default&probe=true", ""); a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	agree("/capabilities?tenant=default", func(c *comparer, page string) {
		var all struct {
			Verdicts  []struct{ Capability, Verdict string }
			Contracts []struct {
				Atoms []struct{ ID, State string }
				Tools []struct {
					Name      string
					Providers []string
				}
			}
		}
		read("/capabilities.json?tenant=default", &all)
		verdicts, atoms := map[string]int{}, map[string]string{}
		for i, v := range all.Verdicts {
			verdicts[v.Verdict]++
			for _, a := range all.Contracts[i].Atoms {
				atoms[a.ID] = a.State
			}
			tools := all.Contracts[i].Tools
			if len(tools) == 0 {
				continue
			}
			c.says(page, fmt.Sprintf("%d tool, and who provides it", len(tools)))
			c.rows = tableOf(page, "Tools of the capability")
			c.equal("tools of "+v.Capability, float64(len(c.rows)-1), float64(len(tools)))
			if row := c.rows[tools[0].Name]; len(row) != 2 || row[1] != strings.Join(tools[0].Providers, ", ") || row[1] != "c/work" {
				c.bad = append(c.bad, fmt.Sprintf("the tool %+v is in the row %q", tools[0], row))
			}
		}
		for verdict, n := range verdicts {
			c.says(page, fmt.Sprintf("<span>%s: %d</span>", verdict, n))
		}
		c.equal("verdicts that differ", float64(len(verdicts)), 2)
		c.equal("capabilities", float64(strings.Count(page, `<p class="what">`)), float64(len(all.Verdicts)))
		c.rows = tableOf(page, "States of atoms")
		c.equal("atoms", float64(len(c.rows)-1), float64(len(atoms)))
		states := map[string]float64{}
		for id, state := range atoms {
			states[state]++
			if row := c.rows[id]; len(row) != 6 || !strings.HasPrefix(row[2], state) {
				c.bad = append(c.bad, fmt.Sprintf("%s is %s, and its row is %q", id, state, row))
			}
		}
		c.equal("states that differ", float64(len(states)), 3)
		_, metrics := g.Metrics()
		for name, n := range metrics {
			if state, ok := strings.CutPrefix(name, "switchboard_atoms "); ok {
				c.equal("atoms that are "+state+", and /metrics", states[state], n)
			}
		}
	})
	agree("/receipts?kind=call", func(c *comparer, page string) {
		all := count("")
		_, table, _ := strings.Cut(page, `aria-label="Receipts"`)
		c.equal("rows of the list", float64(len(rowsOfTable.FindAllString(table, -1)))-1, all)
		c.equal("refused rows", float64(strings.Count(table, "refused <code>")), count("outcome=refused"))
		c.equal("receipts of the refused call", count("outcome=refused"), 1)
		c.says(page, "These are all.")
	})

	// A tool changes its words, and another comes later.
	for _, tool := range []string{strings.Replace(fmt.Sprintf(rig.Tool, "work"), `{`, `{"description":"works otherwise",`, 1), fmt.Sprintf(rig.Tool, "later")} {
		do := map[bool]string{true: "replace", false: "grow"}[strings.Contains(tool, "work")]
		s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"work","arguments":{"do":%q,"bytes":%q}}`, do, tool))
	}
	type pinned struct {
		Server, Kind, Name, State string
		Frozen                    bool
		NeedsPerson               bool `json:"needs_person"`
	}
	agree("/pins", func(c *comparer, page string) {
		var all struct {
			Pins        []pinned
			Total       float64
			NeedsPerson float64 `json:"needs_person"`
		}
		read("/pins.json", &all)
		c.rows = tableOf(page, "Pins")
		waiting := 0.0
		for _, p := range all.Pins {
			name := p.Server + "/" + p.Name
			if p.NeedsPerson {
				waiting++
				c.says(page, `<span><bdi class="theirs">`+name+`</bdi> is `)
			} else if row := c.rows[name]; len(row) != 5 || row[1] != p.Kind || row[2] != p.State {
				c.bad = append(c.bad, fmt.Sprintf("%+v has the row %q", p, row))
			}
		}
		c.equal("definitions", float64(len(all.Pins)), all.Total)
		c.equal("rows", float64(len(c.rows)-1)+waiting, all.Total)
		c.equal("those that need a person", waiting, all.NeedsPerson)
		c.equal("those that have changed here", waiting, 2)
		c.equal("the parts of the view that ask for a person", float64(strings.Count(page, "Look at it, and decide")), waiting)
		c.says(page, fmt.Sprintf("<span>%.0f definitions</span><span>%.0f of them need a person</span>", all.Total, waiting))
	})
	agree("/now", func(c *comparer, page string) {
		var o struct {
			Concerns []struct {
				Kind, Subject, State string
				Pin                  pinned
			}
		}
		read("/now.json", &o)
		held := 0.0
		for _, one := range o.Concerns {
			if one.Kind == "pin" {
				held++
				c.says(page, `<bdi class="theirs">`+one.Subject+`</bdi> is frozen: clients keep the admitted definition</span> <a href="/pins/one?kind=tool&amp;name=`+one.Pin.Name+`&amp;server=`+one.Pin.Server+`">`)
			}
		}
		c.equal("concerns about definitions", held, 1)
		c.equal("those of the view", float64(strings.Count(page, `<span class="kind">pin</span>`)), held)
	})
}
