package admin

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/revocation"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The kinds of keys.
const (
	KeyOfAgent    = "agent"    // opens /mcp
	KeyOfOperator = "operator" // the other kinds open the admin side
	KeyOfApprover = "approver"
	KeyOfMember   = "member"
)

// The states of keys.
const (
	KeyValid   = "valid"
	KeyExpired = "expired"
	KeyRevoked = "revoked"
	KeyUnknown = "unknown" // the store cannot be read, so the key may be revoked; see ListKeys
)

// HashDigits is how many hexadecimal digits of a key's hash name the key.
const HashDigits = 12

// A KeyRow is a row of a key in the configuration. It does not contain the key.
type KeyRow struct {
	Key     string                 `json:"key"` // the first digits of its hash
	Kind    string                 `json:"kind"`
	Tenant  switchboard.TenantID   `json:"tenant,omitempty"` // "" for an operator
	ID      string                 `json:"id"`
	Tasks   []switchboard.TaskID   `json:"tasks,omitempty"`   // of an agent's key
	Offices []switchboard.Office   `json:"offices,omitempty"` // of a person's key
	Expires time.Time              `json:"expires,omitzero"`
	State   string                 `json:"state"`
	Revoked *revocation.Revocation `json:"revoked,omitempty"`

	hash [32]byte
}

// Place returns the place of the row among others: rows are sorted by it. A space comes before all characters of ids.
func (r *KeyRow) Place() string {
	offices := make([]string, len(r.Offices))
	for i, o := range r.Offices {
		offices[i] = string(o)
	}
	return strings.Join([]string{r.Kind, string(r.Tenant), r.ID, r.Key, strings.Join(offices, ",")}, " ")
}

// Keys returns the rows of a tenant's keys, or of all keys for the empty tenant: agents first, each kind sorted by tenant and id.
func (a *Actions) Keys(id switchboard.TenantID) []KeyRow {
	return keyRows(a.o.Configuration().Config, a.o.Revoked, id)
}

// ListKeys returns the rows of keys of a configuration that nothing serves, as Keys does. open opens its store; without a store, no key is revoked, and
// open returns nil. The error says that the store could not be read. The rows then do not say whether keys are revoked.
func ListKeys(ctx context.Context, c *config.Config, open func() (store.Store, error), id switchboard.TenantID) ([]KeyRow, error) {
	revoked := &revocation.RevokedKeys{}
	records, err := open()
	if err == nil && records != nil {
		defer func() { _ = records.Close() }()
		var read *revocation.RevokedKeys
		if read, err = revocation.ReadOnce(ctx, records); err == nil {
			revoked = read
		}
	}
	rows := keyRows(c, revoked, id)
	for i := range rows {
		if err != nil && rows[i].State == KeyValid {
			rows[i].State = KeyUnknown
		}
	}
	return rows, err
}

func keyRows(c *config.Config, revoked *revocation.RevokedKeys, id switchboard.TenantID) []KeyRow {
	all := []KeyRow{}
	add := func(row KeyRow) {
		if id != "" && row.Tenant != id {
			return
		}
		row.Key, row.State = hex.EncodeToString(row.hash[:])[:HashDigits], KeyValid
		if !row.Expires.IsZero() && !time.Now().Before(row.Expires) {
			row.State = KeyExpired
		}
		if why, ok := revoked.Of(row.hash); ok {
			row.State, row.Revoked = KeyRevoked, &why
		}
		all = append(all, row)
	}
	for _, k := range c.Keys {
		add(KeyRow{Kind: KeyOfAgent, Tenant: k.Tenant, ID: k.ID, Tasks: k.Tasks, Expires: k.Expires, hash: k.Hash})
	}
	for _, p := range c.People {
		kind := KeyOfMember
		switch {
		case p.Operator:
			kind = KeyOfOperator
		case slices.Contains(p.Offices, switchboard.OfficeApprover):
			kind = KeyOfApprover
		}
		add(KeyRow{Kind: kind, Tenant: p.Tenant, ID: p.ID, Offices: p.Offices, Expires: p.Expires, hash: p.Hash})
	}
	slices.SortStableFunc(all, func(a, b KeyRow) int { return strings.Compare(a.Place(), b.Place()) })
	return all
}

// RevokeKey revokes the key whose hash begins with the digits, everywhere and for good. An admin of a tenant may revoke the tenant's own keys, but
// no key that also has a row elsewhere. The error is a *switchboard.Error.
func (a *Actions) RevokeKey(by switchboard.Officer, tenant switchboard.TenantID, digits, reason string) (*KeyRow, error) {
	var found []KeyRow
	for _, row := range keyRows(a.o.Configuration().Config, a.o.Revoked, "") {
		if row.Key == digits {
			found = append(found, row)
		}
	}
	mine := slices.IndexFunc(found, func(r KeyRow) bool { return tenant == "" || r.Tenant == tenant })
	switch {
	case mine < 0:
		return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: fmt.Sprintf("there is no key %.64q here; \"switchboard key list\" shows the keys", digits)}
	case slices.ContainsFunc(found, func(r KeyRow) bool { return r.hash != found[0].hash }):
		return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "several keys have this beginning of a hash; replace one of them first"}
	case !by.Operator && slices.ContainsFunc(found, func(r KeyRow) bool { return r.Tenant != tenant || r.Kind == KeyOfApprover }):
		return nil, switchboard.Refuse(switchboard.CodeNotAuthorized, "this key has rows that are not those of tenant %s's own file, so only an operator can revoke it; to end its office here, remove its row", tenant)
	}
	row := found[mine]
	_, err := a.doWithReceipts(receipt.Receipt{
		Tenant: row.Tenant, Principal: receipt.Subject{ID: by.ID, Auth: by.Auth}, Method: "revoke", Note: strings.TrimSpace(row.Kind + " " + row.ID + " " + row.Key + " " + reason),
	}, func() (string, error) {
		ctx, cancel := context.WithTimeout(a.o.Stopping, operateTimeout)
		defer cancel()
		return "", a.o.Revoked.Revoke(ctx, [][32]byte{row.hash}, revocation.Revocation{Tenant: row.Tenant, ID: row.ID, By: by.ID, When: time.Now().UTC().Truncate(time.Second), Reason: reason})
	})
	if err != nil {
		return nil, err
	}
	a.o.Log.Info("operator", "did", "revoke", "key", row.Key, "of", row.ID, "tenant", row.Tenant, "by", by.ID, "reason", reason)
	a.o.Events.Add(event.Occurrence{Type: event.Key, Tenant: row.Tenant, Subject: row.Key, By: by.ID})
	row.State = KeyRevoked
	if why, ok := a.o.Revoked.Of(row.hash); ok {
		row.Revoked = &why
	}
	return &row, nil
}
