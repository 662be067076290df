package gateway

import (
	"bytes"
	"strings"
)

// Refused is what net/http reads in place of a head that Heads refuses, and of everything after it.
// net/http answers it with 400 and closes the connection, wherever in a head it occurs.
const Refused = "\x00\r\n:\r\n\r\n"

// Heads checks the heads of the HTTP/1 requests on one connection, because another reader would
// divide some of the requests that net/http accepts in another way (RFC 9112, sections 2.2, 5.2 and
// 6.3). It refuses a line that ends in a bare LF or has a bare CR, a header that continues on a
// second line, a repeated Content-Length, and a Content-Length with a Transfer-Encoding. It skips
// the bodies. After a chunked request it checks nothing, because the connection is closed then. The
// zero value is ready for use. It is not safe for concurrent use.
type Heads struct {
	at     headPart
	cr     bool // the last byte was a CR
	begun  bool // the request line has a byte
	digits bool // Content-Length has a digit
	length bool // there was a Content-Length
	chunks bool // there was a Transfer-Encoding
	body   int64
	name   [len(headerTransfer)]byte // of the header, as far as it fits
	named  int
}

// The headers that determine where a body ends.
const (
	headerLength   = "content-length"
	headerTransfer = "transfer-encoding"
)

// maxBody is above any permitted length, and prevents an overflow.
const maxBody = 1 << 50

type headPart int

const (
	requestLine headPart = iota
	lineStart
	headerName
	headerValue
	lengthBefore // the value of Content-Length: before its digits, in them, and behind them
	lengthDigits
	lengthBehind
	bodyBytes
	unchecked
)

// Check reads what the client sent next. The first n bytes of it may be passed on. If ok is false,
// nothing after them may be passed on.
func (h *Heads) Check(b []byte) (n int, ok bool) {
	for n < len(b) {
		rest := b[n:]
		switch {
		case h.at == unchecked:
			return len(b), true
		case h.at == bodyBytes:
			skip := min(h.body, int64(len(rest)))
			n += int(skip)
			if h.body -= skip; h.body == 0 {
				*h = Heads{}
			}
		case (h.at == headerValue || h.begun && h.at == requestLine) && !h.cr && rest[0] != '\r': // most bytes take this case
			end := bytes.IndexByte(rest, '\r')
			if end < 0 {
				end = len(rest)
			}
			if lf := bytes.IndexByte(rest[:end], '\n'); lf >= 0 {
				return n + lf, false
			}
			n += end
		case !h.step(rest[0]):
			return n, false
		default:
			n++
		}
	}
	return n, true
}

// step reads one byte of a head. It returns false if the byte must be refused.
func (h *Heads) step(c byte) bool {
	if h.cr {
		if c != '\n' {
			return false
		}
		h.cr = false
		h.endLine()
		return true
	}
	switch c {
	case '\n':
		return false
	case '\r':
		h.cr = true
		return h.digits || h.at != lengthBefore
	}
	switch h.at {
	case requestLine:
		h.begun = true
	case lineStart:
		if c == ' ' || c == '\t' {
			return false
		}
		if first := c | 0x20; first != headerLength[0] && first != headerTransfer[0] {
			h.at = headerValue // other names do not matter
			return true
		}
		h.at, h.named = headerName, 0
		return h.inName(c)
	case headerName:
		return h.inName(c)
	case lengthBefore, lengthDigits, lengthBehind:
		return h.inLength(c)
	}
	return true
}

func (h *Heads) inName(c byte) bool {
	if c != ':' {
		if h.named < len(h.name) {
			h.name[h.named] = c
		}
		h.named++
		return true
	}
	h.at = headerValue
	if h.named > len(h.name) {
		return true
	}
	switch name := h.name[:h.named]; {
	case h.named == len(headerLength) && strings.EqualFold(string(name), headerLength):
		if h.length || h.chunks {
			return false
		}
		h.length, h.at = true, lengthBefore
	case h.named == len(headerTransfer) && strings.EqualFold(string(name), headerTransfer):
		if h.length || h.chunks {
			return false
		}
		h.chunks = true
	}
	return true
}

func (h *Heads) inLength(c byte) bool {
	switch {
	case c == ' ' || c == '\t':
		if h.at == lengthDigits {
			h.at = lengthBehind
		}
		return true
	case c < '0' || c > '9' || h.at == lengthBehind:
		return false
	}
	h.at, h.digits = lengthDigits, true
	h.body = h.body*10 + int64(c-'0')
	return h.body < maxBody
}

// endLine ends a line; an empty line ends the head. net/http decides about empty lines before a
// request line.
func (h *Heads) endLine() {
	switch {
	case h.at == requestLine && !h.begun:
	case h.at != lineStart:
		h.at = lineStart
	case h.chunks:
		h.at = unchecked
	case h.body > 0:
		h.at = bodyBytes
	default:
		*h = Heads{}
	}
}
