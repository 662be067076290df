package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

// A listed package is what go list says of it. With -test, a package that has tests is there twice: alone and with the files of its tests.
type listed struct {
	ImportPath, Name, Dir, ForTest string

	GoFiles, SFiles, IgnoredGoFiles []string

	Imports   []string
	ImportMap map[string]string // the path of an import in the source, to the path of the package
	Module    *packages.Module
	Error     *struct{ Err string }
}

// isOurs reports whether the package is of this repository.
func (p *listed) isOurs() bool { return p.Module != nil && p.Module.Main }

// list returns the packages of the repository with their tests, and all that they import, in such an order that imports come first. faults are errors that
// the go command finds in packages of the repository.
func list(ctx context.Context, root, system, arch string, patterns []string) (all []*listed, faults []string, err error) {
	args := append([]string{
		"list", "-e", "-deps", "-test", "-tags=agents",
		"-json=ImportPath,Name,Dir,ForTest,GoFiles,SFiles,IgnoredGoFiles,Imports,ImportMap,Module,Error",
	}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list for %s: %w: %s", system, err, stderr.Bytes())
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &listed{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all, faults, nil
		} else if err != nil {
			return nil, nil, fmt.Errorf("the output of go list: %w", err)
		}
		switch {
		case p.Error == nil:
		case p.isOurs() && strings.Contains(p.Error.Err, "build constraints exclude all Go files"):
			continue // it is for another system
		case p.isOurs():
			faults = append(faults, p.Error.Err)
		default:
			return nil, nil, fmt.Errorf("go list for %s: %s: %s", system, p.ImportPath, p.Error.Err)
		}
		if !strings.HasSuffix(p.ImportPath, ".test") { // the main package of tests is generated
			all = append(all, p)
		}
	}
}

// load type-checks the packages from their sources. What others have written is checked without
// the bodies of its functions, and nothing is compiled. load returns the packages of the repository.
func load(all []*listed, arch string) []*packages.Package {
	fset := token.NewFileSet()
	sizes := types.SizesFor("gc", arch)
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	loaded := map[string]*packages.Package{}
	tested := withTests(all)
	var ours []*packages.Package
	for _, p := range all {
		if p.ImportPath == "unsafe" {
			continue
		}
		whole := p.isOurs() && !tested[p.ImportPath] // with the bodies of functions
		path, _, _ := strings.Cut(p.ImportPath, " ") // "a [a.test]" has the path a
		out := &packages.Package{ID: p.ImportPath, Name: p.Name, PkgPath: path, Fset: fset, TypesSizes: sizes, Module: p.Module, Imports: map[string]*packages.Package{}}
		files, errs := parseFiles(fset, p, whole)
		for _, err := range errs {
			out.Errors = append(out.Errors, packages.Error{Msg: err.Error()}) // with the place
		}
		c := types.Config{
			Sizes: sizes, IgnoreFuncBodies: !whole,
			Importer: importer(func(name string) (*types.Package, error) {
				if to, ok := p.ImportMap[name]; ok {
					name = to
				}
				if pkg := checked[name]; pkg != nil {
					return pkg, nil
				}
				return nil, fmt.Errorf("%s is not among the packages that go list names", name)
			}),
			Error: func(err error) {
				if e, ok := errors.AsType[types.Error](err); ok && whole {
					out.Errors = append(out.Errors, packages.Error{Pos: fset.Position(e.Pos).String(), Msg: e.Msg})
				}
			},
		}
		if p.Module != nil && p.Module.GoVersion != "" {
			c.GoVersion = "go" + p.Module.GoVersion
		}
		var info *types.Info
		if whole {
			info = &types.Info{
				Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Implicits: map[ast.Node]types.Object{},
				Instances: map[*ast.Ident]types.Instance{}, Scopes: map[ast.Node]*types.Scope{}, Selections: map[*ast.SelectorExpr]*types.Selection{}, FileVersions: map[*ast.File]string{},
			}
		}
		checked[p.ImportPath], _ = c.Check(path, fset, files, info) // Error has the errors
		if !whole {
			continue
		}
		out.Types, out.TypesInfo, out.Syntax, out.IllTyped = checked[p.ImportPath], info, files, len(out.Errors) > 0
		out.GoFiles, out.OtherFiles, out.IgnoredFiles = inFolder(p.Dir, p.GoFiles), inFolder(p.Dir, p.SFiles), inFolder(p.Dir, p.IgnoredGoFiles)
		for _, name := range p.Imports {
			if imported := loaded[name]; imported != nil {
				out.Imports[name] = imported
			}
		}
		loaded[p.ImportPath] = out
		ours = append(ours, out)
	}
	return ours
}

// withTests returns the paths of packages that are also there with the files of their tests, where their functions are checked.
func withTests(all []*listed) map[string]bool {
	tested := map[string]bool{}
	for _, p := range all {
		if path, _, _ := strings.Cut(p.ImportPath, " "); p.ForTest == path {
			tested[path] = true
		}
	}
	return tested
}

// An importer is a types.Importer.
type importer func(path string) (*types.Package, error)

// Import implements types.Importer.
func (i importer) Import(path string) (*types.Package, error) { return i(path) }

// parseFiles parses the files of a package, several at once.
func parseFiles(fset *token.FileSet, p *listed, whole bool) (files []*ast.File, errs []error) {
	mode := parser.SkipObjectResolution
	if whole {
		mode |= parser.ParseComments
	}
	files = make([]*ast.File, len(p.GoFiles))
	each := make([]error, len(p.GoFiles))
	var wg sync.WaitGroup
	for i, name := range inFolder(p.Dir, p.GoFiles) {
		wg.Go(func() { files[i], each[i] = parser.ParseFile(fset, name, nil, mode) })
	}
	wg.Wait()
	errs = slices.DeleteFunc(each, func(err error) bool { return err == nil })
	return slices.DeleteFunc(files, func(f *ast.File) bool { return f == nil }), errs
}

// inFolder returns the paths of files in a folder.
func inFolder(dir string, names []string) (paths []string) {
	for _, name := range names {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		paths = append(paths, name)
	}
	return paths
}

// sortedKeys returns the keys of a set, sorted.
func sortedKeys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
