package run

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// What a run has touched is a value of its own in the store, beside the run's record: a call sets it before it is sent, and must not
// wait for a bind, which holds the lock of the record. Bits are only ever added. So a bit that this process has seen once in the
// store needs no further operation, and a run that has both needs none at all.
const (
	prefixTouched = "touched/" // followed by the name of the run's record

	// touchTTL is longer than any process can use a run without renewing the value.
	touchTTL = 2 * Idle

	// touchRetry is how long a run does without the store after it has failed, where nothing depends on the answer.
	touchRetry = time.Second

	// touchRefresh is how often the bits are read for receipts alone. To read them for each call would cost more than the call.
	touchRefresh = time.Second
)

// touchState is what this process knows of the bits of one run. The zero value knows nothing.
//
// A version is stored after its bits are added, and a write loads the version before the bits. So a write never replaces a value
// of which it lacks a bit.
type touchState struct {
	bits    atomic.Uint32 // switchboard.FlowBits, of the store and of this process
	unsaved atomic.Uint32 // those of bits that the store may lack
	version atomic.Uint64 // of the value in the store; 0 if none is known

	renewed atomic.Int64 // unix nanoseconds when the value was last written, or read to be written
	read    atomic.Int64 // unix nanoseconds when the bits of other processes were last read
	failed  atomic.Int64 // unix nanoseconds when the store failed last
}

func (s *touchState) known() switchboard.FlowBits { return switchboard.FlowBits(s.bits.Load()) }

// learn adds the bits of a version of the value.
func (s *touchState) learn(v store.Version, bits switchboard.FlowBits) {
	s.bits.Or(uint32(bits))
	s.unsaved.And(^uint32(bits))
	s.version.Store(uint64(v))
}

// runFlows implements switchboard.RunFlows.
type runFlows Run

// Flows returns what remembers for the run what its calls have touched.
func (r *Run) Flows() switchboard.RunFlows { return (*runFlows)(r) }

// Has implements switchboard.RunFlows.
func (f *runFlows) Has(bits switchboard.FlowBits) bool {
	return f.touched.known().Has(bits) && f.touched.unsaved.Load() == 0
}

// Known implements switchboard.RunFlows. It reads the store, unless the run has touched everything, or nothing depends on the
// answer and the store was just read.
func (f *runFlows) Known(ctx context.Context, must bool) (switchboard.Touched, error) {
	r := (*Run)(f)
	known := r.touched.known()
	if known == switchboard.Touches {
		return switchboard.Touched{Bits: known, Known: true}, nil
	}
	if !must && since(&r.touched.read) < touchRefresh {
		return switchboard.Touched{Bits: known}, nil
	}
	err := boundUnless(ctx, r, must, func(ctx context.Context) error { return readTouched(ctx, r) })
	switch {
	case err == nil:
		r.touched.read.Store(time.Now().UnixNano())
		return switchboard.Touched{Bits: r.touched.known(), Known: true}, nil
	case must:
		return switchboard.Touched{}, touchNeeded(err)
	}
	return switchboard.Touched{Bits: known}, nil
}

// Touch implements switchboard.RunFlows.
func (f *runFlows) Touch(ctx context.Context, bits switchboard.FlowBits, must bool) error {
	r := (*Run)(f)
	bits &= switchboard.Touches
	lacks := bits &^ r.touched.known()
	if must {
		lacks |= bits & switchboard.FlowBits(r.touched.unsaved.Load())
	}
	if lacks == 0 {
		return nil
	}
	err := boundUnless(ctx, r, must, func(ctx context.Context) error { return writeTouched(ctx, r, bits) })
	switch {
	case err == nil:
		return nil
	case must:
		return touchNeeded(err)
	}
	r.touched.unsaved.Or(uint32(bits)) // the next Sweep that reaches the store writes them
	r.touched.bits.Or(uint32(bits))
	return nil
}

// errTouchLater says that the store has just failed.
var errTouchLater = errors.New("the store has just failed")

// boundUnless calls do. If a failure does no harm, do has saveTimeout, and is not called again soon after a failure.
func boundUnless(ctx context.Context, r *Run, must bool, do func(context.Context) error) error {
	if must {
		return do(ctx)
	}
	if since(&r.touched.failed) < touchRetry {
		return errTouchLater
	}
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	err := do(ctx)
	if err != nil {
		r.touched.failed.Store(time.Now().UnixNano())
	}
	return err
}

// since returns the time since an instant in unix nanoseconds.
func since(instant *atomic.Int64) time.Duration {
	return time.Duration(time.Now().UnixNano() - instant.Load())
}

// touchNeeded returns the refusal of a call that needs to know, or to set, what its run has touched.
func touchNeeded(err error) error {
	return switchboard.Unavailable("what this run has read before cannot be looked up or noted in the store now, so the call was not made", err)
}

func touchKey(r *Run) store.Key {
	k := r.storeKey()
	k.Name = prefixTouched + k.Name
	return k
}

// readTouched learns the value in the store. A value that cannot be read counts as all bits.
func readTouched(ctx context.Context, r *Run) error {
	v, err := r.registry.records.store.Value(ctx, touchKey(r))
	var bits switchboard.FlowBits
	switch {
	case errors.Is(err, store.ErrUnopened):
		bits = switchboard.Touches
	case err != nil:
		return err
	case v.Version == 0: // also if the store has lost it: then the next renewal writes the bits of this process again
		r.touched.version.Store(0)
		return nil
	case json.Unmarshal(v.Data, &bits) != nil:
		bits = switchboard.Touches
	}
	r.touched.learn(v.Version, bits&switchboard.Touches)
	return nil
}

// writeTouched adds bits to the value in the store, durably. If no other process has written it meanwhile, one operation is enough.
func writeTouched(ctx context.Context, r *Run, bits switchboard.FlowBits) error {
	key := touchKey(r)
	for {
		was := store.Version(r.touched.version.Load())
		all := bits | r.touched.known()
		text, _ := all.MarshalJSON() // it never fails
		version, err := r.registry.records.store.Apply(ctx, store.Change{Group: key.Group, Durable: true, Writes: []store.Write{
			{Name: key.Name, Was: was, Data: text, TTL: touchTTL},
		}})
		if err == nil {
			r.touched.learn(version, all)
			r.touched.renewed.Store(time.Now().UnixNano())
			return nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if err := readTouched(ctx, r); err != nil {
			return err
		}
	}
}

// renewTouched extends the expiry of the value if the run is in use and has touched anything, on whichever replica. It also writes
// what could not be written before.
func renewTouched(ctx context.Context, r *Run) error {
	last := r.touched.renewed.Load()
	r.touched.renewed.CompareAndSwap(0, time.Now().UnixNano())
	unsaved := r.touched.unsaved.Load() != 0
	if !unsaved && (last == 0 || time.Since(time.Unix(0, last)) < renewInterval || r.idleSince(time.Unix(0, last))) {
		return nil
	}
	if err := readTouched(ctx, r); err != nil {
		return err
	}
	r.touched.renewed.Store(time.Now().UnixNano())
	if known := r.touched.known(); known != 0 {
		return writeTouched(ctx, r, known)
	}
	return nil
}
