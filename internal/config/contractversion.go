package config

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/shape"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of one version of a capability. With them, reading a file takes at most some 30 ms of a processor, whatever it holds.
const (
	maxVersionBytes   = 128 << 10
	maxVersionParts   = 6_000    // commas, colons and lines
	maxContractSchema = 64 << 10 // of one schema, as JSON
	maxContractTools  = 64
	maxFreshness      = 365 * 24 // hours
)

// contractToolForm is the form of the name of a contract's tool.
const contractToolForm = `^[A-Za-z0-9_-]{1,64}$`

// A regexp that counts takes memory for each count, so these are compiled at their first use.
var (
	permissionPattern   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9_-]{1,64}(:[a-z0-9_-]{1,64})*$`) })
	contractToolPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(contractToolForm) })
)

// versionReader is the state of reading one version of a capability.
type versionReader struct {
	*registryReader
	version *capability.ContractVersion
	row     document.FixedMap
	tools   []*contractTool

	// input and output are the keys beside required_tools. They are of the one tool.
	input, output document.Value
}

// A contractTool is one of required_tools.
type contractTool struct {
	name, description string
	at                document.Value // the name
	input, output     document.Value // the zero Value is absent
	hints             capability.Hints
}

// readVersionFile reads one version. It counts as known even if its other keys have faults.
func (r *registryReader) readVersionFile(name string) {
	before := r.sink
	r.sink = &document.Sink{}
	defer func() {
		before.AddAll(r.sink)
		r.sink = before
	}()
	data, err := r.readFile(name, maxVersionBytes)
	if err != nil {
		r.fault(name, "this cannot be read: %s", document.ErrorText(err))
		r.versionsUnknown = true
		return
	}
	if n := bytes.Count(data, []byte(",")) + bytes.Count(data, []byte(":")) + bytes.Count(data, []byte("\n")); n > maxVersionParts {
		r.fault(name, "the file has %d commas, colons and lines; at most %d are read: a contract that large is several", n, maxVersionParts)
		r.versionsUnknown = true
		return
	}
	doc, ok := document.ReadYAML(r.displayPath(name), data, r.sink)
	q := &versionReader{registryReader: r, version: &capability.ContractVersion{}}
	if ok {
		q.row, ok = doc.Open(q.keys())
	}
	if !ok {
		r.versionsUnknown = true
		return
	}
	q.row.Read()
	q.finish(doc)
}

// finish checks what concerns several keys, and adds the version to the registry.
func (r *versionReader) finish(doc document.Value) {
	v := r.version
	if v.ID == "" || v.Number == nil {
		r.versionsUnknown = true
		return
	}
	at, _ := r.row.Lookup("id")
	at.Context = ""
	v.Position = fmt.Sprintf("%s:%d:%d", at.File, at.Line, at.Column)
	if first, ok := r.places[v.Name()]; ok {
		at.Fault("%s is described already, at %s:%d; give this one another version, or remove it", v.Name(), first.File, first.Line)
		return
	}
	r.places[v.Name()] = at
	r.finishFacts()
	r.finishTools()
	if !r.sink.Faulty() {
		doc.Pairs = slices.DeleteFunc(slices.Clone(doc.Pairs), func(p document.NodePair) bool { return p.Key.Text == "status" })
		text := doc.JSON()
		if r.sink.Faulty() {
			return
		}
		var err error
		if v.Digest, err = capability.ContentDigest(text); err != nil {
			at.Fault("%s has no digest: %v", v.Name(), err)
		}
	}
	r.versions = append(r.versions, v)
}

// keys are the keys of a version.
func (r *versionReader) keys() *document.Keys {
	v := r.version
	f := &v.Facts
	boolean := func(to **bool) document.Type {
		return document.Custom("`true` or `false`", document.Schema{"type": "boolean"}, func(v document.Value) { is := v.ReadBool(); *to = &is })
	}
	return &document.Keys{
		Rows: []document.Row{
			{Key: "id", Type: document.Text("an id", r.readID), Required: "name the capability, such as io.fs.read", Doc: "The id of the capability: words parted by dots."},
			{Key: "version", Type: document.Custom("a version such as `1.2.0`", document.Schema{"type": "string", "pattern": `^[0-9]+\.[0-9]+\.[0-9]+$`}, r.readNumber), Required: "write three numbers, such as 1.0.0", Doc: "The semantic version. A new major version requires that its predecessors are deprecated."},
			{Key: "description", Type: document.Text("a text", func(_ document.Value, s string) { v.Description = s }), Doc: "What the capability is for."},
			{Key: "status", Type: document.OneOf("status value", func(s string) { v.Status = capability.Status(s) }, textsOf(capability.Statuses)...), Required: "say where the version is in its life, such as active", Doc: "The step in the life of the version. Only an `active` one is bound, or a `deprecated` one where no active one fits. The digest of the version leaves this key out."},
			{Key: "verb", Type: verbType(&v.Verb), Required: "a capability is a verb and a resource", Doc: "The verb."},
			{Key: "resource", Type: r.resourceType(&v.Resource), Required: "a capability is a verb and a resource", Doc: "The resource."},
			{Key: "constraints", Type: r.constraintsType(&v.Constraints), Doc: "The constraints that it carries."},
			{Key: "required_tools", Type: document.Custom("a list of tools, or a map from tool to its description and schemas", document.Schema{"oneOf": []document.Schema{
				{"type": "array", "items": document.Schema{"type": "string", "pattern": contractToolForm}, "uniqueItems": true, "maxItems": maxContractTools},
				{"type": "object", "propertyNames": document.Schema{"pattern": contractToolForm}, "additionalProperties": document.KeysSchema((&contractTool{}).keys())},
			}}, r.readTools), Doc: "The tools of the contract, as clients see them: `TOOL: {description, input_schema, output_schema, annotations}`, each optional. A server that lacks one is no provider. Without any, the capability is only a description."},
			{Key: "input_schema", Type: schemaType(&r.input), Doc: "The JSON Schema of the arguments of the only tool. Calls whose arguments do not fit are refused."},
			{Key: "output_schema", Type: schemaType(&r.output), Doc: "The JSON Schema of the structured results of the only tool. Results that do not fit are not passed on."},
			{Key: "required_permissions", Type: document.Texts("a list of permissions", func(texts []document.TextValue) { v.Permissions = readPermissions(texts) }), Doc: "Permissions such as `fs:read`. The capability exists only in tenants to which the operator gives all of them."},
			{Key: "required_models", Type: document.Texts("a list of models", func(texts []document.TextValue) { v.Models = sortedTexts(texts) }), Doc: "The capability exists only in tenants in which one of these models is in use."},
			{Key: "requires", Type: document.Map(r.requiresKeys, nil), Doc: "What must be well so that the capability can be used."},
			{Key: "side_effects", Type: r.sideEffectsType(&f.SideEffects), Doc: "What its calls do: `" + strings.Join(capability.SideEffects, "`, `") + "`, and what taxonomy.yaml adds."},
			{Key: "risk_level", Type: document.OneOf("risk_level value", func(s string) { f.RiskLevel = s }, capability.RiskLevels...), Doc: "How much a mistake can harm."},
			{Key: "cost_class", Type: document.OneOf("cost_class value", func(s string) { f.CostClass = switchboard.CostClass(s) }, textsOf(switchboard.CostClasses)...), Doc: "How its calls are paid for. What is not `free` needs a boundary or a budget over it."},
			{Key: "cost_per_call", Type: microsType(new(switchboard.Micros)).With(func(v document.Value) {
				if m, ok := readMicros(v); ok {
					f.Price = &switchboard.Price{Call: m}
				}
			}), Doc: "What each call costs."},
			{Key: "budget", Type: document.Map(func() *document.Keys {
				return (&budgetReader{loader: &loader{cfg: newConfig()}, budget: &switchboard.Budget{}}).ownKeys()
			}, nil).With(r.readBudget), Doc: "A budget of this capability alone, for each tenant."},
			{Key: "approval_required", Type: document.Custom("`true`, `false` or a list of who is asked", document.Schema{"type": []string{"boolean", "array"}, "items": document.Schema{"type": "string"}}, r.readApproval), Doc: "Each call waits for a person: one of those in the list, or any who may approve."},
			{Key: "deterministic", Type: boolean(&f.Deterministic), Doc: "`true`: equal arguments give equal results, so the cache may return a result again."},
			{Key: "stateful", Type: boolean(&f.Stateful), Doc: "`true`: a call changes durable state, and Switchboard never repeats it if it may have reached the server."},
			{Key: "idempotency", Type: document.OneOf("answer", func(s string) { is := s == "natural"; f.Idempotent = &is }, "natural", "none"), Doc: "`natural`: a repeat with the same arguments is harmless. `none`: it is not, even if the call only reads."},
			{Key: "freshness_budget_hours", Type: document.Integer(1, maxFreshness, new(int)).With(func(v document.Value) {
				f.FreshFor = time.Duration(v.ReadInteger(1, maxFreshness)) * time.Hour
			}), Doc: "How old the result of a probe may be. The time of the atom counts if it is shorter."},
		},
		Later: []string{"group", "obligations"},
		Hints: map[string]string{
			"name": `write "id"`, "tools": `write "required_tools"`, "permissions": `write "required_permissions"`, "models": `write "required_models"`,
			"provides": "the overlay of a server says it", "price": `write "cost_per_call"`, "capabilities": "write verb, resource and constraints", "capability": `write "id"`,
			"resources": `write requires: {resources: […]}`, "atoms": `write requires: {resources: […]}`,
		},
	}
}

func (r *versionReader) readID(v document.Value, s string) {
	if !capability.IsID(s) {
		v.Fault("%s: want words of small letters, digits and _ parted by dots, such as io.fs.read, at most %d bytes", v.Shown(), capability.MaxIDBytes)
		return
	}
	r.version.ID = s
}

func (r *versionReader) readNumber(v document.Value) {
	n, err := capability.ParseNumber(v.Text)
	if v.Kind == document.KindList || v.Kind == document.KindMap || err != nil {
		v.Fault("%s is no version; write three numbers, such as 1.2.0", v.Shown())
		return
	}
	r.version.Number = n
}

// requiresKeys are the keys of "requires".
func (r *versionReader) requiresKeys() *document.Keys {
	v := r.version
	return &document.Keys{
		Rows: []document.Row{
			{Key: "resources", Type: document.Texts("a list of atoms", func(texts []document.TextValue) {
				for _, t := range texts {
					v.Atoms = append(v.Atoms, r.checkAtom(t.Value, t.String))
				}
				slices.Sort(v.Atoms)
			}), Doc: "Atoms of `atoms.yaml`: accounts, keys, channels, servers."},
			{Key: "capabilities", Type: document.Texts("a list of capabilities", r.readRequired), Doc: "Other capabilities, such as `io.fs.read@^1`. What they require counts too."},
		},
		Hints: map[string]string{"atoms": `write "resources"`},
	}
}

func (r *versionReader) readRequired(texts []document.TextValue) {
	for _, t := range texts {
		ref, err := capability.ParseRef(t.String)
		if err != nil {
			t.Fault("%v", err)
			continue
		}
		r.refs = append(r.refs, placedRef{t.Value, ref, r.version})
		r.version.Capabilities = append(r.version.Capabilities, ref)
	}
	slices.SortFunc(r.version.Capabilities, func(a, b capability.Ref) int { return strings.Compare(a.String(), b.String()) })
}

// readPermissions reads a list of permissions and returns it sorted.
func readPermissions(texts []document.TextValue) []string {
	for _, t := range texts {
		if !permissionPattern().MatchString(t.String) || len(t.String) > 128 {
			t.Fault("%s is no permission; write words of small letters, digits, _ and - parted by colons, such as fs:read", t.Shown())
		}
	}
	return sortedTexts(texts)
}

func (r *versionReader) readApproval(v document.Value) {
	f := &r.version.Facts
	if v.Kind != document.KindList {
		f.ApprovalAsked = v.ReadBool()
		return
	}
	f.ApprovalAsked, f.Approval = true, readWho(v)
}

// readWho reads a list of people who are asked.
func readWho(v document.Value) []string {
	if v.Kind == document.KindList && len(v.Items) == 0 {
		v.Fault("the list is empty; say who is asked, such as [finance], or remove the key")
	}
	var out []string
	for _, t := range v.ReadTexts() {
		if isTerm(t.Value, t.String) {
			out = append(out, t.String)
		}
	}
	slices.Sort(out)
	return out
}

func (r *versionReader) readBudget(v document.Value) {
	q := &budgetReader{loader: r.loader, owner: switchboard.BudgetOwner("capability/" + r.version.ID)}
	q.budget = &switchboard.Budget{ID: ownBudget, Owner: q.owner, Position: fmt.Sprintf("%s:%d:%d", v.File, v.Line, v.Column)}
	if m, ok := v.Open(q.ownKeys()); ok {
		m.Read()
		r.version.Facts.Budget = q.budget
	}
}

// finishFacts reports statements that contradict one another.
func (r *versionReader) finishFacts() {
	v, f := r.version, &r.version.Facts
	says := func(b *bool) bool { return b != nil && *b }
	readonly := slices.Contains(v.Constraints, switchboard.ReadOnly)
	for _, c := range []struct {
		key   string
		found bool
		what  string
	}{
		{"stateful", says(f.Stateful) && says(f.Idempotent), "is stateful, and of natural idempotency, so that a repeat is harmless"},
		{"stateful", says(f.Stateful) && readonly, "is stateful, and readonly"},
		{"stateful", says(f.Stateful) && says(f.Deterministic), "is stateful, and deterministic, so that the cache answers"},
		{"side_effects", readonly && slices.ContainsFunc(f.SideEffects, func(s string) bool { return s == "deletes" || s == "writes-local" || s == "writes-external" }), "writes or deletes, and is readonly"},
		{"cost_class", f.CostClass == switchboard.CostFree && (f.Price != nil && !f.Price.Free() || slices.Contains(f.SideEffects, capability.CostsMoney)), "is free, and costs money"},
	} {
		if at, ok := r.row.Lookup(c.key); ok && c.found {
			at.Context = ""
			at.Fault("%s says that it %s; only one can be true", v.Name(), c.what)
		}
	}
}

// schemaType is the type of a JSON Schema.
func schemaType(to *document.Value) document.Type {
	return document.Custom("a JSON Schema", document.Schema{"type": "object"}, func(v document.Value) { *to = v })
}

// keys are the keys of a tool of a contract.
func (t *contractTool) keys() *document.Keys {
	h := &t.hints
	hint := func(to **bool) document.Type {
		return document.Custom("`true` or `false`", document.Schema{"type": "boolean"}, func(v document.Value) { is := v.ReadBool(); *to = &is })
	}
	return &document.Keys{
		Rows: []document.Row{
			{Key: "description", Type: document.Text("a text", func(_ document.Value, s string) { t.description = s }), Doc: "What models read about the tool."},
			{Key: "input_schema", Type: schemaType(&t.input), Doc: "The JSON Schema of its arguments; any object if absent."},
			{Key: "output_schema", Type: schemaType(&t.output), Doc: "The JSON Schema of its structured results; none is promised if absent."},
			{Key: "annotations", Type: document.Map(func() *document.Keys {
				return &document.Keys{Rows: []document.Row{
					{Key: "readOnlyHint", Type: hint(&h.ReadOnly), Doc: "It changes nothing."},
					{Key: "destructiveHint", Type: hint(&h.Destructive), Doc: "It can destroy something."},
					{Key: "idempotentHint", Type: hint(&h.Idempotent), Doc: "A repeat is harmless."},
					{Key: "openWorldHint", Type: hint(&h.OpenWorld), Doc: "It reaches beyond what the server holds."},
				}}
			}, nil), Doc: "Hints for clients. Those that are absent follow from the facts of the capability."},
		},
		Hints: map[string]string{"inputSchema": `write "input_schema"`, "outputSchema": `write "output_schema"`, "title": `write "description"`, "map": "the overlay of a server says it, in provides"},
	}
}

// readTools reads the tools, from a list of names or from a map.
func (r *versionReader) readTools(v document.Value) {
	if v.Kind != document.KindMap {
		for _, t := range v.ReadTexts() {
			r.addTool(&contractTool{name: t.String, at: t.Value})
		}
	} else {
		for _, e := range v.ReadNamed(document.MaxItems, false) {
			t := &contractTool{name: e.Name, at: e.Key}
			if m, ok := e.Value.WithContext("tool %s: ", document.Shown(e.Name)).Open(t.keys()); ok {
				m.Read()
			}
			r.addTool(t)
		}
	}
	if n := max(len(v.Items), len(v.Pairs)); n > maxContractTools {
		v.Fault("%d tools are too many; a contract has at most %d", n, maxContractTools)
	}
}

func (r *versionReader) addTool(t *contractTool) {
	switch {
	case !contractToolPattern().MatchString(t.name):
		t.at.Fault("%s: the name of a contract's tool is at most 64 letters, digits, _ and -, since every client takes such names", document.Shown(t.name))
	case strings.HasPrefix(t.name, ownToolPrefix):
		t.at.Fault("%s: names that begin with %s are Switchboard's own", document.Shown(t.name), ownToolPrefix)
	default:
		r.tools = append(r.tools, t)
	}
}

// finishTools makes the definitions of the tools, and checks them.
func (r *versionReader) finishTools() {
	for _, schema := range []struct {
		key     string
		at      document.Value
		of      func(t *contractTool) *document.Value
		foreign bool
	}{
		{key: "input_schema", at: r.input, of: func(t *contractTool) *document.Value { return &t.input }},
		{key: "output_schema", at: r.output, of: func(t *contractTool) *document.Value { return &t.output }},
	} {
		switch at := schema.at; {
		case at.Sink == nil:
		case len(r.tools) != 1:
			at.Fault("it is not certain which tool this is for; write it into required_tools: {TOOL: {%s: …}}", schema.key)
		case schema.of(r.tools[0]).Sink != nil:
			at.Fault("the tool %s has one too, at line %d; remove one of the two", r.tools[0].name, schema.of(r.tools[0]).Line)
		default:
			*schema.of(r.tools[0]) = at
		}
	}
	for _, t := range r.tools {
		if tool, ok := r.defineTool(t); ok {
			r.version.Tools = append(r.version.Tools, tool)
		}
	}
	slices.SortFunc(r.version.Tools, func(a, b capability.ContractTool) int { return strings.Compare(a.Name, b.Name) })
}

// defineTool makes the definition of a tool. A schema that would cost too much to compile or to apply is a fault.
func (r *versionReader) defineTool(t *contractTool) (capability.ContractTool, bool) {
	input, ok := readSchema(t.input)
	output, too := readSchema(t.output)
	if !ok || !too {
		return capability.ContractTool{}, false
	}
	tool, err := capability.NewTool(t.name, t.description, input, output, r.completeHints(t))
	if err == nil {
		tool.Definition, _ = shape.Repair(switchboard.Tools, tool.Definition) // CheckDefinition names what cannot be repaired
		err = contract.CheckDefinition(tool.Definition)
	}
	if err == nil {
		return tool, true
	}
	at, text := t.at, err.Error()
	at.Context = ""
	for name, schema := range map[string]document.Value{"inputSchema": t.input, "outputSchema": t.output} {
		if strings.HasPrefix(text, name) && schema.Sink != nil {
			at = schema
			at.Context = ""
		}
	}
	at.Fault("tool %s: %s", document.Shown(t.name), text)
	return tool, false
}

// readSchema returns a JSON Schema as JSON, or nil if it is absent.
func readSchema(v document.Value) ([]byte, bool) {
	if v.Sink == nil {
		return nil, true
	}
	if v.Kind != document.KindMap {
		v.Fault("want a JSON Schema, which is a map, not %v", v.Kind)
		return nil, false
	}
	before := len(v.Sink.Faults)
	text := v.JSON()
	if len(text) > maxContractSchema {
		v.Fault("the schema has %d bytes as JSON; at most %d are read", len(text), maxContractSchema)
	}
	return text, len(v.Sink.Faults) == before
}

// completeHints returns the hints of a tool, with those that follow from the facts.
func (r *versionReader) completeHints(t *contractTool) capability.Hints {
	h, f := t.hints, &r.version.Facts
	yes := true
	readonly := slices.Contains(r.version.Constraints, switchboard.ReadOnly)
	if h.ReadOnly != nil && *h.ReadOnly && !readonly {
		at := t.at
		at.Context = ""
		at.Fault("tool %s: its hint says that it only reads, and the capability does not carry the constraint readonly; add it, or remove the hint", document.Shown(t.name))
	}
	if h.ReadOnly == nil && readonly {
		h.ReadOnly = &yes
	}
	if h.Destructive == nil && slices.Contains(f.SideEffects, "deletes") {
		h.Destructive = &yes
	}
	if h.Idempotent == nil {
		h.Idempotent = f.Idempotent
	}
	return h
}
