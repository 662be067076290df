package served_test

import (
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
)

func TestCO04NothingOutsideTheContractIsSentOrPassedOn(t *testing.T) {
	t.Parallel()
	const output = `{"type": "object", "properties": {"hits": {"type": "integer", "maximum": 9007199254740993}}, "required": ["hits"], "additionalProperties": false}`
	marks := filepath.Join(t.TempDir(), "marks")
	server := httptest.NewServer(fakeserver.New([]string{"modern", "marks=" + marks, fmt.Sprintf(`{"name": "grep", "inputSchema": %s, "outputSchema": %s}`, schema("do", "bytes"), output)}))
	t.Cleanup(server.Close)
	dir := rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
start_deadline: 30s
servers:
  one: {transport: http, url: %q}
tenants:
  default: {servers: ["*"]}
-- capabilities/look.yaml --
id: note.look
version: 1.0.0
status: active
verb: search
resource: fs
constraints: [readonly]
required_tools:
  look: {input_schema: %s, output_schema: %s}
-- overlays/one.yaml --
server: one
provides:
  - {capability: note.look@^1, tools: {look: {tool: grep, constants: {do: result}}}}
-- tenants/default/tenant.yaml --
tenant: default
default_task: work
-- tenants/default/tasks/work.yaml --
task_id: work
required_capabilities: [{capability: note.look@^1}]
`, server.URL, schema("bytes"), output))
	publish(t, dir)
	g := rig.Serve(t, dir)
	sent := 0
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		look := func(result string) rig.Message {
			m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"look","arguments":{"bytes":%q}}`, `{"resultType":"complete","content":[],`+result+`}`))
			sent++
			return m
		}
		for _, bad := range []string{
			`"structuredContent":{"hits":"s3cret"}`, `"structuredContent":{"hits":9007199254740994}`, `"structuredContent":{"hits":1,"more":"s3cret"}`, `"structuredContent":{}`, `"structuredContent":["s3cret"]`, `"_meta":{}`,
		} {
			// Two that fit before each, so that the failures do not quarantine the server.
			for _, good := range []string{`"structuredContent":{"hits":7.0}`, `"structuredContent":{"hits":9007199254740993}`} {
				if m := look(good); !strings.Contains(string(m.Result), good) {
					t.Errorf("%s is not passed on as it is: %s", good, m.Raw)
				}
			}
			if m := look(bad); rig.Code(m) != "SB-EXEC-003" || strings.Contains(string(m.Raw), "s3cret") {
				t.Errorf("%s is answered with %s", bad, m.Raw)
			}
		}
		for _, args := range []string{`{}`, `{"bytes":1}`, `{"bytes":null}`, `{"bytes":"x","do":"error"}`, `{"do":"result"}`, `{"bytes":["x"]}`} {
			if m, _ := s.Ask(t, "tools/call", `{"name":"look","arguments":`+args+`}`); rig.Code(m) != "SB-CAP-003" || !strings.Contains(string(m.Raw), "nothing was sent") {
				t.Errorf("the arguments %s: %s", args, m.Raw)
			}
		}
	}
	if n := lines(t, marks); n != sent {
		t.Errorf("the server got %d calls, want %d", n, sent)
	}
}
