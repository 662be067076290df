package health

import (
	"context"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A doubt begins when a call fails by the server's own fault, and ends with the probe that follows at
// once. Meanwhile new calls wait that another server could take: one odd answer costs them a probe, and a
// server that hangs or fails gets none of them.
type doubt struct{ over chan struct{} }

// doubted has the server probed at once, unless it is out of service already.
func (s *server) doubted() {
	if s.m.o.Probe != nil && s.bar.Load() == nil && s.doubt.CompareAndSwap(nil, &doubt{make(chan struct{})}) {
		s.look()
	}
}

// settled ends the doubt, which may be nil.
func (s *server) settled(d *doubt) {
	if d != nil && s.doubt.CompareAndSwap(d, nil) {
		close(d.over)
	}
}

// awaitProbe waits until there is no doubt about the server, or ctx is done.
func (s *server) awaitProbe(ctx context.Context) {
	d := s.doubt.Load()
	if d == nil {
		return
	}
	select {
	case <-d.over:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

// othersFit reports whether a candidate of the call's requirement on another server is fit to serve.
func (m *Monitor) othersFit(c *switchboard.Call) bool {
	return slices.ContainsFunc(c.Others, func(id switchboard.ToolID) bool { return id.Server != c.Server && m.Fit(id) })
}
