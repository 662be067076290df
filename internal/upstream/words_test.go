package upstream

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// numbered returns the lines from–to, as the servers of these tests write them.
func numbered(from, to int) (lines []string) {
	for i := from; i <= to; i++ {
		lines = append(lines, fmt.Sprint("line ", i))
	}
	return lines
}

func TestTheLastWordsAreTheLastTenLines(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	synctest.Test(t, func(t *testing.T) {
		cfg := switchboard.Server{Env: map[string]switchboard.Secret{"TOKEN": switchboard.NewSecret("hunter2-hunter2")}}
		in, out := io.Pipe()
		s := readStderr(newStderrLog(slog.New(slog.DiscardHandler), newSecretMask(&cfg)), in)
		says := func(lines []string, want ...string) {
			t.Helper()
			_, _ = io.WriteString(out, strings.Join(lines, "\n")+"\n")
			synctest.Wait()
			if got := s.lastLines(); !slices.Equal(got, want) {
				t.Errorf("its last words are %q, want %q", got, want)
			}
		}
		says([]string{""}) // an empty line is no word
		says([]string{"line 1", "", "line 2"}, numbered(1, 2)...)
		says(numbered(3, 15), numbered(6, 15)...)
		says([]string{"token hunter2-hunter2\x1b[2J", strings.Repeat("y", 1000)},
			append(numbered(8, 15), `token ***\u001b[2J`, strings.Repeat("y", maxQuoted)+"…")...)
		time.Sleep(startTimeout) // for which a start may last
		if got := s.lastLines(); len(got) != maxLastLines {
			t.Errorf("after a long start its last words are %q", got)
		}
		time.Sleep(2 * time.Minute)
		if got := s.lastLines(); got != nil {
			t.Errorf("words of long ago are taken for its last: %q", got)
		}
		_ = out.Close()
		<-s.done
	})
}

// shell is a server that is a shell script.
func shell(id, script string) switchboard.Server {
	s := child(id, "legacy")
	s.Command = []string{"/bin/sh", "-c", script}
	return s
}

// fails waits until the server is in trouble for a reason that satisfies is.
func fails(t *testing.T, f *Fleet, id switchboard.ServerID, what string, is func(f *Failure) bool) {
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
	for name, o := range map[string]Options{"alone": {}, "guarded": guards()} {
		t.Run(name, func(t *testing.T) {
			o.StartDeadline = 100 * time.Millisecond
			f := open(t, o, shell("ends", fifteen+"exit 3"), shell("hangs", fifteen+"exec sleep 1000"))
			fails(t, f, "ends", "one that ends while it starts", func(why *Failure) bool {
				return slices.Equal(why.Stderr, numbered(6, 15)) && strings.Contains(why.Message, "exit status 3), its last words: line 15")
			})
			fails(t, f, "hangs", "one that starts for long", func(why *Failure) bool {
				return slices.Equal(why.Stderr, numbered(6, 15)) && strings.Contains(why.Message, "has not answered yet")
			})
		})
	}
}

func TestWordsOfAnEarlierProcessAreNotTakenForThoseOfTheNext(t *testing.T) {
	dir := t.TempDir()
	program := dir + "/program"
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho gone >&2\nrm "+program+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := child("one", "legacy")
	cfg.Command = []string{program}
	f := open(t, Options{}, cfg)
	fails(t, f, "one", "its program is gone", func(why *Failure) bool {
		return strings.Contains(why.Message, "no such file") && why.Stderr == nil
	})
}
