package app

import (
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A servingState is the unit of reload: one loaded configuration, and what decisions make of it with
// the servers' offers at one moment. It is immutable, and is replaced as a whole.
type servingState struct {
	*loadedConfig
	*bind.State
}

// newState builds the state of this App. was, if not nil, is the state before: unchanged parts are
// taken from it.
func (a *App) newState(r *loadedConfig, offers []switchboard.Offer, starting []switchboard.ServerID, was *servingState) *servingState {
	var before *bind.State
	if was != nil {
		before = was.State
	}
	return &servingState{r, bind.NewState(bind.Input{
		Config: r.config, Operator: r.operatorFiles(), Policies: r.policies, Boundaries: r.boundaries,
		Local: a.options.Tenant, WholeResults: a.options.WholeResults, StatusTool: gateway.Status,
		Revoked: a.admin.revoked, Offers: offers, Starting: starting,
	}, before)}
}
