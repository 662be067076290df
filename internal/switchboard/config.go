package switchboard

import (
	"log/slog"
	"time"
)

// A Secret is text that must not be seen: it prints, logs and encodes as
// "***" in every form, and only Reveal gives it away. The zero Secret is "".
type Secret struct {
	// A pointer, because fmt calls no method on what stands in an unexported
	// field of something else: it then prints an address.
	text *string
}

// NewSecret returns text as a Secret.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text. Call it only where the secret is put to its use.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Equal reports whether both hold the same text.
func (s Secret) Equal(o Secret) bool { return s.Reveal() == o.Reveal() }

// String implements fmt.Stringer.
func (Secret) String() string { return "***" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "***" }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue("***") }

// MarshalText implements encoding.TextMarshaler, and so covers JSON and YAML.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// Transport is how a server is reached.
type Transport string

// The transports.
const (
	TransportStdio Transport = "stdio"
	TransportHTTP  Transport = "http" // Streamable HTTP, or HTTP with SSE
)

// Share says who may use the same process or session of a server.
type Share string

// The shares. The zero value means SharePrincipal.
const (
	SharePrincipal Share = "principal" // each principal has its own
	ShareTenant    Share = "tenant"
	ShareAll       Share = "all" // for servers that keep no state
)

// A Server is one MCP server behind the gateway, as configured.
type Server struct {
	ID        ServerID
	Transport Transport

	URL     string            // of TransportHTTP
	Headers map[string]Secret // of TransportHTTP, by canonical name

	Command []string          // of TransportStdio; the first is the program
	Env     map[string]Secret // of TransportStdio, besides a small safe base
	Dir     string            // of TransportStdio: where it runs; "" means where we do

	Class   string
	Trust   Trust
	Share   Share
	Timeout time.Duration // of one call; 0 means 60s

	// MaxResult is how many bytes one message of the server's may have, and so
	// a result; 0 means 16 MiB.
	MaxResult int
}

// A Tenant is whose tasks are run: the operator's bound and the tenant's own
// choice within it, already narrowed.
type Tenant struct {
	ID          TenantID
	Servers     []ServerID // sorted as bytes
	DefaultTask TaskID     // "" means none
	Tasks       map[TaskID]*Task
	Ranking     Ranking
	Limits      []Limit

	// Overlays label tools that nobody above has labelled, and may restrict
	// any tool.
	Overlays map[ToolID]Overlay

	// ByName says whether requirements may name tools.
	ByName bool

	// Mode is how much agents may do alone; a key or a task may only lower it.
	Mode Mode

	// Tier and Roles are those of the local principal: all that the operator
	// gives the tenant. Keys have their own, within these.
	Tier  string
	Roles []string

	// Policy is the tenant's own word to policies, a JSON object in canonical
	// form; nil means an empty one.
	Policy []byte
}

// A Ranking is how a tenant orders candidates.
type Ranking struct {
	// Classes gives each class of servers its score.
	Classes map[string]int
	Prefer  []Prefer
	Adjust  []Adjust
}

// A Prefer row puts servers first, in its order, for one verb and resource.
// The first row that matches a requirement counts.
type Prefer struct {
	Verb     Verb
	Resource Resource
	Servers  []ServerID
}

// An Adjust row adds By to the score of each server whose id matches the
// pattern, in which * stands for any run of characters.
type Adjust struct {
	Server string
	By     int
}

// A Limit bounds how often a tenant calls each tool that carries Constraint.
type Limit struct {
	Constraint Constraint
	Every      time.Duration // one call is earned each Every
	Burst      int           // at most so many at once; at least 1
}

// An Overlay is what an operator or tenant says of a tool in place of, or
// besides, its server.
type Overlay struct {
	Capabilities []Capability

	// Replace drops what weaker sources would add. Only an operator's overlay
	// has it.
	Replace bool
}
