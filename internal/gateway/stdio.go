package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
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
	named     switchboard.RunID // the run to continue; "" for none
	client    *session.ClientState
	inFlight  session.Requests
	gate      *drainGate // of requests, and of the goroutine that sends changes

	// streaming ends the streams of changes when stdin has ended.
	streaming context.Context

	binding sync.Mutex
	run     *run.Run
	unwatch func() // ends the watching of run, which keeps an unused run alive

	out *outbox // of whole lines

	confirms bool
	unbegun  unbegunRequests
}

// unbegunRequests are the requests that wait until the bridge lets them begin.
type unbegunRequests struct {
	mu    sync.Mutex
	begin map[string]chan struct{} // by id
	over  chan struct{}            // closed when the bridge says nothing more
}

func newUnbegunRequests() unbegunRequests {
	return unbegunRequests{begin: map[string]chan struct{}{}, over: make(chan struct{})}
}

// add adds a request, and returns a channel that is closed when it may begin.
func (u *unbegunRequests) add(id []byte) <-chan struct{} {
	key, _ := wire.IDKey(id)
	begin := make(chan struct{})
	u.mu.Lock()
	defer u.mu.Unlock()
	u.begin[key] = begin
	return begin
}

// remove removes a request that has begun, or never will.
func (u *unbegunRequests) remove(id []byte) {
	key, _ := wire.IDKey(id)
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.begin, key)
}

// allow lets the request begin that the params of MethodBegin name.
func (u *unbegunRequests) allow(params []byte) {
	id, _ := wire.Field(params, "id")
	key, _ := wire.IDKey(id)
	u.mu.Lock()
	defer u.mu.Unlock()
	if begin := u.begin[key]; begin != nil {
		close(begin)
		delete(u.begin, key)
	}
}

// A Stdio is a client on stdio.
type Stdio struct {
	In  io.Reader
	Out io.Writer

	// Principal returns the principal for each request: always with the same tenant and id, but a
	// reload may change its rights.
	Principal func() switchboard.Principal
	Task      switchboard.TaskID // "" means the principal's default task

	// Run names the run to continue, or to begin if there is none with this id. "" begins a new run. Only a program of our
	// own may choose it, at random.
	Run switchboard.RunID

	// Connection is 1 or 0 for the first connection of the client, and more for each later one. The questions on two
	// connections have different ids, so that a late answer is never taken for another one.
	Connection int

	// Confirms says that s.In and s.Out lead to a bridge. A request that a server may execute is not begun when it arrives:
	// the bridge is told that it was received, and says when to begin. So a bridge that loses this process knows which
	// requests cannot have been begun, and can safely send those to another process.
	Confirms bool

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
	c := &stdioConn{g: g, principal: s.Principal, task: s.Task, named: s.Run, client: session.NewClientState("stdio", s.Principal()), gate: newGate(), streaming: streaming, unwatch: func() {}}
	c.client.Questions.StartAfter(s.Connection)
	c.confirms, c.unbegun = s.Confirms, newUnbegunRequests()
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
	if c.named == "" { // the end of one of several clients is not the end of this process
		g.log.Info("stopping", "calls_in_flight", c.inFlight.Len())
	}
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
	if n := c.inFlight.Len(); n > 0 {
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
			c.write(TooLong())
		case errors.Is(err, io.EOF):
			close(c.unbegun.over)
			return nil
		default:
			close(c.unbegun.over)
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
		c.write(Malformed(err))
		return
	}
	switch m.Kind {
	case wire.Response:
		if !c.client.Questions.Resolve(m) {
			c.g.log.Debug("a client sent a response to no open question")
		}
		return
	case wire.Notification:
		if c.confirms && m.Method == wire.MethodBegin {
			c.unbegun.allow(m.Params)
			return
		}
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
		if errors.Is(err, session.ErrIDInUse) && !c.confirms { // to a bridge, the other one is cancelled, and gets no answer
			c.write(IDInUse())
			return
		}
		c.write(notAdded(err).envelope(m.ID))
		return
	}
	answer := func() {
		defer c.gate.leave()
		defer cancel(nil)
		c.answerRequest(ctx, cancel, m)
	}
	switch {
	case m.Method == wire.MethodInitialize:
		answer()
	case c.confirms && !answersItself(m.Method):
		begin := c.unbegun.add(m.ID)
		go func() {
			// Not before: if the client reads slowly, this waits, and later messages must still be read.
			c.write(wire.AppendNotification(nil, wire.MethodReceived, slices.Concat([]byte(`{"id":`), m.ID, []byte("}"))))
			select {
			case <-begin:
			case <-ctx.Done(): // it was cancelled, or the time for calls is over
			case <-c.unbegun.over:
			}
			select {
			case <-begin: // also if the bridge has said nothing more since then
				answer()
				return
			default:
			}
			c.unbegun.remove(m.ID)
			c.inFlight.Remove(m.ID)
			cancel(nil)
			c.gate.leave()
		}()
	default:
		go answer()
	}
}

// answersItself reports whether Switchboard answers requests of the method without asking a server.
func answersItself(method string) bool {
	switch method {
	case wire.MethodInitialize, wire.MethodDiscover, wire.MethodPing, wire.MethodSetLevel, wire.MethodSubscribe, wire.MethodUnsubscribe, wire.MethodListen:
		return true
	}
	_, list := kinds[method]
	return list
}

// notify implements earlySender.
func (c *stdioConn) notify(method string, params []byte) {
	c.out.putOrDrop(asLine(wire.AppendNotification(nil, method, params)))
}

// sendKept implements earlySender.
func (c *stdioConn) sendKept(message []byte) { c.write(message) }

// answerRequest answers one request.
func (c *stdioConn) answerRequest(ctx context.Context, cancel context.CancelCauseFunc, m wire.Message) {
	q := &clientRequest{
		Message:   &m,
		principal: c.principal(),
		client:    c.client,
		bind:      c.bind,
		sender:    c,
	}
	var a rpcAnswer
	version := metaVersion(&m)
	q.modern = wire.Modern(version)
	switch {
	case q.modern && !isKnownVersion(version):
		a = rpcAnswer{failure: unsupportedVersion(version)}
	case q.modern && m.Method == wire.MethodListen:
		a = c.g.notifier.answerListen(ctx, q, nil, func(b ...[]byte) error { c.write(bytes.Join(b, nil)); return ctx.Err() }, nil)
		if c.confirms && a.result != nil && c.g.stop.begun() {
			a = rpcAnswer{} // the stream is not over: the bridge continues it at the next process
		}
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

// TooLong returns the answer to a message that is longer than MaxMessage.
func TooLong() []byte { return invalidRequest("the message is longer than 4 MiB").envelope(nil) }

// Malformed returns the answer to a message that wire.Parse refuses with the error.
func Malformed(err error) []byte {
	f, id := parseFailure(err)
	return f.envelope(id)
}

// IDInUse returns the answer to a request while another one with its id is in flight. It has no id: the client would take it
// for the answer to the other one.
func IDInUse() []byte { return notAdded(session.ErrIDInUse).envelope(nil) }

// bind returns the run of the connection, and finds or mints it at first. After an error, the next
// request tries again.
func (c *stdioConn) bind(ctx context.Context) (*run.Run, error) {
	c.binding.Lock()
	defer c.binding.Unlock()
	if c.run == nil {
		r, err := c.g.dispatcher.runs.Open(ctx, c.principal(), c.task, c.named)
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

// releaseRun ends the watching of the run and releases the client. The run stays in the store for a
// while: a client that has lost this process continues it at another one.
func (c *stdioConn) releaseRun() {
	c.binding.Lock()
	defer c.binding.Unlock()
	c.unwatch()
	if c.run != nil && c.named != "" {
		c.run.Forget()
	}
	c.g.releaseClient(c.client)
}
