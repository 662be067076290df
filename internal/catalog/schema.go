package catalog

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of the JSON Schemas in a definition, so that nobody who compiles or
// applies one later can be made to work without end. Real ones need patterns of
// 261 bytes and expand to fewer than 4,000 schemas.
const (
	MaxPatternBytes = 1_024   // of a regular expression
	MaxExpanded     = 100_000 // schemas, each counted as often as references lead to it
)

// An edge says how a schema holds another.
type edge uint8

const (
	inPlace  edge = iota // both are applied to the same value
	inside               // it is applied to what is in the value
	property             // the same, and the value is the one member of a name
	shelf                // it is applied only where something refers to it
)

// keywords are those that hold schemas: one, a list of them, or a map.
var keywords = map[string]edge{
	"allOf": inPlace, "anyOf": inPlace, "oneOf": inPlace, "not": inPlace,
	"if": inPlace, "then": inPlace, "else": inPlace,
	"dependentSchemas": inPlace, "dependencies": inPlace,

	"properties":        property,
	"patternProperties": inside, "additionalProperties": inside, "unevaluatedProperties": inside,
	"propertyNames": inside, "items": inside, "prefixItems": inside, "additionalItems": inside,
	"unevaluatedItems": inside, "contains": inside, "contentSchema": inside,

	"$defs": shelf, "definitions": shelf,
}

// authored are the keywords whose members are named by the schema's author.
var authored = []string{"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}

// A schemaCheck walks one schema of a tree.
type schemaCheck struct {
	*tree
	root    int32
	field   string
	headers map[string]bool // those seen, in lower case; nil where they mean nothing

	walked  []bool            // by node
	refs    map[int32][]int32 // from a schema to those that it refers to
	later   []int32           // referred to, perhaps not walked yet
	ownID   int32             // a schema within that has an $id
	anchors map[string]int32
	byName  map[int32]map[string]int32 // the members of objects that references lead through
	problem *problem
}

// checkSchema says why the schema at root cannot be used, or nil. References
// must stay within it; one that leads nowhere is left to whoever applies the
// schema.
func checkSchema(t *tree, root int32, field string, input bool) *problem {
	if t.nodes[root].kind != '{' {
		return problemf(field, "is %s; want a JSON Schema object", t.kindName(root))
	}
	s := &schemaCheck{tree: t, root: root, field: field, walked: make([]bool, len(t.nodes))}
	if input {
		s.headers = map[string]bool{}
	}
	s.walk(root, true)
	// What a reference leads to may stand where no schema would stand.
	for i := 0; i < len(s.later) && s.problem == nil; i++ {
		s.walk(s.later[i], false)
	}
	switch {
	case s.problem != nil || s.refs == nil:
	case s.ownID != none:
		s.fault(s.ownID, "is an $id within the schema, so that it is not certain where references lead")
	default:
		s.checkLoops()
		s.checkExpanded()
	}
	return s.problem
}

// fault notes the first problem.
func (s *schemaCheck) fault(n int32, format string, args ...any) {
	if s.problem != nil {
		return
	}
	field := s.field
	if at := s.path(s.root, n); at != "" {
		field += "." + at
	}
	s.problem = problemf(field, format, args...)
}

// eachSchema calls f for every schema that stands directly in the schema at n.
func (s *schemaCheck) eachSchema(n int32, f func(child int32, e edge)) {
	if s.nodes[n].kind != '{' {
		return // true or false
	}
	for m := s.nodes[n].first; m != none; m = s.nodes[m].next {
		e, ok := keywords[string(s.nodes[m].name)]
		if !ok {
			continue
		}
		several := s.nodes[m].kind == '[' || s.nodes[m].kind == '{' && slices.Contains(authored, string(s.nodes[m].name))
		if !several {
			if isSchema(s.nodes[m].kind) {
				f(m, e)
			}
			continue
		}
		for c := s.nodes[m].first; c != none; c = s.nodes[c].next {
			if isSchema(s.nodes[c].kind) { // dependencies also has lists of names
				f(c, e)
			}
		}
	}
}

func isSchema(k jsontext.Kind) bool { return k == '{' || k == 't' || k == 'f' }

// walk looks at the schema at n and at all within it. reachable says whether
// nothing but properties lead here from the root.
func (s *schemaCheck) walk(n int32, reachable bool) {
	if s.problem != nil || s.walked[n] || s.nodes[n].kind != '{' {
		return
	}
	s.walked[n] = true
	for m := s.nodes[n].first; m != none; m = s.nodes[m].next {
		switch string(s.nodes[m].name) {
		case "$ref", "$dynamicRef", "$recursiveRef":
			s.reference(n, m)
		case "$id":
			if n != s.root && s.nodes[m].kind == '"' {
				s.ownID = m
			}
		case "pattern":
			if s.nodes[m].kind == '"' && len(s.nodes[m].raw) > MaxPatternBytes {
				s.fault(m, "is %d bytes long; at most %d are allowed", len(s.nodes[m].raw), MaxPatternBytes)
			}
		case "patternProperties":
			for c := s.nodes[m].first; c != none; c = s.nodes[c].next {
				if len(s.nodes[c].name) > MaxPatternBytes {
					s.fault(m, "has a pattern of %d bytes; at most %d are allowed", len(s.nodes[c].name), MaxPatternBytes)
				}
			}
		case headerKeyword:
			if s.headers != nil {
				s.checkHeader(n, m, reachable)
			}
		}
	}
	s.eachSchema(n, func(child int32, e edge) { s.walk(child, reachable && e == property) })
}

// reference notes where the reference at m, a member of the schema at n, leads.
func (s *schemaCheck) reference(n, m int32) {
	ref, ok := s.text(m)
	if !ok {
		s.fault(m, "is %s; want a string", s.kindName(m))
		return
	}
	if ref != "" && ref[0] != '#' {
		s.fault(m, "refers to %s; only references within the schema, which begin with #, are followed", quoted(ref))
		return
	}
	if s.refs == nil {
		s.refs = map[int32][]int32{}
	}
	if to, ok := s.resolve(ref); ok && isSchema(s.nodes[to].kind) {
		s.refs[n] = append(s.refs[n], to)
		s.later = append(s.later, to)
	}
}

// resolve finds what a reference within the schema leads to.
func (s *schemaCheck) resolve(ref string) (int32, bool) {
	fragment, err := url.PathUnescape(strings.TrimPrefix(ref, "#"))
	if err != nil {
		return none, false
	}
	if fragment == "" {
		return s.root, true
	}
	if fragment[0] != '/' {
		return s.anchor(fragment)
	}
	at := s.root
	for token := range strings.SplitSeq(fragment[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		next := none
		if s.nodes[at].kind == '[' {
			if i, err := strconv.ParseUint(token, 10, 16); err == nil {
				next = s.element(at, int(i))
			}
		} else {
			next = s.named(at, token)
		}
		if next == none {
			return none, false
		}
		at = next
	}
	return at, true
}

// named is member, for an object that is asked again and again.
func (s *schemaCheck) named(n int32, name string) int32 {
	members := s.byName[n]
	if members == nil {
		members = map[string]int32{}
		for c := s.nodes[n].first; c != none; c = s.nodes[c].next {
			members[string(s.nodes[c].name)] = c
		}
		if s.byName == nil {
			s.byName = map[int32]map[string]int32{}
		}
		s.byName[n] = members
	}
	return members[name]
}

func (s *schemaCheck) element(n int32, i int) int32 {
	c := s.nodes[n].first
	for ; i > 0 && c != none; i-- {
		c = s.nodes[c].next
	}
	return c
}

func (s *schemaCheck) anchor(name string) (int32, bool) {
	if s.anchors == nil {
		s.anchors = map[string]int32{}
		for i := s.root; i < s.end(); i++ {
			for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
				if a := s.member(i, keyword); a != none {
					if text, ok := s.text(a); ok {
						s.anchors[text] = i
					}
				}
			}
		}
	}
	n, ok := s.anchors[name]
	return n, ok
}

// end is the first node after the schema.
func (s *schemaCheck) end() int32 {
	if next := s.nodes[s.root].next; next != none {
		return next
	}
	return int32(len(s.nodes))
}

// checkLoops refuses schemas that are applied to one and the same value again
// and again: whoever follows them does not come back. Recursion through
// properties or items is fine, since it ends with the value.
func (s *schemaCheck) checkLoops() {
	const open, done = 1, 2
	state := make([]byte, len(s.nodes))
	var visit func(n int32)
	visit = func(n int32) {
		switch {
		case s.problem != nil || state[n] == done:
			return
		case state[n] == open:
			s.fault(n, "refers to itself without end")
			return
		}
		state[n] = open
		s.eachSchema(n, func(child int32, e edge) {
			if e == inPlace {
				visit(child)
			}
		})
		for _, to := range s.refs[n] {
			visit(to)
		}
		state[n] = done
	}
	for n, walked := range s.walked {
		if walked {
			visit(int32(n))
		}
	}
}

// checkExpanded refuses schemas that are small only as long as nobody follows
// their references: doubled 22 times, one costs a reader half a minute.
func (s *schemaCheck) checkExpanded() {
	const open = -1
	cost := make([]int, len(s.nodes))
	var count func(n int32) int
	count = func(n int32) int {
		switch {
		case cost[n] == open:
			return 1 // recursion through the value; checkLoops has found the other kind
		case cost[n] != 0:
			return cost[n]
		}
		cost[n] = open
		sum := 1
		s.eachSchema(n, func(child int32, e edge) {
			if e != shelf {
				sum = min(sum+count(child), MaxExpanded+1)
			}
		})
		for _, to := range s.refs[n] {
			sum = min(sum+count(to), MaxExpanded+1)
		}
		cost[n] = sum
		return sum
	}
	if s.problem == nil && count(s.root) > MaxExpanded {
		s.fault(s.root, "expands to more than %d schemas when references are followed", MaxExpanded)
	}
}
