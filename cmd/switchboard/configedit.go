package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/connect"
	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/rewrite"
)

// newConfigText begins a configuration that a command makes.
const newConfigText = "# The configuration of Switchboard: see `switchboard docs configuration`.\n"

// editTimeout limits how long an edit waits for other commands, and for the manifests that it reads.
const editTimeout = time.Minute

// A configEdit changes one configuration: its file, and the files with secrets beside it.
type configEdit struct {
	file    string
	secrets secretFiles
	dryRun  bool
	io      streams
}

func newConfigEdit(file string, dryRun bool, io streams) *configEdit {
	return &configEdit{file: file, secrets: secretFiles{dir: filepath.Dir(file)}, dryRun: dryRun, io: io}
}

// A configChange is the result of an edit.
type configChange struct {
	text    []byte
	secrets []importer.SecretFile // they are written first

	// unchecked means that the text may have faults. It is for a file that did not exist, on a machine that need not be the one
	// on which the servers run.
	unchecked bool
}

// apply changes the configuration. change gets its text, or nil if there is no file. The secrets are written first, so that
// all files that the configuration names exist. A text with a fault that the old text does not have is not written. With
// dryRun, apply writes nothing and prints the differences.
func (e *configEdit) apply(ctx context.Context, change func(text []byte) (configChange, error)) (err error) {
	if e.dryRun {
		return e.show(ctx, change)
	}
	if err := ownfile.MakeFolders(filepath.Dir(e.file)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, editTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			err = errors.Join(err, e.secrets.undo(context.WithoutCancel(ctx)))
		}
	}()
	return rewrite.File(ctx, e.file, 0o600, func(old []byte) ([]byte, error) {
		if err := e.secrets.undo(ctx); err != nil { // of an attempt for a text that has changed meanwhile
			return nil, err
		}
		c, err := change(old)
		if err != nil {
			return nil, err
		}
		if err := e.secrets.write(ctx, c.secrets); err != nil {
			return nil, err
		}
		return c.text, e.check(ctx, old, c)
	})
}

// check reports the new faults of a text.
func (e *configEdit) check(ctx context.Context, old []byte, c configChange) error {
	if c.unchecked {
		return nil
	}
	return edit.Check(ctx, e.file, readOptions(), old, c.text)
}

// show prints what apply would change.
func (e *configEdit) show(ctx context.Context, change func(text []byte) (configChange, error)) error {
	old, err := os.ReadFile(e.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c, err := change(old)
	if err != nil {
		return err
	}
	if len(c.secrets) == 0 { // the text has faults as long as its secrets are not there
		if err := e.check(ctx, old, c); err != nil {
			return err
		}
	}
	if old == nil {
		_, err = e.io.out.Write(c.text)
	} else {
		_, err = fmt.Fprint(e.io.out, connect.DiffFiles([]connect.FileChange{{File: e.file, Before: old, After: c.text}}, nil, shortPath))
	}
	for _, s := range c.secrets {
		fmt.Fprintf(e.io.err, "a secret would be written to %s\n", e.secrets.path(s.Name))
	}
	return err
}

// readOptions are the options for reading a configuration that a command changes.
func readOptions() config.Options {
	return config.Options{Env: os.LookupEnv, Fetch: fetchManifest}
}

// readText reads the configuration with a text in its file.
func (e *configEdit) readText(ctx context.Context, text []byte) (*config.Config, error) {
	o := readOptions()
	o.Text = append([]byte{}, text...)
	return config.Load(ctx, e.file, o)
}

// present describes the configuration with a text in its file, for servers that join it. If the configuration has faults,
// its servers are unknown, and only their ids count.
func (e *configEdit) present(ctx context.Context, text []byte) (importer.Present, error) {
	have := importer.Present{HasSecret: e.secrets.exists, Listen: cmp.Or(config.ListenAddress(e.file), config.DefaultListen)}
	if len(bytes.TrimSpace(text)) == 0 {
		return have, nil
	}
	places, err := edit.ListServers(e.file, text)
	if err != nil {
		return have, err
	}
	for _, p := range places {
		have.IDs = append(have.IDs, p.ID)
	}
	if c, err := e.readText(ctx, text); err == nil {
		have.Servers = c.Servers
	}
	return have, nil
}
