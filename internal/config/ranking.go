package config

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var (
	rankingShape = &shape{keys: []string{"classes", "prefer", "adjust"}}
	preferShape  = &shape{
		keys:  []string{"verb", "resource", "servers"},
		later: []string{"capability", "constraints", "tools"},
		hints: map[string]string{"server": `write "servers", a list`},
	}
	adjustShape = &shape{
		keys:  []string{"server", "by"},
		later: []string{"verb", "resource", "constraint", "tool", "class"},
		hints: map[string]string{"servers": `write "server", which may hold *`},
	}
)

// maxScore bounds each part of a score, so that no sum overflows.
const maxScore = 1_000_000

// classStep is what a place in the list of classes is worth.
const classStep = 100

func (l *loader) ranking(v value, t *tenant) (r switchboard.Ranking) {
	o, ok := v.object(rankingShape)
	if !ok {
		return r
	}
	if c, ok := o.get("classes"); ok {
		c.ctx = v.ctx
		r.Classes = l.classes(c, t)
	}
	if p, ok := o.get("prefer"); ok {
		r.Prefer = l.prefer(p, t)
	}
	if a, ok := o.get("adjust"); ok {
		for _, item := range a.list(maxItems) {
			o, ok := item.object(adjustShape)
			if !ok {
				continue
			}
			var row switchboard.Adjust
			if v, ok := o.need("server", `name a server, or several with *, such as "beta-*"`); ok {
				if s, ok := v.str(); ok {
					row.Server = s
					l.matching(v, s, t.servers)
				}
			}
			if v, ok := o.need("by", "say how many points its score changes, such as by: -50"); ok {
				row.By = v.integer(-maxScore, maxScore)
			}
			r.Adjust = append(r.Adjust, row)
		}
	}
	return r
}

// classes reads the scores of the classes: a list, best first, or a map.
func (l *loader) classes(v value, t *tenant) map[string]int {
	var known []string
	for _, id := range t.bound.servers {
		if s := l.servers[id]; s != nil && s.Class != "" {
			known = append(known, s.Class)
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	used := func(v value, class string) {
		if l.readable && !slices.Contains(known, class) {
			v.warn("class %s is used by no server of this tenant; %s", shown(class), listed("classes", known))
		}
	}
	out := map[string]int{}
	switch v.kind {
	case listKind:
		classes := v.texts()
		for i, c := range classes {
			used(c.value, c.s)
			out[c.s] = classStep * (len(classes) - 1 - i)
		}
	case mapKind:
		for _, e := range v.entries(maxItems, false) {
			used(e.key, e.name)
			out[e.name] = e.val.integer(-maxScore, maxScore)
		}
	default:
		v.fault("want classes: [best, next], or classes: {best: 300, next: 100}, not %v", v.kind)
	}
	return out
}

func (l *loader) prefer(v value, t *tenant) []switchboard.Prefer {
	var out []switchboard.Prefer
	for _, item := range v.list(maxItems) {
		o, ok := item.object(preferShape)
		if !ok {
			continue
		}
		var row switchboard.Prefer
		const remedy = "a row is {verb: search, resource: internet, servers: [first, second]}"
		if v, ok := o.need("verb", remedy); ok {
			row.Verb = v.verb()
		}
		if v, ok := o.need("resource", remedy); ok {
			row.Resource = l.resource(v)
		}
		if v, ok := o.need("servers", remedy); ok {
			if v.kind == listKind && len(v.items) == 0 {
				v.fault("the list is empty; name a server, or remove the row")
			}
			for _, s := range v.texts() {
				l.known(s.value, s.s, t.servers)
				row.Servers = append(row.Servers, switchboard.ServerID(s.s))
			}
		}
		if row.Verb != "" && row.Resource != "" && slices.ContainsFunc(out, func(p switchboard.Prefer) bool { return p.Verb == row.Verb && p.Resource == row.Resource }) {
			item.fault("an earlier row for %s %s counts instead of this one; join them", row.Verb, row.Resource)
		}
		out = append(out, row)
	}
	return out
}
