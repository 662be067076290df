package admin

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An OfferCost is what a client reads at first if it connects to a server itself: the definitions of all tools, and the server's
// instructions.
type OfferCost struct {
	Tools        int // their number
	Definitions  int // their tokens
	Instructions int // tokens
}

// Tokens returns the tokens of definitions and instructions together.
func (c OfferCost) Tokens() int { return c.Definitions + c.Instructions }

// MeasureOffers returns the cost of each server that has answered. No policy, task or budget counts. It does not wait for
// servers: starting are those that have no known offer yet.
func (r *Reader) MeasureOffers() (costs map[switchboard.ServerID]OfferCost, starting []switchboard.ServerID) {
	s := r.o.Configuration()
	costs = map[switchboard.ServerID]OfferCost{}
	for id, offer := range s.Offers {
		cost := OfferCost{Tools: len(offer.Tools)}
		for _, definition := range offer.Tools {
			cost.Definitions += s.Tokens.Count(definition)
		}
		if offer.Instructions != "" {
			cost.Instructions = s.Tokens.Count(wire.AppendString(nil, offer.Instructions))
		}
		costs[id] = cost
	}
	return costs, slices.Clone(s.Starting)
}
