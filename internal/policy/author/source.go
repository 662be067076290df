// Package author serves the people who write policies: it checks rules for likely mistakes, runs
// their tests, tries a layer on made-up tools, evaluates an input that a person wrote, and explains
// which rules deny a candidate.
//
// It decides what is worth a warning and how a result is shown. How rules are compiled and
// evaluated, and what their answers mean, is decided by package policy.
package author

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Sources are the files of one layer in the form of its author: with the tests.
type Sources struct {
	Kind    policy.LayerKind
	Tenant  switchboard.TenantID // of a tenant's layer
	Name    string               // the folder, for people
	Files   []switchboard.PolicyFile
	Shipped bool // they are part of Switchboard
}

// parseModules parses all rules, tests and data. The error is Faults.
func (s *Sources) parseModules() (map[string]*ast.Module, storage.Store, error) {
	var faults switchboard.Faults
	modules := map[string]*ast.Module{}
	data := map[string]any{}
	for _, f := range s.Files {
		if path.Ext(f.Path) != ".rego" {
			faults = append(faults, policy.AddDataFile(s.Kind, data, f)...)
			continue
		}
		parse := policy.Parse
		if policy.IsTest(f.Path) {
			parse = parseTest
		}
		m, err := parse(s.Kind, f)
		if err != nil {
			faults = append(faults, policy.FaultsOf(f.Name, err)...)
			continue
		}
		modules[f.Name] = m
	}
	if len(faults) > 0 {
		return nil, nil, faults
	}
	return modules, inmem.NewFromObject(data), nil
}

// parseTest parses a file of tests, which may have any package.
func parseTest(_ policy.LayerKind, f switchboard.PolicyFile) (*ast.Module, error) {
	return ast.ParseModuleWithOpts(f.Name, string(f.Data), ast.ParserOptions{Capabilities: policy.Capabilities(), RegoVersion: ast.RegoV1})
}

// CompileTests compiles the rules together with their tests. The error is Faults.
func (s *Sources) CompileTests() error {
	modules, _, err := s.parseModules()
	if err != nil {
		return err
	}
	c := policy.NewCompiler().WithEnablePrintStatements(true)
	if c.Compile(modules); c.Failed() {
		return policy.FaultsOf(s.Name, c.Errors)
	}
	return nil
}

// A SourceLine is a line of a file.
type SourceLine struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// String returns file:line.
func (p SourceLine) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

func lineOf(l *ast.Location) SourceLine { return SourceLine{l.File, l.Row} }

func compareLines(a, b SourceLine) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
}

// ruleFiles returns the files of rules, without tests.
func (s *Sources) ruleFiles() []switchboard.PolicyFile {
	return slices.DeleteFunc(slices.Clone(s.Files), func(f switchboard.PolicyFile) bool {
		return policy.IsTest(f.Path) || path.Ext(f.Path) != ".rego"
	})
}
