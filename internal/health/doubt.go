package health

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A doubt begins when a call fails by the server's own fault, and ends with the probe that follows at once. Meanwhile,
// new calls that another server could take wait. A single odd answer costs these calls the time of a probe, and a
// server that hangs or fails gets none of them.
type doubt struct{ ended chan struct{} }

// doubts hold the doubt about one server, if there is one.
type doubts struct{ doubt atomic.Pointer[doubt] }

// begin begins a doubt, and reports whether there was none.
func (d *doubts) begin() bool { return d.doubt.CompareAndSwap(nil, &doubt{make(chan struct{})}) }

// current returns the doubt; nil for none.
func (d *doubts) current() *doubt { return d.doubt.Load() }

// end ends the given doubt, which may be nil.
func (d *doubts) end(ended *doubt) {
	if ended != nil && d.doubt.CompareAndSwap(ended, nil) {
		close(ended.ended)
	}
}

// await waits until there is no doubt, or ctx or the server is done.
func (d *doubts) await(ctx, server context.Context) {
	current := d.current()
	if current == nil {
		return
	}
	select {
	case <-current.ended:
	case <-ctx.Done():
	case <-server.Done():
	}
}

// othersFit reports whether a candidate for the call's requirement on another server is fit.
func (m *Monitor) othersFit(c *switchboard.Call) bool {
	return slices.ContainsFunc(c.Alternatives, func(id switchboard.ToolID) bool { return id.Server != c.Server && m.Fit(id) })
}
