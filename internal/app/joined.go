package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/api"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxMessage limits the bytes of one message of a client.
const MaxMessage = gateway.MaxMessage

// TooLong returns the answer to a longer message.
func TooLong() []byte { return gateway.TooLong() }

// Malformed returns the answer to a message that wire.Parse refuses with the error.
func Malformed(err error) []byte { return gateway.Malformed(err) }

// IDInUse returns the answer to a request while another one with its id is in flight.
func IDInUse() []byte { return gateway.IDInUse() }

// RefusalOf returns the answer of a Switchboard of this name and version that refuses a request.
func RefusalOf(name, version string, id []byte, method string, modern bool, e *switchboard.Error) []byte {
	return gateway.RefusalOf(name, version, id, method, modern, e)
}

// IsStopping reports whether the error object of an answer says that Switchboard is stopping, and has not begun with the request.
func IsStopping(object []byte) bool { return gateway.IsStopping(object) }

// NewRunID returns a new id of a run, for JoinedClient.Run.
func NewRunID() switchboard.RunID { return run.NewID() }

// A JoinedClient is a client on stdio whose own process passes its messages on to this one.
type JoinedClient struct {
	Task       switchboard.TaskID // "" means the default task
	Run        switchboard.RunID  // the run to begin or to continue
	Connection int                // see gateway.Stdio

	// Leave, if not nil, is closed when the client has to connect again.
	Leave <-chan struct{}
}

// ServeJoined is ServeStdio for one of several clients. The end of in ends only this client: its calls in flight have the
// configuration's grace to finish, or what is left of it when ctx is done. So does c.Leave.
func (a *App) ServeJoined(ctx context.Context, in io.Reader, out io.Writer, c JoinedClient) error {
	local := func() switchboard.Principal { return a.state.Load().Ring.Local() }
	left, leave := context.WithCancel(context.Background())
	defer leave()
	grace := func() <-chan struct{} {
		if ctx.Err() != nil {
			return a.grace.endOfCalls()
		}
		own := newGracePeriod(live{&a.state, a.recorder}.grace, nil)
		context.AfterFunc(left, own.cancel)
		over := make(chan struct{})
		go func() {
			defer close(over)
			select {
			case <-own.endOfCalls():
				return
			case <-ctx.Done():
			}
			select {
			case <-own.callsOver:
			case <-a.grace.endOfCalls():
			}
		}()
		return over
	}
	own, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-c.Leave:
			stop()
		case <-own.Done():
		}
	}()
	return a.gateway.ServeStdio(own, gateway.Stdio{In: in, Out: out, Principal: local, Task: c.Task, Run: c.Run, Connection: c.Connection, Confirms: true, Grace: grace})
}

// ServeOperator serves HTTP on a connection with the operator at its other end, until it ends or ctx is done. A call that is in
// flight then has the configuration's grace to finish.
func (a *App) ServeOperator(ctx context.Context, conn net.Conn) {
	var calls atomic.Int32 // requests in flight that may be calls
	s := a.newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := r.URL.Path; strings.HasPrefix(path, "/mcp") || path == "/readyz" || path == "/healthz" { // what agents and supervisors ask
			calls.Add(1)
			defer calls.Add(-1)
			a.gateway.ServeHTTP(w, r)
			return
		}
		if r.URL.Path == "/v1/try" {
			calls.Add(1)
			defer calls.Add(-1)
		}
		ctx := r.Context()
		if !identity.ShowsPersonKey(r) { // who shows a person's key acts as that person
			ctx = api.AsLocalOperator(ctx)
		}
		a.admin.api.ServeHTTP(w, r.WithContext(ctx))
	}))
	l := &onlyListener{addr: conn.LocalAddr(), conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- &onlyConn{conn, l}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		if calls.Load() > 0 {
			finishCalls(a, s)
		}
		_ = s.Close()
	})
	_ = s.Serve(l) // the error says that l is closed
	if !stop() {
		<-closed
	}
}

// finishCalls waits until the calls in flight on s have their answers. At the end of their time it cuts them, and waits a moment
// for their client to read that.
func finishCalls(a *App, s *http.Server) {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_ = s.Shutdown(a.grace.ctx) // an error says that it was closed before
	}()
	select {
	case <-answered:
		return
	case <-a.grace.endOfCalls():
	}
	a.gateway.CutCalls()
	select {
	case <-answered:
	case <-time.After(lastResponses):
	}
}

// An onlyListener accepts one connection, and is closed with it.
type onlyListener struct {
	addr   net.Addr
	conn   chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *onlyListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *onlyListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *onlyListener) Addr() net.Addr { return l.addr }

type onlyConn struct {
	net.Conn
	listener *onlyListener
}

// Close implements net.Conn.
func (c *onlyConn) Close() error {
	_ = c.listener.Close()
	return c.Conn.Close()
}
