package idleconn

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A poller waits for bytes on many connections with one goroutine.
type poller struct {
	epoll int
	file  *os.File // of epoll: the runtime waits for it, and no thread is blocked
	raw   syscall.RawConn
	ready [64]unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	p := &poller{epoll: fd, file: os.NewFile(uintptr(fd), "epoll")}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, p.file.Close())
	}
	return p, nil
}

func (p *poller) close() { _ = p.file.Close() }

// add makes wait return the key when the connection has bytes or ends.
func (p *poller) add(c syscall.RawConn, key uint64) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(uint32(key)), Pad: int32(uint32(key >> 32))}
	return p.control(c, unix.EPOLL_CTL_ADD, &e)
}

func (p *poller) remove(c syscall.RawConn) {
	_ = p.control(c, unix.EPOLL_CTL_DEL, nil) // it fails only for a closed connection, which is removed
}

func (p *poller) control(c syscall.RawConn, operation int, e *unix.EpollEvent) error {
	var err error
	if closed := p.raw.Control(func(epoll uintptr) {
		if gone := c.Control(func(fd uintptr) { err = unix.EpollCtl(int(epoll), operation, int(fd), e) }); gone != nil {
			err = gone
		}
	}); closed != nil {
		return closed
	}
	return err
}

// wait waits until connections have bytes, and returns their keys. It fails once the poller is closed.
func (p *poller) wait() (keys []uint64, err error) {
	closed := p.raw.Read(func(fd uintptr) bool {
		var n int
		n, err = unix.EpollWait(int(fd), p.ready[:], 0)
		for _, e := range p.ready[:max(n, 0)] {
			keys = append(keys, uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32)
		}
		if errors.Is(err, unix.EINTR) { // the caller waits again: here, the runtime would wait for news although there may be some
			err = nil
			return true
		}
		return n > 0 || err != nil
	})
	return keys, errors.Join(err, closed)
}
