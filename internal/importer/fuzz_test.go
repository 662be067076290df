package importer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/configtest"
	"github.com/summit-switchboard/switchboard/test/realdata"
	"golang.org/x/tools/txtar"
)

// For any file of another program, Load returns a Config or Faults. The text that Import
// writes describes the same servers.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(ar.Files[0].Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := fstest.MapFS{"mcp.json": {Data: data}}
		opts := config.Options{FS: fsys, Env: configtest.ResolveAll}
		c, mapping, err := importer.Load("mcp.json", opts)
		configtest.CheckFaults(t, fsys, err)
		if (c == nil) == (err == nil) {
			t.Fatalf("Load = %v, %v; want one of them", c, err)
		}
		ids := map[switchboard.ServerID]bool{}
		for _, m := range mapping {
			if m.ID == "" {
				continue
			}
			if err := switchboard.CheckID(string(m.ID)); err != nil || ids[m.ID] {
				t.Errorf("%q became %q: %v", m.Name, m.ID, err)
			}
			ids[m.ID] = true
		}
		if c == nil {
			return
		}
		text, secrets, mapping, err := importer.Convert("mcp.json", opts)
		configtest.CheckFaults(t, fsys, err)
		if err == nil {
			sameServers(t, c, text, secrets, mapping, configtest.ResolveAll)
		}
	})
}

// A naughty string as a name or an argument gives Faults or the same text, and nothing else.
func TestNaughtyStrings(t *testing.T) {
	var naughty []string
	if err := json.Unmarshal(configtest.RealData(t, "badinput/blns/blns.json"), &naughty); err != nil || len(naughty) < 400 {
		t.Fatalf("%d strings, %v", len(naughty), err)
	}
	for i, s := range naughty {
		if name, err := json.Marshal(s); err == nil {
			fsys := fstest.MapFS{"mcp.json": {Data: []byte(`{"mcpServers": {` + string(name) + `: {"command": "x", "args": [` + string(name) + `], "env": {"A": ` + string(name) + `}}}}`)}}
			c, m, err := importer.Load("mcp.json", config.Options{FS: fsys, Env: configtest.Env})
			configtest.CheckFaults(t, fsys, err)
			if err == nil && (len(c.Servers) != 1 || m[0].Name != s) {
				t.Errorf("string %d: %q became %v", i, s, m)
			}
		}
	}
}

// Every file of the JSON test suite is read or refused.
func TestTheJSONTestSuiteAsAnotherProgramsFile(t *testing.T) {
	configtest.RealData(t, "badinput/JSONTestSuite/README.md")
	dir := realdata.File()
	files, err := filepath.Glob(filepath.Join(dir, "badinput/JSONTestSuite/test_parsing/*.json"))
	if err != nil || len(files) < 300 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fsys := fstest.MapFS{"mcp.json": {Data: body}}
		// None of them holds servers.
		if _, _, err = importer.Load("mcp.json", config.Options{FS: fsys}); err == nil {
			t.Errorf("%s: Load found servers", filepath.Base(file))
		}
		configtest.CheckFaults(t, fsys, err)
	}
}

func TestDeeplyNestedJSONIsRefused(t *testing.T) {
	fsys := fstest.MapFS{"mcp.json": {Data: []byte(strings.Repeat(`{"mcpServers":`, 100_000))}}
	_, _, err := importer.Load("mcp.json", config.Options{FS: fsys})
	if err == nil || !strings.Contains(err.Error(), "too deep") {
		t.Errorf("Load error = %v, want \"too deep\"", err)
	}
	configtest.CheckFaults(t, fsys, err)
}
