package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/history"
)

func TestTheHistoryIsATableWithOneRowForEachTenantAndServer(t *testing.T) {
	from := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	point := func(hours int, t history.Tally) history.Point {
		return history.Point{Start: from.Add(time.Duration(hours) * time.Hour), Tally: t}
	}
	// Latencies up to 1, 2.5, 5, 10, 25 and 50 ms.
	fast := func(n int64) history.Tally {
		return history.Tally{Calls: n, Buckets: append([]int64{0, 0, 0, n}, make([]int64, 12)...)}
	}
	past := history.Excerpt{
		Step: "1m", From: from, To: from.Add(24 * time.Hour), StoreAway: true, Incomplete: true,
		Series: []history.TimeSeries{
			{Points: []history.Point{point(23, fast(2))}},
			{Tenant: "acme", Server: "files", Points: []history.Point{
				point(0, fast(1)), point(1, fast(80)), point(12, history.Tally{Calls: 40, Failed: 3, Refused: 2, Moved: 1, Buckets: append([]int64{0, 0, 0, 0, 38}, make([]int64, 11)...)}),
			}},
			{Tenant: "acme", Server: "search", Points: []history.Point{point(24, history.Tally{Calls: 1, Refused: 1})}}, // by another clock
		},
	}
	var out strings.Builder
	writeHistory(streams{out: &out}, &past)
	golden(t, "testdata/history.golden", out.String())
	out.Reset()
	writeHistory(streams{out: &out}, &history.Excerpt{Step: "10s", From: from, To: from.Add(time.Hour)})
	if want := "2026-11-27 00:00:00 to 2026-11-27 01:00:00, in steps of 10s\nThere were no calls.\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

func TestFlagsOfTheHistoryNeedIt(t *testing.T) {
	for _, flag := range []string{"--json", "--step=1m", "--server=files", "--since=1h", "--until=1h"} {
		var said strings.Builder
		code := run(t.Context(), []string{"metrics", flag, "--url", "http://127.0.0.1:1"}, streams{in: strings.NewReader(""), out: io.Discard, err: &said, raw: io.Discard})
		if code != exitUsage || !strings.Contains(said.String(), "--history") {
			t.Errorf("%s: %d %s", flag, code, said.String())
		}
	}
	if !slices.Equal(history.Names(), []string{"10s", "1m", "15m"}) {
		t.Errorf("the help of --step does not name %v", history.Names())
	}
}
