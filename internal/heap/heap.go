// Package heap decides how much memory the process holds: how often garbage is collected under load, and when memory goes
// back to the system.
//
// By default Go collects when the heap has doubled. A heap of 10 MiB that serves ten thousand calls a second is
// then collected ten times a second, which takes an eighth of the processor time of a call. Watch lets garbage
// accumulate: at most as much as Go's default while the process is calm, and up to Slack while it is busy.
//
// A Freer returns what a burst of work has left. So an idle process stays small.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// Slack is the garbage, in bytes, that may accumulate while the process is busy. A heap that is larger than
	// Slack is collected as Go does by default.
	Slack = 32 << 20

	calmRate    = 4 << 20   // bytes a second that a calm process may allocate
	busyLevel   = 64 << 20  // bytes allocated beyond calmRate that make the process busy
	maxLevel    = 128 << 20 // bounds the time until a process is calm again: 32 seconds
	recheck     = 5 * time.Second
	calmPercent = 100 // Go's default
	maxPercent  = 400
)

// A load says how much the process has allocated lately. It is a bucket that leaks: allocations fill it, and
// calmRate drains it. The zero load is calm.
type load struct {
	level     float64 // bytes in the bucket
	allocated uint64  // by the process, at the time at
	at        time.Time
	busy      bool
}

// next returns the load at the time now, when the process has allocated that many bytes since its start.
func (l load) next(now time.Time, allocated uint64) load {
	if !l.at.IsZero() {
		l.level += float64(allocated-l.allocated) - calmRate*now.Sub(l.at).Seconds()
		l.level = min(max(l.level, 0), maxLevel)
	}
	l.at, l.allocated = now, allocated
	switch {
	case l.level >= busyLevel:
		l.busy = true
	case l.level == 0:
		l.busy = false
	}
	return l
}

// percent returns how much garbage may accumulate, in percent of the live heap.
func (l load) percent(live uint64) int {
	if !l.busy {
		return calmPercent
	}
	return int(min(max(Slack*100/max(live, 1), calmPercent), maxPercent))
}

// A watcher sets the collector's percentage after each collection.
type watcher struct {
	mu      sync.Mutex
	load    load
	set     int // the percentage in force
	timer   *time.Timer
	stopped bool
}

// Watch begins to adjust the collector, until stop is called. It leaves everything as it is if the environment
// sets GOGC. The limit of GOMEMLIMIT stays in force.
func Watch() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	w := &watcher{set: calmPercent}
	w.look()
	w.lookAfterCollection()
	return w.stop
}

// lookAfterCollection looks after the next collection, and after each later one: the collector finalizes an
// object that nothing refers to.
func (w *watcher) lookAfterCollection() {
	type sentinel struct{ _ *byte }
	runtime.SetFinalizer(&sentinel{}, func(*sentinel) {
		go func() { // to set the percentage waits for the collector, and other finalizers must not
			if w.look() {
				w.lookAfterCollection()
			}
		}()
	})
}

// look sets the percentage by the present load. It returns false after stop.
func (w *watcher) look() bool {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return false
	}
	w.load = w.load.next(time.Now(), samples[0].Value.Uint64())
	w.apply(w.load.percent(samples[1].Value.Uint64()))
	if w.load.busy && w.timer == nil { // a process without work is not collected, and would stay busy
		w.timer = time.AfterFunc(recheck, func() {
			w.mu.Lock()
			w.timer = nil
			w.mu.Unlock()
			w.look()
		})
	}
	return true
}

// apply sets the percentage. A small difference is not worth a stop of the program. The caller holds w.mu.
func (w *watcher) apply(percent int) {
	if percent == w.set || percent != calmPercent && w.set != calmPercent && percent > w.set*3/4 && percent < w.set*4/3 {
		return
	}
	w.set = percent
	debug.SetGCPercent(percent)
}

func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.apply(calmPercent)
}
