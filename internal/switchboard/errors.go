package switchboard

import (
	"fmt"
	"time"
)

// A Code is the stable name of a refusal. docs/errors/ has a section for each.
type Code string

// The codes in use.
const (
	CodeServerUnknown     Code = "SB-DISC-001"
	CodeServerUnreachable Code = "SB-DISC-002"
	CodeServerProtocol    Code = "SB-DISC-003"
	CodeNoSuchTool        Code = "SB-CAP-001"
	CodeUnmet             Code = "SB-CAP-004"
	CodeMalformed         Code = "SB-CAP-005"
	CodeDenied            Code = "SB-POL-001"
	CodePolicyFailed      Code = "SB-POL-002"
	CodeObligation        Code = "SB-POL-003"
	CodeNotAuthenticated  Code = "SB-AUTH-001"
	CodeNotAuthorized     Code = "SB-AUTH-002"
	CodeNoneHealthy       Code = "SB-ROUT-001"
	CodeRateLimit         Code = "SB-ROUT-002"
	CodeOverloaded        Code = "SB-ROUT-003"
	CodeServerFailed      Code = "SB-EXEC-001"
	CodeNotExecuted       Code = "SB-EXEC-002"
	CodeResultInvalid     Code = "SB-EXEC-003"
	CodeOutcomeUnknown    Code = "SB-EXEC-004"
	CodeApprovalPending   Code = "SB-APPR-001"
	CodeNoSuchTask        Code = "SB-TASK-001"
	CodeTaskRefused       Code = "SB-TASK-002"
	CodeConfig            Code = "SB-CONF-001"
)

// Retry says whether asking again can help.
type Retry string

// The answers to "shall I retry?".
const (
	RetryNo        Retry = "no"
	RetryLater     Retry = "later"
	RetryBackoff   Retry = "backoff"
	RetryYes       Retry = "yes"
	RetryAskPerson Retry = "ask a person"
)

// retries has every code.
var retries = map[Code]Retry{
	CodeServerUnknown:     RetryNo,
	CodeServerUnreachable: RetryBackoff,
	CodeServerProtocol:    RetryNo,
	CodeNoSuchTool:        RetryNo,
	CodeUnmet:             RetryNo,
	CodeMalformed:         RetryNo,
	CodeDenied:            RetryNo,
	CodePolicyFailed:      RetryLater,
	CodeObligation:        RetryNo,
	CodeNotAuthenticated:  RetryNo,
	CodeNotAuthorized:     RetryNo,
	CodeNoneHealthy:       RetryLater,
	CodeRateLimit:         RetryLater,
	CodeOverloaded:        RetryLater,
	CodeServerFailed:      RetryNo,
	CodeNotExecuted:       RetryYes,
	CodeResultInvalid:     RetryNo,
	CodeOutcomeUnknown:    RetryAskPerson,
	CodeApprovalPending:   RetryLater,
	CodeNoSuchTask:        RetryNo,
	CodeTaskRefused:       RetryNo,
	CodeConfig:            RetryNo,
}

// Retry returns what the code says about asking again.
func (c Code) Retry() Retry { return retries[c] }

// An Error is a refusal, or a failure of ours to finish what was asked. It has
// two texts: one for the caller, and one for the operator.
type Error struct {
	Code Code

	// Text is for the caller: what was refused and what to do next, with no
	// topology, no rule text and no secret.
	Text string

	// Requirement and Stage say, where a decision refused, which requirement
	// was left with nothing and which stage removed the last candidate.
	Requirement string
	Stage       string

	// Hint is what the caller can do next, where Text does not say it.
	Hint string

	// RetryAfter is how long to wait before asking again; 0 means unknown.
	RetryAfter time.Duration

	// Cause is for the operator: the log and explain show it, clients do not.
	Cause error
}

// Error gives the code, the caller's text, and the cause.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Text
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Refuse returns an Error with the caller's text.
func Refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}
