package app

import (
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// resultBound returns how many bytes of the text of one result the client of the call gets at once.
func (a *App) resultBound(c *switchboard.Call) int {
	t := a.state.Load().Tenants[c.Principal.Tenant]
	if t == nil {
		return 0
	}
	return t.ResultBound(c.Principal, t.Tasks[c.Task])
}

// countTokens counts the tokens of the text.
func (a *App) countTokens(text []byte) int { return a.state.Load().Tokens.Count(text) }

// inputCheck returns how strictly arguments for the server's tools are checked now.
func (a *App) inputCheck(id switchboard.ServerID) switchboard.InputCheck {
	if server := a.state.Load().Servers[id]; server != nil {
		return server.CheckInput
	}
	return switchboard.CheckDefault
}

// checkArguments returns an error if the arguments do not fit the tool, as strictly as its server's
// arguments are checked now.
func (a *App) checkArguments(tool *switchboard.Tool, args []byte) error {
	return contract.Check(a.inputCheck(tool.ID.Server), tool, args)
}
