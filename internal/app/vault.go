package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/admin/page"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/credential"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// openVault opens the vault in the store. A store in a file has a key file beside it, if the configuration names no key.
func openVault(ctx context.Context, st store.Store, path string, c *config.Config, o vault.Options) (*vault.Vault, error) {
	o.Keys = c.Vault.Keys
	switch {
	case len(o.Keys) > 0:
	case st.Status().Kind == "file":
		key, err := vault.KeyFile(filepath.Dir(path))
		if err != nil {
			return nil, fmt.Errorf("%s: %w; vault: {key: …} in switchboard.yaml names another one", switchboard.CodeConfig, err)
		}
		o.Keys = []switchboard.Secret{key}
	default: // nothing that a key opens outlives the process, or nobody can connect anything
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
}

// OpenConnections opens the connections that are kept for the servers of the configuration, beside processes that serve it.
func OpenConnections(ctx context.Context, data string, c *config.Config, log *slog.Logger) (*ConnectionStore, error) {
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
	return OpenConnections(ctx, data, c, log)
}

// OpenNoConnections returns a store without connections: every server is one that nobody has connected.
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

// Close closes vault and store.
func (c *ConnectionStore) Close() error {
	c.Vault.Close()
	return c.store.Close()
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
