package page

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

// capabilitiesView is the view of named capabilities.
var capabilitiesView = pageView{
	path: "/capabilities", title: "Capabilities", needs: switchboard.OfficeViewer, command: "switchboard resolve --contracts", template: "capabilities.html",
	api: func(q *viewQuery) string {
		return linkTo("/v1/resolve", q.pick("tenant", "capability", "probe"), "contracts", "true")
	},
	load:   loadCapabilities,
	settle: nameTenant,
	forms:  map[string]viewForm{"probe": probeCapability},
}

// nameTenant is the settle of a view of one tenant: without one in the address, it is of the first one that the officer sees.
func nameTenant(q *viewQuery) string {
	tenants := viewPages{q.page}.tenantsOf(q.officer)
	if q.state.Get("tenant") != "" || len(tenants) == 0 {
		return ""
	}
	return linkTo(q.fill(q.view.path), q.state, "tenant", string(tenants[0]))
}

// maxCapabilities is how many capabilities the view shows. The address of one shows that one.
const maxCapabilities = 50

// A capabilityPage is the data of the view of named capabilities.
type capabilityPage struct {
	Now      time.Time
	Tally    []verdictTally
	Rows     []*capabilityRow
	Left     int // capabilities that are not shown
	Atoms    []atom.Summary
	Starting []switchboard.ServerID
	One      bool // the address names one
}

// A verdictTally is how many capabilities have a verdict.
type verdictTally struct {
	Verdict verdict.Name
	Count   int
}

// verdictClass names the kind of a verdict, as the style does.
func verdictClass(name verdict.Name) string {
	switch name {
	case verdict.Yes:
		return "well"
	case verdict.AfterProbe, verdict.AfterApproval:
		return "between"
	}
	return "ill"
}

// A capabilityRow is a capability with its verdict.
type capabilityRow struct {
	verdict.Verdict
	admin.ContractDetail
	ID string // without the version
}

func loadCapabilities(q *viewQuery, answer []byte) (any, error) {
	var x admin.Resolution
	if err := json.Unmarshal(answer, &x); err != nil {
		return nil, err
	}
	v := &capabilityPage{Now: time.Now(), Starting: x.Starting, One: q.state.Get("capability") != ""}
	counts, atoms := map[verdict.Name]int{}, map[string]atom.Summary{}
	for i := range x.Verdicts {
		row := &capabilityRow{Verdict: x.Verdicts[i]}
		row.ID, _, _ = strings.Cut(row.Capability, "@")
		if i < len(x.Contracts) {
			row.ContractDetail = x.Contracts[i]
		}
		for _, a := range row.Atoms {
			atoms[a.ID] = a
		}
		counts[row.Verdict.Verdict]++
		v.Rows = append(v.Rows, row)
	}
	// What may not be used is first: people come here because of it.
	slices.SortStableFunc(v.Rows, func(a, b *capabilityRow) int {
		return slices.Index(verdict.Names, b.Verdict.Verdict) - slices.Index(verdict.Names, a.Verdict.Verdict)
	})
	if len(v.Rows) > maxCapabilities {
		v.Left = len(v.Rows) - maxCapabilities
		v.Rows = v.Rows[:maxCapabilities]
	}
	for _, name := range verdict.Names {
		if counts[name] > 0 {
			v.Tally = append(v.Tally, verdictTally{name, counts[name]})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(atoms)) {
		v.Atoms = append(v.Atoms, atoms[id])
	}
	return v, nil
}

// probeCapability probes what a capability depends on.
func probeCapability(q *viewQuery, fields url.Values) (formDone, error) {
	asked := linkTo("/v1/resolve", q.pick("tenant"), "capability", fields.Get("capability"), "probe", "true")
	if err := q.send(http.MethodGet, asked, nil, nil); err != nil {
		return formDone{}, err
	}
	return formDone{Next: linkTo("/capabilities", q.state)}, nil
}
