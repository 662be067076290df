package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits of everything that this package parses. A real definition needs at most depth 25, 3,151 values, and 597
// elements in one value.
const (
	MaxDepth   = wire.MaxDepth - 3 // nesting of objects and lists, the outermost included; a list of tools adds three levels
	MaxMembers = 2_048             // members of one object, elements of one list, in a definition
	MaxValues  = 8_192             // values in one definition
)

// limits limit the number of values in one text.
type limits struct{ values, members int }

var (
	definitionLimits = limits{MaxValues, MaxMembers}
	// A manifest or a handshake may mention every tool of a server.
	manifestLimits = limits{64 * MaxTools, MaxTools}
)

// A tree is a strictly parsed JSON text: one value, no duplicate names at any depth, valid UTF-8. Its nodes are in one
// slice, in the order of the text; node 0 is the outermost value. The slice is reused for the next text.
type tree struct {
	nodes []jsonNode
	limits
	src []byte
	dec *jsontext.Decoder
}

type jsonNode struct {
	kind jsontext.Kind // one of n f t " 0 { [
	name []byte        // the unescaped name, if it is a member of an object
	raw  []byte        // the spelling of a string or number

	// Indexes. 0 means none, because the outermost value is not a child.
	first, next int32
}

// none is the index of a missing node.
const none int32 = 0

var (
	errTooDeep  = fmt.Errorf("more than %d objects and lists within each other", MaxDepth)
	errTrailing = errors.New("something follows the value")
)

// parse parses src into t. The nodes share the memory of src.
func (t *tree) parse(src []byte, l limits) *problem {
	t.nodes, t.src, t.limits = t.nodes[:0], src, l
	// A bytes.Buffer is read in place, without a copy.
	buf := bytes.NewBuffer(src)
	if t.dec == nil {
		t.dec = jsontext.NewDecoder(buf)
	} else {
		t.dec.Reset(buf)
	}
	_, err := t.parseValue(1)
	if err == nil {
		if _, more := t.dec.ReadToken(); !errors.Is(more, io.EOF) {
			err = errTrailing
		}
	}
	if err != nil {
		return syntaxProblem(err)
	}
	return nil
}

// syntaxProblem returns the decoder's error in our words.
func syntaxProblem(err error) *problem {
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return problemf("", "cannot be read: %v", err)
	}
	at := ""
	if s.JSONPointer != "" {
		at = " at " + safeQuote(string(s.JSONPointer))
	}
	return problemf("", "is not strict JSON: %v%s, offset %d", s.Err, at, s.ByteOffset)
}

// parseValue parses one value and everything in it, at the given depth, and returns its node.
func (t *tree) parseValue(depth int) (int32, error) {
	kind := t.dec.PeekKind()
	at := int32(len(t.nodes))
	if len(t.nodes) == t.values {
		return at, fmt.Errorf("more than %d values", t.values)
	}
	t.nodes = append(t.nodes, jsonNode{kind: kind})
	if kind != '{' && kind != '[' {
		raw, err := t.parseScalar()
		t.nodes[at].raw = raw
		return at, err
	}
	if depth > MaxDepth {
		return at, errTooDeep
	}
	if _, err := t.dec.ReadToken(); err != nil {
		return at, err
	}
	last := none
	for count := 0; ; count++ {
		switch t.dec.PeekKind() {
		case '}', ']':
			_, err := t.dec.ReadToken() // this refuses a bracket of the other kind
			return at, err
		}
		if count == t.members {
			return at, fmt.Errorf("more than %d members or elements in one value", t.members)
		}
		var name []byte
		if kind == '{' {
			raw, err := t.parseScalar()
			if err != nil {
				return at, err
			}
			name = unquote(raw)
		}
		child, err := t.parseValue(depth + 1)
		if err != nil {
			return at, err
		}
		t.nodes[child].name = name
		if last == none {
			t.nodes[at].first = child
		} else {
			t.nodes[last].next = child
		}
		last = child
	}
}

// parseScalar parses a value that is not an object or array, and returns it as a part of src.
func (t *tree) parseScalar() ([]byte, error) {
	v, err := t.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	end := t.dec.InputOffset()
	return t.src[end-int64(len(v)) : end], nil
}

// unquote returns the text of a valid JSON string. It shares the memory of raw if nothing is escaped.
func unquote(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	s, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		panic("catalog: a string that was read cannot be: " + err.Error())
	}
	return s
}

// member returns the named member of an object, or none.
func (t *tree) member(n int32, name string) int32 {
	if t.nodes[n].kind != '{' {
		return none
	}
	for c := t.nodes[n].first; c != none; c = t.nodes[c].next {
		if string(t.nodes[c].name) == name {
			return c
		}
	}
	return none
}

// memberObject returns the named member of an object if that member is an object, or none.
func (t *tree) memberObject(n int32, name string) int32 {
	if c := t.member(n, name); c != none && t.nodes[c].kind == '{' {
		return c
	}
	return none
}

// stringValue returns the text of a string.
func (t *tree) stringValue(n int32) (string, bool) {
	if t.nodes[n].kind != '"' {
		return "", false
	}
	return string(unquote(t.nodes[n].raw)), true
}

// kindName returns the kind of n in words.
func (t *tree) kindName(n int32) string {
	switch t.nodes[n].kind {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n':
		return "null"
	default:
		return "a boolean"
	}
}

// path returns the path from root to n, such as "properties.a.anyOf[0]".
func (t *tree) path(root, n int32) string {
	var b strings.Builder
	for at := root; at != n; {
		// Nodes are in the order of the text, so n is in the last child that does not begin after n.
		i, child := 0, t.nodes[at].first
		for t.nodes[child].next != none && t.nodes[child].next <= n {
			i, child = i+1, t.nodes[child].next
		}
		if t.nodes[at].kind == '[' {
			fmt.Fprintf(&b, "[%d]", i)
		} else {
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(safeText(string(t.nodes[child].name)))
		}
		at = child
	}
	return b.String()
}
