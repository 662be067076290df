// Package realdata finds and reads data that other people wrote, for tests and benchmarks: the tools of real servers, tasks, attacks. The data is not
// part of the project. Tests that need it skip with a message if it is absent.
package realdata

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// File returns the path of a file, or of a folder, of the data: below the folder that
// SWITCHBOARD_DATA names, else below shared/data beside the project.
func File(parts ...string) string {
	dir := os.Getenv("SWITCHBOARD_DATA")
	if dir == "" {
		dir = filepath.Join(root(), "..", "shared", "data")
	}
	return filepath.Join(append([]string{dir}, parts...)...)
}

// root returns the project's folder, which is the working folder or one above it.
func root() string {
	at := "."
	for range 16 {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			break
		}
		at = filepath.Join(at, "..")
	}
	return at
}

// Lines calls f with each line of the file that is not blank. It unpacks a file that ends in .gz. f must not keep the line.
func Lines(file string, f func(line []byte) error) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	var r io.Reader = in
	if strings.HasSuffix(file, ".gz") {
		if r, err = gzip.NewReader(in); err != nil {
			return err
		}
	}
	for lines := bufio.NewReaderSize(r, 1<<20); ; {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := f(line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// A Server is a server of the catalog, with its own definitions of its tools.
type Server struct {
	ID    string            `json:"id"`
	Name  string            `json:"name"` // what it calls itself, or its package
	Tools []json.RawMessage `json:"tools"`
}

// Servers reads the whole catalog, in its order.
func Servers() (all []Server, err error) {
	err = Lines(File("catalog", "servers.jsonl.gz"), func(line []byte) error {
		var s Server
		if err := json.Unmarshal(line, &s); err != nil {
			return err
		}
		all = append(all, s)
		return nil
	})
	return all, err
}

// A Label says what a program takes a tool of the catalog to do.
type Label struct {
	Server, Tool, Verb, Resource string
	Constraints                  []string
}

// Labels reads the labels of the whole catalog, in their order.
func Labels() (all []Label, err error) {
	err = Lines(File("catalog", "capabilities-machine.jsonl.gz"), func(line []byte) error {
		var l Label
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		all = append(all, l)
		return nil
	})
	return all, err
}
