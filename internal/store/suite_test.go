package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A backend is a Store that must keep the contract.
type backend struct {
	name string

	// newStore returns a function that opens one empty store, as often as it is called. The store is closed
	// when the test ends.
	newStore func(t *testing.T) (open func() store.Store)

	persistent bool // the content survives Close, and the store can be opened several times at once
	bubble     bool // it runs on the clock of a synctest bubble
}

var backends = []backend{
	{
		name:   "memory",
		bubble: true,
		newStore: func(t *testing.T) func() store.Store {
			return func() store.Store { return closed(t, store.NewMemory()) }
		},
	},
	{
		name:   "sealed",
		bubble: true,
		newStore: func(t *testing.T) func() store.Store {
			return func() store.Store { return sealed(t, closed(t, store.NewMemory()), "the key") }
		},
	},
	{
		name:       "file",
		persistent: true,
		bubble:     true,
		newStore: func(t *testing.T) func() store.Store {
			path := filepath.Join(t.TempDir(), "store.db")
			return func() store.Store { return openFile(t, path) }
		},
	},
	{name: "redis", persistent: true, newStore: inRedis(oneRedis)},
	{name: "cluster", persistent: true, newStore: inRedis(redisCluster)},
}

// sealed seals the values of s with a key that is derived from words.
func sealed(t testing.TB, s store.Store, words string, plain ...string) *store.Sealed {
	t.Helper()
	key := sha256.Sum256([]byte(words))
	out, err := store.NewSealed(s, store.SealOptions{Key: switchboard.NewSecret(string(key[:])), Plain: plain})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func openFile(t *testing.T, path string) *store.File {
	t.Helper()
	f, err := store.OpenFile(path, store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, f)
	return f
}

// closed closes s when the test ends.
func closed(t *testing.T, s store.Store) store.Store {
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// onEach runs f for each backend, with an empty store.
func onEach(t *testing.T, f func(t *testing.T, s store.Store)) {
	eachBackend(t, func(t *testing.T, _ backend, open func() store.Store) { f(t, open()) })
}

// eachBackend runs f for each backend, with a function that opens an empty store.
func eachBackend(t *testing.T, f func(t *testing.T, b backend, open func() store.Store)) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) { f(t, b, b.newStore(t)) })
	}
}

// inTime runs f for each backend, in a bubble if the backend allows: there, waiting costs nothing, and the
// clock is exact.
func inTime(t *testing.T, f func(t *testing.T, s store.Store)) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			if !b.bubble {
				f(t, b.newStore(t)())
				return
			}
			synctest.Test(t, func(t *testing.T) {
				s := b.newStore(t)()
				f(t, s)
				_ = s.Close() // its goroutines end in the bubble
			})
		})
	}
}

// after waits for d on the clock of the test.
func after(d time.Duration) { <-time.After(d) }

func value(t *testing.T, s store.Store, group, name string) store.Value {
	t.Helper()
	v, err := s.Value(t.Context(), store.Key{Group: group, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// write writes data under the key, and replaces any version.
func write(t *testing.T, s store.Store, group, name, data string) store.Version {
	t.Helper()
	v, err := s.Apply(t.Context(), store.Change{Group: group, Writes: []store.Write{
		{Name: name, Was: store.Any, Data: []byte(data)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// add appends entries to the log.
func add(t *testing.T, s store.Store, log string, entries ...string) {
	t.Helper()
	all := make([][]byte, len(entries))
	for i, e := range entries {
		all[i] = []byte(e)
	}
	if err := s.Append(t.Context(), log, span(t, s, log).Last, all...); err != nil {
		t.Fatal(err)
	}
}

func span(t *testing.T, s store.Store, log string) store.Span {
	t.Helper()
	sp, err := s.Span(t.Context(), log)
	if err != nil {
		t.Fatal(err)
	}
	return sp
}

// read returns log l as text, each entry with its number.
func read(t *testing.T, s store.Store, after uint64, limit int) string {
	t.Helper()
	entries, err := s.Read(t.Context(), "l", after, limit)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%d=%s ", e.Seq, e.Data)
	}
	return strings.TrimSpace(b.String())
}

func TestAnEmptyStoreIsEmpty(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		if v := value(t, s, "g", "n"); v.Data != nil || v.Version != 0 || !v.Expires.IsZero() {
			t.Errorf("Value = %+v", v)
		}
		if all, err := s.List(t.Context(), "g"); err != nil || len(all) != 0 {
			t.Errorf("List = %v, %v", all, err)
		}
		if got := span(t, s, "l"); got != (store.Span{First: 1, Last: 0}) {
			t.Errorf("Span = %v", got)
		}
		if got := read(t, s, 0, 10); got != "" {
			t.Errorf("Read = %s", got)
		}
		if logs, err := s.Logs(t.Context()); err != nil || len(logs) != 0 {
			t.Errorf("Logs = %v, %v", logs, err)
		}
		if err := s.Trim(t.Context(), "l", 9); err != nil {
			t.Errorf("Trim = %v", err)
		}
		if got := span(t, s, "l"); got != (store.Span{First: 1, Last: 0}) {
			t.Errorf("Span after Trim = %v", got)
		}
	})
}

func TestAValueIsWhatWasWritten(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		for _, data := range []string{"", "x", "\x00\xff'\"\n{}", strings.Repeat("long ", 1<<18)} {
			v := write(t, s, "g'\x00é", "n\"%_", data)
			got := value(t, s, "g'\x00é", "n\"%_")
			if string(got.Data) != data || got.Data == nil || got.Version != v || !got.Expires.IsZero() {
				t.Errorf("wrote %.20q of version %d, got %.20q of version %d", data, v, got.Data, got.Version)
			}
		}
		if v := value(t, s, "g", "n\"%_"); v.Version != 0 {
			t.Error("another group has the value too")
		}
	})
}

func TestTheStoreCopiesItsInput(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		data := []byte("kept")
		if _, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "n", Data: data}}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(t.Context(), "l", 0, data); err != nil {
			t.Fatal(err)
		}
		copy(data, "lost")
		if v := value(t, s, "g", "n"); string(v.Data) != "kept" {
			t.Errorf("the value is %s", v.Data)
		}
		if got := read(t, s, 0, 1); got != "1=kept" {
			t.Errorf("the log is %s", got)
		}
	})
}

func TestAChangeOfAnotherVersionIsRefused(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	onEach(t, func(t *testing.T, s store.Store) {
		apply := func(was store.Version, data []byte) (store.Version, error) {
			return s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "n", Was: was, Data: data}}})
		}
		refused := func(was store.Version) {
			t.Helper()
			before := value(t, s, "g", "n")
			if _, err := apply(was, []byte("wrong")); !errors.Is(err, store.ErrConflict) {
				t.Errorf("a change of version %d: %v, want ErrConflict", was, err)
			}
			if _, err := apply(was, nil); !errors.Is(err, store.ErrConflict) {
				t.Errorf("a deletion of version %d: %v, want ErrConflict", was, err)
			}
			if now := value(t, s, "g", "n"); now.Version != before.Version || !bytes.Equal(now.Data, before.Data) {
				t.Errorf("after a refused change the value is %s", now.Data)
			}
		}
		refused(7)
		one, err := apply(0, []byte("one"))
		if err != nil {
			t.Fatal(err)
		}
		refused(0)
		refused(one + 1)
		two, err := apply(one, []byte("two"))
		if err != nil {
			t.Fatal(err)
		}
		refused(one)
		if _, err := apply(two, nil); err != nil {
			t.Fatal(err)
		}
		refused(two)
		three, err := apply(0, []byte("three"))
		if err != nil {
			t.Fatal(err)
		}
		refused(one)
		refused(two)
		if _, err := apply(store.Any, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := apply(store.Any, nil); err != nil {
			t.Fatalf("a deletion of no value, with Any: %v", err)
		}
		if _, err := apply(0, nil); err != nil {
			t.Fatalf("a deletion of no value, with 0: %v", err)
		}
		refused(three)
	})
}

func TestNoTwoStatesHaveOneVersion(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		seen := map[store.Version]bool{0: true, store.Any: true}
		for i := range 200 {
			if i%3 == 2 {
				if _, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "n", Was: store.Any}}}); err != nil {
					t.Fatal(err)
				}
				continue
			}
			v := write(t, s, "g", "n", "the same")
			if seen[v] {
				t.Fatalf("version %d was used before", v)
			}
			seen[v] = true
		}
	})
}

func TestAChangeIsAtomic(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	onEach(t, func(t *testing.T, s store.Store) {
		c := store.Change{Group: "g"}
		for i := range store.MaxWrites {
			c.Writes = append(c.Writes, store.Write{Name: fmt.Sprint(i), Data: fmt.Append(nil, i)})
		}
		v, err := s.Apply(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.List(t.Context(), "g")
		if err != nil || len(all) != store.MaxWrites {
			t.Fatalf("List = %v, %v", all, err)
		}
		for _, n := range all {
			if n.Version != v || string(n.Data) != n.Name {
				t.Errorf("%s is %s of version %d, want version %d", n.Name, n.Data, n.Version, v)
			}
		}
		for i := range c.Writes { // only the last one does not match
			c.Writes[i] = store.Write{Name: fmt.Sprint(i), Was: v, Data: []byte("new")}
		}
		c.Writes[0].Data = nil
		c.Writes[len(c.Writes)-1].Was = 0
		if _, err := s.Apply(t.Context(), c); !errors.Is(err, store.ErrConflict) {
			t.Fatalf("Apply = %v, want ErrConflict", err)
		}
		for i := range store.MaxWrites {
			if got := value(t, s, "g", fmt.Sprint(i)); got.Version != v {
				t.Errorf("%d was changed to %q", i, got.Data)
			}
		}
	})
}

func TestAGroupIsListedByName(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		names := []string{"b", "a", "é", "Z", "a0", "\x00", "~", "aa", "\U0001F600", "\uffff"}
		for _, n := range names {
			write(t, s, "g", n, n)
			write(t, s, "another", n, "wrong")
		}
		write(t, s, "g", "gone", "x")
		if _, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "gone", Was: store.Any}}}); err != nil {
			t.Fatal(err)
		}
		all, err := s.List(t.Context(), "g")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range all {
			got = append(got, n.Name)
			if string(n.Data) != n.Name || n.Version != value(t, s, "g", n.Name).Version {
				t.Errorf("%q has the data %q", n.Name, n.Data)
			}
		}
		slices.Sort(names)
		if !slices.Equal(got, names) {
			t.Errorf("List gives %q, want %q", got, names)
		}
	})
}

func TestAListEndsAtItsLimit(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		for i := 0; i <= store.MaxEntries; i += store.MaxWrites {
			c := store.Change{Group: "g"}
			for n := range store.MaxWrites {
				c.Writes = append(c.Writes, store.Write{Name: fmt.Sprintf("%06d", i+n), Data: []byte("x")})
			}
			if _, err := s.Apply(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		all, err := s.List(t.Context(), "g")
		if err != nil || len(all) != store.MaxEntries {
			t.Fatalf("%d values, %v", len(all), err)
		}
		for i, n := range all {
			if n.Name != fmt.Sprintf("%06d", i) {
				t.Fatalf("value %d is %s", i, n.Name)
			}
		}
	})
}

func TestAValueExpires(t *testing.T) {
	inTime(t, func(t *testing.T, s store.Store) {
		const ttl = 300 * time.Millisecond
		begun := time.Now()
		v, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{
			{Name: "short", Data: []byte("x"), TTL: ttl},
			{Name: "long", Data: []byte("x"), TTL: time.Hour},
			{Name: "endless", Data: []byte("x")},
		}})
		if err != nil {
			t.Fatal(err)
		}
		written := time.Now()
		near := func(what string, at time.Time, ttl time.Duration) {
			t.Helper()
			const clocks = 2 * time.Millisecond // Redis has its own clock, in milliseconds
			if at.Before(begun.Add(ttl-clocks)) || at.After(written.Add(ttl+clocks)) {
				t.Errorf("%s: after %s, want %s", what, at.Sub(begun), ttl)
			}
		}
		near("the long one expires", value(t, s, "g", "long").Expires, time.Hour)
		if v := value(t, s, "g", "endless"); !v.Expires.IsZero() {
			t.Errorf("the endless one expires at %s", v.Expires)
		}
		if v := value(t, s, "g", "short"); v.Version != 0 {
			near("the short one expires", v.Expires, ttl)
		} else if time.Since(begun) < ttl {
			t.Error("the short one was never there")
		}
		wait.Until(t, "the short value is gone", func() bool { return value(t, s, "g", "short").Version == 0 })
		if gone := time.Since(begun); gone < ttl-2*time.Millisecond {
			t.Errorf("it was gone after %s, want %s", gone, ttl)
		}
		if all, err := s.List(t.Context(), "g"); err != nil || len(all) != 2 {
			t.Errorf("List = %v, %v", all, err)
		}
		if _, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "short", Was: v, Data: []byte("y")}}}); !errors.Is(err, store.ErrConflict) {
			t.Errorf("an expired version was replaced: %v", err)
		}
		if _, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "short", Data: []byte("y")}}}); err != nil {
			t.Errorf("a new value under an expired key: %v", err)
		}
		if v := value(t, s, "g", "short"); string(v.Data) != "y" || !v.Expires.IsZero() {
			t.Errorf("the value is %+v: it has the old expiry", v)
		}
		if _, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "long", Was: store.Any, Data: []byte("y"), TTL: ttl}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "long", Was: store.Any, Data: []byte("z")}}}); err != nil {
			t.Fatal(err)
		}
		after(ttl + 5*time.Millisecond)
		if v := value(t, s, "g", "long"); string(v.Data) != "z" {
			t.Errorf("a value without a TTL has the expiry of the value that it replaced: %+v", v)
		}
	})
}

func TestALimitGivesItsBurstAndThenOneAtATime(t *testing.T) {
	inTime(t, func(t *testing.T, s store.Store) {
		l := store.Limit{Name: "l", Every: 40 * time.Millisecond, Burst: 3}
		begun := time.Now()
		var whole time.Time // the latest instant when it is fully available again
		for taken := 0; taken < 10; {
			asked := time.Now()
			_, wait, err := s.Take(t.Context(), "g", store.Want{Now: 1}, l)
			if err != nil {
				t.Fatal(err)
			}
			if wait > 0 {
				if wait > l.Every {
					t.Fatalf("wait %s, but one more is free each %s", wait, l.Every)
				}
				if late := asked.Sub(whole.Add(-time.Duration(l.Burst-1) * l.Every)); late > time.Millisecond {
					t.Fatalf("%s after one more was free, none was taken", late)
				}
				after(wait)
				continue
			}
			now := time.Now()
			taken++
			if whole.Before(now) {
				whole = now
			}
			whole = whole.Add(l.Every)
			if earliest := time.Duration(taken-l.Burst) * l.Every; now.Sub(begun) < earliest-2*time.Millisecond {
				t.Fatalf("%d were taken within %s, the earliest is %s", taken, now.Sub(begun), earliest)
			}
		}
		after(l.Every*time.Duration(l.Burst) + time.Millisecond)
		for range l.Burst {
			if _, wait, err := s.Take(t.Context(), "g", store.Want{Now: 1}, l); wait != 0 || err != nil {
				t.Fatalf("an unused limit is not fully available: %s, %v", wait, err)
			}
		}
	})
}

func TestIfOneLimitIsUsedUpNoLimitIsCounted(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		narrow := store.Limit{Name: "narrow", Every: time.Hour, Burst: 1}
		wide := store.Limit{Name: "wide", Every: 2 * time.Hour, Burst: 3}
		take := func(group string, limits ...store.Limit) time.Duration {
			t.Helper()
			_, wait, err := s.Take(t.Context(), group, store.Want{Now: 1}, limits...)
			if err != nil {
				t.Fatal(err)
			}
			return wait
		}
		if w := take("g", narrow, wide); w != 0 {
			t.Fatalf("the first waits %s", w)
		}
		for range 5 {
			if w := take("g", wide, narrow); w <= 59*time.Minute || w > time.Hour {
				t.Errorf("wait = %s, want nearly an hour", w)
			}
		}
		for range 2 {
			if w := take("g", wide); w != 0 {
				t.Errorf("the wide limit counted a refused Take: %s", w)
			}
		}
		if w := take("g", narrow, wide); w <= 119*time.Minute || w > 2*time.Hour {
			t.Errorf("wait = %s, want the longest wait of all limits", w)
		}
		if w := take("another", narrow, wide); w != 0 {
			t.Errorf("another group waits %s", w)
		}
	})
}

func TestTakeTakesAsManyAsAllLimitsAllow(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		narrow := store.Limit{Name: "narrow", Every: time.Hour, Burst: 7}
		wide := store.Limit{Name: "wide", Every: 2 * time.Hour, Burst: 20}
		for _, tt := range []struct {
			what   string
			want   store.Want
			limits []store.Limit
			got    int
			wait   time.Duration // about
		}{
			{"as many as are wanted", store.Want{Now: 2}, []store.Limit{narrow, wide}, 2, 0},
			{"ahead, up to half of the narrow one", store.Want{Now: 1, Ahead: 9}, []store.Limit{wide, narrow}, 1, 0},
			{"as many as the narrow one has", store.Want{Now: 9, Ahead: 9}, []store.Limit{wide, narrow}, 4, time.Hour},
			{"none", store.Want{Now: 1, Ahead: 9}, []store.Limit{narrow, wide}, 0, time.Hour},
			{"refused permits were not counted", store.Want{Now: 1, Ahead: 9}, []store.Limit{wide}, 3, 0},
			{"no more than half ahead", store.Want{Now: 1, Ahead: 9}, []store.Limit{wide}, 1, 0},
			{"all of the rest", store.Want{Now: 9}, []store.Limit{wide}, 9, 0},
			{"none if none is left", store.Want{Now: store.MaxPermits}, []store.Limit{wide}, 0, 2 * time.Hour},
			{"as many as are wanted, without limits", store.Want{Now: 5, Ahead: 9}, nil, 5, 0},
		} {
			got, wait, err := s.Take(t.Context(), "g", tt.want, tt.limits...)
			if err != nil || got != tt.got || wait > tt.wait || wait < tt.wait-time.Minute {
				t.Errorf("%s: %d, wait %s, %v; want %d, %s", tt.what, got, wait, err, tt.got, tt.wait)
			}
		}
	})
}

func TestPermitsTakenAheadCountAsUsedAtTheEndOfHold(t *testing.T) {
	inTime(t, func(t *testing.T, s store.Store) {
		l := store.Limit{Name: "l", Every: 10 * time.Millisecond, Burst: 1000}
		begun := time.Now()
		got, _, err := s.Take(t.Context(), "g", store.Want{Now: 1, Ahead: 3, Hold: time.Second}, l)
		if err != nil || got != 4 {
			t.Fatalf("%d, %v; want 4", got, err)
		}
		got, _, err = s.Take(t.Context(), "g", store.Want{Now: 1000}, l)
		if most := 897 + int((time.Since(begun)+2*time.Millisecond)/l.Every); err != nil || got < 897 || got > most {
			t.Errorf("%d are left, %v; want 897 to %d: 1000, less the 3 taken ahead, less the 100 that become free until the end of Hold", got, err, most)
		}
		got, _, err = s.Take(t.Context(), "another", store.Want{Now: 1, Ahead: 3, Hold: 6 * time.Second}, l)
		if err != nil || got != 1 {
			t.Errorf("%d, %v; want 1: less than half would be left at the end of Hold", got, err)
		}
	})
}

// A clock that was ahead and went back leaves the same state: an instant later than the limit allows.
func TestALimitThatBecameNarrowerCountsAsUsedUp(t *testing.T) {
	inTime(t, func(t *testing.T, s store.Store) {
		wide := store.Limit{Name: "l", Every: time.Hour, Burst: 1000}
		for range 10 {
			if _, wait, err := s.Take(t.Context(), "g", store.Want{Now: 1}, wide); wait != 0 || err != nil {
				t.Fatal(wait, err)
			}
		}
		narrow := store.Limit{Name: "l", Every: 30 * time.Millisecond, Burst: 2}
		_, wait, err := s.Take(t.Context(), "g", store.Want{Now: 1}, narrow)
		if err != nil || wait <= 0 || wait > narrow.Every {
			t.Fatalf("wait = %s, %v; want at most %s", wait, err, narrow.Every)
		}
		after(wait + 3*time.Millisecond)
		if _, wait, err := s.Take(t.Context(), "g", store.Want{Now: 1}, narrow); wait != 0 || err != nil {
			t.Errorf("after the announced wait there is another one of %s, %v", wait, err)
		}
	})
}

func TestARaceForALimitGetsExactlyItsBurst(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	eachBackend(t, func(t *testing.T, b backend, open func() store.Store) {
		of := []store.Store{open()}
		if b.persistent {
			of = append(of, open())
		}
		for burst := 1; burst <= 64; burst *= 4 {
			l := store.Limit{Name: fmt.Sprint(burst), Every: time.Hour, Burst: burst}
			var given atomic.Int32
			var all sync.WaitGroup
			for i := range 64 {
				all.Go(func() {
					_, wait, err := of[i%len(of)].Take(t.Context(), "g", store.Want{Now: 1}, l)
					if err != nil {
						t.Error(err)
					} else if wait == 0 {
						given.Add(1)
					}
				})
			}
			all.Wait()
			if int(given.Load()) != burst {
				t.Errorf("%d of 64 got a permit, want %d", given.Load(), burst)
			}
		}
	})
}

func TestALogIsAppendedToAtItsEndOnly(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		appended := func(after uint64, entries ...string) error {
			var all [][]byte
			for _, e := range entries {
				all = append(all, []byte(e))
			}
			return s.Append(t.Context(), "l", after, all...)
		}
		if err := appended(1, "wrong"); !errors.Is(err, store.ErrConflict) {
			t.Errorf("after an entry that does not exist: %v", err)
		}
		if logs, err := s.Logs(t.Context()); err != nil || len(logs) != 0 {
			t.Errorf("a refused Append made a log: %v, %v", logs, err)
		}
		if err := appended(0, "a", "", "c\x00"); err != nil {
			t.Fatal(err)
		}
		for _, after := range []uint64{0, 2, 4, 1 << 40, math.MaxUint64} {
			if err := appended(after, "wrong"); !errors.Is(err, store.ErrConflict) {
				t.Errorf("after entry %d: %v", after, err)
			}
		}
		if err := appended(3, "d"); err != nil {
			t.Fatal(err)
		}
		if got := span(t, s, "l"); got != (store.Span{First: 1, Last: 4}) {
			t.Errorf("Span = %v", got)
		}
		for _, tt := range []struct {
			after uint64
			limit int
			want  string
		}{
			{0, 10, "1=a 2= 3=c\x00 4=d"},
			{0, 2, "1=a 2="},
			{2, 1, "3=c\x00"},
			{3, 9, "4=d"},
			{4, 9, ""},
			{1 << 50, 9, ""},
			{math.MaxUint64, 9, ""},
			{0, 0, ""},
			{0, -1, ""},
		} {
			if got := read(t, s, tt.after, tt.limit); got != tt.want {
				t.Errorf("%d after %d: %q, want %q", tt.limit, tt.after, got, tt.want)
			}
		}
		add(t, s, "a log before", "x")
		if logs, err := s.Logs(t.Context()); err != nil || !slices.Equal(logs, []string{"a log before", "l"}) {
			t.Errorf("Logs = %q, %v", logs, err)
		}
	})
}

func TestALongLogIsReadInPieces(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		entries := make([][]byte, store.MaxAppend)
		for i := range entries {
			entries[i] = fmt.Append(nil, i)
		}
		for i := range 3 {
			if err := s.Append(t.Context(), "l", uint64(i*len(entries)), entries...); err != nil {
				t.Fatal(err)
			}
		}
		next := uint64(1)
		for {
			got, err := s.Read(t.Context(), "l", next-1, math.MaxInt)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 {
				break
			}
			if len(got) > store.MaxEntries {
				t.Fatalf("%d entries at once", len(got))
			}
			for _, e := range got {
				if want := fmt.Sprint((next - 1) % store.MaxAppend); e.Seq != next || string(e.Data) != want {
					t.Fatalf("entry %d is %s, want entry %d, %s", e.Seq, e.Data, next, want)
				}
				next++
			}
		}
		if next != 3*store.MaxAppend+1 {
			t.Errorf("%d entries, want %d", next-1, 3*store.MaxAppend)
		}
	})
}

func TestALogKeepsItsLastNumberWithoutEntries(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend, open func() store.Store) {
		s := open()
		trim := func(first uint64, want store.Span, left string) {
			t.Helper()
			if err := s.Trim(t.Context(), "l", first); err != nil {
				t.Fatal(err)
			}
			if got := span(t, s, "l"); got != want {
				t.Errorf("after Trim(%d): %v, want %v", first, got, want)
			}
			if got := read(t, s, 0, 10); got != left {
				t.Errorf("after Trim(%d): %s, want %s", first, got, left)
			}
		}
		add(t, s, "l", "a", "b", "c", "d")
		trim(0, store.Span{First: 1, Last: 4}, "1=a 2=b 3=c 4=d")
		trim(3, store.Span{First: 3, Last: 4}, "3=c 4=d")
		trim(2, store.Span{First: 3, Last: 4}, "3=c 4=d")
		trim(99, store.Span{First: 5, Last: 4}, "")
		trim(math.MaxUint64, store.Span{First: 5, Last: 4}, "")
		if b.persistent {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open()
		}
		trim(5, store.Span{First: 5, Last: 4}, "")
		if err := s.Append(t.Context(), "l", 0, []byte("again")); !errors.Is(err, store.ErrConflict) {
			t.Errorf("an empty log begins at 1 again: %v", err)
		}
		add(t, s, "l", "e")
		trim(0, store.Span{First: 5, Last: 5}, "5=e")
		if logs, err := s.Logs(t.Context()); err != nil || !slices.Equal(logs, []string{"l"}) {
			t.Errorf("Logs = %q, %v", logs, err)
		}
	})
}

func TestTheContentSurvivesClosingAndOpening(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	eachBackend(t, func(t *testing.T, b backend, open func() store.Store) {
		if !b.persistent {
			return
		}
		s := open()
		v := write(t, s, "g", "n", "kept")
		add(t, s, "l", "a", "b")
		l := store.Limit{Name: "limit", Every: time.Hour, Burst: 1}
		if _, wait, err := s.Take(t.Context(), "g", store.Want{Now: 1}, l); wait != 0 || err != nil {
			t.Fatal(wait, err)
		}
		beside := open() // while s is open too
		for range 2 {
			if got := value(t, beside, "g", "n"); string(got.Data) != "kept" || got.Version != v {
				t.Errorf("Value = %+v, want version %d", got, v)
			}
			if got := read(t, beside, 0, 10); got != "1=a 2=b" {
				t.Errorf("Read = %s", got)
			}
			if _, wait, err := beside.Take(t.Context(), "g", store.Want{Now: 1}, l); wait == 0 || err != nil {
				t.Errorf("a used permit is free again: %v", err)
			}
			_ = s.Close()
			_ = beside.Close()
			beside = open()
		}
	})
}

func TestNoticesArriveInOrderAndNoneIsLost(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		heard, stop := listen(t, s)
		defer stop()
		other, stopOther := listen(t, s)
		defer stopOther()
		const n = 1000
		for i := range n {
			if err := s.Publish(t.Context(), "t", fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
			if err := s.Publish(t.Context(), "another", []byte("wrong")); err != nil {
				t.Fatal(err)
			}
		}
		for _, h := range []<-chan string{heard, other} {
			for i := range n {
				if got := next(t, h); got != fmt.Sprint(i) {
					t.Fatalf("notice %d is %s", i, got)
				}
			}
		}
		if err := s.Publish(t.Context(), "t", nil); err != nil {
			t.Fatal(err)
		}
		if got := next(t, heard); got != "" {
			t.Errorf("an empty notice is %q", got)
		}
	})
}

// listen subscribes to topic t and waits until notices arrive. heard gets "missed" for nil.
func listen(t *testing.T, s store.Store) (heard <-chan string, stop func()) {
	t.Helper()
	all := make(chan string, 4096)
	var live atomic.Bool
	stop = s.Subscribe("t", func(data []byte) {
		switch {
		case string(data) == "are you there":
			live.Store(true)
		case data == nil && !live.Load(): // notices before the subscription may be missed
		case data == nil:
			all <- "missed"
		default:
			all <- string(data)
		}
	})
	wait.Until(t, "the subscriber hears something", func() bool {
		if err := s.Publish(t.Context(), "t", []byte("are you there")); err != nil {
			t.Fatal(err)
		}
		return live.Load()
	})
	return all, stop
}

func next(t *testing.T, heard <-chan string) string {
	t.Helper()
	return wait.Receive(t, "a notice comes", heard)
}

func TestASlowSubscriberIsToldThatItMissedNotices(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		release := make(chan struct{})
		var blocked atomic.Bool
		all := make(chan string, 8192)
		stop := s.Subscribe("t", func(data []byte) {
			if blocked.CompareAndSwap(false, true) {
				<-release
				return
			}
			if data == nil {
				all <- "missed"
			} else {
				all <- string(data)
			}
		})
		defer stop()
		wait.Until(t, "the subscriber hears something", func() bool {
			if err := s.Publish(t.Context(), "t", []byte("first")); err != nil {
				t.Fatal(err)
			}
			return blocked.Load()
		})
		quick, stopQuick := listen(t, s)
		defer stopQuick()
		const n = 3000
		for i := range n { // a slow subscriber does not delay the others
			if err := s.Publish(t.Context(), "t", fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
			got := next(t, quick)
			for got == "first" { // notices that were still on their way
				got = next(t, quick)
			}
			if got != fmt.Sprint(i) {
				t.Fatalf("notice %d is %s", i, got)
			}
		}
		close(release)
		last, missed := -1, false
		for !missed {
			switch got := next(t, all); got {
			case "missed":
				missed = true
			case "first", "are you there":
			default:
				var i int
				if _, err := fmt.Sscan(got, &i); err != nil || i <= last {
					t.Fatalf("heard %s after %d", got, last)
				}
				last = i
			}
		}
		if last == n-1 {
			t.Fatal("no notice was dropped, so the test shows nothing")
		}
		if err := s.Publish(t.Context(), "t", []byte("later")); err != nil {
			t.Fatal(err)
		}
		for next(t, all) != "later" {
		}
	})
}

func TestAStoppedSubscriberGetsNoMoreNotices(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		var heard atomic.Int32
		var stop func()
		release := make(chan struct{})
		stop = s.Subscribe("t", func([]byte) {
			if heard.Add(1) == 1 {
				<-release // until more notices wait
				return
			}
			stop() // from within
		})
		quick, stopQuick := listen(t, s)
		defer stopQuick()
		for i := range 100 {
			if err := s.Publish(t.Context(), "t", fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
		}
		for next(t, quick) != "99" {
		}
		close(release)
		wait.Until(t, "the subscriber hears something", func() bool { return heard.Load() > 1 })
		if err := s.Publish(t.Context(), "t", []byte("end")); err != nil {
			t.Fatal(err)
		}
		for next(t, quick) != "end" {
		}
		if heard.Load() != 2 {
			t.Errorf("it got %d notices, and stopped at the second", heard.Load())
		}
		stop() // a second call does nothing
	})
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	long, bad := strings.Repeat("x", store.MaxKey+1), "\xff"
	write1 := func(w store.Write) store.Change { return store.Change{Group: "g", Writes: []store.Write{w}} }
	limit := func(name string, every time.Duration, burst int) store.Limit {
		return store.Limit{Name: name, Every: every, Burst: burst}
	}
	many := make([]store.Write, store.MaxWrites+1)
	limits := make([]store.Limit, store.MaxLimits+1)
	for i := range many {
		many[i] = store.Write{Name: fmt.Sprint(i), Data: []byte("x")}
		limits[i] = limit(fmt.Sprint(i), time.Second, 1)
	}
	onEach(t, func(t *testing.T, s store.Store) {
		ctx := t.Context()
		apply := func(c store.Change) error { _, err := s.Apply(ctx, c); return err }
		take := func(group string, limits ...store.Limit) error {
			_, _, err := s.Take(ctx, group, store.Want{Now: 1}, limits...)
			return err
		}
		wants := func(w store.Want) error { _, _, err := s.Take(ctx, "g", w, limits[0]); return err }
		val := func(group, name string) error {
			_, err := s.Value(ctx, store.Key{Group: group, Name: name})
			return err
		}
		list := func(group string) error { _, err := s.List(ctx, group); return err }
		spanOf := func(log string) error { _, err := s.Span(ctx, log); return err }
		readOf := func(log string) error { _, err := s.Read(ctx, log, 0, 1); return err }
		for what, err := range map[string]error{
			"a value of no group":           val("", "n"),
			"a value without a name":        val("g", ""),
			"a long group":                  val(long, "n"),
			"a long name":                   val("g", long),
			"a name that is no text":        val("g", bad),
			"a list of no group":            list(""),
			"a list of a long group":        list(long),
			"a list of what is no text":     list(bad),
			"a change without writes":       apply(store.Change{Group: "g"}),
			"a change of no group":          apply(store.Change{Writes: many[:1]}),
			"a change of too many":          apply(store.Change{Group: "g", Writes: many}),
			"a change of one twice":         apply(store.Change{Group: "g", Writes: []store.Write{many[0], many[0]}}),
			"a write without a name":        apply(write1(store.Write{Data: []byte("x")})),
			"a write of a long name":        apply(write1(store.Write{Name: long, Data: []byte("x")})),
			"a write of what is no text":    apply(write1(store.Write{Name: bad, Data: []byte("x")})),
			"a value that is too long":      apply(write1(store.Write{Name: "n", Data: make([]byte, store.MaxValue+1)})),
			"a time before now":             apply(write1(store.Write{Name: "n", Data: []byte("x"), TTL: -1})),
			"a limit of no group":           take("", limits[0]),
			"too many limits":               take("g", limits...),
			"one limit twice":               take("g", limits[0], limits[0]),
			"a limit without a name":        take("g", limit("", time.Second, 1)),
			"a limit of nothing":            take("g", limit("l", time.Second, 0)),
			"a limit of less":               take("g", limit("l", time.Second, -1)),
			"a limit without a time":        take("g", limit("l", 0, 1)),
			"a limit of less than a moment": take("g", limit("l", time.Nanosecond, 1)),
			"a limit that never is whole":   take("g", limit("l", 365*24*time.Hour, 11)),
			"a limit beyond all numbers":    take("g", limit("l", time.Second, math.MaxInt)),
			"taking nothing":                wants(store.Want{Ahead: 1}),
			"taking less":                   wants(store.Want{Now: -1}),
			"taking less ahead":             wants(store.Want{Now: 1, Ahead: -1}),
			"taking too many":               wants(store.Want{Now: store.MaxPermits + 1}),
			"taking too many ahead":         wants(store.Want{Now: 1, Ahead: store.MaxPermits + 1}),
			"taking for less than no time":  wants(store.Want{Now: 1, Hold: -1}),
			"taking for ever":               wants(store.Want{Now: 1, Hold: math.MaxInt64}),
			"a log without a name":          s.Append(ctx, "", 0, []byte("x")),
			"a log of a long name":          s.Append(ctx, long, 0, []byte("x")),
			"a log that is no text":         s.Append(ctx, bad, 0, []byte("x")),
			"no entries":                    s.Append(ctx, "l", 0),
			"too many entries":              s.Append(ctx, "l", 0, make([][]byte, store.MaxAppend+1)...),
			"an entry that is too long":     s.Append(ctx, "l", 0, make([]byte, store.MaxEntry+1)),
			"entries that are too long":     s.Append(ctx, "l", 0, slices.Repeat([][]byte{make([]byte, store.MaxEntry)}, store.MaxBytes/store.MaxEntry+1)...),
			"the span of nothing":           spanOf(""),
			"reading nothing":               readOf(""),
			"reading what is no text":       readOf(bad),
			"trimming nothing":              s.Trim(ctx, "", 1),
			"a topic without a name":        s.Publish(ctx, "", nil),
			"a notice that is too long":     s.Publish(ctx, "t", make([]byte, store.MaxNotice+1)),
		} {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		if all, err := s.List(ctx, "g"); err != nil || len(all) != 0 {
			t.Errorf("something was stored: %v, %v", all, err)
		}
		if logs, err := s.Logs(ctx); err != nil || len(logs) != 0 {
			t.Errorf("a log was stored: %v, %v", logs, err)
		}
	})
}

func TestTheLargestValuesAreStored(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		key := strings.Repeat("k", store.MaxKey)
		big := bytes.Repeat([]byte("v"), store.MaxValue)
		if _, err := s.Apply(t.Context(), store.Change{Group: key, Writes: []store.Write{{Name: key, Data: big}}}); err != nil {
			t.Fatal(err)
		}
		if v := value(t, s, key, key); !bytes.Equal(v.Data, big) {
			t.Errorf("%d bytes came back", len(v.Data))
		}
		if err := s.Append(t.Context(), key, 0, big[:store.MaxEntry], big[:store.MaxEntry]); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Read(t.Context(), key, 1, 1); err != nil || len(got) != 1 || len(got[0].Data) != store.MaxEntry {
			t.Errorf("Read: %d entries, %v", len(got), err)
		}
		l := store.Limit{Name: key, Every: 365 * 24 * time.Hour, Burst: 10}
		for i := range l.Burst + 1 {
			_, wait, err := s.Take(t.Context(), key, store.Want{Now: 1}, l)
			if err != nil || (wait == 0) != (i < l.Burst) || wait > l.Every {
				t.Errorf("Take %d = %s, %v", i, wait, err)
			}
		}
		if err := s.Publish(t.Context(), key, big[:store.MaxNotice]); err != nil {
			t.Error(err)
		}
	})
}

// uses are all methods of a store.
func uses(s store.Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Value": func(ctx context.Context) error { _, err := s.Value(ctx, store.Key{Group: "g", Name: "n"}); return err },
		"List":  func(ctx context.Context) error { _, err := s.List(ctx, "g"); return err },
		"Apply": func(ctx context.Context) error {
			_, err := s.Apply(ctx, store.Change{Group: "g", Writes: []store.Write{{Name: "n", Was: store.Any, Data: []byte("new")}}})
			return err
		},
		"Take": func(ctx context.Context) error {
			_, _, err := s.Take(ctx, "g", store.Want{Now: 1}, store.Limit{Name: "l", Every: time.Hour, Burst: 1})
			return err
		},
		"Hold": func(ctx context.Context) error {
			_, _, err := s.Hold(ctx, "g", "h", store.HoldTerms{TTL: time.Hour}, account("a", 1, 1))
			return err
		},
		"Settle": func(ctx context.Context) error {
			_, err := s.Settle(ctx, "g", store.Settlement{ID: "h", Amounts: []int64{1}})
			return err
		},
		"Accounts": func(ctx context.Context) error { _, err := s.Accounts(ctx, "g"); return err },
		"Append":   func(ctx context.Context) error { return s.Append(ctx, "l", 1, []byte("new")) },
		"Read":     func(ctx context.Context) error { _, err := s.Read(ctx, "l", 0, 1); return err },
		"Span":     func(ctx context.Context) error { _, err := s.Span(ctx, "l"); return err },
		"Logs":     func(ctx context.Context) error { _, err := s.Logs(ctx); return err },
		"Trim":     func(ctx context.Context) error { return s.Trim(ctx, "l", 2) },
		"Publish":  func(ctx context.Context) error { return s.Publish(ctx, "t", nil) },
		"Check":    s.Check,
		"Export":   func(ctx context.Context) error { return store.Export(ctx, s, io.Discard) },
		"Import":   func(ctx context.Context) error { return store.Import(ctx, s, strings.NewReader("")) },
	}
}

func TestAClosedStoreIsUnavailable(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		write(t, s, "g", "n", "old")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for what, use := range uses(s) {
			if err := use(t.Context()); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s = %v, want ErrUnavailable", what, err)
			}
		}
		s.Subscribe("t", func([]byte) {})()
		if err := s.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
	})
}

func TestACancelledCallIsNotBegun(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		write(t, s, "g", "n", "old")
		add(t, s, "l", "one")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for what, use := range uses(s) {
			if err := use(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s = %v, want the error of the context", what, err)
			}
		}
		if v := value(t, s, "g", "n"); string(v.Data) != "old" {
			t.Errorf("the value is %s", v.Data)
		}
		if got := read(t, s, 0, 10); got != "1=one" {
			t.Errorf("the log is %s", got)
		}
		if _, wait, err := s.Take(t.Context(), "g", store.Want{Now: 1}, store.Limit{Name: "l", Every: time.Hour, Burst: 1}); wait != 0 || err != nil {
			t.Errorf("a cancelled Take was counted: %s, %v", wait, err)
		}
		wantSums(t, s, "")
	})
}

// The race detector checks this.
func TestACancelledCallSharesNoMemoryWithTheWriter(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		add(t, s, "l", "one")
		for what, use := range uses(s) {
			for i := range 40 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(i)*5*time.Microsecond, cancel)
				if err := use(ctx); errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s = %v", what, err)
				}
				cancel()
			}
		}
	})
}

func TestCallsBeforeCloseAreFinished(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend, open func() store.Store) {
		if !b.persistent {
			return
		}
		s := open()
		var made sync.Map
		var all sync.WaitGroup
		begun := make(chan struct{}, 64)
		for i := range 64 {
			all.Go(func() {
				for n := 0; ; n++ {
					name := fmt.Sprintf("%d.%d", i, n)
					_, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: name, Data: []byte(name)}}})
					if n == 0 {
						begun <- struct{}{}
					}
					if err != nil {
						if !errors.Is(err, store.ErrUnavailable) {
							t.Error(err)
						}
						return
					}
					made.Store(name, true)
				}
			})
		}
		for range 64 {
			<-begun
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		again := open()
		made.Range(func(name, _ any) bool {
			if v := value(t, again, "g", name.(string)); string(v.Data) != name {
				t.Errorf("%s was acknowledged, and is %q", name, v.Data)
			}
			return true
		})
	})
}

func TestStatusDescribesTheStore(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		st := s.Status()
		if st.Kind == "" || st.Where == "" || st.Survives == "" || st.Fault != "" || !st.Since.IsZero() {
			t.Errorf("Status = %+v", st)
		}
	})
}
