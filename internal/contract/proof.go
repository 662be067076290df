package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxProofSteps bounds one proof. A proof that takes longer fails. 20,000 steps take less than 50 ms.
const maxProofSteps = 20_000

// accepts reports whether it can prove that the schema wider accepts every value that the
// schema narrower accepts. Both are JSON Schemas that decode has read. False means: not
// proven. Sound, not complete: a keyword that the proof does not know counts as a constraint
// of wider and as none of narrower.
//
// A schema is a conjunction of its keywords. So accepts shows for each keyword of wider that
// narrower implies it. Recursive schemas are proven by coinduction: a pair that is met again,
// deeper in the value, holds as far as the rest of the proof holds.
func accepts(wider, narrower any) bool {
	p := &proof{wider: newDocument(wider), narrower: newDocument(narrower), left: maxProofSteps, open: map[string]int{}}
	if !p.comparable() {
		return false
	}
	return p.implies(p.facts(nil, narrower), wider, 0) && p.left >= 0
}

// A document is one of the two schemas. Its references point into it.
type document struct {
	root     any
	dialect  dialect
	siblings bool // keywords beside $ref count, as they do since draft 2019-09
	embeds   bool // it contains schemas with an $id: their references start from there
}

func newDocument(root any) document {
	d := document{root: root, dialect: draft2020}
	if object, ok := root.(map[string]any); ok {
		if name, given := object["$schema"].(string); given {
			d.dialect = dialectOf(name)
		}
		for _, sub := range object {
			d.embeds = d.embeds || contains(sub, "$id", "id")
		}
	}
	d.siblings = d.dialect != draft7
	return d
}

// A dialect is a version of JSON Schema. Without $schema, MCP takes a schema for one of 2020-12.
type dialect int

const (
	otherDialect dialect = iota
	draft7
	draft2019
	draft2020
)

func dialectOf(name string) dialect {
	for version, d := range map[string]dialect{"draft-07": draft7, "2019-09": draft2019, "2020-12": draft2020} {
		if strings.Contains(name, version) {
			return d
		}
	}
	return otherDialect
}

// foreign are keywords that a dialect does not have, and ignores. They would be taken for constraints here.
var foreign = map[dialect][]string{
	draft7: {
		"dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties", "minContains", "maxContains", "prefixItems",
		"$dynamicAnchor", "$recursiveAnchor",
	},
	draft2019: {"prefixItems", "$dynamicAnchor"},
	draft2020: {"additionalItems", "dependencies", "$recursiveAnchor"},
}

// comparable reports whether every keyword means the same in both schemas.
func (p *proof) comparable() bool {
	for _, d := range []document{p.wider, p.narrower} {
		if d.dialect == otherDialect || p.mentions(d.root, append([]string{"$dynamicRef", "$recursiveRef"}, foreign[d.dialect]...)...) {
			return false
		}
		if p.wider.dialect != p.narrower.dialect && p.mentions(d.root, "dependencies", "additionalItems", "prefixItems", "$ref") {
			return false
		}
	}
	return true
}

// mentions reports whether an object within the value has a member of one of the names; also when it takes too long to tell.
func (p *proof) mentions(value any, names ...string) bool {
	if p.left--; p.left < 0 {
		return true
	}
	switch value := value.(type) {
	case []any:
		return slices.ContainsFunc(value, func(sub any) bool { return p.mentions(sub, names...) })
	case map[string]any:
		for name, sub := range value {
			if slices.Contains(names, name) || p.mentions(sub, names...) {
				return true
			}
		}
	}
	return false
}

// contains reports whether an object within the value has a text under one of the names.
func contains(value any, names ...string) bool {
	switch value := value.(type) {
	case []any:
		return slices.ContainsFunc(value, func(sub any) bool { return contains(sub, names...) })
	case map[string]any:
		for name, sub := range value {
			if _, text := sub.(string); text && slices.Contains(names, name) || contains(sub, names...) {
				return true
			}
		}
	}
	return false
}

// find returns the schema that a local reference points to.
func (d document) find(ref string) (schema any, ok bool) {
	if d.embeds {
		return nil, false
	}
	if ref == "#" {
		return d.root, true
	}
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok || strings.Contains(pointer, "%") {
		return nil, false
	}
	schema = d.root
	for name := range strings.SplitSeq(pointer, "/") {
		object, isObject := schema.(map[string]any)
		if !isObject {
			return nil, false
		}
		if schema, ok = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]; !ok {
			return nil, false
		}
	}
	return schema, true
}

// A proof is one attempt to prove that wider accepts what narrower accepts.
type proof struct {
	wider, narrower document
	left            int            // steps
	open            map[string]int // pairs that are being proven, and at which depth of the value
}

// facts are schemas that a value is known to fit, all of them. Each is an object without
// $ref and allOf, which stand beside it.
type facts struct {
	all   []map[string]any
	never bool // no value fits
}

// maxFacts bounds the schemas that hold for one value.
const maxFacts = 64

// facts adds the schema, its allOf and the target of its $ref to f.
func (p *proof) facts(f *facts, schema any) *facts {
	more := &facts{}
	if f != nil {
		more.all, more.never = slices.Clone(f.all), f.never
	}
	p.collect(more, schema)
	return more
}

func (p *proof) collect(f *facts, schema any) {
	if p.left--; p.left < 0 || len(f.all) >= maxFacts {
		return // to know less is never wrong
	}
	switch schema := schema.(type) {
	case bool:
		f.never = f.never || !schema
	case map[string]any:
		if slices.ContainsFunc(f.all, func(known map[string]any) bool { return identity(known) == identity(schema) }) {
			return
		}
		ref, refers := schema["$ref"].(string)
		if !refers || p.narrower.siblings {
			f.all = append(f.all, schema)
			all, _ := schema["allOf"].([]any)
			for _, sub := range all {
				p.collect(f, sub)
			}
		}
		if to, ok := p.narrower.find(ref); refers && ok {
			p.collect(f, to)
		}
	}
}

// identity tells objects of a document apart.
func identity(object map[string]any) uintptr { return reflect.ValueOf(object).Pointer() }

// annotations are keywords that accept every value.
var annotations = map[string]bool{
	"title": true, "description": true, "default": true, "examples": true, "deprecated": true, "readOnly": true, "writeOnly": true,
	"$comment": true, "$schema": true, "$id": true, "id": true, "$anchor": true, "$defs": true, "definitions": true, "$vocabulary": true,
	"contentEncoding": true, "contentMediaType": true, "contentSchema": true,
}

// implies reports whether a value that fits f provably fits the schema of wider. depth is how
// deep the value stands within the arguments.
func (p *proof) implies(f *facts, schema any, depth int) bool {
	if p.left--; p.left < 0 {
		return false
	}
	if f.never {
		return true
	}
	switch schema := schema.(type) {
	case bool:
		return schema || p.types(f) == 0
	case map[string]any:
		key := p.pair(f, schema)
		if at, met := p.open[key]; met {
			return at < depth // else the schema says nothing but itself
		}
		p.open[key] = depth
		defer delete(p.open, key)
		if p.keywords(f, schema, depth) {
			return true
		}
		return p.cases(f, schema, depth)
	}
	return false
}

// pair names f and the schema within one proof.
func (p *proof) pair(f *facts, schema map[string]any) string {
	ids := make([]uintptr, len(f.all))
	for i, known := range f.all {
		ids[i] = identity(known)
	}
	slices.Sort(ids)
	return fmt.Sprint(identity(schema), ids)
}

// cases proves the schema for each alternative of an anyOf or oneOf of f.
func (p *proof) cases(f *facts, schema map[string]any, depth int) bool {
	for i, known := range f.all {
		for _, keyword := range []string{"anyOf", "oneOf"} {
			alternatives, ok := known[keyword].([]any)
			if !ok || len(alternatives) == 0 {
				continue
			}
			rest := maps.Clone(known)
			for _, name := range []string{keyword, "unevaluatedProperties", "unevaluatedItems"} { // these depend on the keyword
				delete(rest, name)
			}
			without := &facts{all: slices.Clone(f.all)}
			without.all[i] = rest
			return !slices.ContainsFunc(alternatives, func(one any) bool {
				return !p.implies(p.facts(without, one), schema, depth)
			})
		}
	}
	return false
}

// keywords proves each keyword of the schema.
func (p *proof) keywords(f *facts, schema map[string]any, depth int) bool {
	types := p.types(f)
	if types == 0 {
		return true
	}
	for _, keyword := range slices.Sorted(maps.Keys(schema)) {
		value := schema[keyword]
		if annotations[keyword] || types&concerned(keyword) == 0 {
			continue
		}
		if p.left--; p.left < 0 || !p.keyword(f, schema, keyword, value, types, depth) {
			return false
		}
	}
	return true
}

// A typeSet has the types of JSON values.
type typeSet uint8

const (
	typeNull typeSet = 1 << iota
	typeBoolean
	typeInteger
	typeFraction // a number that is no integer
	typeString
	typeArray
	typeObject

	typeNumber = typeInteger | typeFraction
	typeAny    = typeNull | typeBoolean | typeNumber | typeString | typeArray | typeObject
)

var typeNames = map[string]typeSet{
	"null": typeNull, "boolean": typeBoolean, "integer": typeInteger, "number": typeNumber,
	"string": typeString, "array": typeArray, "object": typeObject,
}

// concerned are the types of the values that the keyword says something of.
func concerned(keyword string) typeSet {
	switch keyword {
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return typeNumber
	case "minLength", "maxLength", "pattern":
		return typeString
	case "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems":
		return typeArray
	case "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties",
		"dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties":
		return typeObject
	}
	return typeAny
}

// typesIn are the types that the value of a type keyword names. known is false if it names one that JSON Schema
// does not have: then nobody knows what it accepts.
func typesIn(value any) (types typeSet, known bool) {
	names, list := value.([]any)
	if !list {
		names = []any{value}
	}
	for _, one := range names {
		name, _ := one.(string)
		if typeNames[name] == 0 {
			return 0, false
		}
		types |= typeNames[name]
	}
	return types, len(names) > 0
}

// typeOf is the type of a value.
func typeOf(value any) typeSet {
	switch value := value.(type) {
	case nil:
		return typeNull
	case bool:
		return typeBoolean
	case string:
		return typeString
	case []any:
		return typeArray
	case map[string]any:
		return typeObject
	default:
		if r := rational(value); r != nil && !r.IsInt() {
			return typeFraction
		}
		return typeInteger
	}
}

// types are the types of values that can fit f.
func (p *proof) types(f *facts) typeSet {
	types := typeAny
	for _, known := range f.all {
		if value, ok := known["type"]; ok {
			if named, ok := typesIn(value); ok {
				types &= named
			}
		}
	}
	if values, finite := p.values(f); finite {
		p.left -= len(values)
		var of typeSet
		for _, v := range values {
			of |= typeOf(v)
		}
		types &= of
	}
	return types
}

// values are all that can fit f, where an enum or const says so.
func (p *proof) values(f *facts) (values []any, finite bool) {
	narrow := func(to []any) {
		p.left -= len(to)
		if !finite {
			values, finite = to, true
			return
		}
		values = slices.DeleteFunc(slices.Clone(values), func(v any) bool { return !p.has(to, v) })
	}
	for _, known := range f.all {
		if list, ok := known["enum"].([]any); ok {
			narrow(list)
		}
		if one, ok := known["const"]; ok {
			narrow([]any{one})
		}
	}
	return values, finite
}

// equal compares two values that decode has read. 1 and 1.0 are the same number.
func (p *proof) equal(a, b any) bool {
	if p.left--; p.left < 0 {
		return false
	}
	switch a := a.(type) {
	case []any:
		list, ok := b.([]any)
		return ok && slices.EqualFunc(a, list, p.equal)
	case map[string]any:
		object, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, object, p.equal)
	case nil, bool, string:
		return a == b
	}
	x, y := rational(a), rational(b)
	return x != nil && y != nil && x.Cmp(y) == 0
}

func (p *proof) has(list []any, value any) bool {
	return slices.ContainsFunc(list, func(v any) bool { return p.equal(v, value) })
}

// rational returns the exact number, or nil if the value is not a number.
func rational(value any) *big.Rat {
	switch n := value.(type) {
	case int64:
		return new(big.Rat).SetInt64(n)
	case float64:
		return new(big.Rat).SetFloat64(n)
	case json.Number:
		if r, ok := new(big.Rat).SetString(string(n)); ok {
			return r
		}
	}
	return nil
}

// keyword reports whether a value that fits f and is of one of the types provably fits one
// keyword of the schema.
func (p *proof) keyword(f *facts, schema map[string]any, keyword string, value any, types typeSet, depth int) bool {
	switch keyword {
	case "type":
		named, ok := typesIn(value)
		return ok && types&^named == 0
	case "enum":
		list, _ := value.([]any)
		return p.among(f, list, types)
	case "const":
		return p.among(f, []any{value}, types)
	case "$ref":
		ref, _ := value.(string)
		to, ok := p.wider.find(ref)
		return ok && p.implies(f, to, depth)
	case "allOf":
		all, ok := value.([]any)
		return ok && !slices.ContainsFunc(all, func(one any) bool { return !p.implies(f, one, depth) })
	case "anyOf":
		all, _ := value.([]any)
		return slices.ContainsFunc(all, func(one any) bool { return p.implies(f, one, depth) })
	case "oneOf":
		all, _ := value.([]any)
		return p.exactlyOne(f, all, depth) || p.stated(f, schema, keyword)
	case "not":
		return p.disjoint(f, value) || p.stated(f, schema, keyword)
	case "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum":
		return p.bounded(f, keyword, value)
	case "multipleOf":
		return p.multiple(f, value, types)
	case "minLength", "maxLength", "pattern":
		if values, finite := p.values(f); finite {
			return p.textsFit(values, keyword, value)
		}
		return atLeast(f, keyword, value) || p.stated(f, schema, keyword)
	case "minItems", "maxItems", "minProperties", "maxProperties":
		return atLeast(f, keyword, value) || keyword == "minProperties" && p.requiresMany(f, value)
	case "items":
		if schema["prefixItems"] == nil {
			if _, list := value.([]any); !list {
				return p.implies(p.element(f), value, depth+1)
			}
		}
		return p.stated(f, schema, "items", "prefixItems", "additionalItems")
	case "prefixItems", "additionalItems":
		return p.stated(f, schema, "items", "prefixItems", "additionalItems")
	case "uniqueItems":
		return value == false || p.stated(f, schema, keyword)
	case "properties":
		return p.properties(f, value, depth)
	case "required":
		list, _ := value.([]any)
		need := p.required(f)
		return !slices.ContainsFunc(list, func(name any) bool { return !p.has(need, name) })
	case "additionalProperties":
		return p.additional(f, schema, value, depth)
	case "contains", "minContains", "maxContains":
		return p.stated(f, schema, "contains", "minContains", "maxContains")
	case "if", "then", "else":
		return p.stated(f, schema, "if", "then", "else")
	}
	return p.stated(f, schema, keyword)
}

// among reports whether each value that fits f is one of the list.
func (p *proof) among(f *facts, list []any, types typeSet) bool {
	values, finite := p.values(f)
	if !finite {
		if types&^(typeNull|typeBoolean) != 0 {
			return false
		}
		values = []any{nil, true, false}
	}
	return !slices.ContainsFunc(values, func(v any) bool { return types&typeOf(v) != 0 && !p.has(list, v) })
}

// stated reports whether f says the same as the schema does with these keywords. They must not
// refer to anything: equal references can point to different schemas.
func (p *proof) stated(f *facts, schema map[string]any, keywords ...string) bool {
	whole := strings.HasPrefix(keywords[0], "unevaluated") // depends on all that stands beside it
	if whole {
		keywords = slices.Collect(maps.Keys(schema))
	}
	for _, keyword := range keywords {
		if p.mentions(schema[keyword], "$ref") || keyword == "$ref" {
			return false
		}
	}
	return slices.ContainsFunc(f.all, func(known map[string]any) bool {
		if whole && len(known) != len(schema) {
			return false
		}
		return !slices.ContainsFunc(keywords, func(keyword string) bool {
			a, inSchema := schema[keyword]
			b, inKnown := known[keyword]
			return inSchema != inKnown || inSchema && !p.equal(a, b)
		})
	})
}

// exactlyOne reports whether a value that fits f fits one of the schemas and none of the others.
func (p *proof) exactlyOne(f *facts, all []any, depth int) bool {
	for i, one := range all {
		if !p.implies(f, one, depth) {
			continue
		}
		others := slices.Concat(all[:i], all[i+1:])
		return !slices.ContainsFunc(others, func(other any) bool { return !p.disjoint(f, other) })
	}
	return false
}

// disjoint reports whether no value that fits f fits the schema of wider.
func (p *proof) disjoint(f *facts, schema any) bool {
	if schema == false {
		return true
	}
	object, ok := schema.(map[string]any)
	if _, refers := object["$ref"]; !ok || refers && !p.wider.siblings {
		return false
	}
	if value, ok := object["type"]; ok {
		if named, ok := typesIn(value); ok && p.types(f)&named == 0 {
			return true
		}
	}
	values, finite := p.values(f)
	list, _ := object["enum"].([]any)
	if one, ok := object["const"]; ok {
		list = []any{one}
	}
	return finite && list != nil && !slices.ContainsFunc(values, func(v any) bool { return p.has(list, v) })
}

// bounded proves a bound of numbers.
func (p *proof) bounded(f *facts, keyword string, value any) bool {
	limit := rational(value)
	if limit == nil {
		return false // exclusiveMinimum: true, as draft 4 has it
	}
	sign := 1
	inclusive, exclusive := "minimum", "exclusiveMinimum"
	if keyword == "maximum" || keyword == "exclusiveMaximum" {
		sign, inclusive, exclusive = -1, "maximum", "exclusiveMaximum"
	}
	within := func(n *big.Rat, strict bool) bool {
		c := n.Cmp(limit) * sign
		return c > 0 || c == 0 && (strict || keyword == inclusive)
	}
	if values, finite := p.values(f); finite {
		return p.numbersFit(values, func(n *big.Rat) bool { return within(n, false) })
	}
	return slices.ContainsFunc(f.all, func(known map[string]any) bool {
		if n := rational(known[inclusive]); n != nil && within(n, false) {
			return true
		}
		n := rational(known[exclusive])
		return n != nil && within(n, true)
	})
}

// multiple proves a multipleOf.
func (p *proof) multiple(f *facts, value any, types typeSet) bool {
	of := rational(value)
	if of == nil || of.Sign() <= 0 {
		return false
	}
	divides := func(n *big.Rat) bool { return new(big.Rat).Quo(n, of).IsInt() }
	if values, finite := p.values(f); finite {
		return p.numbersFit(values, divides)
	}
	if types&typeFraction == 0 && divides(big.NewRat(1, 1)) {
		return true
	}
	return slices.ContainsFunc(f.all, func(known map[string]any) bool {
		n := rational(known["multipleOf"])
		return n != nil && n.Sign() > 0 && divides(n)
	})
}

// numbersFit holds the numbers among the values against a test. A number that cannot be told exactly does not fit.
func (p *proof) numbersFit(values []any, fits func(*big.Rat) bool) bool {
	p.left -= len(values)
	return !slices.ContainsFunc(values, func(v any) bool {
		if typeOf(v)&typeNumber == 0 {
			return false
		}
		n := rational(v)
		return n == nil || !fits(n)
	})
}

// atLeast reports whether f has the same bound of a length, or a closer one.
func atLeast(f *facts, keyword string, value any) bool {
	limit := rational(value)
	if limit == nil {
		return false
	}
	least := strings.HasPrefix(keyword, "min")
	if least && limit.Sign() <= 0 {
		return true
	}
	return slices.ContainsFunc(f.all, func(known map[string]any) bool {
		n := rational(known[keyword])
		return n != nil && (least && n.Cmp(limit) >= 0 || !least && n.Cmp(limit) <= 0)
	})
}

// requiresMany reports whether f requires at least so many members.
func (p *proof) requiresMany(f *facts, value any) bool {
	least := rational(value)
	return least != nil && least.Cmp(big.NewRat(int64(len(p.required(f))), 1)) <= 0
}

// maxProofPattern and maxProofText bound, in bytes, what is matched in a proof.
const (
	maxProofPattern = 256
	maxProofText    = 4 << 10
)

// sameInBoth is a pattern that means the same to ECMA-262, which JSON Schema follows, and to Go, for texts of printable ASCII:
// it has no group but plain ones, no class by name, and no escape that one of the two does not know.
var sameInBoth = regexp.MustCompile(`^(?:[^\\(\[]|\((?:[^?]|\?:)|\[(?:[^\[\]\\]|\\[dDwWsStnrfv.*+?^$|/\\()\[\]{}-])+\]|\\[dDwWsSbBtnrfv.*+?^$|/\\()\[\]{}-])*$`)

// textsFit holds the texts among the values against one keyword.
func (p *proof) textsFit(values []any, keyword string, limit any) bool {
	p.left -= len(values)
	var re *regexp.Regexp
	if keyword == "pattern" {
		pattern, _ := limit.(string)
		var err error
		if len(pattern) > maxProofPattern || !sameInBoth.MatchString(pattern) {
			return false
		}
		if re, err = regexp.Compile(pattern); err != nil {
			return false
		}
	}
	return !slices.ContainsFunc(values, func(v any) bool {
		text, ok := v.(string)
		if !ok {
			return false
		}
		if re != nil {
			p.left -= len(text)
			foreign := func(r rune) bool { return r < ' ' || r > '~' }
			return p.left < 0 || len(text) > maxProofText || strings.ContainsFunc(text, foreign) || !re.MatchString(text)
		}
		n, length := rational(limit), big.NewRat(int64(utf8.RuneCountInString(text)), 1)
		return n == nil || keyword == "minLength" && length.Cmp(n) < 0 || keyword == "maxLength" && length.Cmp(n) > 0
	})
}

// required are the members that objects have which fit f.
func (p *proof) required(f *facts) (names []any) {
	for _, known := range f.all {
		list, _ := known["required"].([]any)
		for _, name := range list {
			if text, ok := name.(string); ok && !f.defaults(text) && !p.has(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// defaults reports whether a member has a default. Many servers then fill it in, though they require it, and the check of
// arguments lets it be missing: so may whoever was shown the schema.
func (f *facts) defaults(name string) bool {
	return slices.ContainsFunc(f.all, func(known map[string]any) bool {
		properties, _ := known["properties"].(map[string]any)
		member, _ := properties[name].(map[string]any)
		_, given := member["default"]
		return given
	})
}

// element returns what holds for each element of an array that fits f.
func (p *proof) element(f *facts) *facts {
	of := &facts{}
	for _, known := range f.all {
		if _, tuple := known["prefixItems"]; tuple {
			continue
		}
		if items, ok := known["items"]; ok {
			if _, list := items.([]any); !list {
				p.collect(of, items)
			}
		}
	}
	return of
}

// member returns what holds for the member of the name of an object that fits f. A nil name is
// one that no properties of f name.
func (p *proof) member(f *facts, name *string) *facts {
	of := &facts{}
	for _, known := range f.all {
		properties, _ := known["properties"].(map[string]any)
		patterns, _ := known["patternProperties"].(map[string]any)
		covered := len(patterns) > 0 // perhaps: to know less is never wrong
		if name != nil {
			if sub, ok := properties[*name]; ok {
				covered = true
				p.collect(of, sub)
			}
		}
		if rest, ok := known["additionalProperties"]; ok && !covered {
			p.collect(of, rest)
		}
	}
	return of
}

// properties proves that members of the names in value, where there are any, fit.
func (p *proof) properties(f *facts, value any, depth int) bool {
	properties, ok := value.(map[string]any)
	if !ok {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if p.left--; p.left < 0 || !p.implies(p.member(f, &name), properties[name], depth+1) {
			return false
		}
	}
	return true
}

// additional proves that members which the schema does not name fit.
func (p *proof) additional(f *facts, schema map[string]any, value any, depth int) bool {
	if value == true {
		return true
	}
	if schema["patternProperties"] != nil {
		return p.stated(f, schema, "properties", "patternProperties", "additionalProperties")
	}
	properties, _ := schema["properties"].(map[string]any)
	named := map[string]bool{}
	for _, known := range f.all {
		own, _ := known["properties"].(map[string]any)
		p.left -= len(own)
		for name := range own {
			named[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if _, covered := properties[name]; !covered && !p.implies(p.member(f, &name), value, depth+1) {
			return false
		}
	}
	return p.implies(p.member(f, nil), value, depth+1)
}
