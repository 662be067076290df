// Package npm_test drives Switchboard with software that is not ours: real MCP
// servers from npm behind it, and in front of it the clients of the TypeScript
// SDK, of mcp-go, and of the MCP Inspector's command line. package-lock.json
// pins them; testdata/real is the configuration, which can also be served by
// hand.
package npm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/programs"
)

// patience is how long one exchange may take on a busy machine.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(programs.Run(m)) }

// switchboard returns the program that is tested.
func switchboard(t *testing.T) string {
	t.Helper()
	file, err := programs.Plain()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// real lays testdata/real out in a folder of its own, with a repository for the
// git server, and what is installed here beside it. It returns the folder of
// switchboard.yaml.
func real(t *testing.T) string {
	t.Helper()
	npmlock.Need(t, "npm servers and clients", "git")
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node_modules", "modern-server.mjs"} {
		if err := os.Symlink(filepath.Join(here, name), filepath.Join(base, name)); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(base, "testdata", "real")
	if err := os.CopyFS(dir, os.DirFS("testdata/real")); err != nil {
		t.Fatal(err)
	}
	repository(t, filepath.Join(dir, "work", "repo"))
	return dir
}

// layOut writes the files of an archive into a folder of their own, and returns that.
func layOut(t *testing.T, archive []byte) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse(archive).Files {
		file := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// repository makes a git repository of one commit, always the same.
func repository(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hello.txt"), []byte("grüß dich\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "gitconfig") // not the null device, which git config would replace
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "first"}} {
		git := exec.Command("git", args...)
		git.Dir = dir
		git.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+config, "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
			"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
	}
}
