package bind

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxTriedTools limits how many tasks TriedTools remembers.
const maxTriedTools = 500

// TriedTools remembers which tools tasks get by one state: each look at a draft asks again for those by the state in force. Use the zero value. It is safe for concurrent use.
type TriedTools struct {
	mu    sync.Mutex
	of    weak.Pointer[State]    // weak, so that no old state is kept in memory
	tasks map[triedKey]triedTask // at most maxTriedTools
}

type triedKey struct {
	tenant switchboard.TenantID
	task   switchboard.TaskID
}

// A triedTask is what a decision has given a task. Beside the state, the decision depends on the principal and on what was seen, and on nothing else.
type triedTask struct {
	principal switchboard.Principal
	seen      decide.Observed
	TriedTask
}

// A TriedTask says which tools a task would get.
type TriedTask struct {
	Tools []string // server/tool, in the order of the list
	Met   []MetRequirement
	Why   string // why it gets none
}

// A MetRequirement is a requirement with the tools that were selected for it.
type MetRequirement struct {
	Requirement *switchboard.Requirement
	Tools       []string // server/tool
}

// ToolsOf returns the tools that a task gets by a state, for a principal that may bind it. seen is what decisions read of the world now.
func (m *TriedTools) ToolsOf(ctx context.Context, s *State, tenant switchboard.TenantID, task switchboard.TaskID, seen decide.Observed) TriedTask {
	p, ok := s.Ring.Someone(tenant, task)
	if !ok {
		return TriedTask{Tools: []string{}, Why: "no key may bind it"}
	}
	p, err := s.CurrentPrincipal(p)
	if err != nil {
		return TriedTask{Tools: []string{}, Why: textOfRefusal(err)}
	}
	if known := m.find(s, triedKey{tenant, task}); known != nil && reflect.DeepEqual(known.principal, p) && reflect.DeepEqual(known.seen, seen) {
		return known.TriedTask
	}
	if t := s.Tenants[tenant]; t != nil {
		policy.KeepTerms(t.Rules)
	}
	d, err := s.DecideConfigured(ctx, p, task, seen, time.Now())
	if err != nil {
		return TriedTask{Tools: []string{}, Why: textOfRefusal(err)}
	}
	out := TriedTask{Tools: []string{}}
	if err := d.Err(); err != nil {
		out.Why = textOfRefusal(err)
	} else {
		for _, o := range d.Outcomes {
			met := MetRequirement{Requirement: o.Requirement}
			for _, c := range o.Selected {
				name := c.Tool.ID.String()
				met.Tools = append(met.Tools, name)
				if !slices.Contains(out.Tools, name) {
					out.Tools = append(out.Tools, name)
				}
			}
			out.Met = append(out.Met, met)
		}
	}
	if d.Now.IsZero() && !policyHasFailed(d) {
		m.keep(s, triedKey{tenant, task}, triedTask{p, seen, out})
	}
	return out
}

// find returns what is known about a task by a state; nil if nothing is.
func (m *TriedTools) find(s *State, k triedKey) *triedTask {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.tasks[k]; ok && m.of == weak.Make(s) {
		return &known
	}
	return nil
}

// keep remembers the task in the place of all that is known by other states.
func (m *TriedTools) keep(s *State, k triedKey, t triedTask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if of := weak.Make(s); m.of != of || len(m.tasks) >= maxTriedTools {
		m.of, m.tasks = of, map[triedKey]triedTask{}
	}
	m.tasks[k] = t
}

// policyHasFailed reports whether a layer could not be evaluated for a candidate. It may have taken too long, and can succeed the next time.
func policyHasFailed(d *decide.Decision) bool {
	return slices.ContainsFunc(d.Outcomes, func(o decide.RequirementOutcome) bool {
		return slices.ContainsFunc(o.Dropped, func(c decide.Dropped) bool { return c.Reason.Code == switchboard.CodePolicyFailed })
	})
}

func textOfRefusal(err error) string {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own.Text
	}
	return err.Error()
}
