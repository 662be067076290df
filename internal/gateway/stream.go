package gateway

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// writeChunk is how many bytes a client must read within chunkTimeout.
const writeChunk = 256 << 10

// writeTimed writes the parts. It fails if the client stops reading, but not if the client is only
// slow.
func writeTimed(w http.ResponseWriter, c *http.ResponseController, parts ...[]byte) error {
	allowed := 0 // of writeChunk
	for _, b := range parts {
		for len(b) > 0 {
			if allowed == 0 {
				allowed = writeChunk
				_ = c.SetWriteDeadline(time.Now().Add(chunkTimeout))
			}
			n := min(len(b), allowed)
			if _, err := w.Write(b[:n]); err != nil {
				return err
			}
			b, allowed = b[n:], allowed-n
		}
	}
	return nil
}

// writeAll writes a whole answer. It ignores errors: the client is gone then.
func writeAll(w http.ResponseWriter, status int, body ...[]byte) {
	n := 0
	for _, b := range body {
		n += len(b)
	}
	w.Header().Set("Content-Length", strconv.Itoa(n))
	w.WriteHeader(status)
	_ = writeTimed(w, http.NewResponseController(w), body...)
}

// An events writes an event stream.
type events struct {
	w       http.ResponseWriter
	c       http.ResponseController
	started bool
	buf     []byte
}

func (e *events) start() error { return e.startWith(nil) }

// startWith starts the stream, if it has not started, and sends text with the headers.
func (e *events) startWith(text []byte) error {
	if e.started {
		return nil
	}
	e.started = true
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no") // otherwise a proxy may delay events
	e.w.WriteHeader(http.StatusOK)
	if err := writeTimed(e.w, &e.c, text); err != nil {
		return err
	}
	return e.flush()
}

func (e *events) flush() error {
	_ = e.c.SetWriteDeadline(time.Now().Add(writeTimeout))
	return e.c.Flush()
}

// write writes encoded events, and starts the stream before the first.
func (e *events) write(text []byte) error {
	if err := e.start(); err != nil {
		return err
	}
	if err := writeTimed(e.w, &e.c, text); err != nil {
		return err
	}
	return e.flush()
}

// send writes one message, given in parts.
func (e *events) send(message ...[]byte) error { return e.sendAs(nil, message...) }

// sendAs is send with an id for the event.
func (e *events) sendAs(id []byte, message ...[]byte) error {
	if err := e.start(); err != nil {
		return err
	}
	e.buf = e.buf[:0]
	if len(id) > 0 {
		e.buf = append(append(append(e.buf, "id: "...), id...), '\n')
	}
	e.buf = append(e.buf, "event: message\ndata: "...)
	for _, part := range message {
		if part = wire.OneLine(part); len(part) < smallPart {
			e.buf = append(e.buf, part...)
			continue
		}
		if err := writeTimed(e.w, &e.c, e.buf); err != nil {
			return err
		}
		if err := writeTimed(e.w, &e.c, part); err != nil {
			return err
		}
		e.buf = e.buf[:0]
	}
	e.buf = append(e.buf, "\n\n"...)
	if err := writeTimed(e.w, &e.c, e.buf); err != nil {
		return err
	}
	return e.flush()
}

// smallPart is the length below which a copy costs less than another write.
const smallPart = 16 << 10

// comment writes a line that readers skip, so that no proxy closes a quiet connection.
func (e *events) comment() error { return e.write([]byte(": still here\n\n")) }

// An httpReply is the answer to one request over HTTP: plain JSON, or an event stream if something
// is sent before the result.
type httpReply struct {
	accepts   acceptedForms
	modern    bool
	events    events // used by the outbox, and by the handler after the last flush
	onFailure func(error)
	replays   *session.Replays

	mu             sync.Mutex
	out            *outbox        // of whole events; nil until there is one
	track          *session.Track // nil until something is sent, and if nothing can be resumed
	moved          atomic.Bool    // the client has resumed the stream on another connection
	keepAliveTimer *time.Timer    // nil if the client reads no events
	ended          bool
}

// newHTTPReply returns the reply to a request. When the client has waited for KeepAlive, it gets a
// comment. onFailure is called when a write to the client fails. rs keeps the events; nil means that
// none are kept.
func newHTTPReply(w http.ResponseWriter, a acceptedForms, modern bool, onFailure func(error), rs *session.Replays) *httpReply {
	p := &httpReply{accepts: a, modern: modern, onFailure: onFailure, replays: rs, events: events{w: w, c: *http.NewResponseController(w)}}
	if a.events {
		p.mu.Lock()
		defer p.mu.Unlock()
		first := KeepAlive
		if rs != nil && rs.SendsPrimers() {
			first = session.PrimeAfter
		}
		p.keepAliveTimer = time.AfterFunc(first, p.sendKeepAlive)
	}
	return p
}

// outboxLocked returns the outbox, which most replies never need. The caller holds p.mu.
func (p *httpReply) outboxLocked() *outbox {
	if p.out == nil {
		p.out = newOutbox(func(m []byte) error {
			if m == nil {
				return p.events.comment()
			}
			return p.events.write(m)
		}, p.onFailure)
	}
	return p.out
}

// asEvent returns the message as an event, and keeps it if the stream can be resumed. The caller
// holds p.mu.
func (p *httpReply) asEvent(message []byte) []byte {
	if p.replays == nil {
		return session.AppendEvent(nil, nil, message)
	}
	p.beginTrack()
	return p.track.Append(message)
}

// beginTrack begins to keep the events, and reports whether it has sent the client a primer. The
// caller holds p.mu.
func (p *httpReply) beginTrack() (primed bool) {
	if p.replays == nil || p.track != nil {
		return false
	}
	out := p.outboxLocked()
	p.track = p.replays.Open(func() {
		p.moved.Store(true)
		out.abandon()
	})
	primer := p.track.Primer()
	if primer != nil {
		out.put(primer)
	}
	return primer != nil
}

// notify sends a notification, in the order of the calls. It drops the notification if the client
// reads too slowly.
func (p *httpReply) notify(method string, params []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || !p.accepts.events {
		return
	}
	p.outboxLocked().putOrDrop(p.asEvent(wire.AppendNotification(nil, method, params)))
	p.keepAliveTimer.Reset(KeepAlive)
}

// sendKept sends a message that must not be dropped, in the order of the calls.
func (p *httpReply) sendKept(message []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || !p.accepts.events {
		return
	}
	p.outboxLocked().put(p.asEvent(message))
	p.keepAliveTimer.Reset(KeepAlive)
}

// sendKeepAlive sends a comment, unless something is being written.
func (p *httpReply) sendKeepAlive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	if !p.beginTrack() && p.outboxLocked().idle() {
		p.outboxLocked().putOrDrop(nil)
	}
	p.keepAliveTimer.Reset(KeepAlive)
}

// stopNotifying lets nothing but the answer be sent from now on.
func (p *httpReply) stopNotifying() (dropped int) {
	p.mu.Lock()
	p.ended = true
	if p.keepAliveTimer != nil {
		p.keepAliveTimer.Stop()
	}
	out := p.out
	p.mu.Unlock()
	if out == nil {
		return 0
	}
	return out.flush()
}

// sendAnswer sends the answer, after all notifications. Without an answer, which the client did not
// want, the stream ends or the body is empty. It ignores errors: the client is gone then.
func (p *httpReply) sendAnswer(id []byte, a rpcAnswer) {
	switch {
	case p.track != nil:
		var last [][]byte
		if !a.none() {
			last = a.parts(id)
		}
		if event := p.track.Finish(last...); !p.moved.Load() && last != nil {
			_ = p.events.sendAs(event, last...)
		}
	case a.none():
		if !p.events.started {
			p.events.w.WriteHeader(http.StatusAccepted)
		}
	case p.events.started || !p.accepts.json:
		_ = p.events.send(a.parts(id)...)
	default:
		status := http.StatusOK
		if a.failure != nil {
			status = a.failure.status(p.modern)
		}
		p.events.w.Header()["Content-Type"] = mediaJSON
		writeAll(p.events.w, status, a.parts(id)...)
	}
}
