//go:build unix

package ownfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
)

func TestWhatOtherUsersMayReadOrWriteIsNotPrivate(t *testing.T) {
	for _, tt := range []struct {
		mode os.FileMode
		want string // the error; "" for none
	}{
		{0o600, ""},
		{0o400, ""},
		{0o700, ""},
		{0o644, "other users may read it (its mode is 0644); chmod 600 "},
		{0o640, "read"},
		{0o604, "read"},
		{0o620, "write"},
		{0o666, "write"},
		{0o602, "write"},
	} {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, tt.mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := ownfile.Check(file, file, info); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%#o: %v", tt.mode, err)
		}
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := ownfile.Check(dir, dir, info); err == nil || !strings.Contains(err.Error(), "chmod 700 "+dir) {
		t.Error(err)
	}
	if os.Getuid() == 0 { // as root we can make a file of another user
		if err := os.Chown(dir, 65532, -1); err != nil {
			t.Fatal(err)
		}
		if info, err = os.Stat(dir); err != nil {
			t.Fatal(err)
		}
		if err := ownfile.Check(dir, dir, info); err != nil {
			t.Errorf("of another user: %v", err)
		}
		if err := os.Chmod(dir, 0o757); err != nil {
			t.Fatal(err)
		}
		if info, err = os.Stat(dir); err != nil {
			t.Fatal(err)
		}
		if err := ownfile.Check(dir, dir, info); err == nil || !strings.Contains(err.Error(), "other users may write it") {
			t.Errorf("of another user, and everybody may write it: %v", err)
		}
	}
}
