package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/health"
)

func TestStatusWatchRunsUntilItIsStoppedWithoutFailure(t *testing.T) {
	for _, tt := range []struct {
		name     string
		json     bool
		terminal bool
		begins   string // the beginning of each block
	}{
		{"into a file", false, false, "20"}, // the beginning of the year
		{"on a terminal", false, true, clearScreen + "switchboard v7.7"},
		{"as JSON", true, false, `{"version":"v7.7"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				switch asked.Add(1) {
				case 2: // as during a restart
					w.WriteHeader(http.StatusServiceUnavailable)
				case 4:
					stop()
				default:
					_, _ = w.Write([]byte(`{"version":"v7.7","servers":[{"id":"s","state":"retrying"}]}`))
				}
			}))
			defer server.Close()
			var out, raw strings.Builder
			io := streams{out: &out, err: &out, raw: &out}
			if tt.terminal {
				io = streams{out: speller{&raw, true}, err: speller{&raw, true}, raw: &raw}
			}
			s := statusCmd{serverFlags: serverFlags{locationFlags: locationFlags{URL: server.URL}, outputFlags: outputFlags{JSON: tt.json}}}
			if err := s.printRepeatedly(ctx, io, time.Millisecond); err != nil {
				t.Errorf("after the stop: %v", err)
			}
			got := out.String() + raw.String()
			if n := strings.Count(got, "v7.7"); n != 2 || !strings.HasPrefix(got, tt.begins) || !strings.Contains(got, "503 Service Unavailable") {
				t.Errorf("%d blocks: %q", n, got)
			}
			if n := strings.Count(got, clearScreen); tt.terminal != (n == 3) {
				t.Errorf("cleared %d times", n)
			}
		})
	}
}

func TestStatusWatchFailsIfTheFirstRequestFails(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	s := statusCmd{serverFlags: serverFlags{locationFlags: locationFlags{URL: server.URL}}}
	if err := s.printRepeatedly(t.Context(), streams{}, time.Millisecond); !errors.As(err, new(unreachableError)) {
		t.Errorf("error %v, want an unreachableError", err)
	}
}

func TestTheShareOfMovedCallsIsAPlainNumber(t *testing.T) {
	for _, tt := range []struct {
		moved, calls int64
		want         string
	}{
		{0, 5, ""},
		{1, 1, "100 % of 1 call"},
		{11, 13, "85 % of 13 calls"},
		{1, 1000, "0.1 % of 1000 calls"},
	} {
		if got := movedText(&health.Status{Calls: tt.calls, MovedAway: tt.moved}); got != tt.want {
			t.Errorf("%d of %d: %q, want %q", tt.moved, tt.calls, got, tt.want)
		}
	}
}
