package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The headers that name a task or a run. The path can name them as well.
const (
	HeaderTask = "Switchboard-Task"
	HeaderRun  = "Switchboard-Run"
)

// A runTarget is the task or run that a request names; "" means none.
type runTarget struct {
	task switchboard.TaskID
	run  switchboard.RunID
}

// withHeaders adds the task and run in the headers to those in the path. Both may name the same
// ones, but not different ones.
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

// checkTask refuses a task with an impossible name. A run needs no check: an id that was not
// minted is not found.
func (t runTarget) checkTask() error {
	if t.task == "" {
		return nil
	}
	if err := switchboard.CheckID(string(t.task)); err != nil {
		return switchboard.Refuse(switchboard.CodeNoSuchTask, "no such task: %s", err)
	}
	return nil
}

// A runBinder finds or mints the run of a request.
type runBinder func(context.Context) (*run.Run, error)

// A runFinder finds the runs of requests, and waits for their servers.
type runFinder struct {
	runs *run.Runs
}

// openRun returns the run that t names, or else a new run of the task.
func (rf *runFinder) openRun(ctx context.Context, p switchboard.Principal, t runTarget) (*run.Run, error) {
	return rf.findRun(ctx, p, t, func() (*run.Run, error) { return rf.runs.Open(ctx, p, t.task, "") })
}

// baseRun returns the run that t names, or else the run that all modern requests of p for the task
// share.
func (rf *runFinder) baseRun(ctx context.Context, p switchboard.Principal, t runTarget) (*run.Run, error) {
	return rf.findRun(ctx, p, t, func() (*run.Run, error) { return rf.runs.Base(ctx, p, t.task) })
}

// findRun returns the run that t names, or the result of other if t names none.
func (rf *runFinder) findRun(ctx context.Context, p switchboard.Principal, t runTarget, other func() (*run.Run, error)) (*run.Run, error) {
	if err := t.checkTask(); err != nil {
		return nil, err
	}
	if t.run == "" {
		return other()
	}
	r, err := rf.runs.Find(ctx, p, t.run)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, &switchboard.Error{Code: switchboard.CodeNoSuchTask, Text: "you have no such run", Hint: "mint one with POST /v1/tasks/<id>/runs; a run ends when it is not used for long"}
	}
	if t.task != "" && t.task != r.Task() {
		return nil, switchboard.Refuse(switchboard.CodeNoSuchTask, "the run in the request belongs to another task than %s", t.task)
	}
	run.Keep(r)
	return r, nil
}

// StartWait is how long a request waits for servers that are starting, if it is not known which of
// them the request needs. Most clients give a call a minute.
const StartWait = 50 * time.Second

// awaitServers waits for servers that are starting, as long as the run therefore shows only our own
// tools, or does not show what the request needs.
func (rf *runFinder) awaitServers(ctx context.Context, r *run.Run, most time.Duration, shows func(*surface.Surface) bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	rf.runs.AwaitServers(ctx, r, func() bool {
		err := r.Err()
		return err != nil && !errors.As(err, new(*run.Waiting)) || err == nil && shows(r.Surface())
	})
}

// whyUnmet returns why the run shows nothing, or nil if it shows something.
func (rf *runFinder) whyUnmet(ctx context.Context, r *run.Run) error {
	if r.Err() != nil {
		rf.runs.Refresh(ctx, r)
	}
	return r.Err()
}
