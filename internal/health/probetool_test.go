package health_test

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestOnlyAToolThatIsReadonlyOnTrustedAuthorityProbesAServer(t *testing.T) {
	trusted := switchboard.Fact{Holds: true, Source: switchboard.FromOverlay, Trusted: true}
	for name, tt := range map[string]struct {
		tool     string
		contract switchboard.Contract
		probes   bool
		why      bool
	}{
		"readonly, says the operator":    {"ping", switchboard.Contract{ReadOnly: trusted}, true, false},
		"readonly, says only the server": {"ping", switchboard.Contract{ReadOnly: switchboard.Fact{Holds: true}}, false, true},
		"readonly and stateful":          {"ping", switchboard.Contract{ReadOnly: trusted, Stateful: trusted}, false, true},
		"a tool that is not there":       {"other", switchboard.Contract{ReadOnly: trusted}, false, true},
		"none is configured":             {"", switchboard.Contract{}, false, false},
	} {
		id := switchboard.ToolID{Server: "a", Name: "ping"}
		server := &switchboard.Server{ID: "a"}
		server.Probe.Tool = tt.tool
		tool, why := health.ProbeTool(server, func(asked switchboard.ToolID) (*switchboard.Tool, bool) {
			return &switchboard.Tool{ID: id, Contract: tt.contract}, asked == id
		})
		if (tool != nil) != tt.probes || (why != "") != tt.why {
			t.Errorf("%s: %v, %q", name, tool, why)
		}
	}
}
