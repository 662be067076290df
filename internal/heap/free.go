package heap

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// freeDelay is how long no decision must have been made before memory is freed: freeing during a
	// burst of decisions is useless.
	freeDelay = 150 * time.Millisecond

	// settleDelay is how long after that memory is freed once more. What a burst leaves to do, such as counting a list or
	// writing to the store, holds memory for a while and maps code that is not needed afterwards.
	settleDelay = time.Second

	// freeInterval is the mean time between two times that memory is freed, and freeBurst is how often it may be freed at
	// once. Freeing usually takes 15 to 30 ms.
	freeInterval = 10 * time.Second
	freeBurst    = 5

	// The pause after freeing is freeShare times as long as freeing has taken, without freeUsual. A heap of gigabytes
	// takes seconds.
	freeShare = 100
	freeUsual = 50 * time.Millisecond
)

// A Freer returns memory to the system after bursts of work. Use NewFreer. It is safe for concurrent use.
type Freer struct {
	free  func()
	limit *rate.Limiter

	mu    sync.Mutex
	timer *time.Timer // nil until the first call of FreeSoon
	since time.Time   // when FreeSoon was first called since memory was freed; zero if it was not

	freeing  bool      // memory is being freed
	left     int       // how many times memory is to be freed yet
	pauseEnd time.Time // until then, memory is not freed again
}

// NewFreer returns a Freer that calls free, which is Free outside tests.
func NewFreer(free func()) *Freer {
	return &Freer{free: free, limit: rate.NewLimiter(rate.Every(freeInterval), freeBurst)}
}

// FreeSoon returns memory to the system once no call of FreeSoon has come for a while. Reading the files, compiling
// policies, and binding many tools or clients leave much garbage, which the runtime would keep for minutes.
func (f *Freer) FreeSoon() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		f.since = time.Now()
	}
	f.left = 2
	if f.timer == nil {
		f.timer = time.AfterFunc(freeDelay, f.freeNow)
	} else if time.Since(f.since) < freeInterval { // else a burst has no end, and the timer must fire
		f.timer.Reset(freeDelay)
	}
}

// freeNow frees memory. It calls itself again later if memory is to be freed once more, or was freed too often or for too long.
func (f *Freer) freeNow() {
	if !f.beginFreeing() {
		return
	}
	began := time.Now()
	f.free()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freeing, f.pauseEnd = false, time.Now().Add(freeShare*max(0, time.Since(began)-freeUsual))
	if f.left > 0 && f.since.IsZero() { // else FreeSoon has set the timer meanwhile
		f.timer.Reset(settleDelay)
	}
}

// beginFreeing reports whether memory may be freed now. Otherwise it sets the timer.
func (f *Freer) beginFreeing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = time.Time{}
	switch left := time.Until(f.pauseEnd); {
	case left > 0:
		f.timer.Reset(left)
	case f.freeing || !f.limit.Allow():
		f.timer.Reset(freeInterval)
	default:
		f.freeing = true
		f.left--
		return true
	}
	return false
}

// Free returns memory to the system: unused memory of the heap, and pages of the program's file that only the start has
// needed.
func Free() {
	runtime.GC() // a sync.Pool keeps its values until the second collection
	debug.FreeOSMemory()
	unmapProgram()
}
