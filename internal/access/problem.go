package access

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// HTTPStatus returns the HTTP status of a refusal outside of the protocol.
func HTTPStatus(code switchboard.Code) int {
	switch code {
	case switchboard.CodeNotAuthenticated, switchboard.CodeKeyExpired:
		return http.StatusUnauthorized
	case switchboard.CodeNotAuthorized, switchboard.CodeDenied, switchboard.CodePolicyFailed: // policy may veto a person's yes
		return http.StatusForbidden
	case switchboard.CodeBadArguments, switchboard.CodeMalformed:
		return http.StatusBadRequest
	case switchboard.CodeNoSuchTask, switchboard.CodeServerUnknown:
		return http.StatusNotFound
	case switchboard.CodeTaskRefused, switchboard.CodeUnmet, switchboard.CodeOverBudget, switchboard.CodeApprovalGone:
		return http.StatusConflict
	case switchboard.CodeOverloaded, switchboard.CodeTooManyAsked:
		return http.StatusTooManyRequests
	case switchboard.CodeConfig:
		return http.StatusUnprocessableEntity
	case switchboard.CodeChangedMeanwhile:
		return http.StatusPreconditionFailed
	case switchboard.CodeNotChangedHere, switchboard.CodeProposal:
		return http.StatusConflict
	case switchboard.CodeStoreUnavailable, switchboard.CodeReceipt, switchboard.CodeProviderAway:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// AsError returns the refusal that err is. Any other error must be in the log output already: its text is not for callers.
func AsError(err error) *switchboard.Error {
	if e, ok := errors.AsType[*switchboard.Error](err); ok {
		return e
	}
	return &switchboard.Error{Text: "this could not be answered; the log output of Switchboard says why"}
}

// A Problem is a refusal as problem details (RFC 9457), for endpoints other than MCP.
type Problem struct {
	Title  string            `json:"title"`
	Status int               `json:"status"`
	Detail string            `json:"detail"`
	Code   switchboard.Code  `json:"code,omitempty"`
	Retry  switchboard.Retry `json:"retryable,omitempty"`

	Requirement string `json:"requirement,omitempty"`
	Stage       string `json:"stage,omitempty"`
	Hint        string `json:"hint,omitempty"`
	Receipt     string `json:"receipt,omitempty"`
}

// ProblemOf returns the refusal as problem details.
func ProblemOf(status int, e *switchboard.Error) Problem {
	return Problem{
		http.StatusText(status), status, e.Text, e.Code, e.Retry(), e.Requirement, e.Stage, HintOf(e), ReceiptOf(e),
	}
}

// Encode returns the problem as JSON.
func (p Problem) Encode() []byte {
	b, _ := json.Marshal(p) // strings and numbers can be encoded
	return b
}

// ReceiptOf returns the id of the receipt for the client. A client gets none for a tool that does
// not exist for it.
func ReceiptOf(e *switchboard.Error) string {
	if e.Code == switchboard.CodeNoSuchTool {
		return ""
	}
	return e.Receipt
}

// HintOf returns the hint, or when to retry if there is no hint.
func HintOf(e *switchboard.Error) string {
	if e.Hint == "" && e.RetryAfter > 0 {
		return "ask again in " + e.RetryAfter.Round(time.Second).String()
	}
	return e.Hint
}
