package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A load uses a store from many goroutines until end, and remembers the answers.
type load struct {
	t    *testing.T
	s    store.Store
	stop context.CancelFunc
	all  sync.WaitGroup

	values  sync.Map // from name to acknowledged version
	logs    [loaders]logTold
	sums    [loaders]sumTold
	holds   sync.Map     // from the id of an acknowledged hold to whether it was unknown when it was settled
	given   atomic.Int64 // permits taken
	unknown atomic.Int64 // Takes with an unknown result
	good    atomic.Int64 // uses that succeeded
	failed  atomic.Int64
	slowest atomic.Int64 // in nanoseconds
	last    atomic.Int64 // when the last use succeeded, in nanoseconds of the clock

	late   wait.Lateness // uses that took too long
	judged sync.Once
}

const (
	loaders   = 16
	loadBurst = 400
)

// A logTold is what one writer knows about its log.
type logTold struct {
	acked   []string
	ackedAt []time.Time
	maybe   map[string]bool // entries with an unknown result
}

// A sumTold is what one counter knows: how many additions were counted, and how many have an unknown result.
type sumTold struct{ counted, maybe int }

// begin begins a load. Each of its uses must succeed or return ErrUnavailable.
func begin(t *testing.T, s store.Store) *load {
	ctx, stop := context.WithCancel(t.Context())
	l := &load{t: t, s: s, stop: stop}
	for i := range loaders {
		l.logs[i].maybe = map[string]bool{}
		l.all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.use(func() error { return l.put(i, n) })
				l.use(func() error { return l.append(i, n) })
				l.use(func() error { return l.count(i) })
				l.use(l.take)
				l.use(func() error { return l.hold(i, n) })
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) end() {
	l.stop()
	l.all.Wait()
}

// use does one thing, and waits a little if it fails.
func (l *load) use(f func() error) {
	begun := time.Now()
	err := f()
	took := time.Since(begun)
	for old := l.slowest.Load(); int64(took) > old && !l.slowest.CompareAndSwap(old, int64(took)); old = l.slowest.Load() {
	}
	switch {
	case err == nil:
		l.good.Add(1)
		l.last.Store(time.Now().UnixNano())
	case errors.Is(err, store.ErrUnavailable):
		l.failed.Add(1)
		after(5 * time.Millisecond)
	default:
		l.t.Error(err)
	}
}

func (l *load) put(i, n int) error {
	name := fmt.Sprintf("%d.%d", i, n)
	v, err := l.s.Apply(context.Background(), store.Change{Group: fmt.Sprint("values", i%4), Writes: []store.Write{{Name: name, Data: []byte(name)}}})
	if err == nil {
		l.values.Store(name, v)
	}
	return err
}

// append appends to a log of its own. If the log has another end than expected, entries with an unknown
// result were written.
func (l *load) append(i, n int) error {
	name, told, entry := fmt.Sprint("log", i), &l.logs[i], fmt.Sprintf("%d.%d", i, n)
	span, err := l.s.Span(context.Background(), name)
	if err != nil {
		return err
	}
	err = l.s.Append(context.Background(), name, span.Last, []byte(entry))
	switch {
	case err == nil:
		told.acked = append(told.acked, entry)
		told.ackedAt = append(told.ackedAt, time.Now())
	case errors.Is(err, store.ErrUnavailable):
		told.maybe[entry] = true
	case errors.Is(err, store.ErrConflict): // one of the unknown entries was written
		return nil
	}
	return err
}

// count adds one to a value of its own, by compare-and-set.
func (l *load) count(i int) error {
	k, told := store.Key{Group: fmt.Sprint("sum", i), Name: "n"}, &l.sums[i]
	v, err := l.s.Value(context.Background(), k)
	if err != nil {
		return err
	}
	n := 0
	if v.Version != 0 {
		if _, err := fmt.Sscan(string(v.Data), &n); err != nil {
			return err
		}
	}
	_, err = l.s.Apply(context.Background(), store.Change{Group: k.Group, Writes: []store.Write{{Name: k.Name, Was: v.Version, Data: fmt.Append(nil, n+1)}}})
	switch {
	case err == nil:
		told.counted++
	case errors.Is(err, store.ErrUnavailable):
		told.maybe++
	case errors.Is(err, store.ErrConflict):
		return nil
	}
	return err
}

func (l *load) take() error {
	_, wait, err := l.s.Take(context.Background(), "limited", store.Want{Now: 1}, store.Limit{Name: "l", Every: time.Hour, Burst: loadBurst})
	switch {
	case err != nil:
		l.unknown.Add(1)
	case wait == 0:
		l.given.Add(1)
	}
	return err
}

// loadMax is less than what is asked for, so that the end of the account is reached.
const loadMax = 4000

func (l *load) hold(i, n int) error {
	id := fmt.Sprintf("%d.%d", i, n)
	_, held, err := l.s.Hold(context.Background(), "held", id, store.HoldTerms{TTL: time.Hour}, account("a", loadMax, 1), account("twin", loadMax, 1))
	if err != nil || !held {
		return err
	}
	l.holds.Store(id, false)
	settled, err := l.s.Settle(context.Background(), "held", store.Settlement{ID: id, Amounts: []int64{1, 1}})
	if err == nil && !settled[0] {
		l.holds.Store(id, true)
	}
	return err
}

// lostHolds counts acknowledged holds that are missing.
func (l *load) lostHolds(s store.Store) (lost int) {
	t := l.t
	t.Helper()
	all, err := s.Accounts(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Settled+a.Held > loadMax || a.Settled != all[0].Settled || a.Held != all[0].Held {
			t.Errorf("the accounts are %+v", all)
		}
	}
	l.holds.Range(func(id, unknown any) bool {
		if _, held, err := s.Hold(t.Context(), "held", id.(string), store.HoldTerms{TTL: time.Hour}, account("a", 0, 1)); err != nil {
			t.Fatal(err)
		} else if !held {
			lost++
		} else if unknown == true {
			t.Errorf("the hold %s is there, and was unknown when it was settled", id)
		}
		return true
	})
	return lost
}

// lost counts acknowledged entries and values that are missing; all others must be as acknowledged. reach is
// how long before gone the first lost entry was acknowledged.
func (l *load) lost(s store.Store, gone time.Time) (lost int, reach time.Duration) {
	t := l.t
	t.Helper()
	l.values.Range(func(name, version any) bool {
		var i int
		_, _ = fmt.Sscanf(name.(string), "%d.", &i)
		v := value(t, s, fmt.Sprint("values", i%4), name.(string))
		if v.Version == 0 {
			lost++
		} else if v.Version != version || string(v.Data) != name {
			t.Errorf("%s is %s of version %d, acknowledged was version %d", name, v.Data, v.Version, version)
		}
		return true
	})
	for i := range l.logs {
		told := &l.logs[i]
		there := map[string]int{}
		for after := uint64(0); ; {
			entries, err := s.Read(t.Context(), fmt.Sprint("log", i), after, store.MaxEntries)
			if err != nil {
				t.Fatal(err)
			}
			if len(entries) == 0 {
				break
			}
			for _, e := range entries {
				if after++; e.Seq != after {
					t.Fatalf("log %d: entry %d is followed by %d", i, after-1, e.Seq)
				}
				there[string(e.Data)]++
			}
		}
		for n, entry := range told.acked {
			switch there[entry] {
			case 0:
				lost++
				reach = max(reach, gone.Sub(told.ackedAt[n]))
			case 1:
			default:
				t.Errorf("%s is %d times in its log", entry, there[entry])
			}
			delete(there, entry)
		}
		for entry, times := range there {
			if !told.maybe[entry] || times > 1 {
				t.Errorf("%s is %d times in its log, and was never acknowledged", entry, times)
			}
		}
		v := value(t, s, fmt.Sprint("sum", i), "n")
		n := 0
		_, _ = fmt.Sscan(string(v.Data), &n)
		if c := l.sums[i]; n > c.counted+c.maybe {
			t.Errorf("sum %d is %d; %d additions were acknowledged, and %d have an unknown result", i, n, c.counted, c.maybe)
		} else if n < c.counted {
			lost += c.counted - n
		}
	}
	return lost + l.lostHolds(s), reach
}

// judge ends the load, and checks that no more was lost than may be lost before gone. Tests defer it: so it
// also judges the state when the test is late.
func (l *load) judge(s store.Store, gone time.Time, most time.Duration) {
	t := l.t
	t.Helper()
	l.judged.Do(func() {
		l.end()
		if given := l.given.Load(); given > loadBurst {
			t.Errorf("%d permits were taken of %d", given, loadBurst)
		}
		if (t.Skipped() || t.Failed()) && !readable(t, s) {
			t.Log("Redis does not come back, so that nothing more can be judged")
			return
		}
		lost, reach := l.lost(s, gone)
		if lost > 0 && (most == 0 || reach > most) {
			t.Errorf("%d changes were acknowledged up to %s before, and are lost", lost, reach)
		}
		t.Logf("%d done, %d failed, %d lost of up to %s before", l.good.Load(), l.failed.Load(), lost, reach)
	})
}

// readable reports whether s can be read within wait.Bound.
func readable(t *testing.T, s store.Store) bool {
	t.Helper()
	for over := time.Now().Add(wait.Bound); time.Now().Before(over); after(20 * time.Millisecond) {
		if _, err := s.Value(t.Context(), store.Key{Group: "g", Name: "n"}); err == nil {
			return true
		}
	}
	return false
}

// resumed waits until a use succeeds again, and returns how long that took.
func (l *load) resumed(since time.Time) time.Duration {
	l.t.Helper()
	wait.For(l.t, resumesWithin, "something is done again", func() error {
		if l.last.Load() <= since.UnixNano() {
			return errors.New("not yet")
		}
		return nil
	})
	return time.Unix(0, l.last.Load()).Sub(since)
}

// How soon it is used again that was gone, as a rule; and once, on a machine that is busy.
// A test that exceeds them is late.
const (
	resumesMostly = 2 * time.Second
	resumesWithin = 10 * time.Second
)

func TestNothingAcknowledgedIsLostWhenRedisIsKilled(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	noLeak(t)
	s := redistest.Start(t)
	r := openRedis(t, s.URL(), store.RedisOptions{})
	l := begin(t, r)
	defer func() { l.judge(r, time.Time{}, 0) }()
	kills := 8
	if testing.Short() {
		kills = 2
	}
	var waits []time.Duration
	for range kills {
		before := l.good.Load()
		wait.Until(t, "there is load", func() bool { return l.good.Load() > before+200 })
		s.Kill()
		s.Start()
		waits = append(waits, l.resumed(time.Now()))
	}
	l.judge(r, time.Time{}, 0)
	t.Logf("%d killed; resumed after at most %s", kills, slices.Max(waits))
	_ = r.Close()
	if w := mostly(waits); w > resumesMostly {
		wait.Late(t, "it resumes after %s", w)
	}
}

func TestARelaxedRedisLosesNoMoreThanStatusSays(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	s := redistest.Start(t, "--appendfsync", "everysec")
	r := openRedis(t, s.URL(), store.RedisOptions{Relaxed: true})
	if st := r.Status(); !strings.Contains(st.Survives, "two seconds") {
		t.Fatalf("Status = %+v", st)
	}
	round := func() {
		l := begin(t, r)
		gone := time.Now() // nothing may be lost before it is killed
		defer func() { l.judge(r, gone, 2*time.Second) }()
		wait.Until(t, "there is load", func() bool { return l.good.Load() > 2000 })
		gone = time.Now()
		s.Kill()
		l.end()
		s.Start()
		wait.UntilNil(t, "it is used", func() error {
			_, err := r.Value(t.Context(), store.Key{Group: "g", Name: "n"})
			return err
		})
	}
	for range 2 {
		round()
		s.Do("flushall")
	}
}

func TestCallsDoNotWaitForAPausedRedis(t *testing.T) {
	noLeak(t)
	s := redistest.Start(t)
	r := openRedis(t, s.URL(), store.RedisOptions{})
	l := begin(t, r)
	defer func() { l.judge(r, time.Time{}, 0) }()
	wait.Until(t, "there is load", func() bool { return l.good.Load() > 500 })
	paused := 10 * time.Second
	if testing.Short() {
		paused = 3 * time.Second
	}
	var once sync.Once
	resume := func() { once.Do(s.Resume) }
	s.Pause()
	defer resume()
	begun := time.Now()
	wait.For(t, resumesWithin, "Status says so", func() error {
		if r.Status().Fault == "" {
			return errors.New("not yet")
		}
		return nil
	})
	var waits []time.Duration
	for time.Since(begun) < paused {
		asked := time.Now()
		_, err := r.Value(t.Context(), store.Key{Group: "g", Name: "n"})
		if waits = append(waits, time.Since(asked)); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("while the node is shut: %v", err)
		}
		after(20 * time.Millisecond)
	}
	resume()
	back := time.Now()
	if w := mostly(waits); w > 100*time.Millisecond {
		l.late.Add("while it is known to be gone, that is said after %s", w)
	}
	took := l.resumed(back)
	wait.Until(t, "Status says that it is back", func() bool { return r.Status().Fault == "" })
	if slowest := time.Duration(l.slowest.Load()); slowest > paused/2 { // two uses of about a second, and the delays of a busy machine
		l.late.Add("a use took %s", slowest)
	}
	l.judge(r, time.Time{}, 0)
	t.Logf("the slowest took %s; resumed after %s", time.Duration(l.slowest.Load()), took)
	_ = r.Close()
	l.late.State(t)
}

func TestALostNodeOfAClusterDoesNotAffectTheOthers(t *testing.T) {
	noLeak(t)
	c := redistest.StartCluster(t, 3)
	r := openRedis(t, c.URL(), store.RedisOptions{})
	groups := map[string]string{} // by node
	for i := 0; len(groups) < 3; i++ {
		g := fmt.Sprint(i)
		slot := c.Nodes[0].Do("cluster", "keyslot", g).(int64)
		groups[c.Nodes[min(int(slot)*3/16384, 2)].Addr] = g
	}
	use := func(group string) error {
		_, err := r.Apply(t.Context(), store.Change{Group: group, Writes: []store.Write{{Name: "n", Was: store.Any, Data: []byte("x")}}})
		return err
	}
	for _, node := range c.Nodes {
		if err := use(groups[node.Addr]); err != nil {
			t.Fatal(err)
		}
	}
	var late wait.Lateness
	for _, fail := range []struct{ begin, end func(*redistest.Server) }{
		{(*redistest.Server).Kill, (*redistest.Server).Start},
		{(*redistest.Server).Pause, (*redistest.Server).Resume},
	} {
		gone := c.Nodes[1]
		fail.begin(gone)
		begun := time.Now()
		wait.Until(t, "Status says so", func() bool {
			if err := use(groups[gone.Addr]); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("a group of the lost node: %v", err)
			}
			return strings.Contains(r.Status().Fault, gone.Addr)
		})
		waits := map[*redistest.Server][]time.Duration{}
		for time.Since(begun) < 3*time.Second { // longer than the Cluster needs to notice the loss
			for _, node := range c.Nodes {
				asked := time.Now()
				err := use(groups[node.Addr])
				if (err == nil) != (node != gone) {
					t.Fatalf("while %s is gone, %s: %v", gone.Addr, node.Addr, err)
				}
				waits[node] = append(waits[node], time.Since(asked))
			}
			after(10 * time.Millisecond)
		}
		for node, all := range waits {
			if w := mostly(all); w > 500*time.Millisecond {
				late.Add("while %s is gone, %s is waited for: %s", gone.Addr, node.Addr, w)
			}
		}
		fail.end(gone)
		c.Wait() // a node that starts again refuses writes for two seconds
		back := time.Now()
		wait.For(t, resumesWithin, "the node is used", func() error { return use(groups[gone.Addr]) })
		t.Logf("resumed after %s", time.Since(back))
	}
	_ = r.Close()
	late.State(t)
}

func TestASubscriberIsToldThatItMissedNotices(t *testing.T) {
	for name, fail := range map[string]func(*testing.T, *redistest.Server, *store.Redis){
		"killed": func(_ *testing.T, s *redistest.Server, _ *store.Redis) { s.Kill(); s.Start() },
		"paused": func(t *testing.T, s *redistest.Server, r *store.Redis) {
			s.Pause()
			wait.UntilNil(t, "the connection is given up", func() error {
				if r.Status().Fault == "" {
					return errors.New("not yet")
				}
				return nil
			})
			s.Resume()
		},
		"dropped": func(_ *testing.T, s *redistest.Server, _ *store.Redis) { s.Do("client", "kill", "type", "pubsub") },
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			r := openRedis(t, s.URL(), store.RedisOptions{})
			other := openRedis(t, s.URL(), store.RedisOptions{})
			heard := make(chan string, 1000)
			defer r.Subscribe("t", func(data []byte) {
				if data == nil {
					heard <- "missed"
				} else {
					heard <- string(data)
				}
			})()
			publish := func(what string) {
				t.Helper()
				wait.UntilNil(t, "it is published", func() error { return other.Publish(t.Context(), "t", []byte(what)) })
			}
			publish("one")
			if got := next(t, heard); got != "one" {
				t.Fatalf("heard %s", got)
			}
			fail(t, s, r)
			var late wait.Lateness
			back := time.Now()
			if got := next(t, heard); got != "missed" {
				t.Fatalf("heard %s", got)
			}
			if took := time.Since(back); took > resumesWithin {
				late.Add("told so after %s", took)
			}
			publish("two")
			for got := next(t, heard); got != "two"; got = next(t, heard) {
				if got != "missed" {
					t.Fatalf("heard %s", got)
				}
			}
			late.State(t)
		})
	}
}

func TestTheReplicaOfALostMasterIsUsed(t *testing.T) {
	noLeak(t)
	w := redistest.StartWatched(t)
	r := openRedis(t, w.URL(), store.RedisOptions{})
	if st := r.Status(); !strings.Contains(st.Survives, "replica") {
		t.Errorf("it survives %q", st.Survives)
	}
	write(t, r, "g", "n", "x")
	w.Master.Do("wait", 1, 5000)
	heard := make(chan string, 10)
	defer r.Subscribe("t", func(data []byte) { heard <- string(data) })()
	w.Master.Kill()
	begun := time.Now()
	wait.UntilNil(t, "it is written to", func() error {
		_, err := r.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "m", Was: store.Any, Data: []byte("y")}}})
		return err
	})
	t.Logf("written to after %s", time.Since(begun))
	if v := value(t, r, "g", "n"); string(v.Data) != "x" {
		t.Errorf("it is %s", v.Data)
	}
	if got := next(t, heard); got != "" {
		t.Errorf("heard %s, want missed", got)
	}
	_ = r.Close()
}

// mostly returns the median: a busy machine delays some uses.
func mostly(waits []time.Duration) time.Duration {
	slices.Sort(waits)
	return waits[len(waits)/2]
}

// noLeak fails the test if goroutines are left that the test started. A test that was late has not ended all
// of them.
func noLeak(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if t.Skipped() {
			return
		}
		err := goleak.Find(before)
		for over := time.Now().Add(wait.Bound); err != nil && time.Now().Before(over); {
			err = goleak.Find(before)
		}
		if err != nil {
			t.Error(err)
		}
	})
}
