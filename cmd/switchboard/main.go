// Command switchboard is one MCP endpoint in front of many MCP servers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	_ "time/tzdata" // the time zones that policies and budgets name, on each machine

	_ "github.com/summit-switchboard/switchboard/internal/heap/early" // the collector waits until the start is over
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Exit codes.
const (
	exitOK          = 0
	exitNo          = 1 // a negative answer
	exitUsage       = 2 // usage or configuration
	exitUnreachable = 3 // no Switchboard or store answers
	exitUnknown     = 4 // a call or a change has left, and its answer was lost
)

func main() {
	ctx, stop := untilSignal(context.Background())
	code := run(ctx, os.Args[1:], newStreams(os.Stdin, os.Stdout, os.Stderr))
	stop()
	os.Exit(code)
}

// cli is the command line. Each command is a type in a file of its own, and has examples in examples.go. The groups
// and their order are those of the help.
type cli struct {
	Verbose bool `help:"Log everything, including details for finding errors." short:"v"`

	ShowVersion versionFlag `name:"version" help:"Print the version, and end."`

	Demo       demoCmd       `cmd:"" group:"desk" help:"Show what Switchboard does, with sample servers of its own. Needs nothing installed."`
	Connect    connectCmd    `cmd:"" group:"desk" help:"Put Switchboard into a client, in the place of the client's servers. Without a client: list what each would get."`
	Disconnect disconnectCmd `cmd:"" group:"desk" help:"Take Switchboard out of a client, and put the client's servers back."`
	Doctor     doctorCmd     `cmd:"" group:"desk" help:"Find what is wrong, and what to do about it: programs, files, ports, the store, each server, each client."`
	Import     importCmd     `cmd:"" group:"desk" help:"Turn a client's mcpServers JSON into a switchboard.yaml."`

	Serve    serveCmd    `cmd:"" group:"serve" help:"Serve MCP over HTTP."`
	Stdio    stdioCmd    `cmd:"" group:"serve" help:"Serve MCP on stdin and stdout, for a client that starts its servers itself."`
	Validate validateCmd `cmd:"" group:"serve" help:"Check the configuration and print all its faults."`

	Tasks    tasksCmd     `cmd:"" group:"decide" help:"List the tasks of a tenant, and what each of them needs."`
	Tools    toolsCmd     `cmd:"" group:"decide" help:"List the tools that a task gets, and which server's tool each one is."`
	Search   searchCmd    `cmd:"" group:"decide" help:"Find tools by words, among all that are configured."`
	Call     callCmd      `cmd:"" group:"decide" help:"Call one tool of a task and print its result."`
	Try      tryCmd       `cmd:"" group:"decide" help:"Call a tool of a running Switchboard as yourself, as its page does: with policies, approvals, budgets and a receipt."`
	Explain  explainCmd   `cmd:"" group:"decide" help:"Say why each tool of a task was selected, and why the others were not."`
	Resolve  resolveCmd   `cmd:"" group:"decide" help:"Say whether capabilities may be used now, what blocks them, and what helps."`
	Decided  decisionsCmd `cmd:"" name:"decisions" group:"decide" help:"List the decisions that a running Switchboard has recorded, and explain one as it was made then."`
	Annotate annotateCmd  `cmd:"" group:"decide" help:"Suggest labels for tools that have none, and accept suggestions."`

	Policy     policyCmd     `cmd:"" group:"policies" help:"Test, check, try out and compare policies."`
	Capability capabilityCmd `cmd:"" group:"policies" help:"List the named capabilities, show one, and publish its versions."`

	Status       statusCmd       `cmd:"" group:"operate" help:"Print the state of a running Switchboard and its servers."`
	Now          nowCmd          `cmd:"" group:"operate" help:"Print what needs a person at a running Switchboard, and how calls went in the last minute, hour, day and 14 days."`
	Metrics      metricsCmd      `cmd:"" group:"operate" help:"Print the metrics of a running Switchboard, as Prometheus reads them."`
	Runs         runsCmd         `cmd:"" group:"operate" help:"List the runs that a running Switchboard knows, with what they have cost their models."`
	Budget       budgetCmd       `cmd:"" group:"operate" help:"Show what calls have cost and what is left, try out a limit on recorded calls, and correct an account."`
	Memory       memoryCmd       `cmd:"" group:"operate" help:"Show how tools have done over days, what tenants lack, and which tools are alike."`
	Suggest      suggestCmd      `cmd:"" group:"operate" help:"Suggest changes for a person to apply."`
	Events       eventsCmd       `cmd:"" group:"operate" help:"Print what changes at a running Switchboard: states of servers, configurations, files, revoked keys."`
	Acquisitions acquisitionsCmd `cmd:"" group:"operate" help:"What was looked for because nothing here gave it: what was found and tried, and what people say to it."`
	Proposals    proposalsCmd    `cmd:"" group:"operate" help:"Changes of several files with claims about what they do: make them, decide about them, apply them and take them back."`
	Settings     configCmd       `cmd:"" name:"config" group:"operate" help:"Read and change the files of the configuration that a running Switchboard serves, and revert changes."`
	Ready        readyCmd        `cmd:"" group:"operate" help:"Say whether a running Switchboard is ready for clients: exit code 0 if it is."`
	Server       serverCmd       `cmd:"" group:"operate" help:"List the servers of a running Switchboard; disable, enable or restart one."`
	Logs         logsCmd         `cmd:"" group:"operate" help:"Show what Switchboard has logged, and what servers have written to stderr."`
	Key          keyCmd          `cmd:"" group:"operate" help:"Make, list, rotate and revoke API keys."`
	Page         pageCmd         `cmd:"" group:"operate" help:"Open the page of a running Switchboard in your browser, signed in."`
	Verify       verifyCmd       `cmd:"" group:"operate" help:"Exercise the tools of a server in walls, and report what they were seen to do."`
	Pins         pinsCmd         `cmd:"" group:"operate" help:"See which definitions of servers are let in, and decide about those that change."`
	Person       personCmd       `cmd:"" group:"operate" help:"Block people who sign in at an OpenID provider, and lift blocks."`
	Sessions     sessionsCmd     `cmd:"" group:"operate" help:"List who is signed in to the page, and end sessions."`
	Approve      approvalsCmd    `cmd:"" name:"approvals" group:"operate" help:"List what agents ask people for, show one request, and say yes or no."`

	Store    storeCmd    `cmd:"" group:"store" help:"Check, export and import the store."`
	Receipts receiptsCmd `cmd:"" group:"store" help:"List, show, check and export receipts."`

	Help       helpCmd       `cmd:"" group:"reference" help:"Print what an error code means and what to do, or the help of a command."`
	Docs       docsCmd       `cmd:"" group:"reference" help:"List the documents, or print one."`
	Completion completionCmd `cmd:"" group:"reference" help:"Print a script that completes commands and their values in your shell."`
	Schema     schemaCmd     `cmd:"" group:"reference" help:"Print the JSON Schema of a kind of configuration file, for editors."`
	Version    versionCmd    `cmd:"" group:"reference" help:"Print the version, the commit and its date."`

	Complete completeCmd `cmd:"" group:"reference" hidden:"" help:"Print what the last word of a command line may become. The script of completion calls this."`
	Shared   sharedCmd   `cmd:"" group:"reference" hidden:"" help:"Serve the clients on stdio that share this folder. \"stdio\" starts this itself."`
	Sample   sampleCmd   `cmd:"" group:"reference" hidden:"" help:"Run one of the sample servers that the demo uses."`
	Guard    guardCmd    `cmd:"" group:"reference" hidden:"" help:"Run a server's program, and end all its processes once it or Switchboard has ended. Switchboard starts this itself."`
}

// commonFlags are the flags of every command that makes a decision.
type commonFlags struct {
	Config    string               `help:"Read the configuration from FILE. Without it: switchboard.yaml in this folder, else the user's own, in $SWITCHBOARD_HOME or the folder of the user's settings." placeholder:"FILE" default:"${config}"`
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
	return exitCode(func() error {
		if len(args) == 0 {
			args = []string{"--help"}
		}
		k, verbose, err := parseArgs(args, io)
		if err != nil {
			return usageError{err}
		}
		k.BindTo(ctx, (*context.Context)(nil))
		log, closeLog := newLog(k.Command(), verbose, withoutSpelling(io.err))
		defer closeLog()
		return k.Run(io, log)
	}, io.err)
}

// helpExit carries the exit code of the parser after it has printed help.
type helpExit int

// errNegative is a negative answer that has already been printed.
var errNegative = errors.New("no")

// unreachableError wraps an error because of a peer that did not answer.
type unreachableError struct{ error }

func (u unreachableError) Unwrap() error { return u.error }

// unknownOutcomeError wraps the error of a call or a change that may have been made.
type unknownOutcomeError struct{ error }

func (u unknownOutcomeError) Unwrap() error { return u.error }

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
	case errors.As(err, new(unknownOutcomeError)):
		return exitUnknown
	case errors.As(err, new(unreachableError)):
		return exitUnreachable
	case errors.As(err, &refused):
		if refused.Hint != "" {
			fmt.Fprintln(stderr, refused.Hint)
		}
		fmt.Fprintf(stderr, "switchboard help %s says more\n", refused.Code)
		if refused.Code == switchboard.CodeServerUnreachable {
			return exitUnreachable
		}
		return exitNo
	default:
		return exitUsage
	}
}
