//go:build unix

package segment

import "golang.org/x/sys/unix"

func (f osFile) IsAt(path string) bool {
	var own, there unix.Stat_t
	return unix.Fstat(int(f.Fd()), &own) == nil && unix.Stat(path, &there) == nil && own.Dev == there.Dev && own.Ino == there.Ino
}

func (f osFile) HasName() bool {
	var own unix.Stat_t
	return unix.Fstat(int(f.Fd()), &own) == nil && own.Nlink > 0
}
