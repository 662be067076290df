package gateway

import (
	"sync"
	"sync/atomic"

	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A principalAccount counts what one principal has open. There are as many accounts as principals,
// so they are never removed.
type principalAccount struct {
	calls     atomic.Int64
	streams   atomic.Int64
	heldBytes atomic.Int64 // bytes of messages; those of a whole tenant where the id is ""
}

// accounts holds the account of each principal, and counts for all of them. It is safe for concurrent
// use.
type accounts struct {
	byPrincipal   sync.Map // session.PrincipalKey → *principalAccount
	memory        messageMemory
	callsInFlight atomic.Int64
}

func newAccounts() *accounts { return &accounts{memory: messageMemory{limit: MaxHeld}} }

// accountOf returns the account of a principal.
func (as *accounts) accountOf(p switchboard.Principal) *principalAccount {
	o := session.KeyOf(p)
	if a, ok := as.byPrincipal.Load(o); ok {
		return a.(*principalAccount)
	}
	a, _ := as.byPrincipal.LoadOrStore(o, &principalAccount{})
	return a.(*principalAccount)
}

// streams returns the number of open notification streams.
func (as *accounts) streams() (n int) {
	as.byPrincipal.Range(func(_, a any) bool {
		n += int(a.(*principalAccount).streams.Load())
		return true
	})
	return n
}

// takeIfBelow adds one to n, unless n has reached limit.
func takeIfBelow(n *atomic.Int64, limit int64) bool {
	if n.Add(1) <= limit {
		return true
	}
	n.Add(-1)
	return false
}
