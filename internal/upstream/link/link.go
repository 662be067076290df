// Package link speaks MCP to one server over one connection: over the pipes of a child process, over
// Streamable HTTP, or over HTTP with SSE, in either era of the protocol.
//
// The handshake finds the era of the server. The package decides which request, call or subscriber each
// message of the server belongs to. Its errors say who failed, and whether the request may have been
// sent. A request is sent at most once. Package upstream decides when links are opened, for which calls,
// and what follows when one ends.
package link

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
	"github.com/summit-switchboard/switchboard/internal/wall"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits on the messages of a server. A message beyond them is dropped, or its connection is closed.
const (
	floodWindow     = 10 * time.Second
	MaxJunk         = 1_000   // lines that are no message, in a window
	maxJunkBytes    = 8 << 20 // bytes of such lines
	maxChatter      = 100_000 // notifications and dropped messages, in a window
	maxBacklog      = 1_024   // messages that wait to be written
	maxAbandoned    = 1_024   // requests that were abandoned and are not answered yet
	maxSenders      = 16      // concurrent POSTs of messages without an answer
	cancelTimeout   = 5 * time.Second
	LogLevelTimeout = 5 * time.Second // for a server to set its log level
	logLevelWait    = time.Second     // how long a call waits for that
	maxServerInfo   = 128             // bytes kept of a server's name or version
	maxCapabilities = 1 << 20         // bytes of a server's capabilities object
	maxInstructions = 64 << 10        // bytes of a server's instructions; longer ones are dropped
)

// A Port carries messages to one server: over the pipes of a child process, or over HTTP.
type Port interface {
	// Start sends the request f and returns at once. The response, or the error, finishes f.
	Start(f *Request)

	// StartBlocking is Start for a caller that waits for the response anyway: it may use the
	// caller's goroutine until f is finished.
	StartBlocking(f *Request)

	// Cancel tells the port that the caller no longer waits for f. sent says whether f may have
	// been sent.
	Cancel(f *Request, sent bool)

	// Post sends a notification, or the response to a request of the server, as soon as possible.
	// It reports no failure. The port owns message from then on.
	Post(message []byte)

	// ShutDown ends the connection, gently until hurry is closed.
	ShutDown(hurry <-chan struct{})
}

// Hello is what a server said about itself in the handshake.
type Hello struct {
	Version          string // of the protocol
	Name             string // of the server's software; never used for identity
	Release          string
	instructions     string // for models, without the server's secrets
	sentInstructions string // as the server sent them, without its secrets; "" if no deceptive character was removed
	capabilities     []byte // as sent; nil means none
	capabilityBlock  []byte // the member switchboard.BlockName of its answer; nil means none
	takesLogLevel    bool   // it supports logging/setLevel

	offers, notifies switchboard.Kinds // the kinds that it offers; those for which it announces changes
}

// declares reports whether the server has declared the capability.
func (h *Hello) declares(capability string) bool {
	_, ok := wire.Field(h.capabilities, capability)
	return ok
}

// listenFilter returns the filter of subscriptions/listen for all changes that the server
// announces.
func (h *Hello) listenFilter() []byte {
	var edits []wire.Edit
	for k, shelf := range listKinds {
		if h.notifies.Has(switchboard.Kind(k)) && k != int(switchboard.Templates) {
			edits = append(edits, wire.Edit{Name: shelf.filter, Value: []byte("true")})
		}
	}
	return wire.Rewrite(nil, nil, edits...)
}

// Modern reports whether the version belongs to the modern era.
func (h *Hello) Modern() bool { return wire.Modern(h.Version) }

// A Link is one connection to a server: a child process, an HTTP session or, in the modern era, an
// address.
type Link struct {
	log        *slog.Logger
	mask       *mask.Mask
	port       Port
	clientInfo ClientInfo
	MadeAt     time.Time
	maxBytes   int                    // of one message
	owner      *switchboard.Principal // whose credential the link's own requests carry; nil for Switchboard's own

	greeting atomic.Pointer[Hello] // nil until the handshake is done

	Requests      RequestTable
	inbox         inbox
	Questions     Questioner
	Subscriptions SubscriptionTable
	levels        logLevelSetter
	Listener      OfferListener
}

// Hello returns what the server said about itself, or the zero Hello before the handshake.
func (l *Link) Hello() *Hello {
	if h := l.greeting.Load(); h != nil {
		return h
	}
	return &Hello{}
}

// New returns a link without a port. asks are the client's capabilities for questions; "" means
// none. onChange is called with the kinds that must be listed again.
func New(log *slog.Logger, m *mask.Mask, ours ClientInfo, asks string, onChange func(switchboard.Kinds)) *Link {
	l := &Link{
		log: log, mask: m, clientInfo: ours, MadeAt: time.Now(), maxBytes: frame.MaxMessage,
		Requests: newRequestTable(), Questions: newQuestioner(asks), Subscriptions: newSubscriptionTable(),
		Listener: OfferListener{onChange: onChange, acknowledged: make(chan struct{})},
	}
	l.inbox.link, l.Questions.link, l.Subscriptions.link, l.levels.link, l.Listener.link = l, l, l, l, l
	return l
}

// Use sets the port of the link. endsPending says that pending requests end with the link.
func (l *Link) Use(p Port, endsPending bool) { l.port, l.Requests.endsPending = p, endsPending }

// SetHello ends the handshake.
func (l *Link) SetHello(h Hello) { l.greeting.Store(&h) }

// Receive handles a message of the server on a shared stream.
func (l *Link) Receive(m wire.Message) { l.inbox.dispatch(frame.Buffer{}, m, nil) }

// newRequest returns a request with a fresh id. params is a whole JSON object, or empty.
func (l *Link) newRequest(method string, params []byte) *Request {
	return l.newRequestWith(method, len(params), func(dst, _ []byte) []byte { return append(dst, params...) })
}

// newRequestWith is newRequest with the params that appendParams appends, which has the id. size is their expected
// size.
func (l *Link) newRequestWith(method string, size int, appendParams func(dst, id []byte) []byte) *Request {
	f := &Request{
		ID:     l.Requests.newID(),
		Method: method,
		owner:  l.owner,
	}
	f.Body = wire.AppendRequestWith(make([]byte, 0, size+len(method)+64), f.ID, method, func(dst []byte) []byte { return appendParams(dst, f.ID) })
	return f
}

// request sends a request of Switchboard's own, without notifications, and returns the result. An
// error response of the server is an *ExchangeError with its code.
func (l *Link) request(ctx context.Context, method string, params []byte) ([]byte, error) {
	f := l.newRequest(method, params)
	if err := l.roundTrip(ctx, f, nil); err != nil {
		return nil, err
	}
	return l.resultOf(f)
}

// resultOf returns the result that finished f.
func (l *Link) resultOf(f *Request) ([]byte, error) {
	if f.response.answer.ErrorObject == nil {
		return f.response.answer.Result, nil
	}
	e := Errorf(KindRefused, true, "it answered %s with the error %s", f.Method, l.mask.With(f.shown.Token).Line(f.response.answer.ErrorObject, mask.MaxQuoted, true))
	e.object, e.code, e.Status = f.response.answer.ErrorObject, errorCode(f.response.answer.ErrorObject), f.response.status
	e.token = f.shown.Token
	return nil, e
}

// roundTrip sends the request, waits until it is finished, and passes notifications on meanwhile.
// The error is an *ExchangeError.
func (l *Link) roundTrip(ctx context.Context, f *Request, notify func(switchboard.Notification)) error {
	f.ctx, f.notifications.notify = ctx, notify
	if f.ended() {
		return Errorf(KindSilent, false, "no time left for %s", f.Method)
	}
	if err := l.Requests.add(f); err != nil {
		return err
	}
	defer l.Requests.remove(f)
	defer f.onEnd(func() { l.abandon(f) })()
	l.port.StartBlocking(f)
	f.wait()
	return f.response.err
}

// Ping checks that the server answers. The modern era has no ping, so Ping sends server/discover
// there. A legacy server that does not know ping is up. If a modern server no longer knows
// server/discover, it is not the server that the link was opened to, and the link ends. The error
// is an *ExchangeError.
func (l *Link) Ping(ctx context.Context) error {
	if l.Hello().Modern() {
		_, err := discover(ctx, l)
		if err != nil && AsError(err).code == wire.CodeMethodNotFound {
			err = Errorf(KindGone, false, "it no longer answers %s on this connection", wire.MethodDiscover)
			l.Fail(err)
		}
		return err
	}
	result, err := l.request(ctx, wire.MethodPing, nil)
	if err == nil {
		if len(result) == 0 || result[0] != '{' {
			return Errorf(KindInvalid, true, "its answer to %s is not an object", wire.MethodPing)
		}
		return nil
	}
	if AsError(err).code == wire.CodeMethodNotFound {
		return nil
	}
	if w, ok := l.port.(*httpPort); ok && AsError(err).Status == http.StatusBadRequest {
		if _, session := w.endpoint.State(); session != "" { // many servers say so with 400 instead of 404
			err = Errorf(KindGone, false, "it no longer knows our session")
			l.Fail(err)
		}
	}
	return err
}

// tooLargeError is the error for a response that is too large. size is "" or begins with a space.
func (l *Link) tooLargeError(size string) *ExchangeError {
	return Errorf(KindInvalid, true, "its answer%s is larger than the %d bytes that are allowed; ask for less, such as a page or a shorter range, or have its operator raise max_result", size, l.maxBytes)
}

// failTooLong finishes the request with that id, because its response is too large: n bytes, or more if cut
// says why the rest was not read. Then a link that has no other stream ends too, and ends first: a caller who
// calls again at once must not do so on this link. A message that is no response to a pending request is
// counted as dropped.
func (l *Link) failTooLong(id []byte, n int, cut error) {
	f := l.Requests.find(id)
	size := fmt.Sprintf(" of %d bytes", n)
	if cut != nil {
		size += " or more"
	}
	answered := f != nil && f.Sending.MayBeSent() // a server can name the id of a request that waits to be sent: it ends with the link
	if cut != nil && l.Requests.endsPending {
		if answered {
			l.Requests.remove(f)
		}
		l.Fail(cut)
	}
	if !answered || !f.Finish(wire.Message{}, 0, l.tooLargeError(size)) {
		l.inbox.drop("it is too long")
	}
}

// send sends the request and does not wait.
func (l *Link) send(f *Request) error {
	if err := l.Requests.add(f); err != nil {
		return err
	}
	l.port.Start(f)
	return nil
}

// abandon finishes f, because its caller no longer waits.
func (l *Link) abandon(f *Request) {
	sent := !f.Sending.Withdraw()
	if f.allowance != nil {
		f.allowance.FreeSlot() // even if a notification to its client still blocks
	}
	if f.Finish(wire.Message{}, 0, Errorf(KindSilent, sent, "no answer to %s in time", f.Method)) {
		if sent {
			l.Requests.recordAbandoned(f)
		}
		l.port.Cancel(f, sent)
	}
}

// Fail ends the link because of err.
func (l *Link) Fail(err error) { l.Requests.endLink(err) }

// Failure returns why the link ended, or nil while it is open.
func (l *Link) Failure() error {
	_, err := l.Requests.Ended()
	return err
}

// lifetime returns a context that ends with the link.
func (l *Link) lifetime() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		select {
		case <-l.Requests.Done:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Dropped returns how many messages of the server matched nothing.
func (l *Link) Dropped() int64 { return l.inbox.dropped.Load() }

// PID returns the id of the server's process, or 0.
func (l *Link) PID() int {
	if w := l.Walls(); w != nil {
		return w.PID
	}
	return 0
}

// Walls returns the walls around the process of the link; nil if it has none.
func (l *Link) Walls() *wall.InEffect {
	if p, ok := l.port.(*stdioPort); ok {
		return p.proc.Walls
	}
	return nil
}

// Close ends the link on our side.
func (l *Link) Close() { l.Fail(OwnError(KindLost, true, "closed by us")) }
