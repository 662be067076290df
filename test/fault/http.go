package fault

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/test/scratch"
)

// An HTTP is a proxy in front of a server over HTTP. It opens one connection to the server for each of a client, and copies requests and answers byte
// for byte; only the chunks of a stream of the older HTTP with SSE are its own. A request with a fault uses a separate connection to the server.
type HTTP struct {
	Cue
	URL string // the address for clients

	transport Transport
	server    string // its address
	address   string // ours
	restart   func()
	serving   sync.WaitGroup

	state    sync.Mutex
	listener net.Listener // nil while connections are refused
	conns    map[*connection]struct{}
	streams  map[string]*stream // of HTTP with SSE, by the path to which clients post
	closed   bool
}

// patience limits every wait for this machine.
const patience = 10 * time.Second

// NewHTTP starts a proxy in front of the server at the URL, with the transport t. restart makes the server forget its sessions; nil means that it has
// none.
func NewHTTP(t Transport, server string, restart func()) (*HTTP, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	if restart == nil {
		restart = func() {}
	}
	p := &HTTP{transport: t, server: u.Host, restart: restart, conns: map[*connection]struct{}{}, streams: map[string]*stream{}}
	if p.listener, err = scratch.Listen(); err != nil {
		return nil, err
	}
	p.address = p.listener.Addr().String()
	u.Host = p.address
	p.URL = u.String()
	p.change = p.refuse
	p.accept(p.listener)
	return p, nil
}

// Close ends all connections, and waits until all goroutines have ended.
func (p *HTTP) Close() {
	p.state.Lock()
	p.closed = true
	if p.listener != nil {
		_ = p.listener.Close()
	}
	for c := range p.conns {
		c.close()
	}
	p.state.Unlock()
	p.Disarm()
	p.serving.Wait()
}

func (p *HTTP) accept(l net.Listener) {
	p.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c := &connection{proxy: p, client: conn.(*net.TCPConn), ended: make(chan struct{})}
			c.in = bufio.NewReader(io.TeeReader(conn, &c.raw))
			p.state.Lock()
			if p.closed || p.listener != l {
				p.state.Unlock()
				c.reset()
				return
			}
			p.conns[c] = struct{}{}
			p.serving.Go(c.serve)
			p.state.Unlock()
		}
	})
}

// refuse stops listening, or listens again at the same address. Open streams stay open.
func (p *HTTP) refuse(yes bool) {
	p.state.Lock()
	defer p.state.Unlock()
	if p.closed || yes == (p.listener == nil) {
		return
	}
	if yes {
		_ = p.listener.Close()
		p.listener = nil
		for c := range p.conns {
			if !c.streams {
				c.close()
			}
		}
		return
	}
	for end := time.Now().Add(patience); ; {
		l, err := net.Listen("tcp", p.address)
		if err == nil {
			p.listener = l
			p.accept(l)
			return
		}
		if time.Now().After(end) { // another process has taken the port
			panic(fmt.Sprintf("fault: %v", err))
		}
	}
}

// exit simulates the end of the server's process and its restart.
func (p *HTTP) exit() {
	p.restart()
	p.state.Lock()
	defer p.state.Unlock()
	clear(p.streams)
	for c := range p.conns {
		c.reset()
	}
}

// A connection is a client's connection, with its connection to the server.
type connection struct {
	proxy  *HTTP
	client *net.TCPConn
	raw    bytes.Buffer  // everything read from the client since the last reset
	in     *bufio.Reader // of the client
	ended  chan struct{} // closed when the connection is
	once   sync.Once

	server net.Conn // nil until the first request is forwarded

	// Guarded by proxy.state.
	streams bool       // it carries a stream
	servers []net.Conn // all that end with the client's connection
}

// close ends the connection. The caller holds proxy.state.
func (c *connection) close() {
	c.once.Do(func() {
		close(c.ended)
		_ = c.client.Close()
		for _, server := range c.servers {
			_ = server.Close()
		}
	})
}

// reset ends the connection with a TCP reset. The caller holds proxy.state.
func (c *connection) reset() {
	_ = c.client.SetLinger(0)
	c.close()
}

func (c *connection) serve() {
	defer func() {
		c.proxy.state.Lock()
		defer c.proxy.state.Unlock()
		c.close()
		delete(c.proxy.conns, c)
	}()
	for {
		c.raw.Reset()
		req, err := http.ReadRequest(c.in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil || c.in.Buffered() > 0 { // MCP clients do not pipeline requests
			return
		}
		m := read(body)
		kind, calm := c.proxy.next(&m)
		if kind == None {
			err = c.pass(req, m.Method == "subscriptions/listen")
		} else {
			err = c.meet(kind, calm, req, &m)
		}
		if err != nil {
			return
		}
	}
}

// dial connects to the server; the end of c also ends this connection. streams means that c will carry a stream.
func (c *connection) dial(streams bool) (net.Conn, error) {
	server, err := net.DialTimeout("tcp", c.proxy.server, patience)
	if err != nil {
		return nil, err
	}
	c.proxy.state.Lock()
	defer c.proxy.state.Unlock()
	c.streams = streams
	c.servers = append(c.servers, server)
	select {
	case <-c.ended:
		_ = server.Close()
	default:
	}
	return server, nil
}

// pass forwards the request unchanged. Another goroutine copies the answer.
func (c *connection) pass(req *http.Request, streams bool) error {
	if c.proxy.transport == SSE && req.Method == http.MethodGet {
		return c.stream()
	}
	if c.server == nil {
		server, err := c.dial(false)
		if err != nil {
			return err
		}
		c.server = server
		c.proxy.serving.Go(func() {
			_, _ = io.Copy(c.client, server)
			c.proxy.state.Lock()
			defer c.proxy.state.Unlock()
			c.close()
		})
	}
	c.proxy.state.Lock()
	c.streams = streams || req.Method == http.MethodGet
	c.proxy.state.Unlock()
	_, err := c.server.Write(c.raw.Bytes())
	return err
}

var errEnded = errors.New("the connection ends here")

// meet applies the fault to the request. An error ends the connection.
func (c *connection) meet(kind Kind, calm <-chan struct{}, req *http.Request, m *message) error {
	if !row(kind).Executes {
		return c.fail(kind)
	}
	a, err := c.execute(req, m)
	if err != nil {
		return err
	}
	if a == nil { // the server's own refusal passes
		return c.pass(req, false)
	}
	switch kind {
	case ResetAfter, ExitAfter, Status500, Status502, Status503:
		return c.fail(kind)
	case HangBefore:
		<-c.gone()
		return errEnded
	}
	if a.stream != nil {
		return c.post(kind, calm, a)
	}
	return c.respond(kind, calm, a)
}

// fail applies a fault that needs no answer of the server.
func (c *connection) fail(kind Kind) error {
	switch kind {
	case ResetBefore, ResetAfter:
		c.proxy.state.Lock()
		defer c.proxy.state.Unlock()
		c.reset()
		return errEnded
	case ExitBefore, ExitAfter:
		c.proxy.exit()
		return errEnded
	}
	_, err := c.client.Write(kind.response())
	return err
}

// gone returns a channel that is closed when the client has disconnected, or when the proxy ends.
func (c *connection) gone() <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = c.in.ReadByte()
	}()
	return gone
}

// An answered is the server's answer to a request.
type answered struct {
	text   []byte  // the message
	events bool    // it came in a stream of its own
	head   []byte  // over SSE, the whole response to the post
	stream *stream // and the stream of the message
}

// execute sends the request to the server, and holds back the answer. It returns nil if the server does not execute the request because it has
// forgotten the session.
func (c *connection) execute(req *http.Request, m *message) (*answered, error) {
	a := &answered{}
	var caught <-chan []byte
	if c.proxy.transport == SSE {
		c.proxy.state.Lock()
		a.stream = c.proxy.streams[req.RequestURI]
		c.proxy.state.Unlock()
		if a.stream == nil {
			return nil, nil
		}
		caught = a.stream.catch(string(m.ID))
	}
	server, err := net.DialTimeout("tcp", c.proxy.server, patience)
	if err != nil {
		return nil, err
	}
	defer server.Close() //nolint:errcheck // all was read
	if err := server.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := server.Write(c.raw.Bytes()); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(server), req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, nil
	}
	if caught != nil {
		a.head = fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", resp.Status, len(body), body)
		select {
		case a.text = <-caught:
			return a, nil
		case <-a.stream.conn.ended:
		case <-time.After(patience):
		}
		return nil, errors.New("no answer came on the stream")
	}
	a.events = strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	a.text = body
	if a.events {
		for block := range strings.SplitSeq(string(body), "\n\n") {
			if m := read(data(block)); m.answers() {
				a.text = data(block)
			}
		}
	}
	return a, nil
}

// respond answers a request over Streamable HTTP.
func (c *connection) respond(kind Kind, calm <-chan struct{}, a *answered) error {
	const events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	head, body := []byte(events), []byte{}
	if a.events || kind == Garbage || kind == Notifications {
		for _, message := range kind.spoil(a.text) {
			body = append(body, chunk(event(message))...)
		}
		body = append(body, "0\r\n\r\n"...)
	} else {
		said := kind.spoil(a.text)
		head = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(said[0]))
		body = said[0]
		for _, again := range said[1:] {
			body = append(append(bytes.Clone(body), head...), again...)
		}
	}
	if _, err := c.client.Write(head); err != nil {
		return err
	}
	switch kind {
	case HangAfter:
		<-c.gone()
		return errEnded
	case Drip:
		if !a.events {
			return drip(c.client, body, calm, c.ended)
		}
		if err := drip(chunked{c.client}, event(a.text), calm, c.ended); err != nil {
			return err
		}
		body = []byte("0\r\n\r\n")
	case Notifications:
		return endless(calm, func(message []byte) error {
			_, err := c.client.Write(chunk(event(message)))
			return err
		})
	}
	_, err := c.client.Write(body)
	return err
}

// post answers a request over HTTP with SSE.
func (c *connection) post(kind Kind, calm <-chan struct{}, a *answered) error {
	if _, err := c.client.Write(a.head); err != nil || kind == HangAfter {
		return err
	}
	c.proxy.serving.Go(func() {
		switch kind {
		case Drip:
			a.stream.drip(event(a.text), calm)
		case Notifications:
			_ = endless(calm, func(message []byte) error { return a.stream.say(event(message)) }) // until the client has disconnected
		default:
			for _, message := range kind.spoil(a.text) {
				_ = a.stream.say(event(message)) // the client may have disconnected
			}
		}
	})
	return nil
}

// A stream carries all messages of a server to a client over HTTP with SSE.
type stream struct {
	conn *connection

	writing sync.Mutex

	mu     sync.Mutex
	caught map[string]chan []byte // by the id of the request
}

// catch holds back the answer to the request, and returns the channel that will have it.
func (s *stream) catch(id string) <-chan []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan []byte, 1)
	s.caught[id] = c
	return c
}

// keeps reports whether the message is held back from the client.
func (s *stream) keeps(text []byte) bool {
	m := read(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.caught[string(m.ID)]
	if c == nil || !m.answers() {
		return false
	}
	delete(s.caught, string(m.ID))
	c <- text
	return true
}

func (s *stream) say(event []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := s.conn.client.Write(chunk(event))
	return err
}

// drip sends the event byte by byte; other messages wait.
func (s *stream) drip(event []byte, calm <-chan struct{}) {
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = drip(chunked{s.conn.client}, event, calm, s.conn.ended) // the client may have disconnected
}

// stream forwards a stream of HTTP with SSE, event by event.
func (c *connection) stream() error {
	server, err := c.dial(true)
	if err != nil {
		return err
	}
	if _, err := server.Write(c.raw.Bytes()); err != nil {
		return err
	}
	c.proxy.serving.Go(func() {
		<-c.gone()
		_ = server.Close()
	})
	in := bufio.NewReader(server)
	var head strings.Builder
	for !strings.HasSuffix(head.String(), "\r\n\r\n") {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		head.WriteString(line)
	}
	if !strings.Contains(head.String(), "\r\nTransfer-Encoding: chunked\r\n") {
		return errors.New("the server opens no stream")
	}
	if _, err := io.WriteString(c.client, head.String()); err != nil {
		return err
	}
	s := &stream{conn: c, caught: map[string]chan []byte{}}
	events := bufio.NewReader(httputil.NewChunkedReader(in))
	for block := ""; ; {
		line, err := events.ReadString('\n')
		if err != nil {
			return err
		}
		if block += line; line != "\n" && line != "\r\n" {
			continue
		}
		text := data(block)
		if strings.HasPrefix(block, "event: endpoint") {
			c.proxy.state.Lock()
			c.proxy.streams[string(text)] = s
			c.proxy.state.Unlock()
		}
		if !s.keeps(text) {
			if err := s.say([]byte(block)); err != nil {
				return err
			}
		}
		block = ""
	}
}

// data returns the data of an event.
func data(block string) []byte {
	for line := range strings.Lines(block) {
		if text, ok := strings.CutPrefix(line, "data:"); ok {
			return []byte(strings.TrimSpace(text))
		}
	}
	return nil
}

// event returns a message as an event.
func event(message []byte) []byte { return fmt.Appendf(nil, "event: message\ndata: %s\n\n", message) }

// chunk returns b as a chunk of a body.
func chunk(b []byte) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(b), b) }

// chunked writes chunks.
type chunked struct{ w io.Writer }

// Write implements io.Writer.
func (c chunked) Write(b []byte) (int, error) {
	if _, err := c.w.Write(chunk(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// drip writes b byte by byte, and the rest at once when calm is closed.
func drip(w io.Writer, b []byte, calm, ended <-chan struct{}) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for len(b) > 0 {
		n := 1
		select {
		case <-tick.C:
		case <-calm:
			n = len(b)
		case <-ended:
			return errEnded
		}
		if _, err := w.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
