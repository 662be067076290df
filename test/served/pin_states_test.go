package served_test

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// A server changes the words of one tool and the schema of another one. Metrics and status count them by their states, status names the next command, and after the stop the
// receipts name each change of a state that Switchboard has made itself.
func TestWhatAMachineDoesToDefinitionsHasReceiptsMetricsAndALineInStatus(t *testing.T) {
	t.Parallel()
	const other = `{"name":"other","inputSchema":{"type":"object","properties":{"x":{"type":"number"}}}}`
	dir := rig.LayOut(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", admittedWork, other, turnTool)+"\n  "+rig.FakeRow("b", `{"name":"rest","inputSchema":{"type":"object"}}`)+"\n")
	g := rig.Serve(t, dir)
	counts := func(want map[string]float64) {
		t.Helper()
		rig.Eventually(t, "the metrics have the states", func() string {
			_, values := g.Metrics()
			got := map[string]float64{}
			for name, n := range values {
				if strings.HasPrefix(name, "switchboard_definition") && n > 0 {
					got[strings.TrimPrefix(name, "switchboard_")] = n
				}
			}
			return rig.ReasonUnless(maps.Equal(got, want), fmt.Sprint(got))
		})
	}
	counts(map[string]float64{"definitions a active": 3, "definitions b active": 1, "definition_changes_total  a active": 3, "definition_changes_total  b active": 1})
	rig.Eventually(t, "the first sights have receipts", func() string {
		out, _, _ := rig.Command(t, dir, "receipts", "list", "--kind", "pin")
		return rig.ReasonUnless(strings.Count(out, "  pin ") == 2, "the list is "+out)
	})
	s := g.Open(t, "/mcp", false)
	for _, d := range []string{strings.Replace(admittedWork, "does work", "EVIL", 1), strings.Replace(other, "number", "string", 1), turnTool} {
		s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"turn","arguments":{"do":"replace","bytes":%q}}`, d))
	}
	counts(map[string]float64{
		"definitions a active": 1, "definitions a frozen": 1, "definitions a suspended": 1, "definitions b active": 1,
		"definition_changes_total  a active": 3, "definition_changes_total  b active": 1, "definition_changes_total words a frozen": 1, "definition_changes_total narrower a suspended": 1,
	})
	if a := g.AskAdmin(t, "", http.MethodGet, "/v1/status", ""); !strings.Contains(a.Body, `"definitions":{"suspended":1,"frozen":1}`) {
		t.Errorf("/v1/status: %s", a.Body)
	}
	if out, _, _ := rig.Command(t, dir, "status", "--url", g.URL); !strings.Contains(out, "a has definitions to look at: 1 suspended, 1 frozen (switchboard pins list --changed --server a)") || strings.Contains(out, "b has") {
		t.Errorf("status:\n%s", out)
	}
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	for _, tt := range []struct {
		args string
		want []string // each matches one line, from the newest
	}{
		{"receipts list --kind pin --since 1h", []string{`TIME`, `  pin .*  a: 1 suspended, 1 frozen`, `  pin .*  (a: 3 active|b: 1 active: b/rest)`, `  pin .*  (a: 3 active|b: 1 active: b/rest)`}},
		{"receipts list --tool a/other --json", []string{
			`"named":\[\{"admitted":"d1:[0-9a-f]{64}","class":"narrower","kind":"tool","name":"other","offered":"d1:[0-9a-f]{64}","state":"suspended","why":"its server offers another definition than the admitted one \(narrower: inputSchema\)"\},` +
				`\{"admitted":"d1:[0-9a-f]{64}","class":"words","kind":"tool","name":"work","offered":"d1:[0-9a-f]{64}","state":"frozen","why":"its server offers another definition \(words: description\); the admitted one stays in use"\}\]`,
			`"pins":\{"changes":3,"definitions":3,"named":\[\{"admitted":"d1:[0-9a-f]{64}","kind":"tool","name":"other","state":"active","why":"it is let in at first sight"\}`,
		}},
	} {
		out, errs, code := rig.Command(t, dir, strings.Fields(tt.args)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		ok := code == 0 && len(lines) == len(tt.want)
		for i := range min(len(lines), len(tt.want)) {
			ok = ok && regexp.MustCompile(tt.want[i]).MatchString(lines[i])
		}
		if !ok {
			t.Errorf("%s exits %d:\n%s%s", tt.args, code, out, errs)
		}
	}
	if out, _, code := rig.Command(t, dir, "receipts", "export"); code != 0 || strings.Count(out, `"kind":"pin"`) != 3 {
		t.Errorf("export exits %d:\n%s", code, out)
	}
	g = rig.Serve(t, dir) // with its server, which offers the admitted definitions again
	rig.Eventually(t, "the tools are active again", func() string {
		_, values := g.Metrics()
		return rig.ReasonUnless(values["switchboard_definitions a active"] == 3, fmt.Sprint(values))
	})
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	if out, _, _ := rig.Command(t, dir, "receipts", "list", "--kind", "pin"); strings.Count(out, "  pin ") != 4 || !strings.Contains(out, "a: 2 active") {
		t.Errorf("after a restart:\n%s", out)
	}
	if out, _, code := rig.Command(t, dir, "receipts", "verify"); code != 0 {
		t.Errorf("verify exits %d:\n%s", code, out)
	}
}
