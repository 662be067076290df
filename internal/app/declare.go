package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/run"
)

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
