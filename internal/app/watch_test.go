package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/watch"
)

// writeConfig writes a small configuration, and returns the path and the text of its task file.
func writeConfig(t *testing.T, dir string) (task string, text []byte) {
	t.Helper()
	task = filepath.Join(dir, "tenants/default/tasks/t.yaml")
	text = []byte("task_id: t\nrequired_capabilities: [{verb: search, resource: internet, optional: true}]\n")
	for name, text := range map[string]string{
		"switchboard.yaml":             "servers: {}\ntenants: {default: {servers: []}}\n",
		"tenants/default/tenant.yaml":  "tenant: default\ndefault_task: t\n",
		"tenants/default/tasks/t.yaml": string(text),
	} {
		writeFile(t, filepath.Join(dir, name), []byte(text))
	}
	return task, text
}

func writeFile(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// startApp starts an App on the files in dir.
func startApp(t *testing.T, dir string) *App {
	t.Helper()
	a, err := New(t.Context(), Options{
		Log: slog.New(slog.DiscardHandler),
		Load: func(ctx context.Context, o config.Options) (*config.Config, error) {
			return config.Load(ctx, filepath.Join(dir, "switchboard.yaml"), o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestNames15WithoutAWatcherAChangeCountsAfterAMinuteAtMost(t *testing.T) {
	dir := t.TempDir()
	task, text := writeConfig(t, dir)
	synctest.Test(t, func(t *testing.T) {
		a := startApp(t, dir)
		ctx, stop := context.WithCancel(t.Context())
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			a.watch(ctx, nil, func() (*fsnotify.Watcher, error) { return nil, errors.New("no more of them") })
		}()
		defer func() { stop(); <-watched; a.Stop() }()
		loaded := func() time.Time { synctest.Wait(); return a.state.Load().loadedAt }
		first := loaded()
		<-time.After(10 * watch.CompareInterval)
		if !loaded().Equal(first) {
			t.Error("the files were read again although nothing had changed")
		}
		for _, change := range []func(){
			func() { writeFile(t, task, append(text, "token_budget: 5000\n"...)) },
			func() { writeFile(t, task, append(text, "token_budget: 6000\n"...)) }, // the length does not change
			func() {
				writeFile(t, filepath.Join(filepath.Dir(task), "more.yaml"), []byte("task_id: more\nrequired_capabilities: [{verb: search, resource: internet, optional: true}]\n"))
			},
			func() { // a link to a folder elsewhere
				elsewhere := filepath.Join(t.TempDir(), "other")
				writeFile(t, filepath.Join(elsewhere, "x.txt"), nil)
				_ = os.Symlink(elsewhere, filepath.Join(dir, "tenants/other"))
			},
			func() { _ = os.Remove(filepath.Join(dir, "tenants/other")) },
			func() { _ = os.RemoveAll(dir) }, // the reload is refused
			func() { writeConfig(t, dir) },
		} {
			was, fault := loaded(), a.reloading.fault.Load()
			change()
			<-time.After(watch.CompareInterval + watch.QuietPeriod)
			if loaded().Equal(was) && a.reloading.fault.Load() == fault {
				t.Fatal("the change was not found")
			}
		}
	})
}

// A file that is written all the time does not prevent others from being read.
func TestNames15AFileThatIsAlwaysWrittenDelaysAReadByTwoSecondsAtMost(t *testing.T) {
	dir := t.TempDir()
	task, text := writeConfig(t, dir)
	a := startApp(t, dir)
	defer a.Stop()
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() { defer close(watched); a.Watch(ctx, nil) }()
	defer func() { stop(); <-watched }()
	first := a.state.Load().loadedAt
	writeFile(t, task, append(text, "token_budget: 5000\n"...))
	for began := time.Now(); a.state.Load().loadedAt.Equal(first); {
		if time.Since(began) > 20*time.Second {
			t.Fatal("the change was not read while another file was being written")
		}
		writeFile(t, filepath.Join(dir, "notes.json"), []byte("{}"))
		<-time.After(watch.QuietPeriod / 4)
	}
}
