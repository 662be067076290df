package bridge

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A link is one connection.
type link struct {
	Connection
	client  *clientWriter
	number  int
	since   time.Time
	writing sync.Mutex
	heard   atomic.Int64 // when the process last sent something, or owed nothing; UnixNano
	closing atomic.Bool  // nothing more is sent
	hung    atomic.Bool
	proven  bool // it has answered a request; only used by the goroutine that reads
}

// closeWrite says that nothing more is sent. The process answers what is in flight, and ends the connection.
func (l *link) closeWrite() {
	l.closing.Store(true)
	_ = l.CloseWrite()
}

// write writes a message as a line. n is how many bytes of the message may have been sent; the message is complete without the end of
// the line. If the process reads nothing for long, and not because of the client, write closes the link.
func (l *link) write(message []byte) (n int, err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.closing.Load() {
		return 0, net.ErrClosed
	}
	line := append(slices.Clip(message), '\n')
	for {
		_ = l.SetWriteDeadline(time.Now().Add(hangLimit))
		sent, err := l.Write(line[n:])
		n += sent
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, os.ErrDeadlineExceeded) && (sent > 0 || l.client.busy.Load()):
			continue
		}
		_ = l.Close()
		return n, err
	}
}

// A clientWriter writes messages to the client. It is safe for concurrent use.
type clientWriter struct {
	w io.Writer

	mu   sync.Mutex // held while a message is written
	busy atomic.Bool
	err  error
}

// write writes a message as a line. After an error it writes nothing more.
func (c *clientWriter) write(message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.busy.Store(true)
	defer c.busy.Store(false)
	if _, err := c.w.Write(append(slices.Clip(message), '\n')); err != nil {
		c.err = fmt.Errorf("write to the client: %w", err)
	}
}

// failure returns why the client cannot be written to.
func (c *clientWriter) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
