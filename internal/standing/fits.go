package standing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/canonical"
)

// Bounds of tests.
const (
	maxTests   = 64
	maxValues  = 256 // of one test
	maxPointer = 256 // bytes
	maxBytes   = 32 << 10
)

// ArgumentTests say which arguments a standing yes is for: a test for each argument, by its JSON Pointer (RFC 6901). They are immutable. The zero value is for
// calls without arguments.
type ArgumentTests struct{ tests []argumentTest } // sorted by pointer

// An argumentTest is a test of one argument.
type argumentTest struct {
	pointer string
	path    []string // the names of members that the pointer leads through

	// values are the values that fit, in canonical form. nil means that every value fits.
	values [][]byte
	equals bool // for the spelling: {"equals": …}
}

// ParseTests reads tests, as people and programs write them:
//
//	{"/to": {"in": ["ops@x.org"]}, "/subject": {"equals": "report"}, "/body": "any"}
//
// A pointer leads through objects only. The tests must not say two things about one argument.
func ParseTests(text []byte) (ArgumentTests, error) {
	if len(text) > maxBytes {
		return ArgumentTests{}, fmt.Errorf("the tests have %d bytes; at most %d", len(text), maxBytes)
	}
	return readTests(text)
}

func readTests(text []byte) (ArgumentTests, error) {
	form, err := canonical.Append(nil, text) // it refuses a name that is there twice
	if err != nil {
		return ArgumentTests{}, fmt.Errorf("the tests: %w", err)
	}
	var rows map[string]json.RawMessage
	if json.Unmarshal(form, &rows) != nil || rows == nil {
		return ArgumentTests{}, errors.New(`the tests: want an object, such as {"/to": {"in": ["ops@x.org"]}, "/body": "any"}`)
	}
	if len(rows) > maxTests {
		return ArgumentTests{}, fmt.Errorf("there are %d tests; at most %d", len(rows), maxTests)
	}
	var all ArgumentTests
	for _, pointer := range slices.Sorted(maps.Keys(rows)) {
		t, err := parseTest(pointer, rows[pointer])
		if err != nil {
			return ArgumentTests{}, fmt.Errorf("the test of %.64q: %w", pointer, err)
		}
		for _, other := range all.tests { // the outer one of two comes first
			if isPrefix(other.path, t.path) {
				return ArgumentTests{}, fmt.Errorf("the test of %.64q is within that of %.64q: keep one of them", pointer, other.pointer)
			}
		}
		all.tests = append(all.tests, t)
	}
	return all, nil
}

func parseTest(pointer string, form []byte) (t argumentTest, err error) {
	t.pointer = pointer
	if t.path, err = parsePointer(pointer); err != nil {
		return t, err
	}
	if string(form) == `"any"` {
		return t, nil
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(form, &members) // it stays nil if form is no object
	var values []json.RawMessage
	switch {
	case len(members) == 1 && members["equals"] != nil:
		t.equals, values = true, []json.RawMessage{members["equals"]}
	case len(members) != 1 || members["in"] == nil || json.Unmarshal(members["in"], &values) != nil:
		return t, errors.New(`want "any", {"equals": VALUE} or {"in": [VALUE, …]}`)
	case len(values) == 0 || len(values) > maxValues:
		return t, fmt.Errorf("in has %d values; want 1 to %d", len(values), maxValues)
	}
	for _, v := range values {
		t.values = append(t.values, v) // a part of a canonical form is canonical
	}
	return t, nil
}

// parsePointer returns the names that a JSON Pointer leads through.
func parsePointer(s string) (path []string, err error) {
	if len(s) > maxPointer || !strings.HasPrefix(s, "/") {
		return nil, fmt.Errorf("want a JSON Pointer such as /to, of at most %d bytes", maxPointer)
	}
	for name := range strings.SplitSeq(s[1:], "/") {
		var b strings.Builder
		for i := 0; i < len(name); i++ {
			switch {
			case name[i] != '~':
				b.WriteByte(name[i])
				continue
			case i+1 < len(name) && name[i+1] == '0':
				b.WriteByte('~')
			case i+1 < len(name) && name[i+1] == '1':
				b.WriteByte('/')
			default:
				return nil, errors.New("after ~ a JSON Pointer has 0 or 1")
			}
			i++
		}
		path = append(path, b.String())
	}
	return path, nil
}

func isPrefix(a, b []string) bool { return len(a) <= len(b) && slices.Equal(a, b[:len(a)]) }

// Fit reports whether the arguments of a call pass the tests. Each value in the arguments must be tested, or be within one that is: an argument that is not
// named does not fit. Numbers are compared as they are spelt, and texts byte by byte. An argument that is absent passes only the test "any". Arguments that two
// readers could read in two ways do not fit.
func (a ArgumentTests) Fit(arguments []byte) bool {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	form, err := canonical.Append(nil, arguments)
	if err != nil || form[0] != '{' {
		return false
	}
	w := argumentWalk{tests: a.tests, seen: make([]bool, len(a.tests))}
	if !w.fits(form, nil) {
		return false
	}
	for i, t := range a.tests {
		if !w.seen[i] && t.values != nil {
			return false
		}
	}
	return true
}

// An argumentWalk goes through arguments once.
type argumentWalk struct {
	tests []argumentTest
	seen  []bool // which of tests have had their argument
}

// fits reports whether the value at the path, in canonical form, passes.
func (w *argumentWalk) fits(value []byte, path []string) bool {
	for i, t := range w.tests {
		if slices.Equal(t.path, path) {
			w.seen[i] = true
			return t.values == nil || slices.ContainsFunc(t.values, func(v []byte) bool { return bytes.Equal(v, value) })
		}
	}
	var members map[string]json.RawMessage
	if value[0] != '{' || json.Unmarshal(value, &members) != nil {
		return false
	}
	if len(path) > 0 && len(members) == 0 {
		return false // an empty object is a value too, and none of the tests is about it
	}
	for name, member := range members {
		if !w.fits(member, append(slices.Clip(path), name)) {
			return false
		}
	}
	return true
}

// Pointers returns the arguments that have a test, sorted.
func (a ArgumentTests) Pointers() []string {
	all := make([]string, len(a.tests))
	for i, t := range a.tests {
		all[i] = t.pointer
	}
	return all
}

// MarshalJSON returns the tests as ParseTests reads them.
func (a ArgumentTests) MarshalJSON() ([]byte, error) {
	rows := make(map[string]any, len(a.tests))
	for _, t := range a.tests {
		values := make([]json.RawMessage, len(t.values))
		for i, v := range t.values {
			values[i] = v
		}
		switch {
		case t.values == nil:
			rows[t.pointer] = "any"
		case t.equals:
			rows[t.pointer] = map[string]any{"equals": values[0]}
		default:
			rows[t.pointer] = map[string]any{"in": values}
		}
	}
	return json.Marshal(rows)
}

// UnmarshalJSON reads what MarshalJSON has written, without the limit of ParseTests: there <, > and & are escaped.
func (a *ArgumentTests) UnmarshalJSON(text []byte) (err error) {
	*a, err = readTests(text)
	return err
}
