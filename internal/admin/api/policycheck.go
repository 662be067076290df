package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type policyCheckRequest struct {
	TenantQuery
	Body *struct {
		Files      []ProposedText `json:"files,omitempty" maxItems:"200" doc:"Files in the place of the tenant's present ones, with paths in its folder of policies, such as veto.rego. The request must be about one tenant."`
		Boundaries *string        `json:"boundaries,omitempty" nullable:"false" maxLength:"1048576" doc:"A text in the place of capabilities/boundaries.yaml, which is checked as a reload checks it. Only an operator may propose it."`
	}
}

// A policyInput is an input of policies. Its numbers keep their spelling.
type policyInput map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (p *policyInput) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode((*map[string]any)(p))
}

type policyEvalRequest struct {
	TenantQuery
	Body struct {
		Input       policyInput    `json:"input,omitempty" doc:"The input, as policies get it. Absent members get the values of the decision, or else of the tenant's local user. tenant_id names the tenant if the request does not."`
		Decision    string         `json:"decision,omitempty" maxLength:"128" doc:"The id of a recorded decision on a task: its input is evaluated. The request must be about one tenant."`
		Need        int            `json:"requirement,omitempty" minimum:"1" maximum:"1000" doc:"With decision: the number of the requirement, from 1. Without it: the first."`
		Expressions bool           `json:"expressions,omitempty" doc:"Give the values of all expressions too."`
		Files       []ProposedText `json:"files,omitempty" maxItems:"200" doc:"Files in the place of the tenant's present ones, with paths in its folder of policies, such as veto.rego."`
		Boundaries  *string        `json:"boundaries,omitempty" nullable:"false" maxLength:"1048576" doc:"A text in the place of capabilities/boundaries.yaml. Only an operator may propose it."`
		Capability  string         `json:"capability,omitempty" maxLength:"128" doc:"A capability, such as io.fs.read@^1, which joins the candidates of the input. Only an operator may name it."`
	}
}

// addChecks adds the routes that look at policies without running their tests. tester evaluates them.
func (a policyRoutes) addChecks(tester *admin.PolicyTester) {
	errors := []int{http.StatusUnprocessableEntity}
	recorded := admin.NewDecisionReader(a.o.Reader)
	add(a.API, route{
		id: "check-policies", method: http.MethodPost, path: "/v1/policies/check", needs: switchboard.OfficeAuthor, readOnly: true, errors: errors,
		summary: "Report probable mistakes in the policies of a tenant, or in candidates, for 20 seconds at most. An operator who names no tenant checks all layers, also the operator's. Nothing is changed",
	}, func(ctx context.Context, q asked, in *policyCheckRequest) (*struct{ Body admin.PolicyCheck }, error) {
		var trial admin.PolicyTrial
		if in.Body != nil {
			var err error
			if trial, err = a.trialOf(ctx, q, in.Body.Files, in.Body.Boundaries); err != nil {
				return nil, err
			}
		}
		if len(trial.Files) > 0 && q.tenant == "" {
			return nil, badRequest("name the tenant of the files, as in ?tenant=ID")
		}
		check, err := tester.Check(ctx, q.tenant, trial)
		if err != nil {
			return nil, err
		}
		return &struct{ Body admin.PolicyCheck }{*check}, nil
	})
	add(a.API, route{
		id: "eval-policies", method: http.MethodPost, path: "/v1/policies/eval", needs: switchboard.OfficeAuthor, readOnly: true, errors: errors,
		summary: "Evaluate the policies of a tenant, or candidates, for one input, with the value of every rule; an operator also sees the values of the operator's rules. Nothing is changed",
	}, func(ctx context.Context, q asked, in *policyEvalRequest) (*struct{ Body admin.PolicyEvaluation }, error) {
		trial, err := a.trialOf(ctx, q, in.Body.Files, in.Body.Boundaries)
		if err != nil {
			return nil, err
		}
		if trial.Capability = in.Body.Capability; trial.Capability != "" && !q.operator() {
			return nil, switchboard.Refuse(switchboard.CodeNotAuthorized, "only an operator may name a capability here")
		}
		switch {
		case in.Body.Decision != "":
			if err := a.readDecisionInput(ctx, q, recorded, in); err != nil {
				return nil, err
			}
		case in.Body.Input == nil && trial.Capability == "":
			return nil, badRequest("say what to evaluate: an input, a decision, a capability, or several of them")
		case in.Body.Input == nil:
			in.Body.Input = policyInput{}
		}
		trial.Expressions = in.Body.Expressions
		said, _ := in.Body.Input["tenant_id"].(string)
		got, err := tester.Evaluate(ctx, cmp.Or(q.tenant, switchboard.TenantID(said)), in.Body.Input, trial, q.operator())
		if err != nil {
			return nil, err
		}
		return &struct{ Body admin.PolicyEvaluation }{*got}, nil
	})
}

// readDecisionInput completes the input of a request from the recorded decision that it names.
func (a policyRoutes) readDecisionInput(ctx context.Context, q asked, recorded *admin.DecisionReader, in *policyEvalRequest) error {
	if q.tenant == "" {
		return badRequest("name the tenant of the decision, as in ?tenant=ID")
	}
	if _, _, _, err := receipt.ParseID(in.Body.Decision); err != nil {
		return badRequest(err.Error())
	}
	input, err := recorded.Input(ctx, q.tenant, in.Body.Decision, max(in.Body.Need, 1))
	if err != nil {
		return err
	}
	if input == nil {
		return errNoDecision
	}
	maps.Copy(input, in.Body.Input)
	in.Body.Input = input
	return nil
}

var errNoDecision = notFound("there is no recorded decision of that id that you may see")

// trialOf returns what a request tries. boundaries may be nil.
func (a policyRoutes) trialOf(ctx context.Context, q asked, files []ProposedText, boundaries *string) (trial admin.PolicyTrial, err error) {
	if trial.Files, err = candidatesOf(files); err != nil || boundaries == nil {
		return trial, err
	}
	trial.Boundaries, err = change.ProposeBoundaries(ctx, a.o.Editor, q.officer, []byte(*boundaries))
	if err != nil {
		err = changed(err)
	}
	return trial, err
}

// candidatesOf returns the files of a request.
func candidatesOf(files []ProposedText) (all []admin.CandidateFile, err error) {
	for _, f := range files {
		if !fs.ValidPath(f.Path) {
			return nil, badRequest("a file needs a path in the tenant's folder of policies")
		}
		one := admin.CandidateFile{Path: f.Path}
		if f.Text != nil {
			one.Text = []byte(*f.Text)
		}
		all = append(all, one)
	}
	return all, nil
}
