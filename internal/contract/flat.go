package contract

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A flatSchema is the schema of an object with simple members, such as the arguments of most calls. Everything that it
// accepts fits the schema that it was made from, and it takes a fraction of the time. If it does not accept a value,
// that value may fit or not. nil accepts nothing.
type flatSchema struct {
	members  map[string]*flatMember
	required []any
}

// A flatMember accepts values of some types.
type flatMember struct {
	types                    plainType
	allowedTexts             []string // if not nil, the only texts that are accepted
	minimum, maximum         int64    // limits of whole numbers
	minLength                int64    // limits of texts, in characters
	maxLength                int64
	limitsNumber, limitsText bool // there are limits of numbers, of texts
}

// plainType is a set of types of values that are neither lists nor objects.
type plainType uint8

const (
	plainString plainType = 1 << iota
	plainInteger
	plainNumber // numbers with a fraction
	plainBoolean
	plainNull

	plainAny = plainString | plainInteger | plainNumber | plainBoolean | plainNull
)

var plainTypes = map[any]plainType{
	"string": plainString, "integer": plainInteger, "number": plainInteger | plainNumber, "boolean": plainBoolean, "null": plainNull,
}

// maxFlatBytes limits the bytes that a flat schema reads, and maxRequired the members that it requires. So it never accepts
// more than the full check could.
const (
	maxFlatBytes = 16 << 10
	maxRequired  = 100
)

// flatSchemaOf returns a flat schema that accepts only objects which fit doc, or nil.
func flatSchemaOf(doc any) *flatSchema {
	schema, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	f := &flatSchema{members: map[string]*flatMember{}}
	for key, value := range schema {
		switch key {
		case "type":
			if value != "object" {
				return nil
			}
		case "properties":
			properties, _ := value.(map[string]any)
			for name, sub := range properties {
				f.members[name] = flatMemberOf(sub)
			}
		case "required":
			f.required, _ = value.([]any)
		case "additionalProperties": // the flat schema accepts no other members anyway
		default:
			if !ignoredKeywords[key] {
				return nil
			}
		}
	}
	if len(f.required) > maxRequired {
		return nil
	}
	return f
}

// ignoredKeywords are the keywords that do not restrict values.
var ignoredKeywords = map[string]bool{"$comment": true, "$schema": true, "default": true, "deprecated": true, "description": true, "examples": true, "title": true}

// flatMemberOf returns a member that accepts only values which fit the schema doc, or nil.
func flatMemberOf(doc any) *flatMember {
	schema, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	m := &flatMember{types: plainAny, minimum: math.MinInt64, maximum: math.MaxInt64, maxLength: math.MaxInt64}
	for key, value := range schema {
		list, _ := value.([]any)
		n, whole := value.(int64)
		switch {
		case key == "type" && list == nil:
			m.types &= plainTypes[value]
		case key == "type":
			m.types &= unionTypes(list, func(t any) plainType { return plainTypes[t] })
		case key == "anyOf" && list != nil:
			m.types &= unionTypes(list, func(sub any) plainType {
				if of := flatMemberOf(sub); of != nil && of.allowedTexts == nil && !of.limitsNumber && !of.limitsText {
					return of.types
				}
				return 0
			})
		case key == "enum" && list != nil:
			m.types &= plainString
			m.allowedTexts = []string{}
			for _, e := range list {
				if word, ok := e.(string); ok {
					m.allowedTexts = append(m.allowedTexts, word)
				}
			}
		case key == "minimum" && whole:
			m.minimum, m.limitsNumber = n, true
		case key == "maximum" && whole:
			m.maximum, m.limitsNumber = n, true
		case key == "minLength" && whole:
			m.minLength, m.limitsText = n, true
		case key == "maxLength" && whole:
			m.maxLength, m.limitsText = n, true
		case !ignoredKeywords[key]:
			return nil
		}
	}
	if m.limitsNumber {
		m.types &^= plainNumber
	}
	return m
}

func unionTypes(list []any, of func(any) plainType) (all plainType) {
	for _, e := range list {
		all |= of(e)
	}
	return all
}

// accepts reports whether the value certainly fits.
func (m *flatMember) accepts(value []byte) bool {
	is := plainTypeOf(value)
	switch {
	case m == nil || m.types&is == 0:
		return false
	case is == plainInteger && m.limitsNumber:
		n, err := strconv.ParseInt(string(value), 10, 64)
		return err == nil && m.minimum <= n && n <= m.maximum
	case is != plainString || m.allowedTexts == nil && !m.limitsText:
		return true
	case bytes.IndexByte(value, '\\') >= 0:
		return false
	}
	text := value[1 : len(value)-1]
	if m.allowedTexts != nil && !slices.ContainsFunc(m.allowedTexts, func(w string) bool { return w == string(text) }) {
		return false
	}
	n := int64(utf8.RuneCount(text))
	return m.minLength <= n && n <= m.maxLength
}

// accepts reports whether the value, which is strict JSON, certainly fits.
func (f *flatSchema) accepts(text []byte) bool {
	if f == nil || len(text) > maxFlatBytes || len(text) == 0 || text[0] != '{' {
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

// plainTypeOf returns the type of a value by its first characters, or 0 if that is not certain.
func plainTypeOf(value []byte) plainType {
	switch c := value[0]; {
	case c == '"' && !bytes.Contains(value, []byte(`\u`)): // \u may be half of a surrogate pair
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
