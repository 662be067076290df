//go:build unix

package rewrite

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openLock opens what stands for the lock of a folder: the folder itself, so that no lock file is left.
func openLock(folder string) (*os.File, error) { return os.Open(folder) }

// keepOwner gives f the owner and group of the file that it will replace.
func keepOwner(f *os.File, replaced fs.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	want, ok := replaced.Sys().(*syscall.Stat_t)
	is, ok2 := info.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || want.Uid == is.Uid && want.Gid == is.Gid {
		return nil
	}
	if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil {
		return fmt.Errorf("the file belongs to another user or group, and it would not after the change: %w", err)
	}
	return nil
}
