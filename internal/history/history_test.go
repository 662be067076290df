package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A testStore is a store in memory that passes for one that survives the process.
type testStore struct {
	*store.Memory
	lists   atomic.Int64 // how often it was listed
	away    atomic.Bool  // nothing works
	halved  atomic.Bool  // changes are made, and then nothing is answered
	dropped atomic.Bool  // changes are not made, and nothing is answered
}

func newTestStore() *testStore { return &testStore{Memory: store.NewMemory()} }

func (s *testStore) Status() store.Status {
	if s.away.Load() {
		return store.Status{Kind: "file", Fault: "it is away"}
	}
	return store.Status{Kind: "file"}
}

func (s *testStore) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if s.away.Load() {
		return store.Value{}, store.ErrUnavailable
	}
	return s.Memory.Value(ctx, k)
}

func (s *testStore) List(ctx context.Context, group string) ([]store.NamedValue, error) {
	s.lists.Add(1)
	if s.away.Load() {
		return nil, store.ErrUnavailable
	}
	return s.Memory.List(ctx, group)
}

func (s *testStore) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	if s.away.Load() || s.dropped.Load() {
		return 0, store.ErrUnavailable
	}
	v, err := s.Memory.Apply(ctx, c)
	if s.halved.Load() {
		return 0, store.ErrUnavailable
	}
	return v, err
}

// A process is a History that runs, with a Caller whose calls take 20 ms and end as their Target says.
type process struct {
	*History
	caller switchboard.Caller
	stop   func()
}

var ends = switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
	switch c.Target {
	case "at once":
		return switchboard.Result{}, nil
	case "moved":
		return switchboard.Result{Moved: &switchboard.Moved{}}, nil
	case "repeated":
		return switchboard.Result{Moved: &switchboard.Moved{}, Repeated: &switchboard.Repeated{}}, nil
	}
	time.Sleep(20 * time.Millisecond)
	switch c.Target {
	case "":
		return switchboard.Result{}, nil
	case "server error":
		return switchboard.Result{}, fmt.Errorf("wrapped: %w", &switchboard.ServerError{Server: c.Server})
	case "cancelled":
		return switchboard.Result{}, context.Canceled
	case "strange":
		return switchboard.Result{}, errors.New("strange")
	}
	return switchboard.Result{}, switchboard.Refuse(switchboard.Code(c.Target), "no")
})

// start starts a process. Its end is that of the test, unless it is stopped before.
func start(t *testing.T, s Store) *process {
	t.Helper()
	h := New(Options{Store: s, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Run(ctx)
	}()
	p := &process{History: h, caller: h.Count(ends)}
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(p.stop)
	return p
}

// call makes n calls.
func (p *process) call(n int, tenant, server, target string) {
	for range n {
		_, _ = p.caller.Call(context.Background(), &switchboard.Call{Principal: switchboard.Principal{Tenant: switchboard.TenantID(tenant)}, Server: switchboard.ServerID(server), Target: target})
	}
}

// read returns a report.
func (p *process) read(t *testing.T, q Range) *Excerpt {
	t.Helper()
	r, err := p.Read(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// calls returns the calls of each pair in all steps of the scale.
func (p *process) calls(t *testing.T, step string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, line := range p.read(t, Range{Step: step}).Series {
		for _, point := range line.Points {
			all[string(line.Tenant)+" "+string(line.Server)] += point.Calls
		}
	}
	return all
}

// same fails the test unless each scale has the calls.
func (p *process) same(t *testing.T, when string, want map[string]int64) {
	t.Helper()
	for _, name := range Names() {
		if got := p.calls(t, name); !maps.Equal(got, want) {
			t.Errorf("%s, steps of %s have %v; want %v", when, name, got, want)
		}
	}
}

func TestEachCallCountsByItsOutcomeAndItsLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, nil)
		for target, n := range map[string]int{
			"": 10, "moved": 2, "repeated": 1, "server error": 1, "strange": 1, "cancelled": 3, "SB-POL-001": 4, "SB-ROUT-002": 1, "SB-TASK-001": 1, "SB-EXEC-001": 2, "SB-ROUT-001": 1, "SB-POL-002": 1,
		} {
			p.call(n, "acme", "files", target)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = p.caller.Call(ctx, &switchboard.Call{Principal: switchboard.Principal{Tenant: "acme"}, Server: "files", Target: "SB-EXEC-004"}) // its client has left
		r := p.read(t, Range{Step: "1m"})
		if len(r.Series) != 1 || len(r.Series[0].Points) != 1 {
			t.Fatalf("%+v", r)
		}
		got := r.Series[0].Points[0].Tally
		want := Tally{Calls: 29, Failed: 6, Refused: 6, Moved: 2, Refusals: map[string]int64{"SB-POL-001": 4, "SB-ROUT-002": 1, "others": 1}, P50: got.P50, P95: got.P95, Buckets: make([]int64, len(bucketBounds)+1)}
		want.Buckets[0], want.Buckets[4] = 3, 16
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("\n%+v, want\n%+v", got, want)
		}
		if got.P50 < 10 || got.P50 > 25 || got.P95 <= got.P50 || got.P95 > 25 {
			t.Errorf("half of the calls take %v ms, and 95 of 100 %v ms", got.P50, got.P95)
		}
		if len(r.Bounds) != len(bucketBounds) || r.Bounds[0] != 1 || r.Bounds[1] != 2.5 || r.Incomplete || r.StoreAway {
			t.Errorf("%+v", r)
		}
	})
}

func TestRefusalsAreCountedByTheCodesThatCallsHave(t *testing.T) {
	t.Parallel()
	if numbers > 64 {
		t.Fatalf("%d numbers do not fit a mask", numbers)
	}
	// Calls do not end with these: they are of requests before a call, and of changes.
	elsewhere := []switchboard.Code{switchboard.CodeNotAuthenticated, switchboard.CodeKeyExpired, switchboard.CodeNoSuchTask, switchboard.CodeTaskRefused, switchboard.CodeConfig, switchboard.CodeChangedMeanwhile, switchboard.CodeNotChangedHere, switchboard.CodeProposal}
	for _, code := range switchboard.Codes() {
		want := isRefusal(code) && !slices.Contains(elsewhere, code)
		if got := numberOf(code) != otherCodes; got != want {
			t.Errorf("%s is counted apart: %v, want %v", code, got, want)
		}
	}
}

func TestBlocksOfTheFormatsBeforeAreRead(t *testing.T) {
	t.Parallel()
	b := newBlock()
	b.add(3, historyStep{seriesKey{"acme", "files"}: {numCalls: 9, numRefused: 2}})
	for before := byte(1); before < blockFormat; before++ {
		data := b.encode()
		data[0] = before
		was, err := decodeBlock(data)
		if err != nil {
			t.Fatal(err)
		}
		if got := was.steps[3][seriesKey{"acme", "files"}]; got[numCalls] != 9 || got[numRefused] != 2 {
			t.Errorf("%v", got)
		}
		was.add(3, historyStep{seriesKey{"acme", "files"}: {firstCode: 5}})
		if data := was.encode(); data[0] != blockFormat {
			t.Errorf("it is written in format %d", data[0])
		}
	}
}

func TestNumbersBehindTheCodesKeepTheirPlacesWhenCodesAreAdded(t *testing.T) {
	t.Parallel()
	const others, spent = firstCode + codesBefore4, firstCode + codesBefore4 + 1 // as format 3 has them
	b := newBlock()
	b.add(3, historyStep{seriesKey{"acme", "files"}: {numCalls: 9, firstCode: 5, others: 2, spent: 70}})
	data := b.encode()
	data[0] = 3
	was, err := decodeBlock(data)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := *was.steps[3][seriesKey{"acme", "files"}], (counts{numCalls: 9, firstCode: 5, otherCodes: 2, numSpent: 70}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	b.add(3, historyStep{seriesKey{"acme", "files"}: {numUncounted: 1}}) // format 3 has no such number
	data = b.encode()
	data[0] = 3
	if _, err := decodeBlock(data); !errors.Is(err, errDamaged) {
		t.Errorf("%v, want %v", err, errDamaged)
	}
}

func TestSpendIsKeptWithoutACallAndWithEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore()
		one := start(t, s)
		one.CountSpend("acme", "files", 2_500_000)
		one.CountSpend("acme", "files", 1)
		one.CountSpend("acme", "mail", 0)
		one.call(1, "acme", "files", "")
		time.Sleep(2 * time.Minute)
		one.CountSpend("acme", "files", 10)
		one.CountSpend("beta", "files", 7)
		one.stop()
		one.Close(t.Context())
		other := start(t, s)
		for tenant, want := range map[switchboard.TenantID]switchboard.Micros{"": 2_500_018, "acme": 2_500_011, "beta": 7} {
			r, err := other.Sum(t.Context(), Range{Step: "15m", Tenant: tenant})
			if err != nil {
				t.Fatal(err)
			}
			var sum Tally
			for i := range r.Series[0].Points {
				sum.Add(&r.Series[0].Points[i].Tally)
			}
			if sum.Spent != want || sum.Refusals != nil {
				t.Errorf("tenant %q: %+v, want %d", tenant, sum, want)
			}
		}
	})
}

func TestACallCountsInTheStepOfItsEndInEveryScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a bubble begins at midnight
		p := start(t, nil)
		began := time.Now().UTC()
		p.call(1, "acme", "files", "")
		time.Sleep(15 * time.Second)
		p.call(2, "acme", "files", "")
		time.Sleep(time.Minute)
		p.call(3, "acme", "files", "")
		time.Sleep(20 * time.Minute)
		p.call(4, "acme", "files", "")
		for name, want := range map[string]map[time.Duration]int64{
			"10s": {0: 1, 10 * time.Second: 2, 70 * time.Second: 3, 21*time.Minute + 10*time.Second: 4},
			"1m":  {0: 3, time.Minute: 3, 21 * time.Minute: 4},
			"15m": {0: 6, 15 * time.Minute: 4},
		} {
			got := map[time.Duration]int64{}
			r := p.read(t, Range{Step: name})
			for _, point := range r.Series[0].Points {
				got[point.Start.Sub(began)] = point.Calls
			}
			if !maps.Equal(got, want) || r.From.After(began) || r.To.Before(time.Now()) {
				t.Errorf("%s: %v, want %v; %v to %v", name, got, want, r.From, r.To)
			}
		}
	})
}

func TestARangeSelectsTenantServerAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, nil)
		began := time.Now()
		p.call(1, "acme", "files", "")
		p.call(2, "acme", "search", "")
		p.call(3, "beta", "files", "")
		time.Sleep(10 * time.Minute)
		p.call(4, "acme", "files", "")
		for _, one := range []struct {
			q    Range
			want int64
		}{
			{Range{}, 10},
			{Range{Tenant: "acme"}, 7},
			{Range{Server: "files"}, 8},
			{Range{Tenant: "acme", Server: "files"}, 5},
			{Range{Tenant: "nosuch"}, 0},
			{Range{From: began.Add(5 * time.Minute)}, 4},
			{Range{To: began.Add(5 * time.Minute)}, 6},
			{Range{From: began, To: began.Add(time.Second)}, 6},
			{Range{From: began.Add(time.Minute), To: began.Add(5 * time.Minute)}, 0},
		} {
			one.q.Step = "1m"
			got := int64(0)
			for _, line := range p.read(t, one.q).Series {
				for _, point := range line.Points {
					got += point.Calls
				}
			}
			total := int64(0)
			one.q.Total = true
			for _, line := range p.read(t, one.q).Series {
				if total += line.Points[0].Calls; len(line.Points) != 1 {
					t.Errorf("%+v: a series has %d points", one.q, len(line.Points))
				}
			}
			if got != one.want || total != one.want {
				t.Errorf("%+v: %d calls, and in one point %d, want %d", one.q, got, total, one.want)
			}
		}
		for _, q := range []Range{{Step: "1h"}, {Step: "1m", From: time.Now().Add(time.Hour)}, {Step: "10s", To: time.Now().Add(-2 * time.Hour)}, {Step: "1m", From: began.Add(time.Minute), To: began}} {
			if r, err := p.Read(t.Context(), q); err == nil {
				t.Errorf("%+v: %+v", q, r)
			}
		}
	})
}

func TestStepsExpireWithTheirScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore()
		p := start(t, s)
		p.call(1, "acme", "files", "")
		for _, one := range []struct {
			wait time.Duration
			want []int64 // by scale
		}{{30 * time.Minute, []int64{1, 1, 1}}, {2 * time.Hour, []int64{0, 1, 1}}, {25 * time.Hour, []int64{0, 0, 1}}, {14 * 24 * time.Hour, []int64{0, 0, 0}}} {
			time.Sleep(one.wait)
			for i, name := range Names() {
				if got := p.calls(t, name)["acme files"]; got != one.want[i] {
					t.Errorf("%v later, steps of %s have %d calls, want %d", one.wait, name, got, one.want[i])
				}
			}
		}
		time.Sleep(24 * time.Hour)
		if n, rows := stored(t, s); n != 0 {
			t.Errorf("the store still has %d bytes in %d values", n, rows)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for i := range p.kept {
			if n := p.kept[i].size(); n != 0 {
				t.Errorf("%d bytes of steps of %s stay in memory", n, scales[i].name)
			}
		}
	})
}

// stored returns how many bytes of history the store has, and how many values.
func stored(t *testing.T, s *testStore) (size, rows int) {
	t.Helper()
	for i := range scales {
		all, err := s.Memory.List(t.Context(), scales[i].group())
		if err != nil {
			t.Fatal(err)
		}
		rows += len(all)
		for _, v := range all {
			size += len(v.Data) + len(v.Name)
		}
	}
	return size, rows
}

func TestTheHistoryOutlivesItsProcessKilledOrStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore()
		first := start(t, s)
		first.call(3, "acme", "files", "")
		time.Sleep(2 * time.Minute)
		first.stop() // killed: nothing is saved any more
		second := start(t, s)
		second.call(2, "acme", "files", "") // in the step in which the first one ended
		second.same(t, "after a kill", map[string]int64{"acme files": 5})
		second.stop()
		second.Close(t.Context())
		third := start(t, s)
		synctest.Wait()
		s.away.Store(true) // it has read everything at its start
		third.same(t, "after a stop", map[string]int64{"acme files": 5})
		if r := third.read(t, Range{Step: "1m"}); !r.StoreAway {
			t.Error("the report does not say that the store is away")
		}
	})
}

func TestTheHistorySumsUpTheReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore()
		want := map[string]int64{}
		var all []*process
		for range 20 { // several save at the same instant
			all = append(all, start(t, s))
		}
		for round := range 3 {
			for i, p := range all {
				n, server := 1+round+i, fmt.Sprint("server-", i%3)
				p.call(n, "acme", server, "at once")
				want["acme "+server] += int64(n)
			}
			time.Sleep(saveInterval + rollInterval)
		}
		for _, p := range all {
			p.same(t, "at a replica", want)
		}
		if _, rows := stored(t, s); rows > 6 {
			t.Errorf("20 replicas left %d values", rows)
		}
	})
}

func TestAReaderSeesTheCallsOfOthersFiveSecondsAfterTheStoreHasThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore()
		one, other := start(t, s), start(t, s)
		one.call(1, "acme", "files", "")
		other.same(t, "before the store has it", map[string]int64{})
		one.Close(t.Context())
		before := s.lists.Load()
		for range 100 {
			other.same(t, "at once", map[string]int64{})
		}
		if n := s.lists.Load() - before; n != 0 {
			t.Errorf("100 readers within %s read the store %d times", refreshInterval, n)
		}
		time.Sleep(refreshInterval)
		other.same(t, "later", map[string]int64{"acme files": 1})
	})
}

func TestWhileTheStoreIsAwayTheHistoryGoesOnAndIsWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore()
		s.away.Store(true)
		p := start(t, s)
		p.call(1, "acme", "files", "")
		time.Sleep(5 * time.Minute)
		p.same(t, "away from the start", map[string]int64{"acme files": 1})
		s.away.Store(false)
		time.Sleep(2 * saveInterval)
		start(t, s).same(t, "another process, once it is back", map[string]int64{"acme files": 1})
		s.away.Store(true)
		for range 20 {
			p.call(1, "acme", "files", "")
			time.Sleep(3 * time.Minute)
		}
		if got := p.calls(t, "15m")["acme files"]; got != 21 {
			t.Errorf("while it is away, there are %d calls", got)
		}
		s.away.Store(false)
		time.Sleep(2 * saveInterval)
		if got := start(t, s).calls(t, "15m")["acme files"]; got != 21 {
			t.Errorf("another process sees %d calls", got)
		}
	})
}

// A write without an answer may have been made: it must count once, whether it was or not.
func TestAWriteWithAnUnknownOutcomeCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore()
		p, other := start(t, s), start(t, s)
		want := map[string]int64{}
		for i := range 8 {
			s.halved.Store(i%4 == 0)
			s.dropped.Store(i%4 == 2)
			s.away.Store(i == 5)
			p.call(1+i, "acme", "files", "at once")
			other.call(1, "acme", "files", "at once")
			want["acme files"] += int64(2 + i)
			time.Sleep(saveInterval + rollInterval)
			s.away.Store(false)
			if i%2 == 1 {
				time.Sleep(saveInterval + rollInterval)
				synctest.Wait()
				p.same(t, fmt.Sprint("after ", i), want)
				other.same(t, fmt.Sprint("at the other after ", i), want)
			}
		}
		for i := range scales {
			if left := p.unsaved(i); len(left) > 0 {
				t.Errorf("steps of %s count as unsaved: %v", scales[i].name, left)
			}
		}
	})
}

func TestADamagedBlockIsReplacedAndOneOfAnotherVersionIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore()
		name := fmt.Sprint(scales[1].start(time.Now()))
		for data, survives := range map[string]bool{"\x02\xff": false, string([]byte{blockFormat + 1}) + "whatever": true} {
			if _, err := s.Memory.Apply(t.Context(), store.Change{Group: scales[1].group(), Writes: []store.Write{{Name: name, Was: store.Any, Data: []byte(data)}}}); err != nil {
				t.Fatal(err)
			}
			p := start(t, s)
			p.call(1, "acme", "files", "")
			time.Sleep(saveInterval + rollInterval)
			if got := p.calls(t, "1m")["acme files"]; got != 1 {
				t.Errorf("%q: %d calls", data, got)
			}
			p.stop()
			v, err := s.Memory.Value(t.Context(), store.Key{Group: scales[1].group(), Name: name})
			if err != nil || (string(v.Data) == data) != survives {
				t.Errorf("%q has become %q, %v", data, v.Data, err)
			}
		}
	})
}

func TestTheClockMayJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, nil)
		p.call(1, "acme", "files", "")
		p.roll(time.Now().Add(time.Hour))
		p.call(1, "acme", "files", "")
		p.roll(time.Now()) // and back
		p.same(t, "after two jumps", map[string]int64{"acme files": 2})
	})
}

func TestAStepKeepsTheBusiestSeriesAndTheSumOfTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, newTestStore())
		for i := range 200 {
			p.call(1+i, "acme", fmt.Sprintf("server-%03d", i), "at once")
		}
		time.Sleep(2 * saveInterval)
		r := p.read(t, Range{Step: "1m"})
		if len(r.Series) != maxSeries || !r.Incomplete {
			t.Fatalf("%d series; incomplete: %v", len(r.Series), r.Incomplete)
		}
		total := int64(0)
		for i, line := range r.Series {
			total += line.Points[0].Calls
			if want := fmt.Sprintf("server-%03d", 200-maxSeries+i); i > 0 && string(line.Server) != want || i == 0 && line.Server != "" {
				t.Errorf("series %d is of server %q", i, line.Server)
			}
		}
		if total != 200*201/2 {
			t.Errorf("the sum of all series is %d", total)
		}
		if r := p.read(t, Range{Step: "1m", Tenant: "acme"}); len(r.Series) != maxSeries-1 || !r.Incomplete {
			t.Errorf("the tenant sees %d series; incomplete: %v", len(r.Series), r.Incomplete)
		}
		kept := int64(0) // by the calls of the series that have names
		for _, line := range r.Series[1:] {
			kept += line.Points[0].Calls
		}
		for _, tt := range []struct {
			of         Range
			calls      int64
			incomplete bool
		}{
			{Range{Step: "1m"}, total, false},
			{Range{Step: "15m", Tenant: "acme"}, kept, true},
			{Range{Step: "10s", Server: "server-199"}, 200, true},
			{Range{Step: "1m", Tenant: "other"}, 0, true},
		} {
			for range 2 { // the second one from the sums of blocks
				sum, err := p.Sum(t.Context(), tt.of)
				if err != nil {
					t.Fatal(err)
				}
				calls := int64(0)
				for _, one := range sum.Series[0].Points {
					calls += one.Calls
				}
				if len(sum.Series) != 1 || calls != tt.calls || sum.Incomplete != tt.incomplete {
					t.Errorf("the sum of %+v has %d calls, incomplete: %v", tt.of, calls, sum.Incomplete)
				}
			}
		}
	})
}

func TestACallThatHasFoundAPairThatIsRemovedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, nil)
		p.call(1, "acme", "files", "at once")
		s := p.live.seriesOf(seriesKey{"acme", "files"})
		time.Sleep(maxIdle + 2*rollInterval)
		synctest.Wait()
		if n := len(*p.live.all.Load()); n != 0 {
			t.Fatalf("%d pairs are counted", n)
		}
		s.now[numCalls].Add(1)
		p.call(1, "acme", "files", "at once")
		if got := p.calls(t, "1m")["acme files"]; got != 3 {
			t.Errorf("%d calls", got)
		}
	})
}

func TestManyPairsNeedLittleMemoryAndLeaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, nil)
		for i := range 3 * maxLive {
			p.call(1, fmt.Sprint("tenant-", i), "files", "at once")
		}
		p.call(1, strings.Repeat("x", maxName+1), "files", "at once")
		if n := len(*p.live.all.Load()); n != maxLive {
			t.Errorf("%d pairs are counted", n)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		p.live.changing.Lock()
		n, m := len(*p.live.all.Load()), len(p.live.leaving)
		p.live.changing.Unlock()
		if n != 0 || m != 0 {
			t.Errorf("two hours later, %d pairs are counted, and %d leave", n, m)
		}
		total := int64(0)
		for _, n := range p.calls(t, "15m") {
			total += n
		}
		if total != 3*maxLive+1 {
			t.Errorf("%d calls", total)
		}
	})
}

// fill returns a block of each begin that the scale keeps, with more pairs in each step than are kept, and busy ones. All blocks are equal,
// because only their number and their size count.
func fill(s *scale, r *rand.Rand, now time.Time) map[int64][]byte {
	b := newBlock()
	for i := range s.steps {
		step := historyStep{}
		for j := range maxSeries + 6 {
			c := step.at(seriesKey{switchboard.TenantID(fmt.Sprint("tenant-with-a-name-", j)), switchboard.ServerID(fmt.Sprint("server-with-a-name-", j))})
			for k := range c[:firstCode] { // codes come on top: a step with more of them keeps fewer series
				c[k] = 100 + r.Uint64N(16000)
			}
		}
		b.add(i, step)
	}
	data, all := b.encode(), map[int64][]byte{}
	for start := s.start(now); s.isKept(start, now); start -= int64(s.span() / time.Second) {
		all[start] = bytes.Clone(data)
	}
	return all
}

// The bounds of the design: 64 series a step, 16 MiB in memory, 16 MiB in the store; also where this process and the others have filled
// all steps, and nothing of this process can be written.
func TestAFullHistoryKeeps64SeriesAStepAnd16MiB(t *testing.T) {
	const bound = 16 << 20
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // it fits
	}
	s := newTestStore()
	now, r := time.Now(), rand.New(rand.NewPCG(1, 2))
	before := heap()
	h := New(Options{Store: s, Log: slog.New(slog.DiscardHandler)})
	for i := range scales {
		h.kept[i].fresh = fill(&scales[i], r, now)
	}
	h.roll(now)
	got := heap() - before
	if got > bound || got < bound/4 {
		t.Errorf("a full history takes %d bytes of memory", got)
	}
	t.Logf("a full history takes %.1f MiB of memory", float64(got)/(1<<20))
	size, rows := 0, 0
	for more := true; more; { // a save ends after its time, and is continued
		h.save(t.Context())
		was := rows
		size, rows = stored(t, s)
		more = rows > was
	}
	if size > bound || size < bound/4 || rows < 100 || rows > 119 {
		t.Errorf("a full history takes %d bytes of the store, in %d values", size, rows)
	}
	for i, name := range Names() {
		at, parts := map[time.Time]int{}, 0
		for q := (Range{Step: name, From: now.Add(-100 * scales[i].each)}); parts == 0 || q.After != ""; parts++ {
			report, err := h.Read(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			points := 0
			for _, line := range report.Series {
				points += len(line.Points)
				for _, p := range line.Points {
					at[p.Start]++
				}
			}
			if len(report.Series) == 0 || points > maxPoints || report.Next == q.After {
				t.Fatalf("a part has %d series with %d points, and goes on behind %q", len(report.Series), points, report.Next)
			}
			q.After = report.Next
		}
		if most := slices.Max(slices.Collect(maps.Values(at))); most != maxSeries {
			t.Errorf("a step of %s has up to %d series", name, most)
		}
	}

	// Now the store has everything, and this process has as much again.
	before = heap() - int64(kept(h))
	for i := range scales {
		h.kept[i].fresh = fill(&scales[i], r, now)
	}
	if kept(h) <= maxKept {
		t.Fatalf("that are only %d bytes", kept(h))
	}
	h.roll(now)
	if got := heap() - before; got > bound || kept(h) > maxKept || kept(h) < maxKept/2 {
		t.Errorf("twice as much takes %d bytes of memory", got)
	}
	if h.kept[2].fresh[scales[2].start(now)] == nil {
		t.Error("the newest block was removed, not the oldest")
	}
}

func kept(h *History) (n int) {
	for i := range h.kept {
		n += h.kept[i].size()
	}
	return n
}

func TestABlockBecomesNoLongerThanItMay(t *testing.T) {
	b := newBlock()
	for i := range scales[0].steps {
		step := historyStep{}
		for j := range 200 {
			c := new(counts)
			for k := range c {
				c[k] = maxNumber - uint64(j) //nolint:gosec // it is not negative
			}
			step[seriesKey{switchboard.TenantID(strings.Repeat("t", 64)), switchboard.ServerID(fmt.Sprintf("%0*d", maxName, 1000*i+j))}] = c
		}
		b.add(i, step)
	}
	data := b.encode()
	if len(data) > maxBlock || len(data) < maxBlock/2 {
		t.Errorf("it has %d bytes", len(data))
	}
	back, err := decodeBlock(data)
	if err != nil || len(back.steps) != scales[0].steps {
		t.Fatal(err)
	}
}

func FuzzDecodeBlock(f *testing.F) {
	b := newBlock()
	b.add(3, historyStep{seriesKey{"acme", "files"}: {1, 2, 3, 4, 5}, seriesKey{}: {7: 1 << 40}})
	b.add(7, historyStep{seriesKey{"acme", "search"}: {1}})
	b.noteWrite(5, 6)
	f.Add(b.encode())
	f.Add(newBlock().encode())
	f.Add([]byte("\x02\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decodeBlock(data)
		if err != nil {
			return
		}
		again, err := decodeBlock(b.encode())
		if err != nil {
			t.Fatalf("%q does not decode again: %v", data, err)
		}
		if string(again.encode()) != string(b.encode()) || !slices.Equal(again.writers, b.writers) || len(again.steps) != len(b.steps) {
			t.Errorf("%q becomes %q", b.encode(), again.encode())
		}
	})
}

func TestCountingAllocatesNothing(t *testing.T) {
	h := New(Options{})
	c := h.Count(ends)
	call := &switchboard.Call{Principal: switchboard.Principal{Tenant: "acme"}, Server: "files", Target: "at once"}
	if n := testing.AllocsPerRun(1000, func() { _, _ = c.Call(t.Context(), call) }); n > 0 {
		t.Errorf("a call costs %v allocations", n)
	}
}

func TestNoCallIsLostBetweenRolls(t *testing.T) {
	h := New(Options{})
	c := h.Count(ends)
	var callers, roller sync.WaitGroup
	over := make(chan struct{})
	roller.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				h.roll(time.Now())
			}
		}
	})
	for i := range 8 {
		callers.Go(func() {
			for j := range 5000 {
				call := &switchboard.Call{Principal: switchboard.Principal{Tenant: "acme"}, Server: switchboard.ServerID(fmt.Sprint("server-", (i+j)%20)), Target: "at once"}
				_, _ = c.Call(context.Background(), call)
			}
		})
	}
	callers.Wait()
	close(over)
	roller.Wait()
	r, err := h.Read(t.Context(), Range{Step: "15m"})
	if err != nil {
		t.Fatal(err)
	}
	var sum Tally
	for _, line := range r.Series {
		for _, p := range line.Points {
			sum.Add(&p.Tally)
		}
	}
	timed := int64(0)
	for _, n := range sum.Buckets {
		timed += n
	}
	if sum.Calls != 40_000 || timed != 40_000 {
		t.Errorf("%d of 40000 calls counted, %d with a latency", sum.Calls, timed)
	}
}

func BenchmarkCounting(b *testing.B) {
	h := New(Options{})
	for _, one := range []struct {
		name   string
		caller switchboard.Caller
	}{{"nothing", ends}, {"history", h.Count(ends)}} {
		call := func(i int) *switchboard.Call {
			return &switchboard.Call{Server: switchboard.ServerID(fmt.Sprint("server-", i)), Principal: switchboard.Principal{Tenant: "acme"}, Target: "at once"}
		}
		for i := range 30 { // as many as an installation may have
			_, _ = one.caller.Call(b.Context(), call(i))
		}
		b.Run(one.name, func(b *testing.B) {
			b.ReportAllocs()
			c := call(7)
			for b.Loop() {
				_, _ = one.caller.Call(b.Context(), c)
			}
		})
		b.Run(one.name+" in parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for c := call(7); p.Next(); {
					_, _ = one.caller.Call(context.Background(), c)
				}
			})
		})
	}
}

func TestSumsOfBlocksFollowTheirBlocksAndAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, newTestStore())
		for round := range int64(3) {
			p.call(2, "acme", "files", "")
			time.Sleep(2 * saveInterval) // now the block in the store is another one
			for _, tt := range []struct {
				tenant switchboard.TenantID
				want   int64
			}{{"", 2 * (round + 1)}, {"acme", 2 * (round + 1)}, {"other", 0}} {
				sum, err := p.Sum(t.Context(), Range{Step: "15m", Tenant: tt.tenant})
				if err != nil {
					t.Fatal(err)
				}
				calls := int64(0)
				for _, one := range sum.Series[0].Points {
					calls += one.Calls
				}
				if calls != tt.want {
					t.Errorf("round %d: tenant %q has %d calls, want %d", round, tt.tenant, calls, tt.want)
				}
			}
		}
		if n := len(p.sums.known); n == 0 {
			t.Error("no sum was kept")
		}
		for i := range 10_000 {
			if _, err := p.Sum(t.Context(), Range{Step: "15m", Tenant: switchboard.TenantID(fmt.Sprint("t", i))}); err != nil {
				t.Fatal(err)
			}
		}
		size := 0
		for _, s := range p.sums.known {
			size += len(s.data) + overhead
		}
		if size != p.sums.size || size > maxSums {
			t.Errorf("the sums take %d bytes, and %d are counted", size, p.sums.size)
		}
	})
}
