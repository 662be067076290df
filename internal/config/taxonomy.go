package config

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var taxonomyShape = &shape{
	keys:  []string{"resources", "constraints"},
	hints: map[string]string{"verbs": "the verbs are a closed set", "parents": `write resources: {aws: {parent: cloud}}`},
}

var resourceShape = &shape{keys: []string{"parent"}}

const taxonomyFile = "taxonomy.yaml"

// taxonomy reads taxonomy.yaml, if there is one. Whatever is wrong with it,
// the terms that it names count as known.
func (l *loader) taxonomy() {
	parents := map[switchboard.Resource]switchboard.Resource{}
	var constraints []switchboard.Constraint
	at := map[switchboard.Resource]value{}
	if l.exists("taxonomy.yml") {
		l.fault("taxonomy.yml", "this file is not read; call it %s", taxonomyFile)
	}
	if l.exists(taxonomyFile) {
		if doc, ok := l.document(taxonomyFile); ok {
			parents, at, constraints = readTaxonomy(doc)
		}
	}
	l.cfg.Taxonomy = buildTaxonomy(parents, at, constraints)
}

func readTaxonomy(doc value) (map[switchboard.Resource]switchboard.Resource, map[switchboard.Resource]value, []switchboard.Constraint) {
	parents := map[switchboard.Resource]switchboard.Resource{}
	at := map[switchboard.Resource]value{}
	var constraints []switchboard.Constraint
	top, _ := doc.object(taxonomyShape)
	if v, ok := top.get("resources"); ok {
		for _, e := range v.entries(maxItems, true) {
			if !e.key.term(e.name) {
				continue
			}
			r := switchboard.Resource(e.name)
			parents[r], at[r] = "", e.key.about("resource %q: ", e.name)
			if e.val.kind == nullKind {
				continue // "jira:" is a resource without a parent
			}
			if o, ok := e.val.about("resource %q: ", e.name).object(resourceShape); ok {
				if p, ok := o.get("parent"); ok {
					at[r] = p
					s, _ := p.str()
					parents[r] = switchboard.Resource(s)
				}
			}
		}
	}
	if v, ok := top.get("constraints"); ok {
		for _, t := range v.texts() {
			if slices.Contains(switchboard.BuiltinConstraints, switchboard.Constraint(t.s)) {
				t.fault("%s is built in; remove it here", t.shown())
			} else if t.term(t.s) {
				constraints = append(constraints, switchboard.Constraint(t.s))
			}
		}
	}
	return parents, at, constraints
}

// buildTaxonomy makes the taxonomy. A parent that leads nowhere is a fault,
// and is left out, until the rest makes one.
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
			at[r].fault("%s is no resource here%s", at[r].shown(), instead(string(p), "resources", names))
			parents[r] = ""
			continue
		}
		// The chain is walked here too, to say it of each resource on it.
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

// verb reads a verb.
func (v value) verb() switchboard.Verb {
	known := make([]string, len(switchboard.Verbs))
	for i, verb := range switchboard.Verbs {
		known[i] = string(verb)
	}
	s, _ := v.one("verb", known...)
	return switchboard.Verb(s)
}

// resource reads the name of a resource.
func (l *loader) resource(v value) switchboard.Resource {
	s, ok := v.str()
	if ok && !l.cfg.Taxonomy.HasResource(switchboard.Resource(s)) {
		var known []string
		for _, r := range l.cfg.Taxonomy.Resources() {
			known = append(known, string(r))
		}
		v.fault("%s is no resource here%s", v.shown(), instead(s, "resources", known))
	}
	return switchboard.Resource(s)
}

// constraint reads the name of a constraint.
func (l *loader) constraint(v value) switchboard.Constraint {
	s, ok := v.str()
	if ok && !l.cfg.Taxonomy.HasConstraint(switchboard.Constraint(s)) {
		var known []string
		for _, c := range l.cfg.Taxonomy.Constraints() {
			known = append(known, string(c))
		}
		v.fault("%s is no constraint here%s", v.shown(), instead(s, "constraints", known))
	}
	return switchboard.Constraint(s)
}

// constraints reads a list of constraints and returns it sorted.
func (l *loader) constraints(v value) []switchboard.Constraint {
	var out []switchboard.Constraint
	for _, t := range v.texts() {
		out = append(out, l.constraint(t.value))
	}
	slices.Sort(out)
	return out
}
