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

// The exit codes.
const (
	exitOK     = 0
	exitNo     = 1 // the answer is no
	exitUsage  = 2 // usage or configuration
	exitNobody = 3 // cannot reach
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], newStreams(os.Stdin, os.Stdout, os.Stderr))
	stop()
	os.Exit(code)
}

// cli is the command line. Each command is a type in a file of its own.
type cli struct {
	Verbose bool `help:"Log everything, also what is only of use when something is wrong." short:"v"`

	Serve    serveCmd    `cmd:"" help:"Serve MCP over HTTP."`
	Stdio    stdioCmd    `cmd:"" help:"Serve MCP on stdin and stdout, for a client that starts its servers itself."`
	Demo     demoCmd     `cmd:"" help:"Show what Switchboard does, with sample servers of its own. Needs nothing installed."`
	Tasks    tasksCmd    `cmd:"" help:"List the tasks of a tenant, and what each of them needs."`
	Tools    toolsCmd    `cmd:"" help:"List the tools that a task gets, and which server's tool each one is."`
	Search   searchCmd   `cmd:"" help:"Find tools by words, among all that are configured."`
	Call     callCmd     `cmd:"" help:"Call one tool of a task and print its result."`
	Explain  explainCmd  `cmd:"" help:"Say why each tool of a task was selected, and why the others were not."`
	Status   statusCmd   `cmd:"" help:"Say how a running Switchboard and its servers are."`
	Ready    readyCmd    `cmd:"" help:"Say whether a running Switchboard is ready for clients: exit code 0 if it is."`
	Server   serverCmd   `cmd:"" help:"List the servers of a running Switchboard, take one out of service and back, restart one."`
	Validate validateCmd `cmd:"" help:"Check the configuration and say all that is wrong with it."`
	Policy   policyCmd   `cmd:"" help:"Test, check, try out and compare policies."`
	Store    storeCmd    `cmd:"" help:"Check, export and import what outlives the process."`
	Receipts receiptsCmd `cmd:"" help:"List, show, check and export the receipts of what was done."`
	Import   importCmd   `cmd:"" help:"Turn a client's mcpServers JSON into a switchboard.yaml."`
	Key      keyCmd      `cmd:"" help:"Make API keys."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
	Sample   sampleCmd   `cmd:"" hidden:"" help:"Run one of the sample servers that the demo uses."`
	Guard    guardCmd    `cmd:"" hidden:"" help:"Run a server, and end all that it has started once it or Switchboard is gone. Switchboard starts this itself."`
}

// common is what every command that decides something takes.
type common struct {
	Config    string               `help:"Read the configuration from FILE." placeholder:"FILE" default:"switchboard.yaml"`
	MCPConfig string               `name:"mcp-config" help:"Use the mcpServers JSON of a client instead: every tool of every server." placeholder:"FILE"`
	Data      string               `help:"Keep in DIR what Switchboard writes itself: its store, where the configuration names no other, and the key of receipts. Without it, .switchboard beside the configuration; with --mcp-config, nowhere." placeholder:"DIR"`
	Tenant    switchboard.TenantID `help:"The tenant that keyless callers belong to." default:"default"`
}

// output is how a command prints.
type output struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// run is main without the process around it. It returns the exit code.
func run(ctx context.Context, args []string, io streams) int {
	var c cli
	parser, err := kong.New(&c,
		kong.Name("switchboard"),
		kong.Description("One MCP endpoint in front of many MCP servers."),
		kong.UsageOnError(),
		kong.Writers(io.out, io.err),
		kong.Exit(func(code int) { panic(exit(code)) }),
	)
	if err != nil {
		fmt.Fprintln(io.err, "switchboard:", err)
		return exitUsage
	}
	return guard(func() error {
		if len(args) == 0 {
			args = []string{"--help"}
		}
		k, err := parser.Parse(args)
		if err != nil {
			return usageError{err}
		}
		level := slog.LevelWarn // a command that ends by itself says no more than it was asked
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

// exit is how the parser ends the program, after it has printed help.
type exit int

// errNo is an answer that has been printed, and is no.
var errNo = errors.New("no")

// unreachable wraps what says that nobody answered.
type unreachable struct{ error }

func (u unreachable) Unwrap() error { return u.error }

// usageError wraps what is wrong with the command line.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// guard runs f and turns how it ended into an exit code.
func guard(f func() error, stderr io.Writer) (code int) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case exit:
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
	case errors.Is(err, errNo):
		return exitNo
	case errors.As(err, &faults):
		fmt.Fprintln(stderr, err)
		fmt.Fprintf(stderr, "switchboard: %s: the configuration is refused: %s\n", switchboard.CodeConfig, count(len(faults), "fault"))
		return exitUsage
	}
	fmt.Fprintln(stderr, "switchboard:", err)
	switch {
	case errors.As(err, new(unreachable)):
		return exitNobody
	case errors.As(err, &refused):
		if refused.Code == switchboard.CodeServerUnreachable {
			return exitNobody
		}
		return exitNo
	default:
		return exitUsage
	}
}

// name is what Switchboard calls itself towards clients and servers.
const name = "switchboard"

// version is that of the module, or "devel".
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
