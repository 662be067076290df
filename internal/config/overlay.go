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
	overlayShape = &mapShape{
		keys:  []string{"server", "tools"},
		later: append([]string{"groups", "maps"}, laterFacts...),
	}
	overlayToolShape = &mapShape{
		keys:  append([]string{"capabilities", "replace", "equivalents", "redact"}, contractFacts...),
		later: laterFacts,
		hints: map[string]string{
			"x-summit-capabilities": `write "capabilities"`, "constraints": "put them into each of the capabilities",
			"map": "it belongs to one of the equivalents", "constants": "they belong to one of the equivalents", "defaults": "they belong to one of the equivalents",
			"equivalent": `write "equivalents", a list`,
		},
	}
	declaredShape   = &mapShape{keys: []string{"tool", "map", "constants", "defaults", "drop"}}
	capabilityShape = &mapShape{
		keys:  []string{"verb", "resource", "constraints"},
		later: append([]string{"capability"}, laterFacts...),
		hints: hintBeside(contractFacts),
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
	if file.sink.faulty() {
		for _, tool := range l.parts[tools:] {
			file.sink.addAll(tool.sink)
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
func (l *loader) readOverlayFile(doc value, source switchboard.Source, servers []string, seen map[switchboard.ToolID]value, out map[switchboard.ToolID]switchboard.Overlay) {
	top, ok := doc.readObject(overlayShape)
	if !ok {
		return
	}
	var server switchboard.ServerID
	if v, ok := top.require("server", "name the server that the tools belong to"); ok {
		if s, ok := v.readText(); ok && l.checkServer(v, s, servers) {
			server = switchboard.ServerID(s)
		}
	}
	v, ok := top.require("tools", "name at least one tool")
	if !ok {
		return
	}
	for _, e := range v.readEntries(maxItems*10, true) {
		id := switchboard.ToolID{Server: server, Name: e.name}
		if source == switchboard.FromOverlay && server != "" {
			l.readOperatorRow(e, id, servers, seen, out)
			continue
		}
		l.readOverlayRow(e, id, source, servers, seen, out)
	}
}

// readOperatorRow reads the operator's overlay of one tool. If it is faulty, the tool is not served: a
// weaker source must not take its place.
func (l *loader) readOperatorRow(e namedPair, id switchboard.ToolID, servers []string, seen map[switchboard.ToolID]value, out map[switchboard.ToolID]switchboard.Overlay) {
	tool := l.newPart("tool "+id.String(), "")
	defer l.collectInto(tool)()
	e.key.sink, e.val.sink = tool.sink, tool.sink
	l.readOverlayRow(e, id, switchboard.FromOverlay, servers, seen, out)
	if tool.sink.faulty() {
		out[id] = switchboard.Overlay{Fault: tool.sink.faults[0].String()}
	}
}

// readOverlayRow reads the overlay of one tool.
func (l *loader) readOverlayRow(e namedPair, id switchboard.ToolID, source switchboard.Source, servers []string, seen map[switchboard.ToolID]value, out map[switchboard.ToolID]switchboard.Overlay) {
	if why := badToolName(e.name); why != "" {
		e.key.fault("%s: %s", quoteShown(e.name), why)
		return
	}
	if first, ok := seen[id]; ok && id.Server != "" {
		e.key.fault("%s is described already, at %s:%d", quoteShown(e.name), first.file, first.line)
		return
	}
	seen[id] = e.key
	out[id] = l.readOverlayTool(e.val.withContext("tool %s: ", quoteShown(e.name)), id, source, servers)
}

// readOverlayTool reads the content of one tool's overlay.
func (l *loader) readOverlayTool(v value, id switchboard.ToolID, source switchboard.Source, servers []string) switchboard.Overlay {
	var out switchboard.Overlay
	o, ok := v.readObject(overlayToolShape)
	if !ok {
		return out
	}
	facts := o.hasKey("equivalents") || o.hasKey("redact") || slices.ContainsFunc(contractFacts, o.hasKey)
	if o.hasKey("replace") || !facts {
		o.require("capabilities", "say what the tool can do, such as [{verb: read, resource: fs}]")
	}
	if v, ok := o.lookup("capabilities"); ok {
		if v.kind == listKind && len(v.items) == 0 {
			v.fault("the list is empty; name a capability, or remove the tool")
		}
		for _, item := range v.readList(maxItems) {
			out.Capabilities = append(out.Capabilities, l.readCapability(item, source))
		}
	}
	if v, ok := o.lookup("replace"); ok {
		if source == switchboard.FromTenantOverlay {
			v.fault("only the operator's overlays may replace what others say; remove it")
		}
		out.Replace = v.readBool()
	}
	out.Contract = contractOf(o, source)
	if source == switchboard.FromTenantOverlay {
		l.checkShorter(v, id, out.Contract.Timeout)
	}
	if v, ok := o.lookup("equivalents"); ok {
		out.Equivalents = l.readEquivalents(v, id, servers)
	}
	if v, ok := o.lookup("redact"); ok {
		out.Redact, out.RedactAt = v.readDetectors(source), fmt.Sprintf("%s:%d:%d", v.file, v.line, v.col)
	}
	readonly := func(c switchboard.Capability) bool { return c.Carries(switchboard.ReadOnly) }
	if len(out.Capabilities) > 0 && !slices.ContainsFunc(out.Capabilities, func(c switchboard.Capability) bool { return !readonly(c) }) {
		o.faultContradiction("stateful", out.Contract.Stateful.Holds, "its capabilities are readonly")
	}
	return out
}

// readDetectors reads the detectors that redact the results of a tool. It warns if they do not suffice
// for pii_safe.
func (v value) readDetectors(source switchboard.Source) (found []switchboard.Detector) {
	if source == switchboard.FromTenantOverlay {
		v.fault("only the operator's overlays may redact, since the tool is then trusted to be pii_safe; remove it, or oblige calls to redact in a policy")
		return nil
	}
	known := make([]string, len(switchboard.Detectors))
	for i, d := range switchboard.Detectors {
		known[i] = string(d)
	}
	if v.kind == listKind && len(v.items) == 0 {
		v.fault("the list is empty; name detectors, or remove the key; %s", listKnown("detectors", known))
	}
	for _, t := range v.readTexts() {
		if name, ok := t.oneOf("detector", known...); ok {
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

// checkShorter reports a fault if a tenant's timeout of a tool is longer than the operator's.
func (l *loader) checkShorter(v value, id switchboard.ToolID, timeout time.Duration) {
	if most := l.timeoutLimit(id); most > 0 && timeout > most {
		v.fault("a timeout of %v is longer than the operator's, %v; a tenant may only shorten it", timeout, most)
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
func (l *loader) readEquivalents(v value, from switchboard.ToolID, servers []string) (out []switchboard.Declared) {
	seen := map[switchboard.ToolID]bool{}
	for _, item := range v.readList(maxItems) {
		o, ok := item.readObject(declaredShape)
		if !ok {
			continue
		}
		d := switchboard.Declared{Where: fmt.Sprintf("%s:%d:%d", item.file, item.line, item.col)}
		if v, ok := o.require("tool", "name the other tool, as server/tool"); ok {
			d.Where = fmt.Sprintf("%s:%d:%d", v.file, v.line, v.col)
			d.Tool = l.readEquivalentTool(v, from, servers)
			if seen[d.Tool] && d.Tool != (switchboard.ToolID{}) {
				v.fault("%s stands here twice", v.shownValue())
			}
			seen[d.Tool] = true
		}
		if v, ok := o.lookup("map"); ok {
			d.Map = map[string]string{}
			taken := map[string]string{}
			for _, e := range v.readEntries(maxItems, false) {
				to, ok := e.val.readText()
				if other := taken[to]; ok && other != "" {
					e.val.fault("%s and %s become the same argument, %s", quoteShown(other), quoteShown(e.name), quoteShown(to))
				}
				d.Map[e.name], taken[to] = to, e.name
			}
		}
		if v, ok := o.lookup("constants"); ok {
			d.Constants = v.readArguments()
		}
		if v, ok := o.lookup("defaults"); ok {
			d.Defaults = v.readArguments()
			for _, e := range v.readEntries(maxItems, false) {
				if _, ok := d.Constants[e.name]; ok {
					e.key.fault("%s is among the constants, which are sent always; remove it from one of the two", quoteShown(e.name))
				}
			}
		}
		if v, ok := o.lookup("drop"); ok {
			for _, t := range v.readTexts() {
				if _, ok := d.Map[t.s]; ok {
					t.fault("%s is in the map; an argument is sent or dropped, not both", t.shownValue())
				}
				d.Drop = append(d.Drop, t.s)
			}
		}
		out = append(out, d)
	}
	return out
}

// readEquivalentTool reads the id of an equivalent tool.
func (l *loader) readEquivalentTool(v value, from switchboard.ToolID, servers []string) switchboard.ToolID {
	s, ok := v.readText()
	if !ok {
		return switchboard.ToolID{}
	}
	id, err := switchboard.ParseToolID(s)
	switch {
	case err != nil:
		v.fault("%s: want the form server/tool, such as google/web_search", v.shownValue())
	case badToolName(id.Name) != "":
		v.fault("%s: %s", v.shownValue(), badToolName(id.Name))
	case !l.checkServer(v, string(id.Server), servers):
	case id.Server == from.Server:
		v.fault("%s is of the same server; calls move to another one", v.shownValue())
	}
	return id
}

// readArguments reads the values of arguments as JSON, by name.
func (v value) readArguments() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, e := range v.readEntries(maxItems, false) {
		out[e.name] = e.val.appendJSON(nil, 1)
	}
	return out
}

// contractOf reads the facts of a contract. A tenant may only restrict a tool further.
func contractOf(o fixedMap, source switchboard.Source) (c switchboard.Contract) {
	operator := source == switchboard.FromOverlay
	fact := func(v value, holds, freer bool) switchboard.Fact {
		if freer && !operator {
			v.fault("%s makes the tool more free, which only the operator's overlays may; remove it", v.shownValue())
		}
		return switchboard.Fact{Holds: holds, Source: source, Trusted: operator}
	}
	if v, ok := o.lookup("stateful"); ok {
		holds := v.readBool()
		c.Stateful = fact(v, holds, !holds)
	}
	if v, ok := o.lookup("deterministic"); ok {
		holds := v.readBool()
		c.Deterministic = fact(v, holds, holds)
	}
	if v, ok := o.lookup("idempotency"); ok {
		s, _ := v.oneOf("answer", "natural", "none")
		c.Idempotent = fact(v, s == "natural", s == "natural")
	}
	if v, ok := o.lookup("timeout"); ok {
		c.Timeout, _ = v.readDuration(minTimeout, maxTimeout)
	}
	o.faultContradiction("stateful", c.Stateful.Holds && c.Idempotent.Holds, "it is of natural idempotency, so that a repeat is harmless")
	return c
}

// faultContradiction reports a fault at the key if other keys rule out its value.
func (o fixedMap) faultContradiction(key string, found bool, what string) {
	if v, ok := o.lookup(key); ok && found {
		v.ctx = o.ctx
		v.fault("the tool is said to be %s, and also that %s; only one can be true", key, what)
	}
}

func (l *loader) readCapability(v value, source switchboard.Source) switchboard.Capability {
	c := switchboard.Capability{Source: source}
	o, ok := v.readObject(capabilityShape)
	if !ok {
		return c
	}
	if v, ok := o.require("verb", "a capability is a verb and a resource"); ok {
		c.Verb = v.readVerb()
	}
	if v, ok := o.require("resource", "a capability is a verb and a resource"); ok {
		c.Resource = l.readResource(v)
	}
	if v, ok := o.lookup("constraints"); ok {
		c.Constraints = l.readConstraints(v)
	}
	return c
}

// checkServer reports whether s is one of the servers. If it is not, that is a fault.
func (l *loader) checkServer(v value, s string, servers []string) bool {
	if !l.readable || slices.Contains(servers, s) {
		return true
	}
	v.fault("%s is no server here%s", quoteShown(s), suggestion(s, "servers", servers))
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
