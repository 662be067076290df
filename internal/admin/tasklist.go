package admin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A TaskOffer is a task with the tools that it gets now.
type TaskOffer struct {
	Tenant  switchboard.TenantID `json:"tenant"`
	Task    switchboard.TaskID   `json:"task"`
	Default bool                 `json:"default,omitempty"`
	Caller  string               `json:"caller,omitempty"` // the id of the key that it was decided for; local means no key

	Tools []string `json:"tools"`                // in the order of the client's list, at most maxOffered
	More  int      `json:"more_tools,omitempty"` // further ones

	Listed int `json:"listed,omitempty"`       // tokens of the client's first list
	Whole  int `json:"all_tools,omitempty"`    // tokens if all tools were listed, without stubs
	Budget int `json:"token_budget,omitempty"` // tokens

	Why string `json:"why,omitempty"` // why it has no tools
}

// Bounds of a list of tasks.
const (
	maxOffered    = 20
	taskOfferTime = 2 * time.Second // for the decisions of one answer
)

// offerCache has the tasks that were decided by one state, with one health of servers. The zero offerCache is empty.
type offerCache struct {
	mu    sync.Mutex
	state *bind.State
	seen  decide.Observed
	rows  map[[2]string]TaskOffer // by tenant and task
}

// TaskNames returns the tasks of a tenant, or of all tenants for the empty one, sorted, without their tools.
func TaskNames(r *Reader, id switchboard.TenantID) (rows []TaskOffer) {
	for _, t := range r.Tenants() {
		for _, task := range t.Tasks {
			if id == "" || id == t.Tenant {
				rows = append(rows, TaskOffer{Tenant: t.Tenant, Task: task, Default: task == t.DefaultTask})
			}
		}
	}
	return rows
}

// Place returns the place of the row among others: rows are sorted by it.
func (o *TaskOffer) Place() string { return string(o.Tenant) + " " + string(o.Task) }

// noTime is why a task was not decided if that took too long.
const noTime = "there was no time to decide it; ask again"

// OfferTasks adds the tools to the rows, as they are decided now for a caller that may bind each task. If that takes too long, the rest says so.
func OfferTasks(ctx context.Context, r *Reader, rows []TaskOffer) {
	c := &r.offers
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, taskOfferTime)
	defer cancel()
	st, seen := r.o.Configuration().State, r.o.Binder.Observe(run.Before{})
	if c.state != st || !maps.Equal(c.seen.Atoms, seen.Atoms) {
		c.rows = map[[2]string]TaskOffer{}
	} else {
		c.forget(changedServers(c.seen.Unfit, seen.Unfit))
	}
	c.state, c.seen = st, seen
	for i := range rows {
		key := [2]string{string(rows[i].Tenant), string(rows[i].Task)}
		if known, ok := c.rows[key]; ok {
			rows[i] = known
			continue
		}
		if ctx.Err() != nil {
			rows[i].Tools, rows[i].Why = []string{}, noTime
			continue
		}
		offerTask(ctx, st, seen, &rows[i])
		if t := st.Tenants[rows[i].Tenant]; t != nil && !t.Rules.ReadsClock() && rows[i].Why != noTime {
			c.rows[key] = rows[i]
		}
	}
}

// forget removes the tasks of the tenants that may use one of the servers.
func (c *offerCache) forget(servers map[switchboard.ServerID]bool) {
	if len(servers) == 0 {
		return
	}
	maps.DeleteFunc(c.rows, func(key [2]string, _ TaskOffer) bool {
		t := c.state.Tenants[switchboard.TenantID(key[0])]
		for id := range servers {
			if t.MayUseServer(id) {
				return true
			}
		}
		return false
	})
}

// changedServers returns the servers of the tools whose reason differs.
func changedServers(was, is map[switchboard.ToolID]string) map[switchboard.ServerID]bool {
	changed := map[switchboard.ServerID]bool{}
	for _, pair := range [][2]map[switchboard.ToolID]string{{was, is}, {is, was}} {
		for id, why := range pair[0] {
			if other, ok := pair[1][id]; !ok || other != why {
				changed[id.Server] = true
			}
		}
	}
	return changed
}

// offerTask decides the task of a row.
func offerTask(ctx context.Context, st *bind.State, seen decide.Observed, o *TaskOffer) {
	o.Tools = []string{}
	p, ok := st.Ring.Someone(o.Tenant, o.Task)
	if !ok {
		o.Why = "no key may bind it"
		return
	}
	o.Caller = p.ID
	d, err := st.DecideConfigured(ctx, p, o.Task, seen, time.Now())
	if err == nil {
		err = d.Err()
	}
	if err == nil {
		shown, over := st.MakeSurface(d, nil, nil, 0, nil)
		if err = over; err == nil {
			o.Listed, o.Budget = shown.InstructionTokens(), shown.Budget()
			o.Whole = o.Listed
			for e := range shown.All() {
				cost := shown.Cost(e.Name)
				if e.Usable() {
					o.Listed += cost
				}
				if e.Tool.ID.Server == "" {
					continue
				}
				o.Whole += cost
				if len(o.Tools) < maxOffered {
					o.Tools = append(o.Tools, e.Tool.ID.String())
				} else {
					o.More++
				}
			}
			return
		}
	}
	if o.Why = err.Error(); ctx.Err() != nil {
		o.Why = noTime
	} else if own, ok := errors.AsType[*switchboard.Error](err); ok {
		o.Why = strings.Join(slices.DeleteFunc([]string{string(own.Code), own.Text}, func(s string) bool { return s == "" }), ": ")
	}
}
