package run_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// listedSurface has one tool of a server whose full list has 1,000 tokens, and one of our own. A definition has a token for each word.
func listedSurface(count func([]byte) int) *surface.Surface {
	own := &switchboard.Tool{ID: switchboard.ToolID{Name: "own"}, Definition: []byte(`{"name":"own" }`)}
	tool := &switchboard.Tool{ID: switchboard.ToolID{Server: "files", Name: "read"}, Definition: []byte(`{"name":"read" , "x":1}`)}
	return surface.New(surface.Input{
		Task: &switchboard.Task{ID: "t", Requirements: make([]switchboard.Requirement, 1)}, Selected: []decide.Selected{{Tool: tool, Requirements: []int{0}}}, Own: []*switchboard.Tool{own},
		Count: count, OfferTokens: func(switchboard.ServerID) int { return 1000 },
	})
}

func TestAListMeterCountsBothSidesOfEachListAndTheSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got switchboard.ListCost
		var counts atomic.Int64
		count := func(text []byte) int { counts.Add(1); return words(text) }
		m := run.NewListMeter(count, func(tenant switchboard.TenantID, n switchboard.ListCost) {
			if tenant != "acme" {
				t.Errorf("tenant %q", tenant)
			}
			got.Lists, got.Tokens, got.Full, got.Uncounted = got.Lists+n.Lists, got.Tokens+n.Tokens, got.Full+n.Full, got.Uncounted+n.Uncounted
		}, func() { t.Error("it took long") })
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.Run(ctx); close(done) }()
		s := listedSurface(count)
		for range 5 {
			m.NoteList("acme", s, true)
		}
		text := []byte("one two three")
		m.NoteSearch("acme", text)
		copy(text, "xxxxxxxxxxxxx") // as memory that is lent
		m.NoteList("acme", surface.New(surface.Input{Own: []*switchboard.Tool{{ID: switchboard.ToolID{Name: "own"}, Definition: []byte(`{}`)}}}), true)
		stop()
		<-done
		m.Close()
		if want := (switchboard.ListCost{Lists: 5, Tokens: 5*(2+3) + 3, Full: 5000}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if counts.Load() != 3 { // two definitions and a search
			t.Errorf("%d texts were counted", counts.Load())
		}
	})
}

func TestAnExchangeThatCannotBeCountedIsInNoSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got switchboard.ListCost
		long := 0
		m := run.NewListMeter(func([]byte) int { time.Sleep(time.Second); return 7 }, func(_ switchboard.TenantID, n switchboard.ListCost) {
			got.Lists, got.Tokens, got.Full, got.Uncounted = got.Lists+n.Lists, got.Tokens+n.Tokens, got.Full+n.Full, got.Uncounted+n.Uncounted
		}, func() { long++ })
		s := listedSurface(words)
		m.NoteSearch("acme", make([]byte, 5<<20)) // more than may wait
		for range 5000 {
			m.NoteList("acme", s, false)
		}
		if want := (switchboard.ListCost{Uncounted: 1 + 5000 - 4096}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		m.Close() // what waits is counted before the end
		for range 5 {
			m.NoteSearch("acme", []byte("x"))
		}
		m.Close() // but not for long
		want := switchboard.ListCost{Lists: 4096, Tokens: 4096*5 + 3*7, Full: 4096 * 1000, Uncounted: 905 + 2}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if long != 3 { // the searches
			t.Errorf("%d counts took long", long)
		}
	})
}

func BenchmarkNoteList(b *testing.B) {
	m := run.NewListMeter(words, func(switchboard.TenantID, switchboard.ListCost) {}, func() {})
	go m.Run(b.Context())
	s := listedSurface(words)
	b.ReportAllocs()
	for b.Loop() {
		m.NoteList("acme", s, true)
	}
}
