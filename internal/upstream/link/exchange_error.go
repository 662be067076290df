package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/route"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
)

// An ErrorKind classifies what can go wrong between Switchboard and a server.
type ErrorKind int

// The kinds of errors.
const (
	KindUnreachable  ErrorKind = iota // no connection, no process
	KindLost                          // the connection or the process ended
	KindGone                          // the server no longer knows our session
	KindRefused                       // HTTP status 4xx, or a redirect
	KindUnauthorized                  // it demands a token that we do not have, or that it no longer takes; nothing was executed
	KindScope                         // it demands a token with more scopes; nothing was executed
	KindBroken                        // HTTP status 5xx
	KindLimited                       // HTTP status 429
	KindInvalid                       // an invalid or too large answer
	KindProtocol                      // no protocol that we know
	KindSilent                        // no answer in time
	KindNoWalls                       // its program was not started: this machine lacks a wall that it must have
)

// An ExchangeError says why an exchange with a server failed. Its text is for operators and
// contains no secret.
type ExchangeError struct {
	Kind ErrorKind
	Text string

	// Remedy is a sentence for operators; "" means that none is known.
	Remedy string

	// Sent says that the request may have reached the server. The request may be sent again only if
	// it is false.
	Sent bool

	// Ours says that the server did not cause it.
	Ours bool

	// Gone says that no program is there: the process has ended, or the port refuses connections.
	Gone bool

	// Second says that the server runs, and could not be started once more for one client.
	Second bool

	Status int                // HTTP status, if that is what went wrong
	After  time.Duration      // wait before the next request; 0 means unknown
	code   int                // of the JSON-RPC error in the response; 0 means none
	object []byte             // that error
	token  switchboard.Secret // that the request carried, with object
	cause  error              // for KindUnauthorized and KindScope: a *switchboard.Error for the caller
}

// Error returns the text.
func (f *ExchangeError) Error() string { return f.Text }

// ScopeRefusal returns the caller's error if err says that the server demands a token with more scopes; otherwise nil.
func ScopeRefusal(err error) *switchboard.Error {
	if f := AsError(err); f.Kind == KindScope {
		refused, _ := errors.AsType[*switchboard.Error](f.cause)
		return refused
	}
	return nil
}

// Unsent reports whether nothing was sent.
func (f *ExchangeError) Unsent() bool { return !f.Sent }

// Errorf returns an error. sent says that the request may have been sent.
func Errorf(k ErrorKind, sent bool, format string, args ...any) *ExchangeError {
	return &ExchangeError{Kind: k, Sent: sent, Text: fmt.Sprintf(format, args...)}
}

// WithRemedy sets the remedy of f if err says why no connection was opened: because of its address, its proxy or a
// certificate.
func (f *ExchangeError) WithRemedy(err error) *ExchangeError {
	f.Remedy = route.Remedy(err)
	if refused, ok := errors.AsType[*dial.RefusedError](err); ok {
		f.Remedy = refused.Remedy
	}
	return f
}

// OwnError returns an error that the server did not cause.
func OwnError(k ErrorKind, sent bool, text string) *ExchangeError {
	return &ExchangeError{Kind: k, Sent: sent, Text: text, Ours: true}
}

// BlamesServer reports whether the server has failed. A server that refuses a request has not
// failed. A server that refuses while a connection is opened has.
func (f *ExchangeError) BlamesServer() bool {
	switch {
	case f.Ours, f.Kind == KindLimited, f.Kind == KindUnauthorized, f.Kind == KindScope:
		return false
	case f.Kind == KindRefused:
		return !f.Sent || f.Status/100 == 3 // MCP has no redirects
	}
	return true
}

// AsError returns the *ExchangeError in err, or one with the text of err.
func AsError(err error) *ExchangeError {
	if f, ok := errors.AsType[*ExchangeError](err); ok {
		return f
	}
	return &ExchangeError{Kind: KindLost, Sent: true, Text: err.Error()}
}

// CallError returns the caller's error for f. ctx is the context of the call: its end may have
// caused f.
func CallError(ctx context.Context, f *ExchangeError) *switchboard.Error {
	e := &switchboard.Error{Cause: f, RetryAfter: f.After, Unsent: !f.Sent, ServerFailed: f.BlamesServer(), ConnectionLost: f.Kind == KindLost}
	over, timed := errors.AsType[*slot.TimeLimit](context.Cause(ctx))
	if ctx.Err() != nil && (!timed || !over.BlamesServer) {
		e.ServerFailed = false // the client left, or its time was shorter than the server's
	}
	which := "" // the limit that has passed
	if timed {
		which = " (" + over.Error() + ")"
	}
	timed = timed || errors.Is(ctx.Err(), context.DeadlineExceeded)
	switch {
	case timed && !f.Sent:
		e.Code = switchboard.CodeNotExecuted
		e.Text = "the time for this call was over before it could be sent" + which + ", so it was not executed"
	case timed:
		e.Code = switchboard.CodeOutcomeUnknown
		e.Text = "the tool did not answer in time" + which + "; it may have been executed: check before you repeat the call"
	case ctx.Err() != nil && !f.Sent:
		e.Code = switchboard.CodeNotExecuted
		e.Text = "the call was cancelled before it could be sent, so it was not executed"
	case ctx.Err() != nil:
		e.Code = switchboard.CodeOutcomeUnknown
		e.Text = "the call was cancelled; it may have been executed"
		e.Cause = context.Cause(ctx)
	case f.Kind == KindUnauthorized, f.Kind == KindScope:
		e.Code = switchboard.CodeConnectFirst
		e.Text = "the tool's server does not take the token that was sent; the call was not executed"
		e.Hint = "call it again: it is then sent with another token, or the answer says who must connect the server"
		if refused, ok := errors.AsType[*switchboard.Error](f.cause); ok {
			e.Code, e.Text, e.Hint, e.RetryAfter = refused.Code, refused.Text, refused.Hint, refused.RetryAfter
		}
	case f.Kind == KindNoWalls:
		e.Code = switchboard.CodeNoWalls
		e.Text = "the tool's server is not started, because this machine lacks a wall that it must have; its operator must decide"
	case f.Kind == KindLimited:
		e.Code = switchboard.CodeRateLimit
		e.Text = "the tool's server takes no more calls for now; try again later"
	case !f.Sent && (f.Kind == KindProtocol || f.Kind == KindInvalid):
		e.Code = switchboard.CodeServerProtocol
		e.Text = "the tool's server speaks no protocol that is known here"
	case f.Kind == KindInvalid:
		e.Code = switchboard.CodeResultInvalid
		e.Text = "the tool's server answered with something that cannot be passed on: " + f.Text
	case f.Kind == KindRefused:
		e.Code = switchboard.CodeServerFailed
		e.Text = "the tool's server refused the call; its operator must look at how it is configured"
	case f.Kind == KindSilent && !f.Sent:
		e.Code = switchboard.CodeNoneHealthy
		e.Text = "the tool's server is not ready; try again later"
	case !f.Sent && f.Kind == KindGone:
		e.Code = switchboard.CodeServerUnreachable
		e.Text = "the tool's server has forgotten our session, and so did not execute the call; try again later"
	case !f.Sent && f.Second:
		e.Code = switchboard.CodeServerUnreachable
		e.Text = "the tool's server runs, but could not be started once more for you, and the call was not sent"
		e.Hint = "a client that can be asked (roots, elicitation, sampling) gets a process of its own; if only one can run at a time, the operator of Switchboard writes share: all for this server"
	case !f.Sent:
		e.Code = switchboard.CodeServerUnreachable
		e.Text = "the tool's server cannot be reached now, and the call was not sent; try again later"
	default:
		e.Code = switchboard.CodeOutcomeUnknown
		e.Text = "the tool's server failed during the call; it may have been executed: check before you repeat the call"
	}
	return e
}

// AsUnsent returns err as an error from before anything of the caller was sent.
func AsUnsent(err error) *ExchangeError {
	e := *AsError(err)
	e.Sent = false
	return &e
}
