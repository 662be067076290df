package wire

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"strings"
	"unicode/utf8"
)

// A nameSpan is the position of a name, without its quotes, in the scanned text.
type nameSpan struct {
	start, end uint32
	escaped    bool
}

// An objectRole says which object of a message a member belongs to, because in some objects names are watched.
type objectRole uint8

const (
	unwatched objectRole = iota
	inEnvelope
	inParams
	inMeta
)

// A strictScanner reads a text completely. An error of the grammar ends the scan. For anything else that is not accepted, the
// scanner records the first reason and continues, so that it still finds the message's id.
type strictScanner struct {
	data  []byte
	names []nameSpan // the names of the open objects, outermost first
	table []uint32   // used by unique

	index memberIndex

	refusal       string // the first reason to refuse valid JSON
	refusalOffset int
}

// Strict reports whether data is one JSON value that no lenient reader could read in another way: see Parse.
func Strict(data []byte) bool {
	s := strictScanner{data: data}
	end, f := s.scanValue(skipSpace(data, 0), 0, unwatched)
	return f == 0 && s.refusal == "" && skipSpace(data, end) == len(data) && utf8.Valid(data)
}

// refuse records the reason, unless there is one already.
func (s *strictScanner) refuse(at int, format string, args ...any) {
	if s.refusal == "" {
		s.refusal, s.refusalOffset = fmt.Sprintf(format, args...), at
	}
}

// scanValue returns the offset after the value that starts at i and is nested depth levels deep.
func (s *strictScanner) scanValue(i, depth int, where objectRole) (int, flaw) {
	if i >= len(s.data) {
		return i, flawEnd
	}
	switch c := s.data[i]; {
	case c != '{' && c != '[':
		return skipScalar(s.data, i, true)
	case depth >= MaxDepth:
		return i, flawDepth
	case c == '{':
		return s.scanObject(i, depth+1, where)
	}
	return s.scanArray(i, depth+1)
}

func (s *strictScanner) scanArray(i, depth int) (int, flaw) {
	if i = skipSpace(s.data, i+1); i < len(s.data) && s.data[i] == ']' {
		return i + 1, 0
	}
	for {
		var f flaw
		if i, f = s.scanValue(i, depth, unwatched); f != 0 {
			return i, f
		}
		var last bool
		if i, last, f = nextElement(s.data, i, ']'); last || f != 0 {
			return i, f
		}
	}
}

func (s *strictScanner) scanObject(i, depth int, where objectRole) (int, flaw) {
	if i = skipSpace(s.data, i+1); i < len(s.data) && s.data[i] == '}' {
		return i + 1, 0
	}
	first := len(s.names)
	for {
		val, name, f := s.readName(i)
		if f != 0 {
			return val, f
		}
		s.names = append(s.names, name)
		inner := unwatched
		if where != unwatched {
			inner = s.checkWatchedName(name, where)
		}
		if i, f = s.scanValue(val, depth, inner); f != 0 {
			return i, f
		}
		if where != unwatched {
			s.index.record(where, name, val, i)
		}
		var last bool
		if i, last, f = nextElement(s.data, i, '}'); f != 0 {
			return i, f
		}
		if last {
			s.refuseDuplicates(s.names[first:])
			s.names = s.names[:first]
			return i, 0
		}
	}
}

// readName reads the name at i, and returns the offset of its value.
func (s *strictScanner) readName(i int) (int, nameSpan, flaw) {
	val, end, escaped, f := skipName(s.data, i, true)
	if f != 0 {
		return val, nameSpan{}, f
	}
	return val, nameSpan{uint32(i + 1), uint32(end - 1), escaped}, 0
}

// nextElement moves from the end of an element to the start of the next one, or to the end of the closing bracket.
func nextElement(data []byte, i int, closer byte) (end int, last bool, f flaw) {
	i = skipSpace(data, i)
	switch {
	case i >= len(data):
		return i, false, flawEnd
	case data[i] == ',':
		return skipSpace(data, i+1), false, 0
	case data[i] == closer:
		return i + 1, true, 0
	}
	return i, false, flawComma
}

// checkWatchedName refuses a name that a lenient reader could take for another name, and a watched name spelt with escapes. It
// returns the role of the object under this name.
func (s *strictScanner) checkWatchedName(name nameSpan, where objectRole) objectRole {
	raw := s.data[name.start:name.end]
	if !name.escaped {
		switch string(raw) {
		case "jsonrpc", "id", "method", "params", "name", "arguments", "progressToken": // the most frequent names
			return unwatched
		}
		s.refuseImitation(name, raw, where)
	} else if text := unescape(nil, raw); !s.refuseImitation(name, text, where) {
		if own, ok := watchedNames[where][strings.ToLower(string(text))]; ok {
			s.refuse(int(name.start), "the name %q is spelt with escapes", own)
		}
	}
	if where == inParams && string(raw) == "_meta" {
		return inMeta
	}
	return unwatched
}

// refuseImitation refuses a name that a lenient reader could take for another name, and reports whether it did. text is the
// unescaped name.
func (s *strictScanner) refuseImitation(name nameSpan, text []byte, where objectRole) bool {
	like, found := lookalike(text, where)
	if found {
		s.refuse(int(name.start), "the name %+.60q could be taken for %q", string(text), like)
	}
	return found
}

// hashThreshold is the number of names from which an object's names are hashed to find duplicates.
const hashThreshold = 17

var hashSeed = maphash.MakeSeed()

// refuseDuplicates refuses the text if two of the names are equal once unescaped.
func (s *strictScanner) refuseDuplicates(names []nameSpan) {
	if s.refusal != "" {
		return
	}
	if len(names) < hashThreshold {
		for i, a := range names {
			for _, b := range names[:i] {
				if (a.end-a.start == b.end-b.start || a.escaped || b.escaped) && s.equalNames(a, b) {
					s.refuseDuplicate(a)
					return
				}
			}
		}
		return
	}
	size := 64
	for size < 2*len(names) {
		size *= 2
	}
	if cap(s.table) < size {
		s.table = make([]uint32, size)
	}
	table := s.table[:size]
	clear(table)
	var scratch [64]byte
	for i, a := range names {
		text := s.data[a.start:a.end]
		if a.escaped {
			text = unescape(scratch[:0], text)
		}
		slot := int(maphash.Bytes(hashSeed, text)) & (size - 1)
		for ; table[slot] != 0; slot = (slot + 1) & (size - 1) {
			if s.equalNames(a, names[table[slot]-1]) {
				s.refuseDuplicate(a)
				return
			}
		}
		table[slot] = uint32(i + 1)
	}
}

func (s *strictScanner) refuseDuplicate(name nameSpan) {
	s.refuse(int(name.start), "the name %+.60q stands twice in one object", string(unescape(nil, s.data[name.start:name.end])))
}

// equalNames reports whether two names are equal once unescaped.
func (s *strictScanner) equalNames(a, b nameSpan) bool {
	x, y := s.data[a.start:a.end], s.data[b.start:b.end]
	if !a.escaped && !b.escaped {
		return bytes.Equal(x, y)
	}
	var p, q [64]byte
	return bytes.Equal(unescape(p[:0], x), unescape(q[:0], y))
}
