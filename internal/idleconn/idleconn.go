// Package idleconn keeps idle HTTP connections without a goroutine and buffers.
//
// net/http holds a goroutine and two buffers for each open connection: 18 KiB while the client only thinks. A Keeper takes
// a connection from net/http, or from package post, when it has been idle for a moment, waits for its next byte together with all other idle
// connections, and then gives the connection back as if it were new. The client notices nothing. What is said below of net/http is also
// true of a server that calls ReadFirst.
//
// The package decides when a connection is kept and for how long. It knows nothing of requests: it keeps a connection only
// when net/http waits for the first byte of the next request and has read nothing of it.
package idleconn

import (
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

const (
	// interval is how often a Keeper looks for idle connections. A connection is kept after it has been idle for one to two
	// intervals: a client that calls without a pause is never kept.
	interval = 100 * time.Millisecond

	// bufferSize is the size of net/http's buffer for reading. net/http reads exactly that much at once only if its buffer is
	// empty.
	bufferSize = 4096
)

// Options say which connections a Keeper keeps.
type Options struct {
	// May reports whether a connection may be kept. Its argument is the listener's connection. While TLS shakes hands it must report false: the
	// Keeper ends a Read, and a handshake does not go on after that.
	May func(net.Conn) bool

	// Timeout is how long a connection may be idle. It is closed then.
	Timeout time.Duration

	// Kept is called when connections have been kept, and may be nil.
	Kept func()
}

// A Keeper is a listener that keeps its idle connections. A server must serve both the Keeper and Returned. If it is an http.Server,
// Observe must be its ConnState. It is safe for concurrent use.
type Keeper struct {
	net.Listener

	options  Options
	poll     *poller // nil if connections cannot be kept
	returned chan *Conn
	done     chan struct{}
	closing  sync.Once

	mu     sync.Mutex
	open   map[*Conn]struct{} // the connections that net/http has
	kept   map[uint64]*Conn   // those that it has not
	last   uint64             // the last key in kept
	timer  *time.Timer        // runs keepIdle while open or kept has connections
	slow   bool               // the timer runs only for kept connections
	looked time.Time          // when closeExpired last looked at the kept connections
}

// New returns a Keeper that accepts from l.
func New(l net.Listener, o Options) *Keeper {
	k := &Keeper{
		Listener: l, options: o, returned: make(chan *Conn), done: make(chan struct{}),
		open: map[*Conn]struct{}{}, kept: map[uint64]*Conn{},
	}
	if p, err := newPoller(); err == nil { // else net/http has all connections, which only takes more memory
		k.poll = p
		go k.giveBack()
	}
	return k
}

// Accept implements net.Listener. The connection is a *Conn.
func (k *Keeper) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err != nil {
		return nil, err
	}
	kc := &Conn{Conn: c, keeper: k}
	if s, ok := c.(syscall.Conn); ok && k.poll != nil {
		kc.descriptor, _ = s.SyscallConn() // if it fails, reading fails too
	}
	if kc.descriptor == nil {
		return kc, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addOpen(kc)
	return kc, nil
}

// addOpen notes that net/http has c. The caller holds k.mu.
func (k *Keeper) addOpen(c *Conn) {
	k.open[c] = struct{}{}
	switch {
	case k.timer == nil:
		k.timer = time.AfterFunc(interval, k.keepIdle)
	case k.slow: // else the timer runs soon; to reset it each time would stop it while clients come and go
		k.timer.Reset(interval)
	}
	k.slow = false
}

// Close implements net.Listener. It closes the kept connections too.
func (k *Keeper) Close() error {
	k.closing.Do(func() {
		close(k.done)
		k.mu.Lock()
		defer k.mu.Unlock()
		for key, c := range k.kept {
			delete(k.kept, key)
			_ = c.Conn.Close()
		}
		if k.poll != nil {
			k.poll.close()
		}
	})
	return k.Listener.Close()
}

// Returned returns the listener that accepts a kept connection again when its client has sent something.
func (k *Keeper) Returned() net.Listener { return returnedListener{k} }

type returnedListener struct{ k *Keeper }

func (l returnedListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.k.returned:
		return c, nil
	case <-l.k.done:
		return nil, net.ErrClosed
	}
}
func (l returnedListener) Close() error   { return nil } // the Keeper closes it
func (l returnedListener) Addr() net.Addr { return l.k.Addr() }

// Observe is an http.Server's ConnState.
func (*Keeper) Observe(c net.Conn, to http.ConnState) {
	if kc, ok := c.(*Conn); ok && to == http.StateIdle {
		kc.mu.Lock()
		kc.state = answered
		kc.mu.Unlock()
	}
}

// keepIdle takes the idle connections from net/http and closes those that have been idle for too long.
func (k *Keeper) keepIdle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.open {
		c.interrupt()
	}
	k.closeExpired()
	if len(k.open)+len(k.kept) == 0 {
		k.timer = nil
		return
	}
	next := interval
	if k.slow = len(k.open) == 0; k.slow {
		next = max(interval, k.options.Timeout/4)
	}
	k.timer.Reset(next)
}

// closeExpired closes the connections that have been kept for too long. There can be thousands, so that it looks at them
// only from time to time. The caller holds k.mu.
func (k *Keeper) closeExpired() {
	now := time.Now()
	if now.Sub(k.looked) < k.options.Timeout/4 {
		return
	}
	k.looked = now
	for key, c := range k.kept {
		if now.Sub(c.idleFrom) > k.options.Timeout {
			delete(k.kept, key)
			_ = c.Conn.Close()
		}
	}
}

// keep keeps the connection c. Its goroutine in net/http ends. keep returns false if the connection must be closed.
func (k *Keeper) keep(c *Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, c)
	select {
	case <-k.done:
		return false
	default:
	}
	k.last++
	if err := k.poll.add(c.descriptor, k.last); err != nil {
		return false
	}
	k.kept[k.last], c.idleFrom = c, time.Now()
	if k.options.Kept != nil {
		k.options.Kept()
	}
	return true
}

// giveBack gives connections back to net/http when their clients send something or disconnect.
func (k *Keeper) giveBack() {
	for {
		keys, err := k.poll.wait()
		if err != nil {
			return // closed
		}
		for _, key := range keys {
			k.mu.Lock()
			c := k.kept[key]
			if c != nil {
				delete(k.kept, key)
				k.poll.remove(c.descriptor)
				c = &Conn{Conn: c.Conn, keeper: k, descriptor: c.descriptor, memo: c.memo}
				k.addOpen(c)
			}
			k.mu.Unlock()
			if c == nil {
				continue
			}
			select {
			case k.returned <- c:
			case <-k.done:
				_ = c.Close()
			}
		}
	}
}

// forget is called when net/http has closed a connection.
func (k *Keeper) forget(c *Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, c)
}

// A Conn is one turn of a connection in net/http. The next turn has a Conn of its own, so that net/http cannot close it when
// it closes this one late: a Shutdown closes each idle connection that it finds.
type Conn struct {
	net.Conn // what the listener accepted

	keeper     *Keeper
	descriptor syscall.RawConn // nil if the connection cannot be kept
	memo       any
	unread     []byte
	idleFrom   time.Time // since when the connection is kept; guarded by keeper.mu

	mu    sync.Mutex
	state connState
	seen  bool // the last keepIdle has seen the connection waiting
}

type connState uint8

const (
	busy     connState = iota // a request is read or answered
	answered                  // net/http has answered a request
	armed                     // and has set the deadline of the wait for the next one
	waiting                   // net/http waits for the first byte of a request
	leaving                   // the Keeper has interrupted the wait
	left                      // net/http is about to close the connection, and the Keeper keeps it
	kept                      // the Keeper waits for the first byte of the next request: this turn is over
)

// Memo returns what create returned for this connection the first time.
func (c *Conn) Memo(create func() any) any {
	if c.memo == nil {
		c.memo = create()
	}
	return c.memo
}

// MayBeKept reports whether the connection will be kept when it is idle.
func (c *Conn) MayBeKept() bool { return c.descriptor != nil && c.keeper.options.May(c.Conn) }

// Unread lets the next Read return b first: bytes of the connection that were read before net/http gets it.
func (c *Conn) Unread(b []byte) { c.unread = b }

// interrupt ends the wait of net/http if the connection has been waiting for an interval.
func (c *Conn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != waiting {
		return
	}
	if !c.seen {
		c.seen = true
		return
	}
	if c.keeper.options.May(c.Conn) && c.Conn.SetReadDeadline(time.Unix(1, 0)) == nil {
		c.state = leaving
	}
}

// SetReadDeadline implements net.Conn. net/http calls it once before it waits for a request, and a second time when it has read
// the first bytes, which can have come with an earlier request.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	switch c.state {
	case answered:
		c.state = armed
	case armed:
		c.state = busy
	}
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

// ReadFirst is Read of the first bytes of a request, for a server that is not net/http. The Keeper may interrupt it. It returns
// io.EOF then, and Close keeps the connection.
func (c *Conn) ReadFirst(p []byte) (int, error) {
	c.mu.Lock()
	c.state, c.seen = waiting, false
	c.mu.Unlock()
	n, err := c.Conn.Read(p)
	return c.endWait(n, err, time.Time{})
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.unread) > 0 {
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	c.mu.Lock()
	if c.state == armed && len(p) == bufferSize {
		c.state, c.seen = waiting, false
	} else {
		c.state = busy
	}
	c.mu.Unlock()
	n, err := c.Conn.Read(p)
	return c.endWait(n, err, time.Now().Add(c.keeper.options.Timeout))
}

// endWait returns the result of a Read of the connection below. If the Keeper has interrupted it, it sets the deadline anew, and
// returns io.EOF unless a request has begun.
func (c *Conn) endWait(n int, err error, deadline time.Time) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != leaving {
		c.state = busy
		return n, err
	}
	_ = c.Conn.SetReadDeadline(deadline) // it fails if c is closed, as the next Read will
	if n == 0 && isTimeout(err) {
		c.state = left
		return 0, io.EOF
	}
	c.state = busy
	return n, err
}

// Close implements net.Conn. It keeps a connection that was taken from net/http.
func (c *Conn) Close() error {
	c.mu.Lock()
	was := c.state
	if was == left {
		c.state = kept
	}
	c.mu.Unlock()
	switch {
	case was == kept, was == left && c.keeper.keep(c):
		return nil
	default:
		c.keeper.forget(c)
		return c.Conn.Close()
	}
}

// CloseWrite ends the writing side: net/http looks for this method.
func (c *Conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

func isTimeout(err error) bool {
	t, ok := err.(net.Error) //nolint:errorlint // the error of a Read, which wraps nothing
	return ok && t.Timeout()
}
