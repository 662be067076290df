package document

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Keys describe a map with fixed keys: one Row per key. The rows read the map, and the reference page and the JSON
// Schema are generated from them.
type Keys struct {
	Rows []Row

	// Later are keys of features that are designed but not built. They are faults, because a rule that
	// is not enforced must not look as if it were.
	Later []string

	// Hints say what to write instead of a key that people expect.
	Hints map[string]string
}

// A Row describes one key.
type Row struct {
	Key  string
	Type Type
	Doc  string // what the key does, for the reference and for editors

	// Required is the remedy for a missing key; "" means that the key may be absent.
	Required string

	// Late keys are read by FixedMap.ReadLate: their values depend on other keys, or on other files.
	Late bool
}

// names returns the keys in order.
func (k *Keys) names() []string {
	out := make([]string, len(k.Rows))
	for i, r := range k.Rows {
		out[i] = r.Key
	}
	return out
}

// A FixedMap is a map with fixed keys.
type FixedMap struct {
	Value
	fields   map[string]Value
	Mistyped map[string]bool // known keys that were probably meant by unknown ones
	keys     *Keys
}

// Open checks the keys of a map. A key with a fault does not stop the reading, so that the faults of the
// other keys are found too.
func (v Value) Open(keys *Keys) (FixedMap, bool) {
	m := FixedMap{Value: v, fields: map[string]Value{}, Mistyped: map[string]bool{}, keys: keys}
	if v.Kind != KindMap {
		v.Fault("want a map, not %v", v.Kind)
		return m, false
	}
	known := keys.names()
	first := map[string]Node{}
	for _, p := range v.Pairs {
		key, val := v, v
		key.Node, val.Node = p.Key, p.Value
		key.Hidden = v.Hidden && (p.Value.Kind == KindNull || !isPlainName(p.Key.Text))
		name := p.Key.Text
		val.Context = v.Context + name + ": "
		at, again := first[name]
		switch {
		case again:
			key.Fault("%s stands here twice, first at line %d", key.Shown(), at.Line)
		case !slices.Contains(known, name):
			key.faultUnknownKey(name, known, keys)
			m.Mistyped[Nearest(name, known)] = true
		case p.Value.Kind == KindNull:
			key.Fault("%q has no value; give it one, or remove the key", name)
		default:
			m.fields[name] = val
		}
		if !again {
			first[name] = p.Key
		}
	}
	return m, true
}

func (v Value) faultUnknownKey(name string, known []string, keys *Keys) {
	hint, ok := keys.Hints[name]
	switch {
	case slices.Contains(keys.Later, name):
		v.Fault("%q is not supported yet", name)
	case ok:
		v.Fault("%q is not a key here; %s", name, hint)
	case v.Hidden || switchboard.CredentialValue(name):
		v.Fault("a key that is not shown, since it may be a secret, is not one here; %s", ListKnown("keys", known))
	default:
		v.Fault("%s is not a key here%s", Shown(name), Suggestion(name, "keys", known))
	}
}

// Read reads the keys that are not late, in the order of the rows, and reports the missing ones.
func (m FixedMap) Read() { m.readRows(false) }

// ReadLate reads the late keys.
func (m FixedMap) ReadLate() { m.readRows(true) }

func (m FixedMap) readRows(late bool) {
	if m.keys == nil {
		return // the map could not be read
	}
	for _, r := range m.keys.Rows {
		if r.Late != late {
			continue
		}
		v, ok := m.fields[r.Key]
		if r.Required != "" {
			v, ok = m.Require(r.Key, r.Required)
		}
		if ok && r.Type.read != nil {
			r.Type.read(v)
		}
	}
}

// Lookup returns the value under a key, if the key is there and is readable.
func (m FixedMap) Lookup(name string) (Value, bool) {
	v, ok := m.fields[name]
	return v, ok
}

// HasKey reports whether the map has the key, readable or not.
func (m FixedMap) HasKey(name string) bool {
	for _, p := range m.Pairs {
		if p.Key.Text == name {
			return true
		}
	}
	return false
}

// Require is Lookup for a key that must be there. A missing key is a fault, unless it was probably
// mistyped, which is a fault already.
func (m FixedMap) Require(name, remedy string) (Value, bool) {
	v, ok := m.fields[name]
	if !ok && !m.HasKey(name) && !m.Mistyped[name] {
		m.Fault("%q is missing; %s", name, remedy)
	}
	return v, ok
}

// A Type says which values a key may have, and how they are read.
type Type struct {
	read   func(v Value) // nil if the caller reads the value with Lookup
	text   string        // for the reference: "a time from 1s to 1h"
	schema Schema

	// keys are the keys of the map, or of each map in a list or map. below is the part of the path to
	// them: "", "[]" for a list, or the name of the user's names, such as "ID".
	keys  func() *Keys
	below string
	null  bool // each of the maps may be absent
}

// A Schema is a JSON Schema.
type Schema map[string]any

// Custom is a type that read reads; read may be nil if the caller reads the value with Lookup. text describes the
// values, schema is their JSON Schema.
func Custom(text string, schema Schema, read func(v Value)) Type {
	return Type{read: read, text: text, schema: schema}
}

// With returns the type with another way to read it.
func (t Type) With(read func(v Value)) Type {
	t.read = read
	return t
}

// Wrap returns the type with a condition before it is read.
func (t Type) Wrap(allowed func(v Value) bool) Type {
	read := t.read
	return t.With(func(v Value) {
		if allowed(v) && read != nil {
			read(v)
		}
	})
}

// OrNull returns the type of a map whose values may be absent: a name is enough.
func (t Type) OrNull() Type {
	t.null = true
	return t
}

// Text is a text that is not empty.
func Text(text string, read func(v Value, s string)) Type {
	return Custom(text, Schema{"type": "string", "minLength": 1}, func(v Value) {
		if s, ok := v.ReadText(); ok {
			read(v, s)
		}
	})
}

// OneOf is one of the known texts. noun names them in faults. set gets "" after a fault.
func OneOf(noun string, set func(s string), known ...string) Type {
	return Custom("one of `"+strings.Join(known, "`, `")+"`", Schema{"enum": known}, func(v Value) {
		s, _ := v.OneOf(noun, known...)
		set(s)
	})
}

// Integer is a whole number.
func Integer(low, high int, to *int) Type {
	return Custom(fmt.Sprintf("a whole number from %d to %d", low, high), Schema{"type": "integer", "minimum": low, "maximum": high}, func(v Value) {
		*to = v.ReadInteger(low, high)
	})
}

// Bool is true or false.
func Bool(to *bool) Type {
	return Custom("`true` or `false`", Schema{"type": "boolean"}, func(v Value) { *to = v.ReadBool() })
}

// Duration is a time with a unit.
func Duration(low, high time.Duration, to *time.Duration) Type {
	const pattern = `^([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)`
	return Custom(fmt.Sprintf("a time from `%s` to `%s`", shortDuration(low), shortDuration(high)), Schema{"type": "string", "pattern": pattern}, func(v Value) {
		if d, ok := v.ReadDuration(low, high); ok {
			*to = d
		}
	})
}

// shortDuration returns a duration without zero units: 1h and not 1h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Size is a number of bytes with a unit.
func Size(low, high int, to *int) Type {
	return Custom(fmt.Sprintf("a size from `%s` to `%s`", shortSize(low), shortSize(high)), Schema{"type": "string", "pattern": `^[0-9]+(KiB|MiB|GiB)$`}, func(v Value) {
		*to = v.ReadSize(low, high)
	})
}

func shortSize(n int) string {
	for _, u := range []struct {
		unit string
		size int
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprint(n/u.size, u.unit)
		}
	}
	return fmt.Sprint(n>>10, "KiB")
}

// Texts is a list of different texts.
func Texts(text string, read func(texts []TextValue)) Type {
	return Custom(text, Schema{"type": "array", "items": Schema{"type": "string", "minLength": 1}, "uniqueItems": true, "maxItems": MaxItems}, func(v Value) {
		read(v.ReadTexts())
	})
}

// Map is a map with fixed keys. after, if not nil, is called when the keys have been read.
func Map(keys func() *Keys, after func(m FixedMap)) Type {
	return Type{text: "a map", keys: keys, read: func(v Value) {
		if m, ok := v.Open(keys()); ok {
			m.Read()
			m.ReadLate()
			if after != nil {
				after(m)
			}
		}
	}}
}

// MapList is a list of maps with fixed keys.
func MapList(text string, keys func() *Keys, read func(v Value)) Type {
	return Type{text: text, keys: keys, below: "[]", read: read}
}

// Named is a map with names that the user chooses, such as ids. Its values are maps with fixed keys.
func Named(text, name string, keys func() *Keys, read func(v Value)) Type {
	return Type{text: text, keys: keys, below: name, read: read}
}
