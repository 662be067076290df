package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// contractFacts are what an overlay says of a tool's calls, and laterFacts what
// else the design lets it say.
var (
	contractFacts = []string{"stateful", "deterministic", "idempotency", "timeout"}
	laterFacts    = []string{
		"side_effects", "risk_level", "cost_class", "cost_per_call", "budget",
		"approval_required", "freshness_budget_hours", "requires", "required_tools", "required_permissions", "required_models",
		"input_schema", "output_schema", "group", "obligations",
	}
)

var (
	overlayShape = &shape{
		keys:  []string{"server", "tools"},
		later: append([]string{"groups", "maps"}, laterFacts...),
	}
	overlayToolShape = &shape{
		keys:  append([]string{"capabilities", "replace", "equivalents", "redact"}, contractFacts...),
		later: laterFacts,
		hints: map[string]string{
			"x-summit-capabilities": `write "capabilities"`, "constraints": "put them into each of the capabilities",
			"map": "it belongs to one of the equivalents", "constants": "they belong to one of the equivalents", "defaults": "they belong to one of the equivalents",
			"equivalent": `write "equivalents", a list`,
		},
	}
	declaredShape   = &shape{keys: []string{"tool", "map", "constants", "defaults", "drop"}}
	capabilityShape = &shape{
		keys:  []string{"verb", "resource", "constraints"},
		later: append([]string{"capability"}, laterFacts...),
		hints: beside(contractFacts),
	}
)

// beside hints that keys are the tool's, and no single capability's.
func beside(keys []string) map[string]string {
	hints := map[string]string{}
	for _, k := range keys {
		hints[k] = `it is the tool's; put it beside "capabilities"`
	}
	return hints
}

// overlays reads the operator's overlays. Each file is a part of its own, and in it each tool.
func (l *loader) overlays() {
	for _, name := range l.documentNames("overlays") {
		l.operatorOverlay(name)
	}
	l.notYet("capabilities")
}

// operatorOverlay reads one file. If the file is faulty, its last good copy counts. If there is none,
// the fault is the operator's: nobody knows what the file would have restricted.
func (l *loader) operatorOverlay(name string) {
	file := l.newPart(name, "")
	defer l.within(file)()
	rows, tools := map[switchboard.ToolID]switchboard.Overlay{}, len(l.parts)
	if doc, ok := l.document(name); ok {
		l.overlay(doc, switchboard.FromOverlay, l.ids, l.tools, rows)
	}
	if file.sink.faulty() {
		for _, tool := range l.parts[tools:] {
			file.sink.take(tool.sink)
		}
		l.parts = l.parts[:tools]
		last, ok := l.was().good.overlays[name]
		if !ok {
			file.refuses = true
			return
		}
		file.Keeps, rows = true, last
	}
	l.cfg.good.overlays[name] = rows
	for id, row := range rows {
		switch _, described := l.cfg.Overlays[id]; {
		case l.servers[string(id.Server)] == nil: // it is a copy from before that server was removed
		case file.Keeps && described: // its row has moved to a file that can be read
		default:
			l.cfg.Overlays[id] = row
		}
	}
}

// overlay reads one file of what is said of one server's tools into out. seen
// tells where each tool stood first. In the operator's files a fault of a tool is
// that tool's alone.
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
		if source == switchboard.FromOverlay && server != "" {
			l.row(e, id, servers, seen, out)
			continue
		}
		l.overlayRow(e, id, source, servers, seen, out)
	}
}

// row reads what the operator says of one tool. If that is faulty, the tool is not served: it never
// falls back to what a weaker source says.
func (l *loader) row(e entry, id switchboard.ToolID, servers []string, seen map[switchboard.ToolID]value, out map[switchboard.ToolID]switchboard.Overlay) {
	tool := l.newPart("tool "+id.String(), "")
	defer l.within(tool)()
	e.key.sink, e.val.sink = tool.sink, tool.sink
	l.overlayRow(e, id, switchboard.FromOverlay, servers, seen, out)
	if tool.sink.faulty() {
		out[id] = switchboard.Overlay{Fault: tool.sink.faults[0].String()}
	}
}

// overlayRow reads what stands in a file about one tool.
func (l *loader) overlayRow(e entry, id switchboard.ToolID, source switchboard.Source, servers []string, seen map[switchboard.ToolID]value, out map[switchboard.ToolID]switchboard.Overlay) {
	if why := badToolName(e.name); why != "" {
		e.key.fault("%s: %s", shown(e.name), why)
		return
	}
	if first, ok := seen[id]; ok && id.Server != "" {
		e.key.fault("%s is described already, at %s:%d", shown(e.name), first.file, first.line)
		return
	}
	seen[id] = e.key
	out[id] = l.overlayTool(e.val.about("tool %s: ", shown(e.name)), id, source, servers)
}

// overlayTool reads what is said of one tool.
func (l *loader) overlayTool(v value, id switchboard.ToolID, source switchboard.Source, servers []string) switchboard.Overlay {
	var out switchboard.Overlay
	o, ok := v.object(overlayToolShape)
	if !ok {
		return out
	}
	facts := o.has("equivalents") || o.has("redact") || slices.ContainsFunc(contractFacts, o.has)
	if o.has("replace") || !facts {
		o.need("capabilities", "say what the tool can do, such as [{verb: read, resource: fs}]")
	}
	if v, ok := o.get("capabilities"); ok {
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
	out.Contract = contractOf(o, source)
	if source == switchboard.FromTenantOverlay {
		l.shorter(v, id, out.Contract.Timeout)
	}
	if v, ok := o.get("equivalents"); ok {
		out.Equivalents = l.equivalents(v, id, servers)
	}
	if v, ok := o.get("redact"); ok {
		out.Redact, out.RedactAt = v.detectors(source), fmt.Sprintf("%s:%d:%d", v.file, v.line, v.col)
	}
	readonly := func(c switchboard.Capability) bool { return c.Carries(switchboard.ReadOnly) }
	if len(out.Capabilities) > 0 && !slices.ContainsFunc(out.Capabilities, func(c switchboard.Capability) bool { return !readonly(c) }) {
		o.contradiction("stateful", out.Contract.Stateful.Holds, "its capabilities are readonly")
	}
	return out
}

// detectors reads by what the results of a tool are redacted, and warns where that leaves out what pii_safe takes.
func (v value) detectors(source switchboard.Source) (found []switchboard.Detector) {
	if source == switchboard.FromTenantOverlay {
		v.fault("only the operator's overlays may redact, since the tool is then trusted to be pii_safe; remove it, or oblige calls to redact in a policy")
		return nil
	}
	known := make([]string, len(switchboard.Detectors))
	for i, d := range switchboard.Detectors {
		known[i] = string(d)
	}
	if v.kind == listKind && len(v.items) == 0 {
		v.fault("the list is empty; name detectors, or remove the key; %s", listed("detectors", known))
	}
	for _, t := range v.texts() {
		if name, ok := t.one("detector", known...); ok {
			found = append(found, switchboard.Detector(name))
		}
	}
	slices.Sort(found)
	var lacks []string
	for _, d := range switchboard.PersonalData {
		if !slices.Contains(found, d) {
			lacks = append(lacks, string(d))
		}
	}
	if len(found) > 0 && len(lacks) > 0 {
		v.warn("the results are redacted, but the tool is not pii_safe by that; for pii_safe add %s", strings.Join(lacks, ", "))
	}
	return found
}

// shorter refuses a tenant's timeout of a tool that is longer than the
// operator's.
func (l *loader) shorter(v value, id switchboard.ToolID, timeout time.Duration) {
	if most := l.longest(id); most > 0 && timeout > most {
		v.fault("a timeout of %v is longer than the operator's, %v; a tenant may only shorten it", timeout, most)
	}
}

// longest is the operator's timeout of a tool, 0 where there is no such server.
func (l *loader) longest(id switchboard.ToolID) time.Duration {
	s := l.servers[string(id.Server)]
	if s == nil {
		return 0
	}
	return cmp.Or(l.cfg.Overlays[id].Contract.Timeout, s.Timeout, switchboard.DefaultTimeout)
}

// equivalents reads where calls of the tool may move. Whether the arguments fit
// is known when the tools are.
func (l *loader) equivalents(v value, from switchboard.ToolID, servers []string) (out []switchboard.Declared) {
	seen := map[switchboard.ToolID]bool{}
	for _, item := range v.list(maxItems) {
		o, ok := item.object(declaredShape)
		if !ok {
			continue
		}
		d := switchboard.Declared{Where: fmt.Sprintf("%s:%d:%d", item.file, item.line, item.col)}
		if v, ok := o.need("tool", "name the other tool, as server/tool"); ok {
			d.Where = fmt.Sprintf("%s:%d:%d", v.file, v.line, v.col)
			d.Tool = l.otherTool(v, from, servers)
			if seen[d.Tool] && d.Tool != (switchboard.ToolID{}) {
				v.fault("%s stands here twice", v.shown())
			}
			seen[d.Tool] = true
		}
		if v, ok := o.get("map"); ok {
			d.Map = map[string]string{}
			taken := map[string]string{}
			for _, e := range v.entries(maxItems, false) {
				to, ok := e.val.str()
				if other := taken[to]; ok && other != "" {
					e.val.fault("%s and %s become the same argument, %s", shown(other), shown(e.name), shown(to))
				}
				d.Map[e.name], taken[to] = to, e.name
			}
		}
		if v, ok := o.get("constants"); ok {
			d.Constants = v.arguments()
		}
		if v, ok := o.get("defaults"); ok {
			d.Defaults = v.arguments()
			for _, e := range v.entries(maxItems, false) {
				if _, ok := d.Constants[e.name]; ok {
					e.key.fault("%s is among the constants, which are sent always; remove it from one of the two", shown(e.name))
				}
			}
		}
		if v, ok := o.get("drop"); ok {
			for _, t := range v.texts() {
				if _, ok := d.Map[t.s]; ok {
					t.fault("%s is in the map; an argument is sent or dropped, not both", t.shown())
				}
				d.Drop = append(d.Drop, t.s)
			}
		}
		out = append(out, d)
	}
	return out
}

// otherTool reads the tool that an equivalent is.
func (l *loader) otherTool(v value, from switchboard.ToolID, servers []string) switchboard.ToolID {
	s, ok := v.str()
	if !ok {
		return switchboard.ToolID{}
	}
	id, err := switchboard.ParseToolID(s)
	switch {
	case err != nil:
		v.fault("%s: want the form server/tool, such as google/web_search", v.shown())
	case badToolName(id.Name) != "":
		v.fault("%s: %s", v.shown(), badToolName(id.Name))
	case !l.known(v, string(id.Server), servers):
	case id.Server == from.Server:
		v.fault("%s is of the same server; calls move to another one", v.shown())
	}
	return id
}

// arguments reads values of arguments, as JSON, by name.
func (v value) arguments() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, e := range v.entries(maxItems, false) {
		out[e.name] = e.val.appendJSON(nil, 1)
	}
	return out
}

// contractOf reads the facts of a contract. A tenant says only what makes a tool
// less free.
func contractOf(o object, source switchboard.Source) (c switchboard.Contract) {
	operator := source == switchboard.FromOverlay
	fact := func(v value, holds, freer bool) switchboard.Fact {
		if freer && !operator {
			v.fault("%s makes the tool more free, which only the operator's overlays may; remove it", v.shown())
		}
		return switchboard.Fact{Holds: holds, Source: source, Trusted: operator}
	}
	if v, ok := o.get("stateful"); ok {
		holds := v.boolean()
		c.Stateful = fact(v, holds, !holds)
	}
	if v, ok := o.get("deterministic"); ok {
		holds := v.boolean()
		c.Deterministic = fact(v, holds, holds)
	}
	if v, ok := o.get("idempotency"); ok {
		s, _ := v.one("answer", "natural", "none")
		c.Idempotent = fact(v, s == "natural", s == "natural")
	}
	if v, ok := o.get("timeout"); ok {
		c.Timeout, _ = v.duration(minTimeout, maxTimeout)
	}
	o.contradiction("stateful", c.Stateful.Holds && c.Idempotent.Holds, "it is of natural idempotency, so that a repeat is harmless")
	return c
}

// contradiction is a fault of the key where what else stands here rules it out.
func (o object) contradiction(key string, found bool, what string) {
	if v, ok := o.get(key); ok && found {
		v.ctx = o.ctx
		v.fault("the tool is said to be %s, and also that %s; only one can be true", key, what)
	}
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

// badPattern says what is wrong with a pattern of names of tools, in which *
// stands for any text, or "".
func badPattern(s string) string {
	if why := badToolName(strings.ReplaceAll(s, "*", "")); why != "" {
		return why + ", and * for any text"
	}
	return ""
}
