package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

const problemType = "application/problem+json"

// An apiProblem is a refusal as the API gives it. It implements huma.StatusError.
type apiProblem struct {
	access.Problem
	Faults []fault `json:"faults,omitempty" doc:"What is wrong with the request, part by part."`

	after time.Duration // for Retry-After; 0 means none
}

// A fault is one thing that is wrong with a request.
type fault struct {
	Where string `json:"where,omitempty" doc:"The part of the request, such as body.reason or query.limit."`
	Text  string `json:"text"`
}

// Error implements error.
func (p *apiProblem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *apiProblem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *apiProblem) ContentType(string) string { return problemType }

// refuse returns e as a problem. Any other error than a *switchboard.Error is logged, and its text is not shown.
func (a *API) refuse(err error) error {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*apiProblem](err); ok {
		return p
	}
	if _, ok := errors.AsType[*switchboard.Error](err); !ok {
		a.o.Log.Error("the admin API could not answer", "err", err)
	}
	e := access.AsError(err)
	return &apiProblem{Problem: access.ProblemOf(access.HTTPStatus(e.Code), e)}
}

// notFound returns the refusal of something that is not there, or that the officer may not see.
func notFound(text string) error {
	return &apiProblem{Problem: access.ProblemOf(http.StatusNotFound, &switchboard.Error{Text: text})}
}

// newProblem makes the problems of huma's own checks. It repeats no value of the request: that may be a secret.
func newProblem(status int, text string, errs ...error) huma.StatusError {
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest // 422 is for configurations with faults
	}
	p := &apiProblem{Problem: access.ProblemOf(status, &switchboard.Error{Text: text})}
	for _, err := range errs {
		if d, ok := err.(huma.ErrorDetailer); ok {
			p.Faults = append(p.Faults, fault{d.ErrorDetail().Location, d.ErrorDetail().Message})
		} else if err != nil {
			p.Faults = append(p.Faults, fault{"", err.Error()})
		}
	}
	return p
}

// setUpHuma sets huma's variables, which hold for the whole program. No list of an answer is null: it is empty, or left out.
var setUpHuma = sync.OnceFunc(func() {
	huma.NewError = newProblem
	huma.DefaultArrayNullable = false
})

// errNotStrict is the refusal of a body that two readers could read differently.
var errNotStrict = errors.New("this is not valid JSON, has a member twice, or is too deep")

// readJSON reads a body strictly.
func readJSON(data []byte, v any) error {
	if !wire.Strict(data) {
		return errNotStrict
	}
	return json.Unmarshal(data, v)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
