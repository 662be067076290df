package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin/verification"
	"github.com/summit-switchboard/switchboard/internal/evidence"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A VerificationQuery names a server, or one of its tools.
type VerificationQuery struct {
	Server switchboard.ServerID `query:"server" required:"true" minLength:"1" maxLength:"64" doc:"The server."`
	Tool   string               `query:"tool" maxLength:"256" doc:"Only this tool of it; all if absent."`
}

type verificationAnswer struct {
	Body struct {
		Progress *verification.Progress `json:"progress,omitempty" doc:"How the last verification here went, or how far it is; absent if this process has made none."`
		Reports  []evidence.KeptReport  `json:"reports" doc:"The last report of each tool, sorted by tool."`
	}
}

type verificationPlan struct {
	Body struct {
		Plans []verification.ToolPlan `json:"plans" doc:"What would be called, sorted by tool."`
	}
}

// verificationRoutes are the routes about verifications.
type verificationRoutes struct{ *API }

func (p verificationRoutes) add() {
	a := p.API
	add(a, route{id: "read-verification", method: http.MethodGet, path: "/v1/verifications", needs: switchboard.OfficeOperator, summary: "What the tools of a server were seen to do, and whether they are being verified"},
		func(_ context.Context, _ asked, in *VerificationQuery) (*verificationAnswer, error) {
			return p.answer(in)
		})
	add(a, route{id: "plan-verification", method: http.MethodGet, path: "/v1/verifications/plan", needs: switchboard.OfficeOperator, summary: "What a verification would call. Nothing is called"},
		func(_ context.Context, _ asked, in *VerificationQuery) (*verificationPlan, error) {
			plans, err := a.o.People.Verifier.Plan(in.Server, in.Tool)
			if err != nil {
				return nil, knownVerification(err)
			}
			out := &verificationPlan{}
			out.Body.Plans = plans
			return out, nil
		})
	add(a, route{id: "start-verification", method: http.MethodPost, path: "/v1/verifications", needs: switchboard.OfficeOperator, errors: []int{http.StatusConflict}, summary: "Begin to verify a server, or one tool of it. 409 while another verification runs"},
		func(_ context.Context, q asked, in *VerificationQuery) (*verificationAnswer, error) {
			if _, err := a.o.People.Verifier.Start(in.Server, in.Tool, q.officer.ID); err != nil {
				return nil, knownVerification(err)
			}
			return p.answer(in)
		})
}

// answer returns what is known about a server, or a tool.
func (p verificationRoutes) answer(in *VerificationQuery) (*verificationAnswer, error) {
	out := &verificationAnswer{}
	all, err := p.o.People.Verifier.Reports(in.Server, in.Tool)
	if err != nil {
		return nil, knownVerification(err)
	}
	out.Body.Reports = all
	if progress, ok := p.o.People.Verifier.Of(in.Server); ok {
		out.Body.Progress = &progress
	}
	return out, nil
}

// knownVerification returns an error of the Verifier as an answer.
func knownVerification(err error) error {
	switch {
	case errors.Is(err, verification.ErrUnknown):
		return notFound(err.Error())
	case errors.Is(err, verification.ErrBusy):
		return &apiProblem{Problem: access.ProblemOf(http.StatusConflict, &switchboard.Error{Text: err.Error(), Hint: "wait until it has ended; GET /v1/verifications says how far it is"})}
	}
	return err
}
