// Command fakes is each program that tests of the served path start besides Switchboard. Its first argument says which:
//
//	fake ARGS…                   a server on stdio that does just what its arguments say (fakeserver.New)
//	library NAME                 a server of the official SDK, with tools, resources and prompts (fakeserver.Library)
//	workbench [fixed]            a server of the official SDK with tools to verify (fakeserver.Workbench)
//	echo NAME ERA CAPABILITIES   a server that answers each request with its method and params (fakeserver.Echo)
//	fault-program ARGS…          the process between a client and a server on stdio that fails on cue (fault.Program)
//	fault-server NAME LEDGER     the server behind it (fault.ServeStdio)
//	fault-backend TRANSPORT ADDRESS LEDGER   the same server over HTTP (fakeserver.ServeFaulty)
//	without-landlock COMMAND…    becomes another program, as on a kernel without Landlock
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/fault"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want the name of a program")
	}
	name, args := args[0], args[1:]
	if least := map[string]int{"library": 1, "echo": 3, "fault-server": 2, "fault-backend": 3, "without-landlock": 1}[name]; len(args) < least {
		return fmt.Errorf("%s has %d arguments, want %d", name, len(args), least)
	}
	switch name {
	case "fake":
		if len(args) > 0 && (args[0] == "library" || args[0] == "workbench" || args[0] == "echo") { // FAKE in a configuration has the word fake already
			return run(args)
		}
		fakeserver.New(args).ServeStdio()
	case "library":
		_ = fakeserver.Library(args[0]).Run(context.Background(), &mcp.StdioTransport{}) // it ends with its client
	case "workbench":
		_ = fakeserver.Workbench(len(args) > 0).Run(context.Background(), &mcp.StdioTransport{}) // it ends with its client
	case "echo":
		fakeserver.Echo(args[0], args[1] == "modern", args[2])
	case "fault-program":
		os.Exit(fault.Program(args))
	case "fault-server":
		return fault.ServeStdio(args[0], fault.Ledger(args[1]))
	case "fault-backend":
		return fakeserver.ServeFaulty(args)
	case "without-landlock":
		return runWithoutLandlock(args)
	default:
		return fmt.Errorf("there is no program %q", name)
	}
	return nil
}
