package contract

import (
	"context"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Translate turns calls of provided tools into calls of the servers' own tools. Everything below it sees the tool that is called,
// and the arguments that its server gets. It refuses arguments that do not fit the contract, with SB-CAP-003.
func Translate(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		own, err := Translated(c)
		if err != nil {
			return switchboard.Result{}, err
		}
		return next.Call(ctx, own)
	})
}

// Translated returns the call of the server's own tool that a call of a provided tool means, or c itself if its tool is the
// server's own.
func Translated(c *switchboard.Call) (*switchboard.Call, error) {
	if c.Tool == nil || c.Tool.Provides == nil {
		return c, nil
	}
	own := *c
	own.Tool = c.Tool.Called()
	if c.Resumes != "" { // the params are those that were kept below, and so those of the server's own tool
		if c.Attempt > 0 {
			e := switchboard.Refuse(switchboard.CodeApprovalGone, "a person approved this call for another server, which cannot take it now")
			e.Unsent = true
			return nil, e
		}
		return &own, nil
	}
	params, err := c.Tool.Provides.Params(c.Params)
	if err != nil {
		return nil, err
	}
	own.Params = params
	return &own, nil
}
