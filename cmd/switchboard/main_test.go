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

// wakeful is for commands that are built for the race detector, which would each
// sleep a second at their end.
func wakeful(env *testscript.Env) error {
	env.Setenv("GORACE", os.Getenv("GORACE"))
	return nil
}

// Each script is a way in which people use the command line.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE") != "", Setup: wakeful})
}

func TestTheDemoTellsItsStoryWithinTenSeconds(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/demo",
		Setup:               wakeful,
		RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// within fails when less than the given time is left since the last mark.
			"mark": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Setenv("MARK", time.Now().Format(time.RFC3339Nano))
			},
			"within": func(ts *testscript.TestScript, _ bool, args []string) {
				mark, err := time.Parse(time.RFC3339Nano, ts.Getenv("MARK"))
				ts.Check(err)
				limit, err := time.ParseDuration(args[0])
				ts.Check(err)
				if took := time.Since(mark); took > 3*limit { // for the race detector, and whatever else the machine does
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
