package served_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// addRule adds a rule to the policy of acme, and returns what removes it again.
func (w *waitingWorld) addRule(t *testing.T, rule string) (remove func()) {
	t.Helper()
	policy := filepath.Join(w.dir, "tenants/acme/policies/own.rego")
	was := rig.ReadFile(t, policy)
	rig.WriteFile(t, policy, was+"\n"+rule+"\n")
	w.Reload(t)
	return func() {
		rig.WriteFile(t, policy, was)
		w.Reload(t)
	}
}

// A policy that fails in the phase approve says no: to the person who says yes, and to the call that would use the yes.
func TestAPolicyThatFailsInThePhaseApproveIsANo(t *testing.T) {
	t.Parallel()
	w := serveWaiting(t, "wait: 1s")
	ci := w.as(t, "ci", "/mcp", true)
	const fails = `deny["a/send"] contains "x" if { input.phase == "approve"; time.parse_rfc3339_ns(input.tenant_id) > 0 }`
	approved, pending := w.ask(t, ci, `{"n":1}`), w.ask(t, ci, `{"n":2}`)
	w.say(t, w.keys["boss"], approved, "approve")
	remove := w.addRule(t, fails)
	if a := w.AskAdmin(t, w.keys["boss"], "POST", "/v1/approvals/"+pending+"/approve", ""); a.Status != http.StatusForbidden || !strings.Contains(a.Body, "SB-POL-002") {
		t.Errorf("the person says yes: %d %s", a.Status, a.Body)
	}
	if code := rig.Call(t, ci, "send", `{"n":1}`); code != "SB-APPR-003" {
		t.Errorf("the call with the yes: %q", code)
	}
	if code := rig.Call(t, ci, "send", `{"n":2}`); code != "SB-APPR-001" || w.made(t) != 0 {
		t.Errorf("the call without a yes: %q; %d were made", code, w.made(t))
	}
	remove()
	if code := rig.Call(t, ci, "send", `{"n":1}`); code != "" || w.made(t) != 1 {
		t.Errorf("the call once policy works again: %q; %d were made", code, w.made(t))
	}
}

// Past its time, neither a request nor a yes counts.
func TestAYesDoesNotCountPastItsTime(t *testing.T) {
	t.Parallel()
	w := serveWaiting(t, "wait: 1s")
	defer w.addRule(t, `obligations["a/send"] contains {"type": "require_approval", "expires": "8s"}`)()
	ci := w.as(t, "ci", "/mcp", true)
	pending, approved := w.ask(t, ci, `{"n":1}`), w.ask(t, ci, `{"n":2}`)
	if a := w.AskAdmin(t, w.keys["boss"], "POST", "/v1/approvals/"+approved+"/approve", ""); a.Status != http.StatusOK {
		wait.Late(t, "the yes came too late: %d %s", a.Status, a.Body)
	}
	wait.For(t, rig.Patience, "both have expired", func() error {
		if a := w.AskAdmin(t, w.keys["boss"], "GET", "/v1/approvals?state=expired&tenant=acme", ""); !strings.Contains(a.Body, pending) || !strings.Contains(a.Body, approved) {
			return fmt.Errorf("expired: %s", a.Body)
		}
		return nil
	})
	if a := w.AskAdmin(t, w.keys["boss"], "POST", "/v1/approvals/"+pending+"/approve", ""); a.Status != http.StatusConflict {
		t.Errorf("a yes past the time: %d %s", a.Status, a.Body)
	}
	for _, id := range []string{pending, approved} {
		if code, m := resume(t, ci, id); code != "SB-APPR-003" {
			t.Errorf("resumed past the time: %.300s", m.Raw)
		}
	}
	for _, arguments := range []string{`{"n":1}`, `{"n":2}`} {
		if id := w.ask(t, ci, arguments); id == pending || id == approved {
			t.Errorf("%s has the request that has expired", arguments)
		}
	}
	if made := w.made(t); made != 0 {
		t.Errorf("%d calls were made", made)
	}
}

// Arguments that do not open are shown to no person, who cannot say yes to them, and no call is made from them.
func TestArgumentsThatDoNotOpenAreNeitherDecidedNorMade(t *testing.T) {
	t.Parallel()
	w := serveWaiting(t, "wait: 1s")
	ci := w.as(t, "ci", "/mcp", true)
	long := func(n int) string { return fmt.Sprintf(`{"n":%d,"long":%q}`, n, strings.Repeat("x", 4<<10)) } // such arguments are a value of their own
	approved, pending := w.ask(t, ci, long(1)), w.ask(t, ci, long(2))
	w.say(t, w.keys["boss"], approved, "approve")
	st, err := store.OpenFile(filepath.Join(w.dir, ".switchboard", "store.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	values, err := st.List(t.Context(), "approval params/acme")
	if err != nil || len(values) != 2 {
		t.Fatalf("%d sealed arguments, %v", len(values), err)
	}
	for _, v := range values {
		v.Data[len(v.Data)/2] ^= 1
		if _, err := st.Apply(t.Context(), store.Change{Group: "approval params/acme", Writes: []store.Write{{Name: v.Name, Was: store.Any, Data: v.Data, TTL: time.Hour}}, Durable: true}); err != nil {
			t.Fatal(err)
		}
	}
	if a := w.AskAdmin(t, w.keys["boss"], "GET", "/v1/approvals/"+pending, ""); a.Status != http.StatusOK || !strings.Contains(a.Body, "do not open") || strings.Contains(a.Body, "xxx") {
		t.Errorf("shown: %d %.500s", a.Status, a.Body)
	}
	if a := w.AskAdmin(t, w.keys["boss"], "POST", "/v1/approvals/"+pending+"/approve", ""); a.Status != http.StatusConflict || !strings.Contains(a.Body, "SB-APPR-003") {
		t.Errorf("a yes to what nobody can read: %d %.500s", a.Status, a.Body)
	}
	w.say(t, w.keys["boss"], pending, "refuse")
	if code, m := resume(t, ci, approved); code != "SB-APPR-003" || w.made(t) != 0 {
		t.Errorf("resumed: %.300s; %d were made", m.Raw, w.made(t))
	}
}

// A call that needs a yes is not made while the store is gone, though a person has said yes.
func TestAYesIsNotUsedWithoutTheStore(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	redis := redistest.Start(t)
	w := layOutWaiting(t, "wait: 1s")
	w.Gateway = overStore(t, w.dir, redis)()
	open := []rig.Session{w.as(t, "ci", "/mcp", true), w.as(t, "ci", "/mcp", false)}
	id := w.ask(t, open[0], `{"n":1}`)
	w.say(t, w.keys["boss"], id, "approve")
	redis.Kill()
	for _, s := range open {
		for name, call := range map[string]string{"the call": `{"name":"send","arguments":{"n":1}}`, "the call, resumed": `{"name":"switchboard_resume","arguments":{"request":"` + id + `"}}`, "another call": `{"name":"send","arguments":{"n":2}}`} {
			if m, _ := s.Ask(t, "tools/call", call); !strings.HasPrefix(rig.Code(m), "SB-") {
				t.Errorf("%s: %.500s", name, m.Raw)
			}
		}
	}
	if made := w.made(t); made != 0 {
		t.Errorf("%d calls were made", made)
	}
}

// A call whose price cannot be told is not sent: a text where the price counts elements, or a price above 2^50 micro-units.
func TestACallThatCannotBePricedIsNotSent(t *testing.T) {
	t.Parallel()
	s := newSpending(t, nil, 0)
	rig.WriteFile(t, filepath.Join(s.dir, "overlays/post.yaml"), "server: post\ntools:\n  post: {price: {call: 0.001, each: {/texts: 0.001, /huge: 1000000000}}}\n")
	g := s.start()
	for _, modern := range []bool{false, true} {
		web := g.Open(t, "/mcp", modern)
		for arguments, want := range map[string]string{
			`"texts":"a"`: "SB-COST-002", `"texts":{"0":"a"}`: "SB-COST-002", `"texts":7`: "SB-COST-002", `"huge":[1,2]`: "SB-COST-002",
			`"texts":[` + strings.Repeat("1,", 600) + `1]`: "SB-COST-001", `"huge":[1]`: "SB-COST-001",
		} {
			m, _ := web.Ask(t, "tools/call", `{"name":"post","arguments":{"id":1,`+arguments+`}}`)
			if rig.Code(m) != want {
				t.Errorf("%.40s: %.400s, want %s", arguments, m.Raw, want)
			}
		}
	}
	if n := s.server.Total(); n != 0 {
		t.Errorf("%d calls were sent", n)
	}
	web := g.Open(t, "/mcp", true)
	if m, _ := web.Ask(t, "tools/call", `{"name":"post","arguments":{"id":1,"texts":["a","b"]}}`); rig.Code(m) != "" {
		t.Errorf("%.400s", m.Raw)
	}
	if settled := s.awaitSettled(); settled != 3*pricedAt || s.server.Total() != 1 {
		t.Errorf("%d is settled, and %d calls are executed", settled, s.server.Total())
	}
}
