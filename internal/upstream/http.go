package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The limits of HTTP towards servers.
const (
	dialTimeout   = 10 * time.Second
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

// newClient returns a client for one server: no redirects, no cookies, no
// proxy, no compression, and HTTP/1.1 only, where a connection carries one
// request at a time and it is known whether any byte of that has left.
func newClient() *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := dialer.DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return &watchedConn{Conn: c}, nil
			},
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
			TLSHandshakeTimeout:    dialTimeout,
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxIdleConns:           maxIdleConns,
			MaxIdleConnsPerHost:    maxIdleConns,
			IdleConnTimeout:        idleConn,
			MaxResponseHeaderBytes: maxHeaders,
			DisableCompression:     true,
		},
	}
}

// A watchedConn notes when the first byte of a request leaves, and lets none
// of a request leave that has been withdrawn.
type watchedConn struct {
	net.Conn

	mu     sync.Mutex
	flight *flight
}

var errWithdrawn = errors.New("the request was withdrawn")

func (c *watchedConn) carry(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flight = f
}

// Write implements net.Conn.
func (c *watchedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	f := c.flight
	c.mu.Unlock()
	if f != nil && !f.leave() && !f.maybeSent() {
		return 0, errWithdrawn
	}
	return c.Conn.Write(b)
}

// web is the port to a server over Streamable HTTP: a message a request.
type web struct {
	link    *link
	client  *http.Client
	url     string
	host    string
	headers http.Header // the server's own, with its credentials

	ctx    context.Context // ends when nothing may go on
	cancel context.CancelFunc
	busy   group
	asides chan struct{} // bounds what is told at once

	// taken reads what a request was answered with. It returns a *fault where
	// that ends the request.
	taken func(ctx context.Context, f *flight, resp *http.Response) error

	listening chan struct{} // closed once the server has answered a GET, if it is asked

	mu      sync.Mutex
	version string // sent with each request once it is known
	session string
}

func openWeb(l *link, cfg *switchboard.Server, client *http.Client) (*web, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("its URL is none of http or https")
	}
	u.Fragment = ""
	w := &web{
		link: l, client: client, url: u.String(), headers: http.Header{},
		asides: make(chan struct{}, maxServerAsks), listening: make(chan struct{}),
	}
	w.taken = w.receive
	w.ctx, w.cancel = context.WithCancel(context.Background())
	for name, secret := range cfg.Headers {
		w.headers[http.CanonicalHeaderKey(name)] = []string{secret.Reveal()}
	}
	w.host = w.headers.Get("Host")
	for _, name := range neverSent {
		w.headers.Del(name)
	}
	l.port = w
	return w, nil
}

// speak sets the version that requests are sent with.
func (w *web) speak(version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version = version
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
func (w *web) post(ctx context.Context, f *flight) (*http.Response, error) {
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		connected = true
		c := info.Conn
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
		}
		c.(*watchedConn).carry(f)
	}})
	req, err := w.request(ctx, http.MethodPost, f.body)
	if err != nil {
		f.withdraw()
		return nil, faultf(kindProtocol, false, "a request to it cannot be made: %v", w.plain(err))
	}
	maps.Copy(req.Header, f.header)
	if version, _ := w.state(); wire.Modern(version) {
		req.Header.Set(wire.HeaderMethod, f.method)
	}
	resp, err := w.client.Do(req)
	if err == nil {
		return resp, nil
	}
	sent := !f.withdraw()
	if !connected && !sent {
		return nil, faultf(kindUnreachable, false, "no connection: %s", w.plain(err))
	}
	return nil, faultf(kindLost, sent, "the connection broke: %s", w.plain(err))
}

// plain is an error's text without the URL and without secrets.
func (w *web) plain(err error) string {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return w.link.mask.line([]byte(err.Error()), maxQuoted, true)
}

// start implements port.
func (w *web) start(f *flight) {
	ctx, cancel := context.WithCancel(w.ctx)
	f.stop = cancel
	if !w.busy.run(func() {
		defer cancel()
		resp, err := w.post(ctx, f)
		if err == nil {
			err = w.taken(ctx, f, resp)
			_ = resp.Body.Close()
		}
		if err == nil {
			return
		}
		f.finish(wire.Message{}, 0, err)
		switch asFault(err).kind {
		case kindGone:
			w.link.fail(err)
		case kindUnreachable:
			w.link.relist(switchboard.AllKinds) // which finds out whether the server has gone
		}
	}) {
		cancel()
		f.withdraw()
		f.finish(wire.Message{}, 0, faultf(kindLost, false, "the connection was just closed"))
	}
}

// abandon implements port. A modern server is told by the end of the stream; a
// legacy one takes that for a bad line.
func (w *web) abandon(f *flight, sent bool) {
	version, _ := w.state()
	if sent && !wire.Modern(version) && !f.opening() {
		w.tell(cancelled(f))
	}
	f.stop()
}

// tell implements port.
func (w *web) tell(message []byte) {
	select {
	case w.asides <- struct{}{}:
	default:
		w.link.drop("more requests than we answer at once")
		return
	}
	if !w.busy.run(func() {
		defer func() { <-w.asides }()
		ctx, cancel := context.WithTimeout(w.ctx, cancelPatience)
		defer cancel()
		if err := w.send(ctx, message); err != nil {
			w.link.log.Debug("a server took no notification", "error", err)
		}
	}) {
		<-w.asides
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
