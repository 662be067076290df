package served_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A closedWorld serves the capability of readers, and counts the calls that its servers get.
type closedWorld struct {
	*rig.Gateway
	marks string
	open  map[string]rig.Session // they had the capability at first
}

// layOutClosed writes the files of readers, with a model and an atom that the capability needs.
func layOutClosed(t *testing.T) (dir, marks string) {
	t.Helper()
	dir, one, two := readers(t, true, "one", `, permissions: ["fs:read"], models: [large]`)
	marks = filepath.Join(t.TempDir(), "marks")
	one.Config.Handler.(*fakeserver.Server).Marks, two.Config.Handler.(*fakeserver.Server).Marks = marks, marks
	read := filepath.Join(dir, "capabilities", "read.yaml")
	rig.WriteFile(t, read, rig.ReadFile(t, read)+"required_models: [large]\n")
	addAtom(t, dir, `{kind: key, critical: true, fresh_for: 5s, every: 1s, probe: {file: token}}`)
	return dir, marks
}

func serveClosed(t *testing.T) *closedWorld {
	t.Helper()
	dir, marks := layOutClosed(t)
	w := &closedWorld{Gateway: rig.Serve(t, dir), marks: marks}
	w.open = map[string]rig.Session{"legacy": w.Open(t, "/mcp", false), "modern": w.Open(t, "/mcp", true)}
	w.allowed(t, "at first")
	return w
}

// change writes these files, and returns what undoes that. "" removes a file.
func (w *closedWorld) change(t *testing.T, files map[string]string) (undo map[string]string) {
	t.Helper()
	undo = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(w.Dir, name)
		undo[name] = rig.ReadFile(t, file)
		if files[name] != "" {
			rig.WriteFile(t, file, files[name])
			continue
		}
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Dir(file)) // an empty folder is not the same as none
	}
	w.Reload(t)
	return undo
}

// allowed checks that all sessions have the capability, or get it soon.
func (w *closedWorld) allowed(t *testing.T, when string) {
	t.Helper()
	for who, s := range w.open {
		rig.Eventually(t, when+", "+who+": the capability is there", func() string {
			got := readFile(t, s, `{"path":"a"}`)
			return rig.ReasonUnless(got == `{"path":"a"}` && slices.Contains(rig.ListNames(t, s), "read_file"), "a call gives "+got)
		})
	}
}

// denied checks that no session, old or new, has the capability in a list or can use it, that explain says why, and that no server
// gets a call. keeps means that the list stays as it is, because the reason may soon be over. Only then is a call refused as one that may soon work.
func (w *closedWorld) denied(t *testing.T, when, why string, keeps bool) {
	t.Helper()
	before := lines(t, w.marks)
	sessions := maps.Clone(w.open)
	sessions["new"] = w.Open(t, "/mcp", true)
	for who, s := range sessions {
		m, _ := s.Ask(t, "tools/list", `{}`)
		if strings.Contains(string(m.Raw), `"read_file"`) != keeps {
			t.Errorf("%s, %s: the list keeps the tool, %v: %s", when, who, !keeps, m.Raw)
		}
		for _, name := range []string{"read_file", "list_dir", "read_text_file", "cat"} {
			if got := rig.Call(t, s, name, `{"path":"a"}`); !strings.HasPrefix(got, "SB-") || !keeps && got == unready || keeps && name == "read_file" && got != unready {
				t.Errorf("%s, %s: a call of %s: %s", when, who, name, got)
			}
		}
	}
	if out, errs, _ := rig.Command(t, w.Dir, "explain", "--url", w.URL); !strings.Contains(out+errs, why) {
		t.Errorf("%s: explain does not say %q:\n%s%s", when, why, out, errs)
	}
	if n := lines(t, w.marks) - before; n > 0 {
		t.Errorf("%s: the servers got %d calls", when, n)
	}
}

const (
	unready    = "SB-CAP-007" // the capability is the task's, and an atom of its is red
	handsOff   = "- {id: hands_off, severity: hard, id_matches: 'io\\.fs\\..*', decision: deny}\n"
	boundaries = "capabilities/boundaries.yaml"
	allowAll   = "allowed_tools contains c.id if some c in input.candidate_tools\n"
)

func TestCO03ABoundaryDeniesWhateverPoliciesThereAre(t *testing.T) {
	t.Parallel()
	w := serveClosed(t)
	undo := w.change(t, map[string]string{boundaries: handsOff})
	own := map[string]string{"policies/own.rego": "package switchboard\n" + allowAll}
	tenants := map[string]string{"tenants/default/policies/own.rego": "package switchboard.tenant\n" + allowAll}
	both := maps.Clone(own)
	maps.Copy(both, tenants)
	const row = "hands_off"
	for name, files := range map[string]map[string]string{
		"the shipped policies": nil, "the operator's own": own, "the tenant's own": tenants, "both": both,
		"an empty folder":             {"policies/README.md": "nothing"},
		"an empty folder of a tenant": {"tenants/default/policies/README.md": "nothing"},
		"a layer with their name":     {"policies/own.rego": "package switchboard\n" + allowAll, "policies/b.rego": "package switchboard.boundaries\n" + allowAll},
		"no rows as data":             {"policies/own.rego": "package switchboard\n" + allowAll, "policies/data.json": `{"boundaries": []}`},
		"a broken reload":             {"policies/own.rego": "package switchboard\nallowed_tools contains c.id if\n", boundaries: ""},
	} {
		undo := w.change(t, files)
		w.denied(t, name, row, false)
		w.change(t, undo)
	}
	pipe := rig.StdioAtOnce(t, w.Dir, true)
	if got := rig.Call(t, pipe, "read_file", `{"path":"a"}`); !strings.HasPrefix(got, "SB-") {
		t.Errorf("stdio: %s", got)
	}
	w.change(t, undo)
	w.allowed(t, "without the boundary")
}

func TestNoWayToFailAllowsACallOfACapability(t *testing.T) {
	t.Parallel()
	w := serveClosed(t)
	file := func(name string) string { return rig.ReadFile(t, filepath.Join(w.Dir, name)) }
	without := func(name, old, text string) map[string]string {
		now := strings.Replace(file(name), old, text, 1)
		if now == file(name) {
			t.Fatalf("%s has no %q", name, old)
		}
		return map[string]string{name: now}
	}
	lock := filepath.Join("capabilities", capability.LockFile)
	for _, tt := range []struct {
		name  string
		files map[string]string
		why   string // explain says it
		keeps bool
	}{
		{name: "an atom is red", files: map[string]string{"token": ""}, why: "key.token: red", keeps: true},
		{name: "a boundary is added", files: map[string]string{boundaries: handsOff}, why: "hands_off"},
		{name: "the version is withdrawn", files: without("capabilities/read.yaml", "status: active", "status: retired"), why: "io.fs.read"},
		{name: "the permission is withdrawn", files: without("switchboard.yaml", `permissions: ["fs:read"], `, ""), why: "io.fs.read"},
		{name: "the model is withdrawn", files: without("switchboard.yaml", `, models: [large]`, ""), why: "io.fs.read"},
		{name: "no server provides it", files: map[string]string{"overlays/one.yaml": "", "overlays/two.yaml": ""}, why: "io.fs.read"},
	} {
		undo := w.change(t, tt.files)
		if tt.keeps { // a probe has to find it first
			rig.Eventually(t, tt.name, func() string {
				return rig.ReasonUnless(rig.Call(t, w.open["modern"], "read_file", `{"path":"a"}`) == unready, "the call is made")
			})
			rig.Eventually(t, "explain says so", func() string {
				out, _, _ := rig.Command(t, w.Dir, "explain", "--url", w.URL)
				return rig.ReasonUnless(strings.Contains(out, tt.why), out)
			})
		}
		w.denied(t, tt.name, tt.why, tt.keeps)
		w.change(t, undo)
		if tt.keeps {
			rig.Eventually(t, "the atom is well", func() string {
				return rig.ReasonUnless(readFile(t, w.open["modern"], `{"path":"a"}`) == `{"path":"a"}`, "it is not")
			})
		}
		w.allowed(t, "after "+tt.name)
	}

	// What is malformed reaches no server.
	before := lines(t, w.marks)
	for who, s := range w.open {
		for _, params := range []string{
			`{"name":"read_file"}`, `{"name":"read_file","arguments":[]}`, `{"name":"read_file","arguments":"path"}`, `{"name":"read_file","arguments":null}`,
			`{"name":"read_file","arguments":{"path":"a","path":"b"}}`, `{"name":["read_file"],"arguments":{"path":"a"}}`, `{"name":"read_file","name":"list_dir","arguments":{"path":"a"}}`,
			`{"name":"read_file","arguments":{"path":"a"},"arguments":{}}`, `{"arguments":{"path":"a"}}`,
		} {
			if m, _ := s.Ask(t, "tools/call", params); m.Error == nil && !strings.HasPrefix(rig.Code(m), "SB-") {
				t.Errorf("%s: %s is answered with %s", who, params, m.Raw)
			}
		}
	}
	if n := lines(t, w.marks) - before; n > 0 {
		t.Errorf("the servers got %d malformed calls", n)
	}

	// A reading that is refused changes nothing, so the boundary stays in force.
	w.change(t, map[string]string{boundaries: handsOff})
	for name, files := range map[string]map[string]string{
		"the registry has a fault": {boundaries: "- {id: none, severity: hard, decision: deny}\n"},
		"the lock is gone":         {lock: "", boundaries: ""},
		"a published file changed": {"capabilities/read.yaml": strings.Replace(file("capabilities/read.yaml"), "Reads a file", "Writes a file", 1), boundaries: ""},
	} {
		refused := w.Reloads(rig.ReloadRefused)
		undo := w.change(t, files)
		if w.Reloads(rig.ReloadRefused) == refused {
			t.Errorf("%s: the reading is not refused", name)
		}
		w.denied(t, name, "hands_off", false)
		w.change(t, undo)
	}
}
