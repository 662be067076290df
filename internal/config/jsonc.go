package config

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of a JSON file of another program, which holds more than servers.
const (
	MaxJSONBytes = 8 << 20
	maxJSONDepth = 64
)

// readJSON reads one value of JSON with comments and trailing commas, as
// editors keep it. ok is false, and the fault said, where there is none.
func readJSON(name string, data []byte, s *sink) (v value, ok bool) {
	v = value{file: name, sink: s}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	plain, at, why := standard(data)
	if why != "" {
		line, col := position(data, at)
		s.add(Fault{File: name, Line: line, Column: col, Text: why})
		return v, false
	}
	r := &jsonReader{data: data, dec: jsontext.NewDecoder(bytes.NewReader(plain)), line: 1, col: 1}
	n, err := r.value(0)
	if err == nil && len(bytes.TrimSpace(plain[r.dec.InputOffset():])) > 0 {
		line, col := position(data, int(r.dec.InputOffset()))
		s.add(Fault{File: name, Line: line, Column: col, Text: "something follows the JSON value; a file holds one"})
		return v, false
	}
	if err != nil {
		line, col := position(data, jsonOffset(err, r.dec))
		why := jsonWhy(err)
		if errors.Is(err, errTooDeep) {
			why = err.Error()
		}
		s.add(Fault{File: name, Line: line, Column: col, Text: why})
		return v, false
	}
	v.node = n
	return v, true
}

// standard returns data with comments and trailing commas blanked out, so that
// every offset stays what it was.
func standard(data []byte) (out []byte, at int, why string) {
	out = bytes.Clone(data)
	comma := -1 // the last comma, if nothing but space followed it
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == '"':
			comma = -1
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
		case c == '/' && i+1 < len(out) && out[i+1] == '/':
			for ; i < len(out) && out[i] != '\n'; i++ {
				out[i] = ' '
			}
		case c == '/' && i+1 < len(out) && out[i+1] == '*':
			end := bytes.Index(out[i+2:], []byte("*/"))
			if end < 0 {
				return nil, i, "the comment is not closed"
			}
			for j := i; j < i+2+end+2; j++ {
				if out[j] != '\n' {
					out[j] = ' '
				}
			}
			i += 2 + end + 1
		case c == ',':
			comma = i
		case c == ']' || c == '}':
			// "[,]" stays what it is: no value stands before that comma.
			if comma > 0 && !strings.ContainsRune("[{,:", rune(before(out, comma))) {
				out[comma] = ' '
			}
			comma = -1
		case c == ' ', c == '\t', c == '\n', c == '\r':
		default:
			comma = -1
		}
	}
	return out, 0, ""
}

// before returns the last byte before i that is no space, or 0.
func before(data []byte, i int) byte {
	for i--; i >= 0; i-- {
		if c := data[i]; c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

var errTooDeep = errors.New("objects and lists stand within each other too deep")

// jsonReader makes nodes of a stream of tokens.
type jsonReader struct {
	data []byte
	dec  *jsontext.Decoder

	// The place of offset, which only ever moves on.
	offset, line, col int
}

func (r *jsonReader) value(depth int) (node, error) {
	if depth > maxJSONDepth {
		return node{}, errTooDeep
	}
	switch r.dec.PeekKind() {
	case '{':
		n := node{kind: mapKind}
		if err := r.bracket(&n); err != nil {
			return node{}, err
		}
		for r.dec.PeekKind() != '}' {
			key, err := r.value(depth + 1)
			if err != nil {
				return node{}, err
			}
			val, err := r.value(depth + 1)
			if err != nil {
				return node{}, err
			}
			n.pairs = append(n.pairs, pair{key, val})
		}
		_, err := r.dec.ReadToken()
		return n, err
	case '[':
		n := node{kind: listKind}
		if err := r.bracket(&n); err != nil {
			return node{}, err
		}
		for r.dec.PeekKind() != ']' {
			item, err := r.value(depth + 1)
			if err != nil {
				return node{}, err
			}
			n.items = append(n.items, item)
		}
		_, err := r.dec.ReadToken()
		return n, err
	}
	return r.scalar()
}

// bracket reads the token that opens a container.
func (r *jsonReader) bracket(n *node) error {
	if _, err := r.dec.ReadToken(); err != nil {
		return err
	}
	r.moveTo(int(r.dec.InputOffset()) - 1)
	n.line, n.col = r.line, r.col
	return nil
}

func (r *jsonReader) scalar() (node, error) {
	raw, err := r.dec.ReadValue()
	if err != nil {
		return node{}, err
	}
	r.moveTo(int(r.dec.InputOffset()) - len(raw))
	n := node{text: string(raw), quoted: true, line: r.line, col: r.col}
	switch raw.Kind() {
	case '"':
		n.kind = textKind
		text, err := jsontext.AppendUnquote(nil, raw)
		n.text = string(text)
		return n, err
	case '0':
		n.kind = floatKind
		if !strings.ContainsAny(n.text, ".eE") {
			n.kind = intKind
		}
	case 't', 'f':
		n.kind = boolKind
	default:
		n.kind = nullKind
	}
	return n, nil
}

// moveTo makes line and col those of offset.
func (r *jsonReader) moveTo(offset int) {
	for ; r.offset < offset && r.offset < len(r.data); r.offset++ {
		switch c := r.data[r.offset]; {
		case c == '\n':
			r.line, r.col = r.line+1, 1
		case c&0xc0 != 0x80:
			r.col++
		}
	}
}
