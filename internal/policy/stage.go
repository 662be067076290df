package policy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// StageName is the stage's word in explanations.
const StageName = "policy"

// Stage returns the stage that asks p about candidates. Where answers do not last,
// it remembers how tools look to policies, which takes some kilobytes for each; so
// it is made anew with every catalog.
func (p *Policy) Stage() decide.Stage { return &stage{policy: p} }

type stage struct {
	policy *Policy
	seen   sync.Map // *switchboard.Tool → *ast.Term
}

// Name implements decide.Stage.
func (*stage) Name() string { return StageName }

// Apply drops what a layer does not allow, and leaves with each of the others
// what a later call of it will be judged by. It never gives an error: candidates
// about which nobody can tell are denied.
func (s *stage) Apply(ctx context.Context, dq *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	tools := make([]*switchboard.Tool, len(in))
	for i, c := range in {
		tools[i] = c.Tool
	}
	q := Question{
		Phase: PhaseSelect, Principal: dq.Principal, Task: dq.Task, Requirement: dq.Requirement,
		Candidates: tools, Now: dq.Now, terms: s.terms(tools),
	}
	q.frame = newFrame(&q)
	m := &memory{policy: s.policy, principal: dq.Principal, task: dq.Task}
	if !s.policy.Lasting() { // else nobody asks again, but for a moment after a reload
		m.terms, m.frame = q.terms, q.frame
	}
	j := &switchboard.Judgment{Requirement: dq.Requirement, Candidates: tools, Memory: m}
	denied := m.choose(ctx, &q)
	out := in[:0]
	for i, c := range in {
		if why := denied[i]; why != nil {
			drop(c, decide.Reason{Code: why.Code, Text: why.String(), Veto: why.Veto})
			continue
		}
		if other := dq.Vetoed[c.Tool.ID]; other != nil {
			drop(c, decide.Reason{Code: switchboard.CodeDenied, Text: fmt.Sprintf("it is vetoed for %s, and a veto counts for the whole task", other), Veto: true})
			continue
		}
		c.Judgment = j
		out = append(out, c)
	}
	return out, ctx.Err()
}

// terms returns what candidates look like to policies; nil where one cannot be
// shown, so that Judge says which.
func (s *stage) terms(tools []*switchboard.Tool) []*ast.Term {
	if len(s.policy.layers) == 0 {
		return nil
	}
	out := make([]*ast.Term, len(tools))
	for i, t := range tools {
		known, ok := s.seen.Load(t)
		if !ok {
			made, err := candidate(t)
			if err != nil {
				return nil
			}
			known = made
			if !s.policy.Lasting() || s.policy.recall != nil {
				known, _ = s.seen.LoadOrStore(t, made)
			}
		}
		out[i] = known.(*ast.Term)
	}
	return out
}

// memory is what stays of a Question and its Answer, to ask again by.
type memory struct {
	policy    *Policy
	principal switchboard.Principal
	task      *switchboard.Task
	terms     []*ast.Term
	frame     *frame

	// kept are the obligations of the layers whose answer lasts, by the
	// candidate's place; nil where there are none.
	kept []switchboard.Obligations

	// asked are those of the other layers, as they were then; nil unless the
	// policy is Recalling.
	asked []switchboard.Obligations
}

// choose asks what may be selected, which is what may also be listed, and
// remembers.
func (m *memory) choose(ctx context.Context, q *Question) []*Denial {
	denied := make([]*Denial, len(q.Candidates))
	keep := func(a *Answer) {
		for i := range a.Verdicts {
			switch now := a.Verdicts[i].Denied; {
			case denied[i] == nil:
				denied[i] = now
			case now != nil && now.Veto && !denied[i].Veto:
				both := *denied[i]
				both.Veto = true
				denied[i] = &both
			}
		}
	}
	p := m.policy
	lasting := p.judge(ctx, q, func(v view) bool { return v.reads == 0 })
	keep(lasting)
	for i := range lasting.Verdicts {
		if !lasting.Verdicts[i].Obligations.None() {
			m.kept = make([]switchboard.Obligations, len(q.Candidates))
			for i := range lasting.Verdicts {
				m.kept[i] = lasting.Verdicts[i].Obligations
			}
			break
		}
	}
	if p.reads != 0 {
		a := p.judge(ctx, q, passing)
		keep(a)
		if p.recall != nil {
			m.asked = make([]switchboard.Obligations, len(q.Candidates))
			for i := range a.Verdicts {
				m.asked[i] = a.Verdicts[i].Obligations
			}
		}
	}
	if p.reads&(readsPhase|readsAll) != 0 {
		list := *q
		list.Phase = PhaseList
		keep(p.judge(ctx, &list, passing))
	}
	return denied
}

// passing are the layers whose answers may change.
func passing(v view) bool { return v.reads != 0 }

// fits reports whether what is remembered was said by this policy, of this
// principal.
func (m *memory) fits(p *Policy, who switchboard.Principal) bool {
	return m.policy == p && alike(&m.principal, &who)
}

// alike reports whether policy cannot tell two principals apart.
func alike(a, b *switchboard.Principal) bool {
	return a.ID == b.ID && a.Tenant == b.Tenant && a.Auth == b.Auth &&
		a.Tier == b.Tier && a.Mode == b.Mode && slices.Equal(a.Roles, b.Roles)
}

// again makes a question of what is remembered. Where every layer that is asked
// judges each candidate alone, it is about the one; else about all, as it was.
// It returns the candidate's place too.
func (m *memory) again(p *Policy, j *switchboard.Judgment, tool *switchboard.Tool, phase Phase, who switchboard.Principal, now time.Time) (q Question, at int) {
	q = Question{Phase: phase, Principal: who, Task: m.task, Requirement: j.Requirement, Candidates: j.Candidates, Now: now, terms: m.terms}
	if m.fits(p, who) {
		q.frame = m.frame
	}
	if tool == nil {
		return q, -1
	}
	at = slices.IndexFunc(j.Candidates, func(t *switchboard.Tool) bool { return t.ID == tool.ID })
	if at >= 0 && !slices.ContainsFunc(p.layers, func(v view) bool { return !v.alone }) {
		q.Candidates = j.Candidates[at : at+1]
		if q.terms != nil {
			q.terms = q.terms[at : at+1]
		}
		at = 0
	}
	return q, at
}
