package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/frame"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits of what a server may send. A message beyond them is dropped, or its connection is closed.
const (
	floodWindow     = 10 * time.Second
	maxJunk         = 1_000   // lines that are no message, in a window
	maxJunkBytes    = 8 << 20 // bytes of such lines
	maxChatter      = 100_000 // notifications and dropped messages, in a window
	maxBacklog      = 1_024   // messages that wait to be written
	maxAbandoned    = 1_024   // requests that were abandoned and are not answered yet
	maxSenders      = 16      // concurrent POSTs of messages without an answer
	cancelTimeout   = 5 * time.Second
	logLevelTimeout = 5 * time.Second // for a server to set its log level
	logLevelWait    = time.Second     // how long a call waits for that
	maxServerInfo   = 128             // bytes kept of a server's name or version
	maxCapabilities = 1 << 20         // bytes of a server's capabilities object
	maxInstructions = 64 << 10        // bytes of a server's instructions; longer ones are dropped
)

// A port carries messages to one server: over the pipes of a child process, or over HTTP.
type port interface {
	// start sends the request f and returns at once. The response, or the error, finishes f.
	start(f *pendingRequest)

	// startBlocking is start for a caller that waits for the response anyway: it may use the
	// caller's goroutine until f is finished.
	startBlocking(f *pendingRequest)

	// cancel tells the port that the caller no longer waits for f. sent says whether f may have
	// been sent.
	cancel(f *pendingRequest, sent bool)

	// post sends a notification, or the response to a request of the server, as soon as possible.
	// It reports no failure. The port owns message from then on.
	post(message []byte)

	// shutDown ends the connection, gently until hurry is closed.
	shutDown(hurry <-chan struct{})
}

// serverHello is what a server said about itself in the handshake.
type serverHello struct {
	version         string // of the protocol
	name            string // of the server's software; never used for identity
	release         string
	instructions    string // for models, without the server's secrets
	capabilities    []byte // as sent; nil means none
	capabilityBlock []byte // the member switchboard.BlockName of its answer; nil means none
	takesLogLevel   bool   // it supports logging/setLevel

	offers, notifies switchboard.Kinds // the kinds that it offers; those for which it announces changes
}

// declares reports whether the server has declared the capability.
func (h *serverHello) declares(capability string) bool {
	_, ok := wire.Field(h.capabilities, capability)
	return ok
}

// listenFilter returns the filter of subscriptions/listen for all changes that the server
// announces.
func (h *serverHello) listenFilter() []byte {
	var edits []wire.Edit
	for k, shelf := range listKinds {
		if h.notifies.Has(switchboard.Kind(k)) && k != int(switchboard.Templates) {
			edits = append(edits, wire.Edit{Name: shelf.filter, Value: []byte("true")})
		}
	}
	return wire.Rewrite(nil, nil, edits...)
}

func (h *serverHello) modern() bool { return wire.Modern(h.version) }

// A link is one connection to a server: a child process, an HTTP session or, in the modern era, an
// address.
type link struct {
	log        *slog.Logger
	mask       *mask.Mask
	port       port
	clientInfo clientInfo
	madeAt     time.Time
	maxBytes   int // of one message

	greeting atomic.Pointer[serverHello] // nil until the handshake is done

	requests      requestTable
	inbox         inbox
	questions     questioner
	subscriptions subscriptionTable
	levels        logLevelSetter
	changes       changeListener
}

// hello returns what the server said about itself, or the zero serverHello before the handshake.
func (l *link) hello() *serverHello {
	if h := l.greeting.Load(); h != nil {
		return h
	}
	return &serverHello{}
}

// newLink returns a link without a port. asks are the client's capabilities for questions; "" means
// none. onChange is called with the kinds that must be listed again.
func newLink(log *slog.Logger, m *mask.Mask, ours clientInfo, asks string, onChange func(switchboard.Kinds)) *link {
	l := &link{
		log: log, mask: m, clientInfo: ours, madeAt: time.Now(), maxBytes: frame.MaxMessage,
		requests: newRequestTable(), questions: newQuestioner(asks), subscriptions: newSubscriptionTable(),
		changes: changeListener{onChange: onChange, acknowledged: make(chan struct{})},
	}
	l.inbox.link, l.questions.link, l.subscriptions.link, l.levels.link, l.changes.link = l, l, l, l, l
	return l
}

// newRequest returns a request with a fresh id. params returns a whole JSON object.
func (l *link) newRequest(method string, params func(id []byte) []byte) *pendingRequest {
	f := &pendingRequest{
		id:     l.requests.newID(),
		method: method,
	}
	said := params(f.id)
	f.body = wire.AppendRequest(make([]byte, 0, len(said)+len(method)+64), f.id, method, said)
	return f
}

// request sends a request of Switchboard's own, without notifications, and returns the result. An
// error response of the server is an *exchangeError with its code.
func (l *link) request(ctx context.Context, method string, params []byte) ([]byte, error) {
	f := l.newRequest(method, func([]byte) []byte { return params })
	if err := l.roundTrip(ctx, f, nil); err != nil {
		return nil, err
	}
	return l.resultOf(f)
}

// resultOf returns the result that finished f.
func (l *link) resultOf(f *pendingRequest) ([]byte, error) {
	if f.response.answer.ErrorObject == nil {
		return f.response.answer.Result, nil
	}
	e := exchangeErrorf(kindRefused, true, "it answered %s with the error %s", f.method, l.mask.Line(f.response.answer.ErrorObject, mask.MaxQuoted, true))
	e.object, e.code, e.status = f.response.answer.ErrorObject, errorCode(f.response.answer.ErrorObject), f.response.status
	return nil, e
}

// roundTrip sends the request, waits until it is finished, and passes notifications on meanwhile.
// The error is an *exchangeError.
func (l *link) roundTrip(ctx context.Context, f *pendingRequest, notify func(switchboard.Notification)) error {
	f.ctx, f.notifications.notify = ctx, notify
	if ctx.Err() != nil {
		return exchangeErrorf(kindSilent, false, "no time left for %s", f.method)
	}
	if err := l.requests.add(f); err != nil {
		return err
	}
	defer l.requests.remove(f)
	defer context.AfterFunc(ctx, func() { l.abandon(f) })()
	l.port.startBlocking(f)
	f.wait()
	return f.response.err
}

// ping checks that the server answers. The modern era has no ping, so ping sends server/discover
// there. A legacy server that does not know ping is up. If a modern server no longer knows
// server/discover, it is not the server that the link was opened to, and the link ends. The error
// is an *exchangeError.
func (l *link) ping(ctx context.Context) error {
	if l.hello().modern() {
		_, err := discover(ctx, l)
		if err != nil && asExchangeError(err).code == wire.CodeMethodNotFound {
			err = exchangeErrorf(kindGone, false, "it no longer answers %s on this connection", wire.MethodDiscover)
			l.fail(err)
		}
		return err
	}
	result, err := l.request(ctx, wire.MethodPing, nil)
	if err == nil {
		if len(result) == 0 || result[0] != '{' {
			return exchangeErrorf(kindInvalid, true, "its answer to %s is not an object", wire.MethodPing)
		}
		return nil
	}
	if asExchangeError(err).code == wire.CodeMethodNotFound {
		return nil
	}
	if w, ok := l.port.(*httpPort); ok && asExchangeError(err).status == http.StatusBadRequest {
		if _, session := w.endpoint.state(); session != "" { // many servers say so with 400 instead of 404
			err = exchangeErrorf(kindGone, false, "it no longer knows our session")
			l.fail(err)
		}
	}
	return err
}

// tooLargeError is the error for a response that is too large. size is "" or begins with a space.
func (l *link) tooLargeError(size string) *exchangeError {
	return exchangeErrorf(kindInvalid, true, "its answer%s is larger than the %d bytes that are allowed; ask for less, such as a page or a shorter range, or have its operator raise max_result", size, l.maxBytes)
}

// failTooLong finishes the request with that id, because its response is too large: n bytes, or
// more if whole is false. A message that is no response to a pending request is counted as dropped.
func (l *link) failTooLong(id []byte, n int, whole bool) {
	f := l.requests.find(id)
	size := fmt.Sprintf(" of %d bytes", n)
	if !whole {
		size += " or more"
	}
	if f == nil || !f.sending.MayBeSent() || !f.finish(wire.Message{}, 0, l.tooLargeError(size)) {
		l.inbox.drop("it is too long")
	}
}

// send sends the request and does not wait.
func (l *link) send(f *pendingRequest) error {
	if err := l.requests.add(f); err != nil {
		return err
	}
	l.port.start(f)
	return nil
}

// abandon finishes f, because its caller no longer waits.
func (l *link) abandon(f *pendingRequest) {
	sent := !f.sending.Withdraw()
	if f.allowance != nil {
		f.allowance.FreeSlot() // even if a notification to its client still blocks
	}
	if f.finish(wire.Message{}, 0, exchangeErrorf(kindSilent, sent, "no answer to %s in time", f.method)) {
		if sent {
			l.requests.recordAbandoned(f)
		}
		l.port.cancel(f, sent)
	}
}

// fail ends the link because of err.
func (l *link) fail(err error) { l.requests.end(err) }

// failure returns why the link ended, or nil while it is open.
func (l *link) failure() error {
	err, _ := l.requests.failure()
	return err
}

// lifetime returns a context that ends with the link.
func (l *link) lifetime() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		select {
		case <-l.requests.done:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// droppedCount returns how many messages of the server matched nothing.
func (l *link) droppedCount() int64 { return l.inbox.dropped.Load() }

// pid returns the id of the server's process, or 0.
func (l *link) pid() int {
	if p, ok := l.port.(*stdioPort); ok {
		return p.proc.PID
	}
	return 0
}

// close ends the link on our side.
func (l *link) close() { l.fail(ownError(kindLost, true, "closed by us")) }
