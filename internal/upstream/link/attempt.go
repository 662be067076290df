package link

import (
	"bytes"
	"context"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/endpoint"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An Attempt is one try of a call over a link.
type Attempt struct {
	Call      *switchboard.Call
	Params    *[]byte         // the client's params, and later also its answers to questions
	Allowance *slot.Allowance // of the call
	Reached   *bool           // set when any byte may have Reached a server

	// SaysUnknown reports whether the answer, an error object or a result, says that there is no such
	// tool. Unknown is set if the last answer did.
	SaysUnknown func(c *switchboard.Call, answer []byte, result bool) bool
	Unknown     bool
}

// Make makes the attempt over the link. The error is an *ExchangeError or the final error for the
// caller.
func (a *Attempt) Make(ctx context.Context, l *Link) (switchboard.Result, error) {
	c, modern := a.Call, l.Hello().Modern()
	rank := logLevelRank(c.LogLevel)
	l.levels.raise(rank)
	if !modern && c.Client.TakesQuestions {
		if _, answers := wire.Field(*a.Params, inputState); answers {
			return switchboard.Result{}, &switchboard.ServerError{Server: c.Server, Object: []byte(unknownStateError)}
		}
	}
	for range maxInputRounds {
		f := a.newRequest(l, rank)
		err := l.roundTrip(ctx, f, c.Notify)
		if err == nil || AsError(err).Kind != KindUnauthorized && AsError(err).Kind != KindScope { // then the server has said that it did nothing
			*a.Reached = *a.Reached || f.Sending.MayBeSent()
		}
		if err != nil {
			return switchboard.Result{}, err
		}
		if object := f.response.answer.ErrorObject; object != nil {
			if l.Questions.askToVisit(f.context(), f, c, object) {
				continue
			}
			a.Unknown = a.SaysUnknown(c, object, false)
			return switchboard.Result{}, &switchboard.ServerError{Server: c.Server, Modern: modern, Object: l.mask.With(f.shown.Token).JSON(object)}
		}
		r := f.response.result()
		if len(r.JSON) == 0 || r.JSON[0] != '{' {
			return switchboard.Result{}, Errorf(KindInvalid, true, "the result is not an object")
		}
		if c.Client.TakesQuestions || !modern || !isInputRequest(&r) {
			if isToolError(&r) {
				a.Unknown = a.SaysUnknown(c, r.JSON, true)
				r = maskResult(l.mask.With(f.shown.Token), r)
			}
			return r, nil
		}
		if *a.Params, err = l.Questions.askInputs(f.context(), f, c, *a.Params, r.JSON); err != nil {
			return switchboard.Result{}, err
		}
	}
	return switchboard.Result{}, Errorf(KindInvalid, true, "it has asked the client %d times, and has no result yet", maxInputRounds)
}

// newRequest returns the request of the attempt. rank is the rank of the log level that the client wants.
func (a *Attempt) newRequest(l *Link, rank int) *Request {
	c := a.Call
	var token []byte
	f := l.newRequestWith(c.Method, l.clientInfo.sizeOfParams(l.Hello(), c, *a.Params), func(dst, id []byte) []byte {
		dst, token = l.clientInfo.appendCallParams(dst, l.Hello(), c, *a.Params, id)
		return dst
	})
	f.progressToken, f.minLogLevel = token, rank
	f.client, f.allowance, f.owner = &c.Client, a.Allowance, &c.Principal
	if _, ok := l.port.(*httpPort); ok && l.Hello().Modern() && c.Target != "" {
		f.targetHeader = wire.EncodeHeader(c.Target)
		if c.Tool != nil && bytes.Contains(c.Tool.Definition, []byte(endpoint.ParamHeader)) {
			f.paramHeaders = http.Header{}
			arguments, _ := wire.Field(c.Params, "arguments")
			endpoint.AddParamHeaders(f.paramHeaders, c.Tool.Definition, arguments)
		}
	}
	return f
}

// maskResult returns the result without the server's secrets.
func maskResult(m *mask.Mask, r switchboard.Result) switchboard.Result {
	masked := m.JSON(r.JSON)
	if len(masked) == len(r.JSON) && &masked[0] == &r.JSON[0] {
		return r
	}
	return switchboard.Result{JSON: masked}
}

// unknownStateError answers a call that continues an earlier one with requestState. A legacy server
// never sends one, and would just execute the call again.
const unknownStateError = `{"code":-32602,"message":"params.requestState belongs to no request that waits for an answer: it was used already, has expired, or Switchboard was restarted; the call that asked may have been executed in part: check before you send the request again without it"}`

// isToolError reports whether the result is an error of the tool itself.
func isToolError(r *switchboard.Result) bool {
	said := false
	for _, m := range r.Outline.Members {
		if m.Name == wire.MemberError { // if repeated, the last counts, as for nearly all readers
			said = string(r.JSON[m.Value:m.End]) == "true"
		}
	}
	return said || r.Outline.Truncated
}

// isInputRequest reports whether the result asks the client for input first.
func isInputRequest(r *switchboard.Result) bool {
	for _, m := range r.Outline.Members {
		if m.Name == wire.MemberResultType {
			kind, _ := wire.String(r.JSON[m.Value:m.End])
			return kind == "input_required"
		}
	}
	return false
}
