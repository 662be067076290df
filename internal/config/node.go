package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// nodeKind is the kind of a syntaxNode.
type nodeKind int

const (
	nullKind nodeKind = iota
	boolKind
	intKind
	floatKind
	textKind
	listKind
	mapKind
)

func (k nodeKind) String() string {
	return [...]string{"nothing", "true or false", "a whole number", "a number", "text", "a list", "a map"}[k]
}

// A syntaxNode is one value in a YAML or JSON file, with its position.
type syntaxNode struct {
	kind      nodeKind
	text      string // the value of a scalar; numbers and booleans as they are spelled
	quoted    bool   // of textKind
	line, col int
	items     []syntaxNode // of listKind
	pairs     []pair       // of mapKind, in the order of the file, including duplicates
}

type pair struct{ key, val syntaxNode }

// A value is a syntaxNode with the context that its faults need.
type value struct {
	syntaxNode
	file string
	sink *sink
	ctx  string // the beginning of a fault: `server "brave": url: `

	// hidden means that the value may be a secret. Faults do not repeat it.
	hidden bool
}

func (v value) fault(format string, args ...any) {
	v.sink.addFault(Fault{File: v.file, Line: v.line, Column: v.col, Text: v.ctx + fmt.Sprintf(format, args...)})
}

// warn is fault for a probable mistake that does not stop the service.
func (v value) warn(format string, args ...any) {
	v.sink.addWarning(Fault{File: v.file, Line: v.line, Column: v.col, Text: v.ctx + fmt.Sprintf(format, args...)})
}

// withContext returns v with another beginning for its faults.
func (v value) withContext(format string, args ...any) value {
	v.ctx = fmt.Sprintf(format, args...)
	return v
}

// shownValue returns the value as faults repeat it.
func (v value) shownValue() string {
	switch {
	case v.hidden:
		return "the value (not shown here)"
	case v.kind == textKind:
		return quoteShown(v.text)
	case v.kind == boolKind, v.kind == intKind, v.kind == floatKind:
		return quoteShown(v.text)
	}
	return v.kind.String()
}

// ambiguousWords are the unquoted words that YAML 1.1 reads as true and false, and YAML 1.2 as text.
var ambiguousWords = map[string]bool{"yes": true, "no": true, "on": true, "off": true}

// readText returns a text that is not empty.
func (v value) readText() (string, bool) {
	switch {
	case v.kind == textKind && !v.quoted && ambiguousWords[strings.ToLower(v.text)]:
		v.fault("%s without quotes is text to some readers of YAML and true or false to others; put it in quotes", v.shownValue())
	case v.kind == textKind && v.text == "":
		v.fault("want text, not \"\"")
	case v.kind == textKind:
		return v.text, true
	case v.kind == boolKind, v.kind == intKind, v.kind == floatKind:
		v.fault("%s is %v here, and text is wanted; put it in quotes", v.shownValue(), v.kind)
	default:
		v.fault("want text, not %v", v.kind)
	}
	return "", false
}

// oneOf returns a text that is one of known.
func (v value) oneOf(noun string, known ...string) (string, bool) {
	if v.kind == textKind && slices.Contains(known, v.text) {
		return v.text, true // also on and off: here they can mean nothing but the text
	}
	s, ok := v.readText()
	if !ok {
		return "", false
	}
	if slices.Contains(known, s) {
		return s, true
	}
	v.fault("%s is no %s%s", v.shownValue(), noun, suggestion(s, noun+"s", known))
	return "", false
}

// readInteger returns a whole number between low and high, or 0.
func (v value) readInteger(low, high int) int {
	if v.kind != intKind {
		quotes := ""
		if v.kind == textKind && v.quoted {
			quotes = " without quotes"
		}
		v.fault("want a whole number%s, not %s", quotes, v.shownValue())
		return 0
	}
	// Only the spelling that every reader takes for the same number is accepted: 010 is 8 to some,
	// 1_000 is text to others.
	n, err := strconv.Atoi(v.text)
	if err != nil || strconv.Itoa(n) != v.text {
		v.fault("%s: write the number in plain decimal digits", v.shownValue())
		return 0
	}
	if n < low || n > high {
		v.fault("%d is out of range: want %d to %d", n, low, high)
		return 0
	}
	return n
}

// readBool returns true or false.
func (v value) readBool() bool {
	if v.kind != boolKind || v.text != "true" && v.text != "false" {
		v.fault("want true or false, not %s", v.shownValue())
	}
	return v.kind == boolKind && v.text == "true"
}

// readDuration returns a time span between low and high.
func (v value) readDuration(low, high time.Duration) (time.Duration, bool) {
	if v.kind == intKind || v.kind == floatKind {
		v.fault("%s has no unit; write 30s, 500ms or 2m", v.shownValue())
		return 0, false
	}
	s, ok := v.readText()
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		v.fault("%s is no time span; write 30s, 500ms or 2m", v.shownValue())
		return 0, false
	}
	if d < low || d > high {
		v.fault("%s is out of range: want %v to %v", v.shownValue(), low, high)
		return 0, false
	}
	return d, true
}

// readSize returns a number of bytes, written such as 64MiB.
func (v value) readSize(low, high int) int {
	if v.kind == intKind || v.kind == floatKind {
		v.fault("%s has no unit; write 512KiB, 64MiB or 1GiB", v.shownValue())
		return 0
	}
	s, ok := v.readText()
	if !ok {
		return 0
	}
	for shift, unit := range map[int]string{10: "KiB", 20: "MiB", 30: "GiB"} {
		number, ok := strings.CutSuffix(s, unit)
		n, err := strconv.Atoi(number)
		switch {
		case !ok || err != nil:
		case n < 0 || n > high>>shift || n<<shift < low:
			v.fault("%s is out of range: want %dKiB to %dGiB", v.shownValue(), low>>10, high>>30)
			return 0
		default:
			return n << shift
		}
	}
	v.fault("%s is no size; write 512KiB, 64MiB or 1GiB", v.shownValue())
	return 0
}

// readList returns the items of a list with at most limit items.
func (v value) readList(limit int) []value {
	if v.kind != listKind {
		v.fault("want a list, not %v", v.kind)
		return nil
	}
	if len(v.items) > limit {
		v.fault("%d items are too many; at most %d are read", len(v.items), limit)
		return nil
	}
	out := make([]value, len(v.items))
	for i, n := range v.items {
		out[i] = v
		out[i].syntaxNode = n
	}
	return out
}

// A textItem is a text and the value that holds it.
type textItem struct {
	value
	s string
}

// readTexts returns the items of a list of at most maxItems texts. A repeated text is a fault.
func (v value) readTexts() []textItem {
	var out []textItem
	seen := map[string]bool{}
	for _, item := range v.readList(maxItems) {
		s, ok := item.readText()
		switch {
		case !ok:
		case seen[s]:
			item.fault("%s stands here twice", item.shownValue())
		default:
			seen[s] = true
			out = append(out, textItem{item, s})
		}
	}
	return out
}

// A namedPair is one pair of a map whose keys are names that the user chose.
type namedPair struct {
	name string
	key  value // for faults about the name
	val  value
}

// readEntries returns the pairs of such a map. A repeated name is a fault. A pair without a value is a
// fault too, and is left out, unless bare is true.
func (v value) readEntries(limit int, bare bool) []namedPair {
	if v.kind != mapKind {
		v.fault("want a map, not %v", v.kind)
		return nil
	}
	if len(v.pairs) > limit {
		v.fault("%d entries are too many; at most %d are read", len(v.pairs), limit)
		return nil
	}
	var out []namedPair
	first := map[string]syntaxNode{}
	for _, p := range v.pairs {
		e := namedPair{name: p.key.text, key: v, val: v}
		e.key.syntaxNode, e.val.syntaxNode = p.key, p.val
		// A key that names something is no secret. But a user may have written a secret without a
		// name.
		e.key.hidden = v.hidden && (p.val.kind == nullKind || !isPlainName(p.key.text))
		switch {
		case p.key.kind != textKind || !p.key.quoted && ambiguousWords[strings.ToLower(p.key.text)]:
			e.key.fault("the name %s must be put in quotes, else some readers of YAML take it for something else than text", e.key.shownValue())
			continue
		case p.key.text == "":
			e.key.fault("a name is empty")
			continue
		case p.val.kind == nullKind && !bare:
			e.key.fault("%s has no value; give it one, or remove it", e.key.shownValue())
			continue
		}
		if at, ok := first[e.name]; ok {
			e.key.fault("%s stands here twice, first at line %d", e.key.shownValue(), at.line)
			continue
		}
		first[e.name] = p.key
		out = append(out, e)
	}
	return out
}

// A mapShape says which keys a map with fixed keys may hold.
type mapShape struct {
	keys []string

	// later are keys of features that are designed but not built. They are faults, because a rule that
	// is not enforced must not look as if it were.
	later []string

	// hints say what to write instead of a key that people expect.
	hints map[string]string
}

// A fixedMap is a map with fixed keys.
type fixedMap struct {
	value
	fields   map[string]value
	mistyped map[string]bool // known keys that were probably meant by unknown ones
}

// readObject reads a map of the shape. A key with a fault does not stop the reading, so that the
// faults of the other keys are found too.
func (v value) readObject(s *mapShape) (fixedMap, bool) {
	o := fixedMap{value: v, fields: map[string]value{}, mistyped: map[string]bool{}}
	if v.kind != mapKind {
		v.fault("want a map, not %v", v.kind)
		return o, false
	}
	first := map[string]syntaxNode{}
	for _, p := range v.pairs {
		key, val := v, v
		key.syntaxNode, val.syntaxNode = p.key, p.val
		key.hidden = v.hidden && (p.val.kind == nullKind || !isPlainName(p.key.text))
		name := p.key.text
		val.ctx = v.ctx + name + ": "
		at, again := first[name]
		switch {
		case again:
			key.fault("%s stands here twice, first at line %d", key.shownValue(), at.line)
		case !slices.Contains(s.keys, name):
			key.faultUnknownKey(name, s)
			o.mistyped[nearestName(name, s.keys)] = true
		case p.val.kind == nullKind:
			key.fault("%q has no value; give it one, or remove the key", name)
		default:
			o.fields[name] = val
		}
		if !again {
			first[name] = p.key
		}
	}
	return o, true
}

func (v value) faultUnknownKey(name string, s *mapShape) {
	hint, ok := s.hints[name]
	switch {
	case slices.Contains(s.later, name):
		v.fault("%q is not supported yet", name)
	case ok:
		v.fault("%q is not a key here; %s", name, hint)
	case v.hidden || switchboard.CredentialValue(name):
		v.fault("a key that is not shown, since it may be a secret, is not one here; %s", listKnown("keys", s.keys))
	default:
		v.fault("%s is not a key here%s", quoteShown(name), suggestion(name, "keys", s.keys))
	}
}

// lookup returns the value under a key, if the key is there and is readable.
func (o fixedMap) lookup(name string) (value, bool) {
	v, ok := o.fields[name]
	return v, ok
}

// hasKey reports whether the map has the key, readable or not.
func (o fixedMap) hasKey(name string) bool {
	for _, p := range o.pairs {
		if p.key.text == name {
			return true
		}
	}
	return false
}

// require is lookup for a key that must be there. A missing key is a fault, unless it was probably
// mistyped, which is a fault already.
func (o fixedMap) require(name, remedy string) (value, bool) {
	v, ok := o.fields[name]
	if !ok && !o.hasKey(name) && !o.mistyped[name] {
		o.fault("%q is missing; %s", name, remedy)
	}
	return v, ok
}

// isPlainName reports whether s cannot be anything but the name of a header or of a variable.
func isPlainName(s string) bool {
	return s != "" && len(s) <= maxShown && !switchboard.CredentialValue(s) &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}
