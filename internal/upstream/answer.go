package upstream

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

// readHead reads the head of the answer.
func (c *conn) readHead() (*http.Response, error) {
	left := maxHeaders
	for range maxInterim {
		resp, err := c.readOneHead(&left)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusSwitchingProtocols: // which nobody asked for
			return nil, errMalformed
		case resp.StatusCode >= http.StatusOK:
			return resp, nil
		}
	}
	return nil, errMalformed
}

// readOneHead reads the head of one answer, which may be an interim one.
func (c *conn) readOneHead(left *int) (*http.Response, error) {
	line, err := c.line(left)
	if err != nil {
		return nil, err
	}
	minor, status, ok := statusLine(line)
	if !ok {
		return nil, errMalformed
	}
	c.keep = minor == 1
	clear(c.header)
	length, chunked := int64(-1), false
	for {
		line, err := c.line(left)
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			break
		}
		name, value, ok := headerLine(line)
		if !ok {
			return nil, errMalformed
		}
		switch key := known(name); key {
		case "":
		case "Content-Length":
			n, ok := digits(value)
			if !ok || length >= 0 && n != length {
				return nil, errFraming
			}
			length = n
		case "Transfer-Encoding":
			if chunked || minor == 0 || !bytes.EqualFold(value, []byte("chunked")) {
				return nil, errFraming
			}
			chunked = true
		case "Connection":
			for token := range strings.SplitSeq(string(value), ",") {
				if strings.EqualFold(strings.TrimSpace(token), "close") {
					c.keep = false
				}
			}
		default:
			c.remember(key, value)
		}
	}
	if chunked && length >= 0 {
		return nil, errFraming
	}
	return c.answer(status, length, chunked), nil
}

// remember keeps a header of the answer.
func (c *conn) remember(key string, value []byte) {
	if key == "Content-Type" && c.header[key] == nil {
		if len(c.media) == 0 || c.media[0] != string(value) {
			c.media = []string{string(value)}
		}
		c.header[key] = c.media[:1:1]
		return
	}
	c.header[key] = append(c.header[key], string(value))
}

// answer returns the answer whose head has been read. length is below 0 where
// the head has not said it.
func (c *conn) answer(status int, length int64, chunked bool) *http.Response {
	a := &struct {
		http.Response
		body body
	}{body: body{c: c, left: length}}
	a.StatusCode, a.Header, a.Body, a.ContentLength = status, c.header, &a.body, length
	switch {
	case status < http.StatusOK || status == http.StatusNoContent || status == http.StatusNotModified:
		a.ContentLength, a.body.err = 0, io.EOF
	case chunked:
		a.body.chunks = httputil.NewChunkedReader(c.in)
	case length == 0:
		a.body.err = io.EOF
	case length < 0:
		c.keep = false // it ends with the connection
	}
	return &a.Response
}

// line reads a line of the head, without its end. It is valid until the next.
func (c *conn) line(left *int) ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && len(line) <= *left {
			var more []byte
			more, err = c.in.ReadSlice('\n')
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

// statusLine reads the first line of an answer.
func statusLine(line []byte) (minor, status int, ok bool) {
	const form = "HTTP/1.x 200"
	if len(line) < len(form) || string(line[:7]) != form[:7] || line[8] != ' ' || len(line) > len(form) && line[len(form)] != ' ' {
		return 0, 0, false
	}
	n, ok := digits(line[9:12])
	minor = int(line[7]) - '0'
	return minor, int(n), ok && (minor == 0 || minor == 1) && n >= 100 && isText(line[12:])
}

// headerLine reads a header. Lines that go on with the next are none.
func headerLine(line []byte) (name, value []byte, ok bool) {
	name, value, ok = bytes.Cut(line, []byte(":"))
	return name, bytes.Trim(value, " \t"), ok && isName(name) && isText(value)
}

// isName reports whether b can be the name of a header.
func isName(b []byte) bool {
	for _, c := range b {
		if !nameBytes[c] {
			return false
		}
	}
	return len(b) > 0
}

var nameBytes = func() (t [256]bool) {
	for c := range t {
		t[c] = isToken(string(rune(c))) && c < 0x80
	}
	return t
}()

// isText reports whether b can stand in a header.
func isText[T string | []byte](b T) bool {
	for i := range len(b) {
		if c := b[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// known returns the canonical form of a header's name that we look at, or "".
func known(name []byte) string {
	for _, k := range [...]string{"Content-Length", "Content-Type", "Connection", "Transfer-Encoding", "Content-Encoding", "Mcp-Session-Id", "Retry-After"} {
		if len(k) == len(name) && strings.EqualFold(k, string(name)) {
			return k
		}
	}
	return ""
}

// digits reads a number that is written in digits only, of at most 18.
func digits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, len(b) > 0 && len(b) <= 18
}

// A body is that of the answer which a connection carries.
type body struct {
	c      *conn
	chunks io.Reader // where it comes in chunks
	left   int64     // else, how much is to come; below 0 until the connection ends
	err    error     // that Read returned; io.EOF at the end
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (n int, err error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	case b.chunks != nil:
		if n, err = b.chunks.Read(p); errors.Is(err, io.EOF) {
			err = b.c.readTrailer()
		}
	case b.left < 0:
		n, err = b.c.in.Read(p)
	default:
		n, err = b.c.in.Read(p[:min(int64(len(p)), b.left)])
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

// readTrailer reads what follows the last chunk. It returns io.EOF where that is
// well formed.
func (c *conn) readTrailer() error {
	left := maxHeaders
	for {
		line, err := c.line(&left)
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

// ended reports whether the body was read to its end.
func (b *body) ended() bool { return errors.Is(b.err, io.EOF) }

// Close gives the connection back: it is kept where the body was read to its
// end, nothing follows, and the server has taken all of the request.
func (b *body) Close() error {
	c := b.c
	if c == nil {
		return nil
	}
	b.c, b.err = nil, cmp.Or(b.err, http.ErrBodyReadAfterClose)
	if !b.ended() || !c.keep || !c.written() || c.in.Buffered() > 0 || !c.flight.under(nil) {
		c.drop()
		return nil
	}
	c.flight = nil
	c.pool.put(c)
	return nil
}
