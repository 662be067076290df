// Package switchboard holds the words that the rest of the program is written
// in: capabilities, tools, requirements, tasks, tenants, principals, calls,
// and the codes of refusals.
//
// It imports nothing of ours and does no I/O, so that every other package can
// speak in its terms without knowing where a value came from. Values of its
// types are shared freely between goroutines and are not modified once made.
package switchboard

import (
	"fmt"
	"strings"
)

// A ServerID names one MCP server behind the gateway.
type ServerID string

// A TenantID names one tenant, as in the folder tenants/<id>.
type TenantID string

// A TaskID names one task of a tenant.
type TaskID string

// MaxIDBytes bounds the ids of servers, tenants, tasks and groups.
const MaxIDBytes = 32

// CheckID reports why s cannot be the id of a server, tenant, task or group.
// An id is [a-z0-9]+(-[a-z0-9]+)* and at most MaxIDBytes long, so that no
// separator that we put between ids is ambiguous.
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

// A ToolID names one tool of one server. It is written "server/tool".
type ToolID struct {
	Server ServerID
	Name   string
}

// String returns id in the form that ParseToolID reads.
func (id ToolID) String() string { return string(id.Server) + "/" + id.Name }

// MarshalText implements encoding.TextMarshaler, so that maps by tool encode.
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

// ParseToolID reads the form "server/tool". The name may itself hold slashes;
// a server id cannot.
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

// A Digest is the SHA-256 of something's canonical form, written
// "sha256:" and 64 hexadecimal digits. The empty Digest is of nothing.
type Digest string

// LocalID is the ID of the principal of keyless use, and no key's: what a principal has is
// kept under its tenant and ID.
const LocalID = "local"

// A Principal is who is calling: an identity within a tenant.
type Principal struct {
	Tenant TenantID
	ID     string
	Auth   Auth

	// Tasks are those that the principal's key names. Empty means only the
	// tenant's default task, unless Auth is AuthLocal: then any task of the
	// tenant.
	Tasks []TaskID

	// Roles and Tier are what policy may ask about a principal, and Mode how
	// much its agents may do alone: the least that tenant and key allow.
	Roles []string // sorted as bytes, without duplicates
	Tier  string
	Mode  Mode
}

// Mode is how much an agent may do alone. What each means is policy's to say.
type Mode string

// The modes. The zero value means Autopilot.
const (
	Observe   Mode = "observe"   // only look
	Assist    Mode = "assist"    // what changes anything needs approval
	Autopilot Mode = "autopilot" // what policy allows
)

// Modes are all modes, the narrowest first.
var Modes = []Mode{Observe, Assist, Autopilot}

// Narrower returns the mode that allows less of the two.
func (m Mode) Narrower(other Mode) Mode {
	for _, least := range Modes {
		if m == least || other == least {
			return least
		}
	}
	return Autopilot
}

// Auth says how a principal became known.
type Auth string

// The ways to be known.
const (
	AuthLocal  Auth = "local"   // keyless: stdio, or loopback while no key exists
	AuthAPIKey Auth = "api_key" // a key of the tenant's
)
