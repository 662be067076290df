package served_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// RX-09: a tenant whose pattern takes minutes on a client's text is refused at once, and takes nothing from another tenant, whose layer
// has a pattern too. An honest slow pattern does no more than that.
func TestAttack1APatternThatTakesMinutesStopsNeitherItsTenantNorAnother(t *testing.T) {
	t.Parallel()
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", "marks="+filepath.Join(t.TempDir(), "marks"), fmt.Sprintf(rig.Tool, "one"))+"\nTENANTS\n", "",
		map[string]rig.TenantConfig{
			"acme": {Rego: `
allowed_tools contains c.id if { some c in input.candidate_tools; input.phase != "call" }
allowed_tools contains c.id if { some c in input.candidate_tools; input.phase == "call"
	count(regex.find_n("(a?){500}(a?){499}b", input.call.arguments.x, -1)) == 0 }
`},
			"other": {Rego: rig.AllowAll + `deny[c.id] contains "x" if { some c in input.candidate_tools; regex.match("^[0-9]+$", input.call.arguments.x) }
`},
		})
	long := fmt.Sprintf(`{"x":%q}`, strings.Repeat("a", 1_000_000))
	var crowd sync.WaitGroup
	for i := range 140 {
		s := h.OpenAs("acme", i%2 == 0)
		crowd.Go(func() {
			body, extra := s.Request("tools/call", `{"name":"one","arguments":`+long+`}`)
			m, _, err := s.Exchange(body, extra)
			if code := rig.Code(m); err != nil || code != "SB-POL-002" && code != "SB-ROUT-003" { // on a busy machine they are more than one caller's share of the memory
				t.Errorf("%v: %.200s", err, m.Raw)
			}
		})
	}
	for name, s := range h.Clients(t, "other") {
		for range 10 {
			if got := rig.Call(t, s, "one", `{"x":"abc"}`); got != "" {
				t.Errorf("%s, another tenant: %s", name, got)
			}
		}
		if got := rig.Call(t, s, "one", `{"x":"12"}`); got != "SB-POL-001" {
			t.Errorf("%s: its own rule: %q", name, got)
		}
	}
	crowd.Wait()
	for name, s := range h.Clients(t, "acme") {
		if got := rig.Call(t, s, "one", `{"x":"xyz"}`); got != "" {
			t.Errorf("%s, the tenant itself: %s", name, got)
		}
	}
	// It was refused before it began, rather than cut off.
	switch log := h.Logged(); {
	case !strings.Contains(log, "regex.find_n was not started"):
		t.Errorf("the log says\n%.2000s", log)
	case strings.Contains(log, "longer than it may"):
		wait.Late(t, "an evaluation had no processor\n%.2000s", log)
	}
}
