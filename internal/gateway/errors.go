package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A failure is a JSON-RPC error.
type failure struct {
	code    int
	message string
	data    []byte // a value; nil means none

	// object is the whole error object of a server, which passes as it is.
	object []byte

	refusal switchboard.Code // of ours; "" where it is none
}

// internalFailure says no more than that we failed; the log says why.
var internalFailure = &failure{code: wire.CodeInternal, message: "internal error; the log of Switchboard has more"}

// envelope returns f as a message; a nil id is null.
func (f *failure) envelope(id []byte) []byte {
	if f.object != nil {
		return wire.AppendErrorObject(nil, id, f.object)
	}
	return wire.AppendError(nil, id, f.code, f.message, f.data)
}

// status is the HTTP status of a message that holds only f. Legacy clients take
// every answer to a request with 200.
func (f *failure) status(modern bool) int {
	if !modern {
		return http.StatusOK
	}
	switch f.code {
	case wire.CodeMethodNotFound:
		return http.StatusNotFound
	case wire.CodeParse, wire.CodeInvalidRequest, wire.CodeInvalidParams,
		wire.CodeHeaderMismatch, wire.CodeMissingCapability, wire.CodeUnsupportedVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

func invalidRequest(why string) *failure {
	return &failure{code: wire.CodeInvalidRequest, message: why}
}

func invalidParams(why string) *failure { return &failure{code: wire.CodeInvalidParams, message: why} }

func headerMismatch(why string) *failure {
	return &failure{code: wire.CodeHeaderMismatch, message: why}
}

func methodNotFound(method string) *failure {
	return &failure{code: wire.CodeMethodNotFound, message: "method not found: " + method}
}

// parseFailure is why a message was not accepted.
func parseFailure(err error) (*failure, []byte) {
	var p *wire.ParseError
	if !errors.As(err, &p) {
		return internalFailure, nil
	}
	return &failure{code: p.Code, message: p.Reason + " (byte " + strconv.Itoa(p.Offset) + ")"}, p.ID
}

// unsupportedVersion names the versions that there are.
func unsupportedVersion(version string) *failure {
	data := wire.AppendString([]byte(`{"requested":`), shorten(version))
	data = append(data, `,"supported":[`...)
	for i, v := range wire.Versions {
		if i > 0 {
			data = append(data, ',')
		}
		data = wire.AppendString(data, v)
	}
	return &failure{code: wire.CodeUnsupportedVersion, message: "unsupported protocol version: " + shorten(version), data: append(data, "]}"...)}
}

// maxEcho is how much of what a client sent is repeated to it, in bytes.
const maxEcho = 256

// shorten shortens s to what is repeated.
func shorten(s string) string {
	if len(s) <= maxEcho {
		return s
	}
	s = s[:maxEcho]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

// unknownTool is the answer to a tool that does not exist, and to one that the
// caller may not see. It says nothing by which the two could be told apart.
func unknownTool(name string) *failure {
	return failureOf(switchboard.Refuse(switchboard.CodeNoSuchTool, "Unknown tool: %s", shorten(name)))
}

// rpcCodes are the JSON-RPC codes of refusals. A standard one stands where it
// fits; the others are positive, a hundred for each family and then the number
// of our code, since the protocol keeps the negative ones to itself.
var rpcCodes = map[switchboard.Code]int{
	switchboard.CodeServerUnknown:     101,
	switchboard.CodeServerUnreachable: 102,
	switchboard.CodeServerProtocol:    103,
	switchboard.CodeNoSuchTool:        wire.CodeInvalidParams,
	switchboard.CodeBadArguments:      wire.CodeInvalidParams,
	switchboard.CodeUnmet:             204,
	switchboard.CodeMalformed:         205,
	switchboard.CodeKeyTaken:          206,
	switchboard.CodeServedDifferently: 208,
	switchboard.CodeDenied:            301,
	switchboard.CodePolicyFailed:      302,
	switchboard.CodeObligation:        303,
	switchboard.CodeNotAuthenticated:  401,
	switchboard.CodeNotAuthorized:     402,
	switchboard.CodeKeyExpired:        403,
	switchboard.CodeNoneHealthy:       501,
	switchboard.CodeRateLimit:         502,
	switchboard.CodeOverloaded:        503,
	switchboard.CodeStoreUnavailable:  504,
	switchboard.CodeServerFailed:      601,
	switchboard.CodeNotExecuted:       602,
	switchboard.CodeResultInvalid:     603,
	switchboard.CodeOutcomeUnknown:    604,
	switchboard.CodeOverBudget:        701,
	switchboard.CodeExpandDenied:      702,
	switchboard.CodeNotInGroup:        703,
	switchboard.CodeExpandFirst:       704,
	switchboard.CodeApprovalPending:   901,
	switchboard.CodeNoSuchTask:        1001,
	switchboard.CodeTaskRefused:       1002,
	switchboard.CodeReceipt:           1101,
	switchboard.CodeConfig:            1301,
}

// forTheModel are the refusals of a call that the model can act on. It sees
// them as the tool's result; an error would be kept from it by many agents.
var forTheModel = map[switchboard.Code]bool{
	switchboard.CodeBadArguments:      true,
	switchboard.CodeServedDifferently: true,
	switchboard.CodeOverBudget:        true,
	switchboard.CodeExpandDenied:      true,
	switchboard.CodeNotInGroup:        true,
	switchboard.CodeExpandFirst:       true,
	switchboard.CodeApprovalPending:   true,
	switchboard.CodeDenied:            true,
	switchboard.CodePolicyFailed:      true,
	switchboard.CodeObligation:        true,
	switchboard.CodeRateLimit:         true,
	switchboard.CodeStoreUnavailable:  true,
	switchboard.CodeOutcomeUnknown:    true,
}

// failureOf returns e as a JSON-RPC error.
func failureOf(e *switchboard.Error) *failure {
	code, ok := rpcCodes[e.Code]
	if !ok {
		code = wire.CodeInternal
	}
	return &failure{code: code, message: e.Text, data: errorData(e), refusal: e.Code}
}

// errorAnswer turns an error into what the client of q is told. Its cause is for
// the log alone.
func (g *Gateway) errorAnswer(q *clientRequest, err error) rpcAnswer {
	var (
		own    *switchboard.Error
		server *switchboard.ServerError
	)
	switch {
	case errors.As(err, &own) && errors.Is(own.Cause, errCancelled):
		g.log.Info("cancelled by its client", "method", q.Method, "tenant", q.principal.Tenant, "principal", q.principal.ID, "outcome", own.Code)
		return rpcAnswer{failure: failureOf(own)} // which nobody is sent
	case errors.As(err, &own):
		level := slog.LevelInfo
		if own.Code == switchboard.CodePolicyFailed { // somebody has a policy to mend
			level = slog.LevelWarn
		}
		g.log.Log(context.Background(), level, "refused", "code", own.Code, "method", q.Method, "tenant", q.principal.Tenant, "principal", q.principal.ID, "err", own)
		if q.Method == wire.MethodToolsCall && forTheModel[own.Code] {
			g.countRefusal(own.Code)
			return rpcAnswer{result: g.toolError(own, q.modern)}
		}
		return rpcAnswer{failure: failureOf(own)}
	case errors.As(err, &server):
		g.log.Debug("a server answered with an error", "server", server.Server, "tenant", q.principal.Tenant)
		f := &failure{code: wire.CodeInternal, object: server.Object}
		if raw, ok := wire.Field(server.Object, "code"); ok {
			if code, err := strconv.Atoi(string(raw)); err == nil {
				f.code = code
			}
		}
		if code := codeForEra(f.code, server.Modern, q); code != f.code {
			f.code = code
			f.object = wire.Rewrite(nil, server.Object, wire.Edit{Name: "code", Value: strconv.AppendInt(nil, int64(code), 10)})
		}
		return rpcAnswer{failure: f}
	case errors.Is(err, context.Canceled):
		g.log.Debug("ended before it was done", "method", q.Method, "err", err)
		return rpcAnswer{failure: internalFailure}
	}
	g.log.Error("failed", "method", q.Method, "tenant", q.principal.Tenant, "principal", q.principal.ID, "err", err)
	return rpcAnswer{failure: internalFailure}
}

// stoppedError is what the client is told of a call that failed with err while we
// were ending it, since we stop. What the server has answered stays as it is.
func stoppedError(err error) error {
	own, refused := errors.AsType[*switchboard.Error](err)
	_, answered := errors.AsType[*switchboard.ServerError](err)
	e := &switchboard.Error{
		Code:  switchboard.CodeOutcomeUnknown,
		Text:  "Switchboard was stopped before the tool had answered; the call may have been executed: check before you repeat it",
		Cause: err,
	}
	if refused {
		e.Receipt = own.Receipt
	}
	switch {
	case refused && own.Code == switchboard.CodeNotExecuted:
		e.Code = own.Code
		e.Text = "Switchboard was stopped before the call could be sent, so it was not executed"
	case refused && own.Code != switchboard.CodeOutcomeUnknown, answered:
		return err
	}
	return e
}

// codeForEra is the code by which the client's era says what the server's says
// by code.
func codeForEra(code int, modern bool, q *clientRequest) int {
	switch {
	case code == wire.CodeResourceNotFound && q.modern:
		return wire.CodeInvalidParams
	case code == wire.CodeInvalidParams && modern && !q.modern && (q.Method == wire.MethodResourcesRead || q.Method == wire.MethodSubscribe):
		return wire.CodeResourceNotFound
	}
	return code
}

// MetaError is the key in the _meta of a tool's result under which stands what
// is the data of a JSON-RPC error elsewhere.
const MetaError = wire.MetaOurPrefix + "error"

// toolError returns e as the result of a call: a sentence for the model, and
// the same data as an error would have for programs.
func (g *Gateway) toolError(e *switchboard.Error, modern bool) []byte {
	text := e.Text
	if e.Hint != "" {
		text = strings.TrimSuffix(text, ".") + ". " + strings.ToUpper(e.Hint[:1]) + e.Hint[1:]
	}
	text += " (" + string(e.Code) + ")"
	if e.Definition != "" {
		text += "\n" + e.Definition
	}
	b := wire.AppendString([]byte(`{"content":[{"type":"text","text":`), text)
	b = append(b, `}],"isError":true,`...)
	data := `"` + MetaError + `":` + string(errorData(e))
	if modern {
		b = append(b, `"resultType":"complete","_meta":`...)
		b = append(b, g.ownMeta(data)...)
	} else {
		b = append(b, `"_meta":{`+data+`}`...)
	}
	return append(b, '}')
}

// errorData is what programs are told of a refusal: the code, whether asking
// again can help, and what narrows it down.
func errorData(e *switchboard.Error) []byte {
	b := wire.AppendString([]byte(`{"code":`), string(e.Code))
	b = wire.AppendString(append(b, `,"retryable":`...), string(e.Retry()))
	for _, m := range []struct{ name, value string }{
		{"requirement", e.Requirement},
		{"stage", e.Stage},
		{"stub", e.Stub},
		{"tool", e.Tool},
		{"hint", hintOf(e)},
		{"receipt", receiptOf(e)},
	} {
		if m.value != "" {
			b = wire.AppendString(append(b, `,"`+m.name+`":`...), m.value)
		}
	}
	return append(b, '}')
}

// receiptOf is the id of the receipt as clients are told it. Of what does not exist for them
// they are told nothing.
func receiptOf(e *switchboard.Error) string {
	if e.Code == switchboard.CodeNoSuchTool {
		return ""
	}
	return e.Receipt
}

// hintOf says when to ask again, where there is no better hint.
func hintOf(e *switchboard.Error) string {
	if e.Hint == "" && e.RetryAfter > 0 {
		return "ask again in " + e.RetryAfter.Round(time.Second).String()
	}
	return e.Hint
}

// httpStatus is the HTTP status of a refusal that is answered before, or
// besides, the protocol.
func httpStatus(code switchboard.Code) int {
	switch code {
	case switchboard.CodeNotAuthenticated, switchboard.CodeKeyExpired:
		return http.StatusUnauthorized
	case switchboard.CodeNotAuthorized:
		return http.StatusForbidden
	case switchboard.CodeNoSuchTask, switchboard.CodeServerUnknown:
		return http.StatusNotFound
	case switchboard.CodeTaskRefused, switchboard.CodeUnmet, switchboard.CodeOverBudget:
		return http.StatusConflict
	case switchboard.CodeOverloaded:
		return http.StatusTooManyRequests
	case switchboard.CodeStoreUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// problem is RFC 9457: how what is not MCP is refused.
func problem(status int, e *switchboard.Error) []byte {
	p := struct {
		Title  string            `json:"title"`
		Status int               `json:"status"`
		Detail string            `json:"detail"`
		Code   switchboard.Code  `json:"code,omitempty"`
		Retry  switchboard.Retry `json:"retryable,omitempty"`

		Requirement string `json:"requirement,omitempty"`
		Stage       string `json:"stage,omitempty"`
		Hint        string `json:"hint,omitempty"`
		Receipt     string `json:"receipt,omitempty"`
	}{
		http.StatusText(status), status, e.Text, e.Code, e.Retry(), e.Requirement, e.Stage, hintOf(e), receiptOf(e),
	}
	b, _ := json.Marshal(p) // strings and numbers: it cannot fail
	return b
}
