package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A pipe is the client on the other side of stdio: one principal, and one run.
type stdioConn struct {
	g         *Gateway
	principal func() switchboard.Principal
	task      switchboard.TaskID
	client    *clientState
	flight    requestTable
	gate      *drainGate // of requests, and of what tells of changes

	// streaming ends what listens only, once stdin has ended.
	streaming context.Context

	binding sync.Mutex
	run     *run.Run
	unwatch func() // it is watched all the time: one that nobody watches is let go

	out *outbox // of whole lines
}

// ServeStdio answers MCP in lines on in and out, with one run of the task (""
// means the principal's default). who says for each request who the client is
// now: always the same tenant and id, but a reload may change what these may do.
//
// When in ends, or ctx is done, the requests under way are given the Grace to
// finish, and new ones are refused. The client is told of those that have not
// finished; then it returns. It reads in until then, for what the client has to
// say of what is under way, and closes it where it can. The error is that of
// reading or writing.
func (g *Gateway) ServeStdio(ctx context.Context, in io.Reader, out io.Writer, who func() switchboard.Principal, task switchboard.TaskID) error {
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	calls, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	streaming, hush := context.WithCancel(calls)
	defer hush()
	c := &stdioConn{g: g, principal: who, task: task, client: newClient("stdio", who()), gate: newGate(), streaming: streaming, unwatch: func() {}}
	c.out = newOutbox(func(b []byte) error { _, err := out.Write(b); return err }, lost)

	defer c.releaseRun()
	ended, over := make(chan error, 1), make(chan struct{})
	defer func() {
		close(over)
		if closer, ok := in.(io.Closer); ok {
			_ = closer.Close() // what it still holds is not wanted
		}
	}()
	go func() { ended <- c.readMessages(calls, in, over) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			err = cause
		}
	case <-g.closing:
	}
	c.gate.shut()
	hush()
	g.log.Info("stopping", "calls_in_flight", g.Calls())
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-c.gate.idle
		c.out.flush()
	}()
	select {
	case <-done:
		return err
	case <-g.grace():
	}
	if n := g.Calls(); n > 0 {
		g.log.Warn("calls cut", "calls", n)
	}
	cancel(errStopping)
	select {
	case <-done:
	case <-time.After(cutNoticeTime): // a client that does not read its answers
	}
	return err
}

// readMessages takes in the lines of in, until it ends or over is closed.
func (c *stdioConn) readMessages(calls context.Context, in io.Reader, over <-chan struct{}) error {
	r := wire.NewLineReader(in, MaxMessage)
	for {
		data, err := r.Next()
		select {
		case <-over:
			return nil
		default:
		}
		switch {
		case err == nil:
			c.handleMessage(calls, data)
		case errors.Is(err, wire.ErrLineTooLong):
			c.write(invalidRequest("the message is longer than 4 MiB").envelope(nil))
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// write writes one message, which it may change, as a line. Messages do not
// mix, and keep the order of the calls.
func (c *stdioConn) write(message []byte) { c.out.put(asLine(message)) }

func asLine(message []byte) []byte { return append(wire.OneLine(message), '\n') }

// handleMessage deals with one message. Answers are made beside each other, but for
// initialize: what comes after it may rely on it.
func (c *stdioConn) handleMessage(ctx context.Context, data []byte) {
	if len(bytes.TrimSpace(data)) == 0 {
		return
	}
	m, err := wire.Parse(data)
	if err != nil {
		f, id := parseFailure(err)
		c.write(f.envelope(id))
		return
	}
	switch m.Kind {
	case wire.Response:
		if !c.client.questions.resolve(m) {
			c.g.log.Debug("a client answered what nobody asked")
		}
		return
	case wire.Notification:
		c.g.handleNotification(c.client, &c.flight, m)
		return
	}
	if !c.gate.enter() {
		f := failureOf(errStopping)
		c.g.countFailure(f)
		c.write(f.envelope(m.ID))
		return
	}
	if m.Method == wire.MethodListen {
		ctx = c.streaming
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if f := c.flight.add(m.ID, cancel); f != nil {
		cancel(nil)
		c.gate.leave()
		// Under the id itself, this would be taken for the answer to the
		// request that is still under way.
		if f.code == wire.CodeInvalidRequest {
			m.ID = nil
		}
		c.write(f.envelope(m.ID))
		return
	}
	answer := func() {
		defer c.gate.leave()
		defer cancel(nil)
		c.answerRequest(ctx, cancel, m)
	}
	if m.Method == wire.MethodInitialize {
		answer()
		return
	}
	go answer()
}

// answerRequest answers one request.
func (c *stdioConn) answerRequest(ctx context.Context, cancel context.CancelCauseFunc, m wire.Message) {
	q := &clientRequest{
		Message:   &m,
		principal: c.principal(),
		client:    c.client,
		bind:      c.bind,
		sendKept:  c.write,
		notify: func(method string, params []byte) {
			c.out.putOrDrop(asLine(wire.AppendNotification(nil, method, params)))
		},
	}
	var a rpcAnswer
	version := metaVersion(&m)
	q.modern = wire.Modern(version)
	switch {
	case q.modern && !isKnownVersion(version):
		a = rpcAnswer{failure: unsupportedVersion(version)}
	case q.modern && m.Method == wire.MethodListen:
		a = c.g.answerListen(ctx, q, nil, func(b ...[]byte) error { c.write(bytes.Join(b, nil)); return ctx.Err() }, nil)
	case !q.modern && m.Method == wire.MethodInitialize && c.client.Initialized():
		a = rpcAnswer{failure: invalidRequest("initialize has been answered already")}
	default:
		a = c.g.dispatch(ctx, cancel, q)
	}
	// The id is free before the answer can be read, so that it can be used again.
	c.flight.remove(m.ID)
	if !a.none() {
		message := a.message(m.ID)
		a.done()
		c.write(message)
	}
	if !q.modern && m.Method == wire.MethodInitialize && a.result != nil {
		c.startListening()
	}
}

// bind returns the process's run, and mints it at first. What failed is tried
// again with the next request.
func (c *stdioConn) bind(ctx context.Context) (*run.Run, error) {
	c.binding.Lock()
	defer c.binding.Unlock()
	if c.run == nil {
		r, err := c.g.runs.Open(ctx, c.principal(), c.task)
		if err != nil {
			return nil, err
		}
		c.run, c.unwatch = r, r.Watch(c.client.queue, false)
	}
	return c.run, nil
}

// startListening tells a legacy client of changes from now on.
func (c *stdioConn) startListening() {
	if !c.gate.enter() {
		return
	}
	go func() {
		defer c.gate.leave()
		c.g.followChanges(c.streaming, c.client.queue, changeListener{write: func(m []byte) error { c.write(m); return nil }})
	}()
}

// releaseRun lets go of the run.
func (c *stdioConn) releaseRun() {
	c.binding.Lock()
	defer c.binding.Unlock()
	c.unwatch()
	c.g.releaseClient(c.client)
}
