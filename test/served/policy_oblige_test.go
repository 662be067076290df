package served_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

func TestObligationsAreKeptOnTheWire(t *testing.T) {
	t.Parallel() // it waits for what takes too long
	dir := t.TempDir()
	marks, hang := filepath.Join(dir, "marks"), filepath.Join(dir, "hang")
	args := []string{"marks=" + marks}
	for _, name := range []string{"masked", "slow", "rare", "approved", "told", "noted"} {
		args = append(args, fmt.Sprintf(rig.Tool, name))
	}
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nstart_deadline: 20s\napprovals: {wait: 1s}\nservers:\n  "+
		rig.FakeRow("a", args...)+"\n  "+rig.FakeRow("b", "hang-if="+hang, fmt.Sprintf(rig.Tool, "brief"))+"\nTENANTS\n", "",
		map[string]rig.TenantConfig{"acme": {Rego: rig.AllowAll + `
obligations["a/masked"] contains {"type": "redact", "fields": ["/structuredContent/user/email", "/content/0/text"]}
obligations["a/slow"] contains {"type": "enforce_timeout", "timeout": "700ms"}
obligations["b/brief"] contains {"type": "enforce_timeout", "timeout": "700ms"}
obligations["a/rare"] contains {"type": "rate_limit", "rate": "1/h", "burst": 2}
obligations["a/approved"] contains {"type": "require_approval", "who": ["oncall"]}
obligations["a/told"] contains {"type": "notify", "who": ["oncall"]}
obligations["a/noted"] contains {"type": "log", "level": "error"} if input.call.arguments.q == "classified"
`}})
	clients := h.Clients(t, "acme")
	counted := false
	for _, name := range slices.Sorted(maps.Keys(clients)) {
		s := clients[name]
		call := func(tool, arguments, want string) {
			t.Helper()
			if got := rig.Call(t, s, tool, arguments); got != want {
				t.Errorf("%s: %s: %q, want %q", name, tool, got, want)
			}
		}
		m, _ := s.Ask(t, "tools/call", `{"name":"masked","arguments":{"do":"result","bytes":"{\"content\":[{\"type\":\"text\",\"text\":\"a@b.c\"}],\"structuredContent\" : {\"user\":{\"email\":\"a@b.c\",\"n\":1.0}},\"x\": 2.50}"}}`)
		if got := string(m.Result); !strings.Contains(got, `"content":[{"type":"text","text":"[redacted]"}],"structuredContent" : {"user":{"email":"[redacted]","n":1.0}},"x": 2.50`) || strings.Contains(got, "a@b.c") {
			t.Errorf("%s: masked: %s", name, got)
		}
		// It may have been executed. Where nobody bounds it, the others would wait
		// as long again.
		if call("slow", `{"do":"wait"}`, "SB-EXEC-004"); t.Failed() {
			t.FailNow()
		}
		if !counted { // all who have the store count together, whichever process they are
			call("rare", `{}`, "")
			call("rare", `{}`, "")
			counted = true
		}
		call("rare", `{}`, "SB-ROUT-002")
		call("approved", `{}`, "SB-APPR-001")
		call("told", `{}`, "SB-POL-003")
		call("noted", `{"q":"classified"}`, "")
		call("noted", `{"q":"classified","do":"error","bytes":"{\"code\":-5,\"message\":\"no\"}"}`, "error -5")
	}
	if n := strings.Count(rig.ReadFile(t, marks), "rare"); n != 2 {
		t.Errorf("rare was executed %d times by two processes, want 2", n)
	}
	if got := rig.ReadFile(t, marks); strings.Contains(got, "approved") || strings.Contains(got, "told") {
		t.Errorf("calls were made that nobody may make: %q", got)
	}
	notes := 0
	for line := range strings.Lines(h.Logged()) {
		if strings.Contains(line, "msg=call") && strings.Contains(line, "policy asks for it") {
			notes++
			if !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "tenant=acme principal=someone task=all") || !strings.Contains(line, "tool=a/noted") || strings.Contains(line, "classified") {
				t.Errorf("logged: %s", line)
			}
		}
	}
	if notes != 4 {
		t.Errorf("%d calls were logged over HTTP, want 4", notes)
	}

	for name, s := range clients {
		rig.Eventually(t, "the server of one tool is there for "+name, func() string { return rig.Call(t, s, "brief", `{}`) })
	}
	// What had no connection in time was certainly not executed.
	rig.WriteFile(t, hang, "")
	for _, name := range slices.Sorted(maps.Keys(clients)) {
		if strings.HasSuffix(name, "legacy") {
			if got := rig.Call(t, clients[name], "brief", `{"do":"die"}`); got != "SB-EXEC-004" {
				t.Errorf("%s: a server that died: %s", name, got)
			}
		}
		if got := rig.Call(t, clients[name], "brief", `{}`); got != "SB-EXEC-002" {
			t.Fatalf("%s: a server that does not come back in time: %s", name, got)
		}
	}
}
