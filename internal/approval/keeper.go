package approval

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of requests.
const (
	MaxParams       = 256 << 10 // bytes of the params of a call that a person is asked about
	MaxOfPrincipal  = 50        // pending requests of one principal
	MaxOfTenant     = 500       // pending requests of one tenant
	MaxWaiting      = 20        // calls of one principal that wait for a person
	DefaultWait     = 45 * time.Second
	DefaultUntil    = 15 * time.Minute
	MaxUntil        = 24 * time.Hour
	shortLength     = 16
	Topic           = "approval" // of the store: a notice has TENANT ID
	progressEvery   = 5 * time.Second
	maxFormBytes    = 4 << 10
	maxEarlier      = 3
	keepEnded       = 7 * 24 * time.Hour
	maxEndedOfGroup = 500
)

// A Store keeps requests. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
	Status() store.Status
}

// A Sealer seals the arguments of calls that wait. See vault.Vault.
type Sealer interface {
	Seal(purpose, name string, text []byte) []byte
	Unseal(purpose, name string, sealed []byte) (text []byte, ok bool)
}

// Settings are the row approvals of a tenant, together with the operator's.
type Settings struct {
	Wait      time.Duration // how long a call waits; 0 means DefaultWait
	Until     time.Duration // how long a request is good, if no rule says less; 0 means DefaultUntil
	Self      bool          // see DecideRules
	AskClient bool          // a form at the agent's own client may decide
	Standing  time.Duration // the longest standing yes; 0 means none
}

// StandingYeses are the yeses that people have given in advance.
type StandingYeses interface {
	// Find returns the standing yes that fits a call, which q would ask about; nil if none does.
	Find(ctx context.Context, c *switchboard.Call, q *Request) (*switchboard.Yes, error)

	// Use uses it once for the call, whose Yes it is. See commit.Approvals.
	Use(ctx context.Context, c *switchboard.Call, intent string) error

	// GiveBack undoes Use, for a call that was not made.
	GiveBack(ctx context.Context, c *switchboard.Call) error
}

// Options are the options of a Keeper.
type Options struct {
	Store    Store
	Sealer   Sealer
	Key      switchboard.Secret                                                                 // of bindings
	Settings func(switchboard.TenantID) Settings                                                // now
	Rules    func(switchboard.TenantID) DecideRules                                             // now
	Veto     func(ctx context.Context, o *switchboard.Officer, r *Request, params []byte) error // policy in phase approve; nil means that it may decide
	Officer  func(tenant switchboard.TenantID, v *Vote) (switchboard.Officer, error)            // who voted, as the configuration knows the person now
	Asked    func(ctx context.Context, r *Request)                                              // is told of each new request, once
	Decided  func(ctx context.Context, r *Request, s Step)                                      // is told of each step but a use
	Standing StandingYeses                                                                      // nil means that there are none
	Log      *slog.Logger
}

// A Keeper keeps requests in the store. It is safe for concurrent use.
type Keeper struct{ o Options }

// New returns a Keeper.
func New(o Options) *Keeper { return &Keeper{o: o} }

// Ask returns the open request with the binding of q, or makes it. made reports whether it is new. q has no Number, Stored or Votes. params, if not nil,
// are kept sealed until the request ends. The error is a *switchboard.Error: SB-LIFE-004 if there are too many, SB-ROUT-004 of the store.
func (k *Keeper) Ask(ctx context.Context, q *Request, binding []string, params []byte) (r *Request, made bool, err error) {
	return nil, false, errors.ErrUnsupported
}

// Find returns a request of a tenant. The error is ErrNoRequest, or one of the store.
func (k *Keeper) Find(ctx context.Context, tenant switchboard.TenantID, id string) (*Request, error) {
	return nil, errors.ErrUnsupported
}

// List returns the requests of a tenant, the newest first, also those that have ended lately.
func (k *Keeper) List(ctx context.Context, tenant switchboard.TenantID) ([]*Request, error) {
	return nil, errors.ErrUnsupported
}

// Params returns the params of the call that waits, as the client sent them. The error is ErrNoRequest if they are gone, because the request has ended.
func (k *Keeper) Params(ctx context.Context, r *Request) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// A Saying is what a person says to a request.
type Saying struct {
	Yes   bool
	Note  string
	Grant Grant // of a yes to a capability
}

// Decide says yes or no to a request, as the officer. It checks that the officer may, and asks policy. The error is a *switchboard.Error, ErrNoRequest,
// ErrVoted, or an *OutrunError.
func (k *Keeper) Decide(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id string, s Saying) (*Request, error) {
	return nil, errors.ErrUnsupported
}

// Revoke takes a yes back that was not used. Who may decide may revoke.
func (k *Keeper) Revoke(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id, note string) (*Request, error) {
	return nil, errors.ErrUnsupported
}

// Withdraw ends a pending request, for the principal that asked.
func (k *Keeper) Withdraw(ctx context.Context, p *switchboard.Principal, task switchboard.TaskID, id string) (*Request, error) {
	return nil, errors.ErrUnsupported
}

// Watch calls heard when a request of the tenant may have changed, until stop is called; with "" if any may have.
func (k *Keeper) Watch(heard func(tenant switchboard.TenantID, id string)) (stop func()) {
	return func() {}
}

// requestMemory says how the store has a request.
type requestMemory struct{ version store.Version }

func shortBinding(b string) string { return b[:min(len(b), shortLength)] }

func joinWords(all []string) string { return strings.Join(all, ", ") }
