package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The table of docs/flows.md.
func TestFlowsFollowFromVerbResourceAndOpenWorldHint(t *testing.T) {
	const (
		none    = switchboard.FlowBits(0)
		brings  = switchboard.Brings
		sees    = switchboard.Sees
		carries = switchboard.Carries
	)
	type rows = map[string]switchboard.FlowBits // by "verb resource"
	for hint, want := range map[string]rows{
		"": {
			"search internet": brings | carries, "read internet": brings | carries, "write internet": carries, "notify internet": carries, "execute internet": brings | carries,
			"read fs": sees, "search fs": sees, "write fs": none, "reason knowledge_graph": sees, "execute fs": brings | sees | carries, "notify fs": carries,
			"read codebase": brings | sees, "write codebase": carries, "read slack": brings | sees, "write slack": carries, "notify slack": carries,
			"read aws": brings | sees, "execute aws": brings | sees | carries,
			"read tickets": brings | sees, "write tickets": carries, "read wiki": brings | carries, "read notes": sees, "write notes": none,
		},
		"true":  {"read fs": brings | sees, "write fs": carries, "read codebase": brings | sees, "execute fs": brings | sees | carries},
		"false": {"read codebase": sees, "write codebase": none, "notify slack": carries, "execute fs": sees, "read internet": brings | carries, "read tickets": sees},
	} {
		for row, bits := range want {
			tool := flowWorld{label: row, hint: hint, trust: switchboard.TrustOperator}.tool(t)
			if f := tool.Contract.Flow; f != (switchboard.Flow{Bits: bits}) {
				t.Errorf("%s with openWorldHint %q: %v, want %v", row, hint, f.Bits, bits)
			}
		}
	}
}

// A statement that makes a tool more free counts only by a trusted word.
func TestAServerCannotTalkItselfOutOfAFlow(t *testing.T) {
	for _, tt := range []struct {
		label, hint string
		trust       switchboard.Trust
		want        switchboard.FlowBits
	}{
		{"", "", switchboard.TrustDeclared, switchboard.AllFlows},
		{"", "false", switchboard.TrustDeclared, switchboard.AllFlows},
		{"", "false", switchboard.TrustOperator, switchboard.Sees},
		{"", "true", switchboard.TrustOperator, switchboard.AllFlows},
		{"write codebase", "false", switchboard.TrustDeclared, switchboard.Carries},
		{"write fs", "true", switchboard.TrustDeclared, switchboard.Carries},
	} {
		if f := (flowWorld{label: tt.label, hint: tt.hint, trust: tt.trust}).tool(t).Contract.Flow; f.Bits != tt.want {
			t.Errorf("%q with openWorldHint %q, trust %s: %v, want %v", tt.label, tt.hint, tt.trust, f.Bits, tt.want)
		}
	}
}

func TestAnOverlayStatesTheFlowAndATenantOnlyAddsToIt(t *testing.T) {
	stated := func(b switchboard.FlowBits, s switchboard.Source) switchboard.Flow {
		return switchboard.Flow{Bits: b, Source: s}
	}
	op, own := switchboard.FromOverlay, switchboard.FromTenantOverlay
	for _, tt := range []struct{ operator, tenant, want switchboard.Flow }{
		{stated(0, op), switchboard.Flow{}, stated(0, op)},
		{stated(switchboard.Sees, op), switchboard.Flow{}, stated(switchboard.Sees, op)},
		{stated(0, op), stated(switchboard.Brings, own), stated(switchboard.Brings, own)},
		{stated(switchboard.Carries, op), stated(switchboard.Carries, own), stated(switchboard.Carries, op)},
		{switchboard.Flow{}, stated(switchboard.Carries, own), stated(switchboard.Sees|switchboard.Carries, own)},
	} {
		if f := (flowWorld{label: "read fs", operator: tt.operator, tenant: tt.tenant}).tool(t).Contract.Flow; f != tt.want {
			t.Errorf("the operator says %v, the tenant %v: %v, want %v", tt.operator, tt.tenant, f, tt.want)
		}
	}
}

func TestFlowsAreInTheDigest(t *testing.T) {
	seen := map[switchboard.Digest]switchboard.FlowBits{}
	for b := switchboard.FlowBits(0); b <= switchboard.AllFlows; b++ {
		d := flowWorld{label: "read fs", operator: switchboard.Flow{Bits: b, Source: switchboard.FromOverlay}}.view(t).Digest()
		if was, ok := seen[d]; ok {
			t.Errorf("%v and %v have one digest", was, b)
		}
		seen[d] = b
	}
}

// A flowWorld is a server with one tool, s/t.
type flowWorld struct {
	label, hint      string // "verb resource", and openWorldHint
	trust            switchboard.Trust
	operator, tenant switchboard.Flow // what the overlays state
}

func (w flowWorld) view(t *testing.T) *catalog.View {
	t.Helper()
	tax, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"tickets": "", "wiki": "internet", "notes": "fs"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var members string
	if verb, resource, ok := strings.Cut(w.label, " "); ok {
		members = fmt.Sprintf(`,"x-summit-capabilities":[{"verb":%q,"resource":%q}]`, verb, resource)
	}
	if w.hint != "" {
		members += annotated(`"openWorldHint":` + w.hint)
	}
	id := switchboard.ToolID{Server: "s", Name: "t"}
	overlays := map[switchboard.ToolID]switchboard.Overlay{id: {Contract: switchboard.Contract{Flow: w.operator}}}
	tenant := &switchboard.Tenant{Servers: []switchboard.ServerID{"s"}}
	if w.tenant.Source != "" {
		tenant.Overlays = map[switchboard.ToolID]switchboard.Overlay{id: {Contract: switchboard.Contract{Flow: w.tenant}}}
	}
	return catalog.Build(world{tool: members, trust: w.trust}.sources(), overlays, tax).For(tenant)
}

func (w flowWorld) tool(t *testing.T) *switchboard.Tool {
	t.Helper()
	tool, ok := w.view(t).Tool(switchboard.ToolID{Server: "s", Name: "t"})
	if !ok {
		t.Fatal("there is no tool")
	}
	return tool
}
