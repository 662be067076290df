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

// POST requests go over connections of our own. net/http's Transport gives each
// connection two goroutines, so that a call costs as much to hand around as to
// send; and it does not say whether any byte of a request has left. Here a
// connection carries one request at a time, which the caller writes, and whose
// answer it reads.

const (
	readBuffer = 4 << 10
	keptBuffer = 16 << 10 // a larger one of a request is not kept for the next

	// A longer body is written while the answer is read already: a server may
	// answer before it has read all, and both would wait for each other.
	longBody      = 32 << 10
	writePatience = 50 * time.Millisecond // for the end of it, once there is the answer

	maxInterim = 8 // answers of status 1xx
)

// Why an answer is none.
var (
	errMalformed = errors.New("its answer is no HTTP/1.1")
	errFraming   = errors.New("its answer says in two ways where it ends")
	errHeadSize  = errors.New("the head of its answer is larger than the " + strconv.Itoa(maxHeaders) + " bytes that are allowed")
	errWithdrawn = errors.New("the request was withdrawn")
)

// A pool keeps connections to one server. It is safe for concurrent use.
type pool struct {
	address string
	secure  *tls.Config // nil for plain HTTP

	mu     sync.Mutex
	idle   []*conn // the one that was idle for longest is first
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

// asciiHost returns the host of u as DNS knows it. net/http writes that into
// requests.
func asciiHost(u *url.URL) string {
	host := u.Hostname()
	if strings.IndexFunc(host, func(r rune) bool { return r > '~' }) < 0 {
		return host
	}
	var b bytes.Buffer
	if err := (&http.Request{URL: &url.URL{Host: host}}).Write(&b); err != nil {
		return host // which will not be found
	}
	req, err := http.ReadRequest(bufio.NewReader(&b))
	if err != nil {
		return host
	}
	return req.Host
}

// take returns a connection that is idle and open, or nil where there is none.
func (p *pool) take() *conn {
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
		if time.Since(c.since) < idleConn && c.quiet() {
			return c
		}
		c.stop()
	}
}

// put keeps c for the next request.
func (p *pool) put(c *conn) {
	c.since = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxIdleConns {
		c.stop()
		return
	}
	p.idle = append(p.idle, c)
	if p.timer == nil {
		p.timer = time.AfterFunc(idleConn, p.expire)
	}
}

// expire closes what was idle for too long.
func (p *pool) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	n := 0
	for ; n < len(p.idle); n++ {
		left := idleConn - time.Since(p.idle[n].since)
		if left > 0 {
			p.timer = time.AfterFunc(left, p.expire)
			break
		}
		p.idle[n].stop()
	}
	rest := copy(p.idle, p.idle[n:])
	clear(p.idle[rest:])
	p.idle = p.idle[:rest]
}

// close closes what is idle, and will keep nothing.
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

// dial makes a connection.
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

// A conn is a connection of a pool's. It is used by one request at a time.
type conn struct {
	pool  *pool
	raw   net.Conn
	rw    net.Conn        // raw, or TLS over it
	sys   syscall.RawConn // of raw; nil where it is no socket
	stop  func()          // closes it, from any goroutine
	since time.Time       // that it is idle

	peeked bool // see quiet
	peek   func(fd uintptr) bool
	open   bool

	in  *bufio.Reader
	out []byte

	// Of the request under way.
	flight *flight
	wrote  chan error // takes one when a long body has been written; nil where none is
	header http.Header
	media  []string // the Content-Type that it had last, which rarely changes
	keep   bool     // the server will take another request
}

func newConn(p *pool, raw, rw net.Conn) *conn {
	c := &conn{pool: p, raw: raw, rw: rw, in: bufio.NewReaderSize(rw, readBuffer)}
	c.stop = func() { _ = raw.Close() }
	c.header = http.Header{}
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

// quiet reports whether the idle connection is open, as far as is known, and the
// server has said nothing on it: there is nothing that it could say.
func (c *conn) quiet() bool {
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
	// Of TLS it may be something of its own, such as a ticket.
	_ = c.raw.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.in.Peek(1)
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() && c.raw.SetReadDeadline(time.Time{}) == nil
}

// exchange sends f's request, of which head appends all but the length and the
// body, and returns the answer once its head is read. Of its headers only those
// are kept that we look at. The connection is given back with an error, or when
// the answer's body is closed; its headers are not read after that.
func (c *conn) exchange(f *flight, head func([]byte) []byte) (*http.Response, error) {
	c.flight = f
	if !f.under(c.stop) {
		f.under(nil)
		c.pool.put(c) // nothing has happened to it
		return nil, errWithdrawn
	}
	if err := c.send(f, head); err != nil {
		c.drop()
		return nil, err
	}
	resp, err := c.readHead()
	if err != nil {
		c.drop()
		return nil, err
	}
	return resp, nil
}

// drop gives the connection up.
func (c *conn) drop() {
	c.stop()
	if c.wrote != nil {
		<-c.wrote //nolint:errcheck // nothing of it is being written any more
	}
	c.flight.under(nil)
	c.flight = nil
}

// written reports whether all of the request is.
func (c *conn) written() bool {
	if c.wrote == nil {
		return true
	}
	timer := time.NewTimer(writePatience)
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
func (c *conn) send(f *flight, head func([]byte) []byte) error {
	b := head(c.out[:0])
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(f.body)), 10)
	b = append(b, "\r\n\r\n"...)
	if len(f.body) <= longBody {
		b = append(b, f.body...)
		if c.out = b; cap(b) > keptBuffer {
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
		if err != nil { // it may have said why
			_ = c.raw.SetReadDeadline(time.Now().Add(time.Second))
		}
		wrote <- err
	}()
	return nil
}

// write writes b, the first of the request.
func (c *conn) write(f *flight, b []byte) error {
	if !f.leave() {
		return errWithdrawn
	}
	n, err := c.rw.Write(b)
	if n == 0 && err != nil && c.rw == c.raw {
		f.sent.Store(withdrawn) // the system took nothing of it
	}
	return err
}
