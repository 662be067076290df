package switchboard

import (
	"cmp"
	"crypto/subtle"
	"log/slog"
	"slices"
	"time"
)

// A Secret is text that must not be seen: it prints, logs and encodes as
// "***" in every form, and only Reveal gives it away. The zero Secret is "".
type Secret struct {
	_ [0]func() // == does not compile: it would compare pointers

	// A pointer, because fmt calls no method on what stands in an unexported
	// field of something else: it then prints an address.
	text *string
}

// NewSecret returns text as a Secret.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Reveal returns the text. Call it only where the secret is put to its use.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Equal reports whether both hold the same text. How long it takes tells at most the length.
// reflect.DeepEqual says the same, in a time that may tell more.
func (s Secret) Equal(o Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(o.Reveal())) == 1
}

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

// DefaultTimeout bounds a call where nobody has set a timeout.
const DefaultTimeout = 60 * time.Second

// InputCheck says which arguments are refused before they reach a server.
type InputCheck string

// The checks. The zero value means CheckDefault.
const (
	CheckDefault InputCheck = "default" // if a required member is missing, or one is unknown where the schema allows no others
	CheckStrict  InputCheck = "strict"  // if anything does not fit the schema
	CheckOff     InputCheck = "off"     // none
)

// A Server is one MCP server behind the gateway, as configured.
type Server struct {
	ID        ServerID
	Transport Transport

	URL     string            // of TransportHTTP
	Headers map[string]Secret // of TransportHTTP, by canonical name

	Command  []string          // of TransportStdio; the first is the program
	Env      map[string]Secret // of TransportStdio, besides a small safe base
	AllowEnv []string          // names of Env that RefusedVariable refuses, and this server gets all the same; sorted
	Dir      string            // of TransportStdio: where it runs; "" means where we do

	Class   string
	Trust   Trust
	Share   Share
	Timeout time.Duration // of one call, until something is heard of it; 0 means DefaultTimeout

	// MaxTimeout bounds a call that is heard of again and again; 0 means ten
	// times the timeout, at most an hour.
	MaxTimeout time.Duration

	// MaxCalls is how many calls may be under way; 0 means 256. MaxWaiting is how
	// many more wait for one of them to end; 0 means none.
	MaxCalls   int
	MaxWaiting int

	// MaxResult is how many bytes one message of the server's may have, and so
	// a result; 0 means 16 MiB.
	MaxResult int

	Probe Probe

	// CheckInput says how the arguments of calls are held to the schemas of the
	// server's tools.
	CheckInput InputCheck

	// NoInstructions says that the server's instructions are not passed on.
	NoInstructions bool

	// CleanResults says that what deceives readers is removed from the server's results; see package scan.
	CleanResults bool

	// Services split the server's tools where they are listed on demand. A tool
	// belongs to the first that has it.
	Services []Service
}

// A Service is a part of a server's tools.
type Service struct {
	Name  string   // an id
	Tools []string // patterns of names, in which * stands for any text
}

// Has reports whether the tool of that name fits.
func (s *Service) Has(tool string) bool {
	return slices.ContainsFunc(s.Tools, func(pattern string) bool { return MatchPattern(pattern, tool) })
}

// A Probe is how a server is asked whether it is well. The zero Probe is a ping of
// the protocol's, at times.
type Probe struct {
	Every   time.Duration // while nobody calls it; 0 means 30s
	Timeout time.Duration // of one probe; 0 means 5s

	// Path, of TransportHTTP, is asked for besides, at the server's address: a
	// status of 200 to 299 is well.
	Path string

	// Tool, where set, is called besides with Arguments, a JSON object: one that
	// changes nothing.
	Tool      string
	Arguments []byte
}

// TrustFor returns the least trust with which a server's own word "readonly" counts for the principal.
func (t *Tenant) TrustFor(p Principal) Trust {
	if p.Auth == AuthLocal || t.Trust == TrustDeclared {
		return TrustDeclared
	}
	return TrustOperator
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

	// Trust is the least trust with which a server's own word "readonly" counts for keys of this tenant; "" means TrustOperator.
	// For the local user it always counts. The operator says it. See TrustFor.
	Trust Trust `json:",omitzero"`

	// Mode is how much agents may do alone; a key or a task may only lower it.
	Mode Mode

	// Tier and Roles are those of the local principal: all that the operator
	// gives the tenant. Keys have their own, within these.
	Tier  string
	Roles []string

	// Policy is the tenant's own word to policies, a JSON object in canonical
	// form; nil means an empty one.
	Policy []byte

	// VetoForTask says that a tool which policy vetoes for one requirement of a task is vetoed for all of
	// them. The operator says it.
	VetoForTask bool `json:",omitzero"`

	// ReceiptIDs says that clients are told the receipt of each call that goes well.
	ReceiptIDs bool `json:",omitzero"`

	// RecordInputs says that what policies look at in the arguments of calls is
	// recorded. It is left out of the digest of a tenant that does not say so.
	RecordInputs bool `json:",omitzero"`

	// TokenBudget is the least that operator and tenant say, 0 where neither
	// does. See Budget.
	TokenBudget int `json:",omitzero"`

	// ResultBytes is how many bytes of text of one result clients get at once, 0 where
	// nobody says. See ResultBound.
	ResultBytes int `json:",omitzero"`

	// OnFull is what becomes of an expansion for which the budget has no room.
	OnFull OnFull `json:",omitzero"`

	// Declare is the ceiling for tasks that clients declare at run time: each of
	// their requirements must fit one of these, which have a Verb, a Resource and
	// Constraints. None means that clients declare no task.
	Declare []Requirement `json:",omitempty"`
}

// Tokenizers are the encodings in which tokens can be counted, the default first.
var Tokenizers = []string{"o200k_base", "cl100k_base"}

// DefaultTokenBudget is the budget where nobody sets one.
const DefaultTokenBudget = 8000

// Budget returns how many tokens all that tools/list shows for the task may cost:
// the least that is said, DefaultTokenBudget where nothing is.
func (t *Tenant) Budget(task *Task) int {
	switch {
	case t.TokenBudget == 0:
		return cmp.Or(task.TokenBudget, DefaultTokenBudget)
	case task.TokenBudget == 0:
		return t.TokenBudget
	}
	return min(t.TokenBudget, task.TokenBudget)
}

// LocalResultBytes is the bound of results for keyless use where nobody sets one.
const LocalResultBytes = 64 << 10

// ResultBound returns how many bytes of text of one result a client of the principal gets at
// once for the task, which may be nil; 0 means any number.
func (t *Tenant) ResultBound(p Principal, task *Task) int {
	most := t.ResultBytes
	if task != nil && task.ResultBytes > 0 && (most == 0 || task.ResultBytes < most) {
		most = task.ResultBytes
	}
	if most == 0 && p.Auth == AuthLocal {
		return LocalResultBytes
	}
	return most
}

// OnFull says what becomes of an expansion for which the budget has no room.
type OnFull string

// What becomes of it. The zero value means OnFullRefuse.
const (
	OnFullRefuse   OnFull = "refuse"
	OnFullCollapse OnFull = "collapse_oldest" // what was expanded and used least recently goes
)

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

// MaxEarn bounds the time in which a limit that is used up is whole again: its
// Burst times its Every.
const MaxEarn = 10 * 365 * 24 * time.Hour

// A Limit bounds how often a tenant calls each tool that carries Constraint.
type Limit struct {
	Constraint Constraint
	Every      time.Duration // one call is earned each Every
	Burst      int           // at most so many at once; at least 1
}

// An Overlay is what an operator or tenant says of a tool in place of, or
// besides, its server.
type Overlay struct {
	// Capabilities where nil leave it to others to say any.
	Capabilities []Capability

	// Contract has the facts that stand in the overlay.
	Contract Contract `json:",omitzero"`

	// Equivalents are where calls of the tool may move.
	Equivalents []Declared `json:",omitempty"`

	// Replace drops what weaker sources would add. Only an operator's overlay
	// has it.
	Replace bool

	// Fault, if set, is why the rest could not be read: the tool is not served.
	Fault string `json:",omitempty"`

	// Redact are the detectors by which the results of the tool are always redacted, sorted. Only an operator's
	// overlay has them. RedactAt is where they stand, as file:line:column.
	Redact   []Detector `json:",omitempty"`
	RedactAt string     `json:"-"`
}
