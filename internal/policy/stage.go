package policy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// StageName names the stage in explanations.
const StageName = "policy"

// Stage returns the stage that asks p about candidates. If answers may change later, it remembers
// the policy terms of each tool, which takes some kilobytes for each. So make a new stage for every
// catalog.
func (p *Policy) Stage() decide.Stage { return &policyStage{policy: p} }

type policyStage struct {
	policy *Policy
	seen   toolTerms
}

// Name implements decide.Stage.
func (*policyStage) Name() string { return StageName }

// Apply drops the candidates that a layer does not allow. To each other candidate it attaches the
// judgment that later calls of it are checked against. It returns no policy errors: a candidate
// that cannot be judged is denied.
func (s *policyStage) Apply(ctx context.Context, dq *decide.Question, in []decide.Candidate, drop decide.Drop) ([]decide.Candidate, error) {
	tools := make([]*switchboard.Tool, len(in))
	for i, c := range in {
		tools[i] = c.Tool
	}
	q := CandidateQuestion{
		Phase: PhaseSelect, Principal: dq.Principal, Task: dq.Task, Requirement: dq.Requirement,
		Candidates: tools, Now: dq.Now, terms: s.terms(tools),
	}
	q.frame = newFrame(&q)
	m := &judgmentMemory{policy: s.policy, principal: dq.Principal, task: dq.Task}
	if !s.policy.Lasting() { // otherwise no layer is asked again, except briefly after a reload
		m.terms, m.frame = q.terms, q.frame
	}
	j := &switchboard.Judgment{Requirement: dq.Requirement, Candidates: tools, Memory: m}
	denied := m.judgeSelection(ctx, &q)
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

// terms returns the policy terms of the tools; nil if one of them has none.
func (s *policyStage) terms(tools []*switchboard.Tool) []*ast.Term {
	switch {
	case len(s.policy.layers) == 0:
		return nil
	case !s.policy.Lasting() || s.policy.memo != nil:
		return s.seen.find(tools)
	}
	return s.policy.engine.terms.table().find(tools)
}

// A judgmentMemory holds the parts of a Question and its Answer that are needed to ask again.
type judgmentMemory struct {
	policy    *Policy
	principal switchboard.Principal
	task      *switchboard.Task
	terms     []*ast.Term
	frame     *inputFrame

	// lastingObligations holds the obligations of the layers with lasting answers, by the index of
	// the candidate; nil if there are none.
	lastingObligations []switchboard.Obligations

	// otherObligations holds the obligations of the other layers at the time of the selection; nil
	// unless the policy is Recalling.
	otherObligations []switchboard.Obligations

	// asks says which candidates another layer's rules obliged to have an approval at the selection; nil means none.
	asks []bool

	unknown []string // see Answer.Unknown

	touched touchedAnswers
}

// UnknownIDs returns the ids that a layer named at the selection of the candidate, although they were no candidates;
// sorted. known is false if no policy stage has selected the candidate.
func UnknownIDs(c decide.Candidate) (ids []string, known bool) {
	if c.Judgment == nil {
		return nil, false
	}
	m, ok := c.Judgment.Memory.(*judgmentMemory)
	if !ok {
		return nil, false
	}
	return m.unknown, true
}

// judgeSelection asks which candidates may be selected and may also be listed, and remembers the
// obligations.
func (m *judgmentMemory) judgeSelection(ctx context.Context, q *CandidateQuestion) []*Denial {
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
	lasting := p.judgeLayers(ctx, q, func(v layerView) bool { return v.reads == 0 })
	keep(lasting)
	m.unknown = lasting.Unknown
	for i := range lasting.Verdicts {
		if !lasting.Verdicts[i].Obligations.Empty() {
			m.lastingObligations = make([]switchboard.Obligations, len(q.Candidates))
			for i := range lasting.Verdicts {
				m.lastingObligations[i] = lasting.Verdicts[i].Obligations
			}
			break
		}
	}
	if p.reads != 0 {
		a := p.judgeLayers(ctx, q, mayChange)
		keep(a)
		if len(a.Unknown) > 0 {
			m.unknown = slices.Concat(m.unknown, a.Unknown)
			slices.Sort(m.unknown)
			m.unknown = slices.Compact(m.unknown)
		}
		for i := range a.Verdicts {
			if a.Verdicts[i].Obligations.Approval != nil {
				if m.asks == nil {
					m.asks = make([]bool, len(q.Candidates))
				}
				m.asks[i] = true
			}
		}
		if p.memo != nil {
			m.otherObligations = make([]switchboard.Obligations, len(q.Candidates))
			for i := range a.Verdicts {
				m.otherObligations[i] = a.Verdicts[i].Obligations
			}
		}
	}
	if p.reads&(readsPhase|readsAll) != 0 {
		list := *q
		list.Phase = PhaseList
		keep(p.judgeLayers(ctx, &list, mayChange))
	}
	return denied
}

// mayChange reports whether the answers of the layer may change.
func mayChange(v layerView) bool { return v.reads != 0 }

// matches reports whether the remembered answer is by this policy, about this principal.
func (m *judgmentMemory) matches(p *Policy, who switchboard.Principal) bool {
	return m.policy == p && samePrincipal(&m.principal, &who)
}

// samePrincipal reports whether two principals are equal for policy.
func samePrincipal(a, b *switchboard.Principal) bool {
	return a.ID == b.ID && a.Tenant == b.Tenant && a.Auth == b.Auth &&
		a.Tier == b.Tier && a.Mode == b.Mode && slices.Equal(a.Roles, b.Roles)
}

// rebuildQuestion rebuilds a question from memory. If every layer judges each candidate alone, the
// question is about tool only, else about all candidates. It also returns the index of tool.
func (m *judgmentMemory) rebuildQuestion(p *Policy, j *switchboard.Judgment, tool *switchboard.Tool, phase Phase, who switchboard.Principal, now time.Time) (q CandidateQuestion, at int) {
	q = CandidateQuestion{Phase: phase, Principal: who, Task: m.task, Requirement: j.Requirement, Candidates: j.Candidates, Now: now, terms: m.terms}
	if m.matches(p, who) {
		q.frame = m.frame
	}
	if tool == nil {
		return q, -1
	}
	at = slices.IndexFunc(j.Candidates, func(t *switchboard.Tool) bool { return t.ID == tool.ID })
	if at >= 0 && !slices.ContainsFunc(p.layers, func(v layerView) bool { return !v.judgesAlone }) {
		q.Candidates = j.Candidates[at : at+1]
		if q.terms != nil {
			q.terms = q.terms[at : at+1]
		}
		at = 0
	}
	return q, at
}
