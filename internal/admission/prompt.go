package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// ComparePrompts compares two definitions of a prompt, as prompts/list has them. The worst difference gives the class. Differences are sorted by member. A text
// that is no JSON object is Narrower.
//
// Wider means that each prompts/get that has only arguments of the admitted definition, and all that it requires, has all that the offered one requires.
func ComparePrompts(admitted, offered json.RawMessage) (Class, []Difference) {
	return compareMembers(admitted, offered, func(name string, before, after json.RawMessage) []Difference {
		switch name {
		case "title", "description", "icons":
			return []Difference{{name, Words}}
		case "_meta":
			return compareNotes(name, before, after, nil)
		case "arguments":
			return compareArguments(before, after)
		}
		return []Difference{{name, Narrower}}
	})
}

// CompareTemplates compares two definitions of a resource template, as resources/templates/list has them. Its URI template is its name, so another one is
// Narrower, as another type of the content is.
func CompareTemplates(admitted, offered json.RawMessage) (Class, []Difference) {
	return compareMembers(admitted, offered, func(name string, before, after json.RawMessage) []Difference {
		switch name {
		case "name", "title", "description", "icons":
			return []Difference{{name, Words}}
		case "_meta":
			return compareNotes(name, before, after, nil)
		case "annotations":
			return compareNotes(name, before, after, []string{"audience", "priority", "lastModified"})
		}
		return []Difference{{name, Narrower}}
	})
}

// CompareInstructions compares two instructions of a server: JSON strings, or empty for none. Instructions are only words.
func CompareInstructions(admitted, offered json.RawMessage) (Class, []Difference) {
	if sameValue(admitted, offered) {
		return Same, nil
	}
	return Words, []Difference{{"instructions", Words}}
}

// compareMembers compares two objects by what compare says about each member that differs.
func compareMembers(admitted, offered json.RawMessage, compare func(name string, before, after json.RawMessage) []Difference) (Class, []Difference) {
	before, after, ok := bothObjects(admitted, offered)
	if !ok {
		return Narrower, []Difference{{"", Narrower}}
	}
	var all []Difference
	for _, name := range differing(before, after) {
		all = append(all, compare(name, before[name], after[name])...)
	}
	return worst(all), all
}

// compareNotes compares two objects that hold only words. known, unless nil, are the members whose meaning is known; a difference of another one is
// Narrower.
func compareNotes(member string, before, after json.RawMessage, known []string) []Difference {
	a, b, ok := bothObjects(before, after)
	names := differing(a, b)
	switch {
	case !ok:
		return []Difference{{member, Narrower}}
	case names == nil: // one is empty, and the other one absent
		return []Difference{{member, Words}}
	}
	all := make([]Difference, len(names))
	for i, name := range names {
		all[i] = Difference{member + "." + name, Words}
		if known != nil && !slices.Contains(known, name) {
			all[i].Class = Narrower
		}
	}
	return all
}

// A promptArgument is one argument of a prompt.
type promptArgument struct {
	members  map[string]json.RawMessage
	required bool
}

// compareArguments compares two lists of arguments.
func compareArguments(before, after json.RawMessage) []Difference {
	was, wasNames, ok := readArguments(before)
	is, isNames, too := readArguments(after)
	if !ok || !too {
		return []Difference{{"arguments", Narrower}}
	}
	var all []Difference
	both := maps.Clone(was)
	maps.Copy(both, is)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		a, had := was[name]
		b, has := is[name]
		at := "arguments." + name
		switch {
		case !has, !had && b.required:
			all = append(all, Difference{at, Narrower})
		case !had:
			all = append(all, Difference{at, Wider})
		default:
			all = append(all, compareArgument(at, a, b)...)
		}
	}
	// Some clients take arguments by their order.
	kept := func(names []string, of map[string]promptArgument) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := of[name]; return !ok })
	}
	switch {
	case !slices.Equal(kept(wasNames, is), kept(isNames, was)):
		all = slices.Insert(all, 0, Difference{"arguments", Narrower})
	case all == nil: // one list is empty, and the other one absent
		all = []Difference{{"arguments", Words}}
	}
	return all
}

// compareArgument compares an argument that both definitions have.
func compareArgument(at string, a, b promptArgument) (all []Difference) {
	for _, name := range differing(a.members, b.members) {
		d := Difference{at + "." + name, Narrower}
		switch name {
		case "title", "description", "icons":
			d.Class = Words
		case "required":
			switch {
			case a.required == b.required: // one says that it is optional, the other one says nothing
				d.Class = Words
			case a.required:
				d.Class = Wider
			}
		}
		all = append(all, d)
	}
	return all
}

// readArguments returns arguments by name, and their names in order. ok is false if a list is not one of arguments with different names.
func readArguments(text json.RawMessage) (all map[string]promptArgument, names []string, ok bool) {
	all = map[string]promptArgument{}
	var list []json.RawMessage
	if len(text) > 0 && json.Unmarshal(text, &list) != nil {
		return nil, nil, false
	}
	for _, one := range list {
		var a promptArgument
		var name *string
		if strings.TrimSpace(string(one)) == "null" || json.Unmarshal(one, &a.members) != nil || json.Unmarshal(a.members["name"], &name) != nil || name == nil {
			return nil, nil, false
		}
		if _, again := all[*name]; again {
			return nil, nil, false
		}
		switch text := a.members["required"]; string(text) {
		case "true":
			a.required = true
		case "false", "":
		default:
			return nil, nil, false
		}
		all[*name], names = a, append(names, *name)
	}
	return all, names, true
}
