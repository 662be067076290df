package served_test

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/rig"
)

var updateFaults = flag.Bool("update-faults", false, "write the table of docs/faults.md anew")

// A faultyEdit is one thing that somebody did wrong.
type faultyEdit struct {
	kind string // which of outcomes it has
	what string // as the table says it

	file string // in which
	old  string // is replaced
	text string // by this; without old, all of the file is

	do func(t *testing.T, town *town) // instead of all that
}

// town is a configuration of two tenants and three servers.
type town struct {
	fresh  string            // where layOut writes
	keys   map[string]string // by tenant
	hashes map[string]string
	oracle *oracle
}

func newTown(t *testing.T) *town {
	t.Helper()
	w := &town{keys: map[string]string{}, hashes: map[string]string{}, oracle: newOracle(t)}
	for _, id := range []string{"acme", "beta"} {
		w.keys[id], w.hashes[id] = identity.Mint(identity.AgentPrefix)
	}
	return w
}

// files are the configuration without a fault. Each tenant shows the tool a/one by a name with the edition
// in it, so that a client sees which edition is in force.
func (w *town) files(edition int) map[string]string {
	server := func(id, tools, more string) string {
		return fmt.Sprintf("  %s: {transport: stdio, command: [FAKE, %s]%s}\n", id, tools, more)
	}
	offers := func(names ...string) string {
		for i, name := range names {
			names[i] = "'" + fmt.Sprintf(rig.Tool, name) + "'"
		}
		return strings.Join(names, ", ")
	}
	all := map[string]string{
		"switchboard.yaml": "start_deadline: 30s\nservers:\n" +
			server("a", offers("one", "uno"), ", class: free_api") +
			server("b", offers("two"), ", manifest: b.json") +
			server("c", offers("three"), ", manifest: "+w.oracle.URL) +
			"tenants:\n  acme: {servers: [a, b, c], allow: [by_name], roles: [clerk], tier: pro, token_budget: 20000}\n  beta: {servers: [a, b, c], allow: [by_name]}\n",
		"taxonomy.yaml":      "resources: {jira: {}}\n",
		"b.json":             `{"name": "b", "capabilities": {"tools": {"two": {"x-summit-capabilities": [{"verb": "read", "resource": "fs"}]}}}}`,
		"overlays/a.yaml":    "server: a\ntools:\n  one: {capabilities: [{verb: search, resource: internet}]}\n  uno: {capabilities: [{verb: read, resource: fs}]}\n",
		"policies/all.rego":  "package switchboard\n" + rig.AllowAll,
		"policies/data.yaml": "limit: 3\n",
	}
	for _, id := range []string{"acme", "beta"} {
		home := "tenants/" + id + "/"
		all[home+"tenant.yaml"] = fmt.Sprintf("tenant: %s\nservers: [a, b, c]\ndefault_task: all\nmode: autopilot\ntoken_budget: 8000\nranking: {classes: [free_api]}\nlimits: [{match: {constraint: rate_limited}, rate: 60/min}]\nkeys:\n  - {id: someone, hash: %q}\n", id, w.hashes[id])
		all[home+"tasks/all.yaml"] = fmt.Sprintf("task_id: all\nrequired_capabilities:\n  - {verb: search, resource: internet, select: tool, as: one_%d}\n  - {tools: [a/uno], optional: true}\n  - {tools: [b/two], optional: true}\n  - {tools: [c/three], optional: true}\n", edition)
		all[home+"policies/own.rego"] = "package switchboard.tenant\n" + rig.AllowAll
	}
	all["tenants/acme/overlays/b.yaml"] = "server: b\ntools:\n  two: {timeout: 5s}\n"
	return all
}

// layOut puts an edition in the place of dir, whole, with a fault in it. A nil fault is none. It is written beside dir, and the two folders are
// exchanged: a reload under way reads on in the folder in which it began, and the next one enters the new folder. So none reads a part of each. The
// folder from before stays until the next call; until then, the test waits for a reload that began after this call.
func (w *town) layOut(t *testing.T, dir string, edition int, f *faultyEdit) {
	t.Helper()
	w.oracle.says("")
	files := w.files(edition)
	if f != nil && f.file != "" {
		text := files[f.file]
		if f.old == "" {
			text = f.text
		} else if !strings.Contains(text, f.old) {
			t.Fatalf("%s: there is no %q in\n%s", f.what, f.old, text)
		} else {
			text = strings.Replace(text, f.old, f.text, 1)
		}
		files[f.file] = text
	}
	before := dir + ".before"
	if err := os.RemoveAll(before); err != nil {
		t.Fatal(err)
	}
	w.fresh = dir + ".fresh"
	for name, text := range files {
		rig.WriteFile(t, filepath.Join(w.fresh, name), strings.ReplaceAll(text, "FAKE", fmt.Sprintf("%q, fake", rig.FakeProgram)))
	}
	if f != nil && f.do != nil {
		f.do(t, w)
	}
	for _, r := range [][2]string{{dir, before}, {w.fresh, dir}} {
		if err := os.Rename(r[0], r[1]); err != nil {
			t.Fatal(err)
		}
	}
}

// remove, and put a folder in its place.
func folderInPlaceOf(name string) func(*testing.T, *town) {
	return func(t *testing.T, w *town) {
		t.Helper()
		if err := os.Remove(filepath.Join(w.fresh, name)); err != nil {
			t.Fatal(err)
		}
		rig.WriteFile(t, filepath.Join(w.fresh, name, "x.txt"), "x")
	}
}

func removed(name string) func(*testing.T, *town) {
	return func(t *testing.T, w *town) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(w.fresh, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func says(way string) func(*testing.T, *town) {
	return func(_ *testing.T, w *town) { w.oracle.says(way) }
}

// An oracle serves the manifest of the server c, in the way that it is told.
type oracle struct {
	*httptest.Server
	mu  sync.Mutex
	way string
}

func newOracle(t *testing.T) *oracle {
	t.Helper()
	o := &oracle{}
	left := make(chan struct{})
	o.Server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		way := o.way
		o.mu.Unlock()
		switch way {
		case "":
			_, _ = fmt.Fprint(out, `{"name": "c", "capabilities": {"tools": {"three": {"x-summit-capabilities": [{"verb": "read", "resource": "fs"}]}}}}`)
		case "503":
			out.WriteHeader(http.StatusServiceUnavailable)
		case "rubbish":
			_, _ = fmt.Fprint(out, "<html>")
		case "cut":
			panic(http.ErrAbortHandler)
		case "silent":
			select {
			case <-r.Context().Done():
			case <-left:
			}
		}
	}))
	t.Cleanup(func() { close(left); o.Close() })
	return o
}

func (o *oracle) says(way string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.way = way
}

// faultyEdits are sixty things that people do wrong.
func faultyEdits(w *town) []faultyEdit {
	const (
		home    = "tenants/acme/"
		tenant  = home + "tenant.yaml"
		task    = home + "tasks/all.yaml"
		own     = home + "policies/own.rego"
		overlay = "overlays/a.yaml"
		main    = "switchboard.yaml"
	)
	uno := "uno: {capabilities: [{verb: read, resource: fs}]}"
	return []faultyEdit{
		{kind: "tenant", what: "a key is mistyped", file: tenant, old: "ranking:", text: "rankng:"},
		{kind: "tenant", what: "no YAML", file: tenant, text: "tenant: [acme\n"},
		{kind: "tenant", what: "the file is empty", file: tenant, text: "\n"},
		{kind: "tenant", what: "the file is a folder", do: folderInPlaceOf(tenant)},
		{kind: "tenant", what: "another tenant's name", file: tenant, old: "tenant: acme", text: "tenant: beta"},
		{kind: "tenant", what: "a server that there is not", file: tenant, old: "[a, b, c]", text: "[a, b, d]"},
		{kind: "tenant", what: "more tokens than the operator gives", file: tenant, old: "8000", text: "80000"},
		{kind: "tenant", what: "a task that there is not", file: tenant, old: "default_task: all", text: "default_task: al"},
		{kind: "tenant", what: "a mode that there is not", file: tenant, old: "autopilot", text: "autoplot"},
		{kind: "tenant", what: "a rate without a unit", file: tenant, old: "60/min", text: "60"},
		{kind: "tenant", what: "a role that the operator does not give", file: tenant, old: "{id: someone,", text: "{id: someone, roles: [admin],"},
		{kind: "tenant", what: "the hash of a key is cut", file: tenant, old: w.hashes["acme"], text: w.hashes["acme"][:20]},
		{kind: "key", what: "another tenant's key", file: tenant, old: "keys:\n", text: fmt.Sprintf("keys:\n  - {id: other, hash: %q}\n", w.hashes["beta"])},
		{kind: "tenant", what: "a task without requirements", file: task, text: "task_id: all\n"},
		{kind: "tenant", what: "a resource that there is not", file: task, old: "resource: internet", text: "resource: intranet"},
		{kind: "tenant", what: "a verb that there is not", file: task, old: "verb: search", text: "verb: find"},
		{kind: "tenant", what: "two tasks of one name", file: home + "tasks/more.yaml", text: "task_id: all\nrequired_capabilities: [{tools: [\"a/*\"]}]\n"},
		{kind: "tenant", what: "a file that is not read", file: home + "task.yaml", text: "x: 1\n"},
		{kind: "tenant", what: "an overlay that makes a tool more free", file: home + "overlays/b.yaml", old: "timeout: 5s", text: "idempotency: natural"},
		{kind: "tenant", what: "an overlay of a longer timeout", file: home + "overlays/b.yaml", old: "5s", text: "5m"},
		{kind: "tenant", what: "a policy without a closing brace", file: own, text: "package switchboard.tenant\nallowed_tools contains c.id if {\n"},
		{kind: "tenant", what: "a policy of the operator's package", file: own, old: "switchboard.tenant", text: "switchboard"},
		{kind: "tenant", what: "a veto spelt denny", file: own, text: "package switchboard.tenant\n" + rig.AllowAll + "denny[\"a/one\"] contains \"no\" if true\n"},
		{kind: "tenant", what: "a policy that reaches out", file: own, text: "package switchboard.tenant\n" + rig.AllowAll + "deny[\"a/one\"] contains \"no\" if http.send({\"method\": \"get\", \"url\": \"http://x\"}).status_code == 200\n"},
		{kind: "tenant", what: "data of policies that is no JSON", file: home + "policies/data.json", text: "{"},

		{kind: "tool", what: "a key is mistyped", file: overlay, old: uno, text: "uno: {capability: [{verb: read, resource: fs}]}"},
		{kind: "tool", what: "a verb that there is not", file: overlay, old: uno, text: "uno: {capabilities: [{verb: look, resource: fs}]}"},
		{kind: "tool", what: "a resource that there is not", file: overlay, old: uno, text: "uno: {capabilities: [{verb: read, resource: disk}]}"},
		{kind: "tool", what: "a constraint that there is not", file: overlay, old: uno, text: "uno: {capabilities: [{verb: read, resource: fs, constraints: [readnly]}]}"},
		{kind: "tool", what: "two facts that contradict each other", file: overlay, old: uno, text: "uno: {stateful: true, idempotency: natural}"},
		{kind: "tool", what: "a timeout without a unit", file: overlay, old: uno, text: "uno: {timeout: 5}"},
		{kind: "tool", what: "an equivalent on a server that there is not", file: overlay, old: uno, text: "uno: {equivalents: [{tool: d/one}]}"},
		{kind: "tool", what: "two files describe it", file: "overlays/b.yaml", text: "server: a\ntools:\n  uno: {capabilities: [{verb: read, resource: fs}]}\n"},

		{kind: "overlay", what: "no YAML", file: overlay, text: "server: a\ntools: {one: [\n"},
		{kind: "overlay", what: "the file is empty", file: overlay, text: "\n"},
		{kind: "overlay", what: "a server that there is not", file: overlay, old: "server: a", text: "server: aa"},
		{kind: "overlay", what: "a key is mistyped", file: overlay, old: "tools:", text: "tool:"},
		{kind: "overlay", what: "one tool stands there twice", file: overlay, old: uno, text: uno + "\n  " + uno},

		{kind: "manifest", what: "there is no such file", do: removed("b.json")},
		{kind: "manifest", what: "the file is a folder", do: folderInPlaceOf("b.json")},
		{kind: "manifest", what: "no JSON", file: "b.json", text: "{"},
		{kind: "manifest", what: "no object", file: "b.json", text: "[]"},
		{kind: "address", what: "answers 503", do: says("503")},
		{kind: "address", what: "answers with a page for people", do: says("rubbish")},
		{kind: "address", what: "ends the connection", do: says("cut")},
		{kind: "address", what: "does not answer", do: says("silent")},

		{kind: "operator", what: "no YAML", file: main, text: "servers: [\n"},
		{kind: "operator", what: "the file is removed", do: removed(main)},
		{kind: "operator", what: "a key is mistyped", file: main, old: "start_deadline", text: "start_dedline"},
		{kind: "operator", what: "a transport that there is not", file: main, old: "transport: stdio", text: "transport: stdo"},
		{kind: "operator", what: "a variable that is not set", file: main, old: ", class: free_api", text: ", class: free_api, env: {TOKEN: \"${env:SURELY_NOT_SET}\"}"},
		{kind: "operator", what: "a tenant's row names a server that there is not", file: main, old: "beta: {servers: [a, b, c]", text: "beta: {servers: [a, b, d]"},
		{kind: "restart", what: "the store is another", file: main, old: "start_deadline: 30s", text: "start_deadline: 30s\nstore: file:other.db"},
		{kind: "operator", what: "an address with a typo", file: main, old: "start_deadline: 30s", text: "start_deadline: 30s\nlisten: 127.0.0.1"},
		{kind: "operator", what: "taxonomy.yaml: parents in a circle", file: "taxonomy.yaml", text: "resources: {jira: {parent: wiki}, wiki: {parent: jira}}\n"},
		{kind: "operator", what: "policies/: a rule without a closing brace", file: "policies/all.rego", text: "package switchboard\nallowed_tools contains c.id if {\n"},
		{kind: "operator", what: "policies/: a list of the wrong type", file: "policies/all.rego", text: "package switchboard\nallowed_tools := 3\n"},
		{kind: "operator", what: "policies/: data that is no YAML", file: "policies/data.yaml", text: "limit: [\n"},
		{kind: "operator", what: "overlays/: a file that is not read", file: "overlays/a.txt", text: "x"},
		{kind: "operator", what: "tenants/: a file", file: "tenants/gamma.yaml", text: "x"},
	}
}

// An outcome is what clients of both tenants see of a fault.
type outcome struct {
	acme, beta string   // which edition the tenant has
	gone       []string // tools that beta does not see
}

const (
	edited   = "as edited"
	asBefore = "as it was"
	unserved = "not served"
)

// outcomes are by the kind of a fault: at a reload, and at a start. A start of which nothing is said is refused.
var outcomes = map[string]struct {
	file          string // as the table names it
	reload, start *outcome
	says          [2]string // in the table
}{
	"tenant": {
		"tenants/acme/", &outcome{asBefore, edited, nil}, &outcome{unserved, edited, nil},
		[2]string{"tenant acme stays as it was", "tenant acme is not served"},
	},
	"key": {
		"tenants/acme/tenant.yaml", &outcome{asBefore, edited, nil}, nil,
		[2]string{"tenant acme stays as it was", "both tenants are faulty: nobody knows whose key it is"},
	},
	"tool": {
		"overlays/, one tool", &outcome{edited, edited, []string{"uno"}}, &outcome{edited, edited, []string{"uno"}},
		[2]string{"the tool is not served", "the tool is not served"},
	},
	"overlay": {
		"overlays/, a file", &outcome{edited, edited, nil}, nil,
		[2]string{"the file's last good copy counts", "no start"},
	},
	"manifest": {
		"a manifest, a file", &outcome{edited, edited, nil}, &outcome{edited, edited, []string{"two"}},
		[2]string{"its last good copy counts", "the tools of its server are not served"},
	},
	"address": {
		"a manifest, an address", &outcome{edited, edited, nil}, &outcome{edited, edited, []string{"three"}},
		[2]string{"its last good copy counts", "the tools of its server are not served"},
	},
	"operator": {
		"the operator's other files", &outcome{asBefore, asBefore, nil}, nil,
		[2]string{"everything stays as it was", "no start"},
	},
	"restart": {
		"switchboard.yaml", &outcome{asBefore, asBefore, nil}, &outcome{edited, edited, nil},
		[2]string{"everything stays as it was", "it is in force"},
	},
}

// sees is what clients of both tenants see, of both eras; edition is the one that was written last.
func (w *town) sees(t *testing.T, g *rig.Gateway, edition int) (o outcome) {
	t.Helper()
	var lists [][]string
	for _, id := range []string{"acme", "beta"} {
		var seen []string
		for _, modern := range []bool{false, true} {
			s := &rig.HTTPSession{URL: g.URL + "/mcp", Modern: modern, Header: http.Header{"Authorization": {"Bearer " + w.keys[id]}}}
			if !modern {
				m, resp, err := s.Exchange(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, nil)
				if err != nil {
					t.Fatal(err)
				}
				if rig.Code(m) != "" {
					seen = []string{rig.Code(m)}
					continue
				}
				s.ID = resp.Header.Get("Mcp-Session-Id")
				s.Post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil)
			}
			m, _ := s.Ask(t, "tools/list", "")
			got := []string{rig.Code(m)}
			if got[0] == "" {
				got = m.ToolNames(t)
			}
			if !modern { // each reload would bind it again
				if err := s.Leave(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if modern && !slices.Equal(got, seen) {
				t.Errorf("%s: modern clients see %q, legacy ones %q", id, got, seen)
			}
			seen = got
		}
		lists = append(lists, seen)
	}
	which := func(list []string) string {
		switch {
		case slices.Equal(list, []string{"SB-CONF-001"}), slices.Equal(list, []string{"SB-AUTH-001"}): // its keys may be unreadable
			return unserved
		case slices.Contains(list, fmt.Sprint("one_", edition)):
			return edited
		case slices.Contains(list, fmt.Sprint("one_", edition-1)):
			return asBefore
		}
		return fmt.Sprintf("%q", list)
	}
	o.acme, o.beta = which(lists[0]), which(lists[1])
	for _, tool := range []string{"uno", "two", "three"} {
		if !slices.Contains(lists[1], tool) {
			o.gone = append(o.gone, tool)
		}
	}
	return o
}

// Number 6: a fault stays where it is. Each row of the table is applied to a Switchboard that serves two
// tenants, and in the next test to one that starts.
func TestNames6AFaultStaysWhereItIs(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	dir := t.TempDir()
	w.layOut(t, dir, 0, nil)
	g := rig.Serve(t, dir, "--data", filepath.Join(t.TempDir(), "data")) // which outlasts the folders of the configuration
	if got := w.sees(t, g, 0); got.acme != edited || got.beta != edited || got.gone != nil {
		t.Fatalf("without a fault: %+v", got)
	}
	all := faultyEdits(w)
	edition := 0
	for _, f := range all {
		edition++
		w.layOut(t, dir, edition, &f)
		g.Reload(t)
		if got, want := w.sees(t, g, edition), outcomes[f.kind].reload; fmt.Sprint(got) != fmt.Sprint(*want) {
			t.Errorf("%s: %s: at a reload: %+v, want %+v", outcomes[f.kind].file, f.what, got, *want)
		}
		w.layOut(t, dir, edition, nil)
		g.Reload(t)
		if got := w.sees(t, g, edition); got.acme != edited || got.beta != edited || got.gone != nil {
			t.Errorf("%s: %s: once it is mended: %+v", outcomes[f.kind].file, f.what, got)
		}
	}
	checkFaultsTable(t, all)
}

func TestNames6AFaultStaysWhereItIsAtAStart(t *testing.T) {
	t.Parallel()
	hashed := newTown(t)
	for edition, f := range faultyEdits(hashed) {
		t.Run(outcomes[f.kind].file+": "+f.what, func(t *testing.T) {
			t.Parallel()
			w := &town{keys: hashed.keys, hashes: hashed.hashes, oracle: newOracle(t)}
			dir := t.TempDir()
			w.layOut(t, dir, edition, &f)
			want := outcomes[f.kind].start
			if want == nil {
				if out, errs, code := rig.Command(t, dir, "serve", "--listen", "127.0.0.1:0"); code != 2 || out != "" {
					t.Errorf("exit %d\n%s%s", code, out, errs)
				}
				return
			}
			if got := w.sees(t, rig.Serve(t, dir), edition); fmt.Sprint(got) != fmt.Sprint(*want) {
				t.Errorf("%+v, want %+v", got, *want)
			}
		})
	}
}

// Number 6: so the last good copy of a manifest outlives a restart.
func TestNames6AManifestWhoseAddressIsDownOutlivesARestart(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	dir := t.TempDir()
	w.layOut(t, dir, 1, nil)
	t.Run("the first start", func(t *testing.T) {
		if got := w.sees(t, rig.Serve(t, dir), 1); got.gone != nil {
			t.Fatalf("%+v", got)
		}
	})
	w.oracle.says("503")
	t.Run("the second", func(t *testing.T) {
		g := rig.Serve(t, dir)
		if got := w.sees(t, g, 1); got.gone != nil {
			t.Errorf("with the address down: %+v", got)
		}
		if _, body := g.Ready(t); !strings.Contains(body, `"configuration_faulty_parts":1`) {
			t.Errorf("/readyz says %s", body)
		}
	})
	file := filepath.Join(dir, "switchboard.yaml")
	rig.WriteFile(t, file, strings.Replace(rig.ReadFile(t, file), w.oracle.URL, w.oracle.URL+"/other", 1))
	t.Run("another manifest", func(t *testing.T) {
		if got := w.sees(t, rig.Serve(t, dir), 1); !slices.Equal(got.gone, []string{"three"}) {
			t.Errorf("the copy of another manifest counts: %+v", got)
		}
	})
}

// checkFaultsTable compares the table of docs/faults.md with what was seen.
func checkFaultsTable(t *testing.T, all []faultyEdit) {
	t.Helper()
	const from, to = "<!-- sixty faults -->\n", "<!-- end -->\n"
	var b strings.Builder
	b.WriteString("| file | what is wrong | at a reload | at a start |\n| --- | --- | --- | --- |\n")
	for _, f := range all {
		o := outcomes[f.kind]
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", o.file, f.what, o.says[0], o.says[1])
	}
	file := filepath.Join("..", "..", "docs", "faults.md")
	text := rig.ReadFile(t, file)
	before, rest, _ := strings.Cut(text, from)
	table, after, ok := strings.Cut(rest, to)
	if !ok {
		t.Fatalf("%s has no table between %q and %q", file, from, to)
	}
	if *updateFaults && !t.Failed() {
		rig.WriteFile(t, file, before+from+b.String()+to+after)
	} else if table != b.String() {
		t.Errorf("%s shows another table; run this test with -update-faults", file)
	}
}
