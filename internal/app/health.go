package app

import (
	"context"
	"fmt"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// setServers replaces the servers that Switchboard connects to and monitors.
func (a *App) setServers(servers []switchboard.Server) {
	a.health.Set(servers)
	a.fleet.Set(servers)
}

// reportLink reports to health that a connection to a server is up or down.
func (a *App) reportLink(id switchboard.ServerID, up bool, why *upstream.Failure) {
	var cause health.Cause
	if why != nil {
		cause = health.Cause{Stage: string(why.Stage), Message: why.Message, Since: why.Since, Gone: why.Gone}
	}
	a.health.Link(id, up, cause)
}

// probeServer probes a server in all the ways that are configured.
func (a *App) probeServer(ctx context.Context, s *switchboard.Server) error {
	if err := a.fleet.Probe(ctx, s.ID); err != nil {
		return err
	}
	tool, _ := a.state.Load().probeTool(s)
	if tool == nil {
		return nil
	}
	params := []byte(`{"name":` + string(canonical.Encode(tool.ID.Name)))
	if s.Probe.Arguments != nil {
		params = append(append(params, `,"arguments":`...), s.Probe.Arguments...)
	}
	r, err := a.fleet.Call(ctx, &switchboard.Call{
		Server: s.ID, Method: wire.MethodToolsCall, Tool: tool, Target: tool.ID.Name, Params: append(params, '}'), NoWait: true,
	})
	if err != nil {
		return err
	}
	if failed, _ := wire.Field(r.JSON, wire.MemberError); string(failed) == "true" {
		return fmt.Errorf("%s answers with an error", tool.ID.Name)
	}
	return nil
}

// probeFaults says which servers are not probed as configured, and why. It covers only servers with
// a known offer.
func (s *servingState) probeFaults(concerns func(switchboard.ServerID) bool) (faults []string) {
	for i := range s.config.Servers {
		server := &s.config.Servers[i]
		if _, heard := s.Offers[server.ID]; !heard || !concerns(server.ID) {
			continue
		}
		if _, why := s.probeTool(server); why != "" {
			faults = append(faults, fmt.Sprintf("server %q: %s", server.ID, why))
		}
	}
	return faults
}

// probeTool returns the tool that probes the server. If one is configured but may not be used, why
// says so: only a tool that is readonly on trusted authority may be called for a probe.
func (s *servingState) probeTool(of *switchboard.Server) (tool *switchboard.Tool, why string) {
	if of.Probe.Tool == "" {
		return nil, ""
	}
	tool, ok := s.Catalog.Tool(switchboard.ToolID{Server: of.ID, Name: of.Probe.Tool})
	switch {
	case !ok:
		return nil, fmt.Sprintf("health: it has no tool %q", of.Probe.Tool)
	case !tool.Contract.ReadOnly.Holds || !tool.Contract.ReadOnly.Trusted || tool.Contract.Stateful.Holds:
		return nil, fmt.Sprintf("health: a probe calls only a tool that changes nothing; declare in an overlay that %q is readonly", of.Probe.Tool)
	}
	return tool, ""
}

// lostServers returns the servers on the surface that cannot serve. Such a server is out of service
// and has a tool without a fit equivalent, or none of its tools can be called.
func (a *App) lostServers(s *surface.Surface) []switchboard.ServerID {
	return bind.LostServers(a.health.Unfit(), a.health.Fit, s)
}
