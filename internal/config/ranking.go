package config

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxScore limits each part of a score, so that no sum overflows.
const maxScore = 1_000_000

// classStep is the difference of the scores of two neighbors in the list of classes.
const classStep = 100

// rankingKeys are the keys of the tenant's ranking.
func (t *tenantFolder) rankingKeys() *document.Keys {
	r := &t.out.Ranking
	score := document.Schema{"type": "integer", "minimum": -maxScore, "maximum": maxScore}
	return &document.Keys{Rows: []document.Row{
		{Key: "classes", Type: document.Custom("a list of classes, or a map from class to score", document.Schema{"type": []string{"array", "object"}, "items": document.Schema{"type": "string"}, "additionalProperties": score}, func(v document.Value) {
			v.Context = "ranking: "
			r.Classes = t.readClasses(v)
		}), Doc: "A list, best first: the score is 100 times the position counted from the end, and 0 for the last class. Or a map from class to score."},
		{Key: "prefer", Type: document.MapList("a list of maps", func() *document.Keys { return t.preferKeys(&switchboard.Prefer{}) }, t.readPrefer), Doc: "The servers that come first for a verb and a resource. The first matching row counts."},
		{Key: "adjust", Type: document.MapList("a list of maps", func() *document.Keys { return t.adjustKeys(&switchboard.Adjust{}) }, t.readAdjust), Doc: "Points that are added to the score of a server."},
	}}
}

// adjustKeys are the keys of a change of scores.
func (t *tenantFolder) adjustKeys(row *switchboard.Adjust) *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "server", Type: document.Text("a server", func(v document.Value, s string) {
				row.Server = s
				t.matchServers(v, s, t.servers)
			}), Required: `name a server, or several with *, such as "beta-*"`, Doc: "The server; * matches any text."},
			{Key: "by", Type: document.Integer(-maxScore, maxScore, &row.By), Required: "say how many points its score changes, such as by: -50", Doc: "The points, which may be negative."},
		},
		Later: []string{"verb", "resource", "constraint", "tool", "class"},
		Hints: map[string]string{"servers": `write "server", which may hold *`},
	}
}

func (t *tenantFolder) readAdjust(v document.Value) {
	for _, item := range v.ReadList(document.MaxItems) {
		var row switchboard.Adjust
		if m, ok := item.Open(t.adjustKeys(&row)); ok {
			m.Read()
			t.out.Ranking.Adjust = append(t.out.Ranking.Adjust, row)
		}
	}
}

// preferKeys are the keys of a preference.
func (t *tenantFolder) preferKeys(row *switchboard.Prefer) *document.Keys {
	const remedy = "a row is {verb: search, resource: internet, servers: [first, second]}"
	return &document.Keys{
		Rows: []document.Row{
			{Key: "verb", Type: verbType(&row.Verb), Required: remedy, Doc: "The verb."},
			{Key: "resource", Type: t.resourceType(&row.Resource), Required: remedy, Doc: "The resource."},
			{Key: "servers", Type: document.Texts("a list of servers", nil).With(func(v document.Value) {
				if v.Kind == document.KindList && len(v.Items) == 0 {
					v.Fault("the list is empty; name a server, or remove the row")
				}
				for _, s := range v.ReadTexts() {
					t.checkServer(s.Value, s.String, t.servers)
					row.Servers = append(row.Servers, switchboard.ServerID(s.String))
				}
			}), Required: remedy, Doc: "The servers, the first one first."},
		},
		Later: []string{"capability", "constraints", "tools"},
		Hints: map[string]string{"server": `write "servers", a list`},
	}
}

func (t *tenantFolder) readPrefer(v document.Value) {
	out := &t.out.Ranking.Prefer
	for _, item := range v.ReadList(document.MaxItems) {
		var row switchboard.Prefer
		m, ok := item.Open(t.preferKeys(&row))
		if !ok {
			continue
		}
		m.Read()
		if row.Verb != "" && row.Resource != "" && slices.ContainsFunc(*out, func(p switchboard.Prefer) bool { return p.Verb == row.Verb && p.Resource == row.Resource }) {
			item.Fault("an earlier row for %s %s counts instead of this one; join them", row.Verb, row.Resource)
		}
		*out = append(*out, row)
	}
}

// readClasses reads the scores of the classes: a list, best first, or a map.
func (t *tenantFolder) readClasses(v document.Value) map[string]int {
	var known []string
	for _, id := range t.bound.servers {
		if s := t.loader.servers[id]; s != nil && s.Class != "" {
			known = append(known, s.Class)
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	used := func(v document.Value, class string) {
		if t.readable && !slices.Contains(known, class) {
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
