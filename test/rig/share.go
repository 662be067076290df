package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/serving"
)

// ShareFolder is LayOut for clients that share one Switchboard. After the test, when the clients have left, it ends that process, and
// reports its races and panics.
func ShareFolder(t *testing.T, archive string) (dir string) {
	t.Helper()
	dir = LayOut(t, archive)
	EndShared(t, dir)
	return dir
}

// EndShared ends the processes that clients share in the folder, after the test.
func EndShared(t *testing.T, dir string) {
	t.Helper()
	t.Cleanup(func() {
		Eventually(t, "the shared process has ended", func() string {
			if rows := ServingRows(t, dir); len(rows) > 0 {
				if p, err := os.FindProcess(rows[0].PID); err == nil {
					_ = p.Signal(syscall.SIGTERM)
				}
				return fmt.Sprintf("process %d", rows[0].PID)
			}
			if left := ProcessesOf(filepath.Join(dir, ".switchboard")); len(left) > 0 {
				return fmt.Sprintf("processes %v", left)
			}
			return ""
		})
		if log := SharedLog(dir); t.Failed() || strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic") {
			t.Errorf("the log of the shared process:\n%s", log)
		}
	})
}

// SharedLog returns what the shared processes of the folder have logged.
func SharedLog(dir string) string {
	var all strings.Builder
	for _, name := range []string{"switchboard.log", "shared.log"} { // what it logs, and what Go prints when it crashes
		text, _ := os.ReadFile(filepath.Join(dir, ".switchboard", "logs", name))
		all.Write(text)
	}
	return all.String()
}

// ServingRows returns the rows of the processes that clients of the folder can join.
func ServingRows(t *testing.T, dir string) []serving.Neighbor {
	t.Helper()
	rows, err := serving.Rows(filepath.Join(dir, ".switchboard"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(rows, func(r serving.Neighbor) bool { return strings.HasPrefix(r.Identity, "alone ") })
}

// ServingRow returns the row of the only process that serves from the folder.
func ServingRow(t *testing.T, dir string) serving.Neighbor {
	t.Helper()
	rows := ServingRows(t, dir)
	if len(rows) != 1 {
		t.Fatalf("%d processes serve from the folder", len(rows))
	}
	return rows[0]
}

// Shared starts a client over stdio that shares the servers of the folder with others. It returns after a first list.
func Shared(t *testing.T, dir string, modern bool, args ...string) *StdioSession {
	t.Helper()
	s := OpenStdio(t, dir, modern, Switchboard(t, append([]string{"stdio"}, args...)...))
	s.Ask(t, "tools/list", "")
	return s
}

// PlainShared returns the command of such a client, without the race detector.
func PlainShared(args ...string) *exec.Cmd {
	return exec.Command(Plain, append([]string{"stdio"}, args...)...)
}

// ProcessesOf returns the processes that live and have the text in an argument.
func ProcessesOf(text string) (all []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, err := os.ReadFile(file)
		var pid int
		if _, scan := fmt.Sscanf(file, "/proc/%d/cmdline", &pid); err == nil && scan == nil && strings.Contains(string(line), text) && Alive(pid) {
			all = append(all, pid)
		}
	}
	return all
}
