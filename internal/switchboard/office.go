package switchboard

import (
	"slices"
	"strings"
	"time"
)

// An Office is what a person may do to Switchboard. It gives no right to call tools.
type Office string

// The offices. An operator may do everything except approve; the others act within one tenant.
const (
	OfficeOperator Office = "operator" // the operator's files, all tenants
	OfficeAdmin    Office = "admin"    // the tenant's files and blocks
	OfficeAuthor   Office = "author"   // the tenant's policies
	OfficeApprover Office = "approver" // decides about waiting calls of the tenant
	OfficeViewer   Office = "viewer"   // sees what all offices of the tenant see, and changes nothing
)

// TenantOffices are the offices that a person can hold within a tenant.
var TenantOffices = []Office{OfficeAdmin, OfficeAuthor, OfficeApprover, OfficeViewer}

// The ways in which an Officer is authenticated.
const (
	AuthDataFolder Auth = "data_folder" // it can read the data folder of Switchboard: this machine's operator
	AuthPersonKey  Auth = "person_key"  // with a person's key
	AuthSignIn     Auth = "sign_in"     // signed in at an OpenID provider
)

// An Officer is the sender of a request to the admin side, and the offices that it holds.
type Officer struct {
	ID   string // LocalID, or the id of the key
	Auth Auth

	// Credential identifies the credential, since two tenants can have keys of one id: the SHA-256 of a person's key. "" for whoever
	// has read the data folder.
	Credential string

	Operator bool
	Offices  map[TenantID][]Office // within each tenant; sorted

	// Roles are, by tenant, the values of claims that gave the officer offices there. Claims are all claims that rows match. Only a person
	// who has signed in has them.
	Roles  map[TenantID][]string
	Claims map[string][]string

	// Until is when the first of the rows or sessions that make the officer ends; zero means never. Then it must be made anew.
	Until time.Time
}

// EndsAt says that something that makes the officer ends at an instant; zero means never.
func (o *Officer) EndsAt(end time.Time) {
	if o.Until.IsZero() || !end.IsZero() && end.Before(o.Until) {
		o.Until = end
	}
}

// Holds reports whether the officer holds the office in the tenant. An operator holds every office of every
// tenant but approver, which only a tenant's row can give.
func (o *Officer) Holds(office Office, tenant TenantID) bool {
	if o.Operator && office != OfficeApprover {
		return true
	}
	return slices.Contains(o.Offices[tenant], office)
}

// Sees reports whether the officer holds any office in the tenant.
func (o *Officer) Sees(tenant TenantID) bool { return o.Operator || len(o.Offices[tenant]) > 0 }

// CallRights are what a row of members gives a person's own calls of tools. All rows that match add up. If none of them has a task, the person calls nothing.
type CallRights struct {
	Tasks []TaskID `json:",omitempty"`
	Roles []string `json:",omitempty"` // sorted as bytes, without duplicates
	Tier  string   `json:",omitempty"`
	Mode  Mode     `json:",omitempty"`
}

// PageClient is the client through which a person calls tools on the page, or by its commands.
const PageClient = "page"

// PersonThrough returns the id of the principal that is a person through a client. No key has such an id.
func PersonThrough(person, client string) string { return person + "@" + client }

// PersonBehind returns the id of the person behind a principal. For an agent's key, it is the id of the principal itself.
func PersonBehind(principal string) string { return strings.TrimSuffix(principal, "@"+PageClient) }
