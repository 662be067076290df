package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxSkipped is how long a message that is too long may be at least for us to wait
// for its end; see link.skipped.
const maxSkipped = 2 * maxMessage

var errEndless = errors.New("it writes a line without end")

// A lineReader reads lines of at most max bytes. Of a longer one it keeps
// nothing, but says whose answer it was.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), max: limit}
}

// A line is what was read: text, which is the caller's own and, where it is long,
// stands at the start of lent; or for a line that is too long its length, and the
// id in it where it was an answer.
type line struct {
	text []byte
	lent loan
	long int
	id   []byte
}

// next returns the next line, without its end. A last line that does not end
// is no line.
func (l *lineReader) next() (line, error) {
	var lent loan
	n := 0 // of lent
	for {
		part, err := l.r.ReadSlice('\n')
		ended := err == nil
		switch {
		case !ended && !errors.Is(err, bufio.ErrBufferFull):
			return line{}, err
		case n+len(part) > l.max+1:
			defer lent.repay()
			return l.skip(ended, lent.room[:n], part)
		case ended && n == 0 && len(part) <= unlent:
			return line{text: bytes.Clone(part[:len(part)-1])}, nil
		}
		if n+len(part) > len(lent.room) {
			bigger := borrow(n + max(n, len(part)) + spare)
			copy(bigger.room, lent.room[:n])
			lent.repay()
			lent = bigger
		}
		n += copy(lent.room[n:], part)
		if ended {
			return line{text: lent.room[:n-1], lent: lent}, nil
		}
	}
}

// skip reads on to the end of a line that is too long already.
func (l *lineReader) skip(ended bool, text ...[]byte) (line, error) {
	s := skim{}
	n := 0
	for _, part := range text {
		s.feed(part)
		n += len(part)
	}
	for !ended {
		part, err := l.r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return line{}, err
		}
		s.feed(part)
		if n += len(part); n > max(maxSkipped, 2*l.max) {
			return line{long: n, id: s.answered()}, errEndless
		}
		ended = err == nil
	}
	return line{long: n, id: s.answered()}, nil
}

// A skim reads a message that nobody keeps, piece by piece, to learn which
// request it answers. It trusts that the message is JSON: one that is not is
// nobody's answer in the worst case, or tells a caller that its answer was too
// long, which is no lie.
type skim struct {
	depth  int
	quoted bool
	escape bool
	value  bool // the value of a member of the envelope is due
	text   []byte
	member string // the last name read in the envelope
	id     []byte
	method bool
	lost   bool // it is no object, and so no message
}

// maxSkim is how much of a name or an id is of interest.
const maxSkim = 64

func (s *skim) feed(data []byte) {
	for i := 0; i < len(data) && !s.lost; i++ {
		if s.quoted && !s.escape && (s.depth != 1 || len(s.text) >= maxSkim) {
			// Nothing of this string is kept: on to its end, or the next escape.
			n := bytes.IndexAny(data[i:], `"\`)
			if n < 0 {
				return
			}
			i += n
		}
		s.byte(data[i])
	}
}

func (s *skim) byte(c byte) {
	if s.quoted {
		switch {
		case s.escape:
			s.escape = false
		case c == '\\':
			s.escape = true
		case c == '"':
			s.quoted = false
		}
		s.keep(c)
		return
	}
	switch c {
	case '"':
		s.quoted = true
		if s.depth == 1 && !s.value {
			s.text = s.text[:0]
		}
		s.keep(c)
	case '{', '[':
		s.depth++
		s.lost = s.lost || s.depth == 1 && c == '['
	case '}', ']':
		s.end()
		s.depth--
	case ':':
		if s.depth == 1 {
			s.member, s.value, s.text = string(s.text), true, s.text[:0]
		}
	case ',':
		s.end()
	case ' ', '\t', '\r', '\n':
	default:
		s.lost = s.lost || s.depth == 0
		s.keep(c)
	}
}

// keep remembers c where it is part of a name or a scalar of the envelope.
func (s *skim) keep(c byte) {
	if s.depth == 1 && len(s.text) < maxSkim {
		s.text = append(s.text, c)
	}
}

// end notes the member of the envelope that ends here, if one does.
func (s *skim) end() {
	if s.depth != 1 || !s.value {
		return
	}
	switch s.member {
	case `"id"`:
		s.id = append([]byte(nil), s.text...)
	case `"method"`:
		s.method = true
	}
	s.value, s.text = false, s.text[:0]
}

// answered returns the id of the answer that was read, or nil.
func (s *skim) answered() []byte {
	if s.method || s.lost {
		return nil
	}
	return s.id
}
