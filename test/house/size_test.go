package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	mostMethods = 25 // of one type
	mostFields  = 15 // of one struct
	mostShared  = 45 // type names that two or more packages declare
)

// larger are the types that may have more, each with the reason: they are data, and no code hides behind them.
var larger = map[string]string{
	"cmd/switchboard.cli":            "a field for each subcommand",
	"internal/config.Config":         "the content of the files, one field for each key",
	"internal/receipt.Receipt":       "the members of a receipt's JSON",
	"internal/surface.Input":         "the arguments of New, by name",
	"internal/switchboard.Call":      "one call with all that its wrappers read",
	"internal/switchboard.Server":    "a row of the configuration",
	"internal/switchboard.Tenant":    "a row of the configuration; the order of its fields is part of its digest",
	"internal/telemetry.View":        "a field for each metric",
	"internal/upstream.Options":      "the settings and callbacks of a Fleet, by name",
	"internal/upstream.ServerStatus": "the members of the JSON that status prints",
}

// A size is what one type has.
type size struct{ methods, fields int }

func TestNoTypeIsLargerThanAReaderCanHoldInMind(t *testing.T) {
	sizes, _ := readTypes(t)
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		s := sizes[name]
		over := s.methods > mostMethods || s.fields > mostFields
		switch {
		case over && larger[name] == "":
			t.Errorf("%s has %d methods and %d fields; the limits are %d and %d: split it by owner of state", name, s.methods, s.fields, mostMethods, mostFields)
		case !over && larger[name] != "":
			t.Errorf("%s is within the limits: take it out of larger", name)
		}
	}
	for name := range larger {
		if _, ok := sizes[name]; !ok {
			t.Errorf("there is no type %s: take it out of larger", name)
		}
	}
}

func TestFewTypeNamesMeanSeveralThings(t *testing.T) {
	_, packages := readTypes(t)
	var shared []string
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if len(packages[name]) > 1 {
			shared = append(shared, name+" ("+strings.Join(packages[name], ", ")+")")
		}
	}
	t.Logf("%d of %d type names are in several packages", len(shared), len(packages))
	if len(shared) > mostShared {
		t.Errorf("%d type names are in several packages; the limit is %d:\n%s", len(shared), mostShared, strings.Join(shared, "\n"))
	}
}

// readTypes returns the size of each type of the program by "folder.name", and the folders that declare each name.
func readTypes(t *testing.T) (sizes map[string]size, folders map[string][]string) {
	t.Helper()
	sizes, folders = map[string]size{}, map[string][]string{}
	for _, top := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			folder := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(name), root+"/"))
			for _, decl := range file.Decls {
				switch decl := decl.(type) {
				case *ast.FuncDecl:
					if decl.Recv != nil {
						key := folder + "." + receiver(decl.Recv.List[0].Type)
						s := sizes[key]
						s.methods++
						sizes[key] = s
					}
				case *ast.GenDecl:
					for _, spec := range decl.Specs {
						spec, ok := spec.(*ast.TypeSpec)
						if !ok {
							continue
						}
						key := folder + "." + spec.Name.Name
						s := sizes[key]
						s.fields = countFields(spec.Type)
						sizes[key] = s
						if !slices.Contains(folders[spec.Name.Name], folder) { // a file of each system may declare it
							folders[spec.Name.Name] = append(folders[spec.Name.Name], folder)
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(sizes) < 300 {
		t.Errorf("only %d types were found: the search misses files", len(sizes))
	}
	return sizes, folders
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func countFields(e ast.Expr) int {
	s, ok := e.(*ast.StructType)
	if !ok {
		return 0
	}
	n := 0
	for _, f := range s.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}
