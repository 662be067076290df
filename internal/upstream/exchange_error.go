package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
)

// An errorKind classifies what can go wrong between Switchboard and a server.
type errorKind int

const (
	kindUnreachable errorKind = iota // no connection, no process
	kindLost                         // the connection or the process ended
	kindGone                         // the server no longer knows our session
	kindRefused                      // HTTP status 4xx, or a redirect
	kindBroken                       // HTTP status 5xx
	kindLimited                      // HTTP status 429
	kindInvalid                      // an invalid or too large answer
	kindProtocol                     // no protocol that we know
	kindSilent                       // no answer in time
)

// An exchangeError says why an exchange with a server failed. Its text is for operators and
// contains no secret.
type exchangeError struct {
	kind errorKind
	text string

	// remedy is a sentence for operators; "" means that none is known.
	remedy string

	// sent says that the request may have reached the server. The request may be sent again only if
	// it is false.
	sent bool

	// ours says that the server did not cause it.
	ours bool

	// gone says that no program is there: the process has ended, or the port refuses connections.
	gone bool

	status int           // HTTP status, if that is what went wrong
	after  time.Duration // wait before the next request; 0 means unknown
	code   int           // of the JSON-RPC error in the response; 0 means none
	object []byte        // that error
}

func (f *exchangeError) Error() string { return f.text }

// Unsent reports whether nothing was sent.
func (f *exchangeError) Unsent() bool { return !f.sent }

func exchangeErrorf(k errorKind, sent bool, format string, args ...any) *exchangeError {
	return &exchangeError{kind: k, sent: sent, text: fmt.Sprintf(format, args...)}
}

// withRemedy sets the remedy of f if err says that no connection was opened because of its address.
func (f *exchangeError) withRemedy(err error) *exchangeError {
	if refused, ok := errors.AsType[*dial.RefusedError](err); ok {
		f.remedy = refused.Remedy
	}
	return f
}

// ownError returns an error that the server did not cause.
func ownError(k errorKind, sent bool, text string) *exchangeError {
	return &exchangeError{kind: k, sent: sent, text: text, ours: true}
}

// blamesServer reports whether the server has failed. A server that refuses a request has not
// failed. A server that refuses while a connection is opened has.
func (f *exchangeError) blamesServer() bool {
	switch {
	case f.ours, f.kind == kindLimited:
		return false
	case f.kind == kindRefused:
		return !f.sent || f.status/100 == 3 // MCP has no redirects
	}
	return true
}

// asExchangeError returns the *exchangeError in err, or one with the text of err.
func asExchangeError(err error) *exchangeError {
	if f, ok := errors.AsType[*exchangeError](err); ok {
		return f
	}
	return &exchangeError{kind: kindLost, sent: true, text: err.Error()}
}

// callError returns the caller's error for f. ctx is the context of the call: its end may have
// caused f.
func callError(ctx context.Context, f *exchangeError) *switchboard.Error {
	e := &switchboard.Error{Cause: f, RetryAfter: f.after, Unsent: !f.sent, ServerFailed: f.blamesServer(), Lost: f.kind == kindLost}
	over, timed := errors.AsType[*slot.Limit](context.Cause(ctx))
	if ctx.Err() != nil && (!timed || !over.BlamesServer) {
		e.ServerFailed = false // the client left, or its time was shorter than the server's
	}
	which := "" // the limit that has passed
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

// asUnsent returns err as an error from before anything of the caller was sent.
func asUnsent(err error) *exchangeError {
	e := *asExchangeError(err)
	e.sent = false
	return &e
}
