package bind

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// ownTools returns the tools that Switchboard itself answers for a client of the principal
// that has bound no configured task.
func (s *State) ownTools(t *Tenant, p switchboard.Principal) []*switchboard.Tool {
	own := s.boundTools(t)
	if t == nil || len(t.Declare) == 0 || checkMayDeclare(p) != nil {
		return own
	}
	return append(own, lazyexpand.DeclareDefinition(t.Declare, t.HasCapabilities()))
}

// boundTools returns the tools that Switchboard itself answers for a client that has bound a task.
func (s *State) boundTools(t *Tenant) []*switchboard.Tool {
	switch {
	case t != nil && len(t.Request) > 0:
		return []*switchboard.Tool{lazyexpand.StatusWithCapability(s.statusTool), lazyexpand.RequestDefinition(t.Request)}
	case t != nil && t.HasCapabilities():
		return []*switchboard.Tool{lazyexpand.StatusWithCapability(s.statusTool)}
	}
	return []*switchboard.Tool{s.statusTool}
}

// checkMayDeclare refuses a principal if its key lists the tasks that it may bind: a declared task
// would exceed the key.
func checkMayDeclare(p switchboard.Principal) error {
	if len(p.Tasks) == 0 {
		return nil
	}
	return switchboard.Refuse(switchboard.CodeTaskRefused, "the task may not start: your key names the tasks that it may bind, so you cannot declare another one")
}

// AllowedTask returns the tenant's task with that id. For a declared task it returns the part that
// the operator's limits allow. What people had added to the task is added, as far as the rows allow it now.
func (t *Tenant) AllowedTask(was *switchboard.Task) (*switchboard.Task, error) {
	base, added := splitAdded(was)
	if was.ID != switchboard.DeclaredTask {
		base = t.Tasks[was.ID]
	} else if len(base.Requirements) > 0 {
		var err error
		if base, err = lazyexpand.LimitToCeiling(base, t.Declare, t.Taxonomy, t.Budget(&switchboard.Task{}), t.FindNamed); err != nil {
			return nil, err
		}
	}
	if base == nil || len(added) == 0 {
		return base, nil
	}
	return lazyexpand.AddRequested(base, added, t.Request, t.Taxonomy, t.FindNamed), nil
}

// FindNamed returns the requirement of a named capability that some server provides to the tenant. It is a lazyexpand.FindNamed.
func (t *Tenant) FindNamed(text string) (r switchboard.Requirement, constraints []switchboard.Constraint, ok bool) {
	ref, err := capability.ParseRef(text)
	if err != nil {
		return r, nil, false
	}
	v := t.Providers.Version(ref)
	if v == nil {
		return r, nil, false
	}
	return switchboard.Requirement{Capability: ref.String(), Verb: v.Verb, Resource: v.Resource}, v.Constraints, true
}

// splitAdded returns the task without the requirements that people have added, and these.
func splitAdded(task *switchboard.Task) (base *switchboard.Task, added []switchboard.Addition) {
	own := *task
	own.Requirements = nil
	for i := range task.Requirements {
		if r := &task.Requirements[i]; r.Request != "" {
			added = append(added, switchboard.Addition{Request: r.Request, Capability: r.String()})
		} else {
			own.Requirements = append(own.Requirements, *r)
		}
	}
	if added == nil {
		return task, nil
	}
	return &own, added
}

// unboundSurface returns the surface of a client that has no task.
func (s *State) unboundSurface(p switchboard.Principal, info []byte) *surface.Surface {
	if now, err := s.CurrentPrincipal(p); err == nil {
		p = now
	}
	t, instructions := s.Tenants[p.Tenant], ""
	if t != nil {
		if mine := t.TaskNames(p); len(mine) > 0 {
			instructions = fmt.Sprintf("No task is bound here, so that only Switchboard's own tools are listed. The tasks are %s: connect to /mcp/tasks/%s, or start Switchboard with --task %s.", strings.Join(mine, ", "), mine[0], mine[0])
		}
	}
	return surface.New(surface.Input{Own: s.ownTools(t, p), ServerInfo: info, Instructions: instructions})
}

// WouldServe reports whether a decision would give the principal a tool for the requirement now.
func (s *State) WouldServe(ctx context.Context, p switchboard.Principal, r *switchboard.Requirement, seen decide.Observed, now time.Time) bool {
	p, err := s.CurrentPrincipal(p)
	t := s.Tenants[p.Tenant]
	if err != nil || t == nil {
		return false
	}
	d, err := t.RunPipeline(ctx, p, &switchboard.Task{ID: switchboard.DeclaredTask, Requirements: []switchboard.Requirement{*r}}, seen, now)
	return err == nil && len(d.Selected) > 0
}
