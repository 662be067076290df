package admin

import (
	"cmp"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// taskStatuses counts the runs by tenant and task, in byte order.
func (r *Reader) taskStatuses(id switchboard.TenantID) []TaskStatus {
	type key struct {
		tenant switchboard.TenantID
		task   switchboard.TaskID
	}
	r.o.Meter.Wake()
	by := map[key]*TaskStatus{}
	for _, of := range r.o.Runs.All() {
		p := of.Principal()
		if of.Task() == "" || id != "" && p.Tenant != id {
			continue
		}
		k := key{p.Tenant, of.Task()}
		if by[k] == nil {
			by[k] = &TaskStatus{Tenant: p.Tenant, Task: of.Task()}
		}
		t := by[k]
		t.Runs++
		t.Context.add(of)
		shown := of.PeekSurface()
		t.Tools = max(t.Tools, len(shown.Entries()))
		for _, id := range shown.Withheld() {
			if name, ok := shown.Name(id); ok && !slices.Contains(t.Withheld, name) {
				t.Withheld = append(t.Withheld, name)
			}
		}
		if err := of.Err(); err != nil {
			t.Why = err.Error()
		}
	}
	all := make([]TaskStatus, 0, len(by))
	for _, t := range by {
		slices.Sort(t.Withheld)
		all = append(all, *t)
	}
	slices.SortFunc(all, func(x, y TaskStatus) int {
		return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.Task, y.Task))
	})
	return all
}
