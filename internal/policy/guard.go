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

// Current gives what decides about the calls of a principal, all of one moment:
// who that is now, whatever was known of it when the request came in, and the
// policy of its tenant. The error is a *switchboard.Error: it may call nothing.
type Current func(switchboard.Principal) (switchboard.Principal, *Policy, error)

// A Ruling is policy's word on one call.
type Ruling struct {
	// Err is a *switchboard.Error that says why the call may not be made; nil
	// means that it may.
	Err         error
	Obligations switchboard.Obligations

	// Asked says that a layer was asked for this call. Else what was decided
	// when its tool was selected still holds.
	Asked bool

	// Mixed says that the call was selected under another policy than it was
	// judged by, since a reload came between.
	Mixed bool
}

// A Note takes a ruling of p on c at an instant. It does not keep the caller
// waiting.
type Note func(c *switchboard.Call, p *Policy, now time.Time, r Ruling)

// Guard returns a Caller that asks the policy which current gives, and makes no
// call that it does not allow: SB-CAP-001 where the tool is not even to be seen
// now, SB-POL-001 to 003 where this very call is denied. It carries out
// obligations, or refuses the call. What is denied, and what a layer was asked
// for, is noted, where note is not nil.
func Guard(current Current, note Note, log *slog.Logger, next switchboard.Caller) switchboard.Caller {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		who, p, err := current(c.Principal)
		if err != nil {
			return switchboard.Result{}, err
		}
		if !alike(&who, &c.Principal) {
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
			return switchboard.Result{}, p.discreet(p.later(ctx, r.Err, c, now), c)
		}
		r.Obligations.Detect = union(r.Obligations.Detect, enforced(c))
		if r.Obligations.None() {
			return next.Call(ctx, c)
		}
		return oblige(ctx, r.Obligations, c, log, next)
	})
}

// enforced are the detectors by which the operator has the results of the call redacted. What is no tool goes with
// the tools of its server, as in permitServer.
func enforced(c *switchboard.Call) (all []switchboard.Detector) {
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

// laterBy are the times after which later asks again: within a day, and within a week of working days.
var laterBy = []time.Duration{time.Hour, 4 * time.Hour, 8 * time.Hour, 12 * time.Hour, 16 * time.Hour, 24 * time.Hour, 48 * time.Hour, 72 * time.Hour}

// later says in err, a denial of the call, whether the clock alone denies it: then the same call is allowed at
// another time.
func (p *Policy) later(ctx context.Context, err error, c *switchboard.Call, now time.Time) error {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok || own.Code != switchboard.CodeDenied || !p.ReadsClock() {
		return err
	}
	for _, by := range laterBy {
		if p.Rule(ctx, c, now.Add(by)).Err == nil {
			told := *own
			told.Later = true
			return &told
		}
	}
	return err
}

// Rule says whether the call may be made, and under which obligations, which it
// does not carry out.
func (p *Policy) Rule(ctx context.Context, c *switchboard.Call, now time.Time) (r Ruling) {
	if len(p.layers) == 0 {
		return r
	}
	for _, j := range c.Judgments {
		if m, ok := j.Memory.(*memory); ok && m.policy != p {
			r.Mixed = true
		}
	}
	if c.Tool == nil {
		r.Obligations, r.Asked, r.Err = p.permitServer(ctx, c, now)
		if r.Err == nil {
			var more switchboard.Obligations
			more, r.Err = p.permitItem(ctx, c, now)
			r.Asked = true
			combine(&r.Obligations, more)
		}
		r.Err = p.carriedOut(r)
		return r
	}
	if len(c.Judgments) == 0 {
		r.Err = hidden(errors.New("it was never judged"))
	}
	for _, j := range c.Judgments {
		m, ok := j.Memory.(*memory)
		if !ok {
			r.Err = hidden(errors.New("it was never judged"))
			break
		}
		more, asked, err := p.permitTool(ctx, c, j, m, now)
		r.Asked = r.Asked || asked
		if err != nil {
			r.Err = err
			break
		}
		combine(&r.Obligations, more)
	}
	r.Err = p.carriedOut(r)
	return r
}

// carriedOut refuses what asks for an obligation that Switchboard does not carry out.
func (p *Policy) carriedOut(r Ruling) error {
	if r.Err == nil && len(r.Obligations.Notify) > 0 {
		return denied(&Denial{Code: switchboard.CodeObligation, Reasons: []string{fmt.Sprintf("notify %q: nobody can be notified yet", r.Obligations.Notify)}})
	}
	return r.Err
}

// Judged returns a Judgment for a call that is to be judged by all layers: of a
// requirement of the task, with these candidates.
func Judged(task *switchboard.Task, r *switchboard.Requirement, candidates []*switchboard.Tool) *switchboard.Judgment {
	return &switchboard.Judgment{Requirement: r, Candidates: candidates, Memory: &memory{task: task}}
}

func (p *Policy) permitTool(ctx context.Context, c *switchboard.Call, j *switchboard.Judgment, m *memory, now time.Time) (o switchboard.Obligations, asked bool, err error) {
	ask := func(view) bool { return true }
	fits := m.fits(p, c.Principal)
	if fits {
		if m.kept != nil {
			if at := slices.IndexFunc(j.Candidates, func(t *switchboard.Tool) bool { return t.ID == c.Tool.ID }); at >= 0 {
				o = m.kept[at]
			}
		}
		if p.reads == 0 {
			return o, false, nil
		}
		ask = passing
	}
	if !fits || p.reads&^readsCall != 0 {
		// What would be listed now? Whatever would not, does not exist.
		q, at := m.again(p, j, c.Tool, PhaseList, c.Principal, now)
		if why := p.verdict(ctx, &q, at, ask).Denied; why != nil {
			if why.Code == switchboard.CodeDenied {
				return o, true, hidden(errors.New(why.String()))
			}
			return o, true, denied(why)
		}
	}
	q, at := m.again(p, j, c.Tool, PhaseCall, c.Principal, now)
	q.Arguments, _ = wire.Field(c.Params, "arguments")
	v := p.verdict(ctx, &q, at, ask)
	if v.Denied != nil {
		return o, true, denied(v.Denied)
	}
	combine(&o, v.Obligations)
	return o, true, nil
}

// permitServer is permit for what is no tool: it goes with the tools of its
// server, and is refused where none of these is allowed any more. What policy
// redacts of any of these tools is redacted of it too.
func (p *Policy) permitServer(ctx context.Context, c *switchboard.Call, now time.Time) (o switchboard.Obligations, asked bool, err error) {
	var why *Denial
	allowed := false
	for _, j := range c.Judgments {
		m, ok := j.Memory.(*memory)
		if !ok {
			continue
		}
		fits := m.fits(p, c.Principal)
		for i, t := range j.Candidates {
			if fits && m.kept != nil && t.ID.Server == c.Server {
				combine(&o, redaction(&m.kept[i]))
			}
		}
		if p.reads == 0 && fits {
			allowed = true
			continue
		}
		asked = true
		q, _ := m.again(p, j, nil, PhaseList, c.Principal, now)
		for i, v := range p.judge(ctx, &q, func(view) bool { return true }).Verdicts {
			if q.Candidates[i].ID.Server != c.Server {
				continue
			}
			if v.Denied == nil {
				allowed = true
				combine(&o, redaction(&v.Obligations))
			} else {
				why = v.Denied
			}
		}
	}
	if why == nil || allowed { // why is nil where its server was selected for no tool
		return o, asked, nil
	}
	return o, asked, denied(why)
}

// permitItem asks every layer about what is no tool, as a candidate of its own in the phase call: for each requirement that selected
// tools of its server. All must allow it.
func (p *Policy) permitItem(ctx context.Context, c *switchboard.Call, now time.Time) (o switchboard.Obligations, err error) {
	if len(c.Judgments) == 0 {
		return o, hidden(errors.New("it was never judged"))
	}
	for _, j := range c.Judgments {
		q, at, err := p.aboutCall(c, j, PhaseCall, now)
		if err != nil {
			return o, err
		}
		v := p.verdict(ctx, &q, at, func(view) bool { return true })
		if v.Denied != nil {
			return o, denied(v.Denied)
		}
		combine(&o, v.Obligations)
	}
	return o, nil
}

// PermitAsk says whether the client of a call may be asked something by the call's server: nil, or an error of
// SB-POL-001 or 002. Every layer is asked, about the tool or item of the call, in the phase ask.
func (p *Policy) PermitAsk(ctx context.Context, c *switchboard.Call, ask Ask, now time.Time) error {
	if len(p.layers) == 0 {
		return nil
	}
	if len(c.Judgments) == 0 {
		return hidden(errors.New("it was never judged"))
	}
	for _, j := range c.Judgments {
		q, at, err := p.aboutCall(c, j, PhaseAsk, now)
		if err != nil {
			return err
		}
		q.Ask = &ask
		if v := p.verdict(ctx, &q, at, func(view) bool { return true }); v.Denied != nil {
			return denied(v.Denied)
		}
	}
	return nil
}

// aboutCall makes a question about what a call asks for alone. It returns the candidate's place too.
func (p *Policy) aboutCall(c *switchboard.Call, j *switchboard.Judgment, phase Phase, now time.Time) (q Question, at int, err error) {
	m, ok := j.Memory.(*memory)
	if !ok {
		return q, -1, hidden(errors.New("it was never judged"))
	}
	if c.Tool != nil {
		q, at = m.again(p, j, c.Tool, phase, c.Principal, now)
		q.Arguments, _ = wire.Field(c.Params, "arguments")
		return q, at, nil
	}
	item := &switchboard.Tool{ID: c.Candidate()}
	if at := slices.IndexFunc(j.Candidates, func(t *switchboard.Tool) bool { return t.ID.Server == c.Server }); at >= 0 {
		item.Class, item.Trust, item.Version = j.Candidates[at].Class, j.Candidates[at].Trust, j.Candidates[at].Version
	}
	term, err := asCandidate(item, c.Item.Kind)
	q = Question{
		Phase: phase, Principal: c.Principal, Task: m.task, Requirement: j.Requirement, Now: now,
		Candidates: []*switchboard.Tool{item}, Arguments: c.Item.Arguments, URI: c.Item.URI, terms: []*ast.Term{term},
	}
	if m.fits(p, c.Principal) {
		q.frame = m.frame
	}
	return q, 0, err
}

// redaction is the part of obligations that counts for what is no tool.
func redaction(o *switchboard.Obligations) switchboard.Obligations {
	return switchboard.Obligations{Redact: o.Redact, Detect: o.Detect}
}

// verdict judges and picks one. A tool that is not among the candidates is
// denied.
func (p *Policy) verdict(ctx context.Context, q *Question, at int, ask func(view) bool) Verdict {
	if at < 0 {
		return Verdict{Denied: &Denial{Code: switchboard.CodeDenied, Reasons: []string{"it was no candidate"}}}
	}
	return p.judge(ctx, q, ask).Verdicts[at]
}

// hidden is the answer to a call of what the caller may not see.
func hidden(why error) error {
	return &switchboard.Error{Code: switchboard.CodeNoSuchTool, Text: "no such tool", Cause: why}
}

// denied turns a denial into what the caller is told: no rule, no reason.
func denied(why *Denial) error {
	e := &switchboard.Error{Code: why.Code, Stage: StageName, Cause: errors.New(why.String())}
	if why.own {
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
