package served_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// Servers that do not start: uvx is missing, noisy ends, node is missing inside a script, npx
// downloads.
const wordy = `
-- switchboard.yaml --
start_deadline: 1s
servers:
  absent: {transport: stdio, command: [uvx, some-server]}
  noisy: {transport: stdio, command: [/bin/sh, -c, "i=1; while [ $i -le 15 ]; do echo \"line $i $TOKEN\" >&2; i=$((i+1)); done; exit 3"], env: {TOKEN: "${file:token}"}}
  script: {transport: stdio, command: [/bin/sh, -c, exec node some-server.mjs]}
  slow: {transport: stdio, command: [npx, -y, some-server]}
tenants: {default: {servers: ["*"]}}
-- token --
hunter2-hunter2
-- tenants/default/tenant.yaml --
tenant: default
-- bin/npx --
#!/bin/sh
echo npm http fetch GET 200 >&2
exec /bin/sleep 1000
`

// troublesOf returns what status says in JSON of the servers that are not ready.
func troublesOf(t *testing.T, g *rig.Gateway) map[string]trouble {
	t.Helper()
	var st struct {
		Servers []struct {
			ID          string
			LastFailure *trouble `json:"last_failure"`
		}
	}
	out, errs, _ := rig.Command(t, g.Dir, "status", "--json", "--url", g.URL)
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		t.Fatalf("status: %v\n%s%s", err, out, errs)
	}
	all := map[string]trouble{}
	for _, s := range st.Servers {
		if s.LastFailure != nil {
			all[s.ID] = *s.LastFailure
		}
	}
	return all
}

type trouble struct {
	Message, Remedy string
	Stderr          []string
}

// The test sets the PATH, so it runs alone.
func TestFirstMinutes4StatusSaysWhyAServerDoesNotStartAndWhatToDo(t *testing.T) {
	dir := rig.LayOut(t, wordy)
	bin := filepath.Join(dir, "bin")
	if err := os.Chmod(filepath.Join(bin, "npx"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin) // where neither uvx nor node is
	g := rig.ServeAtOnce(t, dir)

	lines := strings.Fields("6 7 8 9 10 11 12 13 14 15")
	for i, n := range lines {
		lines[i] = "line " + n + " ***"
	}
	want := map[string]trouble{
		"absent": {`its program "uvx" is not on the PATH`, `the program "uvx" was not found: install uv`, nil},
		"noisy":  {"its process ended (exit status 3)", "", lines},
		"script": {"its process ended (exit status 127)", `the program "node" was not found: install Node.js`, []string{"/bin/sh: 1: exec: node: not found"}},
		"slow":   {"has not answered yet", `"npx" is probably downloading its package: wait`, []string{"npm http fetch GET 200"}},
	}
	rig.Eventually(t, "status says why no server is ready", func() string {
		got := troublesOf(t, g)
		for id, w := range want {
			has := strings.Contains(got[id].Message, w.Message) && strings.Contains(got[id].Remedy, w.Remedy) && (got[id].Remedy == "") == (w.Remedy == "")
			if id == "script" { // each shell has its own words
				has = has && len(got[id].Stderr) == 1 && strings.Contains(got[id].Stderr[0], "node")
			} else {
				has = has && slices.Equal(got[id].Stderr, w.Stderr)
			}
			if !has {
				return fmt.Sprintf("%s: %+v", id, got[id])
			}
		}
		return ""
	})

	for _, args := range [][]string{{"status"}, {"server", "list"}} {
		text, _, _ := rig.Command(t, dir, append(args, "--url", g.URL)...)
		for _, want := range []string{
			"\nabsent: the program \"uvx\" was not found: install uv, or ",
			"\nnoisy wrote last to its stderr:\n    " + strings.Join(lines, "\n    ") + "\n",
			"\nscript: the program \"node\" was not found: install Node.js, or ",
			"\nslow: \"npx\" is probably downloading its package: wait. ",
			"\nslow wrote last to its stderr:\n    npm http fetch GET 200\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q does not say %q:\n%s", args, want, text)
			}
		}
		if strings.Contains(text, "hunter2") || strings.Contains(text, "line 5 ") {
			t.Errorf("%q says too much:\n%s", args, text)
		}
	}

	m, _ := g.OpenAtOnce(t, "/mcp", true).Ask(t, "tools/call", `{"name":"switchboard_status","arguments":{}}`)
	text := string(m.Result)
	if !strings.Contains(text, "noisy") {
		t.Fatalf("the client's status names no server: %s", m.Raw)
	}
	for _, never := range []string{"line 14", "npm http", "Node.js", "probably downloading"} {
		if strings.Contains(text, never) {
			t.Errorf("a client is told %q: %s", never, text)
		}
	}
}
