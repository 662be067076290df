package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/configtest"
	"github.com/summit-switchboard/switchboard/test/strictclient"
	"github.com/summit-switchboard/switchboard/test/system"
)

// registryFS returns a configuration with one server, and with these files in capabilities/.
func registryFS(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{"switchboard.yaml": {Data: []byte("servers: {files: {transport: stdio, command: [files]}}\n")}}
	for name, text := range files {
		fsys["capabilities/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// version returns the text of a version of io.fs.read.
func version(number, status string) string {
	return "id: io.fs.read\nversion: " + number + "\nstatus: " + status + "\nverb: read\nresource: fs\nrequired_tools: {read_file: {description: Read a file.}, list_dir: {}}\n"
}

// publish returns the files with a lock of all their versions.
func publish(t *testing.T, files map[string]string) map[string]string {
	t.Helper()
	out := maps.Clone(files)
	out[capability.LockFile] = ""
	names, err := config.ReadRegistry("switchboard.yaml", config.Options{FS: registryFS(out)})
	if err != nil {
		t.Fatal(err)
	}
	lock := []byte(nil)
	for _, id := range names.IDs() {
		for _, v := range names.Versions(id) {
			if lock, err = capability.AddToLock("capabilities/published.lock", lock, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	out[capability.LockFile] = string(lock)
	return out
}

// Clients that check a whole list would refuse the definition without its type.
func TestTheSchemasOfAContractGetTheTypeThatTheyMean(t *testing.T) {
	t.Parallel()
	text := strings.Replace(version("1.2.0", "testing"), "list_dir: {}", "list_dir: {input_schema: {properties: {path: {type: string}}}}", 1)
	names, err := config.ReadRegistry("switchboard.yaml", config.Options{FS: registryFS(map[string]string{"read.yaml": text})})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range names.Versions("io.fs.read") {
		for _, tool := range v.Tools {
			if err := strictclient.Check(switchboard.Tools, false, tool.Definition); err != nil {
				t.Errorf("%s: %v", tool.Definition, err)
			}
		}
	}
}

// Each fault of a published version has a message with its file, its line and its remedy: one golden file holds them all.
func TestImmutable(t *testing.T) {
	t.Parallel()
	good := publish(t, map[string]string{"read.yaml": version("1.2.0", "active"), "old.yaml": version("1.1.0", "deprecated")})
	lock := good[capability.LockFile]
	with := func(change func(files map[string]string)) map[string]string {
		files := maps.Clone(good)
		change(files)
		return files
	}
	lockWith := func(pairs ...string) map[string]string {
		return with(func(f map[string]string) { f[capability.LockFile] = strings.NewReplacer(pairs...).Replace(lock) })
	}
	line := func(name string) string {
		at := strings.Index(lock, name)
		return lock[at : at+strings.IndexByte(lock[at:], '\n')+1]
	}
	two := line("io.fs.read@1.2.0")
	var b strings.Builder
	for _, c := range []struct {
		what  string
		files map[string]string
	}{
		{"nothing changed", good},
		{"CO-01 one byte of a published version", with(func(f map[string]string) {
			f["read.yaml"] = strings.Replace(f["read.yaml"], "a file.", "a file!", 1)
		})},
		{"one space, the order of keys, comments and quotes are no change", with(func(f map[string]string) {
			f["read.yaml"] = "# A comment.\nresource:   fs\nverb: \"read\"\nrequired_tools:\n  list_dir: {}\n  read_file:\n    description: 'Read a file.'\nstatus: active\nversion: 1.2.0\n\nid: io.fs.read\n"
		})},
		{"deprecated and retired later are no change", with(func(f map[string]string) {
			f["read.yaml"], f["old.yaml"] = version("1.2.0", "deprecated"), version("1.1.0", "retired")
		})},
		{"a renamed file is no change", with(func(f map[string]string) {
			f["other.yaml"] = f["read.yaml"]
			delete(f, "read.yaml")
		})},
		{"a deleted file", with(func(f map[string]string) { delete(f, "old.yaml") })},
		{"a deleted lock", with(func(f map[string]string) { delete(f, capability.LockFile) })},
		{"two files of one version", with(func(f map[string]string) { f["twice.yaml"] = f["read.yaml"] })},
		{"an active version that is not published", with(func(f map[string]string) { f["new.yaml"] = version("1.3.0", "active") })},
		{"a testing version need not be published", with(func(f map[string]string) { f["new.yaml"] = version("2.0.0", "testing") })},
		{"a lock by hand: a digit of a digest", lockWith(two, two[:len(two)-2]+map[bool]string{true: "1", false: "0"}[two[len(two)-2] == '0']+"\n")},
		{"a lock by hand: a shorter digest", lockWith(two, two[:len(two)-2]+"\n")},
		{"a lock by hand: a version that no file describes", lockWith(two, two+"io.fs.write@1.0.0"+two[strings.IndexByte(two, ' '):])},
		{"a lock by hand: a line twice", lockWith(two, two+two)},
		{"a lock by hand: another order", lockWith(line("io.fs.read@1.1.0"), "", two, two+line("io.fs.read@1.1.0"))},
		{"a lock by hand: no version", lockWith("io.fs.read@1.1.0", "io.fs.read@1.1")},
		{"a gap in the versions", publish(t, map[string]string{"a.yaml": version("1.0.0", "deprecated"), "b.yaml": version("3.0.0", "active")})},
		{"a new major version beside its active predecessor", publish(t, map[string]string{"a.yaml": version("1.0.0", "active"), "b.yaml": version("1.2.0", "deprecated"), "c.yaml": version("2.0.0", "active")})},
	} {
		fmt.Fprintf(&b, "%s\n", c.what)
		_, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: registryFS(c.files)})
		if err == nil {
			b.WriteString("  no fault\n")
			continue
		}
		for l := range strings.Lines(err.Error()) {
			b.WriteString("  " + strings.TrimSuffix(l, "\n") + "\n")
		}
	}
	compareGenerated(t, "testdata/immutable.golden", b.String())
}

// CO-01: with a fault in the registry, nothing of the new configuration counts.
func TestCO01AChangedPublishedVersionRefusesTheNewConfiguration(t *testing.T) {
	t.Parallel()
	files := publish(t, map[string]string{"read.yaml": version("1.2.0", "active")})
	before, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: registryFS(files)})
	if err != nil {
		t.Fatal(err)
	}
	files["read.yaml"] = strings.Replace(files["read.yaml"], "a file", "any file", 1)
	if _, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: registryFS(files), Previous: before}); err == nil {
		t.Error("the configuration with the changed version is accepted")
	}
}

func TestPublishingAddsOneLineAndIsDoneOnce(t *testing.T) {
	t.Parallel()
	files := publish(t, map[string]string{"a.yaml": version("1.2.0", "active"), "b.yaml": version("1.10.0", "deprecated"), "c.yaml": strings.Replace(version("1.0.0", "active"), "io.fs.read", "a.b", 1)})
	var names []string
	for l := range strings.Lines(strings.TrimPrefix(files[capability.LockFile], capability.LockHead)) {
		name, digest, _ := strings.Cut(strings.TrimSpace(l), " ")
		names = append(names, name)
		if len(digest) != len("sha256:")+64 {
			t.Errorf("the line %q has no digest", l)
		}
	}
	if want := []string{"a.b@1.0.0", "io.fs.read@1.2.0", "io.fs.read@1.10.0"}; !slices.Equal(names, want) {
		t.Errorf("the lock has %s, want %s", names, want)
	}
	if again := publish(t, files); again[capability.LockFile] != files[capability.LockFile] {
		t.Errorf("publishing twice gives\n%s", again[capability.LockFile])
	}
	r, err := config.ReadRegistry("switchboard.yaml", config.Options{FS: registryFS(map[string]string{"a.yaml": strings.Replace(version("1.2.0", "active"), "Read a", "Reads a", 1)})})
	if err != nil {
		t.Fatal(err)
	}
	_, err = capability.AddToLock("capabilities/published.lock", []byte(files[capability.LockFile]), r.Versions("io.fs.read")[0])
	if faults, ok := errors.AsType[switchboard.Faults](err); !ok || !strings.Contains(faults.Error(), "a.yaml:1:5: io.fs.read@1.2.0 is published, and its content has changed") {
		t.Errorf("publishing another content: %v", err)
	}
}

// validate finds one planted fault of each kind across rows, all at once.
func TestTheRowsAreCheckedTogether(t *testing.T) {
	t.Parallel()
	configtest.Archives(t, "testdata/rows/*.txtar", func(t *testing.T, ar *txtar.Archive) {
		fsys := archiveFS(ar)
		c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fsys, Env: configtest.Env})
		got := ""
		if err != nil {
			got = err.Error() + "\n"
		} else {
			for _, w := range c.Warnings {
				got += "warning: " + w.String() + "\n"
			}
		}
		configtest.Golden(t, ar, "want", got)
	})
}

// RX-08: a schema that would cost a reader too much is refused, and soon.
// The test is not parallel, because it measures the processor time of the process.
func TestRX08HostileSchemasAreRefusedSoon(t *testing.T) {
	head := "id: io.x\nversion: 1.0.0\nstatus: testing\nverb: read\nresource: fs\nrequired_tools:\n  a:\n    input_schema: "
	double := strings.Builder{}
	for i := range 22 {
		fmt.Fprintf(&double, "a%d: {anyOf: [{$ref: '#/$defs/a%d'}, {$ref: '#/$defs/a%d'}]}, ", i, i+1, i+1)
	}
	for what, schema := range map[string]string{
		"deep":             strings.Repeat("{items: ", 60) + "{}" + strings.Repeat("}", 60),
		"huge":             "{description: " + strings.Repeat("x", 200<<10) + "}",
		"many":             "{enum: [" + strings.Repeat("1,", 20_000) + "2]}",
		"just too many":    "{enum: [" + strings.Repeat("1,", 5_900) + "2]}",
		"a costly pattern": "{properties: {a: {pattern: '" + strings.Repeat("(x{1,30}){1,30}", 40) + "'}}}",
		"a long pattern":   "{properties: {a: {pattern: '" + strings.Repeat("a?", 2_000) + "'}}}",
		"remote":           "{$ref: 'https://example.com/schema'}",
		"cyclic":           "{$ref: '#/$defs/a', $defs: {a: {$ref: '#/$defs/b'}, b: {allOf: [{$ref: '#/$defs/a'}]}}}",
		"doubled":          "{$ref: '#/$defs/a0', $defs: {" + double.String() + "a22: {}}}",
	} {
		fastest := time.Hour
		for range 5 {
			begun := system.ProcessorTime()
			_, err := config.ReadRegistry("switchboard.yaml", config.Options{FS: registryFS(map[string]string{"x.yaml": head + schema + "\n"})})
			fastest = min(fastest, system.ProcessorTime()-begun)
			if err == nil {
				t.Fatalf("%s: the schema is accepted", what)
			}
			if fastest < 50*time.Millisecond {
				break
			}
		}
		if fastest > 50*time.Millisecond && !raceEnabled {
			t.Errorf("%s: it was refused after %s", what, fastest)
		}
	}
}

func TestASecretOfAProbeIsNeverPrinted(t *testing.T) {
	t.Parallel()
	fsys := registryFS(map[string]string{"atoms.yaml": "acc.x: {kind: account, probe: {http: 'https://example.com', headers: {Authorization: 'Bearer ${env:CANARY_X}'}}}\n"})
	c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fs.FS(fsys), Env: func(string) (string, bool) { return configtest.Canary, true }})
	if err != nil {
		t.Fatal(err)
	}
	a := c.Registry.Atoms["acc.x"]
	if printed := fmt.Sprintf("%+v %#v %s", a, a, c.Registry.Digest()); strings.Contains(printed, configtest.Canary) || a.Probe.Headers["Authorization"].Reveal() != "Bearer "+configtest.Canary {
		t.Error("the header is printed, or has another value")
	}
}

// Proposed rows are read without their configuration, and just as strictly where they alone decide.
func TestProposedBoundariesAreReadAlone(t *testing.T) {
	t.Parallel()
	rows, err := config.ReadBoundaries("p.yaml", []byte("- {id: a, severity: hard, side_effects_any: [own-effect], exceptions: [cap.x], decision: require_approval, who: [ops]}\n"))
	if err != nil || len(rows) != 1 || rows[0].File != "p.yaml" || rows[0].Line != 1 {
		t.Fatalf("%+v, %v", rows, err)
	}
	_, err = config.ReadBoundaries("p.yaml", []byte("- {id: a, severity: hardly, risk_level: high, decision: deny}\n- {id: b, severity: hard, decision: denied}\n"))
	for _, want := range []string{"p.yaml:1:21: ", "p.yaml:2:3: the row has no clause", "p.yaml:2:37: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}
