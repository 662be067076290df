package link

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A modern server announces no change that happens before its acknowledgement.
func TestTheOfferIsListedAgainIfItMayHaveChangedBeforeTheAcknowledgement(t *testing.T) {
	for _, tt := range []struct {
		name   string
		listed bool // before the acknowledgement
		acks   int
		want   int
	}{
		{"it tells before it is asked what it offers", false, 1, 0},
		{"it was asked before", true, 1, 1},
		{"the stream was lost and is open again", false, 2, 1},
	} {
		asked := 0
		l := New(nil, nil, ClientInfo{}, "", func(ks switchboard.Kinds) {
			if ks == switchboard.AllKinds {
				asked++
			}
		})
		l.Listener.offerListed.Store(tt.listed)
		for range tt.acks {
			ours := &Request{Method: wire.MethodListen}
			l.Listener.acknowledge(wire.Message{Method: wire.MethodListenAcknowledged}, ours)
			l.Listener.acknowledge(wire.Message{Method: wire.MethodListenAcknowledged}, &Request{ctx: t.Context(), Method: wire.MethodListen, notifications: notificationQueue{notify: func(switchboard.Notification) {}}})
		}
		if asked != tt.want {
			t.Errorf("%s: %d requests, want %d", tt.name, asked, tt.want)
		}
	}
}
