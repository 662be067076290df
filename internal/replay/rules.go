package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// RuleCounts say in how many recorded decisions each rule of policy held, as the policies were then.
type RuleCounts struct {
	Since     time.Time
	Decisions int       // that were looked at, also those in NotReplayed
	Looked    *LookedAt // how far it has looked
	Fired     map[policy.RuleID]RuleCount

	// NotReplayed are the decisions that could not be evaluated again, by reason.
	NotReplayed []NotReplayed
}

// A RuleCount says how many decisions a rule held for.
type RuleCount struct {
	Decisions int
	Last      time.Time // of them
}

// rulePart is the number of decisions that are counted together. It is small, because an evaluation under a tracer takes long, and a part that the
// time is not enough for is not counted.
const rulePart = 32

// CountRules evaluates the policies of recorded decisions again, and counts the rules that held. Equal decisions of one day count once. m is the memory of
// the tenant of s, which it uses and fills.
func (o *DecisionOpener) CountRules(ctx context.Context, s Bounds, m *RuleMemory) (*RuleCounts, error) {
	timed, stop := s.limitTime(ctx)
	defer stop()
	r, looked, ends, err := m.read(ctx, timed, o.reader.records, &s)
	if err != nil {
		return nil, err
	}
	c := &ruleCounter{reader: o.reader, known: m.fired}
	if c.known == nil {
		c.known = map[firedKey]firedRules{}
	}
	defer func() { m.remember(&s, ends, r.all, c.known) }()
	all := &RuleCounts{Since: s.Since, Looked: looked, Fired: map[policy.RuleID]RuleCount{}}
	skipped := map[NotReplayed]int{}
	if r.damaged > 0 {
		skipped[NotReplayed{Why: whyDamaged}] = r.damaged
	}
	for part := range slices.Chunk(r.all, rulePart) {
		back := part[len(part)-1].when // before they are sorted by their bases
		slices.SortFunc(part, compareByBasis)
		found := make([]firedRules, len(part))
		for i, e := range part {
			found[i] = c.fired(timed, e)
		}
		if err := timed.Err(); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			break
		}
		for i, f := range found {
			if f.why != "" {
				skipped[NotReplayed{Why: f.why, Of: part[i].kind}]++
			}
			for _, id := range f.rules {
				n := all.Fired[id]
				n.Decisions++
				if part[i].when.After(n.Last) {
					n.Last = part[i].when
				}
				all.Fired[id] = n
			}
		}
		all.Decisions += len(part)
		looked.Back = back
	}
	if looked.Decisions = all.Decisions; looked.Complete() {
		looked.Back = s.Since
	}
	for why, n := range skipped {
		why.Decisions = n
		all.NotReplayed = append(all.NotReplayed, why)
	}
	slices.SortFunc(all.NotReplayed, func(a, b NotReplayed) int { return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Why, b.Why)) })
	return all, nil
}

// firedRules are the rules that held in a decision, or why that is not known.
type firedRules struct {
	rules []policy.RuleID
	why   string
}

// A ruleCounter finds the rules that held in decisions. It evaluates equal decisions of several days once.
type ruleCounter struct {
	reader *basisReader
	known  map[firedKey]firedRules
}

func (c *ruleCounter) fired(ctx context.Context, e *decisionRecord) (f firedRules) {
	key := e.firedKey()
	if f, ok := c.known[key]; ok {
		return f
	}
	p, questions, err := c.reader.questions(ctx, e)
	if err == nil {
		f.rules, err = policy.TraceFired(ctx, p, questions)
	}
	if err != nil {
		f = firedRules{why: skipReason(err)}
	}
	if ctx.Err() == nil {
		c.known[key] = f
	}
	e.text = nil // see comparison.replayJob
	return f
}

// questions returns the policy that made a recorded decision, and the questions that it was asked.
func (a *basisReader) questions(ctx context.Context, e *decisionRecord) (*policy.Policy, []*policy.CandidateQuestion, error) {
	r, err := a.replayers.get(e.basisKey(), func() (*replayer, error) {
		was, err := a.readBasis(ctx, e)
		if err != nil {
			return nil, err
		}
		t, err := a.rebuildTenant(was, 0)
		if err != nil {
			return nil, fmt.Errorf("the archived inputs of the decision are refused now: %w", err)
		}
		return &replayer{before: t}, nil
	})
	if err == nil {
		err = a.readText(ctx, e)
	}
	if err != nil {
		return nil, nil, err
	}
	if e.kind == kindCall {
		q, err := recordedCallQuestions(ctx, r.before, e.text)
		return r.before.Rules, q, err
	}
	q, err := a.selectionQuestions(ctx, r.before, e)
	return r.before.Rules, q, err
}

// selectionQuestions returns the questions of a decision on a task: one for each requirement.
func (a *basisReader) selectionQuestions(ctx context.Context, t *bind.Tenant, e *decisionRecord) (all []*policy.CandidateQuestion, err error) {
	of, err := decide.ReadRecord(e.text)
	if err != nil {
		return nil, err
	}
	task := t.Tasks[of.Task]
	if e.refs[textTask] != "" {
		var text []byte
		if text, err = archive.Read(ctx, a.records, e.refs[textTask]); err == nil {
			err = json.Unmarshal(text, &task)
		}
	}
	if task == nil || err != nil {
		return nil, errors.New("its task is not among those of the archived tenant")
	}
	for i := range task.Requirements {
		need := &task.Requirements[i]
		candidates, err := policyCandidates(t, ctx, of.Principal, task, need)
		if err != nil {
			return nil, err
		}
		all = append(all, &policy.CandidateQuestion{
			Phase: policy.PhaseSelect, Principal: of.Principal, Task: task, Requirement: need, Candidates: candidates, Now: cmp.Or(of.Now, e.when),
		})
	}
	return all, nil
}

// recordedCallQuestions returns the questions of a ruling on a call.
func recordedCallQuestions(ctx context.Context, t *bind.Tenant, text []byte) ([]*policy.CandidateQuestion, error) {
	was, err := readRuling(text)
	switch {
	case err != nil:
		return nil, err
	case was.Mixed:
		return nil, errors.New(whyMixed)
	case !was.Arguments.covers(t.Rules):
		return nil, errors.New(whyNoArguments)
	case was.Item.lacksURI(t.Rules):
		return nil, errors.New(whyNoURI)
	}
	call, elements, err := rebuildCall(t, ctx, &was, was.principal())
	if err != nil {
		return nil, err
	}
	return policy.CallQuestions(t.Rules, call, elements, was.Now)
}

// Inputs returns the inputs that policy got in a recorded decision on a task: one for each requirement, in their order. The error says why they are not known.
func (o *DecisionOpener) Inputs(ctx context.Context, when time.Time, decision, basis switchboard.Digest) (all []map[string]any, err error) {
	a := o.reader
	e := &decisionRecord{when: when, digest: decision, basis: basis}
	text, err := archive.Read(ctx, a.records, basis)
	if err == nil {
		err = json.Unmarshal(text, &e.refs)
	}
	if err != nil {
		return nil, errors.New(skipReason(err))
	}
	p, questions, err := a.questions(ctx, e)
	if err != nil {
		return nil, errors.New(skipReason(err))
	}
	for _, q := range questions {
		input, err := policy.InputOf(p, q)
		if err != nil {
			return nil, err
		}
		all = append(all, input)
	}
	return all, nil
}
