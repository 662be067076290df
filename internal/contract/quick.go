package contract

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A quickSchema accepts values that certainly fit the schema that it was made from. It reads their text once, in a fraction of the
// time of the whole check. If it does not accept a value, that value may fit or not. It may accept a value for which the whole
// check would only take too long. nil accepts nothing.
type quickSchema struct {
	kinds  valueKinds
	text   *textLimits // nil: no limits; so are the others
	whole  *span       // of whole numbers
	list   *listLimits
	object *objectLimits
}

// A span has its ends in it.
type span struct{ least, most int64 }

func (s span) holds(n int64) bool { return s.least <= n && n <= s.most }

type textLimits struct {
	words   map[string]bool // if not nil, the only texts that are accepted
	length  span            // in characters
	pattern *schemaPattern
}

type listLimits struct {
	items  *quickSchema
	length span
}

type objectLimits struct {
	members  map[string]quickMember
	rest     *quickSchema // of the members that have no name here
	required int          // how many members must be there
}

type quickMember struct {
	schema   *quickSchema
	number   int // its bit in memberSet
	required bool
}

// valueKinds is a set of kinds of values. Each kind has limits of its own, so that one reading of a value is enough.
type valueKinds uint8

const (
	kindText valueKinds = 1 << iota
	kindWhole
	kindFraction
	kindBoolean
	kindNull
	kindList
	kindObject

	kindAny = kindText | kindWhole | kindFraction | kindBoolean | kindNull | kindList | kindObject
)

var kindsOfType = map[any]valueKinds{
	"string": kindText, "integer": kindWhole, "number": kindWhole | kindFraction, "boolean": kindBoolean, "null": kindNull,
	"array": kindList, "object": kindObject,
}

// A value, an object or a pattern beyond these limits is left to the whole check.
const (
	maxQuickBytes = 16 << 10
	maxQuickDepth = 32

	// maxQuickNames limits the members that the schema of an object may name. maxRestNames limits the other members in one object.
	maxQuickNames = 256
	maxRestNames  = 16

	maxQuickProgram = 256 // instructions of a pattern
)

// quickAny accepts every value within the limits above.
var quickAny = &quickSchema{kinds: kindAny}

// quickSchemaOf returns a quick schema for the schema doc. patterns are its regular expressions.
func quickSchemaOf(doc any, patterns map[string]*schemaPattern) *quickSchema {
	b := quickBuilder{doc: newSchemaDocument(doc), patterns: patterns, referred: map[string]*quickSchema{}}
	return b.build(doc)
}

// A quickBuilder makes the quick schemas of one document.
type quickBuilder struct {
	doc      schemaDocument
	patterns map[string]*schemaPattern
	referred map[string]*quickSchema // by the $ref
}

// ignoredKeywords are the keywords that do not restrict values.
var ignoredKeywords = map[string]bool{
	"$comment": true, "$defs": true, "$schema": true, "default": true, "definitions": true, "deprecated": true, "description": true,
	"examples": true, "readOnly": true, "title": true, "writeOnly": true,
}

// build returns the quick schema of doc, or nil.
func (b *quickBuilder) build(doc any) *quickSchema {
	if doc == true {
		return quickAny
	}
	schema, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	if ref, ok := schema["$ref"].(string); ok {
		return b.refer(schema, ref)
	}
	q := &quickSchema{}
	b.fill(q, schema)
	return q
}

// refer returns the quick schema that ref points to. schema must say nothing else: whether that counts differs by dialect.
func (b *quickBuilder) refer(schema map[string]any, ref string) *quickSchema {
	for key := range schema {
		if key != "$ref" && !ignoredKeywords[key] {
			return nil
		}
	}
	if q, ok := b.referred[ref]; ok {
		return q
	}
	to, ok := b.doc.resolve(ref)
	target, isSchema := to.(map[string]any)
	if _, again := target["$ref"]; !ok || !isSchema || again {
		return nil // a chain of references may be circular
	}
	q := &quickSchema{}
	b.referred[ref] = q // while it is filled, it accepts nothing; a schema may contain itself
	b.fill(q, target)
	return q
}

// fill makes q the quick schema of a schema without a $ref. An empty q accepts nothing.
func (b *quickBuilder) fill(q *quickSchema, schema map[string]any) {
	of := quickSchema{kinds: kindAny}
	for key, value := range schema {
		switch key {
		case "type":
			of.kinds &= kindsIn(value)
		case "enum", "const":
			of.kinds &= kindText
		case "minLength", "maxLength", "pattern", "minimum", "maximum", "items", "minItems", "maxItems", "properties", "required", "additionalProperties", "anyOf":
		case "format":
			if !slices.ContainsFunc(formatNames, func(name string) bool { return value == name }) {
				return
			}
		default:
			if !ignoredKeywords[key] {
				return
			}
		}
	}
	if !b.limitTexts(&of, schema) || !limitNumbers(&of, schema) || !b.limitLists(&of, schema) || !b.limitObjects(&of, schema) {
		return
	}
	if all, ok := schema["anyOf"]; ok {
		b.chooseBetween(&of, all)
	}
	*q = of
}

func kindsIn(types any) (all valueKinds) {
	list, ok := types.([]any)
	if !ok {
		return kindsOfType[types]
	}
	for _, t := range list {
		if name, ok := t.(string); ok {
			all |= kindsOfType[name]
		}
	}
	return all
}

// mentionsAny reports whether the schema has one of the keywords.
func mentionsAny(schema map[string]any, keywords ...string) bool {
	return slices.ContainsFunc(keywords, func(k string) bool { _, ok := schema[k]; return ok })
}

// spanOf reads two keywords. It fails if a value is no whole number.
func spanOf(schema map[string]any, least, most string) (s span, ok bool) {
	s = span{math.MinInt64, math.MaxInt64}
	for key, to := range map[string]*int64{least: &s.least, most: &s.most} {
		value, given := schema[key]
		if !given {
			continue
		}
		if *to, ok = value.(int64); !ok {
			return s, false
		}
	}
	return s, true
}

func (b *quickBuilder) limitTexts(q *quickSchema, schema map[string]any) (ok bool) {
	if !mentionsAny(schema, "enum", "const", "minLength", "maxLength", "pattern") {
		return true
	}
	q.text = &textLimits{}
	if q.text.length, ok = spanOf(schema, "minLength", "maxLength"); !ok {
		return false
	}
	if mentionsAny(schema, "enum", "const") {
		list, isList := schema["enum"].([]any)
		if one, given := schema["const"]; given {
			if list, isList = []any{one}, !isList; !isList {
				return false // both at once are rare
			}
		}
		if !isList {
			return false
		}
		q.text.words = map[string]bool{}
		for _, e := range list {
			if word, ok := e.(string); ok {
				q.text.words[word] = true
			}
		}
	}
	if mentionsAny(schema, "pattern") {
		text, _ := schema["pattern"].(string)
		q.text.pattern = b.patterns[text]
		return q.text.pattern != nil && q.text.pattern.program <= maxQuickProgram
	}
	return true
}

func limitNumbers(q *quickSchema, schema map[string]any) bool {
	if !mentionsAny(schema, "minimum", "maximum") {
		return true
	}
	limits, ok := spanOf(schema, "minimum", "maximum")
	q.whole = &limits
	q.kinds &^= kindFraction
	return ok
}

func (b *quickBuilder) limitLists(q *quickSchema, schema map[string]any) (ok bool) {
	if !mentionsAny(schema, "items", "minItems", "maxItems") {
		return true
	}
	q.list = &listLimits{items: quickAny}
	if items, given := schema["items"]; given {
		q.list.items = b.build(items)
	}
	q.list.length, ok = spanOf(schema, "minItems", "maxItems")
	return ok
}

func (b *quickBuilder) limitObjects(q *quickSchema, schema map[string]any) bool {
	if !mentionsAny(schema, "properties", "required", "additionalProperties") {
		return true
	}
	o := &objectLimits{members: map[string]quickMember{}, rest: quickAny}
	if rest, given := schema["additionalProperties"]; given {
		o.rest = b.build(rest)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, sub := range properties {
		o.members[name] = quickMember{schema: b.build(sub), number: len(o.members)}
	}
	required, isList := schema["required"].([]any)
	for _, r := range required {
		name, _ := r.(string)
		m, known := o.members[name]
		if !known {
			m = quickMember{schema: o.rest, number: len(o.members)}
		}
		if !m.required {
			o.required++
		}
		m.required = true
		o.members[name] = m
	}
	q.object = o
	return len(o.members) <= maxQuickNames && isList == mentionsAny(schema, "required")
}

// chooseBetween narrows q to what one of the alternatives accepts. For each kind, only the first alternative with that kind counts.
func (b *quickBuilder) chooseBetween(q *quickSchema, alternatives any) {
	list, _ := alternatives.([]any)
	var all quickSchema
	for _, one := range list {
		of := b.build(one)
		if of == nil {
			continue
		}
		fresh := of.kinds &^ all.kinds
		all.kinds |= fresh
		if fresh&kindText != 0 {
			all.text = of.text
		}
		if fresh&kindWhole != 0 {
			all.whole = of.whole
		}
		if fresh&kindList != 0 {
			all.list = of.list
		}
		if fresh&kindObject != 0 {
			all.object = of.object
		}
	}
	q.kinds &= all.kinds
	q.kinds &^= narrowTo(&q.text, all.text, kindText) | narrowTo(&q.whole, all.whole, kindWhole) |
		narrowTo(&q.list, all.list, kindList) | narrowTo(&q.object, all.object, kindObject)
}

// narrowTo adds the limits more to own. It returns the kind that they are of if own has limits already: nothing holds both.
func narrowTo[T any](own **T, more *T, of valueKinds) valueKinds {
	switch {
	case more == nil:
		return 0
	case *own != nil:
		return of
	}
	*own = more
	return 0
}

// accepts reports whether the value certainly fits.
func (q *quickSchema) accepts(text []byte) bool {
	if q == nil || len(text) == 0 || len(text) > maxQuickBytes || bytes.Contains(text, []byte(`\u`)) { // \u may be half of a surrogate pair
		return false
	}
	return q.acceptsAt(text, 0)
}

// acceptsAt is accepts for a value within depth lists and objects.
func (q *quickSchema) acceptsAt(value []byte, depth int) bool {
	if q == nil || depth > maxQuickDepth {
		return false
	}
	switch q.kinds & kindOf(value) {
	case kindText:
		return q.text.accept(value)
	case kindWhole:
		if q.whole == nil {
			return true
		}
		n, err := strconv.ParseInt(string(value), 10, 64)
		return err == nil && q.whole.holds(n)
	case kindFraction, kindBoolean, kindNull:
		return true
	case kindList:
		return q.list.accept(value, depth+1)
	case kindObject:
		return q.object.accept(value, depth+1)
	}
	return false
}

// kindOf returns the kind of a value by its first characters, or 0 if that is not certain.
func kindOf(value []byte) valueKinds {
	switch c := value[0]; {
	case c == '"':
		return kindText
	case c == '{':
		return kindObject
	case c == '[':
		return kindList
	case c == 't' || c == 'f':
		return kindBoolean
	case c == 'n':
		return kindNull
	case c != '-' && (c < '0' || c > '9') || len(value) > maxDigits || bytes.ContainsAny(value, "eE"):
		return 0
	case bytes.IndexByte(value, '.') >= 0:
		return kindFraction
	}
	return kindWhole
}

func (l *textLimits) accept(value []byte) bool {
	switch {
	case l == nil:
		return true
	case bytes.IndexByte(value, '\\') >= 0:
		return false
	}
	text := value[1 : len(value)-1]
	if l.words != nil && !l.words[string(text)] {
		return false
	}
	return l.length.holds(int64(utf8.RuneCount(text))) && (l.pattern == nil || l.pattern.matches(text))
}

func (l *listLimits) accept(value []byte, depth int) bool {
	items, length := quickAny, span{0, math.MaxInt64}
	if l != nil {
		items, length = l.items, l.length
	}
	n := int64(0)
	for element := range wire.Elements(value) {
		if n++; !items.acceptsAt(element, depth) {
			return false
		}
	}
	return length.holds(n)
}

var anyObject = &objectLimits{rest: quickAny}

// A memberSet holds the numbers of members that an object has, so that a server's object with a name twice is never accepted.
type memberSet [maxQuickNames / 64]uint64

func (s *memberSet) add(n int) (fresh bool) {
	bit := uint64(1) << (n % 64)
	fresh = s[n/64]&bit == 0
	s[n/64] |= bit
	return fresh
}

func (l *objectLimits) accept(value []byte, depth int) bool {
	if l == nil {
		l = anyObject
	}
	var known memberSet
	var others [maxRestNames][]byte
	missing, more := l.required, 0
	for name, member := range wire.MembersAsBytes(value) {
		m, named := l.members[string(name)]
		if named {
			if !known.add(m.number) || !m.schema.acceptsAt(member, depth) {
				return false
			}
			if m.required {
				missing--
			}
			continue
		}
		if more == maxRestNames || !plainName(name) || containsName(others[:more], name) || !l.rest.acceptsAt(member, depth) {
			return false
		}
		others[more] = name
		more++
	}
	return missing == 0
}

func containsName(names [][]byte, name []byte) bool {
	return slices.ContainsFunc(names, func(other []byte) bool { return bytes.Equal(other, name) })
}

// plainName reports whether the name stands in the text without an escape, so that it stays valid after the next name is read.
func plainName(name []byte) bool {
	return !slices.ContainsFunc(name, func(c byte) bool { return c < ' ' || c == '"' || c == '\\' || c == '/' || c == 0x7f })
}
