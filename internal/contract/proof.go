package contract

import (
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"
)

// maxProofSteps limits one proof. A proof that takes longer fails. 20,000 steps take less than 50 ms.
const maxProofSteps = 20_000

// acceptsAll reports whether it can prove that the schema wider accepts every value that the schema narrower accepts. Both
// are JSON Schemas that decode has read. False means "not proven". The proof is sound but not complete: an unknown
// keyword counts as a restriction in wider, and as none in narrower.
//
// A schema is a conjunction of its keywords. So acceptsAll shows for each keyword of wider that narrower implies it.
// Recursive schemas are proven by coinduction: if the same pair occurs again deeper in the value, it counts as proven,
// provided that the rest of the proof succeeds.
func acceptsAll(wider, narrower any) bool {
	return newProof(wider, narrower, false).holds()
}

// newProof returns a proof that is not tried yet. With closed, narrower is read as closed: see schemaPlace.
func newProof(wider, narrower any, closed bool) *proof {
	return &proof{wider: newSchemaDocument(wider), narrower: newSchemaDocument(narrower), closed: closed, stepBudget: stepBudget{stepsLeft: maxProofSteps}, open: map[string]int{}}
}

// holds tries the proof, once.
func (p *proof) holds() bool {
	if !p.comparable() {
		return false
	}
	all := &facts{}
	if p.closed {
		all.place = newPlace(p.narrower, &p.stepBudget, p.narrower.root)
	}
	return p.implies(p.addFacts(all, p.narrower.root), p.wider.root, 0) && p.stepsLeft >= 0
}

// A schemaDocument is one of the two schemas. Its references are resolved within it.
type schemaDocument struct {
	root     any
	dialect  dialect
	siblings bool // keywords next to $ref count, as they do since draft 2019-09
	embeds   bool // it contains schemas with an $id; their references are relative to that
}

func newSchemaDocument(root any) schemaDocument {
	d := schemaDocument{root: root, dialect: draft2020}
	if object, ok := root.(map[string]any); ok {
		if name, given := object["$schema"].(string); given {
			d.dialect = dialectOf(name)
		}
		for _, sub := range object {
			d.embeds = d.embeds || containsText(sub, "$id", "id")
		}
	}
	d.siblings = d.dialect != draft7
	return d
}

// A dialect is a version of JSON Schema. In MCP, a schema without $schema is one of 2020-12.
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

// unknownKeywords are the keywords that a dialect does not have and ignores. Here they would count as restrictions.
var unknownKeywords = map[dialect][]string{
	draft7: {
		"dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties", "minContains", "maxContains", "prefixItems",
		"$dynamicAnchor", "$recursiveAnchor",
	},
	draft2019: {"prefixItems", "$dynamicAnchor"},
	draft2020: {"additionalItems", "dependencies", "$recursiveAnchor"},
}

// comparable reports whether every keyword has the same meaning in both schemas.
func (p *proof) comparable() bool {
	for _, d := range []schemaDocument{p.wider, p.narrower} {
		if d.dialect == otherDialect || p.mentions(d.root, append([]string{"$dynamicRef", "$recursiveRef"}, unknownKeywords[d.dialect]...)...) {
			return false
		}
		if p.wider.dialect != p.narrower.dialect && p.mentions(d.root, "dependencies", "additionalItems", "prefixItems", "unevaluatedItems", "$ref") {
			return false
		}
	}
	return true
}

// containsText reports whether an object within the value has a string under one of the names.
func containsText(value any, names ...string) bool {
	switch value := value.(type) {
	case []any:
		return slices.ContainsFunc(value, func(sub any) bool { return containsText(sub, names...) })
	case map[string]any:
		for name, sub := range value {
			if _, text := sub.(string); text && slices.Contains(names, name) || containsText(sub, names...) {
				return true
			}
		}
	}
	return false
}

// resolve returns the target of a local reference.
func (d schemaDocument) resolve(ref string) (schema any, ok bool) {
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

// A proof is one attempt to prove that wider accepts everything that narrower accepts.
type proof struct {
	stepBudget
	wider, narrower schemaDocument
	closed          bool           // narrower is read as closed
	open            map[string]int // pairs that are being proven, with the depth of the value
}

// facts are schemas that a value is known to fit, all of them. Each is an object. The schemas in its allOf and the
// target of its $ref are in the list too.
type facts struct {
	schemas []map[string]any
	never   bool         // no value fits
	place   *schemaPlace // of the value, where the schema is read as closed
}

// maxFacts limits the schemas that are known for one value.
const maxFacts = 64

// addFacts returns f with the schema, its allOf and the target of its $ref added.
func (p *proof) addFacts(f *facts, schema any) *facts {
	more := &facts{}
	if f != nil {
		more.schemas, more.never, more.place = slices.Clone(f.schemas), f.never, f.place
	}
	p.collect(more, schema)
	return more
}

func (p *proof) collect(f *facts, schema any) {
	if p.stepsLeft--; p.stepsLeft < 0 || len(f.schemas) >= maxFacts {
		return // knowing less is never wrong
	}
	switch schema := schema.(type) {
	case bool:
		f.never = f.never || !schema
	case map[string]any:
		if slices.ContainsFunc(f.schemas, func(known map[string]any) bool { return objectID(known) == objectID(schema) }) {
			return
		}
		ref, refers := schema["$ref"].(string)
		if !refers || p.narrower.siblings {
			f.schemas = append(f.schemas, schema)
			all, _ := schema["allOf"].([]any)
			for _, sub := range all {
				p.collect(f, sub)
			}
		}
		if to, ok := p.narrower.resolve(ref); refers && ok {
			p.collect(f, to)
		}
	}
}

// objectID distinguishes the objects of a document.
func objectID(object map[string]any) uintptr { return reflect.ValueOf(object).Pointer() }

// annotationKeywords are the keywords that accept every value.
var annotationKeywords = map[string]bool{
	"title": true, "description": true, "default": true, "examples": true, "deprecated": true, "readOnly": true, "writeOnly": true,
	"$comment": true, "$schema": true, "$id": true, "id": true, "$anchor": true, "$defs": true, "definitions": true, "$vocabulary": true,
	"contentEncoding": true, "contentMediaType": true, "contentSchema": true,
}

// implies reports whether a value that fits f provably fits the schema of wider. depth is the depth of the value within
// the arguments.
func (p *proof) implies(f *facts, schema any, depth int) bool {
	if p.stepsLeft--; p.stepsLeft < 0 {
		return false
	}
	if f.never {
		return true
	}
	switch schema := schema.(type) {
	case bool:
		return schema || p.possibleTypes(f) == 0
	case map[string]any:
		key := pairKey(f, schema)
		if at, met := p.open[key]; met {
			return at < depth // at the same depth, the schema only refers to itself
		}
		p.open[key] = depth
		defer delete(p.open, key)
		if p.impliesKeywords(f, schema, depth) {
			return true
		}
		return p.impliesInEachCase(f, schema, depth)
	}
	return false
}

// pairKey returns a name for f and the schema that is unique within the proof.
func pairKey(f *facts, schema map[string]any) string {
	ids := make([]uintptr, len(f.schemas))
	for i, known := range f.schemas {
		ids[i] = objectID(known)
	}
	slices.Sort(ids)
	key := fmt.Sprint(objectID(schema), ids)
	if f.place != nil {
		key += f.place.id()
	}
	return key
}

// impliesInEachCase proves the schema for each alternative of an anyOf or oneOf of f.
func (p *proof) impliesInEachCase(f *facts, schema map[string]any, depth int) bool {
	for i, known := range f.schemas {
		for _, keyword := range []string{"anyOf", "oneOf"} {
			alternatives, ok := known[keyword].([]any)
			if !ok || len(alternatives) == 0 {
				continue
			}
			rest := maps.Clone(known)
			for _, name := range []string{keyword, "unevaluatedProperties", "unevaluatedItems"} { // these depend on the keyword
				delete(rest, name)
			}
			without := &facts{schemas: slices.Clone(f.schemas), place: f.place}
			without.schemas[i] = rest
			return !slices.ContainsFunc(alternatives, func(one any) bool {
				return !p.implies(p.addFacts(without, one), schema, depth)
			})
		}
	}
	return false
}

// impliesKeywords proves each keyword of the schema.
func (p *proof) impliesKeywords(f *facts, schema map[string]any, depth int) bool {
	types := p.possibleTypes(f)
	if types == 0 {
		return true
	}
	for _, keyword := range slices.Sorted(maps.Keys(schema)) {
		value := schema[keyword]
		if annotationKeywords[keyword] || types&restrictedTypes(keyword) == 0 {
			continue
		}
		if p.stepsLeft--; p.stepsLeft < 0 || !p.impliesKeyword(f, schema, keyword, value, types, depth) {
			return false
		}
	}
	return true
}

// restrictedTypes returns the types of the values that the keyword can restrict.
func restrictedTypes(keyword string) typeSet {
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

// typesIn returns the types that the value of a type keyword names. known is false if it names a type that JSON Schema
// does not have: such a schema's meaning is undefined.
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

// possibleTypes returns the types of values that can fit f.
func (p *proof) possibleTypes(f *facts) typeSet {
	types := typeAny
	for _, known := range f.schemas {
		if value, ok := known["type"]; ok {
			if named, ok := typesIn(value); ok {
				types &= named
			}
		}
	}
	if values, finite := p.possibleValues(f); finite {
		p.stepsLeft -= len(values)
		var of typeSet
		for _, v := range values {
			of |= typeOf(v)
		}
		types &= of
	}
	return types
}

// possibleValues returns all values that can fit f, if an enum or const limits them.
func (p *proof) possibleValues(f *facts) (values []any, finite bool) {
	narrow := func(to []any) {
		p.stepsLeft -= len(to)
		if !finite {
			values, finite = to, true
			return
		}
		values = slices.DeleteFunc(slices.Clone(values), func(v any) bool { return !p.contains(to, v) })
	}
	for _, known := range f.schemas {
		if list, ok := known["enum"].([]any); ok {
			narrow(list)
		}
		if one, ok := known["const"]; ok {
			narrow([]any{one})
		}
	}
	return values, finite
}

// impliesKeyword reports whether a value that fits f and has one of the types provably fits one keyword of the schema.
func (p *proof) impliesKeyword(f *facts, schema map[string]any, keyword string, value any, types typeSet, depth int) bool {
	switch keyword {
	case "type":
		named, ok := typesIn(value)
		return ok && types&^named == 0
	case "enum":
		list, _ := value.([]any)
		return p.impliesOneOfValues(f, list, types)
	case "const":
		return p.impliesOneOfValues(f, []any{value}, types)
	case "$ref":
		ref, _ := value.(string)
		to, ok := p.wider.resolve(ref)
		return ok && p.implies(f, to, depth)
	case "allOf":
		all, ok := value.([]any)
		return ok && !slices.ContainsFunc(all, func(one any) bool { return !p.implies(f, one, depth) })
	case "anyOf":
		all, _ := value.([]any)
		return slices.ContainsFunc(all, func(one any) bool { return p.implies(f, one, depth) })
	case "oneOf":
		all, _ := value.([]any)
		return p.exactlyOne(f, all, depth) || p.statesSame(f, schema, keyword)
	case "not":
		return p.excludes(f, value) || p.statesSame(f, schema, keyword)
	case "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum":
		return p.impliesLimit(f, keyword, value)
	case "multipleOf":
		return p.impliesMultipleOf(f, value, types)
	case "minLength", "maxLength", "pattern":
		if values, finite := p.possibleValues(f); finite {
			return p.textsFit(values, keyword, value)
		}
		return impliesLengthLimit(f, keyword, value) || p.statesSame(f, schema, keyword)
	case "minItems", "maxItems", "minProperties", "maxProperties":
		return impliesLengthLimit(f, keyword, value) || keyword == "minProperties" && p.requiresMany(f, value)
	case "items":
		if schema["prefixItems"] == nil {
			if _, list := value.([]any); !list {
				return p.implies(p.elementFacts(f), value, depth+1)
			}
		}
		return p.statesSame(f, schema, "items", "prefixItems", "additionalItems")
	case "prefixItems", "additionalItems":
		return p.statesSame(f, schema, "items", "prefixItems", "additionalItems")
	case "uniqueItems":
		return value == false || p.statesSame(f, schema, keyword)
	case "properties":
		return p.impliesProperties(f, value, depth)
	case "required":
		list, _ := value.([]any)
		need := p.requiredNames(f)
		return !slices.ContainsFunc(list, func(name any) bool { return !p.contains(need, name) })
	case "additionalProperties":
		return p.impliesAdditional(f, schema, value, depth)
	case "contains", "minContains", "maxContains":
		return p.statesSame(f, schema, "contains", "minContains", "maxContains")
	case "if", "then", "else":
		return p.statesSame(f, schema, "if", "then", "else")
	}
	return p.statesSame(f, schema, keyword)
}

// impliesOneOfValues reports whether every value that fits f is in the list.
func (p *proof) impliesOneOfValues(f *facts, list []any, types typeSet) bool {
	values, finite := p.possibleValues(f)
	if !finite {
		if types&^(typeNull|typeBoolean) != 0 {
			return false
		}
		values = []any{nil, true, false}
	}
	return !slices.ContainsFunc(values, func(v any) bool { return types&typeOf(v) != 0 && !p.contains(list, v) })
}

// statesSame reports whether f has the same values for these keywords as the schema. They must not contain references:
// equal references may point to different schemas.
func (p *proof) statesSame(f *facts, schema map[string]any, keywords ...string) bool {
	whole := strings.HasPrefix(keywords[0], "unevaluated") // it depends on all keywords next to it
	if whole {
		keywords = slices.Collect(maps.Keys(schema))
	}
	for _, keyword := range keywords {
		if p.mentions(schema[keyword], "$ref") || keyword == "$ref" {
			return false
		}
	}
	return slices.ContainsFunc(f.schemas, func(known map[string]any) bool {
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
		return !slices.ContainsFunc(others, func(other any) bool { return !p.excludes(f, other) })
	}
	return false
}

// excludes reports whether no value that fits f fits the schema of wider.
func (p *proof) excludes(f *facts, schema any) bool {
	if schema == false {
		return true
	}
	object, ok := schema.(map[string]any)
	if _, refers := object["$ref"]; !ok || refers && !p.wider.siblings {
		return false
	}
	if value, ok := object["type"]; ok {
		if named, ok := typesIn(value); ok && p.possibleTypes(f)&named == 0 {
			return true
		}
	}
	values, finite := p.possibleValues(f)
	list, _ := object["enum"].([]any)
	if one, ok := object["const"]; ok {
		list = []any{one}
	}
	return finite && list != nil && !slices.ContainsFunc(values, func(v any) bool { return p.contains(list, v) })
}

// impliesLimit proves a limit of numbers.
func (p *proof) impliesLimit(f *facts, keyword string, value any) bool {
	limit := rational(value)
	if limit == nil {
		return false // exclusiveMinimum: true, the form of draft 4
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
	if values, finite := p.possibleValues(f); finite {
		return p.numbersFit(values, func(n *big.Rat) bool { return within(n, false) })
	}
	return slices.ContainsFunc(f.schemas, func(known map[string]any) bool {
		if n := rational(known[inclusive]); n != nil && within(n, false) {
			return true
		}
		n := rational(known[exclusive])
		return n != nil && within(n, true)
	})
}

// impliesMultipleOf proves a multipleOf.
func (p *proof) impliesMultipleOf(f *facts, value any, types typeSet) bool {
	of := rational(value)
	if of == nil || of.Sign() <= 0 {
		return false
	}
	divides := func(n *big.Rat) bool { return new(big.Rat).Quo(n, of).IsInt() }
	if values, finite := p.possibleValues(f); finite {
		return p.numbersFit(values, divides)
	}
	if types&typeFraction == 0 && divides(big.NewRat(1, 1)) {
		return true
	}
	return slices.ContainsFunc(f.schemas, func(known map[string]any) bool {
		n := rational(known["multipleOf"])
		return n != nil && n.Sign() > 0 && divides(n)
	})
}

// impliesLengthLimit reports whether f has the same limit of a length, or a stricter one.
func impliesLengthLimit(f *facts, keyword string, value any) bool {
	limit := rational(value)
	if limit == nil {
		return false
	}
	least := strings.HasPrefix(keyword, "min")
	if least && limit.Sign() <= 0 {
		return true
	}
	return slices.ContainsFunc(f.schemas, func(known map[string]any) bool {
		n := rational(known[keyword])
		return n != nil && (least && n.Cmp(limit) >= 0 || !least && n.Cmp(limit) <= 0)
	})
}

// requiresMany reports whether f requires at least this many members.
func (p *proof) requiresMany(f *facts, value any) bool {
	least := rational(value)
	return least != nil && least.Cmp(big.NewRat(int64(len(p.requiredNames(f))), 1)) <= 0
}

// requiredNames returns the members that every object that fits f has.
func (p *proof) requiredNames(f *facts) (names []any) {
	for _, known := range f.schemas {
		list, _ := known["required"].([]any)
		for _, name := range list {
			if text, ok := name.(string); ok && !f.defaults(text) && !p.contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// defaults reports whether a member has a default. Many servers then fill it in although their schema requires it, and
// the check of arguments accepts its absence. So a client that was shown the schema may omit it too.
func (f *facts) defaults(name string) bool {
	return slices.ContainsFunc(f.schemas, func(known map[string]any) bool {
		properties, _ := known["properties"].(map[string]any)
		member, _ := properties[name].(map[string]any)
		_, given := member["default"]
		return given
	})
}

// elementFacts returns what is known about each element of an array that fits f.
func (p *proof) elementFacts(f *facts) *facts {
	of := &facts{}
	if f.place != nil {
		of.place = f.place.elements()
	}
	for _, known := range f.schemas {
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

// memberFacts returns what is known about the named member of an object that fits f. A nil name means a member that no
// "properties" of f lists.
func (p *proof) memberFacts(f *facts, name *string) *facts {
	of := &facts{}
	if f.place != nil {
		names, closed := f.place.names()
		of.never = closed && (name == nil || !names[*name])
		of.place = &schemaPlace{steps: &p.stepBudget, open: true} // of a member without a name, nothing is known
		if name != nil {
			of.place = f.place.member(*name)
		}
	}
	for _, known := range f.schemas {
		properties, _ := known["properties"].(map[string]any)
		patterns, _ := known["patternProperties"].(map[string]any)
		covered := len(patterns) > 0 // it may be covered, and knowing less is never wrong
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

// impliesProperties proves that the members listed in value fit, if they are present.
func (p *proof) impliesProperties(f *facts, value any, depth int) bool {
	properties, ok := value.(map[string]any)
	if !ok {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if p.stepsLeft--; p.stepsLeft < 0 || !p.implies(p.memberFacts(f, &name), properties[name], depth+1) {
			return false
		}
	}
	return true
}

// impliesAdditional proves that members which the schema does not list fit.
func (p *proof) impliesAdditional(f *facts, schema map[string]any, value any, depth int) bool {
	if value == true {
		return true
	}
	if schema["patternProperties"] != nil {
		return p.statesSame(f, schema, "properties", "patternProperties", "additionalProperties")
	}
	properties, _ := schema["properties"].(map[string]any)
	named := map[string]bool{}
	for _, known := range f.schemas {
		own, _ := known["properties"].(map[string]any)
		p.stepsLeft -= len(own)
		for name := range own {
			named[name] = true
		}
	}
	if f.place != nil {
		if names, closed := f.place.names(); closed {
			p.stepsLeft -= len(names)
			maps.Copy(named, names)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if _, covered := properties[name]; !covered && !p.implies(p.memberFacts(f, &name), value, depth+1) {
			return false
		}
	}
	return p.implies(p.memberFacts(f, nil), value, depth+1)
}
