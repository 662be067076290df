package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/npm"
	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
	"github.com/summit-switchboard/switchboard/internal/npm/update"
	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/rewrite"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type serverUpdateCmd struct {
	editFlags
	ID      switchboard.ServerID `arg:"" name:"id" help:"The server."`
	Version string               `arg:"" optional:"" help:"The exact version; the newest one if absent."`
	Accept  switchboard.Digest   `help:"Take what was shown with this DIGEST." placeholder:"DIGEST"`
	JSON    bool                 `help:"Print JSON."`
}

// Run shows what another version of the server's package would change. With Accept, it writes the lock and the version.
func (c *serverUpdateCmd) Run(ctx context.Context, io streams) error {
	text, err := os.ReadFile(c.Config)
	if err != nil {
		return err
	}
	present, err := packageOf(c.Config, text, c.ID)
	if err != nil {
		return err
	}
	to := packagelock.Spec{Name: present.Name, Version: c.Version}
	if to.Version == "" {
		if to.Version, err = npm.LatestVersion(ctx, to.Name); err != nil {
			return err
		}
	}
	if !packagelock.IsVersion(to.Version) {
		return usageError{fmt.Errorf("%q is no exact version; write one such as 1.2.3, or none for the newest", to.Version)}
	}
	lock, err := npm.MakeLock(ctx, to)
	if err != nil {
		return err
	}
	if c.Accept != "" {
		return c.take(ctx, io, lock)
	}
	return c.look(ctx, io, text, present, lock)
}

// packageOf returns the package that the row of a server names.
func packageOf(file string, text []byte, id switchboard.ServerID) (packagelock.Spec, error) {
	at := &document.Sink{}
	root, ok := document.ReadYAML(file, text, at)
	if !ok {
		return packagelock.Spec{}, document.SortFaults(at.Faults)
	}
	n := &root.Node
	for _, key := range []string{"servers", string(id), "package", "npm"} {
		i := slices.IndexFunc(n.Pairs, func(p document.NodePair) bool { return p.Key.Text == key })
		if i < 0 {
			if key == string(id) {
				return packagelock.Spec{}, fmt.Errorf("%s has no server %q", file, id)
			}
			return packagelock.Spec{}, fmt.Errorf("the server %s names no package; in %s, write for it: package: {npm: NAME@VERSION}", id, file)
		}
		n = &n.Pairs[i].Value
	}
	spec, err := packagelock.ParseSpec(n.Text)
	if err != nil {
		return spec, fmt.Errorf("%s:%d:%d: %s: %w", file, n.Line, n.Column, document.Shown(n.Text), err)
	}
	return spec, nil
}

// lockPath returns the path of the server's lock file, and its content; nil if there is none.
func (c *serverUpdateCmd) lockPath() (path string, text []byte, err error) {
	path = filepath.Join(filepath.Dir(c.Config), filepath.FromSlash(config.PackageLock(c.ID)))
	text, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return path, text, err
}

// withVersion returns the text of the configuration with the version of the lock in the server's row.
func (c *serverUpdateCmd) withVersion(text []byte, lock *packagelock.Lock) ([]byte, error) {
	return edit.Set(c.Config, text, []string{"servers", string(c.ID), "package", "npm"}, &document.Node{Kind: document.KindText, Text: lock.Spec.String()})
}

// look shows what the lock would change. present is the package in the row.
func (c *serverUpdateCmd) look(ctx context.Context, io streams, text []byte, present packagelock.Spec, lock *packagelock.Lock) error {
	next, err := c.withVersion(text, lock)
	if err != nil {
		return err
	}
	o := readOptions()
	o.Text, o.Replace = next, map[string][]byte{config.PackageLock(c.ID): lock.Text}
	cfg, err := config.Load(ctx, c.Config, o)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(cfg.Servers, func(s switchboard.Server) bool { return s.ID == c.ID })
	if i < 0 {
		return fmt.Errorf("the server %s is not enabled; remove enabled: false from its row first", c.ID)
	}
	_, old, err := c.lockPath()
	if err != nil {
		return err
	}
	was, _ := packagelock.Read(old) // one that cannot be read is replaced
	if was != nil && was.Spec != present {
		was = nil // it is not the lock of the row
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	own := cfg.OwnFiles()
	if data, err := filepath.Abs((&commonFlags{Config: c.Config, Data: c.Data}).dataDir()); err == nil {
		own = append(own, data)
	}
	l, err := update.Preview(ctx, &cfg.Servers[i], was, lock, []string{program, "guard"}, own)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(l)
	}
	c.print(io.out, l)
	return nil
}

// print writes a look for people.
func (c *serverUpdateCmd) print(w io.Writer, l *update.Look) {
	if l.Nothing() {
		fmt.Fprintf(w, "%s stays at %s, and nothing that it needs is newer\n", l.Server, l.To)
		return
	}
	if l.From == "" {
		fmt.Fprintf(w, "%s: %s, with %s\n", l.Server, l.To, count(len(l.Packages), "package"))
		l.Packages = slices.DeleteFunc(l.Packages, func(p packagelock.PackageChange) bool { return !p.WantedScripts })
	} else {
		fmt.Fprintf(w, "%s: from %s to %s\n\npackages: %s\n", l.Server, l.From, l.To, count(len(l.Packages), "change"))
	}
	const most = 40
	for _, p := range l.Packages[:min(len(l.Packages), most)] {
		what := p.Before + " to " + p.After
		switch {
		case p.Before == "":
			what = "new, " + p.After
		case p.After == "":
			what = "gone, was " + p.Before
		case p.Other:
			what = p.After + ", with other files than before"
		}
		if p.WantedScripts {
			what += "; it wants to run a program when it is installed, and does not get to"
		}
		if p.Alias != "" {
			what = "which is " + p.Alias + ", " + what
		}
		fmt.Fprintf(w, "  %s  %s\n", printable(p.Name, 80), printable(what, 200))
	}
	if more := len(l.Packages) - most; more > 0 {
		fmt.Fprintf(w, "  and %d more; --json lists all\n", more)
	}
	fmt.Fprintln(w)
	switch {
	case l.Unknown != "":
		fmt.Fprintf(w, "tools: not known. %s\n", printable(l.Unknown, 400))
	case len(l.Tools) == 0:
		fmt.Fprintln(w, "tools: the definitions are the same")
	case l.From == "":
		fmt.Fprintf(w, "tools: %d\n", len(l.Tools))
	default:
		fmt.Fprintf(w, "tools: %s\n", count(len(l.Tools), "change"))
	}
	for _, t := range l.Tools {
		if l.From == "" { // all are new
			fmt.Fprintf(w, "  %s\n", printable(t.Name, 80))
			continue
		}
		line := t.Change
		if len(t.Members) > 0 {
			line += ": " + strings.Join(t.Members, ", ")
		}
		fmt.Fprintf(w, "  %s  %s\n", printable(t.Name, 80), printable(line, 200))
	}
	_, version, _ := strings.Cut(l.To[1:], "@") // a name may begin with @
	fmt.Fprintf(w, "\nNothing was changed. To take it: switchboard server update %s %s --accept %s\n", l.Server, version, l.Digest)
}

// take writes the lock and the version, if the lock is the one that was shown.
func (c *serverUpdateCmd) take(ctx context.Context, io streams, lock *packagelock.Lock) error {
	if d := lock.Digest(); d != c.Accept {
		return fmt.Errorf("nothing was changed: what npm would install now has the digest %s, so it is another thing than you have looked at; look again: switchboard server update %s %s", d, c.ID, lock.Spec.Version)
	}
	path, _, err := c.lockPath()
	if err != nil {
		return err
	}
	e := newConfigEdit(c.Config, c.DryRun, io)
	r := c.findRunning(ctx)
	restore := func() error { return nil }
	err = e.apply(ctx, func(text []byte) (configChange, error) { // which holds the lock of the file, so that no two commands mix
		next, err := c.withVersion(text, lock)
		if err != nil || c.DryRun {
			return configChange{text: next, unchecked: c.DryRun}, err
		}
		path, old, err := c.lockPath()
		if err != nil {
			return configChange{}, err
		}
		restore = func() error { return writeLock(context.WithoutCancel(ctx), path, old) }
		return configChange{text: next}, errors.Join(ownfile.MakeFolders(filepath.Dir(path)), writeLock(ctx, path, lock.Text))
	})
	if err != nil {
		return errors.Join(err, restore())
	}
	if c.DryRun {
		return nil
	}
	fmt.Fprintf(io.out, "%s: server %s has %s now\nwrote %s\n", e.file, c.ID, lock.Spec, path)
	return r.tellAdded(ctx, io, e.file, c.ID, c.Wait)
}

// writeLock writes a lock file. With a nil text, it removes the file.
func writeLock(ctx context.Context, path string, text []byte) error {
	if text == nil {
		return os.Remove(path)
	}
	return rewrite.File(ctx, path, 0o600, func(old []byte) ([]byte, error) {
		if bytes.Equal(old, text) {
			return old, nil
		}
		return text, nil
	})
}
