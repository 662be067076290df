package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
)

// A link in a permission could be turned to another place after the file was read.
func TestAPermissionThroughALinkIsAFault(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Skip("links cannot be made here: ", err)
	}
	text := "servers:\n  s: {transport: stdio, command: [server], sandbox: strict, permissions: {read: [real, link]}}\n"
	file := filepath.Join(dir, "switchboard.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = config.Load(t.Context(), file, config.Options{})
	if err == nil || !strings.Contains(err.Error(), `:2:88: server "s": permissions: read: "link": it leads through a link`) || strings.Contains(err.Error(), `"real":`) {
		t.Errorf("the error is %v", err)
	}
}

// The folder of --data is known to the caller alone.
func TestTheDataFolderIsNotPermitted(t *testing.T) {
	dir := t.TempDir()
	text := "servers:\n  s: {transport: stdio, command: [server], sandbox: strict, permissions: {read: [elsewhere/data/part]}}\n"
	file := filepath.Join(dir, "switchboard.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for data, refused := range map[string]bool{"": false, filepath.Join(dir, "elsewhere/data"): true, filepath.Join(dir, "elsewhere"): true, filepath.Join(dir, "else"): false} {
		_, err := config.Load(t.Context(), file, config.Options{Data: data})
		if (err != nil) != refused {
			t.Errorf("with the data folder %q: %v", data, err)
		}
	}
}
