// Package rig has the words of the tests of the served path: a real Switchboard, real clients in front of it, and servers behind it that send exactly
// the bytes that a test wants.
//
// A test reads like this:
//
//	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "hello"))))
//	g := rig.Serve(t, dir)
//	s := g.Open(t, "/mcp", true)
//	if code := rig.Call(t, s, "hello", `{}`); code != "" {
//		t.Errorf("the call was refused with %s", code)
//	}
//
// These words are enough for most tests:
//
//   - LayOut writes a configuration, a txtar archive, into a folder. Fakes returns a configuration of fake servers, and FakeRow returns a row of it.
//   - Serve starts a Switchboard on the folder and stops it after the test. Command runs any other subcommand of switchboard.
//   - Gateway.Open connects a client over HTTP, of the modern or the legacy era. Stdio starts a Switchboard over stdio with its client.
//   - ListNames lists the names of a client's tools. Call calls one and returns the code of the refusal, "" for a result. Session.Ask sends any
//     request and returns the whole Message.
//   - ServeTenants serves several tenants, each with a key and a policy of its own.
//   - ServeReplicas serves three replicas over a real Redis, behind a load balancer. A Ledger counts what a server executes.
//   - Eventually waits for a state, and Gateway.Logged, Status and Metrics show its log, status and metrics.
package rig

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/scratch"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// The programs that tests start; Main sets them.
var (
	Plain       string // the switchboard
	FakeProgram string // package rig/fakes: all other programs
)

// Patience is how long one exchange may take on a busy machine.
const Patience = 2 * wait.Bound

// atOnce is how many tests run at the same time. They wait more than they compute. Tests that measure time, set the environment or load the whole
// machine do not run in parallel: they come first, one by one.
const atOnce = 6

// Main runs the tests of a package that uses the rig. It returns the exit code for TestMain.
func Main(m *testing.M) int {
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 400 // one for each call that a test makes at once
	// Folders of tests are in memory, because a disk that other programs keep busy delays tests. Other users may enter the folder, as they may /tmp.
	if memory := scratch.Dir(); memory != "" {
		defer func() { _ = os.RemoveAll(memory) }()
		if err := errors.Join(os.Chmod(memory, 0o711), os.Setenv("TMPDIR", memory)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	home, fail := os.MkdirTemp("", "home-")
	if err := errors.Join(fail, os.Setenv("SWITCHBOARD_HOME", home)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(home) }()
	var err [2]error
	Plain, err[0] = programs.Plain()
	FakeProgram, err[1] = programs.Build("fakes", "github.com/summit-switchboard/switchboard/test/rig/fakes")
	if err := errors.Join(err[:]...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := programs.Run(m)
	if _, err := os.Lstat(filepath.Join(home, "switchboard.yaml")); err == nil && code == 0 {
		fmt.Fprintln(os.Stderr, "a test wrote the user's own configuration, which a Switchboard in an empty folder serves; let that test set SWITCHBOARD_HOME")
		return 1
	}
	return code
}
