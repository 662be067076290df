package post

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxPending is how many bytes of a response are collected for one write.
	maxPending = 32 << 10

	// The deadline for a write is set later than needed, so that the next responses need not set it again.
	deadlineSlack = 5 * time.Second

	// defaultWait is how long a client may take to read where the handler sets no deadline.
	defaultWait = 30 * time.Second
)

// A response is the http.ResponseWriter of the requests on one connection, one after the other. Like that of net/http, it may be
// used by several goroutines, but not at once, and not after the handler has returned.
type response struct {
	c      *conn
	header http.Header

	status   int   // 0 before WriteHeader
	length   int64 // of the body, where the handler gives it; else -1
	written  int64 // bytes of the body
	headDone bool  // the head is in out, or sent
	chunked  bool
	close    bool // the connection ends after the response
	err      error

	out []byte // what is not sent yet: of the head and the body, or of the body alone before headDone

	deadline time.Time // that the handler wants for its writes; zero for none
	set      time.Time // of the connection
}

// begin prepares w for the next response.
func (w *response) begin() {
	clear(w.header)
	w.status, w.length, w.written, w.headDone, w.chunked, w.close = 0, -1, 0, false, false, false
	w.out, w.deadline = w.out[:0], time.Time{}
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	if w.status != 0 || status < 200 {
		return // informational responses are of no use here
	}
	w.status = status
	if text := w.header["Content-Length"]; len(text) == 1 {
		if n, err := strconv.ParseInt(text[0], 10, 64); err == nil && n >= 0 {
			w.length = n
		}
	}
	if w.length >= 0 {
		w.writeHead()
	}
}

// Write implements http.ResponseWriter.
func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case !hasBody(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.written+int64(len(b)) > w.length:
		return 0, http.ErrContentLength
	}
	w.written += int64(len(b))
	if len(w.out)+len(b) > maxPending {
		w.writeHead()
		if !w.chunked {
			return len(b), w.send(b)
		}
	}
	w.appendBody(b)
	if len(w.out) > maxPending {
		return len(b), w.send(nil)
	}
	return len(b), nil
}

func (w *response) appendBody(b []byte) {
	if w.chunked && len(b) > 0 {
		w.out = append(strconv.AppendInt(w.out, int64(len(b)), 16), "\r\n"...)
		w.out = append(append(w.out, b...), "\r\n"...)
		return
	}
	w.out = append(w.out, b...)
}

// FlushError sends what was written so far; see http.ResponseController.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.writeHead()
	return w.send(nil)
}

// SetWriteDeadline bounds the writes that follow; see http.ResponseController. They may take deadlineSlack longer.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.deadline = t
	return nil
}

// SetReadDeadline implements http.ResponseController's method. The whole request was read before the handler was called.
func (w *response) SetReadDeadline(time.Time) error { return nil }

// finish sends the rest of the response. It reports whether the connection can be used for another request.
func (w *response) finish() bool {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.headDone { // so the whole body is in out
		w.length = w.written
	}
	w.writeHead()
	if w.chunked {
		w.out = append(w.out, "0\r\n\r\n"...)
	}
	if w.length >= 0 && w.written < w.length {
		w.close = true // the client must not wait for the rest
	}
	return w.send(nil) == nil && !w.close
}

// writeHead puts the head before the body that was written so far.
func (w *response) writeHead() {
	if w.headDone {
		return
	}
	w.headDone = true
	body := w.out
	if len(body) > 0 {
		body = slices.Clone(body)
		if len(w.header["Content-Type"]) == 0 {
			w.header["Content-Type"] = []string{http.DetectContentType(body)}
		}
	}
	b := append(w.out[:0], "HTTP/1.1 "...)
	b = append(strconv.AppendInt(b, int64(w.status), 10), ' ')
	b = append(append(b, http.StatusText(w.status)...), "\r\n"...)
	w.close = w.close || slices.ContainsFunc(w.header["Connection"], func(v string) bool { return strings.EqualFold(v, "close") })
	var room [16]string
	names := room[:0]
	for name := range w.header {
		if at, ok := slices.BinarySearch(names, name); !ok && isWritten(name) {
			names = slices.Insert(names, at, name)
		}
	}
	for _, name := range names {
		for _, value := range w.header[name] {
			b = append(append(b, name...), ": "...)
			b = append(appendValue(b, value), "\r\n"...)
		}
	}
	if len(w.header["Date"]) == 0 {
		b = append(append(append(b, "Date: "...), date()...), "\r\n"...)
	}
	switch {
	case !hasBody(w.status):
	case w.length >= 0:
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), w.length, 10), "\r\n"...)
	default:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		w.chunked = true
	}
	if w.close {
		b = append(b, "Connection: close\r\n"...)
	}
	w.out = append(b, "\r\n"...)
	w.appendBody(body)
}

// isWritten reports whether a header of the handler is written as it is: all but those that say how the response ends, and no name that is none.
func isWritten(name string) bool {
	switch name {
	case "", "Content-Length", "Transfer-Encoding", "Connection":
		return false
	}
	for i := range len(name) {
		if isOddInName(rune(name[i])) {
			return false
		}
	}
	return true
}

// appendValue appends the value of a header. A line break in it would end the header.
func appendValue(b []byte, value string) []byte {
	if strings.IndexByte(value, '\r') >= 0 || strings.IndexByte(value, '\n') >= 0 {
		value = strings.NewReplacer("\r", " ", "\n", " ").Replace(value)
	}
	return append(b, value...)
}

// hasBody reports whether a response with the status can have a body (RFC 9110, section 6.4.1).
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// send writes what is pending, and then more.
func (w *response) send(more []byte) error {
	if w.err != nil {
		return w.err
	}
	until := w.deadline
	if until.IsZero() {
		until = time.Now().Add(defaultWait)
	}
	if w.set.Before(until) {
		w.set = until.Add(deadlineSlack)
		_ = w.c.rw.SetWriteDeadline(w.set) // it fails if the connection is closed, as the write will
	}
	for _, b := range [][]byte{w.out, more} {
		if len(b) > 0 && w.err == nil {
			_, w.err = w.c.rw.Write(b)
		}
	}
	if w.out = w.out[:0]; cap(w.out) > maxPending+bufferSize {
		w.out = nil
	}
	if w.err != nil {
		w.c.cancel() // the client is gone
	}
	return w.err
}
