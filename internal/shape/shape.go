// Package shape gives the definitions in the lists of servers the form that every client can read.
//
// Many clients check a whole list against the types of the protocol's schema, so one member of a wrong type takes all items
// of all servers away from them. Repair changes what has only one meaning, and names what it cannot repair. It looks at
// types alone: what a definition means, and whether its schemas can be applied, others decide.
//
// # What is repaired
//
// An optional member that is null is left out. Arguments are always an object, so the type of a schema that has no type, or
// that has a list of types with "object", becomes "object". A property true becomes {}, and false becomes {"not":{}}. A property without
// a schema becomes {}, too: nothing restricts it. A
// resource or template without a name is named by its URI.
//
// Some members are left out if strict clients do not accept them, because nothing depends on them: icons, and a value of the
// right type that these clients do not know (taskSupport, priority, lastModified, size).
package shape

import (
	"bytes"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A Misfit is a member of a definition with a type that cannot be repaired.
type Misfit struct {
	Member string // such as "annotations.readOnlyHint"; "" if it is the definition itself
	Reason string // such as "is a string; want a boolean"
}

// Error returns the misfit in one line.
func (m *Misfit) Error() string {
	if m.Member == "" {
		return m.Reason
	}
	return m.Member + ": " + m.Reason
}

// within returns the misfit with its place inside the member or element.
func (m *Misfit) within(place string) *Misfit {
	switch {
	case m.Member == "":
		m.Member = place
	case m.Member[0] == '[':
		m.Member = place + m.Member
	default:
		m.Member = place + "." + m.Member
	}
	return m
}

// Repair returns the definition of an item of this kind as clients get it: the same bytes if nothing has to be repaired.
// If a member cannot be repaired, Repair returns the misfit, and the definition as it is. It does not change a definition
// that two readers could understand differently, such as one with a name twice: its reader must refuse it.
func Repair(k switchboard.Kind, definition []byte) ([]byte, *Misfit) {
	text := bytes.TrimSpace(definition)
	if len(text) == 0 {
		return definition, nil
	}
	repaired, misfit := definitions[k].read(text)
	switch {
	case misfit != nil:
		return definition, misfit
	case bytes.Equal(repaired, text), !wire.Strict(text):
		return definition, nil
	}
	return repaired, nil
}

// definitions are the members of each kind, as the schemas 2025-06-18 to 2026-07-28 have them.
var definitions = [switchboard.NKinds]knownMembers{
	switchboard.Tools: {
		{name: "name", read: readText, required: true},
		{name: "title", read: readText},
		{name: "description", read: readText},
		{name: "icons", read: leaveOut(readIcons)},
		{name: "inputSchema", read: readSchema, required: true},
		{name: "outputSchema", read: readOutputSchema},
		{name: "annotations", read: knownMembers{
			{name: "title", read: readText},
			{name: "readOnlyHint", read: readBoolean},
			{name: "destructiveHint", read: readBoolean},
			{name: "idempotentHint", read: readBoolean},
			{name: "openWorldHint", read: readBoolean},
		}.read},
		{name: "execution", read: knownMembers{{name: "taskSupport", read: readOneOf("required", "optional", "forbidden")}}.read},
		{name: "_meta", read: knownMembers{}.read},
	},
	switchboard.Resources: {
		{name: "name", read: readText, instead: copyOf("uri")},
		{name: "title", read: readText},
		{name: "uri", read: readText, required: true},
		{name: "description", read: readText},
		{name: "mimeType", read: readText},
		{name: "size", read: readSize},
		{name: "icons", read: leaveOut(readIcons)},
		{name: "annotations", read: resourceAnnotations.read},
		{name: "_meta", read: knownMembers{}.read},
	},
	switchboard.Templates: {
		{name: "name", read: readText, instead: copyOf("uriTemplate")},
		{name: "title", read: readText},
		{name: "uriTemplate", read: readText, required: true},
		{name: "description", read: readText},
		{name: "mimeType", read: readText},
		{name: "icons", read: leaveOut(readIcons)},
		{name: "annotations", read: resourceAnnotations.read},
		{name: "_meta", read: knownMembers{}.read},
	},
	switchboard.Prompts: {
		{name: "name", read: readText, required: true},
		{name: "title", read: readText},
		{name: "description", read: readText},
		{name: "icons", read: leaveOut(readIcons)},
		{name: "arguments", read: readList(knownMembers{
			{name: "name", read: readText, required: true},
			{name: "title", read: readText},
			{name: "description", read: readText},
			{name: "required", read: readBoolean},
		}.read)},
		{name: "_meta", read: knownMembers{}.read},
	},
}

// resourceAnnotations have the audience of a resource. An unknown audience is a misfit: if it were left out, the resource would be
// for everybody.
var resourceAnnotations = knownMembers{
	{name: "audience", read: readList(readRole)},
	{name: "priority", read: readPriority},
	{name: "lastModified", read: readTime},
}

var readIcons = readList(knownMembers{
	{name: "src", read: readText, required: true},
	{name: "mimeType", read: readText},
	{name: "sizes", read: readList(readText)},
	{name: "theme", read: readOneOf("light", "dark")},
}.read)
