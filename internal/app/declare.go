package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// switchboardTools returns the tools that Switchboard itself answers for a client of the principal
// that has bound no configured task.
func (t *servedTenant) switchboardTools(p switchboard.Principal) []*switchboard.Tool {
	if t == nil || len(t.Declare) == 0 || checkMayDeclare(p) != nil {
		return []*switchboard.Tool{gateway.Status}
	}
	return []*switchboard.Tool{gateway.Status, lazyexpand.Declaring(t.Declare)}
}

// checkMayDeclare refuses a principal if its key lists the tasks that it may bind: a declared task
// would exceed the key.
func checkMayDeclare(p switchboard.Principal) error {
	if len(p.Tasks) == 0 {
		return nil
	}
	return switchboard.Refuse(switchboard.CodeTaskRefused, "the task may not start: your key names the tasks that it may bind, so you cannot declare another one")
}

// declareTask binds the run to the task that its client declares, within the operator's limits.
func (a *App) declareTask(ctx context.Context, r *run.Run, args []byte) (lazyexpand.Reply, error) {
	task, err := lazyexpand.Declared(args)
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	err = a.runs.Declare(ctx, r, task)
	if errors.As(err, new(*run.Starting)) {
		started, cancel := context.WithTimeout(ctx, gateway.StartWait)
		a.runs.Await(started, r, func() bool { return false })
		cancel()
		err = a.runs.Declare(ctx, r, task)
	}
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	a.log.Info("task declared", "tenant", r.Principal().Tenant, "principal", r.Principal().ID, "run", r.ID(), "requirements", fmt.Sprint(task.Requirements))
	return lazyexpand.Bound(r.Surface()), nil
}

// allowedTask returns the tenant's task with that id. For a declared task it returns the part that
// the operator's limits allow.
func (t *servedTenant) allowedTask(was *switchboard.Task) (*switchboard.Task, error) {
	if was.ID != switchboard.DeclaredTask {
		return t.Tasks[was.ID], nil
	}
	return lazyexpand.Within(was, t.Declare, t.taxonomy, t.Budget(&switchboard.Task{}))
}

// unboundSurface returns the surface of a client that has no task.
func (s *servingState) unboundSurface(p switchboard.Principal, info []byte) *surface.Surface {
	if now, err := s.currentPrincipal(p); err == nil {
		p = now
	}
	t, instructions := s.tenants[p.Tenant], ""
	if t != nil {
		if mine := t.taskNames(p); len(mine) > 0 {
			instructions = fmt.Sprintf("No task is bound here, so that only Switchboard's own tools are listed. The tasks are %s: connect to /mcp/tasks/%s, or start Switchboard with --task %s.", strings.Join(mine, ", "), mine[0], mine[0])
		}
	}
	return surface.New(surface.Input{Own: t.switchboardTools(p), Info: info, Instructions: instructions})
}
