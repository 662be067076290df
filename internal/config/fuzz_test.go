package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/configtest"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// For any files, Load returns a Config or Faults, and the same again for the same files.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/load/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		fsys := archiveFS(ar)
		one := func(pattern string) []byte {
			names, _ := filepath.Glob(pattern)
			for name := range fsys {
				if ok, _ := filepath.Match(pattern, name); ok {
					names = append(names, name)
				}
			}
			if len(names) == 0 {
				return nil
			}
			return fsys[slices.Min(names)].Data
		}
		f.Add(one("switchboard.yaml"), one("tenants/*/tenant.yaml"), one("tenants/*/tasks/*.yaml"), one("overlays/*.yaml"), one("taxonomy.yaml"),
			one("capabilities/[bcdip]*.yaml"), one("capabilities/atoms.yaml"), one("capabilities/boundaries.yaml"), one("capabilities/published.lock"))
	}
	f.Fuzz(func(t *testing.T, main, tenant, task, overlay, taxonomy, version, atoms, boundaries, lock []byte) {
		fsys := fstest.MapFS{}
		for name, data := range map[string][]byte{
			"switchboard.yaml": main, "tenants/default/tenant.yaml": tenant, "tenants/default/tasks/a.yaml": task,
			"overlays/a.yaml": overlay, "tenants/default/overlays/a.yaml": overlay, "taxonomy.yaml": taxonomy,
			"capabilities/a.yaml": version, "capabilities/atoms.yaml": atoms, "capabilities/boundaries.yaml": boundaries, "capabilities/published.lock": lock,
		} {
			if data != nil {
				fsys[name] = &fstest.MapFile{Data: data}
			}
		}
		opts := config.Options{FS: fsys, Env: configtest.ResolveAll}
		c, err := loadWithoutFaults(t.Context(), "switchboard.yaml", opts)
		configtest.CheckFaults(t, fsys, err)
		if (c == nil) == (err == nil) {
			t.Fatalf("Load = %v, %v; want one of them", c, err)
		}
		again, err2 := loadWithoutFaults(t.Context(), "switchboard.yaml", opts)
		if err != nil {
			if err2 == nil || err.Error() != err2.Error() {
				t.Fatalf("Load = %v, and then %v", err, err2)
			}
			return
		}
		if a, b := describe(t, c), describe(t, again); a != b {
			t.Fatalf("Load read\n%s and then\n%s", a, b)
		}
		for _, s := range c.Servers {
			if err := switchboard.CheckID(string(s.ID)); err != nil {
				t.Error(err)
			}
		}
	})
}

// A naughty string as a key or a value gives Faults or the same text, and nothing else.
func TestNaughtyStrings(t *testing.T) {
	var naughty []string
	if err := json.Unmarshal(configtest.RealData(t, "badinput/blns/blns.json"), &naughty); err != nil || len(naughty) < 400 {
		t.Fatalf("%d strings, %v", len(naughty), err)
	}
	for i, s := range naughty {
		quoted := strconv.QuoteToASCII(s)
		if strings.Contains(quoted, `\x`) && !strings.Contains(s, "\x00") {
			quoted = `"x"`
		}
		for _, form := range []string{quoted, s} {
			fsys := fstest.MapFS{"switchboard.yaml": {Data: []byte(strings.NewReplacer("KEY", form, "VALUE", form).Replace(
				"KEY: VALUE\nlisten: VALUE\nservers:\n  KEY: {transport: VALUE}\n  a:\n    transport: stdio\n    command: [x, VALUE]\n    class: VALUE\n    env:\n      A: VALUE\n      KEY: b\n",
			))}}
			c, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: fsys, Env: configtest.Env})
			if err == nil {
				t.Errorf("string %d %q was accepted as a key: %+v", i, s, c.Servers)
			}
			configtest.CheckFaults(t, fsys, err)
		}
		fsys := fstest.MapFS{"switchboard.yaml": {Data: []byte("servers: {a: {transport: stdio, command: [x, " + quoted + "]}}")}}
		c, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: fsys, Env: configtest.Env})
		configtest.CheckFaults(t, fsys, err)
		if err == nil && quoted != `"x"` && strings.ReplaceAll(c.Servers[0].Command[1], "${", "$${") != s {
			t.Errorf("string %d: %q was read as %q", i, s, c.Servers[0].Command[1])
		}
	}
}

// Every file of the JSON test suite is read or refused.
func TestTheJSONTestSuiteAsAConfiguration(t *testing.T) {
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
		fsys := fstest.MapFS{"switchboard.yaml": {Data: body}}
		if _, err = loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: fsys}); err == nil {
			t.Errorf("%s: Load found servers", filepath.Base(file))
		}
		configtest.CheckFaults(t, fsys, err)
	}
}

// The parser's time and stack grow with the depth and with the keys of a map. So files that exploit
// this are refused before they reach the parser.
func TestFilesThatOverloadTheParserAreRefusedBeforeIt(t *testing.T) {
	const n = 40_000
	const deep, keys, entries, words = "more than 24 deep", "more than 2048 keys", "more than 2048 entries", "words and signs"
	var steps, maps strings.Builder
	for i := range 500 {
		steps.WriteString(strings.Repeat(" ", i) + "a:\n")
		maps.WriteString("a" + strconv.Itoa(i) + ":\n" + strings.Repeat("  b: c\n", 100))
	}
	for name, tt := range map[string]struct{ text, want string }{
		"nested lists":    {strings.Repeat("[", n), deep},
		"closed lists":    {strings.Repeat("[", n) + strings.Repeat("]", n), deep},
		"nested maps":     {strings.Repeat("{a: ", n/2), deep},
		"nested entries":  {strings.Repeat("- ", n) + "a", deep},
		"steps":           {steps.String(), deep},
		"lists in steps":  {"a:\n" + strings.Repeat("- - - - ", 100), deep},
		"many keys":       {strings.Repeat("a: b\n", n/2), keys},
		"many other keys": {numbered("k%d: b\n", n/2), keys},
		"comments":        {strings.Repeat("a: b # c\n", n/2), keys},
		"flow keys":       {"{" + numbered("k%d: b, ", n/2) + "}", entries},
		"small maps":      {maps.String(), words},
		"list":            {strings.Repeat("- a\n", 2*n), words},
		"question marks":  {strings.Repeat("? ", n) + "a", "begin with ?"},
		"anchors":         {strings.Repeat("&a ", n), "anchors"},
		"tags":            {strings.Repeat("!a ", n), "tags"},
		"documents":       {strings.Repeat("a\n---\n", n), "second document"},
		"too large":       {strings.Repeat("# x\n", 300_000), "larger than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := fstest.MapFS{"switchboard.yaml": {Data: []byte(tt.text)}}
			_, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: fsys})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			configtest.CheckFaults(t, fsys, err)
		})
	}
}

func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Replace(format, "%d", strconv.Itoa(i), 1))
	}
	return b.String()
}
