package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type storeCmd struct {
	Check  storeCheckCmd  `cmd:"" help:"Read everything in the store, and report damage. The store may be in use."`
	Export storeExportCmd `cmd:"" help:"Write everything in the store to a file, as lines of JSON. The store may be in use. The file holds results of calls, and is as secret as the store."`
	Import storeImportCmd `cmd:"" help:"Import an export into an empty store."`
	Accept storeAcceptCmd `cmd:"" help:"Let all that share a Redis continue with its present content, after it was emptied or has lost acknowledged data."`
}

// storeFlags name the store that a command uses.
type storeFlags struct {
	Config string `help:"The configuration that names the store." placeholder:"FILE" default:"${config}"`
	Data   string `help:"The folder of the store, if the configuration names no store; by default .switchboard beside the configuration." placeholder:"DIR"`
	Store  string `help:"The store itself: file:PATH, or the URL of a Redis. No configuration is read." placeholder:"URL"`
}

// storeURL returns the URL of the store. For a Redis it also returns the secret that seals its values;
// --store gives no secret.
func (k *storeFlags) storeURL(ctx context.Context, log *slog.Logger) (url string, secret switchboard.Secret, err error) {
	if k.Store != "" {
		return k.Store, secret, nil
	}
	if _, err := os.Stat(k.Config); errors.Is(err, os.ErrNotExist) {
		path, err := filepath.Abs(k.Config)
		if err != nil {
			return "", secret, err
		}
		return "", secret, fmt.Errorf(`there is no %s, which names the store with the receipts and all other data. Name one of these:
  --config FILE                the configuration that is served
  --store file:DIR/store.db    the store itself, where --data DIR is served
  --store redis://HOST         the store itself, where replicas share it`, path)
	}
	c := commonFlags{Config: k.Config, Data: k.Data}
	cfg, err := c.loadConfig(ctx, log, config.Options{})
	if err != nil {
		return "", secret, err
	}
	return cmp.Or(cfg.Store.URL.Reveal(), "file:"+filepath.Join(c.dataDir(), "store.db")), cfg.Cluster.Secret, nil
}

// openStore opens the store. The file of a store must exist, unless isNew is true.
func (k *storeFlags) openStore(ctx context.Context, log *slog.Logger, isNew bool) (store.Store, error) {
	where, secret, err := k.storeURL(ctx, log)
	if err != nil {
		return nil, err
	}
	o := store.Options{File: store.FileOptions{Log: log}, Redis: store.RedisOptions{Relaxed: true}} // only serve checks what it may lose
	path, isFile := strings.CutPrefix(where, "file:")
	switch _, err := os.Stat(path); {
	case where == "memory:":
		return nil, errors.New("the store is in the memory of the serving process, which no other process can read")
	case isFile && !isNew && errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("there is no store at %s; it is made when something is first served", path)
	}
	s, err := store.Open(ctx, where, o)
	if errors.Is(err, store.ErrUnavailable) {
		return nil, unreachableError{err}
	}
	if err != nil || secret.Reveal() == "" {
		return s, err
	}
	return app.SealStore(s, secret, log)
}

// errSealed refuses an export or import that would need the secret of a Redis.
var errSealed = usageError{errors.New("the values in a Redis are sealed with cluster.secret, which --store does not give: name the configuration of the Redis with --config FILE in its place")}

// A sealedStore is a Redis without the secret that seals its values. It refuses to dump sealed values.
type sealedStore struct{ store.Store }

// Dump implements store.Store.
func (k sealedStore) Dump(ctx context.Context, see func(store.Record) error) error {
	return k.Store.Dump(ctx, func(r store.Record) error {
		if r.Kind == store.KindValue && store.IsSealed(r.Value.Data) {
			return errSealed
		}
		return see(r)
	})
}

type storeCheckCmd struct {
	storeFlags
	outputFlags
}

// storeCheck is the output of the check.
type storeCheck struct {
	Kind     string `json:"kind"`
	Where    string `json:"where"`
	Survives string `json:"survives"` // see store.Status
	Values   int    `json:"values"`
	Limits   int    `json:"limits"`
	Accounts int    `json:"accounts"`
	Holds    int    `json:"holds"`
	Logs     int    `json:"logs"`
	Entries  int    `json:"entries"`
	Fault    string `json:"fault,omitempty"`
}

// Run checks the store. It exits 1 if something is damaged, and 3 if the store cannot be opened.
func (c *storeCheckCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	s, err := c.openStore(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	status := s.Status()
	found := storeCheck{Kind: status.Kind, Where: status.Where, Survives: status.Survives}
	if err = s.Check(ctx); err == nil {
		err = s.Dump(ctx, func(r store.Record) error {
			switch r.Kind {
			case store.KindValue:
				found.Values++
			case store.KindLimit:
				found.Limits++
			case store.KindAccount:
				found.Accounts++
			case store.KindHold:
				found.Holds++
			case store.KindLog:
				found.Logs++
			case store.KindEntry:
				found.Entries++
			}
			return nil
		})
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		found.Fault = err.Error()
	}
	switch {
	case c.JSON:
		err = json.NewEncoder(io.raw).Encode(found)
	case found.Fault != "":
		_, err = fmt.Fprintln(io.out, found.Fault)
	default:
		_, err = fmt.Fprintf(io.out, "%s is whole: %s, %s, %s with %s, %s with %d entries; what is acknowledged outlives: %s\n",
			found.Where, count(found.Values, "value"), count(found.Limits, "limit"), count(found.Accounts, "account"), count(found.Holds, "hold"),
			count(found.Logs, "log"), found.Entries, found.Survives)
	}
	if err == nil && found.Fault != "" {
		return errNegative
	}
	return err
}

type storeExportCmd struct {
	storeFlags
	File string `arg:"" help:"The file to write, readable only by its owner; - is stdout." placeholder:"FILE"`
}

// Run exports the store. The file appears only once it is complete.
func (c *storeExportCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	s, err := c.openStore(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if c.Store != "" {
		s = sealedStore{s}
	}
	if c.File == "-" {
		return store.Export(ctx, s, io.raw)
	}
	dir, name := filepath.Split(c.File)
	file, err := ownfile.CreateTemp(cmp.Or(dir, "."), name+".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if err := cmp.Or(store.Export(ctx, s, file), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), c.File)
}

type storeImportCmd struct {
	storeFlags
	File string `arg:"" help:"The file to read; - is stdin." placeholder:"FILE"`
}

// Run imports into the store. If the store is not empty or the export is incomplete, it changes
// nothing and exits 1.
func (c *storeImportCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	if strings.HasPrefix(c.Store, "redis") {
		return errSealed
	}
	from := io.in
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	s, err := c.openStore(ctx, log, true)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	err = store.Import(ctx, s, from)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExport) {
		fmt.Fprintf(io.err, "switchboard: %v; nothing was imported into %s\n", err, s.Status().Where)
		return errNegative
	}
	if status := s.Status(); err == nil && status.Kind == "file" {
		fmt.Fprintf(io.err, "switchboard: an export has no secrets: copy receipts.key and vault.key from the data folder that it comes from into %s\n", filepath.Dir(status.Where))
	}
	return err
}

type storeAcceptCmd struct{ storeFlags }

// Run accepts the loss of data in a Redis. It exits 1 if no loss is known.
func (c *storeAcceptCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	where, _, err := c.storeURL(ctx, log)
	if err != nil {
		return err
	}
	lost, err := store.Accept(ctx, where, store.Options{})
	switch {
	case errors.Is(err, store.ErrConflict):
		fmt.Fprintln(io.err, "switchboard: nothing is known to be lost, so there is nothing to accept")
		return errNegative
	case errors.Is(err, store.ErrUnavailable):
		return unreachableError{err}
	case err != nil:
		return usageError{err}
	}
	_, err = fmt.Fprintf(io.out, "accepted: %s\nAll that share the store continue with its present content within some seconds.\n", lost)
	return err
}
