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
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type storeCmd struct {
	Check  storeCheckCmd  `cmd:"" help:"Look at all that the store keeps, and say what of it is damaged. It may be in use."`
	Export storeExportCmd `cmd:"" help:"Write all that the store keeps to a file, as lines of JSON. It may be in use. It holds results of calls, and is as secret as the store."`
	Import storeImportCmd `cmd:"" help:"Put an export into a store that is empty."`
	Accept storeAcceptCmd `cmd:"" help:"Have all who share a Redis go on with what is left in it, after it was emptied or has lost what it had acknowledged."`
}

// kept says which store a command is for.
type kept struct {
	Config string `help:"The configuration whose store it is." placeholder:"FILE" default:"switchboard.yaml"`
	Data   string `help:"The folder that the store stands in, where the configuration names none; .switchboard beside it." placeholder:"DIR"`
	Store  string `help:"The store itself: file:PATH, or the URL of a Redis. No configuration is read." placeholder:"URL"`
}

// where is the URL of the store, and the secret that its values are sealed with if it is a Redis; --store names no secret.
func (k *kept) where(ctx context.Context, log *slog.Logger) (url string, secret switchboard.Secret, err error) {
	if k.Store != "" {
		return k.Store, secret, nil
	}
	if _, err := os.Stat(k.Config); errors.Is(err, os.ErrNotExist) {
		path, err := filepath.Abs(k.Config)
		if err != nil {
			return "", secret, err
		}
		return "", secret, fmt.Errorf(`there is no %s, which would say where the store is, with all that is kept, receipts too. Name one of these:
  --config FILE                the configuration that is served
  --store file:DIR/store.db    the store itself, where --data DIR is served
  --store redis://HOST         the store itself, where replicas share it`, path)
	}
	c := common{Config: k.Config, Data: k.Data}
	cfg, err := c.load(ctx, log, config.Options{})
	if err != nil {
		return "", secret, err
	}
	return cmp.Or(cfg.Store.URL.Reveal(), "file:"+filepath.Join(c.data(), "store.db")), cfg.Cluster.Secret, nil
}

// open opens the store; a file has to be there, unless it may be new.
func (k *kept) open(ctx context.Context, log *slog.Logger, isNew bool) (store.Store, error) {
	where, secret, err := k.where(ctx, log)
	if err != nil {
		return nil, err
	}
	o := store.Options{File: store.FileOptions{Log: log}, Redis: store.RedisOptions{Relaxed: true}} // what it may lose is for serve to say
	path, isFile := strings.CutPrefix(where, "file:")
	switch _, err := os.Stat(path); {
	case where == "memory:":
		return nil, errors.New("the store is in the memory of the process that serves, where nobody else can see it")
	case isFile && !isNew && errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("there is no store at %s; it is made when something is first served", path)
	}
	s, err := store.Open(ctx, where, o)
	if errors.Is(err, store.ErrUnavailable) {
		return nil, unreachable{err}
	}
	if err != nil || secret.Reveal() == "" {
		return s, err
	}
	return app.SealStore(s, secret, log)
}

// errSealed is why an export or an import is refused that would need the secret of a Redis.
var errSealed = usageError{errors.New("the values in a Redis are sealed with cluster.secret, which --store does not give: name the configuration of the Redis with --config FILE in its place")}

// A keyless store is a Redis without the secret that its values are sealed with. It gives nothing that is sealed.
type keyless struct{ store.Store }

// Dump implements store.Store.
func (k keyless) Dump(ctx context.Context, see func(store.Record) error) error {
	return k.Store.Dump(ctx, func(r store.Record) error {
		if r.Kind == store.KindValue && store.IsSealed(r.Value.Data) {
			return errSealed
		}
		return see(r)
	})
}

type storeCheckCmd struct {
	kept
	output
}

// checked is what the check prints.
type checked struct {
	Kind     string `json:"kind"`
	Where    string `json:"where"`
	Survives string `json:"survives"` // see store.Status
	Values   int    `json:"values"`
	Limits   int    `json:"limits"`
	Logs     int    `json:"logs"`
	Entries  int    `json:"entries"`
	Fault    string `json:"fault,omitempty"`
}

// Run checks the store. It exits 1 when something is damaged, 3 when it cannot be opened.
func (c *storeCheckCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	s, err := c.open(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	status := s.Status()
	found := checked{Kind: status.Kind, Where: status.Where, Survives: status.Survives}
	if err = s.Check(ctx); err == nil {
		err = s.Dump(ctx, func(r store.Record) error {
			switch r.Kind {
			case store.KindValue:
				found.Values++
			case store.KindLimit:
				found.Limits++
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
		_, err = fmt.Fprintf(io.out, "%s is whole: %s, %s, %s with %d entries; what is acknowledged outlives: %s\n",
			found.Where, count(found.Values, "value"), count(found.Limits, "limit"), count(found.Logs, "log"), found.Entries, found.Survives)
	}
	if err == nil && found.Fault != "" {
		return errNo
	}
	return err
}

type storeExportCmd struct {
	kept
	File string `arg:"" help:"Where to write it, for its owner's eyes only; - is stdout." placeholder:"FILE"`
}

// Run exports the store. A file is there when all of it is.
func (c *storeExportCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	s, err := c.open(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if c.Store != "" {
		s = keyless{s}
	}
	if c.File == "-" {
		return store.Export(ctx, s, io.raw)
	}
	dir, name := filepath.Split(c.File)
	file, err := os.CreateTemp(cmp.Or(dir, "."), name+".new-*") // that only its owner may read
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
	kept
	File string `arg:"" help:"What to read; - is stdin." placeholder:"FILE"`
}

// Run imports into the store. It exits 1 when the store is not empty or the export is
// not whole; nothing is changed then.
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
	s, err := c.open(ctx, log, true)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	err = store.Import(ctx, s, from)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExport) {
		fmt.Fprintf(io.err, "switchboard: %v; nothing was imported into %s\n", err, s.Status().Where)
		return errNo
	}
	return err
}

type storeAcceptCmd struct{ kept }

// Run accepts what a Redis has lost. It exits 1 when nothing is known to be lost.
func (c *storeAcceptCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	where, _, err := c.where(ctx, log)
	if err != nil {
		return err
	}
	lost, err := store.Accept(ctx, where, store.Options{})
	switch {
	case errors.Is(err, store.ErrConflict):
		fmt.Fprintln(io.err, "switchboard: nothing is known to be lost, so there is nothing to accept")
		return errNo
	case errors.Is(err, store.ErrUnavailable):
		return unreachable{err}
	case err != nil:
		return usageError{err}
	}
	_, err = fmt.Fprintf(io.out, "accepted: %s\nWho shares the store goes on with what is left in it, within some seconds.\n", lost)
	return err
}
