package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/http1"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits of HTTP to servers.
const (
	maxErrorBody  = 64 << 10
	maxSession    = 1 << 10
	deleteTimeout = 2 * time.Second
	drainTimeout  = time.Second // for the rest of a stream after the answer
)

// forbiddenHeaders are headers that a configuration must not set. net/http repeats requests that
// carry one of the first two. The others belong to the protocol.
var forbiddenHeaders = []string{
	"Idempotency-Key", "X-Idempotency-Key", "Host", "Connection", "Content-Length", "Transfer-Encoding", "Content-Type",
	"Content-Encoding", "Accept", "Accept-Encoding", "Cookie", wire.HeaderProtocolVersion, wire.HeaderSessionID,
	wire.HeaderLastEventID, wire.HeaderMethod, wire.HeaderName,
}

// newClient returns a client for everything but the requests of calls: streams for notifications,
// POSTs without an answer, and DELETE. It speaks HTTP/1.1 and uses no redirects, cookies, proxies
// or compression.
func newClient() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            dial.Context,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
			TLSHandshakeTimeout:    dial.Timeout,
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxIdleConns:           http1.MaxIdle,
			MaxIdleConnsPerHost:    http1.MaxIdle,
			IdleConnTimeout:        http1.IdleTimeout,
			MaxResponseHeaderBytes: http1.MaxHead,
			DisableCompression:     true,
		},
	}
}

// httpClients holds the connections to one server. All links to the server share it.
type httpClients struct {
	client *http.Client
	pool   *http1.Pool // nil if the server has no HTTP address
}

func newHTTPClients(address string) *httpClients {
	c := &httpClients{client: newClient()}
	if u, err := parseAddress(address); err == nil {
		c.pool = http1.NewPool(u)
	}
	return c
}

// close closes the idle connections. A busy one is closed when its request has ended.
func (c *httpClients) close() {
	c.client.CloseIdleConnections()
	if c.pool != nil {
		c.pool.Close()
	}
}

func parseAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("its URL does not begin with http or https")
	}
	u.Fragment = ""
	return u, nil
}

// httpPort is the port to a server over Streamable HTTP: each message is a POST.
type httpPort struct {
	link    *link
	client  *http.Client
	pool    *http1.Pool
	url     string
	host    string
	headers http.Header // of the server's configuration, with its credentials

	ctx   context.Context // ends when all work must stop
	stop  context.CancelFunc
	tasks taskGroup

	// onResponse reads the response to f. It returns an *exchangeError if that ends the request.
	onResponse func(f *pendingRequest, resp *http.Response) error

	streamOpened chan struct{} // closed when the server has answered our GET, if we send one

	mu        sync.Mutex
	version   string // sent with each request when it is known
	session   string
	fixedHead []byte   // the part of a POST request's head that never changes
	head      []byte   // the whole head, with version and session
	outbox    [][]byte // messages without an answer that are not sent yet
	senders   int      // number of goroutines that run sendOutbox
}

func newHTTPPort(l *link, cfg *switchboard.Server, via *httpClients) (*httpPort, error) {
	u, err := parseAddress(cfg.URL)
	if err != nil {
		return nil, err
	}
	w := &httpPort{
		link: l, client: via.client, pool: via.pool, url: u.String(), headers: http.Header{},
		streamOpened: make(chan struct{}),
	}
	w.onResponse = w.readAnswer
	for name, secret := range cfg.Headers {
		if !http1.IsToken(name) || !http1.IsText(secret.Reveal()) {
			return nil, errors.New("one of its headers is not valid in HTTP")
		}
		w.headers[http.CanonicalHeaderKey(name)] = []string{secret.Reveal()}
	}
	w.host = w.headers.Get("Host")
	for _, name := range forbiddenHeaders {
		w.headers.Del(name)
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	if err := w.buildHead(); err != nil {
		return nil, err
	}
	l.port = w
	return w, nil
}

// buildHead lets net/http write the head of a POST request to the URL. All our requests begin with
// it.
func (w *httpPort) buildHead() error {
	req, err := w.newRequest(w.ctx, http.MethodPost, []byte{})
	if err != nil {
		return errors.New("no request can be made to its URL")
	}
	req.Body = http.NoBody
	if u := req.URL.User; u != nil && req.Header.Get("Authorization") == "" {
		password, _ := u.Password()
		req.SetBasicAuth(u.Username(), password)
	}
	var b bytes.Buffer
	if err := req.Write(&b); err != nil {
		return errors.New("no request can be made to its URL")
	}
	head := bytes.TrimSuffix(b.Bytes(), []byte("\r\n"))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fixedHead = bytes.Replace(head, []byte("\r\nContent-Length: 0\r\n"), []byte("\r\n"), 1)
	w.updateHead()
	return nil
}

// setVersion sets the protocol version that requests carry.
func (w *httpPort) setVersion(version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version = version
	w.updateHead()
}

// setSession sets the session id that requests carry.
func (w *httpPort) setSession(session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = session
	w.updateHead()
}

// updateHead makes head from fixedHead, version and session. The caller holds w.mu.
func (w *httpPort) updateHead() {
	head := slices.Clip(w.fixedHead)
	if w.version != "" {
		head = appendHeader(head, wire.HeaderProtocolVersion, w.version)
	}
	if w.session != "" {
		head = appendHeader(head, wire.HeaderSessionID, w.session)
	}
	w.head = head
}

func appendHeader(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

func (w *httpPort) protocolState() (version, session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version, w.session
}

// newRequest returns a request to the server, for net/http.
func (w *httpPort) newRequest(ctx context.Context, method string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = w.headers.Clone()
	req.Host = w.host
	req.Header.Set("Accept-Encoding", "identity")
	if body != nil {
		// Without GetBody, net/http cannot send the request twice.
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.ContentLength = int64(len(body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	version, session := w.protocolState()
	if version != "" {
		req.Header.Set(wire.HeaderProtocolVersion, version)
	}
	if session != "" {
		req.Header.Set(wire.HeaderSessionID, session)
	}
	return req, nil
}

// sendRequest sends the request f and reads the head of the response. The error is an
// *exchangeError.
func (w *httpPort) sendRequest(f *pendingRequest) (*http.Response, error) {
	w.mu.Lock()
	head, modern := w.head, wire.Modern(w.version)
	w.mu.Unlock()
	for name, values := range f.paramHeaders {
		if !http1.IsName([]byte(name)) || !http1.IsText(values[0]) {
			f.sending.Withdraw()
			return nil, ownError(kindProtocol, false, "a request to it cannot be made: a header would not be valid")
		}
	}
	if modern && (!http1.IsText(f.method) || !http1.IsText(f.targetHeader)) {
		f.sending.Withdraw()
		return nil, ownError(kindProtocol, false, "a request to it cannot be made: its method or name is not valid in a header")
	}
	c := w.pool.TakeIdle()
	if c == nil {
		ctx, cancel := w.requestContext(f)
		var err error
		c, err = w.pool.Dial(ctx)
		cancel()
		if err != nil {
			f.sending.Withdraw()
			away := exchangeErrorf(kindUnreachable, false, "no connection: %s", w.errorText(err)).withRemedy(err)
			away.gone = errors.Is(err, syscall.ECONNREFUSED)
			return nil, away
		}
	}
	resp, err := c.Exchange(&f.sending, func(b []byte) []byte {
		b = append(b, head...)
		if modern {
			b = appendHeader(b, wire.HeaderMethod, f.method)
		}
		if f.targetHeader != "" {
			b = appendHeader(b, wire.HeaderName, f.targetHeader)
		}
		for name, values := range f.paramHeaders {
			b = appendHeader(b, name, values[0])
		}
		return b
	}, f.body)
	if err != nil {
		return nil, exchangeErrorf(kindLost, !f.sending.Withdraw(), "the connection broke: %s", w.errorText(err))
	}
	return resp, nil
}

// requestContext returns a context for a rare part of the work for f, such as dialling. It ends
// when f is halted or all work must stop.
func (w *httpPort) requestContext(f *pendingRequest) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(w.ctx)
	if !f.sending.SetStop(cancel) {
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

// start implements port.
func (w *httpPort) start(f *pendingRequest) { go w.startBlocking(f) }

// startBlocking implements port. It sends the request and reads the response on the goroutine of
// the call.
func (w *httpPort) startBlocking(f *pendingRequest) {
	if !w.tasks.enter() {
		f.sending.Withdraw()
		f.finish(wire.Message{}, 0, ownError(kindLost, false, "the connection was just closed"))
		return
	}
	defer w.tasks.leave()
	err := w.exchange(f)
	if err == nil {
		return
	}
	if end := w.link.failure(); end != nil && asExchangeError(end).ours { // then so is this error
		e := *asExchangeError(err)
		e.ours, err = true, &e
	}
	switch asExchangeError(err).kind {
	case kindGone:
		// End the link before f, so that the request is repeated over a new link.
		w.link.unregister(f)
		w.link.fail(err)
	case kindUnreachable:
		defer w.link.onListChanged(switchboard.AllKinds) // the listing finds out whether the server is down
	}
	f.finish(wire.Message{}, 0, err)
}

// exchange sends the request f and reads the response, which finishes f. An error is an
// *exchangeError, and f is then not finished.
func (w *httpPort) exchange(f *pendingRequest) error {
	resp, err := w.sendRequest(f)
	if err != nil {
		return err
	}
	err = w.onResponse(f, resp)
	if body, ok := resp.Body.(*http1.Body); ok && err == nil && !body.AtEnd() && w.tasks.run(func() { drainStream(f, body) }) {
		return nil
	}
	_ = resp.Body.Close()
	return err
}

// drainStream reads the rest of a stream after the answer, so that the connection can be used
// again. No request waits for that.
func drainStream(f *pendingRequest, stream io.ReadCloser) {
	timer := time.AfterFunc(drainTimeout, f.sending.Halt)
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, stream, maxErrorBody)
	_ = stream.Close()
}

// cancel implements port. A modern server sees the end of the stream. A legacy server takes that
// for a bad connection, so it gets a notification.
func (w *httpPort) cancel(f *pendingRequest, sent bool) {
	version, _ := w.protocolState()
	if sent && !wire.Modern(version) && !f.isHandshake() {
		w.post(cancelNotification(f))
	}
	f.sending.Halt()
}

// post implements port.
func (w *httpPort) post(message []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.outbox) >= maxBacklog {
		w.link.dropped.Add(1)
		return
	}
	w.outbox = append(w.outbox, message)
	if w.senders < maxSenders && w.tasks.run(w.sendOutbox) {
		w.senders++
	}
}

// sendOutbox sends the messages in the outbox, as long as the link is open.
func (w *httpPort) sendOutbox() {
	for {
		ended := w.link.failure() != nil
		w.mu.Lock()
		if len(w.outbox) == 0 || ended {
			w.senders--
			w.mu.Unlock()
			return
		}
		message := w.outbox[0]
		w.outbox[0], w.outbox = nil, w.outbox[1:]
		w.mu.Unlock()
		ctx, cancel := context.WithTimeout(w.ctx, cancelTimeout)
		if err := w.postAndWait(ctx, message); err != nil {
			w.link.log.Debug("a notification was not sent to a server", "error", err)
		}
		cancel()
	}
}

// postAndWait sends a message without an answer, and waits until the server has accepted it.
func (w *httpPort) postAndWait(ctx context.Context, message []byte) error {
	req, err := w.newRequest(ctx, http.MethodPost, message)
	if err != nil {
		return err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return exchangeErrorf(kindLost, true, "%s", w.errorText(err))
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody)
	if resp.StatusCode/100 != 2 {
		return statusError(resp)
	}
	return nil
}

// shutDown implements port. Pending requests may end, then it ends the session.
func (w *httpPort) shutDown(hurry <-chan struct{}) {
	ended := w.tasks.close()
	select {
	case <-ended:
	case <-hurry:
		w.link.haltPending()
	}
	if version, session := w.protocolState(); session != "" && !wire.Modern(version) && asExchangeError(w.link.failure()).kind != kindGone {
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
		req, err := w.newRequest(ctx, http.MethodDelete, nil)
		if err != nil {
			return
		}
		if resp, err := w.client.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	select {
	case <-done:
	case <-hurry:
		// Even in a hurry, the request gets a moment.
		waitFor(done, deleteTimeout/10)
	}
	cancel()
	<-done
}

// validSessionID reports whether the protocol allows the session id: visible ASCII, and at most
// maxSession bytes.
func validSessionID(id string) bool {
	return len(id) <= maxSession && strings.IndexFunc(id, func(r rune) bool { return r < '!' || r > '~' }) < 0
}
