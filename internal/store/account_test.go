package store_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// account is an account that never ends.
func account(name string, most, amount int64) store.Account {
	return store.Account{Name: name, Max: most, Amount: amount}
}

// hold holds for an hour in group g, and reports whether it was granted.
func hold(t *testing.T, s store.Store, id string, accounts ...store.Account) bool {
	t.Helper()
	return holdFor(t, s, "g", id, time.Hour, accounts...)
}

func holdFor(t *testing.T, s store.Store, group, id string, ttl time.Duration, accounts ...store.Account) bool {
	t.Helper()
	_, held, err := s.Hold(t.Context(), group, id, store.HoldTerms{TTL: ttl}, accounts...)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// settle settles a hold of group g, and reports whether it ended the hold.
func settle(t *testing.T, s store.Store, id string, amounts ...int64) bool {
	t.Helper()
	settled, err := s.Settle(t.Context(), "g", store.Settlement{ID: id, Amounts: amounts})
	if err != nil || len(settled) != 1 {
		t.Fatalf("Settle = %v, %v", settled, err)
	}
	return settled[0]
}

// sums returns the accounts of a group as text: name=settled+held.
func sums(t *testing.T, s store.Store, group string) string {
	t.Helper()
	all, err := s.Accounts(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	return sumText(all)
}

func sumText(all []store.AccountState) string {
	var b strings.Builder
	for _, a := range all {
		fmt.Fprintf(&b, "%s=%d+%d ", a.Name, a.Settled, a.Held)
	}
	return strings.TrimSpace(b.String())
}

func wantSums(t *testing.T, s store.Store, want string) {
	t.Helper()
	if got := sums(t, s, "g"); got != want {
		t.Errorf("the accounts are %q, want %q", got, want)
	}
}

func TestAHoldIsGrantedWhileTheSumsStayWithinTheMaximum(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	onEach(t, func(t *testing.T, s store.Store) {
		wantSums(t, s, "")
		end := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		a := store.Account{Name: "a", Max: 10, Amount: 4, Ends: end}
		got, held, err := s.Hold(t.Context(), "g", "1", store.HoldTerms{TTL: time.Hour}, a)
		if err != nil || !held || sumText(got) != "a=0+4" || !got[0].Ends.Equal(end) {
			t.Errorf("the first Hold = %+v, %v, %v", got, held, err)
		}
		settle(t, s, "1", 3)
		a.Amount = 7
		if got, held, err = s.Hold(t.Context(), "g", "2", store.HoldTerms{TTL: time.Hour}, a); err != nil || !held || sumText(got) != "a=3+7" {
			t.Errorf("a Hold up to the maximum = %+v, %v, %v", got, held, err)
		}
		a.Amount = 1
		if got, held, err = s.Hold(t.Context(), "g", "3", store.HoldTerms{TTL: time.Hour}, a); err != nil || held || sumText(got) != "a=3+7" {
			t.Errorf("a Hold beyond the maximum = %+v, %v, %v", got, held, err)
		}
		if got, held, err = s.Hold(t.Context(), "g", "4", store.HoldTerms{TTL: time.Hour}, account("new", 0, 1)); err != nil || held || sumText(got) != "new=0+0" {
			t.Errorf("a refused Hold in a new account = %+v, %v, %v", got, held, err)
		}
		wantSums(t, s, "a=3+7")
		if !hold(t, s, "5", account("a", 10, 0), account("none", 0, 0)) {
			t.Error("a hold of 0 is refused")
		}
		if hold(t, s, "6", account("a", 9, 0)) {
			t.Error("a hold of 0 is granted, although more than the maximum is used")
		}
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Of a hold and its change, both are made or neither. Redis and a sealed store make no such hold.
func TestAChangeIsMadeTogetherWithItsHoldOrNeitherIs(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	eachBackend(t, func(t *testing.T, b backend, open func() store.Store) {
		s := open()
		holdWith := func(id string, amount int64, was store.Version, text string) (made store.Version, held bool, err error) {
			with := store.JoinedChange{Change: store.Change{Group: "other", Writes: []store.Write{{Name: "n", Was: was, Data: []byte(text)}}}}
			_, held, err = s.Hold(t.Context(), "g", id, store.HoldTerms{TTL: time.Hour, With: &with}, account("a", 10, amount))
			return with.Made, held, err
		}
		first, held, err := holdWith("1", 4, 0, "one")
		if b.name != "memory" && b.name != "file" {
			if !errors.Is(err, store.ErrInvalid) || sums(t, s, "g") != "" {
				t.Errorf("%v, and the accounts are %q", err, sums(t, s, "g"))
			}
			return
		}
		if v := value(t, s, "other", "n"); err != nil || !held || first == 0 || v.Version != first || string(v.Data) != "one" {
			t.Fatalf("%v, %v: the value is %+v, want version %d", held, err, v, first)
		}
		if _, held, err := holdWith("2", 4, 0, "two"); !errors.Is(err, store.ErrConflict) || held {
			t.Errorf("with a change that conflicts: %v, %v", held, err)
		}
		if made, held, err := holdWith("3", 7, first, "three"); err != nil || held || made != 0 {
			t.Errorf("beyond the maximum: %d, %v, %v", made, held, err)
		}
		if made, held, err := holdWith("1", 4, first, "again"); err != nil || !held || made != 0 {
			t.Errorf("repeated: %d, %v, %v", made, held, err)
		}
		if _, _, err := holdWith("4", 1, first, strings.Repeat("x", store.MaxValue+1)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("with a change that is invalid: %v", err)
		}
		wantSums(t, s, "a=0+4")
		if v := value(t, s, "other", "n"); v.Version != first {
			t.Errorf("the value is %+v", v)
		}
		if !hold(t, s, "2", account("a", 10, 1)) { // the id of a hold that was not made is free
			t.Error("it is refused")
		}
		wantSums(t, s, "a=0+5")
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// BU-01 of the security cases.
func TestOf64CallersAsManyHoldAsFit(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	eachBackend(t, func(t *testing.T, b backend, open func() store.Store) {
		of := []store.Store{open()}
		if b.persistent {
			of = append(of, open())
		}
		const callers, tries, most = 64, 20, 500
		var granted atomic.Int64
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for n := range tries {
					id := fmt.Sprintf("%d.%d", i, n)
					_, held, err := of[i%len(of)].Hold(t.Context(), "g", id, store.HoldTerms{TTL: time.Hour}, account("a", most, 1))
					if err != nil {
						t.Error(err)
						return
					}
					if !held {
						continue
					}
					granted.Add(1)
					if n%2 == 0 {
						if settled, err := of[i%len(of)].Settle(t.Context(), "g", store.Settlement{ID: id, Amounts: []int64{1}}); err != nil || !settled[0] {
							t.Errorf("Settle = %v, %v", settled, err)
						}
					}
				}
			})
		}
		all.Wait()
		if granted.Load() != most {
			t.Errorf("%d of %d were granted, want %d", granted.Load(), callers*tries, most)
		}
		got, err := of[0].Accounts(t.Context(), "g")
		if err != nil || len(got) != 1 || got[0].Settled+got[0].Held != most {
			t.Errorf("Accounts = %+v, %v", got, err)
		}
	})
}

func TestOneCallerGetsTheLastUnit(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	onEach(t, func(t *testing.T, s store.Store) {
		for round := range 20 {
			name := fmt.Sprint(round)
			var granted atomic.Int32
			var all sync.WaitGroup
			for i := range 16 {
				all.Go(func() {
					_, held, err := s.Hold(t.Context(), "g", fmt.Sprint(round, i), store.HoldTerms{TTL: time.Hour}, account(name, 1, 1))
					if err != nil {
						t.Error(err)
					}
					if held {
						granted.Add(1)
					}
				})
			}
			all.Wait()
			if granted.Load() != 1 {
				t.Fatalf("%d of 16 got the last unit", granted.Load())
			}
		}
	})
}

func TestAHoldIsInAllAccountsOrInNone(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	onEach(t, func(t *testing.T, s store.Store) {
		var all []store.Account
		for i := range store.MaxAccounts {
			all = append(all, account(fmt.Sprintf("%02d", i), 5, int64(i%5)))
		}
		full := all[len(all)-1]
		full.Amount = 5
		hold(t, s, "full", full)
		was := sums(t, s, "g")
		all[len(all)-1].Amount = 1
		if hold(t, s, "one", all...) {
			t.Error("it is held, although one account has no room")
		}
		wantSums(t, s, was)
		settle(t, s, "full", 0)
		if !hold(t, s, "one", all...) {
			t.Error("it is refused, although all accounts have room")
		}
		got, err := s.Accounts(t.Context(), "g")
		if err != nil || len(got) != len(all) {
			t.Fatalf("Accounts = %v, %v", got, err)
		}
		for i, a := range got {
			if a.Name != all[i].Name || a.Held != all[i].Amount || a.Settled != 0 {
				t.Errorf("account %d is %+v, want %d held", i, a, all[i].Amount)
			}
		}
	})
}

func TestAHoldIsEffectiveOncePerID(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	eachBackend(t, func(t *testing.T, b backend, open func() store.Store) {
		s := open()
		for range 3 {
			if !hold(t, s, "one", account("a", 10, 4)) {
				t.Error("a repeated Hold is refused")
			}
		}
		if !hold(t, s, "one", account("a", 0, 9), account("b", 0, 9)) {
			t.Error("a repeated Hold with other amounts is refused")
		}
		wantSums(t, s, "a=0+4")
		settle(t, s, "one", 3)
		if b.persistent { // as after a restart
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open()
		}
		got, held, err := s.Hold(t.Context(), "g", "one", store.HoldTerms{TTL: time.Hour}, account("a", 10, 4))
		if err != nil || !held || sumText(got) != "a=3+0" {
			t.Errorf("a Hold that was settled before = %v, %v, %v", got, held, err)
		}
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				if _, held, err := s.Hold(t.Context(), "g", "two", store.HoldTerms{TTL: time.Hour}, account("a", 10, 7)); err != nil || !held {
					t.Errorf("Hold = %v, %v", held, err)
				}
			})
		}
		all.Wait()
		wantSums(t, s, "a=3+7")
	})
}

func TestASettlementTakesWhatWasHeldAwayAndAddsItsAmount(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	onEach(t, func(t *testing.T, s store.Store) {
		for _, tt := range []struct {
			id      string
			amounts []int64
			want    string
		}{
			{"all", []int64{5, 3}, "a=5+0 b=3+0"},
			{"less", []int64{4, 0}, "a=9+0 b=3+0"},
			{"nothing", []int64{0, 0}, "a=9+0 b=3+0"},
		} {
			if !hold(t, s, tt.id, account("a", 100, 5), account("b", 100, 3)) {
				t.Fatal("it is refused")
			}
			for n := range 3 {
				if settled := settle(t, s, tt.id, tt.amounts...); settled != (n == 0) {
					t.Errorf("%s: settlement %d reports %v", tt.id, n, settled)
				}
				wantSums(t, s, tt.want)
			}
		}
		if settle(t, s, "unknown", 1, 1) || settle(t, s, "unknown") {
			t.Error("an unknown hold is settled")
		}
		wantSums(t, s, "a=9+0 b=3+0")
	})
}

func TestOneSettlementOfAHoldIsEffective(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		hold(t, s, "one", account("a", 10, 5))
		var effective atomic.Int32
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				settled, err := s.Settle(t.Context(), "g", store.Settlement{ID: "one", Amounts: []int64{5}})
				if err != nil {
					t.Error(err)
				} else if settled[0] {
					effective.Add(1)
				}
			})
		}
		all.Wait()
		if effective.Load() != 1 {
			t.Errorf("%d settlements report that they ended the hold", effective.Load())
		}
		wantSums(t, s, "a=5+0")
	})
}

func TestSettlementsAreMadeTogetherOrNotAtAll(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	onEach(t, func(t *testing.T, s store.Store) {
		var all []store.Settlement
		for i := range store.MaxSettlements - 1 {
			id := fmt.Sprint(i)
			hold(t, s, id, account("a", 10_000, 3))
			all = append(all, store.Settlement{ID: id, Amounts: []int64{int64(i % 4)}})
		}
		all = slices.Insert(all, 7, store.Settlement{ID: "unknown", Amounts: []int64{1, 2, 3}})
		was := sums(t, s, "g")
		for what, amounts := range map[string][]int64{"too much": {4}, "too many": {1, 1}, "too few": {}, "less than nothing": {-1}} {
			bad := slices.Clone(all)
			bad[len(bad)-1].Amounts = amounts
			if _, err := s.Settle(t.Context(), "g", bad...); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
			wantSums(t, s, was)
		}
		settled, err := s.Settle(t.Context(), "g", all...)
		if err != nil || len(settled) != len(all) {
			t.Fatalf("Settle = %v, %v", settled, err)
		}
		total := int64(0)
		for i, done := range settled {
			if done != (all[i].ID != "unknown") {
				t.Errorf("settlement %d reports %v", i, done)
			}
			if done {
				total += all[i].Amounts[0]
			}
		}
		wantSums(t, s, fmt.Sprintf("a=%d+0", total))
		if settled, err := s.Settle(t.Context(), "g"); err != nil || len(settled) != 0 {
			t.Errorf("Settle of nothing = %v, %v", settled, err)
		}
	})
}

func TestAHoldOfNothingCorrectsWhatIsSettled(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		hold(t, s, "one", account("a", 10, 8))
		settle(t, s, "one", 8)
		correct := func(id string, by int64, want string) {
			t.Helper()
			for range 2 {
				hold(t, s, id, account("a", store.MaxAmount, max(by, 0)))
				settle(t, s, id, by)
				wantSums(t, s, want)
			}
		}
		correct("less", -3, "a=5+0")
		correct("more", 20, "a=25+0")
		correct("all", -100, "a=0+0")
	})
}

func TestAnExpiredHoldCountsAsSettled(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	inTime(t, func(t *testing.T, s store.Store) {
		const ttl = time.Second
		begun := time.Now()
		holdFor(t, s, "g", "short", ttl, account("a", 10, 4), account("b", 10, 1))
		holdFor(t, s, "g", "settled", ttl, account("a", 10, 2))
		holdFor(t, s, "g", "long", time.Hour, account("a", 10, 3))
		if !settle(t, s, "settled", 1) {
			wait.Late(t, "a hold has expired after %s", time.Since(begun))
		}
		if got := sums(t, s, "g"); got != "a=1+7 b=0+1" && time.Since(begun) < ttl {
			t.Errorf("the accounts are %q", got)
		}
		wait.Until(t, "the hold expires", func() bool { return sums(t, s, "g") == "a=5+3 b=1+0" })
		if gone := time.Since(begun); gone < ttl-2*time.Millisecond {
			t.Errorf("it expired after %s, want %s", gone, ttl)
		}
		if settle(t, s, "short", 0, 0) {
			t.Error("an expired hold is settled")
		}
		wantSums(t, s, "a=5+3 b=1+0")
		if hold(t, s, "more", account("a", 10, 3)) {
			t.Error("what an expired hold has held is given out again")
		}
		for _, id := range []string{"short", "settled"} { // forgotten: they count again
			if !hold(t, s, id, account("a", 10, 1)) {
				t.Errorf("%s is refused", id)
			}
		}
		wantSums(t, s, "a=5+5 b=1+0")
	})
}

func TestManyHoldsThatExpireTogetherCountAsSettled(t *testing.T) {
	inTime(t, func(t *testing.T, s store.Store) {
		const n = 350 // more than one change settles
		for i := range n {
			holdFor(t, s, "g", fmt.Sprint(i), time.Second, account("a", n, 1))
		}
		after(1005 * time.Millisecond)
		wantSums(t, s, fmt.Sprintf("a=%d+0", n))
		if !hold(t, s, fmt.Sprint(n-1), account("a", n+1, 1)) { // the last of those that expired
			t.Error("the id of an expired hold is not forgotten")
		}
		wantSums(t, s, fmt.Sprintf("a=%d+1", n))
		if !settle(t, s, fmt.Sprint(n-1), 0) {
			t.Error("the new hold of that id is not there")
		}
		for i := range n {
			if settle(t, s, fmt.Sprint(n-1-i), 0) {
				t.Fatal("an expired hold is settled")
			}
		}
		if hold(t, s, "more", account("a", n, 1)) {
			t.Error("what an expired hold has held is given out again")
		}
		wantSums(t, s, fmt.Sprintf("a=%d+0", n))
	})
}

func TestAnAccountIsForgottenAtItsEnd(t *testing.T) {
	inTime(t, func(t *testing.T, s store.Store) {
		const short = 2 * time.Second
		begun := time.Now()
		end := begun.Add(short)
		hold := func(t *testing.T, s store.Store, id string, accounts ...store.Account) bool {
			t.Helper()
			_, held, err := s.Hold(t.Context(), "g", id, store.HoldTerms{TTL: time.Hour}, accounts...)
			if err != nil && time.Since(begun) > short {
				wait.Late(t, "an account has ended before the hold %s", id)
			}
			if err != nil {
				t.Fatal(err)
			}
			return held
		}
		window := store.Account{Name: "window", Max: 10, Amount: 4, Ends: end}
		held := store.Account{Name: "held", Max: 10, Amount: 4, Ends: end}
		longer := store.Account{Name: "longer", Max: 10, Amount: 1, Ends: end}
		hold(t, s, "1", window)
		settle(t, s, "1", 4)
		hold(t, s, "2", held)
		hold(t, s, "3", longer)
		hold(t, s, "4", account("endless", 10, 1))
		longer.Ends = begun.Add(time.Hour)
		hold(t, s, "5", longer)
		longer.Ends = end // the latest end counts
		hold(t, s, "6", longer)
		for _, id := range []string{"3", "5", "6"} {
			settle(t, s, id, 1)
		}
		if got := sums(t, s, "g"); got != "endless=0+1 held=0+4 longer=3+0 window=4+0" && time.Since(begun) < short {
			t.Errorf("the accounts are %q", got)
		}
		wait.Until(t, "the account is forgotten", func() bool { return sums(t, s, "g") == "endless=0+1 held=0+4 longer=3+0" })
		if gone := time.Since(begun); gone < short-2*time.Millisecond {
			t.Errorf("it was forgotten after %s, want %s", gone, short)
		}
		if _, _, err := s.Hold(t.Context(), "g", "late", store.HoldTerms{TTL: time.Hour}, window); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("a hold in an account that has ended: %v, want ErrInvalid", err)
		}
		if !hold(t, s, "1", window) {
			t.Error("a repeated Hold is refused, since its account has ended")
		}
		if !settle(t, s, "2", 2) {
			t.Error("a hold in an account that has ended is not settled")
		}
		wantSums(t, s, "endless=0+1 longer=3+0")
		if all := export(t, s); strings.Contains(all, `"name":"held"`) || strings.Contains(all, `"name":"window"`) {
			t.Errorf("an account that is forgotten is exported: %s", all)
		}
		window.Ends = time.Now().Add(time.Hour) // another one of the same name begins at 0
		hold(t, s, "7", window)
		wantSums(t, s, "endless=0+1 longer=3+0 window=0+4")
	})
}

func TestALoweredMaximumRefusesAndTakesNothingAway(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		hold(t, s, "one", account("a", 10, 5))
		hold(t, s, "two", account("a", 10, 5))
		settle(t, s, "one", 5)
		for _, amount := range []int64{0, 1, 3} {
			if hold(t, s, fmt.Sprint("no", amount), account("a", 3, amount)) {
				t.Errorf("%d is held beyond the lowered maximum", amount)
			}
		}
		wantSums(t, s, "a=5+5")
		if !settle(t, s, "two", 5) {
			t.Error("a hold is not settled, since the maximum is lower now")
		}
		wantSums(t, s, "a=10+0")
		if !hold(t, s, "three", account("a", 12, 2)) {
			t.Error("it is refused below the raised maximum")
		}
	})
}

func TestGroupsShareNeitherAccountsNorHolds(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		for i, group := range []string{"g", "G", "g}a", "{g}", "g\x00a"} {
			if !holdFor(t, s, group, "one", time.Hour, account("a", 5, int64(i+1))) {
				t.Errorf("group %q", group)
			}
			write(t, s, group, "a", "x")
		}
		settle(t, s, "one", 0)
		for i, group := range []string{"G", "g}a", "{g}", "g\x00a"} {
			if got := sums(t, s, group); got != fmt.Sprintf("a=0+%d", i+2) {
				t.Errorf("group %q has %s", group, got)
			}
		}
	})
}

func TestTheLargestAmountsAreExact(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		long := strings.Repeat("é", store.MaxKey/2)
		name := "\x00'\"{}%_\n" + long[:100]
		if !holdFor(t, s, long, long, 24*time.Hour, account(long, store.MaxAmount, store.MaxAmount-1), account(name, store.MaxAmount, 1)) {
			t.Fatal("it is refused")
		}
		if holdFor(t, s, long, "2", time.Hour, account(long, store.MaxAmount, 2)) || !holdFor(t, s, long, "3", time.Hour, account(long, store.MaxAmount, 1)) {
			t.Error("the maximum is not exact")
		}
		settled, err := s.Settle(t.Context(), long, store.Settlement{ID: long, Amounts: []int64{store.MaxAmount - 3, 1}}, store.Settlement{ID: "3", Amounts: []int64{1}})
		if err != nil || !slices.Equal(settled, []bool{true, true}) {
			t.Fatalf("Settle = %v, %v", settled, err)
		}
		got, err := s.Accounts(t.Context(), long)
		if err != nil || len(got) != 2 || got[0].Name != name || got[1].Name != long || got[1].Settled != store.MaxAmount-2 || got[0].Settled != 1 {
			t.Errorf("Accounts = %+v, %v", got, err)
		}
		if holdFor(t, s, long, "4", time.Hour, account(long, store.MaxAmount, 3)) || !holdFor(t, s, long, "5", time.Hour, account(long, store.MaxAmount, 2)) {
			t.Error("the maximum is not exact")
		}
	})
}

func TestAllAccountsAreListedAndAnyAreReadByName(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		for i := 0; i <= store.MaxEntries; i += store.MaxAccounts {
			var all []store.Account
			for n := range store.MaxAccounts {
				all = append(all, account(fmt.Sprintf("%06d", i+n), 20, int64(n)))
			}
			hold(t, s, fmt.Sprint(i), all...)
		}
		all, err := s.Accounts(t.Context(), "g")
		if err != nil || len(all) != store.MaxEntries+store.MaxAccounts {
			t.Fatalf("%d accounts, %v", len(all), err)
		}
		some, err := s.Accounts(t.Context(), "g", all[len(all)-1].Name, "none", "000001", "000001")
		if want := []store.AccountState{all[1], all[len(all)-1]}; err != nil || !slices.Equal(some, want) {
			t.Errorf("by name: %+v, %v; want %+v", some, err, want)
		}
		if none, err := s.Accounts(t.Context(), "g", "none"); err != nil || len(none) != 0 {
			t.Errorf("by a name without account: %+v, %v", none, err)
		}
		for i, a := range all {
			if a.Name != fmt.Sprintf("%06d", i) || a.Held != int64(i%store.MaxAccounts) {
				t.Fatalf("account %d is %+v", i, a)
			}
		}
	})
}

func TestInvalidHoldsAndSettlementsAreRefused(t *testing.T) {
	long, bad := strings.Repeat("x", store.MaxKey+1), "\xff"
	ok := account("a", 1, 1)
	many := make([]store.Account, store.MaxAccounts+1)
	for i := range many {
		many[i] = account(fmt.Sprint(i), 1, 1)
	}
	settlements := make([]store.Settlement, store.MaxSettlements+1)
	for i := range settlements {
		settlements[i] = store.Settlement{ID: fmt.Sprint(i), Amounts: []int64{1}}
	}
	onEach(t, func(t *testing.T, s store.Store) {
		holds := func(group, id string, ttl time.Duration, accounts ...store.Account) error {
			_, _, err := s.Hold(t.Context(), group, id, store.HoldTerms{TTL: ttl}, accounts...)
			return err
		}
		settles := func(group string, all ...store.Settlement) error {
			_, err := s.Settle(t.Context(), group, all...)
			return err
		}
		reads := func(name string) error { _, err := s.Accounts(t.Context(), "g", name); return err }
		lists := func(group string) error { _, err := s.Accounts(t.Context(), group); return err }
		for what, err := range map[string]error{
			"a hold of no group":                 holds("", "h", time.Hour, ok),
			"a hold without an id":               holds("g", "", time.Hour, ok),
			"a hold of a long id":                holds("g", long, time.Hour, ok),
			"a hold of an id that is no text":    holds("g", bad, time.Hour, ok),
			"a hold without accounts":            holds("g", "h", time.Hour),
			"a hold in too many accounts":        holds("g", "h", time.Hour, many...),
			"a hold in one account twice":        holds("g", "h", time.Hour, ok, ok),
			"a hold in an account without name":  holds("g", "h", time.Hour, account("", 1, 1)),
			"a hold for no time":                 holds("g", "h", 0, ok),
			"a hold for less":                    holds("g", "h", -time.Hour, ok),
			"a hold for ever":                    holds("g", "h", math.MaxInt64, ok),
			"a hold of less than nothing":        holds("g", "h", time.Hour, account("a", 1, -1)),
			"a hold of too much":                 holds("g", "h", time.Hour, account("a", store.MaxAmount, store.MaxAmount+1)),
			"a maximum that is too large":        holds("g", "h", time.Hour, account("a", store.MaxAmount+1, 1)),
			"a maximum below nothing":            holds("g", "h", time.Hour, account("a", -1, 0)),
			"an account that has ended":          holds("g", "h", time.Hour, ok, store.Account{Name: "b", Max: 1, Ends: time.Now().Add(-time.Hour)}),
			"an account that ends before 1970":   holds("g", "h", time.Hour, store.Account{Name: "b", Max: 1, Ends: time.Unix(-1, 0)}),
			"an account that ends too late":      holds("g", "h", time.Hour, store.Account{Name: "b", Max: 1, Ends: time.Now().AddDate(200, 0, 0)}),
			"accounts without a name":            reads(""),
			"accounts of a name that is no text": reads(bad),
			"settlements of no group":            settles("", settlements[0]),
			"a settlement without an id":         settles("g", store.Settlement{Amounts: []int64{1}}),
			"too many settlements":               settles("g", settlements...),
			"two settlements of one hold":        settles("g", settlements[0], settlements[0]),
			"a settlement of too much":           settles("g", store.Settlement{ID: "h", Amounts: []int64{math.MaxInt64}}),
			"a settlement of too little":         settles("g", store.Settlement{ID: "h", Amounts: []int64{math.MinInt64}}),
			"the accounts of no group":           lists(""),
			"the accounts of a long group":       lists(long),
		} {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		wantSums(t, s, "")
	})
}

func TestProcessesThatShareAFileShareItsAccounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	one, two := openFile(t, path), openFile(t, path)
	hold(t, one, "h", account("a", 5, 4))
	if hold(t, two, "i", account("a", 5, 2)) || !hold(t, two, "h", account("a", 5, 4)) {
		t.Error("another process does not see the hold")
	}
	if !settle(t, two, "h", 1) || settle(t, one, "h", 4) {
		t.Error("another process does not see the settlement")
	}
	wantSums(t, one, "a=1+0")
}

// An export of Redis is not of one instant: a hold may be in it that its account does not show any more, and the reverse.
func TestAnImportNeverCountsLessThanTheExportShows(t *testing.T) {
	far := fmt.Sprint(time.Now().Add(time.Hour).UnixMicro())
	first := `{"store":"redis","format":2,"at":"2026-11-22T03:00:00Z"}` + "\n"
	lines := []string{
		`{"kind":"hold","group":"g","name":"live","micros":"` + far + `","amounts":[{"account":"a","amount":"3"},{"account":"gone","amount":"2"}]}`,
		`{"kind":"hold","group":"g","name":"expired","micros":"1795316400000","amounts":[{"account":"a","amount":"4"}]}`,
		`{"kind":"hold","group":"g","name":"settled","micros":"` + far + `"}`,
		`{"kind":"account","group":"g","name":"a","settled":"10","held":"8"}`,
		`{"kind":"account","group":"g","name":"over","settled":"10","held":"1","micros":"1795316400000"}`,
		`{"kind":"account","group":"g","name":"less","settled":"1","micros":"` + far + `"}`,
	}
	all := first + strings.Join(lines, "\n") + "\n"
	all += fmt.Sprintf(`{"records":%d,"sha256":"%s"}`, len(lines), digest(all)) + "\n"
	onEach(t, func(t *testing.T, s store.Store) {
		if err := store.Import(t.Context(), s, strings.NewReader(all)); err != nil {
			t.Fatal(err)
		}
		wantSums(t, s, "a=15+3 gone=0+2 less=1+0")
		if settle(t, s, "expired", 0) || settle(t, s, "settled", 0) || !settle(t, s, "live", 1, 1) {
			t.Error("the wrong hold is settled")
		}
		wantSums(t, s, "a=16+0 gone=1+0 less=1+0")
	})
}
