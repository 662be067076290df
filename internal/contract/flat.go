package contract

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A flat schema is that of an object whose members are plain, as the arguments of
// most calls are. What it accepts fits the schema that it was made of, and is found
// out in a fraction of the time; of what it does not accept it says nothing. nil
// accepts nothing.
type flat struct {
	members  map[string]*member
	required []any
}

// A member accepts values of some types.
type member struct {
	types           plain
	words           []string // where not nil, all the texts that are accepted
	least, most     int64    // of whole numbers
	shortest        int64    // of texts, in characters
	longest         int64
	fenced, checked bool // there are bounds of numbers, of texts
}

// plain are the types of a value that is neither a list nor an object.
type plain uint8

const (
	plainString plain = 1 << iota
	plainInteger
	plainNumber // with a fraction
	plainBoolean
	plainNull

	plainAny = plainString | plainInteger | plainNumber | plainBoolean | plainNull
)

var plainTypes = map[any]plain{
	"string": plainString, "integer": plainInteger, "number": plainInteger | plainNumber, "boolean": plainBoolean, "null": plainNull,
}

// maxFlat bounds what a flat schema looks at, in bytes, and maxRequired the members
// that it wants, so that what it accepts is never more than can be checked.
const (
	maxFlat     = 16 << 10
	maxRequired = 100
)

// flatOf returns the flat schema that says the same of the objects which it
// accepts, or nil.
func flatOf(doc any) *flat {
	schema, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	f := &flat{members: map[string]*member{}}
	for key, value := range schema {
		switch key {
		case "type":
			if value != "object" {
				return nil
			}
		case "properties":
			properties, _ := value.(map[string]any)
			for name, sub := range properties {
				f.members[name] = memberOf(sub)
			}
		case "required":
			f.required, _ = value.([]any)
		case "additionalProperties": // of others nothing is accepted
		default:
			if !remarks[key] {
				return nil
			}
		}
	}
	if len(f.required) > maxRequired {
		return nil
	}
	return f
}

// remarks are the keywords that want nothing of a value.
var remarks = map[string]bool{"$comment": true, "$schema": true, "default": true, "deprecated": true, "description": true, "examples": true, "title": true}

// memberOf returns what accepts values that all fit the schema of a member, or nil.
func memberOf(doc any) *member {
	schema, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	m := &member{types: plainAny, least: math.MinInt64, most: math.MaxInt64, longest: math.MaxInt64}
	for key, value := range schema {
		list, _ := value.([]any)
		n, whole := value.(int64)
		switch {
		case key == "type" && list == nil:
			m.types &= plainTypes[value]
		case key == "type":
			m.types &= union(list, func(t any) plain { return plainTypes[t] })
		case key == "anyOf" && list != nil:
			m.types &= union(list, func(sub any) plain {
				if of := memberOf(sub); of != nil && of.words == nil && !of.fenced && !of.checked {
					return of.types
				}
				return 0
			})
		case key == "enum" && list != nil:
			m.types &= plainString
			m.words = []string{}
			for _, e := range list {
				if word, ok := e.(string); ok {
					m.words = append(m.words, word)
				}
			}
		case key == "minimum" && whole:
			m.least, m.fenced = n, true
		case key == "maximum" && whole:
			m.most, m.fenced = n, true
		case key == "minLength" && whole:
			m.shortest, m.checked = n, true
		case key == "maxLength" && whole:
			m.longest, m.checked = n, true
		case !remarks[key]:
			return nil
		}
	}
	if m.fenced {
		m.types &^= plainNumber
	}
	return m
}

func union(list []any, of func(any) plain) (all plain) {
	for _, e := range list {
		all |= of(e)
	}
	return all
}

// accepts reports whether the value fits for certain.
func (m *member) accepts(value []byte) bool {
	is := plainly(value)
	switch {
	case m == nil || m.types&is == 0:
		return false
	case is == plainInteger && m.fenced:
		n, err := strconv.ParseInt(string(value), 10, 64)
		return err == nil && m.least <= n && n <= m.most
	case is != plainString || m.words == nil && !m.checked:
		return true
	case bytes.IndexByte(value, '\\') >= 0:
		return false
	}
	text := value[1 : len(value)-1]
	if m.words != nil && !slices.ContainsFunc(m.words, func(w string) bool { return w == string(text) }) {
		return false
	}
	n := int64(utf8.RuneCount(text))
	return m.shortest <= n && n <= m.longest
}

// accepts reports whether the value, which is strict JSON, fits for certain.
func (f *flat) accepts(text []byte) bool {
	if f == nil || len(text) > maxFlat || len(text) == 0 || text[0] != '{' {
		return false
	}
	missing := len(f.required)
	for name, value := range wire.Members(text) {
		if !f.members[name].accepts(value) {
			return false
		}
		if slices.ContainsFunc(f.required, func(r any) bool { return r == name }) {
			missing--
		}
	}
	return missing == 0
}

// plainly is the type of a value as it is spelt, or none where that takes a closer
// look.
func plainly(value []byte) plain {
	switch c := value[0]; {
	case c == '"' && !bytes.Contains(value, []byte(`\u`)): // half a character can be spelt so
		return plainString
	case c == 't' || c == 'f':
		return plainBoolean
	case c == 'n':
		return plainNull
	case c != '-' && (c < '0' || c > '9') || len(value) > maxDigits || bytes.ContainsAny(value, "eE"):
		return 0
	case bytes.IndexByte(value, '.') >= 0:
		return plainNumber
	}
	return plainInteger
}
