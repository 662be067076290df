package app

import (
	"maps"
	"testing"
	"testing/fstest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestCO03NoFolderOfPoliciesLeavesBoundariesOut(t *testing.T) {
	t.Parallel()
	const allow = "allowed_tools contains c.id if some c in input.candidate_tools\n"
	registry, err := capability.New(nil, nil, []capability.Boundary{{
		ID: "hands_off", Severity: capability.Hard, SideEffectsAny: []string{"deletes"}, Decision: capability.Deny, File: "capabilities/boundaries.yaml", Line: 1,
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	layers := newCompiledLayers(nil)
	var limit time.Duration // of an evaluation; 0 means the usual one
	compile := func(files map[string]string) (*loadedConfig, error) {
		all := fstest.MapFS{
			"switchboard.yaml":         {Data: []byte("servers: {a: {transport: stdio, command: [a]}}\ntenants: {acme: {servers: [a]}}\n")},
			"tenants/acme/tenant.yaml": {Data: []byte("tenant: acme\n")},
		}
		for name, text := range files {
			all[name] = &fstest.MapFile{Data: []byte(text)}
		}
		c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: all})
		if err != nil {
			return nil, err
		}
		c.Registry = registry
		layers = newCompiledLayers(layers)
		return compilePolicies(c, policy.NewEngine(limit, 0), layers, nil)
	}
	tool := &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "wipe"}, Contract: switchboard.Contract{SideEffects: []string{"deletes"}}}
	own := map[string]string{"policies/own.rego": "package switchboard\n" + allow}
	tenants := map[string]string{"tenants/acme/policies/own.rego": "package switchboard.tenant\n" + allow}
	both := maps.Clone(own)
	maps.Copy(both, tenants)
	for name, files := range map[string]map[string]string{
		"the shipped policies": nil, "the operator's own": own, "the tenant's own": tenants, "both": both,
		"an empty folder":     {"policies/README.md": "nothing"},
		"a copy that is open": {"policies/own.rego": "package switchboard\n" + allow, "policies/boundaries.rego": "package switchboard.boundaries\n" + allow},
		"data with no rows":   {"policies/own.rego": "package switchboard\n" + allow, "policies/data.json": `{"boundaries": []}`},
	} {
		r, err := compile(files)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, phase := range []policy.Phase{policy.PhaseSelect, policy.PhaseList, policy.PhaseSearch, policy.PhaseExpand, policy.PhaseCall} {
			a := r.policies["acme"].Judge(t.Context(), &policy.CandidateQuestion{Phase: phase, Requirement: &switchboard.Requirement{}, Candidates: []*switchboard.Tool{tool}})
			if d := a.Verdicts[0].Denied; d == nil || !d.Veto {
				t.Errorf("%s, %s: the boundary does not hold: %v", name, phase, d)
			}
		}
	}
	// A policy that takes too long denies, whatever it would have said.
	limit = time.Millisecond
	late, err := compile(map[string]string{"policies/own.rego": "package switchboard\nallowed_tools contains c.id if {\n\tsome c in input.candidate_tools\n" +
		"\tcount([1 | some i in numbers.range(1, 2000); some j in numbers.range(1, 2000); i * j == 0]) == 0\n}\n"})
	if err != nil {
		t.Fatal(err)
	}
	harmless := &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "look"}}
	for _, phase := range []policy.Phase{policy.PhaseList, policy.PhaseCall} {
		a := late.policies["acme"].Judge(t.Context(), &policy.CandidateQuestion{Phase: phase, Requirement: &switchboard.Requirement{}, Candidates: []*switchboard.Tool{harmless}})
		if d := a.Verdicts[0].Denied; d == nil || d.Code != switchboard.CodePolicyFailed {
			t.Errorf("%s: a policy without time allows: %v", phase, d)
		}
	}
	limit = 0
	// A reading with policies that do not compile brings no policies at all, so the last good ones stay in force.
	if r, err := compile(map[string]string{"policies/own.rego": "package switchboard\nallowed_tools contains c.id if\n"}); err == nil {
		t.Errorf("policies that do not compile are in force: %v", r.policies)
	}
}
