// Package npmlock installs npm packages for tests, at the versions of the lock
// file in the test's own folder.
package npmlock

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Need ends a test if a program or the packages are missing: as a failure if SWITCHBOARD_REQUIRE=1, else skipped with one line that begins with
// what.
func Need(t testing.TB, what string, programs ...string) {
	t.Helper()
	err := missing(programs)
	if err == nil {
		err = installed()
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

// installed returns the reason why the packages of package-lock.json cannot be used. It installs them at the first run, and after a change of the
// lock; no package runs a script at installation.
var installed = sync.OnceValue(func() error {
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		return err
	}
	const stamp = "node_modules/.lock-installed"
	if done, err := os.ReadFile(stamp); err == nil && bytes.Equal(done, lock) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error").CombinedOutput()
	if err != nil {
		return fmt.Errorf("npm ci: %w: %s", err, firstLine(out))
	}
	return os.WriteFile(stamp, lock, 0o600)
})
