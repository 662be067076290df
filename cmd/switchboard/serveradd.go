package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
)

// editFlags are the flags of commands that change the servers of a configuration.
type editFlags struct {
	locationFlags
	DryRun bool          `help:"Print the differences, and change nothing."`
	Wait   time.Duration `help:"Wait at most TIME for the running Switchboard to take the change." placeholder:"TIME" default:"30s"`
}

type serverAddCmd struct {
	editFlags
	ID     switchboard.ServerID `arg:"" help:"The server's id: lower-case letters, digits and hyphens."`
	Target []string             `arg:"" name:"url-or-command" help:"The address of the server; or, after --, its program and arguments."`

	Env          []string `help:"Set a variable for the program. A value that looks like a secret goes to a file. NAME alone passes on the variable of Switchboard's own environment." short:"e" sep:"none" placeholder:"NAME=VALUE"`
	Header       []string `help:"Send a header to the address. A value that looks like a secret goes to a file." short:"H" sep:"none" placeholder:"NAME: VALUE"`
	SecretEnv    []string `help:"Set a variable to a secret, which is read from the terminal, or as a line of stdin." placeholder:"NAME"`
	SecretHeader []string `help:"Send a header with a secret, which is read in the same way." placeholder:"NAME"`
	Unchecked    bool     `help:"Add it even if its program is not found here."`
}

// A serverSetting is a variable or header of a new server.
type serverSetting struct {
	name, value string
	secret      bool // value goes to a file
}

// Run adds the server to the configuration, which it makes if there is none.
func (s *serverAddCmd) Run(ctx context.Context, io streams) error {
	settings, err := s.readSettings(io)
	if err != nil {
		return err
	}
	command, err := s.command()
	if err != nil {
		return err
	}
	e := newConfigEdit(s.Config, s.DryRun, io)
	r := s.findRunning(ctx)
	var secrets []importer.SecretFile
	err = e.apply(ctx, func(text []byte) (configChange, error) {
		var row edit.Server
		row, secrets = s.makeRow(e, command, settings)
		if len(text) == 0 {
			text = []byte(newConfigText)
		}
		next, err := edit.AddServers(e.file, text, []edit.Server{row})
		return configChange{text: next, secrets: secrets}, err
	})
	if err != nil {
		return err
	}
	if importer.HoldsSecret(command) {
		fmt.Fprintln(io.err, "an argument looks like a secret, and every user of the machine can see the arguments of a program; use --env or --secret-env instead, if the server lets you")
	}
	if s.DryRun {
		return nil
	}
	fmt.Fprintf(io.out, "%s: added server %s\n", e.file, s.ID)
	for _, f := range secrets {
		fmt.Fprintf(io.out, "wrote a secret to %s\n", e.secrets.path(f.Name))
	}
	e.noteTenants(ctx, s.ID)
	return r.tellAdded(ctx, io, e.file, s.ID, s.Wait)
}

// isURL reports whether the target is an address.
func (s *serverAddCmd) isURL() bool {
	return len(s.Target) == 1 && (strings.HasPrefix(s.Target[0], "http://") || strings.HasPrefix(s.Target[0], "https://"))
}

// command returns the program and its arguments, or nil for an address. A program that is not found is an error.
func (s *serverAddCmd) command() ([]string, error) {
	if s.isURL() {
		return nil, nil
	}
	command := append([]string{}, s.Target...)
	program := command[0]
	if strings.ContainsRune(filepath.ToSlash(program), '/') {
		// Here the path is relative to the working folder; in the file, to the folder of the file.
		full, err := filepath.Abs(program)
		if err != nil {
			return nil, err
		}
		program = full
		if folder, err := filepath.Abs(filepath.Dir(s.Config)); err == nil && filepath.Join(folder, command[0]) != full {
			command[0] = full
		}
	}
	if why := process.StartRemedy(&switchboard.Server{Command: []string{program}}); why != "" && !s.Unchecked {
		return nil, fmt.Errorf("nothing was changed, because the server could not be started: %s. To add it all the same, use --unchecked", why)
	}
	return command, nil
}

// readSettings returns the variables or headers, and reads the secrets among them.
func (s *serverAddCmd) readSettings(io streams) (out []serverSetting, err error) {
	switch {
	case s.isURL() && len(s.Env)+len(s.SecretEnv) > 0:
		return nil, usageError{errors.New("--env and --secret-env are for a program; for an address use --header and --secret-header")}
	case !s.isURL() && len(s.Header)+len(s.SecretHeader) > 0:
		return nil, usageError{errors.New("--header and --secret-header are for an address; for a program use --env and --secret-env")}
	}
	add := func(name, value string) {
		// A text with references is written as it is: package config refuses a secret in it.
		secret := !strings.Contains(value, "${") && (switchboard.CredentialName(name) || switchboard.CredentialValue(value))
		out = append(out, serverSetting{name, value, secret})
	}
	for _, e := range s.Env {
		name, value, ok := strings.Cut(e, "=")
		if !ok {
			value = "${env:" + name + "}"
		}
		add(name, value)
	}
	for _, h := range s.Header {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, usageError{fmt.Errorf("--header %q: want \"NAME: VALUE\"", name)}
		}
		add(name, strings.TrimSpace(value))
	}
	secrets := secretReader{io: io, lines: bufio.NewReader(io.in)}
	for _, name := range append(append([]string{}, s.SecretEnv...), s.SecretHeader...) {
		value, err := secrets.read(name)
		if err != nil {
			return nil, err
		}
		out = append(out, serverSetting{name, value, true})
	}
	return out, nil
}

// makeRow returns the row of the server, and its secrets.
func (s *serverAddCmd) makeRow(e *configEdit, command []string, settings []serverSetting) (row edit.Server, secrets []importer.SecretFile) {
	used := map[string]bool{}
	var pairs []edit.Setting
	for _, v := range settings {
		value := v.value
		if v.secret && value != "" {
			name := importer.SecretName(s.ID, v.name, func(name string) bool { return used[name] || e.secrets.exists(name) })
			used[name] = true
			secrets = append(secrets, importer.NewSecretFile(name, value))
			value = "${file:" + name + "}"
		}
		pairs = append(pairs, edit.Text(v.name, value))
	}
	key := "env"
	row = edit.Server{ID: s.ID}
	if s.isURL() {
		key = "headers"
		row.Settings = []edit.Setting{edit.Text("transport", "http"), edit.Text("url", s.Target[0])}
	} else {
		row.Settings = []edit.Setting{edit.Text("transport", "stdio"), edit.List("command", command...)}
	}
	if len(pairs) > 0 {
		row.Settings = append(row.Settings, edit.Map(key, pairs...))
	}
	return row, secrets
}

// noteTenants says if no tenant may use a new server.
func (e *configEdit) noteTenants(ctx context.Context, id switchboard.ServerID) {
	text, err := os.ReadFile(e.file)
	if err != nil {
		return
	}
	c, err := e.readText(ctx, text)
	if err != nil {
		return
	}
	for _, t := range c.Tenants {
		if slices.Contains(t.Servers, id) {
			return
		}
	}
	fmt.Fprintf(e.io.err, "no tenant may use it yet: add %s to the servers of a tenant\n", id)
}

// A secretReader reads secrets that a person types, or that another program writes line by line.
type secretReader struct {
	io    streams
	lines *bufio.Reader
}

// maxSecretLine limits the length of a secret that is read from stdin.
const maxSecretLine = 64 << 10

// read reads the secret for a variable or header. A terminal does not show it.
func (r *secretReader) read(name string) (string, error) {
	if f, ok := r.io.in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(r.io.err, "%s: ", name)
		secret, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(r.io.err)
		if err != nil {
			return "", err
		}
		return checkSecret(name, string(secret))
	}
	var line []byte
	for len(line) <= maxSecretLine {
		b, err := r.lines.ReadByte()
		if errors.Is(err, io.EOF) || b == '\n' {
			return checkSecret(name, strings.TrimSuffix(string(line), "\r"))
		}
		if err != nil {
			return "", err
		}
		line = append(line, b)
	}
	return "", usageError{fmt.Errorf("the secret for %s is longer than %d bytes", name, maxSecretLine)}
}

func checkSecret(name, secret string) (string, error) {
	if secret == "" {
		return "", usageError{fmt.Errorf("there is no secret for %s: type it, or give it as a line of stdin", name)}
	}
	return secret, nil
}
