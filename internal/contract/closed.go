package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A schema is read as closed if it stands for an admitted definition (design part 14, Pins): an object may have only the members that the schema names. Most
// schemas say nothing of further members. Without this reading, one more optional argument would never be wider.
//
// An object keeps its further members where the schema speaks of them ("additionalProperties": true, for instance), and where it names no member at all.

// maxPlaceSchemas limits the schemas of one place. A place with more is open.
const maxPlaceSchemas = 256

// A schemaPlace is all schemas that can apply to a value at one place, in any alternative. So a name counts as named if any alternative names it. The proof and
// ClosedSchema read places alike: the proof relies on the refusal of all other members.
type schemaPlace struct {
	schemas []map[string]any
	open    bool // an object may have any member

	members map[string]*schemaPlace // that were asked for
}

// placeKeywords are the keywords whose schemas apply to the same value: with one schema, with a list, and with one for each name.
var placeKeywords = []string{"if", "then", "else", "not", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"}

// placeOf returns the place of a value to which the schemas apply.
func (d schemaDocument) placeOf(schemas ...any) *schemaPlace {
	p := &schemaPlace{}
	for _, s := range schemas {
		d.expand(p, s)
	}
	return p
}

func (d schemaDocument) expand(p *schemaPlace, schema any) {
	object, ok := schema.(map[string]any)
	if !ok || slices.ContainsFunc(p.schemas, func(known map[string]any) bool { return objectID(known) == objectID(object) }) {
		return
	}
	if len(p.schemas) == maxPlaceSchemas {
		p.open = true
		return
	}
	p.schemas = append(p.schemas, object)
	if ref, refers := object["$ref"].(string); refers {
		to, ok := d.resolve(ref)
		p.open = p.open || !ok
		d.expand(p, to)
	}
	for _, keyword := range placeKeywords {
		switch sub := object[keyword].(type) {
		case []any:
			for _, one := range sub {
				d.expand(p, one)
			}
		case map[string]any:
			if !strings.HasPrefix(keyword, "dependen") {
				d.expand(p, sub)
				continue
			}
			for _, one := range sub {
				d.expand(p, one)
			}
		}
	}
	for _, keyword := range []string{"additionalProperties", "unevaluatedProperties", "patternProperties"} {
		if rest, given := object[keyword]; given && rest != false {
			p.open = true
		}
	}
	for _, keyword := range []string{"enum", "const"} { // a value is named whole, with its members
		if value, given := object[keyword]; given && holdsObject(value) {
			p.open = true
		}
	}
}

// holdsObject reports whether the value is an object, or a list with one.
func holdsObject(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return true
	case []any:
		return slices.ContainsFunc(value, holdsObject)
	}
	return false
}

// names returns the members that an object at the place may have. closed is false if it may have any.
func (p *schemaPlace) names() (names map[string]bool, closed bool) {
	if p.open {
		return nil, false
	}
	names = map[string]bool{}
	for _, s := range p.schemas {
		properties, _ := s["properties"].(map[string]any)
		for name := range properties {
			names[name] = true
		}
		required, _ := s["required"].([]any)
		for _, name := range required {
			if text, ok := name.(string); ok {
				names[text] = true
			}
		}
	}
	return names, len(names) > 0
}

// member returns the place of a member of an object at the place.
func (p *schemaPlace) member(d schemaDocument, name string) *schemaPlace {
	if of := p.members[name]; of != nil {
		return of
	}
	var schemas []any
	for _, s := range p.schemas {
		properties, _ := s["properties"].(map[string]any)
		schemas = append(schemas, properties[name], s["additionalProperties"], s["unevaluatedProperties"])
		patterns, _ := s["patternProperties"].(map[string]any)
		schemas = slices.AppendSeq(schemas, maps.Values(patterns)) // each of them may match
	}
	if p.members == nil {
		p.members = map[string]*schemaPlace{}
	}
	of := d.placeOf(schemas...)
	p.members[name] = of
	return of
}

// element returns the place of an element of a list at the place.
func (p *schemaPlace) element(d schemaDocument) *schemaPlace {
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
	return d.placeOf(schemas...)
}

// id distinguishes places.
func (p *schemaPlace) id() string {
	ids := make([]uintptr, len(p.schemas))
	for i, s := range p.schemas {
		ids[i] = objectID(s)
	}
	slices.Sort(ids)
	return fmt.Sprint(ids)
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

// Unnamed returns the path of the first member of the value that is not named, as a JSON Pointer (RFC 6901). found is false if there is none. The error says that
// the value cannot be read.
func (c *ClosedSchema) Unnamed(value json.RawMessage) (path string, found bool, err error) {
	v, err := decode(value)
	if err != nil {
		return "", false, err
	}
	path, found = c.document.unnamed(c.document.placeOf(c.document.root), v, "")
	return path, found, nil
}

// unnamed returns the path of the first member that is not named.
func (d schemaDocument) unnamed(p *schemaPlace, value any, at string) (path string, found bool) {
	switch value := value.(type) {
	case []any:
		of := p.element(d)
		for i, one := range value {
			if path, found = d.unnamed(of, one, fmt.Sprintf("%s/%d", at, i)); found {
				return path, true
			}
		}
	case map[string]any:
		names, closed := p.names()
		for _, name := range slices.Sorted(maps.Keys(value)) {
			below := at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			if closed && !names[name] {
				return below, true
			}
			if path, found = d.unnamed(p.member(d, name), value[name], below); found {
				return path, true
			}
		}
	}
	return "", false
}
