package config

import (
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var (
	taskShape = &mapShape{
		keys:  []string{"task_id", "mode", "token_budget", "result_bytes", "required_capabilities"},
		later: []string{"budgets", "obligations"},
		hints: map[string]string{
			"id": `write "task_id"`, "task": `write "task_id"`, "capabilities": `write "required_capabilities"`,
			"load": hintEachRequirement, "group": hintEachRequirement, "groups": hintEachRequirement, "stub": hintEachRequirement, "essential": hintEachRequirement, "on_demand": hintEachRequirement,
		},
	}
	requirementShape = &mapShape{
		keys:  []string{"verb", "resource", "constraints", "tools", "select", "optional", "as", "load", "group", "stub"},
		later: []string{"capability", "map"},
		hints: map[string]string{
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
func (l *loader) readTask(doc value, t *tenantFolder) {
	top, ok := doc.readObject(taskShape)
	if !ok {
		return
	}
	task := &switchboard.Task{}
	ctx := ""
	if v, ok := top.require("task_id", "name the task"); ok {
		if s, ok := v.readText(); ok {
			v.ctx = ""
			if err := switchboard.CheckID(s); err != nil {
				v.fault("%v", err)
			} else if switchboard.TaskID(s) == switchboard.DeclaredTask {
				v.fault("%q is what a task is called that a client declares itself; give this one another name", s)
			} else if first, ok := t.tasks[s]; ok {
				v.fault("task %q is described already, at %s:%d", s, first.file, first.line)
			} else {
				t.tasks[s] = v
				task.ID = switchboard.TaskID(s)
				t.out.Tasks[task.ID] = task
			}
			ctx = "task " + quoteShown(s) + ": "
		}
	}
	if v, ok := top.lookup("mode"); ok {
		v.ctx = ctx + v.ctx
		task.Mode = v.readMode(t.out.Mode)
	}
	if v, ok := top.lookup("token_budget"); ok {
		v.ctx = ctx + v.ctx
		task.TokenBudget = v.readTokenBudget(t.out.TokenBudget, "the tenant has")
	}
	if v, ok := top.lookup("result_bytes"); ok {
		v.ctx = ctx + v.ctx
		task.ResultBytes = v.readResultBytes(t.out.ResultBytes, "the tenant has")
	}
	v, ok := top.require("required_capabilities", "name at least one, such as {verb: search, resource: internet}")
	if !ok {
		return
	}
	v.ctx = ctx
	if v.kind == listKind && len(v.items) == 0 {
		v.fault("the list is empty; a task requires something")
	}
	n := taskNames{exposed: map[string]value{}, groups: map[string]*stubGroup{}}
	for _, item := range v.readList(maxRequirements) {
		task.Requirements = append(task.Requirements, l.readRequirement(item, t, &n))
	}
	n.assignStubs(task.Requirements)
}

// taskNames are the tool and group names that the requirements of one task use.
type taskNames struct {
	exposed map[string]value      // by name
	groups  map[string]*stubGroup // by id
}

// A stubGroup is the stub of a group, as its requirements describe it.
type stubGroup struct {
	stub string // "" if no requirement names it
	at   value  // where the stub is named, else the first requirement
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
func (g *stubGroup) settleStub(id string, exposed map[string]value) {
	if g.stub == "" {
		g.stub = strings.ReplaceAll(id, "-", "_") + "_helper"
	}
	first, taken := exposed[g.stub]
	switch {
	case strings.HasPrefix(g.stub, ownToolPrefix):
		g.at.fault("group %q: its stub would be %q, and names that begin with %s are Switchboard's own; name another with stub: NAME", id, g.stub, ownToolPrefix)
	case taken:
		g.at.fault("group %q: its stub %q is the name of another tool of the task already, at line %d; name another with stub: NAME", id, g.stub, first.line)
	}
	exposed[g.stub] = g.at
}

func (l *loader) readRequirement(v value, t *tenantFolder, n *taskNames) (r switchboard.Requirement) {
	o, ok := v.readObject(requirementShape)
	if !ok {
		return r
	}
	if tools, ok := o.lookup("tools"); ok {
		for _, k := range []string{"verb", "resource", "constraints"} {
			if v, ok := o.lookup(k); ok {
				v.ctx = o.ctx
				v.fault("%q does not go with \"tools\": a requirement names a capability, or tools", k)
			}
		}
		r.Tools = l.readToolPatterns(tools, t)
	} else if !o.hasKey("tools") && !o.hasKey("capability") {
		const remedy = `a requirement is a verb and a resource, or tools: ["server/tool"]`
		if v, ok := o.require("verb", remedy); ok {
			r.Verb = v.readVerb()
		}
		if v, ok := o.require("resource", remedy); ok {
			r.Resource = l.readResource(v)
		}
		if v, ok := o.lookup("constraints"); ok {
			r.Constraints = l.readConstraints(v)
		}
	}
	if v, ok := o.lookup("select"); ok {
		s, _ := v.oneOf("selection", string(switchboard.SelectServer), string(switchboard.SelectTool))
		r.Select = switchboard.Select(s)
	}
	if v, ok := o.lookup("optional"); ok {
		r.Optional = v.readBool()
	}
	if v, ok := o.lookup("load"); ok {
		s, _ := v.oneOf("load", "essential", "on_demand")
		r.OnDemand = s == "on_demand"
	}
	if r.OnDemand {
		l.readOnDemand(o, &r, n)
		return r
	}
	for _, k := range []string{"group", "stub"} {
		if v, ok := o.lookup(k); ok && !o.mistyped["load"] {
			v.ctx = o.ctx
			v.fault("%q goes with load: on_demand, and this is shown in full; add that, or remove it", k)
		}
	}
	if v, ok := o.lookup("as"); ok {
		if r.Select != switchboard.SelectTool {
			v.fault("it names one tool; add select: tool")
		} else if s, ok := v.readExposedName(); ok {
			if first, ok := n.exposed[s]; ok {
				v.fault("%s is the name of another tool of the task already, at line %d", v.shownValue(), first.line)
			}
			n.exposed[s] = v
			r.As = s
		}
	}
	return r
}

// readOnDemand reads the group of a requirement.
func (l *loader) readOnDemand(o fixedMap, r *switchboard.Requirement, n *taskNames) {
	if v, ok := o.lookup("select"); ok && r.Select == switchboard.SelectTool {
		v.fault("a group is made of all that fits of the best server, so that one tool cannot be loaded on demand; remove it, or load: on_demand")
	}
	if v, ok := o.lookup("as"); ok {
		v.fault("it names one tool, and load: on_demand shows a stub instead; write stub: NAME")
	}
	if v, ok := o.lookup("group"); ok {
		s, ok := v.readText()
		if !ok {
			return
		}
		if err := switchboard.CheckID(s); err != nil {
			v.fault("%v", err)
			return
		}
		r.Group = s
	} else if o.hasKey("group") {
		return
	} else if id := strings.ReplaceAll(string(r.Resource), "_", "-"); switchboard.CheckID(id) == nil {
		r.Group = id
	} else {
		if r.ByName() || l.cfg.Taxonomy.HasResource(r.Resource) {
			o.require("group", "where no resource has a name that can be an id, name the group, such as group: files")
		}
		return
	}
	g, ok := n.groups[r.Group]
	if !ok {
		g = &stubGroup{at: o.value}
		n.groups[r.Group] = g
	}
	if v, ok := o.lookup("stub"); ok {
		s, ok := v.readExposedName()
		switch {
		case !ok:
		case g.stub != "" && g.stub != s:
			v.fault("the stub of group %q is %q, at line %d; a group has one", r.Group, g.stub, g.at.line)
		case g.stub == "":
			g.stub, g.at = s, v
		}
	}
}

// ownToolPrefix begins the names of Switchboard's own tools.
const ownToolPrefix = "switchboard_"

// readExposedName reads the name that clients see for a tool.
func (v value) readExposedName() (string, bool) {
	s, ok := v.readText()
	switch {
	case !ok:
	case len(s) > 64 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
		v.fault("%s: the name of a tool is at most 64 letters, digits, _ and -", v.shownValue())
	case strings.HasPrefix(s, ownToolPrefix):
		v.fault("%s: names that begin with %s are Switchboard's own", v.shownValue(), ownToolPrefix)
	default:
		return s, true
	}
	return "", false
}

// readToolPatterns reads the tools that a requirement names.
func (l *loader) readToolPatterns(v value, t *tenantFolder) []string {
	if l.readable && !t.bound.byName {
		v.fault("this tenant may not name tools; the operator allows it with tenants: {%s: {allow: [by_name]}} in switchboard.yaml", t.out.ID)
	}
	if v.kind == listKind && len(v.items) == 0 {
		v.fault("the list is empty; name a tool, such as files/read_file, or files/* for all of a server")
	}
	var out []string
	for _, p := range v.readTexts() {
		server, name, ok := strings.Cut(p.s, "/")
		switch {
		case !ok || server == "" || name == "":
			p.fault("%s: want the form server/tool, in which * stands for any text", p.shownValue())
		case badPattern(name) != "":
			p.fault("%s: %s", p.shownValue(), badPattern(name))
		default:
			if len(l.matchServers(p.value, server, t.servers)) > 0 {
				out = append(out, p.s)
			}
		}
	}
	return out
}
