package contract

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A move turns the arguments of one tool into those of another.
type move struct {
	// declared is what it is made of. nil means that both tools take the same,
	// so that arguments stay as they are.
	declared *switchboard.Declared
	from, to switchboard.Digest

	wrong []string        // why it is none
	gives map[string]bool // the arguments of the one tool
	drop  map[string]bool // those of them that are left out
	takes map[string]bool // the arguments of the other
	taker *definition
}

// newMove holds what is declared against the schemas of both tools.
func newMove(d *switchboard.Declared, from, to *switchboard.Tool) *move {
	m := &move{declared: d, from: from.Digest, to: to.Digest, taker: definitionOf(to), drop: map[string]bool{}}
	giver, taker := argumentsOf(from), argumentsOf(to)
	m.gives, m.takes = names(giver.of), names(taker.of)
	wrong := func(format string, args ...any) { m.wrong = append(m.wrong, fmt.Sprintf(format, args...)) }

	if from.ID.Server == to.ID.Server {
		wrong("it is of the same server; calls move to another one")
	}
	schema, err := m.taker.input()
	if err != nil {
		wrong("its input schema cannot be held against arguments: %v", err)
		return m
	}
	if _, promised := wire.Field(from.Definition, output); promised {
		if _, ok := wire.Field(to.Definition, output); !ok {
			wrong("its results have no structured content, and those of this tool promise one (outputSchema)")
		}
	}

	for _, name := range d.Drop {
		if !m.gives[name] {
			wrong("drop: this tool has no argument %s", quoted(name))
		}
		if _, ok := d.Map[name]; ok {
			wrong("drop: the map sends %s", quoted(name))
		}
		m.drop[name] = true
	}
	for _, name := range sorted(d.Map) {
		if !m.gives[name] {
			wrong("map: this tool has no argument %s", quoted(name))
		}
	}

	// By what each argument of the other is provided.
	provided := map[string]string{}
	provide := func(name, by string) {
		if other, twice := provided[name]; twice {
			wrong("%s and %s both become its argument %s", other, by, quoted(name))
			return
		}
		provided[name] = by
	}
	for _, name := range sorted(giver.of) {
		to, mapped := d.Map[name]
		switch {
		case m.drop[name]:
			continue
		case !mapped:
			to = name
		}
		switch {
		case m.takes[to]:
			provide(to, "the argument "+quoted(name))
			if disjoint(giver.of[name], taker.of[to]) {
				wrong("its argument %s is of another type than this tool's %s", quoted(to), quoted(name))
			}
		case mapped:
			wrong("map: it has no argument %s", quoted(to))
		case slices.Contains(giver.required, name):
			wrong("it has no argument %s, which every call of this tool gives; map it, or drop it", quoted(name))
		}
	}
	for _, name := range sorted(d.Constants) {
		provide(name, "the constant")
		m.suits("constants", name, d.Constants[name], schema)
	}
	for _, name := range sorted(d.Defaults) {
		if _, ok := d.Constants[name]; ok {
			wrong("defaults: %s is a constant", quoted(name))
		}
		provided[name] = "the default"
		m.suits("defaults", name, d.Defaults[name], schema)
	}
	for _, name := range taker.required {
		if provided[name] == "" {
			wrong("nothing becomes its argument %s, which it requires; map one, or give a constant or default", quoted(name))
		}
	}
	return m
}

// suits holds the value of a constant or default against what the other tool's
// schema says of the argument.
func (m *move) suits(key, name string, value []byte, taker *schema) {
	if !m.takes[name] {
		m.wrong = append(m.wrong, fmt.Sprintf("%s: it has no argument %s", key, quoted(name)))
		return
	}
	if s := taker.property(name); s != nil {
		if err := s.check(value); err != nil {
			m.wrong = append(m.wrong, fmt.Sprintf("%s: the value of %s does not fit: %v", key, quoted(name), err))
		}
	}
}

func names(m map[string][]byte) map[string]bool {
	out := make(map[string]bool, len(m))
	for name := range m {
		out[name] = true
	}
	return out
}

// arguments are what an input schema says of them at its top.
type arguments struct {
	of       map[string][]byte // the schema of each
	required []string          // sorted
}

func argumentsOf(t *switchboard.Tool) arguments {
	a := arguments{of: map[string][]byte{}}
	raw, _ := wire.Field(t.Definition, input)
	properties, _ := wire.Field(raw, "properties")
	maps.Insert(a.of, wire.Members(properties))
	required, _ := wire.Field(raw, "required")
	for e := range wire.Elements(required) {
		if name, ok := wire.String(e); ok {
			a.required = append(a.required, name)
		}
	}
	slices.Sort(a.required)
	a.required = slices.Compact(a.required)
	return a
}

// disjoint reports whether no value is of a type of both schemas. A schema that
// names no type takes all.
func disjoint(a, b []byte) bool {
	x, y := typesOf(a), typesOf(b)
	if x == nil || y == nil {
		return false
	}
	for t := range x {
		if y[t] || t == "integer" && y["number"] || t == "number" && y["integer"] {
			return false
		}
	}
	return true
}

func typesOf(schema []byte) map[string]bool {
	raw, ok := wire.Field(schema, "type")
	if !ok {
		return nil
	}
	if t, ok := wire.String(raw); ok {
		return map[string]bool{t: true}
	}
	types := map[string]bool{}
	for e := range wire.Elements(raw) {
		if t, ok := wire.String(e); ok {
			types[t] = true
		}
	}
	return types
}

// params gives the params of a call as the other tool takes them. Of what
// stands in them only the arguments change, and of these the names, and what is
// added or dropped; values stay byte for byte.
func (m *move) params(params []byte) ([]byte, error) {
	args, given := wire.Field(params, "arguments")
	if given && (len(args) == 0 || args[0] != '{') {
		return nil, errors.New("the arguments are no object")
	}
	if !given {
		args = []byte("{}")
	}
	out := params
	if m.declared != nil {
		moved, err := m.arguments(args)
		if err != nil {
			return nil, err
		}
		if args = moved; given || len(args) > len("{}") {
			out = wire.Rewrite(make([]byte, 0, len(params)+len(args)), params, wire.Edit{Name: "arguments", Value: args})
		}
	}
	s, err := m.taker.input()
	if err != nil {
		return nil, fmt.Errorf("the arguments cannot be checked: %w", err)
	}
	if err := s.check(args); err != nil {
		return nil, fmt.Errorf("the arguments do not fit: %w", err)
	}
	return out, nil
}

// arguments gives the object of arguments as the other tool takes it.
func (m *move) arguments(args []byte) ([]byte, error) {
	d := m.declared
	out := append(make([]byte, 0, len(args)+64), '{')
	sent := map[string]bool{}
	add := func(name string, value []byte) {
		if len(sent) > 0 {
			out = append(out, ',')
		}
		sent[name] = true
		out = append(append(wire.AppendString(out, name), ':'), value...)
	}
	for name, value := range wire.Members(args) {
		if m.drop[name] {
			continue
		}
		if !m.gives[name] {
			// The first tool may ignore it, and the other one act on it.
			return nil, fmt.Errorf("this tool has no argument %s", quoted(name))
		}
		to := name
		if other, ok := d.Map[name]; ok {
			to = other
		}
		if !m.takes[to] {
			return nil, fmt.Errorf("there is no argument %s there", quoted(to))
		}
		if _, constant := d.Constants[to]; constant || sent[to] {
			return nil, fmt.Errorf("the argument %s would be given twice", quoted(to))
		}
		add(to, value)
	}
	for _, name := range sorted(d.Constants) {
		add(name, d.Constants[name])
	}
	for _, name := range sorted(d.Defaults) {
		if !sent[name] {
			add(name, d.Defaults[name])
		}
	}
	return append(out, '}'), nil
}
