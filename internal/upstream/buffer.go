package upstream

import (
	"math/bits"
	"sync"
)

// Big answers are read into buffers from a pool. Allocating and clearing a MiB for each answer
// costs as much as passing it on.
const (
	maxUnpooled = 32 << 10 // smaller buffers are just allocated

	// sizeStepBits sets the number of sizes between powers of two, so that at most a quarter of a
	// buffer is not needed.
	sizeStepBits = 2
	numSizes     = (32 + 1) << sizeStepBits
)

// bufferPools holds unused buffers by size class.
var bufferPools [numSizes]sync.Pool

// A lentBuffer is the memory of one answer. The zero lentBuffer is empty.
type lentBuffer struct {
	bytes []byte
	pool  *sync.Pool // nil if the buffer is not pooled
}

// borrowBuffer returns a buffer of at least n bytes. It may hold old data, which must not be read.
func borrowBuffer(n int) lentBuffer {
	if n <= maxUnpooled {
		return lentBuffer{bytes: make([]byte, n)}
	}
	i, size := sizeClass(n)
	if room, ok := bufferPools[i].Get().(*[]byte); ok {
		return lentBuffer{*room, &bufferPools[i]}
	}
	return lentBuffer{make([]byte, size), &bufferPools[i]}
}

// sizeClass returns the size class for n bytes, and the size of its buffers.
func sizeClass(n int) (i, size int) {
	shift := bits.Len(uint(n-1)) - 1 - sizeStepBits
	steps := (n-1)>>shift + 1 // from 1<<sizeStepBits + 1 to 2<<sizeStepBits
	return shift<<sizeStepBits + steps - 1<<sizeStepBits - 1, steps << shift
}

// release returns the buffer to its pool. The buffer must not be used after that, and release must
// not be called twice.
func (l lentBuffer) release() {
	if l.pool != nil {
		l.pool.Put(&l.bytes)
	}
}

// releaseOnce returns a function that releases the buffer on its first call. It returns nil if
// there is nothing to release.
func (l lentBuffer) releaseOnce() func() {
	if l.pool == nil {
		return nil
	}
	return sync.OnceFunc(l.release)
}
