package link

import (
	"context"
	"errors"
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

func TestTheDefinitionsFromWhichCharactersWereRemovedAreKeptAsSent(t *testing.T) {
	plain, odd := []byte(`{"name":"plain"}`), []byte(`{"name":"o\u200bdd","title":"a\u202eb"}`)
	clean, note, sent := cleanItems(switchboard.Tools, [][]byte{plain, odd})
	if string(clean[1]) != `{"name":"o\u200bdd","title":"ab"}` || note == "" || len(sent) != 1 || string(sent["o\u200bdd"]) != string(odd) {
		t.Errorf("%s, %q, %q", clean, note, sent)
	}
	if a, b := (switchboard.Offer{Uncleaned: sent}), (switchboard.Offer{Tools: nil}); SameOffer(&a, &b) || !SameOffer(&a, &a) {
		t.Error("an offer with other invisible characters has not changed")
	}
}

func TestAProgramHasFiveMinutesToReadItsFirstMessageAndThenAMinuteToAnswer(t *testing.T) {
	const never = time.Hour
	for name, tt := range map[string]struct {
		reads, stops, ends time.Duration // it reads until it stops
		unread             bool          // is the cause
	}{
		"it reads at once":           {0, never, time.Minute, false},
		"it is downloaded before":    {3 * time.Minute, never, 4 * time.Minute, false},
		"it reads at the last point": {298 * time.Second, never, 358 * time.Second, false},
		"and leaves a later message": {298 * time.Second, 299 * time.Second, 358 * time.Second, false},
		"it hangs after its first":   {0, 3 * time.Second, time.Minute, false},
		"it never reads":             {never, never, 5 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := boundStart(t.Context(), func() bool { return time.Since(began) < tt.reads || time.Since(began) >= tt.stops })
				defer cancel()
				<-ctx.Done()
				if took := time.Since(began); took < tt.ends-2*time.Second || took > tt.ends {
					t.Errorf("its start is given up after %s, want %s", took, tt.ends)
				}
				if got := errors.Is(context.Cause(ctx), errUnread); got != tt.unread {
					t.Errorf("the cause is %v", context.Cause(ctx))
				}
			})
		})
	}
}

func TestAStartThatIsGivenUpLeavesNothingThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if a goroutine stays
		for _, gone := range []bool{false, true} {
			parent, leave := context.WithCancel(t.Context())
			ctx, cancel := boundStart(parent, func() bool { return true })
			time.Sleep(10 * time.Second)
			if gone {
				leave()
			} else {
				cancel()
			}
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), errUnread) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			leave()
			cancel()
		}
	})
}
