// Package admission compares the definitions that a server offers with the admitted ones, by meaning. It does no I/O, and its answers depend on the definitions alone.
//
// An admitted definition is one that a person has let in, or that was seen first where the operator trusts the first sight (design part 14, Pins). The package
// proves or says Narrower: a change that it cannot judge never counts as harmless.
package admission

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Class says what a changed definition means to those who knew the admitted one. The zero value is Same; a larger class is worse.
type Class int

const (
	// Same means that only spaces, or the order of members, differ.
	Same Class = iota
	// Words means that descriptions, titles, icons, examples or _meta differ, or a hint or block promises more than before.
	Words
	// Wider means that every call that fits the admitted definition still fits, and its results still fit the promised schema. That is proven. A call has only members that the
	// admitted input schema names; see contract.ClosedSchema.
	Wider
	// Narrower means any other change of a schema, and any change of a default.
	Narrower
	// Freer means that a hint or a block allows more to happen.
	Freer
	// Poisoned means that a blocking finding is there that the admitted definition does not have; see Judge.
	Poisoned
)

var classNames = []string{"same", "words", "wider", "narrower", "freer", "poisoned"}

// String returns the word of the documents.
func (c Class) String() string { return classNames[c] }

// A Difference is a member of a definition that differs, with the class that it alone would have.
type Difference struct {
	Member string // annotations.readOnlyHint, for instance
	Class  Class
}

// CompareTools compares two definitions of a tool, as tools/list has them. The worst difference gives the class. Differences are sorted by member. A text
// that is no JSON object is Narrower.
func CompareTools(admitted, offered json.RawMessage) (Class, []Difference) {
	before, after, ok := bothObjects(admitted, offered)
	if !ok {
		return Narrower, []Difference{{"", Narrower}}
	}
	var all []Difference
	for _, name := range differing(before, after) {
		switch name {
		case "title", "description", "icons":
			all = append(all, Difference{name, Words})
		case "inputSchema":
			all = append(all, Difference{name, compareSchemas(before[name], after[name], contract.StillFits)})
		case "outputSchema":
			all = append(all, Difference{name, compareOutputs(before[name], after[name])})
		case "annotations":
			all = append(all, compareAnnotations(admitted, offered, before[name], after[name])...)
		case "_meta":
			all = append(all, compareMeta(before[name], after[name])...)
		case switchboard.BlockName:
			all = append(all, Difference{name, compareBlocks(before[name], after[name])})
		default:
			all = append(all, Difference{name, Narrower})
		}
	}
	return worst(all), all
}

func worst(all []Difference) (c Class) {
	for _, d := range all {
		c = max(c, d.Class)
	}
	return c
}

// bothObjects decodes the members of two objects. A text that is empty has none.
func bothObjects(a, b json.RawMessage) (x, y map[string]json.RawMessage, ok bool) {
	for _, one := range []struct {
		text json.RawMessage
		into *map[string]json.RawMessage
	}{{a, &x}, {b, &y}} {
		if len(one.text) > 0 && json.Unmarshal(one.text, one.into) != nil {
			return nil, nil, false
		}
	}
	return x, y, true
}

// differing returns the names of the members that differ, sorted.
func differing(a, b map[string]json.RawMessage) (names []string) {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !sameValue(a[name], b[name]) {
			names = append(names, name)
		}
	}
	return names
}

// sameValue reports whether two texts have the same canonical form, or are both absent.
func sameValue(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 || bytes.Equal(a, b) {
		return len(a) == len(b)
	}
	return bytes.Equal(written(read(a)), written(read(b)))
}

// read decodes a value. Numbers keep their spelling.
func read(text json.RawMessage) (v any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return string(text) // the catalog has refused the definition
	}
	return v
}

// written returns a value with its members sorted.
func written(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // nothing that read returns
	}
	return text
}

// compareOutputs compares the schemas of results.
func compareOutputs(before, after json.RawMessage) Class {
	switch {
	case len(before) == 0:
		return Wider // nothing was promised
	case len(after) == 0:
		return Narrower
	}
	return compareSchemas(before, after, func(after, before json.RawMessage) bool { return contract.Fits(before, after) })
}

// compareSchemas compares two schemas. fits reports whether it can prove that all that was true of before is true of after.
func compareSchemas(before, after json.RawMessage, fits func(after, before json.RawMessage) bool) Class {
	if len(before) == 0 || len(after) == 0 {
		return Narrower
	}
	a, b := read(before), read(after)
	was, is := wordStripper{defaults: map[string]any{}}, wordStripper{defaults: map[string]any{}}
	was.strip(a, nil)
	is.strip(b, nil)
	switch {
	case was.read || is.read || !bytes.Equal(written(was.defaults), written(is.defaults)):
		return Narrower
	case bytes.Equal(written(a), written(b)):
		return Words
	case fits(after, before):
		return Wider
	}
	return Narrower
}

// schemaWords are the keywords that only a reader sees.
var schemaWords = []string{"title", "description", "examples", "$comment"}

// The keywords that hold schemas: one, or a list of them; and one for each name.
var (
	schemaKeywords = []string{
		"items", "additionalItems", "prefixItems", "contains", "unevaluatedItems", "additionalProperties", "unevaluatedProperties", "propertyNames",
		"if", "then", "else", "not", "allOf", "anyOf", "oneOf", "contentSchema",
	}
	namedSchemaKeywords = []string{"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)

// A wordStripper removes the words from a schema, and from the schemas inside it.
type wordStripper struct {
	defaults map[string]any // by their place
	read     bool           // a reference may lead into words or a default: then they are schemas, too
}

// strip removes the words from the schema, and its default, at the place.
func (w *wordStripper) strip(schema any, place []string) {
	object, ok := schema.(map[string]any)
	if !ok {
		return
	}
	if ref, ok := object["$ref"].(string); ok {
		w.read = w.read || slices.ContainsFunc(strings.Split(ref, "/"), func(name string) bool {
			return name == "default" || slices.Contains(schemaWords, name) || strings.Contains(name, "%")
		})
	}
	for _, name := range schemaWords {
		delete(object, name)
	}
	if value, given := object["default"]; given {
		w.defaults[string(written(place))] = value
		delete(object, "default")
	}
	for _, keyword := range schemaKeywords {
		switch sub := object[keyword].(type) {
		case []any:
			for i, one := range sub {
				w.strip(one, append(place, keyword, strconv.Itoa(i)))
			}
		case map[string]any:
			w.strip(sub, append(place, keyword))
		}
	}
	for _, keyword := range namedSchemaKeywords {
		named, _ := object[keyword].(map[string]any)
		for name, one := range named {
			w.strip(one, append(place, keyword, name))
		}
	}
}

// hints are the annotations that promise something about calls.
var hints = []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}

// compareAnnotations compares the annotations of two definitions.
func compareAnnotations(admitted, offered, before, after json.RawMessage) (all []Difference) {
	a, b, ok := bothObjects(before, after)
	if !ok {
		return []Difference{{"annotations", Narrower}}
	}
	for _, name := range differing(a, b) {
		d := Difference{"annotations." + name, Narrower}
		switch {
		case name == "title":
			d.Class = Words
		case name == switchboard.BlockName:
			d.Class = compareBlocks(a[name], b[name])
		case slices.Contains(hints, name) && contract.AllowsMore(offered, admitted):
			d.Class = Freer
		case slices.Contains(hints, name):
			d.Class = Words
		}
		all = append(all, d)
	}
	return all
}

// compareMeta compares the _meta of two definitions. It has blocks, and else only words.
func compareMeta(before, after json.RawMessage) (all []Difference) {
	a, b, ok := bothObjects(before, after)
	if !ok {
		return []Difference{{"_meta", Narrower}}
	}
	for _, name := range differing(a, b) {
		d := Difference{"_meta." + name, Words}
		if switchboard.IsBlockKey(name) {
			d.Class = compareBlocks(a[name], b[name])
		}
		all = append(all, d)
	}
	return all
}

// compareBlocks compares two blocks of capabilities. It is Freer if a capability is new, is gone, or has lost a constraint. A capability that is gone may have
// restricted the tool: the catalog keeps the constraints of weaker sources.
func compareBlocks(before, after json.RawMessage) Class {
	type capability struct {
		Verb, Resource string
		Constraints    []string
	}
	var was, is []capability
	if len(before) > 0 && json.Unmarshal(before, &was) != nil || len(after) > 0 && json.Unmarshal(after, &is) != nil {
		return Freer // the meaning is not known
	}
	absentIn := func(of []capability) func(capability) bool {
		return func(c capability) bool {
			return !slices.ContainsFunc(of, func(other capability) bool { return c.Verb == other.Verb && c.Resource == other.Resource })
		}
	}
	if slices.ContainsFunc(is, absentIn(was)) || slices.ContainsFunc(was, absentIn(is)) {
		return Freer
	}
	for _, c := range is {
		stricter := func(old capability) bool {
			return old.Verb == c.Verb && old.Resource == c.Resource && !slices.ContainsFunc(old.Constraints, func(one string) bool { return !slices.Contains(c.Constraints, one) })
		}
		if !slices.ContainsFunc(was, stricter) {
			return Freer
		}
	}
	return Words
}
