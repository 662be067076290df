package shape

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// schemaMembers are the members of the outermost schema that the protocol restricts. Inner schemas are not its concern.
var schemaMembers = knownMembers{
	{name: "$schema", read: readText},
	{name: "type", read: readType, instead: func([]byte) []byte { return typeObject }},
	{name: "properties", read: readProperties},
	{name: "required", read: readList(readText)},
}

var typeObject = []byte(`"object"`)

// otherTypes are the types of JSON Schema besides object.
var otherTypes = []string{"array", "string", "number", "integer", "boolean", "null"}

func readSchema(value []byte) ([]byte, *Misfit) {
	if value[0] != '{' {
		return nil, misfitOf(value, "a JSON Schema object")
	}
	return schemaMembers.read(value)
}

// readOutputSchema takes the schema of other results than objects as it is: see ForLegacy.
func readOutputSchema(value []byte) ([]byte, *Misfit) {
	if isOfOthers(value) {
		return knownMembers{{name: "$schema", read: readText}}.read(value)
	}
	return readSchema(value)
}

// ForLegacy returns the definition of a tool for clients of the protocols before 2026-07-28. They know no results other than
// objects, so an output schema for others is left out.
func ForLegacy(definition []byte) []byte {
	if schema, ok := wire.Field(definition, "outputSchema"); ok && isOfOthers(schema) {
		return wire.Rewrite(nil, definition, wire.Edit{Name: "outputSchema"})
	}
	return definition
}

// isOfOthers reports whether the value is a schema with a type, and objects are not of the type.
func isOfOthers(schema []byte) bool {
	types, ok := wire.Field(schema, "type")
	return ok && !hasObject(types) && isTypes(types)
}

func readType(value []byte) ([]byte, *Misfit) {
	if text, ok := wire.String(value); ok && text == "object" {
		return value, nil
	}
	if hasObject(value) && isTypes(value) {
		return typeObject, nil
	}
	return nil, &Misfit{Reason: `is not "object"`}
}

// hasObject reports whether the type, or one in the list of types, is object.
func hasObject(types []byte) bool {
	for one := range eachType(types) {
		if one == "object" {
			return true
		}
	}
	return false
}

// isTypes reports whether the value is a type of JSON Schema, or a list of them.
func isTypes(types []byte) bool {
	known := false
	for one := range eachType(types) {
		if known = one == "object" || slices.Contains(otherTypes, one); !known {
			return false
		}
	}
	return known
}

// eachType yields the type, or those in the list of types. It yields "" for a value that is no string.
func eachType(types []byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if types[0] != '[' {
			text, _ := wire.String(types)
			yield(text)
			return
		}
		for one := range wire.Elements(types) {
			if text, _ := wire.String(one); !yield(text) {
				return
			}
		}
	}
}

// readProperties replaces boolean schemas, which some clients do not take for schemas, and what is no schema at all: that restricts nothing.
// Among the properties of seven of 9,366 real tools stand keywords, such as "type": "object".
func readProperties(value []byte) ([]byte, *Misfit) {
	if value[0] != '{' {
		return nil, misfitOf(value, "an object")
	}
	same := true
	for _, schema := range wire.MembersAsBytes(value) {
		same = same && schema[0] == '{'
	}
	if same {
		return value, nil
	}
	return wire.Map(nil, value, func(_, schema []byte) []byte {
		switch schema[0] {
		case '{':
			return schema
		case 'f':
			return []byte(`{"not":{}}`)
		}
		return []byte("{}")
	}), nil
}
