package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// newApprovals returns the keeper of requests for approval.
func newApprovals(a *App, current live) *approval.Keeper {
	return approval.New(approval.Options{
		Store: a.store, Sealer: a.vault, Key: a.ledger.Key("approvals"), Arguments: a.ledger.Digests().Request, Effect: receipt.Effect,
		Settings: current.approvalSettings, Rules: current.decideRules, Officer: current.officerOf, Veto: current.vetoApproval,
		Address: func(id string) string {
			base := current.adminURL()
			if base == "" {
				return ""
			}
			return strings.TrimSuffix(base, "/") + "/approvals/" + id
		},
		AskOptions: approval.AskOptions{
			KeysOf: func(as *approval.Asker) []string {
				return a.state.Load().Officers.KeysOf(&switchboard.Principal{Tenant: as.Tenant, ID: as.Principal, Auth: as.Auth})
			},
			Asked: func(r *approval.Request) { recordAsked(a, r) },
		},
		Stepped: recordStepped(a), Describe: describeCall, Log: a.log,
	})
}

// recordAsked writes into the log output, the events and the receipts that a person is asked. None of them gets the arguments.
func recordAsked(a *App, r *approval.Request) {
	if r.Kind == approval.ForCapability {
		announceRequest(a.admin.events, a.log, r)
	} else {
		a.log.Info("a person is asked for approval", "request", r.ID(), "tenant", r.Asker.Tenant, "principal", r.Asker.Principal, "task", r.Asker.Task, "for", r.Target.Label().String(), "until", r.Until)
		a.admin.events.Add(event.Occurrence{Type: event.Approval, Tenant: r.Asker.Tenant, Server: r.Target.Server, Subject: r.ID()})
	}
	own := receipt.Receipt{
		Kind: receipt.Ask, Tenant: r.Asker.Tenant, Task: r.Asker.Task, Run: r.Asker.Run,
		Principal: receipt.Subject{ID: r.Asker.Principal, Auth: r.Asker.Auth, Mode: r.Asker.Mode.Narrower(switchboard.Autopilot)},
		Method:    r.Target.Method, Server: r.Target.Server, Tool: r.Target.Label().Name, Arguments: r.Target.Arguments,
		Approval: receipt.ApprovalRef{Request: r.ID()}, Note: noteOf(r),
	}
	if r.Kind == approval.ForCapability {
		own.Capability = r.Target.Capability
	}
	a.ledger.Add(&own)
}

// noteOf says why a person is asked.
func noteOf(r *approval.Request) string {
	if r.Kind == approval.ForCapability {
		return "capability " + r.Target.Capability
	}
	var all []string
	for _, rule := range r.Terms.Rules {
		all = append(all, rule.String())
	}
	return strings.Join(all, "; ")
}

// approvalSettings returns how the people of a tenant are asked now.
func (l live) approvalSettings(id switchboard.TenantID) switchboard.ApprovalSettings {
	if t := l.state.Load().Tenants[id]; t != nil {
		return t.Approvals
	}
	return switchboard.ApprovalSettings{}
}

// decideRules returns who may decide requests of a tenant now.
func (l live) decideRules(id switchboard.TenantID) approval.DecideRules {
	s := l.state.Load()
	manned := len(s.config.Issuers) > 0
	for _, p := range s.config.People {
		manned = manned || p.Tenant == id && slices.Contains(p.Offices, switchboard.OfficeApprover)
	}
	return approval.DecideRules{Self: l.approvalSettings(id).Self, Unmanned: !manned}
}

// officerOf returns who has voted, with the offices of now.
func (l live) officerOf(tenant switchboard.TenantID, v *approval.Vote) (switchboard.Officer, error) {
	officers := l.state.Load().Officers
	switch v.Auth {
	case switchboard.AuthDataFolder:
		return switchboard.Officer{ID: switchboard.LocalID, Auth: v.Auth, Operator: true}, nil
	case switchboard.AuthPersonKey:
		var hash [sha256.Size]byte
		if n, err := hex.Decode(hash[:], []byte(v.Credential)); err != nil || n != len(hash) {
			return switchboard.Officer{}, errors.New("the key that has approved cannot be told")
		}
		return officers.ByHash(hash)
	case switchboard.AuthSignIn:
		issuer, subject, _ := strings.Cut(v.By, "/")
		return officers.ByPerson(&identity.Person{Issuer: issuer, Subject: subject, Claims: v.Claims})
	}
	return switchboard.Officer{}, errors.New("it cannot be told who has approved in tenant " + string(tenant))
}

// vetoApproval asks policy whether the person may say yes to a request: for the call that uses the yes or, if c is nil, before there is one.
func (l live) vetoApproval(ctx context.Context, by *switchboard.Officer, r *approval.Request, c *switchboard.Call, params []byte) error {
	if r.Kind != approval.ForCall {
		return nil
	}
	asker := switchboard.Principal{Tenant: r.Asker.Tenant, ID: r.Asker.Principal, Auth: r.Asker.Auth}
	who, p, err := l.currentPolicy(asker)
	if own, ok := errors.AsType[*switchboard.Error](err); ok && c == nil && isOfCaller(own.Code) { // it speaks to the asker
		e := switchboard.Refuse(switchboard.CodeApprovalGone, "%.80q has asked, and may call nothing any more: the key or the row is gone, or the person is not signed in", asker.ID)
		e.Hint = "refuse the request"
		return e
	}
	if err != nil {
		return err
	}
	if c == nil {
		if c, err = l.callFor(r, params); err != nil {
			return err
		}
	}
	own := *c
	own.Principal = who
	return p.JudgeApproval(ctx, &own, by, time.Now())
}

// isOfCaller reports whether a refusal with the code says that its caller may call nothing any more.
func isOfCaller(c switchboard.Code) bool {
	return c == switchboard.CodeNotAuthenticated || c == switchboard.CodeNotAuthorized || c == switchboard.CodeKeyExpired
}

// callFor returns a call as the request keeps it, which policy can judge.
func (l live) callFor(r *approval.Request, params []byte) (*switchboard.Call, error) {
	c := &switchboard.Call{Server: r.Target.Server, Method: r.Target.Method, Params: params, Task: r.Asker.Task, Item: r.Target.Item}
	t := l.state.Load().Tenants[r.Asker.Tenant]
	if t == nil {
		return nil, switchboard.Refuse(switchboard.CodeApprovalGone, "the tenant %s is not served now", r.Asker.Tenant)
	}
	task := t.Tasks[r.Asker.Task]
	if task == nil {
		task = &switchboard.Task{ID: r.Asker.Task}
	}
	var candidates []*switchboard.Tool
	if c.Item.Kind == "" {
		tool := l.calledTool(r.Asker.Tenant, &r.Target)
		if tool == nil || tool.Digest != r.Target.Definition {
			return nil, switchboard.Refuse(switchboard.CodeApprovalGone, "the tool %s is gone, or has another definition than when the person was asked", r.Target.ID())
		}
		c.Tool, candidates = tool, []*switchboard.Tool{tool}
	}
	for i := range r.Target.Requirements {
		c.Judgments = append(c.Judgments, policy.NewJudgment(task, &r.Target.Requirements[i], candidates))
	}
	return c, nil
}
