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
	testscript.Main(m, map[string]func(){"switchboard": main})
}

// Each script is a way in which people use the command line.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE") != ""})
}

func TestTheDemoTellsItsStoryWithinTenSeconds(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/demo",
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
				if took := time.Since(mark); took > limit {
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
