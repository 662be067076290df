package admin

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A ServerReport is what is known about one server.
type ServerReport struct {
	ServerStatus

	// Seen is since when the changes of states are known, at most 14 days ago.
	Seen time.Time `json:"seen_since"`

	// Changes are the last changes of the states of the server and its tools, the oldest first, as all processes have seen them that share the store.
	Changes []health.PastChange `json:"changes"`

	// Band are the states of the server since then. Where several processes have watched the server, it has the worst of their states. Times in which none has
	// watched are in no part.
	Band []health.BandPart `json:"band"`

	// ChangesIncomplete says that the store cannot be read now, so that changes are missing which other processes have seen.
	ChangesIncomplete bool `json:"changes_incomplete,omitempty"`

	// Credential says whose token the requests to the server carry; "" means that no row says it.
	Credential switchboard.CredentialKind `json:"credential,omitempty"`

	// Tenants are the tenants that may use the server, sorted; only for the operator.
	Tenants []switchboard.TenantID `json:"tenants,omitempty"`

	// Uses are the runs at this process with tools of the server, by tenant and task.
	Uses []ServerUse `json:"uses"`
}

// A ServerUse is what runs of one task would do if the server took no calls.
type ServerUse struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Task   switchboard.TaskID   `json:"task"`
	Runs   int                  `json:"runs"`

	// To are the servers that the runs would move to, sorted.
	To []switchboard.ServerID `json:"to,omitempty"`

	// Stranded are tools of the server that no healthy server could replace, sorted: their calls would be refused.
	Stranded []string `json:"stranded,omitempty"`
}

// ReportServer returns what is known about the server, or nil if it does not exist or the tenant may not use it. The empty tenant means all of them, for the
// operator. Without messages, the report holds no texts of servers and of the system.
func ReportServer(ctx context.Context, r *Reader, id switchboard.TenantID, server switchboard.ServerID, messages bool) *ServerReport {
	all := r.Servers(id, messages)
	i := slices.IndexFunc(all, func(s ServerStatus) bool { return s.ID == server })
	if i < 0 {
		return nil
	}
	c := r.o.Configuration()
	x := &ServerReport{ServerStatus: all[i], Changes: []health.PastChange{}, Band: []health.BandPart{}, Uses: []ServerUse{}}
	past := r.o.Changes.Past(ctx, server, all[i].Health.State)
	x.Seen, x.ChangesIncomplete = past.Since, past.StoreAway
	x.Changes, x.Band = append(x.Changes, past.Changes...), append(x.Band, past.Band...)
	for i := range x.Changes {
		if cause := x.Changes[i].Cause; cause != nil && !messages {
			x.Changes[i].Cause = &health.Cause{Stage: cause.Stage, Since: cause.Since}
		}
	}
	for i := range c.Config.Servers {
		if s := &c.Config.Servers[i]; s.ID == server {
			x.Credential = s.Credential.Kind
		}
	}
	if id == "" {
		for _, t := range slices.Sorted(maps.Keys(c.Tenants)) {
			if c.Tenants[t].MayUseServer(server) {
				x.Tenants = append(x.Tenants, t)
			}
		}
	}
	x.Uses = serverUses(r.o.Runs.All(), id, server, r.o.Health.Fit)
	return x
}

// serverUses says what the runs of the tenant would do without the server. fit reports whether a tool may be called now.
func serverUses(runs []*run.Run, id switchboard.TenantID, server switchboard.ServerID, fit func(switchboard.ToolID) bool) []ServerUse {
	type useKey struct {
		tenant switchboard.TenantID
		task   switchboard.TaskID
	}
	uses := map[useKey]*ServerUse{}
	for _, of := range runs {
		key := useKey{of.Principal().Tenant, of.Task()}
		if id != "" && key.tenant != id {
			continue
		}
		to, stranded, used := withoutServer(of.PeekSurface().Entries(), server, fit)
		if !used {
			continue
		}
		u := uses[key]
		if u == nil {
			u = &ServerUse{Tenant: key.tenant, Task: key.task}
			uses[key] = u
		}
		u.Runs++
		u.To = slices.Compact(slices.Sorted(slices.Values(append(u.To, to...))))
		u.Stranded = slices.Compact(slices.Sorted(slices.Values(append(u.Stranded, stranded...))))
	}
	all := make([]ServerUse, 0, len(uses))
	for _, u := range uses {
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b ServerUse) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Task, b.Task)) })
	return all
}

// withoutServer returns the servers that would serve the entries of the server in its place, and the tools that none would serve. used is false if no entry is of
// the server.
func withoutServer(entries []surface.Entry, server switchboard.ServerID, fit func(switchboard.ToolID) bool) (to []switchboard.ServerID, stranded []string, used bool) {
	for _, e := range entries {
		if e.Tool.ID.Server != server {
			continue
		}
		used = true
		var next []switchboard.ToolID
		for _, q := range e.Equivalents {
			next = append(next, q.Tool.ID)
		}
		next = append(next, e.Others...)
		i := slices.IndexFunc(next, func(t switchboard.ToolID) bool { return t.Server != server && fit(t) })
		if i < 0 {
			stranded = append(stranded, e.Tool.ID.Name)
			continue
		}
		to = append(to, next[i].Server)
	}
	return to, stranded, used
}
