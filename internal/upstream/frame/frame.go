// Package frame cuts what servers send into messages: lines, or whole bodies.
//
// It decides how much memory a message may take, and lends that memory from a pool. It stores no message
// that is too long, but finds the request that the message answers. Package wire reads messages, and package
// upstream fails the requests whose answers are too long.
package frame

import (
	"errors"
	"io"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Answers are read into buffers from a pool. Allocating and clearing a MiB for each answer costs as much as passing
// it on, and the KiB of a usual answer is an eighth of all memory that a call allocates.
//
// MaxUnpooled is smaller where released buffers are overwritten: then the short answers of tests are lent too.
const (
	// sizeStepBits sets the number of sizes between powers of two, so that at most a quarter of a
	// buffer is not needed.
	sizeStepBits = 2
	numSizes     = (32 + 1) << sizeStepBits
)

// bufferPools holds unused buffers by size class.
var bufferPools [numSizes]sync.Pool

// A Buffer is the memory of one answer. The zero Buffer is empty.
type Buffer struct {
	Bytes []byte     // the whole room
	room  *[]byte    // Bytes, as the pool keeps it
	pool  *sync.Pool // nil if the buffer is not pooled
}

// Borrow returns a buffer of at least n bytes. It may hold old data, which must not be read.
func Borrow(n int) Buffer {
	if n <= MaxUnpooled {
		return Buffer{Bytes: make([]byte, n)}
	}
	i, size := sizeClass(n)
	if room, ok := bufferPools[i].Get().(*[]byte); ok {
		return Buffer{*room, room, &bufferPools[i]}
	}
	room := make([]byte, size)
	return Buffer{room, &room, &bufferPools[i]}
}

// sizeClass returns the size class for n bytes, and the size of its buffers.
func sizeClass(n int) (i, size int) {
	shift := bits.Len(uint(n-1)) - 1 - sizeStepBits
	steps := (n-1)>>shift + 1 // from 1<<sizeStepBits + 1 to 2<<sizeStepBits
	return shift<<sizeStepBits + steps - 1<<sizeStepBits - 1, steps << shift
}

// Release returns the buffer to its pool. The buffer must not be used after that, and Release must
// not be called twice.
func (l Buffer) Release() {
	if l.pool != nil {
		overwrite(l.Bytes)
		l.pool.Put(l.room)
	}
}

// ReleaseOnce returns a function that releases the buffer on its first call. It returns nil if
// there is nothing to release.
func (l Buffer) ReleaseOnce() func() {
	if l.pool == nil {
		return nil
	}
	return (&loan{buffer: l}).release
}

// A loan is a Buffer that is released once.
type loan struct {
	buffer   Buffer
	released atomic.Bool
}

func (l *loan) release() {
	if !l.released.Swap(true) {
		l.buffer.Release()
	}
}

// ErrTooLarge is the error of readAll if there are more than limit bytes.
var ErrTooLarge = errors.New("too large")

// SpareRoom is how many more bytes are allocated for an answer than it needs: one byte to detect
// its end, and room for bytes that are appended for the client.
const SpareRoom = 256

// ReadAll reads at most limit bytes into a lent buffer. size is the expected number, or -1.
func ReadAll(r io.Reader, size, limit int) ([]byte, Buffer, error) {
	const first, most = 4 << 10, 2 << 20
	if size < 0 {
		size = first
	}
	l, n := Borrow(min(size, most)+SpareRoom), 0 // size is only a promise
	for {
		more, err := r.Read(l.Bytes[n:])
		n += more
		switch {
		case n > limit:
			err = ErrTooLarge
		case errors.Is(err, io.EOF):
			return l.Bytes[:n], l, nil
		case err == nil && n == len(l.Bytes):
			bigger := Borrow(max(2*n, min(size, limit)+SpareRoom))
			copy(bigger.Bytes, l.Bytes)
			l.Release()
			l = bigger
		}
		if err != nil {
			l.Release()
			return nil, Buffer{}, err
		}
	}
}
