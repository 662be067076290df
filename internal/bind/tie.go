package bind

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxTied limits the tools that the warning of a tie names.
const maxTied = 5

// FindTie returns the tools that the ranking does not order behind the one tool of "select: tool",
// and a warning that says how to choose. It returns nothing if there are none.
func FindTie(o *decide.RequirementOutcome) (tied []string, warning string) {
	behind := o.Tied()
	if len(behind) == 0 {
		return nil, ""
	}
	first := o.Selected[0].Tool.ID
	for _, c := range behind {
		tied = append(tied, c.Tool.ID.String())
	}
	var ways []string
	if slices.ContainsFunc(behind, func(c decide.Candidate) bool { return c.Tool.ID.Server != first.Server }) {
		ways = append(ways, "rank the servers (ranking: in tenant.yaml)")
	}
	ways = append(ways, fmt.Sprintf("name the tool (tools: [%q])", first))
	if !o.Requirement.ByName() {
		ways = append(ways, "require a constraint that only the right tool carries")
	}
	named := strings.Join(tied[:min(len(tied), maxTied)], ", ")
	if more := len(tied) - maxTied; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return tied, fmt.Sprintf("only its name puts %s before %s; to choose, %s", first, named, strings.Join(ways, ", or "))
}

// maxTies limits the ties that are remembered.
const maxTies = 1000

// A tieLog remembers which ties were logged. Its zero value is ready for use, and safe for
// concurrent use.
type tieLog struct {
	mu     sync.Mutex
	logged map[tieKey]bool
}

// A tieKey is one tie of one task.
type tieKey struct {
	tenant        switchboard.TenantID
	task          switchboard.TaskID
	need, warning string
}

// addNew adds the tie and reports whether it is new since the last clear.
func (t *tieLog) addNew(k tieKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.logged[k] {
		return false
	}
	if t.logged == nil || len(t.logged) >= maxTies {
		t.logged = map[tieKey]bool{}
	}
	t.logged[k] = true
	return true
}

// clear forgets all ties, because the configuration has changed.
func (t *tieLog) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logged = nil
}

// log logs the ties of the decision, each once, and again after a change of the tie or a clear.
func (t *tieLog) log(log *slog.Logger, d *decide.Decision) {
	for i := range d.Outcomes {
		o := &d.Outcomes[i]
		_, warning := FindTie(o)
		if warning == "" {
			continue
		}
		need := o.Requirement.String()
		if t.addNew(tieKey{d.Tenant, d.Task.ID, need, warning}) {
			log.Warn("a name alone decides which tool serves a requirement", "tenant", d.Tenant, "task", d.Task.ID, "requirement", need, "why", warning)
		}
	}
}
