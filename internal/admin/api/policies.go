package api

import (
	"context"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type policyTestRequest struct {
	Tenant switchboard.TenantID `path:"tenant" maxLength:"64" doc:"The tenant."`
	Body   *struct {
		Files    []ProposedText `json:"files,omitempty" maxItems:"200" doc:"Files in the place of the present ones, with paths in the tenant's folder of policies, such as veto.rego and veto_test.rego."`
		Run      string         `json:"run,omitempty" maxLength:"500" doc:"Run only the tests whose whole names match this regular expression."`
		Coverage bool           `json:"coverage,omitempty" doc:"Say which lines no test reaches."`
	}
}

type policyRulesRequest struct {
	Tenant switchboard.TenantID `path:"tenant" maxLength:"64" doc:"The tenant."`
	Since  time.Time            `query:"since" doc:"Count the decisions since then. Without it: those of the last seven days."`
}

// policyRoutes are the routes about the policies of tenants.
type policyRoutes struct{ *API }

// add adds the routes.
func (a policyRoutes) add() {
	add(a.API, route{id: "read-policies", method: http.MethodGet, path: "/v1/tenants/{tenant}/policies", needs: switchboard.OfficeViewer, summary: "The policy files of a tenant, with their digests, and whether they are in force"},
		func(_ context.Context, q asked, _ *struct {
			Tenant switchboard.TenantID `path:"tenant" maxLength:"64" doc:"The tenant."`
		},
		) (*struct{ Body admin.PolicyList }, error) {
			return &struct{ Body admin.PolicyList }{*admin.ListPolicies(a.o.Reader, q.tenant)}, nil
		})
	tester := admin.NewPolicyTester(a.o.Reader)
	add(a.API, route{id: "count-policy-rules", method: http.MethodGet, path: "/v1/tenants/{tenant}/policies/rules", needs: switchboard.OfficeViewer, errors: []int{http.StatusUnprocessableEntity}, summary: "In how many recorded decisions each rule of a tenant's policies held, also never. It looks for 8 seconds at most, and says how far; an operator also sees the rules of the operator's layer"},
		func(ctx context.Context, q asked, in *policyRulesRequest) (*struct{ Body admin.PolicyRules }, error) {
			since := in.Since
			if since.IsZero() {
				since = time.Now().Add(-defaultPeriod)
			}
			found, err := tester.CountRules(ctx, q.tenant, since, q.operator())
			if err != nil {
				return nil, err
			}
			return &struct{ Body admin.PolicyRules }{*found}, nil
		})
	a.addChecks(tester)
	add(a.API, route{
		id: "test-policies", method: http.MethodPost, path: "/v1/tenants/{tenant}/policies/test", needs: switchboard.OfficeAuthor, readOnly: true,
		errors:  []int{http.StatusUnprocessableEntity},
		summary: "Run the Rego tests of a tenant's policies, or of candidates, for 20 seconds at most. Nothing is changed",
	}, func(ctx context.Context, q asked, in *policyTestRequest) (*struct{ Body admin.PolicyTestRun }, error) {
		var candidates []admin.CandidateFile
		only, coverage := "", false
		if in.Body != nil {
			only, coverage = in.Body.Run, in.Body.Coverage
			var err error
			if candidates, err = candidatesOf(in.Body.Files); err != nil {
				return nil, err
			}
		}
		run, err := tester.Run(ctx, q.tenant, candidates, only, coverage)
		if err != nil {
			return nil, err
		}
		return &struct{ Body admin.PolicyTestRun }{*run}, nil
	})
}
