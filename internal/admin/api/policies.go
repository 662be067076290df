package api

import (
	"context"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type policyList struct {
	Body struct {
		Layers []admin.PolicyLayerRow `json:"layers"`
	}
}

type policyTest struct {
	TenantQuery
	Body *struct {
		Files map[string]string `json:"files,omitempty" maxProperties:"100" doc:"Texts by their paths in the layer's folder. They replace files of the layer, or are added, for this run only."`
	}
}

// addPolicies adds the routes about policies and their tests.
func (a *API) addPolicies() {
	add(a, route{id: "list-policies", method: http.MethodGet, path: "/v1/policies", needs: switchboard.OfficeViewer, summary: "The layers of policies that are in force, with their files"},
		func(_ context.Context, q asked, _ *TenantQuery) (*policyList, error) {
			out := &policyList{}
			out.Body.Layers = a.o.Policies.List(q.tenant)
			return out, nil
		})
	turn := make(chan struct{}, 1)
	add(a, route{id: "test-policies", method: http.MethodPost, path: "/v1/policies/test", needs: switchboard.OfficeAuthor, errors: []int{http.StatusUnprocessableEntity}, summary: "Run the tests of a tenant's policies, or of the operator's without a tenant"},
		func(ctx context.Context, q asked, in *policyTest) (*struct{ Body author.TestReport }, error) {
			select {
			case turn <- struct{}{}:
				defer func() { <-turn }()
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			var files map[string]string
			if in.Body != nil {
				files = in.Body.Files
			}
			report, err := a.o.Policies.Test(ctx, q.tenant, files)
			if err != nil {
				return nil, err
			}
			return &struct{ Body author.TestReport }{*report}, nil
		})
}
