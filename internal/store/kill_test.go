package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

const (
	killWriters = 4
	killBurst   = 400 // burst of the limit that all rounds share
	killMax     = 400 // maximum of the account that all rounds share
)

func killLimit() store.Limit {
	return store.Limit{Name: "l", Every: 24 * time.Hour, Burst: killBurst}
}

// killAccounts are the accounts of one hold.
func killAccounts() []store.Account {
	return []store.Account{account("a", killMax, 1), account("twin", killMax, 1)}
}

// underLoad writes to the file until it is killed. It prints one line for each acknowledged change: append
// LOG LAST, value NAME N, durable NAME N, take, hold ID, settle ID AMOUNT.
func underLoad(path string) {
	f, err := store.OpenFile(path, store.FileOptions{})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	ctx := context.Background()
	var mu sync.Mutex
	say := func(err error, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Printf(format+"\n", args...)
	}
	for i := range killWriters {
		name := fmt.Sprint(i)
		go func() {
			span, err := f.Span(ctx, name)
			for last := span.Last; err == nil; {
				entries := make([][]byte, 1+rand.IntN(8))
				for n := range entries {
					entries[n] = fmt.Appendf(nil, "%s.%d%s", name, last+uint64(n)+1, strings.Repeat(" ", rand.IntN(2000)))
				}
				err = f.Append(ctx, name, last, entries...)
				last += uint64(len(entries))
				say(err, "append %s %d", name, last)
			}
		}()
		for _, kind := range []string{"value", "durable"} {
			go func() {
				v, err := f.Value(ctx, store.Key{Group: kind, Name: name})
				var n int
				_, _ = fmt.Sscan(string(v.Data), &n)
				for was := v.Version; err == nil; {
					n++
					was, err = f.Apply(ctx, store.Change{Group: kind, Durable: kind == "durable", Writes: []store.Write{
						{Name: name, Was: was, Data: fmt.Append(nil, n)},
						{Name: name + " twin", Was: store.Any, Data: fmt.Append(nil, n)},
					}})
					say(err, "%s %s %d", kind, name, n)
				}
			}()
		}
	}
	go func() {
		for i := range 12 { // a few, since the rounds share the account
			id := fmt.Sprintf("%d.%d", os.Getpid(), i)
			_, held, err := f.Hold(ctx, "g", id, store.HoldTerms{TTL: time.Hour}, killAccounts()...)
			if err != nil || !held {
				say(err, "full")
				return
			}
			say(nil, "hold %s", id)
			if i%3 == 0 {
				continue
			}
			_, err = f.Settle(ctx, "g", store.Settlement{ID: id, Amounts: []int64{int64(i % 2), int64(i % 2)}})
			say(err, "settle %s %d", id, i%2)
		}
	}()
	for taken := 0; taken < 6; { // a few, since the rounds share the limit
		_, wait, err := f.Take(ctx, "g", store.Want{Now: 1}, killLimit())
		if wait > 0 {
			break
		}
		taken++
		say(err, "take")
	}
	select {}
}

func TestNothingAcknowledgedIsLostWhenTheProcessIsKilled(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	path := filepath.Join(t.TempDir(), "store.db")
	acknowledged := map[string]int{} // by what was printed: the highest number
	taken := 0
	holds := killHolds{}
	var slowest time.Duration
	slow := 0 // starts that took more than a second
	luck := rand.New(rand.NewPCG(law.Seed(t), 0))
	for round := range rounds {
		cmd := child(t, "load", path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		alive := 20 + luck.IntN(150)
		for n := 0; lines.Scan(); n++ {
			if n == alive {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			var kind, name string
			var last int
			switch _, _ = fmt.Sscan(lines.Text(), &kind, &name, &last); kind {
			case "error":
				t.Fatalf("round %d: %s", round, lines.Text())
			case "take":
				taken++
			case "full":
			case "hold", "settle":
				holds[name] = append(holds[name], last)
			default:
				acknowledged[kind+" "+name] = last
			}
		}
		_ = cmd.Wait()

		begun := time.Now()
		f := openFile(t, path)
		slowest = max(slowest, time.Since(begun))
		if time.Since(begun) > time.Second {
			slow++
		}
		holds.check(t, f)
		for what, n := range acknowledged {
			kind, name, _ := strings.Cut(what, " ")
			if kind == "append" {
				if got := span(t, f, name); got.First != 1 || int(got.Last) < n {
					t.Errorf("round %d: entry %d of log %s was acknowledged, and the log has %v", round, n, name, got)
				}
				checkLog(t, f, name, uint64(max(0, n-100)))
				continue
			}
			got, twin := value(t, f, kind, name), value(t, f, kind, name+" twin")
			var is int
			if _, _ = fmt.Sscan(string(got.Data), &is); is < n {
				t.Errorf("round %d: %s was acknowledged as %d, and is %d", round, what, n, is)
			}
			if got.Version != twin.Version {
				t.Errorf("round %d: half a change was made: %s and %s", round, got.Data, twin.Data)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
		if round%25 == 0 {
			if err := f.Check(t.Context()); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f := openFile(t, path)
	for i := range killWriters {
		checkLog(t, f, fmt.Sprint(i), 0)
	}
	for {
		_, wait, err := f.Take(t.Context(), "g", store.Want{Now: 1}, killLimit())
		if err != nil {
			t.Fatal(err)
		}
		if wait > 0 {
			break
		}
		taken++
	}
	if taken > killBurst {
		t.Errorf("%d permits were taken, of %d", taken, killBurst)
	}
	t.Logf("%d kills: the slowest start took %s; %d of %d were taken and told of", rounds, slowest, taken, killBurst)
	if slow > rounds/2 {
		wait.Late(t, "%d times of %d it took more than a second to open the file after a kill, once %s", slow, rounds, slowest)
	}
}

// killHolds are the acknowledged holds by id: one number if it is held, and the settled amount as a second one if it is settled.
type killHolds map[string][]int

// check compares the accounts with the holds.
func (k killHolds) check(t *testing.T, f *store.File) {
	t.Helper()
	all, err := f.Accounts(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Settled+a.Held > killMax || a.Settled != all[0].Settled || a.Held != all[0].Held {
			t.Errorf("the accounts are %+v", all)
		}
	}
	settled := 0
	for id, told := range k {
		if !holdFor(t, f, "g", id, time.Hour, account("a", 0, 1)) {
			t.Errorf("the hold %s was acknowledged, and is lost", id)
		}
		if len(told) > 1 {
			settled += told[1]
			if settle(t, f, id, 1, 1) {
				t.Errorf("the settlement of %s was acknowledged, and is lost", id)
			}
		}
	}
	if len(all) > 0 && int(all[0].Settled) < settled {
		t.Errorf("%d is settled, and %d was acknowledged", all[0].Settled, settled)
	}
}

// checkLog reads the log after last: each entry must contain its own number.
func checkLog(t *testing.T, s store.Store, log string, last uint64) {
	t.Helper()
	for {
		entries, err := s.Read(t.Context(), log, last, store.MaxEntries)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			return
		}
		for _, e := range entries {
			if last++; strings.TrimSpace(string(e.Data)) != fmt.Sprintf("%s.%d", log, last) || e.Seq != last {
				t.Fatalf("entry %d of log %s is %.20s", last, log, e.Data)
			}
		}
	}
}

func TestProcessesThatShareAFileKeepTheContract(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	path := filepath.Join(t.TempDir(), "store.db")
	f := openFile(t, path)
	cmd := child(t, "load", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// On a busy machine it may not get the lock in time; then nothing was done.
	const crowded = "another process has been writing to it"
	sometime := func(use func() error) error {
		for begun := time.Now(); ; {
			err := use()
			if err == nil || !strings.Contains(err.Error(), crowded) {
				return err
			}
			if time.Since(begun) > wait.Bound {
				wait.Late(t, "after %s: %v", wait.Bound, err)
			}
		}
	}
	takeOne := func() (wait time.Duration, err error) {
		err = sometime(func() (err error) {
			_, wait, err = f.Take(t.Context(), "g", store.Want{Now: 1}, killLimit())
			return err
		})
		return wait, err
	}
	lines := bufio.NewScanner(out)
	theirs, ours := 0, 0
	holds := killHolds{}
	for n := 0; lines.Scan(); n++ {
		if lines.Text() == "take" {
			theirs++
		}
		if kind, id, _ := strings.Cut(lines.Text(), " "); kind == "hold" {
			holds[id] = []int{0}
		}
		if strings.HasPrefix(lines.Text(), "error") && !strings.Contains(lines.Text(), store.ErrConflict.Error()) && !strings.Contains(lines.Text(), crowded) {
			t.Error(lines.Text())
		}
		if n > 300 {
			_ = cmd.Process.Kill()
			continue
		}
		if n%10 == 0 { // take from the same limit, and append to the same logs
			if wait, err := takeOne(); err != nil {
				t.Error(err)
			} else if wait == 0 {
				ours++
			}
			id := fmt.Sprint("ours", n)
			if err := sometime(func() error {
				_, held, err := f.Hold(t.Context(), "g", id, store.HoldTerms{TTL: time.Hour}, killAccounts()...)
				if held {
					holds[id] = []int{0}
				}
				return err
			}); err != nil {
				t.Error(err)
			}
			if err := sometime(func() error { return f.Append(t.Context(), "0", 1<<30, []byte("wrong")) }); !errors.Is(err, store.ErrConflict) {
				t.Errorf("Append after entry 0 = %v", err)
			}
			if err := sometime(func() error {
				last := span(t, f, "ours").Last
				return f.Append(t.Context(), "ours", last, fmt.Appendf(nil, "ours.%d", last+1))
			}); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Wait()
	for i := range killWriters {
		checkLog(t, f, fmt.Sprint(i), 0)
	}
	checkLog(t, f, "ours", 0)
	holds.check(t, f)
	left := 0
	for {
		wait, err := takeOne()
		if err != nil {
			t.Fatal(err)
		}
		if wait > 0 {
			break
		}
		left++
	}
	if theirs+ours+left != killBurst || theirs == 0 || ours == 0 {
		t.Errorf("the other process took %d, this one %d and %d, of %d", theirs, ours, left, killBurst)
	}
	if err := f.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
