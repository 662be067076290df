// Package document reads YAML, and JSON with comments, into values that know their position, and collects the
// faults in them. Each fault has a file, a line, a column and a remedy, and repeats nothing that may be a secret.
//
// The package decides which YAML and JSON is accepted, and within which limits. What the values mean is for the
// caller: packages config and importer.
package document

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Kind is the kind of a Node.
type Kind int

// The kinds of a Node.
const (
	KindNull Kind = iota
	KindBool
	KindInt
	KindFloat
	KindText
	KindList
	KindMap
)

func (k Kind) String() string {
	return [...]string{"nothing", "true or false", "a whole number", "a number", "text", "a list", "a map"}[k]
}

// A Node is one value in a YAML or JSON file, with its position.
type Node struct {
	Kind         Kind
	Text         string // the value of a scalar; numbers and booleans as they are spelled
	Quoted       bool   // of textKind
	Line, Column int
	Items        []Node     // of listKind
	Pairs        []NodePair // of mapKind, in the order of the file, including duplicates
}

// A NodePair is one pair of a map.
type NodePair struct{ Key, Value Node }

// MaxItems limits the items of a list, and the pairs of a map with names that the user chose.
const MaxItems = 1000

// A Value is a Node with the context that its faults need.
type Value struct {
	Node
	File    string
	Sink    *Sink
	Context string // the beginning of a fault: `server "brave": url: `

	// Hidden means that the value may be a secret. Faults do not repeat it.
	Hidden bool
}

// Fault records a fault at the value.
func (v Value) Fault(format string, args ...any) {
	v.Sink.Add(switchboard.Fault{File: v.File, Line: v.Line, Column: v.Column, Text: v.Context + fmt.Sprintf(format, args...)})
}

// Warn is Fault for a probable mistake that does not stop the service.
func (v Value) Warn(format string, args ...any) {
	v.Sink.Warn(switchboard.Fault{File: v.File, Line: v.Line, Column: v.Column, Text: v.Context + fmt.Sprintf(format, args...)})
}

// WithContext returns v with another beginning for its faults.
func (v Value) WithContext(format string, args ...any) Value {
	v.Context = fmt.Sprintf(format, args...)
	return v
}

// Shown returns the value as faults repeat it.
func (v Value) Shown() string {
	switch {
	case v.Hidden:
		return "the value (not shown here)"
	case v.Kind == KindText:
		return Shown(v.Text)
	case v.Kind == KindBool, v.Kind == KindInt, v.Kind == KindFloat:
		return Shown(v.Text)
	}
	return v.Kind.String()
}

// ambiguousWords are the unquoted words that YAML 1.1 reads as true and false, and YAML 1.2 as text.
var ambiguousWords = map[string]bool{"yes": true, "no": true, "on": true, "off": true}

// ReadText returns a text that is not empty.
func (v Value) ReadText() (string, bool) {
	switch {
	case v.Kind == KindText && !v.Quoted && ambiguousWords[strings.ToLower(v.Text)]:
		v.Fault("%s without quotes is text to some readers of YAML and true or false to others; put it in quotes", v.Shown())
	case v.Kind == KindText && v.Text == "":
		v.Fault("want text, not \"\"")
	case v.Kind == KindText:
		return v.Text, true
	case v.Kind == KindBool, v.Kind == KindInt, v.Kind == KindFloat:
		v.Fault("%s is %v here, and text is wanted; put it in quotes", v.Shown(), v.Kind)
	default:
		v.Fault("want text, not %v", v.Kind)
	}
	return "", false
}

// OneOf returns a text that is one of known.
func (v Value) OneOf(noun string, known ...string) (string, bool) {
	if v.Kind == KindText && slices.Contains(known, v.Text) {
		return v.Text, true // also on and off: here they can mean nothing but the text
	}
	s, ok := v.ReadText()
	if !ok {
		return "", false
	}
	if slices.Contains(known, s) {
		return s, true
	}
	v.Fault("%s is no %s%s", v.Shown(), noun, Suggestion(s, noun+"s", known))
	return "", false
}

// ReadInteger returns a whole number between low and high, or 0.
func (v Value) ReadInteger(low, high int) int {
	if v.Kind != KindInt {
		quotes := ""
		if v.Kind == KindText && v.Quoted {
			quotes = " without quotes"
		}
		v.Fault("want a whole number%s, not %s", quotes, v.Shown())
		return 0
	}
	// Only the spelling that every reader takes for the same number is accepted: 010 is 8 to some,
	// 1_000 is text to others.
	n, err := strconv.Atoi(v.Text)
	if err != nil || strconv.Itoa(n) != v.Text {
		v.Fault("%s: write the number in plain decimal digits", v.Shown())
		return 0
	}
	if n < low || n > high {
		v.Fault("%d is out of range: want %d to %d", n, low, high)
		return 0
	}
	return n
}

// ReadBool returns true or false.
func (v Value) ReadBool() bool {
	if v.Kind != KindBool || v.Text != "true" && v.Text != "false" {
		v.Fault("want true or false, not %s", v.Shown())
	}
	return v.Kind == KindBool && v.Text == "true"
}

// ReadDuration returns a time span between low and high.
func (v Value) ReadDuration(low, high time.Duration) (time.Duration, bool) {
	if v.Kind == KindInt || v.Kind == KindFloat {
		v.Fault("%s has no unit; write 30s, 500ms or 2m", v.Shown())
		return 0, false
	}
	s, ok := v.ReadText()
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		v.Fault("%s is no time span; write 30s, 500ms or 2m", v.Shown())
		return 0, false
	}
	if d < low || d > high {
		v.Fault("%s is out of range: want %v to %v", v.Shown(), low, high)
		return 0, false
	}
	return d, true
}

// ReadSize returns a number of bytes, written such as 64MiB.
func (v Value) ReadSize(low, high int) int {
	if v.Kind == KindInt || v.Kind == KindFloat {
		v.Fault("%s has no unit; write 512KiB, 64MiB or 1GiB", v.Shown())
		return 0
	}
	s, ok := v.ReadText()
	if !ok {
		return 0
	}
	for shift, unit := range map[int]string{10: "KiB", 20: "MiB", 30: "GiB"} {
		number, ok := strings.CutSuffix(s, unit)
		n, err := strconv.Atoi(number)
		switch {
		case !ok || err != nil:
		case n < 0 || n > high>>shift || n<<shift < low:
			v.Fault("%s is out of range: want %dKiB to %dGiB", v.Shown(), low>>10, high>>30)
			return 0
		default:
			return n << shift
		}
	}
	v.Fault("%s is no size; write 512KiB, 64MiB or 1GiB", v.Shown())
	return 0
}

// ReadList returns the items of a list with at most limit items.
func (v Value) ReadList(limit int) []Value {
	if v.Kind != KindList {
		v.Fault("want a list, not %v", v.Kind)
		return nil
	}
	if len(v.Items) > limit {
		v.Fault("%d items are too many; at most %d are read", len(v.Items), limit)
		return nil
	}
	out := make([]Value, len(v.Items))
	for i, n := range v.Items {
		out[i] = v
		out[i].Node = n
	}
	return out
}

// A TextValue is a text and the value that holds it.
type TextValue struct {
	Value
	String string
}

// ReadTexts returns the items of a list of at most maxItems texts. A repeated text is a fault.
func (v Value) ReadTexts() []TextValue {
	var out []TextValue
	seen := map[string]bool{}
	for _, item := range v.ReadList(MaxItems) {
		s, ok := item.ReadText()
		switch {
		case !ok:
		case seen[s]:
			item.Fault("%s stands here twice", item.Shown())
		default:
			seen[s] = true
			out = append(out, TextValue{item, s})
		}
	}
	return out
}

// A NamedValue is one pair of a map whose keys are names that the user chose.
type NamedValue struct {
	Name  string
	Key   Value // for faults about the name
	Value Value
}

// ReadNamed returns the pairs of such a map. A repeated name is a fault. A pair without a value is a
// fault too, and is left out, unless bare is true.
func (v Value) ReadNamed(limit int, bare bool) []NamedValue {
	if v.Kind != KindMap {
		v.Fault("want a map, not %v", v.Kind)
		return nil
	}
	if len(v.Pairs) > limit {
		v.Fault("%d entries are too many; at most %d are read", len(v.Pairs), limit)
		return nil
	}
	var out []NamedValue
	first := map[string]Node{}
	for _, p := range v.Pairs {
		e := NamedValue{Name: p.Key.Text, Key: v, Value: v}
		e.Key.Node, e.Value.Node = p.Key, p.Value
		// A key that names something is no secret. But a user may have written a secret without a
		// name.
		e.Key.Hidden = v.Hidden && (p.Value.Kind == KindNull || !isPlainName(p.Key.Text))
		switch {
		case p.Key.Kind != KindText || !p.Key.Quoted && ambiguousWords[strings.ToLower(p.Key.Text)]:
			e.Key.Fault("the name %s must be put in quotes, else some readers of YAML take it for something else than text", e.Key.Shown())
			continue
		case p.Key.Text == "":
			e.Key.Fault("a name is empty")
			continue
		case p.Value.Kind == KindNull && !bare:
			e.Key.Fault("%s has no value; give it one, or remove it", e.Key.Shown())
			continue
		}
		if at, ok := first[e.Name]; ok {
			e.Key.Fault("%s stands here twice, first at line %d", e.Key.Shown(), at.Line)
			continue
		}
		first[e.Name] = p.Key
		out = append(out, e)
	}
	return out
}

// isPlainName reports whether s cannot be anything but the name of a header or of a variable.
func isPlainName(s string) bool {
	return s != "" && len(s) <= maxShown && !switchboard.CredentialValue(s) &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// ShownName returns the name of a header or variable as faults show it.
func (v Value) ShownName() string {
	if v.Hidden {
		return "a name that is not shown, since it may be a secret,"
	}
	return v.Text
}

// FindMember returns the value under a key of a map. It does not check the other keys.
func (v Value) FindMember(name string) (Value, bool) {
	for _, p := range v.Pairs {
		if p.Key.Text == name && p.Value.Kind != KindNull {
			v.Node = p.Value
			return v, true
		}
	}
	return v, false
}

// HasMember reports whether a map has a value under a key.
func (v Value) HasMember(name string) bool { _, ok := v.FindMember(name); return ok }
