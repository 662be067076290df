package gateway

import (
	"context"
	"errors"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

var tooManyCalls = switchboard.Refuse(switchboard.CodeOverloaded, "%d of your calls are in flight, the limit for one principal; wait for some to end", MaxCallsEach)

// A forwarder makes calls, within the limits of their principals, and returns the results in the
// form of the client's era.
type forwarder struct {
	caller       switchboard.Caller
	parks        *session.ParkedCalls
	accounts     *accounts
	meter        *run.Meter
	wholeResults bool // results are never cut
	recorder     CallRecorder
	enc          *encoder
}

// forward calls the server for q, or resumes the call that q names, and returns the result in the
// form of the client's era. c says which tool or method it is for.
func (fw *forwarder) forward(ctx context.Context, q *clientRequest, r *run.Run, c *switchboard.Call) (rpcAnswer, error) {
	result, f, err := fw.forwardRaw(ctx, q, r, c)
	if err != nil || f != nil {
		return rpcAnswer{failure: f}, err
	}
	a, err := fw.enc.encodeForEra(result, q.modern)
	fw.meter.Charge(r.Bill(), run.Results, result.JSON) // before the result's memory is reused
	return a, err
}

// forwardRaw is like forward, but returns the result as the server gave it. It fills in the members
// of c that come from q and r, and applies the limit on calls in flight.
func (fw *forwarder) forwardRaw(ctx context.Context, q *clientRequest, r *run.Run, c *switchboard.Call) (result switchboard.Result, f *failure, err error) {
	account := fw.accounts.accountOf(q.principal)
	if !takeIfBelow(&account.calls, MaxCallsEach) {
		return result, nil, tooManyCalls
	}
	defer account.calls.Add(-1)
	fw.accounts.callsInFlight.Add(1)
	defer fw.accounts.callsInFlight.Add(-1)

	c.Principal, c.Task, c.Run = q.principal, r.Task(), r.ID()
	c.Flows = r.Flows()
	c.Method, c.Client = q.Method, q.switchboardClient()
	c.AnyLength = fw.wholeResults || q.wantsWhole()
	c.WantsReceipt = q.wantsReceipt() || fw.recorder.ShowsReceipts(q.principal.Tenant)
	if c.Trail == nil {
		c.Trail = &switchboard.Trail{}
	}
	c.Trail.Decided(r.Surface().Decided())
	if c.Params == nil {
		c.Params = q.Params
	}
	if q.sender != nil {
		c.LogLevel = q.logLevel()
		c.Notify = func(n switchboard.Notification) { q.passNotification(n, c.LogLevel) }
	}
	state, resumes := fw.parkedState(q)
	switch {
	case resumes:
		found := false
		if result, found, err = fw.parks.Resume(ctx, session.KeyOf(q.principal), q.Message, state, c.Notify); !found {
			return result, noSuchState, nil
		}
	case q.modern && session.CanBeAsked(c.Client.Capabilities): // the result may be a question to the client
		result, err = fw.parks.Call(ctx, session.KeyOf(q.principal), q.Message, fw.caller, c)
	default:
		result, err = fw.caller.Call(ctx, c)
	}
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		err = stoppedError(err)
	}
	return result, nil, err
}

// parkedState returns the state by which q resumes a call that is parked at this replica. ok is
// false if it resumes none.
func (fw *forwarder) parkedState(q *clientRequest) (state string, ok bool) {
	if !q.modern {
		return "", false
	}
	return fw.parks.StateOf(q.Message)
}

// wantsWhole reports whether the client takes results of any length.
func (q *clientRequest) wantsWhole() bool {
	raw, ok := q.Meta(wire.MetaResults)
	return ok && string(raw) == `"whole"`
}

// wantsReceipt reports whether the client wants the id of the call's receipt.
func (q *clientRequest) wantsReceipt() bool {
	raw, ok := q.Meta(wire.MetaReceipt)
	return ok && string(raw) == "true"
}

// logLevel returns the lowest level of log messages that the client wants; "" means none. A modern
// client gives it with the request.
func (q *clientRequest) logLevel() string {
	if !q.modern {
		return q.client.LogLevel()
	}
	raw, ok := q.Meta(wire.MetaLogLevel)
	if !ok {
		return ""
	}
	level, _ := wire.String(raw)
	return level
}

// passNotification sends the client what a server says about its call: progress, log messages of at
// least the level, and notifications of extensions.
func (q *clientRequest) passNotification(n switchboard.Notification, level string) {
	switch n.Method {
	case wire.MethodProgress:
	case wire.MethodLog:
		raw, _ := memberOf(n.Params, "level")
		got, _ := wire.String(raw)
		if level == "" || session.Severity(got) < session.Severity(level) {
			return
		}
	case wire.MethodToolsChanged, wire.MethodResourcesChanged, wire.MethodPromptsChanged, wire.MethodResourceUpdated, wire.MethodInitialized, wire.MethodCancelled:
		return // none of these belongs to a call
	default:
		if !strings.HasPrefix(n.Method, "notifications/") {
			return
		}
	}
	q.sender.notify(n.Method, cleanParams(n.Params))
}
