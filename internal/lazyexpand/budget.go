package lazyexpand

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A chargedEntry is one entry and its cost.
type chargedEntry struct {
	surface.Entry
	tokens int
}

// chargedEntries returns the charged entries of the surface in the order of the list, and the sum of their costs and
// of the instructions.
func chargedEntries(s *surface.Surface) (all []chargedEntry, sum int) {
	sum = s.InstructionTokens()
	for e, n := range s.Charged() {
		all = append(all, chargedEntry{e, n})
		sum += n
	}
	return all, sum
}

// Fits reports whether everything that the surface charges is within its budget. It counts tokens only if the number
// of bytes exceeds the budget: a text never has more tokens than bytes.
func Fits(s *surface.Surface) bool {
	if s.Budget() == 0 || s.Bytes() <= s.Budget() {
		return true
	}
	sum := s.InstructionTokens()
	for _, n := range s.Charged() {
		if sum += n; sum > s.Budget() {
			return false
		}
	}
	return true
}

// Fit reduces the surface s to its budget. prev is the surface before; nil, or without a budget, if no task was
// bound. Withheld tools return if there is room beside the expanded ones. If definitions have grown, Fit first
// collapses expansions, oldest first; then it withholds new and grown tools, largest first. A task does not start if
// its essential tools alone exceed the budget at first: SB-LAZY-001, with the cost of each.
func Fit(s, prev *surface.Surface) (*surface.Surface, error) {
	withheld := s.Withheld()
	for i := range slices.Backward(withheld) {
		if less := slices.Delete(slices.Clone(withheld), i, i+1); Fits(s.WithExpanded(s.Expanded(), less)) {
			withheld = less
		}
	}
	for expanded := s.Expanded(); ; expanded = expanded[1:] {
		if kept := s.WithExpanded(expanded, withheld); Fits(kept) {
			return kept, nil
		}
		if len(expanded) == 0 {
			break
		}
	}
	s = s.WithExpanded(nil, nil)
	all, sum := chargedEntries(s)
	if prev != nil && prev.Budget() > 0 {
		grown := slices.DeleteFunc(slices.Clone(all), func(c chargedEntry) bool {
			was, ok := prev.Lookup(c.Name)
			return c.Role == surface.Own || c.Role == surface.Stub || ok && was.Usable() && prev.Cost(c.Name) >= c.tokens
		})
		slices.SortStableFunc(grown, func(a, b chargedEntry) int { return cmp.Compare(b.tokens, a.tokens) })
		var withheld []switchboard.ToolID
		for _, c := range grown {
			withheld = append(withheld, c.Tool.Key())
			if sum -= c.tokens; sum <= s.Budget() {
				return s.WithExpanded(nil, withheld), nil
			}
		}
	}
	return nil, &switchboard.Error{
		Code: switchboard.CodeOverBudget,
		Text: fmt.Sprintf("the task may not start: the tools that it always shows cost %s tokens, and its budget is %s:\n%s",
			formatNumber(sum), formatNumber(s.Budget()), costTable(all)),
		Hint: "raise token_budget, or give requirements load: on_demand so that one small tool stands for many",
	}
}

// maxCostRows limits the rows of a costTable.
const maxCostRows = 20

// costTable returns a table of the entries and their costs, most expensive first.
func costTable(all []chargedEntry) string {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b chargedEntry) int { return cmp.Compare(b.tokens, a.tokens) })
	var b strings.Builder
	for i, c := range all {
		if i == maxCostRows {
			rest := 0
			for _, c := range all[i:] {
				rest += c.tokens
			}
			fmt.Fprintf(&b, "%8s  %d more\n", formatNumber(rest), len(all)-i)
			break
		}
		fmt.Fprintf(&b, "%8s  %s\n", formatNumber(c.tokens), c.Name)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// An expansionPlan has the effects of an expansion.
type expansionPlan struct {
	used, asked, freed int      // in tokens; used does not include freed
	collapsed          []string // names of the tools that are collapsed to make room
	remaining          []*surface.Expansion
}

// planExpansion plans the expansion of fresh, the part of asked that is not expanded yet. It returns a refusal if the
// budget does not allow it.
func planExpansion(s *surface.Surface, fresh, asked []surface.Entry) (m expansionPlan, err error) {
	all, used := chargedEntries(s)
	m.used, m.remaining = used, s.Expanded()
	for _, e := range fresh {
		m.asked += s.Cost(e.Name)
	}
	over := m.used + m.asked - s.Budget()
	if s.Budget() == 0 || over <= 0 {
		return m, nil
	}
	others := slices.DeleteFunc(all, func(c chargedEntry) bool {
		return c.Expanded == nil || slices.ContainsFunc(asked, func(e surface.Entry) bool { return e.Name == c.Name })
	})
	few := fewestCovering(others, over)
	if few == nil || !s.CollapseOldest() {
		return m, overBudgetError(s, m, few, fresh[0].Group)
	}
	slices.SortStableFunc(others, func(a, b chargedEntry) int { return a.Expanded.Used().Compare(b.Expanded.Used()) })
	m.remaining = slices.Clone(m.remaining)
	for _, c := range others {
		if m.freed >= over {
			break
		}
		m.freed += c.tokens
		m.collapsed = append(m.collapsed, c.Name)
		m.remaining = slices.DeleteFunc(m.remaining, func(x *surface.Expansion) bool { return x == c.Expanded })
	}
	m.used -= m.freed
	return m, nil
}

// fewestCovering returns the smallest number of entries that together cost at least so many tokens, nil if all of
// them cost less. It takes the most expensive ones, and as the last one the cheapest that is still enough.
func fewestCovering(all []chargedEntry, tokens int) []chargedEntry {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b chargedEntry) int { return cmp.Compare(b.tokens, a.tokens) })
	for n, c := range all {
		if c.tokens < tokens {
			tokens -= c.tokens
			continue
		}
		last := n
		for last+1 < len(all) && all[last+1].tokens >= tokens {
			last++
		}
		return append(all[:n:n], all[last])
	}
	return nil
}

// overBudgetError returns the refusal of an expansion in the group, with the arithmetic. A tool of another group is
// named with its stub, because only that stub collapses it.
func overBudgetError(s *surface.Surface, m expansionPlan, few []chargedEntry, group string) error {
	e := &switchboard.Error{Code: switchboard.CodeOverBudget}
	e.Text = fmt.Sprintf("not expanded: that needs %s tokens, and of the budget of %s tokens %s are in use, so %s are left",
		formatNumber(m.asked), formatNumber(s.Budget()), formatNumber(m.used), formatNumber(max(0, s.Budget()-m.used)))
	if few == nil {
		e.Hint = "it does not fit even if everything else is collapsed: expand fewer tools, or use action call, which needs no room"
		return e
	}
	names, freed := make([]string, len(few)), 0
	for i, c := range few {
		if names[i] = c.Name; c.Group != group {
			for _, stub := range s.Stubs() {
				if stub.Group == c.Group {
					names[i] += " of " + stub.Name
				}
			}
		}
		freed += c.tokens
	}
	slices.Sort(names)
	e.Hint = fmt.Sprintf("collapse %s first, which frees %s tokens; or use action call, which needs no room", strings.Join(names, ", "), formatNumber(freed))
	return e
}

// formatNumber formats an integer with commas, the form that people and models read best.
func formatNumber(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
