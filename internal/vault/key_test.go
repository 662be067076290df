package vault_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

func TestAKeyIsReplacedWithoutANewConsent(t *testing.T) {
	onEach(t, func(t *testing.T, open func() store.Store) {
		older, newer := secret("the older key of the two"), secret("the newer key of the two")
		withKeys := func(keys ...switchboard.Secret) *vault.Vault {
			return openVault(t, open(), vault.Options{Keys: keys})
		}
		before, both := withKeys(older), withKeys(newer, older)
		carl := ann
		carl.Person = "idp/carl"
		c := save(t, before, ann, "a1", "g1", time.Hour)
		save(t, before, carl, "c1", "h1", time.Hour)
		id, err := before.NewTicket(t.Context(), ann, []byte("verifier"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := both.ReadTicket(t.Context(), id); err != nil {
			t.Errorf("a ticket of the older key: %v", err)
		}
		token, err := both.Renew(t.Context(), ann, c.Generation, (&fakeProvider{}).ask) // seals with the newer key
		if err != nil {
			t.Fatal(err)
		}
		after := withKeys(newer)
		if got, err := after.Read(t.Context(), ann); err != nil || got.Generation != token.Generation {
			t.Errorf("Read of the changed row with the newer key = %v", err)
		}
		if _, err := after.Read(t.Context(), carl); !errors.Is(err, vault.ErrUnreadable) {
			t.Errorf("Read of the unchanged row with the newer key = %v", err)
		}
		for _, want := range []int{1, 0} {
			if n, err := both.Reseal(t.Context()); err != nil || n != want {
				t.Errorf("Reseal = %d %v, want %d", n, err, want)
			}
		}
		if got, err := after.Read(t.Context(), carl); err != nil || got.Access.Reveal() != "c1" {
			t.Errorf("Read after Reseal = %v", err)
		}
		if got, err := both.Token(t.Context(), carl, never(t)); err != nil || got.Access.Reveal() != "c1" {
			t.Errorf("Token after Reseal = %v", err)
		}
	})
}

func TestKeysThatCannotSealAreRefused(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	for _, keys := range [][]switchboard.Secret{nil, {secret("short")}, {key, secret("")}} {
		if v, err := vault.Open(t.Context(), s, vault.Options{Keys: keys}); err == nil {
			v.Close()
			t.Errorf("%d keys are accepted", len(keys))
		}
	}
}

func TestTheSameConnectionIsNeverSealedAlike(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	v := openVault(t, s, vault.Options{})
	save(t, v, ann, "a1", "g1", time.Hour)
	first := rowOf(t, s, ann)
	save(t, v, ann, "a1", "g1", time.Hour)
	if second := rowOf(t, s, ann); bytes.Equal(first[20:32], second[20:32]) {
		t.Error("a nonce was used twice")
	}
}

func TestALargeConnectionIsRefused(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	v := openVault(t, s, vault.Options{})
	big := string(bytes.Repeat([]byte("x"), 300<<10))
	if _, err := v.Save(t.Context(), ann, vault.ServerConnection{Access: secret(big)}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Save = %v", err)
	}
	if _, err := v.NewTicket(t.Context(), ann, []byte(big)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("NewTicket = %v", err)
	}
}

func BenchmarkAccess(b *testing.B) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	v := openVault(b, s, vault.Options{})
	for i := range 1000 {
		save(b, v, killOwner(i), "a", "g", time.Hour)
	}
	o := killOwner(500)
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := v.Access(o); !ok {
				b.Fatal("not known")
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, ok := v.Access(o); !ok {
					b.Error("not known")
				}
			}
		})
	})
}
