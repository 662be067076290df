package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A kind sorts what can go wrong between us and a server.
type kind int

const (
	kindUnreachable kind = iota // no connection, no process
	kindLost                    // the connection or the process ended
	kindGone                    // the server no longer knows our session
	kindRefused                 // HTTP says no: 4xx, or a redirect
	kindBroken                  // HTTP says that the server failed: 5xx
	kindLimited                 // HTTP 429
	kindInvalid                 // an answer that is none, or too large
	kindProtocol                // it speaks no protocol that we know
	kindSilent                  // no answer in time
)

// A fault is why an exchange with a server did not come about. Its text is for
// operators, and holds no secret.
type fault struct {
	kind kind
	text string

	// remedy is a sentence for operators; "" means that we know none.
	remedy string

	// sent says that the request may have reached the server. Only while it
	// is false may the request be made again.
	sent bool

	// ours says that it is not the server's doing.
	ours bool

	// gone says that no program is there: the process has ended, or the port refuses connections.
	gone bool

	status int           // of HTTP, where that is what went wrong
	after  time.Duration // to wait before asking again; 0 means unknown
	code   int           // of the JSON-RPC error that came with it; 0 means none
	object []byte        // that error's object
}

func (f *fault) Error() string { return f.text }

// Unsent reports whether nothing was sent.
func (f *fault) Unsent() bool { return !f.sent }

func faultf(k kind, sent bool, format string, args ...any) *fault {
	return &fault{kind: k, sent: sent, text: fmt.Sprintf(format, args...)}
}

// advised gives f the remedy where err says that a connection was not opened because of its address.
func (f *fault) advised(err error) *fault {
	if refused, ok := errors.AsType[*dial.RefusedError](err); ok {
		f.remedy = refused.Remedy
	}
	return f
}

// ourFault returns a fault that is not the server's doing.
func ourFault(k kind, sent bool, text string) *fault {
	return &fault{kind: k, sent: sent, text: text, ours: true}
}

// theirs reports whether the server has failed: not where it answered with a
// refusal of the request, as it may. What it refuses while a connection is made
// is more than that.
func (f *fault) theirs() bool {
	switch {
	case f.ours, f.kind == kindLimited:
		return false
	case f.kind == kindRefused:
		return !f.sent || f.status/100 == 3 // which MCP does not know
	}
	return true
}

// asFault returns the fault in err, or one that holds err's text.
func asFault(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	return &fault{kind: kindLost, sent: true, text: err.Error()}
}

// refusal turns a fault into what the caller of a tool is told. ctx is the
// call's own, whose end the fault may be due to.
func refusal(ctx context.Context, f *fault) *switchboard.Error {
	e := &switchboard.Error{Cause: f, RetryAfter: f.after, Unsent: !f.sent, ServerFailed: f.theirs(), Lost: f.kind == kindLost}
	over, timed := errors.AsType[*timeUp](context.Cause(ctx))
	if ctx.Err() != nil && (!timed || !over.theirs) {
		e.ServerFailed = false // the client went away, or gave it less time than its own
	}
	which := "" // time is over
	if timed {
		which = " (" + over.Error() + ")"
	}
	timed = timed || errors.Is(ctx.Err(), context.DeadlineExceeded)
	switch {
	case timed && !f.sent:
		e.Code = switchboard.CodeNotExecuted
		e.Text = "the time for this call was over before it could be sent" + which + ", so it was not executed"
	case timed:
		e.Code = switchboard.CodeOutcomeUnknown
		e.Text = "the tool did not answer in time" + which + "; it may have been executed: check before you repeat the call"
	case ctx.Err() != nil && !f.sent:
		e.Code = switchboard.CodeNotExecuted
		e.Text = "the call was cancelled before it could be sent, so it was not executed"
	case ctx.Err() != nil:
		e.Code = switchboard.CodeOutcomeUnknown
		e.Text = "the call was cancelled; it may have been executed"
		e.Cause = context.Cause(ctx)
	case f.kind == kindLimited:
		e.Code = switchboard.CodeRateLimit
		e.Text = "the tool's server takes no more calls for now; try again later"
	case !f.sent && (f.kind == kindProtocol || f.kind == kindInvalid):
		e.Code = switchboard.CodeServerProtocol
		e.Text = "the tool's server speaks no protocol that is known here"
	case f.kind == kindInvalid:
		e.Code = switchboard.CodeResultInvalid
		e.Text = "the tool's server answered with something that cannot be passed on: " + f.text
	case f.kind == kindRefused:
		e.Code = switchboard.CodeServerFailed
		e.Text = "the tool's server refused the call; its operator must look at how it is configured"
	case f.kind == kindSilent && !f.sent:
		e.Code = switchboard.CodeNoneHealthy
		e.Text = "the tool's server is not ready; try again later"
	case !f.sent && f.kind == kindGone:
		e.Code = switchboard.CodeServerUnreachable
		e.Text = "the tool's server has forgotten our session, and so did not execute the call; try again later"
	case !f.sent:
		e.Code = switchboard.CodeServerUnreachable
		e.Text = "the tool's server cannot be reached now, and the call was not sent; try again later"
	default:
		e.Code = switchboard.CodeOutcomeUnknown
		e.Text = "the tool's server failed during the call; it may have been executed: check before you repeat the call"
	}
	return e
}
