package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){"switchboard": main, "write-receipts": writeReceipts})
}

// setRaceOptions passes GORACE on: without it, each command built with the race detector sleeps a second
// before it exits.
func setRaceOptions(env *testscript.Env) error {
	env.Setenv("GORACE", os.Getenv("GORACE"))
	return nil
}

// Each script shows one use of the command line.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE") != "", Setup: setRaceOptions})
}

func TestTheDemoRunsWithinTenSeconds(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/demo",
		Setup:               setRaceOptions,
		RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// within fails if more than the given time has passed since the last mark.
			"mark": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Setenv("MARK", time.Now().Format(time.RFC3339Nano))
			},
			"within": func(ts *testscript.TestScript, _ bool, args []string) {
				mark, err := time.Parse(time.RFC3339Nano, ts.Getenv("MARK"))
				ts.Check(err)
				limit, err := time.ParseDuration(args[0])
				ts.Check(err)
				if took := time.Since(mark); took > 3*limit { // allows for the race detector and a busy machine
					ts.Fatalf("it took %v", took)
				}
			},
		},
	})
}

func TestAnUnknownCommandIsAUsageError(t *testing.T) {
	var out, errs strings.Builder
	if code := run(context.Background(), []string{"sevre"}, streams{strings.NewReader(""), &out, &errs, &out}); code != exitUsage {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}
