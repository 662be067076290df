package upstream

import (
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
)

// A ServerMemory is the last offer and the era of a server that has answered. With it, the next start
// knows both at once.
type ServerMemory struct {
	Offer switchboard.Offer
	Era   link.Era
	SSE   bool // see ServerStatus
	Shy   bool // its process ends if server/discover is its first request
}

// Remembered returns the memory of a server of the last Set, and the configuration with which the
// server answered. ok is false while the server is away.
func (f *Fleet) Remembered(id switchboard.ServerID) (cfg switchboard.Server, m ServerMemory, ok bool) {
	s := f.server(id)
	if s == nil {
		return cfg, m, false
	}
	m.Era, m.Shy = s.opener.Era.Get()
	m.SSE = s.opener.Era.UsesSSE()
	offer, _ := s.facts.current()
	if offer == nil || offer.Stale {
		return cfg, m, false
	}
	m.Offer = *offer
	return s.config(), m, true
}

// restore sets the server's offer and era from m. They are valid until the server answers.
func (s *server) restore(m ServerMemory) {
	s.opener.Era.Restore(m.Era, m.SSE, m.Shy)
	m.Offer.Server = s.id
	s.facts.restore(link.RepairOffer(&m.Offer))
}
