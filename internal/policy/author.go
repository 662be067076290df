package policy

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Sources are the files of one layer in the form of its author: with the tests.
type Sources struct {
	Kind    Kind
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
			faults = append(faults, addDataFile(s.Kind, data, f)...)
			continue
		}
		parse := Parse
		if IsTest(f.Path) {
			parse = parseTest
		}
		m, err := parse(s.Kind, f)
		if err != nil {
			faults = append(faults, faultsOf(f.Name, err)...)
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
func parseTest(_ Kind, f switchboard.PolicyFile) (*ast.Module, error) {
	return ast.ParseModuleWithOpts(f.Name, string(f.Data), ast.ParserOptions{Capabilities: Capabilities(), RegoVersion: ast.RegoV1})
}

// CompileTests compiles the rules together with their tests. The error is Faults.
func (s *Sources) CompileTests() error {
	modules, _, err := s.parseModules()
	if err != nil {
		return err
	}
	c := compiler().WithEnablePrintStatements(true)
	if c.Compile(modules); c.Failed() {
		return faultsOf(s.Name, c.Errors)
	}
	return nil
}

// compiler returns a compiler with the settings of Compile.
func compiler() *ast.Compiler {
	return ast.NewCompiler().WithCapabilities(Capabilities()).WithSchemas(Schemas()).
		WithStageAfterID(ast.StageCheckRecursion, ast.CompilerStageDefinition{Name: "RefuseGrowth", MetricName: "compile_stage_refuse_growth", Stage: refuseGrowth})
}

// A Place is a line of a file.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// String returns file:line.
func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

func placeOf(l *ast.Location) Place { return Place{l.File, l.Row} }

func comparePlaces(a, b Place) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
}

// ruleFiles returns the files of rules, without tests.
func (s *Sources) ruleFiles() []switchboard.PolicyFile {
	return slices.DeleteFunc(slices.Clone(s.Files), func(f switchboard.PolicyFile) bool {
		return IsTest(f.Path) || path.Ext(f.Path) != ".rego"
	})
}
