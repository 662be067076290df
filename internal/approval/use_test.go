package approval_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A silentStore loses the answers to changes while it is silent.
type silentStore struct {
	*store.Memory
	silent, makes, deaf bool          // makes: it makes the changes all the same; deaf: after a change it cannot be read
	late                *store.Change // it makes the change after the next read
	delays              bool          // a change is late
	cancel              func()
	durable             bool // the last change that it has made
}

func (s *silentStore) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if !s.silent {
		s.durable = c.Durable
		return s.Memory.Apply(ctx, c)
	}
	s.silent = false
	if s.delays {
		s.late = &c
	}
	if s.makes {
		if _, err := s.Memory.Apply(ctx, c); err != nil {
			return 0, err
		}
	}
	if s.cancel != nil {
		s.cancel()
		return 0, ctx.Err()
	}
	return 0, fmt.Errorf("%w: the answer is lost", store.ErrUnavailable)
}

func (s *silentStore) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if s.deaf && !s.silent {
		return store.Value{}, store.ErrUnavailable
	}
	v, err := s.Memory.Value(ctx, k)
	if s.late != nil && !s.silent {
		_, _ = s.Memory.Apply(ctx, *s.late)
		s.late = nil
	}
	return v, err
}

func TestAYesIsNotLostWithTheAnswerOfTheStore(t *testing.T) {
	for _, tt := range []struct {
		name                string
		makes, deaf, effect bool
		late                bool
		cancelled           bool
		made                bool // the call, at once
		madeAgain           bool // when it is made once more
		state               approval.State
	}{
		{name: "the use is in the store", makes: true, effect: true, made: true, state: approval.Used},
		{name: "the use is in the store, and no intent makes it durable", makes: true, made: true, state: approval.Used},
		{name: "the use is in the store, and the caller is gone", makes: true, cancelled: true, made: true, state: approval.Used}, // what makes the call sees that
		{name: "the use comes into the store after it was read", late: true, effect: true, made: true, state: approval.Used},
		{name: "the use is not in the store", effect: true, madeAgain: true, state: approval.Approved},
		{name: "the use is in the store, which cannot be read", makes: true, deaf: true, effect: true, state: approval.Used},
		{name: "the use is not in the store, which cannot be read", deaf: true, effect: true, madeAgain: true, state: approval.Approved},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &silentStore{Memory: store.NewMemory(), makes: tt.makes, delays: tt.late}
			defer func() { _ = s.Close() }()
			told := 0
			k := newKeeper(t, s, func(o *approval.Options) {
				o.Effect = func(*switchboard.Call) bool { return tt.effect }
				o.Settings = func(switchboard.TenantID) switchboard.ApprovalSettings {
					return switchboard.ApprovalSettings{Wait: time.Millisecond}
				}
				o.Stepped = func(_ *approval.Request, step approval.Step) {
					if step.Act == approval.ActUse {
						told++
					}
				}
			})
			to := &target{keeper: k}
			caller := k.Approve(same, to)
			_, _ = caller.Call(t.Context(), callOf(`{}`))
			id := pendingOf(t, k)
			decide(t, k, id, approval.Saying{Yes: true})

			s.silent, s.deaf, s.durable = true, tt.deaf, false
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.cancelled {
				s.cancel = cancel
			}
			_, err := caller.Call(ctx, callOf(`{}`))
			if (err == nil) != tt.made || (to.made.Load() == 1) != tt.made || err != nil && codeOf(err) != switchboard.CodeStoreUnavailable {
				t.Errorf("the call: %v; made %d times", err, to.made.Load())
			}
			s.deaf = false
			if r, err := k.Find(t.Context(), "acme", id); err != nil || r.Stored != tt.state {
				t.Errorf("the request: %+v, %v", r, err)
			}
			if tt.made && (told != 1 || s.durable == tt.effect) {
				t.Errorf("the use was told %d times; durable: %v", told, s.durable)
			}
			was := to.made.Load()
			if _, err = caller.Call(t.Context(), callOf(`{}`)); (to.made.Load() > was) != tt.madeAgain {
				t.Errorf("the call once more: %v; made %d times", err, to.made.Load())
			}
		})
	}
}
