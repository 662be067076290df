package config

import (
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var (
	taskShape = &shape{
		keys:  []string{"task_id", "mode", "required_capabilities"},
		later: []string{"token_budget", "groups", "load", "essential", "on_demand", "budgets", "obligations"},
		hints: map[string]string{"id": `write "task_id"`, "task": `write "task_id"`, "capabilities": `write "required_capabilities"`},
	}
	requirementShape = &shape{
		keys:  []string{"verb", "resource", "constraints", "tools", "select", "optional", "as"},
		later: []string{"capability", "load", "group", "stub", "map", "token_budget"},
		hints: map[string]string{"tool": `write tools: ["server/tool"]`, "servers": "which servers come first is said in the tenant's ranking: prefer"},
	}
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
	v, ok := top.need("required_capabilities", "name at least one, such as {verb: search, resource: internet}")
	if !ok {
		return
	}
	v.ctx = ctx
	if v.kind == listKind && len(v.items) == 0 {
		v.fault("the list is empty; a task requires something")
	}
	exposed := map[string]value{}
	for _, item := range v.list(maxRequirements) {
		r, as := l.requirement(item, t)
		if r.As != "" {
			if first, ok := exposed[r.As]; ok {
				as.fault("%s is the name of another tool of the task already, at line %d", as.shown(), first.line)
			}
			exposed[r.As] = as
		}
		task.Requirements = append(task.Requirements, r)
	}
}

func (l *loader) requirement(v value, t *tenant) (r switchboard.Requirement, as value) {
	o, ok := v.object(requirementShape)
	if !ok {
		return r, as
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
	if v, ok := o.get("as"); ok {
		as = v
		s, ok := v.str()
		switch {
		case !ok:
		case r.Select != switchboard.SelectTool:
			v.fault("it names one tool; add select: tool")
		case len(s) > 64 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
			v.fault("%s: the name of a tool is at most 64 letters, digits, _ and -", v.shown())
		case strings.HasPrefix(s, "switchboard_"):
			v.fault("%s: names that begin with switchboard_ are Switchboard's own", v.shown())
		default:
			r.As = s
		}
	}
	return r, as
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
		case badToolName(strings.ReplaceAll(name, "*", "")) != "":
			p.fault("%s: %s, and * for any text", p.shown(), badToolName(strings.ReplaceAll(name, "*", "x")))
		default:
			if len(l.matching(p.value, server, t.servers)) > 0 {
				out = append(out, p.s)
			}
		}
	}
	return out
}
