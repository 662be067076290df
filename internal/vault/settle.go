package vault

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// errReplaced says that the row of a renewal belongs to another consent.
var errReplaced = errors.New("the connection was made again meanwhile")

// A settlement is the end of a renewal, which must be written to its row.
type settlement struct {
	slot   *slot
	claim  string
	change func(*connectionRow)
	pause  bool              // whether others wait before they ask
	tokens *ServerConnection // that have come, or nil
}

// settle writes the end of a renewal. If the store is away, settle returns nil, and the end is written when it is back. The
// errors are ErrNone and errReplaced: then the row is not the renewal's any more.
func (v *Vault) settle(t *settlement) error {
	ctx, cancel := context.WithTimeout(v.ctx, writeTime)
	defer cancel()
	err := v.settleUntilDone(ctx, t)
	if errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil && err != nil {
		v.settleLater(t)
		return nil
	}
	return err
}

// settleLater is settle in the background.
func (v *Vault) settleLater(t *settlement) {
	v.running.Go(func() {
		ctx, cancel := context.WithTimeout(v.ctx, settleTime)
		defer cancel()
		if err := v.settleUntilDone(ctx, t); err != nil && t.tokens != nil {
			v.log.Warn("the tokens of a renewed connection could not be kept; when they expire, the person must connect again",
				"tenant", t.slot.owner.Tenant, "server", t.slot.owner.Server, "err", err)
		}
	})
}

func (v *Vault) settleUntilDone(ctx context.Context, t *settlement) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := v.settleOnce(ctx, t)
		if errors.Is(err, ErrNone) && t.tokens != nil {
			v.orphaned(t.slot.owner, *t.tokens)
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
func (v *Vault) settleOnce(ctx context.Context, t *settlement) error {
	s := t.slot
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer v.unlock(s)
	value, err := v.value(ctx, s)
	if err != nil {
		return err
	}
	if value.Version == 0 {
		s.gone()
		return ErrNone
	}
	r, _, err := v.sealer.openRow(s.name, value.Data)
	if err == nil {
		err = s.accept(r, value.Version)
	}
	switch {
	case err != nil:
		s.unreadable(value.Version)
		return err
	case r.Ended == t.claim: // it was written, and the answer was lost
		return nil
	case r.Claim != t.claim:
		return errReplaced
	}
	release := store.Write{Name: s.claimName(), Was: store.Any}
	if t.pause {
		release.Data, release.TTL = []byte("pause"), pauseTime
	}
	return v.writeLocked(ctx, s, value.Version, r, func(r *connectionRow) {
		r.Claim, r.Ended = "", t.claim
		t.change(r)
	}, release)
}

// renewals counts the renewals in this process. The zero value is ready.
type renewals struct {
	mu     sync.Mutex
	n      int
	closed bool
	none   chan struct{} // closed when closed and n is 0
}

// begin counts a renewal, unless close was called.
func (r *renewals) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.n++
	return true
}

func (r *renewals) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 && r.none != nil {
		close(r.none)
	}
}

// close makes begin fail, and waits for the renewals that have begun, at most that long.
func (r *renewals) close(most time.Duration) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.closed, r.none = true, make(chan struct{})
	if r.n == 0 {
		close(r.none)
	}
	r.mu.Unlock()
	select {
	case <-r.none:
	case <-time.After(most):
	}
}
