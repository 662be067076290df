package config

import (
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var (
	taskShape = &shape{
		keys:  []string{"task_id", "mode", "token_budget", "result_bytes", "required_capabilities"},
		later: []string{"budgets", "obligations"},
		hints: map[string]string{
			"id": `write "task_id"`, "task": `write "task_id"`, "capabilities": `write "required_capabilities"`,
			"load": ofEach, "group": ofEach, "groups": ofEach, "stub": ofEach, "essential": ofEach, "on_demand": ofEach,
		},
	}
	requirementShape = &shape{
		keys:  []string{"verb", "resource", "constraints", "tools", "select", "optional", "as", "load", "group", "stub"},
		later: []string{"capability", "map"},
		hints: map[string]string{
			"tool": `write tools: ["server/tool"]`, "servers": "which servers come first is said in the tenant's ranking: prefer",
			"token_budget": "it is the whole task's", "on_demand": "write load: on_demand", "essential": "write load: essential", "service": services, "services": services,
		},
	}
)

const (
	ofEach   = "each requirement says it: load: on_demand, group: ID, stub: NAME"
	services = "the server says them in switchboard.yaml"
)

// maxRequirements bounds the requirements of one task.
const maxRequirements = 64

// task reads one task of a tenant.
func (l *loader) task(doc value, t *tenant) {
	top, ok := doc.object(taskShape)
	if !ok {
		return
	}
	task := &switchboard.Task{}
	ctx := ""
	if v, ok := top.need("task_id", "name the task"); ok {
		if s, ok := v.str(); ok {
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
			ctx = "task " + shown(s) + ": "
		}
	}
	if v, ok := top.get("mode"); ok {
		v.ctx = ctx + v.ctx
		task.Mode = v.mode(t.out.Mode)
	}
	if v, ok := top.get("token_budget"); ok {
		v.ctx = ctx + v.ctx
		task.TokenBudget = v.tokens(t.out.TokenBudget, "the tenant has")
	}
	if v, ok := top.get("result_bytes"); ok {
		v.ctx = ctx + v.ctx
		task.ResultBytes = v.resultBytes(t.out.ResultBytes, "the tenant has")
	}
	v, ok := top.need("required_capabilities", "name at least one, such as {verb: search, resource: internet}")
	if !ok {
		return
	}
	v.ctx = ctx
	if v.kind == listKind && len(v.items) == 0 {
		v.fault("the list is empty; a task requires something")
	}
	n := names{exposed: map[string]value{}, groups: map[string]*group{}}
	for _, item := range v.list(maxRequirements) {
		task.Requirements = append(task.Requirements, l.requirement(item, t, &n))
	}
	n.stubs(task.Requirements)
}

// names are those that the requirements of one task give.
type names struct {
	exposed map[string]value  // by name
	groups  map[string]*group // by id
}

// A group is what the requirements that share it say of its stub.
type group struct {
	stub string // "" where none says it
	at   value  // of that, else of the first requirement
	done bool
}

// stubs gives each requirement its group's stub.
func (n *names) stubs(rs []switchboard.Requirement) {
	for i := range rs {
		id := rs[i].Group
		g := n.groups[id]
		if g == nil {
			continue
		}
		if !g.done {
			g.done = true
			g.settle(id, n.exposed)
		}
		rs[i].Stub = g.stub
	}
}

// settle makes the stub one more name among those of the task.
func (g *group) settle(id string, exposed map[string]value) {
	if g.stub == "" {
		g.stub = strings.ReplaceAll(id, "-", "_") + "_helper"
	}
	first, taken := exposed[g.stub]
	switch {
	case strings.HasPrefix(g.stub, ownPrefix):
		g.at.fault("group %q: its stub would be %q, and names that begin with %s are Switchboard's own; name another with stub: NAME", id, g.stub, ownPrefix)
	case taken:
		g.at.fault("group %q: its stub %q is the name of another tool of the task already, at line %d; name another with stub: NAME", id, g.stub, first.line)
	}
	exposed[g.stub] = g.at
}

func (l *loader) requirement(v value, t *tenant, n *names) (r switchboard.Requirement) {
	o, ok := v.object(requirementShape)
	if !ok {
		return r
	}
	if tools, ok := o.get("tools"); ok {
		for _, k := range []string{"verb", "resource", "constraints"} {
			if v, ok := o.get(k); ok {
				v.ctx = o.ctx
				v.fault("%q does not go with \"tools\": a requirement names a capability, or tools", k)
			}
		}
		r.Tools = l.patterns(tools, t)
	} else if !o.has("tools") && !o.has("capability") {
		const remedy = `a requirement is a verb and a resource, or tools: ["server/tool"]`
		if v, ok := o.need("verb", remedy); ok {
			r.Verb = v.verb()
		}
		if v, ok := o.need("resource", remedy); ok {
			r.Resource = l.resource(v)
		}
		if v, ok := o.get("constraints"); ok {
			r.Constraints = l.constraints(v)
		}
	}
	if v, ok := o.get("select"); ok {
		s, _ := v.one("selection", string(switchboard.SelectServer), string(switchboard.SelectTool))
		r.Select = switchboard.Select(s)
	}
	if v, ok := o.get("optional"); ok {
		r.Optional = v.boolean()
	}
	if v, ok := o.get("load"); ok {
		s, _ := v.one("load", "essential", "on_demand")
		r.OnDemand = s == "on_demand"
	}
	if r.OnDemand {
		l.onDemand(o, &r, n)
		return r
	}
	for _, k := range []string{"group", "stub"} {
		if v, ok := o.get(k); ok && !o.meant["load"] {
			v.ctx = o.ctx
			v.fault("%q goes with load: on_demand, and this is shown in full; add that, or remove it", k)
		}
	}
	if v, ok := o.get("as"); ok {
		if r.Select != switchboard.SelectTool {
			v.fault("it names one tool; add select: tool")
		} else if s, ok := v.exposed(); ok {
			if first, ok := n.exposed[s]; ok {
				v.fault("%s is the name of another tool of the task already, at line %d", v.shown(), first.line)
			}
			n.exposed[s] = v
			r.As = s
		}
	}
	return r
}

// onDemand reads what a requirement says of its group.
func (l *loader) onDemand(o object, r *switchboard.Requirement, n *names) {
	if v, ok := o.get("select"); ok && r.Select == switchboard.SelectTool {
		v.fault("a group is made of all that fits of the best server, so that one tool cannot be loaded on demand; remove it, or load: on_demand")
	}
	if v, ok := o.get("as"); ok {
		v.fault("it names one tool, and load: on_demand shows a stub instead; write stub: NAME")
	}
	if v, ok := o.get("group"); ok {
		s, ok := v.str()
		if !ok {
			return
		}
		if err := switchboard.CheckID(s); err != nil {
			v.fault("%v", err)
			return
		}
		r.Group = s
	} else if o.has("group") {
		return
	} else if id := strings.ReplaceAll(string(r.Resource), "_", "-"); switchboard.CheckID(id) == nil {
		r.Group = id
	} else {
		if r.ByName() || l.cfg.Taxonomy.HasResource(r.Resource) {
			o.need("group", "where no resource has a name that can be an id, name the group, such as group: files")
		}
		return
	}
	g, ok := n.groups[r.Group]
	if !ok {
		g = &group{at: o.value}
		n.groups[r.Group] = g
	}
	if v, ok := o.get("stub"); ok {
		s, ok := v.exposed()
		switch {
		case !ok:
		case g.stub != "" && g.stub != s:
			v.fault("the stub of group %q is %q, at line %d; a group has one", r.Group, g.stub, g.at.line)
		case g.stub == "":
			g.stub, g.at = s, v
		}
	}
}

// ownPrefix is that of the names of Switchboard's own tools.
const ownPrefix = "switchboard_"

// exposed reads a name under which a tool is shown.
func (v value) exposed() (string, bool) {
	s, ok := v.str()
	switch {
	case !ok:
	case len(s) > 64 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
		v.fault("%s: the name of a tool is at most 64 letters, digits, _ and -", v.shown())
	case strings.HasPrefix(s, ownPrefix):
		v.fault("%s: names that begin with %s are Switchboard's own", v.shown(), ownPrefix)
	default:
		return s, true
	}
	return "", false
}

// patterns reads the tools of a requirement by name.
func (l *loader) patterns(v value, t *tenant) []string {
	if l.readable && !t.bound.byName {
		v.fault("this tenant may not name tools; the operator allows it with tenants: {%s: {allow: [by_name]}} in switchboard.yaml", t.out.ID)
	}
	if v.kind == listKind && len(v.items) == 0 {
		v.fault("the list is empty; name a tool, such as files/read_file, or files/* for all of a server")
	}
	var out []string
	for _, p := range v.texts() {
		server, name, ok := strings.Cut(p.s, "/")
		switch {
		case !ok || server == "" || name == "":
			p.fault("%s: want the form server/tool, in which * stands for any text", p.shown())
		case badPattern(name) != "":
			p.fault("%s: %s", p.shown(), badPattern(name))
		default:
			if len(l.matching(p.value, server, t.servers)) > 0 {
				out = append(out, p.s)
			}
		}
	}
	return out
}
