package served_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// What a reload takes from a key, it takes from whatever is open: also from a
// request that has begun to come in before.
func TestAReloadThatTakesARoleOrTierReachesWhatIsOpen(t *testing.T) {
	t.Parallel()
	marks := filepath.Join(t.TempDir(), "marks")
	h := inhabit(t, "-- switchboard.yaml --\nservers:\n  "+
		fakeServer("a", "marks="+marks, fmt.Sprintf(tool, "one"), fmt.Sprintf(tool, "two"), fmt.Sprintf(tool, "three"), fmt.Sprintf(tool, "four"))+"\nTENANTS\n",
		", tier: [pro, free], roles: [analyst]", map[string]resident{"acme": {key: "roles: [analyst], tier: pro", rego: allowAll + `
deny["a/two"] contains "x" if not "analyst" in input.principal.roles
deny["a/three"] contains "x" if input.user_tier != "pro"
deny["a/four"] contains "x" if { input.phase == "call"; not "analyst" in input.principal.roles }
`}})
	open := h.clients(t, "acme")
	open["a run of its own"] = h.open(t, "/mcp/runs/"+mint(t, h.gateway, h.keys["acme"], "all"), true, "Authorization", "Bearer "+h.keys["acme"])
	for name, s := range open {
		if got := names(t, s); !slices.Equal(got, []string{"four", "one", "three", "two"}) {
			t.Fatalf("%s lists %q", name, got)
		}
		if got := called(t, s, "two", `{}`); got != "" {
			t.Fatalf("%s: %s", name, got)
		}
	}
	// The list shows it, so that nothing but who is calling can refuse it.
	slow := h.begin(t, "acme", "tools/call", "four", `{"name":"four","arguments":{}}`)

	before := fileOf(t, marks)
	for file, change := range map[string][2]string{
		"switchboard.yaml":         {"tier: [pro, free], roles: [analyst]", "tier: [free]"},
		"tenants/acme/tenant.yaml": {", roles: [analyst], tier: pro", ""},
	} {
		file = filepath.Join(h.dir, file)
		replace(t, file, strings.Replace(fileOf(t, file), change[0], change[1], 1))
	}
	h.reload(t)
	if m := slow(); codeOf(m) != "SB-POL-001" {
		t.Errorf("what began to come in before: %s", m.raw)
	}
	for name, s := range open {
		eventually(t, name+" lists what is left", func() string { // stdio reloads by itself
			if got := names(t, s); !slices.Equal(got, []string{"four", "one"}) {
				return fmt.Sprint(got)
			}
			return ""
		})
		for _, tool := range []string{"two", "three"} {
			if got := called(t, s, tool, `{}`); got != "SB-CAP-001" {
				t.Errorf("%s: %s: %q", name, tool, got)
			}
		}
		if got := called(t, s, "one", `{}`); got != "" {
			t.Errorf("%s: one: %q", name, got)
		}
	}
	if after := strings.TrimPrefix(fileOf(t, marks), before); strings.Trim(after, "one\n") != "" {
		t.Errorf("executed since: %q", after)
	}
}

// begin sends the head of a modern request of a tenant, waits until its sender
// is known and its body is asked for, and returns what sends that.
func (h *house) begin(t *testing.T, tenant, method, name, params string) (end func() message) {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", strings.TrimPrefix(h.url, "http://"))
	wait.Read(t, "a connection", err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, withMeta(params))
	in := bufio.NewReader(conn)
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nMcp-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\nMcp-Name: %s\r\nExpect: 100-continue\r\n\r\n", h.keys[tenant], len(body), method, name)
	resp, err := http.ReadResponse(in, nil) //nolint:bodyclose // it has none
	wait.Read(t, "the answer to the head", err)
	if resp.StatusCode != http.StatusContinue {
		t.Fatal(resp.Status)
	}
	return func() message {
		t.Helper()
		var text []byte
		_, err := io.WriteString(conn, body)
		if err == nil {
			resp, err = http.ReadResponse(in, nil)
		}
		if err == nil {
			defer func() { _ = resp.Body.Close() }()
			text, err = io.ReadAll(resp.Body)
		}
		wait.Read(t, "the answer to the body", err)
		return parse(text)
	}
}

// desk is a server with a tool that reads and one that writes.
func desk(marks string) string {
	return "-- switchboard.yaml --\nservers:\n  " + fakeServer("a", "marks="+marks, fmt.Sprintf(tool, "look"), fmt.Sprintf(tool, "edit")) + "\nTENANTS\n" + `
-- overlays/a.yaml --
server: a
tools:
  look: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}]}
  edit: {capabilities: [{verb: write, resource: fs}]}
`
}

func TestTheModeSaysWhatAnAgentMayDoAlone(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OnlyNarrower)
	marks := filepath.Join(t.TempDir(), "marks")
	h := inhabit(t, desk(marks), "", map[string]resident{
		"free":     {},
		"assists":  {more: "mode: assist\n"},
		"observes": {more: "mode: observe\n"},
		"by-key":   {more: "mode: assist\n", key: "mode: observe"},
	})
	for _, tt := range []struct {
		tenant string
		lists  []string
		edit   string
	}{
		{"assists", []string{"edit", "look"}, "SB-APPR-001"},
		{"observes", []string{"look"}, "SB-CAP-001"},
		{"by-key", []string{"look"}, "SB-CAP-001"},
		{"free", []string{"edit", "look"}, ""},
	} {
		clients := map[string]session{"http/legacy": h.as(tt.tenant, false), "http/modern": h.as(tt.tenant, true)}
		if tt.tenant != "by-key" { // over stdio there is none
			clients = h.clients(t, tt.tenant)
		}
		for name, s := range clients {
			if got := names(t, s); !slices.Equal(got, tt.lists) {
				t.Errorf("%s, %s: it lists %q", tt.tenant, name, got)
			}
			if got := called(t, s, "look", `{}`); got != "" {
				t.Errorf("%s, %s: look: %s", tt.tenant, name, got)
			}
			before := fileOf(t, marks)
			m, _ := s.ask(t, "tools/call", `{"name":"edit","arguments":{}}`)
			if got := codeOf(m); got != tt.edit || (fileOf(t, marks) != before) != (tt.edit == "") {
				t.Errorf("%s, %s: edit: %s, want %q", tt.tenant, name, m.raw, tt.edit)
			}
			if tt.edit == "SB-APPR-001" && !strings.Contains(string(m.Result), `"isError":true`) {
				t.Errorf("%s, %s: the model is not told: %s", tt.tenant, name, m.raw)
			}
		}
	}
}
