package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long files must be quiet before they are read again: editors
// write one file in several steps, and deployments several files.
const settle = 200 * time.Millisecond

// tellEvery is how often others are told of a reload until that goes well.
const tellEvery = time.Second

// topicReloads is where a process says that it has found another configuration, or was told
// to look, so that the others read theirs.
const topicReloads = "reloads"

// Watch reloads whenever one of the configuration's files changes, reload
// receives, or another replica has reason to, until ctx is done. It watches folders,
// not files, since editors replace files by renaming.
//
// The others are told of what was asked for here, and of files that were found to say
// something else, and never of what was heard: so a reload is told once, and not passed on.
func (a *App) Watch(ctx context.Context, reload <-chan os.Signal) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the configuration: %w", err)
	}
	defer func() { _ = w.Close() }() // nothing is lost with it
	a.watchFolders(w)
	feed := a.newReloadFeed()
	defer feed.hear()()
	quiet := time.NewTimer(settle)
	quiet.Stop()
	var waiting, changed, asked bool // to read again, since files here have changed, or on demand
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			a.log.Warn("watching the configuration", "err", err)
		case e := <-w.Events:
			if e.Op != fsnotify.Chmod && a.concerns(e.Name) {
				waiting, changed = true, true
				quiet.Reset(settle)
			}
		case <-reload:
			waiting, asked = true, true
			quiet.Reset(0)
		case <-feed.heard:
			if !waiting {
				waiting = true
				quiet.Reset(settle)
			}
		case <-feed.again:
			feed.tell(ctx)
		case <-quiet.C:
			found := changed && !asked
			if asked {
				feed.tell(ctx)
			}
			waiting, changed, asked = false, false, false
			a.reload(ctx, func() {
				if found {
					feed.tell(ctx)
				}
			})
			if a.watchFolders(w) {
				waiting, changed = true, true // a folder is new, and may have changed before it was watched
				quiet.Reset(settle)
			}
		}
	}
}

// A reloadFeed is what the processes that share a store tell each other of reloads.
type reloadFeed struct {
	a     *App
	self  string
	heard chan struct{}    // another has told of one, or may have; takes one
	again <-chan time.Time // when to tell what could not be told
}

func (a *App) newReloadFeed() *reloadFeed {
	return &reloadFeed{a: a, self: rand.Text(), heard: make(chan struct{}, 1)}
}

// hear rings heard until stop is called.
func (f *reloadFeed) hear() (stop func()) {
	return f.a.store.Subscribe(topicReloads, func(from []byte) {
		if string(from) == f.self {
			return
		}
		select {
		case f.heard <- struct{}{}:
		default:
		}
	})
}

// tell has the others read their own files again.
func (f *reloadFeed) tell(ctx context.Context) {
	err := f.a.store.Publish(ctx, topicReloads, []byte(f.self))
	if err == nil {
		f.again = nil
		return
	}
	if f.again == nil {
		f.a.log.Warn("the other replicas cannot be told to read their configuration again; they will be", "err", err)
	}
	f.again = time.After(tellEvery)
}

// concerns reports whether a change of the file can change the configuration:
// it was looked at, or stands in a folder that was and is of a kind that is
// read there. (A mounted volume of a container is swapped by its "..data".)
// Others, such as our own log, must not: each reload would cause the next.
func (a *App) concerns(file string) bool {
	seen := *a.seen.Load()
	if seen[file] {
		return true
	}
	switch folder := filepath.Dir(file); {
	case filepath.Base(file) == "..data":
		return true
	case seen[folder]:
		info, err := os.Stat(file)
		return slices.Contains([]string{".yaml", ".yml", ".json", ".rego"}, filepath.Ext(file)) || err == nil && info.IsDir()
	}
	return false
}

// watchFolders adds the folders that were looked at, and those of the files, and
// reports whether one is new. One that is not there is no fault: its parent is
// watched too.
func (a *App) watchFolders(w *fsnotify.Watcher) (grown bool) {
	before := map[string]bool{}
	for _, name := range w.WatchList() {
		before[name] = true
	}
	for name := range *a.seen.Load() {
		info, err := os.Stat(name)
		if err != nil || !info.IsDir() {
			name = filepath.Dir(name)
		}
		name = filepath.Clean(name) // as the watcher lists it
		switch err := w.Add(name); {
		case err == nil:
			grown = grown || !before[name]
		case !errors.Is(err, fs.ErrNotExist):
			a.log.Warn("a folder of the configuration cannot be watched; send SIGHUP to reload", "folder", name, "err", err)
		}
	}
	return grown
}
