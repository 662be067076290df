package served_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A server, a client and an agent write characters that hide, turn or control text wherever they can. No command prints one of them as itself, also into a pipe. JSON
// and the results of tools are data there, and stay as they are.
func TestNoCommandPrintsACharacterThatHides(t *testing.T) {
	t.Parallel()
	const hidden = "a\x1b[31mb\u202ec\u200bd\U000e0041e\u009b2Jf\ue123g\u00adh"
	const h = `"a\u001b[31mb\u202ec\u200bd\udb40\udc41e\u009b2Jf\ue123g\u00adh"` // as JSON of visible characters: the configuration takes no others
	tool := func(name string) string {
		return `{"name":` + name + `,"title":` + h + `,"description":` + h + `,"inputSchema":{"type":"object","properties":{` + h + `:{"type":"string","enum":[` + h + `],"description":` + h + `}}},"annotations":{"title":` + h + `}}`
	}
	row := rig.FakeRow("a", tool(`"work"`), tool(h), tool(`"stop"`),
		`resources={"uri":"doc://`+strings.Trim(h, `"`)+`","name":`+h+`,"description":`+h+`}`, `resourceTemplates={"uriTemplate":"doc://{x}`+strings.Trim(h, `"`)+`","name":`+h+`}`,
		`prompts={"name":`+h+`,"description":`+h+`}`)
	dir := rig.LayOut(t, "-- switchboard.yaml --\napprovals: {wait: 1s}\nservers:\n  "+row+"\ntenants:\n  default: {servers: [\"*\"], allow: [by_name]}\n"+
		"-- policies/all.rego --\npackage switchboard\nallowed_tools contains c.id if some c in input.candidate_tools\nobligations[\"a/stop\"] contains {\"type\": \"require_approval\"}\ndeny[\"a/none\"] contains \"never\" if false\n"+
		"-- tenants/default/tenant.yaml --\ntenant: default\ndefault_task: all\n-- tenants/default/tasks/all.yaml --\ntask_id: all\n"+rig.RequireAll)
	rig.Admit(t, dir, "a", switchboard.PinTool, tool(`"work"`), tool(`"stop"`))
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false)
	rig.Eventually(t, "the tool is there", func() string {
		m, _ := s.Ask(t, "tools/list", "{}")
		return rig.ReasonUnless(strings.Contains(string(m.Result), `"name":"work"`), string(m.Result))
	})
	failure, _ := json.Marshal(fmt.Sprintf(`{"code":-1,"message":%s,"data":%s}`, h, h))
	s.Ask(t, "tools/call", `{"name":"work","arguments":{"do":"error","bytes":`+string(failure)+`}}`)
	result, _ := json.Marshal(`{"content":[{"type":"text","text":` + h + `}],"isError":true}`)
	s.Ask(t, "tools/call", `{"name":"work","arguments":{"do":"result","bytes":`+string(result)+`}}`)
	s.Ask(t, "tools/call", `{"name":`+h+`,"arguments":{}}`)
	s.Ask(t, "tools/call", `{"name":"stop","arguments":{`+h+`:`+h+`}}`) // somebody must say yes
	var waiting struct{ Approvals []struct{ ID string } }
	if a := g.AskAdmin(t, "", "GET", "/v1/approvals", ""); json.Unmarshal([]byte(a.Body), &waiting) != nil || len(waiting.Approvals) != 1 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	at := []string{"--url", g.URL}
	arguments, _ := json.Marshal(map[string]string{"do": "result", "bytes": `{"content":[{"type":"text","text":` + h + `}]}`})
	shown := map[string]bool{}
	for _, command := range [][]string{
		append([]string{"status"}, at...), append([]string{"tools"}, at...), append([]string{"search", "work"}, at...), append([]string{"explain", "all"}, at...),
		append([]string{"explain", "all", "--tool", "a/work"}, at...), append([]string{"explain", "all", "--tool", "a/" + hidden}, at...), append([]string{"call", "work", string(arguments)}, at...),
		append([]string{"call", hidden}, at...), append([]string{"tasks"}, at...), append([]string{"runs"}, at...), append([]string{"decisions", "list"}, at...), append([]string{"receipts", "list"}, at...),
		append([]string{"approvals", "list"}, at...), append([]string{"approvals", "show", waiting.Approvals[0].ID}, at...), append([]string{"now"}, at...), append([]string{"server", "list"}, at...),
		append([]string{"pins", "list"}, at...), append([]string{"annotate", "a"}, at...), append([]string{"budget"}, at...),
		{"doctor"},
		{"logs"},
		{"validate"},
		{"status", hidden},
		{"help", hidden},
		{"docs", hidden},
	} {
		out, errs, _ := rig.Command(t, dir, command...)
		if command[0] == "call" {
			out = "" // data in a pipe
		}
		for _, text := range []string{out, errs} {
			if spelt := scan.SpellLines(text); spelt != text {
				t.Errorf("%q prints a character that hides:\n%q", command, text)
			}
			if strings.Contains(text, `\u{202e}`) {
				shown[command[0]] = true
			}
		}
	}
	// The test is worth nothing if no command shows what others wrote.
	for _, command := range []string{"approvals", "explain", "logs", "status"} {
		if !shown[command] {
			t.Errorf("%s shows nothing of what others wrote; %v do", command, shown)
		}
	}
	if log := g.Logged(); scan.SpellLines(log) != log {
		t.Errorf("the log has a character that hides: %q", log)
	}
	if text := rig.ReadFile(t, filepath.Join(dir, "switchboard.yaml")); !strings.Contains(text, "u202e") {
		t.Errorf("the server does not get the characters: %s", text)
	}
}
