package link

import (
	"log/slog"
	"strings"
	"testing"

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
