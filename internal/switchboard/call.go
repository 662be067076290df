package switchboard

import (
	"context"
	"time"
)

// A RunID is the name of one run of a task: 128 random bits in lower-case hexadecimal. Switchboard makes it, and only
// the principal of the run can use it.
type RunID string

// A Call is one request of a client to one server: the use of a tool, or of something else that the server offers. It
// is not modified once it is made.
type Call struct {
	Principal Principal
	Task      TaskID
	Run       RunID

	// Server receives the call. Method is the MCP method, such as tools/call.
	Server ServerID
	Method string

	// Tool is the tool that the decision selected; nil if the call is not a tool call.
	Tool *Tool

	// Item is what the call asks for if it is not a tool call.
	Item Item

	// Judgments are policy's answers about the requirements that selected the tool. For a call that is not a tool call,
	// they are about the requirements that selected any tool of the server.
	Judgments []*Judgment

	// Obligations are the conditions that policy sets for the call. Package policy fills them in; whoever makes the
	// call leaves them empty.
	Obligations Obligations

	// Equivalents are the tools that the call may move to, in the order of the decision. They belong to other servers
	// than Server.
	Equivalents []Equivalent

	// Alternatives are candidates of the same requirement on other servers, in the order of the decision. If the server is
	// not fit and one of them is, the run is soon bound again.
	Alternatives []ToolID

	// Attempt says which attempt of the client's call this is: how many of its tools came before, also those that were passed over.
	Attempt int

	// Flows, if set, is what remembers for the run what its calls have touched. Touched is what it had touched before this call:
	// package policy fills it in for calls of tools that carry data out.
	Flows   RunFlows
	Touched Touched

	// Yes, if set, is the approval that the attempt uses when it is sent. Package approval sets it, and package commit uses it.
	Yes *Yes

	// Resumes is the id of the request that the client resumes with switchboard_resume; "" if it makes the call itself.
	Resumes string

	// WantsReceipt says that the client gets the id of the call's receipt.
	WantsReceipt bool

	// NoWait says that the call has somewhere else to go. If there is no connection to the server, the call then fails
	// at once.
	NoWait bool

	// Target is the server's own name for the tool or prompt that the call asks for, or the URI of the resource. It is
	// "" for a method that names nothing.
	Target string

	// Params are the params as the client sent them, strictly scanned. They still hold the client's own spelling of
	// Target, and the keys of _meta that belong to Switchboard or to the protocol. The code that sends the call on
	// rewrites these.
	Params []byte

	// LogLevel is the lowest severity of log notifications that the client wants, in the protocol's spelling; "" means
	// that it wants none.
	LogLevel string

	// Notify, if set, receives the notifications that the server sends about this call before its result, in the
	// server's order. It is not called concurrently, and not after Call has returned.
	Notify func(Notification)

	// Client is what the client can be asked for.
	Client Client

	// IdempotencyKey, if set, says that the call is made only once, however often the client sends it.
	IdempotencyKey *IdempotencyKey

	// AnyLength says that the client accepts results of any length.
	AnyLength bool

	// Stored, if set, is the stored result of an earlier call. It is returned again, and no server is called.
	Stored *StoredResult

	// Trail collects facts for the call's receipt while the call passes through the wrappers; nil means that there is
	// no receipt to collect for.
	Trail *Trail
}

// Candidate returns the id of the call's target in policies: server/tool, or server/kind:name.
func (c *Call) Candidate() ToolID {
	if c.Tool != nil {
		return c.Tool.ID
	}
	return ToolID{Server: c.Server, Name: c.Item.Label()}
}

// A CandidateKind is the kind of thing that policy judges.
type CandidateKind string

// The kinds of candidates. KindExtension is a method that the protocol does not define.
const (
	KindTool       CandidateKind = "tool"
	KindResource   CandidateKind = "resource"
	KindTemplate   CandidateKind = "template"
	KindPrompt     CandidateKind = "prompt"
	KindCompletion CandidateKind = "completion"
	KindExtension  CandidateKind = "extension"
)

// An Item is what a call that is not a tool call asks for, as policies judge it.
type Item struct {
	Kind CandidateKind

	// Name is the server's own name: the URI of a listed resource, the template that describes a URI, the name of a
	// prompt, the thing to complete, or the method of an extension.
	Name string

	// URI is the resource that is read or subscribed to, in the server's own spelling; "" if the call names none.
	URI string

	// Arguments are the arguments of a prompt, or the values of a completion, as a JSON object; nil means none.
	Arguments []byte
}

// Label returns kind:name.
func (i *Item) Label() string { return string(i.Kind) + ":" + i.Name }

// An IdempotencyKey is the idempotency key of one use of a tool. With it a client can ask for the same use again, and cannot ask
// for another use by mistake.
type IdempotencyKey struct {
	Key  string // 1 to MaxOnceKey printable ASCII characters, chosen by the client
	Tool string // the name under which the client knows the tool
}

// MaxOnceKey is the longest idempotency key, in bytes.
const MaxOnceKey = 255

// A Client is what a server may ask of the client while a call is in flight. The zero Client cannot be asked for
// anything.
type Client struct {
	// Capabilities is the object that the client declared; nil means none. Servers may ask only for its members.
	Capabilities []byte

	// Session distinguishes clients of one principal that have state of their own, such as roots; "" means that this
	// client has none.
	Session string

	// Ask sends the client a request and waits for its answer, for as long as a person may take. It is safe for
	// concurrent use. nil means that the client cannot be asked.
	Ask func(ctx context.Context, method string, params []byte) (result []byte, err error)

	// TakesQuestions says that the client accepts an intermediate result that asks for more input (input_required), and
	// repeats its request with that input.
	TakesQuestions bool
}

// A Notification is a message of a server about a call in progress: notifications/progress with the client's own token,
// or notifications/message.
type Notification struct {
	Method string
	Params []byte
}

// A Result is the result of a call.
type Result struct {
	// JSON is the result object, byte for byte as the server sent it.
	JSON []byte

	// Outline says where in JSON the members are that Switchboard reads. The zero Outline means that JSON has not been
	// indexed.
	Outline Outline

	// Spare is how many bytes of JSON's capacity are unused. The last holder of the result may append that many bytes
	// in place.
	Spare int

	// Moved, if set, says that another tool than the intended one gave the result.
	Moved *Moved

	// Repeated, if set, says that the result existed already.
	Repeated *Repeated

	// Preview, if set, says that JSON is the preview of a longer result.
	Preview *Preview

	// Budgets say what is left in budgets of the call that are nearly used up.
	Budgets []BudgetNote

	// Receipt is the id of the call's receipt; "" if the call did not ask for one, or there is none.
	Receipt string

	// Release, if set, releases the memory of JSON. The last holder of the result calls it once, when no code reads
	// JSON any more. If that is hard to know, it may leave Release uncalled.
	Release func()
}

// HasNotes reports whether the client gets information about the result, besides the result.
func (r *Result) HasNotes() bool {
	return r.Moved != nil || r.Repeated != nil || r.Preview != nil || r.Receipt != "" || len(r.Budgets) > 0
}

// A BudgetNote says what is left in a budget. Amounts are of the installation's currency, or numbers of calls.
type BudgetNote struct {
	Budget string    `json:"budget"` // its id
	Left   string    `json:"left"`
	Limit  string    `json:"limit"`
	Unit   string    `json:"unit,omitempty"` // calls, or the currency
	Until  time.Time `json:"until,omitzero"` // the end of the window; zero: it does not end
}

// A StoredResult is the stored result of a call. It was too long to be sent at once.
type StoredResult struct {
	Tool   ToolID // the tool that was called
	Served ToolID // the tool that answered
	When   time.Time
	Params []byte // the params of the call
	JSON   []byte // the result
}

// A Preview identifies the longer result that something is the preview of.
type Preview struct {
	Handle string    `json:"handle"`
	Bytes  int       `json:"bytes"` // the length of the text of the whole result
	Until  time.Time `json:"until"` // when the whole result expires
}

// A Repeated says that no server was called for a result, because the result existed already.
type Repeated struct {
	From ResultSource `json:"from"`
	When time.Time    `json:"first"` // when a server gave the result
}

// An Outline is an index of some members of a JSON object. With it, a long object need not be read again to find them,
// nor copied to change them.
type Outline struct {
	Members []Member // the members of interest, in their order

	// End is the offset behind the object's last member, of interest or not; behind the opening brace if the object has
	// no members.
	End int

	// Truncated says that the object has more members of interest than Members can hold. Members then holds the first
	// ones.
	Truncated bool
}

// A Member is the position of one member of an object, as offsets. There may be white space around each of its parts.
type Member struct {
	Name  string
	After int // behind the previous member, or behind the object's opening brace
	Quote int // at the opening quote of its name
	Value int
	End   int
}

// A Caller makes calls. The servers behind Switchboard are one Caller, and each wrapper (policy, receipts, cache, …) is
// another. Callers wrap each other, and the gateway sees only the outermost. A Caller is safe for concurrent use.
type Caller interface {
	// Call makes c and waits for its result. The error is a *Error if Switchboard refused or could not finish the call,
	// and a *ServerError if the server answered with an error. When ctx is cancelled, the server gets
	// notifications/cancelled.
	Call(ctx context.Context, c *Call) (Result, error)
}

// A CallerFunc is a function that is a Caller.
type CallerFunc func(context.Context, *Call) (Result, error)

// Call implements Caller.
func (f CallerFunc) Call(ctx context.Context, c *Call) (Result, error) { return f(ctx, c) }

// A ServerError is a JSON-RPC error that a server answered with.
type ServerError struct {
	Server ServerID
	Modern bool // the server speaks the modern era, in which some codes have another meaning

	// Object is the error object, byte for byte.
	Object []byte
}

// A ClientError is a JSON-RPC error that a client answered a question with.
type ClientError struct {
	// Object is the error object, byte for byte.
	Object []byte
}

// Error returns a message with the error object.
func (e *ClientError) Error() string { return "the client answered: " + string(e.Object) }

// Error returns a message with the error object. It is for the log output, because the object is the server's own text.
func (e *ServerError) Error() string {
	return "server " + string(e.Server) + " answered: " + string(e.Object)
}
