package config

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const taxonomyFile = "taxonomy.yaml"

// taxonomyReader is the state of reading taxonomy.yaml.
type taxonomyReader struct {
	parents     map[switchboard.Resource]switchboard.Resource
	at          map[switchboard.Resource]document.Value // where each parent, or resource, stands
	constraints []switchboard.Constraint
	sideEffects []string
}

// keys are the keys of taxonomy.yaml.
func (r *taxonomyReader) keys() *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "resources", Type: document.Named("a map from resource to its parent", "RESOURCE", func() *document.Keys { return r.resourceKeys("") }, r.readResources).OrNull(), Doc: "Further resources."},
			{Key: "constraints", Type: document.Texts("a list of constraints", r.readConstraints), Doc: "Further constraints."},
			{Key: "side_effects", Type: document.Texts("a list of side effects", r.readSideEffects), Doc: "Further side effects of capabilities and tools."},
		},
		Hints: map[string]string{"verbs": "the verbs are a closed set", "parents": `write resources: {aws: {parent: cloud}}`},
	}
}

// resourceKeys are the keys of a resource.
func (r *taxonomyReader) resourceKeys(resource switchboard.Resource) *document.Keys {
	return &document.Keys{Rows: []document.Row{
		{Key: "parent", Type: document.Custom("a resource", document.Schema{"type": "string"}, func(v document.Value) {
			r.at[resource] = v
			s, _ := v.ReadText()
			r.parents[resource] = switchboard.Resource(s)
		}), Doc: "A capability on this resource meets a requirement for its parent."},
	}}
}

// readTaxonomyFile reads taxonomy.yaml if it exists. The terms that it names count as known even if
// the file has faults.
func (l *loader) readTaxonomyFile() {
	r := &taxonomyReader{parents: map[switchboard.Resource]switchboard.Resource{}, at: map[switchboard.Resource]document.Value{}}
	if l.exists("taxonomy.yml") {
		l.fault("taxonomy.yml", "this file is not read; call it %s", taxonomyFile)
	}
	if l.exists(taxonomyFile) {
		if doc, ok := l.readDocument(taxonomyFile); ok {
			top, _ := doc.Open(r.keys())
			top.Read()
		}
	}
	l.sideEffects = append(r.sideEffects, capability.SideEffects...)
	slices.Sort(l.sideEffects)
	l.cfg.sideEffects = l.sideEffects
	l.taxonomy = buildTaxonomy(r.parents, r.at, r.constraints)
	l.cfg.Taxonomy = l.taxonomy
}

func (r *taxonomyReader) readResources(v document.Value) {
	for _, e := range v.ReadNamed(document.MaxItems, true) {
		if !isTerm(e.Key, e.Name) {
			continue
		}
		resource := switchboard.Resource(e.Name)
		r.parents[resource], r.at[resource] = "", e.Key.WithContext("resource %q: ", e.Name)
		if e.Value.Kind == document.KindNull {
			continue // "jira:" is a resource without a parent
		}
		if m, ok := e.Value.WithContext("resource %q: ", e.Name).Open(r.resourceKeys(resource)); ok {
			m.Read()
		}
	}
}

func (r *taxonomyReader) readConstraints(texts []document.TextValue) {
	for _, t := range texts {
		if slices.Contains(switchboard.BuiltinConstraints, switchboard.Constraint(t.String)) {
			t.Fault("%s is built in; remove it here", t.Shown())
		} else if isTerm(t.Value, t.String) {
			r.constraints = append(r.constraints, switchboard.Constraint(t.String))
		}
	}
}

func (r *taxonomyReader) readSideEffects(texts []document.TextValue) {
	for _, t := range texts {
		if slices.Contains(capability.SideEffects, t.String) {
			t.Fault("%s is built in; remove it here", t.Shown())
		} else if isTerm(t.Value, t.String) {
			r.sideEffects = append(r.sideEffects, t.String)
		}
	}
}

// buildTaxonomy builds the taxonomy. A parent that does not exist, or that closes a circle, is a
// fault; parents are then left out until the rest is valid.
func buildTaxonomy(parents map[switchboard.Resource]switchboard.Resource, at map[switchboard.Resource]document.Value, constraints []switchboard.Constraint) *switchboard.Taxonomy {
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
			if slices.Contains(switchboard.BuiltinResources, r) && at[r].Context != "" && at[r].Text == name {
				at[r].Fault("it is built in; give it a parent, or remove it here")
			}
			continue
		case !slices.Contains(names, string(p)):
			at[r].Fault("%s is no resource here%s", at[r].Shown(), suggestTerm(string(p), "resources", names))
			parents[r] = ""
			continue
		}
		// The depth is checked here too, to report each resource of a chain that is too long.
		depth := 0
		for up := p; up != "" && depth <= switchboard.MaxResourceDepth; up = parents[up] {
			depth++
		}
		if depth > switchboard.MaxResourceDepth {
			at[r].Fault("the parents form a circle, or more than %d levels", switchboard.MaxResourceDepth)
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
func readVerb(v document.Value) switchboard.Verb {
	known := make([]string, len(switchboard.Verbs))
	for i, verb := range switchboard.Verbs {
		known[i] = string(verb)
	}
	s, _ := v.OneOf("verb", known...)
	return switchboard.Verb(s)
}

// suggestTerm is document.Suggestion for a term that can be added in taxonomy.yaml.
func suggestTerm(s, noun string, known []string) string {
	text := document.Suggestion(s, noun, known)
	if document.Nearest(s, known) == "" {
		text += "; more of them are named in " + taxonomyFile
	}
	return text
}
