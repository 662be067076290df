package admin

import (
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A RunRow is a run that this process knows.
type RunRow struct {
	Run       switchboard.RunID    `json:"run"`
	Tenant    switchboard.TenantID `json:"tenant"`
	Principal string               `json:"principal"`
	Task      switchboard.TaskID   `json:"task,omitempty"` // "" while none is bound
	Tools     int                  `json:"tools"`          // in its list now
	Context   ContextBill          `json:"context"`
	Why       string               `json:"why,omitempty"` // why it shows nothing
}

// RunRows returns the runs of a tenant, or all runs for the empty tenant, sorted by id.
func (r *Reader) RunRows(id switchboard.TenantID) []RunRow {
	r.o.Meter.Wake()
	all := []RunRow{}
	for _, of := range r.o.Runs.All() {
		p := of.Principal()
		if id != "" && p.Tenant != id {
			continue
		}
		row := RunRow{Run: of.ID(), Tenant: p.Tenant, Principal: p.ID, Task: of.Task(), Tools: len(of.PeekSurface().Entries())}
		row.Context.add(of)
		if err := of.Err(); err != nil {
			row.Why = err.Error()
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b RunRow) int { return strings.Compare(string(a.Run), string(b.Run)) })
	return all
}
