package vault_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// A failingStore can be away, and can lose notices. Several Vaults in a bubble share what it wraps.
type failingStore struct {
	store.Store
	away  atomic.Bool
	full  atomic.Bool  // it can be read, and not written
	reads atomic.Int32 // calls of Value
	after atomic.Int32 // if it is positive, the store is away after so many Applies
	mute  atomic.Bool
}

func (s *failingStore) fault() error {
	if s.away.Load() {
		return fmt.Errorf("%w: away", store.ErrUnavailable)
	}
	return nil
}

func (s *failingStore) Value(ctx context.Context, k store.Key) (store.Value, error) {
	s.reads.Add(1)
	if err := s.fault(); err != nil {
		return store.Value{}, err
	}
	return s.Store.Value(ctx, k)
}

func (s *failingStore) List(ctx context.Context, g string) ([]store.NamedValue, error) {
	if err := s.fault(); err != nil {
		return nil, err
	}
	return s.Store.List(ctx, g)
}

func (s *failingStore) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if err := s.fault(); err != nil {
		return 0, err
	}
	if s.full.Load() {
		return 0, fmt.Errorf("%w: full", store.ErrUnavailable)
	}
	v, err := s.Store.Apply(ctx, c)
	if s.after.Load() > 0 && s.after.Add(-1) == 0 { // the answer is lost
		s.away.Store(true)
		return 0, s.fault()
	}
	return v, err
}

func (s *failingStore) Publish(ctx context.Context, topic string, data []byte) error {
	if s.mute.Load() || s.away.Load() {
		return nil
	}
	return s.Store.Publish(ctx, topic, data)
}

// inBubble runs f on the clock of a bubble, with a store in memory.
func inBubble(t *testing.T, f func(t *testing.T, s *failingStore)) {
	synctest.Test(t, func(t *testing.T) {
		s := &failingStore{Store: store.NewMemory()}
		t.Cleanup(func() { _ = s.Close() })
		f(t, s)
	})
}

// answer is an Ask that gives the token and the grant after a time.
func answer(access, grant string, after time.Duration) vault.Ask {
	return func(context.Context, vault.ServerConnection) (vault.ServerConnection, error) {
		time.Sleep(after)
		return vault.ServerConnection{Access: secret(access), Grant: secret(grant), Expires: time.Now().Add(time.Hour)}, nil
	}
}

// fails is an Ask with that error.
func fails(err error) vault.Ask {
	return func(context.Context, vault.ServerConnection) (vault.ServerConnection, error) {
		return vault.ServerConnection{}, err
	}
}

// expect compares a token.
func expect(t *testing.T, what string, got vault.Token, err error, want string) {
	t.Helper()
	if err != nil || got.Access.Reveal() != want {
		t.Errorf("%s = %q %v, want %q", what, got.Access.Reveal(), err, want)
	}
}

func TestATokenIsRenewedAMinuteBeforeItExpires(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		v := openVault(t, s, vault.Options{})
		save(t, v, ann, "a1", "g1", 10*time.Minute)
		time.Sleep(9*time.Minute - time.Second)
		got, err := v.Token(t.Context(), ann, never(t))
		expect(t, "Token before that", got, err, "a1")
		time.Sleep(time.Second)
		got, err = v.Token(t.Context(), ann, answer("a2", "g2", time.Second))
		expect(t, "Token while it is renewed", got, err, "a1")
		time.Sleep(2 * time.Second)
		got, err = v.Token(t.Context(), ann, never(t))
		expect(t, "Token after that", got, err, "a2")

		save(t, v, ann, "short1", "g3", 40*time.Second) // half of its life
		time.Sleep(19 * time.Second)
		got, err = v.Token(t.Context(), ann, never(t))
		expect(t, "Token of a short life", got, err, "short1")
		time.Sleep(time.Minute)
		got, err = v.Token(t.Context(), ann, answer("a4", "g4", time.Second))
		expect(t, "Token after it has expired", got, err, "a4")
	})
}

func TestAProviderThatIsAwayIsAskedAgainAfterAPause(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		one, two := openVault(t, s, vault.Options{}), openVault(t, s, vault.Options{})
		c := save(t, one, ann, "a1", "g1", time.Hour)
		if _, err := one.Renew(t.Context(), ann, c.Generation, fails(fmt.Errorf("%w: refused", vault.ErrNotSent))); !errors.Is(err, vault.ErrNotSent) {
			t.Fatalf("Renew = %v", err)
		}
		for _, v := range []*vault.Vault{one, two} {
			if _, err := v.Renew(t.Context(), ann, c.Generation, never(t)); !errors.Is(err, vault.ErrPaused) {
				t.Errorf("Renew in the pause = %v", err)
			}
		}
		time.Sleep(vault.PauseTime + time.Millisecond)
		got, err := two.Renew(t.Context(), ann, c.Generation, answer("a2", "g2", 0))
		expect(t, "Renew after the pause", got, err, "a2")
	})
}

func TestAProviderThatAsksForAPauseIsLeftAloneForThatTimeButNotForLong(t *testing.T) {
	for _, tt := range []struct{ asked, pause time.Duration }{
		{time.Minute, time.Minute},
		{time.Second, vault.PauseTime},
		{24 * time.Hour, vault.MaxPause},
		{-time.Hour, vault.PauseTime},
	} {
		inBubble(t, func(t *testing.T, s *failingStore) {
			one, two := openVault(t, s, vault.Options{}), openVault(t, s, vault.Options{})
			save(t, one, ann, "a1", "g1", time.Hour)
			time.Sleep(59*time.Minute + time.Second) // it is due, and still good
			asked := 0
			busy := func(context.Context, vault.ServerConnection) (vault.ServerConnection, error) {
				asked++
				return vault.ServerConnection{}, &vault.RenewalPause{Wait: tt.asked, Err: fmt.Errorf("%w: busy", vault.ErrNotSent)}
			}
			got, err := one.Token(t.Context(), ann, busy)
			expect(t, "Token while the renewal fails", got, err, "a1")
			synctest.Wait()
			began := time.Now()
			for time.Since(began) < tt.pause-2*time.Second {
				for _, v := range []*vault.Vault{one, two} { // it expires meanwhile
					if _, err := v.Token(t.Context(), ann, never(t)); err != nil {
						p, _ := errors.AsType[*vault.RenewalPause](err)
						if left := tt.pause - time.Since(began); !errors.Is(err, vault.ErrPaused) || p == nil || p.Wait != left {
							t.Fatalf("asked for %v: Token in the pause = %v, %+v, want %v", tt.asked, err, p, left)
						}
					}
				}
				synctest.Wait()
				for _, v := range []*vault.Vault{one, two} {
					if shown, ok := v.Access(ann); ok && shown.Due {
						t.Fatal("the next request begins a renewal, which reads the store")
					}
				}
				time.Sleep(time.Second)
			}
			time.Sleep(2*time.Second + time.Millisecond)
			got, err = two.Renew(t.Context(), ann, got.Generation, answer("a2", "g2", 0))
			expect(t, "Renew after the pause", got, err, "a2")
			if asked != 1 {
				t.Errorf("asked for %v: %d requests", tt.asked, asked)
			}
		})
	}
}

func TestANewConsentEndsThePauseOfTheOldOne(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		v := openVault(t, s, vault.Options{})
		c := save(t, v, ann, "a1", "g1", time.Hour)
		busy := &vault.RenewalPause{Wait: time.Hour, Err: fmt.Errorf("%w: busy", vault.ErrNotSent)}
		if _, err := v.Renew(t.Context(), ann, c.Generation, fails(busy)); !errors.Is(err, vault.ErrNotSent) {
			t.Fatalf("Renew = %v", err)
		}
		save(t, v, ann, "b1", "h1", time.Minute)
		time.Sleep(31 * time.Second) // half of its life, and less than the pause
		got, err := v.Token(t.Context(), ann, answer("b2", "h2", time.Second))
		expect(t, "Token that is due", got, err, "b1")
		time.Sleep(5 * time.Second) // more than the answer takes
		got, err = v.Token(t.Context(), ann, never(t))
		expect(t, "Token after the renewal", got, err, "b2")
	})
}

func TestAGrantIsNeverSentAgainAfterALostOrRefusedAnswer(t *testing.T) {
	for what, ask := range map[string]vault.Ask{
		"lost":    fails(errors.New("connection reset")),
		"refused": fails(vault.ErrRefused),
		"empty":   fails(nil),
		"panic":   func(context.Context, vault.ServerConnection) (vault.ServerConnection, error) { panic("a defect") },
		"late": func(ctx context.Context, _ vault.ServerConnection) (vault.ServerConnection, error) {
			<-ctx.Done()
			return vault.ServerConnection{}, ctx.Err()
		},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *failingStore) {
				var lost atomic.Int64
				counts := vault.Options{Lost: func(vault.Owner, error) { lost.Add(1) }}
				one, two := openVault(t, s, counts), openVault(t, s, counts)
				c := save(t, one, ann, "a1", "g1", time.Hour)
				if got, err := two.Token(t.Context(), ann, never(t)); err != nil {
					t.Fatal(got, err)
				}
				began := time.Now()
				if _, err := one.Renew(t.Context(), ann, c.Generation, ask); !errors.Is(err, vault.ErrConnectAgain) {
					t.Errorf("Renew = %v", err)
				}
				if took := time.Since(began); took > vault.AskTime {
					t.Errorf("the provider had %s to answer", took)
				}
				for range 2 {
					for _, v := range []*vault.Vault{one, two, openVault(t, s, vault.Options{})} {
						if _, err := v.Renew(t.Context(), ann, c.Generation, never(t)); !errors.Is(err, vault.ErrConnectAgain) {
							t.Errorf("Renew = %v", err)
						}
					}
					time.Sleep(vault.ClaimTime * 2)
				}
				if all, err := one.List(t.Context()); err != nil || len(all) != 1 || !all[0].Again || lost.Load() != 1 {
					t.Errorf("List = %+v %v; it was lost %d times", all, err, lost.Load())
				}
				save(t, two, ann, "a2", "g2", time.Hour)
				synctest.Wait()
				got, err := one.Token(t.Context(), ann, never(t))
				expect(t, "Token after a new consent", got, err, "a2")
			})
		})
	}
}

// The person connects again while the old grant is being refused: the new connection lives.
func TestAConnectionThatWasMadeAgainIsNotLostWithItsOldGrant(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		var lost atomic.Int64
		v := openVault(t, s, vault.Options{Lost: func(vault.Owner, error) { lost.Add(1) }})
		c := save(t, v, ann, "a1", "g1", time.Hour)
		_, err := v.Renew(t.Context(), ann, c.Generation, func(context.Context, vault.ServerConnection) (vault.ServerConnection, error) {
			save(t, v, ann, "a2", "g2", time.Hour)
			return vault.ServerConnection{}, vault.ErrRefused
		})
		synctest.Wait()
		if lost.Load() != 0 {
			t.Errorf("it was lost %d times; Renew = %v", lost.Load(), err)
		}
		got, err := v.Token(t.Context(), ann, never(t))
		expect(t, "Token", got, err, "a2")
	})
}

func TestATokenWhoseGrantIsSpentIsUsedUntilItExpiresOrIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		v := openVault(t, s, vault.Options{})
		c := save(t, v, ann, "a1", "g1", 10*time.Minute)
		time.Sleep(9*time.Minute + time.Second)
		got, err := v.Token(t.Context(), ann, fails(errors.New("lost")))
		expect(t, "Token", got, err, "a1")
		synctest.Wait()
		time.Sleep(vault.PauseTime + time.Second)
		s.reads.Store(0)
		got, err = v.Token(t.Context(), ann, never(t))
		expect(t, "Token of a spent connection", got, err, "a1")
		synctest.Wait()
		if n := s.reads.Load(); n > 0 {
			t.Errorf("%d looks at the store for a token that cannot be renewed", n)
		}
		if _, err := v.Renew(t.Context(), ann, c.Generation, never(t)); !errors.Is(err, vault.ErrConnectAgain) {
			t.Errorf("Renew = %v", err)
		}
		if _, ok := v.Access(ann); ok {
			t.Error("a token that the server has refused is served")
		}
	})
}

func TestAKilledRenewalMakesTheConnectionSpent(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		killed := &failingStore{Store: s.Store}
		one, two := openVault(t, killed, vault.Options{}), openVault(t, s, vault.Options{})
		c := save(t, one, ann, "a1", "g1", time.Hour)
		go func() {
			_, _ = one.Renew(t.Context(), ann, c.Generation, func(context.Context, vault.ServerConnection) (vault.ServerConnection, error) {
				killed.away.Store(true) // it never writes again
				return vault.ServerConnection{}, errors.New("killed")
			})
		}()
		synctest.Wait()
		began := time.Now()
		if _, err := two.Renew(t.Context(), ann, c.Generation, never(t)); !errors.Is(err, vault.ErrConnectAgain) {
			t.Errorf("Renew = %v", err)
		}
		if took := time.Since(began); took < vault.ClaimTime-time.Second || took > vault.ClaimTime+time.Second {
			t.Errorf("the claim held for %s", took)
		}
	})
}

func TestATokenThatCouldNotBeWrittenIsUsedAndWrittenLater(t *testing.T) {
	for _, away := range []time.Duration{3 * time.Second, 20 * time.Second, 5 * time.Minute} { // in the call, before and after the claim ends
		t.Run(away.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *failingStore) {
				cut := &failingStore{Store: s.Store}
				one, two := openVault(t, cut, vault.Options{}), openVault(t, s, vault.Options{})
				c := save(t, one, ann, "a1", "g1", time.Hour)
				go func() {
					time.Sleep(away)
					cut.away.Store(false)
				}()
				got, err := one.Renew(t.Context(), ann, c.Generation, func(context.Context, vault.ServerConnection) (vault.ServerConnection, error) {
					cut.away.Store(true)
					return vault.ServerConnection{Access: secret("a2"), Grant: secret("g2"), Expires: time.Now().Add(time.Hour)}, nil
				})
				expect(t, "Renew", got, err, "a2")
				got2, err := one.Token(t.Context(), ann, never(t))
				expect(t, "Token while the store is away", got2, err, "a2")
				if other, err := two.Renew(t.Context(), ann, c.Generation, never(t)); err == nil {
					expect(t, "Renew at another replica", other, err, "a2")
				} else if !errors.Is(err, vault.ErrConnectAgain) {
					t.Errorf("Renew at another replica = %v", err)
				}
				time.Sleep(away + time.Minute)
				other, err := two.Renew(t.Context(), ann, c.Generation, never(t))
				expect(t, "Renew at another replica, after the store is back", other, err, "a2")
				if other.Generation != got.Generation {
					t.Errorf("the generations differ: %v %v", other.Generation, got.Generation)
				}
				third, err := two.Renew(t.Context(), ann, other.Generation, func(ctx context.Context, c vault.ServerConnection) (vault.ServerConnection, error) {
					if c.Grant.Reveal() != "g2" {
						t.Errorf("the grant is %q", c.Grant.Reveal())
					}
					return answer("a3", "g3", 0)(ctx, c)
				})
				expect(t, "the next renewal", third, err, "a3")
			})
		})
	}
}

func TestAClaimWhoseAnswerIsLostIsTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		cut := &failingStore{Store: s.Store}
		one, two := openVault(t, cut, vault.Options{}), openVault(t, s, vault.Options{})
		c := save(t, one, ann, "a1", "g1", time.Hour)
		cut.after.Store(1)
		if _, err := one.Renew(t.Context(), ann, c.Generation, never(t)); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("Renew = %v", err)
		}
		go func() {
			time.Sleep(time.Minute) // the claim is over, and the other replica calls the grant spent
			cut.away.Store(false)
		}()
		if _, err := two.Renew(t.Context(), ann, c.Generation, never(t)); !errors.Is(err, vault.ErrConnectAgain) {
			t.Errorf("Renew = %v", err)
		}
		time.Sleep(2 * time.Minute)
		got, err := two.Renew(t.Context(), ann, c.Generation, answer("a2", "g2", 0))
		expect(t, "Renew after it was taken back", got, err, "a2")
	})
}

func TestAResultWhoseWriteIsUnknownIsWrittenOnce(t *testing.T) {
	for _, away := range []time.Duration{time.Second, time.Minute} { // in the call, and in the background
		inBubble(t, func(t *testing.T, s *failingStore) {
			var logged bytes.Buffer
			cut := &failingStore{Store: s.Store}
			v := openVault(t, cut, vault.Options{Log: slog.New(slog.NewTextHandler(&logged, nil))})
			c := save(t, v, ann, "a1", "g1", time.Hour)
			cut.after.Store(2) // the claim, and the result
			go func() {
				time.Sleep(away)
				cut.away.Store(false)
			}()
			got, err := v.Renew(t.Context(), ann, c.Generation, answer("a2", "g2", 0))
			expect(t, "Renew", got, err, "a2")
			time.Sleep(2 * away)
			synctest.Wait()
			now, err := openVault(t, s, vault.Options{}).Read(t.Context(), ann)
			if err != nil || now.Generation != got.Generation || now.Generation.Tokens != c.Generation.Tokens+1 {
				t.Errorf("Read = %v %v, want %v", now.Generation, err, got.Generation)
			}
			if strings.Contains(logged.String(), "could not be kept") {
				t.Errorf("logged: %s", logged.String())
			}
		})
	}
}

func TestTokensThatAreNotWrittenYetAreNotRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		v := openVault(t, s, vault.Options{})
		c := save(t, v, ann, "a1", "g1", time.Hour)
		got, err := v.Renew(t.Context(), ann, c.Generation, func(context.Context, vault.ServerConnection) (vault.ServerConnection, error) {
			s.full.Store(true)
			return vault.ServerConnection{Access: secret("a2"), Grant: secret("g2"), Expires: time.Now().Add(time.Hour)}, nil
		})
		expect(t, "Renew", got, err, "a2")
		if _, err := v.Renew(t.Context(), ann, got.Generation, never(t)); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Renew of tokens that are not written = %v", err)
		}
		s.full.Store(false)
		time.Sleep(2 * time.Second)
		next, err := v.Renew(t.Context(), ann, got.Generation, answer("a3", "g3", 0))
		expect(t, "Renew when they are written", next, err, "a3")
	})
}

func TestTheCallsOfOneProcessShareARenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		v := openVault(t, s, vault.Options{})
		c := save(t, v, ann, "a1", "g1", time.Hour)
		s.reads.Store(0)
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				got, err := v.Renew(t.Context(), ann, c.Generation, answer("a2", "g2", time.Second))
				expect(t, "Renew", got, err, "a2")
			})
		}
		wg.Wait()
		if n := s.reads.Load(); n > 10 {
			t.Errorf("%d looks at the store", n)
		}
	})
}

func TestWhatHappensToAConnectionDuringARenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		var orphans []string
		one := openVault(t, s, vault.Options{Orphaned: func(_ vault.Owner, c vault.ServerConnection) { orphans = append(orphans, c.Grant.Reveal()) }})
		two := openVault(t, s, vault.Options{})
		c := save(t, one, ann, "a1", "g1", time.Hour)
		renewed := make(chan error, 1)
		go func() {
			_, err := one.Renew(t.Context(), ann, c.Generation, answer("a2", "g2", 5*time.Second))
			renewed <- err
		}()
		time.Sleep(time.Second)
		if was, err := two.Delete(t.Context(), ann); err != nil || was.Grant.Reveal() != "g1" {
			t.Errorf("Delete = %v", err)
		}
		if err := <-renewed; !errors.Is(err, vault.ErrNone) {
			t.Errorf("Renew of a deleted connection = %v", err)
		}
		if len(orphans) != 1 || orphans[0] != "g2" {
			t.Errorf("orphaned: %v", orphans)
		}
		if _, ok := one.Access(ann); ok {
			t.Error("the tokens of a deleted connection are served")
		}

		c = save(t, one, ann, "a3", "g3", time.Hour)
		got := make(chan vault.Token, 1)
		go func() {
			token, err := one.Renew(t.Context(), ann, c.Generation, answer("a4", "g4", 5*time.Second))
			if err != nil {
				t.Error(err)
			}
			got <- token
		}()
		time.Sleep(time.Second)
		save(t, two, ann, "a5", "g5", time.Hour)
		expect(t, "Renew of a connection that was made again", <-got, nil, "a5")
		if len(orphans) != 1 {
			t.Errorf("orphaned: %v", orphans)
		}
	})
}

func TestAKnownTokenIsServedWhileTheStoreIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		v := openVault(t, s, vault.Options{})
		other := ann
		other.Server = "other"
		save(t, v, ann, "a1", "g1", 2*time.Hour)
		if _, err := v.Save(t.Context(), other, vault.ServerConnection{Access: secret("b1")}); err != nil {
			t.Fatal(err)
		}
		s.away.Store(true)
		began := time.Now()
		var known, unknown time.Duration
		for time.Since(began) < 3*time.Hour {
			time.Sleep(time.Minute)
			if _, ok := v.Access(ann); ok {
				known = time.Since(began)
			}
			if _, ok := v.Access(other); ok {
				unknown = time.Since(began)
			}
		}
		if known != 2*time.Hour-time.Minute || unknown < vault.UnseenFor-time.Minute || unknown > vault.UnseenFor {
			t.Errorf("a token of 2 h was served for %s, one without an expiry for %s", known, unknown)
		}
		if _, err := v.Token(t.Context(), ann, never(t)); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Token = %v", err)
		}
		s.away.Store(false)
		time.Sleep(vault.SharedInterval)
		synctest.Wait()
		if got, err := v.Token(t.Context(), other, never(t)); err != nil {
			t.Error(got, err)
		}
	})
}

func TestADeletionIsSeenAlsoIfItsNoticeIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		var ended []vault.Owner
		one := openVault(t, s, vault.Options{})
		two := openVault(t, s, vault.Options{Ended: func(o vault.Owner) { ended = append(ended, o) }})
		save(t, one, ann, "a1", "g1", time.Hour)
		if _, err := two.Token(t.Context(), ann, never(t)); err != nil {
			t.Fatal(err)
		}
		s.mute.Store(true)
		if _, err := one.Delete(t.Context(), ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(vault.SharedInterval + time.Millisecond)
		synctest.Wait()
		if _, ok := two.Access(ann); ok {
			t.Error("it is served")
		}
		if len(ended) != 1 || ended[0] != ann {
			t.Errorf("ended: %v", ended)
		}
	})
}

func TestACallThatIsGivenUpDoesNotEndItsRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		v := openVault(t, s, vault.Options{})
		c := save(t, v, ann, "a1", "g1", time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := v.Renew(ctx, ann, c.Generation, answer("a2", "g2", 5*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Renew = %v", err)
		}
		got, err := v.Renew(t.Context(), ann, c.Generation, never(t))
		expect(t, "Renew", got, err, "a2")
	})
}

func TestCloseWaitsForTheAnswerOfAProvider(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		v := openVault(t, s, vault.Options{})
		c := save(t, v, ann, "a1", "g1", time.Hour)
		go func() { _, _ = v.Renew(t.Context(), ann, c.Generation, answer("a2", "g2", 3*time.Second)) }()
		time.Sleep(time.Second)
		v.Close()
		now, err := openVault(t, s, vault.Options{}).Read(t.Context(), ann)
		if err != nil || now.Access.Reveal() != "a2" {
			t.Errorf("Read = %v", err)
		}
		if _, err := v.Renew(t.Context(), ann, now.Generation, never(t)); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Renew after Close = %v", err)
		}
	})
}

func TestTicketsExpireAndAreFew(t *testing.T) {
	inBubble(t, func(t *testing.T, s *failingStore) {
		v := openVault(t, s, vault.Options{})
		var ids []string
		for range vault.MaxTickets {
			id, err := v.NewTicket(t.Context(), ann, nil)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		other := ann
		other.Server = "other"
		if _, err := v.NewTicket(t.Context(), other, nil); !errors.Is(err, vault.ErrFull) {
			t.Errorf("one ticket more = %v", err)
		}
		bob := ann
		bob.Person = "idp/bob"
		if _, err := v.NewTicket(t.Context(), bob, nil); err != nil {
			t.Errorf("another person's ticket = %v", err)
		}
		if _, err := v.UseTicket(t.Context(), ids[7]); err != nil {
			t.Error(err)
		}
		if _, err := v.NewTicket(t.Context(), other, nil); err != nil {
			t.Errorf("a ticket after one was used = %v", err)
		}
		time.Sleep(vault.TicketTime)
		if _, err := v.ReadTicket(t.Context(), ids[0]); !errors.Is(err, vault.ErrNone) {
			t.Errorf("an expired ticket = %v", err)
		}
		if _, err := v.NewTicket(t.Context(), ann, nil); err != nil {
			t.Errorf("a ticket after others have expired = %v", err)
		}
	})
}
