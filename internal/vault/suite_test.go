package vault_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// shared lives as long as all tests.
var shared redistest.Process

func TestMain(m *testing.M) {
	switch os.Getenv("VAULT_TEST_CHILD") {
	case "renew":
		runChild(os.Getenv("VAULT_TEST_STORE"), os.Getenv("VAULT_TEST_PROVIDER"))
	case "key":
		printKeys(os.Getenv("VAULT_TEST_STORE"))
		return
	}
	code := m.Run()
	shared.End()
	os.Exit(code)
}

var oneRedis = sync.OnceValue(func() string { return redistest.Start(&shared, "--appendfsync", "everysec").URL() })

var prefixes atomic.Int32

// A backend opens one empty store, as often as it is called. All that it opens share what they hold.
type backend struct {
	name     string
	newStore func(t *testing.T) (open func() store.Store)
}

var backends = []backend{
	{"memory", func(t *testing.T) func() store.Store {
		s := closed(t, store.NewMemory())
		return func() store.Store { return s }
	}},
	{"file", func(t *testing.T) func() store.Store {
		path := filepath.Join(t.TempDir(), "store.db")
		return func() store.Store {
			s, err := store.OpenFile(path, store.FileOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return closed(t, s)
		}
	}},
	{"redis", func(t *testing.T) func() store.Store {
		redistest.Need(t)
		prefix := fmt.Sprint("vault", prefixes.Add(1))
		return func() store.Store {
			s, err := store.OpenRedis(t.Context(), oneRedis(), store.RedisOptions{Prefix: prefix, Relaxed: true})
			if err != nil {
				t.Fatal(err)
			}
			return closed(t, s)
		}
	}},
}

// closed closes s when the test ends.
func closed(t *testing.T, s store.Store) store.Store {
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// onEach runs f for each backend, with a function that opens its store.
func onEach(t *testing.T, f func(t *testing.T, open func() store.Store)) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) { f(t, b.newStore(t)) })
	}
}

var key = secret("the key of the tests")

func secret(text string) switchboard.Secret { return switchboard.NewSecret(text) }

func openVault(t testing.TB, s vault.Store, o vault.Options) *vault.Vault {
	t.Helper()
	if o.Keys == nil {
		o.Keys = []switchboard.Secret{key}
	}
	v, err := vault.Open(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

var ann = vault.Owner{Tenant: "acme", Person: "idp/ann", Server: "tracker", Resource: "https://tracker.example/mcp"}

// save keeps a connection whose token expires after d.
func save(t testing.TB, v *vault.Vault, o vault.Owner, access, grant string, d time.Duration) vault.ServerConnection {
	t.Helper()
	c, err := v.Save(t.Context(), o, vault.ServerConnection{Access: secret(access), Grant: secret(grant), Expires: time.Now().Add(d), Label: "Ann"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// never is an Ask that must not be called.
func never(t testing.TB) vault.Ask {
	return func(context.Context, vault.ServerConnection) (vault.ServerConnection, error) {
		t.Error("the provider was asked")
		return vault.ServerConnection{}, vault.ErrNotSent
	}
}

func TestAConnectionIsServedRenewedAndDeleted(t *testing.T) {
	onEach(t, func(t *testing.T, open func() store.Store) {
		one, two := openVault(t, open(), vault.Options{}), openVault(t, open(), vault.Options{})
		ctx := t.Context()
		if _, err := one.Token(ctx, ann, never(t)); !errors.Is(err, vault.ErrNone) {
			t.Errorf("Token without a connection = %v, want ErrNone", err)
		}
		c := save(t, one, ann, "a1", "g1", time.Hour)
		for _, v := range []*vault.Vault{one, two} {
			got, err := v.Token(ctx, ann, never(t))
			if err != nil || got.Access.Reveal() != "a1" || got.Generation != c.Generation {
				t.Fatalf("Token = %v %v", got.Access.Reveal(), err)
			}
		}
		got, err := two.Renew(ctx, ann, c.Generation, func(_ context.Context, c vault.ServerConnection) (vault.ServerConnection, error) {
			if c.Grant.Reveal() != "g1" {
				t.Errorf("the grant is %q", c.Grant.Reveal())
			}
			return vault.ServerConnection{Access: secret("a2"), Grant: secret("g2"), Expires: time.Now().Add(time.Hour)}, nil
		})
		if err != nil || got.Access.Reveal() != "a2" {
			t.Fatalf("Renew = %q %v", got.Access.Reveal(), err)
		}
		if got, err := one.Renew(ctx, ann, c.Generation, never(t)); err != nil || got.Access.Reveal() != "a2" {
			t.Errorf("a second Renew of one generation = %q %v", got.Access.Reveal(), err)
		}
		all, err := one.List(ctx)
		if err != nil || len(all) != 1 || all[0].Owner != ann || all[0].Label != "Ann" || all[0].Again || all[0].Unreadable {
			t.Errorf("List = %+v %v", all, err)
		}
		was, err := one.Delete(ctx, ann)
		if err != nil || was.Grant.Reveal() != "g2" || was.Access.Reveal() != "a2" {
			t.Errorf("Delete = %q %q %v", was.Grant.Reveal(), was.Access.Reveal(), err)
		}
		if _, ok := one.Access(ann); ok {
			t.Error("a deleted connection is served")
		}
		if _, err := one.Delete(ctx, ann); !errors.Is(err, vault.ErrNone) {
			t.Errorf("a second Delete = %v", err)
		}
		begun := time.Now()
		for {
			if _, ok := two.Access(ann); !ok {
				break
			}
			if time.Since(begun) > time.Second {
				wait.Late(t, "another replica serves a deleted connection after %s", time.Since(begun))
			}
			<-time.After(5 * time.Millisecond)
		}
	})
}

func TestATicketIsUsedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, open func() store.Store) {
		vaults := []*vault.Vault{openVault(t, open(), vault.Options{}), openVault(t, open(), vault.Options{}), openVault(t, open(), vault.Options{})}
		id, err := vaults[0].NewTicket(t.Context(), ann, []byte("verifier"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := vaults[1].ReadTicket(t.Context(), id); err != nil || got.Owner != ann || string(got.Data) != "verifier" {
			t.Errorf("ReadTicket = %+v %v", got, err)
		}
		var used atomic.Int32
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				switch _, err := vaults[i%3].UseTicket(t.Context(), id); {
				case err == nil:
					used.Add(1)
				case !errors.Is(err, vault.ErrNone):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if used.Load() != 1 {
			t.Errorf("the ticket was used %d times", used.Load())
		}
		for _, id := range []string{id, "", "x", id + "x"} {
			if _, err := vaults[0].ReadTicket(t.Context(), id); !errors.Is(err, vault.ErrNone) {
				t.Errorf("ReadTicket(%q) = %v", id, err)
			}
		}
	})
}
