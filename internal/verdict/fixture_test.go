package verdict_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	"github.com/goccy/go-yaml"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A fixture is a registry and the states of its atoms.
type fixture struct {
	versions []*capability.ContractVersion
	atoms    map[string]*capability.Atom
	rows     []capability.Boundary
	states   map[string]capability.State
}

func (f *fixture) registry(t testing.TB) *capability.Registry {
	t.Helper()
	r, err := capability.New(f.versions, f.atoms, f.rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// readFixture reads testdata/registry.yaml: the keys of capabilities/ as far as verdicts read them. "probe" says whether an
// atom has a probe, and "state" what it has found.
func readFixture(t testing.TB) *fixture {
	t.Helper()
	text, err := os.ReadFile("testdata/registry.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Capabilities []struct {
			ID, Version string
			Status      capability.Status
			SideEffects []string              `yaml:"side_effects"`
			RiskLevel   string                `yaml:"risk_level"`
			CostClass   switchboard.CostClass `yaml:"cost_class"`
			Approval    any                   `yaml:"approval_required"`
			Requires    struct{ Resources, Capabilities []string }
		}
		Atoms map[string]struct {
			Kind  string
			Probe bool
			State capability.State
		}
		Boundaries []any
	}
	if err := yaml.UnmarshalWithOptions(text, &doc, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	f := &fixture{atoms: map[string]*capability.Atom{}, states: map[string]capability.State{}}
	for _, c := range doc.Capabilities {
		v := newVersion(t, c.ID+"@"+max(c.Version, "1.0.0"), c.Requires.Resources, c.Requires.Capabilities)
		if c.Version != "" {
			v.Number, v.Status = semver.MustParse(c.Version), c.Status
		}
		v.Facts.SideEffects, v.Facts.RiskLevel, v.Facts.CostClass = c.SideEffects, c.RiskLevel, c.CostClass
		v.Facts.ApprovalAsked = c.Approval != nil
		if who, ok := c.Approval.([]any); ok {
			for _, w := range who {
				v.Facts.Approval = append(v.Facts.Approval, w.(string))
			}
		}
		f.versions = append(f.versions, v)
	}
	for id, a := range doc.Atoms {
		f.atoms[id], f.states[id] = &capability.Atom{ID: id, Kind: a.Kind}, a.State
		if a.Probe {
			f.atoms[id].Probe.Env = "X"
		}
	}
	rows, err := json.Marshal(doc.Boundaries)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(rows, &f.rows); err != nil {
		t.Fatal(err)
	}
	for i := range f.rows {
		f.rows[i].File, f.rows[i].Line = "capabilities/boundaries.yaml", i+1
	}
	return f
}

// newVersion returns an active version of ID@NUMBER.
func newVersion(t testing.TB, name string, atoms, capabilities []string) *capability.ContractVersion {
	t.Helper()
	id, number, _ := strings.Cut(name, "@")
	v := &capability.ContractVersion{ID: id, Number: semver.MustParse(number), Status: capability.Active, Atoms: atoms, Digest: "d"}
	for _, c := range capabilities {
		ref, err := capability.ParseRef(c)
		if err != nil {
			t.Fatal(err)
		}
		v.Capabilities = append(v.Capabilities, ref)
	}
	return v
}

// row returns the boundary with the id, to be changed.
func (f *fixture) row(id string) *capability.Boundary {
	return &f.rows[slices.IndexFunc(f.rows, func(b capability.Boundary) bool { return b.ID == id })]
}
