package http1

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
)

// A headReader reads the heads of responses from a connection.
type headReader struct {
	in          *bufio.Reader
	headers     http.Header // of the last response
	contentType []string    // the last Content-Type, which rarely changes
	reusable    bool        // the server accepts another request
}

// A head is what the head of a response says, without its headers.
type head struct {
	status  int
	length  int64 // of the body; -1 if the head has none
	chunked bool
}

// read reads the head of a response, and skips interim ones.
func (r *headReader) read() (head, error) {
	left := MaxHead
	for range maxInterim {
		h, err := r.readOne(&left)
		switch {
		case err != nil:
			return head{}, err
		case h.status == http.StatusSwitchingProtocols: // which was not requested
			return head{}, errMalformed
		case h.status >= http.StatusOK:
			return h, nil
		}
	}
	return head{}, errMalformed
}

// readOne reads one head, and subtracts its bytes from left.
func (r *headReader) readOne(left *int) (head, error) {
	line, err := r.readLine(left)
	if err != nil {
		return head{}, err
	}
	minor, status, ok := statusLine(line)
	if !ok {
		return head{}, errMalformed
	}
	r.reusable = minor == 1
	clear(r.headers)
	h := head{status: status, length: -1}
	for {
		line, err := r.readLine(left)
		if err != nil {
			return head{}, err
		}
		if len(line) == 0 {
			break
		}
		name, value, ok := headerLine(line)
		if !ok {
			return head{}, errMalformed
		}
		switch key := knownHeader(name); key {
		case "":
		case "Content-Length":
			n, ok := parseDigits(value)
			if !ok || h.length >= 0 && n != h.length {
				return head{}, errFraming
			}
			h.length = n
		case "Transfer-Encoding":
			if h.chunked || minor == 0 || !bytes.EqualFold(value, []byte("chunked")) {
				return head{}, errFraming
			}
			h.chunked = true
		case "Connection":
			for token := range strings.SplitSeq(string(value), ",") {
				if strings.EqualFold(strings.TrimSpace(token), "close") {
					r.reusable = false
				}
			}
		default:
			r.storeHeader(key, value)
		}
	}
	if h.chunked && h.length >= 0 {
		return head{}, errFraming
	}
	return h, nil
}

// storeHeader stores a header of the response.
func (r *headReader) storeHeader(key string, value []byte) {
	if key == "Content-Type" && r.headers[key] == nil {
		if len(r.contentType) == 0 || r.contentType[0] != string(value) {
			r.contentType = []string{string(value)}
		}
		r.headers[key] = r.contentType[:1:1]
		return
	}
	r.headers[key] = append(r.headers[key], string(value))
}

// newResponse returns the response with the head that was read.
func (c *Conn) newResponse(h head) *http.Response {
	a := &struct {
		http.Response
		body Body
	}{body: Body{c: c, left: h.length}}
	a.StatusCode, a.Header, a.Body, a.ContentLength = h.status, c.head.headers, &a.body, h.length
	switch {
	case h.status == http.StatusNoContent || h.status == http.StatusNotModified:
		a.ContentLength, a.body.err = 0, io.EOF
	case h.chunked:
		a.body.chunks = httputil.NewChunkedReader(c.head.in)
	case h.length == 0:
		a.body.err = io.EOF
	case h.length < 0:
		c.head.reusable = false // the body ends with the connection
	}
	return &a.Response
}

// readLine reads a line of the head, without its end. The line is valid until the next read.
func (r *headReader) readLine(left *int) ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && len(line) <= *left {
			var more []byte
			more, err = r.in.ReadSlice('\n')
			line = append(line, more...)
		}
	}
	*left -= len(line)
	switch {
	case *left < 0:
		return nil, errHeadSize
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok {
		return nil, errMalformed
	}
	return text, nil
}

// statusLine parses the first line of a response.
func statusLine(line []byte) (minor, status int, ok bool) {
	const form = "HTTP/1.x 200"
	if len(line) < len(form) || string(line[:7]) != form[:7] || line[8] != ' ' || len(line) > len(form) && line[len(form)] != ' ' {
		return 0, 0, false
	}
	n, ok := parseDigits(line[9:12])
	minor = int(line[7]) - '0'
	return minor, int(n), ok && (minor == 0 || minor == 1) && n >= 100 && IsText(line[12:])
}

// headerLine parses a header line. A continuation line is malformed.
func headerLine(line []byte) (name, value []byte, ok bool) {
	name, value, ok = bytes.Cut(line, []byte(":"))
	return name, bytes.Trim(value, " \t"), ok && IsName(name) && IsText(value)
}

// IsName reports whether b can be the name of a header.
func IsName(b []byte) bool {
	for _, c := range b {
		if !nameBytes[c] {
			return false
		}
	}
	return len(b) > 0
}

var nameBytes = func() (t [256]bool) {
	for c := range t {
		t[c] = IsToken(string(rune(c))) && c < 0x80
	}
	return t
}()

// IsText reports whether b can be the value of a header.
func IsText[T string | []byte](b T) bool {
	for i := range len(b) {
		if c := b[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// knownHeader returns the canonical name of a header that we use, or "".
func knownHeader(name []byte) string {
	for _, k := range [...]string{"Content-Length", "Content-Type", "Connection", "Transfer-Encoding", "Content-Encoding", "Mcp-Session-Id", "Retry-After", "Www-Authenticate", "Location"} {
		if len(k) == len(name) && strings.EqualFold(k, string(name)) {
			return k
		}
	}
	return ""
}

// parseDigits parses a number of 1 to 18 digits.
func parseDigits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, len(b) > 0 && len(b) <= 18
}

// A Body is the body of the response that a connection carries.
type Body struct {
	c      *Conn
	chunks io.Reader // reads a chunked body; nil otherwise
	left   int64     // bytes still to come; below 0 if the body ends with the connection
	err    error     // that Read returned; io.EOF at the end
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (n int, err error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	case b.chunks != nil:
		if n, err = b.chunks.Read(p); errors.Is(err, io.EOF) {
			err = b.c.head.readTrailer()
		}
	case b.left < 0:
		n, err = b.c.head.in.Read(p)
	default:
		n, err = b.c.head.in.Read(p[:min(int64(len(p)), b.left)])
		switch b.left -= int64(n); {
		case b.left == 0:
			err = io.EOF
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		}
	}
	b.err = err
	return n, err
}

// readTrailer reads the lines after the last chunk. It returns io.EOF if they are well formed.
func (r *headReader) readTrailer() error {
	left := MaxHead
	for {
		line, err := r.readLine(&left)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return io.EOF
		}
		if _, _, ok := headerLine(line); !ok {
			return errMalformed
		}
	}
}

// AtEnd reports whether the body was read to its end.
func (b *Body) AtEnd() bool { return errors.Is(b.err, io.EOF) }

// Close returns the connection to the pool if the body was read to its end, no bytes follow, and
// the server has taken the whole request. Otherwise it closes the connection.
func (b *Body) Close() error {
	c := b.c
	if c == nil {
		return nil
	}
	b.c, b.err = nil, cmp.Or(b.err, http.ErrBodyReadAfterClose)
	if !b.AtEnd() || !c.head.reusable || !c.fullyWritten() || c.head.in.Buffered() > 0 || !c.request.SetStop(nil) {
		c.discard()
		return nil
	}
	c.request = nil
	c.pool.putIdle(c)
	return nil
}

// IsToken reports whether s can be part of the name of a header.
func IsToken(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"
	return s != "" && strings.Trim(s, letters) == ""
}
