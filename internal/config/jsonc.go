package config

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of another program's JSON file, which holds more than servers.
const (
	MaxJSONBytes = 8 << 20
	maxJSONDepth = 64
)

// readJSON reads one JSON value with comments and trailing commas, as editors write it. ok is false if
// there is none; the fault is then recorded.
func readJSON(name string, data []byte, s *sink) (v value, ok bool) {
	v = value{file: name, sink: s}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	plain, at, why := blankComments(data)
	if why != "" {
		line, col := position(data, at)
		s.addFault(Fault{File: name, Line: line, Column: col, Text: why})
		return v, false
	}
	r := &jsonReader{data: data, dec: jsontext.NewDecoder(bytes.NewReader(plain)), line: 1, col: 1}
	n, err := r.readValue(0)
	if err == nil && len(bytes.TrimSpace(plain[r.dec.InputOffset():])) > 0 {
		line, col := position(data, int(r.dec.InputOffset()))
		s.addFault(Fault{File: name, Line: line, Column: col, Text: "something follows the JSON value; a file holds one"})
		return v, false
	}
	if err != nil {
		line, col := position(data, jsonOffset(err, r.dec))
		why := jsonErrorText(err)
		if errors.Is(err, errTooDeep) {
			why = err.Error()
		}
		s.addFault(Fault{File: name, Line: line, Column: col, Text: why})
		return v, false
	}
	v.syntaxNode = n
	return v, true
}

// blankComments replaces comments and trailing commas by spaces, so that every offset stays the same.
func blankComments(data []byte) (out []byte, at int, why string) {
	out = bytes.Clone(data)
	comma := -1 // the last comma, if only space followed it
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
			// "[,]" is not changed: no value precedes that comma.
			if comma > 0 && !strings.ContainsRune("[{,:", rune(byteBefore(out, comma))) {
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

// byteBefore returns the last byte before i that is not space, or 0.
func byteBefore(data []byte, i int) byte {
	for i--; i >= 0; i-- {
		if c := data[i]; c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

var errTooDeep = errors.New("objects and lists stand within each other too deep")

// jsonReader converts a stream of tokens to syntaxNodes.
type jsonReader struct {
	data []byte
	dec  *jsontext.Decoder

	// The position of offset, which only increases.
	offset, line, col int
}

func (r *jsonReader) readValue(depth int) (syntaxNode, error) {
	if depth > maxJSONDepth {
		return syntaxNode{}, errTooDeep
	}
	switch r.dec.PeekKind() {
	case '{':
		n := syntaxNode{kind: mapKind}
		if err := r.readOpening(&n); err != nil {
			return syntaxNode{}, err
		}
		for r.dec.PeekKind() != '}' {
			key, err := r.readValue(depth + 1)
			if err != nil {
				return syntaxNode{}, err
			}
			val, err := r.readValue(depth + 1)
			if err != nil {
				return syntaxNode{}, err
			}
			n.pairs = append(n.pairs, pair{key, val})
		}
		_, err := r.dec.ReadToken()
		return n, err
	case '[':
		n := syntaxNode{kind: listKind}
		if err := r.readOpening(&n); err != nil {
			return syntaxNode{}, err
		}
		for r.dec.PeekKind() != ']' {
			item, err := r.readValue(depth + 1)
			if err != nil {
				return syntaxNode{}, err
			}
			n.items = append(n.items, item)
		}
		_, err := r.dec.ReadToken()
		return n, err
	}
	return r.readScalar()
}

// readOpening reads the token that opens an object or list.
func (r *jsonReader) readOpening(n *syntaxNode) error {
	if _, err := r.dec.ReadToken(); err != nil {
		return err
	}
	r.moveTo(int(r.dec.InputOffset()) - 1)
	n.line, n.col = r.line, r.col
	return nil
}

func (r *jsonReader) readScalar() (syntaxNode, error) {
	raw, err := r.dec.ReadValue()
	if err != nil {
		return syntaxNode{}, err
	}
	r.moveTo(int(r.dec.InputOffset()) - len(raw))
	n := syntaxNode{text: string(raw), quoted: true, line: r.line, col: r.col}
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

// moveTo advances line and col to offset.
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
