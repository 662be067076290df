package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxSkipped is the smallest limit for skipping a message that is too long; see link.maxSkip.
const maxSkipped = 2 * maxMessage

var errEndlessLine = errors.New("it writes a line without end")

// A lineReader reads lines of at most max bytes. It skips a longer line, and finds the id in it if
// the line is a response.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), max: limit}
}

// A messageLine is a line that was read. text belongs to the caller; if it is long, it is at the
// start of lent. For a line that is too long there is only its length and, if it is a response, its
// id.
type messageLine struct {
	text []byte
	lent lentBuffer
	long int
	id   []byte
}

// next returns the next line, without its end. A last line without an end is ignored.
func (l *lineReader) next() (messageLine, error) {
	var lent lentBuffer
	n := 0 // bytes in lent
	for {
		part, err := l.r.ReadSlice('\n')
		ended := err == nil
		switch {
		case !ended && !errors.Is(err, bufio.ErrBufferFull):
			return messageLine{}, err
		case n+len(part) > l.max+1:
			defer lent.release()
			return l.skip(ended, lent.bytes[:n], part)
		case ended && n == 0 && len(part) <= maxUnpooled:
			return messageLine{text: bytes.Clone(part[:len(part)-1])}, nil
		}
		if n+len(part) > len(lent.bytes) {
			bigger := borrowBuffer(n + max(n, len(part)) + spareRoom)
			copy(bigger.bytes, lent.bytes[:n])
			lent.release()
			lent = bigger
		}
		n += copy(lent.bytes[n:], part)
		if ended {
			return messageLine{text: lent.bytes[:n-1], lent: lent}, nil
		}
	}
}

// skip reads to the end of a line that is already too long.
func (l *lineReader) skip(ended bool, text ...[]byte) (messageLine, error) {
	s := idScanner{}
	n := 0
	for _, part := range text {
		s.feed(part)
		n += len(part)
	}
	for !ended {
		part, err := l.r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return messageLine{}, err
		}
		s.feed(part)
		if n += len(part); n > max(maxSkipped, 2*l.max) {
			return messageLine{long: n, id: s.responseID()}, errEndlessLine
		}
		ended = err == nil
	}
	return messageLine{long: n, id: s.responseID()}, nil
}

// An idScanner scans a message that is not stored, piece by piece, for the id of the request that
// it answers. It assumes that the message is JSON. If it is not, the worst case is that a caller is
// told that its answer was too long, which is true.
type idScanner struct {
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

func (s *idScanner) feed(data []byte) {
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

func (s *idScanner) byte(c byte) {
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
func (s *idScanner) appendText(c byte) {
	if s.depth == 1 && len(s.text) < maxScanned {
		s.text = append(s.text, c)
	}
}

// endMember evaluates the member of the envelope that ends here, if one does.
func (s *idScanner) endMember() {
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

// responseID returns the id of the response that was scanned, or nil.
func (s *idScanner) responseID() []byte {
	if s.method || s.invalid {
		return nil
	}
	return s.id
}
