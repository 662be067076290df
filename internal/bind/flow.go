package bind

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// SelectedFlows returns the toxic combination of the tools that the decision selects, or nil.
func SelectedFlows(d *decide.Decision) *switchboard.ToxicCombination {
	tools := make([]*switchboard.Tool, len(d.Selected))
	for i := range d.Selected {
		tools[i] = d.Selected[i].Tool
	}
	return switchboard.CombineFlows(tools)
}

// logFlows logs the toxic combination of the decision's tools, once, and again after a change or a clear. A combination that
// only tools without labels make is nothing to warn of: it says that nothing is known.
func (t *tieLog) logFlows(log *slog.Logger, d *decide.Decision) {
	c := SelectedFlows(d)
	if c == nil || !c.Certain() {
		return
	}
	if t.addNew(tieKey{d.Tenant, d.Task.ID, "", c.String()}) {
		log.Warn("the tools of a task can carry private data out by the words of a stranger; see docs/flows.md", "tenant", d.Tenant, "task", d.Task.ID, "tools", c.String())
	}
}

// FlowWarnings names the tasks whose tools can have all three bits together, as far as the operator's overlays and the tenants' say
// what tools do: no server is asked. It is for a check of the configuration.
func FlowWarnings(c *config.Config) (warnings switchboard.Faults) {
	overlays := maps.Clone(c.Overlays)
	for id, o := range overlays { // the definitions that they were given to are not known here
		o.For = ""
		overlays[id] = o
	}
	snapshot := catalog.Build(describedTools(c), overlays, c.Taxonomy)
	for _, id := range slices.Sorted(maps.Keys(c.Tenants)) {
		tenant := c.Tenants[id]
		view := snapshot.For(tenant)
		for _, name := range slices.Sorted(maps.Keys(tenant.Tasks)) {
			var tools []*switchboard.Tool
			for _, r := range tenant.Tasks[name].Requirements {
				tools = append(tools, describedFor(view, &r)...)
			}
			if found := switchboard.CombineFlows(tools); found != nil && found.Certain() && !tenant.Flows.StricterThan(switchboard.FlowsRecord) {
				warnings = append(warnings, switchboard.Fault{
					File: fmt.Sprintf("tenants/%s/tasks/%s.yaml", id, name),
					Text: fmt.Sprintf("its tools can carry private data out by the words of a stranger: %s; set flows: ask or flows: never in tenant.yaml, or take one of the three out of the task", found),
				})
			}
		}
	}
	return warnings
}

// describedFor returns the tools that can be candidates of the requirement.
func describedFor(view *catalog.View, r *switchboard.Requirement) (tools []*switchboard.Tool) {
	if !r.ByName() {
		return view.Match(r.Verb, r.Resource)
	}
	for _, pattern := range r.Tools {
		tools = append(tools, view.Named(pattern)...)
	}
	return tools
}

// describedTools returns servers that offer the tools that overlays describe, and nothing else is known of them.
func describedTools(c *config.Config) (all []catalog.Source) {
	names := map[switchboard.ServerID][]string{}
	add := func(overlays map[switchboard.ToolID]switchboard.Overlay) {
		for id := range overlays {
			names[id.Server] = append(names[id.Server], id.Name)
		}
	}
	add(c.Overlays)
	for _, t := range c.Tenants {
		add(t.Overlays)
	}
	for i := range c.Servers {
		s := &c.Servers[i]
		one := catalog.Source{Offer: switchboard.Offer{Server: s.ID, Tools: [][]byte{}}, Class: s.Class, Trust: s.Trust}
		slices.Sort(names[s.ID])
		for _, name := range slices.Compact(names[s.ID]) {
			one.Offer.Tools = append(one.Offer.Tools, canonical.Encode(map[string]any{"name": name, "inputSchema": map[string]any{"type": "object"}}))
		}
		all = append(all, one)
	}
	return all
}
