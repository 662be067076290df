package page

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// policiesPath is the view of a tenant's policies. With rules=week, it counts how often each rule held.
const policiesPath = "/policies"

// policiesView lists the layers of a tenant's policies, and how often their rules held.
var policiesView = pageView{
	path: policiesPath, title: "Policies", needs: switchboard.OfficeViewer, command: "switchboard policy list", template: "policies.html", live: neverReads,
	settle: nameTenant,
	api: func(q *viewQuery) string {
		if q.state.Get("tenant") == "" { // there is no tenant
			return "/v1/tenants"
		}
		return policyAddress(q, "/policies")
	},
	load:  loadPolicies,
	forms: map[string]viewForm{"test": testPolicies},
}

// policyAddress returns an address of the API below the tenant of the view.
func policyAddress(q *viewQuery, path string) string {
	return "/v1/tenants/" + url.PathEscape(q.state.Get("tenant")) + path
}

// maxShownRules limits the rules on the view.
const maxShownRules = 200

// A policiesScene is the data of the view.
type policiesScene struct {
	Now     time.Time
	List    *admin.PolicyList // nil without a tenant
	MayEdit bool
	Rules   *admin.PolicyRules // nil if the address does not ask for them
	NoRules *access.Problem    // why there are none
	Own     countTable         // the tenant's rules in Rules
	Others  countTable         // those of the operator's layer
}

// A countTable is a table of the rules of a layer.
type countTable struct {
	Of    string // the layer
	All   []admin.PolicyRuleRow
	Never int // of them never held
	Now   time.Time
}

// newCountTable returns the table of the tenant's own rules, or of all others.
func newCountTable(of string, now time.Time, rules []admin.PolicyRuleRow, own bool) countTable {
	t := countTable{Of: of, Now: now}
	for _, r := range rules {
		if (r.Layer == "tenant") != own {
			continue
		}
		t.All = append(t.All, r)
		if r.Decisions == 0 {
			t.Never++
		}
	}
	return t
}

// Shown are the rules that the view shows.
func (t countTable) Shown() []admin.PolicyRuleRow { return t.All[:min(len(t.All), maxShownRules)] }

func loadPolicies(q *viewQuery, answer []byte) (any, error) {
	s := &policiesScene{Now: time.Now()}
	tenant := switchboard.TenantID(q.state.Get("tenant"))
	if tenant == "" {
		return s, nil
	}
	s.List = &admin.PolicyList{}
	if err := json.Unmarshal(answer, s.List); err != nil {
		return nil, err
	}
	s.MayEdit = mayEditPolicies(q, tenant)
	if q.state.Get("rules") == "" {
		return s, nil
	}
	q.command = "switchboard policy rules"
	found := &admin.PolicyRules{}
	var err error
	if s.NoRules, err = problemIn(q.get(policyAddress(q, "/policies/rules"), found)); err != nil || s.NoRules != nil {
		return s, err
	}
	s.Rules = found
	s.Own = newCountTable("the tenant's layer", s.Now, found.Rules, true)
	s.Others = newCountTable("the operator's layer", s.Now, found.Rules, false)
	return s, nil
}

// mayEditPolicies reports whether the officer may change the policies of the tenant. The API decides about each request.
func mayEditPolicies(q *viewQuery, tenant switchboard.TenantID) bool {
	return q.officer.Operator || q.officer.Holds(switchboard.OfficeAuthor, tenant) || q.officer.Holds(switchboard.OfficeAdmin, tenant)
}

// testPolicies runs the tests of the tenant's policies.
func testPolicies(q *viewQuery, _ url.Values) (formDone, error) {
	run := &admin.PolicyTestRun{}
	err := q.send(http.MethodPost, policyAddress(q, "/policies/test"), struct{}{}, run)
	return formDone{Result: run}, err
}
