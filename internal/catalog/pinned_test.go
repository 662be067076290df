package catalog_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/pin"
	"github.com/summit-switchboard/switchboard/internal/scan/suspect"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/system"
)

// BenchmarkBuildWithPins builds the snapshot of the real tools from offers, as after a start: all of them are admitted, and their pins are read already. ratio is the time with pins
// to the time without, of builds in turn; cpu-ratio that of processor times, which says more on a machine that does other work.
func BenchmarkBuildWithPins(b *testing.B) {
	r := realCatalog(b)
	offers := make([]switchboard.Offer, len(r.sources))
	for i, s := range r.sources {
		offers[i] = s.Offer
	}
	terms := termsOf()
	build := func(offers []switchboard.Offer) {
		sources := slices.Clone(r.sources)
		for i := range sources {
			sources[i].Offer = offers[i]
		}
		if s := catalog.Build(sources, r.overlays, r.tax); len(s.Tools()) < 9_000 {
			b.Fatal("tools are missing")
		}
	}
	st := store.NewMemory()
	open := func(st store.Store) *pin.Board {
		board := pin.New(pin.Options{Store: st, Self: "a", Log: slog.New(slog.DiscardHandler)})
		board.Read(b.Context())
		return board
	}
	began := time.Now()
	open(st).Admit(b.Context(), offers, terms)
	firstSight := time.Since(began)

	b.Run("all real tools", func(b *testing.B) {
		type cost struct{ clock, processor time.Duration }
		timed := func(sum *cost, do func()) {
			runtime.GC() // what was read before is no part of it
			began, used := time.Now(), system.ProcessorTime()
			do()
			sum.clock += time.Since(began)
			sum.processor += system.ProcessorTime() - used
		}
		var with, without cost
		for b.Loop() {
			timed(&without, func() { build(offers) })
			board := open(st)
			timed(&with, func() { build(board.Admit(b.Context(), offers, terms)) })
		}
		b.ReportMetric(float64(with.clock)/float64(without.clock), "ratio")
		b.ReportMetric(float64(with.processor)/float64(without.processor), "cpu-ratio")
		b.ReportMetric(float64(without.processor.Milliseconds())/float64(b.N), "cpu-ms-without")
		b.ReportMetric(float64(with.processor.Milliseconds())/float64(b.N), "cpu-ms-with")
		b.ReportMetric(float64(firstSight.Milliseconds()), "ms-first-sight")
	})
	bySize := slices.SortedFunc(slices.Values(offers), func(x, y switchboard.Offer) int { return len(x.Tools) - len(y.Tools) })
	for _, o := range []switchboard.Offer{bySize[len(bySize)/2], bySize[len(bySize)-1]} {
		b.Run(fmt.Sprintf("one tool of %d changes", len(o.Tools)), func(b *testing.B) {
			board := open(st)
			changed := [2]switchboard.Offer{o, o}
			changed[1].Tools = slices.Clone(o.Tools)
			changed[1].Tools[0] = []byte(strings.Replace(string(o.Tools[0]), `"name"`, `"title":"changed","name"`, 1))
			for i := 0; b.Loop(); i++ {
				passed := board.Admit(b.Context(), []switchboard.Offer{changed[i%2]}, terms)
				if frozen := len(passed[0].Admissions) == 1; frozen != (i%2 == 1) {
					b.Fatalf("it is frozen: %v", frozen)
				}
			}
		})
	}
}

// termsOf returns the terms of first_use, with the rules that look for blocking findings.
func termsOf() func(*switchboard.Offer) admission.OfferTerms {
	return func(*switchboard.Offer) admission.OfferTerms {
		return admission.OfferTerms{FindBlocking: func(_ admission.PinKey, definition []byte) string { return suspect.FindBlocking(definition) }}
	}
}
