package served_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// What makes a call light is set up where a process starts. These tests see it in the process that serves.

// lightBound is long: the process works for itself, with the processor that other tests leave.
const lightBound = 4 * wait.Bound

// serveAsUsual serves a server with one tool, with the collector's settings that a user has: tests run with others.
func serveAsUsual(t *testing.T) *rig.Gateway {
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "first"))))
	cmd := rig.Switchboard(t, "serve", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GOGC=")
	g := rig.ServeBy(t, dir, cmd)
	g.AwaitServers()
	return g
}

func TestAServerUnderLoadCollectsItsGarbageLessOften(t *testing.T) {
	t.Parallel()
	g := serveAsUsual(t)
	percent := func() float64 {
		_, values := g.Metrics()
		return values["go_gc_gogc_percent"]
	}
	wait.For(t, lightBound, "garbage of 100 % of the live heap may accumulate after the start, without load", func() error {
		if got := percent(); got != 100 {
			return fmt.Errorf("%v %%", got)
		}
		return nil
	})
	s := g.Open(t, "/mcp", true)
	// Large calls: also on a busy machine they leave more garbage in a second than a calm process does.
	arguments := `{"text":"` + strings.Repeat("x", 1<<20) + `"}`
	wait.For(t, lightBound, "more garbage may accumulate", func() error {
		for range 20 {
			rig.Call(t, s, "first", arguments)
		}
		if got := percent(); got <= 100 {
			return fmt.Errorf("%v %%", got)
		}
		return nil
	})
}

func TestAServerGivesTheMemoryOfItsStartBack(t *testing.T) {
	t.Parallel()
	g := serveAsUsual(t)
	wait.For(t, lightBound, "less than three quarters of its largest memory are left", func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.Cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		kib := map[string]int{}
		for line := range strings.Lines(string(text)) {
			var n int
			name, value, _ := strings.Cut(line, ":")
			if _, err := fmt.Sscan(value, &n); err == nil {
				kib[name] = n
			}
		}
		if kib["VmRSS"] >= kib["VmHWM"]*3/4 {
			return fmt.Errorf("%d of %d KiB", kib["VmRSS"], kib["VmHWM"])
		}
		return nil
	})
}

func TestReceiptsOfServedCallsAreIndexed(t *testing.T) {
	t.Parallel()
	g := serveAsUsual(t)
	s := g.Open(t, "/mcp", true)
	for range 600 { // each has an intent and an outcome; a block of the index has 1,024 receipts
		rig.Call(t, s, "first", "{}")
	}
	st, err := store.OpenFile(filepath.Join(g.Dir, ".switchboard", "store.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }() // it was only read from
	rig.Eventually(t, "a block of the index", func() string {
		span, err := st.Span(t.Context(), "receipts-index/n1")
		if err != nil {
			t.Fatal(err)
		}
		if span.Last == 0 {
			return "the index is empty"
		}
		return ""
	})
}
