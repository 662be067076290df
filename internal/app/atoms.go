package app

import (
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/credential"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// openAtoms returns the prober of the registry's atoms. It uses the fleet and the health of servers.
func openAtoms(a *App, current live) *atom.Prober {
	return atom.Open(atom.Options{
		Store: a.store, Log: a.log, Folder: filepath.Dir(a.options.Officers.File), Probed: a.metrics.CountAtomProbe,
		Server: func(id switchboard.ServerID) (why string, known bool) {
			status, known := a.health.Status(id)
			switch status.State {
			case health.Healthy, health.Probation:
				return "", known
			case health.Starting:
				return "", false
			}
			return string(status.State), known
		},
		Connection: func(ctx context.Context, id switchboard.ServerID) (why string, known bool) {
			return credential.CheckConnection(ctx, a.credentials, id)
		},
		Find: func(id switchboard.ToolID) (*switchboard.Tool, bool) { return current.state.Load().Catalog.Tool(id) },
		Call: func(ctx context.Context, tool *switchboard.Tool, arguments json.RawMessage) (switchboard.Result, error) {
			return callProbeTool(ctx, a.fleet, tool, arguments)
		},
	})
}

// presentRegistry returns a function that returns the present registry of capabilities.
func presentRegistry(l live) func() *capability.Registry {
	return func() *capability.Registry { return l.state.Load().Config.Registry }
}
