package switchboard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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
	CodeBadArguments      Code = "SB-CAP-003"
	CodeUnmet             Code = "SB-CAP-004"
	CodeMalformed         Code = "SB-CAP-005"
	CodeKeyTaken          Code = "SB-CAP-006"
	CodeServedDifferently Code = "SB-CAP-008"
	CodeDenied            Code = "SB-POL-001"
	CodePolicyFailed      Code = "SB-POL-002"
	CodeObligation        Code = "SB-POL-003"
	CodeNotAuthenticated  Code = "SB-AUTH-001"
	CodeNotAuthorized     Code = "SB-AUTH-002"
	CodeKeyExpired        Code = "SB-AUTH-003"
	CodeNoneHealthy       Code = "SB-ROUT-001"
	CodeRateLimit         Code = "SB-ROUT-002"
	CodeOverloaded        Code = "SB-ROUT-003"
	CodeStoreUnavailable  Code = "SB-ROUT-004"
	CodeServerFailed      Code = "SB-EXEC-001"
	CodeNotExecuted       Code = "SB-EXEC-002"
	CodeResultInvalid     Code = "SB-EXEC-003"
	CodeOutcomeUnknown    Code = "SB-EXEC-004"
	CodeOverBudget        Code = "SB-LAZY-001"
	CodeExpandDenied      Code = "SB-LAZY-002"
	CodeNotInGroup        Code = "SB-LAZY-003"
	CodeExpandFirst       Code = "SB-LAZY-004"
	CodeApprovalPending   Code = "SB-APPR-001"
	CodeNoSuchTask        Code = "SB-TASK-001"
	CodeTaskRefused       Code = "SB-TASK-002"
	CodeReceipt           Code = "SB-RCPT-001"
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
	CodeBadArguments:      RetryNo,
	CodeUnmet:             RetryNo,
	CodeMalformed:         RetryNo,
	CodeKeyTaken:          RetryNo,
	CodeServedDifferently: RetryYes,
	CodeDenied:            RetryNo,
	CodePolicyFailed:      RetryLater,
	CodeObligation:        RetryNo,
	CodeNotAuthenticated:  RetryNo,
	CodeNotAuthorized:     RetryNo,
	CodeKeyExpired:        RetryNo,
	CodeNoneHealthy:       RetryLater,
	CodeRateLimit:         RetryLater,
	CodeOverloaded:        RetryLater,
	CodeStoreUnavailable:  RetryLater,
	CodeServerFailed:      RetryNo,
	CodeNotExecuted:       RetryYes,
	CodeResultInvalid:     RetryNo,
	CodeOutcomeUnknown:    RetryAskPerson,
	CodeOverBudget:        RetryNo,
	CodeExpandDenied:      RetryNo,
	CodeNotInGroup:        RetryNo,
	CodeExpandFirst:       RetryNo,
	CodeApprovalPending:   RetryLater,
	CodeNoSuchTask:        RetryNo,
	CodeTaskRefused:       RetryNo,
	CodeReceipt:           RetryLater,
	CodeConfig:            RetryNo,
}

// Codes returns all codes, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(retries)) }

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

	// Stub is the tool that expands what was called, where that is on demand.
	Stub string

	// Tool is the name of the tool that serves what was called now, where that is another one,
	// and Definition its definition.
	Tool       string
	Definition string

	// Hint is what the caller can do next, where Text does not say it.
	Hint string

	// RetryAfter is how long to wait before asking again; 0 means unknown.
	RetryAfter time.Duration

	// Later says that the clock alone refuses it: at another time the same is allowed.
	Later bool

	// Unsent says that the call provably never reached a server.
	Unsent bool

	// Moves says that the call never left, and that another candidate of its requirement is fit: the run is
	// bound to that one soon.
	Moves bool

	// ServerFailed says that the failure is the server's: of its transport, its
	// time, its word on the protocol. It is no answer of a tool's, nor the
	// caller's doing.
	ServerFailed bool

	// Lost says that the connection broke under the call: and so it did under all
	// that were under way on it.
	Lost bool

	// Receipt is the id of the receipt that there is of it; "" where there is none.
	Receipt string

	// Cause is for the operator: the log and explain show it, clients do not.
	Cause error
}

// Retry says whether asking again can help.
func (e *Error) Retry() Retry {
	if e.Later {
		return RetryLater
	}
	return e.Code.Retry()
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

// Receipted returns err with the id of its receipt, where it is an *Error and id is not "".
// What else is wrapped around that is let go. err itself, which others may have too, stays as it is.
func Receipted(err error, id string) error {
	own, ok := errors.AsType[*Error](err)
	if !ok || id == "" {
		return err
	}
	noted := *own
	noted.Receipt = id
	return &noted
}

// Unavailable returns the refusal of a call that needs the store while that cannot
// be used: SB-ROUT-004. text says what could not be told or kept, and that the
// call was not made. err is the store's, for the operator.
func Unavailable(text string, err error) *Error {
	return &Error{Code: CodeStoreUnavailable, Text: text + "; try again in a moment", RetryAfter: time.Second, Unsent: true, Cause: err}
}
