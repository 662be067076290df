package bind

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// UnfitTools returns the tools that are not fit to serve now, for a run that showed was. Tools on
// its surface stay while their server is down for a moment. The run does not return to servers that
// it has left.
func UnfitTools(now map[switchboard.ToolID]health.State, was run.Before) decide.Unfit {
	if len(now) == 0 && len(was.Abandoned) == 0 {
		return nil
	}
	bound := serversOnSurface(was.Surface)
	unfit := decide.Unfit{}
	for id, state := range now {
		if state == health.Starting {
			continue // calls wait until it has started
		}
		if !slices.Contains(bound, id.Server) || slices.Contains(was.Abandoned, id.Server) {
			unfit[id] = string(state)
		}
	}
	for _, server := range was.Abandoned {
		switch id := (switchboard.ToolID{Server: server}); {
		case unfit[id] == "":
			unfit[id] = health.GivenUp
		case slices.Contains(bound, server): // the run is just leaving it
			unfit[id] = health.BoundUnfit
		}
	}
	return unfit
}

// ownUnfit returns the part of unfit that concerns the tenant's servers.
func (t *Tenant) ownUnfit(unfit decide.Unfit) decide.Unfit {
	var own decide.Unfit
	for id, state := range unfit {
		if !t.MayUseServer(id.Server) {
			continue
		}
		if own == nil {
			own = decide.Unfit{}
		}
		own[id] = state
	}
	return own
}

// awaitingConnection returns the tenant's servers that need a connection, sorted.
func (t *Tenant) awaitingConnection(ailing map[switchboard.ToolID]health.State) (servers []switchboard.ServerID) {
	for id, state := range ailing {
		if id.Name == "" && state == health.NeedsConnection && t.MayUseServer(id.Server) {
			servers = append(servers, id.Server)
		}
	}
	slices.Sort(servers)
	return servers
}

// failed returns the tenant's servers that have failed before they offered anything, sorted. Switchboard tries them
// again. One that is healthy by now is among them until s has what it offers.
func (s *State) failed(t *Tenant, ailing map[switchboard.ToolID]health.State) (servers []switchboard.ServerID) {
	for _, id := range t.Servers {
		_, known := s.Offers[id]
		state := ailing[switchboard.ToolID{Server: id}]
		if !known && state != health.Disabled && state != health.NeedsConnection && !slices.Contains(s.Starting, id) {
			servers = append(servers, id)
		}
	}
	return servers
}

// serversOnSurface returns the servers of the tools on a surface.
func serversOnSurface(s *surface.Surface) (ids []switchboard.ServerID) {
	if s == nil {
		return nil
	}
	for _, e := range s.Entries() {
		if id := e.Tool.ID.Server; !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// LostServers returns the servers on the surface that cannot serve. Such a server is out of service
// and has a tool without a fit equivalent, or none of its tools can be called.
func LostServers(unfit map[switchboard.ToolID]health.State, fit func(switchboard.ToolID) bool, s *surface.Surface) (ids []switchboard.ServerID) {
	if len(unfit) == 0 {
		return nil
	}
	out := func(id switchboard.ToolID) bool {
		return unfit[id] == health.Lost || unfit[id] == health.Quarantine || unfit[id] == health.Disabled
	}
	for _, id := range serversOnSurface(s) {
		all, some := true, false
		for _, e := range s.Entries() {
			if e.Tool.ID.Server != id {
				continue
			}
			served := slices.ContainsFunc(e.Equivalents, func(q switchboard.Equivalent) bool { return fit(q.Tool.ID) })
			switch {
			case served || !out(switchboard.ToolID{Server: id}) && !out(e.Tool.ID):
				all = false
			default:
				some = true
			}
		}
		if all || some && out(switchboard.ToolID{Server: id}) {
			ids = append(ids, id)
		}
	}
	return ids
}
