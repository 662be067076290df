package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type importCmd struct {
	outputFlags
	File   string `arg:"" help:"The file in which a client keeps its MCP servers: mcpServers, servers or context_servers."`
	Dir    string `help:"The folder of switchboard.yaml. If the file is there, the servers join it." default:"." placeholder:"DIR"`
	DryRun bool   `help:"Print the result or the differences, and write no file."`
}

// Run adds the servers of the client's file to the folder's switchboard.yaml, which it makes if it is absent, and writes the
// secrets found in the client's file.
func (i *importCmd) Run(ctx context.Context, io streams, _ *slog.Logger) error {
	e := newConfigEdit(filepath.Join(i.Dir, "switchboard.yaml"), i.DryRun, io)
	var mapping importer.Mapping
	var secrets int
	joined := false
	err := e.apply(ctx, func(text []byte) (c configChange, err error) {
		if joined = text != nil; joined {
			c, mapping, err = i.join(ctx, e, text)
		} else {
			c.unchecked = true
			c.text, c.secrets, mapping, err = importer.Convert(i.File, config.Options{Env: os.LookupEnv})
		}
		secrets = len(c.secrets)
		return c, err
	})
	if err != nil {
		return err
	}
	var demands []signInDemand
	if !i.DryRun {
		demands = i.findDemands(ctx, e.file, mapping)
	}
	if i.JSON {
		return json.NewEncoder(io.err).Encode(mapping)
	}
	added := printMapping(io, mapping)
	wrote := "wrote " + e.file
	if joined {
		wrote = e.file + ": " + count(added, "server") + " added"
	}
	if secrets > 0 {
		wrote += " and " + count(secrets, "secret")
	}
	if i.DryRun {
		return nil
	}
	fmt.Fprintln(io.out, wrote)
	return i.printDemands(io, demands)
}

// findDemands asks the servers that were added whether they demand a sign-in, and marks them in the mapping.
func (i *importCmd) findDemands(ctx context.Context, file string, mapping importer.Mapping) []signInDemand {
	cfg, err := config.Load(ctx, file, config.Options{Env: os.LookupEnv, Fetch: fetchManifest})
	if err != nil {
		return nil // other commands say what is wrong with it
	}
	var added []switchboard.Server
	for _, s := range cfg.Servers {
		if s.Transport == switchboard.TransportHTTP && slices.ContainsFunc(mapping, func(m importer.Mapped) bool { return m.ID == s.ID && !m.Present }) {
			added = append(added, s)
		}
	}
	if len(added) == 0 {
		return nil
	}
	demands := findDemands(ctx, cfg, (&commonFlags{Config: file}).dataDir(), added)
	for n := range mapping {
		mapping[n].NeedsConnection = slices.ContainsFunc(demands, func(d signInDemand) bool { return d.demanded && d.server == mapping[n].ID })
	}
	return demands
}

// printDemands says how the servers that demand a sign-in are connected.
func (i *importCmd) printDemands(io streams, demands []signInDemand) error {
	file, err := filepath.Abs(filepath.Join(i.Dir, "switchboard.yaml"))
	if err != nil {
		return err
	}
	given := givenFlags(file, "")
	for _, d := range demands {
		if d.demanded {
			fmt.Fprintln(io.out, connectLine(d.server, given))
			continue
		}
		fmt.Fprintf(io.out, "%s could not be asked whether it needs a sign-in (%s); if it does: switchboard server connect %[1]s%[3]s\n", d.server, printable(d.err.Error(), 200), given)
	}
	return nil
}

// join returns the text with those servers of the client's file that it does not have yet.
func (i *importCmd) join(ctx context.Context, e *configEdit, text []byte) (c configChange, mapping importer.Mapping, err error) {
	have, err := e.present(ctx, text)
	if err != nil {
		return c, nil, err
	}
	rows, secrets, mapping, err := importer.Join(i.File, config.Options{Env: os.LookupEnv}, have)
	if err != nil {
		return c, mapping, err
	}
	c.secrets = secrets
	c.text, err = edit.AddServers(e.file, text, rows)
	return c, mapping, err
}

// printMapping says what happened to each server of a client's file, and returns how many were added.
func printMapping(io streams, mapping importer.Mapping) (added int) {
	for _, m := range mapping {
		switch {
		case m.ID == "":
			fmt.Fprintf(io.err, "%q: left out\n", m.Name)
		case m.Present:
			fmt.Fprintf(io.err, "%q: there already, as server %s\n", m.Name, m.ID)
		default:
			added++
			fmt.Fprintf(io.err, "%q: server %s\n", m.Name, m.ID)
		}
		for _, note := range m.Notes {
			fmt.Fprintf(io.err, "  %s\n", note)
		}
	}
	return added
}
