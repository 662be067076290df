package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// pricedOfficers is the world of layOutOfficers with a price, and with budgets of the operator, of acme and of its task.
func pricedOfficers(t *testing.T) (dir string, keys officers) {
	t.Helper()
	dir, keys = layOutOfficers(t)
	rig.WriteFile(t, dir+"/overlays/a.yaml", "server: a\ntools:\n  work: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}], price: {call: 2.50}}\n")
	text := rig.ReadFile(t, dir+"/switchboard.yaml")
	rig.WriteFile(t, dir+"/switchboard.yaml", "currency: EUR\nbudgets: [{id: all, limit: 100, window: month}]\n"+text)
	rig.WriteFile(t, dir+"/tenants/acme/tenant.yaml", rig.ReadFile(t, dir+"/tenants/acme/tenant.yaml")+
		"budgets:\n  - {id: paid, match: {cost_class: [metered]}, per: principal, limit: 10.00, window: month, zone: Europe/Berlin}\n")
	rig.WriteFile(t, dir+"/tenants/acme/tasks/all.yaml", "task_id: all\nbudgets: [{id: calls, limit: {calls: 500}, window: forever}]\nrequired_capabilities: [{tools: [\"*/*\"]}]\n")
	return dir, keys
}

func TestBudgetsAreShownTriedOutAndCorrected(t *testing.T) {
	t.Parallel()
	dir, keys := pricedOfficers(t)
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])
	for range 3 {
		rig.Call(t, s, "work", "{}")
	}
	status := func(who string) (rows map[string]budget.StatementRow) {
		answer := g.AskAdmin(t, keys[who], http.MethodGet, "/v1/budgets?tenant=acme", "")
		var list struct{ Budgets []budget.StatementRow }
		if err := json.Unmarshal([]byte(answer.Body), &list); err != nil || answer.Status != http.StatusOK {
			t.Fatal(answer, err)
		}
		rows = map[string]budget.StatementRow{}
		for _, r := range list.Budgets {
			rows[r.Budget] = r
		}
		return rows
	}
	wait.For(t, rig.Patience, "the settlements and receipts of three calls", func() error {
		if r := status("viewer")["tenant/paid"]; r.Settled != "7.50" || r.Pace.Day != "7.50" {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	rows := status("viewer")
	for name, want := range map[string]string{"operator/all": "7.50 0.00 92.50 EUR", "tenant/paid": "7.50 0.00 2.50 EUR", "task/all/calls": "3 0 497 calls"} {
		r := rows[name]
		if got := fmt.Sprint(r.Settled, " ", r.Held, " ", r.Left, " ", r.Unit); got != want || r.At == "" {
			t.Errorf("%s: %s, want %s: %+v", name, got, want, r)
		}
	}
	// 2.50 last for 8 h at that pace, unless the month ends before.
	r, ends := rows["tenant/paid"], 8*time.Hour-time.Until(rows["tenant/paid"].Until)
	if r.Of != "alice" || r.Pace.Day != "7.50" || ends.Abs() > time.Minute && r.Pace.DayUsedUp.IsZero() != (ends > 0) {
		t.Errorf("the account of alice: %+v", r)
	}
	metrics := g.AskAdmin(t, keys["viewer"], http.MethodGet, "/metrics?tenant=acme", "").Body
	for _, line := range []string{
		`switchboard_budget_settled{budget="tenant/paid",tenant="acme",unit="EUR"} 7.5`,
		`switchboard_budget_limit{budget="operator/all",tenant="acme",unit="EUR"} 100`,
		`switchboard_budget_held{budget="task/all/calls",tenant="acme",unit="calls"} 0`,
	} {
		if !strings.Contains(metrics, "\n"+line+"\n") {
			t.Errorf("no metric %s in\n%s", line, metrics)
		}
	}
	if other := g.AskAdmin(t, keys["other admin"], http.MethodGet, "/metrics?tenant=umbrella", "").Body; strings.Contains(other, "acme") {
		t.Errorf("another tenant sees\n%s", other)
	}
	out, errs, code := rig.CommandAs(t, dir, keys["viewer"], "budget", "status", "--tenant", "acme", "--json")
	var printed []budget.StatementRow
	if err := json.Unmarshal([]byte(out), &printed); err != nil || code != 0 || len(printed) != 3 {
		t.Errorf("exit %d: %s %s %v", code, out, errs, err)
	}

	// What would have been refused.
	whatIf := func(body string) (f budget.RefusalForecast) {
		answer := g.AskAdmin(t, keys["viewer"], http.MethodPost, "/v1/budgets/what-if?tenant=acme", body)
		if err := json.Unmarshal([]byte(answer.Body), &f); err != nil || answer.Status != http.StatusOK {
			t.Fatal(answer, err)
		}
		return f
	}
	if f := whatIf(`{"limit":"5"}`); f.Calls != 3 || f.Refused != 1 || f.Saved != "2.50" || !f.Complete || f.By[0].Tool != "a/work" || f.By[0].Principal != "alice" {
		t.Errorf("a limit of 5: %+v", f)
	}
	if f := whatIf(`{"calls":3}`); f.Refused != 0 || f.Spent != "3" {
		t.Errorf("a limit of 3 calls: %+v", f)
	}
	if f := whatIf(`{"budget":"paid","limit":"0"}`); f.Refused != 3 || f.Per != "principal" {
		t.Errorf("the budget with another limit: %+v", f)
	}
	if out, _, code := rig.CommandAs(t, dir, keys["viewer"], "budget", "what-if", "--limit", "5", "--tenant", "acme"); code != 0 || !strings.Contains(out, "would have refused 1, which cost 2.50 EUR") {
		t.Errorf("exit %d: %s", code, out)
	}

	// Corrections.
	adjust := func(who, body string, want int) (done admin.CorrectedAccount) {
		t.Helper()
		answer := g.AskAdmin(t, keys[who], http.MethodPost, "/v1/budgets/adjust?tenant=acme", body)
		if answer.Status != want {
			t.Errorf("%s: %s: %d, want %d: %s", who, body, answer.Status, want, answer.Body)
		}
		_ = json.Unmarshal([]byte(answer.Body), &done)
		return done
	}
	if done := adjust("admin", `{"budget":"paid","of":"alice","by":"-2.50","reason":"credited"}`, http.StatusOK); done.Before != "7.50" || done.After != "5.00" {
		t.Errorf("the correction: %+v", done)
	}
	adjust("admin", `{"budget":"all","by":"-2.50","reason":"x"}`, http.StatusForbidden)                // the operator's
	adjust("viewer", `{"budget":"paid","of":"alice","by":"-2.50","reason":"x"}`, http.StatusForbidden) // no admin
	adjust("other admin", `{"budget":"paid","of":"alice","by":"-2.50","reason":"x"}`, http.StatusNotFound)
	adjust("admin", `{"budget":"paid","by":"-2.50","reason":"x"}`, http.StatusBadRequest) // it names no principal
	adjust("admin", `{"budget":"paid","of":"alice","by":"1e9","reason":"x"}`, http.StatusBadRequest)
	adjust("admin", `{"budget":"paid","of":"alice","reason":"x"}`, http.StatusBadRequest)
	adjust("admin", `{"budget":"paid","of":"alice","by":"1","reset":true,"reason":"x"}`, http.StatusBadRequest)
	adjust("admin", `{"budget":"none","by":"1","reason":"x"}`, http.StatusBadRequest)
	adjust("admin", `{"budget":"paid","of":"alice","by":"1"}`, http.StatusBadRequest) // no reason
	if done := adjust("admin", `{"budget":"paid","of":"alice","by":"-99","reason":"x"}`, http.StatusOK); done.After != "0.00" {
		t.Errorf("what is settled is negative: %+v", done)
	}
	if done := adjust("operator", `{"budget":"operator/all","by":"93","reason":"x"}`, http.StatusOK); done.After != "100.50" {
		t.Errorf("a correction upwards: %+v", done)
	}
	if code := rig.Call(t, s, "work", "{}"); code != "SB-COST-001" {
		t.Errorf("a call over the corrected budget: %q", code)
	}
	out, errs, code = rig.CommandAs(t, dir, keys["operator"], "budget", "adjust", "all", "--by", "-90.00", "--reason", "a mistake", "--tenant", "acme")
	if code != 0 || !strings.Contains(out, "10.50 EUR are settled, and were 100.50") {
		t.Errorf("exit %d: %s %s", code, out, errs)
	}
	out, errs, code = rig.CommandAs(t, dir, keys["operator"], "budget", "adjust", "calls", "--reset", "--reason", "a mistake", "--tenant", "acme", "--json")
	if code != 0 || !strings.Contains(out, `"before":"3"`) || !strings.Contains(out, `"after":"0"`) {
		t.Errorf("exit %d: %s %s", code, out, errs)
	}
	if code := rig.Call(t, s, "work", "{}"); code != "" {
		t.Errorf("a call after the corrections: %q", code)
	}
	wait.For(t, rig.Patience, "the receipts of corrections", func() error {
		page := g.AskAdmin(t, keys["viewer"], http.MethodGet, "/v1/receipts?tenant=acme&kind=admin", "")
		if n := strings.Count(page.Body, `"outcome":"ok"`); n != 5 || !strings.Contains(page.Body, "credited") {
			return fmt.Errorf("%d receipts: %s", n, page.Body)
		}
		return nil
	})
}
