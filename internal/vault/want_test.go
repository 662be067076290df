package vault_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

func TestWhatAServerWantsIsKeptUntilTheNextConsentAndChangesNoToken(t *testing.T) {
	s := closed(t, store.NewMemory())
	open := func() *vault.Vault {
		v, err := vault.Open(t.Context(), s, vault.Options{Keys: []switchboard.Secret{switchboard.NewSecret("a secret of thirty-two bytes, or so")}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		return v
	}
	here, elsewhere := open(), open()
	owner := vault.Owner{Server: "wiki", Resource: "https://wiki.example/mcp"}
	if err := here.Want(t.Context(), owner, []string{"write"}); !errors.Is(err, vault.ErrNone) {
		t.Errorf("without a connection: %v", err)
	}
	made, err := here.Save(t.Context(), owner, vault.ServerConnection{Access: switchboard.NewSecret("a"), Scopes: []string{"read"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, scopes := range [][]string{{"write"}, {"write", "admin"}, {"write"}} {
		if err := here.Want(t.Context(), owner, scopes); err != nil {
			t.Fatal(err)
		}
	}
	got, err := elsewhere.Read(t.Context(), owner)
	if err != nil || !slices.Equal(got.Wanted, []string{"write", "admin"}) || !slices.Equal(got.Scopes, []string{"read"}) || got.Generation != made.Generation || got.Access.Reveal() != "a" {
		t.Errorf("elsewhere: %+v, %v", got, err)
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint("scope", i))
	}
	if err := here.Want(t.Context(), owner, many); !errors.Is(err, vault.ErrFull) {
		t.Errorf("100 scopes: %v", err)
	}
	if got, err = elsewhere.Save(t.Context(), owner, vault.ServerConnection{Access: switchboard.NewSecret("b")}); err != nil || len(got.Wanted) != 0 {
		t.Errorf("the next consent: %+v, %v", got, err)
	}
}
