package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
)

// ErrTooLarge says that a store is larger than the caller wants to copy.
var ErrTooLarge = errors.New("the store is larger than that")

// CopyFile copies the file of a store, with its WAL and its logs, into an empty folder, and returns the path of the copy. So a store can be examined
// as a start would do it, without being changed. A store that a process has open may be torn in the copy: see FileUser. If it has more than
// limit bytes, the error is ErrTooLarge.
func CopyFile(path, folder string, limit int64) (copied string, err error) {
	target := filepath.Join(folder, filepath.Base(path))
	left := limit
	for _, part := range partNames {
		if part == "-shm" {
			continue // it belongs to the processes that have the file open, and is made anew
		}
		if err := copyPart(path+part, target+part, &left); err != nil && (part == "" || !errors.Is(err, fs.ErrNotExist)) {
			return "", err
		}
	}
	logs := logsFolder(path)
	err = filepath.WalkDir(logs, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(logs, name)
		if err != nil {
			return err
		}
		to := filepath.Join(logsFolder(target), rest)
		if d.IsDir() {
			return ownfile.MakeFolder(to)
		}
		return copyPart(name, to, &left)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return target, nil
}

// copyPart copies one regular file, and subtracts its size from left.
func copyPart(from, to string, left *int64) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file", from)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read from
	out, err := ownfile.Open(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(in, *left+1))
	if *left -= n; *left < 0 && err == nil {
		err = ErrTooLarge
	}
	return errors.Join(err, out.Close())
}
