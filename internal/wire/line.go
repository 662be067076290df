package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
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
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		l.long = err != nil
	}
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !full {
			if len(line)+len(part) == 0 || !errors.Is(err, io.EOF) {
				return nil, err
			}
		}
		ended := err == nil
		if ended {
			part = bytes.TrimSuffix(part[:len(part)-1], []byte("\r"))
		}
		if len(line)+len(part) > l.max {
			l.long = full
			return nil, ErrLineTooLong
		}
		line = append(line, part...)
		if !full {
			return line, nil
		}
	}
}
