package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// A relay is the least that a gateway for MCP does: net/http in front, the method and the tool's name read from each message, and connections of its
// own to the server, over which it speaks HTTP/1.1 itself. It chooses nothing and checks nothing else. It trusts
// the server to send one answer to each request, and to keep idle connections open. It is the floor: no gateway that has net/http in front costs less.
type relay struct {
	host  string      // of the server, with its port
	sync  *syncedFile // where not nil, it gets entries before each call is forwarded
	calls sync.Map    // *atomic.Int64 by the method and the name of the tool

	mu   sync.Mutex
	idle []*link // the one that was used last is at the end, and is used first
}

// A link is a connection to the server that carries one request at a time.
type link struct {
	net.Conn
	in  *bufio.Reader
	out []byte // the request that is being sent
}

const (
	linkBuffer  = 4 << 10 // of a link's reader
	linkTimeout = time.Minute
)

// runRelay runs a relay. With -sync it makes a durable append to a file before each call.
func runRelay(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("relay", flag.ContinueOnError)
	file := f.String("sync", "", "before each call, append two entries to this `FILE`, and have them on the disk")
	if err := f.Parse(args); err != nil {
		return err
	}
	to, err := url.Parse(f.Arg(0))
	if err != nil {
		return err
	}
	r := &relay{host: to.Host}
	if *file != "" {
		if r.sync, err = openSynced(*file); err != nil {
			return err
		}
	}
	return listen(ctx, "127.0.0.1:0", r)
}

// ServeHTTP forwards a request, and its answer.
func (r *relay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := readWhole(w, q)
	if err != nil {
		refuseRequest(w, err)
		return
	}
	if q.Method == http.MethodPost {
		method, name, err := readMessage(body)
		if err != nil {
			http.Error(w, "no message: "+err.Error(), http.StatusBadRequest)
			return
		}
		r.count(method, name)
		if r.sync != nil && method == "tools/call" {
			if err := r.sync.append(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
	}
	l, err := r.take(q.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if l.forward(w, q, r.host, body) {
		r.give(l)
		return
	}
	_ = l.Close()
}

// count notes the method, and the name of the tool that is called.
func (r *relay) count(method, name string) {
	key := [2]string{method, name}
	n, ok := r.calls.Load(key)
	if !ok {
		n, _ = r.calls.LoadOrStore(key, &atomic.Int64{})
	}
	n.(*atomic.Int64).Add(1)
}

// take returns an idle link, or a new one.
func (r *relay) take(ctx context.Context) (*link, error) {
	r.mu.Lock()
	if n := len(r.idle); n > 0 {
		l := r.idle[n-1]
		r.idle = r.idle[:n-1]
		r.mu.Unlock()
		return l, nil
	}
	r.mu.Unlock()
	conn, err := (&net.Dialer{Timeout: linkTimeout}).DialContext(ctx, "tcp", r.host)
	if err != nil {
		return nil, err
	}
	return &link{Conn: conn, in: bufio.NewReaderSize(conn, linkBuffer)}, nil
}

func (r *relay) give(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, l)
}

// decoders keeps decoders of messages.
var decoders = sync.Pool{New: func() any { return &decoder{} }}

type decoder struct {
	text bytes.Reader
	json jsontext.Decoder
}

// readMessage reads a whole JSON-RPC message, and returns its method and, of a call, the name of the tool.
func readMessage(body []byte) (method, name string, err error) {
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	d.text.Reset(body)
	d.json.Reset(&d.text)
	defer d.text.Reset(nil)
	err = eachMember(&d.json, func(key string) (err error) {
		switch {
		case key == "method":
			method, err = readString(&d.json)
		case key == "params" && d.json.PeekKind() == '{':
			err = eachMember(&d.json, func(key string) (err error) {
				if key != "name" {
					return d.json.SkipValue()
				}
				name, err = readString(&d.json)
				return err
			})
		default:
			err = d.json.SkipValue()
		}
		return err
	})
	if err != nil {
		return "", "", err
	}
	if _, err := d.json.ReadToken(); !errors.Is(err, io.EOF) {
		return "", "", errors.New("text after the message")
	}
	if method == "tools/call" && name == "" {
		return "", "", errors.New("a call without a name")
	}
	return method, name, nil
}

// eachMember calls read for each member of the object that d comes to.
func eachMember(d *jsontext.Decoder, read func(key string) error) error {
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return errors.Join(errors.New("not an object"), err)
	}
	for d.PeekKind() != '}' {
		key, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := read(key.String()); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

func readString(d *jsontext.Decoder) (string, error) {
	t, err := d.ReadToken()
	if err != nil {
		return "", err
	}
	if t.Kind() != '"' {
		return "", errors.New("not a string")
	}
	return t.String(), nil
}

// hop names the headers that belong to one connection, and Content-Length, which the relay writes itself.
var hop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Content-Length": true, "Expect": true,
}

// forward sends the request and writes the answer to w. It reports whether the link can carry another request. It does not send a request
// again, because the server may have executed it.
func (l *link) forward(w http.ResponseWriter, q *http.Request, host string, body []byte) (reusable bool) {
	b := append(l.out[:0], q.Method...)
	b = append(b, ' ')
	b = append(b, q.URL.RequestURI()...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	b = append(b, "\r\n"...)
	for key, values := range q.Header {
		if hop[key] {
			continue
		}
		for _, v := range values {
			b = append(b, key...)
			b = append(b, ": "...)
			b = append(b, v...)
			b = append(b, "\r\n"...)
		}
	}
	if len(body) > 0 || q.Method == http.MethodPost {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(body)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	b = append(b, body...)
	if l.out = b; cap(b) > copySize {
		l.out = nil
	}
	err := l.SetDeadline(time.Now().Add(linkTimeout))
	if err == nil {
		_, err = l.Write(b)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return false
	}
	a, err := l.readHead(w.Header())
	if err != nil {
		clear(w.Header())
		http.Error(w, err.Error(), http.StatusBadGateway)
		return false
	}
	if a.length >= 0 && a.status != http.StatusNoContent {
		w.Header()["Content-Length"] = []string{strconv.FormatInt(a.length, 10)}
	}
	if q.Method == http.MethodHead {
		a.length, a.chunked = 0, false
	}
	w.WriteHeader(a.status)
	if err := l.copyBody(w, &a); err != nil {
		_ = l.Close()
		panic(http.ErrAbortHandler) // so that the client sees a cut answer, and not a short one
	}
	return !a.closes && l.in.Buffered() == 0 // more than the answer would be taken for the next one
}

// An answerHead says what a response is, and where it ends. length is -1 if the server gave none.
type answerHead struct {
	status          int
	length          int64
	chunked, closes bool
}

// readHead reads the head of a response. It puts the headers, except those of the connection, into h.
func (l *link) readHead(h http.Header) (a answerHead, err error) {
	for { // until a response that is not provisional
		line, err := l.readLine()
		if err != nil {
			return a, err
		}
		version, rest, _ := bytes.Cut(line, []byte(" "))
		code, _, _ := bytes.Cut(rest, []byte(" "))
		if a.status, err = strconv.Atoi(string(code)); err != nil || len(code) != 3 || !bytes.HasPrefix(version, []byte("HTTP/1.")) {
			return a, fmt.Errorf("no status line: %.60q", line)
		}
		a.length, a.chunked, a.closes = -1, false, string(version) == "HTTP/1.0"
		if err := l.readHeaders(h, &a); err != nil {
			return a, err
		}
		if a.status >= 200 {
			break
		}
		clear(h)
	}
	switch {
	case a.status == http.StatusNoContent || a.status == http.StatusNotModified:
		a.length, a.chunked = 0, false
	case a.chunked:
		a.length = -1
	case a.length < 0:
		a.closes = true // the end of the connection ends the body
	}
	return a, nil
}

func (l *link) readHeaders(h http.Header, a *answerHead) error {
	for {
		line, err := l.readLine()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return fmt.Errorf("no header: %.60q", line)
		}
		key := textproto.CanonicalMIMEHeaderKey(string(name))
		text := string(bytes.TrimSpace(value))
		switch key {
		case "Content-Length":
			n, err := strconv.ParseUint(text, 10, 63)
			if err != nil || a.length >= 0 && a.length != int64(n) {
				return fmt.Errorf("no length: %.60q", line)
			}
			a.length = int64(n)
		case "Transfer-Encoding":
			if a.chunked = strings.EqualFold(text, "chunked"); !a.chunked {
				return fmt.Errorf("another encoding than chunked: %.60q", line)
			}
		case "Connection":
			a.closes = a.closes || strings.EqualFold(text, "close")
		default:
			if !hop[key] {
				h[key] = append(h[key], text)
			}
		}
	}
}

// readLine returns the next line, which is valid until the next read.
func (l *link) readLine() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("the answer's head: %w", err)
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// copyBuffers keeps the buffers that bodies are copied through.
var copyBuffers bufferPool

// copyBody writes the response's body to w. What comes without a length is written as it comes.
func (l *link) copyBody(w http.ResponseWriter, a *answerHead) error {
	if a.length >= 0 && a.length <= linkBuffer {
		b, err := l.in.Peek(int(a.length))
		if err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil && a.length > 0 {
			return err
		}
		_, err = l.in.Discard(len(b))
		return err
	}
	buffer := copyBuffers.Get()
	defer copyBuffers.Put(buffer)
	if a.length >= 0 {
		n, err := io.CopyBuffer(plainWriter{w}, io.LimitReader(plainReader{l.in}, a.length), buffer)
		if err == nil && n < a.length {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	var from io.Reader = l.in
	if a.chunked {
		from = httputil.NewChunkedReader(l.in)
	}
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if !a.chunked {
		return nil
	}
	for { // the trailers, which are dropped, and an empty line
		if line, err := l.readLine(); err != nil || len(line) == 0 {
			return err
		}
	}
}

// plainReader and plainWriter hide other methods, so that a copy goes through its buffer.
type (
	plainReader struct{ io.Reader }
	plainWriter struct{ io.Writer }
)

// entryBytes is the size of one entry of a syncedFile, and entriesEach how many entries an append has: what came of the call before, and an intent.
const (
	entryBytes  = 750
	entriesEach = 2
)

// A syncedFile appends entries to a file, each durably.
type syncedFile struct {
	mu   sync.Mutex
	file *os.File
}

func openSynced(name string) (*syncedFile, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &syncedFile{file: f}, err
}

// append writes two entries in one write, and returns when they are on the disk.
func (s *syncedFile) append() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.file.Write(make([]byte, entriesEach*entryBytes)); err != nil {
		return err
	}
	return syncData(s.file)
}
