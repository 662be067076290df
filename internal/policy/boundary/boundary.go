// Package boundary makes the layer of policy that judges the operator's boundaries, and asks it which rows fire for a
// capability.
//
// The rules are boundaries.rego, which is embedded; the rows are its data. So the layer does not depend on any folder of
// policies, and no such folder can leave it out. Package policy evaluates the layer in front of the others, and package
// verdict says what the rows that fire mean for a capability.
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

// AtomStates returns the states of atoms now. within is a freshness budget; 0 means that there is none.
type AtomStates func(within time.Duration, ids ...string) map[string]capability.State

// patience limits the evaluation of all rows.
const patience = 5 * time.Second

// Answers are what the rows say about the versions of a registry, as the servers of one tenant provide them. The rows are
// evaluated once, at the first use. Use NewAnswers. Answers are safe for concurrent use.
type Answers struct {
	layer    *policy.Layer
	registry *capability.Registry
	provided map[string][]*switchboard.Tool

	mu    sync.Mutex // guards the fields below
	said  saidRows   // nil until an evaluation has succeeded
	asked *inquiry   // the evaluation that runs now; nil for none
}

// saidRows holds the rows that fire by ID@VERSION: one list for each server that provides the version, sorted by server. A version
// that no server provides has one list, for its contract alone.
type saidRows map[string][][]verdict.Fired

// An inquiry is one evaluation of the rows. Its other fields are set when done is closed.
type inquiry struct {
	done chan struct{}
	said saidRows
	err  error
}

// NewAnswers returns the Answers for a tenant. l is as for Fired. provided are the tools that provide each ID@VERSION, sorted by server.
func NewAnswers(l *policy.Layer, r *capability.Registry, provided map[string][]*switchboard.Tool) *Answers {
	return &Answers{layer: l, registry: r, provided: provided}
}

// Judge returns the verdicts on versions of the registry. Of several servers that provide a version, the one with the most permissive
// verdict counts, and the first by id if they are equal. If atoms is nil, all atoms are unknown. An error means that no version may be
// used; the next call evaluates the rows again.
func (a *Answers) Judge(ctx context.Context, versions []*capability.ContractVersion, atoms AtomStates) ([]verdict.Verdict, error) {
	said, err := a.ask(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]verdict.Verdict, len(versions))
	for i, v := range versions {
		lists := said[v.Name()]
		if len(lists) == 0 {
			return nil, fmt.Errorf("the boundaries were not judged for %s: the registry has no such version", v.Name())
		}
		var states map[string]capability.State
		if atoms != nil {
			needs := verdict.Needs(a.registry, v)
			states = atoms(needs.FreshFor, needs.Atoms...)
		}
		for at, fired := range lists {
			judged := verdict.Judge(a.registry, v, states, fired)
			if at == 0 || slices.Index(verdict.Names, judged.Verdict) < slices.Index(verdict.Names, all[i].Verdict) {
				all[i] = judged
			}
		}
	}
	return all, nil
}

// ask returns what the rows say. Callers that come during an evaluation wait for it. It goes on if they give up, so that no caller
// can spoil it for the others.
func (a *Answers) ask(ctx context.Context) (saidRows, error) {
	a.mu.Lock()
	said, now := a.said, a.asked
	mine := said == nil && now == nil
	if mine {
		now = &inquiry{done: make(chan struct{}), err: errors.New("the boundaries could not be judged")}
		a.asked = now
	}
	a.mu.Unlock()
	switch {
	case said != nil:
		return said, nil
	case mine:
		a.evaluate(ctx, now)
		return now.said, now.err
	}
	select {
	case <-now.done:
		return now.said, now.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the boundaries could not be judged: %w", ctx.Err())
	}
}

// evaluate evaluates the rows, and ends now.
func (a *Answers) evaluate(ctx context.Context, now *inquiry) {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.said, a.asked = now.said, nil
		close(now.done)
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	type place struct {
		version string
		server  int // in the list of the version
	}
	var tools []*switchboard.Tool
	var places []place
	said := saidRows{}
	for _, id := range a.registry.IDs() {
		for _, v := range a.registry.Versions(id) {
			candidates := a.provided[v.Name()]
			if len(candidates) == 0 {
				candidates = []*switchboard.Tool{Candidate(a.registry, v)}
			}
			name := v.Name()
			for i, t := range candidates {
				if i == 0 || candidates[i-1].ID.Server != t.ID.Server {
					said[name] = append(said[name], nil)
				}
				tools, places = append(tools, t.Called()), append(places, place{name, len(said[name]) - 1})
			}
		}
	}
	fired, err := Fired(ctx, a.layer, a.registry, tools)
	if err != nil {
		now.err = err
		return
	}
	for i, at := range places {
		to := &said[at.version][at.server]
		*to = append(*to, fired[i]...)
		if t := tools[i]; len(a.provided[at.version]) > 0 && t.AsksPerson() { // by its own facts; package verdict reads those of the version
			*to = append(*to, verdict.Fired{Effect: verdict.Ask, Who: t.Contract.ApprovalRequired})
		}
	}
	now.said, now.err = said, nil
}
