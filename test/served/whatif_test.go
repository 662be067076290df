package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// proposed returns the body of a request that compares one file.
func proposed(t *testing.T, path, text string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"files": []any{map[string]string{"path": path, "text": text}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// whatIf is a comparison as the API gives it.
type whatIf struct {
	ID, State, Why string
	Looked         int `json:"looked_at"`
	Of             int
	Result         *diff
}

const ownPolicy = "tenants/acme/policies/own.rego"

// checkRuleCounts checks how often each rule held, which officers of the tenant may read.
func checkRuleCounts(t *testing.T, g *rig.Gateway, keys officers) {
	t.Helper()
	const at = "/v1/tenants/acme/policies/rules"
	type row struct {
		File, Layer, Rule, Answer string
		Line, Decisions           int
	}
	count := func(who string) (rows []row) {
		t.Helper()
		a := g.AskAdmin(t, keys[who], "GET", at, "")
		var got struct {
			Looked struct {
				LookedAt int `json:"looked_at"`
				Of       int
			}
			Rules []row
		}
		if err := json.Unmarshal([]byte(a.Body), &got); err != nil || a.Status != http.StatusOK || got.Looked.Of != 2 || got.Looked.LookedAt != 2 {
			t.Fatalf("%s: %d %s", who, a.Status, a.Body)
		}
		return got.Rules
	}
	own := func(rows []row) []row {
		return slices.DeleteFunc(rows, func(r row) bool { return r.Layer != "tenant" })
	}
	viewers := count("viewer")
	want := []row{ // the decision on the task, and that on the call
		{ownPolicy, "tenant", "allowed_tools", "allowed_tools", 3, 2},
		{ownPolicy, "tenant", "deny", "deny", 5, 1},
	}
	for i := range want {
		want[i].Line = 0
	}
	got := slices.Clone(viewers)
	for i := range got {
		got[i].Line = 0
	}
	if !slices.Equal(got, want) {
		t.Errorf("a viewer reads %+v, want %+v", viewers, want)
	}
	all := count("operator")
	if n := len(all); n < 20 || all[n-1].Decisions != 0 || len(own(all)) != 2 {
		t.Errorf("the operator reads %d rules: %+v", n, all)
	}
	if a := g.AskAdmin(t, keys["other admin"], "GET", at, ""); a.Status != http.StatusNotFound {
		t.Errorf("another tenant's admin: %d %s", a.Status, a.Body)
	}
	if a := g.AskAdmin(t, keys["viewer"], "GET", at+"?since=2100-01-01T00:00:00Z", ""); !strings.Contains(a.Body, `"of":0`) || strings.Contains(a.Body, `"decisions":1`) {
		t.Errorf("since an instant to come: %s", a.Body)
	}
}

// checkTrialOnADecision evaluates a proposed file for the input of the recorded decision on the task, with the values of its expressions.
func checkTrialOnADecision(t *testing.T, g *rig.Gateway, keys officers) {
	t.Helper()
	var page struct{ Decisions []struct{ ID string } }
	a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/decisions", "")
	if err := json.Unmarshal([]byte(a.Body), &page); err != nil || len(page.Decisions) != 1 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	try := func(who, decision, rest string) rig.Answer {
		text, err := json.Marshal(withoutTool("work", "no work"))
		if err != nil {
			t.Fatal(err)
		}
		return g.AskAdmin(t, keys[who], "POST", "/v1/policies/eval?tenant=acme", fmt.Sprintf(`{"decision":%q,"expressions":true,"files":[{"path":"own.rego","text":%s}]%s}`, decision, text, rest))
	}
	id := page.Decisions[0].ID
	a = try("author", id, "")
	for _, want := range []string{`"id":"a/work","allowed":false`, "no work", `"line":7,"column":2,"text":"c.tool == \"work\"","held":1,"failed":0`, `"phase":"select"`} {
		if a.Status != http.StatusOK || !strings.Contains(a.Body, want) {
			t.Errorf("%d, and it lacks %s: %s", a.Status, want, a.Body)
		}
	}
	if a = try("author", id, `,"input":{"phase":"call","call":{"arguments":{"n":12345678901234567890}}}`); !strings.Contains(a.Body, `"phase":"call"`) || !strings.Contains(a.Body, "12345678901234567890") {
		t.Errorf("as a call: %d %s", a.Status, a.Body)
	}
	if a = try("operator", id, ""); !strings.Contains(a.Body, `"layer":"operator","rules"`) || strings.Count(a.Body, `"expressions"`) != 2 {
		t.Errorf("the operator: %d %s", a.Status, a.Body)
	}
	for _, tt := range []struct {
		who, decision, rest string
		status              int
	}{
		{"author", id, `,"requirement":9`, 400}, {"author", "none/1", "", 404}, {"author", "none", "", 400}, {"viewer", id, "", 403}, {"other admin", id, "", 404},
	} {
		if a := try(tt.who, tt.decision, tt.rest); a.Status != tt.status {
			t.Errorf("%+v: %d %s", tt, a.Status, a.Body)
		}
	}
}

// An officer compares a proposal with what was decided in its tenant, and sees no values of calls.
func TestAnOfficerComparesAProposalWithTheDecisionsOfItsTenant(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := layOutOfficers(t)
	tenant := filepath.Join(dir, "tenants/acme/tenant.yaml")
	rig.WriteFile(t, tenant, rig.ReadFile(t, tenant)+"record: policy_inputs\n")
	rig.WriteFile(t, filepath.Join(dir, ownPolicy), "package switchboard.tenant\n"+pathRule)
	g := rig.Serve(t, dir)
	client, other := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"]), g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["other agent"])
	rig.Call(t, other, "work", `{}`)
	if got := rig.Call(t, client, "work", `{"path":"/home/ann"}`); got != "SB-POL-001" {
		t.Fatalf("the call: %q", got)
	}
	rig.Eventually(t, "the decision is recorded", func() string {
		a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/decisions", "")
		calls := g.AskAdmin(t, keys["viewer"], "GET", "/v1/receipts?kind=call", "")
		if !strings.Contains(a.Body, `"id"`) || !strings.Contains(calls.Body, `"rulings"`) {
			return a.Body + calls.Body
		}
		return ""
	})
	read := func(who, location string) (c whatIf, body string) {
		t.Helper()
		rig.Eventually(t, "the comparison ends", func() string {
			a := g.AskAdmin(t, keys[who], "GET", location, "")
			body, c = a.Body, whatIf{}
			if err := json.Unmarshal([]byte(a.Body), &c); err != nil || a.Status != http.StatusOK || c.State == "running" {
				return fmt.Sprint(a.Status, a.Body)
			}
			return ""
		})
		return c, body
	}
	start := func(who, query, body string) (location string) {
		t.Helper()
		a := g.AskAdmin(t, keys[who], "POST", "/v1/policy-diffs"+query, body)
		location = a.Header.Get("Location")
		if a.Status != http.StatusAccepted || !strings.HasPrefix(location, "/v1/policy-diffs/") || !strings.Contains(a.Body, `"state":"running"`) {
			t.Fatalf("%d %q %s", a.Status, location, a.Body)
		}
		return location
	}
	// A laxer rule: the call would have been allowed.
	lax := proposed(t, ownPolicy, "package switchboard.tenant\n"+rig.AllowAll)
	at := start("author", "", lax)
	c, body := read("viewer", at)
	if c.State != "done" || c.Looked != 2 || c.Of != 2 || c.Result == nil || c.Result.Decisions != 2 || c.Result.Calls != 1 || c.Result.Changed != 1 {
		t.Errorf("the author gets %s", body)
	}
	if !strings.Contains(body, `"why":"SB-POL-001"`) || strings.Contains(body, "/home/ann") || strings.Contains(body, "umbrella") {
		t.Errorf("a viewer reads a value of a call, or of another tenant: %s", body)
	}
	if !strings.Contains(body, `"callers":[{"tenant":"acme","principal":"`) {
		t.Errorf("the caller of the decision that would change is not named: %s", body)
	}
	checkRuleCounts(t, g, keys)
	checkTrialOnADecision(t, g, keys)
	if _, body := read("operator", start("operator", "", lax)); !strings.Contains(body, "/home/ann") {
		t.Errorf("the operator gets %s", body)
	}
	if a := g.AskAdmin(t, keys["other admin"], "GET", strings.TrimSuffix(at, "?tenant=acme"), ""); a.Status != http.StatusNotFound {
		t.Errorf("another tenant's admin: %d %s", a.Status, a.Body)
	}
	if a := g.AskAdmin(t, keys["viewer"], "DELETE", at, ""); a.Status != http.StatusForbidden {
		t.Errorf("a viewer cancels: %d %s", a.Status, a.Body)
	}
	if a := g.AskAdmin(t, keys["author"], "DELETE", at, ""); a.Status != http.StatusNoContent {
		t.Errorf("the author cancels: %d %s", a.Status, a.Body)
	}
	if a := g.AskAdmin(t, keys["author"], "GET", at, ""); a.Status != http.StatusNotFound {
		t.Errorf("what was cancelled: %d %s", a.Status, a.Body)
	}
	// A file that is no policy: the whole configuration.
	task := proposed(t, allTask, "task_id: all\nrequired_capabilities: [{tools: [\"a/none\"]}]\n")
	if c, body := read("admin", start("admin", "", task)); c.State != "done" || c.Result.Changed != 1 || !strings.Contains(body, `"change":"refused"`) {
		t.Errorf("another task: %s", body)
	}
	for _, tt := range []struct {
		name, who, body string
		status          int
	}{
		{"a task, by an author", "author", task, 403},
		{"a file of the operator", "author", proposed(t, "policies/x.rego", "package switchboard\n"), 404},
		{"a file of another tenant", "operator", proposed(t, "tenants/umbrella/tasks/all.yaml", "x"), 400},
		{"the operator's layer", "author", `{"layers":[{"files":[{"path":"x.rego","text":"package switchboard\n"}]}]}`, 403},
		{"another tenant's layer", "author", `{"layers":[{"tenant":"umbrella","files":[]}]}`, 400},
		{"a layer that does not compile", "author", `{"layers":[{"tenant":"acme","files":[{"path":"x.rego","text":"package switchboard.tenant\nallowed_tools contains"}]}]}`, 422},
		{"a task with a fault", "admin", proposed(t, allTask, "task_id: other\n"), 422},
		{"a path that leads out", "author", `{"layers":[{"tenant":"acme","files":[{"path":"../x.rego","text":""}]}]}`, 400},
		{"a receipt that does not exist", "author", `{"receipt":"n1/999999999"}`, 404},
		{"by a viewer", "viewer", lax, 403},
		{"by another tenant's admin", "other admin", lax, 404},
	} {
		if a := g.AskAdmin(t, keys[tt.who], "POST", "/v1/policy-diffs?tenant=acme", tt.body); a.Status != tt.status {
			t.Errorf("%s: %d, want %d: %s", tt.name, a.Status, tt.status, a.Body)
		}
	}
	// The receipt of another tenant is as one that does not exist.
	replay := func(who, query, receipt string) rig.Answer {
		return g.AskAdmin(t, keys[who], "POST", "/v1/policy-diffs"+query, `{"receipt":"`+receipt+`"}`)
	}
	var of struct{ Receipts []struct{ ID string } }
	if a := g.AskAdmin(t, keys["operator"], "GET", "/v1/receipts?tenant=umbrella&kind=call", ""); json.Unmarshal([]byte(a.Body), &of) != nil || len(of.Receipts) != 1 {
		t.Fatalf("the receipts of umbrella: %s", a.Body)
	}
	foreign := of.Receipts[0].ID
	if got, want := replay("author", "", foreign), replay("author", "", "n1/999999999"); got.Status != http.StatusNotFound || got.Body != want.Body {
		t.Errorf("another tenant's receipt: %d %s, and one that does not exist: %s", got.Status, got.Body, want.Body)
	}
	if a := replay("operator", "?tenant=acme", foreign); a.Status != http.StatusNotFound {
		t.Errorf("the operator, about the wrong tenant: %d %s", a.Status, a.Body)
	}
	for _, query := range []string{"", "?tenant=umbrella"} {
		a := replay("operator", query, foreign)
		if a.Status != http.StatusAccepted {
			t.Fatalf("the operator%s: %d %s", query, a.Status, a.Body)
		}
		if c, body := read("operator", a.Header.Get("Location")); c.State != "done" || c.Looked != 1 {
			t.Errorf("the operator%s gets %s", query, body)
		}
	}
	// From another machine, by the command.
	rig.WriteFile(t, filepath.Join(dir, "lax.rego"), "package switchboard.tenant\n"+rig.AllowAll)
	out, errs, code := rig.CommandAs(t, dir, keys["author"], "policy", "diff", "--url", g.AdminURL(), "--tenant", "acme", "--against", "lax.rego", "--store", "")
	if code != 0 && code != 1 || !strings.Contains(out, "2 decisions, of which 1 on calls") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	// A stop does not wait for comparisons.
	for range 2 {
		start("author", "", lax)
	}
	g.Signal(t, syscall.SIGTERM)
	if took := g.AwaitEnd(t); took > 20*time.Second {
		t.Errorf("the stop took %v", took)
	}
}
