package switchboard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// A Code is the stable name of a refusal. docs/errors/ has one section for each code.
type Code string

// The codes.
const (
	CodeServerUnknown     Code = "SB-DISC-001"
	CodeServerUnreachable Code = "SB-DISC-002"
	CodeServerProtocol    Code = "SB-DISC-003"
	CodeNoWalls           Code = "SB-DISC-004"
	CodeNoSuchTool        Code = "SB-CAP-001"
	CodeBadArguments      Code = "SB-CAP-003"
	CodeUnmet             Code = "SB-CAP-004"
	CodeMalformed         Code = "SB-CAP-005"
	CodeKeyTaken          Code = "SB-CAP-006"
	CodeNotNow            Code = "SB-CAP-007"
	CodeServedDifferently Code = "SB-CAP-008"
	CodeDenied            Code = "SB-POL-001"
	CodePolicyFailed      Code = "SB-POL-002"
	CodeObligation        Code = "SB-POL-003"
	CodeNotAuthenticated  Code = "SB-AUTH-001"
	CodeNotAuthorized     Code = "SB-AUTH-002"
	CodeKeyExpired        Code = "SB-AUTH-003"
	CodeConnectFirst      Code = "SB-AUTH-005"
	CodeProviderAway      Code = "SB-AUTH-006"
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
	CodeBudgetExceeded    Code = "SB-COST-001"
	CodeNotPriced         Code = "SB-COST-002"
	CodeApprovalPending   Code = "SB-APPR-001"
	CodeApprovalRefused   Code = "SB-APPR-002"
	CodeApprovalGone      Code = "SB-APPR-003"
	CodeSuspended         Code = "SB-LIFE-001"
	CodeRetired           Code = "SB-LIFE-002"
	CodeNotLetIn          Code = "SB-LIFE-003"
	CodeTooManyAsked      Code = "SB-LIFE-004"
	CodeNoSuchTask        Code = "SB-TASK-001"
	CodeTaskRefused       Code = "SB-TASK-002"
	CodeReceipt           Code = "SB-RCPT-001"
	CodeConfig            Code = "SB-CONF-001"
	CodeChangedMeanwhile  Code = "SB-CONF-002"
	CodeNotChangedHere    Code = "SB-CONF-003"
	CodeProposal          Code = "SB-CONF-004"
)

// Retry says whether a retry can help.
type Retry string

// The values of Retry.
const (
	RetryNo        Retry = "no"
	RetryLater     Retry = "later"
	RetryBackoff   Retry = "backoff"
	RetryYes       Retry = "yes"
	RetryAskPerson Retry = "ask a person"
)

// retryByCode has an entry for every code.
var retryByCode = map[Code]Retry{
	CodeServerUnknown:     RetryNo,
	CodeServerUnreachable: RetryBackoff,
	CodeServerProtocol:    RetryNo,
	CodeNoWalls:           RetryNo,
	CodeNoSuchTool:        RetryNo,
	CodeBadArguments:      RetryNo,
	CodeUnmet:             RetryNo,
	CodeMalformed:         RetryNo,
	CodeKeyTaken:          RetryNo,
	CodeNotNow:            RetryLater,
	CodeServedDifferently: RetryYes,
	CodeDenied:            RetryNo,
	CodePolicyFailed:      RetryLater,
	CodeObligation:        RetryNo,
	CodeNotAuthenticated:  RetryNo,
	CodeNotAuthorized:     RetryNo,
	CodeKeyExpired:        RetryNo,
	CodeConnectFirst:      RetryAskPerson,
	CodeProviderAway:      RetryLater,
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
	CodeBudgetExceeded:    RetryLater,
	CodeNotPriced:         RetryNo,
	CodeApprovalPending:   RetryLater,
	CodeApprovalRefused:   RetryNo,
	CodeApprovalGone:      RetryNo,
	CodeSuspended:         RetryAskPerson,
	CodeRetired:           RetryNo,
	CodeNotLetIn:          RetryAskPerson,
	CodeTooManyAsked:      RetryLater,
	CodeNoSuchTask:        RetryNo,
	CodeTaskRefused:       RetryNo,
	CodeReceipt:           RetryLater,
	CodeConfig:            RetryNo,
	CodeChangedMeanwhile:  RetryNo,
	CodeNotChangedHere:    RetryNo,
	CodeProposal:          RetryNo,
}

// Codes returns all codes, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(retryByCode)) }

// Retry returns whether a retry can help after this code.
func (c Code) Retry() Retry { return retryByCode[c] }

// An Error says that Switchboard refused a request or could not finish it. It has two texts: one for the caller and one
// for the operator.
type Error struct {
	Code Code

	// Text is for the caller: what was refused, and what to do next. It never shows topology, the text of rules, or
	// secrets.
	Text string

	// Requirement and Stage are set if a decision refused: the requirement that has no candidate left, and the stage
	// that dropped the last one.
	Requirement string
	Stage       string

	// ServedBy says what serves the called name in another way.
	ServedBy ServedTool

	// Data are more members for programs, beside the code. They are for the caller, as Text is.
	Data []DataMember

	// Hint says what the caller can do next, if Text does not.
	Hint string

	// RetryAfter is how long to wait before a retry; 0 means unknown.
	RetryAfter time.Duration

	// ByTheClock says that only the time of day or the date refuses the request. The same request is allowed at another
	// time.
	ByTheClock bool

	// Unsent says that the call provably did not reach a server.
	Unsent bool

	// Rebinds says that the call was not sent and that another candidate of its requirement is fit. The run is soon bound
	// to that candidate.
	Rebinds bool

	// ServerFailed says that the server failed: its transport, a timeout, or a breach of the protocol. It is false for
	// an error that a tool returned, and for mistakes of the caller.
	ServerFailed bool

	// ConnectionLost says that the connection broke during the call. It then broke for all calls in flight on it.
	ConnectionLost bool

	// Receipt is the id of the call's receipt; "" if there is none.
	Receipt string

	// Cause is for the operator. The log output and explain show it; clients never see it.
	Cause error
}

// A ServedTool is what serves a called name in another way.
type ServedTool struct {
	Name, Definition string // of the tool that now serves it, as a client sees it
	Stub             string // expands the called tool, which is on demand
}

// A DataMember is a member of the data of an Error.
type DataMember struct {
	Name string
	JSON []byte // its value
}

// Retry returns whether a retry can help.
func (e *Error) Retry() Retry {
	if e.ByTheClock {
		return RetryLater
	}
	return e.Code.Retry()
}

// Error returns the code, the caller's text, and the cause.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Text
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Refuse returns an Error with the text for the caller.
func Refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// WithReceipt returns err with the id of its receipt, if err is an *Error and id is not "". It drops any errors wrapped
// around the *Error. It does not modify err itself, which other goroutines may share.
func WithReceipt(err error, id string) error {
	own, ok := errors.AsType[*Error](err)
	if !ok || id == "" {
		return err
	}
	noted := *own
	noted.Receipt = id
	return &noted
}

// Unavailable returns the refusal of a call that needs the store while the store cannot be used: SB-ROUT-004. text says
// what could not be read or written, and that the call was not made. err is the store's error, for the operator.
func Unavailable(text string, err error) *Error {
	return &Error{Code: CodeStoreUnavailable, Text: text + "; try again in a moment", RetryAfter: time.Second, Unsent: true, Cause: err}
}
