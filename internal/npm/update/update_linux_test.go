package update_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/npm"
	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
	"github.com/summit-switchboard/switchboard/internal/npm/update"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/registry"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "guard" {
		process.Guard(os.Stdin, os.Stdout, os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

// program is a server with these tools, which ends at once if it can see a variable of the row.
func program(tools string) map[string]string {
	return map[string]string{"index.js": `
if (process.env.TOKEN) process.exit(1);
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  const results = {
    'initialize': () => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'x', version: '1' } }),
    'tools/list': () => ({ tools: ` + tools + ` }),
  };
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, result: (results[method] || (() => ({})))() }));
});
`}
}

func TestAnotherVersionIsShownWithItsPackagesAndItsTools(t *testing.T) {
	npmlock.NeedClient(t, "packages")
	if abi, _, _ := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); abi < 6 || abi > 1<<16 {
		t.Skipf("skipped: walls (this kernel has version %d of Landlock, and the test needs 6)", int(abi))
	}
	r := registry.Serve(t)
	for _, v := range r.Env(t) {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "NPM_CONFIG_") {
			t.Setenv(name, value)
		}
	}
	r.Publish(t, "words", "1.0.0", map[string]string{"index.js": ""}, nil)
	r.Publish(t, "talk", "1.0.0", program(`[{ name: 'same', inputSchema: { type: 'object' } }, { name: 'gone', inputSchema: { type: 'object' } }, { name: 'told', description: 'Tells.', inputSchema: { type: 'object' } }]`), nil)
	r.Publish(t, "talk", "2.0.0", program(`[{ name: 'same', inputSchema: { type: 'object' } }, { name: 'added', inputSchema: { type: 'object' } }, { name: 'told', description: 'Tells more.', inputSchema: { type: 'object' } }]`), map[string]string{"words": "1.0.0"})
	r.Publish(t, "talk", "3.0.0", map[string]string{"index.js": "console.error('no settings'); process.exit(3)"}, nil)
	lock := func(version string) *packagelock.Lock {
		t.Helper()
		l, err := npm.MakeLock(t.Context(), packagelock.Spec{Name: "talk", Version: version})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	row := &switchboard.Server{ID: "talk", Transport: switchboard.TransportStdio, Env: map[string]switchboard.Secret{"TOKEN": switchboard.NewSecret("secret")}}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	look := func(was, now *packagelock.Lock) string {
		t.Helper()
		l, err := update.Preview(t.Context(), row, was, now, []string{self, "guard"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.Digest = ""
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first, second := lock("1.0.0"), lock("2.0.0")
	for name, tt := range map[string]struct {
		was, now *packagelock.Lock
		want     string
	}{
		"another version":         {first, second, `{"server":"talk","from":"talk@1.0.0","to":"talk@2.0.0","digest":"","packages":[{"name":"talk","before":"1.0.0","after":"2.0.0"},{"name":"words","after":"1.0.0"}],"tools":[{"name":"added","change":"new"},{"name":"gone","change":"gone"},{"name":"told","change":"words","members":["description"]}]}`},
		"the same":                {first, first, `{"server":"talk","from":"talk@1.0.0","to":"talk@1.0.0","digest":"","packages":[],"tools":[]}`},
		"the first":               {nil, first, `{"server":"talk","to":"talk@1.0.0","digest":"","packages":[{"name":"talk","after":"1.0.0"}],"tools":[{"name":"gone","change":"new"},{"name":"same","change":"new"},{"name":"told","change":"new"}]}`},
		"one that does not start": {first, lock("3.0.0"), `"unknown":"talk@3.0.0 does not answer behind walls: `},
	} {
		t.Run(name, func(t *testing.T) {
			if got := look(tt.was, tt.now); got != tt.want && (name != "one that does not start" || !strings.Contains(got, tt.want)) {
				t.Errorf("%s, want\n%s", got, tt.want)
			}
		})
	}
}
