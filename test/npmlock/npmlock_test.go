package npmlock_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/npmlock"
)

// scripts is the folder with the scripts of the page.
var scripts = filepath.Join("..", "..", "internal", "admin", "page", "assets")

// npm has compared the packages with the digests of the lock.
func TestTheScriptsOfOthersOnThePageAreThoseOfTheLock(t *testing.T) {
	npmlock.NeedIn(t, scripts, "the scripts of the page")
	for own, theirs := range map[string]string{
		"htmx.min.js": "htmx.org/dist/htmx.min.js", "LICENSE-htmx": "htmx.org/LICENSE",
		"sse.min.js": "htmx-ext-sse/dist/sse.min.js", "LICENSE-sse": "htmx-ext-sse/LICENSE",
	} {
		got, err1 := os.ReadFile(filepath.Join(scripts, own))
		want, err2 := os.ReadFile(filepath.Join(scripts, "node_modules", filepath.FromSlash(theirs)))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from %s of the package", own, theirs)
		}
	}
}

// The locks must work with any registry, and be as the package files say.
func TestNoLockNamesARegistryOrAnythingUnpinned(t *testing.T) {
	locks, err := filepath.Glob("../*/package-lock.json")
	if err != nil || len(locks) < 2 {
		t.Fatalf("locks: %q, %v", locks, err)
	}
	locks = append(locks, filepath.Join(scripts, "package-lock.json"))
	for _, file := range locks {
		t.Run(file, func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var lock struct {
				LockfileVersion int
				Packages        map[string]struct {
					Version, Resolved, Integrity       string
					Dependencies, OptionalDependencies map[string]string
				}
			}
			if err := json.Unmarshal(raw, &lock); err != nil {
				t.Fatal(err)
			}
			for path, p := range lock.Packages {
				if p.Resolved != "" {
					t.Errorf("%s names where it was found: %s", path, p.Resolved)
				}
				if path != "" && !strings.HasPrefix(p.Integrity, "sha512-") {
					t.Errorf("%s has no SHA-512", path)
				}
			}
			direct := map[string]string{}
			maps.Copy(direct, lock.Packages[""].Dependencies)
			maps.Copy(direct, lock.Packages[""].OptionalDependencies)
			for name, version := range direct {
				if got := lock.Packages["node_modules/"+name].Version; got != version {
					t.Errorf("%s is asked for at %q, which must be an exact version, and locked at %q", name, version, got)
				}
			}
			if len(direct) == 0 {
				t.Error("the lock has no direct dependency")
			}
		})
	}
}
