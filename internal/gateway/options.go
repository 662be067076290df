package gateway

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/preview"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Options are the parts and settings of a Gateway.
type Options struct {
	Runs   *run.Runs
	Caller switchboard.Caller
	Desk   *lazyexpand.Desk // answers calls of stubs

	Authenticator Authenticator
	Servers       Servers
	Tasks         Tasks
	Recorder      CallRecorder // nil means that nothing is recorded
	Sessions      SessionOptions

	// Results keeps results that are too long to be returned in one piece; nil where no surface has
	// preview.ReadTool. WholeResults returns all results whole.
	Results      *preview.Keeper
	WholeResults bool

	// Approvals keeps the calls that wait for a person; nil where no surface has approval.ResumeTool.
	Approvals *approval.Keeper

	Meter *run.Meter   // counts the tokens that runs cost; nil means that nothing is counted
	Log   *slog.Logger // nil means no log output

	// Name and Version are how Switchboard introduces itself to clients.
	Name    string
	Version string
}

// SessionOptions say where sessions are kept.
type SessionOptions struct {
	// Store keeps sessions; nil means that they end with the process. Cluster is the group of
	// replicas that share the store; nil means that there are no others.
	Store   session.Store
	Cluster *cluster.Cluster

	// Key authenticates session ids, so that an id which Switchboard did not mint costs no read of
	// the store. All replicas that share a store have the same key. Without a key, a Gateway makes
	// one that no other replica knows, and only it finds its sessions.
	Key switchboard.Secret
}

// An Authenticator authenticates requests.
type Authenticator interface {
	// Authenticate returns the principal of a request, or an error with SB-AUTH-001 or SB-AUTH-002.
	// Streams that stay open call it again for the request that opened them.
	Authenticate(r *http.Request) (switchboard.Principal, error)
}

// Servers are asked for more than calls.
type Servers interface {
	// Subscribe asks a server for the updates of the resource that c names (as resources/subscribe
	// does), until stop is called. It calls updated with the URI as the server spells it.
	Subscribe(ctx context.Context, c *switchboard.Call, updated func(uri string)) (stop func(), err error)

	// SessionEnded is called when a Client.Session has ended.
	SessionEnded(session string)

	// RootsChanged is called when a client has changed its roots. session is its Client.Session. ask
	// sends that client a request while none of its calls is in flight.
	RootsChanged(session string, ask func(ctx context.Context, method string, params []byte) ([]byte, error))
}

// Tasks are what runs are bound to.
type Tasks interface {
	// Declare binds a run to the task that its client declares with these arguments of DeclareTool.
	// It is called only if a surface has DeclareTool.
	Declare(ctx context.Context, r *run.Run, args []byte) (lazyexpand.Reply, error)

	// Request asks a person for a capability, with these arguments of RequestTool. It is called only if a surface has RequestTool.
	Request(ctx context.Context, p switchboard.Principal, r *run.Run, args []byte) (lazyexpand.Reply, error)

	// CapabilityStatus returns the answer of switchboard_status about one capability.
	CapabilityStatus(ctx context.Context, p switchboard.Principal, r *run.Run, capability string) (lazyexpand.Reply, error)

	// Status returns the answer of switchboard_status to a client of the run, as JSON.
	Status(p switchboard.Principal, r *run.Run) []byte

	// Ready reports whether tasks can be served, and returns the JSON text of /readyz.
	Ready() (ready bool, text []byte)
}

// A CallRecorder records what the Caller does not see.
type CallRecorder interface {
	// Denied is called when a tools/call was refused before it reached the Caller, for example
	// because the principal has no such tool. It returns the id of the receipt, or "".
	Denied(p switchboard.Principal, r *run.Run, name string, code switchboard.Code) (receipt string)

	// Refused is called with the code of each refusal.
	Refused(code switchboard.Code)

	// ShowsReceipts reports whether the clients of a tenant get the receipt's id with each call that
	// succeeds.
	ShowsReceipts(id switchboard.TenantID) bool
}

// noCallRecorder records nothing.
type noCallRecorder struct{}

func (noCallRecorder) Denied(switchboard.Principal, *run.Run, string, switchboard.Code) string {
	return ""
}
func (noCallRecorder) Refused(switchboard.Code)                {}
func (noCallRecorder) ShowsReceipts(switchboard.TenantID) bool { return false }
