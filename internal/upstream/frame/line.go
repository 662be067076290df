package frame

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// MaxMessage limits the bytes of one message, unless the server is configured otherwise.
const MaxMessage = 16 << 20

// MaxSkip limits how many bytes of a message that is too long are skipped. If a server writes more,
// its connection is closed. maxBytes is the limit of a message.
func MaxSkip(maxBytes int) int { return 2 * max(MaxMessage, maxBytes) }

// ErrEndlessLine is the error of a line of more than MaxSkip bytes.
var ErrEndlessLine = errors.New("it writes a line without end")

// A MessageReader reads lines of at most max bytes. It skips a longer line, and finds the id in it if
// the line is a response.
type MessageReader struct {
	r   *bufio.Reader
	max int
}

// NewMessageReader returns a reader of lines of at most limit bytes.
func NewMessageReader(r io.Reader, limit int) *MessageReader {
	return &MessageReader{r: bufio.NewReaderSize(r, 64<<10), max: limit}
}

// A Line is a line that was read. Text belongs to the caller; if it is long, it is at the
// start of Lent. For a line that is too long there is only its length and, if it is a response, its
// id.
type Line struct {
	Text    []byte
	Lent    Buffer
	Skipped int
	ID      []byte
}

// Next returns the next line, without its end. A last line without an end is ignored.
func (l *MessageReader) Next() (Line, error) {
	var lent Buffer
	n := 0 // bytes in lent
	for {
		part, err := l.r.ReadSlice('\n')
		ended := err == nil
		switch {
		case !ended && !errors.Is(err, bufio.ErrBufferFull):
			return Line{}, err
		case n+len(part) > l.max+1:
			defer lent.Release()
			return l.skip(ended, lent.Bytes[:n], part)
		case ended && n == 0 && len(part) <= MaxUnpooled:
			return Line{Text: bytes.Clone(part[:len(part)-1])}, nil
		}
		if n+len(part) > len(lent.Bytes) {
			bigger := Borrow(n + max(n, len(part)) + SpareRoom)
			copy(bigger.Bytes, lent.Bytes[:n])
			lent.Release()
			lent = bigger
		}
		n += copy(lent.Bytes[n:], part)
		if ended {
			return Line{Text: lent.Bytes[:n-1], Lent: lent}, nil
		}
	}
}

// skip reads to the end of a line that is already too long.
func (l *MessageReader) skip(ended bool, text ...[]byte) (Line, error) {
	s := IDScanner{}
	n := 0
	for _, part := range text {
		s.Feed(part)
		n += len(part)
	}
	for !ended {
		part, err := l.r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return Line{}, err
		}
		s.Feed(part)
		if n += len(part); n > MaxSkip(l.max) {
			return Line{Skipped: n, ID: s.ResponseID()}, ErrEndlessLine
		}
		ended = err == nil
	}
	return Line{Skipped: n, ID: s.ResponseID()}, nil
}

// An IDScanner scans a message that is not stored, piece by piece, for the id of the request that
// it answers. It assumes that the message is JSON. If it is not, the worst case is that a caller is
// told that its answer was too long, which is true.
type IDScanner struct {
	depth   int
	quoted  bool
	escape  bool
	inValue bool // expects the value of a member of the envelope
	text    []byte
	member  string // the last name in the envelope
	id      []byte
	method  bool
	invalid bool // the text is no object, so no message
}

// maxScanned limits the bytes of a name or an id that are stored.
const maxScanned = 64

// Feed scans the next piece of the message.
func (s *IDScanner) Feed(data []byte) {
	for i := 0; i < len(data) && !s.invalid; i++ {
		if s.quoted && !s.escape && (s.depth != 1 || len(s.text) >= maxScanned) {
			// This string is not stored: skip to its end, or to the next escape.
			n := bytes.IndexAny(data[i:], `"\`)
			if n < 0 {
				return
			}
			i += n
		}
		s.byte(data[i])
	}
}

func (s *IDScanner) byte(c byte) {
	if s.quoted {
		switch {
		case s.escape:
			s.escape = false
		case c == '\\':
			s.escape = true
		case c == '"':
			s.quoted = false
		}
		s.appendText(c)
		return
	}
	switch c {
	case '"':
		s.quoted = true
		if s.depth == 1 && !s.inValue {
			s.text = s.text[:0]
		}
		s.appendText(c)
	case '{', '[':
		s.depth++
		s.invalid = s.invalid || s.depth == 1 && c == '['
	case '}', ']':
		s.endMember()
		s.depth--
	case ':':
		if s.depth == 1 {
			s.member, s.inValue, s.text = string(s.text), true, s.text[:0]
		}
	case ',':
		s.endMember()
	case ' ', '\t', '\r', '\n':
	default:
		s.invalid = s.invalid || s.depth == 0
		s.appendText(c)
	}
}

// appendText stores c if it belongs to a name or a scalar of the envelope.
func (s *IDScanner) appendText(c byte) {
	if s.depth == 1 && len(s.text) < maxScanned {
		s.text = append(s.text, c)
	}
}

// endMember evaluates the member of the envelope that ends here, if one does.
func (s *IDScanner) endMember() {
	if s.depth != 1 || !s.inValue {
		return
	}
	switch s.member {
	case `"id"`:
		s.id = append([]byte(nil), s.text...)
	case `"method"`:
		s.method = true
	}
	s.inValue, s.text = false, s.text[:0]
}

// ResponseID returns the id of the response that was scanned, or nil.
func (s *IDScanner) ResponseID() []byte {
	if s.method || s.invalid {
		return nil
	}
	return s.id
}
