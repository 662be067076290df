package switchboard

import (
	"context"
	"time"
)

// A RunID names one run of a task: 128 random bits in lower-case hexadecimal,
// minted by us and usable by its principal alone.
type RunID string

// A Call is one request of a client that goes to one server: the use of a tool,
// or something else that the server offers. It is made once and not modified.
type Call struct {
	Principal Principal
	Task      TaskID
	Run       RunID

	// Server is whom it goes to, and Method what it asks for, such as
	// tools/call.
	Server ServerID
	Method string

	// Tool is what the decision selected; nil where the call is none of a
	// tool.
	Tool *Tool

	// Item is what the call asks for where that is none of a tool.
	Item Item

	// Judgments are policy's, of the requirements that selected the tool; or,
	// where the call is none of a tool, of those that selected any of the
	// server's.
	Judgments []*Judgment

	// Obligations are what policy asks of the call. Whoever makes the call
	// leaves them to policy.
	Obligations Obligations

	// Equivalents are where the call may move, in the order of the decision, and
	// the tools of other servers than Server.
	Equivalents []Equivalent

	// Others are candidates of the same requirement on other servers, in the order of the decision: if
	// the server is not fit and one of them is, the run is bound again soon.
	Others []ToolID

	// Receipted says that the client is to be told the id of the call's receipt.
	Receipted bool

	// NoWait says that there is somewhere else to go: where there is no
	// connection to the server, the call fails at once.
	NoWait bool

	// Target is the server's own name for what is asked for: of a tool or a
	// prompt, or a URI. It is "" where the method names nothing.
	Target string

	// Params are the params as the client sent them, strictly scanned. The
	// member that Target stands for, and the keys of _meta that are ours or the
	// protocol's, are still the client's: whoever sends the call on rewrites
	// them.
	Params []byte

	// LogLevel is the least severity of log notifications that the client
	// wants, as the protocol spells it; "" means none.
	LogLevel string

	// Notify, where set, takes what the server says about this call before its
	// result, in the order in which it was said. It is not called
	// concurrently, nor after Call has returned.
	Notify func(Notification)

	// Client is what the client can be asked for.
	Client Client

	// Once, where set, is the client's word that the call is to be made once,
	// however often it asks for it. All attempts at the call share it.
	Once *Once

	// Whole says that the client takes results of any length.
	Whole bool

	// Kept, where set, is the result of an earlier call, which is given again. No server
	// is called.
	Kept *Kept

	// Trail is where those whom the call passes leave what its receipt shall
	// say; nil means that nobody wants to know.
	Trail *Trail
}

// Candidate is the id by which policies know what the call asks for: server/tool, or server/kind:name.
func (c *Call) Candidate() ToolID {
	if c.Tool != nil {
		return c.Tool.ID
	}
	return ToolID{Server: c.Server, Name: string(c.Item.Kind) + ":" + c.Item.Name}
}

// A CandidateKind is what a candidate of a policy is.
type CandidateKind string

// The kinds of candidates. KindExtension is a method that is none of the protocol's own.
const (
	KindTool       CandidateKind = "tool"
	KindResource   CandidateKind = "resource"
	KindTemplate   CandidateKind = "template"
	KindPrompt     CandidateKind = "prompt"
	KindCompletion CandidateKind = "completion"
	KindExtension  CandidateKind = "extension"
)

// An Item is what a call that is none of a tool asks for, as policies judge it.
type Item struct {
	Kind CandidateKind

	// Name is the server's own: the URI of a listed resource, the template that describes a URI, the name of a prompt, what is to be
	// completed, or the method of an extension.
	Name string

	// URI is what is read or subscribed to, in the server's own spelling; "" where the call names none.
	URI string

	// Arguments are those of a prompt, and the values that a completion is asked for, as a JSON object; nil means none.
	Arguments []byte
}

// A Once is what a client calls one use of a tool by, so that it can ask for the
// same again and not for another.
type Once struct {
	Key  string // the client's, of 1 to MaxOnceKey printable ASCII characters
	Tool string // the name by which it knows the tool

	// Sent says that the call may have reached a server. Who sends calls keeps
	// it, one attempt after the other.
	Sent bool
}

// MaxOnceKey bounds an idempotency key, in bytes.
const MaxOnceKey = 255

// A Client is what a server may ask of the client of a call while it is under
// way. The zero Client can be asked for nothing.
type Client struct {
	// Capabilities is the object that the client has declared; nil means none.
	// Only what stands there is asked for.
	Capabilities []byte

	// Session tells clients of one principal apart that keep something of their
	// own, such as roots; "" means that this one keeps nothing.
	Session string

	// Ask asks the client and waits for its answer, for as long as a person may
	// take. It is safe for concurrent use. nil means that it cannot be asked.
	Ask func(ctx context.Context, method string, params []byte) (result []byte, err error)

	// TakesQuestions says that the client takes a result that is not one yet
	// but asks for more (input_required), and asks again with what was missing.
	TakesQuestions bool
}

// A Notification is something that a server says about a call in progress:
// notifications/progress with the client's own token, or
// notifications/message.
type Notification struct {
	Method string
	Params []byte
}

// A Result is the result of a call.
type Result struct {
	// JSON is the object, byte for byte as its server sent it.
	JSON []byte

	// Outline is where in JSON the members stand that are looked at. The zero
	// Outline means that nobody has noted it.
	Outline Outline

	// Spare is how many bytes of JSON's capacity nobody needs: who has the result
	// last may append as much to it where it stands.
	Spare int

	// Moved, where set, says that the result is not of the tool that was meant.
	Moved *Moved

	// Again, where set, says that the result was there already.
	Again *Again

	// Preview, where set, says that JSON is the preview of a longer result.
	Preview *Preview

	// Receipt is the id of the call's receipt, where the call asked for it; "" where there is none.
	Receipt string

	// Release, where set, takes back the memory of JSON. Whoever has the
	// result last calls it once, when nothing reads JSON any more; or never,
	// where that is hard to tell.
	Release func()
}

// Tells reports whether the client is told something about the result, besides it.
func (r *Result) Tells() bool {
	return r.Moved != nil || r.Again != nil || r.Preview != nil || r.Receipt != ""
}

// A Kept is a result that is kept, because it was too long to be given at once.
type Kept struct {
	Tool   ToolID // that was called
	Served ToolID // the one that has answered
	When   time.Time
	Params []byte // of the call
	JSON   []byte // the result
}

// A Preview says of which result something is the preview.
type Preview struct {
	Handle string    `json:"handle"`
	Bytes  int       `json:"bytes"` // of the text of the whole result
	Until  time.Time `json:"until"` // by when it is kept
}

// Again says of a result that no server was asked for it, since it was there
// already.
type Again struct {
	From Given     `json:"from"`
	When time.Time `json:"first"` // when a server gave it
}

// An Outline is where some of an object's members stand, so that not all of a
// big one has to be read again, nor copied when they change.
type Outline struct {
	Members []Member // those of interest, in their order

	// End is behind the object's last member, of interest or not, and behind
	// its brace where it has none.
	End int

	// Crowded says that there were more of interest than anybody needs: none
	// but the first are in Members.
	Crowded bool
}

// A Member is where one member of an object stands. Space may stand around each
// of its parts.
type Member struct {
	Name  string
	After int // behind the member before it, or the object's brace
	Quote int // of its name
	Value int
	End   int
}

// A Caller makes calls. The servers behind the gateway are one, and so is each
// thing that stands in their way. They wrap each other, and the gateway sees
// only the outermost. A Caller is safe for concurrent use.
type Caller interface {
	// Call makes c and waits for its result. The error is a *Error where
	// Switchboard refused or could not finish the call, and a *ServerError
	// where the server answered with an error of its own. When ctx is
	// cancelled, the server is told.
	Call(ctx context.Context, c *Call) (Result, error)
}

// CallerFunc lets a function be a Caller.
type CallerFunc func(context.Context, *Call) (Result, error)

// Call implements Caller.
func (f CallerFunc) Call(ctx context.Context, c *Call) (Result, error) { return f(ctx, c) }

// A ServerError is a JSON-RPC error with which a server answered.
type ServerError struct {
	Server ServerID
	Modern bool // the server speaks the era in which some codes mean other things

	// Object is the error object, byte for byte.
	Object []byte
}

// A ClientError is a JSON-RPC error with which a client answered a question.
type ClientError struct {
	// Object is the error object, byte for byte.
	Object []byte
}

// Error gives the object.
func (e *ClientError) Error() string { return "the client answered: " + string(e.Object) }

// Error gives the object, which is for the log: it is the server's text.
func (e *ServerError) Error() string {
	return "server " + string(e.Server) + " answered: " + string(e.Object)
}
