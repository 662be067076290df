//go:build unix

package http1

import (
	"errors"
	"syscall"
)

// peek reports, without waiting, whether the socket has something to read, and whether its peer has not closed it.
func peek(fd uintptr) (something, open bool) {
	var b [1]byte
	n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
	return n > 0, n > 0 || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
}
