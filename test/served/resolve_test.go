package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// The command, the API and the agent's tool give one verdict, before and after an atom is repaired. CO-08: to a tenant without
// the permission, a capability does not exist.
func TestCO08TheCommandTheAPIAndTheToolGiveOneVerdict(t *testing.T) {
	t.Parallel()
	dir, _, _ := readers(t, true, "one", mayRead+"}\n  other: {servers: [\"*\"]")
	ann, annHash := identity.Mint(identity.AgentPrefix)
	bob, bobHash := identity.Mint(identity.AgentPrefix)
	file := filepath.Join(dir, "tenants", "default", "tenant.yaml")
	// Without a task, clients see Switchboard's own tools.
	rig.WriteFile(t, file, strings.Replace(rig.ReadFile(t, file), "default_task: read\n", "", 1)+fmt.Sprintf("keys: [{id: ann, hash: %q}]\n", annHash))
	rig.WriteFile(t, filepath.Join(dir, "tenants", "other", "tenant.yaml"), fmt.Sprintf("tenant: other\nkeys: [{id: bob, hash: %q}]\n", bobHash))
	rig.WriteFile(t, filepath.Join(dir, "capabilities", "secret.yaml"), "id: cap.secret\nversion: 1.0.0\nstatus: active\nverb: read\nresource: fs\nrequired_permissions: [\"no:one\"]\n")
	addAtom(t, dir, `{kind: key, critical: true, fresh_for: 1h, probe: {file: token}}`)
	token := filepath.Join(dir, "token")
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	g := rig.Serve(t, dir)
	agent, other := g.Open(t, "/mcp", true, "Authorization", "Bearer "+ann), g.Open(t, "/mcp", true, "Authorization", "Bearer "+bob)

	resolve := func(want string, code int, args ...string) {
		t.Helper()
		out, errs, got := rig.Command(t, dir, append([]string{"resolve", "--url", g.URL}, args...)...)
		if out+errs != want || got != code {
			t.Errorf("resolve %q: exit %d, want %d\n%s%swant:\n%s", args, got, code, out, errs, want)
		}
	}
	ask := func(s rig.Session, capability string) rig.Message {
		t.Helper()
		m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"switchboard_status","arguments":{"capability":%q}}`, capability))
		return m
	}
	everywhere := func(want string) {
		t.Helper()
		var list struct{ Verdicts []json.RawMessage }
		a := g.AskAdmin(t, "", "GET", "/v1/resolve?tenant=default&capability=io.fs.read", "")
		if err := json.Unmarshal([]byte(a.Body), &list); err != nil || a.Status != http.StatusOK || len(list.Verdicts) != 1 || string(list.Verdicts[0]) != want {
			t.Errorf("the API: %d %s, want %s", a.Status, a.Body, want)
		}
		if got := ask(agent, "io.fs.read@^1").Text(); got != want {
			t.Errorf("the tool: %s, want %s", got, want)
		}
		out, _, _ := rig.Command(t, dir, "resolve", "--url", g.URL, "--json")
		if got := strings.TrimSpace(out); got != `{"verdicts":[`+want+`]}` {
			t.Errorf("the command: %s, want %s", got, want)
		}
	}

	// A probe may take longer than its 5 s while the machine is busy; the command that comes later then finds its result.
	probe := func(want string, code int, args ...string) {
		t.Helper()
		args = append([]string{"resolve", "--probe", "--url", g.URL}, args...)
		rig.Eventually(t, "resolve --probe says how it is", func() string {
			if out, errs, got := rig.Command(t, dir, args...); out+errs != want || got != code {
				return fmt.Sprintf("exit %d\n%s%s", got, out, errs)
			}
			return ""
		})
	}

	probe("io.fs.read@1.2.0  no\n  blocking  key.token: red\n", 1, "io.fs.read")
	everywhere(`{"capability":"io.fs.read@1.2.0","verdict":"no","blocking":["key.token: red"],"warnings":[],"required_actions":[]}`)
	out, _, code := rig.Command(t, dir, "status", "--url", g.URL)
	if code != 1 || !strings.Contains(out, "\natoms: 1 red\n  key.token: red for ") {
		t.Errorf("status: exit %d\n%s", code, out)
	}
	metrics := g.AskAdmin(t, "", "GET", "/metrics", "").Body
	for _, line := range []string{`switchboard_atoms\{state="red"\} 1`, `switchboard_atoms\{state="fresh"\} 0`, `switchboard_atom_probes_total\{result="failed"\} [1-9]\d*`} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(metrics) {
			t.Errorf("the metrics lack %s", line)
		}
	}

	for query, want := range map[string]int{"": 1, "?tenant=default": 1, "?tenant=other": 0} {
		a := g.AskAdmin(t, "", "GET", "/v1/now"+query, "")
		if got := strings.Count(a.Body, `{"kind":"atom",`); got != want {
			t.Errorf("now%s has %d red atoms, want %d: %s", query, got, want, a.Body)
		}
	}
	if out, _, _ := rig.Command(t, dir, "now", "--url", g.URL); !strings.Contains(out, "atom key.token is red") || !strings.Contains(out, "    switchboard resolve io.fs.read --probe --tenant default\n") {
		t.Errorf("the command now says:\n%s", out)
	}

	rig.WriteFile(t, token, "secret\n")
	probe("io.fs.read@1.2.0  yes\n", 0)
	resolve("io.fs.read@1.2.0  yes\nio.fs.read@1.2.0  yes\n", 0, "io.fs.read", "io.fs.read@^1")
	everywhere(`{"capability":"io.fs.read@1.2.0","verdict":"yes","blocking":[],"warnings":[],"required_actions":[]}`)
	out, _, _ = rig.Command(t, dir, "resolve", "io.fs.read", "--contracts", "--url", g.URL)
	for _, want := range []string{"\n  needs  read fs", "\n  atom  key.token is fresh\n", " from one/"} {
		if !strings.Contains(out, want) {
			t.Errorf("resolve --contracts lacks %q:\n%s", want, out)
		}
	}

	for _, tt := range []struct {
		session        rig.Session
		tenant, exists string
	}{{other, "other", "io.fs.read"}, {agent, "default", "cap.secret"}} {
		same := func(what, known, unknown string) {
			t.Helper()
			if strings.ReplaceAll(known, tt.exists, "cap.nosuch") != unknown || known == unknown {
				t.Errorf("%s, of tenant %s: %s\nand of a capability that nobody has: %s", what, tt.tenant, known, unknown)
			}
		}
		answer := func(capability string) string {
			m := ask(tt.session, capability)
			return rig.Code(m) + " " + m.Text()
		}
		same("the tool", answer(tt.exists), answer("cap.nosuch"))
		api := func(capability string) string {
			a := g.AskAdmin(t, "", "GET", "/v1/resolve?tenant="+tt.tenant+"&capability="+capability, "")
			return fmt.Sprint(a.Status, " ", a.Body)
		}
		same("the API", api(tt.exists), api("cap.nosuch"))
		if got := api(tt.exists); !strings.HasPrefix(got, "400 ") {
			t.Error(got)
		}
	}
	resolve("no capability exists for tenant other\n", 1, "--tenant", "other")
	shown := func(s rig.Session) bool {
		list, _ := s.Ask(t, "tools/list", `{}`)
		return strings.Contains(string(list.Raw), "says how it stands with this capability")
	}
	if !shown(agent) || shown(other) {
		t.Error("the tool shows its argument only where a capability exists")
	}
}
