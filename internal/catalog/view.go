package catalog

import (
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A View is the part of a Snapshot that one tenant may use, with the tenant's overlays applied. It is immutable and
// safe for concurrent use.
type View struct {
	digest switchboard.Digest
	tools  []*switchboard.Tool // sorted by id
	faults []ToolFault
	index  map[verbResource][]*switchboard.Tool
}

type verbResource struct {
	verb     switchboard.Verb
	resource switchboard.Resource
}

// For returns the tenant's view: the tools of its servers. The tenant's overlays label tools that no stronger source
// mentions. For all other tools they only add restrictions.
func (s *Snapshot) For(tenant *switchboard.Tenant) *View {
	v := &View{index: map[verbResource][]*switchboard.Tool{}}
	said := byServer(tenant.Overlays)
	ids := slices.Clone(tenant.Servers)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	v.digest = digestServers(s.taxonomyKey, func(yield func(switchboard.ServerID, switchboard.Digest)) {
		for _, id := range ids {
			from := s.server(id)
			if from == nil {
				continue
			}
			tools, digest := from.tools, from.digest
			if overlays := said[id]; len(overlays) > 0 {
				tools = applyOverlays(tools, overlays, s.tax)
				digest = digestTools(tools)
				v.reportUnknownTools(from, overlays)
			}
			for _, e := range tools {
				v.addTool(e.tool, s.tax)
			}
			if len(tools) > 0 {
				yield(id, digest)
			}
		}
	})
	return v
}

// ViewOf returns a view of these tools, which are sorted by id. If they are the tools of an earlier view, the result
// equals that view.
func ViewOf(tools []*switchboard.Tool, tax *switchboard.Taxonomy) *View {
	v := &View{index: map[verbResource][]*switchboard.Tool{}}
	v.digest = digestServers(taxonomyFields(tax), func(yield func(switchboard.ServerID, switchboard.Digest)) {
		for len(tools) > 0 {
			id := tools[0].ID.Server
			var own []usableTool
			for len(tools) > 0 && tools[0].ID.Server == id {
				v.addTool(tools[0], tax)
				own, tools = append(own, usableTool{tool: tools[0]}), tools[1:]
			}
			yield(id, digestTools(own))
		}
	})
	return v
}

// applyOverlays returns tools with the tenant's overlays applied.
func applyOverlays(tools []usableTool, overlays []namedOverlay, tax *switchboard.Taxonomy) []usableTool {
	tools = slices.Clone(tools)
	for i, e := range tools {
		o, ok := overlayOf(overlays, e.tool.ID.Name)
		if !ok {
			continue
		}
		caps := normalize(o.Capabilities, switchboard.FromTenantOverlay)
		tool := *e.tool
		if e.labelled {
			tool.Kept = sortUnique(slices.Concat(tool.Kept, Restrictions(tool.Capabilities, caps)))
		} else {
			tool.Capabilities = caps
		}
		tool.Contract = narrowContract(e.contractFor(&tool, tax), o.Contract)
		tool.Price = RaisePrice(tool.Price, o.Price)
		tool.Contract.Risk = e.tool.Contract.Risk.Or(riskOf(&tool, e.hints, true)) // a budget for what the tenant calls spending is the tenant's own affair
		tools[i].tool = &tool
	}
	return tools
}

// reportUnknownTools reports the tools that the tenant's overlays mention and the server does not offer.
func (v *View) reportUnknownTools(from *serverState, overlays []namedOverlay) {
	if from.source.Offer.Tools == nil {
		return
	}
	for _, o := range overlays {
		if !slices.ContainsFunc(from.tools, func(e usableTool) bool { return e.tool.ID.Name == o.tool }) {
			v.faults = append(v.faults, problemf("", "the server offers no such tool").toFault(from.id, o.tool, switchboard.FromTenantOverlay, ""))
		}
	}
}

// addTool appends the tool, and adds it to the index under the resource of each capability and all ancestors of that
// resource.
func (v *View) addTool(t *switchboard.Tool, tax *switchboard.Taxonomy) {
	v.tools = append(v.tools, t)
	for _, c := range t.Capabilities {
		v.addToIndex(c.Verb, c.Resource, t)
		for _, r := range tax.Ancestors(c.Resource) {
			v.addToIndex(c.Verb, r, t)
		}
	}
}

func (v *View) addToIndex(verb switchboard.Verb, r switchboard.Resource, t *switchboard.Tool) {
	k := verbResource{verb, r}
	list := v.index[k]
	if n := len(list); n > 0 && list[n-1] == t {
		return // it has two capabilities that lead here
	}
	v.index[k] = append(list, t)
}

// Digest is like the digest of a Snapshot, for the tools of the view.
func (v *View) Digest() switchboard.Digest { return v.digest }

// Faults returns the mistakes in the tenant's overlays, sorted. The slice is shared; do not modify it.
func (v *View) Faults() []ToolFault { return v.faults }

// Len returns the number of tools.
func (v *View) Len() int { return len(v.tools) }

// Tool returns the tool with this id.
func (v *View) Tool(id switchboard.ToolID) (*switchboard.Tool, bool) { return findTool(v.tools, id) }

// Match returns the tools, sorted by id, that have a capability of this verb on r or on a descendant of r. The slice is
// shared; do not modify it.
func (v *View) Match(verb switchboard.Verb, r switchboard.Resource) []*switchboard.Tool {
	return v.index[verbResource{verb, r}]
}

// Named returns the tools, sorted by id, that match the pattern "server/tool". In the pattern * matches any characters;
// in the server part it does not match a slash. The slice may be shared; do not modify it.
func (v *View) Named(pattern string) []*switchboard.Tool {
	server, name, ok := strings.Cut(pattern, "/")
	if !ok {
		return nil
	}
	in := v.tools
	if !strings.Contains(server, "*") {
		in = v.toolsOfServer(switchboard.ServerID(server))
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

// toolsOfServer returns the tools of the server, as a part of v.tools.
func (v *View) toolsOfServer(id switchboard.ServerID) []*switchboard.Tool {
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
