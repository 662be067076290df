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
	tool, _ := health.ProbeTool(s, a.state.Load().Catalog.Tool)
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

// lostServers returns the servers on the surface that cannot serve. Such a server is out of service
// and has a tool without a fit equivalent, or none of its tools can be called.
func (a *App) lostServers(s *surface.Surface) []switchboard.ServerID {
	return bind.LostServers(a.health.Unfit(), a.health.Fit, s)
}

// countTransition counts a change of the health of a server or of a tool.
func (a *App) countTransition(t health.Transition) {
	stage := ""
	if t.Cause != nil {
		stage = t.Cause.Stage
	}
	a.metrics.Changed(t.Server, t.Tool != "", string(t.To), stage)
}

// countMovedCall counts a call that was moved.
func (a *App) countMovedCall(m health.Move) {
	a.metrics.Moved(m.Tool.Server, m.To.Server)
}
