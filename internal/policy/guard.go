package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/budget/price"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// CurrentPolicy returns the principal as the configuration knows it now, which may differ from the
// principal in the request, and the policy of its tenant. Both belong to the same snapshot. An
// error is a *switchboard.Error: the principal may call nothing.
type CurrentPolicy func(switchboard.Principal) (switchboard.Principal, *Policy, error)

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

// A RulingRecorder records a ruling of p on c at an instant. It must return quickly.
type RulingRecorder func(c *switchboard.Call, p *Policy, now time.Time, r Ruling)

// Guard returns a Caller that asks the policy from current about each call. It refuses a call with
// SB-CAP-001 if the principal may not even see the tool now, and with SB-POL-001 to 003 if this
// call is denied. It carries out obligations or refuses the call. If note is not nil, it gets every
// refusal and every ruling that a layer was asked for.
func Guard(current CurrentPolicy, note RulingRecorder, log *slog.Logger, next switchboard.Caller) switchboard.Caller {
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
		if c, err = LearnTouched(ctx, p, c); err != nil {
			return switchboard.Result{}, err
		}
		now := time.Now()
		r := p.JudgeCall(ctx, c, now)
		if note != nil && (r.Asked || r.Err != nil) {
			note(c, p, now, r)
		}
		if r.Err != nil {
			return switchboard.Result{}, p.hideArguments(callJudge{p, c, now, nil}.markLater(ctx, r.Err), c)
		}
		r.Obligations.Detect = union(r.Obligations.Detect, enforcedDetectors(c))
		if r.Obligations.Empty() {
			return next.Call(ctx, c)
		}
		if r.Obligations.Approval != nil {
			if err := (callJudge{p, c, now, nil}).nameAskingRules(ctx, &r.Obligations); err != nil {
				return switchboard.Result{}, p.hideArguments(err, c)
			}
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
func (j callJudge) markLater(ctx context.Context, err error) error {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok || own.Code != switchboard.CodeDenied || !j.policy.ReadsClock() {
		return err
	}
	for _, by := range laterDelays {
		if j.policy.JudgeCall(ctx, j.call, j.now.Add(by)).Err == nil {
			told := *own
			told.ByTheClock = true
			return &told
		}
	}
	return err
}

// A callJudge asks a policy about one call at one instant.
type callJudge struct {
	policy *Policy
	call   *switchboard.Call
	now    time.Time

	// elements, if not nil, are the numbers of elements that the price depends on; see price.CountElements. nil means that
	// they are counted.
	elements map[string]int
}

// cost returns what the call costs, or nil if it cannot be priced.
func (j callJudge) cost() *switchboard.Micros {
	elements := j.elements
	if elements == nil {
		elements = price.CountElements(j.call.Tool, j.call.Params)
	}
	cost, err := price.OfElements(j.call.Tool, elements)
	if err != nil {
		return nil
	}
	return &cost
}

// JudgeCall says whether the call may be made, and under which obligations. It does not carry them out.
func (p *Policy) JudgeCall(ctx context.Context, c *switchboard.Call, now time.Time) Ruling {
	return p.JudgeRecordedCall(ctx, c, nil, now)
}

// JudgeRecordedCall is JudgeCall for a call with recorded numbers of elements in place of all arguments that its price depends on. See
// price.CountElements.
func (p *Policy) JudgeRecordedCall(ctx context.Context, c *switchboard.Call, elements map[string]int, now time.Time) (r Ruling) {
	if len(p.layers) == 0 {
		return r
	}
	j := callJudge{p, c, now, elements}
	if c.Tool == nil {
		r = j.ruleOnItem(ctx)
	} else {
		r = j.ruleOnTool(ctx)
	}
	for _, judgment := range c.Judgments {
		if m, ok := judgment.Memory.(*judgmentMemory); ok && m.policy != p {
			r.Mixed = true
		}
	}
	r.Err = p.refuseUnsupported(r)
	return r
}

// ruleOnItem rules on a call of an item that is not a tool.
func (j callJudge) ruleOnItem(ctx context.Context) (r Ruling) {
	r.Obligations, r.Asked, r.Err = j.permitServer(ctx)
	if r.Err != nil {
		return r
	}
	var more switchboard.Obligations
	more, r.Err = j.permitItem(ctx)
	r.Asked = true
	addObligations(&r.Obligations, more)
	return r
}

// ruleOnTool rules on a call of a tool. Each judgment that selected the tool must permit the call.
func (j callJudge) ruleOnTool(ctx context.Context) (r Ruling) {
	if len(j.call.Judgments) == 0 {
		r.Err = noSuchTool(errors.New("it was never judged"))
	}
	for _, judgment := range j.call.Judgments {
		m, ok := judgment.Memory.(*judgmentMemory)
		if !ok {
			r.Err = noSuchTool(errors.New("it was never judged"))
			return r
		}
		more, asked, err := j.permitTool(ctx, judgment, m)
		r.Asked = r.Asked || asked
		if err != nil {
			r.Err = err
			return r
		}
		addObligations(&r.Obligations, more)
	}
	return r
}

// refuseUnsupported refuses a call with an obligation that Switchboard cannot carry out: it does not know a recipient.
func (p *Policy) refuseUnsupported(r Ruling) error {
	if r.Err != nil {
		return r.Err
	}
	for _, who := range r.Obligations.Notify {
		if !slices.Contains(p.tenant.Recipients, who) {
			return denialError(&Denial{Code: switchboard.CodeObligation, Reasons: []string{fmt.Sprintf("notify %.64q: notify in switchboard.yaml has no such recipient for tenant %s", who, p.tenant.ID)}})
		}
	}
	return nil
}

// NewJudgment returns a Judgment for a call that all layers must judge, for the requirement r of the
// task with these candidates.
func NewJudgment(task *switchboard.Task, r *switchboard.Requirement, candidates []*switchboard.Tool) *switchboard.Judgment {
	return &switchboard.Judgment{Requirement: r, Candidates: candidates, Memory: &judgmentMemory{task: task}}
}

func (j callJudge) permitTool(ctx context.Context, judgment *switchboard.Judgment, m *judgmentMemory) (o switchboard.Obligations, asked bool, err error) {
	ask := func(layerView) bool { return true }
	fits := m.matches(j.policy, j.call.Principal)
	if fits {
		if j.call.Touched.Known && mayTouchMatter(j.policy, effectiveMode(m.principal, m.task), j.call.Tool.Contract.Flow.Bits) {
			v := m.judgeTouched(ctx, j, judgment)
			if v.Denied != nil {
				return o, true, denialError(v.Denied)
			}
			o, asked = v.Obligations, true
		} else if m.lastingObligations != nil {
			if at := slices.IndexFunc(judgment.Candidates, func(t *switchboard.Tool) bool { return t.ID == j.call.Tool.ID }); at >= 0 {
				o = m.lastingObligations[at]
			}
		}
		if j.policy.reads == 0 {
			return o, asked, nil
		}
		ask = mayChange
	}
	if !fits || j.policy.reads&^readsCall != 0 {
		// If the tool may not be listed now, it does not exist for this principal.
		q, at := m.rebuildQuestion(j.policy, judgment, j.call.Tool, PhaseList, j.call.Principal, j.now)
		if why := j.policy.verdictAt(ctx, &q, at, ask).Denied; why != nil {
			if why.Code == switchboard.CodeDenied {
				return o, true, noSuchTool(errors.New(why.String()))
			}
			return o, true, denialError(why)
		}
	}
	q, at := m.rebuildQuestion(j.policy, judgment, j.call.Tool, PhaseCall, j.call.Principal, j.now)
	q.Arguments, _ = wire.Field(j.call.Params, "arguments")
	q.Cost, q.Touched = j.cost(), j.call.Touched
	v := j.policy.verdictAt(ctx, &q, at, ask)
	if v.Denied != nil {
		return o, true, denialError(v.Denied)
	}
	addObligations(&o, v.Obligations)
	return o, true, nil
}

// permitServer checks a call of an item that is not a tool. It is allowed as long as one tool of
// its server is allowed. If policy redacts results of any of these tools, it redacts the result of
// the item too.
func (j callJudge) permitServer(ctx context.Context) (o switchboard.Obligations, asked bool, err error) {
	var why *Denial
	allowed := false
	for _, judgment := range j.call.Judgments {
		m, ok := judgment.Memory.(*judgmentMemory)
		if !ok {
			continue
		}
		fits := m.matches(j.policy, j.call.Principal)
		for i, t := range judgment.Candidates {
			if fits && m.lastingObligations != nil && t.ID.Server == j.call.Server {
				addObligations(&o, redaction(&m.lastingObligations[i]))
			}
		}
		if j.policy.reads == 0 && fits {
			allowed = true
			continue
		}
		asked = true
		q, _ := m.rebuildQuestion(j.policy, judgment, nil, PhaseList, j.call.Principal, j.now)
		for i, v := range j.policy.judgeLayers(ctx, &q, func(layerView) bool { return true }).Verdicts {
			if q.Candidates[i].ID.Server != j.call.Server {
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
func (j callJudge) permitItem(ctx context.Context) (o switchboard.Obligations, err error) {
	if len(j.call.Judgments) == 0 {
		return o, noSuchTool(errors.New("it was never judged"))
	}
	for _, judgment := range j.call.Judgments {
		q, at, err := j.questionAbout(judgment, PhaseCall)
		if err != nil {
			return o, err
		}
		v := j.policy.verdictAt(ctx, &q, at, func(layerView) bool { return true })
		if v.Denied != nil {
			return o, denialError(v.Denied)
		}
		addObligations(&o, v.Obligations)
	}
	return o, nil
}

// JudgeQuestion says whether the server of a call may ask its client something: nil, or an error of
// SB-POL-001 or 002. It asks every layer about the tool or item of the call, in the phase ask.
func (p *Policy) JudgeQuestion(ctx context.Context, c *switchboard.Call, ask ServerQuestion, now time.Time) error {
	if len(p.layers) == 0 {
		return nil
	}
	if len(c.Judgments) == 0 {
		return noSuchTool(errors.New("it was never judged"))
	}
	for _, judgment := range c.Judgments {
		q, at, err := callJudge{p, c, now, nil}.questionAbout(judgment, PhaseAsk)
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
func (j callJudge) questionAbout(judgment *switchboard.Judgment, phase Phase) (q CandidateQuestion, at int, err error) {
	m, ok := judgment.Memory.(*judgmentMemory)
	if !ok {
		return q, -1, noSuchTool(errors.New("it was never judged"))
	}
	if j.call.Tool != nil {
		q, at = m.rebuildQuestion(j.policy, judgment, j.call.Tool, phase, j.call.Principal, j.now)
		q.Arguments, _ = wire.Field(j.call.Params, "arguments")
		q.Cost, q.Touched = j.cost(), j.call.Touched
		return q, at, nil
	}
	item := &switchboard.Tool{ID: j.call.Candidate()}
	item.Contract.Flow.Bits = j.call.Flow()
	if at := slices.IndexFunc(judgment.Candidates, func(t *switchboard.Tool) bool { return t.ID.Server == j.call.Server }); at >= 0 {
		item.Class, item.Trust, item.Version = judgment.Candidates[at].Class, judgment.Candidates[at].Trust, judgment.Candidates[at].Version
	}
	term, err := new(termBuilder).build(item, j.call.Item.Kind)
	q = CandidateQuestion{
		Phase: phase, Principal: j.call.Principal, Task: m.task, Requirement: judgment.Requirement, Now: j.now,
		Candidates: []*switchboard.Tool{item}, Arguments: j.call.Item.Arguments, URI: j.call.Item.URI, Touched: j.call.Touched, terms: []*ast.Term{term},
	}
	if m.matches(j.policy, j.call.Principal) {
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
func (p *Policy) verdictAt(ctx context.Context, q *CandidateQuestion, at int, ask func(layerView) bool) CandidateVerdict {
	if at < 0 {
		return CandidateVerdict{Denied: &Denial{Code: switchboard.CodeDenied, Reasons: []string{"it was no candidate"}}}
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
