package segment

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
)

// A Disk is what a log needs of a file system. A test's Disk loses unsynced writes.
type Disk interface {
	// OpenFile opens or makes a file, as os.OpenFile does.
	OpenFile(path string, flag int) (DiskFile, error)

	// MakeFolder makes a folder, which must not exist.
	MakeFolder(path string) error

	// List returns the names of the files in a folder, sorted.
	List(folder string) ([]string, error)

	// Remove removes a file.
	Remove(path string) error

	// SyncFolder makes new files in the folder durable.
	SyncFolder(path string) error
}

// A DiskFile is an open file.
type DiskFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer

	// SyncData makes everything that was written to the file durable.
	SyncData() error

	// Truncate changes the size of the file.
	Truncate(size int64) error

	// Size returns the size of the file.
	Size() (int64, error)

	// IsAt reports whether the file at path is this file.
	IsAt(path string) bool

	// HasName reports whether the file has a name: it was not removed or replaced.
	HasName() bool

	// TryLock takes the lock of the file, if no other process and no other DiskFile has it.
	TryLock() (bool, error)

	// Unlock releases the lock.
	Unlock() error
}

// osDisk is the file system of the machine.
type osDisk struct{}

func (osDisk) OpenFile(path string, flag int) (DiskFile, error) {
	f, err := ownfile.Open(path, flag)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osDisk) MakeFolder(path string) error { return ownfile.MakeFolder(path) }

func (osDisk) List(folder string) (names []string, err error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	names, err = f.Readdirnames(-1)
	slices.Sort(names)
	return names, errors.Join(err, f.Close())
}

func (osDisk) Remove(path string) error { return os.Remove(path) }

func (osDisk) SyncFolder(path string) error { return ownfile.SyncFolder(path) }

// An osFile is a file of the machine.
type osFile struct{ *os.File }

func (f osFile) SyncData() error { return syncData(f.File) }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) TryLock() (bool, error) { return ownfile.TryLock(f.File) }

func (f osFile) Unlock() error { return ownfile.Unlock(f.File) }
