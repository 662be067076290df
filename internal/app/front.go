package app

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/connlimit"
	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A front answers what the gateway asks: it is its Authenticator, its Servers and Tasks, and its
// Recorder.
type front struct {
	a    *App
	live live
}

// Authenticate implements gateway.Authenticator. It returns the principal that sent r. For a request
// that another replica forwards, it is the principal that the replica has authenticated, by our
// present configuration.
func (f front) Authenticate(r *http.Request) (switchboard.Principal, error) {
	s := f.a.state.Load()
	if p, ok := cluster.Principal(r); ok {
		return s.CurrentPrincipal(p)
	}
	if p, ok := identity.CallerOf(r.Context()); ok {
		return s.CurrentPrincipal(p)
	}
	p, err := s.Ring.Authenticate(r)
	if err == nil && connlimit.MarkKnown(r.Context()) {
		f.a.memory.FreeSoon()
	}
	return p, err
}

// Subscribe, SessionEnded and RootsChanged implement gateway.Servers. Subscribe subscribes through the
// fleet if policy allows it.
func (f front) Subscribe(ctx context.Context, c *switchboard.Call, updated func(uri string)) (stop func(), err error) {
	who, p, err := f.live.currentPolicy(c.Principal)
	if err != nil {
		return nil, err
	}
	own := *c
	own.Principal = who
	judged, err := policy.LearnTouched(ctx, p, &own)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	r := p.JudgeCall(ctx, judged, now)
	if r.Asked || r.Err != nil {
		f.live.recordRuling(judged, p, now, r)
	}
	if r.Err != nil {
		return nil, r.Err
	}
	return f.a.fleet.Subscribe(ctx, c, updated)
}

func (f front) SessionEnded(session string) { f.a.fleet.Forget(session) }

func (f front) RootsChanged(session string, ask func(ctx context.Context, method string, params []byte) ([]byte, error)) {
	f.a.fleet.RootsChanged(session, ask)
}

// Declare, Status and Ready implement gateway.Tasks. Declare binds the run to the task that its client
// declares, within the operator's limits.
func (f front) Declare(ctx context.Context, r *run.Run, args []byte) (lazyexpand.Reply, error) {
	task, err := lazyexpand.ParseDeclared(args)
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	err = f.a.runs.Declare(ctx, r, task)
	if run.IsStarting(err) {
		started, cancel := context.WithTimeout(ctx, gateway.StartWait)
		f.a.runs.AwaitServers(started, r, func() bool { return false })
		cancel()
		err = f.a.runs.Declare(ctx, r, task)
	}
	if err != nil {
		return lazyexpand.Reply{}, err
	}
	f.a.options.Log.Info("task declared", "tenant", r.Principal().Tenant, "principal", r.Principal().ID, "run", r.ID(), "requirements", fmt.Sprint(task.Requirements))
	return lazyexpand.BoundReply(r.Surface()), nil
}

func (f front) Status(p switchboard.Principal, r *run.Run) []byte {
	return f.a.admin.reads.RunStatusText(p, r)
}

func (f front) Ready() (ready bool, text []byte) { return f.a.admin.reads.Readiness() }

// Denied, Refused and ShowsReceipts implement gateway.Recorder.
func (f front) Denied(p switchboard.Principal, r *run.Run, name string, code switchboard.Code) (receipt string) {
	return f.a.recorder.DeniedCall(p, r, name, code)
}

func (f front) Refused(code switchboard.Code) { f.a.metrics.CountRefusal(code) }

func (f front) ShowsReceipts(id switchboard.TenantID) bool {
	t := f.a.state.Load().Tenants[id]
	return t != nil && t.ReceiptIDs
}
