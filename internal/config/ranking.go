package config

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var (
	rankingShape = &document.Shape{Keys: []string{"classes", "prefer", "adjust"}}
	preferShape  = &document.Shape{
		Keys:  []string{"verb", "resource", "servers"},
		Later: []string{"capability", "constraints", "tools"},
		Hints: map[string]string{"server": `write "servers", a list`},
	}
	adjustShape = &document.Shape{
		Keys:  []string{"server", "by"},
		Later: []string{"verb", "resource", "constraint", "tool", "class"},
		Hints: map[string]string{"servers": `write "server", which may hold *`},
	}
)

// maxScore limits each part of a score, so that no sum overflows.
const maxScore = 1_000_000

// classStep is the difference of the scores of two neighbors in the list of classes.
const classStep = 100

func (l *loader) readRanking(v document.Value, t *tenantFolder) (r switchboard.Ranking) {
	o, ok := v.ReadMap(rankingShape)
	if !ok {
		return r
	}
	if c, ok := o.Lookup("classes"); ok {
		c.Context = v.Context
		r.Classes = l.readClasses(c, t)
	}
	if p, ok := o.Lookup("prefer"); ok {
		r.Prefer = l.readPrefer(p, t)
	}
	if a, ok := o.Lookup("adjust"); ok {
		for _, item := range a.ReadList(document.MaxItems) {
			o, ok := item.ReadMap(adjustShape)
			if !ok {
				continue
			}
			var row switchboard.Adjust
			if v, ok := o.Require("server", `name a server, or several with *, such as "beta-*"`); ok {
				if s, ok := v.ReadText(); ok {
					row.Server = s
					l.matchServers(v, s, t.servers)
				}
			}
			if v, ok := o.Require("by", "say how many points its score changes, such as by: -50"); ok {
				row.By = v.ReadInteger(-maxScore, maxScore)
			}
			r.Adjust = append(r.Adjust, row)
		}
	}
	return r
}

// readClasses reads the scores of the classes: a list, best first, or a map.
func (l *loader) readClasses(v document.Value, t *tenantFolder) map[string]int {
	var known []string
	for _, id := range t.bound.servers {
		if s := l.servers[id]; s != nil && s.Class != "" {
			known = append(known, s.Class)
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	used := func(v document.Value, class string) {
		if l.readable && !slices.Contains(known, class) {
			v.Warn("class %s is used by no server of this tenant; %s", document.Shown(class), document.ListKnown("classes", known))
		}
	}
	out := map[string]int{}
	switch v.Kind {
	case document.KindList:
		classes := v.ReadTexts()
		for i, c := range classes {
			used(c.Value, c.String)
			out[c.String] = classStep * (len(classes) - 1 - i)
		}
	case document.KindMap:
		for _, e := range v.ReadNamed(document.MaxItems, false) {
			used(e.Key, e.Name)
			out[e.Name] = e.Value.ReadInteger(-maxScore, maxScore)
		}
	default:
		v.Fault("want classes: [best, next], or classes: {best: 300, next: 100}, not %v", v.Kind)
	}
	return out
}

func (l *loader) readPrefer(v document.Value, t *tenantFolder) []switchboard.Prefer {
	var out []switchboard.Prefer
	for _, item := range v.ReadList(document.MaxItems) {
		o, ok := item.ReadMap(preferShape)
		if !ok {
			continue
		}
		var row switchboard.Prefer
		const remedy = "a row is {verb: search, resource: internet, servers: [first, second]}"
		if v, ok := o.Require("verb", remedy); ok {
			row.Verb = readVerb(v)
		}
		if v, ok := o.Require("resource", remedy); ok {
			row.Resource = l.readResource(v)
		}
		if v, ok := o.Require("servers", remedy); ok {
			if v.Kind == document.KindList && len(v.Items) == 0 {
				v.Fault("the list is empty; name a server, or remove the row")
			}
			for _, s := range v.ReadTexts() {
				l.checkServer(s.Value, s.String, t.servers)
				row.Servers = append(row.Servers, switchboard.ServerID(s.String))
			}
		}
		if row.Verb != "" && row.Resource != "" && slices.ContainsFunc(out, func(p switchboard.Prefer) bool { return p.Verb == row.Verb && p.Resource == row.Resource }) {
			item.Fault("an earlier row for %s %s counts instead of this one; join them", row.Verb, row.Resource)
		}
		out = append(out, row)
	}
	return out
}
