package vault

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// errReplaced says that the row of a renewal belongs to another consent. The tokens that came for the old consent are dropped and not
// revoked, because some providers then revoke the new consent too.
var errReplaced = errors.New("the connection was made again meanwhile")

// A settlement is the end of a renewal, which must be written to its row.
type settlement struct {
	slot   *slot
	claim  string
	change func(*connectionRow)
	pause  time.Duration     // how long others wait before they ask; 0 means that they do not
	tokens *ServerConnection // that have come, or nil
	done   func()            // called once it is written; may be nil
}

// settle writes the end of a renewal. If the store is away, settle returns nil, and the end is written when it is back. The
// errors are ErrNone, ErrUnreadable and errReplaced: then the row is not the renewal's any more.
func (w *renewer) settle(t *settlement) error {
	ctx, cancel := context.WithTimeout(w.ctx, writeTime)
	defer cancel()
	err := w.settleUntilDone(ctx, t)
	if errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil && err != nil {
		w.settleLater(t)
		return nil
	}
	return err
}

// settleLater is settle in the background.
func (w *renewer) settleLater(t *settlement) {
	if !w.later.begin() {
		return
	}
	go func() {
		defer w.later.end()
		ctx, cancel := context.WithTimeout(w.ctx, settleTime)
		defer cancel()
		if err := w.settleUntilDone(ctx, t); err != nil && t.tokens != nil {
			w.rows.log.Warn("the tokens of a renewed connection could not be kept; when they expire, the person must connect again",
				"tenant", t.slot.owner.Tenant, "server", t.slot.owner.Server, "err", err)
		}
	}()
}

// settleUntilDone calls settleOnce until it succeeds, or says that the row is not the renewal's any more.
func (w *renewer) settleUntilDone(ctx context.Context, t *settlement) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := w.settleOnce(ctx, t)
		if t.tokens != nil && (errors.Is(err, ErrNone) || errors.Is(err, ErrUnreadable)) {
			w.orphaned(t.slot.owner, *t.tokens)
		}
		if err == nil || errors.Is(err, ErrNone) || errors.Is(err, errReplaced) || errors.Is(err, ErrUnreadable) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// settleOnce writes the end of the renewal if the row is still the renewal's: it has its claim, also if another process has
// marked it as spent meanwhile.
func (w *renewer) settleOnce(ctx context.Context, t *settlement) error {
	s := t.slot
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer w.rows.unlock(s)
	value, err := w.rows.value(ctx, s)
	if err != nil {
		return err
	}
	if value.Version == 0 {
		s.gone()
		return ErrNone
	}
	r, _, err := w.rows.sealer.openRow(s.name, value.Data)
	if err == nil {
		err = s.accept(r, value.Version)
	}
	switch {
	case err != nil:
		s.unreadable(value.Version)
		return err
	case r.Ended == t.claim: // it was written, and the answer was lost
		t.written()
		return nil
	case r.Claim != t.claim:
		return errReplaced
	}
	release := store.Write{Name: s.claimName(), Was: store.Any}
	if t.pause > 0 {
		release.Data, release.TTL = []byte(pauseData), t.pause
	}
	err = w.rows.writeLocked(ctx, s, value.Version, r, func(r *connectionRow) {
		r.Claim, r.Ended = "", t.claim
		t.change(r)
	}, release)
	if err == nil {
		t.written()
	}
	return err
}

func (t *settlement) written() {
	if t.done != nil {
		t.done()
	}
}

// A workCount counts pieces of work, so that their end can be waited for. The zero value is ready.
type workCount struct {
	mu     sync.Mutex
	n      int
	closed bool
	none   chan struct{} // closed when closed and n is 0
}

// begin counts a piece of work, unless close was called.
func (r *workCount) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.n++
	return true
}

func (r *workCount) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 && r.none != nil {
		close(r.none)
	}
}

// close makes begin fail, and waits for the work that has begun, at most that long.
func (r *workCount) close(most time.Duration) {
	r.mu.Lock()
	if !r.closed {
		r.closed, r.none = true, make(chan struct{})
		if r.n == 0 {
			close(r.none)
		}
	}
	r.mu.Unlock()
	select {
	case <-r.none:
	case <-time.After(most):
	}
}
