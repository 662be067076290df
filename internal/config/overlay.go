package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// contractFacts are the keys of an overlay that describe the calls of a tool. laterFacts are keys that
// are designed but not built yet.
var (
	contractFacts = []string{"stateful", "deterministic", "idempotency", "timeout"}
	laterFacts    = []string{
		"side_effects", "risk_level", "cost_class", "cost_per_call", "budget",
		"approval_required", "freshness_budget_hours", "requires", "required_tools", "required_permissions", "required_models",
		"input_schema", "output_schema", "group", "obligations",
	}
)

var (
	overlayShape = &document.Shape{
		Keys:  []string{"server", "tools"},
		Later: append([]string{"groups", "maps"}, laterFacts...),
	}
	overlayToolShape = &document.Shape{
		Keys:  append([]string{"capabilities", "replace", "equivalents", "redact"}, contractFacts...),
		Later: laterFacts,
		Hints: map[string]string{
			"x-summit-capabilities": `write "capabilities"`, "constraints": "put them into each of the capabilities",
			"map": "it belongs to one of the equivalents", "constants": "they belong to one of the equivalents", "defaults": "they belong to one of the equivalents",
			"equivalent": `write "equivalents", a list`,
		},
	}
	declaredShape   = &document.Shape{Keys: []string{"tool", "map", "constants", "defaults", "drop"}}
	capabilityShape = &document.Shape{
		Keys:  []string{"verb", "resource", "constraints"},
		Later: append([]string{"capability"}, laterFacts...),
		Hints: hintBeside(contractFacts),
	}
)

// hintBeside returns hints that the keys belong to the tool and not to one capability.
func hintBeside(keys []string) map[string]string {
	hints := map[string]string{}
	for _, k := range keys {
		hints[k] = `it is the tool's; put it beside "capabilities"`
	}
	return hints
}

// readOverlays reads the operator's overlays. Each file is a part of its own, and so is each tool in
// it.
func (l *loader) readOverlays() {
	for _, name := range l.listDocuments("overlays") {
		l.readOperatorOverlay(name)
	}
	l.refuseFolder("capabilities")
}

// readOperatorOverlay reads one file. If the file is faulty, its last good copy applies. If there is
// none, its faults refuse the whole configuration, because the restrictions in the file are unknown.
func (l *loader) readOperatorOverlay(name string) {
	file := l.newPart(name, "")
	defer l.collectInto(file)()
	rows, tools := map[switchboard.ToolID]switchboard.Overlay{}, len(l.parts)
	if doc, ok := l.readDocument(name); ok {
		l.readOverlayFile(doc, switchboard.FromOverlay, l.serverIDs, l.overlaySeen, rows)
	}
	if file.sink.Faulty() {
		for _, tool := range l.parts[tools:] {
			file.sink.AddAll(tool.sink)
		}
		l.parts = l.parts[:tools]
		last, ok := l.previous().good.overlays[name]
		if !ok {
			file.refuses = true
			return
		}
		file.Keeps, rows = true, last
	}
	l.cfg.good.overlays[name] = rows
	for id, row := range rows {
		switch _, described := l.cfg.Overlays[id]; {
		case l.servers[string(id.Server)] == nil: // the copy is older than the removal of that server
		case file.Keeps && described: // the row has moved to a file that could be read
		default:
			l.cfg.Overlays[id] = row
		}
	}
}

// readOverlayFile reads the overlays of one server's tools from one file into out. seen holds where
// each tool was described first. In the operator's files a fault in a tool affects that tool only.
func (l *loader) readOverlayFile(doc document.Value, source switchboard.Source, servers []string, seen map[switchboard.ToolID]document.Value, out map[switchboard.ToolID]switchboard.Overlay) {
	top, ok := doc.ReadMap(overlayShape)
	if !ok {
		return
	}
	var server switchboard.ServerID
	if v, ok := top.Require("server", "name the server that the tools belong to"); ok {
		if s, ok := v.ReadText(); ok && l.checkServer(v, s, servers) {
			server = switchboard.ServerID(s)
		}
	}
	v, ok := top.Require("tools", "name at least one tool")
	if !ok {
		return
	}
	for _, e := range v.ReadNamed(document.MaxItems*10, true) {
		id := switchboard.ToolID{Server: server, Name: e.Name}
		if source == switchboard.FromOverlay && server != "" {
			l.readOperatorRow(e, id, servers, seen, out)
			continue
		}
		l.readOverlayRow(e, id, source, servers, seen, out)
	}
}

// readOperatorRow reads the operator's overlay of one tool. If it is faulty, the tool is not served: a
// weaker source must not take its place.
func (l *loader) readOperatorRow(e document.NamedValue, id switchboard.ToolID, servers []string, seen map[switchboard.ToolID]document.Value, out map[switchboard.ToolID]switchboard.Overlay) {
	tool := l.newPart("tool "+id.String(), "")
	defer l.collectInto(tool)()
	e.Key.Sink, e.Value.Sink = tool.sink, tool.sink
	l.readOverlayRow(e, id, switchboard.FromOverlay, servers, seen, out)
	if tool.sink.Faulty() {
		out[id] = switchboard.Overlay{Fault: tool.sink.Faults[0].String()}
	}
}

// readOverlayRow reads the overlay of one tool.
func (l *loader) readOverlayRow(e document.NamedValue, id switchboard.ToolID, source switchboard.Source, servers []string, seen map[switchboard.ToolID]document.Value, out map[switchboard.ToolID]switchboard.Overlay) {
	if why := badToolName(e.Name); why != "" {
		e.Key.Fault("%s: %s", document.Shown(e.Name), why)
		return
	}
	if first, ok := seen[id]; ok && id.Server != "" {
		e.Key.Fault("%s is described already, at %s:%d", document.Shown(e.Name), first.File, first.Line)
		return
	}
	seen[id] = e.Key
	out[id] = l.readOverlayTool(e.Value.WithContext("tool %s: ", document.Shown(e.Name)), id, source, servers)
}

// readOverlayTool reads the content of one tool's overlay.
func (l *loader) readOverlayTool(v document.Value, id switchboard.ToolID, source switchboard.Source, servers []string) switchboard.Overlay {
	var out switchboard.Overlay
	o, ok := v.ReadMap(overlayToolShape)
	if !ok {
		return out
	}
	facts := o.HasKey("equivalents") || o.HasKey("redact") || slices.ContainsFunc(contractFacts, o.HasKey)
	if o.HasKey("replace") || !facts {
		o.Require("capabilities", "say what the tool can do, such as [{verb: read, resource: fs}]")
	}
	if v, ok := o.Lookup("capabilities"); ok {
		if v.Kind == document.KindList && len(v.Items) == 0 {
			v.Fault("the list is empty; name a capability, or remove the tool")
		}
		for _, item := range v.ReadList(document.MaxItems) {
			out.Capabilities = append(out.Capabilities, l.readCapability(item, source))
		}
	}
	if v, ok := o.Lookup("replace"); ok {
		if source == switchboard.FromTenantOverlay {
			v.Fault("only the operator's overlays may replace what others say; remove it")
		}
		out.Replace = v.ReadBool()
	}
	out.Contract = contractOf(o, source)
	if source == switchboard.FromTenantOverlay {
		l.checkShorter(v, id, out.Contract.Timeout)
	}
	if v, ok := o.Lookup("equivalents"); ok {
		out.Equivalents = l.readEquivalents(v, id, servers)
	}
	if v, ok := o.Lookup("redact"); ok {
		out.Redact, out.RedactAt = readDetectors(v, source), fmt.Sprintf("%s:%d:%d", v.File, v.Line, v.Column)
	}
	readonly := func(c switchboard.Capability) bool { return c.Carries(switchboard.ReadOnly) }
	if len(out.Capabilities) > 0 && !slices.ContainsFunc(out.Capabilities, func(c switchboard.Capability) bool { return !readonly(c) }) {
		faultContradiction(o, "stateful", out.Contract.Stateful.Holds, "its capabilities are readonly")
	}
	return out
}

// readDetectors reads the detectors that redact the results of a tool. It warns if they do not suffice
// for pii_safe.
func readDetectors(v document.Value, source switchboard.Source) (found []switchboard.Detector) {
	if source == switchboard.FromTenantOverlay {
		v.Fault("only the operator's overlays may redact, since the tool is then trusted to be pii_safe; remove it, or oblige calls to redact in a policy")
		return nil
	}
	known := make([]string, len(switchboard.Detectors))
	for i, d := range switchboard.Detectors {
		known[i] = string(d)
	}
	if v.Kind == document.KindList && len(v.Items) == 0 {
		v.Fault("the list is empty; name detectors, or remove the key; %s", document.ListKnown("detectors", known))
	}
	for _, t := range v.ReadTexts() {
		if name, ok := t.OneOf("detector", known...); ok {
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
		v.Warn("the results are redacted, but the tool is not pii_safe by that; for pii_safe add %s", strings.Join(lacks, ", "))
	}
	return found
}

// checkShorter reports a fault if a tenant's timeout of a tool is longer than the operator's.
func (l *loader) checkShorter(v document.Value, id switchboard.ToolID, timeout time.Duration) {
	if most := l.timeoutLimit(id); most > 0 && timeout > most {
		v.Fault("a timeout of %v is longer than the operator's, %v; a tenant may only shorten it", timeout, most)
	}
}

// timeoutLimit returns the operator's timeout of a tool, or 0 if there is no such server.
func (l *loader) timeoutLimit(id switchboard.ToolID) time.Duration {
	s := l.servers[string(id.Server)]
	if s == nil {
		return 0
	}
	return cmp.Or(l.cfg.Overlays[id].Contract.Timeout, s.Timeout, switchboard.DefaultTimeout)
}

// readEquivalents reads the tools that may be called instead of this one. Package contract checks
// whether the arguments fit, once it knows the tools.
func (l *loader) readEquivalents(v document.Value, from switchboard.ToolID, servers []string) (out []switchboard.Declared) {
	seen := map[switchboard.ToolID]bool{}
	for _, item := range v.ReadList(document.MaxItems) {
		o, ok := item.ReadMap(declaredShape)
		if !ok {
			continue
		}
		d := switchboard.Declared{Where: fmt.Sprintf("%s:%d:%d", item.File, item.Line, item.Column)}
		if v, ok := o.Require("tool", "name the other tool, as server/tool"); ok {
			d.Where = fmt.Sprintf("%s:%d:%d", v.File, v.Line, v.Column)
			d.Tool = l.readEquivalentTool(v, from, servers)
			if seen[d.Tool] && d.Tool != (switchboard.ToolID{}) {
				v.Fault("%s stands here twice", v.Shown())
			}
			seen[d.Tool] = true
		}
		if v, ok := o.Lookup("map"); ok {
			d.Map = map[string]string{}
			taken := map[string]string{}
			for _, e := range v.ReadNamed(document.MaxItems, false) {
				to, ok := e.Value.ReadText()
				if other := taken[to]; ok && other != "" {
					e.Value.Fault("%s and %s become the same argument, %s", document.Shown(other), document.Shown(e.Name), document.Shown(to))
				}
				d.Map[e.Name], taken[to] = to, e.Name
			}
		}
		if v, ok := o.Lookup("constants"); ok {
			d.Constants = readArguments(v)
		}
		if v, ok := o.Lookup("defaults"); ok {
			d.Defaults = readArguments(v)
			for _, e := range v.ReadNamed(document.MaxItems, false) {
				if _, ok := d.Constants[e.Name]; ok {
					e.Key.Fault("%s is among the constants, which are sent always; remove it from one of the two", document.Shown(e.Name))
				}
			}
		}
		if v, ok := o.Lookup("drop"); ok {
			for _, t := range v.ReadTexts() {
				if _, ok := d.Map[t.String]; ok {
					t.Fault("%s is in the map; an argument is sent or dropped, not both", t.Shown())
				}
				d.Drop = append(d.Drop, t.String)
			}
		}
		out = append(out, d)
	}
	return out
}

// readEquivalentTool reads the id of an equivalent tool.
func (l *loader) readEquivalentTool(v document.Value, from switchboard.ToolID, servers []string) switchboard.ToolID {
	s, ok := v.ReadText()
	if !ok {
		return switchboard.ToolID{}
	}
	id, err := switchboard.ParseToolID(s)
	switch {
	case err != nil:
		v.Fault("%s: want the form server/tool, such as google/web_search", v.Shown())
	case badToolName(id.Name) != "":
		v.Fault("%s: %s", v.Shown(), badToolName(id.Name))
	case !l.checkServer(v, string(id.Server), servers):
	case id.Server == from.Server:
		v.Fault("%s is of the same server; calls move to another one", v.Shown())
	}
	return id
}

// readArguments reads the values of arguments as JSON, by name.
func readArguments(v document.Value) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, e := range v.ReadNamed(document.MaxItems, false) {
		out[e.Name] = e.Value.AppendJSON(nil, 1)
	}
	return out
}

// contractOf reads the facts of a contract. A tenant may only restrict a tool further.
func contractOf(o document.FixedMap, source switchboard.Source) (c switchboard.Contract) {
	operator := source == switchboard.FromOverlay
	fact := func(v document.Value, holds, freer bool) switchboard.Fact {
		if freer && !operator {
			v.Fault("%s makes the tool more free, which only the operator's overlays may; remove it", v.Shown())
		}
		return switchboard.Fact{Holds: holds, Source: source, Trusted: operator}
	}
	if v, ok := o.Lookup("stateful"); ok {
		holds := v.ReadBool()
		c.Stateful = fact(v, holds, !holds)
	}
	if v, ok := o.Lookup("deterministic"); ok {
		holds := v.ReadBool()
		c.Deterministic = fact(v, holds, holds)
	}
	if v, ok := o.Lookup("idempotency"); ok {
		s, _ := v.OneOf("answer", "natural", "none")
		c.Idempotent = fact(v, s == "natural", s == "natural")
	}
	if v, ok := o.Lookup("timeout"); ok {
		c.Timeout, _ = v.ReadDuration(minTimeout, maxTimeout)
	}
	faultContradiction(o, "stateful", c.Stateful.Holds && c.Idempotent.Holds, "it is of natural idempotency, so that a repeat is harmless")
	return c
}

// faultContradiction reports a fault at the key if other keys rule out its value.
func faultContradiction(o document.FixedMap, key string, found bool, what string) {
	if v, ok := o.Lookup(key); ok && found {
		v.Context = o.Context
		v.Fault("the tool is said to be %s, and also that %s; only one can be true", key, what)
	}
}

func (l *loader) readCapability(v document.Value, source switchboard.Source) switchboard.Capability {
	c := switchboard.Capability{Source: source}
	o, ok := v.ReadMap(capabilityShape)
	if !ok {
		return c
	}
	if v, ok := o.Require("verb", "a capability is a verb and a resource"); ok {
		c.Verb = readVerb(v)
	}
	if v, ok := o.Require("resource", "a capability is a verb and a resource"); ok {
		c.Resource = l.readResource(v)
	}
	if v, ok := o.Lookup("constraints"); ok {
		c.Constraints = l.readConstraints(v)
	}
	return c
}

// checkServer reports whether s is one of the servers. If it is not, that is a fault.
func (l *loader) checkServer(v document.Value, s string, servers []string) bool {
	if !l.readable || slices.Contains(servers, s) {
		return true
	}
	v.Fault("%s is no server here%s", document.Shown(s), document.Suggestion(s, "servers", servers))
	return false
}

// badToolName returns why s cannot be the name of a tool, or "".
func badToolName(s string) string {
	if len(s) > 128 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/") != "" {
		return "the name of a tool is at most 128 letters, digits, and _ . - /"
	}
	return ""
}

// badPattern returns what is wrong with a pattern of tool names, or "". In a pattern, * stands for any
// text.
func badPattern(s string) string {
	if why := badToolName(strings.ReplaceAll(s, "*", "")); why != "" {
		return why + ", and * for any text"
	}
	return ""
}
