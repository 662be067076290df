package app

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/summit-switchboard/switchboard/internal/config"
)

// quietPeriod is how long files must be quiet before they are read again: editors
// write one file in several steps, and deployments several files.
const quietPeriod = 200 * time.Millisecond

// maxReadDelay is how long a read is put off at most: a file that is written all the time must not keep the
// others from being read.
const maxReadDelay = 2 * time.Second

// compareInterval is the interval at which the files are compared with what was read, without the watcher.
// The watcher hears nothing of network file systems, nor of a folder that is mounted or linked elsewhere.
const compareInterval = time.Minute

// publishRetry is how often others are told of a reload until that goes well.
const publishRetry = time.Second

// topicReloads is where a process says that it has found another configuration, or was told
// to look, so that the others read theirs.
const topicReloads = "reloads"

// Watch reloads whenever one of the configuration's files changes, reload
// receives, or another replica has reason to, until ctx is done. It watches folders,
// not files, since editors replace files by renaming. Every lookEvery it begins to watch anew,
// and compares the files with what was read.
//
// The others are told of what was asked for here, and of files that were found to say
// something else, and never of what was heard: so a reload is told once, and not passed on.
func (a *App) Watch(ctx context.Context, reload <-chan os.Signal) {
	a.watch(ctx, reload, fsnotify.NewWatcher)
}

func (a *App) watch(ctx context.Context, reload <-chan os.Signal, newWatcher func() (*fsnotify.Watcher, error)) {
	w := &folderWatcher{a: a, newWatcher: newWatcher}
	defer w.close()
	feed := a.newReloadFeed()
	defer feed.subscribe()()
	quiet := time.NewTimer(quietPeriod)
	quiet.Stop()
	look := time.NewTicker(compareInterval)
	defer look.Stop()
	var waiting, changed, asked bool // to read again, since files here have changed, or on demand
	var first time.Time              // when waiting began
	readSoon := func() {
		if !waiting {
			waiting, first = true, time.Now()
		}
		quiet.Reset(min(quietPeriod, maxReadDelay-time.Since(first)))
	}
	compare := func() {
		w.renew()
		if a.filesDiffer() {
			changed = true
			readSoon()
		}
	}
	compare()
	for {
		select {
		case <-ctx.Done():
			return
		case err, ok := <-w.errors:
			if !ok {
				w.errors = nil
				continue
			}
			a.log.Warn("watching the configuration", "err", err) // it may have missed something
			changed = true
			readSoon()
		case e, ok := <-w.events:
			if !ok {
				w.events = nil
				continue
			}
			if e.Op != fsnotify.Chmod && a.concernsConfig(e.Name) {
				changed = true
				readSoon()
			}
		case <-look.C:
			compare()
		case <-reload:
			waiting, asked = true, true
			quiet.Reset(0)
		case <-feed.notices:
			if !waiting {
				readSoon()
			}
		case <-feed.retry:
			feed.publish(ctx)
		case <-quiet.C:
			found := changed && !asked
			if asked {
				feed.publish(ctx)
			}
			waiting, changed, asked = false, false, false
			a.enterStartFolder()
			a.reload(ctx, func() {
				if found {
					feed.publish(ctx)
				}
			})
			if w.watchFolders() {
				changed = true // a folder is new, and may have changed before it was watched
				readSoon()
			}
		}
	}
}

// A reloadFeed is what the processes that share a store tell each other of reloads.
type reloadFeed struct {
	a       *App
	self    string
	notices chan struct{}    // another has told of one, or may have; takes one
	retry   <-chan time.Time // when to tell what could not be told
}

func (a *App) newReloadFeed() *reloadFeed {
	return &reloadFeed{a: a, self: rand.Text(), notices: make(chan struct{}, 1)}
}

// subscribe rings heard until stop is called.
func (f *reloadFeed) subscribe() (stop func()) {
	return f.a.store.Subscribe(topicReloads, func(from []byte) {
		if string(from) == f.self {
			return
		}
		select {
		case f.notices <- struct{}{}:
		default:
		}
	})
}

// publish has the others read their own files again.
func (f *reloadFeed) publish(ctx context.Context) {
	err := f.a.store.Publish(ctx, topicReloads, []byte(f.self))
	if err == nil {
		f.retry = nil
		return
	}
	if f.retry == nil {
		f.a.log.Warn("the other replicas cannot be told to read their configuration again; they will be", "err", err)
	}
	f.retry = time.After(publishRetry)
}

// concernsConfig reports whether a change of the file can change the configuration:
// it was looked at, or something in it was, or it stands in a folder that was and is of a
// kind that is read there. (A mounted volume of a container is swapped by its "..data".)
// Others, such as our own log, must not: each reload would cause the next.
func (a *App) concernsConfig(file string) bool {
	seen := *a.loadedFiles.Load()
	if _, ok := seen[file]; ok {
		return true
	}
	if _, ok := seen[filepath.Dir(file)]; ok {
		info, err := os.Stat(file)
		return isConfigName(file, err == nil && info.IsDir())
	}
	for name := range seen {
		for ; len(name) > len(file); name = filepath.Dir(name) {
		}
		if name == file {
			return true
		}
	}
	return filepath.Base(file) == mountLink
}

// mountLink is a link in a mountLink volume of a container. The container swaps the volume by it.
const mountLink = "..data"

// isConfigName reports whether what is called so can be read where a folder is. A folder whose name begins with a point is
// none of the configuration: our own data may be in one.
func isConfigName(name string, isFolder bool) bool {
	return isFolder && !strings.HasPrefix(filepath.Base(name), ".") || slices.Contains([]string{".yaml", ".yml", ".json", ".rego"}, filepath.Ext(name)) || filepath.Base(name) == mountLink
}

// A folderWatcher hears of changes in the folders of the configuration. While it cannot watch, its
// channels are nil.
type folderWatcher struct {
	a          *App
	newWatcher func() (*fsnotify.Watcher, error)
	folders    *fsnotify.Watcher
	events     chan fsnotify.Event
	errors     chan error
	failed     bool // begin has
}

// renew watches anew: what was watched may not be the folders of these names any more.
func (w *folderWatcher) renew() {
	folders, err := w.newWatcher()
	if err != nil {
		if !w.failed {
			w.a.log.Warn("the files of the configuration cannot be watched; they are compared each minute, and SIGHUP reads them at once", "err", err)
		}
		w.failed = true
		return
	}
	w.close()
	w.folders, w.events, w.errors, w.failed = folders, folders.Events, folders.Errors, false
	w.watchFolders()
}

func (w *folderWatcher) close() {
	if w.folders != nil {
		_ = w.folders.Close() // nothing is lost with it
	}
}

// watchFolders adds the folders that the last load looked at, and those of the files, and reports
// whether one is new. If a folder is gone, follow adds the nearest folder above it: there the
// gone folder may be made again.
func (w *folderWatcher) watchFolders() (grown bool) {
	if w.folders == nil {
		return false
	}
	before := map[string]bool{}
	for _, name := range w.folders.WatchList() {
		before[name] = true
	}
	for name := range *w.a.loadedFiles.Load() {
		for name != filepath.Dir(name) {
			if info, err := os.Stat(name); err == nil && info.IsDir() {
				break
			}
			name = filepath.Dir(name)
		}
		switch err := w.folders.Add(name); {
		case err == nil:
			grown = grown || !before[name]
		case errors.Is(err, fs.ErrNotExist): // it is gone this moment
			grown = true
		default:
			w.a.log.Warn("a folder of the configuration cannot be watched; it is compared each minute, and SIGHUP reads it at once", "folder", name, "err", err)
		}
	}
	return grown
}

// A stamp tells apart what was found at a path: the bytes of a file, the names in a folder, or
// nothing.
type fileStamp [sha256.Size]byte

// maxStampedBytes is how many bytes of a file are compared: more than may be in one that is read.
const maxStampedBytes = 2 * config.MaxManifestBytes

func stampFile(path string) (s fileStamp) {
	sum := sha256.New()
	info, err := os.Stat(path)
	switch {
	case err != nil:
		_, _ = fmt.Fprintf(sum, "error %t %t", errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission))
	case info.IsDir():
		entries, _ := os.ReadDir(path) // sorted
		for _, e := range entries {
			isFolder := e.IsDir()
			if e.Type()&fs.ModeSymlink != 0 {
				info, err := os.Stat(filepath.Join(path, e.Name()))
				isFolder = err == nil && info.IsDir()
			}
			if isConfigName(e.Name(), isFolder) {
				_, _ = fmt.Fprintf(sum, "%q %t ", e.Name(), isFolder)
			}
		}
	case !info.Mode().IsRegular(): // to open a pipe is to wait
	default:
		_, _ = fmt.Fprintf(sum, "file %d ", info.Size())
		if f, err := os.Open(path); err == nil {
			_, _ = io.Copy(sum, io.LimitReader(f, maxStampedBytes))
			_ = f.Close() // it was only read from
		}
	}
	sum.Sum(s[:0])
	return s
}

// filesDiffer reports whether the files are not as they were when they were last read.
func (a *App) filesDiffer() bool {
	a.enterStartFolder()
	for path, was := range *a.loadedFiles.Load() {
		if stampFile(path) != was {
			return true
		}
	}
	return false
}

// absolutePath returns the path as an absolutePath one. A relative path begins in the folder in which we were started.
func (a *App) absolutePath(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(a.startFolder, path)
}

// enterStartFolder enters the folder in which we were started, if that was removed and made again.
// Otherwise relative paths lead nowhere.
func (a *App) enterStartFolder() {
	there, err := os.Stat(a.startFolder)
	if err != nil {
		return
	}
	if here, err := os.Stat("."); err == nil && os.SameFile(here, there) {
		return
	}
	if err := os.Chdir(a.startFolder); err != nil {
		a.log.Warn("the folder in which Switchboard was started was made anew, and cannot be entered", "folder", a.startFolder, "err", err)
	}
}
