package contract

import (
	"encoding/json"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A stepBudget counts the work of one proof on the values in schemas, so that no schema keeps a proof busy. When no step
// is left, its methods give the answer that proves nothing.
type stepBudget struct{ stepsLeft int }

// mentions reports whether an object within the value has a member with one of the names. It also returns true if the
// steps run out.
func (s *stepBudget) mentions(value any, names ...string) bool {
	if s.stepsLeft--; s.stepsLeft < 0 {
		return true
	}
	switch value := value.(type) {
	case []any:
		return slices.ContainsFunc(value, func(sub any) bool { return s.mentions(sub, names...) })
	case map[string]any:
		for name, sub := range value {
			if slices.Contains(names, name) || s.mentions(sub, names...) {
				return true
			}
		}
	}
	return false
}

// equal compares two values that decode has read. 1 and 1.0 are the same number.
func (s *stepBudget) equal(a, b any) bool {
	if s.stepsLeft--; s.stepsLeft < 0 {
		return false
	}
	switch a := a.(type) {
	case []any:
		list, ok := b.([]any)
		return ok && slices.EqualFunc(a, list, s.equal)
	case map[string]any:
		object, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, object, s.equal)
	case nil, bool, string:
		return a == b
	}
	x, y := rational(a), rational(b)
	return x != nil && y != nil && x.Cmp(y) == 0
}

func (s *stepBudget) contains(list []any, value any) bool {
	return slices.ContainsFunc(list, func(v any) bool { return s.equal(v, value) })
}

// numbersFit reports whether all numbers among the values pass the test. A number without an exact value does not pass.
func (s *stepBudget) numbersFit(values []any, fits func(*big.Rat) bool) bool {
	s.stepsLeft -= len(values)
	return !slices.ContainsFunc(values, func(v any) bool {
		if typeOf(v)&typeNumber == 0 {
			return false
		}
		n := rational(v)
		return n == nil || !fits(n)
	})
}

// maxProofPattern and maxProofText limit what is matched in a proof, in bytes.
const (
	maxProofPattern = 256
	maxProofText    = 4 << 10
)

// sameInBoth matches patterns with the same meaning in ECMA-262, which JSON Schema follows, and in Go, for texts of
// printable ASCII. Such a pattern has only plain groups, no named classes, and only escapes that both know.
var sameInBoth = regexp.MustCompile(`^(?:[^\\(\[]|\((?:[^?]|\?:)|\[(?:[^\[\]\\]|\\[dDwWsStnrfv.*+?^$|/\\()\[\]{}-])+\]|\\[dDwWsSbBtnrfv.*+?^$|/\\()\[\]{}-])*$`)

// textsFit reports whether all texts among the values fit one keyword.
func (s *stepBudget) textsFit(values []any, keyword string, limit any) bool {
	s.stepsLeft -= len(values)
	var re *regexp.Regexp
	if keyword == "pattern" {
		pattern, _ := limit.(string)
		var err error
		if len(pattern) > maxProofPattern || !sameInBoth.MatchString(pattern) {
			return false
		}
		if re, err = regexp.Compile(pattern); err != nil {
			return false
		}
	}
	return !slices.ContainsFunc(values, func(v any) bool {
		text, ok := v.(string)
		if !ok {
			return false
		}
		if re != nil {
			s.stepsLeft -= len(text)
			foreign := func(r rune) bool { return r < ' ' || r > '~' }
			return s.stepsLeft < 0 || len(text) > maxProofText || strings.ContainsFunc(text, foreign) || !re.MatchString(text)
		}
		n, length := rational(limit), big.NewRat(int64(utf8.RuneCountInString(text)), 1)
		return n == nil || keyword == "minLength" && length.Cmp(n) < 0 || keyword == "maxLength" && length.Cmp(n) > 0
	})
}

// A typeSet is a set of types of JSON values.
type typeSet uint8

const (
	typeNull typeSet = 1 << iota
	typeBoolean
	typeInteger
	typeFraction // a number that is not an integer
	typeString
	typeArray
	typeObject

	typeNumber = typeInteger | typeFraction
	typeAny    = typeNull | typeBoolean | typeNumber | typeString | typeArray | typeObject
)

var typeNames = map[string]typeSet{
	"null": typeNull, "boolean": typeBoolean, "integer": typeInteger, "number": typeNumber,
	"string": typeString, "array": typeArray, "object": typeObject,
}

// typeOf returns the type of a value.
func typeOf(value any) typeSet {
	switch value := value.(type) {
	case nil:
		return typeNull
	case bool:
		return typeBoolean
	case string:
		return typeString
	case []any:
		return typeArray
	case map[string]any:
		return typeObject
	default:
		if r := rational(value); r != nil && !r.IsInt() {
			return typeFraction
		}
		return typeInteger
	}
}

// rational returns the exact number, or nil if the value is not a number.
func rational(value any) *big.Rat {
	switch n := value.(type) {
	case int64:
		return new(big.Rat).SetInt64(n)
	case float64:
		return new(big.Rat).SetFloat64(n)
	case json.Number:
		if r, ok := new(big.Rat).SetString(string(n)); ok {
			return r
		}
	}
	return nil
}
