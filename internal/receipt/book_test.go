package receipt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// keyA and keyB sign in tests.
var (
	keyA = switchboard.NewSecret("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	keyB = switchboard.NewSecret("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE")
)

func options() receipt.ChainOptions {
	return receipt.ChainOptions{Node: "n1", Key: keyA, DigestKey: switchboard.NewSecret("a secret"), Version: "v1"}
}

func openBook(t *testing.T, s receipt.Store, o receipt.ChainOptions) *receipt.Chain {
	t.Helper()
	b, err := receipt.Open(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.WithoutCancel(t.Context())) })
	return b
}

func shut(t *testing.T, b *receipt.Chain) {
	t.Helper()
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// all returns a short text for each receipt of every chain.
func all(t *testing.T, s receipt.ChainReader) (out []string) {
	t.Helper()
	for _, e := range entries(t, s, receipt.Query{}) {
		out = append(out, short(&e))
	}
	return out
}

// entries returns the entries that q selects.
func entries(t *testing.T, s receipt.ChainReader, q receipt.Query) (out []receipt.ChainEntry) {
	t.Helper()
	for e, err := range receipt.List(t.Context(), s, q) {
		if err != nil || e.Fault != nil {
			t.Fatal(err, e.Fault)
		}
		out = append(out, e)
	}
	return out
}

func short(e *receipt.ChainEntry) string {
	r := &e.Receipt
	return strings.Join(strings.Fields(fmt.Sprint(e.ID(), " ", r.Kind, " ", r.Tool, " ", r.Outcome, " ", r.Code, " ", r.Of, " ", r.Note)), " ")
}

// good fails unless every chain meets the rules.
func good(t *testing.T, s receipt.ChainReader) {
	t.Helper()
	chains, err := receipt.Verify(t.Context(), s, receipt.VerifyOptions{})
	if err != nil || len(chains) == 0 {
		t.Fatal(len(chains), err)
	}
	for _, c := range chains {
		if c.Fault != nil {
			t.Errorf("chain of %s: %v", c.Node, c.Fault)
		}
	}
}

func code(err error) switchboard.Code {
	if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Unsent {
		return own.Code
	}
	return ""
}

func TestAChainContinuesAfterItsLastEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		for range 2 {
			b := openBook(t, s, options())
			if _, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Admin, Note: "x"}); err != nil {
				t.Fatal(err)
			}
			b.Add(&receipt.Receipt{Kind: receipt.Call, Tool: "t", Outcome: receipt.OK})
			shut(t, b)
		}
		good(t, s)
		want := []string{
			"n1/1 key", "n1/2 start v1", "n1/3 admin x", "n1/4 call t ok", "n1/5 stop v1",
			"n1/6 start v1", "n1/7 admin x", "n1/8 call t ok", "n1/9 stop v1",
		}
		if got := all(t, s); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

func TestReceiptsWithoutAWaiterAreWrittenTogetherAndSignedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Store: store.NewMemory()}
		b := openBook(t, s, options())
		time.Sleep(time.Second)
		before := s.appends.Load()
		for range 10 {
			b.Add(&receipt.Receipt{Kind: receipt.Call})
			time.Sleep(time.Millisecond)
		}
		if n := s.appends.Load() - before; n != 0 {
			t.Errorf("%d appends within 10ms", n)
		}
		time.Sleep(50 * time.Millisecond)
		if n := s.appends.Load() - before; n != 1 {
			t.Errorf("%d appends for ten receipts, want 1", n)
		}
		signed := 0
		for _, e := range entries(t, s, receipt.Query{Kind: receipt.Call}) {
			if e.Signature != "" {
				signed++
			}
		}
		if signed != 1 {
			t.Errorf("%d signatures of ten receipts, want 1", signed)
		}
		began := time.Now()
		if _, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the waiting caller waited %s", took)
		}
		shut(t, b)
	})
}

func TestAHalfFullQueueIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Queue = 10
		b := openBook(t, store.NewMemory(), o)
		for range 5 {
			b.Add(&receipt.Receipt{Kind: receipt.Call})
		}
		synctest.Wait()
		if st := b.Status(); st.Waiting != 0 || st.Seq != 7 {
			t.Errorf("got %+v", st)
		}
		shut(t, b)
	})
}

func TestTimesDoNotGoBackWhenTheClockDoes(t *testing.T) {
	s := store.NewMemory()
	shut(t, openBook(t, s, options()))
	last := entries(t, s, receipt.Query{NewestFirst: true})[0].Receipt.Time
	synctest.Test(t, func(t *testing.T) { // the clock of the bubble says 2000
		b := openBook(t, s, options())
		b.Add(&receipt.Receipt{Kind: receipt.Call})
		shut(t, b)
	})
	for _, e := range entries(t, s, receipt.Query{})[3:] {
		if last = last.Add(time.Microsecond); !e.Receipt.Time.Equal(last) { // no two receipts have the same time
			t.Errorf("%s has the time %s, and the next possible time is %s", e.ID(), e.Receipt.Time, last)
		}
	}
}

// Many receipts wait when the store fails for a while, some of them with a waiting caller.
func TestALongQueueIsWrittenInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{Store: store.NewMemory(), slow: time.Second, failOn: 5}
		o := options()
		o.Queue, o.QueueBytes = 1<<20, 1<<30
		b := openBook(t, s, o)
		const n, each = 3000, 250
		tries := make([]receipt.FailedAttempt, 16)
		for i := range tries {
			tries[i].Tool = strings.Repeat("x", 256)
		}
		var writers sync.WaitGroup
		var done, late [n/each + 1]string // the ids of intents that were stored in time, and of the others
		for i := range n + 1 {
			if i == n { // while the rest is written
				time.Sleep(2500 * time.Millisecond)
			}
			if i%each == 0 {
				writers.Go(func() {
					id, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent, Tool: fmt.Sprint(i)})
					if done[i/each] = id; err != nil {
						done[i/each], late[i/each] = "", id
					}
					if err != nil && code(err) != switchboard.CodeReceipt {
						t.Error(err)
					}
				})
				synctest.Wait()
				continue
			}
			b.Add(&receipt.Receipt{Kind: receipt.Call, Tool: fmt.Sprint(i), Tries: tries[:16-i%3]})
		}
		writers.Wait()
		time.Sleep(time.Minute)
		shut(t, b)
		good(t, s)
		if s.most > 5<<20 || s.appended < 6 {
			t.Errorf("%d appends, the largest of %d bytes", s.appended, s.most)
		}
		var calls []receipt.ChainEntry
		for _, e := range entries(t, s, receipt.Query{}) {
			if e.Receipt.Tool != "" {
				calls = append(calls, e)
			}
		}
		if len(calls) != n+1 {
			t.Fatalf("%d receipts, want %d", len(calls), n)
		}
		in := 0
		for i, e := range calls {
			if e.Receipt.Tool != fmt.Sprint(i) {
				t.Fatalf("%s is of %s, want %d", e.ID(), e.Receipt.Tool, i)
			}
			if i%each != 0 {
				continue
			}
			if done[i/each] == e.ID() {
				in++
			} else if late[i/each] != e.ID() {
				t.Errorf("the caller that wrote %s got %q, or %q with an error", e.ID(), done[i/each], late[i/each])
			}
		}
		if in == 0 || in > n/each {
			t.Errorf("%d of the waiting callers succeeded: the test shows nothing", in)
		}
	})
}

func TestTimesNeverGoBackWithinAChain(t *testing.T) {
	s := store.NewMemory()
	b := openBook(t, s, options())
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 200 {
				b.Add(&receipt.Receipt{Kind: receipt.Call})
			}
		})
	}
	writers.Wait()
	shut(t, b)
	good(t, s)
	var last time.Time
	n := 0
	for _, e := range entries(t, s, receipt.Query{Kind: receipt.Call}) {
		if e.Receipt.Time.Before(last) {
			t.Fatalf("%s is of %s, after one of %s", e.ID(), e.Receipt.Time, last)
		}
		last = e.Receipt.Time
		n++
	}
	if n != 1600 {
		t.Errorf("%d receipts, want 1600", n)
	}
}

func TestWithoutTheStoreWaitersFailAtOnceAndOtherReceiptsStayQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{Store: store.NewMemory()}
		b := openBook(t, s, options())
		time.Sleep(time.Second)
		s.fail(true, false)
		id, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent, Tool: "first"})
		if code(err) != switchboard.CodeReceipt || !errors.Is(err, store.ErrUnavailable) || id != "n1/3" {
			t.Errorf("got %q, %v", id, err)
		}
		gone := time.Now()
		id, err = b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent, Tool: "second"})
		if code(err) != switchboard.CodeReceipt || time.Since(gone) != 0 || id != "" {
			t.Errorf("got %q, %v after %s", id, err, time.Since(gone))
		}
		b.Add(&receipt.Receipt{Kind: receipt.Call, Tool: "read"})
		time.Sleep(10 * time.Second)
		st := b.Status()
		if st.Fault == "" || !st.Since.Equal(gone) || st.Waiting != 2 || st.Lost != 0 {
			t.Errorf("got %+v", st)
		}
		s.fail(false, false)
		time.Sleep(time.Second)
		if st := b.Status(); st.Fault != "" || !st.Since.IsZero() {
			t.Errorf("a second after it is there again: %+v", st)
		}
		if _, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent, Tool: "third"}); err != nil {
			t.Error(err)
		}
		shut(t, b)
		good(t, s)
		want := []string{
			"n1/1 key", "n1/2 start v1", "n1/3 intent first", "n1/4 call read", "n1/5 intent third", "n1/6 stop v1",
		}
		if got := all(t, s); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

func TestAnUnconfirmedWriteThatWasStoredIsNotRepeated(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{Store: store.NewMemory()}
		b := openBook(t, s, options())
		time.Sleep(time.Second)
		s.fail(true, true)
		if _, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent, Tool: "t"}); code(err) != switchboard.CodeReceipt {
			t.Errorf("got %v", err)
		}
		s.fail(false, false)
		time.Sleep(time.Second)
		shut(t, b)
		good(t, s)
		want := []string{"n1/1 key", "n1/2 start v1", "n1/3 intent t", "n1/4 stop v1"}
		if got := all(t, s); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

func TestAReceiptCountsLostReceipts(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{Store: store.NewMemory()}
		o := options()
		o.Queue = 4
		b := openBook(t, s, o)
		time.Sleep(time.Second)
		s.fail(true, false)
		b.Add(&receipt.Receipt{Kind: receipt.Call})
		time.Sleep(time.Second)
		for range 10 {
			b.Add(&receipt.Receipt{Kind: receipt.Call})
		}
		since := time.Now()
		b.Add(&receipt.Receipt{Kind: receipt.Call, Of: "n1/2", Tool: "came of an intent"})
		if st := b.Status(); st.Lost != 6 || st.Waiting != 6 {
			t.Errorf("got %+v", st)
		}
		s.fail(false, false)
		time.Sleep(time.Minute)
		shut(t, b)
		good(t, s)
		var told []receipt.LossReport
		kept := 0
		for _, e := range entries(t, s, receipt.Query{}) {
			switch e.Receipt.Kind {
			case receipt.LostKind:
				told = append(told, e.Receipt.Lost)
			case receipt.Call:
				kept++
			}
		}
		if len(told) != 1 || told[0].Receipts != 6 || !told[0].Since.Equal(since) || kept != 6 {
			t.Errorf("%d kept, lost %+v", kept, told)
		}
	})
}

func TestACallerWaitsForRoomUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{Store: store.NewMemory(), slow: 3 * time.Second}
		o := options()
		o.Queue = 2
		b := openBook(t, s, o)
		time.Sleep(4 * time.Second)
		var waiting sync.WaitGroup
		write := func(of string, patience time.Duration, id string, want switchboard.Code) {
			waiting.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if got, err := b.Write(ctx, &receipt.Receipt{Kind: receipt.Intent, Tool: of}); code(err) != want || got != id {
					t.Errorf("%s: %q, %v", of, got, err)
				}
			})
			synctest.Wait()
		}
		write("in the store", time.Minute, "n1/3", "")
		write("queued", time.Minute, "n1/4", "")
		write("queued and gone", time.Second, "n1/5", switchboard.CodeReceipt)
		write("without room", time.Minute, "n1/6", "")
		write("without room and gone", time.Second, "", switchboard.CodeReceipt)
		waiting.Wait()
		shut(t, b)
		good(t, s)
		want := []string{
			"n1/1 key", "n1/2 start v1", "n1/3 intent in the store", "n1/4 intent queued", "n1/5 intent queued and gone",
			"n1/6 intent without room", "n1/7 stop v1",
		}
		if got := all(t, s); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

// seeing remembers the stack of the last append.
type seeing struct {
	receipt.Store
	stack string
}

func (s *seeing) Append(ctx context.Context, log string, after uint64, entries ...[]byte) error {
	s.stack = string(debug.Stack())
	return s.Store.Append(ctx, log, after, entries...)
}

// Waking two goroutines would take longer than everything else except the disk.
func TestTheCallerThatWaitsForAnIntentWritesIt(t *testing.T) {
	s := &seeing{Store: store.NewMemory()}
	o := options()
	o.Linger = time.Hour
	b := openBook(t, s, o)
	b.Add(&receipt.Receipt{Kind: receipt.Call})
	if _, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s.stack, t.Name()) {
		t.Errorf("another goroutine appended it:\n%s", s.stack)
	}
	if got := b.Status(); got.Seq != 4 || got.Waiting != 0 {
		t.Errorf("%+v: the earlier receipt was not written with it", got)
	}
}

func TestACallerWithAShortDeadlineDoesNotWriteItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{Store: store.NewMemory()}
		b := openBook(t, s, options())
		s.slow = 3 * time.Second
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Write(ctx, &receipt.Receipt{Kind: receipt.Intent}); code(err) != switchboard.CodeReceipt || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		time.Sleep(10 * time.Second)
		shut(t, b)
		good(t, s)
		if got, want := all(t, s), []string{"n1/1 key", "n1/2 start v1", "n1/3 intent", "n1/4 stop v1"}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

func TestACallIsNotMadeIfItsClientDisconnectsDuringTheIntent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{Store: store.NewMemory()}
		b := openBook(t, s, options())
		s.slow = 3 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := recorded(b, switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			t.Error("the call was made")
			return switchboard.Result{}, nil
		})).Call(ctx, callOf(switchboard.Contract{}))
		if code(err) != switchboard.CodeReceipt {
			t.Errorf("got %v", err)
		}
		shut(t, b)
		good(t, s)
		if got, want := entries(t, s, receipt.Query{}), 5; len(got) != want || got[3].Receipt.Outcome != receipt.Refused || got[3].Receipt.Of != got[2].ID() {
			t.Errorf("%d entries, %+v", len(got), got[3].Receipt)
		}
	})
}

// No other goroutine writes here, and there is a checkpoint nevertheless.
func TestReceiptsThatCallersWriteReachACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var anchor bytes.Buffer
		o := options()
		o.Anchor, o.CheckpointEvery = &anchor, 5
		b := openBook(t, store.NewMemory(), o)
		for range 8 {
			if _, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if got, err := receipt.ReadCheckpoints(&anchor); err != nil || len(got) != 2 || got[0].Seq != 5 || got[1].Seq != 10 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestWithoutAnAnchorTheLogKeepsCheckpoints(t *testing.T) {
	for name, tt := range map[string]struct {
		anchor io.Writer
		want   int
	}{
		"without an anchor": {nil, 2},
		"with one":          {io.Discard, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			o := options()
			o.Anchor, o.CheckpointEvery, o.Log = tt.anchor, 1, slog.New(slog.NewTextHandler(&log, nil))
			b := openBook(t, store.NewMemory(), o)
			write := func() {
				if _, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent}); err != nil {
					t.Fatal(err)
				}
			}
			write()
			time.Sleep(6 * time.Minute) // the first
			time.Sleep(time.Hour)       // nothing new
			write()
			if err := b.Close(t.Context()); err != nil { // the second
				t.Fatal(err)
			}
			if got := strings.Count(log.String(), `msg="checkpoint of receipts"`); got != tt.want {
				t.Errorf("%s: %d checkpoints are in the log, want %d:\n%s", name, got, tt.want, &log)
			}
		})
	}
}

func TestABookIsFencedOnceAnotherProcessWritesItsChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		old := openBook(t, s, options())
		time.Sleep(time.Second)
		b := openBook(t, s, options())
		time.Sleep(time.Second)
		for range 2 {
			if _, err := old.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent}); code(err) != switchboard.CodeReceipt || !errors.Is(err, store.ErrConflict) {
				t.Errorf("got %v", err)
			}
		}
		if st := old.Status(); !st.Fenced || st.Fault == "" {
			t.Errorf("got %+v", st)
		}
		if _, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent}); err != nil {
			t.Error(err)
		}
		shut(t, b)
		good(t, s)
		if err := old.Close(t.Context()); !errors.Is(err, store.ErrConflict) {
			t.Errorf("Close gave %v", err)
		}
	})
}

func TestOpenTakesTheChainOverWhileAnotherProcessWrites(t *testing.T) {
	s := store.NewMemory()
	old := openBook(t, s, options())
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = old.Write(context.Background(), &receipt.Receipt{Kind: receipt.Admin})
			}
		}
	})
	var b *receipt.Chain
	for range 20 {
		b = openBook(t, s, options())
		if _, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Admin}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	writer.Wait()
	_, _ = old.Write(t.Context(), &receipt.Receipt{Kind: receipt.Admin}) // it may have written nothing since
	if !old.Status().Fenced || b.Status().Fenced {
		t.Errorf("the old one %+v, the new one %+v", old.Status(), b.Status())
	}
	good(t, s)
}

func TestABookOpensWithoutAStoreAndWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{Store: store.NewMemory()}
		s.fail(true, false)
		b := openBook(t, s, options())
		b.Add(&receipt.Receipt{Kind: receipt.Call})
		if _, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent}); code(err) != switchboard.CodeReceipt {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
		s.fail(false, false)
		time.Sleep(time.Second)
		if _, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent, Tool: "t"}); err != nil {
			t.Error(err)
		}
		shut(t, b)
		good(t, s)
		if got := all(t, s); !slices.Equal(got, []string{"n1/1 key", "n1/2 start v1", "n1/3 lost", "n1/4 intent t", "n1/5 stop v1"}) {
			t.Errorf("got %q", got)
		}
	})
}

func TestAChangedChainIsNotContinued(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(entries [][]byte) [][]byte
		key    switchboard.Secret
		want   string
	}{
		"edited": {func(e [][]byte) [][]byte {
			e[len(e)-1] = bytes.Replace(e[len(e)-1], []byte(`"note":"v1"`), []byte(`"note":"v2"`), 1)
			return e
		}, keyA, ": signature"},
		"cut off within what was written at once": {func(e [][]byte) [][]byte {
			together := slices.IndexFunc(e, func(e []byte) bool { return !bytes.Contains(e, []byte(`,"signature":`)) })
			return e[:together+1]
		}, keyA, ": end"},
		"with the key of another": {func(e [][]byte) [][]byte { return e }, keyB, "last signed with key"},
	} {
		t.Run(name, func(t *testing.T) {
			s := store.NewMemory()
			b := openBook(t, s, options())
			for range 100 {
				b.Add(&receipt.Receipt{Kind: receipt.Call})
			}
			shut(t, b)
			changed := rewritten(t, tt.change(raws(t, s, "n1")))
			o := options()
			o.Key = tt.key
			if _, err := receipt.Open(t.Context(), changed, o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestTheOldKeySignsTheIntroductionOfTheNewOne(t *testing.T) {
	s := store.NewMemory()
	shut(t, openBook(t, s, options()))
	o := options()
	o.Key, o.Previous = keyB, []switchboard.Secret{keyA}
	shut(t, openBook(t, s, o))
	o.Previous = nil
	shut(t, openBook(t, s, o))
	good(t, s)
	a, _ := receipt.PublicKey(keyA)
	b, _ := receipt.PublicKey(keyB)
	chains, err := receipt.Verify(t.Context(), s, receipt.VerifyOptions{Keys: []string{a}})
	if err != nil || chains[0].Fault != nil || chains[0].Key != a || !slices.Equal(chains[0].Keys, []string{b}) {
		t.Errorf("got %+v, %v", chains, err)
	}
	chains, err = receipt.Verify(t.Context(), s, receipt.VerifyOptions{Keys: []string{b}})
	if err != nil || chains[0].Fault == nil || chains[0].Fault.Rule != receipt.RuleKey || chains[0].Fault.Seq != 1 {
		t.Errorf("got %+v, %v", chains, err)
	}
	if _, err := receipt.Open(t.Context(), s, options()); err == nil {
		t.Error("the key that was replaced signs again")
	}
}

func TestCheckpointsAreMadeAfterEnoughReceiptsAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		var anchor bytes.Buffer
		o := options()
		o.Anchor, o.CheckpointEvery, o.CheckpointAfter = &anchor, 10, time.Hour
		b := openBook(t, s, o)
		count := func() int {
			synctest.Wait()
			return strings.Count(anchor.String(), "\n")
		}
		for range 10 {
			b.Add(&receipt.Receipt{Kind: receipt.Call})
		}
		time.Sleep(time.Second)
		if count() != 1 {
			t.Errorf("%d checkpoints after ten receipts", count())
		}
		b.Add(&receipt.Receipt{Kind: receipt.Call})
		time.Sleep(time.Hour)
		if count() != 2 {
			t.Errorf("%d checkpoints after an hour", count())
		}
		time.Sleep(10 * time.Hour)
		if count() != 2 {
			t.Errorf("%d checkpoints, and there are no new entries", count())
		}
		shut(t, b)
		marks, err := receipt.ReadCheckpoints(&anchor)
		if err != nil || len(marks) != 3 {
			t.Fatalf("%d checkpoints in the end, %v", len(marks), err)
		}
		chains, err := receipt.Verify(t.Context(), s, receipt.VerifyOptions{Checkpoints: marks})
		if err != nil || chains[0].Fault != nil || chains[0].Checkpoints != 3 || marks[2].Seq != chains[0].Last {
			t.Errorf("got %+v, %v", chains, err)
		}
	})
}

// raws returns the entries of a chain as they are stored.
func raws(t *testing.T, s receipt.ChainReader, node string) (out [][]byte) {
	t.Helper()
	entries, err := s.Read(t.Context(), "receipts/"+node, 0, store.MaxEntries)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, bytes.Clone(e.Data))
	}
	return out
}

// rewritten returns a store that holds the entries as the chain of n1.
func rewritten(t testing.TB, entries [][]byte) *store.Memory {
	t.Helper()
	s := store.NewMemory()
	for i, e := range entries {
		if err := s.Append(t.Context(), "receipts/n1", uint64(i), e); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// The chain continues with a key that is introduced while it is written, even if the store is
// unavailable at that time. A rotation that reported a failure may still come into the chain.
func TestAKeyIsRotatedWhileTheChainIsWritten(t *testing.T) {
	for name, broken := range map[string]struct{ now, takes bool }{"": {}, "the store is gone": {true, false}, "and has taken it": {true, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &breaking{Store: store.NewMemory()}
				b := openBook(t, s, options())
				for range 2000 { // written in parts
					b.Add(&receipt.Receipt{Kind: receipt.Call})
				}
				s.fail(broken.now, broken.takes)
				if err := b.Rotate(t.Context(), keyB); (err != nil) != broken.now {
					t.Errorf("rotate: %v", err)
				}
				for range 2000 {
					b.Add(&receipt.Receipt{Kind: receipt.Call})
				}
				s.fail(false, false)
				time.Sleep(time.Minute)
				if err := b.Rotate(t.Context(), keyB); err != nil {
					t.Errorf("again: %v", err)
				}
				shut(t, b)
				good(t, s)
				o := options()
				o.Key = keyB // no previous key
				shut(t, openBook(t, s, o))
				chains, err := receipt.Verify(t.Context(), s, receipt.VerifyOptions{})
				if err != nil || len(chains[0].Keys) != 1 || chains[0].Fault != nil {
					t.Errorf("%+v, %v", chains, err)
				}
			})
		})
	}
}
