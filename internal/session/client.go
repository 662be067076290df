package session

import (
	"bytes"
	"context"
	"crypto/rand"
	"slices"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A ClientState is what the gateway knows about a legacy session, about the client on stdio, or
// about the client of one modern request. It implements server.SessionWithLogging for mcp-go.
type ClientState struct {
	id        string
	PublicID  string // identifies the client; unlike id it is not secret
	principal switchboard.Principal

	initialized atomic.Bool
	level       atomic.Value // string; set by logging/setLevel

	// capabilities is the object that the client has declared. It is set before any other request
	// is answered.
	capabilities atomic.Pointer[[]byte]

	// What a legacy client, or the stream of a modern one, is notified of and asked.
	Queue         *Queue
	Subscriptions Subscriptions
	Questions     Questions
}

// NewClientState returns the state of a client that has declared nothing yet.
func NewClientState(id string, p switchboard.Principal) *ClientState {
	c := &ClientState{id: id, PublicID: rand.Text(), principal: p, Queue: NewQueue(switchboard.AllKinds)}
	c.Subscriptions.queue = c.Queue
	// A legacy client that sets no level gets log messages from "info" on.
	c.level.Store("info")
	return c
}

// SetCapabilities stores what the client can be asked for.
func (c *ClientState) SetCapabilities(capabilities []byte) {
	own := bytes.Clone(capabilities) // the message's memory is reused
	c.capabilities.Store(&own)
}

// Capabilities returns the capabilities that the client has declared; nil if it has not.
func (c *ClientState) Capabilities() []byte {
	if own := c.capabilities.Load(); own != nil {
		return *own
	}
	return nil
}

// Ask sends a legacy client a question that belongs to none of its calls, on its notification stream
// when there is one, and waits for the answer.
func (c *ClientState) Ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	return c.Questions.Ask(ctx, c.Queue.AddMessage, method, params)
}

// Initialize implements server.SessionWithLogging.
func (c *ClientState) Initialize() { c.initialized.Store(true) }

// Initialized implements server.SessionWithLogging.
func (c *ClientState) Initialized() bool { return c.initialized.Load() }

// SessionID implements server.SessionWithLogging.
func (c *ClientState) SessionID() string { return c.id }

// SetLogLevel implements server.SessionWithLogging.
func (c *ClientState) SetLogLevel(l mcp.LoggingLevel) { c.level.Store(string(l)) }

// GetLogLevel implements server.SessionWithLogging.
func (c *ClientState) GetLogLevel() mcp.LoggingLevel { return mcp.LoggingLevel(c.LogLevel()) }

// LogLevel returns the lowest level of log messages that a legacy client wants.
func (c *ClientState) LogLevel() string { return c.level.Load().(string) }

// NotificationChannel returns nil: mcp-go has no notifications to send, and a message on the
// channel would be dropped.
func (c *ClientState) NotificationChannel() chan<- mcp.JSONRPCNotification { return nil }

// LogLevels are the severities of log messages, lowest first.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Severity returns the index of a level in LogLevels; -1 for an unknown level.
func Severity(level string) int { return slices.Index(LogLevels, level) }
