package config

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var taxonomyShape = &mapShape{
	keys:  []string{"resources", "constraints"},
	hints: map[string]string{"verbs": "the verbs are a closed set", "parents": `write resources: {aws: {parent: cloud}}`},
}

var resourceShape = &mapShape{keys: []string{"parent"}}

const taxonomyFile = "taxonomy.yaml"

// readTaxonomyFile reads taxonomy.yaml if it exists. The terms that it names count as known even if
// the file has faults.
func (l *loader) readTaxonomyFile() {
	parents := map[switchboard.Resource]switchboard.Resource{}
	var constraints []switchboard.Constraint
	at := map[switchboard.Resource]value{}
	if l.exists("taxonomy.yml") {
		l.fault("taxonomy.yml", "this file is not read; call it %s", taxonomyFile)
	}
	if l.exists(taxonomyFile) {
		if doc, ok := l.readDocument(taxonomyFile); ok {
			parents, at, constraints = readTaxonomy(doc)
		}
	}
	l.cfg.Taxonomy = buildTaxonomy(parents, at, constraints)
}

func readTaxonomy(doc value) (map[switchboard.Resource]switchboard.Resource, map[switchboard.Resource]value, []switchboard.Constraint) {
	parents := map[switchboard.Resource]switchboard.Resource{}
	at := map[switchboard.Resource]value{}
	var constraints []switchboard.Constraint
	top, _ := doc.readObject(taxonomyShape)
	if v, ok := top.lookup("resources"); ok {
		for _, e := range v.readEntries(maxItems, true) {
			if !e.key.isTerm(e.name) {
				continue
			}
			r := switchboard.Resource(e.name)
			parents[r], at[r] = "", e.key.withContext("resource %q: ", e.name)
			if e.val.kind == nullKind {
				continue // "jira:" is a resource without a parent
			}
			if o, ok := e.val.withContext("resource %q: ", e.name).readObject(resourceShape); ok {
				if p, ok := o.lookup("parent"); ok {
					at[r] = p
					s, _ := p.readText()
					parents[r] = switchboard.Resource(s)
				}
			}
		}
	}
	if v, ok := top.lookup("constraints"); ok {
		for _, t := range v.readTexts() {
			if slices.Contains(switchboard.BuiltinConstraints, switchboard.Constraint(t.s)) {
				t.fault("%s is built in; remove it here", t.shownValue())
			} else if t.isTerm(t.s) {
				constraints = append(constraints, switchboard.Constraint(t.s))
			}
		}
	}
	return parents, at, constraints
}

// buildTaxonomy builds the taxonomy. A parent that does not exist, or that closes a circle, is a
// fault; parents are then left out until the rest is valid.
func buildTaxonomy(parents map[switchboard.Resource]switchboard.Resource, at map[switchboard.Resource]value, constraints []switchboard.Constraint) *switchboard.Taxonomy {
	names := make([]string, 0, len(parents))
	for r := range parents {
		names = append(names, string(r))
	}
	for _, r := range switchboard.BuiltinResources {
		if _, ok := parents[r]; !ok {
			names = append(names, string(r))
		}
	}
	slices.Sort(names)
	for _, name := range names {
		r := switchboard.Resource(name)
		p, given := parents[r]
		switch {
		case !given:
			continue
		case p == "":
			if slices.Contains(switchboard.BuiltinResources, r) && at[r].ctx != "" && at[r].text == name {
				at[r].fault("it is built in; give it a parent, or remove it here")
			}
			continue
		case !slices.Contains(names, string(p)):
			at[r].fault("%s is no resource here%s", at[r].shownValue(), suggestion(string(p), "resources", names))
			parents[r] = ""
			continue
		}
		// The depth is checked here too, to report each resource of a chain that is too long.
		depth := 0
		for up := p; up != "" && depth <= switchboard.MaxResourceDepth; up = parents[up] {
			depth++
		}
		if depth > switchboard.MaxResourceDepth {
			at[r].fault("the parents form a circle, or more than %d levels", switchboard.MaxResourceDepth)
		}
	}
	tax, err := switchboard.NewTaxonomy(parents, constraints)
	if err == nil {
		return tax
	}
	for r := range parents {
		parents[r] = ""
	}
	tax, _ = switchboard.NewTaxonomy(parents, constraints) // without parents nothing can be wrong
	return tax
}

// readVerb reads a verb.
func (v value) readVerb() switchboard.Verb {
	known := make([]string, len(switchboard.Verbs))
	for i, verb := range switchboard.Verbs {
		known[i] = string(verb)
	}
	s, _ := v.oneOf("verb", known...)
	return switchboard.Verb(s)
}

// readResource reads the name of a resource.
func (l *loader) readResource(v value) switchboard.Resource {
	s, ok := v.readText()
	if ok && !l.cfg.Taxonomy.HasResource(switchboard.Resource(s)) {
		var known []string
		for _, r := range l.cfg.Taxonomy.Resources() {
			known = append(known, string(r))
		}
		v.fault("%s is no resource here%s", v.shownValue(), suggestion(s, "resources", known))
	}
	return switchboard.Resource(s)
}

// readConstraint reads the name of a constraint.
func (l *loader) readConstraint(v value) switchboard.Constraint {
	s, ok := v.readText()
	if ok && !l.cfg.Taxonomy.HasConstraint(switchboard.Constraint(s)) {
		var known []string
		for _, c := range l.cfg.Taxonomy.Constraints() {
			known = append(known, string(c))
		}
		v.fault("%s is no constraint here%s", v.shownValue(), suggestion(s, "constraints", known))
	}
	return switchboard.Constraint(s)
}

// readConstraints reads a list of constraints and returns it sorted.
func (l *loader) readConstraints(v value) []switchboard.Constraint {
	var out []switchboard.Constraint
	for _, t := range v.readTexts() {
		out = append(out, l.readConstraint(t.value))
	}
	slices.Sort(out)
	return out
}
