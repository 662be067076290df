package receipt

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// How much is written at once, at most.
const (
	maxBatch      = 2048
	maxBatchBytes = 4 << 20
)

// A batch holds receipts that are written together.
type batch struct {
	bodies  []byte         // one after another
	ends    []int          // where each body ends
	terms   []searchTerms  // of each receipt
	waiters []queuedWaiter // sorted by index

	// Set once the batch is part of the chain:
	entries [][]byte
	head    switchboard.Digest // digest of the last entry
}

// cutFront removes the part that is written next from the front of w.
func (w *batch) cutFront() batch {
	n := min(len(w.ends), maxBatch)
	for n > 1 && w.ends[n-1] > maxBatchBytes {
		n /= 2
	}
	end := w.ends[n-1]
	at, _ := slices.BinarySearchFunc(w.waiters, n, func(w queuedWaiter, n int) int { return w.index - n })
	part := batch{bodies: w.bodies[:end], ends: w.ends[:n], terms: w.terms[:n], waiters: w.waiters[:at]}
	w.bodies, w.ends, w.terms, w.waiters = w.bodies[end:], w.ends[n:], w.terms[n:], w.waiters[at:]
	for i := range w.ends {
		w.ends[i] -= end
	}
	for i := range w.waiters {
		w.waiters[i].index -= n
	}
	return part
}

// prepend puts first before the receipts that were queued since.
func (w *batch) prepend(first *batch) {
	bytes, n := len(first.bodies), len(first.ends)
	for i := range w.ends {
		w.ends[i] += bytes
	}
	for i := range w.waiters {
		w.waiters[i].index += n
	}
	w.bodies = slices.Concat(first.bodies, w.bodies)
	w.ends = slices.Concat(first.ends, w.ends)
	w.terms = slices.Concat(first.terms, w.terms)
	w.waiters = slices.Concat(first.waiters, w.waiters)
}
