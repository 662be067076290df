package page_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// decisionAPI answers the requests of the view with everything that others can write being a text of texts, in turn.
func decisionAPI(t *testing.T, explain func(r *http.Request) any, texts ...string) http.Handler {
	t.Helper()
	tenants := map[string]any{"tenants": []admin.TenantSummary{{Tenant: "acme", Tasks: []switchboard.TaskID{"desk"}, DefaultTask: "desk", Tiers: texts[:1]}}}
	keys := map[string]any{"keys": []admin.KeyRow{{Kind: admin.KeyOfAgent, ID: texts[0], State: admin.KeyValid}}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var out any
		switch path := r.URL.Path; {
		case path == "/v1/tenants":
			out = tenants
		case path == "/v1/keys":
			out = keys
		case path == "/v1/configuration/file":
			out = map[string]string{"text": "old text"}
		case strings.HasSuffix(path, "/decision"):
			out = explain(r)
		case path == "/v1/decisions":
			out = admin.DecisionPage{Decisions: []admin.DecisionRow{{ID: texts[0], Task: switchboard.TaskID(texts[0]), Time: time.Unix(1e9, 0), Principal: admin.DecisionPrincipal{ID: texts[0]}}, {ID: "n1/2", Fault: texts[0]}}, Looked: time.Unix(1e9, 0), Next: texts[0]}
		default:
			was := admin.RecordedDecision{DecisionRow: admin.DecisionRow{ID: "n1/5", Task: "desk", Tenant: "acme", Principal: admin.DecisionPrincipal{ID: texts[0]}}, Explanation: explanationOf(texts...), Unexplained: texts[0]}
			if r.URL.Query().Has("mode") {
				was.WhatIf, was.Unrecorded = explain(r).(*admin.Explanation), texts[:1]
			}
			out = was
		}
		if problem, ok := out.(access.Problem); ok {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(problem.Status)
		}
		if err := json.NewEncoder(w).Encode(out); err != nil {
			t.Error(err)
		}
	})
}

// explanationOf returns an explanation in which everything that others can write is one of the texts, in turn.
func explanationOf(texts ...string) *admin.Explanation {
	turn := 0
	next := func() string {
		turn++
		return fmt.Sprint(texts[turn%len(texts)], " ", turn) // each is another, so that all pages have the same parts
	}
	cause := author.DenialCause{Layer: policy.Tenant, Rule: "deny", File: "tenants/acme/policies/" + next(), Line: 7, Reason: next(), Values: map[string]string{next(): next()}}
	other := author.DenialCause{Layer: policy.Operator, Rule: next(), File: next(), Line: 8, Failed: next()}
	record, _ := json.Marshal(map[string]any{"principal": map[string]any{"id": texts[0], "tier": texts[0], "mode": texts[0], "roles": []string{texts[0]}}})
	return &admin.Explanation{
		Tenant: "acme", Task: "desk", Why: next(), Decision: record, ExplainedFindings: admin.ExplainedFindings{Unlabelled: 3}, Starting: []switchboard.ServerID{switchboard.ServerID(next())},
		Tools:   []admin.ExplainedTool{{Name: next(), Server: "s", Tool: "one"}},
		Servers: []admin.ServerHealth{{Server: switchboard.ServerID(next()), Status: health.Status{State: health.State(next())}}}, Faults: []admin.ToolFault{{Why: next()}},
		Requirements: []admin.ExplainedRequirement{{
			Requirement: next(), Warning: next(), Unknown: []string{next()}, Optional: true,
			Selected: []admin.ExplainedCandidate{{Tool: "s/one", Capabilities: []string{next()}, Provides: next(), Declared: next(), Redacted: next(), MovesTo: []string{next()}}},
			Others:   []admin.ExplainedCandidate{{Tool: next()}},
			Dropped: []admin.ExplainedDrop{
				{Tool: next(), Stage: "policy", Reason: next(), Code: switchboard.Code(next()), Rules: []author.DenialCause{cause, other}},
				{Tool: next(), Stage: next(), Reason: next()},
			},
		}, {Requirement: next(), Unmet: next()}},
	}
}

// decisionScene shows Decision at the addresses.
func decisionScene(t *testing.T, groups [][]string, addresses ...string) hostileScene {
	d := newDesk(t, "")
	cookie := d.signIn(t)
	return hostileScene{addresses, groups, func(t *testing.T, address string, texts ...string) string {
		t.Helper()
		d.api = decisionAPI(t, func(r *http.Request) any {
			x := explanationOf(texts...)
			if r.URL.Query().Has("mode") {
				x.Requirements[0].Dropped = x.Requirements[0].Dropped[:1]
				x.Requirements[0].Selected = nil
			}
			return x
		}, texts...)
		return d.open(t, address, cookie)
	}, ""}
}

// decisionTexts shows a decision of today. Two texts are sometimes in one that must not be cut.
func decisionTexts(t *testing.T) hostileScene {
	return decisionScene(t, hostileTexts(t, 300), "/decision?tenant=acme&task=desk", "/decision?tenant=acme&task=desk&mode=assist")
}

// recordedTexts shows recorded decisions. Their parts are those of a decision of today, so they are shown with our own texts.
func recordedTexts(t *testing.T) hostileScene {
	ours := slices.DeleteFunc(hostileTexts(t, 300), func(group []string) bool { return len(group) > 1 })
	return decisionScene(t, ours, "/decision?tenant=acme&record=n1/5", "/decision?tenant=acme&record=n1/5&mode=assist", "/decision?tenant=acme&recorded=1")
}

func TestAWhatIfIsShownBesideTheDecisionAsItIs(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	tools := func(names ...string) (all []admin.ExplainedCandidate) {
		for _, name := range names {
			all = append(all, admin.ExplainedCandidate{Tool: name})
		}
		return all
	}
	d.api = decisionAPI(t, func(r *http.Request) any {
		x := &admin.Explanation{Tenant: "acme", Task: "desk", Requirements: []admin.ExplainedRequirement{
			{Requirement: "read fs", Selected: tools("a/read"), Others: tools("b/read")}, {Requirement: "write fs", Selected: tools("a/write")},
		}}
		if q := r.URL.Query(); q.Get("without") == "a,c" && q.Get("tier") == "free" && q.Get("at") == "2026-12-24T22:00:00Z" {
			x.Requirements[0] = admin.ExplainedRequirement{Requirement: "read fs", Selected: tools("b/read"), Dropped: []admin.ExplainedDrop{{Tool: "a/read", Stage: "health", Reason: "it is out"}}}
		}
		return x
	}, "free")
	w := d.ask("GET", "/decision?tenant=acme&task=desk&without=a&without=c&tier=free&at=2026-12-24T22:00&mode=", host, "", cookie...)
	page := w.Body.String()
	for _, want := range []string{
		"What would change", `<td><span class="line"><bdi class="theirs">a/read</bdi></span></td><td><span class="line"><bdi class="theirs">b/read</bdi></span></td>`, `<bdi class="theirs">a/read</bdi> at <bdi class="theirs">health</bdi>`,
		`value="a" checked`, `name="without" value="c"`, "No policy of the tenant reads the clock", "of which 1 only with the what-if",
		"switchboard explain desk --tier free --at 2026-12-24T22:00:00Z --without a --without c --tenant acme", "requires by name stays",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, `>2. <bdi class="theirs">write fs`) {
		t.Error("a requirement that stays as it is is among the changes")
	}

	// Hundreds of candidates are counts, and fifty names.
	d.api = decisionAPI(t, func(*http.Request) any {
		r := admin.ExplainedRequirement{Requirement: "read fs", Unmet: "prune: none"}
		for range 400 {
			r.Dropped = append(r.Dropped, admin.ExplainedDrop{Tool: "a/same", Stage: "prune", Reason: "it lacks readonly"})
		}
		return &admin.Explanation{Tenant: "acme", Task: "desk", Requirements: []admin.ExplainedRequirement{r}}
	}, "free")
	page = d.ask("GET", "/decision?tenant=acme&task=desk", host, "", cookie...).Body.String()
	if strings.Count(page, "a/same") != 50 || !strings.Contains(page, "and 350 more") || !strings.Contains(page, "<strong>400</strong> dropped at") {
		t.Errorf("400 candidates are shown so:\n%s", page)
	}

	// A refusal leaves the form, with what was asked.
	d.api = decisionAPI(t, func(*http.Request) any {
		return access.Problem{Status: http.StatusBadRequest, Detail: "tenant acme has no tier <x>"}
	}, "free")
	w = d.ask("GET", "/decision?tenant=acme&task=desk&tier=%3Cx%3E", host, "", cookie...)
	if page = w.Body.String(); w.Code != http.StatusBadRequest || !strings.Contains(page, "has no tier &lt;x&gt;") || !strings.Contains(page, `value="&lt;x&gt;"`) {
		t.Errorf("a refusal is %d %s", w.Code, page)
	}
	if page = d.ask("GET", "/decision?tenant=acme&task=desk&file=tenants/acme/tenant.yaml", host, "", cookie...).Body.String(); !strings.Contains(page, "old text</textarea>") {
		t.Errorf("a file to change is shown so:\n%s", page)
	}
}

// Of a recorded decision, the archive alone is asked: no task, no key and no tier of today.
func TestAWhatIfOfARecordedDecisionIsShownBesideIt(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	explained := func(tool string, dropped ...admin.ExplainedDrop) *admin.Explanation {
		return &admin.Explanation{Tenant: "acme", Task: "desk", Decision: []byte(`{"principal":{"id":"ann","tier":"gold"}}`), Requirements: []admin.ExplainedRequirement{{Requirement: "read fs", Selected: []admin.ExplainedCandidate{{Tool: tool}}, Dropped: dropped}}}
	}
	was := admin.RecordedDecision{DecisionRow: admin.DecisionRow{ID: "n1/5", Task: "desk", Tenant: "acme"}, Explanation: explained("a/read")}
	after := was
	after.WhatIf, after.Unrecorded = explained("b/read", admin.ExplainedDrop{Tool: "a/read", Stage: "health", Reason: "it is out"}), []string{"which tiers the tenant had"}
	answers := map[string]any{
		"": was, "tier=free&without=a": after, "without=zzz": access.Problem{Status: http.StatusBadRequest, Detail: "tenant acme has no server zzz"},
		"mode=assist": admin.RecordedDecision{DecisionRow: was.DecisionRow, Unexplained: "the inputs are gone"},
	}
	d.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route(map[string]any{"/v1/decisions/n1/5": answers[r.URL.RawQuery]}).ServeHTTP(w, r)
	})
	for _, tt := range []struct {
		query  string
		status int
		asked  int
		want   []string
		not    string
	}{
		{"", 200, 1, []string{`name="record" value="n1/5"`, `name="without" value="a"> <bdi class="theirs">a</bdi>`, "tier <bdi class=\"theirs\">gold</bdi>", `placeholder="as it was"`, "switchboard decisions show n1/5</bdi>"}, "What would have changed"},
		{
			"&without=a&tier=free", 200, 1,
			[]string{
				"What would have changed", `<th scope="col">Got</th><th scope="col">Would have got</th>`, `<td><span class="line"><bdi class="theirs">a/read</bdi></span></td><td><span class="line"><bdi class="theirs">b/read</bdi></span></td>`,
				`<bdi class="theirs">a/read</bdi> at <bdi class="theirs">health</bdi>`, "It is not recorded <bdi class=\"theirs\">which tiers the tenant had", `value="a" checked`, `value="free"`, "switchboard decisions show n1/5 --tier free --without a<", `href="/decision?record=n1%2F5">Back to the decision as it was`,
			},
			"Gets now",
		},
		{"&without=zzz", 400, 2, []string{"has no server zzz", `name="without" value="zzz"`, "<details open>", `<bdi class="theirs">a/read</bdi>`}, "What would have changed"},
		{"&mode=assist", 200, 1, []string{"cannot be explained any more: <bdi class=\"theirs\">the inputs are gone"}, "Decide again"},
	} {
		d.asked = nil
		w := d.ask("GET", "/decision?record=n1/5"+tt.query, host, "", cookie...)
		page := w.Body.String()
		for _, want := range tt.want {
			if w.Code != tt.status || !strings.Contains(page, want) {
				t.Errorf("%q: %d, and the view lacks %q:\n%s", tt.query, w.Code, want, page)
			}
		}
		if strings.Contains(page, tt.not) || len(d.asked) != tt.asked {
			t.Errorf("%q: the view says %q, or asks %q:\n%s", tt.query, tt.not, d.asked, page)
		}
	}
}

// decodeLarge decodes neither durations nor what an interface holds.
func TestLargeAnswersHaveOnlyWhatDecodeLargeDecodes(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(of reflect.Type, where string)
	look = func(of reflect.Type, where string) {
		if of == reflect.TypeFor[time.Duration]() || of.Kind() == reflect.Interface {
			t.Errorf("%s is a %v", where, of)
		}
		if seen[of] || of == reflect.TypeFor[time.Time]() {
			return
		}
		seen[of] = true
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			look(of.Elem(), where)
		case reflect.Struct:
			for f := range of.Fields() {
				if f.IsExported() && f.Tag.Get("json") != "-" {
					look(f.Type, where+"."+f.Name)
				}
			}
		}
	}
	look(reflect.TypeFor[admin.RecordedDecision](), "RecordedDecision")
}

func TestAToolThatAdmissionDropsIsALinkToItsPinForAnOperator(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	d.api = decisionAPI(t, func(*http.Request) any {
		return &admin.Explanation{Tenant: "acme", Task: "desk", Requirements: []admin.ExplainedRequirement{{Requirement: "read fs", Dropped: []admin.ExplainedDrop{
			{Tool: "a/re/ad", Stage: "admission", Reason: "a person has suspended it"}, {Tool: "b/read", Stage: "policy", Reason: "a rule denies it"},
		}}}}
	}, "free")
	const link = `<a href="/pins/one?kind=tool&amp;name=re%2Fad&amp;server=a"><bdi class="theirs">a/re/ad</bdi></a>`
	for _, operator := range []bool{true, false} {
		if !operator {
			d.row.Operator, d.row.Tenant, d.row.Offices = false, "acme", []switchboard.Office{switchboard.OfficeViewer}
		}
		page := d.ask("GET", "/decision?tenant=acme&task=desk", host, "", cookie...).Body.String()
		if strings.Contains(page, link) != operator || strings.Contains(page, "server=b") {
			t.Errorf("operator %t: the drops are shown so:\n%s", operator, page)
		}
	}
}
