package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ARCHITECTURE and CONTRIBUTING name code in backticks: `package.Name`, or a path. A name that code has lost leads readers astray.
func TestWhatTheDocumentsNameExists(t *testing.T) {
	declared := readDeclared(t)
	quoted := regexp.MustCompile("`([^`\n]+)`")
	name := regexp.MustCompile(`^([a-z][a-z0-9]*)\.([A-Z]\w*)$`)
	path := regexp.MustCompile(`^(?:internal|test|cmd|scripts|deploy|policies|docs)/[\w./-]+$`)
	checked := 0
	for _, page := range []string{"docs/ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
			if n := name.FindStringSubmatch(m[1]); n != nil && declared[n[1]] != nil {
				checked++
				if !declared[n[1]][n[2]] {
					t.Errorf("%s names %s, and package %s declares no %s", page, m[1], n[1], n[2])
				}
			}
			if path.MatchString(m[1]) && !strings.Contains(m[1], "NAME") {
				checked++
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("%s names %s, which is not there", page, m[1])
				}
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d names were checked", checked)
	}
}

// readDeclared returns the names that each package declares, methods included, by the package's name.
func readDeclared(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, top := range []string{"internal", "test"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(file string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			names := all[parsed.Name.Name]
			if names == nil {
				names = map[string]bool{}
				all[parsed.Name.Name] = names
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					names[n.Name.Name] = true
					return false
				case *ast.TypeSpec:
					names[n.Name.Name] = true
				case *ast.ValueSpec:
					for _, id := range n.Names {
						names[id.Name] = true
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
