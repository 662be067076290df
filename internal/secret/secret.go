// Package secret runs the commands that print secrets: the hook for a store of secrets, such as a KMS.
//
// It decides how such a command is run: without a shell, with a small safe environment, in a process group of its own, within a time, and with bounded
// output. Package config decides which commands there are, and where their secrets are used. Nothing that a command prints is in an error, on
// whichever of its outputs: a command that fails may print a secret too.
package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
)

// A Command is a program that prints a secret on its stdout.
type Command struct {
	Args     []string // the program, and its arguments
	Dir      string   // "" means ours
	Env      map[string]switchboard.Secret
	AllowEnv []string // names in Env that are otherwise refused
	Timeout  time.Duration
}

// pipeGrace is how long the output is awaited that a command has left behind at its end.
const pipeGrace = 500 * time.Millisecond

const exitOK = "exit status 0"

// Run runs the command and returns what it prints, without the line break at its end: at most limit bytes. The error names the program, and
// nothing that it printed.
func Run(ctx context.Context, c *Command, limit int) (switchboard.Secret, error) {
	text, err := run(ctx, c, limit)
	if err != nil && len(c.Args) > 0 {
		err = fmt.Errorf("the command %.100q %w", c.Args[0], err)
	}
	return switchboard.NewSecret(text), err
}

func run(ctx context.Context, c *Command, limit int) (string, error) {
	sp := process.NewSpawner(nil)
	defer sp.Close()
	server := &switchboard.Server{Command: c.Args, Dir: c.Dir, Env: c.Env, AllowEnv: c.AllowEnv}
	p, err := sp.Start(server)
	if err != nil {
		if remedy := process.StartRemedy(server); remedy != "" {
			return "", errors.New("cannot be started: " + strings.ReplaceAll(remedy, `the server's `, "its "))
		}
		return "", fmt.Errorf("cannot be started: %w", err)
	}
	_ = p.Stdin.Close() // it reads nothing
	hurry := make(chan struct{})
	close(hurry)
	defer func() {
		p.Stop(hurry)
		_, _ = p.Stdout.Close(), p.Stderr.Close()
	}()
	go func() { _, _ = io.Copy(io.Discard, p.Stderr) }() // until it is closed
	const lineBreak = len("\r\n")
	read := make(chan []byte, 1)
	go func() {
		data, _ := io.ReadAll(io.LimitReader(p.Stdout, int64(limit+lineBreak)+1))
		read <- data
	}()

	timer := time.NewTimer(c.Timeout)
	defer timer.Stop()
	var data []byte
	for ended, all := p.Ended, read; ended != nil || all != nil; {
		select {
		case data = <-all:
			if all = nil; len(data) > limit+lineBreak {
				return "", fmt.Errorf("printed more than %d bytes; a secret is shorter", limit)
			}
		case <-ended: // another process may keep its stdout open
			ended = nil
			timer.Reset(pipeGrace)
		case <-timer.C:
			if ended == nil {
				return "", errors.New("has ended, and another process that it has started keeps its output open")
			}
			return "", fmt.Errorf("has not ended within %v", c.Timeout)
		case <-ctx.Done():
			return "", fmt.Errorf("was stopped: %w", ctx.Err())
		}
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch how := p.ExitStatus(); {
	case how != exitOK:
		return "", fmt.Errorf("ended with %s; run it yourself to see what it says", how)
	case text == "":
		return "", errors.New("printed nothing")
	case len(text) > limit:
		return "", fmt.Errorf("printed more than %d bytes; a secret is shorter", limit)
	case strings.Contains(text, "\x00"):
		return "", errors.New("printed a zero byte, which no secret has")
	}
	return text, nil
}
