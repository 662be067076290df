package npm_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/npm"
	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/registry"
)

// publish starts a registry with the package greeter, which needs the package words, and makes npm use it.
func publish(t *testing.T) *registry.Registry {
	t.Helper()
	npmlock.NeedClient(t, "packages")
	r := registry.Serve(t)
	for _, v := range r.Env(t) {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "NPM_CONFIG_") {
			t.Setenv(name, value)
		}
	}
	r.Publish(t, "words", "1.0.0", map[string]string{"index.js": "module.exports = 'hello'\n"}, nil)
	r.Publish(t, "greeter", "1.0.0", map[string]string{"index.js": "#!/usr/bin/env node\nconsole.log(require('words'), process.argv[2])\n"}, map[string]string{"words": "^1.0.0"})
	return r
}

// lockOf makes the lock of the package greeter.
func lockOf(t *testing.T, version string) *packagelock.Lock {
	t.Helper()
	l, err := npm.MakeLock(t.Context(), packagelock.Spec{Name: "greeter", Version: version})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// rowOf returns the row of a server with the package.
func rowOf(l *packagelock.Lock) *switchboard.Server {
	return &switchboard.Server{ID: "greet", Transport: switchboard.TransportStdio, Command: []string{"greeter", "world"}, Package: switchboard.Package{Name: l.Spec.Name, Version: l.Spec.Version, Lock: string(l.Text)}}
}

func newStore(t *testing.T) store.Store {
	t.Helper()
	return store.NewMemory()
}

var quiet = slog.New(slog.DiscardHandler)

func runProgram(t *testing.T, s *switchboard.Server) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), s.Command[0], s.Command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestAPackageRunsAsItsLockSaysAndNothingNewerComesIn(t *testing.T) {
	r := publish(t)
	l := lockOf(t, "1.0.0")
	r.Publish(t, "words", "1.0.1", map[string]string{"index.js": "module.exports = 'newer'\n"}, nil)
	k := npm.NewKeeper(t.TempDir(), newStore(t), quiet)
	s, err := k.Prepare(t.Context(), rowOf(l))
	if err != nil {
		t.Fatal(err)
	}
	if got := runProgram(t, s); got != "hello world" {
		t.Errorf("it says %q", got)
	}
	if s.Package.Dir == "" || !strings.HasPrefix(s.Command[1], s.Package.Dir) {
		t.Errorf("the command is %q, and the folder %q", s.Command, s.Package.Dir)
	}
	next := lockOf(t, "1.0.0")
	got := packagelock.Compare(l, next)
	if len(got) != 1 || got[0].Name != "words" || got[0].Before != "1.0.0" || got[0].After != "1.0.1" || l.Digest() == next.Digest() {
		t.Errorf("%+v", got)
	}
}

func TestNoScriptRunsWhenAPackageIsInstalled(t *testing.T) {
	r := publish(t)
	sign := filepath.Join(t.TempDir(), "ran")
	r.Publish(t, "greeter", "1.1.0", map[string]string{"index.js": "console.log('hi')\n", "package.json": `{"scripts":{"install":"touch ` + sign + `","postinstall":"touch ` + sign + `"}}`}, nil)
	l := lockOf(t, "1.1.0")
	if !l.Packages[l.Home()].Scripts {
		t.Error("the lock does not say that the package wants to run a program")
	}
	if _, err := npm.NewKeeper(t.TempDir(), newStore(t), quiet).Prepare(t.Context(), rowOf(l)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(sign); err == nil {
		t.Error("its script has run")
	}
}

// What has been installed is started only as it is, and what the registry sends only as the lock says.
func TestOtherBytesAreNotStarted(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir string){
		"a byte": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "node_modules/words/index.js"), "module.exports = 'jello'\n")
		},
		"a new file":            func(t *testing.T, dir string) { write(t, filepath.Join(dir, "node_modules/words/index.json"), "1") },
		"a link out of it":      func(t *testing.T, dir string) { link(t, "/etc", filepath.Join(dir, "node_modules/other")) },
		"a file is gone":        func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "node_modules/words/package.json")) },
		"a file can be started": func(t *testing.T, dir string) { chmod(t, filepath.Join(dir, "package-lock.json")) },
	} {
		t.Run(name, func(t *testing.T) {
			publish(t)
			l := lockOf(t, "1.0.0")
			k := npm.NewKeeper(t.TempDir(), newStore(t), quiet)
			s, err := k.Prepare(t.Context(), rowOf(l))
			if err != nil {
				t.Fatal(err)
			}
			change(t, s.Package.Dir)
			if _, err := k.Prepare(t.Context(), rowOf(l)); err == nil || !errors.Is(err, npm.ErrChanged) && !strings.Contains(err.Error(), "leads out of the folder") {
				t.Errorf("%v", err)
			}
			if err := os.RemoveAll(s.Package.Dir); err != nil {
				t.Fatal(err)
			}
			if _, err := k.Prepare(t.Context(), rowOf(l)); err != nil {
				t.Errorf("after the folder was deleted: %v", err)
			}
		})
	}
	t.Run("from the registry", func(t *testing.T) {
		r := publish(t)
		l := lockOf(t, "1.0.0")
		r.ReplaceTarball(t, "words", "1.0.0", map[string]string{"package.json": `{"name":"words","version":"1.0.0"}`, "index.js": "module.exports = 'other'\n"})
		if _, err := npm.NewKeeper(t.TempDir(), newStore(t), quiet).Prepare(t.Context(), rowOf(l)); err == nil || !strings.Contains(err.Error(), "EINTEGRITY") {
			t.Errorf("%v", err)
		}
	})
}

// If the store has lost what was installed, a changed folder is found by an installation beside it.
func TestAStoreThatForgetsLetsNoOtherBytesIn(t *testing.T) {
	publish(t)
	l, dir := lockOf(t, "1.0.0"), t.TempDir()
	s, err := npm.NewKeeper(dir, newStore(t), quiet).Prepare(t.Context(), rowOf(l))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := npm.NewKeeper(dir, newStore(t), quiet).Prepare(t.Context(), rowOf(l)); err != nil {
		t.Errorf("with a new store: %v", err)
	}
	write(t, filepath.Join(s.Package.Dir, "node_modules/words/index.js"), "module.exports = 'jello'\n")
	if _, err := npm.NewKeeper(dir, newStore(t), quiet).Prepare(t.Context(), rowOf(l)); !errors.Is(err, npm.ErrChanged) {
		t.Errorf("with a new store, and another byte: %v", err)
	}
}

// away is a store that does not answer.
type away struct{ store.Store }

func (away) Value(context.Context, store.Key) (store.Value, error) {
	return store.Value{}, errors.New("it is away")
}

func TestWithoutTheStoreNothingIsStarted(t *testing.T) {
	publish(t)
	if _, err := npm.NewKeeper(t.TempDir(), away{newStore(t)}, quiet).Prepare(t.Context(), rowOf(lockOf(t, "1.0.0"))); err == nil || !strings.Contains(err.Error(), "the store does not answer") {
		t.Errorf("%v", err)
	}
}

func TestProcessesThatStartAtOnceInstallOnce(t *testing.T) {
	publish(t)
	l, dir, s := lockOf(t, "1.0.0"), t.TempDir(), newStore(t)
	keepers := []*npm.Keeper{npm.NewKeeper(dir, s, quiet), npm.NewKeeper(dir, s, quiet)} // two processes
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			if _, err := keepers[i%2].Prepare(t.Context(), rowOf(l)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if entries, err := os.ReadDir(filepath.Join(dir, "greet")); err != nil || len(entries) != 1 {
		t.Errorf("there are %d folders: %v", len(entries), err)
	}
}

func TestTheLatestVersionIsTheOneThatTheRegistryNames(t *testing.T) {
	r := publish(t)
	r.Publish(t, "greeter", "1.2.0", map[string]string{"index.js": ""}, nil)
	if v, err := npm.LatestVersion(t.Context(), "greeter"); err != nil || v != "1.2.0" {
		t.Errorf("%q, %v", v, err)
	}
	if _, err := npm.LatestVersion(t.Context(), "nobody-has-this"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, path string) {
	t.Helper()
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
}
