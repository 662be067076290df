package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// OperationResult is the result of an operator's action on a server.
type OperationResult struct {
	Server switchboard.ServerID `json:"server"`
	State  string               `json:"state"` // now
	Note   string               `json:"note"`
}

// operateTimeout limits how long the store may take to write an operator's action.
const operateTimeout = 2 * time.Second

// operations are the actions of operators on servers.
var operations = map[string]func(a *App, by switchboard.Principal, id switchboard.ServerID, reason string) (note string, err error){
	"disable": (*App).disableServer,
	"enable":  (*App).enableServer,
	"restart": (*App).restartServer,
}

// operateServer performs an action of the local principal, who must present the token of operators,
// and logs it.
func (a *App) operateServer(by switchboard.Principal, head http.Header, id switchboard.ServerID, what, reason string) ([]byte, error) {
	if by.Auth != switchboard.AuthLocal {
		return nil, switchboard.Refuse(switchboard.CodeNotAuthorized, "only the operator, on the machine of Switchboard and while no key exists, may do that to a server")
	}
	if err := a.operator.Check(head); err != nil {
		return nil, err
	}
	was, ok := a.health.Status(id)
	if !ok {
		return nil, switchboard.Refuse(switchboard.CodeServerUnknown, "there is no server %.40q here; \"switchboard server list\" shows the servers", id)
	}
	note, err := a.doWithReceipts(receipt.Receipt{
		Tenant: by.Tenant, Principal: replay.ReceiptPrincipal(by), Server: id, Method: what, Note: reason,
	}, func() (string, error) { return operations[what](a, by, id, reason) })
	if err != nil {
		return nil, err
	}
	now, _ := a.health.Status(id)
	a.log.Info("operator", "did", what, "server", id, "by", by.ID, "reason", reason, "was", was.State, "is", now.State)
	return canonical.Encode(OperationResult{id, string(now.State), note}), nil
}

// doWithReceipts performs an operator's action after the receipt r, its intent, is durable. If r
// cannot be written, the action is refused (SB-RCPT-001). A second receipt records the result.
func (a *App) doWithReceipts(r receipt.Receipt, do func() (string, error)) (string, error) {
	if !a.ledger.Durable() {
		return do()
	}
	r.Kind = receipt.Admin
	ctx, cancel := context.WithTimeout(a.grace.ctx, operateTimeout)
	defer cancel()
	intent := r
	id, err := a.ledger.Write(ctx, &intent)
	if err != nil {
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
	return note, switchboard.Receipted(err, a.ledger.Add(&r))
}

// disableServer takes a server out of service.
func (a *App) disableServer(by switchboard.Principal, id switchboard.ServerID, reason string) (string, error) {
	why := "disabled by " + by.ID
	if reason != "" {
		why += ": " + reason
	}
	ctx, cancel := context.WithTimeout(a.grace.ctx, operateTimeout)
	defer cancel()
	if err := a.health.Disable(ctx, id, why); err != nil {
		return "", err
	}
	note := "it takes no new calls until it is enabled"
	switch {
	case a.cluster.Self() != "":
		note += ", here and by all other replicas"
	case a.store.Status().Survives == "nothing":
		note += ", or until Switchboard is started again"
	}
	if n := a.callsInFlight(id); n > 0 {
		note += fmt.Sprintf("; calls that are under way (%d) go on", n)
	}
	return note, nil
}

func (a *App) enableServer(_ switchboard.Principal, id switchboard.ServerID, _ string) (string, error) {
	ctx, cancel := context.WithTimeout(a.grace.ctx, operateTimeout)
	defer cancel()
	if err := a.health.Enable(ctx, id); err != nil {
		return "", err
	}
	if now, _ := a.health.Status(id); now.State != health.Healthy {
		return "it takes calls again as soon as it is healthy", nil
	}
	return "it takes calls again", nil
}

func (a *App) restartServer(_ switchboard.Principal, id switchboard.ServerID, _ string) (string, error) {
	if err := a.fleet.Restart(id); err != nil {
		return "", err
	}
	return "its processes and sessions end when their calls have ended, or soon in any case, and new ones are started", nil
}

// callsInFlight returns how many calls are in flight at the server.
func (a *App) callsInFlight(id switchboard.ServerID) int {
	for _, s := range a.fleet.Status() {
		if s.ID == id {
			return s.InFlight
		}
	}
	return 0
}
