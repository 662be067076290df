package app

import (
	"container/list"
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/gateway"
)

// Bounds of the connections over which nobody has said yet who they are.
const (
	maxStrangersEach = 1024 // from one network, of those that had strangerGrace
	maxStrangers     = 4096 // in all
	strangerGrace    = 5 * time.Second
)

// A door is a listener that bounds the connections of strangers. Where one network has too
// many, those are closed that have been there for longest, once they have had time to send a
// request. Where there are too many in all, one of these goes, or else the one that comes. A
// connection over which somebody was known once counts no more. It is safe for concurrent
// use.
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
	since time.Time
	known atomic.Bool

	heads   gateway.Heads
	refused bool   // what the client sends is not read any more
	instead string // what is read in its place, as far as it has not been read

	inAll, inEach *list.Element // nil once it is no stranger
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: c, door: d, from: gateway.Network(c.RemoteAddr().String()), since: time.Now()}
	for _, over := range d.let(g) {
		_ = over.Close()
	}
	return g, nil
}

// let counts a stranger in, and returns those that have to go.
func (d *door) let(g *guest) (over []*guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	same := d.each[g.from]
	if same == nil {
		same = list.New()
		d.each[g.from] = same
	}
	g.inAll, g.inEach = d.all.PushBack(g), same.PushBack(g)
	leave := func(one *guest) {
		over = append(over, one)
		d.remove(one)
	}
	for same.Len() > maxStrangersEach {
		oldest := same.Front().Value.(*guest)
		if g.since.Sub(oldest.since) < strangerGrace {
			break
		}
		leave(oldest)
	}
	if d.all.Len() > maxStrangers {
		oldest := d.all.Front().Value.(*guest)
		if g.since.Sub(oldest.since) < strangerGrace {
			oldest = g
		}
		leave(oldest)
	}
	return over
}

// forget counts a stranger out.
func (d *door) forget(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(g)
}

// remove takes a stranger out of the lists, where it is in them. The caller holds d.mu.
func (d *door) remove(g *guest) {
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

// Read implements net.Conn. In place of a request whose head gateway.Heads refuses, one is read that net/http answers with 400.
func (g *guest) Read(p []byte) (int, error) {
	if !g.refused {
		n, err := g.Conn.Read(p)
		good, ok := g.heads.Check(p[:n])
		if ok {
			return n, err
		}
		g.refused, g.instead = true, gateway.Refused
		if good > 0 {
			return good, nil
		}
	}
	if g.instead == "" {
		return 0, io.EOF
	}
	n := copy(p, g.instead)
	g.instead = g.instead[n:]
	return n, nil
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
