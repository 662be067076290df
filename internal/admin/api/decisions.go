package api

import (
	"context"
	"net/http"

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

// addDecisions adds the routes about tasks and about decisions that are made to be shown.
func (a *API) addDecisions() {
	add(a, route{id: "list-tenants", method: http.MethodGet, path: "/v1/tenants", needs: switchboard.OfficeViewer, summary: "The tenants that the officer may see, with their tasks"},
		func(_ context.Context, q asked, _ *TenantQuery) (*struct {
			Body struct {
				Tenants []admin.TenantSummary `json:"tenants"`
			}
		}, error,
		) {
			out := &struct {
				Body struct {
					Tenants []admin.TenantSummary `json:"tenants"`
				}
			}{}
			out.Body.Tenants = []admin.TenantSummary{}
			for _, t := range a.o.Reader.Tenants() {
				if q.officer.Sees(t.Tenant) && (q.tenant == "" || q.tenant == t.Tenant) {
					out.Body.Tenants = append(out.Body.Tenants, t)
				}
			}
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
