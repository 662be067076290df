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
	Never   int                // rules that never held
}

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
	for _, r := range found.Rules {
		if r.Decisions == 0 {
			s.Never++
		}
	}
	return s, nil
}

// Shown are the rules that the view shows.
func (s *policiesScene) Shown() []admin.PolicyRuleRow {
	return s.Rules.Rules[:min(len(s.Rules.Rules), maxShownRules)]
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
