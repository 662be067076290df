package api

import (
	"context"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

// lastWeek is the time whose decisions a dry run makes again.
const lastWeek = 7 * 24 * time.Hour

type comparisonRequest struct {
	TenantQuery
	Body struct {
		Since time.Time `json:"since,omitzero" doc:"Compare the decisions since then; of the last 7 days if absent."`
		Path  string    `json:"path,omitempty" maxLength:"512" doc:"The file of the configuration that is replaced. Without it, the decisions are made again as they were, and must come out the same."`
		Text  *string   `json:"text,omitempty" maxLength:"1048576" doc:"The text that replaces the file; without it, the file is deleted."`
	}
}

type comparisonAnswer struct {
	Location string `header:"Location"`
	Body     whatif.Comparison
}

type comparisonPath struct {
	ID string `path:"comparison" pattern:"^[0-9a-f]{16}$" doc:"The id of the comparison."`
}

type comparisonList struct {
	Body struct {
		Comparisons []whatif.Comparison `json:"comparisons"`
	}
}

// readable returns whether the officer may read a file.
func (a comparisonRoutes) readable(q asked) func(path string) bool {
	return func(path string) bool {
		_, _, err := a.o.Editor.Permit(q.officer, path)
		return err == nil
	}
}

// comparisonRoutes are the routes about comparisons of recorded decisions.
type comparisonRoutes struct{ *API }

// addAll adds the routes.
func (a comparisonRoutes) addAll() {
	add(a.API, route{id: "start-comparison", method: http.MethodPost, path: "/v1/comparisons", needs: switchboard.OfficeViewer, status: http.StatusAccepted, errors: []int{http.StatusUnprocessableEntity}, summary: "Start to compare recorded decisions with what they would have been under another text of one file"},
		func(ctx context.Context, q asked, in *comparisonRequest) (*comparisonAnswer, error) {
			scope := whatif.Selection{Tenant: q.tenant, Since: in.Body.Since, Path: in.Body.Path, Proposal: &replay.Proposal{}}
			if scope.Since.IsZero() {
				scope.Since = time.Now().Add(-lastWeek)
			}
			if in.Body.Path != "" {
				var text []byte
				if in.Body.Text != nil {
					text = []byte(*in.Body.Text)
				}
				proposal, err := a.propose(ctx, change.Wish{Path: in.Body.Path, Text: text, By: *q.officer})
				if err != nil {
					return nil, err
				}
				scope.Proposal = proposal
			}
			c, err := a.o.Comparisons.Start(*q.officer, scope)
			if err != nil {
				return nil, err
			}
			return &comparisonAnswer{"/v1/comparisons/" + c.ID, c}, nil
		})
	add(a.API, route{id: "list-comparisons", method: http.MethodGet, path: "/v1/comparisons", needs: anyOffice, summary: "The comparisons of this process that the officer may see, the newest first"},
		func(_ context.Context, q asked, _ *struct{}) (*comparisonList, error) {
			out := &comparisonList{}
			out.Body.Comparisons = a.o.Comparisons.List(*q.officer, a.readable(q))
			return out, nil
		})
	add(a.API, route{id: "read-comparison", method: http.MethodGet, path: "/v1/comparisons/{comparison}", needs: anyOffice, summary: "How far a comparison is, or its result. It is kept for 10 minutes"},
		func(_ context.Context, q asked, in *comparisonPath) (*struct{ Body whatif.Comparison }, error) {
			c, ok := a.o.Comparisons.Get(*q.officer, in.ID, a.readable(q))
			if !ok {
				return nil, notFound("there is no such comparison at this process that you may see; it may be older than 10 minutes")
			}
			return &struct{ Body whatif.Comparison }{c}, nil
		})
	add(a.API, route{id: "cancel-comparison", method: http.MethodDelete, path: "/v1/comparisons/{comparison}", needs: anyOffice, status: http.StatusNoContent, summary: "Cancel a comparison"},
		func(_ context.Context, q asked, in *comparisonPath) (*struct{}, error) {
			if !a.o.Comparisons.Cancel(*q.officer, in.ID, a.readable(q)) {
				return nil, notFound("there is no such comparison at this process that you may see; it may be older than 10 minutes")
			}
			return nil, nil
		})
}

// propose returns the configuration with one file replaced, as a proposal. The error is SB-CONF-001 if it would have new faults.
func (a comparisonRoutes) propose(ctx context.Context, w change.Wish) (*replay.Proposal, error) {
	trial, c, err := a.o.Editor.Try(ctx, w)
	if err == nil {
		err = trial.Refusal()
	}
	if err != nil {
		return nil, changed(err)
	}
	return replay.ProposeConfig(c), nil
}

// compareLastWeek says in the answer to a dry run what last week's decisions would have been.
func (a comparisonRoutes) compareLastWeek(ctx context.Context, q asked, path string, p *replay.Proposal, out *changeAnswer) error {
	tenant, _, _ := a.o.Editor.OwnerOf(path)
	d, why, err := a.o.Comparisons.Quick(ctx, whatif.Selection{Tenant: tenant, Path: path, Since: time.Now().Add(-lastWeek), Proposal: p})
	if err != nil {
		a.o.Log.Warn("a dry run does not know what last week's decisions would have been", "err", err, "by", q.officer.ID)
		why = "the recorded decisions cannot be read now"
	}
	out.Body.Decisions, out.Body.Unknown = d, why
	return ctx.Err()
}
