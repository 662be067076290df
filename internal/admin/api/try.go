package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/admin/trial"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// tryPath is the path of the calls that persons try.
const tryPath = "/v1/try"

// tryRoutes are the routes about the calls that persons try.
type tryRoutes struct{ *API }

type tryCallRequest struct {
	TenantQuery
	Body trial.TryCall
}

// add adds the routes.
func (a tryRoutes) add() {
	add(a.API, route{id: "read-try", method: http.MethodGet, path: tryPath, needs: switchboard.OfficeViewer, summary: "Which tools you can call yourself: those of the tasks that a row under members gives you"},
		func(ctx context.Context, q asked, in *struct {
			TenantQuery
			Task switchboard.TaskID `query:"task" maxLength:"64" doc:"The task; if absent, your first one."`
			Tool string             `query:"tool" maxLength:"256" doc:"The tool whose schema you want."`
		},
		) (*struct{ Body trial.TryOffer }, error) {
			offer, err := a.o.People.Trier.Offer(ctx, q.officer, q.tenant, in.Task, in.Tool)
			if err != nil {
				return nil, err
			}
			return &struct{ Body trial.TryOffer }{*offer}, nil
		})
	add(a.API, route{id: "make-try", method: http.MethodPost, path: tryPath, needs: switchboard.OfficeViewer, summary: "Call a tool as yourself, through the client page: as an agent would, with policies, approvals, budgets and a receipt. What the call got is the answer, also a refusal"},
		func(ctx context.Context, q asked, in *tryCallRequest) (*struct{ Body trial.TryOutcome }, error) {
			out, err := a.o.People.Trier.Call(ctx, q.officer, q.tenant, &in.Body, keyOf(ctx))
			if err != nil {
				return nil, err
			}
			return &struct{ Body trial.TryOutcome }{*out}, nil
		})
	add(a.API, route{id: "read-try-outcome", method: http.MethodGet, path: tryPath + "/{call}", needs: switchboard.OfficeViewer, errors: []int{http.StatusConflict}, summary: "What a call of yours got, again; 409 while it is made. Nothing is called. Kept for 24 hours"},
		func(ctx context.Context, q asked, in *struct {
			TenantQuery
			Call string `path:"call" maxLength:"255" doc:"The Idempotency-Key of the call."`
		},
		) (*struct{ Body trial.TryOutcome }, error) {
			return a.kept(ctx, q, in.Call)
		})
}

// kept returns the outcome of a call of the officer. The key may belong to another request, whose answer is none of a call.
func (a tryRoutes) kept(ctx context.Context, q asked, key string) (*struct{ Body trial.TryOutcome }, error) {
	none := notFound("there is no such call of yours, or no longer: what calls got is kept for 24 hours")
	text, err := a.o.Keys.Kept(ctx, senderOf(q.officer), key)
	switch {
	case err != nil:
		return nil, refuseKey(err)
	case text == nil:
		return nil, none
	}
	head, body, _ := bytes.Cut(text, []byte("\n"))
	var s storedAnswer
	if err := json.Unmarshal(head, &s); err != nil {
		return nil, err
	}
	if s.Status != http.StatusOK {
		p := &apiProblem{}
		if s.Status < http.StatusBadRequest || json.Unmarshal(body, &p.Problem) != nil || p.Status != s.Status {
			return nil, none // the key of another request
		}
		return nil, p
	}
	out := &struct{ Body trial.TryOutcome }{}
	strict := json.NewDecoder(bytes.NewReader(body))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&out.Body); err != nil || out.Body.Tool == "" || out.Body.Principal == "" || q.tenant != "" && q.tenant != out.Body.Tenant || !q.officer.Sees(out.Body.Tenant) {
		return nil, none
	}
	return out, nil
}

type givenKey struct{}

// keyOf returns the idempotency key of the request, as it is given on to a call; "" for none.
func keyOf(ctx context.Context) string {
	key, _ := ctx.Value(givenKey{}).(string)
	return key
}
