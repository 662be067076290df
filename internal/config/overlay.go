package config

import (
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// contractFacts are what the design lets an overlay say of a tool besides its
// capabilities.
var contractFacts = []string{
	"stateful", "deterministic", "idempotency", "side_effects", "risk_level", "cost_class", "cost_per_call", "budget",
	"approval_required", "freshness_budget_hours", "requires", "required_tools", "required_permissions", "required_models",
	"input_schema", "output_schema", "map", "group", "equivalent", "obligations",
}

var (
	overlayShape = &shape{
		keys:  []string{"server", "tools"},
		later: append([]string{"groups", "maps"}, contractFacts...),
	}
	overlayToolShape = &shape{
		keys:  []string{"capabilities", "replace"},
		later: contractFacts,
		hints: map[string]string{"x-summit-capabilities": `write "capabilities"`, "constraints": "put them into each of the capabilities"},
	}
	capabilityShape = &shape{
		keys:  []string{"verb", "resource", "constraints"},
		later: append([]string{"capability"}, contractFacts...),
	}
)

// overlays reads the operator's overlays.
func (l *loader) overlays() {
	for _, doc := range l.documents("overlays") {
		l.overlay(doc, switchboard.FromOverlay, l.ids, l.tools, l.cfg.Overlays)
	}
	l.notYet("capabilities")
}

// overlay reads one file of what is said of one server's tools into out. seen
// tells where each tool stood first.
func (l *loader) overlay(doc value, source switchboard.Source, servers []string, seen map[switchboard.ToolID]value, out map[switchboard.ToolID]switchboard.Overlay) {
	top, ok := doc.object(overlayShape)
	if !ok {
		return
	}
	var server switchboard.ServerID
	if v, ok := top.need("server", "name the server that the tools belong to"); ok {
		if s, ok := v.str(); ok && l.known(v, s, servers) {
			server = switchboard.ServerID(s)
		}
	}
	v, ok := top.need("tools", "name at least one tool")
	if !ok {
		return
	}
	for _, e := range v.entries(maxItems*10, true) {
		id := switchboard.ToolID{Server: server, Name: e.name}
		val := e.val.about("tool %s: ", shown(e.name))
		if why := badToolName(e.name); why != "" {
			e.key.fault("%s: %s", shown(e.name), why)
			continue
		}
		if first, ok := seen[id]; ok && server != "" {
			e.key.fault("%s is described already, at %s:%d", shown(e.name), first.file, first.line)
			continue
		}
		seen[id] = e.key
		out[id] = l.overlayTool(val, source)
	}
}

func (l *loader) overlayTool(v value, source switchboard.Source) switchboard.Overlay {
	var out switchboard.Overlay
	o, ok := v.object(overlayToolShape)
	if !ok {
		return out
	}
	if v, ok := o.need("capabilities", "say what the tool can do, such as [{verb: read, resource: fs}]"); ok {
		if v.kind == listKind && len(v.items) == 0 {
			v.fault("the list is empty; name a capability, or remove the tool")
		}
		for _, item := range v.list(maxItems) {
			out.Capabilities = append(out.Capabilities, l.capability(item, source))
		}
	}
	if v, ok := o.get("replace"); ok {
		if source == switchboard.FromTenantOverlay {
			v.fault("only the operator's overlays may replace what others say; remove it")
		}
		out.Replace = v.boolean()
	}
	return out
}

func (l *loader) capability(v value, source switchboard.Source) switchboard.Capability {
	c := switchboard.Capability{Source: source}
	o, ok := v.object(capabilityShape)
	if !ok {
		return c
	}
	if v, ok := o.need("verb", "a capability is a verb and a resource"); ok {
		c.Verb = v.verb()
	}
	if v, ok := o.need("resource", "a capability is a verb and a resource"); ok {
		c.Resource = l.resource(v)
	}
	if v, ok := o.get("constraints"); ok {
		c.Constraints = l.constraints(v)
	}
	return c
}

// known reports whether s is one of the servers, and makes it a fault if not.
func (l *loader) known(v value, s string, servers []string) bool {
	if !l.readable || slices.Contains(servers, s) {
		return true
	}
	v.fault("%s is no server here%s", shown(s), instead(s, "servers", servers))
	return false
}

// badToolName says why no server's tool can have the name, or "".
func badToolName(s string) string {
	if len(s) > 128 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/") != "" {
		return "the name of a tool is at most 128 letters, digits, and _ . - /"
	}
	return ""
}
