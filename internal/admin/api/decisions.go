package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type explainRequest struct {
	Tenant      switchboard.TenantID `path:"tenant" maxLength:"64" doc:"The tenant of the task."`
	Task        switchboard.TaskID   `query:"task" maxLength:"64" doc:"The task; the tenant's default task if absent."`
	Principal   string               `query:"principal" maxLength:"64" doc:"The id of the key to decide for; if absent, whoever calls without a key."`
	Tokens      bool                 `query:"tokens" doc:"Count the tokens of each tool."`
	Budget      int                  `query:"budget" minimum:"1" maximum:"10000000" doc:"A token budget in place of the task's."`
	Definitions bool                 `query:"definitions" doc:"Give each tool's definition, as the client gets it."`
}

type tenantList struct {
	Body struct {
		Tenants []admin.TenantSummary `json:"tenants" doc:"Sorted by id."`
		Next    string                `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

// addDecisions adds the routes about tasks and about decisions that are made to be shown.
func (a *API) addDecisions() {
	add(a, route{id: "list-tenants", method: http.MethodGet, path: "/v1/tenants", needs: switchboard.OfficeViewer, summary: "The tenants that the officer may see, with their tasks"},
		func(_ context.Context, q asked, in *struct {
			TenantQuery
			PageQuery
		},
		) (*tenantList, error) {
			seen := slices.DeleteFunc(a.o.Reader.Tenants(), func(t admin.TenantSummary) bool {
				return !q.officer.Sees(t.Tenant) || q.tenant != "" && q.tenant != t.Tenant
			})
			out := &tenantList{}
			out.Body.Tenants, out.Body.Next = cut(in.PageQuery, seen, func(t admin.TenantSummary) string { return string(t.Tenant) })
			return out, nil
		})
	add(a, route{id: "make-decision", method: http.MethodGet, path: "/v1/tenants/{tenant}/decision", needs: switchboard.OfficeViewer, summary: "The decision for a task as it would be made now, with every candidate and every reason"},
		func(ctx context.Context, q asked, in *explainRequest) (*struct{ Body admin.Explanation }, error) {
			p, err := a.o.Reader.Principal(q.tenant, in.Principal)
			if err != nil {
				return nil, err
			}
			x, err := a.o.Reader.Explain(ctx, p, admin.ExplainQuery{
				Task: in.Task, Tokens: in.Tokens, Budget: in.Budget, Definitions: in.Definitions, NoMessages: !q.operator(),
			})
			if err != nil {
				return nil, err
			}
			return &struct{ Body admin.Explanation }{*x}, nil
		})
}
