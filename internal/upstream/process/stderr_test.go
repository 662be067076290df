package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/test/law"
)

func TestAFloodOfStderrIsSampledAndTheRestCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		v := NewStderrLog(slog.New(slog.NewJSONHandler(&log, nil)), &mask.Mask{}, nil)
		in, out := io.Pipe()
		s := ReadStderr(v, in)
		const lines, minutes = 60_000, 10
		for i := range lines {
			_, _ = fmt.Fprintln(out, "line", i)
			time.Sleep(minutes * time.Minute / lines)
		}
		_ = out.Close()
		<-s.Done
		again, ended := io.Pipe() // another process of the same server
		s = ReadStderr(v, again)
		for range lines {
			_, _ = fmt.Fprintln(ended, "line")
		}
		_ = ended.Close()
		<-s.Done

		shown, leftOut := 0, 0
		for line := range bytes.Lines(log.Bytes()) {
			var said struct {
				Stderr string `json:"stderr"`
				Before int    `json:"left_out_before"`
				Last   int    `json:"lines"`
			}
			if err := json.Unmarshal(line, &said); err != nil {
				t.Fatal(err)
			}
			if said.Stderr != "" {
				shown++
			}
			leftOut += said.Before + said.Last
		}
		if most := stderrBurst + minutes*60 + 1; shown < most-2 || shown > most+2 {
			t.Errorf("%d lines were logged in %d minutes, want %d", shown, minutes, most)
		}
		if shown+leftOut != 2*lines {
			t.Errorf("%d lines were logged and %d counted, of %d", shown, leftOut, 2*lines)
		}
	})
}

func TestOfAFloodSomeLinesAreKeptAndThoseAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, leftOut, last := 0, 0, ""
		v := NewStderrLog(slog.New(slog.DiscardHandler), &mask.Mask{}, func(line string, before int) {
			kept++
			leftOut += before
			last = line
		})
		const lines, processes = 10_000, 2
		for range processes {
			in, out := io.Pipe()
			s := ReadStderr(v, in)
			for i := range lines {
				_, _ = fmt.Fprintln(out, "line", i)
			}
			_ = out.Close()
			<-s.Done
			if want := fmt.Sprint("line ", lines-1); last != want {
				t.Errorf("the last kept line is %q, not %q", last, want)
			}
		}
		if most := keptBurst + processes*maxLastLines + keptLines; kept < keptBurst || kept > most || kept+leftOut != processes*lines {
			t.Errorf("%d lines were kept and %d counted, of %d", kept, leftOut, processes*lines)
		}
	})
}

func TestTheLastTenLinesAreKept(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	synctest.Test(t, func(t *testing.T) {
		cfg := switchboard.Server{Env: map[string]switchboard.Secret{"TOKEN": switchboard.NewSecret("hunter2-hunter2")}}
		in, out := io.Pipe()
		s := ReadStderr(NewStderrLog(slog.New(slog.DiscardHandler), mask.New(&cfg), nil), in)
		says := func(lines []string, want ...string) {
			t.Helper()
			_, _ = io.WriteString(out, strings.Join(lines, "\n")+"\n")
			synctest.Wait()
			if got := s.LastLines(); !slices.Equal(got, want) {
				t.Errorf("its last lines are %q, want %q", got, want)
			}
		}
		says([]string{""}) // an empty line does not count
		says([]string{"line 1", "", "line 2"}, numbered(1, 2)...)
		says(numbered(3, 15), numbered(6, 15)...)
		says([]string{"token hunter2-hunter2\x1b[2J", strings.Repeat("y", 1000)},
			append(numbered(8, 15), `token ***\u001b[2J`, strings.Repeat("y", mask.MaxQuoted)+"…")...)
		time.Sleep(longestStart)
		if got := s.LastLines(); len(got) != maxLastLines {
			t.Errorf("after a long start its last lines are %q", got)
		}
		time.Sleep(2 * time.Minute)
		if got := s.LastLines(); got != nil {
			t.Errorf("old lines are reported as its last lines: %q", got)
		}
		_, _ = io.WriteString(out, "late\n")
		time.Sleep(lastLinesFresh)
		if got := s.LastLines(); len(got) != maxLastLines || got[maxLastLines-1] != "late" {
			t.Errorf("its last lines are %q", got)
		}
		time.Sleep(time.Second)
		if got := s.LastLines(); got != nil {
			t.Errorf("long after its start, old lines are reported as its last lines: %q", got)
		}
		_ = out.Close()
		<-s.Done
	})
}

// numbered returns the lines from–to, in the form that the test writes.
func numbered(from, to int) (lines []string) {
	for i := from; i <= to; i++ {
		lines = append(lines, fmt.Sprint("line ", i))
	}
	return lines
}
