package fault

import (
	"slices"
	"sync"
)

// An Order asks for a fault.
type Order struct {
	Kind   Kind
	Method string // of the requests that meet it; "" means tools/call
	Key    string // that the call has as an argument; "" means any
	Times  int    // how many requests get it; 0 means all until Disarm
}

// standing reports whether the order is about the server and not about single requests.
func (o *Order) standing() bool { return o.Kind == Refuse }

// A Cue decides which fault a request gets: that of the first matching order. The zero value has no orders. It is safe for concurrent use.
type Cue struct {
	mu     sync.Mutex
	orders []Order
	calm   chan struct{} // closed by Disarm; nil while no goroutine waits for it
	met    int
	change func(refused bool) // called when connections begin to be refused, and when they are accepted again
}

// Arm adds an order.
func (c *Cue) Arm(o Order) {
	c.mu.Lock()
	c.orders = append(c.orders, o)
	c.mu.Unlock()
	if o.standing() && c.change != nil {
		c.change(true)
	}
}

// Disarm removes all orders, and ends the faults in progress.
func (c *Cue) Disarm() {
	refused := c.refuses()
	c.mu.Lock()
	c.orders = nil
	if c.calm != nil {
		close(c.calm)
		c.calm = nil
	}
	c.mu.Unlock()
	if refused && c.change != nil {
		c.change(false)
	}
}

// Met returns how many requests have got a fault so far.
func (c *Cue) Met() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.met
}

// next returns the fault for the message, and a channel that is closed when the fault shall end.
func (c *Cue) next(m *message) (Kind, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Method == "" || len(m.ID) == 0 {
		return None, nil
	}
	for i := range c.orders {
		o := &c.orders[i]
		method := o.Method
		if method == "" {
			method = "tools/call"
		}
		if o.standing() || method != m.Method || o.Key != "" && o.Key != m.Params.Arguments.Key {
			continue
		}
		kind := o.Kind
		if o.Times--; o.Times == 0 {
			c.orders = slices.Delete(c.orders, i, i+1)
		} else if o.Times < 0 {
			o.Times = 0
		}
		c.met++
		return kind, c.calmed()
	}
	return None, nil
}

// calmed returns the channel that Disarm closes. The caller holds c.mu.
func (c *Cue) calmed() <-chan struct{} {
	if c.calm == nil {
		c.calm = make(chan struct{})
	}
	return c.calm
}

// refuses reports whether connections are refused.
func (c *Cue) refuses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.orders, func(o Order) bool { return o.standing() })
}
