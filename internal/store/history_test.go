package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A history holds the requests and answers of concurrent callers.
type history struct {
	mu  sync.Mutex
	all []porcupine.Operation
}

// do records one request of a caller with its answer.
func (h *history) do(caller int, in any, ask func() (out any)) {
	call := time.Now()
	out := ask()
	op := porcupine.Operation{ClientId: caller, Input: in, Call: int64(call.Sub(begun)), Output: out, Return: int64(time.Since(begun))}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, op)
}

var begun = time.Now()

// check fails the test if the answers are not linearizable: m must be able to give them in some order.
func (h *history) check(t *testing.T, m porcupine.Model) {
	t.Helper()
	switch got := porcupine.CheckOperationsTimeout(m, h.all, time.Minute); got {
	case porcupine.Ok:
	case porcupine.Unknown:
		wait.Late(t, "%d operations: %s", len(h.all), got)
	default:
		t.Errorf("%d operations: %s", len(h.all), got)
	}
}

// callers runs f for some callers at the same time. Each caller opens the store for itself, if the backend
// allows.
func callers(b backend, open func() store.Store, f func(caller int, s store.Store)) {
	const n = 8
	shared := open()
	var all sync.WaitGroup
	for i := range n {
		s := shared
		if b.persistent && i%2 == 1 {
			s = open()
		}
		all.Go(func() { f(i, s) })
	}
	all.Wait()
}

type registerIn struct {
	key     string
	write   bool
	was     store.Version
	data    string
	deletes bool
}

type registerOut struct {
	conflict bool
	version  store.Version // that was read or written
	data     string
}

// register is the model of one value: it is read, and replaced if it has the expected version.
var register = porcupine.Model{
	Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
		by := map[string]int{}
		for _, op := range all {
			k := op.Input.(registerIn).key
			if _, ok := by[k]; !ok {
				by[k] = len(parts)
				parts = append(parts, nil)
			}
			parts[by[k]] = append(parts[by[k]], op)
		}
		return parts
	},
	Init: func() any { return registerOut{} },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(registerOut), input.(registerIn), output.(registerOut)
		switch {
		case !in.write:
			return out == now, now
		case out.conflict:
			return in.was != store.Any && in.was != now.version, now
		case in.was != store.Any && in.was != now.version:
			return false, now
		case in.deletes:
			return true, registerOut{}
		default:
			return true, registerOut{version: out.version, data: in.data}
		}
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

func TestChangesAreLinearizable(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	seed := law.Seed(t)
	eachBackend(t, func(t *testing.T, b backend, open func() store.Store) {
		var h history
		callers(b, open, func(caller int, s store.Store) {
			luck := rand.New(rand.NewPCG(seed, uint64(caller)))
			seen := map[string]store.Version{}
			for i := range 150 {
				in := registerIn{key: fmt.Sprint(luck.IntN(3)), write: luck.IntN(3) > 0, data: fmt.Sprintf("%d.%d", caller, i), deletes: luck.IntN(8) == 0}
				if in.was = seen[in.key]; luck.IntN(10) == 0 {
					in.was = store.Any
				}
				h.do(caller, in, func() any {
					if !in.write {
						v, err := s.Value(t.Context(), store.Key{Group: "g", Name: in.key})
						if err != nil {
							t.Error(err)
						}
						seen[in.key] = v.Version
						return registerOut{version: v.Version, data: string(v.Data)}
					}
					w := store.Write{Name: in.key, Was: in.was, Data: []byte(in.data)}
					if in.deletes {
						w.Data = nil
					}
					v, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{w}, Durable: luck.IntN(10) == 0})
					if err != nil && !errors.Is(err, store.ErrConflict) {
						t.Error(err)
					}
					if err == nil {
						if seen[in.key] = v; in.deletes {
							seen[in.key] = 0
						}
					}
					return registerOut{conflict: err != nil, version: v}
				})
			}
		})
		h.check(t, register)
	})
}

type takeIn struct {
	of         [2]bool
	now, ahead int
}

type takeOut struct {
	got   int
	waits bool
}

// limits is the model of two limits of the same burst. Half the burst can be taken ahead. An operation takes from
// one of them or both.
var limits = porcupine.Model{
	Init: func() any { return [2]int{} },
	Step: func(state, input, output any) (bool, any) {
		next, in := state.([2]int), input.(takeIn)
		now, ahead := in.now, in.ahead
		for i, takes := range in.of {
			if takes {
				now = min(now, burst-next[i])
				ahead = max(0, min(ahead, burst/2-next[i]-in.now))
			}
		}
		if now < in.now {
			ahead = 0
		}
		for i, takes := range in.of {
			if takes {
				next[i] += now + ahead
			}
		}
		return output == takeOut{now + ahead, now < in.now}, next
	},
}

const burst = 300

func TestLimitsAreLinearizable(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	seed := law.Seed(t)
	eachBackend(t, func(t *testing.T, b backend, open func() store.Store) {
		var h history
		two := [2]store.Limit{{Name: "one", Every: time.Hour, Burst: burst}, {Name: "two", Every: time.Hour, Burst: burst}}
		callers(b, open, func(caller int, s store.Store) {
			luck := rand.New(rand.NewPCG(seed, uint64(caller)))
			for range 30 {
				in := takeIn{[][2]bool{{true, false}, {false, true}, {true, true}}[luck.IntN(3)], 1 + luck.IntN(3), luck.IntN(3)}
				var of []store.Limit
				for i, takes := range in.of {
					if takes {
						of = append(of, two[i])
					}
				}
				h.do(caller, in, func() any {
					got, wait, err := s.Take(t.Context(), "g", store.Want{Now: in.now, Ahead: in.ahead, Hold: time.Minute}, of...)
					if err != nil {
						t.Error(err)
					}
					return takeOut{got, wait > 0}
				})
			}
		})
		h.check(t, limits)
	})
}

const heldIDs = 24

type accountIn struct {
	hold, settle bool // neither: it reads
	id           int
	of           [2]bool
	amount       int64
}

type accountOut struct {
	done bool
	sums [2][2]int64 // settled and held; of a read
}

type accountsState struct {
	sums  [2][2]int64
	holds [heldIDs]accountHold
}

type accountHold struct {
	of     [2]bool
	amount int64
	ended  bool
}

const accountMax = 100

// twoAccounts is the model of two accounts of the same maximum, and of the holds in one of them or both.
var twoAccounts = porcupine.Model{
	Init: func() any { return accountsState{} },
	Step: func(state, input, output any) (bool, any) {
		next, in, out := state.(accountsState), input.(accountIn), output.(accountOut)
		h := &next.holds[in.id]
		known, fits := *h != accountHold{}, true
		switch {
		case in.hold && !known:
			for i, is := range in.of {
				fits = fits && (!is || next.sums[i][0]+next.sums[i][1]+in.amount <= accountMax)
			}
			if fits {
				*h = accountHold{of: in.of, amount: in.amount}
				for i, is := range in.of {
					if is {
						next.sums[i][1] += in.amount
					}
				}
			}
			return out.done == fits, next
		case in.hold:
			return out.done, next
		case in.settle && known && !h.ended:
			for i, is := range h.of {
				if is {
					next.sums[i][0] += in.amount
					next.sums[i][1] -= h.amount
				}
			}
			h.ended = true
			return out.done, next
		case in.settle:
			return !out.done, next
		default:
			return out.sums == next.sums, next
		}
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

func TestHoldsAreLinearizable(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	seed := law.Seed(t)
	eachBackend(t, func(t *testing.T, b backend, open func() store.Store) {
		var h history
		callers(b, open, func(caller int, s store.Store) {
			luck := rand.New(rand.NewPCG(seed, uint64(caller)))
			for range 30 {
				in := accountIn{id: luck.IntN(heldIDs)}
				in.of = [][2]bool{{true, false}, {false, true}, {true, true}}[in.id%3] // so that a settlement knows them
				switch luck.IntN(5) {
				case 0:
				case 1, 2:
					in.settle, in.amount = true, luck.Int64N(2)*10
				default:
					in.hold, in.amount = true, 10+luck.Int64N(30)
				}
				h.do(caller, in, func() (out any) { return accountDo(t, s, in) })
			}
		})
		h.check(t, twoAccounts)
	})
}

// accountDo makes one request.
func accountDo(t *testing.T, s store.Store, in accountIn) (out accountOut) {
	id := fmt.Sprint(in.id)
	var accounts []store.Account
	settlement := store.Settlement{ID: id}
	for i, is := range in.of {
		if is {
			accounts = append(accounts, account(fmt.Sprint(i), accountMax, in.amount))
			settlement.Amounts = append(settlement.Amounts, in.amount)
		}
	}
	switch {
	case in.hold:
		_, held, err := s.Hold(t.Context(), "g", id, store.HoldTerms{TTL: time.Hour}, accounts...)
		if err != nil {
			t.Error(err)
		}
		out.done = held
	case in.settle:
		settled, err := s.Settle(t.Context(), "g", settlement)
		if err != nil {
			t.Error(err)
		} else {
			out.done = settled[0]
		}
	default:
		all, err := s.Accounts(t.Context(), "g")
		if err != nil {
			t.Error(err)
		}
		for _, a := range all {
			out.sums[a.Name[0]-'0'] = [2]int64{a.Settled, a.Held}
		}
	}
	return out
}

type logIn struct {
	appends bool
	after   uint64
	n       int
}

// logEnds is the model of the end of a log.
var logEnds = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		last, in := state.(uint64), input.(logIn)
		switch made := output.(uint64); {
		case !in.appends:
			return made == last, last
		case made == 0:
			return in.after != last, last
		default:
			return in.after == last, last + uint64(in.n)
		}
	},
}

func TestAppendsAreLinearizable(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	seed := law.Seed(t)
	eachBackend(t, func(t *testing.T, b backend, open func() store.Store) {
		var h history
		callers(b, open, func(caller int, s store.Store) {
			luck := rand.New(rand.NewPCG(seed, uint64(caller)))
			var last uint64
			for i := range 60 {
				in := logIn{appends: i%3 > 0, after: last, n: 1 + luck.IntN(3)}
				h.do(caller, in, func() any {
					if !in.appends {
						sp, err := s.Span(t.Context(), "l")
						if err != nil {
							t.Error(err)
						}
						last = sp.Last
						return sp.Last
					}
					entries := make([][]byte, in.n)
					for n := range entries {
						entries[n] = fmt.Append(nil, in.after+uint64(n)+1)
					}
					err := s.Append(t.Context(), "l", in.after, entries...)
					if err != nil {
						if !errors.Is(err, store.ErrConflict) {
							t.Error(err)
						}
						return uint64(0)
					}
					last = in.after + uint64(in.n)
					return last
				})
			}
		})
		h.check(t, logEnds)
		s := open()
		if !b.persistent {
			return
		}
		all, err := s.Read(t.Context(), "l", 0, store.MaxEntries)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range all {
			if string(e.Data) != fmt.Sprint(i+1) || e.Seq != uint64(i+1) {
				t.Fatalf("entry %d is %d=%s", i+1, e.Seq, e.Data)
			}
		}
		if got := span(t, s, "l"); int(got.Last) != len(all) {
			t.Errorf("%d entries, and the span is %v", len(all), got)
		}
	})
}
