package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"time"
)

// ErrEventTooLong reports an event, or a line, beyond the limit of a stream. The
// stream cannot be read on, unless with Skip.
var ErrEventTooLong = errors.New("event too long")

const (
	// MaxEventIDBytes bounds the id of an event.
	MaxEventIDBytes = 1 << 10

	// MaxRetry is the longest time to reconnect that a stream can ask for;
	// one that asks for more gets this.
	MaxRetry = time.Hour

	// eventLineSlack is by how much a line may be longer than the data of an
	// event: the name of its field.
	eventLineSlack = 64

	eventBuffer     = 16 << 10
	keptEventBuffer = 64 << 10
)

// An Event is one event of a stream.
type Event struct {
	// ID is the id of the event, or of the last one that had any.
	ID string

	// Type is "" where the stream gave none, which means "message".
	Type string

	// Data is the caller's to keep.
	Data []byte

	// Retry is how long the stream last asked to wait before one connects
	// again; 0 where it did not.
	Retry time.Duration
}

// An EventReader reads a stream of server-sent events as the WHATWG's HTML
// standard says. It is not safe for concurrent use.
type EventReader struct {
	r   io.Reader
	max int
	err error // of r, once it has given one

	buf      []byte
	from, to int // what is in buf and not yet read
	lf, cr   mark
	started  bool // the first bytes have been looked at for a byte order mark
	skipLF   bool // a line has ended in CR; an LF that follows belongs to it

	id    string
	retry time.Duration

	long bool   // the event is too long, and has not been read to its end
	data []byte // of its lines that have
}

// NewEventReader returns a reader of the events in r, whose data is at most
// maxEvent bytes each.
func NewEventReader(r io.Reader, maxEvent int) *EventReader {
	return &EventReader{r: r, max: maxEvent}
}

// LastID returns the id to send when one connects again. It can be newer than
// that of the last event: ids without data count too.
func (e *EventReader) LastID() string { return e.id }

// Retry returns how long the stream last asked to wait before one connects
// again; 0 where it did not.
func (e *EventReader) Retry() time.Duration { return e.retry }

// Next returns the next event that has data, which may be empty. An event that
// is not ended when the stream ends is dropped; then comes io.EOF, or the error
// of the reader below.
func (e *EventReader) Next() (Event, error) {
	var (
		kind  string
		data  []byte
		lines int
	)
	if e.long {
		return Event{}, ErrEventTooLong
	}
	for {
		line, err := e.line()
		if errors.Is(err, ErrEventTooLong) {
			e.long, e.data = true, data
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
				e.long, e.data = true, append(data, value...)
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

// Skip reads on to the end of the event for which Next has returned
// ErrEventTooLong. It gives the event's data to take, piece by piece, where line
// breaks may be missing; no piece is valid after that. It returns about how long
// the event is. One that is longer than most is not read on: that is
// ErrEventTooLong for good.
func (e *EventReader) Skip(take func(piece []byte), most int) (n int, err error) {
	const data = "data:"
	n = len(e.data)
	take(e.data)
	e.long, e.data = false, nil
	inData, inLine := false, false
	for n <= most {
		if !e.ready() {
			if err := e.fill(); err != nil {
				return n, err
			}
			continue
		}
		end := e.lineEnd()
		ended := end >= 0
		if !ended {
			end = e.to
		}
		piece := e.buf[e.from:end]
		switch {
		case inLine:
		case ended && len(piece) == 0:
			e.skipLF, e.from = e.buf[end] == '\r', end+1
			return n, nil
		case !ended && len(piece) < len(data): // too little to tell
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
		e.from, inLine = end, !ended
		if ended {
			e.skipLF, e.from = e.buf[end] == '\r', end+1
		}
	}
	return n, e.fail(ErrEventTooLong)
}

// parseRetry reads a number of milliseconds.
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
	e.err, e.from, e.to = err, 0, 0
	return err
}

// line returns the next line without its end. It is valid until the next call.
func (e *EventReader) line() ([]byte, error) {
	for {
		if e.ready() {
			end := e.lineEnd()
			found := end >= 0
			if !found {
				end = e.to
			}
			line := e.buf[e.from:end]
			if len(line) > e.max+eventLineSlack {
				return nil, ErrEventTooLong
			}
			if found {
				e.skipLF = e.buf[end] == '\r'
				e.from = end + 1
				return line, nil
			}
		}
		if err := e.fill(); err != nil {
			return nil, err
		}
	}
}

// ready passes over what does not belong to the next line, and reports false
// where that cannot be told yet. A line that ended in CR has been returned
// without waiting for the LF, which may never come.
func (e *EventReader) ready() bool {
	if !e.started {
		head := e.buf[e.from:min(e.to, len(byteOrderMark))]
		if len(head) < len(byteOrderMark) && strings.HasPrefix(byteOrderMark, string(head)) {
			return false
		}
		e.started = true
		if string(head) == byteOrderMark {
			e.from += len(byteOrderMark)
		}
	}
	if e.from == e.to {
		return false
	}
	if e.skipLF && e.buf[e.from] == '\n' {
		e.from++
	}
	e.skipLF = false
	return true
}

// A mark is where in the buffer a byte was found, so that no byte is searched
// twice for it: a stream of short lines would else cost the square of its
// length.
type mark struct {
	at   int // valid if it is not read yet
	upto int // all before this has been searched
}

// lineEnd returns where the next line ends in the buffer, or -1.
func (e *EventReader) lineEnd() int {
	lf, cr := e.find(&e.lf, '\n'), e.find(&e.cr, '\r')
	if lf < 0 || cr >= 0 && cr < lf {
		return cr
	}
	return lf
}

func (e *EventReader) find(m *mark, c byte) int {
	if m.at >= e.from && m.at < m.upto {
		return m.at
	}
	from := max(e.from, m.upto)
	m.at, m.upto = -1, e.to
	if i := bytes.IndexByte(e.buf[from:e.to], c); i >= 0 {
		m.at, m.upto = from+i, from+i+1
	}
	return m.at
}

// fill reads more into the buffer.
func (e *EventReader) fill() error {
	if e.err != nil {
		return e.err
	}
	if e.from > 0 {
		copy(e.buf, e.buf[e.from:e.to])
		for _, m := range [...]*mark{&e.lf, &e.cr} {
			m.at, m.upto = max(m.at-e.from, -1), max(m.upto-e.from, 0)
		}
		e.from, e.to = 0, e.to-e.from
	}
	switch {
	case e.to == 0 && len(e.buf) > keptEventBuffer:
		e.buf = make([]byte, eventBuffer) // the long event was an exception
	case e.to == len(e.buf):
		e.buf = append(e.buf, make([]byte, max(len(e.buf), eventBuffer))...)
	}
	for range maxEmptyReads {
		n, err := e.r.Read(e.buf[e.to:])
		e.to += n
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

// maxEmptyReads is how often a reader may give nothing and no error.
const maxEmptyReads = 100
