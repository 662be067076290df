package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/page"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/credential"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/revocation"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// openVault opens the vault in the store. If the configuration names no key, a store in a file has a key file beside it, and another store uses o.Keys. Without
// them the key is random: then nothing is sealed that another process has to open.
func openVault(ctx context.Context, st store.Store, path string, c *config.Config, o vault.Options) (*vault.Vault, error) {
	switch {
	case len(c.Vault.Keys) > 0:
		o.Keys = c.Vault.Keys
	case st.Status().Kind == "file":
		key, err := vault.KeyFile(filepath.Dir(path))
		if err != nil {
			return nil, fmt.Errorf("%s: %w; vault: {key: …} in switchboard.yaml names another one", switchboard.CodeConfig, err)
		}
		o.Keys = []switchboard.Secret{key}
	case len(o.Keys) == 0:
		o.Keys = []switchboard.Secret{switchboard.NewSecret(rand.Text() + rand.Text())}
	}
	return vault.Open(ctx, st, o)
}

// resealConnections seals the connections with the first key of the vault that the second one has sealed, and says when the second key can go.
func resealConnections(ctx context.Context, v *vault.Vault, log *slog.Logger) {
	n, err := v.Reseal(ctx)
	if err != nil {
		log.Warn("not all connections were sealed with the first key of vault.key: keep the second one, and start Switchboard again to go on", "sealed", n, "error", err)
		return
	}
	all, err := v.List(ctx)
	if err != nil {
		log.Warn("the connections could not be listed: keep the second key of vault.key, and start Switchboard again to go on", "error", err)
		return
	}
	unreadable := 0
	for _, c := range all {
		if c.Unreadable {
			unreadable++
		}
	}
	log.Info("all connections that can be read are sealed with the first key of vault.key; the second one can be removed when every process of this store has started with this first key", "sealed", n, "connections", len(all), "unreadable", unreadable)
}

// A ConnectionStore is the store and the vault in it, for a command that does not serve.
type ConnectionStore struct {
	Broker *credential.Broker
	Vault  *vault.Vault
	store  store.Store
	ledger *receipt.Ledger // nil if it only looks
}

// OpenConnections opens the connections that are kept for the servers of the configuration, beside processes that serve it. Changes have receipts, in a chain that no
// other process writes.
func OpenConnections(ctx context.Context, data string, c *config.Config, log *slog.Logger) (*ConnectionStore, error) {
	k, err := openConnections(ctx, data, c, log)
	if err != nil {
		return nil, err
	}
	unanchored := *c
	unanchored.Receipts.Anchor = "" // the processes that serve write there
	if k.ledger, _, err = openLedger(ctx, Options{Data: data, Log: log}, &unanchored, k.store); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	k.Broker = credential.NewBroker(credential.Options{Vault: k.Vault, Receipts: k.ledger, Log: log})
	return k, nil
}

func openConnections(ctx context.Context, data string, c *config.Config, log *slog.Logger) (*ConnectionStore, error) {
	o := Options{Data: data, Log: log}
	if data == "" || StoreURL(data, c.Store) == "memory:" {
		return nil, fmt.Errorf("%s: connections are kept in the store, and this one keeps nothing; --data DIR names a data folder, and store: in switchboard.yaml another store", switchboard.CodeConfig)
	}
	if c.Store.Shared() && len(c.Vault.Keys) == 0 {
		return nil, fmt.Errorf("%s: the tokens in a Redis are sealed, and there is no key: write vault: {key: \"${file:/path}\"} into switchboard.yaml", switchboard.CodeConfig)
	}
	st, err := openStore(ctx, o, c)
	if err != nil {
		return nil, err
	}
	v, err := openVault(ctx, st, storePath(o, c.Store), c, vault.Options{Log: log})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &ConnectionStore{Broker: credential.NewBroker(credential.Options{Vault: v, Log: log}), Vault: v, store: st}, nil
}

// OpenKeptConnections is OpenConnections for a command that only looks: it makes no file. It returns nil if there is no store or no key, and so no connection.
func OpenKeptConnections(ctx context.Context, data string, c *config.Config, log *slog.Logger) (*ConnectionStore, error) {
	if path, isFile := strings.CutPrefix(StoreURL(data, c.Store), "file:"); isFile {
		needed := []string{path}
		if len(c.Vault.Keys) == 0 {
			needed = append(needed, filepath.Join(filepath.Dir(path), vault.KeyName))
		}
		for _, name := range needed {
			if _, err := os.Stat(name); err != nil {
				return nil, nil //nolint:nilerr,nilnil // there are none
			}
		}
	} else if data == "" || !c.Store.Shared() || len(c.Vault.Keys) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	return openConnections(ctx, data, c, log)
}

// OpenNoConnections returns a store without connections.
func OpenNoConnections(ctx context.Context, c *config.Config, log *slog.Logger) (*ConnectionStore, error) {
	o := Options{Log: log}
	st, err := openStore(ctx, o, c)
	if err != nil {
		return nil, err
	}
	v, err := openVault(ctx, st, "", c, vault.Options{Log: log})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &ConnectionStore{Broker: credential.NewBroker(credential.Options{Vault: v, Log: log}), Vault: v, store: st}, nil
}

// Has reports whether the operator has connected a server.
func (c *ConnectionStore) Has(ctx context.Context, s *switchboard.Server) bool {
	_, err := c.Vault.Read(ctx, credential.OwnerOf(s, nil))
	return err == nil
}

// closeTime limits the write of the last receipts of a command.
const closeTime = 5 * time.Second

// Close closes vault, receipts and store.
func (c *ConnectionStore) Close() error {
	c.Vault.Close()
	var err error
	if c.ledger != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		err = c.ledger.Close(ctx)
	}
	return errors.Join(err, c.store.Close())
}

// connectionEnded closes the links that carry the tokens of a connection that has ended or was replaced.
func (p *serverParts) connectionEnded(o vault.Owner) {
	switch {
	case credential.IsOfClient(o): // each request takes the token that is there
		return
	case o.Tenant == "" && p.credentials.IsOfEachCaller(o.Server): // it only lists the tools
		p.fleet.Relink(o.Server)
		return
	case o.Tenant == "":
		_ = p.fleet.Restart(o.Server) // there is no such server any more, perhaps
		return
	}
	p.fleet.Shut(o.Server, &switchboard.Principal{Tenant: o.Tenant, ID: o.Person})
}

// endRetry is the time until the connections of callers who are gone are looked for again, if the store could not be read.
const endRetry = 5 * time.Second

// endRevoked ends the connections of callers whose keys are all revoked, and of blocked persons, whenever keys or blocks have changed, until ctx is done. Every
// process does so, since the one that has revoked a key or blocked a person may be killed.
func endRevoked(ctx context.Context, a *App, changed signal) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
		again = nil
		gone := goneCallers(a.admin.revoked.Keys(), a.state.Load().config, a.admin.revoked.Of)
		addBlocked(gone, a.admin.revoked.Persons())
		if len(gone) == 0 {
			continue
		}
		err := a.credentials.EndOf(ctx, func(o vault.Owner) string {
			return cmp.Or(gone[callerID{o.Tenant, o.Person}], gone[callerID{everyTenant, o.Person}])
		})
		if err != nil && ctx.Err() == nil {
			a.log.Warn("the connections of callers with revoked keys, and of blocked persons, could not be ended; this is tried again", "error", err)
			again = time.After(endRetry)
		}
	}
}

// A callerID identifies a caller with a key, or a person.
type callerID struct {
	tenant switchboard.TenantID
	id     string
}

// everyTenant stands for all tenants in a callerID: a person is blocked in each of them.
const everyTenant switchboard.TenantID = ""

// goneCallers returns the callers, agents and persons, that had a key that was revoked, and have no other one, with the reason. of returns the
// revocation of a key.
func goneCallers(revocations []revocation.Revocation, c *config.Config, of func(hash [32]byte) (revocation.Revocation, bool)) map[callerID]string {
	gone := map[callerID]string{}
	add := func(tenant switchboard.TenantID, id, by string) {
		if tenant != "" { // an operator calls nothing
			gone[callerID{tenant, id}] = "its key was revoked by " + by
		}
	}
	onPage := func(id string) string { return switchboard.PersonThrough(id, switchboard.PageClient) }
	for _, r := range revocations { // one does not say whether the key was an agent's or a person's
		add(r.Tenant, r.ID, r.By)
		add(r.Tenant, onPage(r.ID), r.By)
	}
	for i := range c.People { // a key has one revocation, and may have rows in several tenants
		if r, revoked := of(c.People[i].Hash); revoked {
			add(c.People[i].Tenant, onPage(c.People[i].ID), r.By)
		}
	}
	for i := range c.Keys {
		if _, revoked := of(c.Keys[i].Hash); !revoked {
			delete(gone, callerID{c.Keys[i].Tenant, c.Keys[i].ID})
		}
	}
	for i := range c.People {
		if _, revoked := of(c.People[i].Hash); !revoked {
			delete(gone, callerID{c.People[i].Tenant, onPage(c.People[i].ID)})
		}
	}
	return gone
}

// addBlocked adds the persons who are blocked, with the reason.
func addBlocked(gone map[callerID]string, blocks []revocation.Revocation) {
	for _, r := range blocks {
		gone[callerID{everyTenant, switchboard.PersonThrough(r.ID, switchboard.PageClient)}] = "the person was blocked by " + r.By
	}
}

// connectURL returns the address at which a person makes the connection of a ticket; "" if no person can reach one.
func connectURL(admin string, at *adminListener, ticket string) string {
	base := admin
	if base == "" && at != nil {
		base = "http://" + at.Addr().String()
	}
	if base == "" {
		return ""
	}
	return strings.TrimSuffix(base, "/") + page.ConnectPath + ticket
}
