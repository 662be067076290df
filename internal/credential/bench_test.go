package credential

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// A countingStore counts what reads and changes the store.
type countingStore struct {
	*store.Memory
	used atomic.Int64
}

func (s *countingStore) Value(ctx context.Context, k store.Key) (store.Value, error) {
	s.used.Add(1)
	return s.Memory.Value(ctx, k)
}

func (s *countingStore) List(ctx context.Context, group string) ([]store.NamedValue, error) {
	s.used.Add(1)
	return s.Memory.List(ctx, group)
}

func (s *countingStore) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	s.used.Add(1)
	return s.Memory.Apply(ctx, c)
}

// connected returns a broker, the credentials of a server whose callers have connections of their own, and a call of one who has connected.
func connected(t testing.TB) (*Broker, *credentials, *switchboard.Call, *countingStore) {
	t.Helper()
	s := &countingStore{Memory: store.NewMemory()}
	v, err := vault.Open(context.Background(), s, vault.Options{Keys: []switchboard.Secret{switchboard.NewSecret("a secret of thirty-two bytes, or so")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close(); _ = s.Close() })
	b := NewBroker(Options{Vault: v})
	row := &switchboard.Server{
		ID: "tracker", Transport: switchboard.TransportHTTP, URL: "https://mcp.example.com/mcp",
		Credential: switchboard.Credential{Kind: switchboard.CredentialUser, Scopes: []string{"read"}},
	}
	c, _ := b.Of(row).(*credentials)
	call := &switchboard.Call{Server: row.ID, Principal: switchboard.Principal{Tenant: "acme", ID: "ann"}}
	made := vault.ServerConnection{Access: switchboard.NewSecret("a-token"), Grant: switchboard.NewSecret("{}"), Expires: time.Now().Add(time.Hour), Scopes: []string{"read"}}
	if _, err := v.Save(context.Background(), OwnerOf(row, &call.Principal), made); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(context.Background(), &call.Principal); err != nil {
		t.Fatal(err)
	}
	return b, c, call, s
}

// same is a recheck that checks nothing.
func same(next switchboard.Caller) switchboard.Caller { return next }

func TestACallWithAConnectionUsesNoStore(t *testing.T) {
	b, c, call, s := connected(t)
	before := s.used.Load()
	next := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		if shown, ok := c.Held(&call.Principal); !ok || shown.Token.Reveal() != "a-token" {
			t.Errorf("Held = %v, %v", shown, ok)
		}
		return switchboard.Result{}, nil
	})
	for range 100 {
		if _, err := b.ConnectFirst(func(string) string { return "" }, same, next).Call(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.used.Load() - before; n != 0 {
		t.Errorf("100 calls used the store %d times", n)
	}
}

// BenchmarkCall measures what a call to a hosted server costs beside one with a static header: the wrapper, and the token that the attempt and the request
// each look up.
func BenchmarkCall(b *testing.B) {
	broker, c, call, _ := connected(b)
	ctx := b.Context()
	static := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { return switchboard.Result{}, nil })
	hosted := broker.ConnectFirst(func(string) string { return "" }, same, switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		for range 2 {
			if _, ok := c.Held(&call.Principal); !ok {
				b.Fatal("there is no token")
			}
		}
		return switchboard.Result{}, nil
	}))
	for _, row := range []struct {
		name string
		call switchboard.Caller
	}{{"static", static}, {"static again", static}, {"hosted", hosted}, {"hosted again", hosted}} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := row.call.Call(ctx, call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
