package app

import (
	"context"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A front answers what the gateway asks: it is its Authenticator, its Servers and Tasks, and its
// Recorder.
type front struct{ a *App }

// Authenticate implements gateway.Authenticator.
func (f front) Authenticate(r *http.Request) (switchboard.Principal, error) {
	return f.a.authenticate(r)
}

// Subscribe, SessionEnded and RootsChanged implement gateway.Servers.
func (f front) Subscribe(ctx context.Context, c *switchboard.Call, updated func(uri string)) (stop func(), err error) {
	return f.a.subscribeResource(ctx, c, updated)
}

func (f front) SessionEnded(session string) { f.a.fleet.Forget(session) }

func (f front) RootsChanged(session string, ask func(ctx context.Context, method string, params []byte) ([]byte, error)) {
	f.a.fleet.RootsChanged(session, ask)
}

// Declare, Status and Ready implement gateway.Tasks.
func (f front) Declare(ctx context.Context, r *run.Run, args []byte) (lazyexpand.Reply, error) {
	return f.a.declareTask(ctx, r, args)
}

func (f front) Status(p switchboard.Principal, r *run.Run) []byte {
	return f.a.reads.RunStatusText(p, r)
}

func (f front) Ready() (ready bool, text []byte) { return f.a.reads.Readiness() }

// Denied, Refused and ShowsReceipts implement gateway.Recorder.
func (f front) Denied(p switchboard.Principal, r *run.Run, name string, code switchboard.Code) (receipt string) {
	return f.a.recorder.DeniedCall(p, r, name, code)
}

func (f front) Refused(code switchboard.Code) { f.a.metrics.Refused(code) }

func (f front) ShowsReceipts(id switchboard.TenantID) bool {
	t := f.a.state.Load().Tenants[id]
	return t != nil && t.ReceiptIDs
}
