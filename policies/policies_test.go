package policies_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/tester"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/policies"
)

// files returns the shipped files by name.
func files(t *testing.T) map[string]string {
	t.Helper()
	names, err := fs.Glob(policies.Shipped, "*.rego")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	out := map[string]string{}
	for _, name := range names {
		text, err := policies.Shipped.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	return out
}

func TestShippedPoliciesPassTheirTestsWithFullCoverage(t *testing.T) {
	modules := map[string]*ast.Module{}
	for name, text := range files(t) {
		m, err := ast.ParseModule(name, text)
		if err != nil {
			t.Fatal(err)
		}
		modules[name] = m
	}
	covered := cover.New()
	results, err := tester.NewRunner().SetCoverageQueryTracer(covered).SetCoverageRuns(nil).
		RaiseBuiltinErrors(true).SetCompiler(ast.NewCompiler().WithStrict(true)).SetModules(modules).RunTests(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := 0
	for r := range results {
		tests++
		if !r.Pass() {
			t.Errorf("%s %v", r, r.Error)
		}
	}
	report := covered.Report(modules)
	for name, f := range report.Files {
		for _, r := range f.NotCovered {
			t.Errorf("%s:%d: no test reaches this", name, r.Start.Row)
		}
	}
	t.Logf("%d tests, %.1f %% covered", tests, report.Coverage)
}

func TestEveryShippedFileHasItsTestsBesideIt(t *testing.T) {
	all := files(t)
	for name := range all {
		if base, ok := strings.CutSuffix(name, ".rego"); ok && !strings.HasSuffix(base, "_test") && all[base+"_test.rego"] == "" {
			t.Errorf("%s has no %s_test.rego", name, base)
		}
	}
}

func TestShippedPoliciesAreFormatted(t *testing.T) {
	for name, text := range files(t) {
		want, err := format.Source(name, []byte(text))
		if err != nil || string(want) != text {
			t.Errorf("%s: %v; formatted it is:\n%s", name, err, want)
		}
	}
}

// A call is judged again if a rule reads it. If no such rule can fire, the decision that selected the tool
// stays valid.
func TestOnlyTheSettingsOfATenantCostTimePerCall(t *testing.T) {
	var list []switchboard.PolicyFile
	for name, text := range files(t) {
		if policies.IsBoundaries(name) {
			continue
		}
		list = append(list, switchboard.PolicyFile{Name: name, Path: name, Data: []byte(text)})
	}
	shipped, err := policy.Compile(policy.Operator, list)
	if err != nil {
		t.Fatal(err)
	}
	engine := policy.NewEngine(0, 0)
	for word, want := range map[string]string{
		`{}`: "nothing",
		`{"allow": ["a/*"], "deny": ["a/b"], "tiers": {}, "trust": [], "approval": {}}`: "nothing",
		`{"egress": []}`:         "the call",
		`{"business_hours": {}}`: "the call and the clock",
	} {
		p, err := engine.NewPolicy(&switchboard.Tenant{ID: "acme", Policy: []byte(word)}, shipped, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := "nothing"
		switch {
		case p.ReadsClock():
			got = "the call and the clock"
		case !p.Lasting():
			got = "the call"
		}
		if got != want {
			t.Errorf("with %s the policy reads %s, want %s", word, got, want)
		}
	}
}
