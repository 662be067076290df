package app

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// storeFile is the store in the data folder, if the configuration names no other one.
const storeFile = "store.db"

// openStore opens the configured store, or the file in the data folder, or, without a data folder,
// a store in memory.
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

// checkPrivate refuses a data folder that other users may read or write. A folder that does not exist yet will be made for our
// user alone.
func checkPrivate(dir string) error {
	if dir == "" {
		return nil // there is no data folder
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil // the code that opens it reports the error
	}
	if err := ownfile.Check(dir, dir, info); err != nil {
		return fmt.Errorf("%s: data folder %s: %w", switchboard.CodeConfig, dir, err)
	}
	return nil
}

// plainGroups are the groups of the store that are not sealed, because a forged value in them
// changes no answer and no call. docs/threats.md says what it can do.
var plainGroups = []string{
	archive.GroupPrefix, // each text is checked against the digest that a receipt names
	cluster.Group,       // replicas prove to each other by TLS that they have the secret
	health.Group,        // the health of servers, and which ones an operator has disabled: only the presence of a value counts
	receipt.GroupChains, // which process writes which chain of receipts: only the presence of a value counts
}

// SealStore returns the store with its values sealed by the secret that all replicas share. A store
// that other machines cannot reach stays as it is, because the key would be stored beside its file.
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

// StoreURL returns the URL of the configured store, or of the file in the data folder. Without a
// data folder it is "memory:".
func StoreURL(data string, c config.Store) string {
	switch {
	case data == "":
		return "memory:"
	case c.URL.Reveal() == "":
		return "file:" + filepath.Join(data, storeFile)
	}
	return c.URL.Reveal()
}

// storePath returns the path of a store that is a file.
func storePath(o Options, c config.Store) string {
	return strings.TrimPrefix(StoreURL(o.Data, c), "file:")
}

// openLedger opens the receipts, and the recorder with the archive that receipts refer to.
func openLedger(ctx context.Context, o Options, c *config.Config, st store.Store) (*receipt.Ledger, *replay.Recorder, error) {
	ledger, err := receipt.OpenLedger(ctx, receipt.LedgerOptions{
		Store: st, Folder: filepath.Dir(storePath(o, c.Store)), Secret: c.Cluster.Secret, Lease: cluster.Lease,
		Retention: receipt.Retention{
			MaxAge: c.Receipts.Keep, MaxBytes: c.Receipts.MaxSize,
			Folded: func(ctx context.Context, node string) (uint64, error) { return memory.Folded(ctx, st, node) },
		}, Anchor: c.Receipts.Anchor,
		Version: o.Version, Log: o.Log,
	})
	switch {
	case err != nil:
		return nil, nil, err
	case !ledger.Durable():
		return ledger, replay.NewRecorder(nil, nil, ledger.Digests()), nil
	}
	return ledger, replay.NewRecorder(ledger.Add, archive.New(st, c.Receipts.Keep, o.Log), ledger.Digests()), nil
}

// openCluster connects to the other replicas, if the store can be shared.
func openCluster(st store.Store, o Options, c *config.Config, hopped func(outcome string)) (*cluster.Cluster, error) {
	if !c.Store.Shared() || !o.Replica {
		return &cluster.Cluster{}, nil
	}
	return cluster.New(cluster.Options{
		Store: st, Secret: c.Cluster.Secret, Listen: c.Cluster.Listen, Advertise: c.Cluster.Advertise, Log: o.Log, Hopped: hopped,
	})
}
