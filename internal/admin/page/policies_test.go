package page_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

// typedAreas are the fields with texts, which stay as they are.
var typedAreas = regexp.MustCompile(`(?s)<textarea.*?</textarea>`)

// policyAPI returns an API of a tenant's policies, in which everything that others can write is one of the texts, in turn.
func policyAPI(texts ...string) http.Handler {
	turn := 0
	next := func() string {
		turn++
		return texts[turn%len(texts)]
	}
	file := func(test bool) admin.PolicyFileRow {
		return admin.PolicyFileRow{Path: next(), Digest: switchboard.Digest(next()), Bytes: 1234, Test: test}
	}
	at := author.SourceLine{File: next(), Line: 3}
	run := admin.PolicyTestRun{Passed: 1, Failed: 1, Report: &author.TestReport{Tests: []author.TestResult{
		{SourceLine: at, Name: next(), Outcome: author.Passed, Output: next()},
		{SourceLine: at, Name: next(), Outcome: author.Failed, At: &at, Values: next(), Error: next()},
	}}}
	revision := change.Revision{ID: "7", By: next(), Reason: next(), Path: "tenants/acme/policies/veto.rego"}
	return route(map[string]any{
		"/v1/tenants/acme/policies": admin.PolicyList{Tenant: "acme", State: next(), Faults: []string{next()}, Digest: switchboard.Digest(next()), Files: []admin.PolicyFileRow{file(false), file(true)}, Operator: []admin.PolicyFileRow{file(false)}},
		"/v1/tenants/acme/policies/rules": admin.PolicyRules{Looked: &replay.LookedAt{Decisions: 3, Of: 9, Back: noon}, Rules: []admin.PolicyRuleRow{
			{SourceLine: at, Layer: policy.Tenant, Rule: next(), Decisions: 1234, Last: noon}, {SourceLine: at, Layer: policy.Operator, Rule: next()},
		}, NotReplayed: []replay.NotReplayed{{Why: next(), Decisions: 2}}},
		"POST /v1/tenants/acme/policies/test": run,
		"/v1/configuration/file":              map[string]string{"text": next()},
		"/v1/configuration/changes":           map[string]any{"changes": []change.Revision{revision}},
		"/v1/decisions":                       admin.DecisionPage{Decisions: []admin.DecisionRow{{ID: "n1/4", Time: noon, Task: switchboard.TaskID(next()), Principal: admin.DecisionPrincipal{ID: next()}, Code: switchboard.Code(next())}}},
		"POST /v1/policies/check":             admin.PolicyCheck{Warnings: []author.Warning{{File: next(), Line: 3, Column: 2, About: next(), Text: next()}}, Silent: []switchboard.ServerID{switchboard.ServerID(next())}},
		"PUT /v1/configuration/file": map[string]any{"trial": change.Trial{Diff: "--- a\n+++ b\n@@ -1 +1 @@\n-" + next(), Faults: []string{}, Tasks: []change.TaskChange{
			{Task: switchboard.TaskID(next()), Before: []string{next()}, After: []string{}}, {Task: "b", Why: next()},
		}}},
		"POST /v1/policies/eval": admin.PolicyEvaluation{Evaluation: &author.Evaluation{
			Candidates: []author.JudgedCandidate{{ID: next(), Code: switchboard.Code(next()), Why: next()}},
			Layers: []author.LayerValues{{
				Layer: "tenant", Rules: []author.RuleValue{{Rule: next(), At: []author.SourceLine{at}, Value: next()}},
				Expressions: []author.ExpressionValue{{SourceLine: at, Column: 2, Text: next(), Held: 1, Values: next()}, {SourceLine: at, Text: next()}},
			}},
		}},
		"POST /v1/policy-diffs": whatif.Comparison{ID: "c1", State: whatif.Done, Result: &replay.Diff{
			Decisions: 9, Changed: 2, Looked: &replay.LookedAt{Decisions: 9, Of: 9},
			Changes: []replay.DecisionChange{{Kind: replay.ChangeDenied, Task: switchboard.TaskID(next()), Tool: next(), Why: next(), Decisions: 2}},
			Callers: []replay.ChangedCaller{{Principal: next(), Decisions: 2}},
		}},
	})
}

// PG-01 on the templates of Policies.
func TestPG01TextOfOthersOnPoliciesStaysText(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	d.tenants = []switchboard.TenantID{"acme"}
	cookie := d.signIn(t)
	d.api = policyAPI("text")
	token := formTokenOf.FindStringSubmatch(d.ask("GET", "/policies?tenant=acme", host, "", cookie...).Body.String())
	if token == nil {
		t.Fatal("the view has no form")
	}
	checkTexts(t, func(texts ...string) (all string) {
		d.api = policyAPI(texts...)
		for _, view := range []string{"/policies?tenant=acme&rules=week", "/policies/file?tenant=acme&path=veto.rego&saved=7"} {
			w := d.ask("GET", view, host, "", cookie...)
			if w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", view, w.Code, w.Body)
			}
			all += w.Body.String()
		}
		for _, act := range []string{"check", "test", "try", "compare"} {
			fields := url.Values{"act": {act}, "token": {token[1]}, "at": {"tenant=acme&path=veto.rego"}, "text": {"typed"}, "tests": {"typed too"}, "decision": {"n1/4"}, "etag": {`"abc"`}}
			w := d.ask("POST", "/policies/file", host, fields.Encode(), append([]string{"Content-Type", form, "Origin", "http://" + host}, cookie...)...)
			if w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", act, w.Code, w.Body)
			}
			all += w.Body.String()
		}
		return typedAreas.ReplaceAllString(all, "<textarea></textarea>")
	})
}

// PG-02 on Policies: a form without its token, or with an old entity tag, is refused, and what was typed is kept with the tag that it was begun with.
func TestPG02TypedPoliciesAreKept(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	d.tenants = []switchboard.TenantID{"acme"}
	cookie := d.signIn(t)
	d.api = policyAPI("text")
	token := formTokenOf.FindStringSubmatch(d.ask("GET", "/policies?tenant=acme", host, "", cookie...).Body.String())[1]
	refuse := func(status int, problem string) {
		good := policyAPI("text")
		d.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet || strings.Contains(r.URL.RawQuery, "dry_run") {
				good.ServeHTTP(w, r)
				return
			}
			answer(status, "application/problem+json", problem).ServeHTTP(w, r)
		})
	}
	send := func(token, act string) (int, string) {
		fields := url.Values{"act": {act}, "token": {token}, "at": {"tenant=acme&path=veto.rego"}, "text": {"a\r\n\tmine = = 1\r\n<b>"}, "etag": {`"old"`}, "reason": {"because"}}
		w := d.ask("POST", "/policies/file", host, fields.Encode(), append([]string{"Content-Type", form, "Origin", "http://" + host}, cookie...)...)
		return w.Code, w.Body.String()
	}
	kept := func(name string, status int, page string, want int, tag string, says ...string) {
		t.Helper()
		for _, say := range append(says, "mine = = 1", "&lt;b&gt;</textarea>", `value="because"`, `name="etag" value="`+tag+`"`) {
			if status != want || !strings.Contains(page, say) {
				t.Errorf("%s: %d, want %d, and the page lacks %s:\n%s", name, status, want, say, page)
			}
		}
	}
	d.asked = nil
	status, page := send("wrong", "save")
	kept("a foreign token", status, page, 403, "&#34;old&#34;", "another session")
	if asked := strings.Join(d.asked, " "); strings.Contains(asked, "PUT") {
		t.Errorf("without the token, the API is asked %s", asked)
	}
	refuse(412, `{"status":412,"code":"SB-CONF-002","detail":"the file has been changed"}`)
	status, page = send(token, "save")
	kept("an old entity tag", status, page, 412, "", "Somebody has changed the file", "Save mine over the file as it is now", "change <bdi class=\"theirs\">7</bdi>")
	const fault = `{"status":422,"code":"SB-CONF-001","detail":"tenants/acme/policies/veto.rego:2:9: rego_parse_error: unexpected\nand another"}`
	refuse(422, fault)
	status, page = send(token, "save")
	kept("a fault", status, page, 422, "&#34;old&#34;", "veto.rego:2:9</bdi></strong>", "rego_parse_error", "    mine = = 1", "and another")
	for _, act := range []string{"check", "test", "try", "compare"} {
		status, page = send(token, act)
		kept(act, status, page, 200, "&#34;old&#34;", "It would be refused:", "veto.rego:2:9</bdi></strong>", "mine = = 1\n</pre>")
	}
}

func TestPoliciesOfferOnlyWhatTheOfficerMayDo(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	d.tenants = []switchboard.TenantID{"acme"}
	d.row.Operator, d.row.Tenant, d.row.Offices = false, "acme", []switchboard.Office{switchboard.OfficeViewer}
	cookie := d.signIn(t)
	d.api = policyAPI("text")
	page := d.ask("GET", "/policies?tenant=acme&rules=week", host, "", cookie...).Body.String()
	for _, want := range []string{"<strong>never</strong>", ">1,234</td>", "3 of 9 decisions, back to", "<strong>1 rule</strong> never held", "Not known for 2", "switchboard policy rules --tenant acme"} {
		if !strings.Contains(page, want) {
			t.Errorf("the view lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "/policies/file") || strings.Contains(page, "Run the tests") {
		t.Errorf("a viewer is offered to write:\n%s", page)
	}
	d.api = answer(403, "application/problem+json", `{"status":403,"detail":"no"}`)
	if w := d.ask("GET", "/policies/file?tenant=acme&path=x.rego", host, "", cookie...); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "<textarea") {
		t.Errorf("the file for a viewer: %d %s", w.Code, w.Body)
	}
}
