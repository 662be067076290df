package heap

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoryIsFreedAfterABurstAndOnceMoreWhenItHasSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed []time.Duration
		start := time.Now()
		f := NewFreer(func() { freed = append(freed, time.Since(start)) })
		for range 10 {
			f.FreeSoon()
			time.Sleep(freeDelay / 2)
		}
		last := time.Since(start) - freeDelay/2
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []time.Duration{last + freeDelay, last + freeDelay + settleDelay}; !slices.Equal(freed, want) {
			t.Errorf("freed after %v, want %v", freed, want)
		}
	})
}

func TestABurstBeforeTheLastHasSettledIsABurstOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed []time.Duration
		start := time.Now()
		f := NewFreer(func() { freed = append(freed, time.Since(start)) })
		f.FreeSoon()
		time.Sleep(settleDelay)
		f.FreeSoon()
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []time.Duration{freeDelay, settleDelay + freeDelay, 2*settleDelay + freeDelay}; !slices.Equal(freed, want) {
			t.Errorf("freed after %v, want %v", freed, want)
		}
	})
}

func TestMemoryIsFreedTwiceAfterABurstThatBeginsWhileItIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *Freer
		var freed []time.Duration
		start := time.Now()
		f = NewFreer(func() {
			if freed = append(freed, time.Since(start)); len(freed) == 1 {
				f.FreeSoon()
			}
		})
		f.FreeSoon()
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []time.Duration{freeDelay, 2 * freeDelay, 2*freeDelay + settleDelay}; !slices.Equal(freed, want) {
			t.Errorf("freed after %v, want %v", freed, want)
		}
	})
}

func TestMemoryIsAlsoFreedDuringABurstWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed atomic.Int32
		f := NewFreer(func() { freed.Add(1) })
		for range 10 * int(freeInterval/freeDelay) {
			f.FreeSoon()
			time.Sleep(freeDelay / 2)
		}
		if n := freed.Load(); n < 4 || n > 5 {
			t.Errorf("freed %d times in five intervals", n)
		}
	})
}

func TestMemoryIsFreedOnlySoOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed atomic.Int32
		f := NewFreer(func() { freed.Add(1) })
		for range 100 * int(freeInterval/(2*freeDelay)) {
			f.FreeSoon()
			time.Sleep(2 * freeDelay)
		}
		if n := freed.Load(); n < 95 || n > 100+freeBurst {
			t.Errorf("freed %d times in a hundred intervals", n)
		}
		time.Sleep(time.Hour)
		was := freed.Load()
		f.FreeSoon()
		time.Sleep(time.Hour)
		if n := freed.Load() - was; n != 2 {
			t.Errorf("freed %d times for the last garbage, want 2", n)
		}
	})
}

func TestMemoryIsFreedAgainAtOnceIfThatTakesAsUsual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed atomic.Int32
		f := NewFreer(func() {
			time.Sleep(freeUsual)
			freed.Add(1)
		})
		for n := range int32(freeBurst) {
			f.FreeSoon()
			time.Sleep(freeDelay + freeUsual + time.Millisecond)
			if got := freed.Load(); got != n+1 {
				t.Fatalf("freed %d times after %d bursts", got, n+1)
			}
		}
	})
}

func TestMemoryIsFreedSeldomIfThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 2 * time.Second // the heap has gigabytes
		var freed atomic.Int32
		f := NewFreer(func() {
			freed.Add(1)
			time.Sleep(takes)
		})
		for range int(time.Hour / time.Second) {
			f.FreeSoon()
			time.Sleep(time.Second)
		}
		if n, most := freed.Load(), int32(time.Hour/(freeShare*(takes-freeUsual)))+1; n < most-1 || n > most {
			t.Errorf("freed %d times in an hour, want %d", n, most)
		}
		time.Sleep(time.Hour)
		was := freed.Load()
		f.FreeSoon()
		time.Sleep(time.Hour)
		if n := freed.Load() - was; n != 2 {
			t.Errorf("freed %d times for the last garbage, want 2", n)
		}
	})
}
