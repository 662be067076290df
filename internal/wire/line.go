package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
)

// ErrLineTooLong reports a line beyond the limit. The rest of it is passed over.
var ErrLineTooLong = errors.New("line too long")

// A LineReader reads the lines of a stdio connection. It is not safe for
// concurrent use.
type LineReader struct {
	r    *bufio.Reader
	max  int
	long bool // in the middle of a line that was too long
}

const lineBuffer = 32 << 10

// NewLineReader returns a reader of r's lines of at most maxLine bytes, not
// counting their end.
func NewLineReader(r io.Reader, maxLine int) *LineReader {
	return &LineReader{r: bufio.NewReaderSize(r, lineBuffer), max: maxLine}
}

// Next returns the next line without its LF or CRLF; it is the caller's to keep.
// A line that is too long is ErrLineTooLong as soon as that is known, and the
// next call goes on behind its end. The last line need not be ended. After it
// comes io.EOF, or the error of the reader below.
func (l *LineReader) Next() ([]byte, error) {
	for l.long {
		_, err := l.r.ReadSlice('\n')
		if l.long = errors.Is(err, bufio.ErrBufferFull); err != nil && !l.long {
			return nil, err
		}
	}
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		switch {
		case err == nil:
			line = bytes.TrimSuffix(join(line, part[:len(part)-1]), []byte("\r"))
		case errors.Is(err, bufio.ErrBufferFull), errors.Is(err, io.EOF) && len(line)+len(part) > 0:
			line = join(line, part)
		default:
			return nil, err
		}
		limit := l.max
		if l.long = errors.Is(err, bufio.ErrBufferFull); l.long {
			limit++ // for what may be the CR of a CRLF
		}
		switch {
		case len(line) > limit:
			return nil, ErrLineTooLong
		case !l.long:
			return line, nil
		}
	}
}

// join appends part, making room for twice as much where it has to, so that a
// long line is not copied again and again.
func join(line, part []byte) []byte {
	if n := len(line); n > 0 && n+len(part) > cap(line) {
		line = slices.Grow(line, n+len(part))
	}
	return append(line, part...)
}
