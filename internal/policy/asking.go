package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// typeApproval is the type of the obligation that asks a person.
const typeApproval = "require_approval"

// maxAskingReason limits the words of a rule, in bytes.
const maxAskingReason = 500

// findAskingRules finds out which rules oblige the call to have an approval. Each rule is asked alone, because an answer does not say which rule
// gave it.
func (j callJudge) findAskingRules(ctx context.Context) (all []switchboard.AskingRule, err error) {
	for _, judgment := range j.call.Judgments {
		q, at, err := j.questionAbout(judgment, PhaseCall)
		if err != nil {
			return nil, err
		}
		if at < 0 {
			return nil, noSuchTool(errors.New("it was no candidate"))
		}
		in, err := j.policy.buildInput(&q)
		if err != nil {
			return nil, err
		}
		for _, v := range j.policy.layers {
			some, err := j.policy.askRulesAlone(ctx, v, in, &q, q.Candidates[at])
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	slices.SortFunc(all, func(a, b switchboard.AskingRule) int {
		return cmp.Or(strings.Compare(a.Layer, b.Layer), strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Reason, b.Reason))
	})
	return slices.Compact(all), nil
}

// askRulesAlone returns the rules of a layer that oblige calls of the candidate to have an approval.
func (p *Policy) askRulesAlone(ctx context.Context, v layerView, in *ast.Term, q *CandidateQuestion, c *switchboard.Tool) (all []switchboard.AskingRule, err error) {
	pieces := v.pieces()
	if pieces == nil { // the layer is one rule, in a way
		raw, err := p.engine.eval(ctx, p.share, v, in, q.Now)
		if err != nil {
			return nil, err
		}
		for _, reason := range approvalsIn(raw, c) {
			all = append(all, switchboard.AskingRule{Layer: string(v.kind), Reason: reason, Digest: v.digest})
		}
		return all, nil
	}
	mode := effectiveMode(q.Principal, q.Task)
	for _, r := range pieces.rules {
		if r.needs.mode != "" && r.needs.mode != mode { // it cannot fire, nor fail
			continue
		}
		if r.pieceAnswer() != AnswerObligations || len(liveRules(knownInputs(p), r)) == 0 {
			continue
		}
		own := *pieces
		own.variables = []answerVariable{{"piece", AnswerObligations}}
		own.queries = own.compiler.QueryCompiler()
		if own.query, err = own.queries.Compile(mustParseBody(fmt.Sprintf("piece = [x | x := %s[%q]]", v.kind.rootRef(), r.Head.Reference[0].Value))); err != nil {
			return nil, err
		}
		raw, err := p.engine.eval(ctx, p.share, layerView{Layer: &own}, in, q.Now)
		if err != nil {
			return nil, err
		}
		for _, reason := range approvalsIn(raw, c) {
			rule := switchboard.AskingRule{Layer: string(v.kind), Reason: reason, Digest: v.digest}
			if at := r.Location; at != nil {
				rule.File, rule.Line, rule.Digest = at.File, at.Row, canonical.Sum(at.Text)
			}
			all = append(all, rule)
		}
	}
	return all, nil
}

// approvalsIn returns the reasons of the obligations for a candidate that ask a person; "" for one without a reason.
func approvalsIn(raw *rawAnswer, c *switchboard.Tool) (reasons []string) {
	s := answerSorter{answer: &Answer{}, at: sortIDs([]*switchboard.Tool{c})}
	_ = s.sets(AnswerObligations, raw.obligations, func(_ int, o *ast.Term) error { // the whole layer's answer was read without an error
		obj, ok := o.Value.(ast.Object)
		if !ok {
			return nil
		}
		if kind, _ := stringMember(obj, "type"); kind == typeApproval {
			reason, _ := stringMember(obj, "reason")
			if len(reason) > maxAskingReason {
				reason = strings.ToValidUTF8(reason[:maxAskingReason], "") + "…"
			}
			reasons = append(reasons, reason)
		}
		return nil
	})
	return reasons
}

// nameAskingRules writes the names of the rules that ask for the approval into o.
func (j callJudge) nameAskingRules(ctx context.Context, o *switchboard.Obligations) error {
	rules, err := j.findAskingRules(ctx)
	if err != nil {
		return denialError(&Denial{Code: switchboard.CodePolicyFailed, Layer: Operator, Reasons: []string{"which rule asks for an approval could not be found out: " + err.Error()}})
	}
	own := *o.Approval
	own.Rules = rules
	o.Approval = &own
	return nil
}

// JudgeApproval asks every layer, in the phase approve, whether the person may say yes to the call. nil means that no layer denies it; else the
// error is of SB-POL-001 or 002.
func (p *Policy) JudgeApproval(ctx context.Context, c *switchboard.Call, by *switchboard.Officer, now time.Time) error {
	if len(p.layers) == 0 {
		return nil
	}
	if len(c.Judgments) == 0 {
		return noSuchTool(errors.New("it was never judged"))
	}
	for _, judgment := range c.Judgments {
		q, at, err := callJudge{p, c, now, nil}.questionAbout(judgment, PhaseApprove)
		if err != nil {
			return err
		}
		q.Approver = by
		if v := p.verdictAt(ctx, &q, at, func(layerView) bool { return true }); v.Denied != nil {
			return p.hideArguments(denialError(v.Denied), c)
		}
	}
	return nil
}

// MayAsk reports whether policy may oblige calls of a tool to have an approval, by the judgments that selected it.
func MayAsk(t *switchboard.Tool, judgments []*switchboard.Judgment) bool {
	return slices.ContainsFunc(judgments, func(j *switchboard.Judgment) bool {
		m, ok := j.Memory.(*judgmentMemory)
		if !ok {
			return false
		}
		if m.policy.asksLate || mayAskByTouch(m.policy, effectiveMode(m.principal, m.task), t.Contract.Flow.Bits) {
			return true
		}
		at := slices.IndexFunc(j.Candidates, func(o *switchboard.Tool) bool { return o.ID == t.ID })
		return at >= 0 && (m.lastingObligations != nil && m.lastingObligations[at].Approval != nil || m.asks != nil && m.asks[at])
	})
}

// asksLate reports whether a rule of the layer may ask for an approval because of something that is not known when a tool is selected.
func (l *Layer) asksLate(word tenantInputs) bool {
	return slices.ContainsFunc(l.rules, func(r *CompiledRule) bool {
		if r.Answer != AnswerObligations {
			return false
		}
		reads := inputSet(0)
		for d := range liveRules(word, r) {
			reads |= d.reads
		}
		return reads&readsLate != 0 && mayAskBy(word, r)
	})
}

// mayAskBy reports whether the obligation of a rule may be one to have an approval.
func mayAskBy(word tenantInputs, r *CompiledRule) bool {
	names, mentions := false, false
	for d := range liveRules(word, r) {
		ast.WalkTerms(d.Rule, func(t *ast.Term) bool {
			if s, ok := t.Value.(ast.String); ok {
				_, known := obligationMembers[string(s)]
				names = names || known
				mentions = mentions || string(s) == typeApproval
			}
			return false
		})
	}
	return mentions || !names // a rule that names no obligation takes it from data, or makes it
}
