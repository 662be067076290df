package switchboard

import (
	"cmp"
	"crypto/subtle"
	"encoding/json"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Secret is text that must not be shown. It prints, logs and encodes as "***" in every form; only Reveal returns the
// text. The zero Secret is "".
type Secret struct {
	_ [0]func() // makes == a compile error, because == would compare pointers

	// text is a pointer because fmt does not call methods of values in unexported fields of other types. Of a pointer
	// it prints the address only.
	text *string
}

// NewSecret returns text as a Secret.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Reveal returns the text. Call it only where the secret is used.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Equal reports whether both secrets hold the same text. Its duration reveals at most the length. reflect.DeepEqual
// gives the same answer, but its duration may reveal more.
func (s Secret) Equal(o Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(o.Reveal())) == 1
}

// String implements fmt.Stringer.
func (Secret) String() string { return "***" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "***" }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue("***") }

// MarshalText implements encoding.TextMarshaler. That covers JSON and YAML.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// A Recipient gets notices, by webhook.
type Recipient struct {
	Name   string
	URL    Secret // the address may be the recipient's secret too
	Secret Secret // of Standard Webhooks: whsec_ and base64

	// Tenants are those that notices go to the recipient about, sorted. nil means all.
	Tenants []TenantID `json:",omitempty"`
}

// Serves reports whether notices about the tenant go to the recipient.
func (r *Recipient) Serves(t TenantID) bool { return r.Tenants == nil || slices.Contains(r.Tenants, t) }

// A ServerRegistry lists MCP servers for people to choose from. It has either a File or a URL. See package registry.
type ServerRegistry struct {
	ID string

	File string `json:",omitempty"` // with slashes; not absolute if it is in the folder of the configuration
	URL  string `json:",omitempty"` // the part of all addresses of the registry that is the same
}

// A Transport is how a server is reached.
type Transport string

// The transports.
const (
	TransportStdio Transport = "stdio"
	TransportHTTP  Transport = "http" // Streamable HTTP, or HTTP with SSE
)

// A Share says which clients may use the same process or session of a server.
type Share string

// The shares. The zero value means SharePrincipal.
const (
	SharePrincipal Share = "principal" // each principal has its own process or session
	ShareTenant    Share = "tenant"
	ShareAll       Share = "all" // for servers that keep no state
)

// DefaultTimeout is the timeout of a call if neither configuration nor policy sets one.
const DefaultTimeout = 60 * time.Second

// An InputCheck says which arguments Switchboard refuses before they reach a server.
type InputCheck string

// The checks. The zero value means CheckDefault.
const (
	CheckDefault InputCheck = "default" // refuse a missing required member, and an unknown member if the schema allows no others
	CheckStrict  InputCheck = "strict"  // refuse arguments that do not fit the schema
	CheckOff     InputCheck = "off"     // refuse nothing
)

// A Sandbox is the level of the walls around the program of a server.
type Sandbox string

// The levels. The zero value means SandboxStandard.
const (
	SandboxStandard Sandbox = "standard" // everything but the places of secrets and Switchboard's own files; few places to write
	SandboxOff      Sandbox = "off"      // no walls; only the operator's own file sets it
	SandboxStrict   Sandbox = "strict"   // its own program, and what its permissions list
)

// A Confinement says what the program of a server may do. Package wall makes walls of it.
type Confinement struct {
	Level Sandbox

	// Read, Write and Exec are files and folders that the program may read, change and execute besides what its level gives:
	// absolute paths without links, sorted. What it may change or execute, it may read.
	Read, Write, Exec []string

	// AnyNetwork says that a program at SandboxStrict may open connections over IP. If this is false, it may open those to Hosts alone.
	AnyNetwork bool

	// Hosts are what a program at SandboxStrict may reach over TCP: sorted, at most MaxHosts.
	Hosts []HostPort
}

// Equal reports whether a process that was started under c also fits o.
func (c *Confinement) Equal(o *Confinement) bool {
	return cmp.Or(c.Level, SandboxStandard) == cmp.Or(o.Level, SandboxStandard) && c.AnyNetwork == o.AnyNetwork &&
		slices.Equal(c.Read, o.Read) && slices.Equal(c.Write, o.Write) && slices.Equal(c.Exec, o.Exec) && slices.Equal(c.Hosts, o.Hosts)
}

// MaxHosts limits the hosts that one program may reach.
const MaxHosts = 64

// A HostPort is a port of a host.
type HostPort struct {
	Name string `json:"name"` // in lower case, or an IP address as netip.Addr writes it
	Port uint16 `json:"port"`
}

// String returns the host and the port as an operator writes them: example.com:443, 192.0.2.1:443 or [2001:db8::1]:443.
func (h HostPort) String() string {
	name := h.Name
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	return name + ":" + strconv.Itoa(int(h.Port))
}

// CompareHostPorts orders hosts by name, and then by port.
func CompareHostPorts(a, b HostPort) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port))
}

// A Package is the npm package that a server is a program of. The zero Package means none.
type Package struct {
	Name, Version string

	// Lock is the text of the lock file, which says exactly which packages belong to it; see packagelock.Read.
	Lock string

	// Dir is the folder that it is installed in, where the row is one to start a process with; "" in a configuration.
	Dir string
}

// A Server is one MCP server behind Switchboard, as configured.
type Server struct {
	ID        ServerID
	Transport Transport

	URL        string            // TransportHTTP only
	Headers    map[string]Secret // TransportHTTP only; by canonical name
	Credential Credential        // TransportHTTP only

	Command  []string          // TransportStdio only; the first element is the program
	Package  Package           // TransportStdio only; if it has a name, Command names a program of it, and may be empty
	Env      map[string]Secret // TransportStdio only; added to a small safe base
	AllowEnv []string          // names in Env that this server gets although RefusedVariable refuses them; sorted
	Dir      string            // TransportStdio only: its working directory; "" means ours
	Walls    Confinement       // TransportStdio only: what its program may do
	Network  Network           // TransportHTTP only

	Class   string
	Trust   Trust
	Share   Share
	Timeout time.Duration // how long one call may go without a message from the server; 0 means DefaultTimeout

	// MaxTimeout limits one call in total, even if the server keeps sending messages about it; 0 means ten times the
	// timeout, at most an hour.
	MaxTimeout time.Duration

	// MaxCalls limits the calls in flight; 0 means 256. MaxWaiting limits how many more calls wait for a free slot; 0
	// means none.
	MaxCalls   int
	MaxWaiting int

	// MaxResult limits the bytes of one message of the server, and so of one result; 0 means 16 MiB.
	MaxResult int

	Probe Probe

	// CheckInput says how strictly the arguments of calls are checked against the schemas of the server's tools.
	CheckInput InputCheck

	// NoInstructions says that clients do not get the server's instructions.
	NoInstructions bool

	// CleanResults says that text which deceives readers is removed from the server's results; see package scan.
	CleanResults bool

	// Services divide the server's tools into groups if they are on demand. A tool belongs to the first service that
	// has it.
	Services []Service

	// Admission says what is let in of the server's offer without a person: as the server's row says, else as the operator says for all servers.
	Admission AdmissionRules

	Verify VerifyRules `json:",omitzero"` // how its tools are verified
}

// SignsIn reports whether Switchboard gets the tokens for the server: it is reached over HTTP, and its row does not state the header
// Authorization.
func (s *Server) SignsIn() bool {
	_, static := s.Headers["Authorization"]
	return s.Transport == TransportHTTP && !static
}

// A CredentialKind says which token the requests to a server carry.
type CredentialKind string

// The kinds. The zero value is for a server without a row about it: it may have static headers. If it demands a token all the same, the operator
// can connect it, and only the local user's calls use that connection.
const (
	CredentialOperator CredentialKind = "operator" // the connection that an operator made is used for everybody
	CredentialUser     CredentialKind = "user"     // each principal has a connection
	CredentialClient   CredentialKind = "client"   // Switchboard itself is registered: the client credentials grant
)

// A Credential says how Switchboard gets the tokens for the requests to a server (OAuth 2.1; MCP, Authorization). Of a static
// credential in Headers it says nothing.
type Credential struct {
	Kind CredentialKind

	Issuer       string   // the authorization server's issuer identifier; "" means that the server's metadata names it
	ClientID     string   // how Switchboard is registered there; "" means that it registers itself
	ClientSecret Secret   // the zero Secret for a public client
	ClientKey    Secret   // a private key as PEM, for CredentialClient, in the place of a ClientSecret (private_key_jwt)
	Scopes       []string // the most that Switchboard asks for; nil means what the server asks for
}

// Equal reports whether tokens for c are tokens for o.
func (c *Credential) Equal(o *Credential) bool {
	return c.Kind == o.Kind && c.Issuer == o.Issuer && c.ClientID == o.ClientID && c.ClientSecret.Equal(o.ClientSecret) &&
		c.ClientKey.Equal(o.ClientKey) && slices.Equal(c.Scopes, o.Scopes)
}

// A Network says how connections to a server are opened. The zero Network goes through the proxy that the environment
// names, if any, and trusts the authorities of the system.
type Network struct {
	// Proxy is the URL of a proxy, which may contain a password, or NoProxy. "" means the one that the environment names.
	Proxy Secret

	CA         string // a file with authorities to trust besides those of the system; "" means none
	Cert, Key  string // files with the client's certificate and its key; "" means none
	ServerName string // the name in the server's certificate; "" means the host of its URL
}

// NoProxy is the Proxy of a server that is reached directly, whatever the environment names.
const NoProxy = "none"

// Equal reports whether n and o are equal.
func (n Network) Equal(o Network) bool {
	return n.Proxy.Equal(o.Proxy) && n.CA == o.CA && n.Cert == o.Cert && n.Key == o.Key && n.ServerName == o.ServerName
}

// ProxyPassword returns the password in the URL of the proxy, as it stands there and as the proxy gets it; nil if there is none.
func (n Network) ProxyPassword() []Secret {
	_, rest, _ := strings.Cut(n.Proxy.Reveal(), "://")
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return nil
	}
	_, written, ok := strings.Cut(rest[:at], ":")
	if !ok || written == "" {
		return nil
	}
	all := []Secret{NewSecret(written)}
	if sent, err := url.PathUnescape(written); err == nil && sent != written {
		all = append(all, NewSecret(sent))
	}
	return all
}

// A Service is a named part of a server's tools.
type Service struct {
	Name  string   // an id
	Tools []string // patterns of tool names, in which * matches any text
}

// Has reports whether the tool belongs to the service.
func (s *Service) Has(tool string) bool {
	return slices.ContainsFunc(s.Tools, func(pattern string) bool { return MatchPattern(pattern, tool) })
}

// A Probe is how Switchboard checks whether a server works. The zero Probe sends the protocol's ping at intervals.
type Probe struct {
	Every   time.Duration // the interval while no client calls the server; 0 means 30s
	Timeout time.Duration // the timeout of one probe; 0 means 5s

	// Path, for TransportHTTP, is also requested at the server's address. A status of 200 to 299 means that the server
	// works.
	Path string

	// Tool, if set, is also called, with Arguments, a JSON object. Choose a tool that changes nothing.
	Tool      string
	Arguments []byte
}

// TrustFor returns the trust that a server needs so that its own word "readonly" counts for the principal.
func (t *Tenant) TrustFor(p Principal) Trust {
	if p.Auth == AuthLocal || t.Trust == TrustDeclared {
		return TrustDeclared
	}
	return TrustOperator
}

// A Tenant is a group of principals with its own tasks, servers and limits. It combines the operator's settings
// and the tenant's own: where both set something, the narrower one counts.
type Tenant struct {
	ID          TenantID
	Servers     []ServerID // sorted as bytes
	DefaultTask TaskID     // "" means none
	Tasks       map[TaskID]*Task
	Ranking     Ranking
	Limits      []Limit

	// Budgets are those of the operator, of the tenant's row, and of the tenant's file, in this order. No decision reads
	// them, so no digest covers them.
	Budgets []*Budget `json:"-"`

	// Approvals say how people are asked. No decision reads them.
	Approvals ApprovalSettings `json:"-"`

	// Overlays label tools that no stronger source has labelled, and may restrict any tool.
	Overlays map[ToolID]Overlay

	// ByName says that requirements may name tools.
	ByName bool

	// Trust is the trust that a server needs so that its own word "readonly" counts for keys of this tenant; "" means
	// TrustOperator. For the local user that word always counts. Only the operator sets it. See TrustFor.
	Trust Trust `json:",omitzero"`

	// Mode is how much agents may do alone. A key or a task may only lower it.
	Mode Mode

	// Flows says what happens to calls that carry data out of a run that has touched private data and text of strangers. The
	// operator sets it, and the tenant may only set a stricter value.
	Flows Flows `json:",omitempty"`

	// Tier and Roles belong to the local principal: everything that the operator grants the tenant. Keys have their
	// own, within these.
	Tier  string
	Roles []string

	// Tiers are those that keys may have; Tier is the first. Decisions read the tier of a principal alone.
	Tiers []string `json:"-"`

	// Policy is the data that the tenant gives to policies: a JSON object in canonical form; nil means an empty one.
	Policy []byte

	// VetoForTask says that if policy vetoes a tool for one requirement of a task, the tool is vetoed for all of them.
	// Only the operator sets it.
	VetoForTask bool `json:",omitzero"`

	// ReceiptIDs says that clients get the receipt's id with each call that succeeds.
	ReceiptIDs bool `json:",omitzero"`

	// RecordInputs says that the arguments that policies read are recorded. If it is false, the tenant's digest leaves
	// it out.
	RecordInputs bool `json:",omitzero"`

	// TokenBudget is the lower of the operator's and the tenant's setting; 0 means that neither is set. See Budget.
	TokenBudget int `json:",omitzero"`

	// ResultBytes limits the bytes of text of one result that clients get at once; 0 means that no limit is set. See
	// ResultBound.
	ResultBytes int `json:",omitzero"`

	// OnFull says what happens if the budget has no room for an expansion.
	OnFull OnFull `json:",omitzero"`

	// Permissions and Models are what the capabilities of the registry may need, sorted. Only the operator sets them.
	Permissions []string `json:",omitempty"`
	Models      []string `json:",omitempty"`

	// Recipients are the names of those who may be told of the tenant's calls, sorted. Only the operator sets it.
	Recipients []string `json:",omitempty"`

	// Declare limits the tasks that clients declare at run time: each of their requirements must fit one of these,
	// which have a Verb, a Resource and Constraints. If Declare is empty, clients cannot declare tasks.
	Declare []Requirement `json:",omitempty"`

	// Request lists what agents may ask a person for at run time. If it is empty, they may ask for nothing.
	Request []RequestRow `json:",omitempty"`

	// Trial are the tools in state LifeTesting that the tenant's runs may use: patterns of the form server/tool, sorted. * matches any text. See Tries.
	Trial []string `json:",omitempty"`
}

// Tries reports whether the tenant's runs may use the tool while it is in state LifeTesting.
func (t *Tenant) Tries(id ToolID) bool {
	return slices.ContainsFunc(t.Trial, func(pattern string) bool {
		server, name, _ := strings.Cut(pattern, "/")
		return MatchPattern(server, string(id.Server)) && MatchPattern(name, id.Name)
	})
}

// A RequestRow is one thing that agents may ask a person for: a capability, or capabilities by name.
type RequestRow struct {
	Requirement Requirement // has a Verb, a Resource and Constraints; the zero Requirement in a row of names
	Named       string      `json:",omitzero"` // names of capabilities, in which * matches any text
}

// An Addition is a capability that a person has added to a run or a task, because its agent asked for it.
type Addition struct {
	Request    string // the id of the request
	Capability string
	Until      time.Time
}

// Tokenizers lists the token encodings that a budget can be counted with, the default first.
var Tokenizers = []string{"o200k_base", "cl100k_base"}

// DefaultTokenBudget is the token budget if none is set.
const DefaultTokenBudget = 8000

// Budget returns how many tokens the whole tools/list may cost for the task: the lower of the settings, or
// DefaultTokenBudget if there is none.
func (t *Tenant) Budget(task *Task) int {
	switch {
	case t.TokenBudget == 0:
		return cmp.Or(task.TokenBudget, DefaultTokenBudget)
	case task.TokenBudget == 0:
		return t.TokenBudget
	}
	return min(t.TokenBudget, task.TokenBudget)
}

// LocalResultBytes is the result limit of keyless use if none is set.
const LocalResultBytes = 64 << 10

// ResultBound returns how many bytes of text of one result a client of the principal gets at once for the task; 0 means
// no limit. task may be nil.
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

// An OnFull says what happens if the budget has no room for an expansion.
type OnFull string

// The choices. The zero value means OnFullRefuse.
const (
	OnFullRefuse   OnFull = "refuse"
	OnFullCollapse OnFull = "collapse_oldest" // collapse the groups that were used least recently
)

// A Ranking is how a tenant orders candidates.
type Ranking struct {
	// Classes maps each class of servers to its score.
	Classes map[string]int
	Prefer  []Prefer
	Adjust  []Adjust
}

// A Prefer row ranks servers first, in its order, for one verb and resource. The first row that matches a requirement
// applies.
type Prefer struct {
	Verb     Verb
	Resource Resource
	Servers  []ServerID
}

// An Adjust row adds By to the score of each server with an id that matches the pattern. * matches any characters.
type Adjust struct {
	Server string
	By     int
}

// MaxRefill limits the time that a used-up limit needs to refill: its Burst times its Every.
const MaxRefill = 10 * 365 * 24 * time.Hour

// A Limit is a rate limit of a tenant for each tool that carries Constraint.
type Limit struct {
	Constraint Constraint
	Every      time.Duration // one permit is earned each Every
	Burst      int           // the most permits that can be saved up; at least 1
}

// An Overlay is what an operator or tenant states about a tool, instead of its server or in addition to it.
type Overlay struct {
	// Capabilities replace those of weaker sources; nil states none and leaves them to other sources.
	Capabilities []Capability

	// For is the digest of the definition that the overlay was given to; "" means any definition. If the server's tool has another meaning by now, the overlay only restricts.
	// Only an operator's overlay can set it.
	For Digest `json:",omitempty"`

	// Contract has the facts that the overlay states.
	Contract Contract `json:",omitzero"`

	// Price is what a call costs; nil states nothing.
	Price *Price `json:",omitempty"`

	// Budget is the tool's own budget. Only an operator's overlay can set it.
	Budget *Budget `json:"-"`

	// Equivalents are tools that calls of this tool may move to.
	Equivalents []DeclaredEquivalent `json:",omitempty"`

	// Replace discards what weaker sources would add. Only an operator's overlay can set it.
	Replace bool

	// Fault, if set, says why the overlay could not be read. The tool is then not served.
	Fault string `json:",omitempty"`

	// Examples are arguments of calls that succeed, as JSON objects. Only an operator's overlay can set them.
	Examples []json.RawMessage `json:",omitempty"`

	// Redact lists the detectors that always apply to the tool's results, sorted. Only an operator's overlay can set
	// them. RedactAt is the place in the file, as file:line:column.
	Redact   []Detector `json:",omitempty"`
	RedactAt string     `json:"-"`
}

// VerifyRules say how the tools of a server are verified. The zero value means the defaults.
type VerifyRules struct {
	Every time.Duration // how often they are verified again; 0 means DefaultVerifyEvery, once they have been verified

	// Calls and Time bound the verification of one tool; 0 means MaxVerifyCalls and MaxVerifyTime.
	Calls int
	Time  time.Duration

	// Test says that the server is a test environment, in which each tool may be exercised.
	Test bool
}

// Bounds of verifications.
const (
	DefaultVerifyEvery = 30 * 24 * time.Hour
	MaxVerifyCalls     = 60          // of one tool
	MaxVerifyTime      = time.Minute // for one tool
)
