package vault_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

// A fakeProvider gives a new refresh token for each one, and remembers which were sent.
type fakeProvider struct {
	mu   sync.Mutex
	sent map[string]int
	n    int
}

// renew uses a grant, and returns the next one and its token.
func (p *fakeProvider) renew(grant string) (access, next string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent == nil {
		p.sent = map[string]int{}
	}
	p.sent[grant]++
	p.n++
	return fmt.Sprintf("access-%d", p.n), fmt.Sprintf("grant-%d", p.n)
}

// sentTwice returns the grants that were sent more than once, and how many were sent.
func (p *fakeProvider) sentTwice() (twice []string, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for g, n := range p.sent {
		if n > 1 {
			twice = append(twice, g)
		}
	}
	return twice, len(p.sent)
}

// ask asks p.
func (p *fakeProvider) ask(_ context.Context, c vault.ServerConnection) (vault.ServerConnection, error) {
	access, next := p.renew(c.Grant.Reveal())
	return vault.ServerConnection{Access: secret(access), Grant: secret(next), Expires: time.Now().Add(time.Hour)}, nil
}

func TestCD12EachGrantIsSentOnceOverReplicas(t *testing.T) {
	onEach(t, func(t *testing.T, open func() store.Store) {
		law.Hold(t, law.NeverTwice)
		var vaults []*vault.Vault
		for range 3 {
			v := openVault(t, open(), vault.Options{})
			vault.SetTimes(v, vault.ClaimTime, vault.AskTime, 50*time.Millisecond)
			vaults = append(vaults, v)
		}
		var p fakeProvider
		seen := save(t, vaults[0], ann, "access-0", "grant-0", time.Hour).Generation
		luck := rand.New(rand.NewPCG(law.Seed(t), 0))
		for round := range 8 {
			fails := round%4 == 3 // the first asks of the round do not reach the provider
			var mu sync.Mutex
			got := map[vault.Generation]string{}
			var wg sync.WaitGroup
			for range 64 {
				v := vaults[luck.IntN(len(vaults))]
				wg.Go(func() {
					for {
						token, err := v.Renew(t.Context(), ann, seen, func(ctx context.Context, c vault.ServerConnection) (vault.ServerConnection, error) {
							mu.Lock()
							fail := fails
							fails = false
							mu.Unlock()
							if fail {
								return vault.ServerConnection{}, vault.ErrNotSent
							}
							<-time.After(time.Duration(round) * time.Millisecond)
							return p.ask(ctx, c)
						})
						if errors.Is(err, vault.ErrNotSent) || errors.Is(err, vault.ErrPaused) {
							<-time.After(10 * time.Millisecond)
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						got[token.Generation] = token.Access.Reveal()
						mu.Unlock()
						return
					}
				})
			}
			wg.Wait()
			if len(got) != 1 {
				t.Fatalf("round %d: 64 callers of one generation got %v", round, got)
			}
			for g := range got {
				seen = g
			}
		}
		if twice, all := p.sentTwice(); len(twice) > 0 || all != 8 {
			t.Errorf("%d grants were sent, for 8 rounds; more than once: %v", all, twice)
		}
	})
}

// put writes data as the row of the owner, as an attacker can who reaches the store.
func put(t *testing.T, s store.Store, o vault.Owner, data []byte) {
	t.Helper()
	group, name := vault.RowKey(o)
	if _, err := s.Apply(t.Context(), store.Change{Group: group, Writes: []store.Write{{Name: name, Was: store.Any, Data: data}}}); err != nil {
		t.Fatal(err)
	}
}

func rowOf(t *testing.T, s store.Store, o vault.Owner) []byte {
	t.Helper()
	group, name := vault.RowKey(o)
	v, err := s.Value(t.Context(), store.Key{Group: group, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return v.Data
}

func TestCD11AChangedOrMovedRowIsUseless(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	good := openVault(t, s, vault.Options{})
	save(t, good, ann, "a1", "g1", time.Hour)
	row := rowOf(t, s, ann)

	unreadable := func(what string, o vault.Owner) {
		t.Helper()
		fresh := openVault(t, s, vault.Options{})
		defer fresh.Close()
		if _, err := fresh.Read(t.Context(), o); !errors.Is(err, vault.ErrUnreadable) {
			t.Errorf("%s: Read = %v, want ErrUnreadable", what, err)
		}
		if _, err := fresh.Token(t.Context(), o, never(t)); !errors.Is(err, vault.ErrUnreadable) {
			t.Errorf("%s: Token = %v, want ErrUnreadable", what, err)
		}
	}
	for i := 0; i < len(row); i += 1 + len(row)/60 {
		bad := bytes.Clone(row)
		bad[i] ^= 1
		put(t, s, ann, bad)
		unreadable(fmt.Sprint("flipped byte ", i), ann)
	}
	for _, n := range []int{0, 3, 19, 20, 31, len(row) - 1} {
		put(t, s, ann, row[:n:n])
		unreadable(fmt.Sprint("cut to ", n), ann)
	}
	put(t, s, ann, append(bytes.Clone(row), 0))
	unreadable("longer", ann)
	for what, change := range map[string]func(*vault.Owner){
		"tenant":   func(o *vault.Owner) { o.Tenant = "evil" },
		"person":   func(o *vault.Owner) { o.Person = "idp/eve" },
		"catalog":  func(o *vault.Owner) { o.Person = "" },
		"server":   func(o *vault.Owner) { o.Server = "other" },
		"resource": func(o *vault.Owner) { o.Resource = "https://evil.example/mcp" },
		"boundary": func(o *vault.Owner) { o.Tenant, o.Person = "acm", "eidp/ann" },
	} {
		other := ann
		change(&other)
		put(t, s, other, row)
		unreadable("moved to another "+what, other)
	}
	put(t, s, ann, row)
	stranger := openVault(t, s, vault.Options{Keys: []switchboard.Secret{secret("a quite different key")}})
	if _, err := stranger.Read(t.Context(), ann); !errors.Is(err, vault.ErrUnreadable) {
		t.Errorf("with another key: %v", err)
	}
	// What does not open is listed as such, can be deleted, and can be replaced.
	put(t, s, ann, row[:30])
	all, err := stranger.List(t.Context())
	if err != nil || len(all) != 7 {
		t.Errorf("List = %+v %v", all, err)
	}
	for _, c := range all {
		if !c.Unreadable {
			t.Errorf("%+v is listed as readable", c)
		}
	}
	if _, err := good.Delete(t.Context(), ann); !errors.Is(err, vault.ErrUnreadable) {
		t.Errorf("Delete = %v", err)
	}
	if _, err := good.Read(t.Context(), ann); !errors.Is(err, vault.ErrNone) {
		t.Errorf("Read = %v", err)
	}
	save(t, good, ann, "a2", "g2", time.Hour)
	if c, err := good.Read(t.Context(), ann); err != nil || c.Access.Reveal() != "a2" {
		t.Errorf("Read = %v", err)
	}
}

func TestCD11AnOlderRowIsRefusedByWhoKnowsTheNewerOne(t *testing.T) {
	s := store.NewMemory()
	defer func() { _ = s.Close() }()
	v := openVault(t, s, vault.Options{})
	var p fakeProvider
	c := save(t, v, ann, "a1", "g1", time.Hour)
	first := rowOf(t, s, ann)
	if _, err := v.Renew(t.Context(), ann, c.Generation, p.ask); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, row []byte) {
		t.Helper()
		put(t, s, ann, row)
		if _, err := v.Read(t.Context(), ann); !errors.Is(err, vault.ErrUnreadable) {
			t.Errorf("%s: Read = %v, want ErrUnreadable", what, err)
		}
		if _, ok := v.Access(ann); ok {
			t.Errorf("%s: it is served", what)
		}
		if _, err := v.Renew(t.Context(), ann, c.Generation, never(t)); !errors.Is(err, vault.ErrUnreadable) {
			t.Errorf("%s: Renew = %v, want ErrUnreadable", what, err)
		}
	}
	refused("the row from before a renewal", first)
	save(t, v, ann, "a3", "g3", time.Hour)
	second := rowOf(t, s, ann)
	refused("the row of an earlier consent", first)
	put(t, s, ann, second)
	if _, err := v.Delete(t.Context(), ann); err != nil {
		t.Fatal(err)
	}
	refused("a deleted row", second)
	refused("a row that was replaced before it was deleted", first)

	// A process that has started later cannot know. It has the old tokens, of the same person at the same server, and the provider refuses
	// them.
	put(t, s, ann, first)
	late := openVault(t, s, vault.Options{})
	old, err := late.Read(t.Context(), ann)
	if err != nil || old.Grant.Reveal() != "g1" {
		t.Fatalf("Read = %v", err)
	}
	if _, err := late.Renew(t.Context(), ann, old.Generation, func(context.Context, vault.ServerConnection) (vault.ServerConnection, error) {
		return vault.ServerConnection{}, vault.ErrRefused // as a provider that rotates does
	}); !errors.Is(err, vault.ErrConnectAgain) {
		t.Errorf("Renew = %v", err)
	}
}

const canary = "canary-7f3a"

func TestCD11PlaintextIsNowhere(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	use := func(t *testing.T, s store.Store) {
		v := openVault(t, s, vault.Options{Log: log})
		o := ann
		o.Person = canary + "-person"
		c, err := v.Save(t.Context(), o, vault.ServerConnection{
			Access: secret(canary + "-access"), Grant: secret(canary + "-grant"), Subject: canary + "-subject", Label: canary + "-label",
			Scopes: []string{canary + "-scope"}, Expires: time.Now().Add(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		token, err := v.Renew(t.Context(), o, c.Generation, func(_ context.Context, c vault.ServerConnection) (vault.ServerConnection, error) {
			c.Access, c.Grant = secret(canary+"-access2"), secret(canary+"-grant2")
			return c, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Renew(t.Context(), o, token.Generation, func(_ context.Context, c vault.ServerConnection) (vault.ServerConnection, error) {
			return c, errors.New("the answer is lost")
		}); err == nil {
			t.Fatal("it was renewed")
		}
		id, err := v.NewTicket(t.Context(), o, []byte(canary+"-verifier"))
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, ann, []byte("garbage"))
		_, _ = v.Read(t.Context(), ann)
		shown, err := json.Marshal([]any{c.Access, c.Grant, token.Access})
		if err != nil {
			t.Fatal(err)
		}
		c.Subject, c.Label, c.Scopes = "", "", nil // who it is may be shown; secrets may not
		if text := fmt.Sprintf("%v %+v %#v %s %v", c, c, c, shown, token); strings.Contains(text, canary) {
			t.Errorf("printed: %s", text)
		}
		if err := s.Dump(t.Context(), func(r store.Record) error {
			if text := fmt.Sprintf("%q %q %q", r.Group, r.Name, r.Value.Data); strings.Contains(text, canary) || strings.Contains(text, id) {
				t.Errorf("stored: %s", text)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	noneIn := func(t *testing.T, folder string) {
		files := 0
		if err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(name)
			if bytes.Contains(text, []byte(canary)) {
				t.Errorf("%s has a canary", filepath.Base(name))
			}
			if len(text) > 0 {
				files++
			}
			return err
		}); err != nil || files == 0 {
			t.Errorf("%d files, %v", files, err)
		}
	}
	t.Run("file", func(t *testing.T) {
		dir := t.TempDir()
		s, err := store.OpenFile(filepath.Join(dir, "store.db"), store.FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		use(t, s)
		noneIn(t, dir)
		_ = s.Close()
		noneIn(t, dir)
	})
	t.Run("redis", func(t *testing.T) {
		r := redistest.Start(t)
		s, err := store.OpenRedis(t.Context(), r.URL(), store.RedisOptions{})
		if err != nil {
			t.Fatal(err)
		}
		use(t, closed(t, s))
		noneIn(t, r.Dir())
	})
	if logged.Len() == 0 || strings.Contains(logged.String(), canary+"-access") || strings.Contains(logged.String(), canary+"-grant") || strings.Contains(logged.String(), canary+"-person") {
		t.Errorf("logged:\n%s", logged.String())
	}
}
