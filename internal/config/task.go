package config

import (
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	hintEachRequirement = "each requirement says it: load: on_demand, group: ID, stub: NAME"
	hintServices        = "the server says them in switchboard.yaml"
)

// maxRequirements limits the requirements of one task.
const maxRequirements = 64

// taskReader is the state of reading one task.
type taskReader struct {
	*tenantFolder
	task    *switchboard.Task
	context string // names the task in faults, once its id is known
	names   taskNames
}

// keys are the keys of a task.
func (r *taskReader) keys() *document.Keys {
	t, task := r.tenantFolder, r.task
	inTask := func(read func(v document.Value)) func(v document.Value) {
		return func(v document.Value) {
			v.Context = r.context + v.Context
			read(v)
		}
	}
	return &document.Keys{
		Rows: []document.Row{
			{Key: "task_id", Type: document.Text("an id", r.readID), Required: "name the task", Doc: "The id of the task."},
			{Key: "mode", Type: modeType(inTask(func(v document.Value) { task.Mode = readMode(v, t.out.Mode) })), Doc: "How much agents may do alone in this task, at most the tenant's mode."},
			{Key: "token_budget", Type: budgetType(inTask(func(v document.Value) {
				task.TokenBudget = readTokenBudget(v, t.out.TokenBudget, "the tenant has")
			})), Doc: "The most tokens of the task's tool list, at most the tenant's, which counts if this is absent."},
			{Key: "result_bytes", Type: resultBytesType(inTask(func(v document.Value) {
				task.ResultBytes = readResultBytes(v, t.out.ResultBytes, "the tenant has")
			})), Doc: "The most bytes of text that a client gets of one result at once, at most the tenant's, which counts if this is absent."},
			{Key: "budgets", Type: budgetsType(inTask(func(v document.Value) {
				task.Budgets = t.readBudgets(v, switchboard.BudgetOwner("task/"+string(task.ID)), t.servers)
			})), Doc: "Budgets of the calls of this task. Those of the tenant and of the operator count besides."},
			{Key: "required_capabilities", Type: document.MapList("a list of maps", func() *document.Keys {
				return (&requirementReader{taskReader: r}).keys()
			}, r.readRequirements), Required: "name at least one, such as {verb: search, resource: internet}", Doc: "What the task needs."},
		},
		Later: []string{"obligations"},
		Hints: map[string]string{
			"id": `write "task_id"`, "task": `write "task_id"`, "capabilities": `write "required_capabilities"`,
			"load": hintEachRequirement, "group": hintEachRequirement, "groups": hintEachRequirement, "stub": hintEachRequirement, "essential": hintEachRequirement, "on_demand": hintEachRequirement,
		},
	}
}

// readTask reads one task of the tenant.
func (t *tenantFolder) readTask(doc document.Value) {
	r := &taskReader{tenantFolder: t, task: &switchboard.Task{}, names: taskNames{exposed: map[string]document.Value{}, groups: map[string]*stubGroup{}}}
	if m, ok := doc.Open(r.keys()); ok {
		m.Read()
	}
}

func (r *taskReader) readID(v document.Value, s string) {
	v.Context = ""
	if err := switchboard.CheckID(s); err != nil {
		v.Fault("%v", err)
	} else if switchboard.TaskID(s) == switchboard.DeclaredTask {
		v.Fault("%q is what a task is called that a client declares itself; give this one another name", s)
	} else if first, ok := r.tasks[s]; ok {
		v.Fault("task %q is described already, at %s:%d", s, first.File, first.Line)
	} else {
		r.tasks[s] = v
		r.task.ID = switchboard.TaskID(s)
		r.out.Tasks[r.task.ID] = r.task
	}
	r.context = "task " + document.Shown(s) + ": "
}

func (r *taskReader) readRequirements(v document.Value) {
	v.Context = r.context
	if v.Kind == document.KindList && len(v.Items) == 0 {
		v.Fault("the list is empty; a task requires something")
	}
	for _, item := range v.ReadList(maxRequirements) {
		q := &requirementReader{taskReader: r}
		var ok bool
		if q.row, ok = item.Open(q.keys()); ok {
			q.read()
		}
		r.task.Requirements = append(r.task.Requirements, q.requirement)
	}
	r.names.assignStubs(r.task.Requirements)
}

// taskNames are the tool and group names that the requirements of one task use.
type taskNames struct {
	exposed map[string]document.Value // by name
	groups  map[string]*stubGroup     // by id
}

// A stubGroup is the stub of a group, as its requirements describe it.
type stubGroup struct {
	stub string         // "" if no requirement names it
	at   document.Value // where the stub is named, else the first requirement
	done bool
}

// assignStubs copies the stub of each group to its requirements.
func (n *taskNames) assignStubs(rs []switchboard.Requirement) {
	for i := range rs {
		id := rs[i].Group
		g := n.groups[id]
		if g == nil {
			continue
		}
		if !g.done {
			g.done = true
			g.settleStub(id, n.exposed)
		}
		rs[i].Stub = g.stub
	}
}

// settleStub adds the stub to the names of the task.
func (g *stubGroup) settleStub(id string, exposed map[string]document.Value) {
	if g.stub == "" {
		g.stub = strings.ReplaceAll(id, "-", "_") + "_helper"
	}
	first, taken := exposed[g.stub]
	switch {
	case strings.HasPrefix(g.stub, ownToolPrefix):
		g.at.Fault("group %q: its stub would be %q, and names that begin with %s are Switchboard's own; name another with stub: NAME", id, g.stub, ownToolPrefix)
	case taken:
		g.at.Fault("group %q: its stub %q is the name of another tool of the task already, at line %d; name another with stub: NAME", id, g.stub, first.Line)
	}
	exposed[g.stub] = g.at
}

// requirementReader is the state of reading one requirement.
type requirementReader struct {
	*taskReader
	row         document.FixedMap
	requirement switchboard.Requirement
}

// keys are the keys of a requirement. Several of them exclude each other, or depend on load, and are read by read.
func (q *requirementReader) keys() *document.Keys {
	r := &q.requirement
	text := document.Schema{"type": "string", "minLength": 1}
	return &document.Keys{
		Rows: []document.Row{
			{Key: "verb", Type: verbType(&r.Verb).With(nil), Doc: "The verb of the required capability."},
			{Key: "resource", Type: q.resourceType(&r.Resource).With(nil), Doc: "The resource of the required capability."},
			{Key: "constraints", Type: q.constraintsType(&r.Constraints).With(nil), Doc: "The constraints that the capability must carry at least."},
			{Key: "capability", Type: document.Custom("a named capability", text, nil), Doc: "In place of verb and resource: a named capability, perhaps with a version or a range of versions, such as `io.fs.read@^1`."},
			{Key: "tools", Type: document.Texts("a list of tools", nil).With(nil), Doc: "In place of a capability: tools by name, server/tool, in which * matches any text. Only with `allow: [by_name]`."},
			{Key: "select", Type: document.OneOf("selection", func(s string) { r.Select = switchboard.Select(s) }, string(switchboard.SelectServer), string(switchboard.SelectTool)), Doc: "`server` (the default): all matching tools of the best server. `tool`: the best tool alone."},
			{Key: "optional", Type: document.Bool(&r.Optional), Doc: "`true`: the task runs without it."},
			{Key: "as", Type: document.Custom("the name of a tool", text, nil), Doc: "The name that clients see for the one tool of `select: tool`."},
			{Key: "load", Type: document.OneOf("load", func(s string) { r.OnDemand = s == "on_demand" }, "essential", "on_demand"), Doc: "`essential` (the default): the list shows the selected tools in full. `on_demand`: the list shows one small tool instead, the stub."},
			{Key: "group", Type: document.Custom("an id", text, nil), Doc: "With `on_demand`: the group that shares one stub. If absent, the resource's name, with - for _; requirements by name must set it."},
			{Key: "stub", Type: document.Custom("the name of a tool", text, nil), Doc: "With `on_demand`: the name that clients see for the stub, one for all of its group. If absent, the group's id with _ for -, and _helper."},
		},
		Later: []string{"map"},
		Hints: map[string]string{
			"tool": `write tools: ["server/tool"]`, "servers": "which servers come first is said in the tenant's ranking: prefer",
			"token_budget": "it is the whole task's", "on_demand": "write load: on_demand", "essential": "write load: essential", "service": hintServices, "services": hintServices,
		},
	}
}

// read reads the requirement.
func (q *requirementReader) read() {
	m, r := q.row, &q.requirement
	q.readCapability()
	m.Read()
	if r.OnDemand {
		q.readOnDemand()
		return
	}
	for _, k := range []string{"group", "stub"} {
		if v, ok := m.Lookup(k); ok && !m.Mistyped["load"] {
			v.Context = m.Context
			v.Fault("%q goes with load: on_demand, and this is shown in full; add that, or remove it", k)
		}
	}
	if v, ok := m.Lookup("as"); ok {
		if r.Select != switchboard.SelectTool {
			v.Fault("it names one tool; add select: tool")
		} else if s, ok := readExposedName(v); ok {
			if first, ok := q.names.exposed[s]; ok {
				v.Fault("%s is the name of another tool of the task already, at line %d", v.Shown(), first.Line)
			}
			q.names.exposed[s] = v
			r.As = s
		}
	}
}

// readCapability reads the capability, or the tools in place of one.
func (q *requirementReader) readCapability() {
	m, r := q.row, &q.requirement
	if tools, ok := m.Lookup("tools"); ok {
		for _, k := range []string{"verb", "resource", "constraints", "capability"} {
			if v, ok := m.Lookup(k); ok {
				v.Context = m.Context
				v.Fault("%q does not go with \"tools\": a requirement names a capability, or tools", k)
			}
		}
		r.Tools = q.readToolPatterns(tools)
		return
	}
	if m.HasKey("tools") {
		return // which has a fault already
	}
	if v, ok := m.Lookup("capability"); ok {
		q.readNamedCapability(v)
		return
	}
	if m.HasKey("capability") {
		return
	}
	const remedy = `a requirement is a verb and a resource, capability: ID, or tools: ["server/tool"]`
	if v, ok := m.Require("verb", remedy); ok {
		r.Verb = readVerb(v)
	}
	if v, ok := m.Require("resource", remedy); ok {
		r.Resource = q.readResource(v)
	}
	if v, ok := m.Lookup("constraints"); ok {
		r.Constraints = q.readConstraints(v)
	}
}

// readNamedCapability reads a named capability. Its verb and resource serve rankings and policies.
func (q *requirementReader) readNamedCapability(v document.Value) {
	for _, k := range []string{"verb", "resource", "constraints"} {
		if other, ok := q.row.Lookup(k); ok {
			other.Context = q.row.Context
			other.Fault("%q does not go with \"capability\": the contract of a named capability says it", k)
		}
	}
	ref := readRef(q.loader, v)
	of := q.cfg.Registry.Find(ref, nil)
	if of == nil {
		return // which is a fault
	}
	if len(of.Tools) == 0 {
		v.Fault("%s is only a description, without tools; no task can require it", of.Name())
	}
	if v, ok := q.row.Lookup("select"); ok {
		v.Context = q.row.Context
		v.Fault("\"select\" does not go with \"capability\": a task gets all tools of the contract")
	}
	q.requirement.Capability, q.requirement.Verb, q.requirement.Resource = ref.String(), of.Verb, of.Resource
}

// readOnDemand reads the group of a requirement.
func (q *requirementReader) readOnDemand() {
	m, r := q.row, &q.requirement
	if v, ok := m.Lookup("select"); ok && r.Select == switchboard.SelectTool {
		v.Fault("a group is made of all that fits of the best server, so that one tool cannot be loaded on demand; remove it, or load: on_demand")
	}
	if v, ok := m.Lookup("as"); ok {
		v.Fault("it names one tool, and load: on_demand shows a stub instead; write stub: NAME")
	}
	if r.Group = q.readGroup(); r.Group == "" {
		return
	}
	g, ok := q.names.groups[r.Group]
	if !ok {
		g = &stubGroup{at: m.Value}
		q.names.groups[r.Group] = g
	}
	if v, ok := m.Lookup("stub"); ok {
		s, ok := readExposedName(v)
		switch {
		case !ok:
		case g.stub != "" && g.stub != s:
			v.Fault("the stub of group %q is %q, at line %d; a group has one", r.Group, g.stub, g.at.Line)
		case g.stub == "":
			g.stub, g.at = s, v
		}
	}
}

// readGroup returns the group that a requirement names, else the one of its resource, or "" after a fault.
func (q *requirementReader) readGroup() string {
	m, r := q.row, &q.requirement
	if v, ok := m.Lookup("group"); ok {
		s, ok := v.ReadText()
		if !ok {
			return ""
		}
		if err := switchboard.CheckID(s); err != nil {
			v.Fault("%v", err)
			return ""
		}
		return s
	}
	if m.HasKey("group") {
		return ""
	}
	if id := strings.ReplaceAll(string(r.Resource), "_", "-"); switchboard.CheckID(id) == nil {
		return id
	}
	if r.ByName() || q.cfg.Taxonomy.HasResource(r.Resource) {
		m.Require("group", "where no resource has a name that can be an id, name the group, such as group: files")
	}
	return ""
}

// ownToolPrefix begins the names of Switchboard's own tools.
const ownToolPrefix = "switchboard_"

// readExposedName reads the name that clients see for a tool.
func readExposedName(v document.Value) (string, bool) {
	s, ok := v.ReadText()
	switch {
	case !ok:
	case len(s) > 64 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
		v.Fault("%s: the name of a tool is at most 64 letters, digits, _ and -", v.Shown())
	case strings.HasPrefix(s, ownToolPrefix):
		v.Fault("%s: names that begin with %s are Switchboard's own", v.Shown(), ownToolPrefix)
	default:
		return s, true
	}
	return "", false
}

// readToolPatterns reads the tools that a requirement names.
func (t *tenantFolder) readToolPatterns(v document.Value) []string {
	if t.readable && !t.bound.byName {
		v.Fault("this tenant may not name tools; the operator allows it with tenants: {%s: {allow: [by_name]}} in switchboard.yaml", t.out.ID)
	}
	if v.Kind == document.KindList && len(v.Items) == 0 {
		v.Fault("the list is empty; name a tool, such as files/read_file, or files/* for all of a server")
	}
	var out []string
	for _, p := range v.ReadTexts() {
		server, name, ok := strings.Cut(p.String, "/")
		switch {
		case !ok || server == "" || name == "":
			p.Fault("%s: want the form server/tool, in which * stands for any text", p.Shown())
		case badPattern(name) != "":
			p.Fault("%s: %s", p.Shown(), badPattern(name))
		default:
			if len(t.matchServers(p.Value, server, t.servers)) > 0 {
				out = append(out, p.String)
			}
		}
	}
	return out
}
