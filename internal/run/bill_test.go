package run_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/summit-switchboard/switchboard/internal/run"
)

// words counts a token for each word.
func words(text []byte) int { return len(bytes.Fields(text)) }

func TestABillHasTheCostOfEachItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := run.NewMeter(words)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go m.Run(ctx)
		m.Wake()
		var b run.Bill
		text := []byte("one two three")
		m.Charge(&b, run.Results, text)
		copy(text, "xxxxxxxxxxxxx") // as memory that is lent
		m.Charge(&b, run.Results, []byte("four"))
		m.Charge(&b, run.Searches, []byte("five six"))
		m.Charge(&b, run.Results, []byte(strings.Repeat("large ", 20_000)))
		synctest.Wait()
		for it, want := range map[run.Item]run.Charge{
			run.Results:  {Times: 3, Tokens: 4, Uncounted: 120_000},
			run.Searches: {Times: 1, Tokens: 2},
			run.Lists:    {},
		} {
			if got := b.Charge(it); got != want {
				t.Errorf("item %d: %+v, want %+v", it, got, want)
			}
		}
	})
}

func TestTextBeyondTheMetersRateIsEstimated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := run.NewMeter(words)
		m.Wake()
		var b run.Bill
		text := []byte(strings.Repeat("word ", 1000))
		for range 100 { // before Wake: the queue stays short
			m.Charge(&b, run.Results, text)
		}
		if got := b.Charge(run.Results); got.Times != 100 || !got.Estimated || got.Tokens != 100*5000/4 {
			t.Errorf("nothing is counted: %+v", got)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go m.Run(ctx)
		synctest.Wait()
		if got := b.Charge(run.Results); got.Times != 100 || !got.Estimated || got.Tokens != 100_000 {
			t.Errorf("some are counted: %+v", got)
		}
	})
}

func TestAMeterCountsNothingBeforeItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := run.NewMeter(func([]byte) int {
			t.Error("it counts")
			return 0
		})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go m.Run(ctx)
		var b run.Bill
		m.Charge(&b, run.Results, []byte("12345678"))
		synctest.Wait()
		if got := b.Charge(run.Results); got != (run.Charge{Times: 1, Tokens: 2, Estimated: true}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestANilMeterBillsNothing(t *testing.T) {
	var m *run.Meter
	var b run.Bill
	m.Charge(&b, run.Results, []byte("x"))
	m.ChargeList(&b, nil, true, nil)
	if got := b.Charge(run.Results); got != (run.Charge{}) {
		t.Errorf("%+v", got)
	}
}

// What a call pays for its bill: before anybody reads bills, while the Meter keeps up, and while
// it does not.
func BenchmarkCharge(b *testing.B) {
	text := bytes.Repeat([]byte("x"), 1024)
	for _, name := range []string{"asleep", "counted", "estimated"} {
		b.Run(name, func(b *testing.B) {
			m := run.NewMeter(func([]byte) int { return 0 })
			if name != "asleep" {
				m.Wake()
			}
			if name == "counted" {
				ctx, stop := context.WithCancel(b.Context())
				defer stop()
				go m.Run(ctx)
			}
			var bill run.Bill
			b.ReportAllocs()
			for b.Loop() {
				m.Charge(&bill, run.Results, text)
			}
		})
	}
}
