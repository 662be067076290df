package api

import (
	"context"
	"fmt"
	"math"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/proposal"
)

// proposalRoutes are the routes about proposals.
type proposalRoutes struct{ *API }

type proposalList struct {
	Body struct {
		Proposals []*proposal.KeptProposal `json:"proposals" doc:"The newest first. Proposals that have ended are kept for 30 days."`
		Next      string                   `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

// A ProposalPath names a proposal.
type ProposalPath struct {
	Proposal string `path:"proposal" maxLength:"20" doc:"The id of the proposal, as in the list of proposals." example:"k3fqx2mz7a"`
}

type proposalNote struct {
	ProposalPath
	Body *struct {
		Note string `json:"note,omitempty" maxLength:"2000" doc:"Your words. They are recorded; of a refusal, the proposer gets them."`
	}
}

func (n *proposalNote) note() string {
	if n.Body == nil {
		return ""
	}
	return n.Body.Note
}

type proposalAnswer struct{ Body proposal.KeptProposal }

// placeOfProposal returns the place of a proposal in the list. A newer one has a smaller place.
func placeOfProposal(p *proposal.KeptProposal) string {
	return fmt.Sprintf("%016x %s", math.MaxInt64-p.Created.UnixNano(), p.ID)
}

// answer returns a proposal, or the error of a step.
func (a proposalRoutes) answer(p *proposal.KeptProposal, err error) (*proposalAnswer, error) {
	if err != nil {
		return nil, changed(err)
	}
	return &proposalAnswer{p.Public()}, nil
}

// add adds the routes.
func (a proposalRoutes) add() {
	conflict := []int{http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity}
	add(a.API, route{id: "list-proposals", method: http.MethodGet, path: "/v1/proposals", needs: anyOffice, summary: "The proposals of files that you may change, the newest first"},
		func(ctx context.Context, q asked, in *PageQuery) (*proposalList, error) {
			all, err := a.o.People.Proposals.List(ctx, q.officer)
			if err != nil {
				return nil, err
			}
			out := &proposalList{}
			out.Body.Proposals, out.Body.Next = cut(*in, all, placeOfProposal)
			for i, p := range out.Body.Proposals {
				public := p.Public()
				out.Body.Proposals[i] = &public
			}
			return out, nil
		})
	add(a.API, route{id: "create-proposal", method: http.MethodPost, path: "/v1/proposals", needs: anyOffice, status: http.StatusCreated, errors: conflict, summary: "Try a change of several files, with claims about what it does, and keep it as a proposal. Nothing of it is in force"},
		func(ctx context.Context, q asked, in *struct{ Body proposal.Draft }) (*proposalAnswer, error) {
			return a.answer(a.o.People.Proposals.Create(ctx, proposal.ByOfficer(q.officer), q.officer, &in.Body))
		})
	add(a.API, route{id: "read-proposal", method: http.MethodGet, path: "/v1/proposals/{proposal}", needs: anyOffice, summary: "One proposal, as a person must read it before deciding, with the difference of its files"},
		func(ctx context.Context, q asked, in *ProposalPath) (*struct{ Body proposal.View }, error) {
			v, err := a.o.People.Proposals.Show(ctx, q.officer, in.Proposal)
			if err != nil {
				return nil, changed(err)
			}
			v.KeptProposal = v.Public()
			return &struct{ Body proposal.View }{*v}, nil
		})
	add(a.API, route{id: "approve-proposal", method: http.MethodPost, path: "/v1/proposals/{proposal}/approve", needs: anyOffice, errors: conflict, summary: "Say yes to a proposal of somebody else"},
		func(ctx context.Context, q asked, in *proposalNote) (*proposalAnswer, error) {
			return a.answer(a.o.People.Proposals.Decide(ctx, q.officer, in.Proposal, true, in.note()))
		})
	add(a.API, route{id: "refuse-proposal", method: http.MethodPost, path: "/v1/proposals/{proposal}/refuse", needs: anyOffice, errors: conflict, summary: "Say no to a proposal, with a note. That ends it"},
		func(ctx context.Context, q asked, in *proposalNote) (*proposalAnswer, error) {
			return a.answer(a.o.People.Proposals.Decide(ctx, q.officer, in.Proposal, false, in.note()))
		})
	add(a.API, route{id: "apply-proposal", method: http.MethodPost, path: "/v1/proposals/{proposal}/apply", needs: anyOffice, errors: conflict, summary: "Make the change of a proposal that has its yeses, and check its claims on what is served then. If one does not hold, the old files are put back (SB-CONF-004)"},
		func(ctx context.Context, q asked, in *ProposalPath) (*proposalAnswer, error) {
			return a.answer(a.o.People.Proposals.Apply(ctx, q.officer, in.Proposal))
		})
	add(a.API, route{id: "roll-back-proposal", method: http.MethodPost, path: "/v1/proposals/{proposal}/roll-back", needs: anyOffice, errors: conflict, summary: "Put the files back that an applied proposal has replaced, if they were not changed since"},
		func(ctx context.Context, q asked, in *proposalNote) (*proposalAnswer, error) {
			return a.answer(a.o.People.Proposals.RollBack(ctx, q.officer, in.Proposal, in.note()))
		})
}
