package upstream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/dial"
)

// POST requests use connections of our own, for two reasons. The Transport of net/http gives each
// connection two goroutines, so that switching between goroutines costs as much as sending the
// call. And it does not say whether any byte of a request has left. Here a connection carries one
// request at a time. The caller's goroutine writes the request and reads the response.

const (
	readBufferSize = 4 << 10
	maxKeptBuffer  = 16 << 10 // a larger buffer of a request is not kept for the next

	// A longer body is written while the response is being read. A server may respond before it has
	// read the whole body. Without that, both sides would wait for each other.
	longBody     = 32 << 10
	writeTimeout = 50 * time.Millisecond // for the rest of the body, after the response

	maxInterim = 8 // responses with status 1xx
)

// Why a response is not usable.
var (
	errMalformed = errors.New("its answer is no HTTP/1.1")
	errFraming   = errors.New("its answer says in two ways where it ends")
	errHeadSize  = errors.New("the head of its answer is larger than the " + strconv.Itoa(maxHeaders) + " bytes that are allowed")
	errWithdrawn = errors.New("the request was withdrawn")
)

// A pool keeps idle connections to one server. It is safe for concurrent use.
type pool struct {
	address string
	secure  *tls.Config // nil for plain HTTP

	mu     sync.Mutex
	idle   []*conn // longest idle first
	timer  *time.Timer
	closed bool
}

func newPool(u *url.URL) *pool {
	host, port := asciiHost(u), u.Port()
	p := &pool{}
	if u.Scheme == "https" {
		p.secure = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, ServerName: host}
		port = cmp.Or(port, "443")
	}
	p.address = net.JoinHostPort(host, cmp.Or(port, "80"))
	return p
}

// asciiHost returns the host of u as DNS spells it. net/http writes that form into requests.
func asciiHost(u *url.URL) string {
	host := u.Hostname()
	if strings.IndexFunc(host, func(r rune) bool { return r > '~' }) < 0 {
		return host
	}
	var b bytes.Buffer
	if err := (&http.Request{URL: &url.URL{Host: host}}).Write(&b); err != nil {
		return host // DNS will not find it
	}
	req, err := http.ReadRequest(bufio.NewReader(&b))
	if err != nil {
		return host
	}
	return req.Host
}

// takeIdle returns an idle connection that is open, or nil.
func (p *pool) takeIdle() *conn {
	for {
		p.mu.Lock()
		last := len(p.idle) - 1
		if last < 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[last]
		p.idle[last] = nil
		p.idle = p.idle[:last]
		p.mu.Unlock()
		if time.Since(c.idleSince) < idleConnTimeout && c.isQuiet() {
			return c
		}
		c.stop()
	}
}

// putIdle keeps c for the next request.
func (p *pool) putIdle(c *conn) {
	c.idleSince = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxIdleConns {
		c.stop()
		return
	}
	p.idle = append(p.idle, c)
	if p.timer == nil {
		p.timer = time.AfterFunc(idleConnTimeout, p.closeExpired)
	}
}

// closeExpired closes the connections that were idle for too long.
func (p *pool) closeExpired() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	n := 0
	for ; n < len(p.idle); n++ {
		left := idleConnTimeout - time.Since(p.idle[n].idleSince)
		if left > 0 {
			p.timer = time.AfterFunc(left, p.closeExpired)
			break
		}
		p.idle[n].stop()
	}
	rest := copy(p.idle, p.idle[n:])
	clear(p.idle[rest:])
	p.idle = p.idle[:rest]
}

// close closes the idle connections. Later ones are not kept.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.stop()
	}
	p.idle = nil
	if p.timer != nil {
		p.timer.Stop()
	}
}

// dial opens a connection.
func (p *pool) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dial.Timeout)
	defer cancel()
	raw, err := dial.Context(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	if p.secure == nil {
		return newConn(p, raw, raw), nil
	}
	secure := tls.Client(raw, p.secure)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return newConn(p, raw, secure), nil
}

// A conn is a connection of a pool. It carries one request at a time.
type conn struct {
	pool      *pool
	raw       net.Conn
	rw        net.Conn        // raw, or TLS over it
	sys       syscall.RawConn // of raw; nil if it is no socket
	stop      func()          // closes raw; any goroutine may call it
	idleSince time.Time       // when it became idle

	peeked bool // see isQuiet
	peek   func(fd uintptr) bool
	open   bool

	in  *bufio.Reader
	out []byte

	// State of the current request.
	request     *pendingRequest
	wrote       chan error // receives the result of writing a long body; nil means that none is being written
	headers     http.Header
	contentType []string // the last Content-Type, which rarely changes
	reusable    bool     // the server accepts another request
}

func newConn(p *pool, raw, rw net.Conn) *conn {
	c := &conn{pool: p, raw: raw, rw: rw, in: bufio.NewReaderSize(rw, readBufferSize)}
	c.stop = func() { _ = raw.Close() }
	c.headers = http.Header{}
	if s, ok := raw.(syscall.Conn); ok {
		c.sys, _ = s.SyscallConn()
	}
	c.peek = func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		c.peeked = n > 0
		c.open = n > 0 || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
		return true
	}
	return c
}

// isQuiet reports whether the idle connection seems open and the server has sent nothing on it. A
// server must not send anything between responses.
func (c *conn) isQuiet() bool {
	if c.sys == nil {
		return true
	}
	if c.sys.Read(c.peek) != nil || !c.open {
		return false
	}
	if !c.peeked {
		return true
	}
	if c.rw == c.raw {
		return false
	}
	// TLS itself may have sent something, such as a session ticket.
	_ = c.raw.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.in.Peek(1)
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() && c.raw.SetReadDeadline(time.Time{}) == nil
}

// exchange sends the request f and returns the response when its head is read. head appends
// everything but the length and the body. The response has only the headers that we use. After an
// error, exchange has already returned or closed the connection. Otherwise closing the response's
// body does so, and the headers must not be read after that.
func (c *conn) exchange(f *pendingRequest, head func([]byte) []byte) (*http.Response, error) {
	c.request = f
	if !f.setStop(c.stop) {
		f.setStop(nil)
		c.pool.putIdle(c) // it is unused
		return nil, errWithdrawn
	}
	if err := c.send(f, head); err != nil {
		c.discard()
		return nil, err
	}
	resp, err := c.readHead()
	if err != nil {
		c.discard()
		return nil, err
	}
	return resp, nil
}

// discard closes the connection.
func (c *conn) discard() {
	c.stop()
	if c.wrote != nil {
		<-c.wrote //nolint:errcheck // nothing of it is being written any more
	}
	c.request.setStop(nil)
	c.request = nil
}

// fullyWritten reports whether the whole request is written. It waits up to writeTimeout.
func (c *conn) fullyWritten() bool {
	if c.wrote == nil {
		return true
	}
	timer := time.NewTimer(writeTimeout)
	defer timer.Stop()
	select {
	case err := <-c.wrote:
		c.wrote = nil
		return err == nil
	case <-timer.C:
		return false
	}
}

// send writes the request.
func (c *conn) send(f *pendingRequest, head func([]byte) []byte) error {
	b := head(c.out[:0])
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(f.body)), 10)
	b = append(b, "\r\n\r\n"...)
	if len(f.body) <= longBody {
		b = append(b, f.body...)
		if c.out = b; cap(b) > maxKeptBuffer {
			c.out = nil
		}
		return c.write(f, b)
	}
	c.out = b
	wrote := make(chan error, 1)
	c.wrote = wrote
	go func() {
		err := c.write(f, b)
		if err == nil {
			_, err = c.rw.Write(f.body)
		}
		if err != nil { // the server may have sent the reason
			_ = c.raw.SetReadDeadline(time.Now().Add(time.Second))
		}
		wrote <- err
	}()
	return nil
}

// write writes b, the beginning of the request.
func (c *conn) write(f *pendingRequest, b []byte) error {
	if !f.claimSend() {
		return errWithdrawn
	}
	n, err := c.rw.Write(b)
	if n == 0 && err != nil && c.rw == c.raw {
		f.sendState.Store(neverSent) // the kernel took no byte
	}
	return err
}
