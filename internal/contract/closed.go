package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A schema is read as closed if it stands for an admitted definition (design part 14, Pins): an object may have only the members that the schema names. Most
// schemas say nothing of further members. Without this reading, one more optional argument would never be wider.
//
// An object keeps its further members where the schema speaks of them ("additionalProperties": true, for instance), and where it names no member at all.

const (
	// maxPlaceSchemas limits the schemas of one place. A place with more is open, and nothing below it is known.
	maxPlaceSchemas = 256

	// maxUnnamedSteps limits the work on one value.
	maxUnnamedSteps = 2_000_000
)

// A schemaPlace is all schemas that can apply to a value at one place, in any alternative. So a name counts as named if any alternative names it. The proof and
// ClosedSchema read places alike: the proof relies on the refusal of all other members.
type schemaPlace struct {
	document schemaDocument
	steps    *stepBudget
	schemas  []map[string]any
	known    map[uintptr]struct{} // the schemas
	open     bool                 // an object may have any member

	named   map[string]bool // nil before names
	below   map[string]*schemaPlace
	element *schemaPlace
	key     string
}

// placeKeywords are the keywords whose schemas apply to the same value: with one schema, with a list, and with one for each name.
var placeKeywords = []string{"if", "then", "else", "not", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"}

// newPlace returns the place of a value to which the schemas apply. Its work counts in steps.
func newPlace(d schemaDocument, steps *stepBudget, schemas ...any) *schemaPlace {
	p := &schemaPlace{document: d, steps: steps, known: map[uintptr]struct{}{}}
	for _, s := range schemas {
		p.expand(s)
	}
	if len(p.schemas) > maxPlaceSchemas {
		p.schemas, p.open = nil, true
	}
	return p
}

func (p *schemaPlace) expand(schema any) {
	p.steps.stepsLeft--
	object, ok := schema.(map[string]any)
	if !ok || p.steps.stepsLeft < 0 || len(p.schemas) > maxPlaceSchemas {
		return
	}
	if _, known := p.known[objectID(object)]; known {
		return
	}
	p.known[objectID(object)] = struct{}{}
	p.schemas = append(p.schemas, object)
	if ref, refers := object["$ref"].(string); refers {
		to, ok := p.document.resolve(ref)
		p.open = p.open || !ok
		p.expand(to)
	}
	for _, keyword := range placeKeywords {
		switch sub := object[keyword].(type) {
		case []any:
			for _, one := range sub {
				p.expand(one)
			}
		case map[string]any:
			if !strings.HasPrefix(keyword, "dependen") {
				p.expand(sub)
				continue
			}
			for _, one := range sub {
				p.expand(one)
			}
		}
	}
	for _, keyword := range []string{"additionalProperties", "unevaluatedProperties", "patternProperties"} {
		if rest, given := object[keyword]; given && rest != false {
			p.open = true
		}
	}
	for _, keyword := range []string{"enum", "const"} { // a value is named whole, with its members
		if value, given := object[keyword]; given && p.holdsObject(value) {
			p.open = true
		}
	}
}

// holdsObject reports whether the value is an object, or a list with one.
func (p *schemaPlace) holdsObject(value any) bool {
	p.steps.stepsLeft--
	switch value := value.(type) {
	case map[string]any:
		return true
	case []any:
		return slices.ContainsFunc(value, p.holdsObject)
	}
	return false
}

// names returns the members that an object at the place may have. closed is false if it may have any.
func (p *schemaPlace) names() (names map[string]bool, closed bool) {
	if p.open {
		return nil, false
	}
	if p.named == nil {
		p.named = map[string]bool{}
		for _, s := range p.schemas {
			properties, _ := s["properties"].(map[string]any)
			for name := range properties {
				p.named[name] = true
			}
			required, _ := s["required"].([]any)
			for _, name := range required {
				if text, ok := name.(string); ok {
					p.named[text] = true
				}
			}
			p.steps.stepsLeft -= len(properties) + len(required)
		}
	}
	return p.named, len(p.named) > 0
}

// member returns the place of a member of an object at the place.
func (p *schemaPlace) member(name string) *schemaPlace {
	if of := p.below[name]; of != nil {
		return of
	}
	var schemas []any
	for _, s := range p.schemas {
		properties, _ := s["properties"].(map[string]any)
		schemas = append(schemas, properties[name], s["additionalProperties"], s["unevaluatedProperties"])
		patterns, _ := s["patternProperties"].(map[string]any)
		schemas = slices.AppendSeq(schemas, maps.Values(patterns)) // each of them may match
	}
	if p.below == nil {
		p.below = map[string]*schemaPlace{}
	}
	of := newPlace(p.document, p.steps, schemas...)
	p.below[name] = of
	return of
}

// elements returns the place of an element of a list at the place.
func (p *schemaPlace) elements() *schemaPlace {
	if p.element != nil {
		return p.element
	}
	var schemas []any
	for _, s := range p.schemas {
		for _, keyword := range []string{"items", "prefixItems", "additionalItems", "contains", "unevaluatedItems"} {
			if list, ok := s[keyword].([]any); ok {
				schemas = append(schemas, list...)
			} else {
				schemas = append(schemas, s[keyword])
			}
		}
	}
	p.element = newPlace(p.document, p.steps, schemas...)
	return p.element
}

// id distinguishes places.
func (p *schemaPlace) id() string {
	if p.key == "" {
		p.steps.stepsLeft -= len(p.schemas)
		p.key = fmt.Sprint(p.open, slices.Sorted(maps.Keys(p.known)))
	}
	return p.key
}

// StillFits reports whether it can prove that each value that fits the schema before, read as closed, fits the schema after. Both are JSON Schemas. False means
// "not proven". A proof takes less than 50 ms.
func StillFits(after, before json.RawMessage) bool { return proves(after, before, true) }

// Fits reports whether it can prove that each value that fits the schema before fits the schema after. Both are JSON Schemas. False means "not proven".
func Fits(after, before json.RawMessage) bool { return proves(after, before, false) }

func proves(after, before json.RawMessage, closed bool) bool {
	if len(after) > maxProvenBytes || len(before) > maxProvenBytes {
		return false
	}
	for _, text := range []json.RawMessage{after, before} {
		if _, err := compile(text); err != nil {
			return false // an invalid schema proves nothing
		}
	}
	wider, err := decode(after)
	if err != nil {
		return false
	}
	narrower, err := decode(before)
	return err == nil && newProof(wider, narrower, closed).holds()
}

// A ClosedSchema finds members that a schema, read as closed, does not name. It is safe for concurrent use.
type ClosedSchema struct{ document schemaDocument }

// NewClosedSchema reads a JSON Schema.
func NewClosedSchema(schema json.RawMessage) (*ClosedSchema, error) {
	doc, err := decode(schema)
	if err != nil {
		return nil, err
	}
	return &ClosedSchema{newSchemaDocument(doc)}, nil
}

var errTooMuchToCheck = errors.New("the value has too many members to check their names")

// Unnamed returns the path of the first member of the value that is not named, as a JSON Pointer (RFC 6901). found is false if there is none. The error says that
// the value cannot be read, or is too large to be checked.
func (c *ClosedSchema) Unnamed(value json.RawMessage) (path string, found bool, err error) {
	v, err := decode(value)
	if err != nil {
		return "", false, err
	}
	steps := &stepBudget{stepsLeft: maxUnnamedSteps}
	names, found := newPlace(c.document, steps, c.document.root).unnamed(v)
	if steps.stepsLeft < 0 {
		return "", false, errTooMuchToCheck
	}
	for _, name := range slices.Backward(names) {
		path += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return path, found, nil
}

// unnamed returns the names on the way to the first member that is not named, the innermost first.
func (p *schemaPlace) unnamed(value any) (path []string, found bool) {
	if p.steps.stepsLeft--; p.steps.stepsLeft < 0 {
		return nil, false
	}
	switch value := value.(type) {
	case []any:
		for i, one := range value {
			if path, found = p.elements().unnamed(one); found {
				return append(path, fmt.Sprint(i)), true
			}
		}
	case map[string]any:
		names, closed := p.names()
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if closed && !names[name] {
				return []string{name}, true
			}
			if path, found = p.member(name).unnamed(value[name]); found {
				return append(path, name), true
			}
		}
	}
	return nil, false
}
