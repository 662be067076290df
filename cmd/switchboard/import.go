package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/importer"
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
	if !i.DryRun {
		fmt.Fprintln(io.out, wrote)
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
