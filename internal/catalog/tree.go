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

// Limits of whatever is read here. Real definitions need depth 25, 3,151
// values and 597 elements in one of them.
const (
	MaxDepth   = wire.MaxDepth - 3 // objects and lists within each other, the outermost counted; a list of tools adds three
	MaxMembers = 2_048             // members of one object, elements of one list, in a definition
	MaxValues  = 8_192             // values in one definition
)

// limits bound the count of values in one text.
type limits struct{ values, members int }

var (
	definitionLimits = limits{MaxValues, MaxMembers}
	// Manifests and handshakes speak of every tool of a server.
	manifestLimits = limits{64 * MaxTools, MaxTools}
)

// A tree is a JSON text read strictly: one value, no duplicate names at any
// depth, valid UTF-8. It lies in one slice in the order of the text, which is
// used again for the next text; node 0 is the outermost value.
type tree struct {
	nodes []node
	limits
	src []byte
	dec *jsontext.Decoder
}

type node struct {
	kind jsontext.Kind // one of n f t " 0 { [
	name []byte        // of a member of an object, unescaped
	raw  []byte        // of a string or number, as spelt

	// Indexes. 0 means none, since the outermost value is nobody's child.
	first, next int32
}

// none is the node that is not there.
const none int32 = 0

var (
	errDeep = fmt.Errorf("more than %d objects and lists within each other", MaxDepth)
	errMore = errors.New("something follows the value")
)

// parse reads src into t. The nodes share src.
func (t *tree) parse(src []byte, l limits) *problem {
	t.nodes, t.src, t.limits = t.nodes[:0], src, l
	// A bytes.Buffer is read in place, without a copy.
	buf := bytes.NewBuffer(src)
	if t.dec == nil {
		t.dec = jsontext.NewDecoder(buf)
	} else {
		t.dec.Reset(buf)
	}
	_, err := t.value(1)
	if err == nil {
		if _, more := t.dec.ReadToken(); !errors.Is(more, io.EOF) {
			err = errMore
		}
	}
	if err != nil {
		return syntax(err)
	}
	return nil
}

// syntax says what the decoder found wrong, in words of ours.
func syntax(err error) *problem {
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return problemf("", "cannot be read: %v", err)
	}
	at := ""
	if s.JSONPointer != "" {
		at = " at " + quoted(string(s.JSONPointer))
	}
	return problemf("", "is not strict JSON: %v%s, offset %d", s.Err, at, s.ByteOffset)
}

// value reads one value and what is in it, at the given depth, and returns its
// node.
func (t *tree) value(depth int) (int32, error) {
	kind := t.dec.PeekKind()
	at := int32(len(t.nodes))
	if len(t.nodes) == t.values {
		return at, fmt.Errorf("more than %d values", t.values)
	}
	t.nodes = append(t.nodes, node{kind: kind})
	if kind != '{' && kind != '[' {
		raw, err := t.scalar()
		t.nodes[at].raw = raw
		return at, err
	}
	if depth > MaxDepth {
		return at, errDeep
	}
	if _, err := t.dec.ReadToken(); err != nil {
		return at, err
	}
	last := none
	for count := 0; ; count++ {
		switch t.dec.PeekKind() {
		case '}', ']':
			_, err := t.dec.ReadToken() // refuses a bracket of the other kind
			return at, err
		}
		if count == t.members {
			return at, fmt.Errorf("more than %d members or elements in one value", t.members)
		}
		var name []byte
		if kind == '{' {
			raw, err := t.scalar()
			if err != nil {
				return at, err
			}
			name = unquote(raw)
		}
		child, err := t.value(depth + 1)
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

// scalar reads a value that is no object or array, as a part of src.
func (t *tree) scalar() ([]byte, error) {
	v, err := t.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	end := t.dec.InputOffset()
	return t.src[end-int64(len(v)) : end], nil
}

// unquote returns what a valid JSON string means. It shares raw where nothing
// is escaped.
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

// member finds the member of an object, or none.
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

// object finds the member of an object if it is itself an object, or none.
func (t *tree) object(n int32, name string) int32 {
	if c := t.member(n, name); c != none && t.nodes[c].kind == '{' {
		return c
	}
	return none
}

// text returns what a string says.
func (t *tree) text(n int32) (string, bool) {
	if t.nodes[n].kind != '"' {
		return "", false
	}
	return string(unquote(t.nodes[n].raw)), true
}

// kindName says what n is, for people.
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

// path says where n is below root, as "properties.a.anyOf[0]".
func (t *tree) path(root, n int32) string {
	var b strings.Builder
	for at := root; at != n; {
		// Nodes are in the order of the text: n is in the last child that
		// does not begin after it.
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
			b.WriteString(shown(string(t.nodes[child].name)))
		}
		at = child
	}
	return b.String()
}
