// Package rewrite changes one small file that other programs may change at the same time, such as a configuration.
//
// File computes the new content from the old one and puts it in place whole: a reader sees the old file or the new one,
// also after a kill at any instant. Processes that use File for the same file take turns. If another program has changed
// the file meanwhile, File computes the change anew. One gap remains: a program without our lock can change the file between
// the last comparison and the exchange, and then its change is lost.
//
// What the content means, and whether the change is a good one, is for the caller.
package rewrite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
)

// MaxBytes limits the size of a file.
const MaxBytes = 64 << 20

// maxAttempts limits how often a change is computed for a file that keeps changing.
const maxAttempts = 20

// File replaces the content of the file name by the result of change.
//
// change gets the present content, or nil if there is no such file. It may be called several times, and it must not call
// File for a file in the same folder. If it returns an error or the present content, File writes nothing. A returned nil is an error
// unless the file is absent.
//
// A symbolic link stays, and the file that it leads to is changed. The file keeps its mode and owner; a new file gets the
// mode perm. A file that its owner may not write is refused. File waits for other processes until ctx is done.
func File(ctx context.Context, name string, perm fs.FileMode, change func(old []byte) ([]byte, error)) error {
	target, err := followLinks(name)
	if err != nil {
		return err
	}
	lock, err := lockFolder(ctx, filepath.Dir(target))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer lock.Close() //nolint:errcheck // this releases the lock
	if err := discard(target); err != nil {
		return explain(name, target, err)
	}
	for range maxAttempts {
		old, info, err := read(target)
		if err != nil {
			return err
		}
		next, err := change(old)
		switch {
		case err != nil:
			return err
		case next == nil && old == nil, next != nil && old != nil && bytes.Equal(next, old):
			return nil
		case next == nil:
			return fmt.Errorf("%s: the change has no result", name)
		case len(next) > MaxBytes:
			return fmt.Errorf("%s: it would be larger than %d bytes", name, MaxBytes)
		}
		replaced, err := replace(target, old, next, info, perm)
		if err != nil || replaced {
			return explain(name, target, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: another program changes it all the time; try again when that has ended", name)
}

// Discard removes what a killed process that was in File has left of a new content for the file name. File does so too.
func Discard(ctx context.Context, name string) error {
	target, err := followLinks(name)
	if err != nil {
		return err
	}
	lock, err := lockFolder(ctx, filepath.Dir(target))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer lock.Close() //nolint:errcheck // this releases the lock
	return explain(name, target, discard(target))
}

// explain returns err. If the folder cannot be written, the error names the file that was to be changed, because nobody knows
// the name of its new content.
func explain(name, target string, err error) error {
	at, ok := errors.AsType[*fs.PathError](err)
	if ok && at.Path == freshName(target) && (at.Op == "open" || at.Op == "remove") && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		return fmt.Errorf("%s cannot be changed, because its folder cannot be written: %w", name, at.Err)
	}
	return err
}

// discard removes the new content of a killed process. Only the holder of the lock uses its name.
func discard(target string) error {
	err := os.Remove(freshName(target))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// freshName returns the name of the file that holds the new content until it is complete.
func freshName(target string) string {
	return filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+".switchboard-new")
}

// lockInterval is the time between two attempts to get a lock.
const lockInterval = 10 * time.Millisecond

// lockFolder waits for the lock of a folder. Closing the file releases the lock.
func lockFolder(ctx context.Context, folder string) (*os.File, error) {
	f, err := openLock(folder)
	if err != nil {
		return nil, err
	}
	for {
		locked, err := ownfile.TryLock(f)
		switch {
		case err != nil:
			_ = f.Close() // err says what is wrong
			return nil, fmt.Errorf("its folder cannot be locked: %w", err)
		case locked:
			return f, nil
		}
		select {
		case <-ctx.Done():
			_ = f.Close() // it is not locked
			return nil, fmt.Errorf("another process changes files in its folder: %w", ctx.Err())
		case <-time.After(lockInterval):
		}
	}
}

// followLinks returns the file that the name leads to. The file may be absent, but not its folder.
func followLinks(name string) (string, error) {
	target, err := filepath.EvalSymlinks(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return target, err
	}
	if _, err := os.Lstat(name); err == nil {
		return "", fmt.Errorf("%s is a link to a file that does not exist", name)
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(name))
	if err != nil {
		return "", err
	}
	return filepath.Join(folder, filepath.Base(name)), nil
}

// read returns the content of a file, or nil if there is none.
func read(name string) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("%s is no regular file", name)
	case info.Mode().Perm()&0o200 == 0:
		return nil, nil, fmt.Errorf("%s is read-only; make it writable to have it changed", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read from
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) > MaxBytes {
		return nil, nil, fmt.Errorf("%s is larger than %d bytes", name, MaxBytes)
	}
	if data == nil {
		data = []byte{}
	}
	return data, info, nil
}

// replace puts a new content in place. replaced is false if the file no longer holds old.
func replace(target string, old, next []byte, info fs.FileInfo, perm fs.FileMode) (replaced bool, err error) {
	fresh := freshName(target)
	defer func() {
		if !replaced {
			_ = os.Remove(fresh) // err says what went wrong
		}
	}()
	if err := write(fresh, next, info, perm); err != nil {
		return false, err
	}
	now, _, err := read(target)
	if err != nil {
		return false, err
	}
	if (now == nil) != (old == nil) || !bytes.Equal(now, old) {
		return false, nil
	}
	if err := os.Rename(fresh, target); err != nil {
		return false, err
	}
	return true, ownfile.SyncFolder(filepath.Dir(target))
}

// write writes a file that does not exist yet, durably, with the mode and owner of info, or the mode perm.
func write(name string, data []byte, info fs.FileInfo, perm fs.FileMode) (err error) {
	f, err := ownfile.Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info != nil {
		if err := keepOwner(f, info); err != nil {
			return err
		}
		perm = info.Mode().Perm()
	}
	if err := f.Chmod(perm); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

// Remove removes the file name if check, which gets its content, returns nil. Processes that use Remove and File in one folder take turns.
func Remove(ctx context.Context, name string, check func(old []byte) error) error {
	target, err := followLinks(name)
	if err != nil {
		return err
	}
	lock, err := lockFolder(ctx, filepath.Dir(target))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer lock.Close() //nolint:errcheck // this releases the lock
	old, _, err := read(target)
	if err != nil {
		return err
	}
	if err := check(old); err != nil {
		return err
	}
	if old == nil {
		return nil
	}
	if err := os.Remove(target); err != nil {
		return err
	}
	return ownfile.SyncFolder(filepath.Dir(target))
}

// MakeFolder makes a folder with one file in it. The folder appears together with the file, also after a kill at any instant: an empty folder can mean
// something else than no folder. The folder above must exist.
func MakeFolder(name string, data []byte, perm fs.FileMode) error {
	folder := filepath.Dir(name)
	fresh, err := os.MkdirTemp(filepath.Dir(folder), "."+filepath.Base(folder)+".switchboard-new")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh) //nolint:errcheck // after the rename, it is not there
	if err := write(filepath.Join(fresh, filepath.Base(name)), data, nil, perm); err != nil {
		return err
	}
	if err := os.Rename(fresh, folder); err != nil {
		return err
	}
	return ownfile.SyncFolder(filepath.Dir(folder))
}
