package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/standing"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type standingRequest struct {
	ApprovalQuery
	Body struct {
		Uses      int64           `json:"uses" minimum:"1" maximum:"1000" doc:"How many calls it spares the asking."`
		For       string          `json:"for" maxLength:"20" doc:"How long, such as 2h; at most what the operator allows." example:"2h"`
		Arguments json.RawMessage `json:"arguments" doc:"A test for each argument, by its JSON Pointer: \"any\", {\"equals\": VALUE} or {\"in\": [VALUE, …]}. An argument without a test does not fit, and numbers count as they are spelt."`
	}
}

type standingList struct {
	Body struct {
		Standing []approvals.StandingRow `json:"standing" doc:"The one that ends first comes first. Those that have ended are kept for a week."`
		Next     string                  `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

// addStanding adds the routes about standing yeses.
func (a approvalRoutes) addStanding() {
	add(a.API, route{id: "list-standing-approvals", method: http.MethodGet, path: "/v1/standing-approvals", needs: switchboard.OfficeViewer, summary: "What people have said yes to in advance"},
		func(ctx context.Context, q asked, in *struct {
			TenantQuery
			PageQuery
		},
		) (*standingList, error) {
			rows, err := a.o.People.Approvals.ListStanding(ctx, q.officer, q.tenant)
			if err != nil {
				return nil, err
			}
			out := &standingList{}
			out.Body.Standing, out.Body.Next = cut(in.PageQuery, rows, func(r approvals.StandingRow) string { return r.Place() })
			return out, nil
		})
	add(a.API, route{id: "make-standing-approval", method: http.MethodPost, path: "/v1/approvals/{request}/standing", needs: switchboard.OfficeApprover, summary: "Say yes in advance to calls like the one of a request. It does not decide the request itself"},
		func(ctx context.Context, q asked, in *standingRequest) (*struct{ Body approvals.StandingRow }, error) {
			bad := func(text string) error { return &switchboard.Error{Code: switchboard.CodeBadArguments, Text: text} }
			terms := standing.YesTerms{Uses: in.Body.Uses}
			var err error
			if terms.For, err = time.ParseDuration(in.Body.For); err != nil {
				return nil, bad("for is a time such as 2h or 30m")
			}
			if terms.Arguments, err = standing.ParseTests(in.Body.Arguments); err != nil {
				return nil, bad(err.Error())
			}
			row, err := a.o.People.Approvals.MakeStanding(ctx, q.officer, in.Tenant, in.ID, terms)
			if err != nil {
				return nil, approvalProblem(err)
			}
			return &struct{ Body approvals.StandingRow }{*row}, nil
		})
	add(a.API, route{id: "end-standing-approval", method: http.MethodPost, path: "/v1/standing-approvals/{standing}/end", needs: switchboard.OfficeApprover, summary: "End a standing yes: people are asked again"},
		func(ctx context.Context, q asked, in *struct {
			Tenant switchboard.TenantID `query:"tenant" maxLength:"64" doc:"Its tenant. Without it, it is looked for in all tenants that you see."`
			ID     string               `path:"standing" maxLength:"64" doc:"The id of the standing yes." example:"k3fqx2mz7ab4cd5e"`
		},
		) (*struct{ Body approvals.StandingRow }, error) {
			row, err := a.o.People.Approvals.EndStanding(ctx, q.officer, in.Tenant, in.ID)
			if errors.Is(err, approvals.ErrNoStanding) {
				return nil, notFound(err.Error())
			}
			if err != nil {
				return nil, err
			}
			return &struct{ Body approvals.StandingRow }{*row}, nil
		})
}
