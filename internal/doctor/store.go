package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A storeLook examines the store.
type storeLook struct{ *examination }

// Bounds of looking at a store.
const (
	maxCopied    = 64 << 20 // bytes of a store that is checked whole
	storeTimeout = 20 * time.Second
)

// storeURL returns the URL of the store, also if the configuration does not load.
func (x storeLook) storeURL() (url switchboard.Secret, relaxed bool) {
	if x.cfg != nil {
		url, relaxed = x.cfg.Store.URL, x.cfg.Store.Relaxed
	} else if given := config.StoreURL(x.Config); strings.HasPrefix(given, "file:/") || given == "memory:" {
		url = switchboard.NewSecret(given)
	}
	if url.Reveal() == "" && x.Data != "" {
		url = switchboard.NewSecret("file:" + filepath.Join(x.Data, "store.db"))
	}
	return url, relaxed
}

// checkStore looks whether the store can be opened, and whether it is whole. A file is copied for that, since opening it writes to it.
func (x storeLook) checkStore(ctx context.Context, run servingProcesses) {
	defer x.begin("the store")()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	url, relaxed := x.storeURL()
	path, isFile := strings.CutPrefix(url.Reveal(), "file:")
	switch {
	case url.Reveal() == "":
	case url.Reveal() == "memory:":
		x.add(Diagnosis{Area: Store, Subject: "memory:", State: Note, Cause: "in-memory", What: "receipts and all other data end with the process", Remedy: "take the key store: out of " + x.Config + " to keep them in a file"})
	case isFile:
		x.checkFileStore(ctx, path, run)
	default:
		x.checkRedis(ctx, url, relaxed)
	}
}

func (x storeLook) checkFileStore(ctx context.Context, path string, run servingProcesses) {
	info, err := os.Stat(path)
	if errors.Is(err, syscall.ENOTDIR) { // the data folder is a file, which checkFiles reports
		return
	}
	if errors.Is(err, fs.ErrNotExist) && !hasParts(path) {
		x.well(Store, path, "it is made when something is first served")
		return
	}
	if pid := x.storeUser(path, run); pid != 0 {
		x.well(Store, path, fmt.Sprintf("in use by Switchboard (pid %d), which checked it when it started", pid))
		return
	}
	if err = examineCopy(ctx, path); err == nil {
		x.well(Store, path, "it opens and is whole, "+sizeText(info.Size()))
		return
	}
	if errors.Is(err, store.ErrTooLarge) {
		x.add(Diagnosis{Area: Store, Subject: path, State: Note, Cause: "large", What: fmt.Sprintf("it has more than %s, and was not read whole", sizeText(maxCopied)), Remedy: "check it when Switchboard may be busy", Command: x.ours("store", "check")})
		return
	}
	if ctx.Err() != nil {
		x.add(Diagnosis{Area: Store, Subject: path, State: Note, Cause: "large", What: fmt.Sprintf("it was not read whole in %s", storeTimeout), Remedy: "check it", Command: x.ours("store", "check")})
		return
	}
	x.add(brokenStore(path, err))
}

// brokenStore is the finding for a store that does not open, or is damaged.
func brokenStore(path string, err error) Diagnosis {
	text := strings.TrimPrefix(err.Error(), store.ErrUnavailable.Error()+": ")
	text = strings.TrimPrefix(text, path+": ")
	f := Diagnosis{Area: Store, Subject: path, State: Wrong, Cause: "store-damaged", What: text}
	if what, remedy, both := strings.Cut(text, "; "); both {
		f.What, f.Remedy = what, remedy
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		f.Cause, f.What, f.Remedy, f.Command = "file-rights", "it cannot be read: "+errorText(err), "let the user of Switchboard use it", commandLine("chmod", "u+rw", path)
	case strings.Contains(text, "it is empty, and no store is"):
		f.Command = commandLine("rm", path)
	case strings.Contains(text, "it is no store, or its beginning"), strings.Contains(text, "it is damaged"), strings.Contains(text, "is not what was written"), strings.Contains(text, "of another program"):
		f.Remedy = "put it aside, and a backup or an export in its place (switchboard store import). Without one Switchboard begins anew, and receipts and approvals from before are only in the file that was put aside"
		f.Command = commandLine("mv", path, path+".damaged")
		for _, part := range []string{"-wal", "-shm", "-logs"} {
			if _, err := os.Lstat(path + part); err == nil {
				f.Command += " && " + commandLine("mv", path+part, path+".damaged"+part)
			}
		}
	}
	f.Remedy = cmp.Or(f.Remedy, "put a backup in its place; switchboard docs state says more")
	return f
}

// hasParts reports whether the WAL or the logs of a store are there.
func hasParts(path string) bool {
	wal, err := os.Stat(path + "-wal")
	if err == nil && wal.Size() > 0 {
		return true
	}
	logs, err := os.ReadDir(path + "-logs")
	return err == nil && len(logs) > 0
}

// storeUser returns the process that has the store open, or 0.
func (x storeLook) storeUser(path string, run servingProcesses) int {
	if pid := store.FileUser(path); pid != 0 {
		return pid
	}
	if x.Data != "" && path == filepath.Join(x.Data, "store.db") && len(run) > 0 {
		return run[0].PID
	}
	return 0
}

// examineCopy opens a copy of the store and checks it.
func examineCopy(ctx context.Context, path string) (err error) {
	folder, err := os.MkdirTemp("", "switchboard-doctor-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	copied, err := store.CopyFile(path, folder, maxCopied)
	if err != nil && (!errors.Is(err, fs.ErrNotExist) || !hasParts(path)) {
		return err
	}
	if err != nil { // the file is gone, and something of it is left: say what a start says
		return fmt.Errorf("its file is gone, and its newest changes or its logs are still there; put the file back, or move what is left away (%s-wal, %s-logs)", path, path)
	}
	s, err := store.OpenFile(copied, store.FileOptions{})
	if err == nil {
		err = errors.Join(s.Check(ctx), s.Close())
	}
	if err != nil {
		return &copyError{strings.ReplaceAll(err.Error(), copied, path), err}
	}
	return nil
}

// A copyError is an error about a copy, with the path of the original.
type copyError struct {
	text  string
	cause error
}

func (e *copyError) Error() string { return e.text }

func (e *copyError) Unwrap() error { return e.cause }

// checkRedis looks whether the Redis answers, and whether its settings keep what is acknowledged.
func (x storeLook) checkRedis(ctx context.Context, url switchboard.Secret, relaxed bool) {
	err := store.ExamineRedis(ctx, url.Reveal(), store.RedisOptions{Relaxed: relaxed})
	if err == nil {
		x.well(Store, "redis", "it answers, and keeps what it acknowledges")
		return
	}
	text := strings.TrimPrefix(err.Error(), store.ErrUnavailable.Error()+": ")
	f := Diagnosis{Area: Store, Subject: "redis", State: Wrong, Cause: "store-unavailable", What: text, Remedy: "start the Redis, or correct the address in store: of " + x.Config}
	if what, remedy, both := strings.Cut(text, "; "); both {
		f.What, f.Remedy = what, remedy
	}
	x.add(f)
}

// sizeText returns a size as a reader wants it.
func sizeText(bytes int64) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d bytes", bytes)
}
