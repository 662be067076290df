package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
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
// address. It matches responses with requests.
type link struct {
	log    *slog.Logger
	mask   *mask.Mask
	port   port
	ours   clientInfo
	madeAt time.Time

	onListChanged func(switchboard.Kinds)     // called with the kinds that must be listed again
	greeting      atomic.Pointer[serverHello] // nil until the handshake is done

	id      atomic.Int64
	dropped atomic.Int64 // messages of the server that match nothing

	mu          sync.Mutex
	pending     map[string]*pendingRequest // requests by id, as spelled
	abandoned   map[string]struct{}        // ids of requests that were sent and then abandoned
	err         error                      // why the link ended
	endedTime   time.Time
	logLevel    int           // rank of the level that was requested from the server
	logLevelSet chan struct{} // closed when the server has set it

	done chan struct{} // closed when the link has ended

	// endsPending says that pending requests end with the link. Over Streamable HTTP each exchange
	// ends by itself.
	endsPending bool

	// mustPoll says that the offer must be listed from time to time, because the server may not
	// announce changes.
	mustPoll bool

	maxBytes   int                           // of one message
	askable    string                        // the client capabilities that the server was given; "" means none
	turn       chan struct{}                 // held by the one call that may use the link; see takeTurn
	asking     chan struct{}                 // closed while a client is being asked
	askCount   int                           // number of questions that are open
	questions  map[string]context.CancelFunc // open questions of the server, by id as spelled
	rootsAsker askFunc                       // asks the client for its roots outside a call; nil until the roots change

	subscribers map[*resourceSubscriber]struct{} // the subscribers that get updates

	// subscribeMu is held while a subscription begins or ends.
	subscribeMu   sync.Mutex
	subscriptions map[string]int // number of subscribers by resource, for a legacy server
	listening     bool           // a stream for notifications and requests of the server is open

	acknowledged    chan struct{} // closed once a modern server has acknowledged subscriptions/listen
	acknowledgeOnce sync.Once
	offerListed     atomic.Bool // the offer may have been listed already

	flood floodMeter // of the shared stream
}

// hello returns what the server said about itself, or the zero serverHello before the handshake.
func (l *link) hello() *serverHello {
	if h := l.greeting.Load(); h != nil {
		return h
	}
	return &serverHello{}
}

func newLink(log *slog.Logger, m *mask.Mask, ours clientInfo, asks string, relist func(switchboard.Kinds)) *link {
	return &link{
		log: log, mask: m, ours: ours, maxBytes: frame.MaxMessage, askable: asks, madeAt: time.Now(), onListChanged: relist,
		pending: map[string]*pendingRequest{}, abandoned: map[string]struct{}{}, done: make(chan struct{}),
		turn: make(chan struct{}, 1), asking: make(chan struct{}), questions: map[string]context.CancelFunc{},
		subscribers: map[*resourceSubscriber]struct{}{}, subscriptions: map[string]int{},
		acknowledged: make(chan struct{}),
	}
}

// newRequest returns a request with a fresh id. params returns a whole JSON object.
func (l *link) newRequest(method string, params func(id []byte) []byte) *pendingRequest {
	f := &pendingRequest{
		id:     strconv.AppendInt(nil, l.id.Add(1), 10),
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
	if f.answer.ErrorObject == nil {
		return f.answer.Result, nil
	}
	e := exchangeErrorf(kindRefused, true, "it answered %s with the error %s", f.method, l.mask.Line(f.answer.ErrorObject, mask.MaxQuoted, true))
	e.object, e.code, e.status = f.answer.ErrorObject, errorCode(f.answer.ErrorObject), f.status
	return nil, e
}

// roundTrip sends the request, waits until it is finished, and passes notifications on meanwhile.
// The error is an *exchangeError.
func (l *link) roundTrip(ctx context.Context, f *pendingRequest, notify func(switchboard.Notification)) error {
	f.ctx, f.notify = ctx, notify
	if ctx.Err() != nil {
		return exchangeErrorf(kindSilent, false, "no time left for %s", f.method)
	}
	if err := l.register(f); err != nil {
		return err
	}
	defer l.unregister(f)
	defer context.AfterFunc(ctx, func() { l.abandon(f) })()
	l.port.startBlocking(f)
	f.wait()
	return f.err
}

// register makes f findable for its response.
func (l *link) register(f *pendingRequest) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return asUnsent(l.err)
	}
	l.pending[string(f.id)] = f
	return nil
}

// ping checks that the server answers. The modern era has no ping, so ping sends server/discover
// there. A legacy server that does not know ping is up. If a modern server no longer knows
// server/discover, it is not the server that the link was opened to, and the link ends. The error
// is an *exchangeError.
func (l *link) ping(ctx context.Context) error {
	if l.hello().modern() {
		_, err := l.discover(ctx)
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
		if _, session := w.protocolState(); session != "" { // many servers say so with 400 instead of 404
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
	l.mu.Lock()
	f := l.pending[string(id)]
	l.mu.Unlock()
	size := fmt.Sprintf(" of %d bytes", n)
	if !whole {
		size += " or more"
	}
	if f == nil || !f.sending.MayBeSent() || !f.finish(wire.Message{}, 0, l.tooLargeError(size)) {
		l.dropMessage("it is too long")
	}
}

// send sends the request and does not wait.
func (l *link) send(f *pendingRequest) error {
	if err := l.register(f); err != nil {
		return err
	}
	l.port.start(f)
	return nil
}

// abandon finishes f, because its caller no longer waits.
func (l *link) abandon(f *pendingRequest) {
	sent := !f.sending.Withdraw()
	if f.allowance != nil {
		f.allowance.freeSlot() // even if a notification to its client still blocks
	}
	if f.finish(wire.Message{}, 0, exchangeErrorf(kindSilent, sent, "no answer to %s in time", f.method)) {
		if sent {
			l.mu.Lock()
			if len(l.abandoned) >= maxAbandoned {
				clear(l.abandoned)
			}
			l.abandoned[string(f.id)] = struct{}{}
			l.mu.Unlock()
		}
		l.port.cancel(f, sent)
	}
}

func (l *link) unregister(f *pendingRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, string(f.id))
}

// fail ends the link because of err. If endsPending is set, it also finishes all pending requests.
func (l *link) fail(err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err, l.endedTime = err, time.Now()
	var flights []*pendingRequest
	if l.endsPending {
		flights = slices.Collect(maps.Values(l.pending))
	}
	l.mu.Unlock()
	close(l.done)
	for _, f := range flights {
		gone := *asExchangeError(err)
		gone.sent = !f.sending.Withdraw()
		f.finish(wire.Message{}, 0, &gone)
	}
}

// haltPending stops the port's work for all pending requests.
func (l *link) haltPending() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.pending {
		f.sending.Halt()
	}
}

// failure returns why the link ended, or nil while it is open.
func (l *link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// endedAt returns when the link ended.
func (l *link) endedAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endedTime
}

// close ends the link on our side.
func (l *link) close() { l.fail(ownError(kindLost, true, "closed by us")) }

// dropMessage counts a message of the server that matches nothing.
func (l *link) dropMessage(why string) {
	if l.dropped.Add(1) == 1 { // only the first is logged; Status has the count
		l.log.Warn("a server's message was dropped", "why", why)
	}
}

// dispatch handles a message of the server. via is the request that has m on its own stream, or nil
// for a shared stream. lent is the buffer that holds the message, if it must be released. dispatch
// reports whether the message is the response to a pending request.
func (l *link) dispatch(lent frame.Buffer, m wire.Message, via *pendingRequest) (answered bool) {
	switch m.Kind {
	case wire.Response:
		f := via
		if f == nil {
			l.mu.Lock()
			f = l.pending[string(m.ID)]
			l.mu.Unlock()
		}
		if f != nil && string(f.id) == string(m.ID) && f.sending.MayBeSent() && f.finishWith(lent, m, 0, nil) {
			return true
		}
		if via == nil && l.takeAbandoned(m.ID) {
			l.log.Debug("a server answered too late", "id", string(m.ID))
			return false
		}
		l.dropMessage("a response to no pending request")
	case wire.Notification:
		l.handleNotification(m, via)
	case wire.Request:
		l.handleRequest(m, via)
	}
	return false
}

// takeAbandoned reports whether the request with that id was sent, then abandoned, and is still
// unanswered. It returns true once per request.
func (l *link) takeAbandoned(id []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.abandoned[string(id)]
	delete(l.abandoned, string(id))
	return ok
}

// handleNotification handles a notification of the server.
func (l *link) handleNotification(m wire.Message, via *pendingRequest) {
	switch m.Method {
	case wire.MethodToolsChanged:
		l.onListChanged(switchboard.Kinds(0).With(switchboard.Tools))
	case wire.MethodResourcesChanged:
		l.onListChanged(switchboard.Kinds(0).With(switchboard.Resources).With(switchboard.Templates))
	case wire.MethodPromptsChanged:
		l.onListChanged(switchboard.Kinds(0).With(switchboard.Prompts))
	case wire.MethodResourceUpdated:
		l.handleUpdated(m, via)
	case wire.MethodListenAcknowledged:
		l.handleAcknowledged(m, via)
	case wire.MethodCancelled:
		l.cancelQuestion(m.Params)
	case wire.MethodProgress:
		l.handleProgress(m, via)
	case wire.MethodLog:
		l.handleLogMessage(m, via)
	case wire.MethodElicitationCompleted:
		l.handleElicitationComplete(m, via)
	default:
		// A notification of an extension on the stream of a call goes to the call's client.
		if via != nil && via.client != nil {
			l.deliver(via, via, switchboard.Notification{Method: m.Method, Params: m.Params})
		}
	}
}

// handleAcknowledged passes the acknowledgement of subscriptions/listen to its request. For our own
// stream it lists the offer again if changes may have been missed before.
func (l *link) handleAcknowledged(m wire.Message, via *pendingRequest) {
	f := l.subscriptionOf(m, via)
	if f == nil {
		return
	}
	if f.method == wire.MethodListen && f.notify == nil {
		first := false
		l.acknowledgeOnce.Do(func() { close(l.acknowledged); first = true })
		if !first || l.offerListed.Load() {
			l.onListChanged(switchboard.AllKinds)
		}
	}
	f.enqueue(switchboard.Notification{Method: m.Method, Params: m.Params})
}

// subscriptionOf returns the subscription request that m belongs to. via is the request that has m
// on its own stream, or nil for a shared stream; m then names the subscription.
func (l *link) subscriptionOf(m wire.Message, via *pendingRequest) *pendingRequest {
	if via != nil {
		return via
	}
	meta, _ := wire.Field(m.Params, "_meta")
	id, _ := wire.Field(meta, wire.MetaSubscriptionID)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending[string(id)]
}

// handleProgress passes progress on to the call with the progress token in it.
func (l *link) handleProgress(m wire.Message, via *pendingRequest) {
	token, ok := wire.Field(m.Params, wire.MetaProgressToken)
	if !ok {
		l.dropMessage("progress without a token")
		return
	}
	l.mu.Lock()
	f := l.pending[string(token)]
	l.mu.Unlock()
	if f == nil || f.progressToken == nil || via != nil && f != via {
		l.dropMessage("progress of a call that is not in flight")
		return
	}
	f.allowance.resetSilence()
	params := wire.Rewrite(make([]byte, 0, len(m.Params)+len(f.progressToken)), m.Params, wire.Edit{Name: wire.MetaProgressToken, Value: f.progressToken})
	l.deliver(f, via, switchboard.Notification{Method: m.Method, Params: params})
}

// handleLogMessage passes a log message on. A log message does not name its call. On a shared
// stream it goes to the only call in flight, or is dropped: guessing could show it to the wrong
// client.
func (l *link) handleLogMessage(m wire.Message, via *pendingRequest) {
	f := via
	if f == nil {
		f = l.onlyCall()
	}
	if f == nil {
		l.dropMessage("a log message of an unknown call")
		return
	}
	raw, _ := wire.Field(m.Params, "level")
	level, _ := wire.String(raw)
	if rank := logLevelRank(level); f.minLogLevel == 0 || rank < f.minLogLevel {
		return // the client wants only more severe messages
	}
	l.deliver(f, via, switchboard.Notification{Method: m.Method, Params: m.Params})
}

// onlyCall returns the only call in flight, or nil if there is none or more than one.
func (l *link) onlyCall() *pendingRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	var one *pendingRequest
	for _, f := range l.pending {
		if f.client == nil {
			continue
		}
		if one != nil {
			return nil
		}
		one = f
	}
	return one
}

// deliver gives n to the caller of f. On the own stream of f it blocks until the caller has taken
// n, which slows the server down. On a shared stream it never blocks.
func (l *link) deliver(f, via *pendingRequest, n switchboard.Notification) {
	switch {
	case !f.allowNotification(len(n.Params), l.maxBytes):
		l.dropMessage("more notifications than a call may send")
	case via != nil:
		f.notifyNow(n)
	case !f.enqueue(n):
		l.dropMessage("more notifications than the client takes")
	}
}

// handleRequest answers a request of the server.
func (l *link) handleRequest(m wire.Message, via *pendingRequest) {
	if l.hello().modern() {
		l.dropMessage("a request, which modern servers must not send")
		return
	}
	if m.Method == wire.MethodPing {
		l.port.post(wire.AppendResult(nil, m.ID, []byte("{}")))
		return
	}
	l.handleQuestion(m, via)
}

// raiseLogLevel makes a legacy server send log messages of the rank. The server is set once to the
// most verbose level that any call has wanted. Messages are then filtered by call. On pipes the
// server reads the request before the call. On other ports the call waits for the response, but
// only for logLevelWait, since nothing else depends on it.
func (l *link) raiseLogLevel(rank int) {
	if rank == 0 || l.hello().modern() || !l.hello().takesLogLevel {
		return
	}
	l.mu.Lock()
	wanted := l.logLevel == 0 || rank < l.logLevel
	if wanted {
		l.logLevel, l.logLevelSet = rank, make(chan struct{})
	}
	levelled := l.logLevelSet
	l.mu.Unlock()
	if wanted {
		l.requestLogLevel(rank, levelled)
	}
	select {
	case <-levelled:
	default:
		waitFor(levelled, logLevelWait)
	}
}

// requestLogLevel sends logging/setLevel, and closes done when calls may rely on it.
func (l *link) requestLogLevel(rank int, done chan<- struct{}) {
	params := append(wire.AppendString([]byte(`{"level":`), logLevels[rank-1]), '}')
	f := l.newRequest(wire.MethodSetLevel, func([]byte) []byte { return params })
	if _, ok := l.port.(*stdioPort); !ok {
		go func() {
			defer close(done)
			ctx, cancel := context.WithTimeout(context.Background(), logLevelTimeout)
			defer cancel()
			if err := l.roundTrip(ctx, f, nil); err != nil {
				l.log.Debug("a server's log level was not set", "error", err)
			}
		}()
		return
	}
	defer close(done)
	if l.send(f) != nil {
		return
	}
	time.AfterFunc(logLevelTimeout, func() {
		l.abandon(f)
		l.unregister(f)
	})
}

// logLevels are the levels of log messages, least severe first. The rank of a level is its index
// plus 1.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func logLevelRank(level string) int { return slices.Index(logLevels, level) + 1 }

// A floodMeter counts unwanted messages of a server within a window of time. It is not safe for
// concurrent use.
type floodMeter struct {
	since                    time.Time
	junk, junkBytes, chatter int
}

// add counts, and returns the reason to close the connection, or "".
func (w *floodMeter) add(junk, junkBytes, chatter int) string {
	if now := time.Now(); now.Sub(w.since) > floodWindow {
		*w = floodMeter{since: now}
	}
	w.junk += junk
	w.junkBytes += junkBytes
	w.chatter += chatter
	switch {
	case w.junk > maxJunk:
		return "it writes lines that are not messages, without end"
	case w.junkBytes > maxJunkBytes:
		return "it writes text that is not a message, without end"
	case w.chatter > maxChatter:
		return "it sends notifications without end"
	}
	return ""
}
