package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/importer"
)

type importCmd struct {
	outputFlags
	File   string `arg:"" help:"The file in which a client keeps its MCP servers: mcpServers, servers or context_servers."`
	Dir    string `help:"Write into DIR." default:"." placeholder:"DIR"`
	DryRun bool   `help:"Print the result, and write no file."`
}

// Run writes switchboard.yaml and the secrets found in the client's file. It overwrites no file.
func (i *importCmd) Run(io streams) error {
	text, secrets, mapping, err := importer.Convert(i.File, config.Options{Env: os.LookupEnv})
	if err != nil {
		return err
	}
	if i.DryRun {
		if _, err := io.out.Write(text); err != nil {
			return err
		}
	} else if err := i.writeFiles(text, secrets); err != nil {
		return err
	}
	if i.JSON {
		return json.NewEncoder(io.err).Encode(mapping)
	}
	for _, m := range mapping {
		if m.ID == "" {
			fmt.Fprintf(io.err, "%q: left out\n", m.Name)
		} else {
			fmt.Fprintf(io.err, "%q: server %s\n", m.Name, m.ID)
		}
		for _, note := range m.Notes {
			fmt.Fprintf(io.err, "  %s\n", note)
		}
	}
	if !i.DryRun {
		wrote := filepath.Join(i.Dir, "switchboard.yaml")
		if len(secrets) > 0 {
			wrote += " and " + count(len(secrets), "secret")
		}
		fmt.Fprintln(io.out, "wrote", wrote)
	}
	return nil
}

// writeFiles writes the secrets first. Once switchboard.yaml exists, the files that it names exist
// too.
func (i *importCmd) writeFiles(text []byte, secrets []importer.SecretFile) error {
	target := filepath.Join(i.Dir, "switchboard.yaml")
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already; name another folder with --dir, or see what it would be with --dry-run", target)
	}
	if err := os.MkdirAll(i.Dir, 0o755); err != nil {
		return err
	}
	for _, s := range secrets {
		file := filepath.Join(i.Dir, filepath.FromSlash(s.Name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := createFile(file, []byte(s.Content.Reveal()), importer.SecretMode); err != nil {
			return err
		}
	}
	return createFile(target, text, 0o600)
}

// createFile writes a new file. It is an error if the file exists.
func createFile(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
