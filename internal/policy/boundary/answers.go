package boundary

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

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
