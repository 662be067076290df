package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// kind is what a node of a file is.
type kind int

const (
	nullKind kind = iota
	boolKind
	intKind
	floatKind
	textKind
	listKind
	mapKind
)

func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a whole number", "a number", "text", "a list", "a map"}[k]
}

// A node is one value in a file, YAML or JSON, and where it stands.
type node struct {
	kind      kind
	text      string // of a scalar, as read; of a number or bool, as spelt
	quoted    bool   // of textKind
	line, col int
	items     []node // of listKind
	pairs     []pair // of mapKind, in the file's order, duplicates and all
}

type pair struct{ key, val node }

// A value is a node with what is needed to report what is wrong with it.
type value struct {
	node
	file string
	sink *sink
	ctx  string // what a fault is about: `server "brave": url: `

	// hidden is set where a secret may stand: no fault repeats the value.
	hidden bool
}

func (v value) fault(format string, args ...any) {
	v.sink.add(Fault{File: v.file, Line: v.line, Column: v.col, Text: v.ctx + fmt.Sprintf(format, args...)})
}

// warn is fault for what is most likely a mistake, and is served all the same.
func (v value) warn(format string, args ...any) {
	v.sink.warn(Fault{File: v.file, Line: v.line, Column: v.col, Text: v.ctx + fmt.Sprintf(format, args...)})
}

// about returns v with other words in front of its faults.
func (v value) about(format string, args ...any) value {
	v.ctx = fmt.Sprintf(format, args...)
	return v
}

// shown is the value as faults repeat it.
func (v value) shown() string {
	switch {
	case v.hidden:
		return "the value (not shown here)"
	case v.kind == textKind:
		return shown(v.text)
	case v.kind == boolKind, v.kind == intKind, v.kind == floatKind:
		return shown(v.text)
	}
	return v.kind.String()
}

// old11 are the plain words that YAML 1.1 takes for true and false, and
// YAML 1.2 for text.
var old11 = map[string]bool{"yes": true, "no": true, "on": true, "off": true}

// str returns a text.
func (v value) str() (string, bool) {
	switch {
	case v.kind == textKind && !v.quoted && old11[strings.ToLower(v.text)]:
		v.fault("%s without quotes is text to some readers of YAML and true or false to others; put it in quotes", v.shown())
	case v.kind == textKind && v.text == "":
		v.fault("want text, not \"\"")
	case v.kind == textKind:
		return v.text, true
	case v.kind == boolKind, v.kind == intKind, v.kind == floatKind:
		v.fault("%s is %v here, and text is wanted; put it in quotes", v.shown(), v.kind)
	default:
		v.fault("want text, not %v", v.kind)
	}
	return "", false
}

// one returns a text that is one of known.
func (v value) one(noun string, known ...string) (string, bool) {
	if v.kind == textKind && slices.Contains(known, v.text) {
		return v.text, true // on and off too, which mean the same to every reader here
	}
	s, ok := v.str()
	if !ok {
		return "", false
	}
	if slices.Contains(known, s) {
		return s, true
	}
	v.fault("%s is no %s%s", v.shown(), noun, instead(s, noun+"s", known))
	return "", false
}

// integer returns a whole number between low and high, or 0.
func (v value) integer(low, high int) int {
	if v.kind != intKind {
		quotes := ""
		if v.kind == textKind && v.quoted {
			quotes = " without quotes"
		}
		v.fault("want a whole number%s, not %s", quotes, v.shown())
		return 0
	}
	// Only the one spelling that every reader takes for the same number: 010
	// is 8 to some, 1_000 is text to others.
	n, err := strconv.Atoi(v.text)
	if err != nil || strconv.Itoa(n) != v.text {
		v.fault("%s: write the number in plain decimal digits", v.shown())
		return 0
	}
	if n < low || n > high {
		v.fault("%d is out of range: want %d to %d", n, low, high)
		return 0
	}
	return n
}

// boolean returns true or false.
func (v value) boolean() bool {
	if v.kind != boolKind || v.text != "true" && v.text != "false" {
		v.fault("want true or false, not %s", v.shown())
	}
	return v.kind == boolKind && v.text == "true"
}

// duration returns a time span between low and high.
func (v value) duration(low, high time.Duration) (time.Duration, bool) {
	if v.kind == intKind || v.kind == floatKind {
		v.fault("%s has no unit; write 30s, 500ms or 2m", v.shown())
		return 0, false
	}
	s, ok := v.str()
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		v.fault("%s is no time span; write 30s, 500ms or 2m", v.shown())
		return 0, false
	}
	if d < low || d > high {
		v.fault("%s is out of range: want %v to %v", v.shown(), low, high)
		return 0, false
	}
	return d, true
}

// size reads a number of bytes, such as 64MiB.
func (v value) size(low, high int) int {
	if v.kind == intKind || v.kind == floatKind {
		v.fault("%s has no unit; write 512KiB, 64MiB or 1GiB", v.shown())
		return 0
	}
	s, ok := v.str()
	if !ok {
		return 0
	}
	for shift, unit := range map[int]string{10: "KiB", 20: "MiB", 30: "GiB"} {
		number, ok := strings.CutSuffix(s, unit)
		n, err := strconv.Atoi(number)
		switch {
		case !ok || err != nil:
		case n < 0 || n > high>>shift || n<<shift < low:
			v.fault("%s is out of range: want %dKiB to %dGiB", v.shown(), low>>10, high>>30)
			return 0
		default:
			return n << shift
		}
	}
	v.fault("%s is no size; write 512KiB, 64MiB or 1GiB", v.shown())
	return 0
}

// list returns the items of a list of at most limit.
func (v value) list(limit int) []value {
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
		out[i].node = n
	}
	return out
}

// A text is a string and the value that it stands in.
type text struct {
	value
	s string
}

// texts returns the items of a list of at most maxItems texts, each once.
func (v value) texts() []text {
	var out []text
	seen := map[string]bool{}
	for _, item := range v.list(maxItems) {
		s, ok := item.str()
		switch {
		case !ok:
		case seen[s]:
			item.fault("%s stands here twice", item.shown())
		default:
			seen[s] = true
			out = append(out, text{item, s})
		}
	}
	return out
}

// An entry is one pair of a map whose keys are the user's own names.
type entry struct {
	name string
	key  value // for faults about the name
	val  value
}

// entries returns the pairs of such a map, each name once. A pair whose value
// is absent is a fault, and is left out, unless bare is true.
func (v value) entries(limit int, bare bool) []entry {
	if v.kind != mapKind {
		v.fault("want a map, not %v", v.kind)
		return nil
	}
	if len(v.pairs) > limit {
		v.fault("%d entries are too many; at most %d are read", len(v.pairs), limit)
		return nil
	}
	var out []entry
	first := map[string]node{}
	for _, p := range v.pairs {
		e := entry{name: p.key.text, key: v, val: v}
		e.key.node, e.val.node = p.key, p.val
		// A key is no secret where it names something, but it may be one
		// where somebody wrote a secret without its name.
		e.key.hidden = v.hidden && (p.val.kind == nullKind || !plainName(p.key.text))
		switch {
		case p.key.kind != textKind || !p.key.quoted && old11[strings.ToLower(p.key.text)]:
			e.key.fault("the name %s must be put in quotes, else some readers of YAML take it for something else than text", e.key.shown())
			continue
		case p.key.text == "":
			e.key.fault("a name is empty")
			continue
		case p.val.kind == nullKind && !bare:
			e.key.fault("%s has no value; give it one, or remove it", e.key.shown())
			continue
		}
		if at, ok := first[e.name]; ok {
			e.key.fault("%s stands here twice, first at line %d", e.key.shown(), at.line)
			continue
		}
		first[e.name] = p.key
		out = append(out, e)
	}
	return out
}

// A shape is what a map with fixed keys may hold.
type shape struct {
	keys []string

	// later are keys that are part of the design and not yet of the program:
	// a rule that nobody enforces must not look as if it were in force.
	later []string

	// hints say what to write in place of a key that people expect.
	hints map[string]string
}

// An object is a map with fixed keys.
type object struct {
	value
	fields map[string]value
	meant  map[string]bool // known keys that an unknown one was probably meant to be
}

// object reads a map of the shape. Whatever is wrong with a key is a fault;
// the rest is there all the same, so that its faults are found too.
func (v value) object(s *shape) (object, bool) {
	o := object{value: v, fields: map[string]value{}, meant: map[string]bool{}}
	if v.kind != mapKind {
		v.fault("want a map, not %v", v.kind)
		return o, false
	}
	first := map[string]node{}
	for _, p := range v.pairs {
		key, val := v, v
		key.node, val.node = p.key, p.val
		key.hidden = v.hidden && (p.val.kind == nullKind || !plainName(p.key.text))
		name := p.key.text
		val.ctx = v.ctx + name + ": "
		at, again := first[name]
		switch {
		case again:
			key.fault("%s stands here twice, first at line %d", key.shown(), at.line)
		case !slices.Contains(s.keys, name):
			key.unknown(name, s)
			o.meant[nearest(name, s.keys)] = true
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

func (v value) unknown(name string, s *shape) {
	hint, ok := s.hints[name]
	switch {
	case slices.Contains(s.later, name):
		v.fault("%q is not supported yet", name)
	case ok:
		v.fault("%q is not a key here; %s", name, hint)
	case v.hidden || switchboard.CredentialValue(name):
		v.fault("a key that is not shown, since it may be a secret, is not one here; %s", listed("keys", s.keys))
	default:
		v.fault("%s is not a key here%s", shown(name), instead(name, "keys", s.keys))
	}
}

// get returns the value under a key, if there is one that can be read.
func (o object) get(name string) (value, bool) {
	v, ok := o.fields[name]
	return v, ok
}

// has reports whether the map has the key, readable or not.
func (o object) has(name string) bool {
	for _, p := range o.pairs {
		if p.key.text == name {
			return true
		}
	}
	return false
}

// need is get for a key that must be there. Where it is mistyped, that is the
// fault, not that it is missing.
func (o object) need(name, remedy string) (value, bool) {
	v, ok := o.fields[name]
	if !ok && !o.has(name) && !o.meant[name] {
		o.fault("%q is missing; %s", name, remedy)
	}
	return v, ok
}

// plainName reports whether s can be nothing but the name of a header or of a
// variable.
func plainName(s string) bool {
	return s != "" && len(s) <= maxShown && !switchboard.CredentialValue(s) &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}
