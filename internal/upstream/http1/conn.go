// Package http1 sends POST requests over HTTP/1.1 connections that prove whether any byte of a request
// has left.
//
// The Transport of net/http does not say that, and it gives each connection two goroutines, so that
// switching between them costs as much as sending the call. Here a connection carries one request at a
// time. The caller's goroutine writes the request and reads the response. The package decides what a
// valid response is, and when a connection can be used again: it accepts no response that two readers
// could understand differently. What a status or a body means is left to package upstream.
package http1

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/route"
	"github.com/summit-switchboard/switchboard/internal/upstream/sent"
)

// Limits of connections and responses.
const (
	MaxHead = 64 << 10 // bytes of a head, together with those of interim responses
	MaxIdle = 256      // idle connections to one server

	// IdleTimeout is when an idle connection is closed. Servers on Node close it after five seconds. A
	// request that crosses with that has an unknown outcome, so we close it earlier.
	IdleTimeout = 4 * time.Second

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
	errMalformed = errors.New("its answer is not HTTP/1.1")
	errFraming   = errors.New("its answer does not say clearly where it ends (Content-Length, Transfer-Encoding)")
	errHeadSize  = errors.New("the head of its answer is larger than the " + strconv.Itoa(MaxHead) + " bytes that are allowed")
)

// ErrWithdrawn is the error of Exchange if the request was withdrawn or halted before it was sent.
var ErrWithdrawn = errors.New("the request was withdrawn")

// A Pool keeps idle connections to one server. It is safe for concurrent use.
type Pool struct {
	address string
	secure  bool // with TLS
	route   *route.ServerRoute

	mu     sync.Mutex
	idle   []*Conn // longest idle first
	timer  *time.Timer
	closed bool
}

// NewPool returns an empty pool for the server at u, to which the route leads.
func NewPool(u *url.URL, way *route.ServerRoute) *Pool {
	host, port := asciiHost(u), u.Port()
	p := &Pool{route: way, secure: u.Scheme == "https"}
	if p.secure {
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

// TakeIdle returns an idle connection that is open, or nil.
func (p *Pool) TakeIdle() *Conn {
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
		if time.Since(c.idleSince) < IdleTimeout && c.isQuiet() {
			return c
		}
		c.stop()
	}
}

// putIdle keeps c for the next request.
func (p *Pool) putIdle(c *Conn) {
	c.idleSince = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= MaxIdle {
		c.stop()
		return
	}
	p.idle = append(p.idle, c)
	if p.timer == nil {
		p.timer = time.AfterFunc(IdleTimeout, p.closeExpired)
	}
}

// closeExpired closes the connections that were idle for too long.
func (p *Pool) closeExpired() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	n := 0
	for ; n < len(p.idle); n++ {
		left := IdleTimeout - time.Since(p.idle[n].idleSince)
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

// Close closes the idle connections. Later ones are not kept.
func (p *Pool) Close() {
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

// Dial opens a connection.
func (p *Pool) Dial(ctx context.Context) (*Conn, error) {
	c, err := p.route.Dial(ctx, p.address, p.secure)
	if err != nil {
		return nil, err
	}
	return newConn(p, c.Raw, c.Conn), nil
}

// A Conn is a connection of a Pool. It carries one request at a time.
type Conn struct {
	pool      *Pool
	raw       net.Conn
	rw        net.Conn        // raw, or TLS over it, to a proxy or to the server
	sys       syscall.RawConn // of raw; nil if it is no socket
	stop      func()          // closes raw; any goroutine may call it
	idleSince time.Time       // when it became idle

	peeked bool // see isQuiet
	peek   func(fd uintptr) bool
	open   bool

	head headReader
	out  []byte

	// State of the current request.
	request *sent.SendState
	wrote   chan error // receives the result of writing a long body; nil means that none is being written
}

func newConn(p *Pool, raw, rw net.Conn) *Conn {
	c := &Conn{pool: p, raw: raw, rw: rw, head: headReader{in: bufio.NewReaderSize(rw, readBufferSize), headers: http.Header{}}}
	c.stop = func() { _ = raw.Close() }
	if s, ok := raw.(syscall.Conn); ok {
		c.sys, _ = s.SyscallConn()
	}
	c.peek = func(fd uintptr) bool {
		c.peeked, c.open = peek(fd)
		return true
	}
	return c
}

// isQuiet reports whether the idle connection seems open and the server has sent nothing on it. A
// server must not send anything between responses.
func (c *Conn) isQuiet() bool {
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
	_, err := c.head.in.Peek(1)
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() && c.raw.SetReadDeadline(time.Time{}) == nil
}

// Exchange sends the request and returns the response when its head is read. appendHead
// appends everything but the length and the body. The response has only the headers that package
// upstream uses. After an error, request says whether any byte may have left, and Exchange has
// returned the connection to the pool or closed it. Otherwise closing the response's body does so, and
// the headers must not be read after that.
func (c *Conn) Exchange(request *sent.SendState, appendHead func([]byte) []byte, body []byte) (*http.Response, error) {
	c.request = request
	if !request.SetStop(c.stop) {
		request.SetStop(nil)
		c.pool.putIdle(c) // it is unused
		return nil, ErrWithdrawn
	}
	if err := c.send(appendHead, body); err != nil {
		c.discard()
		return nil, err
	}
	h, err := c.head.read()
	if err != nil {
		c.discard()
		return nil, err
	}
	return c.newResponse(h), nil
}

// discard closes the connection.
func (c *Conn) discard() {
	c.stop()
	if c.wrote != nil {
		<-c.wrote //nolint:errcheck // nothing of it is being written any more
	}
	c.request.SetStop(nil)
	c.request = nil
}

// fullyWritten reports whether the whole request is written. It waits up to writeTimeout.
func (c *Conn) fullyWritten() bool {
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
func (c *Conn) send(appendHead func([]byte) []byte, body []byte) error {
	b := appendHead(c.out[:0])
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	if len(body) <= longBody {
		b = append(b, body...)
		if c.out = b; cap(b) > maxKeptBuffer {
			c.out = nil
		}
		return c.write(b)
	}
	c.out = b
	wrote := make(chan error, 1)
	c.wrote = wrote
	go func() {
		err := c.write(b)
		if err == nil {
			_, err = c.rw.Write(body)
		}
		if err != nil { // the server may have sent the reason
			_ = c.raw.SetReadDeadline(time.Now().Add(time.Second))
		}
		wrote <- err
	}()
	return nil
}

// write writes b, the beginning of the request.
func (c *Conn) write(b []byte) error {
	if !c.request.Claim() {
		return ErrWithdrawn
	}
	n, err := c.rw.Write(b)
	if n == 0 && err != nil && c.rw == c.raw {
		c.request.NothingLeft() // the kernel took no byte
	}
	return err
}
