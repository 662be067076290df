package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/revocation"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

// ActionsOptions are the parts of a running Switchboard that Actions change.
type ActionsOptions struct {
	Configuration func() Configuration // the present one
	Revoked       *revocation.RevokedKeys
	Events        *event.Recent

	Fleet    *upstream.Fleet
	Health   *health.Monitor
	Ledger   *receipt.Ledger
	Cluster  *cluster.Cluster
	Store    store.Store
	Stopping context.Context // done when the time to stop is over
	Log      *slog.Logger
}

// Actions are what officers do. Use NewActions. They are safe for concurrent use.
type Actions struct{ o ActionsOptions }

// NewActions returns Actions.
func NewActions(o ActionsOptions) *Actions { return &Actions{o} }

// OperationResult is the result of an operator's action on a server.
type OperationResult struct {
	Server switchboard.ServerID `json:"server"`
	State  string               `json:"state"` // now
	Note   string               `json:"note"`
}

// operateTimeout limits how long the store may take to write an operator's action.
const operateTimeout = 2 * time.Second

// operations are the actions of operators on servers.
var operations = map[string]func(a *Actions, by switchboard.Officer, id switchboard.ServerID, reason string) (note string, err error){
	"disable": (*Actions).disableServer,
	"enable":  (*Actions).enableServer,
	"restart": (*Actions).restartServer,
	"probe":   (*Actions).probeServer,
}

// Operations returns the names of the actions on servers, sorted.
func Operations() []string { return slices.Sorted(maps.Keys(operations)) }

// Operate performs an action of an operator on a server, and logs it. what is one of Operations.
func (a *Actions) Operate(by switchboard.Officer, id switchboard.ServerID, what, reason string) (*OperationResult, error) {
	was, ok := a.o.Health.Status(id)
	if !ok {
		return nil, switchboard.Refuse(switchboard.CodeServerUnknown, "there is no server %.40q here; \"switchboard server list\" shows the servers", id)
	}
	note, err := a.doWithReceipts(receipt.Receipt{
		Principal: receipt.Subject{ID: by.ID, Auth: by.Auth}, Server: id, Method: what, Note: reason,
	}, func() (string, error) { return operations[what](a, by, id, reason) })
	if err != nil {
		return nil, err
	}
	now, _ := a.o.Health.Status(id)
	a.o.Log.Info("operator", "did", what, "server", id, "by", by.ID, "reason", reason, "was", was.State, "is", now.State)
	return &OperationResult{id, string(now.State), note}, nil
}

// doWithReceipts performs an operator's action after the receipt r, its intent, is durable. If r
// cannot be written, the action is refused (SB-RCPT-001). A second receipt records the result.
func (a *Actions) doWithReceipts(r receipt.Receipt, do func() (string, error)) (string, error) {
	if !a.o.Ledger.Durable() {
		return do()
	}
	r.Kind = cmp.Or(r.Kind, receipt.Admin)
	ctx, cancel := context.WithTimeout(a.o.Stopping, operateTimeout)
	defer cancel()
	intent := r
	id, err := a.o.Ledger.Write(ctx, &intent)
	if err != nil {
		if id != "" {
			a.o.Ledger.Add(r.Late(id))
		}
		return "", err
	}
	note, err := do()
	r.Of, r.Outcome = id, receipt.OK
	if err != nil {
		r.Outcome = receipt.Refused
		if own, ok := errors.AsType[*switchboard.Error](err); ok {
			r.Code = own.Code
		}
	}
	return note, switchboard.WithReceipt(err, a.o.Ledger.Add(&r))
}

// Record does something between two receipts: r, its intent, and its outcome. See doWithReceipts.
func (a *Actions) Record(r receipt.Receipt, do func() error) error {
	_, err := a.doWithReceipts(r, func() (string, error) { return "", do() })
	return err
}

// disableServer takes a server out of service.
func (a *Actions) disableServer(by switchboard.Officer, id switchboard.ServerID, reason string) (string, error) {
	why := "disabled by " + by.ID
	if reason != "" {
		why += ": " + reason
	}
	ctx, cancel := context.WithTimeout(a.o.Stopping, operateTimeout)
	defer cancel()
	if err := a.o.Health.Disable(ctx, id, why); err != nil {
		return "", err
	}
	note := "it takes no new calls until it is enabled"
	switch {
	case a.o.Cluster.Self() != "":
		note += ", here and by all other replicas"
	case a.o.Store.Status().Survives == "nothing":
		note += ", or until Switchboard is started again"
	}
	if n := a.callsInFlight(id); n > 0 {
		note += fmt.Sprintf("; calls that are under way (%d) go on", n)
	}
	return note, nil
}

func (a *Actions) enableServer(_ switchboard.Officer, id switchboard.ServerID, _ string) (string, error) {
	ctx, cancel := context.WithTimeout(a.o.Stopping, operateTimeout)
	defer cancel()
	if err := a.o.Health.Enable(ctx, id); err != nil {
		return "", err
	}
	if now, _ := a.o.Health.Status(id); now.State != health.Healthy {
		return "it takes calls again as soon as it is healthy", nil
	}
	return "it takes calls again", nil
}

func (a *Actions) restartServer(_ switchboard.Officer, id switchboard.ServerID, _ string) (string, error) {
	if err := a.o.Fleet.Restart(id); err != nil {
		return "", err
	}
	return "its processes and sessions end when their calls have ended, or soon in any case, and new ones are started", nil
}

func (a *Actions) probeServer(_ switchboard.Officer, id switchboard.ServerID, _ string) (string, error) {
	if now, _ := a.o.Health.Status(id); now.State == health.Disabled {
		return "", switchboard.Refuse(switchboard.CodeBadArguments, "server %q is disabled, so it is not probed; enable it first", id)
	}
	a.o.Health.ProbeSoon(id)
	return "it gets a request without side effects now; if that fails, the server is quarantined", nil
}

// callsInFlight returns how many calls are in flight at the server.
func (a *Actions) callsInFlight(id switchboard.ServerID) int {
	for _, s := range a.o.Fleet.Status() {
		if s.ID == id {
			return s.InFlight
		}
	}
	return 0
}
