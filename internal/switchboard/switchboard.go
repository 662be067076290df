// Package switchboard defines the words that the rest of the program is written in: capabilities, tools, requirements,
// tasks, tenants, principals, calls, and the codes of refusals.
//
// It imports no other package of this program and does no I/O, so that every package can use these types without
// knowing where a value came from. Goroutines share values of these types freely. A value is not modified once it is
// made.
package switchboard

import (
	"fmt"
	"strings"
)

// A ServerID is the name of one MCP server behind Switchboard, such as "github".
type ServerID string

// A TenantID is the name of one tenant, and of its folder tenants/<id>.
type TenantID string

// A TaskID is the name of one task of a tenant.
type TaskID string

// MaxIDBytes is the longest id of a server, tenant, task or group, in bytes.
const MaxIDBytes = 32

// CheckID returns the reason why s cannot be the id of a server, tenant, task or group. An id is
// [a-z0-9]+(-[a-z0-9]+)*, at most MaxIDBytes long. So no separator between ids is ambiguous.
func CheckID(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("an id cannot be empty")
	case len(s) > MaxIDBytes:
		return fmt.Errorf("id %.40q is %d bytes long; at most %d are allowed", s, len(s), MaxIDBytes)
	}
	for part := range strings.SplitSeq(s, "-") {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return fmt.Errorf("id %q: use lower-case letters and digits, in words parted by single hyphens", s)
		}
	}
	return nil
}

// A ToolID is the name of one tool of one server, written "server/tool".
type ToolID struct {
	Server ServerID
	Name   string
}

// String returns id in the form that ParseToolID reads.
func (id ToolID) String() string { return string(id.Server) + "/" + id.Name }

// MarshalText implements encoding.TextMarshaler, so that a map with ToolID keys can be encoded.
func (id ToolID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ToolID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseToolID(string(text))
	return err
}

// Compare orders ids by server, then by name, as bytes.
func (id ToolID) Compare(other ToolID) int {
	if c := strings.Compare(string(id.Server), string(other.Server)); c != 0 {
		return c
	}
	return strings.Compare(id.Name, other.Name)
}

// ParseToolID reads the form "server/tool". The tool's name may contain slashes; a server's id cannot.
func ParseToolID(s string) (ToolID, error) {
	server, name, ok := strings.Cut(s, "/")
	if !ok || server == "" || name == "" {
		return ToolID{}, fmt.Errorf("tool %q: want the form server/tool", s)
	}
	if err := CheckID(server); err != nil {
		return ToolID{}, fmt.Errorf("tool %q: %w", s, err)
	}
	return ToolID{ServerID(server), name}, nil
}

// A Digest is the SHA-256 of the canonical form of a value, written as "sha256:" and 64 hexadecimal digits. The empty
// Digest means that there is no value.
type Digest string

// LocalID is the ID of the principal that uses Switchboard without a key. No key has this ID, because state is stored
// under a principal's tenant and ID.
const LocalID = "local"

// A Principal is an identity within a tenant: who makes a request.
type Principal struct {
	Tenant TenantID
	ID     string
	Auth   Auth

	// Tasks are the tasks that the principal's key lists. If it is empty, the principal may use only the tenant's
	// default task; with AuthLocal it may use every task of the tenant.
	Tasks []TaskID

	// Roles and Tier are for policies. Mode is how much the principal's agents may do alone: the narrower of the
	// tenant's mode and the key's.
	Roles []string // sorted as bytes, without duplicates
	Tier  string
	Mode  Mode
}

// A Mode is how much an agent may do alone. Policies decide what each mode means.
type Mode string

// The modes. The zero value means Autopilot.
const (
	Observe   Mode = "observe"   // only read
	Assist    Mode = "assist"    // anything that changes something needs approval
	Autopilot Mode = "autopilot" // everything that policy allows
)

// Modes lists all modes, the narrowest first.
var Modes = []Mode{Observe, Assist, Autopilot}

// Narrower returns the narrower of two modes.
func (m Mode) Narrower(other Mode) Mode {
	for _, least := range Modes {
		if m == least || other == least {
			return least
		}
	}
	return Autopilot
}

// An Auth is how a principal was identified.
type Auth string

// The ways.
const (
	AuthLocal  Auth = "local"   // without a key: stdio, or loopback while no key exists
	AuthAPIKey Auth = "api_key" // with a key of the tenant
)
