package upstream

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// numbered returns the lines from–to, in the form that the servers of these tests write.
func numbered(from, to int) (lines []string) {
	for i := from; i <= to; i++ {
		lines = append(lines, fmt.Sprint("line ", i))
	}
	return lines
}

// shell returns a server that is a shell script.
func shell(id, script string) switchboard.Server {
	s := stdioFake(id, "legacy")
	s.Command = []string{"/bin/sh", "-c", script}
	return s
}

// awaitFailure waits until the failure of the server satisfies is.
func awaitFailure(t *testing.T, f *Fleet, id switchboard.ServerID, what string, is func(f *Failure) bool) {
	t.Helper()
	wait.UntilNil(t, what, func() error {
		if why := status(t, f, id).LastFailure; why == nil || !is(why) {
			return fmt.Errorf("the status of %s says %+v", id, why)
		}
		return nil
	})
}

const fifteen = `i=1; while [ $i -le 15 ]; do echo "line $i" >&2; i=$((i+1)); done; `

func TestStatusHasTheLastTenLinesOfAServerInTrouble(t *testing.T) {
	for name, o := range map[string]Options{"alone": {}, "guarded": guardOptions()} {
		t.Run(name, func(t *testing.T) {
			o.StartDeadline = 100 * time.Millisecond
			f := openFleet(t, o, shell("ends", fifteen+"exit 3"), shell("hangs", fifteen+"exec sleep 1000"))
			awaitFailure(t, f, "ends", "one that ends while it starts", func(why *Failure) bool {
				return slices.Equal(why.Stderr, numbered(6, 15)) && strings.Contains(why.Message, "exit status 3), its last words: line 15")
			})
			awaitFailure(t, f, "hangs", "one that starts for long", func(why *Failure) bool {
				return slices.Equal(why.Stderr, numbered(6, 15)) && strings.Contains(why.Message, "has not answered yet")
			})
		})
	}
}

func TestLinesOfAnEarlierProcessAreNotReportedForTheNext(t *testing.T) {
	dir := t.TempDir()
	program := dir + "/program"
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho gone >&2\nrm "+program+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := stdioFake("one", "legacy")
	cfg.Command = []string{program}
	f := openFleet(t, Options{}, cfg)
	awaitFailure(t, f, "one", "its program is gone", func(why *Failure) bool {
		return strings.Contains(why.Message, "no such file") && why.Stderr == nil
	})
}
