package post

import (
	"bytes"
	"context"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// bufferSize is how many bytes a plain request may have. A longer one takes so long that net/http makes no difference.
const bufferSize = 8 << 10

// partWait is how long the rest of a request may take to arrive. Some clients send head and body in two writes. net/http knows
// how long to wait for all others.
const partWait = 50 * time.Millisecond

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// A conn is a connection from when the Server accepts it until it ends or another gets it.
type conn struct {
	s  *Server
	rw Conn

	pattern  *http.Request // each request is a copy
	last     *requestHead  // of the request before
	response plainResponse

	buffer *[bufferSize]byte
	unread []byte // of buffer: what the client has sent and no request holds

	mu      sync.Mutex
	ended   bool               // no further request may begin
	waiting bool               // for a request
	cancel  context.CancelFunc // of the request
	watch   clientWatch
}

// A clientWatch is the watch for the end of a client while its request is answered. Its fields are guarded by conn.mu.
type clientWatch struct {
	turn  uint64        // is odd while the handler runs, and counts the requests
	seen  uint64        // the turn when the server looked last
	over  chan struct{} // is closed when nothing is being read any more; nil if nobody watches
	next  [1]byte       // what was read of the next request,
	early bool          // if anything was
}

// serve answers requests until another must have the connection.
func (c *conn) serve() {
	c.buffer = buffers.Get().(*[bufferSize]byte)
	defer func() { buffers.Put(c.buffer) }()
	for first := true; ; first = false {
		h, size, body, is := c.read(first)
		switch is {
		case incomplete:
			c.response.clearDeadline()
			_ = c.rw.Close() // or, if it is idle, another gets it
			return
		case other:
			c.rw.Unread(bytes.Clone(c.unread))
			c.s.handOver(c)
			return
		}
		text, rest := c.unread[size:size+body], c.unread[size+body:]
		c.last = h
		if !c.answer(text) {
			_ = c.rw.Close()
			return
		}
		c.unread = c.buffer[:copy(c.buffer[:], rest)]
		if c.watch.early {
			c.unread, c.watch.early = append(c.unread, c.watch.next[0]), false
		}
		if string(c.unread) == "\r" { // of an empty line, which the watch has cut in two
			_ = c.rw.SetReadDeadline(time.Now().Add(partWait))
			_ = c.readMore()
			_ = c.rw.SetReadDeadline(time.Time{})
		}
		for range maxEmptyLines {
			c.skipEmptyLine()
		}
	}
}

// maxEmptyLines is how many empty lines may follow a request: some clients end a body with one (RFC 9112, section 2.2).
const maxEmptyLines = 2

// read waits for a request, and reads the whole of it. It returns incomplete if no request comes.
func (c *conn) read(first bool) (h *requestHead, size, body int, is requestForm) {
	for lines := 0; len(c.unread) == 0; lines++ {
		if !c.wait(first) {
			return nil, 0, 0, incomplete
		}
		if !first && lines < maxEmptyLines {
			c.skipEmptyLine()
		}
	}
	for timed := false; ; {
		if is != plain {
			h, size, body, is = readHead(c.unread, c.last)
		}
		if is == plain && size+body > bufferSize || is == incomplete && len(c.unread) == bufferSize {
			is = other
		}
		if is == other || is == plain && size+body <= len(c.unread) {
			if timed {
				_ = c.rw.SetReadDeadline(time.Time{})
			}
			return h, size, body, is
		}
		if !timed {
			timed = true
			_ = c.rw.SetReadDeadline(time.Now().Add(partWait))
		}
		if err := c.readMore(); err != nil { // net/http waits longer, or finds out what is wrong
			_ = c.rw.SetReadDeadline(time.Time{})
			return nil, 0, 0, other
		}
	}
}

// readMore reads what has come of a request that has begun.
func (c *conn) readMore() error {
	n, err := c.rw.Read(c.buffer[len(c.unread):])
	c.unread = c.buffer[:len(c.unread)+n]
	return err
}

// skipEmptyLine skips an empty line before a request.
func (c *conn) skipEmptyLine() {
	if rest, ok := bytes.CutPrefix(c.unread, []byte("\r\n")); ok {
		c.unread = c.buffer[:copy(c.buffer[:], rest)]
	}
}

// wait waits for the first bytes of a request.
func (c *conn) wait(first bool) bool {
	c.mu.Lock()
	ended := c.ended
	c.waiting = !ended
	c.mu.Unlock()
	if ended {
		return false
	}
	limit := time.Duration(0)
	switch {
	case first:
		limit = c.s.options.HeadTimeout
	case !c.rw.MayBeKept(): // else another gets it soon
		limit = c.s.options.IdleTimeout
	}
	if limit > 0 {
		c.response.clearDeadline()
		_ = c.rw.SetReadDeadline(time.Now().Add(limit))
	}
	n, _ := c.rw.ReadFirst(c.buffer[:])
	c.unread = c.buffer[:n]
	if limit > 0 && n > 0 {
		_ = c.rw.SetReadDeadline(time.Time{})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = false
	return n > 0 && !c.ended // if it has ended, the connection is closed
}

// answer lets the handler answer the request with the head c.last and this body. It reports whether another may follow.
func (c *conn) answer(body []byte) bool {
	ctx, cancel := context.WithCancel(c.pattern.Context())
	defer cancel()
	r := c.pattern.WithContext(ctx)
	r.URL, r.Host, r.Header, r.RequestURI = c.last.url, c.last.host, c.last.header, c.last.url.Path
	text := &requestBody{}
	text.text.Reset(body)
	r.Body, r.ContentLength = text, int64(len(body))
	c.response.begin()
	c.mu.Lock()
	c.watch.turn++
	c.cancel = cancel
	c.mu.Unlock()
	c.s.lookSoon()
	answered := c.callHandler(r)
	_ = text.Close()
	cancel()
	c.endWatch()
	return answered && c.response.finish() && !c.isEnded()
}

// isEnded reports whether no further request may begin.
func (c *conn) isEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// callHandler returns false if the handler has panicked: the client must not take what it got for a response.
func (c *conn) callHandler(r *http.Request) (answered bool) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // the value itself, as in net/http
			c.s.options.Log.Error("panic while serving", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	c.s.options.Handler.ServeHTTP(&c.response, r)
	return true
}

// watchClient begins to watch for the end of the client, if the handler has had the request since the last look. It reports whether
// the server has to look again.
func (c *conn) watchClient() (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &c.watch
	if w.turn%2 == 0 || w.over != nil {
		return false
	}
	if w.turn != w.seen {
		w.seen = w.turn
		return true
	}
	over, cancel := make(chan struct{}), c.cancel
	w.over = over
	go func() {
		defer close(over)
		n, err := c.rw.Read(w.next[:])
		c.mu.Lock()
		w.early = n > 0
		c.mu.Unlock()
		if err != nil { // the client is gone, or the request has ended, and then the context has too
			cancel()
		}
	}()
	return false
}

// endWatch ends the request for watchClient.
func (c *conn) endWatch() {
	c.mu.Lock()
	c.watch.turn++
	over := c.watch.over
	c.watch.over = nil
	c.mu.Unlock()
	if over != nil {
		_ = c.rw.SetReadDeadline(time.Unix(1, 0))
		<-over
		_ = c.rw.SetReadDeadline(time.Time{})
	}
}

// end lets no further request begin. force also cuts the one that is being answered.
func (c *conn) end(force bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.waiting || force {
		_ = c.rw.Close()
	}
	if force && c.cancel != nil {
		c.cancel()
	}
}

// A requestBody is the body of a plain request. Its memory is used again for the next one, so it cannot be read after Close.
type requestBody struct {
	mu     sync.Mutex
	text   bytes.Reader
	closed bool
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.text.Read(p)
}

// Close implements io.Closer.
func (b *requestBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}
