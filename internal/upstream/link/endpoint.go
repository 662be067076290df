package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/http1"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// forbiddenHeaders are headers that a configuration must not set. net/http repeats requests that
// carry one of the first two. The others belong to the protocol.
var forbiddenHeaders = []string{
	"Idempotency-Key", "X-Idempotency-Key", "Host", "Connection", "Content-Length", "Transfer-Encoding", "Content-Type",
	"Content-Encoding", "Accept", "Accept-Encoding", "Cookie", wire.HeaderProtocolVersion, wire.HeaderSessionID,
	wire.HeaderLastEventID, wire.HeaderMethod, wire.HeaderName,
}

// An endpoint makes the requests to the URL of one server: with its credentials, and with the version
// and the session of one link.
type endpoint struct {
	url     string
	host    string
	headers http.Header // of the server's configuration, with its credentials

	mu        sync.Mutex
	version   string // sent with each request when it is known
	session   string
	fixedHead []byte // the part of a POST request's head that never changes
	head      []byte // the whole head, with version and session
}

// newEndpoint returns the endpoint of the configured server.
func newEndpoint(cfg *switchboard.Server) (*endpoint, error) {
	u, err := ParseAddress(cfg.URL)
	if err != nil {
		return nil, err
	}
	e := &endpoint{url: u.String(), headers: http.Header{}}
	for name, secret := range cfg.Headers {
		if !http1.IsToken(name) || !http1.IsText(secret.Reveal()) {
			return nil, errors.New("one of its headers is not valid in HTTP")
		}
		e.headers[http.CanonicalHeaderKey(name)] = []string{secret.Reveal()}
	}
	e.host = e.headers.Get("Host")
	for _, name := range forbiddenHeaders {
		e.headers.Del(name)
	}
	if err := e.buildHead(); err != nil {
		return nil, err
	}
	return e, nil
}

// setURL changes the URL. It must be called before the first request.
func (e *endpoint) setURL(u string) error {
	e.url = u
	return e.buildHead()
}

// buildHead lets net/http write the head of a POST request to the URL. All our requests begin with
// it.
func (e *endpoint) buildHead() error {
	req, err := e.newRequest(context.Background(), http.MethodPost, []byte{})
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
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fixedHead = bytes.Replace(head, []byte("\r\nContent-Length: 0\r\n"), []byte("\r\n"), 1)
	e.updateHead()
	return nil
}

// setVersion sets the protocol version that requests carry.
func (e *endpoint) setVersion(version string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.version = version
	e.updateHead()
}

// setSession sets the session id that requests carry.
func (e *endpoint) setSession(session string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.session = session
	e.updateHead()
}

// updateHead makes head from fixedHead, version and session. The caller holds e.mu.
func (e *endpoint) updateHead() {
	head := slices.Clip(e.fixedHead)
	if e.version != "" {
		head = appendHeader(head, wire.HeaderProtocolVersion, e.version)
	}
	if e.session != "" {
		head = appendHeader(head, wire.HeaderSessionID, e.session)
	}
	e.head = head
}

// appendHeader appends a header line to the head b.
func appendHeader(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

// state returns the version and the session that requests carry.
func (e *endpoint) state() (version, session string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.version, e.session
}

// postHead returns the head of a POST request, and whether it is of the modern era.
func (e *endpoint) postHead() (head []byte, modern bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.head, wire.Modern(e.version)
}

// newRequest returns a request to the server, for net/http.
func (e *endpoint) newRequest(ctx context.Context, method string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = e.headers.Clone()
	req.Host = e.host
	req.Header.Set("Accept-Encoding", "identity")
	if body != nil {
		// Without GetBody, net/http cannot send the request twice.
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.ContentLength = int64(len(body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	version, session := e.state()
	if version != "" {
		req.Header.Set(wire.HeaderProtocolVersion, version)
	}
	if session != "" {
		req.Header.Set(wire.HeaderSessionID, session)
	}
	return req, nil
}

// ParseAddress parses the URL of a server.
func ParseAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("its URL does not begin with http or https")
	}
	u.Fragment = ""
	return u, nil
}

// maxSessionID limits the bytes of a session id.
const maxSessionID = 1 << 10

// validSessionID reports whether the protocol allows the session id: visible ASCII, and at most
// maxSession bytes.
func validSessionID(id string) bool {
	return len(id) <= maxSessionID && strings.IndexFunc(id, func(r rune) bool { return r < '!' || r > '~' }) < 0
}
