//go:build unix && !freebsd

package system

import "syscall"

// setLimit sets the present limit to size bytes.
func setLimit(limit *syscall.Rlimit, size uint64) { limit.Cur = size }
