package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
)

func killLimit() store.Limit {
	return store.Limit{Name: "l", Every: 24 * time.Hour, Burst: killBurst}
}

// underLoad writes to the file until it is killed. It prints one line for each acknowledged change: append
// LOG LAST, value NAME N, durable NAME N, take.
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
	for n := 0; lines.Scan(); n++ {
		if lines.Text() == "take" {
			theirs++
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
