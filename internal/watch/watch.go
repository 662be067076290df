// Package watch finds out when the files of a configuration have changed, and runs a reload.
//
// It decides when a reload is due: after events of a file system watcher, after a comparison of all
// files each minute, on demand, or when another replica publishes one. It does not read the
// configuration: the caller notes which files a load reads, and reload reads them again.
package watch

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
)

// QuietPeriod is how long files must stay unchanged before they are read again: editors write one
// file in several steps, and deployments write several files.
const QuietPeriod = 200 * time.Millisecond

// maxReadDelay limits how long a read is delayed: a file that is written all the time must not
// prevent the reading of the others.
const maxReadDelay = 2 * time.Second

// CompareInterval is how often the files are compared with the last reading, without the watcher.
// The watcher gets no events from network file systems, nor from a folder that is mounted or linked
// elsewhere.
const CompareInterval = time.Minute

// publishRetry is how long to wait before a reload is published again, if that failed.
const publishRetry = time.Second

// topicReloads is the topic of reload notices. A replica publishes one when it finds another
// configuration or is asked to reload, so that the others read their files.
const topicReloads = "reloads"

// Options are the dependencies of Run.
type Options struct {
	Files *Files
	Store Store
	Log   *slog.Logger

	// Reload reads the configuration again. It calls differs if the other replicas must know of the
	// result.
	Reload func(ctx context.Context, differs func())

	// NewWatcher makes a watcher; nil means fsnotify.NewWatcher.
	NewWatcher func() (*fsnotify.Watcher, error)
}

// A Store carries notices between replicas. A store.Store is one.
type Store interface {
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

// Publish makes the other replicas read their own files, without trying again if that fails: they compare their files each minute.
func Publish(ctx context.Context, s Store) {
	_ = s.Publish(ctx, topicReloads, []byte("changed by an officer"))
}

// Run reloads whenever one of the configuration's files changes, asked receives, or another
// replica publishes a reload, until ctx is done. It watches folders, not files, because editors
// replace files by renaming them. Every CompareInterval it makes a new watcher and compares the
// files with the last reading.
//
// It publishes reloads that were asked for here, and changes that it found in the files here. It
// never publishes a reload that another replica has published, so notices are not passed on.
func Run(ctx context.Context, o Options, asked <-chan os.Signal) {
	if o.NewWatcher == nil {
		o.NewWatcher = fsnotify.NewWatcher
	}
	w := &folderWatcher{files: o.Files, log: o.Log, newWatcher: o.NewWatcher}
	defer w.close()
	reloads := followReloads(o.Store, o.Log)
	defer reloads.Close()
	quiet := time.NewTimer(QuietPeriod)
	quiet.Stop()
	look := time.NewTicker(CompareInterval)
	defer look.Stop()
	var waiting, changed, demanded bool // a read is due; files here have changed; a reload was asked for
	var first time.Time                 // when the read became due
	readSoon := func() {
		if !waiting {
			waiting, first = true, time.Now()
		}
		quiet.Reset(min(QuietPeriod, maxReadDelay-time.Since(first)))
	}
	compare := func() {
		w.renew()
		if o.Files.differ() {
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
			o.Log.Warn("watching the configuration", "err", err) // events may be lost
			changed, w.stale = true, true
			readSoon()
		case e, ok := <-w.events:
			if !ok {
				w.events = nil
				continue
			}
			w.noteRename(e)
			if e.Op != fsnotify.Chmod && o.Files.concerns(e.Name) {
				changed = true
				readSoon()
			}
		case <-look.C:
			compare()
		case <-asked:
			waiting, demanded = true, true
			quiet.Reset(0)
		case <-reloads.Wakes():
			reloads.Take()
			if !waiting {
				readSoon()
			}
		case <-reloads.retry:
			reloads.publish(ctx)
		case <-quiet.C:
			found := changed && !demanded
			if demanded {
				reloads.publish(ctx)
			}
			waiting, changed, demanded = false, false, false
			o.Files.enterStartFolder()
			if w.stale {
				w.renew()
			}
			o.Reload(ctx, func() {
				if found {
					reloads.publish(ctx)
				}
			})
			if w.missedChange() {
				changed = true
				readSoon()
			}
		}
	}
}

// A reloadFeed exchanges reload notices between the replicas that share a store.
type reloadFeed struct {
	*feed.Feed[struct{}]
	store Store
	log   *slog.Logger
	self  string
	retry <-chan time.Time // when to publish again after a failure
}

// followReloads subscribes to the reloads of the other replicas.
func followReloads(s Store, log *slog.Logger) *reloadFeed {
	self := rand.Text()
	decode := func(data []byte) (key struct{}, from string, err error) { return key, string(data), nil }
	return &reloadFeed{store: s, log: log, self: self, Feed: feed.Open(s, feed.Options[struct{}]{Topic: topicReloads, Decode: decode, Self: self})}
}

// publish makes the other replicas read their own files again.
func (f *reloadFeed) publish(ctx context.Context) {
	err := f.store.Publish(ctx, topicReloads, []byte(f.self))
	if err == nil {
		f.retry = nil
		return
	}
	if f.retry == nil {
		f.log.Warn("the reload cannot be published to the other replicas; Switchboard tries again each second", "err", err)
	}
	f.retry = time.After(publishRetry)
}

// Files are the files and folders that the last load of a configuration read. Use NewFiles. They are
// safe for concurrent use.
type Files struct {
	log         *slog.Logger
	startFolder string // the working directory at the start
	read        atomic.Pointer[ReadFiles]
}

// NewFiles returns Files that were not read yet. Relative paths begin in the present working directory.
func NewFiles(log *slog.Logger) *Files {
	f := &Files{log: log}
	f.startFolder, _ = os.Getwd() // on an error, relative paths stay relative
	f.read.Store(&ReadFiles{files: f})
	return f
}

// Begin begins a load. Call note with each path before the path is read, so that a later change is
// noticed, and done at the end of the load, also if it fails.
func (f *Files) Begin() (note func(path string), done func() *ReadFiles) {
	read := &ReadFiles{files: f, seen: map[string]seenFile{}}
	return func(path string) {
		if path = f.absolutePath(path); read.seen[path] == (seenFile{}) {
			read.seen[path] = seenFile{lookAt(path), stampFile(path)}
		}
	}, func() *ReadFiles { f.read.Store(read); return read }
}

// concerns reports whether a change of the file can change the configuration: the last load
// read it, or a file below it, or the file is in a folder that was read and has a name that is read
// there. (A container swaps a mounted volume by its "..data".) Other files, such as our own log,
// must not cause a reload: each reload would cause the next.
func (f *Files) concerns(file string) bool {
	seen := f.read.Load().all()
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

// mountLink is a link in a mounted volume of a container, which the container replaces to swap the
// volume.
const mountLink = "..data"

// isConfigName reports whether a file or folder of that name can be read as a part of the
// configuration. A folder with a name that begins with a point is no part of it: our own data may
// be in one.
func isConfigName(name string, isFolder bool) bool {
	return isFolder && !strings.HasPrefix(filepath.Base(name), ".") || slices.Contains([]string{".yaml", ".yml", ".json", ".rego"}, filepath.Ext(name)) || filepath.Base(name) == mountLink
}

// A folderWatcher watches the folders of the configuration. While it cannot watch, its channels are
// nil.
type folderWatcher struct {
	files      *Files
	log        *slog.Logger
	newWatcher func() (*fsnotify.Watcher, error)
	folders    *fsnotify.Watcher
	events     chan fsnotify.Event
	errors     chan error
	failed     bool // newWatcher has failed
	stale      bool // names of watched folders may belong to other folders by now
}

// noteRename notes that a watched folder, or a folder above one, was renamed. The watcher goes on to watch the folders
// below it, but under their old names, so it would report changes of files that do not exist.
func (w *folderWatcher) noteRename(e fsnotify.Event) {
	if !e.Has(fsnotify.Rename) {
		return
	}
	for _, name := range w.folders.WatchList() {
		if name == e.Name || strings.HasPrefix(name, e.Name+string(filepath.Separator)) {
			w.stale = true
		}
	}
}

// renew makes a new watcher, because the names of the watched folders may belong to other folders
// by now.
func (w *folderWatcher) renew() {
	folders, err := w.newWatcher()
	if err != nil {
		if !w.failed {
			w.log.Warn("the files of the configuration cannot be watched; they are compared each minute, and SIGHUP reads them at once", "err", err)
		}
		w.failed = true
		return
	}
	w.close()
	w.folders, w.events, w.errors, w.failed, w.stale = folders, folders.Events, folders.Errors, false, false
	w.watchFolders()
}

func (w *folderWatcher) close() {
	if w.folders != nil {
		_ = w.folders.Close() // the error changes nothing
	}
}

// missedChange watches the folders that the last load read, and reports whether a file has changed since that load: a new
// folder may have changed before it was watched.
func (w *folderWatcher) missedChange() bool {
	return w.watchFolders() && w.files.differ()
}

// watchFolders adds the folders that the last load read, and those of its files, and reports
// whether one may be new. A folder with two names, such as a link to it, looks new each time, because the watcher knows it
// under one of them. If a folder is gone, it adds the nearest folder above it, because the gone
// folder may be made again there.
func (w *folderWatcher) watchFolders() (grown bool) {
	if w.folders == nil {
		return false
	}
	before := map[string]bool{}
	for _, name := range w.folders.WatchList() {
		before[name] = true
	}
	for name := range w.files.read.Load().all() {
		for name != filepath.Dir(name) {
			if info, err := os.Stat(name); err == nil && info.IsDir() {
				break
			}
			name = filepath.Dir(name)
		}
		err := w.folders.Add(name)
		for errors.Is(err, fs.ErrNotExist) && name != filepath.Dir(name) { // the folder has just been removed
			name = filepath.Dir(name)
			err = w.folders.Add(name)
		}
		if err != nil {
			w.log.Warn("a folder of the configuration cannot be watched; it is compared each minute, and SIGHUP reads it at once", "folder", name, "err", err)
			continue
		}
		grown = grown || !before[name]
	}
	return grown
}

// A fileStamp is a digest of the bytes of a file, of the names in a folder, or of the error.
type fileStamp [sha256.Size]byte

// maxStampedBytes limits the bytes of a file that are compared. It exceeds the size of every file
// that may be read.
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
	case !info.Mode().IsRegular(): // opening a pipe would block
	default:
		_, _ = fmt.Fprintf(sum, "file %d ", info.Size())
		if f, err := os.Open(path); err == nil {
			_, _ = io.Copy(sum, io.LimitReader(f, maxStampedBytes))
			_ = f.Close() // reading only
		}
	}
	sum.Sum(s[:0])
	return s
}

// differ reports whether the files have changed since they were last read. It reads all of them.
func (f *Files) differ() bool {
	f.enterStartFolder()
	for path, was := range f.read.Load().all() {
		if stampFile(path) != was.stamp {
			return true
		}
	}
	return false
}

// absolutePath returns the path as an absolute one. A relative path begins in the working directory
// at the start.
func (f *Files) absolutePath(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(f.startFolder, path)
}

// enterStartFolder enters the working directory of the start again if it was removed and made
// again. Otherwise relative paths would lead nowhere.
func (f *Files) enterStartFolder() {
	there, err := os.Stat(f.startFolder)
	if err != nil {
		return
	}
	if here, err := os.Stat("."); err == nil && os.SameFile(here, there) {
		return
	}
	if err := os.Chdir(f.startFolder); err != nil {
		f.log.Warn("the folder in which Switchboard was started was replaced, and the new one cannot be entered", "folder", f.startFolder, "err", err)
	}
}
