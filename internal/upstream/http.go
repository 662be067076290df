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
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The limits of HTTP towards servers.
const (
	maxHeaders    = 64 << 10
	maxErrorBody  = 64 << 10
	maxSession    = 1 << 10
	maxIdleConns  = 256 // to one server
	byePatience   = 2 * time.Second
	drainPatience = time.Second // for the end of a stream that has said all

	// Servers on Node close a connection that was idle for five seconds. A
	// request that crosses with that has an unknown outcome, so that we let
	// go first.
	idleConn = 4 * time.Second
)

// neverSent are headers that a configuration cannot set. net/http repeats
// requests that carry one of the first two, and the others are the protocol's.
var neverSent = []string{
	"Idempotency-Key", "X-Idempotency-Key", "Host", "Connection", "Content-Length", "Transfer-Encoding", "Content-Type",
	"Content-Encoding", "Accept", "Accept-Encoding", "Cookie", wire.HeaderProtocolVersion, wire.HeaderSessionID,
	wire.HeaderLastEventID, wire.HeaderMethod, wire.HeaderName,
}

// newClient returns a client for what is no request of a call: streams of a
// server's own, notifications, the end of a session. It knows no redirects,
// cookies, proxies and compression, and HTTP/1.1 only.
func newClient() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            dial.Context,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
			TLSHandshakeTimeout:    dial.Timeout,
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxIdleConns:           maxIdleConns,
			MaxIdleConnsPerHost:    maxIdleConns,
			IdleConnTimeout:        idleConn,
			MaxResponseHeaderBytes: maxHeaders,
			DisableCompression:     true,
		},
	}
}

// A carrier has the connections to one server, which all links to it share.
type carrier struct {
	client *http.Client
	pool   *pool // nil where the server has no address of HTTP
}

func newCarrier(address string) *carrier {
	c := &carrier{client: newClient()}
	if u, err := parseAddress(address); err == nil {
		c.pool = newPool(u)
	}
	return c
}

// close closes what carries nothing; what does is not kept.
func (c *carrier) close() {
	c.client.CloseIdleConnections()
	if c.pool != nil {
		c.pool.close()
	}
}

func parseAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("its URL is none of http or https")
	}
	u.Fragment = ""
	return u, nil
}

// web is the port to a server over Streamable HTTP: a message a request.
type web struct {
	link    *link
	client  *http.Client
	pool    *pool
	url     string
	host    string
	headers http.Header // the server's own, with its credentials

	ctx    context.Context // ends when nothing may go on
	cancel context.CancelFunc
	busy   group

	// taken reads what a request was answered with. It returns a *fault where
	// that ends the request.
	taken func(f *flight, resp *http.Response) error

	listening chan struct{} // closed once the server has answered a GET, if it is asked

	mu      sync.Mutex
	version string // sent with each request once it is known
	session string
	always  []byte   // the head of each POST request, as far as these two do not change it
	head    []byte   // the whole of it
	untold  [][]byte // messages that wait to be told
	tellers int      // who tell them
}

func openWeb(l *link, cfg *switchboard.Server, via *carrier) (*web, error) {
	u, err := parseAddress(cfg.URL)
	if err != nil {
		return nil, err
	}
	w := &web{
		link: l, client: via.client, pool: via.pool, url: u.String(), headers: http.Header{},
		listening: make(chan struct{}),
	}
	w.taken = w.receive
	for name, secret := range cfg.Headers {
		if !isToken(name) || !isText(secret.Reveal()) {
			return nil, errors.New("one of its headers is none that HTTP can carry")
		}
		w.headers[http.CanonicalHeaderKey(name)] = []string{secret.Reveal()}
	}
	w.host = w.headers.Get("Host")
	for _, name := range neverSent {
		w.headers.Del(name)
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	if err := w.aim(); err != nil {
		return nil, err
	}
	l.port = w
	return w, nil
}

// aim has net/http write the head of a POST request to the URL, which each of
// ours begins with.
func (w *web) aim() error {
	req, err := w.request(w.ctx, http.MethodPost, []byte{})
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
	w.always = bytes.Replace(head, []byte("\r\nContent-Length: 0\r\n"), []byte("\r\n"), 1)
	w.compose()
	return nil
}

// speak sets the version that requests are sent with.
func (w *web) speak(version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version = version
	w.compose()
}

// join sets the session that requests are part of.
func (w *web) join(session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = session
	w.compose()
}

// compose makes the head of requests. The caller holds w.mu.
func (w *web) compose() {
	head := slices.Clip(w.always)
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

func (w *web) state() (version, session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version, w.session
}

// request returns a request to the server.
func (w *web) request(ctx context.Context, method string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = w.headers.Clone()
	req.Host = w.host
	req.Header.Set("Accept-Encoding", "identity")
	if body != nil {
		// Without GetBody net/http cannot send it twice.
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.ContentLength = int64(len(body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	version, session := w.state()
	if version != "" {
		req.Header.Set(wire.HeaderProtocolVersion, version)
	}
	if session != "" {
		req.Header.Set(wire.HeaderSessionID, session)
	}
	return req, nil
}

// post sends f's request. The error is a *fault.
func (w *web) post(f *flight) (*http.Response, error) {
	w.mu.Lock()
	head, modern := w.head, wire.Modern(w.version)
	w.mu.Unlock()
	for name, values := range f.header {
		if !isName([]byte(name)) || !isText(values[0]) {
			f.withdraw()
			return nil, ourFault(kindProtocol, false, "a request to it cannot be made: a header would not be valid")
		}
	}
	if modern && (!isText(f.method) || !isText(f.name)) {
		f.withdraw()
		return nil, ourFault(kindProtocol, false, "a request to it cannot be made: its method or name is no header")
	}
	c := w.pool.take()
	if c == nil {
		ctx, cancel := w.span(f)
		var err error
		c, err = w.pool.dial(ctx)
		cancel()
		if err != nil {
			f.withdraw()
			away := faultf(kindUnreachable, false, "no connection: %s", w.plain(err)).advised(err)
			away.gone = errors.Is(err, syscall.ECONNREFUSED)
			return nil, away
		}
	}
	resp, err := c.exchange(f, func(b []byte) []byte {
		b = append(b, head...)
		if modern {
			b = appendHeader(b, wire.HeaderMethod, f.method)
		}
		if f.name != "" {
			b = appendHeader(b, wire.HeaderName, f.name)
		}
		for name, values := range f.header {
			b = appendHeader(b, name, values[0])
		}
		return b
	})
	if err != nil {
		return nil, faultf(kindLost, !f.withdraw(), "the connection broke: %s", w.plain(err))
	}
	return resp, nil
}

// span returns a context for a part of f that is rare: it ends when f is halted
// or nothing may go on.
func (w *web) span(f *flight) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(w.ctx)
	if !f.under(cancel) {
		cancel()
	}
	return ctx, cancel
}

// plain is an error's text without the URL and without secrets.
func (w *web) plain(err error) string {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return w.link.mask.line([]byte(err.Error()), maxQuoted, true)
}

// start implements port.
func (w *web) start(f *flight) { go w.carry(f) }

// carry implements port: the goroutine of a call also sends it and reads what
// comes back.
func (w *web) carry(f *flight) {
	if !w.busy.enter() {
		f.withdraw()
		f.finish(wire.Message{}, 0, ourFault(kindLost, false, "the connection was just closed"))
		return
	}
	defer w.busy.leave()
	err := w.exchange(f)
	if err == nil {
		return
	}
	if end := w.link.failure(); end != nil && asFault(end).ours { // and this with it
		e := *asFault(err)
		e.ours, err = true, &e
	}
	switch asFault(err).kind {
	case kindGone:
		// The link ends before f does, so that the request is made again over
		// another one.
		w.link.forget(f)
		w.link.fail(err)
	case kindUnreachable:
		defer w.link.relist(switchboard.AllKinds) // which finds out whether the server has gone
	}
	f.finish(wire.Message{}, 0, err)
}

// exchange sends f's request and reads the answer, which finishes f unless there
// is an error, a *fault.
func (w *web) exchange(f *flight) error {
	resp, err := w.post(f)
	if err != nil {
		return err
	}
	err = w.taken(f, resp)
	if body, ok := resp.Body.(*body); ok && err == nil && !body.ended() && w.busy.run(func() { drain(f, body) }) {
		return nil
	}
	_ = resp.Body.Close()
	return err
}

// drain reads a stream that has said all to its end, so that the connection can
// be used again. Nobody waits for that.
func drain(f *flight, stream io.ReadCloser) {
	timer := time.AfterFunc(drainPatience, f.halt)
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, stream, maxErrorBody)
	_ = stream.Close()
}

// abandon implements port. A modern server is told by the end of the stream; a
// legacy one takes that for a bad line.
func (w *web) abandon(f *flight, sent bool) {
	version, _ := w.state()
	if sent && !wire.Modern(version) && !f.opening() {
		w.tell(cancelled(f))
	}
	f.halt()
}

// tell implements port.
func (w *web) tell(message []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.untold) >= maxBacklog {
		w.link.dropped.Add(1)
		return
	}
	w.untold = append(w.untold, message)
	if w.tellers < maxTellers && w.busy.run(w.tellAll) {
		w.tellers++
	}
}

// tellAll tells what waits to be told, as long as the link lasts.
func (w *web) tellAll() {
	for {
		ended := w.link.failure() != nil
		w.mu.Lock()
		if len(w.untold) == 0 || ended {
			w.tellers--
			w.mu.Unlock()
			return
		}
		message := w.untold[0]
		w.untold[0], w.untold = nil, w.untold[1:]
		w.mu.Unlock()
		ctx, cancel := context.WithTimeout(w.ctx, cancelPatience)
		if err := w.send(ctx, message); err != nil {
			w.link.log.Debug("a server took no notification", "error", err)
		}
		cancel()
	}
}

// send posts a message that has no answer, and waits until it was taken.
func (w *web) send(ctx context.Context, message []byte) error {
	req, err := w.request(ctx, http.MethodPost, message)
	if err != nil {
		return err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return faultf(kindLost, true, "%s", w.plain(err))
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody)
	if resp.StatusCode/100 != 2 {
		return httpFault(resp)
	}
	return nil
}

// shut implements port: what is under way may end, then the session does.
func (w *web) shut(hurry <-chan struct{}) {
	ended := w.busy.close()
	select {
	case <-ended:
	case <-hurry:
		w.link.halt()
	}
	if version, session := w.state(); session != "" && !wire.Modern(version) && asFault(w.link.failure()).kind != kindGone {
		w.bye(hurry)
	}
	w.cancel()
	<-ended
}

// bye ends the session at the server, which need not listen.
func (w *web) bye(hurry <-chan struct{}) {
	ctx, cancel := context.WithTimeout(w.ctx, byePatience)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		req, err := w.request(ctx, http.MethodDelete, nil)
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
		// Being in a hurry we give it an instant all the same.
		within(done, byePatience/10)
	}
	cancel()
	<-done
}

// okSession reports whether the server's session id is one that the protocol
// allows: visible ASCII, and no novel.
func okSession(id string) bool {
	return len(id) <= maxSession && strings.IndexFunc(id, func(r rune) bool { return r < '!' || r > '~' }) < 0
}
