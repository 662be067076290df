package health

import (
	"fmt"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// ProbeTool returns the tool that probes the server, or nil if none is configured. If the configured
// one may not be used, why says so: only a tool that is readonly on trusted authority may be called
// for a probe. find finds a tool of the catalog.
func ProbeTool(server *switchboard.Server, find func(switchboard.ToolID) (*switchboard.Tool, bool)) (tool *switchboard.Tool, why string) {
	if server.Probe.Tool == "" {
		return nil, ""
	}
	tool, ok := find(switchboard.ToolID{Server: server.ID, Name: server.Probe.Tool})
	switch {
	case !ok:
		return nil, fmt.Sprintf("health: it has no tool %q", server.Probe.Tool)
	case !tool.Contract.OnlyReads():
		return nil, fmt.Sprintf("health: a probe calls only a tool that changes nothing; declare in an overlay that %q is readonly", server.Probe.Tool)
	}
	return tool, ""
}
