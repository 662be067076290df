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

	// A deadline for a write is set later than needed, so that the next responses need not set it again.
	deadlineSlack = 5 * time.Second

	sniffed = 512 // bytes that say what a body is; see http.DetectContentType

	// defaultWait is how long a client may take to read where the handler sets no deadline.
	defaultWait = 30 * time.Second
)

// A plainResponse is the http.ResponseWriter of the requests on one connection, one after the other. Like that of net/http, several
// goroutines may use it, but not at once, and none after the handler has returned.
type plainResponse struct {
	c      *conn
	header http.Header

	status   int   // 0 before WriteHeader
	length   int64 // of the body, where it is known; else -1
	written  int64 // bytes of the body
	typed    bool  // the handler says what the body is
	headDone bool  // the head is whole
	chunked  bool
	close    bool // the connection ends after the response
	err      error

	out  []byte // what is not sent yet
	body []byte // what was written before the head was whole

	deadline time.Time // that the handler wants for its writes; zero for none
	set      time.Time // that of the connection; zero for none
}

// begin prepares w for the next response.
func (w *plainResponse) begin() {
	clear(w.header)
	w.status, w.length, w.written, w.typed, w.headDone, w.chunked, w.close = 0, -1, 0, false, false, false, false
	w.out, w.body, w.deadline = w.out[:0], w.body[:0], time.Time{}
}

// Header implements http.ResponseWriter.
func (w *plainResponse) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. Informational responses are not sent.
func (w *plainResponse) WriteHeader(status int) {
	if w.status != 0 || status < 200 {
		return
	}
	w.status = status
	h := w.header
	if text := h["Content-Length"]; len(text) == 1 && hasBody(status) {
		if n, err := strconv.ParseInt(text[0], 10, 64); err == nil && n >= 0 {
			w.length = n
		}
	}
	_, w.typed = h["Content-Type"]
	w.typed = w.typed || len(h["Content-Encoding"]) > 0
	w.chunked = slices.Equal(h["Transfer-Encoding"], []string{"chunked"})
	w.close = slices.ContainsFunc(h["Connection"], func(v string) bool { return strings.EqualFold(v, "close") })
	b := append(w.out[:0], "HTTP/1.1 "...)
	b = append(strconv.AppendInt(b, int64(status), 10), ' ')
	b = append(append(b, http.StatusText(status)...), "\r\n"...)
	var room [16]string
	names := room[:0]
	for name := range h {
		if at, ok := slices.BinarySearch(names, name); !ok && isWritten(name) {
			names = slices.Insert(names, at, name)
		}
	}
	for _, name := range names {
		for _, value := range h[name] {
			b = appendHeader(b, name, value)
		}
	}
	if len(h["Date"]) == 0 {
		b = appendHeader(b, "Date", date())
	}
	w.out = b
}

// Write implements http.ResponseWriter.
func (w *plainResponse) Write(b []byte) (int, error) {
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
	if !w.headDone && w.length < 0 && len(w.body)+len(b) <= maxPending {
		w.body = append(w.body, b...) // perhaps it is all, and its length can be said
		return len(b), nil
	}
	w.finishHead(b)
	if !w.chunked && len(w.out)+len(b) > maxPending {
		return len(b), w.send(b)
	}
	w.appendBody(b)
	if len(w.out) > maxPending {
		return len(b), w.send(nil)
	}
	return len(b), nil
}

func (w *plainResponse) appendBody(b []byte) {
	if len(b) > 0 && w.chunked {
		w.out = append(strconv.AppendInt(w.out, int64(len(b)), 16), "\r\n"...)
		w.out = append(append(w.out, b...), "\r\n"...)
		return
	}
	w.out = append(w.out, b...)
}

// FlushError sends what was written so far; see http.ResponseController.
func (w *plainResponse) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.finishHead(nil)
	return w.send(nil)
}

// SetWriteDeadline bounds the writes that follow; see http.ResponseController. They may take deadlineSlack longer.
func (w *plainResponse) SetWriteDeadline(t time.Time) error {
	w.deadline = t
	return nil
}

// SetReadDeadline implements http.ResponseController's method. The whole request was read before the handler was called.
func (w *plainResponse) SetReadDeadline(time.Time) error { return nil }

// finish sends the rest of the response. It reports whether the connection can be used for another request.
func (w *plainResponse) finish() bool {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.headDone && w.length < 0 && !w.chunked {
		w.length = w.written
	}
	w.finishHead(nil)
	if w.chunked {
		w.out = append(w.out, "0\r\n\r\n"...)
	}
	if hasBody(w.status) && w.length >= 0 && w.written < w.length {
		w.close = true // the client must not wait for the rest
	}
	return w.send(nil) == nil && !w.close
}

// finishHead completes the head, and appends the body that was written so far. next is what comes after that.
func (w *plainResponse) finishHead(next []byte) {
	if w.headDone {
		return
	}
	w.headDone = true
	w.close = w.close || w.c.isEnded()
	if !w.typed && len(w.body)+len(next) > 0 {
		w.out = appendHeader(w.out, "Content-Type", http.DetectContentType(slices.Concat(w.body, next[:min(len(next), sniffed)])))
	}
	w.chunked = hasBody(w.status) && w.length < 0
	switch {
	case w.chunked:
		w.out = appendHeader(w.out, "Transfer-Encoding", "chunked")
	case hasBody(w.status):
		w.out = append(strconv.AppendInt(append(w.out, "Content-Length: "...), w.length, 10), "\r\n"...)
	}
	if w.close {
		w.out = appendHeader(w.out, "Connection", "close")
	}
	w.out = append(w.out, "\r\n"...)
	w.appendBody(w.body)
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

// appendHeader appends a header. A line break in its value would end it.
func appendHeader(b []byte, name, value string) []byte {
	if strings.IndexByte(value, '\r') >= 0 || strings.IndexByte(value, '\n') >= 0 {
		value = strings.NewReplacer("\r", " ", "\n", " ").Replace(value)
	}
	b = append(append(b, name...), ": "...)
	return append(append(b, strings.Trim(value, " \t")...), "\r\n"...)
}

// hasBody reports whether a response with the status can have a body (RFC 9110, section 6.4.1).
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// send writes what is pending, and then more.
func (w *plainResponse) send(more []byte) error {
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
	w.out = w.out[:0]
	if max(cap(w.out), cap(w.body)) > maxPending+bufferSize {
		w.out, w.body = nil, nil
	}
	if w.err != nil {
		w.c.cancel() // the client is gone
	}
	return w.err
}

// clearDeadline takes away the deadline: TLS writes to idle connections too.
func (w *plainResponse) clearDeadline() {
	if !w.set.IsZero() {
		w.set = time.Time{}
		_ = w.c.rw.SetWriteDeadline(time.Time{})
	}
}
