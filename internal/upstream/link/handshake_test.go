package link

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
)

func TestTheVersionOfAServerIsPartOfItsOfferAndBounded(t *testing.T) {
	long := strings.Repeat("1", 127) + "é"
	for said, want := range map[string]string{`"1.0.0"`: "1.0.0", `"` + long + `"`: long[:127], `1`: "", `null`: ""} {
		h := parseHello(slog.New(slog.DiscardHandler), mask.New(&switchboard.Server{}), "2025-11-25", []byte(`{}`), []byte(`{"name":"x","version":`+said+`}`), []byte(`{}`))
		if h.Release != want {
			t.Errorf("%s is parsed as %q, want %q", said, h.Release, want)
		}
	}
	if a, b := (switchboard.Offer{Version: "1"}), (switchboard.Offer{Version: "2"}); SameOffer(&a, &b) || !SameOffer(&a, &a) {
		t.Error("the offer of an updated server has not changed")
	}
}

func TestAProgramHasFiveMinutesToReadItsFirstMessageAndThenAMinuteToAnswer(t *testing.T) {
	for name, tt := range map[string]struct{ reads, ends time.Duration }{
		"it reads at once":           {0, time.Minute},
		"it is downloaded before":    {3 * time.Minute, 4 * time.Minute},
		"it reads at the last point": {299 * time.Second, 6*time.Minute - time.Second},
		"it never reads":             {time.Hour, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := boundStart(t.Context(), func() bool { return time.Since(began) < tt.reads })
				defer cancel()
				<-ctx.Done()
				if took := time.Since(began); took < tt.ends-2*time.Second || took > tt.ends {
					t.Errorf("its start is given up after %s, want %s", took, tt.ends)
				}
			})
		})
	}
}
