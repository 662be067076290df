package catalog

import (
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A View is the part of a Snapshot that one tenant may use, with what the
// tenant's overlays add. It is immutable and safe for concurrent use.
type View struct {
	digest switchboard.Digest
	tools  []*switchboard.Tool // sorted by id
	faults []Fault
	index  map[ability][]*switchboard.Tool
}

type ability struct {
	verb     switchboard.Verb
	resource switchboard.Resource
}

// For returns the tenant's view: the tools of its servers. Its overlays label
// tools of which nobody above has spoken. To the others they add only what
// makes them less free.
func (s *Snapshot) For(tenant *switchboard.Tenant) *View {
	v := &View{index: map[ability][]*switchboard.Tool{}}
	said := byServer(tenant.Overlays)
	ids := slices.Clone(tenant.Servers)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	v.digest = digestOf(s.words, func(yield func(switchboard.ServerID, switchboard.Digest)) {
		for _, id := range ids {
			from := s.server(id)
			if from == nil {
				continue
			}
			tools, digest := from.tools, from.digest
			if overlays := said[id]; len(overlays) > 0 {
				tools = overlaid(tools, overlays)
				digest = digestTools(tools)
				v.blame(from, overlays)
			}
			for _, e := range tools {
				v.add(e.tool, s.tax)
			}
			if len(tools) > 0 {
				yield(id, digest)
			}
		}
	})
	return v
}

// ViewOf returns the view of these tools, which are sorted by id: as For once
// returned it, where they are those of that view.
func ViewOf(tools []*switchboard.Tool, tax *switchboard.Taxonomy) *View {
	v := &View{index: map[ability][]*switchboard.Tool{}}
	v.digest = digestOf(taxonomyWords(tax), func(yield func(switchboard.ServerID, switchboard.Digest)) {
		for len(tools) > 0 {
			id := tools[0].ID.Server
			var own []entry
			for len(tools) > 0 && tools[0].ID.Server == id {
				v.add(tools[0], tax)
				own, tools = append(own, entry{tool: tools[0]}), tools[1:]
			}
			yield(id, digestTools(own))
		}
	})
	return v
}

// overlaid returns tools with what a tenant says of them.
func overlaid(tools []entry, overlays []namedOverlay) []entry {
	tools = slices.Clone(tools)
	for i, e := range tools {
		o, ok := overlayOf(overlays, e.tool.ID.Name)
		if !ok {
			continue
		}
		caps := normal(o.Capabilities, switchboard.FromTenantOverlay)
		tool := *e.tool
		if e.labelled {
			tool.Kept = ordered(slices.Concat(tool.Kept, lessFree(tool.Capabilities, caps)))
		} else {
			tool.Capabilities = caps
		}
		tool.Contract = narrowed(contractOf(&tool, e.hints, e.said), o.Contract)
		tools[i].tool = &tool
	}
	return tools
}

// blame notes the tools that the tenant speaks of and from does not offer.
func (v *View) blame(from *server, overlays []namedOverlay) {
	if from.source.Offer.Tools == nil {
		return
	}
	for _, o := range overlays {
		if !slices.ContainsFunc(from.tools, func(e entry) bool { return e.tool.ID.Name == o.tool }) {
			v.faults = append(v.faults, problemf("", "the server offers no such tool").of(from.id, o.tool, switchboard.FromTenantOverlay, ""))
		}
	}
}

// add puts the tool behind all tools before it, and into the index under each
// of its capabilities' resources and all resources above.
func (v *View) add(t *switchboard.Tool, tax *switchboard.Taxonomy) {
	v.tools = append(v.tools, t)
	for _, c := range t.Capabilities {
		v.enter(c.Verb, c.Resource, t)
		for _, r := range tax.Ancestors(c.Resource) {
			v.enter(c.Verb, r, t)
		}
	}
}

func (v *View) enter(verb switchboard.Verb, r switchboard.Resource, t *switchboard.Tool) {
	k := ability{verb, r}
	list := v.index[k]
	if n := len(list); n > 0 && list[n-1] == t {
		return // it has two capabilities that lead here
	}
	v.index[k] = append(list, t)
}

// Digest is as that of a Snapshot, over what the view holds.
func (v *View) Digest() switchboard.Digest { return v.digest }

// Faults are what is wrong with the tenant's overlays, sorted. The slice is
// shared; do not modify it.
func (v *View) Faults() []Fault { return v.faults }

// Len is the number of tools.
func (v *View) Len() int { return len(v.tools) }

// Tool returns the tool with this id.
func (v *View) Tool(id switchboard.ToolID) (*switchboard.Tool, bool) { return find(v.tools, id) }

// Match returns the tools, sorted by id, that have a capability of this verb
// on r or on a resource below it. The slice is shared; do not modify it.
func (v *View) Match(verb switchboard.Verb, r switchboard.Resource) []*switchboard.Tool {
	return v.index[ability{verb, r}]
}

// Named returns the tools, sorted by id, that the pattern "server/tool"
// matches. In it * stands for any run of characters, without a slash in the
// server. The slice may be shared; do not modify it.
func (v *View) Named(pattern string) []*switchboard.Tool {
	server, name, ok := strings.Cut(pattern, "/")
	if !ok {
		return nil
	}
	in := v.tools
	if !strings.Contains(server, "*") {
		in = v.ofServer(switchboard.ServerID(server))
	} else if server == "*" && name == "*" {
		return in
	}
	var out []*switchboard.Tool
	for _, t := range in {
		if switchboard.MatchPattern(server, string(t.ID.Server)) && switchboard.MatchPattern(name, t.ID.Name) {
			out = append(out, t)
		}
	}
	return out
}

// ofServer returns the part of the tools that the server has.
func (v *View) ofServer(id switchboard.ServerID) []*switchboard.Tool {
	compare := func(t *switchboard.Tool, id switchboard.ServerID) int {
		return strings.Compare(string(t.ID.Server), string(id))
	}
	from, _ := slices.BinarySearchFunc(v.tools, id, compare)
	n, _ := slices.BinarySearchFunc(v.tools[from:], id, func(t *switchboard.Tool, id switchboard.ServerID) int {
		if compare(t, id) <= 0 {
			return -1
		}
		return 1
	})
	return v.tools[from : from+n : from+n]
}
