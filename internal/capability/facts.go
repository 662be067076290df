package capability

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Stricter returns c with what more states for boundaries, as far as that makes the tool less free: more side effects, a
// higher risk, a class that costs more, and fewer people who can approve.
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
