package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Admit returns a Caller that makes no call which its server, or its tool, is not
// fit for, and learns from those that it makes. It refuses with SB-ROUT-001.
func (m *Monitor) Admit(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		s := m.server(c.Server)
		if s == nil {
			return next.Call(ctx, c) // which knows of none either, or of one that is going
		}
		moves := m.othersFit(c)
		if moves {
			s.awaitDoubt(ctx)
			if state := m.Unfit()[switchboard.ToolID{Server: s.id}]; state == Lost || state == Quarantine {
				own := *c
				own.NoWait = true
				c = &own
			}
		}
		t, err := s.admit(c)
		if err != nil {
			return switchboard.Result{}, markMoves(err, moves)
		}
		ended := false
		defer func() {
			if !ended {
				t.abandon()
			}
		}()
		r, err := next.Call(ctx, c)
		ended = true
		t.finish(ctx, err)
		return r, markMoves(err, moves)
	})
}

// markMoves says in err that the call can be made elsewhere soon, if it never left and another candidate is fit.
func markMoves(err error, moves bool) error {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !moves || !ok || !own.Unsent || own.Code != switchboard.CodeNoneHealthy && own.Code != switchboard.CodeServerUnreachable {
		return err
	}
	told := *own
	told.Moves = true
	return &told
}

// A trial is a call under way whose end the breakers wait for.
type callTrial struct {
	server *server
	report func(error)

	began      time.Time
	name       string // of the tool; "" where the call is none of a tool
	tool       *tool  // nil while it has not failed lately
	reportTool func(error)
}

// admit asks the breakers.
func (s *server) admit(c *switchboard.Call) (callTrial, error) {
	t := callTrial{server: s, began: time.Now()}
	b := s.bar.Load()
	if b != nil && !b.trial {
		return t, s.refuse(b)
	}
	if c.Tool != nil {
		t.name = c.Tool.ID.Name
		if known := s.tools.Load(); known != nil {
			t.tool = (*known)[t.name]
		}
	}
	if t.tool != nil {
		var err error
		if t.reportTool, err = s.admitTool(t.tool); err != nil {
			return t, err
		}
	}
	claimed := b != nil && s.claim(doCall)
	var err error
	if t.report, err = s.breaker.Allow(); claimed {
		report := t.report
		t.report = func(err error) {
			if report != nil {
				report(err)
			}
			s.tried(StageCall, err)
		}
	}
	if b = s.bar.Load(); err == nil && (b == nil || claimed && b.trial) {
		return t, nil
	}
	// Somebody else is at the trial, or it has tripped just now.
	for _, report := range []func(error){t.report, t.reportTool} {
		if report != nil {
			report(errNothing)
		}
	}
	if b == nil {
		b = &bar{state: Probation}
	}
	return t, s.refuse(b)
}

func (s *server) admitTool(t *tool) (func(error), error) {
	s.mu.Lock()
	state, until := t.state, t.until
	s.mu.Unlock()
	if state == Quarantine {
		return nil, notFit("the tool has failed too often lately", until)
	}
	report, err := t.breaker.Allow()
	if err != nil {
		return nil, notFit("the tool has failed too often lately, and is being tried again", time.Time{})
	}
	return report, nil
}

// refuse is what the caller is told who comes to a bar.
func (s *server) refuse(b *bar) *switchboard.Error {
	var why string
	switch b.state {
	case Disabled:
		why = "the tool's server has been taken out of service by its operator"
	case Probation:
		why = "the tool's server has failed lately, and is being tried again"
	default:
		why = "the tool's server is not fit to serve"
		s.want()
	}
	return notFit(why, b.next)
}

func notFit(why string, next time.Time) *switchboard.Error {
	e := &switchboard.Error{Code: switchboard.CodeNoneHealthy, Stage: StageName, Unsent: true}
	e.RetryAfter = time.Second
	if !next.IsZero() {
		e.RetryAfter = max(time.Until(next), time.Second)
	}
	e.Text = fmt.Sprintf("%s, and the call was not sent; try again in %s", why, e.RetryAfter.Round(time.Second))
	return e
}

// finish tells the breakers how the call ended.
func (t *callTrial) finish(ctx context.Context, err error) {
	said := verdict(ctx, err)
	s := t.server
	switch {
	case said == nil:
		s.worked(t.name)
		t.report(nil)
		if s.bar.Load() != nil {
			s.hasAnswered()
		}
	case errors.Is(said, errNothing):
		t.report(errNothing)
	default:
		t.reportFailure(said)
		return
	}
	if t.reportTool != nil {
		t.reportTool(said)
	}
}

// abandon frees the place of a call that panicked: it says nothing of the server.
func (t *callTrial) abandon() {
	t.report(errNothing)
	if t.reportTool != nil {
		t.reportTool(errNothing)
	}
}

// reportFailure tells whose failure it was: the tool's alone, where others of its server
// work and this call may have reached it; else the server's too.
func (t *callTrial) reportFailure(err error) {
	s := t.server
	own, _ := errors.AsType[*switchboard.Error](err)
	unsent := own != nil && own.Unsent
	if own != nil && own.Lost && s.counted() {
		t.report(errNothing)
		if t.reportTool != nil {
			t.reportTool(errNothing)
		}
		return
	}
	if t.name != "" && !unsent {
		s.unworked(t.name)
		t.reportToolFailure(err)
	}
	switch {
	case unsent && s.isLost():
		t.report(errNothing) // its connection is known to be lost
	case t.name != "" && !unsent && s.othersWork(t.name, t.began):
		s.startDoubt() // the others may have worked before it went away
		t.report(errNothing)
	default:
		s.blame(StageCall, err)
		if !unsent {
			s.startDoubt()
		}
		t.report(err)
	}
	if unsent && t.reportTool != nil {
		t.reportTool(errNothing)
	}
}

func (t *callTrial) reportToolFailure(err error) {
	s := t.server
	if t.tool == nil {
		if t.tool = s.toolNamed(t.name); t.tool == nil {
			return
		}
	}
	if t.reportTool == nil {
		report, refused := t.tool.breaker.Allow()
		if refused != nil {
			return // it has tripped meanwhile
		}
		t.reportTool = report
	}
	s.mu.Lock()
	now := time.Now()
	t.tool.suspect, t.tool.used = Cause{Stage: StageCall, Message: plain(err), Since: now}, now
	s.mu.Unlock()
	t.reportTool(err)
}
