package app

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/telemetry"
	"github.com/summit-switchboard/switchboard/internal/upstream"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// reportLink reports to the monitor that a connection to a server is up or down.
func reportLink(m *health.Monitor, id switchboard.ServerID, up bool, why *upstream.Failure) {
	var cause health.Cause
	if why != nil {
		cause = health.Cause{Stage: string(why.Stage), Message: why.Message, Since: why.Since, Gone: why.Gone, NeedsConnection: why.NeedsConnection}
	}
	m.ReportLink(id, up, cause)
}

// probeServer probes a server in all the ways that are configured.
func (l live) probeServer(ctx context.Context, fleet *upstream.Fleet, s *switchboard.Server) error {
	if err := fleet.Probe(ctx, s.ID); err != nil {
		return err
	}
	tool, _ := health.ProbeTool(s, l.state.Load().Catalog.Tool)
	if tool == nil {
		return nil
	}
	r, err := callProbeTool(ctx, fleet, tool, s.Probe.Arguments)
	if err != nil {
		return err
	}
	if failed, _ := wire.Field(r.JSON, wire.MemberError); string(failed) == "true" {
		return fmt.Errorf("%s answers with an error", tool.ID.Name)
	}
	return nil
}

// callProbeTool calls a tool that only reads, for a probe. nil arguments are none.
func callProbeTool(ctx context.Context, fleet *upstream.Fleet, tool *switchboard.Tool, arguments json.RawMessage) (switchboard.Result, error) {
	params := []byte(`{"name":` + string(canonical.Encode(tool.ID.Name)))
	if arguments != nil {
		params = append(append(params, `,"arguments":`...), arguments...)
	}
	return fleet.Call(ctx, &switchboard.Call{
		Server: tool.ID.Server, Method: wire.MethodToolsCall, Tool: tool, Target: tool.ID.Name, Params: append(params, '}'), NoWait: true,
	})
}

// countTransition counts a change of the health of a server or of a tool.
func countTransition(m *telemetry.Recorder, t health.Transition) {
	stage := ""
	if t.Cause != nil {
		stage = t.Cause.Stage
	}
	m.CountStateChange(t.Server, t.Tool != "", string(t.To), stage)
}
