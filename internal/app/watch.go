package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
	defer w.Close()
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
			if e.Op != fsnotify.Chmod {
				quiet.Reset(settle)
			}
		case <-reload:
			quiet.Reset(0)
		case <-quiet.C:
			_ = a.Reload(ctx) // it has said so in the log and in Status
			a.watchFolders(w) // a folder may be new
		}
	}
}

// watchFolders adds the folders that hold the configuration's files. One that
// is gone is no fault: its parent is watched too.
func (a *App) watchFolders(w *fsnotify.Watcher) {
	for _, name := range a.state.Load().config.Watch {
		if info, err := os.Stat(name); err != nil || !info.IsDir() {
			name = filepath.Dir(name)
		}
		if err := w.Add(name); err != nil {
			a.log.Warn("a folder of the configuration cannot be watched; send SIGHUP to reload", "folder", name, "err", err)
		}
	}
}
