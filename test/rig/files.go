package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/wait"
	"golang.org/x/tools/txtar"
)

// ReplaceFile replaces a file atomically, so that no reader sees a part of it.
func ReplaceFile(t *testing.T, file, text string) {
	t.Helper()
	whole := filepath.Join(t.TempDir(), "whole")
	WriteFile(t, whole, text)
	if err := os.Rename(whole, file); err != nil {
		t.Fatal(err)
	}
}

// ReadFile returns the text of a file, "" if there is none.
func ReadFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

// NewKey makes a key with the command line, and returns it with its row for tenant.yaml.
func NewKey(t *testing.T, id string, args ...string) (key, rows string) {
	t.Helper()
	out, errs, code := Command(t, t.TempDir(), append([]string{"key", "new", id, "--json"}, args...)...)
	var k struct {
		Key, Hash string
		Tasks     []string
	}
	if err := json.Unmarshal([]byte(out), &k); err != nil || code != 0 {
		t.Fatalf("key new: exit %d, %v\n%s%s", code, err, out, errs)
	}
	rows = fmt.Sprintf("  - {id: %s, hash: %q", id, k.Hash)
	if len(k.Tasks) > 0 {
		rows += ", tasks: [" + strings.Join(k.Tasks, ", ") + "]"
	}
	return k.Key, rows + "}\n"
}

// LayOut writes the files of a txtar archive into a new folder. BIN stands for Plain, and FAKE for the start of a fake server's command line.
func LayOut(t *testing.T, archive string) string {
	t.Helper()
	archive = strings.NewReplacer("BIN", fmt.Sprintf("%q", Plain), "FAKE", fmt.Sprintf("%q, fake", FakeProgram)).Replace(archive)
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		WriteFile(t, filepath.Join(dir, f.Name), string(f.Data))
	}
	return dir
}

// WriteFile writes a file, and makes its folder.
func WriteFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Command runs switchboard with args in dir. It has no race detector, with which a start takes five times as long: the tests of cmd/switchboard run
// each command with it.
func Command(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return CommandAs(t, dir, "", args...)
}

// CommandAs is Command with the key in the environment, if it is not "".
func CommandAs(t *testing.T, dir, key string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, Plain, withFolder(args)...)
	if key != "" {
		cmd.Env = append(os.Environ(), "SWITCHBOARD_KEY="+key)
	}
	var out, errs strings.Builder
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if wait.Overdue(ctx, err) {
		wait.Late(t, "switchboard %q did not end; it says:\n%s%s", args, &out, &errs)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
