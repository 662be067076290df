// Package ownfile makes, opens and locks the files that only the user of this process may use.
//
// It decides who can open such a file or folder: its owner alone, from the moment when it is made. On Unix this is the mode 0600 or
// 0700. On Windows it is an access list with one entry, which files in a folder inherit. The package also decides how
// processes lock a file, and how a name is made durable. What stands in the files is the callers' matter.
//
// All functions may be called by several goroutines.
package ownfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// MakeFolders makes the folder and those above it that do not exist, as MakeFolder does. It is no error if the folder exists.
func MakeFolders(path string) error {
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	}
	path = filepath.Clean(path)
	if above := filepath.Dir(path); above != path {
		if err := MakeFolders(above); err != nil {
			return err
		}
	}
	err := MakeFolder(path)
	if info, there := os.Stat(path); errors.Is(err, fs.ErrExist) && there == nil && info.IsDir() {
		return nil // another process was faster
	}
	return err
}

// CreateTemp makes a new file in the folder, as os.CreateTemp does: a random text takes the place of the last * in the pattern.
func CreateTemp(folder, pattern string) (*os.File, error) {
	before, after := pattern, ""
	if i := strings.LastIndexByte(pattern, '*'); i >= 0 {
		before, after = pattern[:i], pattern[i+1:]
	}
	return Open(filepath.Join(folder, before+rand.Text()+after), os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// mayError is the error of Check.
func mayError(may, seen, remedy string) error {
	return fmt.Errorf("other users may %s it (%s); %s", may, seen, remedy)
}
