package catalog

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of the JSON Schemas in a definition, so that a program that compiles or applies one later cannot be made to
// work without end. Real schemas need patterns of 261 bytes and expand to fewer than 4,000 schemas.
const (
	MaxPatternBytes = 1_024   // of a regular expression
	MaxExpanded     = 100_000 // schemas, each counted once for every reference to it
)

// A schemaEdge is the relation of a schema to a schema inside it.
type schemaEdge uint8

const (
	inPlace         schemaEdge = iota // both apply to the same value
	inside                            // the inner schema applies to parts of the value
	property                          // the inner schema applies to the single member with a certain name
	definitionsOnly                   // the inner schema applies only where a reference leads to it
)

// keywords are the keywords that hold schemas: one schema, a list of schemas, or a map.
var keywords = map[string]schemaEdge{
	"allOf": inPlace, "anyOf": inPlace, "oneOf": inPlace, "not": inPlace,
	"if": inPlace, "then": inPlace, "else": inPlace,
	"dependentSchemas": inPlace, "dependencies": inPlace,

	"properties":        property,
	"patternProperties": inside, "additionalProperties": inside, "unevaluatedProperties": inside,
	"propertyNames": inside, "items": inside, "prefixItems": inside, "additionalItems": inside,
	"unevaluatedItems": inside, "contains": inside, "contentSchema": inside,

	"$defs": definitionsOnly, "definitions": definitionsOnly,
}

// authorNamed are the keywords with members named by the schema's author.
var authorNamed = []string{"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}

// A schemaChecker checks one schema in a tree.
type schemaChecker struct {
	*tree
	root    int32
	field   string
	headers map[string]bool // the headers found so far, in lower case; nil if headers do not matter

	walked  []bool            // by node
	refs    map[int32][]int32 // from a schema to the schemas that it refers to
	pending []int32           // referred to; may not have been walked yet
	ownID   int32             // an inner schema that has an $id
	anchors map[string]int32
	byName  map[int32]map[string]int32 // the members of objects that references pass through
	problem *problem
}

// checkSchema returns why the schema at root, an object, cannot be used, or nil. References must stay within the schema. A
// reference without a target is left to the code that applies the schema.
func checkSchema(t *tree, root int32, field string, input bool) *problem {
	s := &schemaChecker{tree: t, root: root, field: field, walked: make([]bool, len(t.nodes))}
	if input {
		s.headers = map[string]bool{}
	}
	s.checkSchemaAt(root, true)
	// A reference may lead to a place that is not a place for schemas.
	for i := 0; i < len(s.pending) && s.problem == nil; i++ {
		s.checkSchemaAt(s.pending[i], false)
	}
	switch {
	case s.problem != nil || s.refs == nil:
	case s.ownID != none:
		s.setProblem(s.ownID, "is an $id within the schema, so that it is not certain where references lead")
	default:
		s.checkLoops()
		s.checkExpanded()
	}
	return s.problem
}

// setProblem records the first problem.
func (s *schemaChecker) setProblem(n int32, format string, args ...any) {
	if s.problem != nil {
		return
	}
	field := s.field
	if at := s.path(s.root, n); at != "" {
		field += "." + at
	}
	s.problem = problemf(field, format, args...)
}

// eachSchema calls f for every direct inner schema of the schema at n.
func (s *schemaChecker) eachSchema(n int32, f func(child int32, e schemaEdge)) {
	if s.nodes[n].kind != '{' {
		return // true or false
	}
	for m := s.nodes[n].first; m != none; m = s.nodes[m].next {
		e, ok := keywords[string(s.nodes[m].name)]
		if !ok {
			continue
		}
		several := s.nodes[m].kind == '[' || s.nodes[m].kind == '{' && slices.Contains(authorNamed, string(s.nodes[m].name))
		if !several {
			if isSchema(s.nodes[m].kind) {
				f(m, e)
			}
			continue
		}
		for c := s.nodes[m].first; c != none; c = s.nodes[c].next {
			if isSchema(s.nodes[c].kind) { // dependencies may also have lists of names
				f(c, e)
			}
		}
	}
}

func isSchema(k jsontext.Kind) bool { return k == '{' || k == 't' || k == 'f' }

// checkSchemaAt checks the schema at n and all schemas in it. reachable says whether only properties lead from the root to it.
func (s *schemaChecker) checkSchemaAt(n int32, reachable bool) {
	if s.problem != nil || s.walked[n] || s.nodes[n].kind != '{' {
		return
	}
	s.walked[n] = true
	for m := s.nodes[n].first; m != none; m = s.nodes[m].next {
		switch string(s.nodes[m].name) {
		case "$ref", "$dynamicRef", "$recursiveRef":
			s.recordReference(n, m)
		case "$id":
			if n != s.root && s.nodes[m].kind == '"' {
				s.ownID = m
			}
		case "pattern":
			if s.nodes[m].kind == '"' && len(s.nodes[m].raw) > MaxPatternBytes {
				s.setProblem(m, "is %d bytes long; at most %d are allowed", len(s.nodes[m].raw), MaxPatternBytes)
			}
		case "patternProperties":
			for c := s.nodes[m].first; c != none; c = s.nodes[c].next {
				if len(s.nodes[c].name) > MaxPatternBytes {
					s.setProblem(m, "has a pattern of %d bytes; at most %d are allowed", len(s.nodes[c].name), MaxPatternBytes)
				}
			}
		case headerKeyword:
			if s.headers != nil {
				s.checkHeader(n, m, reachable)
			}
		}
	}
	s.eachSchema(n, func(child int32, e schemaEdge) { s.checkSchemaAt(child, reachable && e == property) })
}

// recordReference records the target of the reference at m, a member of the schema at n.
func (s *schemaChecker) recordReference(n, m int32) {
	ref, ok := s.stringValue(m)
	if !ok {
		s.setProblem(m, "is %s; want a string", s.kindName(m))
		return
	}
	if ref != "" && ref[0] != '#' {
		s.setProblem(m, "refers to %s; only references within the schema, which begin with #, are followed", safeQuote(ref))
		return
	}
	if s.refs == nil {
		s.refs = map[int32][]int32{}
	}
	if to, ok := s.resolveReference(ref); ok && isSchema(s.nodes[to].kind) {
		s.refs[n] = append(s.refs[n], to)
		s.pending = append(s.pending, to)
	}
}

// resolveReference returns the target of a reference within the schema.
func (s *schemaChecker) resolveReference(ref string) (int32, bool) {
	fragment, err := url.PathUnescape(strings.TrimPrefix(ref, "#"))
	if err != nil {
		return none, false
	}
	if fragment == "" {
		return s.root, true
	}
	if fragment[0] != '/' {
		return s.resolveAnchor(fragment)
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
			next = s.cachedMember(at, token)
		}
		if next == none {
			return none, false
		}
		at = next
	}
	return at, true
}

// cachedMember is member for an object that is searched often.
func (s *schemaChecker) cachedMember(n int32, name string) int32 {
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

func (s *schemaChecker) element(n int32, i int) int32 {
	c := s.nodes[n].first
	for ; i > 0 && c != none; i-- {
		c = s.nodes[c].next
	}
	return c
}

func (s *schemaChecker) resolveAnchor(name string) (int32, bool) {
	if s.anchors == nil {
		s.anchors = map[string]int32{}
		for i := s.root; i < s.endNode(); i++ {
			for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
				if a := s.member(i, keyword); a != none {
					if text, ok := s.stringValue(a); ok {
						s.anchors[text] = i
					}
				}
			}
		}
	}
	n, ok := s.anchors[name]
	return n, ok
}

// endNode returns the first node after the schema.
func (s *schemaChecker) endNode() int32 {
	if next := s.nodes[s.root].next; next != none {
		return next
	}
	return int32(len(s.nodes))
}

// checkLoops refuses schemas that apply to the same value again and again, because code that follows them never ends.
// Recursion through properties or items is fine, because it ends with the value.
func (s *schemaChecker) checkLoops() {
	const open, done = 1, 2
	state := make([]byte, len(s.nodes))
	var visit func(n int32)
	visit = func(n int32) {
		switch {
		case s.problem != nil || state[n] == done:
			return
		case state[n] == open:
			s.setProblem(n, "refers to itself without end")
			return
		}
		state[n] = open
		s.eachSchema(n, func(child int32, e schemaEdge) {
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

// checkExpanded refuses schemas that are small only while their references are not followed. One that doubles 22 times
// costs a reader half a minute.
func (s *schemaChecker) checkExpanded() {
	const open = -1
	cost := make([]int, len(s.nodes))
	var count func(n int32) int
	count = func(n int32) int {
		switch {
		case cost[n] == open:
			return 1 // this recursion goes into the value; checkLoops has found the other kind
		case cost[n] != 0:
			return cost[n]
		}
		cost[n] = open
		sum := 1
		s.eachSchema(n, func(child int32, e schemaEdge) {
			if e != definitionsOnly {
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
		s.setProblem(s.root, "expands to more than %d schemas when references are followed", MaxExpanded)
	}
}
