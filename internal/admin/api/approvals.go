package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// approvalRoutes are the routes about requests for approval.
type approvalRoutes struct{ *API }

type approvalList struct {
	Body struct {
		Approvals []approvals.ApprovalRow `json:"approvals" doc:"The newest first. Requests that have ended are kept for some days."`
		Next      string                  `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

// An ApprovalQuery names a request.
type ApprovalQuery struct {
	Tenant switchboard.TenantID `query:"tenant" maxLength:"64" doc:"The tenant of the request. Without it, the request is looked for in all tenants that you see."`
	ID     string               `path:"request" maxLength:"64" doc:"The id of the request." example:"k3fqx2mz7ab4cd5e-1"`
}

type approveRequest struct {
	ApprovalQuery
	Body *struct {
		Note  string `json:"note,omitempty" maxLength:"2000" doc:"Your words. They are recorded, and the agent gets those of a refusal."`
		Scope string `json:"scope,omitempty" enum:"run,task" doc:"Of a capability: for the run that asked, or for all runs of its task."`
		For   string `json:"for,omitempty" maxLength:"20" doc:"Of a capability: how long, such as 8h." example:"8h"`
	}
}

type noteRequest struct {
	ApprovalQuery
	Body *struct {
		Note string `json:"note,omitempty" maxLength:"2000" doc:"Your words. They are recorded, and the agent gets those of a refusal."`
	}
}

func (r *noteRequest) note() string {
	if r.Body == nil {
		return ""
	}
	return r.Body.Note
}

// verdict returns a yes as the request states it.
func (r *approveRequest) verdict(now time.Time) (approvals.DecisionWish, error) {
	v := approvals.DecisionWish{Act: approval.ActApprove}
	if r.Body == nil {
		return v, nil
	}
	v.Note, v.Grant.Scope = r.Body.Note, r.Body.Scope
	if r.Body.For != "" {
		d, err := time.ParseDuration(r.Body.For)
		if err != nil || d <= 0 {
			return v, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "for is a time such as 8h or 30m"}
		}
		v.Grant.Until = now.Add(d)
	}
	return v, nil
}

// add adds the routes. Nothing below /mcp leads to them.
func (a approvalRoutes) add() {
	a.addStanding()
	add(a.API, route{id: "list-approvals", method: http.MethodGet, path: "/v1/approvals", needs: switchboard.OfficeViewer, summary: "What agents have asked people for, the newest first. No arguments"},
		func(ctx context.Context, q asked, in *struct {
			TenantQuery
			PageQuery
			approvals.ApprovalFilter
		},
		) (*approvalList, error) {
			rows, err := a.o.People.Approvals.List(ctx, q.tenant, in.ApprovalFilter)
			if err != nil {
				return nil, err
			}
			out := &approvalList{}
			out.Body.Approvals, out.Body.Next = cut(in.PageQuery, rows, func(r approvals.ApprovalRow) string { return r.Place() })
			return out, nil
		})
	add(a.API, route{id: "read-approval", method: http.MethodGet, path: "/v1/approvals/{request}", needs: anyOffice, summary: "One request, as a person must read it before deciding. Only an approver of the tenant sees the arguments"},
		func(ctx context.Context, q asked, in *ApprovalQuery) (*struct{ Body approvals.ApprovalView }, error) {
			v, err := a.o.People.Approvals.Show(ctx, q.officer, in.Tenant, in.ID)
			if err != nil {
				return nil, approvalProblem(err)
			}
			return &struct{ Body approvals.ApprovalView }{*v}, nil
		})
	conflict := []int{http.StatusConflict}
	add(a.API, route{id: "approve", method: http.MethodPost, path: "/v1/approvals/{request}/approve", needs: switchboard.OfficeApprover, errors: conflict, summary: "Say yes to a request. The yes is for one call, exactly as it was shown"},
		func(ctx context.Context, q asked, in *approveRequest) (*struct{ Body approvals.ApprovalRow }, error) {
			v, err := in.verdict(time.Now())
			if err != nil {
				return nil, err
			}
			return a.decide(ctx, q, &in.ApprovalQuery, v)
		})
	add(a.API, route{id: "refuse", method: http.MethodPost, path: "/v1/approvals/{request}/refuse", needs: switchboard.OfficeApprover, errors: conflict, summary: "Say no to a request. The agent gets the note"},
		func(ctx context.Context, q asked, in *noteRequest) (*struct{ Body approvals.ApprovalRow }, error) {
			return a.decide(ctx, q, &in.ApprovalQuery, approvals.DecisionWish{Act: approval.ActRefuse, Note: in.note()})
		})
	add(a.API, route{id: "revoke-approval", method: http.MethodPost, path: "/v1/approvals/{request}/revoke", needs: switchboard.OfficeApprover, errors: conflict, summary: "Take back a yes that was not used"},
		func(ctx context.Context, q asked, in *noteRequest) (*struct{ Body approvals.ApprovalRow }, error) {
			return a.decide(ctx, q, &in.ApprovalQuery, approvals.DecisionWish{Act: approval.ActRevoke, Note: in.note()})
		})
}

func (a approvalRoutes) decide(ctx context.Context, q asked, in *ApprovalQuery, v approvals.DecisionWish) (*struct{ Body approvals.ApprovalRow }, error) {
	row, err := a.o.People.Approvals.Decide(ctx, q.officer, in.Tenant, in.ID, v)
	if err != nil {
		return nil, approvalProblem(err)
	}
	return &struct{ Body approvals.ApprovalRow }{*row}, nil
}

// approvalProblem returns an error about a request as a problem: somebody else was first, or has said yes already.
func approvalProblem(err error) error {
	outrun, _ := errors.AsType[*approval.OutrunError](err)
	switch {
	case errors.Is(err, approvals.ErrNoRequest):
		return notFound(err.Error())
	case outrun != nil, errors.Is(err, approval.ErrVoted):
		return &apiProblem{Problem: access.ProblemOf(http.StatusConflict, &switchboard.Error{Code: switchboard.CodeChangedMeanwhile, Text: err.Error()})}
	}
	return err
}
