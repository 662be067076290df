package capability

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Stricter returns c with the facts of more that make the tool less free for boundaries: more side effects, a higher risk, a
// class that costs more, and fewer people who can approve.
func Stricter(c, more switchboard.Contract) switchboard.Contract {
	if slices.Index(switchboard.CostClasses, more.CostClass) > slices.Index(switchboard.CostClasses, c.CostClass) {
		c.CostClass = more.CostClass
	}
	if slices.Index(RiskLevels, more.RiskLevel) > slices.Index(RiskLevels, c.RiskLevel) {
		c.RiskLevel = more.RiskLevel
	}
	if len(more.SideEffects) > 0 {
		c.SideEffects = slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.SideEffects, more.SideEffects))))
	}
	c.ApprovalRequired = switchboard.ApproversOfBoth(c.ApprovalRequired, more.ApprovalRequired)
	return c
}

// Restrict returns the contract of a tool that provides the version: c, made stricter by the facts of the version.
func (r *Registry) Restrict(c switchboard.Contract, v *ContractVersion) switchboard.Contract {
	c.Capability, c.Accounts = v.Name(), r.Accounts(v)
	f := &v.Facts
	who := f.Approval
	if f.ApprovalAsked && len(who) == 0 {
		who = []string{string(switchboard.OfficeApprover)}
	}
	return Stricter(c, switchboard.Contract{SideEffects: f.SideEffects, RiskLevel: f.RiskLevel, CostClass: v.CostClass(), ApprovalRequired: who})
}

// Accounts returns the atoms of kind account that the version itself requires, sorted. The accounts of
// capabilities that it requires do not count: DenyUnlessAccount is about the account of the capability itself.
func (r *Registry) Accounts(v *ContractVersion) (ids []string) {
	for _, id := range v.Atoms {
		if a := r.Atoms[id]; a != nil && a.Kind == "account" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
