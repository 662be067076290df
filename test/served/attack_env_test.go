package served_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// ST-05: the file of an operator or of a client hands no server a variable that runs or fetches other code. What the operator allows by name is handed over.
func TestAttack11ST05AServerGetsNoVariableThatRunsOtherCode(t *testing.T) {
	t.Parallel()
	names := strings.Fields("LUA_INIT_5_4 DOTNET_STARTUP_HOOKS PYTHONPATH NODE_PATH PERL5LIB CLASSPATH PHP_INI_SCAN_DIR NODE_EXTRA_CA_CERTS " +
		"npm_config_registry NPM_CONFIG_REGISTRY UV_INDEX_URL UV_DEFAULT_INDEX PIP_INDEX_URL PIP_EXTRA_INDEX_URL EDITOR VISUAL PAGER")
	env := "MARK: set, " + strings.Join(names, ": x, ") + ": x"
	server := `web: {transport: stdio, env: {` + env + `}ALLOWED, command: [sh, -c, 'env > "$0"; exec "$@"', "SEEN", FAKE, '` + fmt.Sprintf(rig.Tool, "get") + `']}`
	seen := filepath.Join(t.TempDir(), "seen")
	server = strings.ReplaceAll(server, "SEEN", seen)

	refused := rig.LayOut(t, rig.Fakes(strings.Replace(server, "ALLOWED", "", 1)))
	for _, args := range [][]string{{"validate"}, {"serve", "--listen", "127.0.0.1:0"}} {
		out, errs, code := rig.Command(t, refused, args...)
		for _, name := range names {
			if !strings.Contains(out+errs, ": server \"web\": env: "+name+" is not handed to a server: ") || !strings.Contains(out+errs, "allow_env: ["+name+"]") {
				t.Errorf("%s says nothing of %s", args, name)
			}
		}
		if code == 0 || !strings.Contains(out+errs, "switchboard.yaml:3:") || strings.Contains(out+errs, "MARK") {
			t.Errorf("%s: %d, %s%s", args, code, out, errs)
		}
	}

	t.Run("what is allowed by name is handed over", func(t *testing.T) {
		g := rig.Serve(t, rig.LayOut(t, rig.Fakes(strings.Replace(server, "ALLOWED", ", allow_env: ["+strings.Join(names, ", ")+"]", 1))))
		for _, modern := range []bool{false, true} {
			if got := rig.Call(t, g.Open(t, "/mcp", modern), "get", `{}`); got != "" {
				t.Errorf("modern %t: %s", modern, got)
			}
		}
		handedOver(t, seen, append(names, "MARK"), nil)
	})

	client := `{"mcpServers": {"web": {"command": "sh", "args": ["-c", "env > \"$0\"; exec \"$@\"", "` + seen + `", FAKE_, "` +
		strings.ReplaceAll(fmt.Sprintf(rig.Tool, "get"), `"`, `\"`) + `"], "env": {"MARK": "set", "` + strings.Join(names, `": "x", "`) + `": "x"}}}}`
	client = strings.Replace(client, "FAKE_", fmt.Sprintf(`%q, "fake"`, rig.FakeProgram), 1)
	t.Run("the file of a client", func(t *testing.T) {
		g := rig.Serve(t, rig.LayOut(t, "-- mcp.json --\n"+client), "--mcp-config", "mcp.json")
		if got := rig.Call(t, g.Open(t, "/mcp", true), "get", `{}`); got != "" {
			t.Error(got)
		}
		handedOver(t, seen, []string{"MARK"}, names)
		for _, name := range names {
			if !strings.Contains(g.Logged(), "the variable "+name+" is left out: ") {
				t.Errorf("the log says nothing of %s", name)
			}
		}
	})
	t.Run("an import", func(t *testing.T) {
		dir := rig.LayOut(t, "-- mcp.json --\n"+client)
		out, errs, code := rig.Command(t, dir, "import", "mcp.json", "--dir", "new")
		text, err := os.ReadFile(filepath.Join(dir, "new", "switchboard.yaml"))
		if code != 0 || err != nil || !strings.Contains(string(text), "MARK: set") {
			t.Fatalf("%d, %v: %s%s%s", code, err, out, errs, text)
		}
		for _, name := range names {
			if strings.Contains(string(text), name) || !strings.Contains(errs, "the variable "+name+" is left out: ") {
				t.Errorf("%s is written, or not reported:\n%s%s", name, text, errs)
			}
		}
	})
}

// handedOver reads the environment that a server wrote down.
func handedOver(t *testing.T, file string, has, lacks []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range has {
		if !strings.Contains("\n"+string(text), "\n"+name+"=") {
			t.Errorf("it was not handed %s", name)
		}
	}
	for _, name := range lacks {
		if strings.Contains("\n"+string(text), "\n"+name+"=") {
			t.Errorf("it was handed %s", name)
		}
	}
}
