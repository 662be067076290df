// Package boundary makes the layer of policy that judges the operator's boundaries, and asks it which rows fire for a
// capability.
//
// The rules are boundaries.rego, which is embedded; the rows are its data. So the layer does not depend on any folder of
// policies, and no such folder can leave it out. Package policy evaluates the layer in front of the others, and package
// verdict says what the rows that fire mean for a capability. Answers keep what the rows say for one tenant, and give the verdicts.
package boundary

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
	"github.com/summit-switchboard/switchboard/policies"
)

// rules is the layer without rows. It is compiled once.
var rules = sync.OnceValues(func() (*policy.Layer, error) { return compile(policies.Boundaries) })

func compile(text []byte) (*policy.Layer, error) {
	return policy.Compile(policy.Boundaries, []switchboard.PolicyFile{{Name: "boundaries.rego", Path: "boundaries.rego", Data: text}})
}

// Layer returns the layer for these rows. Without rows it allows everything.
func Layer(rows []capability.Boundary) (*policy.Layer, error) {
	l, err := rules()
	if err != nil {
		return nil, err
	}
	if rows == nil {
		rows = []capability.Boundary{}
	}
	text, err := json.Marshal(map[string]any{"boundaries": rows})
	if err != nil {
		return nil, fmt.Errorf("the boundaries: %w", err)
	}
	return l.WithData(text)
}

// ForTenants returns the layer for the policies of tenants: Layer, or nil without rows, since it would cost time and decide
// nothing.
func ForTenants(rows []capability.Boundary) (*policy.Layer, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	return Layer(rows)
}

// firedRows is the query for the rows that fire, by the id of a candidate.
const firedRows = "{c.id: data.switchboard.boundaries.fired(c.contract) | some c in input.candidate_tools}"

// Fired returns for each tool the rows of the registry that fire, in the order of tools. l is a Layer of the registry's rows; it
// may be nil if there are none. An error means that no tool may be used.
func Fired(ctx context.Context, l *policy.Layer, r *capability.Registry, tools []*switchboard.Tool) ([][]verdict.Fired, error) {
	fired := make([][]verdict.Fired, len(tools))
	switch {
	case l == nil && len(r.Boundaries) > 0:
		return nil, errors.New("the boundaries could not be judged: there is no layer of them")
	case l == nil:
		return fired, nil
	}
	judged := make([]*switchboard.Tool, len(tools))
	for i, t := range tools {
		// A server's tool can provide several versions, so that its id does not say which contract the rows fire for. Rows read no id.
		judged[i] = &switchboard.Tool{ID: switchboard.ToolID{Server: "capability", Name: strconv.Itoa(i)}, Contract: t.Contract, Price: t.Price, Budget: t.Budget}
	}
	in, err := policy.CandidateInput(judged)
	if err != nil {
		return nil, err
	}
	all, err := FiredFor(ctx, l, in)
	if err != nil {
		return nil, err
	}
	for i, t := range judged {
		fired[i] = all[t.ID.String()]
	}
	return fired, nil
}

// Candidate returns a candidate with the contract of the version. The rows judge it if no server provides the version.
func Candidate(r *capability.Registry, v *capability.ContractVersion) *switchboard.Tool {
	return &switchboard.Tool{
		ID:       switchboard.ToolID{Server: "capability", Name: v.Name()},
		Contract: r.Restrict(switchboard.Contract{}, v), Price: v.Facts.Price, Budget: v.Facts.Budget,
	}
}

// FiredFor returns the rows that fire for each candidate of an input, by the candidate's id. They are sorted by row.
func FiredFor(ctx context.Context, l *policy.Layer, in *ast.Term) (map[string][]verdict.Fired, error) {
	all, err := askFired(ctx, l, in)
	if err != nil {
		return nil, fmt.Errorf("the boundaries could not be judged: %w", err)
	}
	for _, fired := range all {
		slices.SortFunc(fired, func(a, b verdict.Fired) int { return strings.Compare(a.Row, b.Row) })
	}
	return all, nil
}

func askFired(ctx context.Context, l *policy.Layer, in *ast.Term) (map[string][]verdict.Fired, error) {
	value, err := l.Ask(ctx, firedRows, in, time.Time{})
	if err != nil {
		return nil, err
	}
	plain, err := ast.JSON(value)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return nil, err
	}
	var all map[string][]verdict.Fired
	return all, json.Unmarshal(text, &all)
}
