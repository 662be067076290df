package slot

import (
	"sync"
	"time"
)

// watchAge is the least age at which a call is watched; twice that is the most.
const watchAge = 10 * time.Millisecond

// A watchlist starts to watch calls when they have lasted for watchAge. Most calls have ended before that, and a timer
// and a watch for the end of the client cost more than the rest of a call's allowance. The zero value is ready for use.
type watchlist struct {
	mu      sync.Mutex
	older   []*Allowance // that began before the last look
	younger []*Allowance
	timer   *time.Timer // runs while there are calls
}

// add adds a call that has just begun.
func (w *watchlist) add(a *Allowance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.younger = append(w.younger, a); w.timer == nil {
		w.timer = time.AfterFunc(watchAge, w.look)
	}
}

// look watches the older calls, and looks again at the younger ones later.
func (w *watchlist) look() {
	w.mu.Lock()
	due := w.older
	w.mu.Unlock()
	for _, a := range due {
		a.watch()
	}
	clear(due)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.younger) == 0 {
		w.older, w.younger, w.timer = nil, nil, nil
		return
	}
	w.older, w.younger = w.younger, due[:0]
	w.timer.Reset(watchAge)
}
