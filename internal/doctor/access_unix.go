//go:build unix

package doctor

import "golang.org/x/sys/unix"

// mayWrite returns nil if this user may write the file, or make files in the folder. It tries nothing.
func mayWrite(path string) error { return unix.Access(path, unix.W_OK) }
