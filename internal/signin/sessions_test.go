package signin_test

import (
	"context"
	"encoding/hex"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/signin"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var ann = signin.Holder{Person: &identity.Person{Issuer: "idp", Subject: "ann", Claims: map[string][]string{"groups": {"leads"}}}}

// onEach runs a test over the stores that one process can have.
func onEach(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, store.NewMemory()) })
	t.Run("file", func(t *testing.T) {
		s, err := store.OpenFile(filepath.Join(t.TempDir(), "store.db"), store.FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		test(t, s)
	})
}

func TestASessionHoldsFor12HoursAndForOneWithoutUse(t *testing.T) {
	for _, tt := range []struct {
		name  string
		every time.Duration // between uses
		want  time.Duration // the last use that counts
	}{
		{"it is used", 50 * time.Minute, 11*time.Hour + 40*time.Minute},
		{"it is used just in time", 59 * time.Minute, 11*time.Hour + 48*time.Minute},
		{"it is not used", 61 * time.Minute, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := signin.NewSessions(store.NewMemory(), func() {}, func() {})
				defer s.Close()
				secret, err := s.Start(t.Context(), ann)
				if err != nil {
					t.Fatal(err)
				}
				began, last := time.Now(), time.Duration(0)
				for {
					time.Sleep(tt.every)
					got, err := s.Read(t.Context(), secret)
					if err != nil {
						break
					}
					if last = time.Since(began); got.Person.ID() != "idp/ann" || last > 13*time.Hour {
						t.Fatalf("after %s it is %+v", last, got)
					}
				}
				if last != tt.want {
					t.Errorf("the last use is after %s, want %s", last, tt.want)
				}
				if all, err := s.List(t.Context()); len(all) > 0 || err != nil {
					t.Errorf("it is listed: %v, %v", all, err)
				}
			})
		})
	}
}

func TestAnEndedSessionIsNeverGoodAgain(t *testing.T) {
	onEach(t, func(t *testing.T, kept store.Store) {
		var began, ended atomic.Int32
		s := signin.NewSessions(kept, func() { began.Add(1) }, func() { ended.Add(1) })
		defer s.Close()
		mine, err1 := s.Start(t.Context(), ann)
		other, err2 := s.Start(t.Context(), signin.Holder{Local: true})
		if err := errors.Join(err1, err2); err != nil || mine == other {
			t.Fatal(err)
		}
		all, err := s.List(t.Context())
		if err != nil || len(all) != 2 || began.Load() != 2 {
			t.Fatalf("%v, %v", all, err)
		}
		for _, one := range all {
			if strings.Contains(mine+other, one.ID) {
				t.Error("the id of a session is a part of its secret")
			}
			if one.Local {
				if ok, err := s.End(t.Context(), one.ID); !ok || err != nil {
					t.Errorf("it cannot be ended: %v", err)
				}
			}
		}
		if _, err := s.Read(t.Context(), other); codeOf(err) != switchboard.CodeNotAuthenticated || ended.Load() == 0 {
			t.Errorf("the ended session gets %v; streams are told %d times", err, ended.Load())
		}
		if _, err := s.Read(t.Context(), mine); err != nil {
			t.Errorf("the other one gets %v", err)
		}
		if err := s.EndOwn(t.Context(), mine); err != nil {
			t.Error(err)
		}
		for _, secret := range []string{mine, other, "", all[0].ID, mine[:20]} {
			if _, err := s.Read(t.Context(), secret); codeOf(err) != switchboard.CodeNotAuthenticated {
				t.Errorf("%q gets %v", secret, err)
			}
		}
		for _, id := range []string{all[0].ID, "", "0000000000000000"} {
			if ok, err := s.End(t.Context(), id); ok || err != nil {
				t.Errorf("%q is ended again, %v", id, err)
			}
		}
	})
}

// A use that is stored while another replica ends the session does not bring it back.
func TestAUseDoesNotBringAnEndedSessionBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &racingStore{Store: store.NewMemory()}
		s := signin.NewSessions(kept, func() {}, func() {})
		defer s.Close()
		secret, err := s.Start(t.Context(), ann)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		kept.afterValue = func() {
			kept.afterValue = nil
			if err := s.EndOwn(t.Context(), secret); err != nil {
				t.Error(err)
			}
		}
		_, _ = s.Read(t.Context(), secret) // its use came first
		if _, err := s.Read(t.Context(), secret); codeOf(err) != switchboard.CodeNotAuthenticated {
			t.Errorf("it is back: %v", err)
		}
	})
}

// A racingStore lets something happen between a read and what follows it.
type racingStore struct {
	store.Store
	afterValue func()
}

func (s *racingStore) Value(ctx context.Context, k store.Key) (store.Value, error) {
	v, err := s.Store.Value(ctx, k)
	if s.afterValue != nil {
		s.afterValue()
	}
	return v, err
}

func TestACodeIsGoodOnceForAMinute(t *testing.T) {
	onEach(t, func(t *testing.T, kept store.Store) {
		s := signin.NewSessions(kept, func() {}, func() {})
		defer s.Close()
		code, err := s.NewCode(t.Context(), ann)
		if err != nil {
			t.Fatal(err)
		}
		var good atomic.Int32
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if h, err := s.UseCode(t.Context(), code); err == nil && h.Person.ID() == "idp/ann" {
					good.Add(1)
				} else if codeOf(err) != switchboard.CodeNotAuthenticated {
					t.Errorf("it is %+v, %v", h, err)
				}
			})
		}
		all.Wait()
		if good.Load() != 1 {
			t.Errorf("%d browsers have used it", good.Load())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := signin.NewSessions(store.NewMemory(), func() {}, func() {})
		defer s.Close()
		for wait, want := range map[time.Duration]bool{59 * time.Second: true, 60 * time.Second: false} {
			code, err := s.NewCode(t.Context(), signin.Holder{Local: true})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(wait)
			if _, err := s.UseCode(t.Context(), code); (err == nil) != want {
				t.Errorf("after %s: %v", wait, err)
			}
		}
	})
}

func TestOR07AStateIsUsedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, kept store.Store) {
		s := signin.NewSessions(kept, func() {}, func() {})
		defer s.Close()
		for i, want := range []switchboard.Code{"", switchboard.CodeNotAuthenticated} {
			if err := s.UseState(t.Context(), "state"); codeOf(err) != want {
				t.Errorf("use %d: %v", i+1, err)
			}
		}
		if err := s.UseState(t.Context(), "another"); err != nil {
			t.Error(err)
		}
	})
}

func TestTheStoreHasNoSecretOfASessionOrCode(t *testing.T) {
	kept := store.NewMemory()
	s := signin.NewSessions(kept, func() {}, func() {})
	defer s.Close()
	secret, err1 := s.Start(t.Context(), signin.Holder{Key: hex.EncodeToString(make([]byte, 32))})
	code, err2 := s.NewCode(t.Context(), ann)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	rows := 0
	err := kept.Dump(t.Context(), func(r store.Record) error {
		rows++
		if text := r.Name + string(r.Value.Data); strings.Contains(text, secret) || strings.Contains(text, code) {
			t.Errorf("it has %s", text)
		}
		return nil
	})
	if rows < 2 || err != nil {
		t.Errorf("%d rows, %v", rows, err)
	}
}

func TestWhileTheStoreIsAwayNobodyIsSignedIn(t *testing.T) {
	kept := store.NewMemory()
	s := signin.NewSessions(kept, func() {}, func() {})
	secret, err := s.Start(t.Context(), ann)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	_ = kept.Close()
	_, err1 := s.Read(t.Context(), secret)
	_, err2 := s.Start(t.Context(), ann)
	_, err3 := s.UseCode(t.Context(), "x")
	for i, err := range []error{err1, err2, err3, s.UseState(t.Context(), "x"), s.EndOwn(t.Context(), secret)} {
		if codeOf(err) != switchboard.CodeStoreUnavailable {
			t.Errorf("%d: %v", i, err)
		}
	}
}
