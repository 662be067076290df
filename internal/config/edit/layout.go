package edit

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/document"
)

// A layout is a text and its lines.
type layout struct {
	text   []byte
	starts []int // the offsets of the lines
}

func newLayout(text []byte) layout {
	l := layout{text, []int{0}}
	for i, c := range text {
		if c == '\n' {
			l.starts = append(l.starts, i+1)
		}
	}
	return l
}

var byteOrderMark = []byte("\ufeff")

// offset returns the offset of a position, or -1 if there is none.
func (l *layout) offset(line, column int) int {
	if line < 1 || line > len(l.starts) || column < 1 {
		return -1
	}
	at := l.starts[line-1]
	if line == 1 && bytes.HasPrefix(l.text, byteOrderMark) {
		at += len(byteOrderMark)
	}
	for rest := l.text[at:]; column > 1; column-- {
		if len(rest) == 0 || rest[0] == '\n' {
			return -1
		}
		_, n := utf8.DecodeRune(rest)
		at, rest = at+n, rest[n:]
	}
	return at
}

// lineOf returns the number of the line at an offset, from 1.
func (l *layout) lineOf(at int) int {
	i, found := slices.BinarySearch(l.starts, at)
	if found {
		return i + 1
	}
	return i
}

// skipSpace returns the offset of the first byte from at on that is neither space nor comment, or -1.
func (l *layout) skipSpace(at int) int {
	for at < len(l.text) {
		switch c := l.text[at]; {
		case c == '#':
			end := bytes.IndexByte(l.text[at:], '\n')
			if end < 0 {
				return -1
			}
			at += end
		case strings.IndexByte(" \t\r\n", c) >= 0:
			at++
		default:
			return at
		}
	}
	return -1
}

// lineEnd returns how the line that holds the offset ends: "\n" or "\r\n". If it is the last one, the line before
// it counts.
func (l *layout) lineEnd(at int) string {
	i := bytes.IndexByte(l.text[at:], '\n')
	if i < 0 {
		i = bytes.LastIndexByte(l.text, '\n') - at
	}
	if at+i > 0 && l.text[at+i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// line returns a line with its end; lines count from 1.
func (l *layout) line(n int) []byte { return l.text[l.lineStart(n):l.lineStart(n+1)] }

// blank reports whether a line exists and holds nothing.
func (l *layout) blank(n int) bool {
	return n >= 1 && l.lineStart(n) < len(l.text) && len(bytes.TrimSpace(l.line(n))) == 0
}

// lineStart returns the offset of a line, or the end of the text if there is no such line.
func (l *layout) lineStart(n int) int {
	if n > len(l.starts) {
		return len(l.text)
	}
	return l.starts[n-1]
}

// restOfLine returns the offset of the end of the line that holds i: of its line break, or of the text's end.
func (l *layout) restOfLine(i int) int {
	if n := bytes.IndexByte(l.text[i:], '\n'); n >= 0 {
		i += n
		if l.text[i-1] == '\r' {
			i--
		}
		return i
	}
	return len(l.text)
}

// lineOver reports whether nothing but spaces and a comment stands from i to the end of its line.
func (l *layout) lineOver(i int) bool {
	rest := bytes.TrimLeft(l.text[i:l.restOfLine(i)], " \t")
	return len(rest) == 0 || rest[0] == '#' && i < len(l.text) && len(rest) < len(l.text[i:l.restOfLine(i)])
}

// ownLine returns the spaces before the offset if only they stand before it on its line; ok is false otherwise.
func (l *layout) ownLine(at int) (indent string, ok bool) {
	start := bytes.LastIndexByte(l.text[:at], '\n') + 1
	indent = string(l.text[start:at])
	return indent, start > 0 && strings.Trim(indent, " \t") == ""
}

// byteAt returns the byte at an offset, or a line end behind the text.
func (l *layout) byteAt(i int) byte {
	if i < len(l.text) {
		return l.text[i]
	}
	return '\n'
}

// insertLines returns the splice that inserts whole lines. At the end of a text without a line end, the inserted text
// has none either.
func (l *layout) insertLines(at int, text string) splice {
	if at == len(l.text) && at > 0 && l.text[at-1] != '\n' {
		eol := l.lineEnd(at - 1)
		text = eol + strings.TrimSuffix(text, eol)
	}
	return splice{at, at, text}
}

// cutLines returns the splice that removes lines. If they end a text without a line end, the text has none afterwards.
func (l *layout) cutLines(cut lines) splice {
	c := splice{start: l.lineStart(cut.from), end: l.lineStart(cut.to + 1)}
	if c.end == len(l.text) && c.end > 0 && l.text[c.end-1] != '\n' {
		c.start = len(bytes.TrimSuffix(bytes.TrimSuffix(l.text[:c.start], []byte("\n")), []byte("\r")))
	}
	return c
}

// entryEnd returns the number of the last line of a key's value, before the line limit. A comment belongs to the value if
// its indentation is larger than that of the key.
func (l *layout) entryEnd(key document.Node, limit int) int {
	end := key.Line
	for n := key.Line + 1; n < limit; n++ {
		line := l.line(n)
		text := bytes.TrimLeft(line, " ")
		switch {
		case len(bytes.TrimSpace(text)) == 0:
			continue
		case text[0] == '#' && len(line)-len(text) < key.Column:
			return end
		}
		end = n
	}
	return end
}

// skipTop returns the offset of the first byte of the document, or -1.
func (l *layout) skipTop() int {
	at := 0
	if bytes.HasPrefix(l.text, byteOrderMark) {
		at = len(byteOrderMark)
	}
	at = l.skipSpace(at)
	if at >= 0 && bytes.HasPrefix(l.text[at:], []byte("---")) {
		at = l.skipSpace(at + len("---"))
	}
	return at
}

// flowAt reports whether a map in flow style begins at the offset.
func (l *layout) flowAt(at int) bool { return at >= 0 && at < len(l.text) && l.text[at] == '{' }

// wordAt returns the word at an offset, or "" for -1.
func (l *layout) wordAt(at int) string {
	if at < 0 {
		return ""
	}
	word, _, _ := strings.Cut(strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(string(l.text[at:min(len(l.text), at+8)])), " ")
	return word
}

// blockTop reports whether the document is a map in block style.
func (l *layout) blockTop() bool { return !l.flowAt(l.skipTop()) }
