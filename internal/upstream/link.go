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
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The limits of what a server may send. Beyond them its message is dropped, or
// its connection is closed.
const (
	maxMessage = 16 << 20 // bytes of one message, where the server is not configured otherwise

	floodWindow     = 10 * time.Second
	maxJunk         = 1_000   // lines that are no message, in a window
	maxJunkBytes    = 8 << 20 // and their bytes
	maxChatter      = 100_000 // notifications and dropped messages, in a window
	maxBacklog      = 1_024   // messages that wait to be written
	maxAbandoned    = 1_024   // requests that were given up and are not answered yet
	maxTellers      = 16      // messages that have no answer, at once over HTTP
	cancelPatience  = 5 * time.Second
	levelPatience   = 5 * time.Second // for a server to set its level
	levelWait       = time.Second     // of a call for that
	maxServerInfo   = 128             // bytes of a server's name or version that are kept
	maxCapabilities = 1 << 20         // bytes of a server's capabilities object
	maxInstructions = 64 << 10        // bytes of its instructions; longer ones are none
)

// A port carries messages to one server: a child's pipes, or HTTP.
type port interface {
	// start sends f's request and returns at once. The answer, or why there
	// is none, finishes f.
	start(f *flight)

	// carry is start for who waits for the end anyway: it may use that
	// goroutine until f is finished.
	carry(f *flight)

	// abandon is told that nobody waits for f any more, and whether it may
	// have been sent.
	abandon(f *flight, sent bool)

	// tell sends a notification, or the answer to a request of the server's,
	// as soon as it can, and reports no failure. The message is its own from
	// then on.
	tell(message []byte)

	// shut ends the connection, gently until hurry is closed.
	shut(hurry <-chan struct{})
}

// A hello is what a server said of itself when the link was made.
type hello struct {
	version      string // of the protocol
	name         string // of the server's software; never used for identity
	release      string
	instructions string // for models, without the server's secrets
	capabilities []byte // as sent; nil means none
	beside       []byte // what stands beside them under their name; nil means nothing
	logging      bool   // it takes logging/setLevel

	has, tells switchboard.Kinds // what it offers, and of what it tells when that changes
}

// declares reports whether the server has declared the capability.
func (h *hello) declares(capability string) bool {
	_, ok := wire.Field(h.capabilities, capability)
	return ok
}

// wishes is the filter by which we hear of all that it tells.
func (h *hello) wishes() []byte {
	var edits []wire.Edit
	for k, shelf := range shelves {
		if h.tells.Has(switchboard.Kind(k)) && k != int(switchboard.Templates) {
			edits = append(edits, wire.Edit{Name: shelf.wish, Value: []byte("true")})
		}
	}
	return wire.Rewrite(nil, nil, edits...)
}

func (h *hello) modern() bool { return wire.Modern(h.version) }

// A link is one connection to a server: a child process, an HTTP session or,
// in the modern era, an address. It matches answers with requests.
type link struct {
	log  *slog.Logger
	mask *mask
	port port
	ours identity
	made time.Time

	relist func(switchboard.Kinds) // told what has to be listed again
	said   atomic.Pointer[hello]   // nil until the handshake is done

	id      atomic.Int64
	dropped atomic.Int64 // messages of the server's that meant nothing to us

	mu        sync.Mutex
	flights   map[string]*flight  // by id as spelt
	abandoned map[string]struct{} // requests, by id, that were sent and given up
	err       error               // why the link ended
	ended     time.Time
	level     int           // rank of the level that the server was asked for
	levelled  chan struct{} // closed when the server has set it

	done chan struct{} // closed when the link has ended

	// severs says that what is under way ends with the link. Over HTTP each
	// exchange ends by itself.
	severs bool

	// polled says that what the server offers must be asked for from time to
	// time, because it may not say when that changes.
	polled bool

	most      int                           // bytes of one message
	asks      string                        // what the client can be asked for, as the server was told; "" means nothing
	turn      chan struct{}                 // held by the one call that may use the link; see takeTurn
	yields    chan struct{}                 // closed while a client is being asked
	yielding  int                           // how often
	questions map[string]context.CancelFunc // of the server's, by id as spelt
	aside     asker                         // asks the client for its roots while no call is under way; nil until they change

	watchers map[*subscriber]struct{} // who hear of updates

	// subscribing is held while a subscription begins or ends.
	subscribing sync.Mutex
	subscribed  map[string]int // how many want each resource, of a legacy server
	listens     bool           // a stream is open on which the server speaks unasked

	heeds   chan struct{} // closed once a modern server has said that it tells of changes
	heeding sync.Once
	listed  atomic.Bool // what it offers may have been asked for already

	flood flood // of the one stream that all share
}

// hello returns what the server said of itself; the zero hello until it has.
func (l *link) hello() *hello {
	if h := l.said.Load(); h != nil {
		return h
	}
	return &hello{}
}

func newLink(log *slog.Logger, m *mask, ours identity, asks string, relist func(switchboard.Kinds)) *link {
	return &link{
		log: log, mask: m, ours: ours, most: maxMessage, asks: asks, made: time.Now(), relist: relist,
		flights: map[string]*flight{}, abandoned: map[string]struct{}{}, done: make(chan struct{}),
		turn: make(chan struct{}, 1), yields: make(chan struct{}), questions: map[string]context.CancelFunc{},
		watchers: map[*subscriber]struct{}{}, subscribed: map[string]int{},
		heeds: make(chan struct{}),
	}
}

// newFlight returns a request with a fresh id. params is a whole object.
func (l *link) newFlight(method string, params func(id []byte) []byte) *flight {
	f := &flight{
		id:     strconv.AppendInt(nil, l.id.Add(1), 10),
		method: method,
	}
	said := params(f.id)
	f.body = wire.AppendRequest(make([]byte, 0, len(said)+len(method)+64), f.id, method, said)
	return f
}

// ask makes a request of ours, without notifications, and returns the answer's
// result. An error of the server's is a fault with its code.
func (l *link) ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	f := l.newFlight(method, func([]byte) []byte { return params })
	if err := l.fly(ctx, f, nil); err != nil {
		return nil, err
	}
	return l.result(f)
}

// result returns the result that ended f.
func (l *link) result(f *flight) ([]byte, error) {
	if f.answer.ErrorObject == nil {
		return f.answer.Result, nil
	}
	e := faultf(kindRefused, true, "it answered %s with the error %s", f.method, l.mask.line(f.answer.ErrorObject, maxQuoted, true))
	e.object, e.code, e.status = f.answer.ErrorObject, errorCode(f.answer.ErrorObject), f.status
	return nil, e
}

// fly makes the request and waits for its end, passing on what the server says
// meanwhile. The error is a *fault.
func (l *link) fly(ctx context.Context, f *flight, notify func(switchboard.Notification)) error {
	f.ctx, f.notify = ctx, notify
	if ctx.Err() != nil {
		return faultf(kindSilent, false, "no time for %s", f.method)
	}
	if err := l.enlist(f); err != nil {
		return err
	}
	defer l.forget(f)
	defer context.AfterFunc(ctx, func() { l.abort(f) })()
	l.port.carry(f)
	f.wait()
	return f.err
}

// enlist lets the answer find f.
func (l *link) enlist(f *flight) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return unsentFault(l.err)
	}
	l.flights[string(f.id)] = f
	return nil
}

// ping asks the server whether it is there. The modern era has no ping, but asks
// who a server is with each connection. A server that knows no such method is
// there. A modern server that knows no server/discover any more is no longer what the
// connection was made with, so that the connection ends. The error is a *fault.
func (l *link) ping(ctx context.Context) error {
	if l.hello().modern() {
		_, err := l.discover(ctx)
		if err != nil && asFault(err).code == wire.CodeMethodNotFound {
			err = faultf(kindGone, false, "it no longer answers %s on this connection", wire.MethodDiscover)
			l.fail(err)
		}
		return err
	}
	result, err := l.ask(ctx, wire.MethodPing, nil)
	if err == nil {
		if len(result) == 0 || result[0] != '{' {
			return faultf(kindInvalid, true, "its answer to %s is no object", wire.MethodPing)
		}
		return nil
	}
	if asFault(err).code == wire.CodeMethodNotFound {
		return nil
	}
	if w, ok := l.port.(*web); ok && asFault(err).status == http.StatusBadRequest {
		if _, session := w.state(); session != "" { // many say so instead of 404
			err = faultf(kindGone, false, "it no longer knows our session")
			l.fail(err)
		}
	}
	return err
}

// tooLarge is the fault of an answer of that size, as far as it is known.
func (l *link) tooLarge(size string) *fault {
	return faultf(kindInvalid, true, "its answer%s is larger than the %d bytes that are allowed; ask for less, such as a page or a shorter range, or have its operator raise max_result", size, l.most)
}

// overlong ends the request of the id because its answer is too large: of n
// bytes, or more where that is not the whole. Of an answer to nothing it takes
// note.
func (l *link) overlong(id []byte, n int, whole bool) {
	l.mu.Lock()
	f := l.flights[string(id)]
	l.mu.Unlock()
	size := fmt.Sprintf(" of %d bytes", n)
	if !whole {
		size += " or more"
	}
	if f == nil || !f.maybeSent() || !f.finish(wire.Message{}, 0, l.tooLarge(size)) {
		l.drop("it is too long")
	}
}

// skipped is how long a message may be at most for its end to be waited for,
// though it is too long. The connection of a server that writes more is closed.
func (l *link) skipped() int { return max(maxSkipped, 2*l.most) }

// launch makes the request and waits for nothing.
func (l *link) launch(f *flight) error {
	if err := l.enlist(f); err != nil {
		return err
	}
	l.port.start(f)
	return nil
}

// abort ends f, which nobody waits for any more.
func (l *link) abort(f *flight) {
	sent := !f.withdraw()
	if f.left != nil {
		f.left.free() // though its client may still be being told something
	}
	if f.finish(wire.Message{}, 0, faultf(kindSilent, sent, "no answer to %s in time", f.method)) {
		if sent {
			l.mu.Lock()
			if len(l.abandoned) >= maxAbandoned {
				clear(l.abandoned)
			}
			l.abandoned[string(f.id)] = struct{}{}
			l.mu.Unlock()
		}
		l.port.abandon(f, sent)
	}
}

func (l *link) forget(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.flights, string(f.id))
}

// fail ends the link because of err, and with it all that is under way on it.
func (l *link) fail(err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err, l.ended = err, time.Now()
	var flights []*flight
	if l.severs {
		flights = slices.Collect(maps.Values(l.flights))
	}
	l.mu.Unlock()
	close(l.done)
	for _, f := range flights {
		gone := *asFault(err)
		gone.sent = !f.withdraw()
		f.finish(wire.Message{}, 0, &gone)
	}
}

// halt ends what the port does for all that is under way.
func (l *link) halt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.flights {
		f.halt()
	}
}

// failure returns why the link ended, or nil while it has not.
func (l *link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// endedAt returns when the link ended.
func (l *link) endedAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// close ends the link because we want it to.
func (l *link) close() { l.fail(ourFault(kindLost, true, "closed by us")) }

// drop counts a message of the server's that means nothing to us.
func (l *link) drop(why string) {
	if l.dropped.Add(1) == 1 { // the first says it all; status has the number
		l.log.Warn("a server's message was dropped", "why", why)
	}
}

// dispatch takes a message of the server's. via is the request on whose own
// stream it came, or nil for a stream that all share; lent is the memory that it
// stands in, if that is to be given back. It reports whether it
// was an answer that somebody waits for.
func (l *link) dispatch(lent loan, m wire.Message, via *flight) (answered bool) {
	switch m.Kind {
	case wire.Response:
		f := via
		if f == nil {
			l.mu.Lock()
			f = l.flights[string(m.ID)]
			l.mu.Unlock()
		}
		if f != nil && string(f.id) == string(m.ID) && f.maybeSent() && f.finishIn(lent, m, 0, nil) {
			return true
		}
		if via == nil && l.wasAbandoned(m.ID) {
			l.log.Debug("a server answered too late", "id", string(m.ID))
			return false
		}
		l.drop("it answers nothing that was asked")
	case wire.Notification:
		l.hear(m, via)
	case wire.Request:
		l.reply(m, via)
	}
	return false
}

// wasAbandoned reports whether the request of that id was sent and given up, and is still
// to be answered. It says so once.
func (l *link) wasAbandoned(id []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.abandoned[string(id)]
	delete(l.abandoned, string(id))
	return ok
}

// hear takes a notification.
func (l *link) hear(m wire.Message, via *flight) {
	switch m.Method {
	case wire.MethodToolsChanged:
		l.relist(switchboard.Kinds(0).With(switchboard.Tools))
	case wire.MethodResourcesChanged:
		l.relist(switchboard.Kinds(0).With(switchboard.Resources).With(switchboard.Templates))
	case wire.MethodPromptsChanged:
		l.relist(switchboard.Kinds(0).With(switchboard.Prompts))
	case wire.MethodResourceUpdated:
		l.updated(m, via)
	case wire.MethodListenAcknowledged:
		l.acknowledged(m, via)
	case wire.MethodCancelled:
		l.withdrawn(m.Params)
	case wire.MethodProgress:
		l.progress(m, via)
	case wire.MethodLog:
		l.logged(m, via)
	case wire.MethodElicitationCompleted:
		l.completed(m, via)
	default:
		// What an extension says of a call goes where the call's result goes.
		if via != nil && via.client != nil {
			l.deliver(via, via, switchboard.Notification{Method: m.Method, Params: m.Params})
		}
	}
}

// acknowledged tells the request for what the server now listens. Where that is
// ours, what changed before has not been told.
func (l *link) acknowledged(m wire.Message, via *flight) {
	f := l.subscription(m, via)
	if f == nil {
		return
	}
	if f.method == wire.MethodListen && f.notify == nil {
		first := false
		l.heeding.Do(func() { close(l.heeds); first = true })
		if !first || l.listed.Load() {
			l.relist(switchboard.AllKinds)
		}
	}
	f.push(switchboard.Notification{Method: m.Method, Params: m.Params})
}

// subscription returns the request of which m, which came on the stream of via or
// on one that all share, says that it is told for it.
func (l *link) subscription(m wire.Message, via *flight) *flight {
	if via != nil {
		return via
	}
	meta, _ := wire.Field(m.Params, "_meta")
	id, _ := wire.Field(meta, wire.MetaSubscriptionID)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flights[string(id)]
}

// progress passes progress on to the call that our token names.
func (l *link) progress(m wire.Message, via *flight) {
	token, ok := wire.Field(m.Params, wire.MetaProgressToken)
	if !ok {
		l.drop("progress without a token")
		return
	}
	l.mu.Lock()
	f := l.flights[string(token)]
	l.mu.Unlock()
	if f == nil || f.token == nil || via != nil && f != via {
		l.drop("progress of a call that is not under way")
		return
	}
	f.left.alive()
	params := wire.Rewrite(make([]byte, 0, len(m.Params)+len(f.token)), m.Params, wire.Edit{Name: wire.MetaProgressToken, Value: f.token})
	l.deliver(f, via, switchboard.Notification{Method: m.Method, Params: params})
}

// logged passes a log message on. It does not say to which call it belongs: on
// a stream that is no call's own, it can only be meant for a call that is
// alone. We never guess.
func (l *link) logged(m wire.Message, via *flight) {
	f := via
	if f == nil {
		f = l.alone()
	}
	if f == nil {
		l.drop("a log message that could be any call's")
		return
	}
	raw, _ := wire.Field(m.Params, "level")
	level, _ := wire.String(raw)
	if rank := levelRank(level); f.level == 0 || rank < f.level {
		return // the client does not want it
	}
	l.deliver(f, via, switchboard.Notification{Method: m.Method, Params: m.Params})
}

// alone returns the one call under way, or nil where there is none or
// more than one.
func (l *link) alone() *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	var one *flight
	for _, f := range l.flights {
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

// deliver hands n to f's caller. On f's own stream it waits for the caller, and
// the server with it; a stream that others share waits for nobody.
func (l *link) deliver(f, via *flight, n switchboard.Notification) {
	switch {
	case !f.mayTell(len(n.Params), l.most):
		l.drop("more notifications than a call may send")
	case via != nil:
		f.say(n)
	case !f.push(n):
		l.drop("more notifications than the client takes")
	}
}

// reply answers a request of the server's.
func (l *link) reply(m wire.Message, via *flight) {
	if l.hello().modern() {
		l.drop("a request, which servers of this protocol do not make")
		return
	}
	if m.Method == wire.MethodPing {
		l.port.tell(wire.AppendResult(nil, m.ID, []byte("{}")))
		return
	}
	l.asked(m, via)
}

// raise sees to it that a legacy server sends log messages of the rank: it is
// asked once for the most verbose level that anybody wanted so far, and what
// each call takes is filtered here. On pipes the server reads that before the
// call; elsewhere the calls that want it wait for the answer, though not for
// long, since nothing else of a call needs it.
func (l *link) raise(rank int) {
	if rank == 0 || l.hello().modern() || !l.hello().logging {
		return
	}
	l.mu.Lock()
	wanted := l.level == 0 || rank < l.level
	if wanted {
		l.level, l.levelled = rank, make(chan struct{})
	}
	levelled := l.levelled
	l.mu.Unlock()
	if wanted {
		l.setLevel(rank, levelled)
	}
	select {
	case <-levelled:
	default:
		within(levelled, levelWait)
	}
}

// setLevel asks for log messages of the rank, and closes done when calls may
// rely on it.
func (l *link) setLevel(rank int, done chan<- struct{}) {
	params := append(wire.AppendString([]byte(`{"level":`), levels[rank-1]), '}')
	f := l.newFlight(wire.MethodSetLevel, func([]byte) []byte { return params })
	if _, ok := l.port.(*stdio); !ok {
		go func() {
			defer close(done)
			ctx, cancel := context.WithTimeout(context.Background(), levelPatience)
			defer cancel()
			if err := l.fly(ctx, f, nil); err != nil {
				l.log.Debug("a server's log level was not set", "error", err)
			}
		}()
		return
	}
	defer close(done)
	if l.launch(f) != nil {
		return
	}
	time.AfterFunc(levelPatience, func() {
		l.abort(f)
		l.forget(f)
	})
}

// levels are the levels of log messages, least severe first. The rank of one
// is its place, counted from 1.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func levelRank(level string) int { return slices.Index(levels, level) + 1 }

// A flood counts what a server says unasked within a window of time. It is not
// safe for concurrent use.
type flood struct {
	since                    time.Time
	junk, junkBytes, chatter int
}

// tick counts, and says why it is too much, or "".
func (w *flood) tick(junk, junkBytes, chatter int) string {
	if now := time.Now(); now.Sub(w.since) > floodWindow {
		*w = flood{since: now}
	}
	w.junk += junk
	w.junkBytes += junkBytes
	w.chatter += chatter
	switch {
	case w.junk > maxJunk:
		return "it writes lines that are no messages, without end"
	case w.junkBytes > maxJunkBytes:
		return "it writes text that is no message, without end"
	case w.chatter > maxChatter:
		return "it sends notifications without end"
	}
	return ""
}
