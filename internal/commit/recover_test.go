package commit_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// copyFile copies the store's file, and what SQLite has beside it, to a folder.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range []string{"store.db", "store.db-wal"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o600)
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

// total returns what is settled and held together in the account of tenant/paid.
func total(t *testing.T, s store.Store) (n int64) {
	t.Helper()
	all, err := s.Accounts(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Name == "tenant/paid" {
			n += a.Settled + a.Held
		}
	}
	return n
}

// Two processes make calls. Then the power is cut, and the file has lost all changes after some instant. After that each process that starts finds what
// was sent, held and used, also if others start at the same time, or the power is cut again.
func TestAStartHoldsAgainWhatTheFileHasLost(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	const calls, price = 12, 3
	folder := t.TempDir()
	var copies []string
	remember := func() {
		dir := t.TempDir()
		copyFile(t, folder, dir)
		copies = append(copies, dir)
	}
	func() {
		var processes []*bench
		for range 2 {
			st := openFile(t, folder)
			defer func() { _ = st.Close() }()
			b := newBench(t, st, folder, paid(price, 1000))
			if err := b.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			processes = append(processes, b)
		}
		remember()
		for i := range calls {
			b := processes[i%2]
			says, next := switchboard.Contract{}, answers(`{}`)
			switch i {
			case 5:
				says = reads // no intent: its hold is durable by itself
			case 8:
				next = fails(&switchboard.Error{Code: switchboard.CodeNoneHealthy, Unsent: true})
			}
			c := aCall(says, fmt.Sprint("k-", i))
			_, _ = b.ledger.RecordCalls(b.Commit(next)).Call(t.Context(), c)
			remember()
		}
		for _, b := range processes {
			b.close(t)
		}
		remember()
	}()
	const durable = 6 // the hold of call 5 has made durable what was before it
	for i, dir := range copies[durable:] {
		t.Run(fmt.Sprintf("since call %d", durable+i), func(t *testing.T) {
			cut := t.TempDir()
			if err := os.CopyFS(cut, os.DirFS(folder)); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"store.db", "store.db-wal", "store.db-shm"} {
				_ = os.Remove(filepath.Join(cut, name))
			}
			copyFile(t, dir, cut)
			if err := os.Chmod(filepath.Join(cut, receipt.LedgerKeyFile), 0o600); err != nil {
				t.Fatal(err)
			}
			for round := range 3 {
				st := openFile(t, cut)
				one, other := newBench(t, st, cut, paid(price, 1000)), newBench(t, st, cut, paid(price, 1000))
				for _, b := range []*bench{one, other} {
					if err := b.Recover(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				// Call 8 was not sent; what the file has lost of that may count as spent.
				n := total(t, st)
				if round > 0 {
					n -= price // of the call below
				}
				if n != calls*price && n != (calls-1)*price {
					t.Errorf("round %d: %d is settled and held, for %d calls", round, n, calls)
				}
				for n := range calls {
					if used := one.yes.used(t, fmt.Sprint("k-", n)); used == (n == 8) {
						t.Errorf("round %d: the yes of call %d is used: %v", round, n, used)
					}
				}
				if round == 0 { // it gets a number that no intent has
					if _, err := one.Commit(answers(`{}`)).Call(t.Context(), aCall(switchboard.Contract{}, "")); err != nil {
						t.Error(err)
					}
				}
				one.close(t)
				other.close(t)
				if round == 0 {
					if n := total(t, st) - price; n != calls*price && n != (calls-1)*price {
						t.Errorf("after one more call: %d", n)
					}
					if _, err := st.Apply(t.Context(), store.Change{Group: "intended", Writes: []store.Write{{Name: "n1", Was: store.Any, Data: []byte("0")}, {Name: "n2", Was: store.Any, Data: []byte("0")}}}); err != nil {
						t.Error(err)
					}
				}
				if err := st.Check(t.Context()); err != nil {
					t.Error(err)
				}
				_ = st.Close()
			}
		})
	}
}

// The store forgets the id of a hold after some time. A start after that counts nothing twice.
func TestAHoldWithAForgottenIDIsNotHeldAgain(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	folder := t.TempDir()
	st := openFile(t, folder)
	defer func() { _ = st.Close() }()
	b := newBench(t, st, folder, paid(1, 1000))
	if err := b.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range int64(3) { // as if the file had lost them
		h := receipt.IntentHold{ID: fmt.Sprint("h", n), Group: group, TTL: 1, Number: n*10 + 1, Accounts: []receipt.HeldAccount{{Name: "tenant/paid", Amount: 5}, {Name: "over", Amount: 5, Ends: time.Now()}}}
		if _, err := b.ledger.WriteIntent(t.Context(), aCall(switchboard.Contract{}, ""), receipt.IntentTerms{Hold: h}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if err := b.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := sums(t, st); got != "tenant/paid=15+0" {
			t.Errorf("%s: they have expired, and are settled once", got)
		}
		if _, err := st.Apply(t.Context(), store.Change{Group: "intended", Writes: []store.Write{{Name: "n1", Was: store.Any, Data: []byte("0")}}}); err != nil {
			t.Error(err)
		}
	}
	b.close(t)
}

func TestAStartReadsOnlyNewIntents(t *testing.T) {
	folder := t.TempDir()
	st := openFile(t, folder)
	defer func() { _ = st.Close() }()
	b := newBench(t, st, folder, paid(1, 1<<40))
	if err := b.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 1500 {
		c := aCall(switchboard.Contract{}, "")
		if i%100 == 0 {
			c = aCall(switchboard.Contract{}, fmt.Sprint("k-", i))
		}
		if _, err := b.Commit(answers(`{}`)).Call(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	b.close(t)
	again := newBench(t, st, folder, nil)
	if err := again.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := again.yes.replays.Load(); n == 0 || n > 12 {
		t.Errorf("of 15 yeses, it replays %d", n)
	}
	again.close(t)
}

// A call has two attempts. The first one used its yes and was sent; the second one was not, so its yes was given back.
func TestAStartReplaysTheYesOfTheAttemptThatWasSent(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	folder := t.TempDir()
	st := openFile(t, folder)
	b := newBench(t, st, folder, nil)
	if err := b.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := aCall(switchboard.Contract{}, "")
	_, _ = b.ledger.RecordCalls(switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		first, second := *c, *c
		first.Yes, second.Yes, second.Attempt = &switchboard.Yes{Request: "k-sent"}, &switchboard.Yes{Request: "k-unsent"}, 1
		_, err := b.Commit(fails(&switchboard.Error{Code: switchboard.CodeServerFailed})).Call(ctx, &first)
		c.Trail.Tried([]switchboard.Attempt{{Tool: c.Tool.ID, Code: codeOf(err), Sent: true}})
		return b.Commit(fails(&switchboard.Error{Code: switchboard.CodeNoneHealthy, Unsent: true})).Call(ctx, &second)
	})).Call(t.Context(), c)
	if yes := c.Trail.Marks().Yes; yes == nil || yes.Request != "k-sent" {
		t.Errorf("the receipt names %v", yes)
	}
	b.close(t)
	again := newBench(t, st, folder, nil)
	if err := again.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := again.yes.replays.Load(); n != 1 || again.yes.used(t, "k-unsent") {
		t.Errorf("%d uses are replayed; the yes that was given back is used: %v", n, again.yes.used(t, "k-unsent"))
	}
	again.close(t)
}

func TestAStartUsesUpNoRequestForAStandingYes(t *testing.T) {
	folder := t.TempDir()
	st := openFile(t, folder)
	b := newBench(t, st, folder, nil)
	if err := b.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := aCall(switchboard.Contract{}, "k-made-it")
	c.Yes.Standing = "s-1"
	if _, err := b.ledger.RecordCalls(b.Commit(answers(`{}`))).Call(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	b.close(t)
	again := newBench(t, st, folder, nil)
	if err := again.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := again.yes.replays.Load(); n != 0 {
		t.Errorf("%d uses are replayed for a request that made a standing yes", n)
	}
	again.close(t)
}

func TestAStoreThatIsNoFileRecoversNothing(t *testing.T) {
	b := newBench(t, store.NewMemory(), "", paid(1, 10))
	if err := b.Recover(t.Context()); err != nil || b.s.operations() != 0 {
		t.Errorf("%v after %d operations", err, b.s.operations())
	}
	b.close(t)
}
