package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Admit returns a Caller that refuses calls of unfit servers and tools with SB-ROUT-001. The results of the other calls
// change the health of their servers.
func (m *Monitor) Admit(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		s := m.server(c.Server)
		if s == nil {
			return next.Call(ctx, c) // next has no such server either, or one that is being removed
		}
		moves := m.othersFit(c)
		if moves {
			s.doubts.await(ctx, s.ctx)
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

// markMoves marks err if the call was not sent and another candidate is fit, so that the call can be made there soon.
func markMoves(err error, moves bool) error {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !moves || !ok || !own.Unsent || own.Code != switchboard.CodeNoneHealthy && own.Code != switchboard.CodeServerUnreachable {
		return err
	}
	told := *own
	told.Rebinds = true
	return &told
}

// A callTrial is a call in flight. The breakers wait for its end.
type callTrial struct {
	server *serverMonitor
	report func(error)

	began      time.Time
	name       string // of the tool; "" for a call without a tool
	tool       *tool  // nil while the tool has not failed lately
	reportTool func(error)
}

// admit asks the breakers.
func (s *serverMonitor) admit(c *switchboard.Call) (callTrial, error) {
	t := callTrial{server: s, began: time.Now()}
	if b := s.barrier.Load(); b != nil {
		return t, s.refuse(b)
	}
	if c.Tool != nil {
		t.name = c.Tool.ID.Name
		t.tool = s.tools.find(t.name)
	}
	if t.tool != nil {
		if until, ok := s.tools.quarantined(t.tool); ok {
			return t, notFit("the tool has failed too often lately", until)
		}
		var err error
		if t.reportTool, err = t.tool.breaker.admit(); err != nil {
			return t, notFit("the tool has failed too often lately, and is being tried again", time.Time{})
		}
	}
	var err error
	t.report, err = s.breaker.admit()
	b := s.barrier.Load()
	if err == nil && b == nil {
		return t, nil
	}
	// Another call is the trial, or the breaker has just tripped.
	if t.report != nil {
		t.report(errNothing)
	}
	if t.reportTool != nil {
		t.reportTool(errNothing)
	}
	if b == nil {
		b = &barrier{state: Probation}
	}
	return t, s.refuse(b)
}

// refuse returns the error for a call that meets a barrier.
func (s *serverMonitor) refuse(b *barrier) *switchboard.Error {
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

// notFit returns the refusal of a call. next is when the call may succeed; zero means unknown.
func notFit(why string, next time.Time) *switchboard.Error {
	e := &switchboard.Error{Code: switchboard.CodeNoneHealthy, Stage: StageName, Unsent: true}
	e.RetryAfter = time.Second
	if !next.IsZero() {
		e.RetryAfter = max(time.Until(next), time.Second)
	}
	e.Text = fmt.Sprintf("%s, and the call was not sent; try again in %s", why, e.RetryAfter.Round(time.Second))
	return e
}

// finish reports how the call ended to the breakers.
func (t *callTrial) finish(ctx context.Context, err error) {
	said := verdict(ctx, err)
	switch {
	case said == nil:
		t.server.tools.witnesses.worked(t.name)
		t.report(nil)
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

// abandon ends the trial of a call that panicked, which says nothing about the server.
func (t *callTrial) abandon() {
	t.report(errNothing)
	if t.reportTool != nil {
		t.reportTool(errNothing)
	}
}

// reportFailure reports a failure of the tool alone, if other tools of its server work and this call may have reached
// it; otherwise also of the server.
func (t *callTrial) reportFailure(err error) {
	s := t.server
	own, _ := errors.AsType[*switchboard.Error](err)
	unsent := own != nil && own.Unsent
	if own != nil && own.ConnectionLost && s.breaker.sameCrash(time.Now()) {
		t.abandon()
		return
	}
	if t.name != "" && !unsent {
		s.tools.witnesses.failed(t.name)
		t.reportToolFailure(err)
	}
	switch {
	case unsent && s.isLost():
		t.report(errNothing) // the connection is known to be lost
	case t.name != "" && !unsent && s.tools.witnesses.othersWork(t.name, t.began):
		s.startDoubt() // the others may have worked before the server failed
		t.report(errNothing)
	default:
		s.breaker.blame(Cause{Stage: StageCall, Message: failureText(err), Since: time.Now()}, isUnsent(err))
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
		if t.tool = s.tools.add(t.name); t.tool == nil {
			return
		}
		s.planAgain() // run must call expire in time
	}
	if t.reportTool == nil {
		report, refused := t.tool.breaker.admit()
		if refused != nil {
			return // the tool's breaker has tripped meanwhile
		}
		t.reportTool = report
	}
	s.tools.failed(t.tool, Cause{Stage: StageCall, Message: failureText(err), Since: time.Now()})
	t.reportTool(err)
}
