package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/page"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/connlimit"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/idleconn"
	"github.com/summit-switchboard/switchboard/internal/post"
	"github.com/summit-switchboard/switchboard/internal/signin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Reads returns what answers the operators' reads.
func (a *App) Reads() *admin.Reader { return a.admin.reads }

// served returns the configuration that is served, for the operators' reads.
func (a *App) served() admin.Configuration {
	s := a.state.Load()
	c := admin.Configuration{State: s.State, Digest: s.digest, Loaded: s.loadedAt, FaultySince: s.faultySince, PolicySince: s.policySince, StateOf: func(c *config.Config) (*bind.State, error) { return stateOf(a, c) }}
	if f := a.reloading.fault.Load(); f != nil {
		c.Refused = &admin.RefusedReload{When: f.when, Since: f.since, Why: f.err.Error()}
	}
	return c
}

// Ready waits until the servers have answered or the start deadline is over.
func (a *App) Ready(ctx context.Context) error {
	select {
	case <-a.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listen opens an address for Serve. Without keys, it refuses addresses that other machines can
// reach.
func listen(addr string, keyless bool) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: listen address %q: want HOST:PORT, such as 127.0.0.1:7420: %w", switchboard.CodeConfig, addr, err)
	}
	if ip := net.ParseIP(host); keyless && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%s: listen address %q can be reached from other machines, and no key exists: make one with \"switchboard key new\", or listen on 127.0.0.1", switchboard.CodeConfig, addr)
	}
	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: another program listens at %s. Is it Switchboard? \"switchboard status --url http://%s\" says so. To serve beside it: --listen 127.0.0.1:0, which picks a free port, or listen: in switchboard.yaml", switchboard.CodeConfig, addr, addr)
	case err != nil:
		return nil, fmt.Errorf("%s: listen address %q: %w", switchboard.CodeConfig, addr, err)
	}
	return l, nil
}

// isLoopback reports whether only this machine can reach the address.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Addresses returns the addresses for agents and for officers, each nil if it is not served.
func (a *App) Addresses() (agents, officers net.Addr) {
	if a.listener != nil {
		agents = a.listener.Addr()
	}
	if a.adminAt != nil {
		officers = a.adminAt.Addr()
	}
	return agents, officers
}

// PageAddress returns an address at which a browser signs in to the page of a as the local operator, once, within a minute.
func PageAddress(ctx context.Context, a *App) (string, error) {
	if a.adminAt == nil {
		return "", errors.New("there is no admin address")
	}
	code, err := a.admin.sessions.NewCode(ctx, signin.Holder{Local: true})
	return "http://" + a.adminAt.Addr().String() + page.CodePath + "?code=" + code, err
}

// ServesTLS reports which of the addresses of a are served with TLS.
func ServesTLS(a *App) (agents, officers bool) {
	_, agents = a.listener.(*secureListener)
	if a.adminAt != nil {
		_, officers = a.adminAt.Listener.(*secureListener)
	}
	return agents, officers
}

// Serve answers MCP over HTTP until ctx is done; see Options.Serves. Then it refuses new work, lets
// calls in flight finish, answers the clients of calls that have not finished, and closes. All of
// this happens within the configuration's grace; Stop gets the rest of that time.
func (a *App) Serve(ctx context.Context) error {
	idle := idleconn.New(connlimit.New(a.listener), idleconn.Options{May: connlimit.IsKnown, Timeout: idleTimeout, Kept: a.memory.FreeSoon})
	defer idle.Close() //nolint:errcheck // nothing is left of it
	posts := post.New(post.Options{
		Handler: a.gateway, Log: a.log, HeadTimeout: headerTimeout, IdleTimeout: idleTimeout,
		Context: func(c net.Conn) context.Context { return connContext(context.Background(), c) },
	})
	s := a.newHTTPServer(a.gateway)
	s.ConnState = idle.Observe
	served := make(chan error, 3)
	go func() { served <- s.Serve(posts.Others()) }()
	go func() { served <- posts.Serve(idle) }()
	go func() { served <- posts.Serve(idle.Returned()) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	a.log.Info("stopping", "calls_in_flight", a.gateway.CallsInFlight())
	noticed := time.After(a.drainNotice())
	// It still listens, so that new clients get an answer instead of a broken connection.
	if n := a.gateway.Drain(a.grace.endOfCalls()); n > 0 {
		a.log.Warn("calls cut", "calls", n)
	}
	select {
	case <-noticed:
	case <-a.grace.endOfCalls():
	}
	last, cancel := context.WithTimeout(a.grace.ctx, lastResponses)
	defer cancel()
	_ = idle.Close() // as the deferred one
	if err := errors.Join(posts.Shutdown(last), s.Shutdown(last)); err != nil {
		_ = s.Close() // also the connections of clients that have not read their answer
	}
	for range cap(served) {
		if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) {
			return err
		}
	}
	return nil
}

// newHTTPServer returns a server of the handler.
func (a *App) newHTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		// No mux: it would answer odd paths before our own checks run. For the same reason the server must
		// not answer "OPTIONS *" itself.
		Handler:                      h,
		DisableGeneralOptionsHandler: true,

		ConnContext:       connContext,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
}

// connContext adds what authentication needs to know about the connection c.
func connContext(ctx context.Context, c net.Conn) context.Context {
	kept, ok := c.(*idleconn.Conn)
	if !ok {
		ctx = withSecure(ctx, c)
		return connlimit.WithConn(identity.WithPeer(ctx, identity.PeerOf(c)), c)
	}
	peer := kept.Memo(func() any { return identity.PeerOf(c) }).(identity.Peer)
	return connlimit.WithConn(identity.WithPeer(ctx, peer), kept.Conn)
}

// drainNotice returns for how long, at least, /readyz must say that this replica stops. A load
// balancer then has asked /readyz before we close. If it opened a connection while we close, it
// could not know whether its request was executed.
func (a *App) drainNotice() time.Duration {
	if !a.options.Replica || !a.state.Load().config.Store.Shared() {
		return 0
	}
	return 3 * time.Second
}

// ServeStdio answers MCP on in and out for the local principal of the tenant, until in ends or ctx
// is done.
func (a *App) ServeStdio(ctx context.Context, in io.Reader, out io.Writer, task switchboard.TaskID) error {
	local := func() switchboard.Principal { return a.state.Load().Ring.Local() }
	return a.gateway.ServeStdio(ctx, gateway.Stdio{In: in, Out: out, Principal: local, Task: task, Grace: a.grace.endOfCalls})
}

// Stop ends all connections and processes. Call it once, after Serve and ServeStdio have returned.
func (a *App) Stop() {
	a.stop()
	if a.listener != nil {
		_ = a.listener.Close() // unless Serve has
	}
	cut := a.grace.endOfCalls()
	defer a.grace.cancel()
	go func() { // calls that officers make have no client for whom Serve and ServeStdio could cut them
		<-cut
		if n := a.gateway.CutCalls(); n > 0 {
			a.log.Warn("calls cut", "calls", n)
		}
	}()
	a.adminAt.stop(a.grace.ctx)
	a.admin.comparisons.Close()
	a.gateway.Close()
	a.cluster.Leave(a.grace.ctx)
	a.cluster.Close()
	a.atoms.Close()
	a.health.Close()
	ended := make(chan struct{})
	go func() { // it waits for calls in flight, too
		defer close(ended)
		a.fleet.Close(a.grace.ctx)
	}()
	select {
	case <-ended:
	case <-a.grace.serversOver: // a program hangs, and would take all the time that is left
	}
	a.work.Wait()
	a.meter.Lists.Close()
	a.admin.history.Close(a.grace.ctx)
	a.admin.changes.Close(a.grace.ctx)
	a.keys.Close()
	a.admin.revoked.Close()
	a.admin.sessions.Close()
	a.admin.approvals.Close()
	a.recorder.Close()
	if err := a.committer.Close(a.grace.ctx); err != nil {
		a.log.Warn("the costs of the last calls were not settled; what is held for them counts as spent", "err", err)
	}
	if err := a.ledger.Close(a.grace.ctx); err != nil {
		a.log.Warn("the last receipts were not written", "err", err)
	}
	<-ended
	a.vault.Close()
	if err := a.store.Close(); err != nil {
		a.log.Warn("the store was not closed", "err", err)
	}
}
