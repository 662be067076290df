package link

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/route"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/endpoint"
	"github.com/summit-switchboard/switchboard/internal/upstream/http1"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits of HTTP to servers.
const (
	MaxErrorBody  = 64 << 10
	deleteTimeout = 2 * time.Second
	DrainTimeout  = time.Second // for the rest of a stream after the answer
)

// newClient returns a client for everything but the requests of calls: streams for notifications,
// POSTs without an answer, and DELETE. It speaks HTTP/1.1 and uses no redirects, cookies or
// compression. The route leads to the server.
func newClient(way *route.ServerRoute) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            way.DialContext,
			DialTLSContext:         way.DialTLSContext,
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxIdleConns:           http1.MaxIdle,
			MaxIdleConnsPerHost:    http1.MaxIdle,
			IdleConnTimeout:        http1.IdleTimeout,
			MaxResponseHeaderBytes: http1.MaxHead,
			DisableCompression:     true,
		},
	}
}

// HTTPClients holds the connections to one server. All links to the server share it.
type HTTPClients struct {
	Client *http.Client
	Pool   *http1.Pool // nil if the server has no HTTP address
}

// NewHTTPClients returns the connections to the server at the address. They are opened when they are
// needed, over a network with the settings n; see route.New for report.
func NewHTTPClients(address string, n switchboard.Network, report func(error)) *HTTPClients {
	u, err := endpoint.ParseAddress(address)
	if err != nil {
		return &HTTPClients{Client: newClient(route.New(&url.URL{}, n, report))}
	}
	way := route.New(u, n, report)
	return &HTTPClients{Client: newClient(way), Pool: http1.NewPool(u, way)}
}

// Close closes the idle connections. A busy one is closed when its request has ended.
func (c *HTTPClients) Close() {
	c.Client.CloseIdleConnections()
	if c.Pool != nil {
		c.Pool.Close()
	}
}

// httpPort is the port to a server over Streamable HTTP: each message is a POST.
type httpPort struct {
	link     *Link
	client   *http.Client
	pool     *http1.Pool
	endpoint *endpoint.Endpoint
	auth     authorizer
	posts    postQueue

	ctx   context.Context // ends when all work must stop
	stop  context.CancelFunc
	tasks task.Tracker

	// onResponse reads the response to f. It returns an *ExchangeError if that ends the request.
	onResponse func(f *Request, resp *http.Response) error

	streamOpened chan struct{} // closed when the server has answered our GET, if we send one
}

// newHTTPPort makes the port of l.
func newHTTPPort(l *Link, cfg *switchboard.Server, via *HTTPClients, credentials Credentials) (*httpPort, error) {
	e, err := endpoint.New(cfg)
	if err != nil {
		return nil, err
	}
	w := &httpPort{link: l, client: via.Client, pool: via.Pool, endpoint: e, auth: authorizer{credentials, cfg.ID}, streamOpened: make(chan struct{})}
	w.onResponse = w.readAnswer
	w.ctx, w.stop = context.WithCancel(context.Background())
	l.Use(w, false)
	return w, nil
}

// sendRequest sends the request f and reads the head of the response. The error is an
// *ExchangeError.
func (w *httpPort) sendRequest(f *Request) (*http.Response, error) {
	head, modern := w.endpoint.PostHead()
	for name, values := range f.paramHeaders {
		if !http1.IsName([]byte(name)) || !http1.IsText(values[0]) {
			f.Sending.Withdraw()
			return nil, OwnError(KindProtocol, false, "a request to it cannot be made: a header would not be valid")
		}
	}
	if modern && (!http1.IsText(f.Method) || !http1.IsText(f.targetHeader)) {
		f.Sending.Withdraw()
		return nil, OwnError(KindProtocol, false, "a request to it cannot be made: its method or name is not valid in a header")
	}
	var err error
	var held bool
	if f.shown, held = w.auth.held(f.owner); !held {
		ctx, cancel := w.requestContext(f)
		f.shown, err = w.auth.get(ctx, f.owner)
		cancel()
		if err != nil {
			f.Sending.Withdraw()
			return nil, err
		}
	}
	c := w.pool.TakeIdle()
	if c == nil {
		ctx, cancel := w.requestContext(f)
		c, err = w.pool.Dial(ctx)
		cancel()
		if err != nil {
			f.Sending.Withdraw()
			away := Errorf(KindUnreachable, false, "no connection: %s", w.errorText(err)).WithRemedy(err)
			away.Gone = errors.Is(err, syscall.ECONNREFUSED)
			return nil, away
		}
	}
	resp, err := c.Exchange(&f.Sending, func(b []byte) []byte {
		b = append(b, head...)
		if modern {
			b = endpoint.AppendHeader(b, wire.HeaderMethod, f.Method)
		}
		if token := f.shown.Token.Reveal(); token != "" {
			b = append(append(append(b, "Authorization: "+bearer...), token...), "\r\n"...)
		}
		if f.targetHeader != "" {
			b = endpoint.AppendHeader(b, wire.HeaderName, f.targetHeader)
		}
		for name, values := range f.paramHeaders {
			b = endpoint.AppendHeader(b, name, values[0])
		}
		return b
	}, f.Body)
	if err != nil {
		return nil, Errorf(KindLost, !f.Sending.Withdraw(), "the connection broke: %s", w.errorText(err)).WithRemedy(err)
	}
	return resp, nil
}

// requestContext returns a context for a rare part of the work for f, such as dialling. It ends
// when f is halted or all work must stop.
func (w *httpPort) requestContext(f *Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(w.ctx)
	if !f.Sending.SetStop(cancel) {
		cancel()
	}
	return ctx, cancel
}

// errorText returns the text of err without the URL and without secrets.
func (w *httpPort) errorText(err error) string {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return w.link.mask.Line([]byte(err.Error()), mask.MaxQuoted, true)
}

// Start implements Port.
func (w *httpPort) Start(f *Request) { go w.StartBlocking(f) }

// StartBlocking implements Port. It sends the request and reads the response on the goroutine of
// the call.
func (w *httpPort) StartBlocking(f *Request) {
	if !w.tasks.Enter() {
		f.Sending.Withdraw()
		f.Finish(wire.Message{}, 0, OwnError(KindLost, false, "the connection was just closed"))
		return
	}
	defer w.tasks.Leave()
	err := w.exchange(f)
	if err == nil {
		return
	}
	if end := w.link.Failure(); end != nil && AsError(end).Ours { // then so is this error
		e := *AsError(err)
		e.Ours, err = true, &e
	}
	switch AsError(err).Kind {
	case KindGone:
		// End the link before f, so that the request is repeated over a new link.
		w.link.Requests.remove(f)
		w.link.Fail(err)
	case KindUnreachable:
		defer w.link.Listener.onChange(switchboard.AllKinds) // the listing finds out whether the server is down
	}
	f.Finish(wire.Message{}, 0, err)
}

// exchange sends the request f and reads the response, which finishes f. An error is an
// *ExchangeError, and f is then not finished.
func (w *httpPort) exchange(f *Request) error {
	resp, err := w.sendRequest(f)
	if err != nil {
		return err
	}
	err = w.onResponse(f, resp)
	if body, ok := resp.Body.(*http1.Body); ok && err == nil && !body.AtEnd() && w.tasks.Run(func() { drainStream(f, body) }) {
		return nil
	}
	_ = resp.Body.Close()
	return err
}

// drainStream reads the rest of a stream after the answer, so that the connection can be used
// again. No request waits for that.
func drainStream(f *Request, stream io.ReadCloser) {
	timer := time.AfterFunc(DrainTimeout, f.Sending.Halt)
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, stream, MaxErrorBody)
	_ = stream.Close()
}

// Cancel implements Port. A modern server sees the end of the stream. A legacy server takes that
// for a bad connection, so it gets a notification.
func (w *httpPort) Cancel(f *Request, sent bool) {
	version, _ := w.endpoint.State()
	if sent && !wire.Modern(version) && !f.isHandshake() {
		w.Post(cancelNotification(f))
	}
	f.Sending.Halt()
}

// Post implements Port.
func (w *httpPort) Post(message []byte) {
	if !w.posts.add(message, func() bool { return w.tasks.Run(w.sendOutbox) }) {
		w.link.inbox.dropped.Add(1)
	}
}

// sendOutbox sends the messages in the outbox, as long as the link is open.
func (w *httpPort) sendOutbox() {
	for {
		message, ok := w.posts.next(w.link.Failure() != nil)
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(w.ctx, cancelTimeout)
		if err := w.postAndWait(ctx, message); err != nil {
			w.link.log.Debug("a notification was not sent to a server", "error", err)
		}
		cancel()
	}
}

// postAndWait sends a message without an answer, and waits until the server has accepted it.
func (w *httpPort) postAndWait(ctx context.Context, message []byte) error {
	req, err := w.endpoint.NewRequest(ctx, http.MethodPost, message)
	if err != nil {
		return err
	}
	resp, _, err := w.do(req)
	if err != nil {
		return Errorf(KindLost, true, "%s", w.errorText(err))
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	_, _ = io.CopyN(io.Discard, resp.Body, MaxErrorBody)
	if resp.StatusCode/100 != 2 {
		return w.link.statusError(resp)
	}
	return nil
}

// do sends a request of the link itself with the credential of the link's owner.
func (w *httpPort) do(req *http.Request) (*http.Response, ShownToken, error) {
	c, err := w.auth.get(req.Context(), w.link.owner)
	if err != nil {
		return nil, c, err
	}
	if token := c.Token.Reveal(); token != "" {
		req.Header.Set("Authorization", bearer+token)
	}
	resp, err := w.client.Do(req)
	return resp, c, err
}

// ShutDown implements Port. Pending requests may end, then it ends the session.
func (w *httpPort) ShutDown(hurry <-chan struct{}) {
	ended := w.tasks.Close()
	select {
	case <-ended:
	case <-hurry:
		w.link.Requests.Halt()
	}
	if version, session := w.endpoint.State(); session != "" && !wire.Modern(version) && AsError(w.link.Failure()).Kind != KindGone {
		w.deleteSession(hurry)
	}
	w.stop()
	<-ended
}

// deleteSession ends the session at the server. The server may ignore that.
func (w *httpPort) deleteSession(hurry <-chan struct{}) {
	ctx, cancel := context.WithTimeout(w.ctx, deleteTimeout)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		req, err := w.endpoint.NewRequest(ctx, http.MethodDelete, nil)
		if err != nil {
			return
		}
		if resp, _, err := w.do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	select {
	case <-done:
	case <-hurry:
		// Even in a hurry, the request gets a moment.
		task.WaitFor(done, deleteTimeout/10)
	}
	cancel()
	<-done
}

// An outbox holds the messages without an answer that are not sent yet.
type postQueue struct {
	mu       sync.Mutex
	messages [][]byte
	senders  int // number of goroutines that send them
}

// add adds a message, and starts a sender if there can be one more. It returns false if the outbox is
// full.
func (o *postQueue) add(message []byte, start func() bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.messages) >= maxBacklog {
		return false
	}
	o.messages = append(o.messages, message)
	if o.senders < maxSenders && start() {
		o.senders++
	}
	return true
}

// next takes the next message for a sender. The sender must end if it returns false, which it does if
// the outbox is empty or the link has ended.
func (o *postQueue) next(ended bool) (message []byte, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.messages) == 0 || ended {
		o.senders--
		return nil, false
	}
	message = o.messages[0]
	o.messages[0], o.messages = nil, o.messages[1:]
	return message, true
}
