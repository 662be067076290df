package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A stdioConn is the connection to the client on stdio: one principal and one run.
type stdioConn struct {
	g         *Gateway
	principal func() switchboard.Principal
	task      switchboard.TaskID
	client    *session.ClientState
	inFlight  session.Requests
	gate      *drainGate // of requests, and of the goroutine that sends changes

	// streaming ends the streams of changes when stdin has ended.
	streaming context.Context

	binding sync.Mutex
	run     *run.Run
	unwatch func() // ends the watching of run, which keeps an unused run alive

	out *outbox // of whole lines
}

// A Stdio is a client on stdio.
type Stdio struct {
	In  io.Reader
	Out io.Writer

	// Principal returns the principal for each request: always with the same tenant and id, but a
	// reload may change its rights.
	Principal func() switchboard.Principal
	Task      switchboard.TaskID // "" means the principal's default task

	// Grace is called when ServeStdio stops. The channel that it returns is closed when the
	// requests in flight have had their time; nil means that they get none.
	Grace func() (over <-chan struct{})
}

// ServeStdio answers MCP in lines on s.In and s.Out, with one run of the task.
//
// When s.In ends or ctx is done, requests in flight have the Grace to finish, and new ones are
// refused. Then the client is told which requests did not finish, and ServeStdio returns. Until
// then it reads s.In, because the client may still answer or cancel; at last it closes s.In, if it is
// an io.Closer. It returns an error of reading or writing.
func (g *Gateway) ServeStdio(ctx context.Context, s Stdio) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	calls, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	streaming, endStreams := context.WithCancel(calls)
	defer endStreams()
	c := &stdioConn{g: g, principal: s.Principal, task: s.Task, client: session.NewClientState("stdio", s.Principal()), gate: newGate(), streaming: streaming, unwatch: func() {}}
	c.out = newOutbox(func(b []byte) error { _, err := s.Out.Write(b); return err }, fail)

	defer c.releaseRun()
	ended, over := make(chan error, 1), make(chan struct{})
	defer func() {
		close(over)
		if closer, ok := s.In.(io.Closer); ok {
			_ = closer.Close() // what is unread is not needed
		}
	}()
	go func() { ended <- c.readMessages(calls, s.In, over) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			err = cause
		}
	case <-g.stop.closing:
	}
	c.gate.shut()
	endStreams()
	g.log.Info("stopping", "calls_in_flight", g.CallsInFlight())
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-c.gate.idle
		c.out.flush()
	}()
	select {
	case <-done:
		return err
	case <-s.grace():
	}
	if n := g.CallsInFlight(); n > 0 {
		g.log.Warn("calls cut", "calls", n)
	}
	cancel(errStopping)
	select {
	case <-done:
	case <-time.After(cutNoticeTime): // the client does not read its answers
	}
	return err
}

// grace returns a channel that is closed when the requests in flight have had their time.
func (s *Stdio) grace() <-chan struct{} {
	if s.Grace != nil {
		return s.Grace()
	}
	none := make(chan struct{})
	close(none)
	return none
}

// readMessages handles the lines of in, until in ends or over is closed.
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

// write writes one message as a line, and may modify it. Messages are not mixed, and keep the order
// of the calls.
func (c *stdioConn) write(message []byte) { c.out.put(asLine(message)) }

func asLine(message []byte) []byte { return append(wire.OneLine(message), '\n') }

// handleMessage handles one message. Requests are answered concurrently, except initialize: later
// requests may rely on it.
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
		if !c.client.Questions.Resolve(m) {
			c.g.log.Debug("a client sent a response to no open question")
		}
		return
	case wire.Notification:
		c.g.handleNotification(c.client, &c.inFlight, m)
		return
	}
	if !c.gate.enter() {
		f := failureOf(errStopping)
		c.g.enc.countFailure(f)
		c.write(f.envelope(m.ID))
		return
	}
	if m.Method == wire.MethodListen {
		ctx = c.streaming
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if err := c.inFlight.Add(m.ID, cancel); err != nil {
		cancel(nil)
		c.gate.leave()
		// With this id, the client would take it for the answer to the request in flight.
		if errors.Is(err, session.ErrIDInUse) {
			m.ID = nil
		}
		c.write(notAdded(err).envelope(m.ID))
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
		a = c.g.notifier.answerListen(ctx, q, nil, func(b ...[]byte) error { c.write(bytes.Join(b, nil)); return ctx.Err() }, nil)
	case !q.modern && m.Method == wire.MethodInitialize && c.client.Initialized():
		a = rpcAnswer{failure: invalidRequest("initialize has been answered already")}
	default:
		a = c.g.dispatcher.dispatch(ctx, cancel, q)
	}
	// Free the id before the client can read the answer, so that the client can use it again.
	c.inFlight.Remove(m.ID)
	if !a.none() {
		message := a.message(m.ID)
		a.done()
		c.write(message)
	}
	if !q.modern && m.Method == wire.MethodInitialize && a.result != nil {
		c.startListening()
	}
}

// bind returns the run of the process, and mints it at first. After an error, the next request
// tries again.
func (c *stdioConn) bind(ctx context.Context) (*run.Run, error) {
	c.binding.Lock()
	defer c.binding.Unlock()
	if c.run == nil {
		r, err := c.g.dispatcher.runs.Open(ctx, c.principal(), c.task)
		if err != nil {
			return nil, err
		}
		c.run, c.unwatch = r, r.Watch(c.client.Queue, false)
	}
	return c.run, nil
}

// startListening sends a legacy client notifications of changes from now on.
func (c *stdioConn) startListening() {
	if !c.gate.enter() {
		return
	}
	go func() {
		defer c.gate.leave()
		c.g.notifier.followChanges(c.streaming, c.client.Queue, changeListener{write: func(m []byte) error { c.write(m); return nil }})
	}()
}

// releaseRun ends the watching of the run and releases the client.
func (c *stdioConn) releaseRun() {
	c.binding.Lock()
	defer c.binding.Unlock()
	c.unwatch()
	c.g.releaseClient(c.client)
}
