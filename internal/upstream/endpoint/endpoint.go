// Package endpoint makes the HTTP requests to the URL of one server.
//
// It decides what each request carries: the headers of the server's configuration, with its credentials,
// the protocol version, the session, and the arguments that a tool wants in headers. Package link sends
// the requests and reads the responses.
package endpoint

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

// An Endpoint makes the requests to the URL of one server: with its credentials, and with the version
// and the session of one link.
type Endpoint struct {
	URL     string
	host    string
	headers http.Header // of the server's configuration, with its credentials

	mu        sync.Mutex
	version   string // sent with each request when it is known
	session   string
	fixedHead []byte // the part of a POST request's head that never changes
	head      []byte // the whole head, with version and session
}

// New returns the endpoint of the configured server.
func New(cfg *switchboard.Server) (*Endpoint, error) {
	u, err := ParseAddress(cfg.URL)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{URL: u.String(), headers: http.Header{}}
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

// SetURL changes the URL. It must be called before the first request.
func (e *Endpoint) SetURL(u string) error {
	e.URL = u
	return e.buildHead()
}

// buildHead lets net/http write the head of a POST request to the URL. All our requests begin with
// it.
func (e *Endpoint) buildHead() error {
	req, err := e.NewRequest(context.Background(), http.MethodPost, []byte{})
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

// SetVersion sets the protocol version that requests carry.
func (e *Endpoint) SetVersion(version string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.version = version
	e.updateHead()
}

// SetSession sets the session id that requests carry.
func (e *Endpoint) SetSession(session string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.session = session
	e.updateHead()
}

// updateHead makes head from fixedHead, version and session. The caller holds e.mu.
func (e *Endpoint) updateHead() {
	head := slices.Clip(e.fixedHead)
	if e.version != "" {
		head = AppendHeader(head, wire.HeaderProtocolVersion, e.version)
	}
	if e.session != "" {
		head = AppendHeader(head, wire.HeaderSessionID, e.session)
	}
	e.head = head
}

// AppendHeader appends a header line to the head b.
func AppendHeader(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

// State returns the version and the session that requests carry.
func (e *Endpoint) State() (version, session string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.version, e.session
}

// PostHead returns the head of a POST request, and whether it is of the modern era.
func (e *Endpoint) PostHead() (head []byte, modern bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.head, wire.Modern(e.version)
}

// NewRequest returns a request to the server, for net/http.
func (e *Endpoint) NewRequest(ctx context.Context, method string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.URL, nil)
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
	version, session := e.State()
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

// ValidSessionID reports whether the protocol allows the session id: visible ASCII, and at most
// maxSession bytes.
func ValidSessionID(id string) bool {
	return len(id) <= maxSessionID && strings.IndexFunc(id, func(r rune) bool { return r < '!' || r > '~' }) < 0
}
