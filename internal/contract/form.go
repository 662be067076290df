package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A form is the part of a schema that says which members an object must have, and which it may have. nil is the form of
// a schema that restricts neither.
type form struct {
	doc      map[string]any // the schema
	required []string       // without members that have a default, because servers fill those in
	members  map[string]*form
	closed   bool  // no other members are allowed
	items    *form // the form of each element of a list
}

// maxForms limits the forms of one schema, and so the time to make them.
const maxForms = 10_000

// formOf returns the form of a schema that decode has read; nil if it has none.
func formOf(doc any) *form {
	b := formBuilder{root: doc, made: map[string]*form{}}
	return b.makeForm(doc)
}

// A formBuilder makes the forms of one schema.
type formBuilder struct {
	root  any
	made  map[string]*form // by the pointer in $ref
	count int
}

func (b *formBuilder) makeForm(doc any) *form {
	schema, ok := doc.(map[string]any)
	if b.count++; !ok || b.count > maxForms {
		return nil
	}
	if ref, ok := schema["$ref"].(string); ok {
		return b.formOfReference(ref)
	}
	f := &form{doc: schema}
	b.fillForm(f)
	return f
}

// formOfReference returns the form of the schema that ref points to, within the same document. A schema may contain itself.
func (b *formBuilder) formOfReference(ref string) *form {
	if f, ok := b.made[ref]; ok {
		return f
	}
	at := b.root
	pointer, ok := strings.CutPrefix(ref, "#/")
	for name := range strings.SplitSeq(pointer, "/") {
		object, _ := at.(map[string]any)
		at = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	}
	schema, isSchema := at.(map[string]any)
	if b.count++; !ok || !isSchema || b.count > maxForms {
		return nil
	}
	if _, more := schema["$ref"]; more {
		return nil // a chain of references may be circular
	}
	f := &form{doc: schema}
	b.made[ref] = f
	b.fillForm(f)
	return f
}

func (b *formBuilder) fillForm(f *form) {
	properties, _ := f.doc["properties"].(map[string]any)
	f.members = make(map[string]*form, len(properties))
	for name, sub := range properties {
		f.members[name] = b.makeForm(sub)
	}
	required, _ := f.doc["required"].([]any)
	for _, r := range required {
		name, ok := r.(string)
		property, _ := properties[name].(map[string]any)
		if _, has := property["default"]; ok && !has && !slices.Contains(f.required, name) {
			f.required = append(f.required, name)
		}
	}
	_, patterns := f.doc["patternProperties"]
	f.closed = f.doc["additionalProperties"] == false && !patterns
	if _, tuple := f.doc["prefixItems"]; !tuple { // with prefixItems, items applies only to the later elements
		f.items = b.makeForm(f.doc["items"])
	}
}

// maxFaults limits the members that one refusal names.
const maxFaults = 8

// findUnfilled returns the first object in the value that lacks a member or has one that is not allowed; nil if there is none.
// The value is strict JSON.
func (f *form) findUnfilled(value []byte) *unfilledObject {
	switch {
	case f == nil || len(value) == 0:
		return nil
	case value[0] == '{':
		return f.checkObject(value)
	case value[0] == '[' && f.items != nil:
		for element := range wire.Elements(value) {
			if u := f.items.findUnfilled(element); u != nil {
				return u
			}
		}
	}
	return nil
}

func (f *form) checkObject(value []byte) *unfilledObject {
	missing := len(f.required)
	var unknown []string
	var deeper *unfilledObject
	for name, member := range wire.MembersAsBytes(value) {
		sub, known := f.members[string(name)]
		switch {
		case !known && f.closed && len(unknown) < maxFaults:
			unknown = append(unknown, string(name))
		case sub != nil && deeper == nil:
			deeper = sub.findUnfilled(member)
		}
		if slices.ContainsFunc(f.required, func(r string) bool { return r == string(name) }) {
			missing--
		}
	}
	if missing <= 0 && unknown == nil {
		return deeper
	}
	u := &unfilledObject{form: f, unknown: unknown}
	for _, name := range f.required {
		if len(u.missing) == maxFaults {
			break
		}
		if _, ok := wire.Field(value, name); !ok {
			u.missing = append(u.missing, name)
		}
	}
	return u
}

// unfilledObject says which members an object lacks, and which of its members are not allowed.
type unfilledObject struct {
	form             *form
	missing, unknown []string
}

// Error names the members, and for an unknown member the one that was probably meant.
func (u *unfilledObject) Error() string {
	var all []string
	for _, name := range u.missing {
		all = append(all, safeQuote(name)+" is missing")
	}
	for _, name := range u.unknown {
		text := safeQuote(name) + " is unknown"
		if meant := nearestName(name, u.form.members); meant != "" {
			text += " (did you mean " + safeQuote(meant) + "?)"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// nearestName returns the known name that is most similar to name; "" if none is similar.
func nearestName(name string, known map[string]*form) (best string) {
	if len(name) > maxShown {
		return ""
	}
	least := 1 + len(name)/3
	for _, k := range slices.Sorted(maps.Keys(known)) {
		if len(k) > maxShown {
			continue
		}
		if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(k)); d < least || d == least && best == "" {
			least, best = d, k
		}
	}
	return best
}

// maxPartBytes limits the part of a schema that is shown, in bytes.
const maxPartBytes = 1200

// shownPart returns the schema as JSON, shortened to maxPart bytes: first without the inner schemas of its members, then
// without their descriptions, then only the members' names.
func shownPart(schema map[string]any) string {
	for _, depth := range []int{8, 2, 1} {
		if text, err := json.Marshal(trimSchema(schema, depth)); err == nil && len(text) <= maxPartBytes {
			return string(text)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	names := slices.Sorted(maps.Keys(properties))
	var b strings.Builder
	for i, name := range names {
		if b.Len() > maxPartBytes/2 {
			return fmt.Sprintf("an object with the members %s and %d more", b.String(), len(names)-i)
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(safeQuote(name))
	}
	return "an object with the members " + b.String()
}

// trimSchema returns the schema without shared definitions, and without anything nested deeper than depth. The last level
// has only types.
func trimSchema(schema map[string]any, depth int) map[string]any {
	out := map[string]any{}
	for key, value := range schema {
		switch key {
		case "$defs", "definitions", "$schema", "$id", "title", "examples":
			continue
		case "properties":
			properties, ok := value.(map[string]any)
			if !ok || depth == 0 {
				continue
			}
			subs := map[string]any{}
			for name, sub := range properties {
				if s, ok := sub.(map[string]any); ok {
					sub = trimSchema(s, depth-1)
				}
				subs[name] = sub
			}
			value = subs
		case "type", "required", "additionalProperties", "$ref":
		default:
			if depth == 0 {
				continue
			}
		}
		out[key] = value
	}
	return out
}
