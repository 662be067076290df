package post

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
)

// A requestHead is the head of a plain request, without its Content-Length. It is never modified.
type requestHead struct {
	url    *url.URL
	host   string
	header http.Header

	// The head was text[:from], the digits of its Content-Length, and text[to:].
	text     []byte
	from, to int
}

// Bounds of plain requests.
const (
	maxHeaders = 64
	maxDigits  = 7 // of a Content-Length
)

// A requestForm says what the beginning of a connection's bytes is.
type requestForm uint8

const (
	incomplete requestForm = iota // of a plain request
	plain
	other // net/http reads it
)

// start is how a plain request begins.
const start = "POST /mcp"

// oddHeaders are the headers that change what a request is or how it ends, besides Content-Length and Connection.
var oddHeaders = []string{"Transfer-Encoding", "Trailer", "Te", "Expect", "Upgrade", "Pragma", "Proxy-Connection"}

// readHead reads the head at the beginning of b. last is the head before it on the same connection, or nil: a client sends nearly
// the same head each time. It returns the bytes of the head and the length of the body. A head of which net/http could understand
// anything else than readHead is other.
func readHead(b []byte, last *requestHead) (h *requestHead, size, body int, is requestForm) {
	if last != nil {
		if size, body, ok := last.begins(b); ok {
			return last, size, body, plain
		}
	}
	if n := min(len(b), len(start)); string(b[:n]) != start[:n] {
		return nil, 0, 0, other
	}
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return nil, 0, 0, incomplete
	}
	size = end + len("\r\n\r\n")
	h, body, ok := parseHead(b[:size])
	if !ok {
		return nil, 0, 0, other
	}
	return h, size, body, plain
}

// begins reports whether b begins with the text of h. The digits of Content-Length may differ.
func (h *requestHead) begins(b []byte) (size, body int, ok bool) {
	if !bytes.HasPrefix(b, h.text[:h.from]) {
		return 0, 0, false
	}
	body, digits := readDigits(b[h.from:])
	rest := h.text[h.to:]
	if digits == 0 || !bytes.HasPrefix(b[h.from+digits:], rest) {
		return 0, 0, false
	}
	return h.from + digits + len(rest), body, true
}

// readDigits reads the number at the beginning of b. digits is 0 if it is none, or too long.
func readDigits(b []byte) (n, digits int) {
	for digits < len(b) && b[digits] >= '0' && b[digits] <= '9' {
		if digits == maxDigits {
			return 0, 0
		}
		n = n*10 + int(b[digits]-'0')
		digits++
	}
	return n, digits
}

// parseHead parses a whole head. ok is false if it is not plain.
func parseHead(b []byte) (h *requestHead, body int, ok bool) {
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	target, ok := bytes.CutSuffix(line[len("POST "):], []byte(" HTTP/1.1"))
	if !ok || bytes.ContainsFunc(target, isOddInTarget) {
		return nil, 0, false
	}
	h = &requestHead{url: &url.URL{Path: string(target)}, header: make(http.Header, 8), text: bytes.Clone(b)}
	hosts := 0
	for n := 0; len(rest) > len("\r\n"); n++ {
		at := len(b) - len(rest)
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || n == maxHeaders || len(name) == 0 || bytes.ContainsFunc(name, isOddInName) || bytes.ContainsFunc(value, isOddInValue) {
			return nil, 0, false
		}
		text := bytes.Trim(value, " \t")
		switch key := textproto.CanonicalMIMEHeaderKey(string(name)); {
		case key == "Host":
			hosts++
			h.host = string(text)
		case key == "Content-Length":
			digits := 0
			body, digits = readDigits(text)
			if digits == 0 || digits != len(text) || h.to != 0 {
				return nil, 0, false
			}
			h.from = at + len(name) + 1 + bytes.Index(value, text)
			h.to = h.from + digits
		case key == "Connection" && !strings.EqualFold(string(text), "keep-alive"), slices.Contains(oddHeaders, key):
			return nil, 0, false
		default:
			h.header[key] = append(h.header[key], string(text))
		}
	}
	return h, body, hosts == 1 && h.host != "" && !strings.ContainsFunc(h.host, isOddInHost) && h.to != 0
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// What is odd is not always wrong: net/http decides about it.
func isOddInTarget(r rune) bool { return !isAlphanumeric(r) && !strings.ContainsRune("/-._~", r) }
func isOddInName(r rune) bool   { return !isAlphanumeric(r) && r != '-' && r != '_' }
func isOddInValue(r rune) bool  { return r != '\t' && (r < ' ' || r > '~') }
func isOddInHost(r rune) bool   { return !isAlphanumeric(r) && !strings.ContainsRune("-.:[]", r) }
