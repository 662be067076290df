package config

import (
	"cmp"
	"time"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The longest times of approvals.
const (
	defaultApprovalWait = 45 * time.Second
	maxApprovalWait     = 10 * time.Minute
	maxApprovalUntil    = 24 * time.Hour
	maxStandingYes      = 30 * 24 * time.Hour
)

// approvalKeys are the keys of approvals: in switchboard.yaml, and in the row of a tenant there.
func approvalKeys(a *switchboard.ApprovalSettings) *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "wait", Type: document.Duration(time.Second, maxApprovalWait, &a.Wait), Doc: "How long a call waits for a person before its agent gets `SB-APPR-001`; 45s if absent. Many clients give up after 60s."},
			{Key: "until", Type: document.Duration(time.Minute, maxApprovalUntil, &a.Until), Doc: "The longest time that a request is good, and that its yes can be used. If absent, as long as the rule says that asks; 1h if it says nothing."},
			{Key: "self", Type: document.Bool(&a.Self), Doc: "`true`: the principal that asked may decide itself. If absent, it never does."},
			{Key: "ask_client", Type: document.Bool(&a.AskClient), Doc: "`true`: a form that the agent's own client shows may decide, where no rule says who or how many people decide. It needs `self: true`, and proves no person: some agents answer forms by themselves."},
			{Key: "standing", Type: document.Duration(time.Minute, maxStandingYes, &a.Standing), Doc: "The longest time of a standing yes. If absent, there are none."},
		},
		Hints: map[string]string{"expires": `write "until"`, "timeout": `write "wait" or "until"`, "approvers": "they stand in the row of their tenant", "who": "a rule says it: obligation require_approval", "quorum": "a rule says it: obligation require_approval"},
	}
}

// approvalsType is the type of approvals: of the operator.
func approvalsType(a *switchboard.ApprovalSettings) document.Type {
	return document.Map(func() *document.Keys { return approvalKeys(a) }, func(m document.FixedMap) { checkApprovals(a, m) })
}

// tighter returns what a tenant has said at a time when the operator may have given it more.
func tighter(own, most switchboard.ApprovalSettings) switchboard.ApprovalSettings {
	shorter := func(a, b time.Duration) time.Duration {
		if a == 0 || b > 0 && b < a {
			return b
		}
		return a
	}
	return switchboard.ApprovalSettings{
		Wait: shorter(own.Wait, most.Wait), Until: shorter(own.Until, most.Until),
		Self: own.Self && most.Self, AskClient: own.AskClient && most.AskClient, Standing: min(own.Standing, most.Standing),
	}
}

// checkApprovals reports settings that do nothing.
func checkApprovals(a *switchboard.ApprovalSettings, m document.FixedMap) {
	if a.AskClient && !a.Self {
		m.Fault("ask_client: true needs self: true, because an answer at the agent's own client is the word of the principal that asked")
	}
}

// tighterApprovalKeys are the keys of approvals: in a tenant's own file. It may only tighten what the operator says.
func tighterApprovalKeys(a *switchboard.ApprovalSettings) *document.Keys {
	const has = "is more than the %v that the operator gives this tenant; write less, or remove it"
	shorter := func(low, high time.Duration, most func() time.Duration, to *time.Duration) document.Type {
		return document.Duration(low, high, new(time.Duration)).With(func(v document.Value) {
			d, ok := v.ReadDuration(low, high)
			switch {
			case !ok:
			case most() > 0 && d > most():
				v.Fault("%s "+has, v.Shown(), most())
			default:
				*to = d
			}
		})
	}
	only := func(to *bool) document.Type {
		return document.Bool(new(bool)).With(func(v document.Value) {
			switch wants := v.ReadBool(); {
			case wants && !*to:
				v.Fault("true is more than the operator gives this tenant; remove it")
			default:
				*to = wants
			}
		})
	}
	return &document.Keys{
		Rows: []document.Row{
			{Key: "wait", Type: shorter(time.Second, maxApprovalWait, func() time.Duration { return cmp.Or(a.Wait, defaultApprovalWait) }, &a.Wait), Doc: "How long a call waits for a person, at most as long as the operator says."},
			{Key: "until", Type: shorter(time.Minute, maxApprovalUntil, func() time.Duration { return a.Until }, &a.Until), Doc: "The longest time that a request is good, at most as long as the operator says."},
			{Key: "self", Type: only(&a.Self), Doc: "`false`: the principal that asked never decides."},
			{Key: "ask_client", Type: only(&a.AskClient), Doc: "`false`: no form at the agent's own client decides."},
			{Key: "standing", Type: document.Duration(time.Minute, maxStandingYes, new(time.Duration)).With(func(v document.Value) {
				d, ok := v.ReadDuration(time.Minute, maxStandingYes)
				switch {
				case !ok:
				case a.Standing == 0:
					v.Fault("the operator gives this tenant no standing yes; remove it")
				case d > a.Standing:
					v.Fault("%s "+has, v.Shown(), a.Standing)
				default:
					a.Standing = d
				}
			}), Doc: "The longest time of a standing yes, at most as long as the operator says."},
		},
	}
}
