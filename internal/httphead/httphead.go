// Package httphead checks the heads of HTTP/1 requests before net/http reads them, because another
// reader would divide some of the requests that net/http accepts in another way (RFC 9112, sections
// 2.2, 5.2 and 6.3). A proxy in front and Switchboard could then disagree about where a request
// ends.
//
// It refuses a line that ends in a bare LF or has a bare CR, a header that continues on a second
// line, a repeated Content-Length, and a Content-Length with a Transfer-Encoding. Everything else
// about a request it leaves to net/http.
package httphead

import (
	"bytes"
	"strings"
)

// Refused is what net/http reads in place of a head that a Checker refuses, and of everything after
// it. net/http answers it with 400 and closes the connection, wherever in a head it occurs.
const Refused = "\x00\r\n:\r\n\r\n"

// A Checker checks the heads of the requests on one connection, and skips their bodies. After a
// chunked request it checks nothing, because the connection is closed then. The zero value is ready
// for use. It is not safe for concurrent use.
type Checker struct {
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
func (c *Checker) Check(b []byte) (n int, ok bool) {
	for n < len(b) {
		rest := b[n:]
		switch {
		case c.at == unchecked:
			return len(b), true
		case c.at == bodyBytes:
			skip := min(c.body, int64(len(rest)))
			n += int(skip)
			if c.body -= skip; c.body == 0 {
				*c = Checker{}
			}
		case (c.at == headerValue || c.begun && c.at == requestLine) && !c.cr && rest[0] != '\r': // most bytes take this case
			end := bytes.IndexByte(rest, '\r')
			if end < 0 {
				end = len(rest)
			}
			if lf := bytes.IndexByte(rest[:end], '\n'); lf >= 0 {
				return n + lf, false
			}
			n += end
		case !c.step(rest[0]):
			return n, false
		default:
			n++
		}
	}
	return n, true
}

// step reads one byte of a head. It returns false if the byte must be refused.
func (c *Checker) step(b byte) bool {
	if c.cr {
		if b != '\n' {
			return false
		}
		c.cr = false
		c.endLine()
		return true
	}
	switch b {
	case '\n':
		return false
	case '\r':
		c.cr = true
		return c.digits || c.at != lengthBefore
	}
	switch c.at {
	case requestLine:
		c.begun = true
	case lineStart:
		if b == ' ' || b == '\t' {
			return false
		}
		if first := b | 0x20; first != headerLength[0] && first != headerTransfer[0] {
			c.at = headerValue // other names do not matter
			return true
		}
		c.at, c.named = headerName, 0
		return c.inName(b)
	case headerName:
		return c.inName(b)
	case lengthBefore, lengthDigits, lengthBehind:
		return c.inLength(b)
	}
	return true
}

func (c *Checker) inName(b byte) bool {
	if b != ':' {
		if c.named < len(c.name) {
			c.name[c.named] = b
		}
		c.named++
		return true
	}
	c.at = headerValue
	if c.named > len(c.name) {
		return true
	}
	switch name := c.name[:c.named]; {
	case c.named == len(headerLength) && strings.EqualFold(string(name), headerLength):
		if c.length || c.chunks {
			return false
		}
		c.length, c.at = true, lengthBefore
	case c.named == len(headerTransfer) && strings.EqualFold(string(name), headerTransfer):
		if c.length || c.chunks {
			return false
		}
		c.chunks = true
	}
	return true
}

func (c *Checker) inLength(b byte) bool {
	switch {
	case b == ' ' || b == '\t':
		if c.at == lengthDigits {
			c.at = lengthBehind
		}
		return true
	case b < '0' || b > '9' || c.at == lengthBehind:
		return false
	}
	c.at, c.digits = lengthDigits, true
	c.body = c.body*10 + int64(b-'0')
	return c.body < maxBody
}

// endLine ends a line; an empty line ends the head. net/http decides about empty lines before a
// request line.
func (c *Checker) endLine() {
	switch {
	case c.at == requestLine && !c.begun:
	case c.at != lineStart:
		c.at = lineStart
	case c.chunks:
		c.at = unchecked
	case c.body > 0:
		c.at = bodyBytes
	default:
		*c = Checker{}
	}
}
