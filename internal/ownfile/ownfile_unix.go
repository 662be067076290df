//go:build unix

package ownfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Open opens a file as os.OpenFile does. If flag makes it make the file, only its owner may use the file.
func Open(path string, flag int) (*os.File, error) { return os.OpenFile(path, flag, 0o600) }

// MakeFolder makes a folder that only its owner may use. The folder must not exist.
func MakeFolder(path string) error { return os.Mkdir(path, 0o700) }

// Check refuses a file or folder that other users may write, and one that belongs to us and that other users may
// read. info describes the file at path. The error gives the reason, and a command that corrects it with the name that the reader knows the file by. A file that
// belongs to another user may be readable: the host of a container chooses the mode of the secrets that it provides. A file
// that is not in a file system of the machine passes.
func Check(shown, path string, info fs.FileInfo) error {
	mode := info.Mode().Perm()
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok { // a file in memory
		return nil
	}
	may := "read"
	switch ours := int(stat.Uid) == os.Getuid(); {
	case mode&0o002 != 0, ours && mode&0o020 != 0:
		may = "write"
	case !ours || mode&0o077 == 0:
		return nil
	}
	private := "600"
	if info.IsDir() {
		private = "700"
	}
	return mayError(may, fmt.Sprintf("its mode is %#o", mode), "chmod "+private+" "+shown)
}

// TryLock takes the lock of the file, and reports whether it did. No other process and no other open file then gets it. Closing the
// file and the end of the process release it. The lock does not keep anybody from reading or writing.
func TryLock(f *os.File) (bool, error) { return tryLock(f, unix.LOCK_EX) }

// TryLockShared is TryLock for a lock that several may have at once, while no one has that of TryLock.
func TryLockShared(f *os.File) (bool, error) { return tryLock(f, unix.LOCK_SH) }

func tryLock(f *os.File, how int) (bool, error) {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// Lock is TryLock, but waits until it has the lock.
func Lock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Unlock releases the lock of the file.
func Unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// SyncFolder makes durable which names are in the folder: after a file was made, renamed or linked there.
func SyncFolder(path string) error {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
