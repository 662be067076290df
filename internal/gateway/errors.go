package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A failure is a JSON-RPC error.
type failure struct {
	code    int
	message string
	data    []byte // a JSON value; nil means none

	// object is the whole error object of a server, which is passed on unchanged.
	object []byte

	refusal switchboard.Code // the code of our refusal; "" for another error
}

// internalFailure tells the client only that we failed; the log output says why.
var internalFailure = &failure{code: wire.CodeInternal, message: "internal error; the log output of Switchboard says why"}

// envelope returns f as a message; a nil id is null.
func (f *failure) envelope(id []byte) []byte {
	if f.object != nil {
		return wire.AppendErrorObject(nil, id, f.object)
	}
	return wire.AppendError(nil, id, f.code, f.message, f.data)
}

// status returns the HTTP status of a message that holds only f. Legacy clients get every answer
// with 200.
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

// parseFailure says why a message could not be parsed, and returns its id if that was found.
func parseFailure(err error) (*failure, []byte) {
	var p *wire.ParseError
	if !errors.As(err, &p) {
		return internalFailure, nil
	}
	return &failure{code: p.Code, message: p.Reason + " (byte " + strconv.Itoa(p.Offset) + ")"}, p.ID
}

// unsupportedVersion lists the supported versions.
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

// maxEcho is how many bytes of a client's text we repeat in an answer.
const maxEcho = 256

// shorten cuts s to maxEcho bytes.
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

// unknownTool answers a call of a tool that does not exist, or that the caller may not see. Both
// look the same.
func unknownTool(name string) *failure {
	return failureOf(switchboard.Refuse(switchboard.CodeNoSuchTool, "Unknown tool: %s", shorten(name)))
}

// rpcCodes are the JSON-RPC codes of refusals. A standard code is used where one fits. The others
// are positive, because the protocol reserves the negative ones: a hundred for each family, plus
// the number of our code.
var rpcCodes = map[switchboard.Code]int{
	switchboard.CodeServerUnknown:     101,
	switchboard.CodeServerUnreachable: 102,
	switchboard.CodeServerProtocol:    103,
	switchboard.CodeNoWalls:           104,
	switchboard.CodeNoSuchTool:        wire.CodeInvalidParams,
	switchboard.CodeBadArguments:      wire.CodeInvalidParams,
	switchboard.CodeUnmet:             204,
	switchboard.CodeMalformed:         205,
	switchboard.CodeKeyTaken:          206,
	switchboard.CodeNotNow:            207,
	switchboard.CodeServedDifferently: 208,
	switchboard.CodeDenied:            301,
	switchboard.CodePolicyFailed:      302,
	switchboard.CodeObligation:        303,
	switchboard.CodeNotAuthenticated:  401,
	switchboard.CodeNotAuthorized:     402,
	switchboard.CodeKeyExpired:        403,
	switchboard.CodeConnectFirst:      405,
	switchboard.CodeProviderAway:      406,
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
	switchboard.CodeBudgetExceeded:    801,
	switchboard.CodeNotPriced:         802,
	switchboard.CodeApprovalPending:   901,
	switchboard.CodeApprovalRefused:   902,
	switchboard.CodeApprovalGone:      903,
	switchboard.CodeTooManyAsked:      1204,
	switchboard.CodeNoSuchTask:        1001,
	switchboard.CodeTaskRefused:       1002,
	switchboard.CodeReceipt:           1101,
	switchboard.CodeConfig:            1301,
}

// forTheModel are the refusals of a call that the model can act on. It gets them as the result of
// the tool: many agents do not show errors to the model.
var forTheModel = map[switchboard.Code]bool{
	switchboard.CodeBadArguments:      true,
	switchboard.CodeNotNow:            true,
	switchboard.CodeServedDifferently: true,
	switchboard.CodeOverBudget:        true,
	switchboard.CodeExpandDenied:      true,
	switchboard.CodeNotInGroup:        true,
	switchboard.CodeExpandFirst:       true,
	switchboard.CodeBudgetExceeded:    true,
	switchboard.CodeNotPriced:         true,
	switchboard.CodeApprovalPending:   true,
	switchboard.CodeApprovalRefused:   true,
	switchboard.CodeApprovalGone:      true,
	switchboard.CodeTooManyAsked:      true,
	switchboard.CodeConnectFirst:      true,
	switchboard.CodeProviderAway:      true,
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

// errorAnswer turns an error into the answer for the client of q. The error's cause goes only to
// the log output.
func (enc *encoder) errorAnswer(q *clientRequest, err error) rpcAnswer {
	var (
		own    *switchboard.Error
		server *switchboard.ServerError
	)
	switch {
	case errors.As(err, &own) && errors.Is(own.Cause, session.ErrCancelled):
		enc.log.Info("cancelled by its client", "method", q.Method, "tenant", q.principal.Tenant, "principal", q.principal.ID, "outcome", own.Code)
		return rpcAnswer{failure: failureOf(own)} // the answer is not sent
	case errors.As(err, &own):
		level := slog.LevelInfo
		if own.Code == switchboard.CodePolicyFailed { // an operator should correct the policy
			level = slog.LevelWarn
		}
		enc.log.Log(context.Background(), level, "refused", "code", own.Code, "method", q.Method, "tenant", q.principal.Tenant, "principal", q.principal.ID, "err", own)
		if q.Method == wire.MethodToolsCall && forTheModel[own.Code] {
			enc.recorder.Refused(own.Code)
			return rpcAnswer{result: enc.toolError(own, q.modern)}
		}
		return rpcAnswer{failure: failureOf(own)}
	case errors.As(err, &server):
		enc.log.Debug("a server answered with an error", "server", server.Server, "tenant", q.principal.Tenant)
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
		enc.log.Debug("ended early", "method", q.Method, "err", err)
		return rpcAnswer{failure: internalFailure}
	}
	enc.log.Error("failed", "method", q.Method, "tenant", q.principal.Tenant, "principal", q.principal.ID, "err", err)
	return rpcAnswer{failure: internalFailure}
}

// stoppedError is the error of a call that failed with err because Switchboard stopped. An answer
// of the server stays as it is.
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

// codeForEra translates an error code of a server into the era of the client of q. modern is the
// era of the server.
func codeForEra(code int, modern bool, q *clientRequest) int {
	switch {
	case code == wire.CodeResourceNotFound && q.modern:
		return wire.CodeInvalidParams
	case code == wire.CodeInvalidParams && modern && !q.modern && (q.Method == wire.MethodResourcesRead || q.Method == wire.MethodSubscribe):
		return wire.CodeResourceNotFound
	}
	return code
}

// MetaError is the key in the _meta of a tool's result that holds what the data of a JSON-RPC error
// would hold.
const MetaError = wire.MetaOurPrefix + "error"

// toolError returns e as a tool's result: a sentence for the model, and the data of the error for
// programs.
func (enc *encoder) toolError(e *switchboard.Error, modern bool) []byte {
	text := e.Text
	if e.Hint != "" {
		text = strings.TrimSuffix(text, ".") + ". " + strings.ToUpper(e.Hint[:1]) + e.Hint[1:]
	}
	text += " (" + string(e.Code) + ")"
	if d := e.ServedBy.Definition; d != "" {
		text += "\n" + d
	}
	b := wire.AppendString([]byte(`{"content":[{"type":"text","text":`), text)
	b = append(b, `}],"isError":true,`...)
	data := `"` + MetaError + `":` + string(errorData(e))
	if modern {
		b = append(b, `"resultType":"complete","_meta":`...)
		b = append(b, enc.ownMeta(data)...)
	} else {
		b = append(b, `"_meta":{`+data+`}`...)
	}
	return append(b, '}')
}

// RefusalOf returns the answer that refuses the request with that id and method with e. It is what a
// Gateway with this name and version answers.
func RefusalOf(name, version string, id []byte, method string, modern bool, e *switchboard.Error) []byte {
	if method == wire.MethodToolsCall && forTheModel[e.Code] {
		enc := encoder{serverInfo: ServerInfo(name, version)}
		return wire.AppendResult(nil, id, enc.toolError(e, modern))
	}
	return failureOf(e).envelope(id)
}

// IsStopping reports whether the error object of an answer says that Switchboard is stopping, and
// has therefore not begun with the request.
func IsStopping(object []byte) bool {
	f := failureOf(errStopping)
	code, _ := wire.Field(object, "code")
	raw, _ := wire.Field(object, "message")
	message, _ := wire.String(raw)
	return string(code) == strconv.Itoa(f.code) && message == f.message
}

// errorData returns the data of a refusal for programs: the code, whether a retry can help, and
// details.
func errorData(e *switchboard.Error) []byte {
	b := wire.AppendString([]byte(`{"code":`), string(e.Code))
	b = wire.AppendString(append(b, `,"retryable":`...), string(e.Retry()))
	for _, m := range []struct{ name, value string }{
		{"requirement", e.Requirement},
		{"stage", e.Stage},
		{"stub", e.ServedBy.Stub},
		{"tool", e.ServedBy.Name},
		{"hint", access.HintOf(e)},
		{"receipt", access.ReceiptOf(e)},
	} {
		if m.value != "" {
			b = wire.AppendString(append(b, `,"`+m.name+`":`...), m.value)
		}
	}
	for _, m := range e.Data {
		b = append(wire.AppendString(append(b, ','), m.Name), ':')
		b = append(b, m.JSON...)
	}
	return append(b, '}')
}

// countFailure counts f if it is a refusal.
func (enc *encoder) countFailure(f *failure) {
	if f != nil && f.refusal != "" {
		enc.recorder.Refused(f.refusal)
	}
}
