package budget

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Candidates returns the budgets that can concern the tool in a task, in this order: those of the tenant, of the task, and of the
// tool. tenant may be nil.
func Candidates(tenant *switchboard.Tenant, task switchboard.TaskID, t *switchboard.Tool) []*switchboard.Budget {
	var all []*switchboard.Budget
	if tenant != nil {
		all = tenant.Budgets
		if task := tenant.Tasks[task]; task != nil && len(task.Budgets) > 0 {
			all = slices.Concat(all, task.Budgets)
		}
	}
	if t.Budget != nil {
		all = append(slices.Clip(all), t.Budget)
	}
	return all
}

// matchingBudgets returns the budgets that count the call.
func matchingBudgets(tenant *switchboard.Tenant, taxonomy *switchboard.Taxonomy, c *switchboard.Call) ([]*switchboard.Budget, error) {
	var matching []*switchboard.Budget
	for _, b := range Candidates(tenant, c.Task, c.Tool) {
		if Matches(&b.Match, c.Tool, taxonomy) {
			matching = append(matching, b)
		}
	}
	if n := len(matching); n > switchboard.MaxBudgets {
		e := switchboard.Refuse(switchboard.CodeNotPriced, "the call was not sent, because too many budgets count it")
		e.Unsent = true
		e.Hint = "whoever configures the budgets has to make them fewer"
		e.Cause = fmt.Errorf("%d budgets match %s; at most %d may match one call", n, c.Tool.ID, switchboard.MaxBudgets)
		return nil, e
	}
	return matching, nil
}

// Matches reports whether calls of the tool count. taxonomy may be nil; then a resource fits only itself.
func Matches(m *switchboard.BudgetMatch, t *switchboard.Tool, taxonomy *switchboard.Taxonomy) bool {
	pattern := func(s string) func(string) bool {
		return func(pattern string) bool { return switchboard.MatchPattern(pattern, s) }
	}
	switch {
	case len(m.Servers) > 0 && !slices.ContainsFunc(m.Servers, pattern(string(t.ID.Server))):
		return false
	case len(m.Tools) > 0 && !slices.ContainsFunc(m.Tools, func(p string) bool { return matchesTool(p, t.ID) }):
		return false
	case len(m.Classes) > 0 && !slices.Contains(m.Classes, t.Class):
		return false
	case len(m.Capabilities) > 0 && !slices.Contains(m.Capabilities, capabilityOf(t)):
		return false
	case len(m.CostClasses) > 0 && !slices.Contains(m.CostClasses, t.CostClass()):
		return false
	case len(m.Verbs) == 0 && len(m.Resources) == 0:
		return true
	}
	// What only a weaker source states counts too, because it makes the tool less free.
	fits := func(c switchboard.Capability) bool {
		return (len(m.Verbs) == 0 || slices.Contains(m.Verbs, c.Verb)) && (len(m.Resources) == 0 || isBelow(c.Resource, m.Resources, taxonomy))
	}
	return slices.ContainsFunc(t.Capabilities, fits) || slices.ContainsFunc(t.Kept, fits)
}

// capabilityOf returns the id of the named capability that the tool provides where it is called, or "".
func capabilityOf(t *switchboard.Tool) string {
	id, _, _ := strings.Cut(t.Contract.Capability, "@")
	return id
}

// matchesTool reports whether the tool fits a pattern server/tool.
func matchesTool(pattern string, id switchboard.ToolID) bool {
	server, name, _ := strings.Cut(pattern, "/")
	return switchboard.MatchPattern(server, string(id.Server)) && switchboard.MatchPattern(name, id.Name)
}

// isBelow reports whether the resource or one of its ancestors is in all.
func isBelow(r switchboard.Resource, all []switchboard.Resource, taxonomy *switchboard.Taxonomy) bool {
	if slices.Contains(all, r) {
		return true
	}
	return taxonomy != nil && slices.ContainsFunc(taxonomy.Ancestors(r), func(up switchboard.Resource) bool { return slices.Contains(all, up) })
}

// perValue returns what a budget distinguishes calls by.
func perValue(per switchboard.BudgetPer, c *switchboard.Call) string {
	switch per {
	case switchboard.PerPrincipal:
		return string(c.Principal.ID)
	case switchboard.PerTask:
		return string(c.Task)
	case switchboard.PerRun:
		return string(c.Run)
	case switchboard.PerTool:
		return c.Tool.ID.String()
	}
	return ""
}

// maxPerValue is the longest value that stands in the name of an account; of a longer one, the digest does.
const maxPerValue = 400

// accountValue returns what the budget distinguishes calls by, as it stands in the name of an account.
func accountValue(b *switchboard.Budget, c *switchboard.Call) string {
	value := perValue(b.Per, c)
	if len(value) > maxPerValue {
		digest := sha256.Sum256([]byte(value))
		value = "sha256:" + hex.EncodeToString(digest[:])
	}
	return value
}

// accountName returns the name of an account. The parts before the value have no spaces.
func accountName(b *switchboard.Budget, w Window, value string) string {
	return accountPrefix(b) + w.Label + " " + value
}

// accountPrefix begins the names of all accounts of a budget. If the budget changes what it counts, or divides calls or time in another
// way, it has other accounts.
func accountPrefix(b *switchboard.Budget) string {
	unit, per := "money", b.Per
	if b.Calls {
		unit = "calls"
	}
	if per == "" {
		per = switchboard.PerTenant
	}
	return fmt.Sprintf("%s %s %s %s ", b.Name(), unit, per, b.Window)
}
