package wire

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"strings"
	"unicode/utf8"
)

// A span is a name, without its quotes, in the scanned text.
type span struct {
	start, end uint32
	escaped    bool
}

// A place is where an object stands: some names are ours to watch there.
type place uint8

const (
	elsewhere place = iota
	inEnvelope
	inParams
	inMeta
)

// A scanner reads a text in full. A flaw of the grammar ends the scan; of what
// is only not accepted, the first is kept and the scan goes on, so that the
// message's id is still found.
type scanner struct {
	data  []byte
	names []span   // of the objects that are open, outermost first
	table []uint32 // scratch of unique

	index index

	refused   string // the first reason not to accept what is JSON
	refusedAt int
}

// Strict reports whether data is one JSON value, and nothing else that a lenient reader
// could read in another way: see Parse.
func Strict(data []byte) bool {
	s := scanner{data: data}
	end, f := s.value(skipSpace(data, 0), 0, elsewhere)
	return f == 0 && s.refused == "" && skipSpace(data, end) == len(data) && utf8.Valid(data)
}

// refuse keeps the first reason.
func (s *scanner) refuse(at int, format string, args ...any) {
	if s.refused == "" {
		s.refused, s.refusedAt = fmt.Sprintf(format, args...), at
	}
}

// value returns the offset behind the value that starts at i, which stands
// depth levels deep.
func (s *scanner) value(i, depth int, where place) (int, flaw) {
	if i >= len(s.data) {
		return i, flawEnd
	}
	switch c := s.data[i]; {
	case c != '{' && c != '[':
		return skipScalar(s.data, i, true)
	case depth >= MaxDepth:
		return i, flawDepth
	case c == '{':
		return s.object(i, depth+1, where)
	}
	return s.array(i, depth+1)
}

func (s *scanner) array(i, depth int) (int, flaw) {
	if i = skipSpace(s.data, i+1); i < len(s.data) && s.data[i] == ']' {
		return i + 1, 0
	}
	for {
		var f flaw
		if i, f = s.value(i, depth, elsewhere); f != 0 {
			return i, f
		}
		var last bool
		if i, last, f = next(s.data, i, ']'); last || f != 0 {
			return i, f
		}
	}
}

func (s *scanner) object(i, depth int, where place) (int, flaw) {
	if i = skipSpace(s.data, i+1); i < len(s.data) && s.data[i] == '}' {
		return i + 1, 0
	}
	first := len(s.names)
	for {
		val, name, f := s.name(i)
		if f != 0 {
			return val, f
		}
		s.names = append(s.names, name)
		inner := elsewhere
		if where != elsewhere {
			inner = s.watch(name, where)
		}
		if i, f = s.value(val, depth, inner); f != 0 {
			return i, f
		}
		if where != elsewhere {
			s.index.note(where, name, val, i)
		}
		var last bool
		if i, last, f = next(s.data, i, '}'); f != 0 {
			return i, f
		}
		if last {
			s.unique(s.names[first:])
			s.names = s.names[:first]
			return i, 0
		}
	}
}

// name reads the name at i, and returns the offset of its value.
func (s *scanner) name(i int) (int, span, flaw) {
	val, end, escaped, f := skipName(s.data, i, true)
	if f != 0 {
		return val, span{}, f
	}
	return val, span{uint32(i + 1), uint32(end - 1), escaped}, 0
}

// next goes from behind an element to the next one, or behind the closer.
func next(data []byte, i int, closer byte) (end int, last bool, f flaw) {
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

// watch refuses a name that a lenient reader could take for another, or that
// has to be unescaped to be one of ours, and says where the object under it
// stands.
func (s *scanner) watch(name span, where place) place {
	raw := s.data[name.start:name.end]
	if !name.escaped {
		switch string(raw) {
		case "jsonrpc", "id", "method", "params", "name", "arguments", "progressToken": // most names there are
			return elsewhere
		}
		s.imitation(name, raw, where)
	} else if text := unescape(nil, raw); !s.imitation(name, text, where) {
		if own, ok := watchedNames[where][strings.ToLower(string(text))]; ok {
			s.refuse(int(name.start), "the name %q is spelt with escapes", own)
		}
	}
	if where == inParams && string(raw) == "_meta" {
		return inMeta
	}
	return elsewhere
}

// imitation refuses a name, unescaped as text, that a lenient reader could take
// for another, and reports whether it is one.
func (s *scanner) imitation(name span, text []byte, where place) bool {
	like, found := lookalike(text, where)
	if found {
		s.refuse(int(name.start), "the name %+.60q could be taken for %q", string(text), like)
	}
	return found
}

// manyNames is from how many names on an object's are hashed to find equals.
const manyNames = 17

var hashSeed = maphash.MakeSeed()

// unique refuses when two of an object's names are equal once unescaped.
func (s *scanner) unique(names []span) {
	if s.refused != "" {
		return
	}
	if len(names) < manyNames {
		for i, a := range names {
			for _, b := range names[:i] {
				if (a.end-a.start == b.end-b.start || a.escaped || b.escaped) && s.same(a, b) {
					s.duplicate(a)
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
			if s.same(a, names[table[slot]-1]) {
				s.duplicate(a)
				return
			}
		}
		table[slot] = uint32(i + 1)
	}
}

func (s *scanner) duplicate(name span) {
	s.refuse(int(name.start), "the name %+.60q stands twice in one object", string(unescape(nil, s.data[name.start:name.end])))
}

// same reports whether two names are equal once unescaped.
func (s *scanner) same(a, b span) bool {
	x, y := s.data[a.start:a.end], s.data[b.start:b.end]
	if !a.escaped && !b.escaped {
		return bytes.Equal(x, y)
	}
	var p, q [64]byte
	return bytes.Equal(unescape(p[:0], x), unescape(q[:0], y))
}
