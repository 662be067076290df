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
	return a.newState(r, previewOffers(a, was, c), a.fleet.Starting(), was).State, nil
}

// newState builds the state of this App. was, if not nil, is the state before: unchanged parts are
// taken from it.
func (a *App) newState(r *loadedConfig, offers []switchboard.Offer, starting []switchboard.ServerID, was *servingState) *servingState {
	var before *bind.State
	if was != nil {
		before = was.State
	}
	return &servingState{r, bind.NewState(bind.Input{
		Config: r.config, Gate: r.gate, Operator: r.operatorFiles(), Policies: r.policies, Boundaries: r.boundaries,
		Local: a.options.Tenant, WholeResults: a.options.WholeResults, StatusTool: gateway.Status,
		Revoked: a.admin.revoked, Persons: a.admin.signedIn, Offers: offers, Starting: starting,
	}, before)}
}
