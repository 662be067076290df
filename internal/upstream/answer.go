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

// readHead reads the head of the response.
func (c *conn) readHead() (*http.Response, error) {
	left := maxHeaders
	for range maxInterim {
		resp, err := c.readOneHead(&left)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusSwitchingProtocols: // which was not requested
			return nil, errMalformed
		case resp.StatusCode >= http.StatusOK:
			return resp, nil
		}
	}
	return nil, errMalformed
}

// readOneHead reads one head, which may be that of an interim response.
func (c *conn) readOneHead(left *int) (*http.Response, error) {
	line, err := c.readLine(left)
	if err != nil {
		return nil, err
	}
	minor, status, ok := statusLine(line)
	if !ok {
		return nil, errMalformed
	}
	c.reusable = minor == 1
	clear(c.headers)
	length, chunked := int64(-1), false
	for {
		line, err := c.readLine(left)
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
		switch key := knownHeader(name); key {
		case "":
		case "Content-Length":
			n, ok := parseDigits(value)
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
					c.reusable = false
				}
			}
		default:
			c.storeHeader(key, value)
		}
	}
	if chunked && length >= 0 {
		return nil, errFraming
	}
	return c.newResponse(status, length, chunked), nil
}

// storeHeader stores a header of the response.
func (c *conn) storeHeader(key string, value []byte) {
	if key == "Content-Type" && c.headers[key] == nil {
		if len(c.contentType) == 0 || c.contentType[0] != string(value) {
			c.contentType = []string{string(value)}
		}
		c.headers[key] = c.contentType[:1:1]
		return
	}
	c.headers[key] = append(c.headers[key], string(value))
}

// newResponse returns the response for the head that was read. length is -1 if the head has none.
func (c *conn) newResponse(status int, length int64, chunked bool) *http.Response {
	a := &struct {
		http.Response
		body body
	}{body: body{c: c, left: length}}
	a.StatusCode, a.Header, a.Body, a.ContentLength = status, c.headers, &a.body, length
	switch {
	case status < http.StatusOK || status == http.StatusNoContent || status == http.StatusNotModified:
		a.ContentLength, a.body.err = 0, io.EOF
	case chunked:
		a.body.chunks = httputil.NewChunkedReader(c.in)
	case length == 0:
		a.body.err = io.EOF
	case length < 0:
		c.reusable = false // the body ends with the connection
	}
	return &a.Response
}

// readLine reads a line of the head, without its end. The line is valid until the next read.
func (c *conn) readLine(left *int) ([]byte, error) {
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

// statusLine parses the first line of a response.
func statusLine(line []byte) (minor, status int, ok bool) {
	const form = "HTTP/1.x 200"
	if len(line) < len(form) || string(line[:7]) != form[:7] || line[8] != ' ' || len(line) > len(form) && line[len(form)] != ' ' {
		return 0, 0, false
	}
	n, ok := parseDigits(line[9:12])
	minor = int(line[7]) - '0'
	return minor, int(n), ok && (minor == 0 || minor == 1) && n >= 100 && isText(line[12:])
}

// headerLine parses a header line. A continuation line is malformed.
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

// isText reports whether b can be the value of a header.
func isText[T string | []byte](b T) bool {
	for i := range len(b) {
		if c := b[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// knownHeader returns the canonical name of a header that we use, or "".
func knownHeader(name []byte) string {
	for _, k := range [...]string{"Content-Length", "Content-Type", "Connection", "Transfer-Encoding", "Content-Encoding", "Mcp-Session-Id", "Retry-After"} {
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

// A body is the body of the response that a connection carries.
type body struct {
	c      *conn
	chunks io.Reader // reads a chunked body; nil otherwise
	left   int64     // bytes still to come; below 0 if the body ends with the connection
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

// readTrailer reads the lines after the last chunk. It returns io.EOF if they are well formed.
func (c *conn) readTrailer() error {
	left := maxHeaders
	for {
		line, err := c.readLine(&left)
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

// atEnd reports whether the body was read to its end.
func (b *body) atEnd() bool { return errors.Is(b.err, io.EOF) }

// Close returns the connection to the pool if the body was read to its end, no bytes follow, and
// the server has taken the whole request. Otherwise it closes the connection.
func (b *body) Close() error {
	c := b.c
	if c == nil {
		return nil
	}
	b.c, b.err = nil, cmp.Or(b.err, http.ErrBodyReadAfterClose)
	if !b.atEnd() || !c.reusable || !c.fullyWritten() || c.in.Buffered() > 0 || !c.request.setStop(nil) {
		c.discard()
		return nil
	}
	c.request = nil
	c.pool.putIdle(c)
	return nil
}
