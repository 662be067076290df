// Package post answers the requests that nearly all clients send, again and again on one connection: a plain POST. All other requests
// it leaves to net/http.
//
// For each request, net/http starts a goroutine that watches the connection, ends it again, sets deadlines three times, and makes
// the headers anew. For a call that a gateway only forwards, that is a fifth of the processor time. Here one goroutine reads a
// request, calls the handler and writes the response. It reuses the headers of the request before if only their Content-Length
// differs, and begins to watch the connection when the handler has had the request for a while.
//
// A request is plain if nobody could understand it in two ways: POST to /mcp or below it, HTTP/1.1, one Host, one Content-Length,
// headers of printable ASCII, none that changes how the request ends, and at most 8 KiB in all. At the first other byte net/http gets the
// connection with all that was read, so it decides about everything that is odd. For a plain request, the handler gets what net/http would give it;
// only Content-Length is not among the headers. A fuzz test compares the two.
package post

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// lookInterval is how often a Server looks for requests that take long: of those it watches the client.
const lookInterval = 20 * time.Millisecond

// cutWait is how long Shutdown waits for the handlers of requests that it has cut.
const cutWait = time.Second

// Waits after an error of Accept, such as too many open files.
const (
	minRetry = 5 * time.Millisecond
	maxRetry = time.Second
)

// Options say how a Server serves.
type Options struct {
	Handler http.Handler

	// Context returns the context of the requests on a connection.
	Context func(net.Conn) context.Context

	HeadTimeout time.Duration // for the first bytes of a new connection
	IdleTimeout time.Duration // between two requests

	Log *slog.Logger
}

// A Conn is a connection that another may get when it is idle; see package idleconn.
type Conn interface {
	net.Conn

	// ReadFirst is Read of the first bytes of a request. It returns io.EOF if another gets the connection now: then Close gives it
	// to that one.
	ReadFirst(p []byte) (int, error)

	// Unread lets the next Read return b first.
	Unread(b []byte)

	// MayBeKept reports whether another will get the connection when it is idle.
	MayBeKept() bool
}

// A Server serves connections. An http.Server must serve Others. It is safe for concurrent use.
type Server struct {
	options Options
	others  chan net.Conn
	done    chan struct{}
	closing sync.Once

	looking atomic.Bool
	timer   *time.Timer // calls look while looking is set

	mu    sync.Mutex
	conns map[*conn]struct{}
	ended bool
	work  sync.WaitGroup // of conns
}

// New returns a server.
func New(o Options) *Server {
	s := &Server{options: o, others: make(chan net.Conn), done: make(chan struct{}), conns: map[*conn]struct{}{}}
	s.timer = time.AfterFunc(time.Hour, s.look)
	s.timer.Stop()
	return s
}

// Serve accepts connections, which are Conns, until the listener is closed. An error that may pass, such as too many open files, is
// tried again.
func (s *Server) Serve(l net.Listener) error {
	for retry := minRetry; ; {
		c, err := l.Accept()
		if err == nil {
			retry = minRetry
			s.start(c.(Conn))
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if may, ok := errors.AsType[net.Error](err); !ok || !may.Temporary() { //nolint:staticcheck // net/http asks the same
			return err
		}
		s.options.Log.Warn("cannot accept a connection", "err", err, "again_in", retry)
		time.Sleep(retry)
		retry = min(2*retry, maxRetry)
	}
}

// start serves a connection on a goroutine of its own.
func (s *Server) start(rw Conn) {
	c := newConn(s, rw)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		_ = rw.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.work.Go(func() {
		c.serve()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
	})
}

// newConn returns the connection rw before its first request.
func newConn(s *Server, rw Conn) *conn {
	c := &conn{s: s, rw: rw}
	c.pattern = (&http.Request{
		Method: http.MethodPost, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: rw.RemoteAddr().String(),
	}).WithContext(s.options.Context(rw))
	c.response = plainResponse{c: c, header: make(http.Header, 8)}
	return c
}

// handOver gives the connection to net/http.
func (s *Server) handOver(c *conn) {
	c.response.clearDeadline()
	select {
	case s.others <- c.rw:
	case <-s.done:
		_ = c.rw.Close()
	}
}

// Others returns the listener of the connections for net/http.
func (s *Server) Others() net.Listener { return others{s} }

type others struct{ s *Server }

func (l others) Accept() (net.Conn, error) {
	select {
	case c := <-l.s.others:
		return c, nil
	case <-l.s.done:
		return nil, net.ErrClosed
	}
}

func (l others) Close() error {
	l.s.closing.Do(func() { close(l.s.done) })
	return nil
}

func (l others) Addr() net.Addr { return &net.UnixAddr{Name: "post"} } // nobody dials it

// lookSoon makes the server look for requests that take long, until it watches the client of each request.
func (s *Server) lookSoon() {
	if !s.looking.Load() && s.looking.CompareAndSwap(false, true) {
		s.timer.Reset(lookInterval)
	}
}

// look begins to watch the clients of requests that have taken long.
func (s *Server) look() {
	if !s.watchClients() {
		s.looking.Store(false)
		if !s.watchClients() || !s.looking.CompareAndSwap(false, true) { // a request may have begun in between
			return
		}
	}
	s.timer.Reset(lookInterval)
}

// watchClients reports whether the server has to look again.
func (s *Server) watchClients() (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		again = c.watchClient() || again
	}
	return again
}

// Shutdown closes the connections that wait for a request, and waits until the others have their response. If ctx ends first, it
// cuts them, and returns the error of ctx. The listeners must be closed before, and Others afterwards.
func (s *Server) Shutdown(ctx context.Context) error {
	s.endAll(false)
	ended := make(chan struct{})
	go func() {
		s.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	s.endAll(true)
	cut := time.NewTimer(cutWait)
	defer cut.Stop()
	select {
	case <-ended:
	case <-cut.C: // a handler does not care
	}
	return ctx.Err()
}

func (s *Server) endAll(force bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for c := range s.conns {
		c.end(force)
	}
}
