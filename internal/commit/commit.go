// Package commit takes the last step before an attempt is sent. It holds the price in all budgets of the call, uses
// the person's yes, and writes the intent: all of it, or nothing. After the attempt it settles what was held.
//
// Whether a budget matches a call, and whether a person has to approve it, is decided by other packages.
package commit

import (
	"context"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Approvals keeps what people have approved. Its errors are *switchboard.Error.
type Approvals interface {
	// Use marks the approval in c.Yes as used by the attempt that is named by intent, if it can be used now and no other attempt has
	// used it. On a file the mark need not be durable if c has an effect: the intent that follows is.
	Use(ctx context.Context, c *switchboard.Call, intent string) error

	// GiveBack makes the approval in c.Yes usable again. The attempt that used it was provably not sent, or only asked for more input.
	GiveBack(ctx context.Context, c *switchboard.Call) error

	// Replay marks an approval as used, when an intent says so and the store may have lost it. It changes nothing if the store
	// has the mark or does not know the request.
	Replay(ctx context.Context, tenant switchboard.TenantID, request, intent string) error
}
