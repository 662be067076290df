package oauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/summit-switchboard/switchboard/internal/dial"
)

// Bounds of a request.
const (
	answerTimeout = 10 * time.Second
	maxAnswer     = 1 << 20
	maxHeader     = 64 << 10
	maxRetryAfter = time.Hour
)

// An httpAnswer is what a URL answered. text is read to its end; it is at most maxAnswer bytes.
type httpAnswer struct {
	status int
	json   bool
	text   []byte
	header http.Header
}

// send sends a request to an address that checkAddress has accepted.
//
// Each request has a connection of its own. net/http repeats a request by itself only if it meets a connection that was in use before, and a token
// request must never be repeated; and with a new connection it is known whether anything was sent. Redirects are not followed: a
// credential stays with the URL that was checked. Nothing is decompressed, so the bound of the answer bounds its memory.
func (c *Client) send(ctx context.Context, req *http.Request) (*httpAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req = req.WithContext(ctx)
	req.GetBody = nil
	req.Header.Set("Accept", "application/json")

	open, tls := c.options.Public, c.options.PublicTLS
	if c.trusts(req.URL.Hostname()) {
		open, tls = c.options.Trusted, c.options.TrustedTLS
	}
	// net/http dials with a context that outlives the request, for the benefit of other requests. Here there are none.
	opener := func(_ context.Context, network, address string) (net.Conn, error) { return open(ctx, network, address) }
	t := &http.Transport{
		DialContext: opener, TLSClientConfig: tls.Clone(), TLSHandshakeTimeout: answerTimeout,
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
	}
	host := req.URL.Host
	resp, err := t.RoundTrip(req)
	if err != nil {
		return nil, sendError(host, err, connected.Load())
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fail(Lost, "the answer of %s broke off: %w", host, err)
	case len(text) > maxAnswer:
		return nil, fail(Lost, "%s answered with more than %d bytes", host, maxAnswer)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	plain := resp.Header.Get("Content-Encoding") == "" || strings.EqualFold(resp.Header.Get("Content-Encoding"), "identity")
	return &httpAnswer{
		status: resp.StatusCode, text: text, header: resp.Header,
		json: plain && (kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")),
	}, nil
}

// sendError explains an error of a request.
func sendError(host string, err error, connected bool) error {
	if inner, ok := errors.AsType[*dial.NotPublicError](err); ok {
		return fail(Misconfigured, "%w: metadata of a server may lead there only if the server's row names the issuer, or the server is at the same host", inner)
	}
	if refused, ok := errors.AsType[*dial.RefusedError](err); ok {
		return fail(Misconfigured, "%w; %s", refused, refused.Remedy)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("there was no answer within %s: %w", answerTimeout, context.DeadlineExceeded)
	}
	if !connected {
		return fail(NotSent, "%s cannot be reached: %w", host, err)
	}
	return fail(Lost, "the request was sent to %s, and its answer is lost: %w", host, err)
}

// get reads a JSON document.
func (c *Client) get(ctx context.Context, u *url.URL) (*httpAnswer, error) {
	return c.send(ctx, &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{}})
}

// post sends a body.
func (c *Client) post(ctx context.Context, u *url.URL, kind, body string, header http.Header) (*httpAnswer, error) {
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", kind)
	return c.send(ctx, &http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host, Header: header,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	})
}

// read decodes the answer. Members that appear twice are an error: what decides and what is used must be the same one.
func (a *httpAnswer) read(into any) error {
	if !a.json {
		return fmt.Errorf("it is not JSON (Content-Type %.100q)", a.header.Get("Content-Type"))
	}
	if err := json.Unmarshal(a.text, into); err != nil {
		return errors.New("it is JSON of another form than the specification's, or has a member twice")
	}
	return nil
}

// retryAfter returns how long the answer asks to wait; 0 if it does not say.
func (a *httpAnswer) retryAfter() time.Duration {
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(min(seconds, 1<<20))*time.Second, maxRetryAfter)
}
