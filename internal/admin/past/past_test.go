package past

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/proposal"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func evidence(server string, ok, calls uint64, low, high float64) ServerEvidence {
	e := ServerEvidence{Server: switchboard.ServerID(server), OK: ok, Calls: calls, MedianLow: low, MedianHigh: high, SuccessHigh: 1}
	if calls > 0 {
		e.SuccessLow, e.SuccessHigh = memory.Wilson(ok, calls)
	}
	return e
}

func TestAnotherServerComesFirstOnlyWhereTheIntervalsDoNotTouch(t *testing.T) {
	for name, tt := range map[string]struct {
		servers []ServerEvidence
		first   switchboard.ServerID
		why     string
	}{
		"it succeeds more often":              {[]ServerEvidence{evidence("a", 60, 100, 5, 6), evidence("b", 95, 100, 50, 60)}, "b", "succeed more often"},
		"it is as good and faster":            {[]ServerEvidence{evidence("a", 95, 100, 50, 60), evidence("b", 96, 100, 5, 6)}, "b", "are faster"},
		"the best of two":                     {[]ServerEvidence{evidence("a", 50, 100, 5, 6), evidence("b", 80, 100, 5, 6), evidence("c", 99, 100, 5, 6)}, "c", "at c succeed"},
		"it is faster and worse":              {[]ServerEvidence{evidence("a", 95, 100, 50, 60), evidence("b", 60, 100, 5, 6)}, "", "no server is clearly better"},
		"the intervals of success touch":      {[]ServerEvidence{evidence("a", 90, 100, 5, 6), evidence("b", 95, 100, 5, 6)}, "", "no server is clearly better"},
		"the intervals of the median touch":   {[]ServerEvidence{evidence("a", 90, 100, 6, 8), evidence("b", 90, 100, 5, 6)}, "", "no server is clearly better"},
		"the first has 49 calls":              {[]ServerEvidence{evidence("a", 1, 49, 5, 6), evidence("b", 100, 100, 1, 2)}, "", "a, which comes first, has 49 of the 50 calls"},
		"the other has 49 calls":              {[]ServerEvidence{evidence("a", 1, 100, 5, 6), evidence("b", 49, 49, 1, 2)}, "", "no other server has the 50 calls that a comparison needs; the next one, b, has 49"},
		"neither was called":                  {[]ServerEvidence{evidence("a", 0, 0, 0, 0), evidence("b", 0, 0, 0, 0)}, "", "has 0 of the 50 calls"},
		"no time is known of the first":       {[]ServerEvidence{evidence("a", 95, 100, 0, 0), evidence("b", 95, 100, 5, 6)}, "", "no server is clearly better"},
		"the first never succeeds, 50 and 50": {[]ServerEvidence{evidence("a", 0, 50, 5, 6), evidence("b", 50, 50, 5, 6)}, "b", "succeed more often"},
	} {
		row := ComparedServers{Verb: "search", Resource: "internet", Servers: tt.servers}
		if row.judge(); row.First != tt.first || !strings.Contains(row.Why, tt.why) {
			t.Errorf("%s: %q first, because %q; want %q, because %q", name, row.First, row.Why, tt.first, tt.why)
		}
	}
}

func TestAServerIsComparedOnceWhereverItsToolsRank(t *testing.T) {
	var ranked []decide.Candidate
	for _, id := range []string{"a/one", "a/two", "b/one", "a/three", "c/one", "b/two"} {
		tool, err := switchboard.ParseToolID(id)
		if err != nil {
			t.Fatal(err)
		}
		ranked = append(ranked, decide.Candidate{Tool: &switchboard.Tool{ID: tool}})
	}
	if got := serversOf(ranked); !slices.Equal(got, []switchboard.ServerID{"a", "b", "c"}) {
		t.Errorf("the servers are %v", got)
	}
}

func TestTheDaysThatAnAnswerLacksAreNamedOnce(t *testing.T) {
	got := missingDays(memory.Missing{Unreadable: []memory.Day{1, 3}}, memory.Missing{Unreadable: []memory.Day{2, 3}, Crowded: []memory.Day{0}})
	if !slices.Equal(got.Unreadable, []string{"1970-01-02", "1970-01-03", "1970-01-04"}) || !slices.Equal(got.Crowded, []string{"1970-01-01"}) {
		t.Errorf("%+v", got)
	}
	if none := missingDays(); none.Unreadable == nil || none.Crowded == nil {
		t.Errorf("a list is null: %+v", none)
	}
}

func TestAProposalChangesTheRowsOfTheTenantsFileAndNothingElse(t *testing.T) {
	suggest := func(rows ...ComparedServers) *RankingSuggestion {
		return &RankingSuggestion{Tenant: "acme", Rows: rows}
	}
	internet := ComparedServers{Verb: "search", Resource: "internet", First: "atlas"}
	for name, tt := range map[string]struct {
		of         *RankingSuggestion
		text, want string
	}{
		"a row that there is": {
			suggest(internet), "tenant: acme\nranking:\n  # the best\n  prefer:\n    - {verb: read, resource: fs, servers: [a]}\n    - {verb: search, resource: internet, servers: [nimbus, atlas]} # kept\n",
			"tenant: acme\nranking:\n  # the best\n  prefer:\n    - {verb: read, resource: fs, servers: [a]}\n    - {verb: search, resource: internet, servers: [atlas, nimbus]} # kept\n",
		},
		"a new row":               {suggest(internet), "tenant: acme\nranking:\n  prefer:\n    - {verb: read, resource: fs, servers: [a]}\n", "tenant: acme\nranking:\n  prefer:\n    - {verb: read, resource: fs, servers: [a]}\n    - {verb: search, resource: internet, servers: [atlas]}\n"},
		"no ranking":              {suggest(internet), "tenant: acme\n", "tenant: acme\nranking: {prefer: [{verb: search, resource: internet, servers: [atlas]}]}\n"},
		"two rows":                {suggest(internet, ComparedServers{Verb: "read", Resource: "fs", First: "b"}), "tenant: acme\nranking: {prefer: [{verb: read, resource: fs, servers: [a]}]}\n", "tenant: acme\nranking: {prefer: [{verb: read, resource: fs, servers: [b, a]}, {verb: search, resource: internet, servers: [atlas]}]}\n"},
		"nothing to change":       {suggest(ComparedServers{Verb: "read", Resource: "fs"}), "tenant: acme\n", ""},
		"no row is to be changed": {suggest(), "tenant: acme\n", ""},
	} {
		next, err := tt.of.putFirst([]byte(tt.text))
		if err != nil || string(next) != tt.want && !sameYAML(next, tt.want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, next, tt.want)
		}
	}
	if _, err := suggest(internet).putFirst([]byte("ranking: [")); err == nil {
		t.Error("a file with a fault is changed")
	}
}

func TestAProposalClaimsWhatItsTrialHasShown(t *testing.T) {
	internet := ComparedServers{Verb: "search", Resource: "internet", First: "atlas", Why: "atlas succeeds more often"}
	fs := ComparedServers{Verb: "read", Resource: "fs", First: "b", Why: "b is faster"}
	met := func(name string, tools ...string) change.TaskTools {
		return change.TaskTools{Tools: tools, Requirements: []change.ServedRequirement{{Name: name, Tools: tools}}}
	}
	moved := change.TaskChange{Tenant: "acme", Task: "browse", Before: []string{"nimbus/find", "nimbus/more"}, After: []string{"atlas/find", "atlas/news"}}
	many := map[switchboard.TaskID]change.TaskTools{}
	for i := range 100 {
		many[switchboard.TaskID(fmt.Sprintf("t%02d", i))] = met("search:internet", "atlas/find")
	}
	for name, tt := range map[string]struct {
		rows    []ComparedServers
		tasks   map[switchboard.TaskID]change.TaskTools // after the change
		changed []change.TaskChange
		partly  bool // not all tasks were tried
		want    []string
		why     string // in the last row
	}{
		"the task is served by it, gets its other tools, and loses those of the old server": {
			rows: []ComparedServers{internet}, tasks: map[switchboard.TaskID]change.TaskTools{"browse": met("search:internet", "atlas/find", "atlas/news")}, changed: []change.TaskChange{moved},
			want: []string{"task browse of acme meets search:internet by atlas/find", "task browse of acme has atlas/news", "task browse of acme does not have nimbus/find", "task browse of acme does not have nimbus/more", "nothing else changes for tenant acme"},
		},
		"some tasks were not tried: nothing is claimed about the others": {
			rows: []ComparedServers{internet}, tasks: map[switchboard.TaskID]change.TaskTools{"browse": met("search:internet", "atlas/find", "atlas/news")}, changed: []change.TaskChange{moved}, partly: true,
			want: []string{"task browse of acme meets search:internet by atlas/find"},
		},
		"a requirement that another server still serves is not claimed": {
			rows: []ComparedServers{internet}, tasks: map[switchboard.TaskID]change.TaskTools{"browse": met("search:internet", "atlas/find"), "picky": met("search:internet", "atlas-2/find")},
			want: []string{"task browse of acme meets search:internet by atlas/find", "nothing else changes for tenant acme"},
		},
		"another requirement is not claimed": {
			rows: []ComparedServers{internet}, tasks: map[switchboard.TaskID]change.TaskTools{"browse": met("search:internet", "atlas/find"), "code": met("read:fs", "atlas/cat")},
			want: []string{"task browse of acme meets search:internet by atlas/find", "nothing else changes for tenant acme"},
		},
		"no task would be served by it: no proposal":   {rows: []ComparedServers{internet}, tasks: map[switchboard.TaskID]change.TaskTools{"browse": met("search:internet", "nimbus/find")}, why: "atlas succeeds more often; but no task would be served by it"},
		"one of two would serve no task, and says so":  {rows: []ComparedServers{internet, fs}, tasks: map[switchboard.TaskID]change.TaskTools{"browse": met("search:internet", "atlas/find")}, want: []string{"task browse of acme meets search:internet by atlas/find", "nothing else changes for tenant acme"}, why: "b is faster; but no task would be served by it"},
		"nothing else is claimed where it has no room": {rows: []ComparedServers{internet}, tasks: many, want: claimTexts(many, proposal.MaxClaims)},
	} {
		x := &RankingSuggestion{Tenant: "acme", Rows: tt.rows}
		after := &change.TaskState{
			Tasks: func(switchboard.TenantID) []switchboard.TaskID { return slices.Sorted(maps.Keys(tt.tasks)) },
			Look: func(_ context.Context, _ switchboard.TenantID, task switchboard.TaskID) change.TaskTools {
				return tt.tasks[task]
			},
		}
		var got []string
		for _, c := range x.claimsAbout(t.Context(), after, tt.changed, !tt.partly) {
			got = append(got, c.String())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: it claims\n%q\nwant\n%q", name, got, tt.want)
		}
		if why := tt.rows[len(tt.rows)-1].Why; !strings.HasPrefix(why, tt.why) || tt.why == "" && strings.Contains(why, "but no task") {
			t.Errorf("%s: the row says %q, want %q", name, why, tt.why)
		}
	}
}

// claimTexts returns the first claims about tasks that are all served by atlas.
func claimTexts(tasks map[switchboard.TaskID]change.TaskTools, most int) (texts []string) {
	for _, task := range slices.Sorted(maps.Keys(tasks))[:most] {
		texts = append(texts, fmt.Sprintf("task %s of acme meets search:internet by atlas/find", task))
	}
	return texts
}

// sameYAML reports whether the texts are the same except for spaces.
func sameYAML(a []byte, b string) bool {
	return bytes.Equal(bytes.Join(bytes.Fields(a), []byte(" ")), []byte(strings.Join(strings.Fields(b), " ")))
}

func TestAChangeIsNamedOnlyIfItCameAfterTheErrorsAndCallsSucceededSince(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 29, 12, minute, 0, 0, time.UTC) }
	file := memory.ServedChange{At: at(10), What: "change", File: "tenants/acme/tenant.yaml", Receipt: "n1/5"}
	reload := memory.ServedChange{At: at(10), What: "reload", Receipt: "n1/6"}
	early := memory.ServedChange{At: at(9), What: "reload", Receipt: "n1/4"}
	overlay := memory.ServedChange{At: at(12), What: "proposal k3fqx2mz7a", File: "overlays/web.yaml", Receipt: "n1/7"}
	undone := memory.ServedChange{At: at(12), What: "roll-back of proposal k3fqx2mz7a", File: "overlays/web.yaml", Receipt: "n1/8"}
	later := memory.ServedChange{At: at(20), What: "restart", Receipt: "n1/9"}
	for name, tt := range map[string]struct {
		changes  []memory.ServedChange
		last, ok time.Time
		want     string
	}{
		"the first one after":                 {[]memory.ServedChange{file, later}, at(5), at(30), "n1/5 change"},
		"the file instead of its reload":      {[]memory.ServedChange{early, file, later}, at(5), at(30), "n1/5 change"},
		"the file, and a reload that follows": {[]memory.ServedChange{file, reload}, at(5), at(30), "n1/5 change"},
		"a reload long before a file":         {[]memory.ServedChange{reload, overlay}, at(5), at(30), "n1/6 reload"},
		"a proposal, by its id":               {[]memory.ServedChange{overlay, later}, at(11), at(30), "n1/7 proposal k3fqx2mz7a"},
		"one that was taken back":             {[]memory.ServedChange{undone, later}, at(11), at(30), "n1/8 roll-back k3fqx2mz7a"},
		"an error came after the first":       {[]memory.ServedChange{file, overlay}, at(11), at(30), "n1/7 proposal k3fqx2mz7a"},
		"none after the last error":           {[]memory.ServedChange{file}, at(15), at(30), ""},
		"no call has succeeded since":         {[]memory.ServedChange{file}, at(5), at(7), ""},
		"no call has ever succeeded":          {[]memory.ServedChange{file}, at(5), time.Time{}, ""},
		"it was changed more than 24 h on":    {[]memory.ServedChange{file}, at(5).Add(-25 * time.Hour), at(30), ""},
		"nothing was changed":                 {nil, at(5), at(30), ""},
	} {
		got := ""
		if c := changeAfter(tt.changes, tt.last, tt.ok); c != nil {
			got = strings.TrimSpace(c.Receipt + " " + c.What + " " + c.Proposal)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestFiguresLeaveOutWhatSwitchboardRefusedAndWhatWasKept(t *testing.T) {
	var n memory.Totals
	n.Outcomes = [6]uint64{6, 1, 0, 10, 1, 0} // ok, tool_error, server_error, refused, failed, unknown
	n.Kept, n.Cost = 5, 1500
	n.Patterns = map[memory.Pattern]memory.Sightings{{Outcome: receipt.Refused, Code: "SB-RATE-001"}: {Count: 10}, {Outcome: receipt.ToolError}: {Count: 1}}
	f := figuresOf(&n)
	if f.Attempts != 18 || f.Success == nil || *f.Success != 0.75 || f.Codes["SB-RATE-001"] != 10 || len(f.Codes) != 1 || f.Kept != 5 || f.Cost != "0.0015" || f.P50 != nil || f.Outcomes[receipt.ServerError] != 0 {
		t.Errorf("%+v", f)
	}
	if f := figuresOf(&memory.Totals{}); f.Success != nil || f.Outcomes == nil || f.Codes == nil {
		t.Errorf("without calls: %+v", f)
	}
}

func TestIndexesOfViewsThatAreNotServedAreDropped(t *testing.T) {
	c := &bind.State{Tenants: map[switchboard.TenantID]*bind.Tenant{"acme": {View: &catalog.View{}}, "beta": {View: &catalog.View{}}}}
	r := New(admin.NewReader(admin.ReaderOptions{Configuration: func() admin.Configuration { return admin.Configuration{State: c} }}), nil)
	first := r.indexOf("acme", c.Tenants["acme"].View)
	if again := r.indexOf("acme", c.Tenants["acme"].View); again != first || len(r.indexes) != 1 {
		t.Errorf("the index was built again; %d are kept", len(r.indexes))
	}
	r.indexOf("beta", c.Tenants["beta"].View)
	c.Tenants["acme"] = &bind.Tenant{View: &catalog.View{}} // a reload
	if next := r.indexOf("acme", c.Tenants["acme"].View); next == first || len(r.indexes) != 2 || r.indexes[0].index != next {
		t.Errorf("the index of the old view is kept: %d", len(r.indexes))
	}
	delete(c.Tenants, "acme")
	if r.indexOf("beta", c.Tenants["beta"].View); len(r.indexes) != 1 {
		t.Errorf("the index of a tenant that is gone is kept: %d", len(r.indexes))
	}
}

// Errors reads the changes of some days only. Those of other days make no difference.
func TestTheChangesOfOtherDaysCannotBeNamed(t *testing.T) {
	r, begins, named := rand.New(rand.NewPCG(1, 2)), time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC), 0
	at := func() time.Time { return begins.Add(time.Duration(r.IntN(5*24*3600)) * time.Second) }
	for range 2000 {
		sum := &memory.Totals{LastOK: at(), Patterns: map[memory.Pattern]memory.Sightings{}}
		for _, o := range []receipt.CallOutcome{receipt.Failed, receipt.ToolError} {
			sum.Patterns[memory.Pattern{Outcome: o}] = memory.Sightings{Count: 1, Last: at()}
		}
		var all, read []memory.ServedChange
		for range 8 {
			all = append(all, memory.ServedChange{At: at(), What: "reload"})
		}
		slices.SortFunc(all, func(a, b memory.ServedChange) int { return a.At.Compare(b.At) })
		days := daysOfChanges(sum)
		for _, c := range all {
			if slices.Contains(days, memory.DayOf(c.At)) {
				read = append(read, c)
			}
		}
		for p, s := range sum.Patterns {
			want, got := changeAfter(all, s.Last, sum.LastOK), changeAfter(read, s.Last, sum.LastOK)
			if want != nil {
				named++
			}
			if (want == nil) != (got == nil) || want != nil && !got.At.Equal(want.At) {
				t.Fatalf("%v until %v: %v of the days %v, %v of all", p, s.Last, got, days, want)
			}
		}
	}
	if named == 0 {
		t.Error("no change is named")
	}
}
