package scan

import (
	"context"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// CleanResults returns a Caller that cleans the results of the servers that clean selects. CleanResults of
// other servers are data and stay as they are. CleanResults belongs around the check of results against
// their schemas, which describe what the server sent.
func CleanResults(clean func(switchboard.ServerID) bool, next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		r, err := next.Call(ctx, c)
		if err != nil || !clean(c.Server) {
			return r, err
		}
		text, removed := CleanJSON(r.JSON)
		if removed == 0 {
			return r, nil
		}
		if r.Release != nil {
			r.Release()
		}
		r.JSON, r.Outline, r.Spare, r.Release = text, switchboard.Outline{}, 0, nil
		return r, nil
	})
}
