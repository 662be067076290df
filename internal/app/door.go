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
	maxUnknownPerNetwork = 1024 // from one network, of those that had strangerGrace
	maxUnknown           = 4096 // in all
	unknownGrace         = 5 * time.Second
)

// A door is a listener that bounds the connections of strangers. Where one network has too
// many, those are closed that have been there for longest, once they have had time to send a
// request. Where there are too many in all, one of these goes, or else the one that comes. A
// connection over which somebody was known once counts no more. It is safe for concurrent
// use.
type connLimiter struct {
	net.Listener

	mu               sync.Mutex
	unknown          list.List // of *guest; the first has been there for longest
	unknownByNetwork map[netip.Prefix]*list.List
}

func newConnLimiter(l net.Listener) *connLimiter {
	return &connLimiter{Listener: l, unknownByNetwork: map[netip.Prefix]*list.List{}}
}

// A guest is a connection through a door.
type limitedConn struct {
	net.Conn

	limiter *connLimiter
	network netip.Prefix
	since   time.Time
	known   atomic.Bool

	heads       gateway.Heads
	refused     bool   // what the client sends is not read any more
	replacement string // what is read in its place, as far as it has not been read

	inAll, inNetwork *list.Element // nil once it is no stranger
}

// Accept implements net.Listener.
func (d *connLimiter) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &limitedConn{Conn: c, limiter: d, network: gateway.Network(c.RemoteAddr().String()), since: time.Now()}
	for _, over := range d.countUnknown(g) {
		_ = over.Close()
	}
	return g, nil
}

// countUnknown counts a stranger in, and returns those that have to go.
func (d *connLimiter) countUnknown(g *limitedConn) (over []*limitedConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	same := d.unknownByNetwork[g.network]
	if same == nil {
		same = list.New()
		d.unknownByNetwork[g.network] = same
	}
	g.inAll, g.inNetwork = d.unknown.PushBack(g), same.PushBack(g)
	leave := func(one *limitedConn) {
		over = append(over, one)
		d.remove(one)
	}
	for same.Len() > maxUnknownPerNetwork {
		oldest := same.Front().Value.(*limitedConn)
		if g.since.Sub(oldest.since) < unknownGrace {
			break
		}
		leave(oldest)
	}
	if d.unknown.Len() > maxUnknown {
		oldest := d.unknown.Front().Value.(*limitedConn)
		if g.since.Sub(oldest.since) < unknownGrace {
			oldest = g
		}
		leave(oldest)
	}
	return over
}

// uncount counts a stranger out.
func (d *connLimiter) uncount(g *limitedConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(g)
}

// remove takes a stranger out of the lists, where it is in them. The caller holds d.mu.
func (d *connLimiter) remove(g *limitedConn) {
	if g.inAll == nil {
		return
	}
	d.unknown.Remove(g.inAll)
	same := d.unknownByNetwork[g.network]
	if same.Remove(g.inNetwork); same.Len() == 0 {
		delete(d.unknownByNetwork, g.network)
	}
	g.inAll, g.inNetwork = nil, nil
}

// Read implements net.Conn. In place of a request whose head gateway.Heads refuses, one is read that net/http answers with 400.
func (g *limitedConn) Read(p []byte) (int, error) {
	if !g.refused {
		n, err := g.Conn.Read(p)
		good, ok := g.heads.Check(p[:n])
		if ok {
			return n, err
		}
		g.refused, g.replacement = true, gateway.Refused
		if good > 0 {
			return good, nil
		}
	}
	if g.replacement == "" {
		return 0, io.EOF
	}
	n := copy(p, g.replacement)
	g.replacement = g.replacement[n:]
	return n, nil
}

// Close implements net.Conn.
func (g *limitedConn) Close() error {
	g.limiter.uncount(g)
	return g.Conn.Close()
}

// CloseWrite ends what is written, so that a client reads an answer for which not all of
// its request was read: net/http looks for it.
func (g *limitedConn) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

type connKey struct{}

// withConn keeps the connection of requests, for known.
func withConn(ctx context.Context, c net.Conn) context.Context {
	g, ok := c.(*limitedConn)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, connKey{}, g)
}

// markKnown notes that a request over the connection has said who sends it.
func markKnown(ctx context.Context) {
	if g, ok := ctx.Value(connKey{}).(*limitedConn); ok && !g.known.Swap(true) {
		g.limiter.uncount(g)
	}
}
