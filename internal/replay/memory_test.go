package replay

import (
	"context"
	"time"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/boundary"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// memoryRecords holds receipts and their archive in memory.
type memoryRecords struct {
	*store.Memory
	recorder *Recorder
	chain    *receipt.Chain

	withAtoms int // decisions that depend on the states of atoms
}

func newMemoryRecords(t tester) *memoryRecords {
	st := store.NewMemory()
	chain, err := receipt.Open(t.Context(), st, receipt.ChainOptions{Node: "t", Key: receipt.NewKey(), DigestKey: receipt.NewKey(), Linger: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	return &memoryRecords{Memory: st, recorder: NewRecorder(chain.Add, archive.New(st, 30*24*time.Hour, nil), receipt.NewDigests(receipt.NewKey())), chain: chain}
}

// add writes receipts of the decisions.
func (n *memoryRecords) add(all ...*decisionRecord) {
	for _, e := range all {
		was := n.recorder.recordOnce(e, nil)
		r := &receipt.Receipt{Kind: receipt.Decision, Decision: was.digest, Basis: was.basis}
		if e.kind == kindCall {
			r = &receipt.Receipt{Kind: receipt.Call, Rulings: []switchboard.Digest{was.digest}}
		}
		n.chain.Add(r)
	}
}

// readAll waits until everything is written, and reads it.
func (n *memoryRecords) readAll(t tester) []*decisionRecord {
	n.recorder.archive.Close()
	if err := n.chain.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := n.recorder.archive.Status(); s.Lost > 0 {
		t.Fatal(s)
	}
	all, damaged, err := readRecords(t.Context(), n, receipt.List(t.Context(), n, receipt.Query{}), false)
	if err != nil || damaged > 0 {
		t.Fatal(damaged, err)
	}
	return all
}

// recordOf returns the record of a decision of the tenant.
func recordOf(t *bind.Tenant, d *decide.Decision, when time.Time) *decisionRecord {
	return newDecisionRecord(basisTextsOf(t), d, when)
}

// newState returns the state of a configuration and offers.
func newState(t tester, c *config.Config, offers []switchboard.Offer) *bind.State {
	return bind.NewState(inputOf(t, c, offers), nil)
}

// inputOf compiles the policies of a configuration. They have a minute for an evaluation.
func inputOf(t tester, c *config.Config, offers []switchboard.Offer) bind.Input {
	in := bind.Input{
		Config: c, Operator: c.Policies, Policies: map[switchboard.TenantID]*policy.Policy{}, Local: "acme",
		StatusTool: &switchboard.Tool{}, Offers: offers,
	}
	if in.Operator == nil {
		in.Operator = policysource.Shipped()
	}
	operator, err := policy.Compile(policy.Operator, in.Operator)
	if err != nil {
		t.Fatal(err)
	}
	boundaries, err := boundary.ForTenants(registryOf(c).Boundaries)
	if err != nil {
		t.Fatal(err)
	}
	engine := policy.NewEngine(time.Minute, 0)
	for id, tenant := range c.Tenants {
		var own *policy.Layer
		if files := c.TenantPolicies[id]; files != nil {
			if own, err = policy.Compile(policy.Tenant, files); err != nil {
				t.Fatal(err)
			}
		}
		if in.Policies[id], err = engine.NewPolicy(tenant, boundaries, operator, own); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

func registryOf(c *config.Config) *capability.Registry {
	if c.Registry == nil {
		return &capability.Registry{}
	}
	return c.Registry
}
