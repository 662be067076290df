package http1

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

var wsaPoll = windows.NewLazySystemDLL("ws2_32.dll").NewProc("WSAPoll")

const (
	pollReadable = 0x0100 // POLLRDNORM
	msgPeek      = 0x2    // MSG_PEEK
)

// peek reports, without waiting, whether the socket has something to read, and whether its peer has not closed it. A socket of Go
// waits when it is read, so peek asks first whether there is anything to read, the end included.
func peek(fd uintptr) (something, open bool) {
	asked := struct { // WSAPOLLFD
		fd           uintptr
		events, seen int16
	}{fd: fd, events: pollReadable}
	if n, _, _ := wsaPoll.Call(uintptr(unsafe.Pointer(&asked)), 1, 0); int32(n) < 0 {
		return false, false
	} else if n == 0 {
		return false, true
	}
	if asked.seen&pollReadable == 0 {
		return false, false // an error, or the end
	}
	var b [1]byte
	var n uint32
	flags := uint32(msgPeek)
	err := windows.WSARecv(windows.Handle(fd), &windows.WSABuf{Len: 1, Buf: &b[0]}, 1, &n, &flags, nil, nil)
	return n > 0, err == nil && n > 0
}
