package app

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	freeDelay    = 200 * time.Millisecond
	freeInterval = time.Minute
)

// A memoryFreer returns memory to the system. The zero value is ready for use. It is safe for
// concurrent use.
type memoryFreer struct {
	scheduled atomic.Bool
	freedAt   atomic.Int64 // in Unix nanoseconds
}

// freeSoon returns memory to the system soon, and at most once a minute. Reading the files, compiling
// policies and deciding about many tools happen rarely and leave much garbage; the runtime would keep
// that memory for minutes.
func (f *memoryFreer) freeSoon() {
	if !f.scheduled.CompareAndSwap(false, true) {
		return
	}
	last := time.Unix(0, f.freedAt.Load())
	time.AfterFunc(max(freeDelay, time.Until(last.Add(freeInterval))), func() {
		f.freedAt.Store(time.Now().UnixNano())
		f.scheduled.Store(false)
		runtime.GC() // a sync.Pool keeps its values until the second collection
		debug.FreeOSMemory()
	})
}
