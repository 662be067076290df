package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/endpoint"
	"github.com/summit-switchboard/switchboard/internal/secret"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of secrets that commands print.
const (
	maxSecrets           = 64
	maxRunning           = 8 // commands at once
	defaultSecretTimeout = 10 * time.Second
)

// A PrintedSecret is a secret that a command prints.
type PrintedSecret struct {
	Command secret.Command
	Every   time.Duration // how often a running Switchboard runs the command again; 0: only on a reload

	// Value is what the command printed. It is the zero Secret if the command was not run, because nothing refers to the secret or because files were
	// replaced.
	Value switchboard.Secret
}

// Read runs the command again.
func (s *PrintedSecret) Read(ctx context.Context) (switchboard.Secret, error) {
	return secret.Run(ctx, &s.Command, document.MaxSecretBytes)
}

// SameProgram reports whether the command of o does the same.
func (s *PrintedSecret) SameProgram(o *PrintedSecret) bool {
	a, b := s.Command, o.Command
	a.Timeout, b.Timeout = 0, 0
	return reflect.DeepEqual(a, b)
}

// errNotRun says that a secret is not known, because its command is not run in this reading. It is no fault.
var errNotRun = errors.New("its command is not run now")

// printedSecrets are the secrets that commands print, of one reading. The commands run at once, each at most once.
type printedSecrets struct {
	ctx  context.Context
	text []byte // of switchboard.yaml
	runs map[string]*secretRun
	busy sync.WaitGroup

	reading bool // the rows of secrets are being read: their own references name no such secret
}

// A secretRun is the run of one command.
type secretRun struct {
	done  chan struct{}
	value switchboard.Secret
	err   error
}

// wait waits for the commands.
func (p *printedSecrets) wait() { p.busy.Wait() }

// resolve returns the secret with the name.
func (p *printedSecrets) resolve(name string) (string, error) {
	if p.reading {
		return "", errors.New("${secret:…} is not read here, because the command of one secret must not wait for that of another; use ${env:NAME} or ${file:/path}")
	}
	r := p.runs[name]
	if r == nil {
		return "", fmt.Errorf("there is no secret %s%s; write secrets: {%s: {command: […]}} into switchboard.yaml", document.Shown(name), SuggestName(name, "secrets", slices.Sorted(maps.Keys(p.runs))), name)
	}
	<-r.done
	if r.err != nil {
		if errors.Is(r.err, errNotRun) {
			return "", r.err
		}
		return "", fmt.Errorf("secret %s: %w", name, r.err)
	}
	return r.value.Reveal(), nil
}

// A secretRow is the state of reading one secret.
type secretRow struct {
	serverRow // its command, as that of a server
	out       PrintedSecret
}

func secretKeysForDocs() *document.Keys {
	return (&secretRow{serverRow: serverRow{server: &switchboard.Server{}}}).keys()
}

// keys are the keys of a secret.
func (r *secretRow) keys() *document.Keys {
	text := document.Schema{"type": "string", "minLength": 1}
	texts := document.Schema{"type": "array", "items": document.Schema{"type": "string"}, "minItems": 1, "maxItems": endpoint.MaxArgs}
	return &document.Keys{
		Rows: []document.Row{
			{Key: "command", Type: document.Custom("a list of texts", texts, r.readCommand), Required: "write the program and its arguments as a list, such as command: [vault, kv, get, -field=token, secret/tracker]", Doc: "The program and its arguments; no shell reads them. It prints the secret on stdout, at most 64 KiB; a line break at the end does not belong to the secret. What it prints on stderr is dropped."},
			{Key: "env", Type: document.Custom("a map from variable to text", document.Schema{"type": "object", "additionalProperties": text}, r.readEnv), Late: true, Doc: "Environment variables, added to a small safe base: the program does not inherit ours. A secret is a reference: `${env:NAME}` or `${file:PATH}`."},
			{Key: "allow_env", Type: document.Texts("a list of variables", r.readAllowEnv), Doc: "Names in env that are otherwise refused, because they change which code the program runs."},
			{Key: "dir", Type: document.Custom("a path", text, r.readDir), Doc: "The working folder, relative to the folder of switchboard.yaml."},
			{Key: "every", Type: document.Duration(10*time.Second, 30*24*time.Hour, &r.out.Every), Doc: "How often a running Switchboard runs the command again; a new secret is used at once. If absent, the command is run again only on a reload."},
			{Key: "timeout", Type: document.Duration(100*time.Millisecond, time.Minute, &r.out.Command.Timeout), Doc: "The time limit of one run; 10s if absent."},
		},
		Hints: map[string]string{"args": "put the arguments into \"command\", after the program", "value": "a secret does not stand in this file; write a command that prints it", "interval": `write "every"`, "cwd": `write "dir"`},
	}
}

// A printedReader is the state of reading the secrets that commands print.
type printedReader struct{ *loader }

// read reads the secrets, starts their commands, and waits for them.
func (f *printedReader) read(v document.Value) {
	p := &f.printed
	p.runs, f.cfg.Secrets = map[string]*secretRun{}, map[string]PrintedSecret{}
	rows := v.ReadNamed(maxSecrets, true)
	limit := make(chan struct{}, maxRunning)
	p.reading = true
	defer func() { p.reading = false }()
	for _, e := range rows {
		if err := switchboard.CheckID(e.Name); err != nil {
			e.Key.Fault("%v", err)
			continue
		}
		run := &secretRun{done: make(chan struct{}), err: errNotRun} // after a fault of the row, references to it are no faults too
		p.runs[e.Name] = run
		row := &secretRow{serverRow: serverRow{loader: f.loader, server: &switchboard.Server{}}}
		row.out.Command.Timeout = defaultSecretTimeout
		var ok bool
		if row.row, ok = e.Value.WithContext("secret %q: ", e.Name).Open(row.keys()); !ok {
			close(run.done)
			continue
		}
		row.row.Line, row.row.Column = e.Key.Line, e.Key.Column
		faults := len(f.sink.Faults)
		row.row.Read()
		row.row.ReadLate()
		out, s := row.out, row.server
		out.Command.Args, out.Command.Dir, out.Command.Env, out.Command.AllowEnv = s.Command, s.Dir, s.Env, s.AllowEnv
		if len(f.sink.Faults) > faults {
			close(run.done)
			continue
		}
		f.start(e, &out, run, limit)
		f.cfg.Secrets[e.Name] = out
	}
	p.wait()
	for _, e := range rows {
		out, ok := f.cfg.Secrets[e.Name]
		run := p.runs[e.Name]
		if !ok || errors.Is(run.err, errNotRun) {
			continue
		}
		was, had := f.previous().Secrets[e.Name]
		if had = had && was.Value.Reveal() != "" && was.SameProgram(&out); had && run.err != nil {
			e.Key.Context = fmt.Sprintf("secret %q: ", e.Name)
			e.Key.Warn("%v; the secret that it printed before stays in use", run.err)
			run.value, run.err = was.Value, nil
		}
		out.Value = run.value
		f.cfg.Secrets[e.Name] = out
	}
}

// start runs the command of a secret, unless nothing refers to the secret or files are replaced.
func (f *printedReader) start(e document.NamedValue, out *PrintedSecret, run *secretRun, limit chan struct{}) {
	p := &f.printed
	was, had := f.previous().Secrets[e.Name]
	switch {
	case !bytes.Contains(p.text, []byte("${secret:"+e.Name+"}")):
		e.Key.Warn("nothing refers to the secret %s: its command is not run; write ${secret:%s} where it is needed", e.Name, e.Name)
		close(run.done)
		return
	case f.opts.Replace != nil:
		if had && was.Value.Reveal() != "" && was.SameProgram(out) {
			run.value, run.err, out.Value = was.Value, nil, was.Value
		}
		close(run.done)
		return
	}
	command := out.Command
	p.busy.Go(func() {
		limit <- struct{}{}
		defer func() { <-limit }()
		defer close(run.done)
		run.value, run.err = secret.Run(p.ctx, &command, document.MaxSecretBytes)
	})
}
