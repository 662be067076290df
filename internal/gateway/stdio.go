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
type pipe struct {
	g      *Gateway
	who    func() switchboard.Principal
	task   switchboard.TaskID
	client *client
	flight flight
	work   sync.WaitGroup

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
// When in ends, or ctx is done, the calls under way are given some time to
// finish, and their client is told of those that have not; then it returns. It
// reads in until then, and closes it where it can. The error is that of reading
// or writing.
func (g *Gateway) ServeStdio(ctx context.Context, in io.Reader, out io.Writer, who func() switchboard.Principal, task switchboard.TaskID) error {
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	calls, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	streaming, hush := context.WithCancel(calls)
	defer hush()
	c := &pipe{g: g, who: who, task: task, client: newClient("stdio", who()), streaming: streaming, unwatch: func() {}}
	c.out = newOutbox(func(b []byte) error { _, err := out.Write(b); return err }, lost)

	defer c.release()
	lines := make(chan line)
	go read(ctx, in, lines)
	err := c.serve(ctx, calls, lines)
	if closer, ok := in.(io.Closer); ok {
		_ = closer.Close() // what it still holds is not wanted
	}
	hush()
	g.log.Info("stopping", "calls_in_flight", g.Calls())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.work.Wait()
		c.out.flush()
	}()
	select {
	case <-done:
		return err
	case <-time.After(stdioDrain - lastWords):
	}
	if n := g.Calls(); n > 0 {
		g.log.Warn("calls cut", "calls", n)
	}
	cancel(errStopping)
	select {
	case <-done:
	case <-time.After(lastWords): // a client that does not read its answers
	}
	return err
}

// A line is one message, or why there is none.
type line struct {
	data []byte
	err  error
}

// read sends the lines of in until it ends.
func read(ctx context.Context, in io.Reader, lines chan<- line) {
	r := wire.NewLineReader(in, MaxMessage)
	for {
		data, err := r.Next()
		select {
		case lines <- line{data, err}:
		case <-ctx.Done():
			return
		}
		if err != nil && !errors.Is(err, wire.ErrLineTooLong) {
			return
		}
	}
}

// serve takes in lines until they end or ctx is done.
func (c *pipe) serve(ctx, calls context.Context, lines <-chan line) error {
	for {
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		case <-c.g.closing:
			return nil
		case l := <-lines:
			switch {
			case l.err == nil:
				c.take(calls, l.data)
			case errors.Is(l.err, wire.ErrLineTooLong):
				c.write(invalidRequest("the message is longer than 4 MiB").envelope(nil))
			case errors.Is(l.err, io.EOF):
				return nil
			default:
				return l.err
			}
		}
	}
}

// write writes one message, which it may change, as a line. Messages do not
// mix, and keep the order of the calls.
func (c *pipe) write(message []byte) { c.out.put(asLine(message)) }

func asLine(message []byte) []byte { return append(wire.OneLine(message), '\n') }

// take deals with one message. Answers are made beside each other, but for
// initialize: what comes after it may rely on it.
func (c *pipe) take(ctx context.Context, data []byte) {
	if len(bytes.TrimSpace(data)) == 0 {
		return
	}
	m, err := wire.Parse(data)
	if err != nil {
		f, id := unparsed(err)
		c.write(f.envelope(id))
		return
	}
	switch m.Kind {
	case wire.Response:
		if !c.client.questions.answered(m) {
			c.g.log.Debug("a client answered what nobody asked")
		}
		return
	case wire.Notification:
		c.g.hear(c.client, &c.flight, m)
		return
	}
	if m.Method == wire.MethodListen {
		ctx = c.streaming
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if f := c.flight.enter(m.ID, cancel); f != nil {
		cancel(nil)
		// Under the id itself, this would be taken for the answer to the
		// request that is still under way.
		if f.code == wire.CodeInvalidRequest {
			m.ID = nil
		}
		c.write(f.envelope(m.ID))
		return
	}
	answer := func() {
		defer cancel(nil)
		c.answer(ctx, cancel, m)
	}
	if m.Method == wire.MethodInitialize {
		answer()
		return
	}
	c.work.Go(answer)
}

// answer answers one request.
func (c *pipe) answer(ctx context.Context, cancel context.CancelCauseFunc, m wire.Message) {
	q := &request{
		Message:   &m,
		principal: c.who(),
		client:    c.client,
		bind:      c.bind,
		send:      c.write,
		notify: func(method string, params []byte) {
			c.out.offer(asLine(wire.AppendNotification(nil, method, params)))
		},
	}
	var a answer
	version := metaVersion(&m)
	q.modern = wire.Modern(version)
	switch {
	case q.modern && !known(version):
		a = answer{failure: unsupported(version)}
	case q.modern && m.Method == wire.MethodListen:
		a = c.g.listen(ctx, q, nil, func(b ...[]byte) error { c.write(bytes.Join(b, nil)); return ctx.Err() }, nil)
	case !q.modern && m.Method == wire.MethodInitialize && c.client.Initialized():
		a = answer{failure: invalidRequest("initialize has been answered already")}
	default:
		a = c.g.answer(ctx, cancel, q)
	}
	// The id is free before the answer can be read, so that it can be used again.
	c.flight.leave(m.ID)
	if !a.none() {
		message := a.message(m.ID)
		a.done()
		c.write(message)
	}
	if !q.modern && m.Method == wire.MethodInitialize && a.result != nil {
		c.hear()
	}
}

// bind returns the process's run, and mints it at first. What failed is tried
// again with the next request.
func (c *pipe) bind(ctx context.Context) (*run.Run, error) {
	c.binding.Lock()
	defer c.binding.Unlock()
	if c.run == nil {
		r, err := c.g.runs.Open(ctx, c.who(), c.task)
		if err != nil {
			return nil, err
		}
		c.run, c.unwatch = r, r.Watch(c.client.news)
	}
	return c.run, nil
}

// hear tells a legacy client of changes from now on.
func (c *pipe) hear() {
	c.work.Go(func() {
		c.g.follow(c.streaming, c.client.news, listener{say: func(m []byte) error { c.write(m); return nil }})
	})
}

// release lets go of the run.
func (c *pipe) release() {
	c.binding.Lock()
	defer c.binding.Unlock()
	c.unwatch()
	c.g.forget(c.client)
}
