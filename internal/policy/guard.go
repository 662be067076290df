package policy

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Current gives what decides about the calls of a principal, all of one moment:
// who that is now, whatever was known of it when the request came in, and the
// policy of its tenant. The error is a *switchboard.Error: it may call nothing.
type Current func(switchboard.Principal) (switchboard.Principal, *Policy, error)

// Guard returns a Caller that asks the policy which current gives, and makes no
// call that it does not allow: SB-CAP-001 where the tool is not even to be seen
// now, SB-POL-001 to 003 where this very call is denied. It carries out
// obligations, or refuses the call.
func Guard(current Current, log *slog.Logger, next switchboard.Caller) switchboard.Caller {
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
		o, err := p.permit(ctx, c, time.Now())
		if err != nil {
			return switchboard.Result{}, err
		}
		if o.None() {
			return next.Call(ctx, c)
		}
		return oblige(ctx, o, c, log, next)
	})
}

// Permit reports why the call may not be made now; nil means that it may. It is
// for what is asked of a server beside calls, and carries out no obligation.
func (p *Policy) Permit(ctx context.Context, c *switchboard.Call) error {
	_, err := p.permit(ctx, c, time.Now())
	return err
}

// permit asks whether the call may be made, and under which obligations.
func (p *Policy) permit(ctx context.Context, c *switchboard.Call, now time.Time) (o switchboard.Obligations, err error) {
	if len(p.layers) == 0 {
		return o, nil
	}
	if c.Tool == nil {
		return o, p.permitServer(ctx, c, now)
	}
	if len(c.Judgments) == 0 {
		return o, hidden(errors.New("it was never judged"))
	}
	for _, j := range c.Judgments {
		m, ok := j.Memory.(*memory)
		if !ok {
			return o, hidden(errors.New("it was never judged"))
		}
		more, err := p.permitTool(ctx, c, j, m, now)
		if err != nil {
			return o, err
		}
		combine(&o, more)
	}
	return o, nil
}

func (p *Policy) permitTool(ctx context.Context, c *switchboard.Call, j *switchboard.Judgment, m *memory, now time.Time) (o switchboard.Obligations, err error) {
	ask := func(view) bool { return true }
	fits := m.fits(p, c.Principal)
	if fits {
		if m.kept != nil {
			if at := slices.IndexFunc(j.Candidates, func(t *switchboard.Tool) bool { return t.ID == c.Tool.ID }); at >= 0 {
				o = m.kept[at]
			}
		}
		if p.reads == 0 {
			return o, nil
		}
		ask = passing
	}
	if !fits || p.reads&^readsCall != 0 {
		// What would be listed now? Whatever would not, does not exist.
		q, at := m.again(p, j, c.Tool, PhaseList, c.Principal, now)
		if why := p.verdict(ctx, &q, at, ask).Denied; why != nil {
			if why.Code == switchboard.CodeDenied {
				return o, hidden(errors.New(why.String()))
			}
			return o, denied(why)
		}
	}
	q, at := m.again(p, j, c.Tool, PhaseCall, c.Principal, now)
	q.Arguments, _ = wire.Field(c.Params, "arguments")
	v := p.verdict(ctx, &q, at, ask)
	if v.Denied != nil {
		return o, denied(v.Denied)
	}
	combine(&o, v.Obligations)
	return o, nil
}

// permitServer is permit for what is no tool: it goes with the tools of its
// server, and is refused where none of these is allowed any more.
func (p *Policy) permitServer(ctx context.Context, c *switchboard.Call, now time.Time) error {
	var why *Denial
	for _, j := range c.Judgments {
		m, ok := j.Memory.(*memory)
		if !ok {
			continue
		}
		if p.reads == 0 && m.fits(p, c.Principal) {
			return nil
		}
		q, _ := m.again(p, j, nil, PhaseList, c.Principal, now)
		for i, v := range p.judge(ctx, &q, func(view) bool { return true }).Verdicts {
			if q.Candidates[i].ID.Server != c.Server {
				continue
			}
			if v.Denied == nil {
				return nil
			}
			why = v.Denied
		}
	}
	if why == nil { // its server was selected for no tool
		return nil
	}
	return denied(why)
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
