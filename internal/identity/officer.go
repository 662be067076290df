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
}

// Officers hold all persons' keys. They are immutable; a reload makes new ones.
type Officers struct {
	rows  map[[sha256.Size]byte][]OfficerKey
	check KeyCheck
}

// NewOfficers returns the officers of the rows. check, if not nil, says which keys are revoked.
func NewOfficers(rows []OfficerKey, check KeyCheck) *Officers {
	o := &Officers{rows: map[[sha256.Size]byte][]OfficerKey{}, check: check}
	for _, r := range rows {
		o.rows[r.Hash] = append(o.rows[r.Hash], r)
	}
	return o
}

// Authenticate returns who has sent req. The error is a *switchboard.Error: SB-AUTH-001 if there is no valid person's key, SB-AUTH-003 if all
// rows of the key have expired.
func (o *Officers) Authenticate(req *http.Request) (switchboard.Officer, error) {
	text, err := bearer(req, PersonPrefix)
	if err != nil {
		return switchboard.Officer{}, err
	}
	return o.ByHash(sha256.Sum256([]byte(text)), text)
}

// ByHash returns the officer of a key. text is the key for the refusal of one that no row has.
func (o *Officers) ByHash(hash [sha256.Size]byte, text string) (switchboard.Officer, error) {
	rows := o.rows[hash]
	if len(rows) == 0 {
		return switchboard.Officer{}, refuseUnknown(text)
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
		if officer.ID == "" || r.Operator { // the operator's row names the officer
			officer.ID = r.ID
		}
		officer.Operator = officer.Operator || r.Operator
		if !r.Operator {
			all := append(slices.Clone(officer.Offices[r.Tenant]), r.Offices...)
			slices.Sort(all)
			officer.Offices[r.Tenant] = slices.Compact(all)
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
	if len(auth) != 1 {
		return "", switchboard.Refuse(switchboard.CodeNotAuthenticated, "send exactly one header \"Authorization: Bearer …\" with your key")
	}
	text, ok := strings.CutPrefix(auth[0], "Bearer ")
	switch {
	case !ok || !strings.HasPrefix(text, AgentPrefix) && !strings.HasPrefix(text, PersonPrefix):
		return "", switchboard.Refuse(switchboard.CodeNotAuthenticated, "want \"Authorization: Bearer %s…\"", prefix)
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
