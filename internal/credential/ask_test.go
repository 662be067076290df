package credential

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// errNotConnected is what the callers below answer before there is a connection.
var errNotConnected = &switchboard.Error{Code: switchboard.CodeConnectFirst, Unsent: true, Text: "connect it"}

// willing is a client whose person agrees to each link at once.
func willing(asked *atomic.Int64) switchboard.Client {
	return switchboard.Client{Capabilities: []byte(`{"elicitation":{"url":{}}}`), Ask: func(context.Context, string, []byte) ([]byte, error) {
		asked.Add(1)
		return []byte(`{"action":"accept"}`), nil
	}}
}

func linkOf(ticket string) string { return "http://127.0.0.1/connect/" + ticket }

// A call that waits for its person looks seldom for a connection that another process makes, and is woken by one that this process makes.
func TestACallThatWaitsIsWokenByTheConnectionAndHardlyReadsTheStore(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other bool // another process makes the connection
		after time.Duration
		late  time.Duration // the most
	}{
		{"made here", false, 5*time.Minute + time.Second, 0},
		{"made elsewhere", true, 5*time.Minute + time.Second, lookInterval},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, c, call, s := connected(t)
				call.Principal.ID = "bob" // who has no connection
				owner, ready := OwnerOf(c.server, &call.Principal), make(chan time.Time, 1)
				go func() {
					time.Sleep(tt.after) // what a person takes
					made := vault.ServerConnection{Access: switchboard.NewSecret("bobs"), Expires: time.Now().Add(time.Hour), Scopes: []string{"read"}}
					err := error(nil)
					if tt.other {
						_, err = b.vault.Save(context.Background(), owner, made)
					} else {
						err = b.keep(context.Background(), owner, made)
					}
					if err != nil {
						t.Error(err)
					}
					ready <- time.Now()
				}()
				var asked atomic.Int64
				call.Client = willing(&asked)
				next := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { return switchboard.Result{}, nil })
				before := s.used.Load()
				if _, err := b.ConnectFirst(linkOf, same, next).Call(t.Context(), call); err != nil {
					t.Fatal(err)
				}
				if late := time.Since(<-ready); late > tt.late || asked.Load() != 1 {
					t.Errorf("it went on %v after the connection; asked %d times", late, asked.Load())
				}
				// Once in two seconds by the call, and once in five by the vault, which follows ann's connection.
				if most := int64(tt.after/(2*time.Second)+tt.after/(5*time.Second)) + 10; s.used.Load()-before > most {
					t.Errorf("it used the store %d times in %v, at most %d", s.used.Load()-before, tt.after, most)
				}
				if n := len(b.bell.waiting); n != 0 {
					t.Errorf("%d owners are still waited for", n)
				}
			})
		})
	}
}

func TestACallerWithoutALinkIsToldHowTheOperatorConnectsTheServer(t *testing.T) {
	b, _, call, _ := connected(t)
	call.Principal.ID = "bob"
	next := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{}, errNotConnected
	})
	_, err := b.ConnectFirst(func(string) string { return "" }, same, next).Call(t.Context(), call)
	if refused, _ := errors.AsType[*switchboard.Error](err); refused == nil || !strings.Contains(refused.Hint, "switchboard server connect tracker --for acme/bob") {
		t.Errorf("%#v", err)
	}
}

// A stuckStore does not answer the first change of a ticket until it is told to.
type stuckStore struct {
	*store.Memory
	stuck chan struct{}
	once  atomic.Bool
}

func (s *stuckStore) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if c.Group == "ticket" && s.once.CompareAndSwap(false, true) {
		select {
		case <-s.stuck:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return s.Memory.Apply(ctx, c)
}

func TestALinkThatIsSlowToMakeDelaysNoLinkOfAnotherPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuckStore{Memory: store.NewMemory(), stuck: make(chan struct{})}
		v, err := vault.Open(t.Context(), s, vault.Options{Keys: []switchboard.Secret{switchboard.NewSecret("a secret of thirty-two bytes, or so")}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { v.Close(); _ = s.Close() }()
		b := NewBroker(Options{Vault: v})
		b.Of(&switchboard.Server{
			ID: "tracker", Transport: switchboard.TransportHTTP, URL: "https://mcp.example.com/mcp", Credential: switchboard.Credential{Kind: switchboard.CredentialUser},
		})
		next := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			return switchboard.Result{}, errNotConnected
		})
		caller := b.ConnectFirst(linkOf, same, next)
		hintFor := func(ctx context.Context, who string) string {
			_, err := caller.Call(ctx, &switchboard.Call{Server: "tracker", Principal: switchboard.Principal{Tenant: "acme", ID: who}})
			refused, _ := errors.AsType[*switchboard.Error](err)
			if refused == nil || refused.Code != switchboard.CodeConnectFirst {
				t.Errorf("%s gets %v", who, err)
				return ""
			}
			return refused.Hint
		}
		slow := make(chan string, 2)
		go func() { slow <- hintFor(t.Context(), "ann") }()
		synctest.Wait()
		go func() { slow <- hintFor(t.Context(), "ann") }() // waits for the same link
		synctest.Wait()
		began := time.Now()
		bob := hintFor(t.Context(), "bob")
		if took := time.Since(began); took != 0 || !strings.Contains(bob, "/connect/") {
			t.Errorf("bob got %q after %v", bob, took)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if got := hintFor(gone, "ann"); strings.Contains(got, "/connect/") || time.Since(began) != 0 {
			t.Errorf("a call that has ended got %q after %v", got, time.Since(began))
		}
		close(s.stuck)
		if one, two := <-slow, <-slow; one != two || !strings.Contains(one, "/connect/") || one == bob {
			t.Errorf("two calls of ann got %q and %q", one, two)
		}
		time.Sleep(2 * vault.TicketTime)
		for _, who := range []string{"cid", "dee"} {
			hintFor(t.Context(), who)
		}
		if n := len(b.tickets.kept); n != 2 {
			t.Errorf("%d tickets are kept, want those of cid and dee", n)
		}
	})
}
