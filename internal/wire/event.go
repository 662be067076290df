package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"time"
)

// ErrEventTooLong reports an event, or a line, longer than the limit of a stream. The stream cannot be read further,
// except with Skip.
var ErrEventTooLong = errors.New("event too long")

const (
	// MaxEventIDBytes limits the id of an event, in bytes.
	MaxEventIDBytes = 1 << 10

	// MaxRetry is the longest reconnection delay. A stream that asks for a longer one gets MaxRetry.
	MaxRetry = time.Hour

	// eventLineSlack is the length of a line beyond its data: the name of the field.
	eventLineSlack = 64

	eventBuffer        = 16 << 10
	maxIdleEventBuffer = 64 << 10
)

// An Event is one event of a stream.
type Event struct {
	// ID is the id of the event, or of the last event that had an id.
	ID string

	// Type is "" if the stream gave none, which means "message".
	Type string

	// Data is owned by the caller.
	Data []byte

	// Retry is the reconnection delay that the stream last asked for; 0 if it asked for none.
	Retry time.Duration
}

// An EventReader reads a stream of server-sent events as defined in the HTML standard of the WHATWG. It is not safe for
// concurrent use.
type EventReader struct {
	r   io.Reader
	max int
	err error // the error of r, if it returned one

	buf              []byte
	bufStart, bufEnd int // buf[from:to] is unread
	lf, cr           searchMark
	started          bool // a byte order mark at the start has been handled
	skipLF           bool // the last line ended in CR; an LF that follows belongs to it

	id    string
	retry time.Duration

	tooLong bool   // the event is too long, and its end has not been read
	data    []byte // the data of its lines so far
}

// NewEventReader returns a reader of the events in r. Each event has at most maxEvent bytes of data.
func NewEventReader(r io.Reader, maxEvent int) *EventReader {
	return &EventReader{r: r, max: maxEvent}
}

// LastID returns the id to send when reconnecting. It can be newer than that of the last event, because ids without
// data count too.
func (e *EventReader) LastID() string { return e.id }

// Retry returns the reconnection delay that the stream last asked for; 0 if it asked for none.
func (e *EventReader) Retry() time.Duration { return e.retry }

// Next returns the next event that has data, which may be empty. An event that is incomplete when the stream ends is
// dropped. Then Next returns io.EOF, or the error of the underlying reader.
func (e *EventReader) Next() (Event, error) {
	var (
		kind  string
		data  []byte
		lines int
	)
	if e.tooLong {
		return Event{}, ErrEventTooLong
	}
	for {
		line, err := e.readLine()
		if errors.Is(err, ErrEventTooLong) {
			e.tooLong, e.data = true, data
		}
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			if lines > 0 {
				return Event{ID: e.id, Type: kind, Data: data, Retry: e.retry}, nil
			}
			kind = ""
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
		switch string(field) {
		case "data":
			if lines++; lines > 1 {
				data = append(data, '\n')
			}
			if len(data)+len(value) > e.max {
				e.tooLong, e.data = true, append(data, value...)
				return Event{}, ErrEventTooLong
			}
			data = append(data, value...)
		case "event":
			kind = string(value)
		case "id":
			if len(value) > MaxEventIDBytes {
				return Event{}, e.fail(ErrEventTooLong)
			}
			if bytes.IndexByte(value, 0) < 0 {
				e.id = string(value)
			}
		case "retry":
			if d, ok := parseRetry(value); ok {
				e.retry = d
			}
		}
	}
}

// Skip reads to the end of the event that Next returned ErrEventTooLong for. It passes the event's data to take in
// pieces, possibly without line breaks; a piece is valid only during take. It returns the approximate length of the
// event. If the event is longer than most, Skip gives up, and the reader returns ErrEventTooLong from then on.
func (e *EventReader) Skip(take func(piece []byte), most int) (n int, err error) {
	const data = "data:"
	n = len(e.data)
	take(e.data)
	e.tooLong, e.data = false, nil
	inData, inLine := false, false
	for n <= most {
		if !e.skipToLine() {
			if err := e.fill(); err != nil {
				return n, err
			}
			continue
		}
		end := e.lineEnd()
		ended := end >= 0
		if !ended {
			end = e.bufEnd
		}
		piece := e.buf[e.bufStart:end]
		switch {
		case inLine:
		case ended && len(piece) == 0:
			e.skipLF, e.bufStart = e.buf[end] == '\r', end+1
			return n, nil
		case !ended && len(piece) < len(data): // too short to compare
			if err := e.fill(); err != nil {
				return n, err
			}
			continue
		default:
			piece, inData = bytes.CutPrefix(piece, []byte(data))
		}
		n += len(piece)
		if inData {
			take(piece)
		}
		e.bufStart, inLine = end, !ended
		if ended {
			e.skipLF, e.bufStart = e.buf[end] == '\r', end+1
		}
	}
	return n, e.fail(ErrEventTooLong)
}

// parseRetry parses a number of milliseconds.
func parseRetry(value []byte) (time.Duration, bool) {
	var d time.Duration
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		d = min(d*10+time.Duration(c-'0')*time.Millisecond, MaxRetry)
	}
	return d, len(value) > 0
}

func (e *EventReader) fail(err error) error {
	e.err, e.bufStart, e.bufEnd = err, 0, 0
	return err
}

// readLine returns the next line without its end. It is valid until the next call.
func (e *EventReader) readLine() ([]byte, error) {
	for {
		if e.skipToLine() {
			end := e.lineEnd()
			found := end >= 0
			if !found {
				end = e.bufEnd
			}
			line := e.buf[e.bufStart:end]
			if len(line) > e.max+eventLineSlack {
				return nil, ErrEventTooLong
			}
			if found {
				e.skipLF = e.buf[end] == '\r'
				e.bufStart = end + 1
				return line, nil
			}
		}
		if err := e.fill(); err != nil {
			return nil, err
		}
	}
}

// skipToLine skips bytes that do not belong to the next line. It returns false if more input is needed to decide. A line
// that ended in CR was returned without waiting for the LF, because the LF may never come.
func (e *EventReader) skipToLine() bool {
	if !e.started {
		head := e.buf[e.bufStart:min(e.bufEnd, len(byteOrderMark))]
		if len(head) < len(byteOrderMark) && strings.HasPrefix(byteOrderMark, string(head)) {
			return false
		}
		e.started = true
		if string(head) == byteOrderMark {
			e.bufStart += len(byteOrderMark)
		}
	}
	if e.bufStart == e.bufEnd {
		return false
	}
	if e.skipLF && e.buf[e.bufStart] == '\n' {
		e.bufStart++
	}
	e.skipLF = false
	return true
}

// A searchMark is the position of a byte in the buffer. It prevents repeated searches of the same bytes: without it, a stream
// of short lines would cost the square of its length.
type searchMark struct {
	found      int // valid if that byte is unread
	searchedTo int // the bytes before this offset have been searched
}

// lineEnd returns the end of the next line in the buffer, or -1.
func (e *EventReader) lineEnd() int {
	lf, cr := e.findByte(&e.lf, '\n'), e.findByte(&e.cr, '\r')
	if lf < 0 || cr >= 0 && cr < lf {
		return cr
	}
	return lf
}

func (e *EventReader) findByte(m *searchMark, c byte) int {
	if m.found >= e.bufStart && m.found < m.searchedTo {
		return m.found
	}
	from := max(e.bufStart, m.searchedTo)
	m.found, m.searchedTo = -1, e.bufEnd
	if i := bytes.IndexByte(e.buf[from:e.bufEnd], c); i >= 0 {
		m.found, m.searchedTo = from+i, from+i+1
	}
	return m.found
}

// fill reads more bytes into the buffer.
func (e *EventReader) fill() error {
	if e.err != nil {
		return e.err
	}
	if e.bufStart > 0 {
		copy(e.buf, e.buf[e.bufStart:e.bufEnd])
		for _, m := range [...]*searchMark{&e.lf, &e.cr} {
			m.found, m.searchedTo = max(m.found-e.bufStart, -1), max(m.searchedTo-e.bufStart, 0)
		}
		e.bufStart, e.bufEnd = 0, e.bufEnd-e.bufStart
	}
	switch {
	case e.bufEnd == 0 && len(e.buf) > maxIdleEventBuffer:
		e.buf = make([]byte, eventBuffer) // shrink the buffer after a long event, which is an exception
	case e.bufEnd == len(e.buf):
		e.buf = append(e.buf, make([]byte, max(len(e.buf), eventBuffer))...)
	}
	for range maxEmptyReads {
		n, err := e.r.Read(e.buf[e.bufEnd:])
		e.bufEnd += n
		e.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return e.fail(io.ErrNoProgress)
}

// maxEmptyReads is how many reads in a row may return neither bytes nor an error.
const maxEmptyReads = 100
