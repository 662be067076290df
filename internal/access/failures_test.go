package access

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestAttack11GuessingKeysIsSlowAndFillsNoLogOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Failures
		here, there := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
		waits, lines, told := 0, 0, 0
		fail := func(from netip.Prefix, times int) {
			for range times {
				wait, tell := f.Count(from)
				if wait > 0 {
					waits++
				}
				if tell > 0 {
					lines++
				}
				told += tell
			}
		}
		want := func(when string, w, l, n int) {
			t.Helper()
			if waits != w || lines != l || told != n {
				t.Errorf("%s: %d waited, %d lines report %d failures; want %d, %d, %d", when, waits, lines, told, w, l, n)
			}
		}
		fail(here, 10)
		want("ten", 0, 1, 1)
		fail(here, 490)
		want("five hundred", 490, 1, 1)
		fail(there, 1)
		want("one from elsewhere", 490, 2, 2)
		time.Sleep(time.Minute)
		fail(here, 1)
		want("a minute later", 490, 3, 502)
	})
}

func TestAttack11FailuresFromManyNetworksAreCountedInBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Failures
		for i := range 3 * maxFailed {
			f.Count(netip.MustParsePrefix(fmt.Sprintf("2001:db8:%x:%x::/64", i>>12, i&0xfff)))
		}
		if len(f.byNetwork) > maxFailed+1 {
			t.Errorf("%d networks are kept", len(f.byNetwork))
		}
		if wait, tell := f.Count(netip.MustParsePrefix("192.0.2.9/32")); wait == 0 || tell != 0 {
			t.Errorf("a network that is counted with others: waits %v, logs %d", wait, tell)
		}
		time.Sleep(time.Minute)
		if wait, tell := f.Count(netip.MustParsePrefix("192.0.2.9/32")); wait != 0 || tell != 1 || len(f.byNetwork) != 1 {
			t.Errorf("a minute later: waits %v, logs %d, %d networks are kept", wait, tell, len(f.byNetwork))
		}
	})
}
