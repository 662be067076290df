package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

const standingTests = `{"/to": {"in": ["ops@x.org"]}, "/n": {"equals": 1}, "/body": "any"}`

// do runs a command about approvals as an officer, and returns what it prints. Its exit code must be code.
func (w *decideWorld) do(t *testing.T, who string, code int, want string, args ...string) string {
	t.Helper()
	out, errs, got := rig.CommandAs(t, t.TempDir(), w.keys[who], append(append([]string{"approvals"}, args...), "--url", w.AdminURL())...)
	if got != code || !regexp.MustCompile(want).MatchString(out+errs) {
		t.Errorf("%q as %s: exit %d\n%s%s", args, who, got, out, errs)
	}
	return out
}

var standingID = regexp.MustCompile(`[a-z2-7]{16}`)

// AP-11: a standing yes spares the asking for what it names and as often as it says, also when Switchboard is killed meanwhile.
func TestAP11AStandingYesSparesTheAskingAndNothingElse(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OnlyNarrower)
	w := serveDeciders(t, "1s, standing: 8h")
	s := w.as(t, "agent")
	id := w.ask(t, s, "mail", `{"to":"ops@x.org","n":1,"body":"one"}`)
	make := func(who, request string, code int, want string, more ...string) string {
		t.Helper()
		args := []string{"standing", "make", request, "--uses", "3", "--for", "1h", "--arguments", standingTests}
		return w.do(t, who, code, want, append(args, more...)...)
	}
	make("viewer", id, 1, "SB-AUTH-002")
	make("uma", id, 2, "no request of that id")
	make("max", id, 1, "do not pass", "--arguments", `{"/to": "any"}`)
	make("max", id, 1, "the operator allows", "--for", "9h")
	make("max", id, 1, "within that of", "--arguments", `{"/to": "any", "/to/x": "any"}`)
	make("max", id, 2, "is not JSON", "--arguments", `{`)
	mine := w.ask(t, w.as(t, "agent of lea"), "mail", `{"to":"ops@x.org","n":1}`)
	make("lea", mine, 1, "yourself")
	both := w.ask(t, s, "pay", `{"to":"ops@x.org","n":1}`)
	make("max", both, 1, "2 persons")
	w.do(t, "lea", 0, "^there is no standing yes\n$", "standing", "list")

	yes := standingID.FindString(make("lea", id, 0, "no person is asked about 3 calls of a/mail by alice"))
	if n := w.calls(t); n != 0 {
		t.Fatalf("%d calls were made without a yes", n)
	}
	t.Run("asks", func(t *testing.T) { // each waits for a person
		asks := func(name, who, tool, arguments string) {
			t.Run(name, func(t *testing.T) { // not in parallel: it would wait for all other tests
				if other := w.ask(t, w.as(t, who), tool, arguments); other == id {
					t.Error("it is the request that the standing yes was made from")
				}
			})
		}
		asks("an argument that is not named", "agent", "mail", `{"to":"ops@x.org","n":1,"cc":"eve@y.org"}`)
		asks("another value", "agent", "mail", `{"to":"eve@y.org","n":1}`)
		asks("a value with ..", "agent", "mail", `{"to":"ops@x.org/../eve@y.org","n":1}`)
		asks("a name with ..", "agent", "mail", `{"to":"ops@x.org","n":1,"..":{"to":"eve@y.org"}}`)
		asks("a number spelt otherwise", "agent", "mail", `{"to":"ops@x.org","n":1.0}`)
		asks("less", "agent", "mail", `{"n":1}`)
		asks("nothing", "agent", "mail", `{}`)
		asks("another principal", "agent of lea", "mail", `{"to":"ops@x.org","n":1,"body":"x"}`)
		asks("another tool", "agent", "fire", `{"to":"ops@x.org","n":1}`)
	})
	for i := range 2 {
		if code := rig.Call(t, s, "mail", fmt.Sprintf(`{"n":1,"to":"ops@x.org","body":"use %d"}`, i)); code != "" {
			t.Errorf("use %d: %s", i+1, code)
		}
	}
	if err := w.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = w.Cmd.Wait() // it was killed
	logged := w.Logged()
	w.Gateway = rig.Serve(t, w.dir)
	s = w.as(t, "agent")
	if code := rig.Call(t, s, "mail", `{"n":1,"to":"ops@x.org"}`); code != "" {
		t.Errorf("the last use: %s", code)
	}
	w.ask(t, s, "mail", `{"n":1,"to":"ops@x.org","body":"uses+1"}`)
	if n := w.calls(t); n != 3 {
		t.Errorf("%d calls were made, want 3", n)
	}
	w.do(t, "lea", 0, yes+` +3 of 3 +acme +alice +all +a/mail +[0-9: -]+ UTC, over +lea +\{.*ops@x.org`, "standing", "list")
	if list := w.do(t, "viewer", 0, `"used":3`, "standing", "list", "--json"); strings.Contains(list, "ops@x.org") {
		t.Errorf("a viewer sees arguments: %s", list)
	}
	receipts := w.AskAdmin(t, w.keys["admin"], http.MethodGet, "/v1/receipts?tenant=acme&limit=100", "").Body
	if n := strings.Count(receipts, `"standing":"`+yes+`"`); n < 3 || !strings.Contains(receipts, "arguments: /body /n /to") {
		t.Errorf("%d receipts name the standing yes:\n%s", n, receipts)
	}
	for what, text := range map[string]string{"the log": logged + w.Logged(), "the receipts": receipts} {
		if strings.Contains(text, "ops@x.org") {
			t.Errorf("%s has an argument", what)
		}
	}
}

func TestAStandingYesEndsByAPersonAtOnce(t *testing.T) {
	t.Parallel()
	w := serveDeciders(t, "1s, standing: 8h")
	s := w.as(t, "agent")
	id := w.ask(t, s, "mail", `{"a":1}`)
	yes := standingID.FindString(w.do(t, "lea", 0, "no person is asked", "standing", "make", id, "--uses", "100", "--for", "8h", "--arguments", `{"/a": "any"}`))
	if code := rig.Call(t, s, "mail", `{"a":2}`); code != "" {
		t.Fatal(code)
	}
	w.do(t, "viewer", 1, "SB-AUTH-002", "standing", "end", yes)
	w.do(t, "uma", 2, "no standing approval of that id", "standing", "end", yes)
	w.do(t, "max", 2, "no standing approval of that id", "standing", "end", "abcdefghijklmnop")
	w.do(t, "max", 0, yes+" has ended, after 1 of 100 uses", "standing", "end", yes, "--tenant", "acme")
	w.ask(t, s, "mail", `{"a":3}`)
	if n := w.calls(t); n != 1 {
		t.Errorf("%d calls were made", n)
	}
}

func TestWithoutTheOperatorsWordThereIsNoStandingYes(t *testing.T) {
	t.Parallel()
	w := serveDeciders(t, "1s")
	id := w.ask(t, w.as(t, "agent"), "mail", `{"a":1}`)
	w.do(t, "lea", 1, "allows no standing yes", "standing", "make", id, "--uses", "1", "--for", "1m", "--arguments", `{"/a": "any"}`)
}

// People are told of a request, and of what has become of it, without the arguments.
func TestPeopleAreToldOfRequestsForApproval(t *testing.T) {
	t.Parallel()
	o := newOncall(t)
	w := serveDeciders(t, "1s")
	before := w.Reloads(rig.Reloaded)
	rig.WriteFile(t, filepath.Join(w.dir, "whsec"), noticeSecret)
	name := filepath.Join(w.dir, "switchboard.yaml")
	rig.ReplaceFile(t, name, rig.ReadFile(t, name)+"notify: {oncall: {url: \""+o.URL+"\", secret: \"${file:whsec}\"}}\n")
	w.AwaitReload(t, before, rig.Reloaded)
	s := w.as(t, "agent")
	id := w.ask(t, s, "mail", `{"planted":"argument"}`)
	for range 5 { // the same request
		if again := w.ask(t, s, "mail", `{"planted":"argument"}`); again != id {
			t.Errorf("another request: %s", again)
		}
	}
	if a := w.say(t, "lea", id, "refuse", ""); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	var told []string
	for _, body := range o.await(t, 2) {
		var n struct {
			Type string
			Data struct{ Tenant, Principal, Tool, Request, State, By string }
		}
		if err := json.Unmarshal([]byte(body), &n); err != nil || strings.Contains(body, "planted") || strings.Contains(body, "says lea") ||
			n.Data.Tenant != "acme" || n.Data.Principal != "alice" || n.Data.Tool != "a/mail" || n.Data.Request != id {
			t.Errorf("%s, %v", body, err)
		}
		told = append(told, n.Type+" "+n.Data.State+n.Data.By)
	}
	if all := strings.Join(told, ","); all != "approval.requested ,approval.decided refusedlea" && all != "approval.decided refusedlea,approval.requested " {
		t.Errorf("told: %s", all)
	}
}
