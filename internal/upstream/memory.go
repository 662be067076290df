package upstream

import "github.com/summit-switchboard/switchboard/internal/switchboard"

// A Memory is the last offer and the era of a server that has answered. With it, the
// next start knows both at once.
type Memory struct {
	Offer switchboard.Offer
	Era   Era
	SSE   bool // see ServerStatus
	Shy   bool // its process ends when it is asked server/discover first
}

// Remembered returns the memory of a server of the last Set, and the configuration with
// which the server answered; ok is false while the server is away.
func (f *Fleet) Remembered(id switchboard.ServerID) (cfg switchboard.Server, m Memory, ok bool) {
	s := f.server(id)
	if s == nil {
		return cfg, m, false
	}
	s.known.mu.Lock()
	m.Era, m.SSE, m.Shy = s.known.era, s.known.sse, s.known.shy
	s.known.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offer == nil || s.offer.Stale {
		return cfg, m, false
	}
	m.Offer = *s.offer
	return s.cfg, m, true
}

// recall makes m the server's offer and era, until the server answers.
func (s *server) recall(m Memory) {
	s.known.era, s.known.sse, s.known.shy = m.Era, m.SSE, m.Shy
	m.Offer.Server, m.Offer.Stale = s.id, true
	s.offer = &m.Offer
}
