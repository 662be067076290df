package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
)

// concurrentImports are packages that start goroutines for their callers.
var concurrentImports = []string{`"net/http/httptest"`, `"testing/synctest"`, `"golang.org/x/sync/errgroup"`, `"os/exec"`}

// concurrentNames are functions and methods that start goroutines: those of wait groups, of tests,
// of benchmarks and of timers.
var concurrentNames = []string{"Go", "Parallel", "RunParallel", "AfterFunc"}

// isConcurrent reports whether a Go file of the folder starts a goroutine by itself, in the package
// or in its tests. In a package that does not, the race detector finds nothing, and takes five
// times as long. What such a package calls has the race detector in tests of its own. Of a file that
// cannot be parsed, go test says why.
func isConcurrent(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*.go")) // its only error is a bad pattern
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return true
		}
		found := false
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found = true
			case *ast.SelectorExpr:
				found = found || slices.Contains(concurrentNames, n.Sel.Name)
			case *ast.ImportSpec:
				found = found || slices.Contains(concurrentImports, n.Path.Value)
			}
			return !found
		})
		if found {
			return true
		}
	}
	return false
}
