package gateway

import (
	"context"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The headers with which a client says what it wants to be bound to. The path
// can say it too.
const (
	HeaderTask = "Switchboard-Task"
	HeaderRun  = "Switchboard-Run"
)

// A target is the task or run that a request names; "" means none.
type runTarget struct {
	task switchboard.TaskID
	run  switchboard.RunID
}

// withHeaders adds what the headers name to what the path does. Both may name the
// same, but not different things.
func (t runTarget) withHeaders(h http.Header) (runTarget, *failure) {
	for _, s := range h.Values(HeaderTask) {
		if t.task != "" && t.task != switchboard.TaskID(s) {
			return t, invalidRequest("the request names two tasks; name one")
		}
		t.task = switchboard.TaskID(s)
	}
	for _, s := range h.Values(HeaderRun) {
		if t.run != "" && t.run != switchboard.RunID(s) {
			return t, invalidRequest("the request names two runs; name one")
		}
		t.run = switchboard.RunID(s)
	}
	return t, nil
}

// checkTask refuses a task that cannot exist, however long its name. Of a run there
// is nothing to check: none is found that was not minted.
func (t runTarget) checkTask() error {
	if t.task == "" {
		return nil
	}
	if err := switchboard.CheckID(string(t.task)); err != nil {
		return switchboard.Refuse(switchboard.CodeNoSuchTask, "no such task: %s", err)
	}
	return nil
}

// A binder finds or mints the run that a request is for.
type runBinder func(context.Context) (*run.Run, error)

// openRun returns the run that p names, or else a new one of the task.
func (g *Gateway) openRun(ctx context.Context, p switchboard.Principal, t runTarget) (*run.Run, error) {
	return g.findRun(ctx, p, t, func() (*run.Run, error) { return g.runs.Open(ctx, p, t.task) })
}

// baseRun returns the run that p names, or else the one that all modern
// requests of p for the task share.
func (g *Gateway) baseRun(ctx context.Context, p switchboard.Principal, t runTarget) (*run.Run, error) {
	return g.findRun(ctx, p, t, func() (*run.Run, error) { return g.runs.Base(ctx, p, t.task) })
}

// findRun returns the run that p names, or what other does where p names none.
func (g *Gateway) findRun(ctx context.Context, p switchboard.Principal, t runTarget, other func() (*run.Run, error)) (*run.Run, error) {
	if err := t.checkTask(); err != nil {
		return nil, err
	}
	if t.run == "" {
		return other()
	}
	r, err := g.runs.Find(ctx, p, t.run)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, &switchboard.Error{Code: switchboard.CodeNoSuchTask, Text: "you have no such run", Hint: "mint one with POST /v1/tasks/<id>/runs; a run that nobody uses for long ends"}
	}
	if t.task != "" && t.task != r.Task() {
		return nil, switchboard.Refuse(switchboard.CodeNoSuchTask, "the run that the request names is of another task than %s", t.task)
	}
	return r, nil
}
