package policy

import (
	"context"
	"slices"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// What a run has touched (input.run.touched) is an input of calls alone: it is not known when a tool is selected, and it changes
// while the run lives. It has four values. So answers that depend on it are remembered as four answers, and a call costs a look-up
// once each has been asked for.
//
// A rule that reads it need not matter to a call: it may need a mode that the caller does not have, or be about tools of another
// flow. needsOf finds this in the compiled rule.

// ruleNeeds are values that a rule needs to fire; the zero value of each means that it needs none.
type ruleNeeds struct {
	mode  switchboard.Mode
	flows switchboard.Flows
	flow  switchboard.FlowBits // of the candidate that it decides about; counts only if the rule judges alone

	risk switchboard.RiskClass // of the candidate, likewise
}

// A touchRule is a rule of an answer that reads what the run has touched, itself or by a rule that it refers to.
type touchRule struct {
	ruleNeeds
	asks bool // it may ask for an approval
}

// touchRules returns the rules of answers that read what the run has touched.
func (l *Layer) touchRules(word tenantInputs) (all []touchRule) {
	for _, r := range l.rules {
		if r.Answer == "" {
			continue
		}
		reads, own := inputSet(0), r.needs
		for d := range liveRules(word, r) {
			reads |= d.reads
		}
		if reads&(readsTouched|readsAll) == 0 {
			continue
		}
		if !r.judgesAlone || reads&readsAll != 0 {
			own.flow = 0
		}
		all = append(all, touchRule{own, r.Answer == AnswerObligations && mayAskBy(word, r)})
	}
	return all
}

// knownInputs returns the inputs that are equal in all questions of the tenant.
func knownInputs(p *Policy) tenantInputs { return tenantInputs{p.settings.Value, p.tenant.Flows} }

// mayTouchMatter reports whether a ruling on calls of a tool with this flow may depend on what the run has touched.
func mayTouchMatter(p *Policy, mode switchboard.Mode, flow switchboard.FlowBits) bool {
	return slices.ContainsFunc(p.layers, func(v layerView) bool { return v.mayTouchMatter(mode, flow, false) })
}

// mayAskByTouch reports whether a rule may ask for an approval because of what the run has touched.
func mayAskByTouch(p *Policy, mode switchboard.Mode, flow switchboard.FlowBits) bool {
	return slices.ContainsFunc(p.layers, func(v layerView) bool { return v.mayTouchMatter(mode, flow, true) })
}

func (v layerView) mayTouchMatter(mode switchboard.Mode, flow switchboard.FlowBits, onlyAsking bool) bool {
	return flow != 0 && slices.ContainsFunc(v.touchRules, func(r touchRule) bool {
		return (r.mode == "" || r.mode == mode) && flow.Has(r.flow) && (r.asks || !onlyAsking)
	})
}

// LearnTouched returns the call with what its run has touched, if its tool carries data out, or if policy may read it. If the ruling
// may depend on it and it cannot be known, the call is refused.
func LearnTouched(ctx context.Context, p *Policy, c *switchboard.Call) (*switchboard.Call, error) {
	flow := c.Flow()
	if flow == 0 {
		return c, nil
	}
	must := rulingReadsTouched(p, c, flow)
	if !must && !flow.Has(switchboard.Carries) {
		return c, nil
	}
	touched := switchboard.Touched{Bits: switchboard.Touches, Known: true} // of a call without a run nothing is known
	if c.Flows != nil {
		var err error
		if touched, err = c.Flows.Known(ctx, must); err != nil {
			return nil, err
		}
	}
	if flow.Has(switchboard.Carries) {
		c.Trail.Carries(touched.Bits)
	}
	own := *c
	own.Touched = touched
	return &own, nil
}

// Touch returns a Caller that notes what the call touches before it passes it on. Put it above everything that can answer with a
// server's data, and below everything that can refuse the call. A call is refused if it cannot be noted although a rule of the
// principal's policy reads what the run has touched.
func Touch(current CurrentPolicy, next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		bits := c.Flow() & switchboard.Touches
		if bits == 0 || c.Flows == nil || c.Flows.Has(bits) {
			return next.Call(ctx, c)
		}
		_, p, err := current(c.Principal)
		if err != nil {
			return switchboard.Result{}, err
		}
		if err := c.Flows.Touch(ctx, bits, rulingReadsTouched(p, c, switchboard.AllFlows)); err != nil {
			return switchboard.Result{}, err
		}
		return next.Call(ctx, c)
	})
}

// rulingReadsTouched reports whether the ruling on the call may depend on what its run has touched.
func rulingReadsTouched(p *Policy, c *switchboard.Call, flow switchboard.FlowBits) bool {
	return slices.ContainsFunc(c.Judgments, func(j *switchboard.Judgment) bool {
		m, ok := j.Memory.(*judgmentMemory)
		return !ok || mayTouchMatter(p, effectiveMode(c.Principal, m.task), flow)
	})
}

// touchedAnswers are the answers of the layers that read neither phase nor arguments nor clock, by candidate and by what the run
// has touched. The zero value remembers none. It is safe for concurrent use.
type touchedAnswers struct {
	mu  sync.Mutex
	all map[touchedKey]*CandidateVerdict
}

type touchedKey struct {
	candidate int
	bits      switchboard.FlowBits
}

func (a *touchedAnswers) find(k touchedKey) *CandidateVerdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[k]
}

func (a *touchedAnswers) keep(k touchedKey, v *CandidateVerdict) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[touchedKey]*CandidateVerdict{}
	}
	a.all[k] = v
}

// judgeTouched returns the verdict of the layers with lasting answers on a call whose Touched is known. It asks them once for each
// candidate and each value. A failure is not remembered.
func (m *judgmentMemory) judgeTouched(ctx context.Context, j callJudge, judgment *switchboard.Judgment) CandidateVerdict {
	key := touchedKey{slices.IndexFunc(judgment.Candidates, func(t *switchboard.Tool) bool { return t.ID == j.call.Tool.ID }), j.call.Touched.Bits}
	if known := m.touched.find(key); known != nil {
		return *known
	}
	q, at := m.rebuildQuestion(j.policy, judgment, j.call.Tool, PhaseCall, j.call.Principal, j.now)
	q.Touched = j.call.Touched
	v := j.policy.verdictAt(ctx, &q, at, func(v layerView) bool { return v.reads == 0 })
	if v.Denied == nil || v.Denied.Code != switchboard.CodePolicyFailed {
		m.touched.keep(key, &v)
	}
	return v
}

// flowTerms are the lists of names of all sets of bits.
var flowTerms = func() (terms [switchboard.AllFlows + 1]*ast.Term) {
	for b := range terms {
		terms[b] = textTerms(switchboard.FlowBits(b).Names())
	}
	return terms
}()

// needsOf returns the values that the body needs: of input.mode and input.flows, and in the flow and the evidence of a candidate. It looks at
// equations with a text, and at "x" in c.flow, as they are written: not in rules that the body refers to. It stops at the first
// expression that could fail with an error, because an error is a denial too.
func needsOf(body ast.Body) (n ruleNeeds) {
	one := candidateVar(body)
	for _, e := range body {
		if len(e.With) > 0 {
			break
		}
		if bit, ok := flowNeeded(body, e, one); ok {
			n.flow |= bit
			continue
		}
		if !cannotFail(e) {
			break
		}
		a, b, ok := EquationSides(e)
		if !ok {
			continue
		}
		for _, side := range [][2]*ast.Term{{a, b}, {b, a}} {
			ref, ok := side[0].Value.(ast.Ref)
			text, isText := side[1].Value.(ast.String)
			if ok && isText && one != nil && ref.Equal(ast.Ref{one, keyEvidence, keyRisk}) {
				n.risk = switchboard.RiskClass(text)
			}
			if !ok || !isText || len(ref) != 2 || !ref[0].Equal(ast.InputRootDocument) {
				continue
			}
			switch {
			case ref[1].Equal(keyMode):
				n.mode = switchboard.Mode(text)
			case ref[1].Equal(keyFlows):
				n.flows = switchboard.Flows(text)
			}
		}
	}
	return n
}

// candidateVar returns the variable that the body binds to a candidate, or nil.
func candidateVar(body ast.Body) *ast.Term {
	for _, e := range body {
		a, b, ok := EquationSides(e)
		if !ok {
			continue
		}
		for _, side := range [][2]*ast.Term{{a, b}, {b, a}} {
			ref, ok := side[1].Value.(ast.Ref)
			if _, isVar := side[0].Value.(ast.Var); ok && isVar && len(ref) == 3 && ref[0].Equal(ast.InputRootDocument) && ref[1].Equal(keyCandidates) {
				return side[0]
			}
		}
	}
	return nil
}

// flowNeeded returns the bit that an expression "x" in c.flow needs, if c is the candidate. Such an expression cannot fail with an
// error. The compiler gives c.flow a name of its own, by an equation of the body.
func flowNeeded(body ast.Body, e *ast.Expr, one *ast.Term) (bit switchboard.FlowBits, ok bool) {
	if one == nil || e.Negated || !e.IsCall() {
		return 0, false
	}
	operands := e.Operands()
	if !e.Operator().Equal(ast.Member.Ref()) || len(operands) != 2 {
		return 0, false
	}
	name, isText := operands[0].Value.(ast.String)
	flow := ast.Ref{one, keyFlow}
	named := slices.ContainsFunc(body, func(e *ast.Expr) bool {
		a, b, ok := EquationSides(e)
		is := func(t *ast.Term) bool { ref, ok := t.Value.(ast.Ref); return ok && ref.Equal(flow) }
		return ok && (a.Equal(operands[1]) && is(b) || b.Equal(operands[1]) && is(a))
	})
	if !isText || !named {
		return 0, false
	}
	bit, err := switchboard.ReadFlowBits([]string{string(name)})
	return bit, err == nil
}

var keyFlow = ast.InternedTerm("flow")
