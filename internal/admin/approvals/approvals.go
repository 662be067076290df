// Package approvals is what officers see and do about requests for approval: they list them, read what a yes would allow, say yes or no, and take a yes back.
//
// It decides what an officer may see of a request. Package approval decides who may decide it and keeps the decisions; package shown writes the arguments. The
// API, the commands and the form of the page all go through here, so the same text is in all of them.
package approvals

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/shown"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A RequestKeeper keeps the requests. See approval.Keeper.
type RequestKeeper interface {
	Find(ctx context.Context, tenant switchboard.TenantID, id string) (*approval.Request, error)
	List(ctx context.Context, tenant switchboard.TenantID) ([]*approval.Request, error)
	Kept(ctx context.Context, r *approval.Request) (approval.KeptCall, error)
	Decide(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id string, s approval.Saying) (*approval.Request, error)
	Revoke(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id string) (*approval.Request, error)
}

// DeciderOptions are the parts of a running Switchboard that a Decider needs.
type DeciderOptions struct {
	Keeper   RequestKeeper
	Standing StandingKeeper
	Rules    func(switchboard.TenantID) approval.DecideRules
	Tenants  func() []switchboard.TenantID // of the configuration, sorted

	// Tool returns a tool as its server offers it to the tenant now; nil if it does not.
	Tool func(tenant switchboard.TenantID, of *approval.Target) *switchboard.Tool

	// Money says what a request costs, and what its budgets have left, as in "0.02 USD, and 3.10 USD are left"; "" if nothing.
	Money func(ctx context.Context, r *approval.Request, params []byte) string

	// Record makes a decision between two receipts: its intent and its outcome. See admin.Actions.
	Record func(r receipt.Receipt, do func() error) error

	Log *slog.Logger
}

// A Decider does what officers do about requests. Use NewDecider. It is safe for concurrent use.
type Decider struct{ o DeciderOptions }

// NewDecider returns a Decider.
func NewDecider(o DeciderOptions) *Decider { return &Decider{o} }

// An ApprovalRow is a request in a list. It holds no arguments.
type ApprovalRow struct {
	ID         string               `json:"id"`
	Kind       approval.Kind        `json:"kind" doc:"What is asked for: call, or capability."`
	State      approval.State       `json:"state"`
	Tenant     switchboard.TenantID `json:"tenant"`
	Principal  string               `json:"principal"`
	Task       switchboard.TaskID   `json:"task,omitempty"`
	Tool       string               `json:"tool,omitempty" doc:"SERVER/TOOL, of a call; SERVER/KIND of anything else. Only an approver who reads the request sees the URI of a resource."`
	Capability string               `json:"capability,omitempty" doc:"As the agent named it."`
	Asked      time.Time            `json:"asked"`
	Until      time.Time            `json:"until" doc:"A request that is pending or approved then expires."`
	Yeses      int                  `json:"yeses" doc:"How many persons have said yes."`
	Needed     int                  `json:"needed" doc:"How many persons must say yes."`
	By         string               `json:"by,omitempty" doc:"Who has decided or ended it. Of a used request: who has said yes."`
	Grant      *approval.Grant      `json:"grant,omitempty" doc:"Of an approved capability: for the run that asked, or for all runs of its task; and until when."`
}

func rowOf(r *approval.Request, now time.Time) ApprovalRow {
	row := ApprovalRow{
		ID: r.ID(), Kind: r.Kind, State: r.StateAt(now), Tenant: r.Asker.Tenant, Principal: shown.Line(r.Asker.Principal), Task: r.Asker.Task, Capability: shown.Line(r.Target.Capability),
		Asked: r.Asked, Until: r.Until, Yeses: r.Yeses(), Needed: r.Terms.Needed(), By: r.By(),
	}
	if r.Kind == approval.ForCall {
		row.Tool = shown.Line(r.Target.Label().String())
	}
	if r.Grant != (approval.Grant{}) {
		row.Grant = &r.Grant
	}
	return row
}

// Place returns the place of the row in a list: the newest comes first.
func (r *ApprovalRow) Place() string {
	n := strconv.FormatInt(math.MaxInt64-r.Asked.UnixNano(), 10)
	return strings.Repeat("0", 19-len(n)) + n + " " + string(r.Tenant) + " " + r.ID
}

// An ApprovalFilter selects requests. What is not set selects all.
type ApprovalFilter struct {
	State     approval.State `query:"state" enum:"pending,approved,used,refused,withdrawn,revoked,expired" doc:"The state."`
	Principal string         `query:"principal" maxLength:"384" doc:"The id of the principal that asked."`
}

// List returns the requests of a tenant that the filter selects, the newest first; "" is all tenants.
func (d *Decider) List(ctx context.Context, tenant switchboard.TenantID, f ApprovalFilter) ([]ApprovalRow, error) {
	tenants := []switchboard.TenantID{tenant}
	if tenant == "" {
		tenants = d.o.Tenants()
	}
	now, rows := time.Now(), []ApprovalRow{}
	for _, t := range tenants {
		all, err := d.o.Keeper.List(ctx, t)
		if err != nil {
			return nil, asRefusal(err)
		}
		for _, r := range all {
			if (f.State == "" || r.StateAt(now) == f.State) && (f.Principal == "" || r.Asker.Principal == f.Principal) {
				rows = append(rows, rowOf(r, now))
			}
		}
	}
	slices.SortFunc(rows, func(a, b ApprovalRow) int { // as their places are
		return cmp.Or(b.Asked.Compare(a.Asked), strings.Compare(string(a.Tenant), string(b.Tenant)), strings.Compare(a.ID, b.ID))
	})
	return rows, nil
}

// Tenants returns the tenants that the officer sees, sorted.
func (d *Decider) Tenants(o *switchboard.Officer) []switchboard.TenantID {
	return slices.DeleteFunc(slices.Clone(d.o.Tenants()), func(t switchboard.TenantID) bool { return !o.Sees(t) })
}

// ErrNoRequest says that there is no request of that id that the officer may see.
var ErrNoRequest = errors.New("there is no request of that id that you may see")

// find returns a request. Without a tenant it looks in all that the officer sees.
func (d *Decider) find(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id string) (*approval.Request, error) {
	for _, t := range d.Tenants(by) {
		if tenant != "" && t != tenant {
			continue
		}
		r, err := d.o.Keeper.Find(ctx, t, id)
		if err == nil || !errors.Is(err, approval.ErrNoRequest) {
			return r, asRefusal(err)
		}
	}
	return nil, ErrNoRequest
}

// ActsAsApprover reports whether the officer may decide about requests of the tenant at all: it holds the office approver, or there is no approver and it can
// read the data folder.
func (d *Decider) ActsAsApprover(o *switchboard.Officer, tenant switchboard.TenantID) bool {
	return o.Holds(switchboard.OfficeApprover, tenant) || o.Auth == switchboard.AuthDataFolder && d.o.Rules(tenant).Unmanned
}

// A DecisionWish is what an officer says about a request.
type DecisionWish struct {
	Act  approval.Action // ActApprove, ActRefuse or ActRevoke
	Note string

	Grant approval.Grant // of a yes to a capability
}

// Decide carries out what the officer says. A receipt is written before and after it. The error is ErrNoRequest, approval.ErrVoted, an *approval.OutrunError
// or a *switchboard.Error.
func (d *Decider) Decide(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, id string, v DecisionWish) (*ApprovalRow, error) {
	r, err := d.find(ctx, by, tenant, id)
	if err != nil {
		return nil, err
	}
	if err := checkVerdict(r, &v); err != nil {
		return nil, err
	}
	tenant = r.Asker.Tenant
	var now *approval.Request
	err = d.o.Record(receipt.Receipt{
		Kind: receipt.Decide, Principal: receipt.Subject{ID: by.ID, Auth: by.Auth}, Tenant: tenant, Task: r.Asker.Task, Server: r.Target.Server,
		Tool: cmp.Or(r.Target.Label().Name, r.Target.Capability), Method: r.Target.Method, Note: v.Note,
		Approval: receipt.ApprovalRef{Request: r.ID(), Decision: string(v.Act)},
	}, func() error {
		var err error
		if v.Act == approval.ActRevoke {
			now, err = d.o.Keeper.Revoke(ctx, by, tenant, id)
		} else {
			now, err = d.o.Keeper.Decide(ctx, by, tenant, id, approval.Saying{Yes: v.Act == approval.ActApprove, Note: v.Note, Grant: v.Grant})
		}
		return asRefusal(err)
	})
	if err != nil {
		return nil, err
	}
	row := rowOf(now, time.Now())
	d.o.Log.Info("approval", "did", string(v.Act), "request", row.ID, "tenant", tenant, "by", by.ID, "state", row.State)
	return &row, nil
}

// checkVerdict refuses what no request of this kind takes.
func checkVerdict(r *approval.Request, v *DecisionWish) error {
	refuse := func(text string) error {
		return &switchboard.Error{Code: switchboard.CodeBadArguments, Text: text}
	}
	switch {
	case len(v.Note) > approval.MaxNote:
		return refuse("a note has at most " + strconv.Itoa(approval.MaxNote) + " bytes")
	case r.Kind == approval.ForCall && v.Grant != approval.Grant{}:
		return refuse("a yes to a call is for one call; scope and time belong to a capability")
	}
	return nil
}

// asRefusal returns an error of the keeper as officers get it.
func asRefusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, approval.ErrNoRequest):
		return ErrNoRequest
	case errors.Is(err, approval.ErrVoted):
		return err
	}
	if _, ok := errors.AsType[*approval.OutrunError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*switchboard.Error](err); ok {
		return err
	}
	return switchboard.Unavailable("the store cannot say what is asked", err)
}
