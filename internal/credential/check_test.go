package credential

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// goneStore is a store that can become unavailable.
type goneStore struct {
	*store.Memory
	gone bool
}

func (s *goneStore) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if s.gone {
		return store.Value{}, store.ErrUnavailable
	}
	return s.Memory.Value(ctx, k)
}

func TestAConnectionIsOfUseOnlyIfATokenExistsOrCanBeRenewed(t *testing.T) {
	const canary = "canary-5b1e77"
	const remedy = "switchboard server connect tracker"
	for _, kind := range []switchboard.CredentialKind{"", switchboard.CredentialOperator, switchboard.CredentialUser} {
		t.Run("of kind "+string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &goneStore{Memory: store.NewMemory()}
				v, err := vault.Open(t.Context(), s, vault.Options{Keys: []switchboard.Secret{switchboard.NewSecret("a secret of thirty-two bytes, or so")}})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { v.Close(); _ = s.Close() }()
				b := NewBroker(Options{Vault: v})
				row := &switchboard.Server{ID: "tracker", Transport: switchboard.TransportHTTP, URL: "https://mcp.example.com/mcp", Credential: switchboard.Credential{Kind: kind}}
				check := func(when, want string, wantKnown bool) {
					t.Helper()
					why, known := CheckConnection(t.Context(), b, row.ID)
					if known != wantKnown || (why == "") != (want == "") || !strings.Contains(why, want) || strings.Contains(why, canary) {
						t.Errorf("%s: %q, known %v; want %q, known %v", when, why, known, want, wantKnown)
					}
				}
				check("before the server is configured", "", false)
				b.Of(row)
				s.gone = true
				check("without the store", "", false)
				s.gone = false
				check("before a connection", remedy, true)
				check("and once more", remedy, true)
				owner := OwnerOf(row, nil)
				save := func(lasts time.Duration) {
					t.Helper()
					made := vault.ServerConnection{Access: switchboard.NewSecret(canary), Grant: switchboard.NewSecret(canary), Expires: time.Now().Add(lasts)}
					if _, err := v.Save(t.Context(), owner, made); err != nil {
						t.Fatal(err)
					}
				}
				save(time.Hour)
				check("connected", "", true)
				time.Sleep(2 * time.Hour) // what was kept with the connection cannot be read, so it cannot be renewed
				check("expired", remedy, true)
				save(time.Hour)
				check("connected again", "", true)
				if _, err := v.Delete(t.Context(), owner); err != nil {
					t.Fatal(err)
				}
				check("disconnected", remedy, true)
			})
		})
	}
}
