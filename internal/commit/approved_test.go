package commit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An openSealer seals nothing.
type openSealer struct{}

func (openSealer) Seal(_, _ string, text []byte) []byte             { return text }
func (openSealer) Unseal(_, _ string, sealed []byte) ([]byte, bool) { return sealed, true }

var boss = &switchboard.Officer{ID: "boss", Auth: switchboard.AuthPersonKey, Credential: "boss's", Offices: map[switchboard.TenantID][]switchboard.Office{"acme": {switchboard.OfficeApprover}}}

// keep returns a keeper of requests that the boss decides.
func keep(st store.Store) *approval.Keeper {
	return approval.New(approval.Options{
		Store: st, Sealer: openSealer{}, Key: switchboard.NewSecret("the key of the bindings"),
		Arguments: func(c *switchboard.Call) string { return string(c.Params) }, Effect: receipt.Effect,
		Settings: func(switchboard.TenantID) switchboard.ApprovalSettings {
			return switchboard.ApprovalSettings{Wait: time.Millisecond}
		},
		Rules:    func(switchboard.TenantID) approval.DecideRules { return approval.DecideRules{} },
		Officer:  func(switchboard.TenantID, *approval.Vote) (switchboard.Officer, error) { return *boss, nil },
		Describe: func(c *switchboard.Call) (string, bool) { return string(c.Params), true },
	})
}

// askedCall returns a call that needs a yes, and that a principal of its own makes.
func askedCall(says switchboard.Contract, name string) *switchboard.Call {
	c := aCall(says, "")
	c.Principal.ID, c.Task, c.Params = "ci "+name, "triage", fmt.Appendf(nil, `{"name":"send","arguments":{"n":%q}}`, name)
	c.Tool.Capabilities = []switchboard.Capability{{Verb: "write", Resource: "notes", Constraints: []switchboard.Constraint{switchboard.HumanInTheLoop}, Source: "overlay"}}
	return c
}

// approvedCalls returns calls that a person has approved, with the real Keeper of their approvals.
func approvedCalls(t *testing.T, st store.Store, n int) (*approval.Keeper, []*switchboard.Call) {
	t.Helper()
	keeper := keep(st)
	t.Cleanup(keeper.Close)
	var calls []*switchboard.Call
	caller := keeper.Approve(func(next switchboard.Caller) switchboard.Caller { return next }, switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		calls = append(calls, c)
		return switchboard.Result{JSON: []byte(`{}`)}, nil
	}))
	for i := range n {
		c := askedCall(switchboard.Contract{}, fmt.Sprint(i))
		_, _ = caller.Call(t.Context(), c)
		all, err := keeper.List(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.StateAt(time.Now()) != approval.Pending {
				continue
			}
			if _, err := keeper.Decide(t.Context(), boss, "acme", r.ID(), approval.Saying{Yes: true}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := caller.Call(t.Context(), c); err != nil || len(calls) != i+1 {
			t.Fatalf("call %d of %d: %v", i, len(calls), err)
		}
	}
	return keeper, calls
}
