package app

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Bounds of the connections over which nobody has said yet who they are.
const (
	maxStrangersEach = 256 // from one address; with IPv6, from one /64
	maxStrangers     = 2048
)

// A door is a listener that bounds the connections of strangers. Where there are too
// many, it closes the one that has been there for longest: who keeps connections open
// without a key keeps out nobody but the like of them. A connection over which somebody
// was known once counts no more. It is safe for concurrent use.
type door struct {
	net.Listener

	mu   sync.Mutex
	all  list.List // of *guest; the first has been there for longest
	each map[netip.Prefix]*list.List
}

func newDoor(l net.Listener) *door {
	return &door{Listener: l, each: map[netip.Prefix]*list.List{}}
}

// A guest is a connection through a door.
type guest struct {
	net.Conn

	door  *door
	from  netip.Prefix
	known atomic.Bool

	inAll, inEach *list.Element // nil once it is no stranger
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: c, door: d, from: networkOf(c.RemoteAddr())}
	if over := d.let(g); over != nil {
		_ = over.Close()
	}
	return g, nil
}

// let counts a stranger in, and returns the one that has to go, if there are too many.
func (d *door) let(g *guest) (over *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	same := d.each[g.from]
	if same == nil {
		same = list.New()
		d.each[g.from] = same
	}
	switch {
	case same.Len() >= maxStrangersEach:
		over = same.Front().Value.(*guest)
	case d.all.Len() >= maxStrangers:
		over = d.all.Front().Value.(*guest)
	}
	g.inAll, g.inEach = d.all.PushBack(g), same.PushBack(g)
	return over
}

// forget counts a stranger out.
func (d *door) forget(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.inAll == nil {
		return
	}
	d.all.Remove(g.inAll)
	same := d.each[g.from]
	if same.Remove(g.inEach); same.Len() == 0 {
		delete(d.each, g.from)
	}
	g.inAll, g.inEach = nil, nil
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.door.forget(g)
	return g.Conn.Close()
}

// CloseWrite ends what is written, so that a client reads an answer for which not all of
// its request was read: net/http looks for it.
func (g *guest) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

type guestKey struct{}

// withGuest keeps the connection of requests, for known.
func withGuest(ctx context.Context, c net.Conn) context.Context {
	g, ok := c.(*guest)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, guestKey{}, g)
}

// known notes that a request over the connection has said who sends it.
func known(ctx context.Context) {
	if g, ok := ctx.Value(guestKey{}).(*guest); ok && !g.known.Swap(true) {
		g.door.forget(g)
	}
}

// networkOf is from where an address is: one IPv4 address, or the /64 that one user of
// IPv6 has.
func networkOf(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits) // it has as many bits
	return p
}
