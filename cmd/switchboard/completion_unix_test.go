//go:build unix

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A shell waits for the answer while a person types.
func TestCompletionEndsThoughAFileHangs(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "switchboard.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // whoever waits for the pipe goes on
		if f, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
			_ = f.Close()
		}
	})
	var out, errs strings.Builder
	args := []string{"complete", "fish", "--", "logs", "--config", pipe, ""}
	if code := run(t.Context(), args, streams{strings.NewReader(""), io.Discard, &errs, &out}); code != exitOK || errs.Len() > 0 || out.String() != "none\n" {
		t.Errorf("exit %d, %q %q", code, out.String(), errs.String())
	}
}
