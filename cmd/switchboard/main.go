// Command switchboard is one MCP endpoint in front of many MCP servers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Exit codes.
const (
	exitOK          = 0
	exitNo          = 1 // a negative answer
	exitUsage       = 2 // usage or configuration
	exitUnreachable = 3 // no Switchboard or store answers
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], newStreams(os.Stdin, os.Stdout, os.Stderr))
	stop()
	os.Exit(code)
}

// cli is the command line. Each command is a type in a file of its own.
type cli struct {
	Verbose bool `help:"Log everything, including details for finding errors." short:"v"`

	Serve    serveCmd    `cmd:"" help:"Serve MCP over HTTP."`
	Stdio    stdioCmd    `cmd:"" help:"Serve MCP on stdin and stdout, for a client that starts its servers itself."`
	Demo     demoCmd     `cmd:"" help:"Show what Switchboard does, with sample servers of its own. Needs nothing installed."`
	Tasks    tasksCmd    `cmd:"" help:"List the tasks of a tenant, and what each of them needs."`
	Tools    toolsCmd    `cmd:"" help:"List the tools that a task gets, and which server's tool each one is."`
	Search   searchCmd   `cmd:"" help:"Find tools by words, among all that are configured."`
	Call     callCmd     `cmd:"" help:"Call one tool of a task and print its result."`
	Explain  explainCmd  `cmd:"" help:"Say why each tool of a task was selected, and why the others were not."`
	Status   statusCmd   `cmd:"" help:"Print the state of a running Switchboard and its servers."`
	Ready    readyCmd    `cmd:"" help:"Say whether a running Switchboard is ready for clients: exit code 0 if it is."`
	Server   serverCmd   `cmd:"" help:"List the servers of a running Switchboard; disable, enable or restart one."`
	Validate validateCmd `cmd:"" help:"Check the configuration and print all its faults."`
	Schema   schemaCmd   `cmd:"" help:"Print the JSON Schema of a kind of configuration file, for editors."`
	Policy   policyCmd   `cmd:"" help:"Test, check, try out and compare policies."`
	Store    storeCmd    `cmd:"" help:"Check, export and import the store."`
	Receipts receiptsCmd `cmd:"" help:"List, show, check and export receipts."`
	Import   importCmd   `cmd:"" help:"Turn a client's mcpServers JSON into a switchboard.yaml."`
	Key      keyCmd      `cmd:"" help:"Make API keys."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
	Sample   sampleCmd   `cmd:"" hidden:"" help:"Run one of the sample servers that the demo uses."`
	Guard    guardCmd    `cmd:"" hidden:"" help:"Run a server's program, and end all its processes once it or Switchboard has ended. Switchboard starts this itself."`
}

// commonFlags are the flags of every command that makes a decision.
type commonFlags struct {
	Config    string               `help:"Read the configuration from FILE." placeholder:"FILE" default:"switchboard.yaml"`
	MCPConfig string               `name:"mcp-config" help:"Use the mcpServers JSON of a client instead: every tool of every server." placeholder:"FILE"`
	Data      string               `help:"Write Switchboard's own data to DIR: its store, unless the configuration names another, and the key of receipts. Without it, .switchboard beside the configuration; with --mcp-config, nothing is written." placeholder:"DIR"`
	Tenant    switchboard.TenantID `help:"The tenant that keyless callers belong to." default:"default"`
}

// outputFlags choose the output format.
type outputFlags struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// run is main without the process. It returns the exit code.
func run(ctx context.Context, args []string, io streams) int {
	var c cli
	parser, err := kong.New(&c,
		kong.Name("switchboard"),
		kong.Description("One MCP endpoint in front of many MCP servers."),
		kong.UsageOnError(),
		kong.Writers(io.out, io.err),
		kong.Exit(func(code int) { panic(helpExit(code)) }),
	)
	if err != nil {
		fmt.Fprintln(io.err, "switchboard:", err)
		return exitUsage
	}
	return exitCode(func() error {
		if len(args) == 0 {
			args = []string{"--help"}
		}
		k, err := parser.Parse(args)
		if err != nil {
			return usageError{err}
		}
		level := slog.LevelWarn // a command that ends by itself prints only its answer and warnings
		switch k.Command() {
		case "serve", "stdio":
			level = slog.LevelInfo
		}
		if c.Verbose {
			level = slog.LevelDebug
		}
		k.BindTo(ctx, (*context.Context)(nil))
		return k.Run(io, slog.New(slog.NewTextHandler(io.err, &slog.HandlerOptions{Level: level})))
	}, io.err)
}

// helpExit carries the exit code of the parser after it has printed help.
type helpExit int

// errNegative is a negative answer that has already been printed.
var errNegative = errors.New("no")

// unreachableError wraps an error because of a peer that did not answer.
type unreachableError struct{ error }

func (u unreachableError) Unwrap() error { return u.error }

// usageError wraps a mistake in the command line.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// exitCode runs f and returns the exit code for its outcome.
func exitCode(f func() error, stderr io.Writer) (code int) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case helpExit:
			code = int(p)
		default:
			panic(p)
		}
	}()
	err := f()
	var faults switchboard.Faults
	var refused *switchboard.Error
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errNegative):
		return exitNo
	case errors.As(err, &faults):
		fmt.Fprintln(stderr, err)
		fmt.Fprintf(stderr, "switchboard: %s: the configuration is refused: %s\n", switchboard.CodeConfig, count(len(faults), "fault"))
		return exitUsage
	}
	fmt.Fprintln(stderr, "switchboard:", err)
	switch {
	case errors.As(err, new(unreachableError)):
		return exitUnreachable
	case errors.As(err, &refused):
		if refused.Code == switchboard.CodeServerUnreachable {
			return exitUnreachable
		}
		return exitNo
	default:
		return exitUsage
	}
}

// name is the name that Switchboard reports to clients and servers.
const name = "switchboard"

// version returns the module's version, or "devel".
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(io streams) error {
	_, err := fmt.Fprintln(io.out, name, version())
	return err
}
