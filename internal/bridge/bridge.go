// Package bridge carries the messages of one client on stdio to a Switchboard in another process, and back, and keeps the
// client's session when that process ends.
//
// The messages stay as they are. The bridge reads only their envelope: which request is in flight, and what the client would
// lose. When the connection ends, it opens the next one, presents the client's initialize, log level and subscriptions again,
// and hides the answers. Then it tells the client that its lists may have changed.
//
// No request is executed twice. A process that has received a request that a server may execute says so (wire.MethodReceived), and
// begins only when the bridge tells it to (wire.MethodBegin). So the bridge knows which requests cannot have been begun: these, and those
// that Switchboard answers itself, go to the next process. For the others the outcome is unknown (SB-EXEC-004).
//
// Which process the connection leads to, and how it is found or started, is decided by Options.Connect.
package bridge

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Bounds of a bridge.
const (
	maxKept    = 8 << 20 // bytes of requests in flight that can be sent again
	maxResends = 2       // of one request, so that a request that ends each process is not sent for ever

	// maxFailures is how many connections in a row may end before one of them has answered anything.
	maxFailures = 5

	// A process that sends nothing for hangLimit, although it owes an answer and was pinged, is given up.
	hangLimit = 20 * time.Second
	pingEvery = 5 * time.Second

	// drainLimit is hangLimit once the client's messages have ended: the process cannot be pinged then, and gives calls in flight the
	// time that its configuration allows.
	drainLimit = 5 * time.Minute

	// A connection that has lasted this long was a good one, even if nothing was asked on it.
	goodLife = time.Minute

	// replayLimit is how long the next process may take to answer initialize.
	replayLimit = 60 * time.Second
)

// A Connection leads to a Switchboard that speaks MCP in lines.
type Connection interface {
	io.ReadWriteCloser
	CloseWrite() error
	SetWriteDeadline(time.Time) error
}

// Options of a bridge.
type Options struct {
	In  io.Reader // of the client
	Out io.Writer

	// Connect opens a connection to a process that serves. n counts the connections of this bridge, from 1. After an error
	// the bridge ends.
	Connect func(ctx context.Context, n int) (Connection, error)

	// Refuse returns the answer that refuses a request.
	Refuse func(id []byte, method string, modern bool, e *switchboard.Error) []byte

	// IsStopping reports whether the error object of an answer says that the request was not begun, because the process is
	// stopping.
	IsStopping func(object []byte) bool

	MaxIn  int // the longest message of the client, in bytes
	MaxOut int // the longest message to the client

	// The answers to messages that the bridge does not send on: one that is longer than MaxIn, one for which wire.Parse returns an
	// error, and a request with the id of one that is in flight.
	TooLong   []byte
	Malformed func(err error) []byte
	IDInUse   []byte

	// Hurry ends the wait for answers when it is closed, after ctx is done.
	Hurry <-chan struct{}

	Log *slog.Logger
}

// A bridge is one running bridge.
type bridge struct {
	o      Options
	hidden string // the prefix of the ids of the bridge's own requests, with the opening quote

	client   clientWriter
	handling sync.Mutex // held while a message of the client is handled

	mu       sync.Mutex
	moved    chan struct{} // closed when the fields below change
	link     *link         // nil while there is none
	lost     int           // the number of the last link that has ended
	over     bool          // no message of the client is accepted any more
	ended    bool          // the client's messages have ended
	requests requests
	session  session
	own      int // the last own request

	stopConnecting context.CancelFunc // ends a call of Options.Connect
}

// Run carries messages until the client's messages end, or ctx is done, and its requests are answered. It returns an error if no
// connection can be opened, or the client cannot be written to.
func Run(ctx context.Context, o Options) error {
	b := &bridge{o: o, hidden: `"switchboard-` + rand.Text() + "-", moved: make(chan struct{}), session: newSession(), client: clientWriter{w: o.Out}}
	b.requests.open = map[string]*request{}
	connecting, stopConnecting := context.WithCancel(ctx)
	defer stopConnecting()
	b.stopConnecting = stopConnecting
	conn, err := o.Connect(connecting, 1)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, b.stopReading)
	defer stop()
	go b.readClient()
	failures := 0
	for n := 1; ; n++ {
		l := &link{Connection: conn, client: &b.client, number: n, since: time.Now()}
		l.heard.Store(time.Now().UnixNano())
		end := b.serve(ctx, l)
		if b.client.failure() != nil {
			return b.client.failure()
		}
		if failures++; l.proven || time.Since(l.since) > goodLife {
			failures = 0
		}
		if b.afterLoss(l) {
			b.end(stopping)
			return nil
		}
		if failures >= maxFailures {
			return b.giveUp(fmt.Errorf("the Switchboard that serves this folder has ended %d times in a row: %w", failures, end))
		}
		o.Log.Warn("the Switchboard that serves this folder has ended; looking for the next one", "err", end)
		if conn, err = o.Connect(connecting, n+1); err != nil {
			if connecting.Err() != nil { // the client has left meanwhile, or ctx is done
				b.end(stopping)
				return b.client.failure()
			}
			return b.giveUp(err)
		}
	}
}

// serve carries messages over the link until it ends, and says why it did.
func (b *bridge) serve(ctx context.Context, l *link) error {
	defer l.Close() //nolint:errcheck // the end of the connection has been seen
	done := make(chan struct{})
	defer close(done)
	go b.watch(ctx, l, done)
	lines := wire.NewLineReader(l, b.o.MaxOut)
	if err := b.replay(l, lines); err != nil {
		return err
	}
	for {
		line, err := lines.Next()
		if err == nil {
			err = b.fromServer(l, line)
		}
		if err != nil {
			if l.hung.Load() {
				return fmt.Errorf("it has sent nothing for %s, although it owes an answer", hangLimit)
			}
			return err
		}
	}
}

// watch closes a link to a process that hangs, or when the second signal comes.
func (b *bridge) watch(ctx context.Context, l *link, done <-chan struct{}) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	var hurry <-chan struct{}
	ending := ctx.Done()
	for {
		select {
		case <-done:
			return
		case <-ending:
			ending, hurry = nil, b.o.Hurry
			continue
		case <-hurry:
			_ = l.Close()
			return
		case <-tick.C:
		}
		now := time.Now()
		if !b.isOwed(l) || b.client.busy.Load() { // it may wait for the client, as we do
			l.heard.Store(now.UnixNano())
			continue
		}
		limit := hangLimit
		if l.closing.Load() {
			limit = drainLimit
		}
		switch quiet := now.Sub(time.Unix(0, l.heard.Load())); {
		case quiet >= limit:
			l.hung.Store(true)
			_ = l.Close()
			return
		case quiet >= pingEvery:
			go func() { _, _ = l.write(wire.AppendRequest(nil, b.newOwnID(), wire.MethodPing, nil)) }()
		}
	}
}

// isOwed reports whether the process owes an answer.
func (b *bridge) isOwed(l *link) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests.owed(l.number)
}

// newOwnID returns the id of a request of the bridge itself.
func (b *bridge) newOwnID() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.own++
	return []byte(b.hidden + strconv.Itoa(b.own) + `"`)
}

func (b *bridge) isOwn(id []byte) bool { return strings.HasPrefix(string(id), b.hidden) }

// signalMoved wakes those that wait for a change. The caller holds b.mu.
func (b *bridge) signalMoved() {
	close(b.moved)
	b.moved = make(chan struct{})
}

// awaitLink waits for a link. It returns nil when there will be none.
func (b *bridge) awaitLink() *link {
	for {
		b.mu.Lock()
		l, over, moved := b.link, b.over, b.moved
		b.mu.Unlock()
		if l != nil || over {
			return l
		}
		<-moved
	}
}

// stopReading ends the intake of messages because ctx is done. The process answers what is in flight, and closes the connection.
func (b *bridge) stopReading() {
	b.mu.Lock()
	b.over, b.ended = true, true
	l := b.link
	b.signalMoved()
	b.mu.Unlock()
	if l != nil {
		b.closeIfEnded(l)
	}
}

// readClient handles the messages of the client, until they end.
func (b *bridge) readClient() {
	lines := wire.NewLineReader(b.o.In, b.o.MaxIn)
	for {
		line, err := lines.Next()
		switch {
		case err == nil:
			b.handling.Lock()
			b.fromClient(line)
			b.handling.Unlock()
			continue
		case errors.Is(err, wire.ErrLineTooLong):
			b.client.write(b.o.TooLong)
			continue
		case !errors.Is(err, io.EOF):
			b.o.Log.Warn("the client cannot be read from", "err", err)
		}
		b.mu.Lock()
		b.ended = true
		l := b.link
		idle := l == nil && !b.requests.any()
		b.mu.Unlock()
		switch {
		case l != nil:
			b.closeIfEnded(l)
		case idle:
			b.stopConnecting()
		}
		return
	}
}

// fromClient handles one message of the client.
func (b *bridge) fromClient(line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	// The process reads it in the same way. So it answers each request that the bridge counts as one, under the same id.
	m, err := wire.Parse(line)
	switch {
	case err != nil:
		b.client.write(b.o.Malformed(err))
	case strings.HasPrefix(m.Method, wire.MetaOurPrefix): // only a bridge says such things
	case m.Kind == wire.Request:
		b.sendRequest(newRequest(&m, line))
	case m.Kind == wire.Response:
		b.mu.Lock()
		asked := b.session.answered(m.ID)
		b.mu.Unlock()
		if asked { // otherwise the question has ended with its process, or the client answers twice
			b.forward(line)
		}
	default:
		b.mu.Lock()
		switch m.Method {
		case wire.MethodInitialized:
			b.session.initialized = line
		case wire.MethodCancelled: // no answer will come
			if id, ok := wire.Field(m.Params, "requestId"); ok {
				b.requests.remove(id)
			}
		}
		b.mu.Unlock()
		b.forward(line)
	}
}

// forward sends a message that expects no answer. If the connection ends, so does the reason for the message: it belongs to what the
// old process did.
func (b *bridge) forward(line []byte) {
	if l := b.awaitLink(); l != nil {
		_, _ = l.write(line)
	}
}

// sendRequest sends a request, at the next connection if it did not leave on this one.
func (b *bridge) sendRequest(r *request) {
	for {
		l := b.awaitLink()
		b.mu.Lock()
		switch {
		case b.over || l == nil:
			b.mu.Unlock()
			b.refuse(r, stopping)
			return
		case b.link != l:
			b.mu.Unlock()
			continue
		}
		r.link, r.sent = l.number, false
		if !b.requests.add(r) {
			b.mu.Unlock()
			b.client.write(b.o.IDInUse)
			return
		}
		message := r.message
		b.mu.Unlock()
		n, err := l.write(message)
		b.mu.Lock()
		if err == nil {
			r.sent = true
			if b.lost < l.number {
				b.requests.trim(r)
				b.mu.Unlock()
				return
			}
		}
		// The link has ended.
		if b.requests.open[r.key] != r { // answered, or cancelled
			b.mu.Unlock()
			return
		}
		again := n == 0 || r.mayResend()
		if n > 0 {
			r.resends++
		}
		b.requests.remove(r.id)
		b.mu.Unlock()
		if !again {
			b.refuse(r, r.whyLost())
			return
		}
		b.awaitLoss(l.number)
	}
}

// awaitLoss returns when the link of that number has been given up.
func (b *bridge) awaitLoss(number int) {
	for {
		b.mu.Lock()
		gone, moved := b.lost >= number || b.over, b.moved
		b.mu.Unlock()
		if gone {
			return
		}
		<-moved
	}
}

// outcomeUnknown answers a call that was in flight when its process ended.
var outcomeUnknown = &switchboard.Error{
	Code: switchboard.CodeOutcomeUnknown,
	Text: "the Switchboard process that had this call in flight has ended; the call may have been executed: check before you repeat it",
}

// stopping answers a request that arrives when the bridge ends, or that has waited for a process until then.
var stopping = &switchboard.Error{Code: switchboard.CodeOverloaded, Text: "Switchboard is stopping", RetryAfter: time.Second}

// notAnswered answers a request of which each process has ended that got it, or that is too large to be kept.
var notAnswered = &switchboard.Error{
	Code: switchboard.CodeNotExecuted,
	Text: "the Switchboard process that got this request has ended before it began with it",
}

// refuse answers a request with an error.
func (b *bridge) refuse(r *request, e *switchboard.Error) {
	b.client.write(b.o.Refuse(r.id, r.method, r.modern, e))
}

// fromServer handles one message of the process.
func (b *bridge) fromServer(l *link, line []byte) error {
	l.heard.Store(time.Now().UnixNano())
	m, err := wire.ParseEnvelope(line)
	if err != nil {
		return fmt.Errorf("its last message is not complete: %w", err)
	}
	if m.Kind == wire.Response && b.isOwn(m.ID) {
		l.proven = true
		return nil
	}
	if m.Kind == wire.Notification && m.Method == wire.MethodReceived {
		b.begin(l, &m)
		return nil
	}
	b.mu.Lock()
	pass := true
	switch m.Kind {
	case wire.Response:
		l.proven = true
		pass = b.noteAnswer(&m)
	case wire.Request:
		b.session.asked(m.ID)
	case wire.Notification:
		pass = b.noteNotification(&m)
	}
	b.mu.Unlock()
	if pass {
		b.client.write(line)
	}
	if m.Kind == wire.Response {
		b.closeIfEnded(l)
	}
	return b.client.failure()
}

// begin lets the process begin with a request that it has received. From now on the request may be executed.
func (b *bridge) begin(l *link, m *wire.Message) {
	id, _ := wire.Field(m.Params, "id")
	b.mu.Lock()
	r := b.requests.find(id)
	if r == nil || r.link != l.number || r.begun { // it was cancelled
		b.mu.Unlock()
		return
	}
	b.requests.markBegun(r)
	b.requests.beginning++ // so that nothing closes the link before the process is told
	b.mu.Unlock()
	_, _ = l.write(wire.AppendNotification(nil, wire.MethodBegin, m.Params))
	b.mu.Lock()
	b.requests.beginning--
	b.mu.Unlock()
	b.closeIfEnded(l)
}

// closeIfEnded says that nothing more is sent, if the client's messages have ended and each request was begun.
func (b *bridge) closeIfEnded(l *link) {
	b.mu.Lock()
	now := b.ended && b.link == l && b.requests.beginning == 0 && !b.requests.anyUnbegun()
	b.mu.Unlock()
	if now {
		l.closeWrite()
	}
}

// noteAnswer notes that a request is answered, and reports whether the client gets the answer. The caller holds b.mu.
func (b *bridge) noteAnswer(m *wire.Message) bool {
	r := b.requests.find(m.ID)
	if r == nil {
		return true
	}
	// After the begin, a server's error may have the same words.
	if m.ErrorObject != nil && (r.own || !r.begun) && r.mayResend() && b.o.IsStopping(m.ErrorObject) {
		r.refused = true // the next process gets it
		return false
	}
	b.requests.remove(m.ID)
	if m.Result != nil {
		b.session.noteDone(r)
	}
	return true
}

// noteNotification notes a notification of the process, and reports whether the client gets it. The caller holds b.mu.
func (b *bridge) noteNotification(m *wire.Message) bool {
	switch m.Method {
	case wire.MethodCancelled:
		if id, ok := wire.Field(m.Params, "requestId"); ok {
			b.session.answered(id)
		}
	case wire.MethodListenAcknowledged:
		meta, _ := wire.Field(m.Params, wire.MemberMeta)
		id, _ := wire.Field(meta, wire.MetaSubscriptionID)
		if r := b.requests.find(id); r != nil && r.method == wire.MethodListen {
			again := r.acknowledged
			r.acknowledged, r.resends = true, 0 // the stream is well again
			return !again
		}
	}
	return true
}

// afterLoss handles the requests that were in flight on the link. It reports whether the bridge is at its end: the client's messages
// have ended, and no request waits for the next process.
func (b *bridge) afterLoss(l *link) (finished bool) {
	b.mu.Lock()
	b.link, b.lost = nil, l.number
	var unknown []*request
	for _, r := range b.requests.inOrder() {
		switch {
		case !r.sent: // the goroutine that sends it decides
		case r.mayResend():
			r.resends++
		default:
			b.requests.remove(r.id)
			unknown = append(unknown, r)
		}
	}
	questions := b.session.dropQuestions()
	finished = b.over || b.ended && !b.requests.any()
	if finished {
		b.over = true
		unknown = append(unknown, b.requests.clear()...)
	}
	b.signalMoved()
	b.mu.Unlock()
	for _, r := range unknown {
		if r.method != wire.MethodListen || !finished {
			b.refuse(r, r.whyLost())
		}
	}
	for _, id := range questions {
		b.client.write(wire.AppendNotification(nil, wire.MethodCancelled, slices.Concat([]byte(`{"requestId":`), id, []byte(`,"reason":"the process that asked has ended"}`))))
	}
	return finished
}

// giveUp ends the bridge because there will be no other process, and returns why.
func (b *bridge) giveUp(why error) error {
	b.end(&switchboard.Error{Code: switchboard.CodeNotExecuted, Text: "no Switchboard serves this folder any more, so the request was not executed; start the client again"})
	return cmp.Or(b.client.failure(), why)
}

// end accepts no more messages, answers all requests that wait for a process with e, and returns when no message of the client
// is being handled.
func (b *bridge) end(e *switchboard.Error) {
	b.mu.Lock()
	b.over = true
	left := b.requests.clear()
	b.signalMoved()
	b.mu.Unlock()
	for _, r := range left {
		if r.method != wire.MethodListen {
			b.refuse(r, e)
		}
	}
	b.handling.Lock() // its sender answers a request that was not sent
	defer b.handling.Unlock()
}
