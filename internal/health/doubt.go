package health

import (
	"context"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A doubt begins when a call fails by the server's own fault, and ends with the probe that follows at once.
// Meanwhile, new calls that another server could take wait. A single odd answer costs these calls the time of a
// probe, and a server that hangs or fails gets none of them.
type doubt struct{ ended chan struct{} }

// startDoubt has the server probed at once, unless it takes no calls already.
func (s *server) startDoubt() {
	if s.m.o.Probe != nil && s.bar.Load() == nil && s.doubt.CompareAndSwap(nil, &doubt{make(chan struct{})}) {
		s.look()
	}
}

// endDoubt ends the doubt d, which may be nil.
func (s *server) endDoubt(d *doubt) {
	if d != nil && s.doubt.CompareAndSwap(d, nil) {
		close(d.ended)
	}
}

// awaitDoubt waits until there is no doubt about the server, or ctx is done.
func (s *server) awaitDoubt(ctx context.Context) {
	d := s.doubt.Load()
	if d == nil {
		return
	}
	select {
	case <-d.ended:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

// othersFit reports whether a candidate for the call's requirement on another server is fit.
func (m *Monitor) othersFit(c *switchboard.Call) bool {
	return slices.ContainsFunc(c.Others, func(id switchboard.ToolID) bool { return id.Server != c.Server && m.Fit(id) })
}
