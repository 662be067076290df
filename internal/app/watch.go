package app

import (
	"context"
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

// Watch reloads whenever one of the configuration's files changes, or reload
// receives, until ctx is done. It watches folders, not files, since editors
// replace files by renaming.
func (a *App) Watch(ctx context.Context, reload <-chan os.Signal) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the configuration: %w", err)
	}
	defer func() { _ = w.Close() }() // nothing is lost with it
	a.watchFolders(w)
	quiet := time.NewTimer(settle)
	quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			a.log.Warn("watching the configuration", "err", err)
		case e := <-w.Events:
			if e.Op != fsnotify.Chmod && a.concerns(e.Name) {
				quiet.Reset(settle)
			}
		case <-reload:
			quiet.Reset(0)
		case <-quiet.C:
			_ = a.Reload(ctx) // it has said so in the log and in Status
			if a.watchFolders(w) {
				quiet.Reset(settle) // a folder is new, and may have changed before it was watched
			}
		}
	}
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
