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

// ofNode is what Node.js writes if nobody catches an error. The trace has as many frames as it has by default.
const ofNode = `/app/dist/index.js:9
    throw new Error("BRAVE_API_KEY environment variable is required");
    ^

Error: BRAVE_API_KEY environment variable is required
    at file:///app/dist/index.js:9:11
    at ModuleJob.run (node:internal/modules/esm/module_job:325:25)
    at async ModuleLoader.import (node:internal/modules/esm/loader:606:24)
    at async asyncRunEntryPointWithESMLoader (node:internal/modules/run_main:117:5)
    at 5
    at 6
    at 7
    at 8
    at 9
    at 10

Node.js v22.12.0`

func TestTheLastWordsSayWhyAProcessHasEnded(t *testing.T) {
	for _, tt := range []struct{ name, stderr, want string }{
		{"nothing", "", ""},
		{"any program", "starting\nno configuration found", "no configuration found"},
		{"Node.js", ofNode, "Error: BRAVE_API_KEY environment variable is required"},
		{
			"Node.js, with facts about the error", "Error: Cannot find module '/tmp/none.js'\n    at Module._load (node:internal/modules/cjs/loader:1038:27) {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\nNode.js v20.20.2",
			"Error: Cannot find module '/tmp/none.js'",
		},
		{"Node.js, without an error", "something\nNode.js v20.20.2", "Node.js v20.20.2"},
		{
			"npm", "npm error code E404\nnpm error 404 Not Found - GET https://registry.example/nothing\nnpm error 404\nnpm error A complete log of this run can be found in: /home/ann/.npm/_logs/1-debug-0.log",
			"npm error 404 Not Found - GET https://registry.example/nothing",
		},
		{
			"an older npm", "npm ERR! code ENOENT\nnpm ERR! syscall open\nnpm ERR! path /app/package.json\nnpm ERR! errno -2\nnpm ERR! enoent Could not read package.json\n\nnpm ERR! A complete log of this run can be found in:\nnpm ERR!     /home/ann/.npm/_logs/1-debug-0.log",
			"npm ERR! enoent Could not read package.json",
		},
		{"npm, and nothing else", "npm error A complete log of this run can be found in: /x.log", "npm error A complete log of this run can be found in: /x.log"},
		{"Python", "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\nValueError: x", "ValueError: x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := ReadStderr(NewStderrLog(slog.New(slog.DiscardHandler), mask.New(&switchboard.Server{}), nil), strings.NewReader(tt.stderr))
			<-s.Done
			if got := LastWords(s.LastLines()); got != tt.want {
				t.Errorf("its last words are %q, want %q; its last lines are %q", got, tt.want, s.LastLines())
			}
		})
	}
}
