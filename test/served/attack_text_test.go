package served_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// TP-07, PI-01: what deceives readers is taken out of definitions, before anybody sees them, and the status says so. Results are data, and
// stay as they are where nobody wants them cleaned. \u001b and its like stand in raw bytes here: so nothing is hidden in this file.
func TestAttack10DefinitionsDeceiveNobodyAndResultsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	const (
		hidden = `\u001b[31mReads\u001b]52;c;ZXZpbA==\u0007 a\u202e fi\u200ble\u2066.\udb40\udc41\r\nlevel=INFO msg=forged`
		seen   = `Reads a file.\nlevel=INFO msg=forged`
		result = `{"content":[{"type":"text","text":"a\u001b[31mb \ud83d\udc68\u200d\ud83d\udc69"}]}`
	)
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("a server of the modern era: %t", modern), func(t *testing.T) {
			t.Parallel()
			args := []string{
				`{"name":"read","title":"` + hidden + `","description":"` + hidden + `","inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"` + hidden + `"}}},"annotations":{"title":"` + hidden + `"},"n":1.0}`,
				`resources={"uri":"doc://a","name":"n","description":"` + hidden + `"}`, `prompts={"name":"greet","description":"` + hidden + `"}`, "says=" + result,
			}
			if modern {
				args = append(args, "modern")
			}
			clean := strings.TrimSuffix(rig.FakeRow("clean", args...), "}") + ", results: clean}"
			clean = strings.Replace(clean, `\"name\":\"read\"`, `\"name\":\"read2\"`, 1)
			dir := rig.LayOut(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("plain", args...)+"\n  "+clean+"\ntenants:\n  default: {servers: [\"*\"], allow: [by_name]}\n"+
				"-- tenants/default/tenant.yaml --\ntenant: default\ndefault_task: all\n-- tenants/default/tasks/all.yaml --\ntask_id: all\n"+rig.RequireAll)
			rig.Admit(t, dir, "plain", switchboard.PinTool, args[0])
			rig.Admit(t, dir, "clean", switchboard.PinTool, strings.Replace(args[0], `"name":"read"`, `"name":"read2"`, 1))
			for _, server := range []switchboard.ServerID{"plain", "clean"} {
				rig.Admit(t, dir, server, switchboard.PinPrompt, strings.TrimPrefix(args[2], "prompts="))
			}
			g := rig.Serve(t, dir)
			for _, modernClient := range []bool{false, true} {
				s := g.Open(t, "/mcp", modernClient)
				m, _ := s.Ask(t, "tools/list", "")
				want := `"title":"` + seen + `","description":"` + seen + `","inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"` + seen + `"}}},"annotations":{"title":"` + seen + `"},"n":1.0}`
				if !strings.Contains(string(m.Result), `{"name":"read",`+want) {
					t.Errorf("lists %s", m.Result)
				}
				for _, method := range []string{"resources/list", "prompts/list"} {
					if m, _ := s.Ask(t, method, ""); !strings.Contains(string(m.Result), `"description":"`+seen+`"`) {
						t.Errorf("%s: %s", method, m.Result)
					}
				}
				if m, _ := s.Ask(t, "tools/call", `{"name":"read","arguments":{}}`); !strings.Contains(string(m.Result), strings.Trim(result, "{}")) {
					t.Errorf("the result is another: %s", m.Result)
				}
				if m, _ := s.Ask(t, "tools/call", `{"name":"read2","arguments":{}}`); !strings.Contains(string(m.Result), `"text":"ab `) || strings.Contains(string(m.Result), `u001b`) {
					t.Errorf("the result is not clean: %s", m.Result)
				}
			}
			out, errs, code := rig.Command(t, dir, "tools", "--raw", "--url", g.URL)
			if code != 0 || !strings.Contains(out, `{"name":"read","title":"`+seen+`"`) {
				t.Errorf("tools --raw: %d %s %s", code, errs, out)
			}
			out, errs, code = rig.Command(t, dir, "status", "--url", g.URL)
			if code != 0 || !strings.Contains(out, `characters that deceive were removed from the definitions of its tools "read" (`) {
				t.Errorf("status: %d %s %s", code, errs, out)
			}
		})
	}
}
