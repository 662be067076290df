// Package npmlock installs npm packages for tests, at the versions of the lock
// file in the test's own folder.
package npmlock

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Need ends a test if a program or the packages are missing: as a failure if SWITCHBOARD_REQUIRE=1, else skipped with one line that begins with
// what. It installs the packages at the first run, and after a change of the lock file; no package runs a script at installation.
func Need(t testing.TB, what string, programs ...string) {
	t.Helper()
	NeedIn(t, ".", what, programs...)
}

// NeedClient is Need for a test that installs packages of its own: it needs npm and node.
func NeedClient(t testing.TB, what string) {
	t.Helper()
	demand(t, what, missing(nil))
}

// NeedIn is Need for packages of the lock file in another folder. Tests of several packages may need the same folder at once.
func NeedIn(t testing.TB, dir, what string, programs ...string) {
	t.Helper()
	err := missing(programs)
	if err == nil {
		err = installOnce(dir)
	}
	demand(t, what, err)
}

// NeedRegistry is Need for a test that fetches packages such as pkg from the registry.
func NeedRegistry(t testing.TB, what, pkg string) {
	t.Helper()
	Need(t, what)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "npm", "view", pkg, "version", "--cache", t.TempDir(), "--fetch-retries=1", "--loglevel=error").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("npm view %s: %w: %s", pkg, err, firstLine(out))
	}
	demand(t, what, err)
}

// demand ends the test if err is not nil.
func demand(t testing.TB, what string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("SWITCHBOARD_REQUIRE") == "1":
		t.Fatalf("%s: required: %v", what, err)
	default:
		t.Skipf("skipped: %s (%v)", what, err)
	}
}

func firstLine(text []byte) string {
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return first
}

func missing(programs []string) error {
	for _, program := range append([]string{"npm", "node"}, programs...) {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not installed", program)
		}
	}
	return nil
}

// stampName is the file in node_modules that holds the lock file which they were installed from.
const stampName = ".lock-installed"

// npmCI installs the packages of the lock file in the folder.
func npmCI(dir string, lock []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %s", err, firstLine(out))
	}
	return os.WriteFile(filepath.Join(dir, "node_modules", stampName), lock, 0o600)
}

// folders has the outcome of each folder's installation in this process.
var folders sync.Map

func installOnce(dir string) error {
	once, _ := folders.LoadOrStore(dir, sync.OnceValue(func() error { return installAside(dir) }))
	return once.(func() error)()
}

// installAside installs the packages of the folder's lock file beside the folder's node_modules, and then renames them: another process that does
// the same at this time finishes first or later, and none sees half of them.
func installAside(dir string) error {
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	modules := filepath.Join(dir, "node_modules")
	isCurrent := func() bool {
		done, err := os.ReadFile(filepath.Join(modules, stampName))
		return err == nil && bytes.Equal(done, lock)
	}
	if isCurrent() {
		return nil
	}
	aside, err := os.MkdirTemp(dir, ".install-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(aside) //nolint:errcheck // what is left hurts nobody
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(aside, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	if err := npmCI(aside, lock); err != nil {
		return err
	}
	for range 3 {
		if isCurrent() {
			return nil
		}
		if err = os.RemoveAll(modules); err == nil {
			err = os.Rename(filepath.Join(aside, "node_modules"), modules)
		}
		if err == nil {
			return nil
		}
	}
	return err
}
