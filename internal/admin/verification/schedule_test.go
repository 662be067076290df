package verification

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Of two replicas, one verifies by schedule. When it is killed, the other one goes on.
func TestOfTwoReplicasOneVerifiesEachDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		daily := switchboard.Server{ID: "a", Transport: switchboard.TransportHTTP, Verify: switchboard.VerifyRules{Every: 24 * time.Hour}}
		shared := store.NewMemory()
		var mu sync.Mutex
		var at []time.Time
		var by []string
		begin := func(name string, book *Verifier) (v *Verifier, kill func()) {
			v, _ = verifierOf(t, &daily, toolOf("look", true))
			if book != nil {
				v.o.Book = book.o.Book
			}
			v.o.Record = func(_ context.Context, r *receipt.Receipt) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				at, by = append(at, time.Now()), append(by, name)
				if r.Principal.ID != "schedule" {
					t.Errorf("a report was asked for by %q", r.Principal.ID)
				}
				return "n1/1", nil
			}
			right := lease.New(shared, lease.Options{Key: store.Key{Group: "g", Name: "lease"}, TTL: 3 * time.Minute, Data: []byte(name)})
			v.o.Mine = func(ctx context.Context) bool { return right.Renew(ctx) == nil }
			ctx, kill := context.WithCancel(t.Context())
			go v.Run(ctx, func() []*switchboard.Server { return []*switchboard.Server{&daily} })
			return v, kill
		}
		one, killOne := begin("one", nil)
		_, killTwo := begin("two", one)
		kill, other := map[string]func(){"one": killOne, "two": killTwo}, map[string]string{"one": "two", "two": "one"}
		time.Sleep(3*24*time.Hour + time.Hour)
		synctest.Wait()
		owner := by[0]
		kill[owner]()
		time.Sleep(3 * 24 * time.Hour)
		kill[other[owner]]()
		synctest.Wait()
		if want := []string{owner, owner, owner, owner, other[owner], other[owner], other[owner]}; !slices.Equal(by, want) {
			t.Fatalf("in six days it was verified at %v by %v", at, by)
		}
		for i := range at[1:] {
			if apart := at[i+1].Sub(at[i]); apart < 24*time.Hour || apart > 24*time.Hour+5*time.Minute {
				t.Errorf("two verifications are %s apart", apart)
			}
		}
	})
}
