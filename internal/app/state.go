package app

import (
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A servingState is the unit of reload: one loaded configuration, and what decisions make of it with
// the servers' offers at one moment. It is immutable, and is replaced as a whole.
type servingState struct {
	*loadedConfig
	*bind.State
}

// stateOf returns the state of a configuration that was checked and is not in force.
func stateOf(a *App, c *config.Config) (*bind.State, error) {
	was := a.state.Load()
	r, err := compilePolicies(c, a.engine, newCompiledLayers(was.layers), was.loadedConfig)
	if err != nil {
		return nil, err
	}
	return previewState(a, r, a.fleet.Starting(), was).State, nil
}

// previewState builds the state of a configuration that is not in force, as it would be in the place of was. Admission goes by the operator's files only: if those are the same, the
// offers are those of the state in force, and thousands of definitions need not be judged again.
func previewState(a *App, r *loadedConfig, starting []switchboard.ServerID, was *servingState) *servingState {
	if r.config.SharesOperator(was.config) {
		in := stateInput(a, r, nil, starting)
		in.SameOffers = true
		return &servingState{r, bind.NewState(in, was.State)}
	}
	return a.newState(r, a.pins.Preview(a.fleet.Offers(), admissionTerms(a, r.config)), starting, was)
}

// newState builds the state of this App. was, if not nil, is the state before: unchanged parts are
// taken from it.
func (a *App) newState(r *loadedConfig, offers []switchboard.Offer, starting []switchboard.ServerID, was *servingState) *servingState {
	var before *bind.State
	if was != nil {
		before = was.State
	}
	return &servingState{r, bind.NewState(stateInput(a, r, offers, starting), before)}
}

func stateInput(a *App, r *loadedConfig, offers []switchboard.Offer, starting []switchboard.ServerID) bind.Input {
	return bind.Input{
		Config: r.config, Gate: r.gate, Operator: r.operator, Policies: r.policies, Boundaries: r.boundaries,
		Local: a.options.Tenant, WholeResults: a.options.WholeResults, StatusTool: gateway.Status,
		Revoked: a.admin.revoked, Persons: a.admin.signedIn, Offers: offers, Starting: starting,
	}
}
