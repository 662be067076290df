package config

import (
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var (
	taskShape = &document.Shape{
		Keys:  []string{"task_id", "mode", "token_budget", "result_bytes", "required_capabilities"},
		Later: []string{"budgets", "obligations"},
		Hints: map[string]string{
			"id": `write "task_id"`, "task": `write "task_id"`, "capabilities": `write "required_capabilities"`,
			"load": hintEachRequirement, "group": hintEachRequirement, "groups": hintEachRequirement, "stub": hintEachRequirement, "essential": hintEachRequirement, "on_demand": hintEachRequirement,
		},
	}
	requirementShape = &document.Shape{
		Keys:  []string{"verb", "resource", "constraints", "tools", "select", "optional", "as", "load", "group", "stub"},
		Later: []string{"capability", "map"},
		Hints: map[string]string{
			"tool": `write tools: ["server/tool"]`, "servers": "which servers come first is said in the tenant's ranking: prefer",
			"token_budget": "it is the whole task's", "on_demand": "write load: on_demand", "essential": "write load: essential", "service": hintServices, "services": hintServices,
		},
	}
)

const (
	hintEachRequirement = "each requirement says it: load: on_demand, group: ID, stub: NAME"
	hintServices        = "the server says them in switchboard.yaml"
)

// maxRequirements limits the requirements of one task.
const maxRequirements = 64

// readTask reads one task of a tenant.
func (l *loader) readTask(doc document.Value, t *tenantFolder) {
	top, ok := doc.ReadMap(taskShape)
	if !ok {
		return
	}
	task := &switchboard.Task{}
	ctx := ""
	if v, ok := top.Require("task_id", "name the task"); ok {
		if s, ok := v.ReadText(); ok {
			v.Context = ""
			if err := switchboard.CheckID(s); err != nil {
				v.Fault("%v", err)
			} else if switchboard.TaskID(s) == switchboard.DeclaredTask {
				v.Fault("%q is what a task is called that a client declares itself; give this one another name", s)
			} else if first, ok := t.tasks[s]; ok {
				v.Fault("task %q is described already, at %s:%d", s, first.File, first.Line)
			} else {
				t.tasks[s] = v
				task.ID = switchboard.TaskID(s)
				t.out.Tasks[task.ID] = task
			}
			ctx = "task " + document.Shown(s) + ": "
		}
	}
	if v, ok := top.Lookup("mode"); ok {
		v.Context = ctx + v.Context
		task.Mode = readMode(v, t.out.Mode)
	}
	if v, ok := top.Lookup("token_budget"); ok {
		v.Context = ctx + v.Context
		task.TokenBudget = readTokenBudget(v, t.out.TokenBudget, "the tenant has")
	}
	if v, ok := top.Lookup("result_bytes"); ok {
		v.Context = ctx + v.Context
		task.ResultBytes = readResultBytes(v, t.out.ResultBytes, "the tenant has")
	}
	v, ok := top.Require("required_capabilities", "name at least one, such as {verb: search, resource: internet}")
	if !ok {
		return
	}
	v.Context = ctx
	if v.Kind == document.KindList && len(v.Items) == 0 {
		v.Fault("the list is empty; a task requires something")
	}
	n := taskNames{exposed: map[string]document.Value{}, groups: map[string]*stubGroup{}}
	for _, item := range v.ReadList(maxRequirements) {
		task.Requirements = append(task.Requirements, l.readRequirement(item, t, &n))
	}
	n.assignStubs(task.Requirements)
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

func (l *loader) readRequirement(v document.Value, t *tenantFolder, n *taskNames) (r switchboard.Requirement) {
	o, ok := v.ReadMap(requirementShape)
	if !ok {
		return r
	}
	if tools, ok := o.Lookup("tools"); ok {
		for _, k := range []string{"verb", "resource", "constraints"} {
			if v, ok := o.Lookup(k); ok {
				v.Context = o.Context
				v.Fault("%q does not go with \"tools\": a requirement names a capability, or tools", k)
			}
		}
		r.Tools = l.readToolPatterns(tools, t)
	} else if !o.HasKey("tools") && !o.HasKey("capability") {
		const remedy = `a requirement is a verb and a resource, or tools: ["server/tool"]`
		if v, ok := o.Require("verb", remedy); ok {
			r.Verb = readVerb(v)
		}
		if v, ok := o.Require("resource", remedy); ok {
			r.Resource = l.readResource(v)
		}
		if v, ok := o.Lookup("constraints"); ok {
			r.Constraints = l.readConstraints(v)
		}
	}
	if v, ok := o.Lookup("select"); ok {
		s, _ := v.OneOf("selection", string(switchboard.SelectServer), string(switchboard.SelectTool))
		r.Select = switchboard.Select(s)
	}
	if v, ok := o.Lookup("optional"); ok {
		r.Optional = v.ReadBool()
	}
	if v, ok := o.Lookup("load"); ok {
		s, _ := v.OneOf("load", "essential", "on_demand")
		r.OnDemand = s == "on_demand"
	}
	if r.OnDemand {
		l.readOnDemand(o, &r, n)
		return r
	}
	for _, k := range []string{"group", "stub"} {
		if v, ok := o.Lookup(k); ok && !o.Mistyped["load"] {
			v.Context = o.Context
			v.Fault("%q goes with load: on_demand, and this is shown in full; add that, or remove it", k)
		}
	}
	if v, ok := o.Lookup("as"); ok {
		if r.Select != switchboard.SelectTool {
			v.Fault("it names one tool; add select: tool")
		} else if s, ok := readExposedName(v); ok {
			if first, ok := n.exposed[s]; ok {
				v.Fault("%s is the name of another tool of the task already, at line %d", v.Shown(), first.Line)
			}
			n.exposed[s] = v
			r.As = s
		}
	}
	return r
}

// readOnDemand reads the group of a requirement.
func (l *loader) readOnDemand(o document.FixedMap, r *switchboard.Requirement, n *taskNames) {
	if v, ok := o.Lookup("select"); ok && r.Select == switchboard.SelectTool {
		v.Fault("a group is made of all that fits of the best server, so that one tool cannot be loaded on demand; remove it, or load: on_demand")
	}
	if v, ok := o.Lookup("as"); ok {
		v.Fault("it names one tool, and load: on_demand shows a stub instead; write stub: NAME")
	}
	if v, ok := o.Lookup("group"); ok {
		s, ok := v.ReadText()
		if !ok {
			return
		}
		if err := switchboard.CheckID(s); err != nil {
			v.Fault("%v", err)
			return
		}
		r.Group = s
	} else if o.HasKey("group") {
		return
	} else if id := strings.ReplaceAll(string(r.Resource), "_", "-"); switchboard.CheckID(id) == nil {
		r.Group = id
	} else {
		if r.ByName() || l.cfg.Taxonomy.HasResource(r.Resource) {
			o.Require("group", "where no resource has a name that can be an id, name the group, such as group: files")
		}
		return
	}
	g, ok := n.groups[r.Group]
	if !ok {
		g = &stubGroup{at: o.Value}
		n.groups[r.Group] = g
	}
	if v, ok := o.Lookup("stub"); ok {
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
func (l *loader) readToolPatterns(v document.Value, t *tenantFolder) []string {
	if l.readable && !t.bound.byName {
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
			if len(l.matchServers(p.Value, server, t.servers)) > 0 {
				out = append(out, p.String)
			}
		}
	}
	return out
}
