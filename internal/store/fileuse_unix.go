//go:build unix

package store

import (
	"io"
	"os"
	"syscall"
)

// FileUser returns the id of a process that has the store at path open, or 0 if none is known. It takes no lock.
//
// Each connection of SQLite in WAL mode holds a shared lock on one byte of the WAL's index, the "dead man switch": https://sqlite.org/walformat.html.
func FileUser(path string) (pid int) {
	const deadManSwitch = 128
	openFiles.Lock()
	defer openFiles.Unlock()
	if openFiles.files[path] > 0 { // closing the descriptor would release our own locks
		return os.Getpid()
	}
	f, err := os.Open(path + "-shm")
	if err != nil {
		return 0
	}
	defer f.Close() //nolint:errcheck // it was only asked for
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: deadManSwitch, Len: 1}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &lock); err != nil || lock.Type == syscall.F_UNLCK {
		return 0
	}
	return int(lock.Pid)
}
