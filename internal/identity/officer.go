package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An OfficerKey is a row that gives the holder of a person's key offices. A key may have several rows, which add up.
type OfficerKey struct {
	ID      string
	Hash    [sha256.Size]byte
	Expires time.Time `json:",omitzero"`

	Operator bool
	Tenant   switchboard.TenantID
	Offices  []switchboard.Office

	Calls switchboard.CallRights
}

// An OfficerClaim is a row that gives offices to everybody for whom an issuer states a claim. All rows that match a person add up.
type OfficerClaim struct {
	Issuer string // the id of the issuer in the configuration
	Claim  string // the name of a claim
	Value  string // the claim is this text, or a list with this text

	Operator bool
	Tenant   switchboard.TenantID
	Offices  []switchboard.Office

	Calls switchboard.CallRights
}

// A Person is somebody who has signed in at an issuer.
type Person struct {
	Issuer  string              `json:"issuer"`  // the id of the issuer in the configuration
	Subject string              `json:"subject"` // the claim sub: never given to another person of the issuer
	Claims  map[string][]string `json:"claims"`  // the claims that are texts or lists of texts
}

// ID names the person in receipts, logs and answers. No key has such an id.
func (p *Person) ID() string { return p.Issuer + "/" + p.Subject }

// Hash returns what a KeyCheck knows the person by, if it is blocked.
func (p *Person) Hash() [sha256.Size]byte { return sha256.Sum256([]byte("person\x00" + p.ID())) }

// Officers hold the rows of all persons. They are immutable; a reload makes new ones.
type Officers struct {
	rows    map[[sha256.Size]byte][]OfficerKey
	claims  map[string][]OfficerClaim             // by issuer
	callers map[principalName][][sha256.Size]byte // the keys that have tasks, by tenant and id
	check   KeyCheck
}

// NewOfficers returns the officers of the rows. check, if not nil, says which keys are revoked, and which persons blocked.
func NewOfficers(keys []OfficerKey, claims []OfficerClaim, check KeyCheck) *Officers {
	o := &Officers{rows: map[[sha256.Size]byte][]OfficerKey{}, claims: map[string][]OfficerClaim{}, callers: map[principalName][][sha256.Size]byte{}, check: check}
	for _, r := range keys {
		o.rows[r.Hash] = append(o.rows[r.Hash], r)
		if len(r.Calls.Tasks) > 0 {
			name := principalName{r.Tenant, r.ID, switchboard.AuthPersonKey}
			o.callers[name] = append(o.callers[name], r.Hash)
		}
	}
	for _, r := range claims {
		o.claims[r.Issuer] = append(o.claims[r.Issuer], r)
	}
	return o
}

// ByPerson returns the officer that the rows make of a person. The error is a *switchboard.Error: SB-AUTH-002 if no row matches, or why the
// person is blocked.
func (o *Officers) ByPerson(p *Person) (switchboard.Officer, error) {
	if o.check != nil {
		if err := o.check.CheckKey(p.Hash()); err != nil {
			return switchboard.Officer{}, err
		}
	}
	officer := switchboard.Officer{
		ID: p.ID(), Auth: switchboard.AuthSignIn, Offices: map[switchboard.TenantID][]switchboard.Office{},
		Roles: map[switchboard.TenantID][]string{}, Claims: map[string][]string{},
	}
	matched := false
	for _, r := range o.claims[p.Issuer] {
		if !slices.Contains(p.Claims[r.Claim], r.Value) {
			continue
		}
		officer.Claims[r.Claim] = append(officer.Claims[r.Claim], r.Value)
		if !r.Operator && len(r.Offices) == 0 { // it only narrows the mode of calls
			continue
		}
		matched = true
		if officer.Operator = officer.Operator || r.Operator; !r.Operator {
			addOffices(&officer, r.Tenant, r.Offices)
			officer.Roles[r.Tenant] = append(officer.Roles[r.Tenant], r.Value)
		}
	}
	if !matched {
		e := switchboard.Refuse(switchboard.CodeNotAuthorized, "you have signed in at %s, but no row of the configuration gives you an office", p.Issuer)
		e.Hint = "ask an operator for a row under operators, approvers or members that matches you"
		return switchboard.Officer{}, e
	}
	return officer, nil
}

// ClaimsOf returns the names of the claims that the rows of an issuer compare, sorted.
func (o *Officers) ClaimsOf(issuer string) (names []string) {
	for _, r := range o.claims[issuer] {
		names = append(names, r.Claim)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func addOffices(officer *switchboard.Officer, tenant switchboard.TenantID, offices []switchboard.Office) {
	all := append(slices.Clone(officer.Offices[tenant]), offices...)
	slices.Sort(all)
	officer.Offices[tenant] = slices.Compact(all)
}

// Authenticate returns who has sent req. The error is a *switchboard.Error: SB-AUTH-001 if there is no valid person's key, SB-AUTH-003 if all
// rows of the key have expired.
func (o *Officers) Authenticate(req *http.Request) (switchboard.Officer, error) {
	text, err := bearer(req, PersonPrefix)
	if err != nil {
		return switchboard.Officer{}, err
	}
	return o.ByKey(text)
}

// ShowsPersonKey reports whether req has a person's key in its header, which may not be valid.
func ShowsPersonKey(req *http.Request) bool {
	return strings.HasPrefix(req.Header.Get("Authorization"), "Bearer "+PersonPrefix)
}

// ByKey is Authenticate for the text of a key.
func (o *Officers) ByKey(text string) (switchboard.Officer, error) {
	hash := sha256.Sum256([]byte(text))
	if len(o.rows[hash]) == 0 {
		return switchboard.Officer{}, refuseUnknown(text)
	}
	return o.ByHash(hash)
}

// ByHash is ByKey for the holder of a key who has shown it before.
func (o *Officers) ByHash(hash [sha256.Size]byte) (switchboard.Officer, error) {
	rows := o.rows[hash]
	if len(rows) == 0 {
		return switchboard.Officer{}, switchboard.Refuse(switchboard.CodeNotAuthenticated, "your key has no row any more")
	}
	if o.check != nil {
		if err := o.check.CheckKey(hash); err != nil {
			return switchboard.Officer{}, err
		}
	}
	officer := switchboard.Officer{Auth: switchboard.AuthPersonKey, Credential: hex.EncodeToString(hash[:]), Offices: map[switchboard.TenantID][]switchboard.Office{}}
	var expired time.Time
	now := time.Now()
	for _, r := range rows {
		if !r.Expires.IsZero() && !now.Before(r.Expires) {
			expired = r.Expires
			continue
		}
		officer.EndsAt(r.Expires)
		if officer.ID == "" || r.Operator { // the operator's row names the officer
			officer.ID = r.ID
		}
		officer.Operator = officer.Operator || r.Operator
		if !r.Operator {
			addOffices(&officer, r.Tenant, r.Offices)
		}
	}
	if officer.ID == "" {
		return switchboard.Officer{}, refuseExpired(expired)
	}
	return officer, nil
}

// bearer returns the key in the request's only Authorization header.
func bearer(req *http.Request, prefix string) (string, error) {
	if hasKeyInURL(req) {
		return "", errKeyInURL()
	}
	auth := req.Header.Values("Authorization")
	switch len(auth) {
	case 0:
		return "", switchboard.Refuse(switchboard.CodeNotAuthenticated, "the request has no key: send yours as \"Authorization: Bearer %s…\"", prefix)
	case 1:
	default:
		return "", switchboard.Refuse(switchboard.CodeNotAuthenticated, "the request has %d headers Authorization: send exactly one, with your key", len(auth))
	}
	text, ok := strings.CutPrefix(auth[0], "Bearer ")
	switch {
	case !ok || !strings.HasPrefix(text, AgentPrefix) && !strings.HasPrefix(text, PersonPrefix):
		return "", switchboard.Refuse(switchboard.CodeNotAuthenticated, "the header Authorization holds no key: want \"Authorization: Bearer %s…\"", prefix)
	case !strings.HasPrefix(text, prefix):
		return "", refuseUnknown(text)
	}
	return text, nil
}

// hasKeyInURL reports whether the query of req has a parameter that is named like a key.
func hasKeyInURL(req *http.Request) bool {
	if req.URL.RawQuery == "" {
		return false
	}
	for name := range req.URL.Query() {
		switch strings.ToLower(name) {
		case "access_token", "api_key", "apikey", "authorization", "key", "token":
			return true
		}
	}
	return false
}

func errKeyInURL() error {
	return switchboard.Refuse(switchboard.CodeNotAuthenticated, "a key in the URL ends up in logs; send it as \"Authorization: Bearer …\", and replace the one that you sent")
}

func refuseExpired(end time.Time) error {
	e := switchboard.Refuse(switchboard.CodeKeyExpired, "your key has expired: it was good until %s", end.UTC().Format(time.RFC3339))
	e.Hint = "ask the person who gave it to you for a new one"
	return e
}
