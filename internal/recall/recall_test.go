package recall

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

// A fakeFleet has one connected server, which offers one tool.
type fakeFleet struct{ server switchboard.Server }

func (f fakeFleet) Remembered(id switchboard.ServerID) (switchboard.Server, upstream.ServerMemory, bool) {
	return f.server, upstream.ServerMemory{Offer: switchboard.Offer{Server: id, Tools: [][]byte{[]byte(`{"name":"x"}`)}}}, id == f.server.ID
}

func TestAnOfferIsUsedAgainIfTheServerIsConfiguredAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, key, log := store.NewMemory(), switchboard.NewSecret("k"), slog.New(slog.DiscardHandler)
		server := switchboard.Server{ID: "a", Command: []string{"a"}, Env: map[string]switchboard.Secret{"TOKEN": switchboard.NewSecret("xyzzy")}}
		before := New(st, key, log)
		ctx, stop := context.WithCancel(t.Context())
		kept := make(chan struct{})
		go func() { defer close(kept); before.KeepOffers(ctx, fakeFleet{server}) }()
		before.Answered("a")
		before.Answered("gone") // it has been lost since
		synctest.Wait()
		stop()
		<-kept

		after := New(st, key, log)
		if _, ok := after.Offer(&server); ok {
			t.Error("an offer is used before it was read")
		}
		after.ReadOffers(t.Context())
		if m, ok := after.Offer(&server); !ok || len(m.Offer.Tools) != 1 {
			t.Errorf("the remembered offer is %+v, %v", m, ok)
		}
		for name, other := range map[string]switchboard.Server{
			"with another secret":  {ID: "a", Command: []string{"a"}, Env: map[string]switchboard.Secret{"TOKEN": switchboard.NewSecret("plugh")}},
			"with another command": {ID: "a", Command: []string{"b"}, Env: server.Env},
			"of another name":      {ID: "gone", Command: []string{"a"}, Env: server.Env},
		} {
			if _, ok := after.Offer(&other); ok {
				t.Errorf("the offer is used for a server %s", name)
			}
		}
	})
}

func TestAnOfferThatAnotherProcessHasSeenIsKeptIfTheServerIsConfiguredAsThere(t *testing.T) {
	server := switchboard.Server{ID: "a", Command: []string{"a"}, Env: map[string]switchboard.Secret{"TOKEN": switchboard.NewSecret("xyzzy")}}
	other := switchboard.Server{ID: "a", Command: []string{"a"}}
	unseen := switchboard.Server{ID: "b", Command: []string{"b"}}
	seen := See(fakeFleet{server}, []switchboard.Server{server, unseen})
	for _, c := range []struct {
		now  switchboard.Server
		kept bool
	}{{server, true}, {other, false}} {
		m := New(store.NewMemory(), switchboard.NewSecret("k"), slog.New(slog.DiscardHandler))
		now := []switchboard.Server{c.now, unseen}
		if err := m.KeepSeen(t.Context(), seen, now); err != nil {
			t.Fatal(err)
		}
		m.ReadOffers(t.Context())
		if _, kept := m.Offer(&now[0]); kept != c.kept {
			t.Errorf("the offer of %+v is kept: %v, want %v", c.now, kept, c.kept)
		}
		if left := len(*m.offers.Load()); left > 0 != c.kept {
			t.Errorf("the store has %d offers for %+v", left, c.now)
		}
	}
}

func TestAManifestThatCannotBeReadIsReplacedByItsKeptCopy(t *testing.T) {
	m := New(store.NewMemory(), switchboard.NewSecret("k"), slog.New(slog.DiscardHandler))
	good := &config.Config{Manifests: map[switchboard.ServerID]config.Manifest{"a": {Digest: "https://a.example/m", Data: []byte(`{"tools":[]}`)}}}
	m.KeepManifests(t.Context(), good, nil)
	for of, recalled := range map[string]bool{"https://a.example/m": true, "https://other.example/m": false} {
		bad := &config.Config{Manifests: map[switchboard.ServerID]config.Manifest{"a": {Digest: of, Fault: "it cannot be read"}}}
		m.RecallManifests(t.Context(), bad)
		if got := string(bad.Manifests["a"].Data) == `{"tools":[]}`; got != recalled {
			t.Errorf("a manifest of %s is recalled: %v, want %v: %+v", of, got, recalled, bad.Manifests["a"])
		}
	}
}
