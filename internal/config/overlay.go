package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// contractFacts are the keys of an overlay that describe the calls of a tool. laterFacts are keys that
// are designed but not built yet.
var (
	contractFacts = []string{"stateful", "deterministic", "idempotency", "timeout", "price", "cost_per_call", "cost_class", "budget", "side_effects", "risk_level", "approval_required", "flow", "examples"}
	laterFacts    = []string{
		"freshness_budget_hours", "requires", "required_tools", "required_permissions", "required_models",
		"input_schema", "output_schema", "group", "obligations",
	}
)

// overlaysFolder is the name of the folders with overlays. SuggestedSuffix ends the names of files in them that hold
// suggestions of "switchboard annotate", which are not loaded.
const (
	overlaysFolder  = "overlays"
	SuggestedSuffix = ".suggested.yaml"
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
	for _, name := range l.listDocuments(overlaysFolder) {
		l.readOperatorOverlay(name)
	}
}

// readOperatorOverlay reads one file. If the file is faulty, its last good copy applies. If there is
// none, its faults refuse the whole configuration, because the restrictions in the file are unknown.
func (l *loader) readOperatorOverlay(name string) {
	file := l.newPart(name, "")
	defer l.collectInto(file)()
	rows, tools := overlayReading{tools: map[switchboard.ToolID]switchboard.Overlay{}}, len(l.parts)
	if doc, ok := l.readDocument(name); ok {
		r := overlayReader{loader: l, source: switchboard.FromOverlay, known: l.serverIDs, seen: l.overlaySeen, out: rows.tools}
		r.readFile(doc)
		rows.provides = r.provides
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
		file.KeepsLastGood, rows = true, last
	}
	l.cfg.good.overlays[name] = rows
	for _, p := range rows.provides {
		if l.servers[string(p.Server)] != nil {
			l.cfg.Providers = append(l.cfg.Providers, p)
		}
	}
	for id, row := range rows.tools {
		switch _, described := l.cfg.Overlays[id]; {
		case l.servers[string(id.Server)] == nil: // the copy is older than the removal of that server
		case file.KeepsLastGood && described: // the row has moved to a file that could be read
		default:
			l.cfg.Overlays[id] = row
		}
	}
}

// overlayReader is the state of reading one file of overlays.
type overlayReader struct {
	*loader
	source switchboard.Source
	known  []string // servers
	server switchboard.ServerID
	seen   map[switchboard.ToolID]document.Value // where each tool was described first
	out    map[switchboard.ToolID]switchboard.Overlay

	provides []capability.ProviderRow
}

// keys are the keys of a file of overlays.
func (r *overlayReader) keys() *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "server", Type: document.Text("a server", func(v document.Value, s string) {
				if r.checkServer(v, s, r.known) {
					r.server = switchboard.ServerID(s)
				}
			}), Required: "name the server that the tools belong to", Doc: "The server that the tools belong to."},
			{Key: "tools", Type: document.Named("a map from tool to overlay", "TOOL", func() *document.Keys {
				return (&toolReader{overlayReader: r}).keys()
			}, r.readTools), Doc: "What is said about each tool."},
			{Key: "provides", Type: r.providesType(), Doc: "The named capabilities that the server provides. Only in the operator's overlays."},
		},
		Later: append([]string{"groups", "maps"}, laterFacts...),
	}
}

// readFile reads the overlays of one server's tools. In the operator's files a fault in a tool affects that tool only.
func (r *overlayReader) readFile(doc document.Value) {
	if m, ok := doc.Open(r.keys()); ok {
		if !m.HasKey("provides") {
			m.Require("tools", "name at least one tool")
		}
		m.Read()
	}
}

func (r *overlayReader) readTools(v document.Value) {
	for _, e := range v.ReadNamed(document.MaxItems*10, true) {
		id := switchboard.ToolID{Server: r.server, Name: e.Name}
		if r.source == switchboard.FromOverlay && r.server != "" {
			r.readOperatorTool(e, id)
			continue
		}
		r.readTool(e, id)
	}
}

// readOperatorTool reads the operator's overlay of one tool. If it is faulty, the tool is not served: a
// weaker source must not take its place.
func (r *overlayReader) readOperatorTool(e document.NamedValue, id switchboard.ToolID) {
	tool := r.newPart("tool "+id.String(), "")
	defer r.collectInto(tool)()
	e.Key.Sink, e.Value.Sink = tool.sink, tool.sink
	r.readTool(e, id)
	if tool.sink.Faulty() {
		r.out[id] = switchboard.Overlay{Fault: tool.sink.Faults[0].String()}
	}
}

// readTool reads the overlay of one tool.
func (r *overlayReader) readTool(e document.NamedValue, id switchboard.ToolID) {
	if why := badToolName(e.Name); why != "" {
		e.Key.Fault("%s: %s", document.Shown(e.Name), why)
		return
	}
	if first, ok := r.seen[id]; ok && id.Server != "" {
		e.Key.Fault("%s is described already, at %s:%d", document.Shown(e.Name), first.File, first.Line)
		return
	}
	r.seen[id] = e.Key
	t := &toolReader{overlayReader: r, id: id}
	t.read(e.Value.WithContext("tool %s: ", document.Shown(e.Name)))
	r.out[id] = t.overlay
}

// toolReader is the state of reading the overlay of one tool.
type toolReader struct {
	*overlayReader
	id      switchboard.ToolID
	overlay switchboard.Overlay
}

// keys are the keys of a tool's overlay.
func (t *toolReader) keys() *document.Keys {
	o := &t.overlay
	c := &o.Contract
	return &document.Keys{
		Rows: []document.Row{
			{Key: "capabilities", Type: document.MapList("a list of maps", func() *document.Keys { return t.capabilityKeys(&switchboard.Capability{}) }, t.readCapabilities), Doc: "What the tool can do."},
			{Key: "replace", Type: document.Custom("`true` or `false`", document.Schema{"type": "boolean"}, func(v document.Value) {
				if t.source == switchboard.FromTenantOverlay {
					v.Fault("only the operator's overlays may replace what others say; remove it")
				}
				o.Replace = v.ReadBool()
			}), Doc: "`true` drops all statements of weaker sources about the tool. Without it, those that make the tool less free stay. Only in the operator's overlays."},
			{Key: "for", Type: document.Custom("a digest, `sha256:` and 64 hexadecimal digits", document.Schema{"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}, t.readFor), Doc: "The digest of the definition that the row was given to; `switchboard annotate` writes it. If the definition in use has another meaning, the row [only restricts](labels.md#when-labels-end). Without it, the row counts for every definition. Only in the operator's overlays."},
			{Key: "equivalents", Type: document.MapList("a list of maps", func() *document.Keys { return (&equivalentReader{toolReader: t}).keys() }, t.readEquivalents), Doc: "Tools of other servers to which its calls may move."},
			{Key: "redact", Type: document.Texts("a list of detectors", nil).With(func(v document.Value) {
				o.Redact, o.RedactAt = readDetectors(v, t.source), fmt.Sprintf("%s:%d:%d", v.File, v.Line, v.Column)
			}), Doc: "Detectors: Switchboard removes their findings from the tool's results. Only in the operator's overlays."},
			{Key: "stateful", Type: document.Custom("`true` or `false`", document.Schema{"type": "boolean"}, func(v document.Value) {
				holds := v.ReadBool()
				c.Stateful = t.fact(v, holds, !holds)
			}), Doc: "`true`: a call changes durable state, and Switchboard never repeats it if it may have reached the server."},
			{Key: "deterministic", Type: document.Custom("`true` or `false`", document.Schema{"type": "boolean"}, func(v document.Value) {
				holds := v.ReadBool()
				c.Deterministic = t.fact(v, holds, holds)
			}), Doc: "`true`: equal arguments give equal results, so the cache may return a result again."},
			{Key: "idempotency", Type: document.OneOf("answer", nil, "natural", "none").With(func(v document.Value) {
				s, _ := v.OneOf("answer", "natural", "none")
				c.Idempotent = t.fact(v, s == "natural", s == "natural")
			}), Doc: "`natural`: a repeat with the same arguments is harmless. `none`: it is not, even if the call only reads."},
			{Key: "timeout", Type: document.Duration(MinTimeout, MaxTimeout, &c.Timeout), Doc: "The longest time without progress of a call of this tool, in place of the server's timeout."},
			{Key: "price", Type: document.Map(func() *document.Keys { return t.priceKeys(&switchboard.Price{}) }, nil).With(t.readPrice), Doc: "What calls of the tool cost; nothing if absent. A tenant may only raise it."},
			{Key: "cost_per_call", Type: microsType(new(switchboard.Micros)).With(func(v document.Value) {
				if m, ok := readMicros(v); ok && o.Price == nil {
					o.Price = &switchboard.Price{Call: m}
					t.checkRaised(v)
				}
			}), Doc: "The same as `price: {call: …}`."},
			{Key: "cost_class", Type: document.OneOf("cost_class value", nil, textsOf(switchboard.CostClasses)...).With(t.readCostClass), Doc: "How its calls are paid for, for budgets and policies. A tenant may only state a class that costs more."},
			{Key: "side_effects", Type: t.sideEffectsType(&c.SideEffects), Doc: "What its calls do, for boundaries and policies. A tenant's are added to the operator's."},
			{Key: "risk_level", Type: document.OneOf("risk_level value", nil, capability.RiskLevels...).With(t.readRiskLevel), Doc: "How much a mistake can harm, for boundaries and policies. A tenant may only state a higher level."},
			{Key: "flow", Type: document.Texts("a list of `brings`, `sees` and `carries`", nil).With(t.readFlow), Doc: "What its calls do with data, in place of what follows from its capabilities: `brings` text that strangers wrote, `sees` private data, `carries` data out. `[]`: nothing of these. A tenant's are added."},
			{Key: "examples", Type: t.examplesType(), Doc: "Arguments of calls that succeed, for [verification](verify.md). Only in the operator's overlays."},
			{Key: "approval_required", Type: document.Custom("`true`, `false` or a list of who is asked", document.Schema{"type": []string{"boolean", "array"}, "items": document.Schema{"type": "string"}}, t.readApprovalRequired), Doc: "Each call waits for a person: one of those in the list, or any who may approve."},
			{Key: "budget", Type: document.Map(func() *document.Keys {
				return (&budgetReader{loader: &loader{cfg: newConfig()}, budget: &switchboard.Budget{}}).ownKeys()
			}, nil).With(t.readOwnBudget), Doc: "A budget of this tool alone, for each tenant. Only in the operator's overlays."},
		},
		Later: laterFacts,
		Hints: map[string]string{
			"x-summit-capabilities": `write "capabilities"`, "constraints": "put them into each of the capabilities",
			"map": "it belongs to one of the equivalents", "constants": "they belong to one of the equivalents", "defaults": "they belong to one of the equivalents",
			"equivalent": `write "equivalents", a list`,
		},
	}
}

// read reads the content of the overlay.
func (t *toolReader) read(v document.Value) {
	m, ok := v.Open(t.keys())
	if !ok {
		return
	}
	facts := m.HasKey("equivalents") || m.HasKey("redact") || slices.ContainsFunc(contractFacts, m.HasKey)
	if m.HasKey("replace") || !facts {
		m.Require("capabilities", "say what the tool can do, such as [{verb: read, resource: fs}]")
	}
	m.Read()
	c := &t.overlay.Contract
	t.checkCosts(m)
	faultContradiction(m, "stateful", c.Stateful.Holds && c.Idempotent.Holds, "it is of natural idempotency, so that a repeat is harmless")
	if t.source == switchboard.FromTenantOverlay {
		t.checkShorter(v, t.id, c.Timeout)
	}
	writes := func(c switchboard.Capability) bool { return !c.Carries(switchboard.ReadOnly) }
	if all := t.overlay.Capabilities; len(all) > 0 && !slices.ContainsFunc(all, writes) {
		faultContradiction(m, "stateful", c.Stateful.Holds, "its capabilities are readonly")
	}
}

// fact returns a fact of the tool's contract. A tenant may only restrict a tool further.
func (t *toolReader) fact(v document.Value, holds, freer bool) switchboard.Fact {
	operator := t.source == switchboard.FromOverlay
	if freer && !operator {
		v.Fault("%s makes the tool more free, which only the operator's overlays may; remove it", v.Shown())
	}
	return switchboard.Fact{Holds: holds, Source: t.source, Trusted: operator}
}

// faultContradiction reports a fault at the key if other keys rule out its value.
func faultContradiction(m document.FixedMap, key string, found bool, what string) {
	if v, ok := m.Lookup(key); ok && found {
		v.Context = m.Context
		v.Fault("the tool is said to be %s, and also that %s; only one can be true", key, what)
	}
}

func (t *toolReader) readCapabilities(v document.Value) {
	if v.Kind == document.KindList && len(v.Items) == 0 {
		v.Fault("the list is empty; name a capability, or remove the tool")
	}
	for _, item := range v.ReadList(document.MaxItems) {
		c := switchboard.Capability{Source: t.source}
		if m, ok := item.Open(t.capabilityKeys(&c)); ok {
			m.Read()
		}
		t.overlay.Capabilities = append(t.overlay.Capabilities, c)
	}
}

// capabilityKeys are the keys of a capability.
func (t *toolReader) capabilityKeys(c *switchboard.Capability) *document.Keys {
	const remedy = "a capability is a verb and a resource"
	return &document.Keys{
		Rows: []document.Row{
			{Key: "verb", Type: verbType(&c.Verb), Required: remedy, Doc: "The verb."},
			{Key: "resource", Type: t.resourceType(&c.Resource), Required: remedy, Doc: "The resource."},
			{Key: "constraints", Type: t.constraintsType(&c.Constraints), Doc: "The constraints that it carries."},
		},
		Later: append([]string{"capability"}, laterFacts...),
		Hints: hintBeside(contractFacts),
	}
}

// equivalentReader is the state of reading one equivalent of a tool.
type equivalentReader struct {
	*toolReader
	declared switchboard.DeclaredEquivalent
	seen     map[switchboard.ToolID]bool // the equivalents of the tool
}

// keys are the keys of an equivalent.
func (r *equivalentReader) keys() *document.Keys {
	d := &r.declared
	return &document.Keys{Rows: []document.Row{
		{Key: "tool", Type: document.Custom("a tool of another server", document.Schema{"type": "string"}, func(v document.Value) {
			d.Position = fmt.Sprintf("%s:%d:%d", v.File, v.Line, v.Column)
			d.Tool = r.readEquivalentTool(v, r.id, r.known)
			if r.seen[d.Tool] && d.Tool != (switchboard.ToolID{}) {
				v.Fault("%s stands here twice", v.Shown())
			}
			r.seen[d.Tool] = true
		}), Required: "name the other tool, as server/tool", Doc: "The other tool, as server/tool."},
		{Key: "map", Type: document.Custom("a map from argument to argument", document.Schema{"type": "object", "additionalProperties": document.Schema{"type": "string"}}, r.readMap), Doc: "Arguments that have another name there."},
		{Key: "constants", Type: document.Custom("a map of any shape", document.Schema{"type": "object"}, func(v document.Value) { d.Constants = readArguments(v) }), Doc: "Arguments that are always sent, with these values."},
		{Key: "defaults", Type: document.Custom("a map of any shape", document.Schema{"type": "object"}, r.readDefaults), Doc: "Arguments that are sent with these values if the call has none."},
		{Key: "drop", Type: document.Texts("a list of arguments", r.readDropped), Doc: "Arguments that are not sent."},
	}}
}

func (r *equivalentReader) readMap(v document.Value) {
	r.declared.Map = map[string]string{}
	taken := map[string]string{}
	for _, e := range v.ReadNamed(document.MaxItems, false) {
		to, ok := e.Value.ReadText()
		if other := taken[to]; ok && other != "" {
			e.Value.Fault("%s and %s become the same argument, %s", document.Shown(other), document.Shown(e.Name), document.Shown(to))
		}
		r.declared.Map[e.Name], taken[to] = to, e.Name
	}
}

func (r *equivalentReader) readDefaults(v document.Value) {
	r.declared.Defaults = readArguments(v)
	for _, e := range v.ReadNamed(document.MaxItems, false) {
		if _, ok := r.declared.Constants[e.Name]; ok {
			e.Key.Fault("%s is among the constants, which are sent always; remove it from one of the two", document.Shown(e.Name))
		}
	}
}

func (r *equivalentReader) readDropped(texts []document.TextValue) {
	for _, t := range texts {
		if _, ok := r.declared.Map[t.String]; ok {
			t.Fault("%s is in the map; an argument is sent or dropped, not both", t.Shown())
		}
		r.declared.Drop = append(r.declared.Drop, t.String)
	}
}

// readEquivalents reads the tools that may be called instead of this one. Package contract checks whether
// the arguments fit, once it knows the tools.
func (t *toolReader) readEquivalents(v document.Value) {
	seen := map[switchboard.ToolID]bool{}
	for _, item := range v.ReadList(document.MaxItems) {
		r := &equivalentReader{toolReader: t, seen: seen, declared: switchboard.DeclaredEquivalent{Position: fmt.Sprintf("%s:%d:%d", item.File, item.Line, item.Column)}}
		if m, ok := item.Open(r.keys()); ok {
			m.Read()
			t.overlay.Equivalents = append(t.overlay.Equivalents, r.declared)
		}
	}
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

// readFor reads the digest of the definition that the overlay was given to.
func (t *toolReader) readFor(v document.Value) {
	if t.source == switchboard.FromTenantOverlay {
		v.Fault("only the operator's overlays name the definition that they were given to; remove it")
		return
	}
	s, ok := v.ReadText()
	if !ok {
		return
	}
	if digits, prefixed := strings.CutPrefix(s, "sha256:"); !prefixed || len(digits) != 64 || strings.Trim(digits, "0123456789abcdef") != "" {
		v.Fault("%s is no digest of a definition: want sha256: and 64 hexadecimal digits in small letters, as switchboard annotate writes it", v.Shown())
		return
	}
	t.overlay.For = switchboard.Digest(s)
}

// readRiskLevel reads how much a mistake can harm. A tenant may only state a higher level.
func (t *toolReader) readRiskLevel(v document.Value) {
	s, ok := v.OneOf("risk_level value", capability.RiskLevels...)
	if !ok {
		return
	}
	operator := t.cfg.Overlays[t.id].Contract.RiskLevel
	if t.source == switchboard.FromTenantOverlay && slices.Index(capability.RiskLevels, s) < slices.Index(capability.RiskLevels, operator) {
		v.Fault("%s is less than what the operator says, %q; a tenant may only say that a mistake harms more", v.Shown(), operator)
	}
	t.overlay.Contract.RiskLevel = s
}

// readFlow reads what calls of the tool do with data. A tenant can only add to it.
func (t *toolReader) readFlow(v document.Value) {
	f := switchboard.Flow{Source: t.source}
	for _, text := range v.ReadTexts() {
		name, ok := text.OneOf("flow", switchboard.FlowNames()...)
		if !ok {
			continue
		}
		bit, _ := switchboard.ReadFlowBits([]string{name})
		if f.Bits.Has(bit) {
			text.Fault("%s stands here twice", text.Shown())
		}
		f.Bits |= bit
	}
	if v.Kind == document.KindList && len(v.Items) == 0 && t.source == switchboard.FromTenantOverlay {
		v.Fault("the list is empty, and a tenant can only add to what the tool does with data; remove it, or name some of %s", strings.Join(switchboard.FlowNames(), ", "))
	}
	t.overlay.Contract.Flow = f
}

// readApprovalRequired reads who must approve each call. Those who may approve for a tenant must be among the operator's.
func (t *toolReader) readApprovalRequired(v document.Value) {
	c := &t.overlay.Contract
	switch {
	case v.Kind != document.KindList:
		if v.ReadBool() {
			c.ApprovalRequired = []string{string(switchboard.OfficeApprover)}
		}
	case len(v.Items) == 0:
		v.Fault("the list is empty; say who is asked, such as [finance], or write true, so that any person with the office approver is asked")
	default:
		for _, who := range v.ReadTexts() {
			if isTerm(who.Value, who.String) {
				c.ApprovalRequired = append(c.ApprovalRequired, who.String)
			}
		}
		slices.Sort(c.ApprovalRequired)
	}
	operator := t.cfg.Overlays[t.id].Contract.ApprovalRequired
	if t.source != switchboard.FromTenantOverlay || len(operator) == 0 {
		return
	}
	if both := switchboard.ApproversOfBoth(operator, c.ApprovalRequired); len(c.ApprovalRequired) == 0 || both[0] == "" {
		v.Fault("the operator asks %s; a tenant may only narrow who is asked: name some of them, or remove the key", strings.Join(operator, ", "))
	}
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

// CheckOverlay reports the faults that text has as an operator's overlay. file names it in faults. What other overlays say
// about the same tools is not looked at. The error is Faults.
func (c *Config) CheckOverlay(file string, text []byte) error {
	l := &loader{
		configFolder: &configFolder{sink: &document.Sink{}},
		vocabulary:   &vocabulary{readable: true, servers: map[string]*switchboard.Server{}, taxonomy: c.Taxonomy, sideEffects: c.sideEffects},
		cfg:          newConfig(), overlaySeen: map[switchboard.ToolID]document.Value{},
	}
	for i := range c.Servers {
		id := string(c.Servers[i].ID)
		l.servers[id] = &c.Servers[i]
		l.serverIDs = append(l.serverIDs, id)
	}
	doc, ok := document.ReadYAML(file, text, l.sink)
	if ok {
		r := overlayReader{loader: l, source: switchboard.FromOverlay, known: l.serverIDs, seen: l.overlaySeen, out: map[switchboard.ToolID]switchboard.Overlay{}}
		r.readFile(doc)
	}
	for _, p := range l.parts {
		l.sink.AddAll(p.sink)
	}
	return l.sink.Err(file)
}
