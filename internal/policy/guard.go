package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Current returns the principal as the configuration knows it now, which may differ from the
// principal in the request, and the policy of its tenant. Both belong to the same snapshot. An
// error is a *switchboard.Error: the principal may call nothing.
type Current func(switchboard.Principal) (switchboard.Principal, *Policy, error)

// A Ruling is policy's decision on one call.
type Ruling struct {
	// Err is a *switchboard.Error that says why the call may not be made; nil if it may.
	Err         error
	Obligations switchboard.Obligations

	// Asked says that a layer was asked for this call. Otherwise the decision at the selection of
	// its tool still holds.
	Asked bool

	// Mixed says that the call was selected under another policy than the one that judged it,
	// because of a reload in between.
	Mixed bool
}

// A Note records a ruling of p on c at an instant. It must return quickly.
type Note func(c *switchboard.Call, p *Policy, now time.Time, r Ruling)

// Guard returns a Caller that asks the policy from current about each call. It refuses a call with
// SB-CAP-001 if the principal may not even see the tool now, and with SB-POL-001 to 003 if this
// call is denied. It carries out obligations or refuses the call. If note is not nil, it gets every
// refusal and every ruling that a layer was asked for.
func Guard(current Current, note Note, log *slog.Logger, next switchboard.Caller) switchboard.Caller {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		who, p, err := current(c.Principal)
		if err != nil {
			return switchboard.Result{}, err
		}
		if !samePrincipal(&who, &c.Principal) {
			own := *c
			own.Principal = who
			c = &own
		}
		now := time.Now()
		r := p.Rule(ctx, c, now)
		if note != nil && (r.Asked || r.Err != nil) {
			note(c, p, now, r)
		}
		if r.Err != nil {
			return switchboard.Result{}, p.hideArguments(p.markLater(ctx, r.Err, c, now), c)
		}
		r.Obligations.Detect = union(r.Obligations.Detect, enforcedDetectors(c))
		if r.Obligations.None() {
			return next.Call(ctx, c)
		}
		return callUnderObligations(ctx, r.Obligations, c, log, next)
	})
}

// enforcedDetectors returns the detectors that the operator requires for results of the call. An
// item that is not a tool gets those of all tools of its server, as in permitServer.
func enforcedDetectors(c *switchboard.Call) (all []switchboard.Detector) {
	if c.Tool != nil {
		return c.Tool.Redact
	}
	for _, j := range c.Judgments {
		for _, t := range j.Candidates {
			if t.ID.Server == c.Server {
				all = union(all, t.Redact)
			}
		}
	}
	return all
}

// laterDelays lists the delays that markLater tries: within a day, and within a week of working
// days.
var laterDelays = []time.Duration{time.Hour, 4 * time.Hour, 8 * time.Hour, 12 * time.Hour, 16 * time.Hour, 24 * time.Hour, 48 * time.Hour, 72 * time.Hour}

// markLater sets Later in err, a denial of the call, if only the clock denies it: the same call is
// allowed at another time.
func (p *Policy) markLater(ctx context.Context, err error, c *switchboard.Call, now time.Time) error {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok || own.Code != switchboard.CodeDenied || !p.ReadsClock() {
		return err
	}
	for _, by := range laterDelays {
		if p.Rule(ctx, c, now.Add(by)).Err == nil {
			told := *own
			told.Later = true
			return &told
		}
	}
	return err
}

// Rule says whether the call may be made, and under which obligations. It does not carry them out.
func (p *Policy) Rule(ctx context.Context, c *switchboard.Call, now time.Time) (r Ruling) {
	if len(p.layers) == 0 {
		return r
	}
	for _, j := range c.Judgments {
		if m, ok := j.Memory.(*judgmentMemory); ok && m.policy != p {
			r.Mixed = true
		}
	}
	if c.Tool == nil {
		r.Obligations, r.Asked, r.Err = p.permitServer(ctx, c, now)
		if r.Err == nil {
			var more switchboard.Obligations
			more, r.Err = p.permitItem(ctx, c, now)
			r.Asked = true
			addObligations(&r.Obligations, more)
		}
		r.Err = p.refuseUnsupported(r)
		return r
	}
	if len(c.Judgments) == 0 {
		r.Err = noSuchTool(errors.New("it was never judged"))
	}
	for _, j := range c.Judgments {
		m, ok := j.Memory.(*judgmentMemory)
		if !ok {
			r.Err = noSuchTool(errors.New("it was never judged"))
			break
		}
		more, asked, err := p.permitTool(ctx, c, j, m, now)
		r.Asked = r.Asked || asked
		if err != nil {
			r.Err = err
			break
		}
		addObligations(&r.Obligations, more)
	}
	r.Err = p.refuseUnsupported(r)
	return r
}

// refuseUnsupported refuses a call with an obligation that Switchboard cannot carry out.
func (p *Policy) refuseUnsupported(r Ruling) error {
	if r.Err == nil && len(r.Obligations.Notify) > 0 {
		return denialError(&Denial{Code: switchboard.CodeObligation, Reasons: []string{fmt.Sprintf("notify %q: Switchboard cannot notify anyone yet", r.Obligations.Notify)}})
	}
	return r.Err
}

// Judged returns a Judgment for a call that all layers must judge, for the requirement r of the
// task with these candidates.
func Judged(task *switchboard.Task, r *switchboard.Requirement, candidates []*switchboard.Tool) *switchboard.Judgment {
	return &switchboard.Judgment{Requirement: r, Candidates: candidates, Memory: &judgmentMemory{task: task}}
}

func (p *Policy) permitTool(ctx context.Context, c *switchboard.Call, j *switchboard.Judgment, m *judgmentMemory, now time.Time) (o switchboard.Obligations, asked bool, err error) {
	ask := func(layerView) bool { return true }
	fits := m.matches(p, c.Principal)
	if fits {
		if m.lastingObligations != nil {
			if at := slices.IndexFunc(j.Candidates, func(t *switchboard.Tool) bool { return t.ID == c.Tool.ID }); at >= 0 {
				o = m.lastingObligations[at]
			}
		}
		if p.reads == 0 {
			return o, false, nil
		}
		ask = mayChange
	}
	if !fits || p.reads&^readsCall != 0 {
		// If the tool may not be listed now, it does not exist for this principal.
		q, at := m.rebuildQuestion(p, j, c.Tool, PhaseList, c.Principal, now)
		if why := p.verdictAt(ctx, &q, at, ask).Denied; why != nil {
			if why.Code == switchboard.CodeDenied {
				return o, true, noSuchTool(errors.New(why.String()))
			}
			return o, true, denialError(why)
		}
	}
	q, at := m.rebuildQuestion(p, j, c.Tool, PhaseCall, c.Principal, now)
	q.Arguments, _ = wire.Field(c.Params, "arguments")
	v := p.verdictAt(ctx, &q, at, ask)
	if v.Denied != nil {
		return o, true, denialError(v.Denied)
	}
	addObligations(&o, v.Obligations)
	return o, true, nil
}

// permitServer checks a call of an item that is not a tool. It is allowed as long as one tool of
// its server is allowed. If policy redacts results of any of these tools, it redacts the result of
// the item too.
func (p *Policy) permitServer(ctx context.Context, c *switchboard.Call, now time.Time) (o switchboard.Obligations, asked bool, err error) {
	var why *Denial
	allowed := false
	for _, j := range c.Judgments {
		m, ok := j.Memory.(*judgmentMemory)
		if !ok {
			continue
		}
		fits := m.matches(p, c.Principal)
		for i, t := range j.Candidates {
			if fits && m.lastingObligations != nil && t.ID.Server == c.Server {
				addObligations(&o, redaction(&m.lastingObligations[i]))
			}
		}
		if p.reads == 0 && fits {
			allowed = true
			continue
		}
		asked = true
		q, _ := m.rebuildQuestion(p, j, nil, PhaseList, c.Principal, now)
		for i, v := range p.judgeLayers(ctx, &q, func(layerView) bool { return true }).Verdicts {
			if q.Candidates[i].ID.Server != c.Server {
				continue
			}
			if v.Denied == nil {
				allowed = true
				addObligations(&o, redaction(&v.Obligations))
			} else {
				why = v.Denied
			}
		}
	}
	if why == nil || allowed { // why is nil if no tool of its server was selected
		return o, asked, nil
	}
	return o, asked, denialError(why)
}

// permitItem asks every layer about an item that is not a tool, as a candidate of its own in the
// phase call. It asks once for each requirement that selected tools of its server, and all must
// allow it.
func (p *Policy) permitItem(ctx context.Context, c *switchboard.Call, now time.Time) (o switchboard.Obligations, err error) {
	if len(c.Judgments) == 0 {
		return o, noSuchTool(errors.New("it was never judged"))
	}
	for _, j := range c.Judgments {
		q, at, err := p.questionAbout(c, j, PhaseCall, now)
		if err != nil {
			return o, err
		}
		v := p.verdictAt(ctx, &q, at, func(layerView) bool { return true })
		if v.Denied != nil {
			return o, denialError(v.Denied)
		}
		addObligations(&o, v.Obligations)
	}
	return o, nil
}

// PermitAsk says whether the server of a call may ask its client something: nil, or an error of
// SB-POL-001 or 002. It asks every layer about the tool or item of the call, in the phase ask.
func (p *Policy) PermitAsk(ctx context.Context, c *switchboard.Call, ask Ask, now time.Time) error {
	if len(p.layers) == 0 {
		return nil
	}
	if len(c.Judgments) == 0 {
		return noSuchTool(errors.New("it was never judged"))
	}
	for _, j := range c.Judgments {
		q, at, err := p.questionAbout(c, j, PhaseAsk, now)
		if err != nil {
			return err
		}
		q.Ask = &ask
		if v := p.verdictAt(ctx, &q, at, func(layerView) bool { return true }); v.Denied != nil {
			return denialError(v.Denied)
		}
	}
	return nil
}

// questionAbout builds a question about the target of a call alone, and returns the index of the
// candidate.
func (p *Policy) questionAbout(c *switchboard.Call, j *switchboard.Judgment, phase Phase, now time.Time) (q Question, at int, err error) {
	m, ok := j.Memory.(*judgmentMemory)
	if !ok {
		return q, -1, noSuchTool(errors.New("it was never judged"))
	}
	if c.Tool != nil {
		q, at = m.rebuildQuestion(p, j, c.Tool, phase, c.Principal, now)
		q.Arguments, _ = wire.Field(c.Params, "arguments")
		return q, at, nil
	}
	item := &switchboard.Tool{ID: c.Candidate()}
	if at := slices.IndexFunc(j.Candidates, func(t *switchboard.Tool) bool { return t.ID.Server == c.Server }); at >= 0 {
		item.Class, item.Trust, item.Version = j.Candidates[at].Class, j.Candidates[at].Trust, j.Candidates[at].Version
	}
	term, err := itemTerm(item, c.Item.Kind)
	q = Question{
		Phase: phase, Principal: c.Principal, Task: m.task, Requirement: j.Requirement, Now: now,
		Candidates: []*switchboard.Tool{item}, Arguments: c.Item.Arguments, URI: c.Item.URI, terms: []*ast.Term{term},
	}
	if m.matches(p, c.Principal) {
		q.frame = m.frame
	}
	return q, 0, err
}

// redaction returns the part of obligations that applies to items that are not tools.
func redaction(o *switchboard.Obligations) switchboard.Obligations {
	return switchboard.Obligations{Redact: o.Redact, Detect: o.Detect}
}

// verdictAt asks the layers and returns the verdict on the candidate at the index at. If at is
// negative, the tool was not a candidate and is denied.
func (p *Policy) verdictAt(ctx context.Context, q *Question, at int, ask func(layerView) bool) Verdict {
	if at < 0 {
		return Verdict{Denied: &Denial{Code: switchboard.CodeDenied, Reasons: []string{"it was no candidate"}}}
	}
	return p.judgeLayers(ctx, q, ask).Verdicts[at]
}

// noSuchTool is the answer to a call of a tool that the caller may not see.
func noSuchTool(why error) error {
	return &switchboard.Error{Code: switchboard.CodeNoSuchTool, Text: "no such tool", Cause: why}
}

// denialError turns a denial into the error for the caller, without rules and reasons.
func denialError(why *Denial) error {
	e := &switchboard.Error{Code: why.Code, Stage: StageName, Cause: errors.New(why.String())}
	if why.ownWords {
		e.Cause = &ownWords{why.String()}
	}
	switch why.Code {
	case switchboard.CodePolicyFailed:
		e.Text = "it could not be decided whether this call is allowed, so it was not made"
		e.Hint = "try again later; if it stays so, tell whoever runs Switchboard: the log says why"
	case switchboard.CodeObligation:
		e.Text = "this call is allowed under a condition that cannot be met here, so it was not made"
		e.Hint = "tell whoever runs Switchboard: the log says which condition"
	default:
		e.Text = "policy does not allow this call as it is, so it was not made"
		e.Hint = "it may allow other arguments, or another time; do not try to get around it, and ask the person whom you work for if you need it"
	}
	return e
}
