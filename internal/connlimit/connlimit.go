// Package connlimit limits the connections that have not yet sent an authenticated request.
//
// It decides which connections are closed when there are too many, and which bytes of a request's head
// may reach net/http. Who sends a request is decided by package identity.
package connlimit

import (
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/httphead"
)

// Limits on connections that have not yet sent an authenticated request.
const (
	maxUnknownPerNetwork = 1024 // from one network, of connections older than unknownGrace
	maxUnknown           = 4096 // of all networks
	unknownGrace         = 5 * time.Second
)

// A Limiter is a listener that limits unknown connections: those that have not yet sent an
// authenticated request. If one network has too many, the limiter closes its oldest ones, but none
// that is younger than unknownGrace. If there are too many in all, it closes the oldest one, or the
// new one if none is old enough. A connection that was authenticated once is not counted any more.
// It is safe for concurrent use.
type Limiter struct {
	net.Listener

	mu               sync.Mutex
	unknown          list.List // of *limitedConn, oldest first
	unknownByNetwork map[netip.Prefix]*list.List
}

// New returns a Limiter that accepts from l.
func New(l net.Listener) *Limiter {
	return &Limiter{Listener: l, unknownByNetwork: map[netip.Prefix]*list.List{}}
}

// A limitedConn is a connection that a Limiter accepted.
type limitedConn struct {
	net.Conn

	limiter *Limiter
	network netip.Prefix
	since   time.Time
	known   atomic.Bool

	heads       httphead.Checker
	refused     bool   // the client's bytes are not read any more
	replacement string // the bytes to read in their place that are left

	inAll, inNetwork *list.Element // nil once it is not counted
}

// Accept implements net.Listener.
func (d *Limiter) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &limitedConn{Conn: c, limiter: d, network: access.NetworkOf(c.RemoteAddr().String()), since: time.Now()}
	for _, over := range d.countUnknown(g) {
		_ = over.Close()
	}
	return g, nil
}

// countUnknown counts a new connection and returns the connections that must be closed.
func (d *Limiter) countUnknown(g *limitedConn) (over []*limitedConn) {
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

// uncount stops counting a connection.
func (d *Limiter) uncount(g *limitedConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(g)
}

// remove takes a connection out of the lists if it is in them. The caller holds d.mu.
func (d *Limiter) remove(g *limitedConn) {
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

// Read implements net.Conn. If httphead.Checker refuses the head of a request, Read returns another
// request in its place, which net/http answers with 400.
func (g *limitedConn) Read(p []byte) (int, error) {
	if !g.refused {
		n, err := g.Conn.Read(p)
		good, ok := g.heads.Check(p[:n])
		if ok {
			return n, err
		}
		g.refused, g.replacement = true, httphead.Refused
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

// CloseWrite ends the writing side, so that a client can read an answer although its request was
// not read to the end: net/http looks for this method.
func (g *limitedConn) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// SyscallConn implements syscall.Conn, for package idleconn.
func (g *limitedConn) SyscallConn() (syscall.RawConn, error) {
	c := g.Conn
	// When a Read of TLS has run into its deadline, TLS holds at most a part of a record. So the next byte for net/http
	// comes with more bytes on the connection below.
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secure.NetConn()
	}
	if s, ok := c.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// NetConn returns the connection that the limiter's listener accepted.
func (g *limitedConn) NetConn() net.Conn { return g.Conn }

type connKey struct{}

// WithConn puts the connection into the context of its requests, for MarkKnown.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	g, ok := c.(*limitedConn)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, connKey{}, g)
}

// IsKnown reports whether a request over c, which a Limiter accepted, was authenticated.
func IsKnown(c net.Conn) bool {
	g, ok := c.(*limitedConn)
	return ok && g.known.Load()
}

// MarkKnown notes that a request over the connection was authenticated. It reports whether this is the first such request
// of the connection.
func MarkKnown(ctx context.Context) (first bool) {
	g, ok := ctx.Value(connKey{}).(*limitedConn)
	if !ok || g.known.Swap(true) {
		return false
	}
	g.limiter.uncount(g)
	return true
}
