package switchboard

import (
	"context"
)

// A RunID names one run of a task: 128 random bits in lower-case hexadecimal,
// minted by us and usable by its principal alone.
type RunID string

// A Call is one use of a tool. It is made once and not modified.
type Call struct {
	Principal Principal
	Task      TaskID
	Run       RunID

	// Tool is what the decision selected.
	Tool *Tool

	// Params are the params of tools/call as the client sent them, strictly
	// scanned. name and the keys of _meta that are ours or the protocol's are
	// still the client's: whoever sends the call on rewrites them.
	Params []byte

	// LogLevel is the least severity of log notifications that the client
	// wants, as the protocol spells it; "" means none.
	LogLevel string

	// Notify, where set, takes what the server says about this call before its
	// result, in the order in which it was said. It is not called
	// concurrently, nor after Call has returned.
	Notify func(Notification)
}

// A Notification is something that a server says about a call in progress:
// notifications/progress with the client's own token, or
// notifications/message.
type Notification struct {
	Method string
	Params []byte
}

// A Result is the result object of a call, byte for byte as its server sent
// it. Only the envelope around it has been read.
type Result []byte

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

	// Object is the error object, byte for byte.
	Object []byte
}

// Error gives the object, which is for the log: it is the server's text.
func (e *ServerError) Error() string {
	return "server " + string(e.Server) + " answered: " + string(e.Object)
}
