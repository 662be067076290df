package contract

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A move translates the arguments of one tool into those of another.
type move struct {
	// declared is the declaration. nil means that both tools accept the same arguments, so that they stay unchanged.
	declared *switchboard.DeclaredEquivalent
	from, to switchboard.Digest

	faults         []string        // the reasons why it is invalid
	giverArguments map[string]bool // the arguments of the first tool
	dropped        map[string]bool // the arguments of the first tool that are left out
	takerArguments map[string]bool // the arguments of the other tool
	taker          *toolSchemas
}

// newMove checks a declaration against the schemas of both tools.
func newMove(d *switchboard.DeclaredEquivalent, from, to *switchboard.Tool) *move {
	m := &move{declared: d, from: from.Digest, to: to.Digest, taker: schemasOf(to), dropped: map[string]bool{}}
	giver, taker := argumentsOf(from), argumentsOf(to)
	m.giverArguments, m.takerArguments = nameSet(giver.of), nameSet(taker.of)
	wrong := func(format string, args ...any) { m.faults = append(m.faults, fmt.Sprintf(format, args...)) }

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
		if !m.giverArguments[name] {
			wrong("drop: this tool has no argument %s", safeQuote(name))
		}
		if _, ok := d.Map[name]; ok {
			wrong("drop: the map sends %s", safeQuote(name))
		}
		m.dropped[name] = true
	}
	for _, name := range sortedKeys(d.Map) {
		if !m.giverArguments[name] {
			wrong("map: this tool has no argument %s", safeQuote(name))
		}
	}

	// provided maps each argument of the other tool to its origin.
	provided := map[string]string{}
	provide := func(name, by string) {
		if other, twice := provided[name]; twice {
			wrong("%s and %s both become its argument %s", other, by, safeQuote(name))
			return
		}
		provided[name] = by
	}
	for _, name := range sortedKeys(giver.of) {
		to, mapped := d.Map[name]
		switch {
		case m.dropped[name]:
			continue
		case !mapped:
			to = name
		}
		switch {
		case m.takerArguments[to]:
			provide(to, "the argument "+safeQuote(name))
			if disjointTypes(giver.of[name], taker.of[to]) {
				wrong("its argument %s is of another type than this tool's %s", safeQuote(to), safeQuote(name))
			}
		case mapped:
			wrong("map: it has no argument %s", safeQuote(to))
		case slices.Contains(giver.required, name):
			wrong("it has no argument %s, which every call of this tool gives; map it, or drop it", safeQuote(name))
		}
	}
	for _, name := range sortedKeys(d.Constants) {
		provide(name, "the constant")
		m.checkValue("constants", name, d.Constants[name], schema)
	}
	for _, name := range sortedKeys(d.Defaults) {
		if _, ok := d.Constants[name]; ok {
			wrong("defaults: %s is a constant", safeQuote(name))
		}
		provided[name] = "the default"
		m.checkValue("defaults", name, d.Defaults[name], schema)
	}
	for _, name := range taker.required {
		if provided[name] == "" {
			wrong("nothing becomes its argument %s, which it requires; map one, or give a constant or default", safeQuote(name))
		}
	}
	return m
}

// checkValue checks the value of a constant or default against the other tool's schema for the argument.
func (m *move) checkValue(key, name string, value []byte, taker *schema) {
	if !m.takerArguments[name] {
		m.faults = append(m.faults, fmt.Sprintf("%s: it has no argument %s", key, safeQuote(name)))
		return
	}
	if s := taker.property(name); s != nil {
		if err := s.check(value); err != nil {
			m.faults = append(m.faults, fmt.Sprintf("%s: the value of %s does not fit: %v", key, safeQuote(name), err))
		}
	}
}

func nameSet(m map[string][]byte) map[string]bool {
	out := make(map[string]bool, len(m))
	for name := range m {
		out[name] = true
	}
	return out
}

// arguments are the arguments at the top level of an input schema.
type arguments struct {
	of       map[string][]byte // the schema of each argument
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

// disjointTypes reports whether no type is in both schemas. A schema without a type allows all types.
func disjointTypes(a, b []byte) bool {
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

// moveParams returns the params of a call for the other tool. It changes only the arguments: their names, and the ones that
// are added or dropped. Values stay byte for byte.
func (m *move) moveParams(params []byte) ([]byte, error) {
	args, given := wire.Field(params, "arguments")
	if given && (len(args) == 0 || args[0] != '{') {
		return nil, errors.New("the arguments are not an object")
	}
	if !given {
		args = []byte("{}")
	}
	out := params
	if m.declared != nil {
		moved, err := m.moveArguments(args)
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

// moveArguments returns the object of arguments for the other tool.
func (m *move) moveArguments(args []byte) ([]byte, error) {
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
		if m.dropped[name] {
			continue
		}
		if !m.giverArguments[name] {
			// The first tool may ignore it while the other tool acts on it.
			return nil, fmt.Errorf("this tool has no argument %s", safeQuote(name))
		}
		to := name
		if other, ok := d.Map[name]; ok {
			to = other
		}
		if !m.takerArguments[to] {
			return nil, fmt.Errorf("there is no argument %s there", safeQuote(to))
		}
		if _, constant := d.Constants[to]; constant || sent[to] {
			return nil, fmt.Errorf("the argument %s would be given twice", safeQuote(to))
		}
		add(to, value)
	}
	for _, name := range sortedKeys(d.Constants) {
		add(name, d.Constants[name])
	}
	for _, name := range sortedKeys(d.Defaults) {
		if !sent[name] {
			add(name, d.Defaults[name])
		}
	}
	return append(out, '}'), nil
}
