package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
)

// ErrLineTooLong reports a line longer than the limit. The next call skips the rest of the line.
var ErrLineTooLong = errors.New("line too long")

// A LineReader reads the lines of a stdio connection. It is not safe for concurrent use.
type LineReader struct {
	r        *bufio.Reader
	max      int
	skipping bool // the rest of a line that was too long is unread
}

const lineBufferBytes = 32 << 10

// NewLineReader returns a reader of the lines in r. A line has at most maxLine bytes without its end.
func NewLineReader(r io.Reader, maxLine int) *LineReader {
	return &LineReader{r: bufio.NewReaderSize(r, lineBufferBytes), max: maxLine}
}

// Next returns the next line without its LF or CRLF. The caller owns the line. Next returns ErrLineTooLong as soon as a
// line exceeds the limit, and the next call continues after that line. The last line may lack its end. After it, Next
// returns io.EOF, or the error of the underlying reader.
func (l *LineReader) Next() ([]byte, error) {
	for l.skipping {
		_, err := l.r.ReadSlice('\n')
		if l.skipping = errors.Is(err, bufio.ErrBufferFull); err != nil && !l.skipping {
			return nil, err
		}
	}
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		switch {
		case err == nil:
			line = bytes.TrimSuffix(appendPart(line, part[:len(part)-1]), []byte("\r"))
		case errors.Is(err, bufio.ErrBufferFull), errors.Is(err, io.EOF) && len(line)+len(part) > 0:
			line = appendPart(line, part)
		default:
			return nil, err
		}
		limit := l.max
		if l.skipping = errors.Is(err, bufio.ErrBufferFull); l.skipping {
			limit++ // the last byte may be the CR of a CRLF
		}
		switch {
		case len(line) > limit:
			return nil, ErrLineTooLong
		case !l.skipping:
			return line, nil
		}
	}
}

// appendPart appends part. When it must grow the line, it doubles the size, so that a long line is not copied again and
// again.
func appendPart(line, part []byte) []byte {
	if n := len(line); n > 0 && n+len(part) > cap(line) {
		line = slices.Grow(line, n+len(part))
	}
	return append(line, part...)
}
