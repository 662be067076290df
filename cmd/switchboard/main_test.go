package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){"switchboard": main, "write-receipts": writeReceipts, "plain-server": servePlain})
}

type tests struct{ m *testing.M }

// Run runs the tests, and removes the programs that were built for them.
func (t tests) Run() int { return programs.Run(t.m) }

// setUp gives a script a home of its own. With that of testscript, /no-home, commands would write there if root runs the tests, and
// the next script would find a configuration in its home and serve it.
func setUp(env *testscript.Env) error {
	env.Setenv("HOME", filepath.Join(env.WorkDir, ".home"))
	for _, name := range []string{"GORACE", "GOGC"} { // without GORACE, a program with the race detector sleeps a second before it exits
		if value := os.Getenv(name); value != "" {
			env.Setenv(name, value)
		}
	}
	return nil
}

// Each script shows one use of the command line.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE") != "", Setup: setUp})
}

func TestTheDemoRunsWithinTenSeconds(t *testing.T) {
	var late wait.Lateness
	t.Run("scripts", func(t *testing.T) { runDemo(t, &late) }) // scripts run in parallel, and end with this one
	late.State(t)
}

func runDemo(t *testing.T, late *wait.Lateness) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/demo",
		Setup:               setUp,
		RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// within is late if more than the given time has passed since the last mark.
			"mark": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Setenv("MARK", time.Now().Format(time.RFC3339Nano))
			},
			"within": func(ts *testscript.TestScript, _ bool, args []string) {
				mark, err := time.Parse(time.RFC3339Nano, ts.Getenv("MARK"))
				ts.Check(err)
				limit, err := time.ParseDuration(args[0])
				ts.Check(err)
				if took := time.Since(mark); took > 3*limit { // allows for a busy machine
					late.Add("it took %v", took)
				}
			},
			// readme fails if the README does not show what stands between two texts in the output. UPDATE=1 writes it there.
			"readme": func(ts *testscript.TestScript, _ bool, args []string) {
				_, rest, _ := strings.Cut(ts.ReadFile("stdout"), args[0])
				shown, _, ok := strings.Cut(rest, args[1])
				if !ok {
					ts.Fatalf("the output has nothing between %q and %q", args[0], args[1])
				}
				ts.Check(checkBlock("../../README.md", "```text\n", args[0]+strings.TrimRight(shown, "\n")+"\n"))
			},
		},
	})
}

// checkBlock compares the block that begins with from in a page, or writes it with UPDATE=1.
func checkBlock(file, from, want string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, _ := strings.Cut(string(page), from)
	shown, after, ok := strings.Cut(rest, "```\n")
	switch {
	case !ok:
		return fmt.Errorf("%s has no block %q", file, from)
	case shown == want:
		return nil
	case os.Getenv("UPDATE") == "":
		return fmt.Errorf("%s shows another output; run this with UPDATE=1. It would be\n%s", file, want)
	}
	return os.WriteFile(file, []byte(before+from+want+"```\n"+after), 0o644)
}

func TestAnUnknownCommandIsAUsageError(t *testing.T) {
	var out, errs strings.Builder
	if code := run(context.Background(), []string{"sevre"}, streams{strings.NewReader(""), &out, &errs, &out}); code != exitUsage {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}

// useOwnHome gives the test, and the programs that it starts, a home of its own, without a configuration.
func useOwnHome(t testing.TB) (home string) {
	home = t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv(homeVariable, "")
	return home
}
