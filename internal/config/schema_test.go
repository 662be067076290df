package config_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/document"
)

// docs are generated from the rows: the reference page and a JSON Schema for each kind of file.
const docs = "../../docs/"

const referenceHead = `# Reference of the configuration

One table for each map, with all its keys. Editors show the same from the schemas in [schema](schema): for example with
the first line ` + "`# yaml-language-server: $schema=…/docs/schema/switchboard.json`" + `. [Configuration](configuration.md) explains
the keys with examples. The tables are generated: ` + "`go test ./internal/config -run TestTheReference -update`" + ` writes them.
`

func TestTheReferenceAndTheSchemasAreThoseOfTheRows(t *testing.T) {
	reference := referenceHead
	for _, k := range config.FileKinds() {
		schema, err := k.Schema()
		if err != nil {
			t.Fatal(err)
		}
		compareGenerated(t, docs+"schema/"+k.Name+".json", string(schema))
		reference += k.Reference()
	}
	compareGenerated(t, docs+"reference.md", reference)
}

// compareGenerated compares a generated file with the one in the repository, or writes it there with -update.
func compareGenerated(t *testing.T, file, want string) {
	t.Helper()
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not what the rows say (%v); run this test with -update", file, err)
	}
}

// kindOf returns the kind of a file of a configuration, or "".
func kindOf(name string) string {
	switch name {
	case "capabilities/atoms.yaml", "capabilities/boundaries.yaml", "capabilities/parties.yaml":
		return strings.TrimSuffix(path.Base(name), ".yaml")
	}
	for pattern, kind := range map[string]string{
		"switchboard.yaml": "switchboard", "taxonomy.yaml": "taxonomy", "capabilities/*.yaml": "capability", "overlays/*.yaml": "overlay", "tenants/*/overlays/*.yaml": "overlay",
		"tenants/*/tenant.yaml": "tenant", "tenants/*/tasks/*.yaml": "task",
	} {
		if ok, _ := path.Match(pattern, name); ok {
			return kind
		}
	}
	return ""
}

// compileSchemas returns the schema of each kind of file.
func compileSchemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	out := map[string]*jsonschema.Schema{}
	for _, k := range config.FileKinds() {
		text, err := k.Schema()
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(k.Name, parsed); err != nil {
			t.Fatal(err)
		}
		if out[k.Name], err = c.Compile(k.Name); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// validate returns what is wrong with a file by the schema of its kind.
func validate(t *testing.T, schemas map[string]*jsonschema.Schema, kind, name string, data []byte) error {
	t.Helper()
	sink := &document.Sink{}
	v, ok := document.ReadYAML(name, data, sink)
	if !ok {
		return sink.Err(name)
	}
	return schemas[kind].Validate(plainValue(v.Node))
}

// plainValue returns the value of a node as encoding/json would decode it.
func plainValue(n document.Node) any {
	switch n.Kind {
	case document.KindMap:
		out := map[string]any{}
		for _, p := range n.Pairs {
			out[p.Key.Text] = plainValue(p.Value)
		}
		return out
	case document.KindList:
		out := []any{}
		for _, item := range n.Items {
			out = append(out, plainValue(item))
		}
		return out
	case document.KindBool:
		return n.Text == "true"
	case document.KindInt, document.KindFloat:
		return json.Number(n.Text)
	case document.KindText:
		return n.Text
	}
	return nil
}

func TestTheExamplesOfTheRepositoryMatchTheirSchemas(t *testing.T) {
	schemas := compileSchemas(t)
	seen := map[string]int{}
	check := func(where, name string, data []byte) {
		kind := kindOf(name)
		if kind == "" {
			return
		}
		seen[kind]++
		if err := validate(t, schemas, kind, name, data); err != nil {
			t.Errorf("%s %s: %v", where, name, err)
		}
	}
	page, err := os.ReadFile(docs + "configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range regexp.MustCompile("(?ms)^```yaml (.*?)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		check("configuration.md", b[1], []byte(b[2]))
	}
	for _, root := range []string{"../../deploy", "../../test/npm/testdata/real", "../.."} {
		for _, folder := range []string{"", "overlays", "capabilities", "tenants"} {
			_ = fs.WalkDir(os.DirFS(root), path.Clean(folder), func(name string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					if err == nil && folder == "" && name != "." {
						return fs.SkipDir
					}
					return nil //nolint:nilerr // not every root has every folder
				}
				data, err := fs.ReadFile(os.DirFS(root), name)
				check(root, name, data)
				return err
			})
		}
	}
	// Archives whose configuration loads without a fault.
	files, err := filepath.Glob("testdata/load/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == "want" })
		if !strings.Contains(string(ar.Files[want].Data), "listen ") {
			continue
		}
		for _, f := range ar.Files {
			check(file, f.Name, f.Data)
		}
	}
	for kind, least := range map[string]int{"switchboard": 5, "taxonomy": 2, "overlay": 8, "capability": 4, "atoms": 1, "boundaries": 1, "parties": 1, "tenant": 4, "task": 6} {
		if seen[kind] < least {
			t.Errorf("only %d files of the kind %s were checked, want %d or more", seen[kind], kind, least)
		}
	}
}

func TestTheSchemasRefuseMistypedKeysAtEveryDepth(t *testing.T) {
	schemas := compileSchemas(t)
	for text, kind := range map[string]string{
		"servers: {a: {tranport: stdio, command: [a]}}":                                                    "switchboard",
		"servers: {a: {transport: stdio, command: [a], health: {evry: 10s}}}":                              "switchboard",
		"servers: {a: {transport: stdio, command: [a], timeout: 30}}":                                      "switchboard",
		"servers: {a: {transport: stdio, command: [a]}}\ntenants: {t: {allow: [by_name]}}":                 "switchboard",
		"tenant: t\nlimits: [{match: {constraint: x}, rate: 60/min, brust: 1}]":                            "tenant",
		"task_id: t\nrequired_capabilities: [{verb: serch, resource: internet}]":                           "task",
		"server: a\ntools: {x: {statful: true}}":                                                           "overlay",
		"id: a\nversion: 1.0.0\nstatus: active\nverb: read\nresource: fs\nrequired_tools: {a: {descr: b}}": "capability",
		"a.b: {kind: key, probe: {evn: X}}":                                                                "atoms",
		"- {id: a, severity: hard, id_match: x, decision: deny}":                                           "boundaries",
	} {
		if err := validate(t, schemas, kind, "x.yaml", []byte(text)); err == nil {
			t.Errorf("the schema accepts\n%s", text)
		}
	}
}
