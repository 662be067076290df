package config

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var (
	rankingShape = &mapShape{keys: []string{"classes", "prefer", "adjust"}}
	preferShape  = &mapShape{
		keys:  []string{"verb", "resource", "servers"},
		later: []string{"capability", "constraints", "tools"},
		hints: map[string]string{"server": `write "servers", a list`},
	}
	adjustShape = &mapShape{
		keys:  []string{"server", "by"},
		later: []string{"verb", "resource", "constraint", "tool", "class"},
		hints: map[string]string{"servers": `write "server", which may hold *`},
	}
)

// maxScore limits each part of a score, so that no sum overflows.
const maxScore = 1_000_000

// classStep is the difference of the scores of two neighbors in the list of classes.
const classStep = 100

func (l *loader) readRanking(v value, t *tenantFolder) (r switchboard.Ranking) {
	o, ok := v.readObject(rankingShape)
	if !ok {
		return r
	}
	if c, ok := o.lookup("classes"); ok {
		c.ctx = v.ctx
		r.Classes = l.readClasses(c, t)
	}
	if p, ok := o.lookup("prefer"); ok {
		r.Prefer = l.readPrefer(p, t)
	}
	if a, ok := o.lookup("adjust"); ok {
		for _, item := range a.readList(maxItems) {
			o, ok := item.readObject(adjustShape)
			if !ok {
				continue
			}
			var row switchboard.Adjust
			if v, ok := o.require("server", `name a server, or several with *, such as "beta-*"`); ok {
				if s, ok := v.readText(); ok {
					row.Server = s
					l.matchServers(v, s, t.servers)
				}
			}
			if v, ok := o.require("by", "say how many points its score changes, such as by: -50"); ok {
				row.By = v.readInteger(-maxScore, maxScore)
			}
			r.Adjust = append(r.Adjust, row)
		}
	}
	return r
}

// readClasses reads the scores of the classes: a list, best first, or a map.
func (l *loader) readClasses(v value, t *tenantFolder) map[string]int {
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
			v.warn("class %s is used by no server of this tenant; %s", quoteShown(class), listKnown("classes", known))
		}
	}
	out := map[string]int{}
	switch v.kind {
	case listKind:
		classes := v.readTexts()
		for i, c := range classes {
			used(c.value, c.s)
			out[c.s] = classStep * (len(classes) - 1 - i)
		}
	case mapKind:
		for _, e := range v.readEntries(maxItems, false) {
			used(e.key, e.name)
			out[e.name] = e.val.readInteger(-maxScore, maxScore)
		}
	default:
		v.fault("want classes: [best, next], or classes: {best: 300, next: 100}, not %v", v.kind)
	}
	return out
}

func (l *loader) readPrefer(v value, t *tenantFolder) []switchboard.Prefer {
	var out []switchboard.Prefer
	for _, item := range v.readList(maxItems) {
		o, ok := item.readObject(preferShape)
		if !ok {
			continue
		}
		var row switchboard.Prefer
		const remedy = "a row is {verb: search, resource: internet, servers: [first, second]}"
		if v, ok := o.require("verb", remedy); ok {
			row.Verb = v.readVerb()
		}
		if v, ok := o.require("resource", remedy); ok {
			row.Resource = l.readResource(v)
		}
		if v, ok := o.require("servers", remedy); ok {
			if v.kind == listKind && len(v.items) == 0 {
				v.fault("the list is empty; name a server, or remove the row")
			}
			for _, s := range v.readTexts() {
				l.checkServer(s.value, s.s, t.servers)
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
