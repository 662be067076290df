package app

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// storeFile is the store in the data folder, where the configuration names no
// other.
const storeFile = "store.db"

// openStore opens what the configuration says, or the file in the data folder; or,
// where there is no such folder, one that survives nothing.
func openStore(ctx context.Context, o Options, c *config.Config) (store.Store, error) {
	where := StoreURL(o.Data, c.Store)
	st, err := store.Open(ctx, where, store.Options{File: store.FileOptions{Log: o.Log}, Redis: store.RedisOptions{Relaxed: c.Store.Relaxed, Log: o.Log}})
	if err == nil {
		st, err = SealStore(st, c.Cluster.Secret, o.Log)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the store cannot be opened: %w; --data DIR names another folder, and store: in switchboard.yaml another store (memory: keeps nothing)", switchboard.CodeConfig, err)
	}
	return st, nil
}

// checkPrivate refuses a data folder, or a token of operators in it, that other users may read or write. A folder that is not there yet will be
// made for our user alone.
func checkPrivate(dir string) error {
	if dir == "" {
		return nil // there is none
	}
	for what, name := range map[string]string{"data folder": dir, "token of operators": filepath.Join(dir, identity.OperatorFile)} {
		info, err := os.Stat(name)
		if err != nil {
			continue // whoever opens it next reports that
		}
		if err := switchboard.CheckPrivate(name, info); err != nil {
			return fmt.Errorf("%s: %s %s: %w", switchboard.CodeConfig, what, name, err)
		}
	}
	return nil
}

// plainGroups are the groups of the store whose values are not sealed, because a forged value changes no answer and no call.
// docs/threats.md says what it does instead.
var plainGroups = []string{
	archive.Groups, // each text is checked against the digest that a receipt names
	cluster.Group,  // replicas prove to each other that they have the secret
	health.Group,   // whether servers fare well, and which an operator has disabled: to be there is what counts
	groupChains,    // which process writes which chain of receipts: likewise
}

// SealStore returns the store with its values sealed by the secret that all replicas have. A store that no other machine
// reaches stays as it is: the key would stand beside its file.
func SealStore(st store.Store, secret switchboard.Secret, log *slog.Logger) (store.Store, error) {
	if st.Status().Kind != "redis" {
		return st, nil
	}
	if secret.Reveal() == "" {
		return nil, errors.Join(errors.New("the values in a Redis are sealed, and there is no cluster.secret to open them"), st.Close())
	}
	key, err := hkdf.Key(sha256.New, []byte(secret.Reveal()), nil, "switchboard: values in the store", sha256.Size)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	sealed, err := store.NewSealed(st, store.SealOptions{Key: switchboard.NewSecret(string(key)), Plain: plainGroups, Log: log})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return sealed, nil
}

// StoreURL is where the store is that the configuration names, or the file in the data
// folder; "memory:" where there is no such folder.
func StoreURL(data string, c config.Store) string {
	switch {
	case data == "":
		return "memory:"
	case c.URL.Reveal() == "":
		return "file:" + filepath.Join(data, storeFile)
	}
	return c.URL.Reveal()
}

// storePath is the path of a store that is a file.
func storePath(o Options, c config.Store) string {
	return strings.TrimPrefix(StoreURL(o.Data, c), "file:")
}

// openCluster reaches the other replicas, where the store has room for them.
func openCluster(st store.Store, o Options, c *config.Config, hopped func(outcome string)) (*cluster.Cluster, error) {
	if !c.Store.Shared() || !o.Replica {
		return &cluster.Cluster{}, nil
	}
	return cluster.New(cluster.Options{
		Store: st, Secret: c.Cluster.Secret, Listen: c.Cluster.Listen, Advertise: c.Cluster.Advertise, Log: o.Log, Hopped: hopped,
	})
}

// authenticate says who has sent r: what another replica has found out of those whose
// request it forwards, as it is by what is configured here.
func (a *App) authenticate(r *http.Request) (switchboard.Principal, error) {
	s := a.state.Load()
	if p, ok := cluster.Principal(r); ok {
		return s.currentPrincipal(p)
	}
	p, err := s.ring.Authenticate(r)
	if err == nil {
		markKnown(r.Context())
	}
	return p, err
}
