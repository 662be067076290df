package config

import (
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// vocabulary holds the names that references may use: servers, resources and constraints.
type vocabulary struct {
	// readable is false if switchboard.yaml could not be read. Then the existing names are unknown,
	// and references are not checked.
	readable bool

	servers   map[string]*switchboard.Server
	disabled  map[string]bool // servers with enabled: false
	serverIDs []string        // the ids of servers, sorted
	taxonomy  *switchboard.Taxonomy

	sideEffects []string // sorted; nil if they are unknown

	// capabilitiesUnknown says that a file of capabilities/ could not be read. Then references to capabilities are not checked.
	capabilitiesUnknown bool
}

// readResource reads the name of a resource.
func (n *vocabulary) readResource(v document.Value) switchboard.Resource {
	s, ok := v.ReadText()
	if ok && !n.taxonomy.HasResource(switchboard.Resource(s)) {
		var known []string
		for _, r := range n.taxonomy.Resources() {
			known = append(known, string(r))
		}
		v.Fault("%s is no resource here%s", v.Shown(), suggestTerm(s, "resources", known))
	}
	return switchboard.Resource(s)
}

// readConstraint reads the name of a constraint.
func (n *vocabulary) readConstraint(v document.Value) switchboard.Constraint {
	s, ok := v.ReadText()
	if ok && !n.taxonomy.HasConstraint(switchboard.Constraint(s)) {
		var known []string
		for _, c := range n.taxonomy.Constraints() {
			known = append(known, string(c))
		}
		v.Fault("%s is no constraint here%s", v.Shown(), suggestTerm(s, "constraints", known))
	}
	return switchboard.Constraint(s)
}

// readConstraints reads a list of constraints and returns it sorted.
func (n *vocabulary) readConstraints(v document.Value) []switchboard.Constraint {
	var out []switchboard.Constraint
	for _, t := range v.ReadTexts() {
		out = append(out, n.readConstraint(t.Value))
	}
	slices.Sort(out)
	return out
}

// sideEffectsType is the type of a list of side effects. It is sorted.
func (n *vocabulary) sideEffectsType(to *[]string) document.Type {
	return document.Texts("a list of side effects", nil).With(func(v document.Value) {
		for _, t := range v.ReadTexts() {
			if n.sideEffects != nil && !slices.Contains(n.sideEffects, t.String) {
				t.Fault("%s is no side effect here%s", t.Shown(), suggestTerm(t.String, "side effects", n.sideEffects))
			}
			*to = append(*to, t.String)
		}
		slices.Sort(*to)
	})
}

// resourceType is the type of a resource.
func (n *vocabulary) resourceType(to *switchboard.Resource) document.Type {
	return document.Custom("a resource", document.Schema{"type": "string"}, func(v document.Value) { *to = n.readResource(v) })
}

// constraintsType is the type of a list of constraints.
func (n *vocabulary) constraintsType(to *[]switchboard.Constraint) document.Type {
	return document.Texts("a list of constraints", nil).With(func(v document.Value) { *to = n.readConstraints(v) })
}

// checkServer reports whether s is one of the servers. If it is not, that is a fault.
func (n *vocabulary) checkServer(v document.Value, s string, servers []string) bool {
	if !n.readable || slices.Contains(servers, s) {
		return true
	}
	v.Fault("%s is no server here%s", document.Shown(s), document.Suggestion(s, "servers", servers))
	return false
}

// readServerPatterns reads a list of server names and patterns, and returns the servers of known that
// they match.
func (n *vocabulary) readServerPatterns(v document.Value, known []string) []string {
	var out []string
	for _, t := range v.ReadTexts() {
		out = append(out, n.matchServers(t.Value, t.String, known)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// matchServers returns the servers of known that a pattern matches. A pattern without a match is a
// fault.
func (n *vocabulary) matchServers(v document.Value, pattern string, known []string) []string {
	if !strings.Contains(pattern, "*") {
		if n.checkServer(v, pattern, known) {
			return []string{pattern}
		}
		return nil
	}
	var out []string
	for _, k := range known {
		if switchboard.MatchPattern(pattern, k) {
			out = append(out, k)
		}
	}
	if len(out) == 0 && n.readable {
		v.Fault("%s matches no server here; %s", document.Shown(pattern), document.ListKnown("servers", known))
	}
	return out
}

// readNarrowedServers reads the servers that a tenant selects from its bound.
func (n *vocabulary) readNarrowedServers(texts []document.TextValue, b *bound) []string {
	var out []string
	for _, t := range texts {
		if !strings.Contains(t.String, "*") && n.readable && !slices.Contains(b.servers, t.String) {
			t.Fault("%s is not among the servers that the operator allows this tenant%s", t.Shown(), document.Suggestion(t.String, "servers", b.servers))
			continue
		}
		out = append(out, n.matchServers(t.Value, t.String, b.servers)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// enabledServers returns the servers that are not disabled.
func (n *vocabulary) enabledServers(ids []string) []switchboard.ServerID {
	out := make([]switchboard.ServerID, 0, len(ids))
	for _, id := range ids {
		if !n.disabled[id] {
			out = append(out, switchboard.ServerID(id))
		}
	}
	return out
}
