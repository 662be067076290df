package served_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// A person looks at a change, lets exactly that in, takes the tool out, and lets it in again. The decisions are lines of admitted.lock.
func TestAPersonLetsAChangeInAndTakesAToolOut(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", admittedWork, turnTool)+"\n")
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false)
	lists := func(want string) {
		t.Helper()
		rig.Eventually(t, "the client lists "+want, func() string {
			m, _ := s.Ask(t, "tools/list", "{}")
			return rig.ReasonUnless(strings.Contains(string(m.Result), want), string(m.Result))
		})
	}
	pins := func(args ...string) (out string, code int) {
		t.Helper()
		out, errs, code := rig.Command(t, dir, append(append([]string{"pins"}, args...), "--url", g.URL)...)
		return out + errs, code
	}
	lists("does work.")
	s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"turn","arguments":{"do":"replace","bytes":%q}}`, strings.Replace(admittedWork, "does work.", "works \u202eevil.", 1)))
	var digest string
	rig.Eventually(t, "the change can be looked at", func() string {
		out, _ := pins("diff", "a/work")
		if m := regexp.MustCompile(`--digest (d1:[0-9a-f]{64})`).FindStringSubmatch(out); m != nil {
			digest = m[1]
		}
		return rig.ReasonUnless(digest != "" && strings.Contains(out, `-  "description": "does work.`) && strings.Contains(out, `+  "description": "works evil.`), out)
	})
	if out, _ := pins("list", "--changed"); !strings.Contains(out, "a/work") || strings.Contains(out, "a/turn") {
		t.Errorf("the changed definitions are\n%s", out)
	}
	if a := g.AskAdmin(t, "", http.MethodGet, "/v1/pins/one?server=a&name=work", ""); !strings.Contains(a.Body, `"finding":"bidi"`) || !strings.Contains(a.Body, `"blocks":true,"where":"description","text":"works \\u{202e}evil.`) {
		t.Errorf("what the server has sent is not shown: %s", a.Body)
	}
	if a := g.AskAdmin(t, "", http.MethodGet, "/v1/pins?state=suspended&kind=tool", ""); !strings.Contains(a.Body, `"name":"work"`) || !strings.Contains(a.Body, `"total":1,"needs_person":1`) {
		t.Errorf("the suspended tools are %s", a.Body)
	}
	if out, _ := pins("list", "--state", "frozen"); !strings.Contains(out, "there is no such definition") {
		t.Errorf("the frozen definitions are\n%s", out)
	}
	other := "d1:" + strings.Repeat("0", 64)
	if a := g.AskAdmin(t, "", http.MethodPost, "/v1/pins/accept?server=a&name=work", `{"digest":"`+other+`"}`); a.Status != http.StatusPreconditionFailed || !strings.Contains(a.Body, "SB-CONF-002") {
		t.Errorf("a definition that was not looked at is answered %d %s", a.Status, a.Body)
	}
	for _, path := range []string{"accept", "suspend", "retire", "deprecate"} {
		if a := g.AskAdmin(t, "", http.MethodPost, "/v1/pins/"+path+"?server=a&name=nosuch", `{"digest":"`+other+`"}`); a.Status != http.StatusNotFound || !strings.Contains(a.Body, "no server here offers a/nosuch") {
			t.Errorf("to %s a tool that no server offers: %d %s", path, a.Status, a.Body)
		}
	}
	if a := g.AskAdmin(t, "", http.MethodPost, "/v1/pins/deprecate?server=a&name=work", `{"successor":"work"}`); a.Status != http.StatusBadRequest || !strings.Contains(a.Body, "SERVER/TOOL") {
		t.Errorf("a successor without a server: %d %s", a.Status, a.Body)
	}
	if out, code := pins("accept", "a/work", "--digest", digest); code != 0 || !strings.Contains(out, "a/work is active now") {
		t.Fatalf("exit %d: %s", code, out)
	}
	lists("works evil.")
	if out, code := pins("accept", "a/work", "--digest", digest); code == 0 || !strings.Contains(out, "SB-CONF-002") {
		t.Errorf("to accept it again: exit %d: %s", code, out)
	}
	if lock := rig.ReadFile(t, dir+"/admitted.lock"); !strings.Contains(lock, "a/work active ") || !strings.Contains(lock, digest) {
		t.Errorf("admitted.lock is\n%s", lock)
	}
	if out, code := pins("suspend", "a/work", "--reason", "it has lied"); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	rig.Eventually(t, "a suspended tool is not called", func() string {
		m, _ := s.Ask(t, "tools/call", `{"name":"work","arguments":{}}`)
		return rig.ReasonUnless(strings.Contains(string(m.Raw), "SB-LIFE-001"), string(m.Raw))
	})
	if out, code := pins("accept", "a/work", "--digest", digest); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	lists("works evil.")
}
