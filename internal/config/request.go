package config

import (
	"maps"
	"regexp"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// namePattern is what a pattern of names of capabilities looks like.
var namePattern = regexp.MustCompile(`^[a-z0-9*]+([._-][a-z0-9*]+)*$`)

const maxNamePattern = 64 // bytes

// rowsForClients are the operator's rows about what clients may declare and request. They are read after the taxonomy.
type rowsForClients struct {
	declare  document.Value
	ceiling  []switchboard.Requirement
	request  document.Value
	requests []switchboard.RequestRow
}

// requestKeys are the keys of a capability that agents may request.
func requestKeys(f mainFile, r *switchboard.RequestRow) *document.Keys {
	q := &r.Requirement
	return &document.Keys{
		Rows: []document.Row{
			{Key: "verb", Type: verbType(&q.Verb), Doc: "The verb of the capability."},
			{Key: "resource", Type: f.resourceType(&q.Resource), Doc: "The resource of the capability."},
			{Key: "constraints", Type: f.constraintsType(&q.Constraints), Doc: "Constraints that each such requirement gets."},
			{Key: "capability", Type: document.Text("a name", func(v document.Value, s string) {
				if len(s) > maxNamePattern || !namePattern.MatchString(s) {
					v.Fault("%s is no name of capabilities; write one such as openai.* (small letters, digits, . _ - and * for any text; at most %d bytes)", v.Shown(), maxNamePattern)
					return
				}
				r.Named = s
			}), Doc: "In place of a verb and a resource: the names of capabilities, in which * matches any text."},
		},
		Hints: map[string]string{"tools": "agents request capabilities, not tools by name"},
	}
}

// readRequests reads what agents of each tenant may request. The taxonomy was read before.
func readRequests(f mainFile) {
	for _, id := range slices.Sorted(maps.Keys(f.bounds)) {
		readRequestRows(f, f.bounds[id])
	}
}

func readRequestRows(f mainFile, b *bound) {
	if b.request.Sink == nil {
		return
	}
	if b.request.Kind == document.KindList && len(b.request.Items) == 0 {
		b.request.Fault("the list is empty; name a capability, such as {verb: search, resource: internet}, or remove the key")
	}
	first := map[string]document.Value{}
	for _, v := range b.request.ReadList(document.MaxItems) {
		var r switchboard.RequestRow
		m, ok := v.Open(requestKeys(f, &r))
		if !ok {
			continue
		}
		m.Read()
		const remedy = "a row is a verb and a resource, and constraints that each such requirement gets; or a capability by its name"
		named := m.HasKey("capability")
		for _, key := range []string{"verb", "resource", "constraints"} {
			switch {
			case named && m.HasKey(key):
				m.Fault("%q does not go with \"capability\": %s", key, remedy)
			case !named && key != "constraints":
				m.Require(key, remedy)
			}
		}
		is := r.Named
		if r.Requirement.Resource != "" {
			is = string(r.Requirement.Verb) + " " + string(r.Requirement.Resource)
		}
		if at, ok := first[is]; ok && is != "" {
			v.Fault("%s has a row already, at line %d; join them", is, at.Line)
		}
		first[is] = v
		b.requests = append(b.requests, r)
	}
}
