package vault

import (
	"context"
	"errors"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// A ListedConnection describes a connection, without its secrets.
type ListedConnection struct {
	Owner   Owner
	Subject string
	Label   string
	Scopes  []string
	Made    time.Time
	Renewed time.Time
	Expires time.Time // of the token; zero: unknown

	// Again says that the person must connect again, at the latest when the token expires.
	Again bool

	// Unreadable says that the row does not open. Then nothing else is known of it, except Row.
	Unreadable bool
	Row        string // the name of the row in the store
}

// List returns all connections, sorted by the names of their rows.
func (v *Vault) List(ctx context.Context) ([]ListedConnection, error) {
	var all []ListedConnection
	err := v.rows.eachRow(ctx, func(value store.NamedValue) error {
		r, _, err := v.rows.sealer.openRow(value.Name, value.Data)
		if err != nil {
			all = append(all, ListedConnection{Row: value.Name, Unreadable: true})
			return nil
		}
		all = append(all, ListedConnection{
			Owner: r.Owner, Subject: r.Consent.Subject, Label: r.Consent.Label, Scopes: r.Consent.Scopes, Made: r.Consent.Made,
			Renewed: r.Renewed, Expires: r.Expires, Again: r.connectAgain(), Row: value.Name,
		})
		return nil
	})
	return all, err
}

// Reseal seals the rows with the first key that an older key sealed, so that the older key can be taken out of the configuration. It
// returns how many rows it has sealed. Rows that change meanwhile are sealed with the first key anyway.
func (v *Vault) Reseal(ctx context.Context) (n int, err error) {
	err = v.rows.eachRow(ctx, func(value store.NamedValue) error {
		r, key, err := v.rows.sealer.openRow(value.Name, value.Data)
		if err != nil || key == 0 {
			return nil //nolint:nilerr // what does not open stays
		}
		data, err := v.rows.sealer.sealRow(value.Name, r)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		_, err = v.rows.store.Apply(ctx, store.Change{Group: groupOf(value.Name), Durable: true, Writes: []store.Write{{Name: value.Name, Was: value.Version, Data: data}}})
		if err == nil {
			n++
		} else if errors.Is(err, store.ErrConflict) {
			err = nil
		}
		return err
	})
	return n, err
}
