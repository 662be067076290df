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

// A cost is one thing that is charged.
type cost struct {
	surface.Entry
	tokens int
}

// charged returns what the surface charges for tools, in the list's order, and the sum of
// that and of the instructions.
func charged(s *surface.Surface) (all []cost, sum int) {
	sum = s.InstructionTokens()
	for e, n := range s.Charged() {
		all = append(all, cost{e, n})
		sum += n
	}
	return all, sum
}

// Fits reports whether all that the surface charges is within its budget. It counts
// no further than it must: text of so many bytes is never more tokens.
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

// Fit makes a surface keep to its budget that follows prev: nil, or one without a
// budget, where no task was bound. What was withheld comes back where there is room
// beside what is expanded. What a client has expanded is collapsed, oldest first,
// where definitions have grown; then what has grown or is new is withheld, the
// largest first. A task of which the essential tools alone are too much at first
// does not start: SB-LAZY-001, with what costs how much.
func Fit(s, prev *surface.Surface) (*surface.Surface, error) {
	withheld := s.Withheld()
	for i := range slices.Backward(withheld) {
		if less := slices.Delete(slices.Clone(withheld), i, i+1); Fits(s.With(s.Expanded(), less)) {
			withheld = less
		}
	}
	for expanded := s.Expanded(); ; expanded = expanded[1:] {
		if kept := s.With(expanded, withheld); Fits(kept) {
			return kept, nil
		}
		if len(expanded) == 0 {
			break
		}
	}
	s = s.With(nil, nil)
	all, sum := charged(s)
	if prev != nil && prev.Budget() > 0 {
		grown := slices.DeleteFunc(slices.Clone(all), func(c cost) bool {
			was, ok := prev.Lookup(c.Name)
			return c.Role == surface.Own || c.Role == surface.Stub || ok && was.Usable() && prev.Cost(c.Name) >= c.tokens
		})
		slices.SortStableFunc(grown, func(a, b cost) int { return cmp.Compare(b.tokens, a.tokens) })
		var withheld []switchboard.ToolID
		for _, c := range grown {
			withheld = append(withheld, c.Tool.ID)
			if sum -= c.tokens; sum <= s.Budget() {
				return s.With(nil, withheld), nil
			}
		}
	}
	return nil, &switchboard.Error{
		Code: switchboard.CodeOverBudget,
		Text: fmt.Sprintf("the task may not start: the tools that it always shows cost %s tokens, and its budget is %s:\n%s",
			number(sum), number(s.Budget()), bill(all)),
		Hint: "raise token_budget, or give requirements load: on_demand so that one small tool stands for many",
	}
}

// maxBill is how many rows a bill has at most.
const maxBill = 20

// bill is a table of what costs how much, the dearest first.
func bill(all []cost) string {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b cost) int { return cmp.Compare(b.tokens, a.tokens) })
	var b strings.Builder
	for i, c := range all {
		if i == maxBill {
			rest := 0
			for _, c := range all[i:] {
				rest += c.tokens
			}
			fmt.Fprintf(&b, "%8s  %d more\n", number(rest), len(all)-i)
			break
		}
		fmt.Fprintf(&b, "%8s  %s\n", number(c.tokens), c.Name)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// A room is what an expansion changes.
type room struct {
	used, asked, freed int      // in tokens; what is freed is no longer used
	collapsed          []string // names of what has to go for it
	left               []*surface.Expansion
}

// makeRoom says what is left expanded when fresh is to be expanded, which is not
// yet, as part of asked. It is refused where the budget does not allow it.
func makeRoom(s *surface.Surface, fresh, asked []surface.Entry) (m room, err error) {
	all, used := charged(s)
	m.used, m.left = used, s.Expanded()
	for _, e := range fresh {
		m.asked += s.Cost(e.Name)
	}
	over := m.used + m.asked - s.Budget()
	if s.Budget() == 0 || over <= 0 {
		return m, nil
	}
	others := slices.DeleteFunc(all, func(c cost) bool {
		return c.Expanded == nil || slices.ContainsFunc(asked, func(e surface.Entry) bool { return e.Name == c.Name })
	})
	few := smallest(others, over)
	if few == nil || !s.CollapseOldest() {
		return m, overBudget(s, m, few, fresh[0].Group)
	}
	slices.SortStableFunc(others, func(a, b cost) int { return a.Expanded.Used().Compare(b.Expanded.Used()) })
	m.left = slices.Clone(m.left)
	for _, c := range others {
		if m.freed >= over {
			break
		}
		m.freed += c.tokens
		m.collapsed = append(m.collapsed, c.Name)
		m.left = slices.DeleteFunc(m.left, func(x *surface.Expansion) bool { return x == c.Expanded })
	}
	m.used -= m.freed
	return m, nil
}

// smallest returns the fewest of all that cost at least so many tokens together, nil
// where all do not: the dearest, and last the cheapest that is still enough.
func smallest(all []cost, tokens int) []cost {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b cost) int { return cmp.Compare(b.tokens, a.tokens) })
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

// overBudget refuses an expansion in the group, with the arithmetic. What is of
// another group is said with its stub, which alone collapses it.
func overBudget(s *surface.Surface, m room, few []cost, group string) error {
	e := &switchboard.Error{Code: switchboard.CodeOverBudget}
	e.Text = fmt.Sprintf("not expanded: that needs %s tokens, and of the budget of %s tokens %s are in use, so %s are left",
		number(m.asked), number(s.Budget()), number(m.used), number(max(0, s.Budget()-m.used)))
	if few == nil {
		e.Hint = "it does not fit whatever is collapsed: expand fewer tools, or use action call, which needs no room"
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
	e.Hint = fmt.Sprintf("collapse %s first, which frees %s tokens; or use action call, which needs no room", strings.Join(names, ", "), number(freed))
	return e
}

// number spells an integer with commas, as people and models read it best.
func number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
