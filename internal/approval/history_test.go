package approval_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A stepIn is one operation on a request; act "" reads its state. early says that it began before the request's Until.
type stepIn struct {
	request string
	act     approval.Action
	by      string
	early   bool
}

// A stepOut is the answer: the step was first, or the state that was there before it, and its author. A read has the state and its author too. late says that
// the answer came after Until.
type stepOut struct {
	first bool
	state approval.State
	by    string
	late  bool
}

// A storedState is the state of the model: what is stored, and its author.
type storedState struct {
	state approval.State
	by    string
}

// arrows are the transitions of part 12 of the design: where a step leads from, and to.
var arrows = map[approval.Action]struct{ from, to approval.State }{
	approval.ActApprove:  {approval.Pending, approval.Approved},
	approval.ActRefuse:   {approval.Pending, approval.Refused},
	approval.ActWithdraw: {approval.Pending, approval.Withdrawn},
	approval.ActRevoke:   {approval.Approved, approval.Revoked},
	approval.ActUse:      {approval.Approved, approval.Used},
}

// oneRequest is the model of one request. What is open reads as expired past Until. A step that began before may still be the first.
var oneRequest = porcupine.Model{
	Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
		by := map[string][]porcupine.Operation{}
		for _, op := range all {
			by[op.Input.(stepIn).request] = append(by[op.Input.(stepIn).request], op)
		}
		for _, part := range by {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return storedState{state: approval.Pending} },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(storedState), input.(stepIn), output.(stepOut)
		arrow := arrows[in.act]
		may := in.act != "" && now.state == arrow.from && in.early
		switch {
		case out.first:
			return may, storedState{arrow.to, in.by}
		case out.state == approval.Expired:
			return now.state.Open() && out.late, now
		case out.state == tooLate && (now.state.Open() || now.state == approval.Refused):
			return out.late, now
		case out.state == tooLate:
			return true, now
		case now.state == arrow.from && in.act != "": // the step should have been first
			return false, now
		case now.state.Open() && !in.early:
			return false, now
		case in.act == approval.ActUse || now.state == approval.Used: // no author is told
			return out.state == now.state, now
		}
		return out.state == now.state && out.by == now.by, now
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

// tooLate is the state in the answer of a use that does not say more: expired, withdrawn, revoked or used.
const tooLate approval.State = "too late"

// useOuts are what the codes of calls say about the request.
var useOuts = map[switchboard.Code]stepOut{
	"":                              {first: true},
	switchboard.CodeApprovalPending: {state: approval.Pending},
	switchboard.CodeApprovalRefused: {state: approval.Refused},
	switchboard.CodeApprovalGone:    {state: tooLate},
}

// A racer makes the steps of one participant, at a keeper of its own where the store allows it.
type racer struct {
	*approval.Keeper
	name string
}

// stepOutOf reads the error of a step. ok is false if the error is another one.
func stepOutOf(err error) (out stepOut, ok bool) {
	if err == nil {
		return stepOut{first: true}, true
	}
	late, ok := errors.AsType[*approval.OutrunError](err)
	if !ok {
		return stepOut{}, false
	}
	return stepOut{state: late.Request.StateAt(late.At), by: late.Request.By()}, true
}

// use uses the yes of the call as package commit does.
func (r *racer) use(ctx context.Context, c *switchboard.Call) error {
	own := *c
	_, err := r.Require(switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{}, r.Use(ctx, c, r.name, nil)
	})).Call(ctx, &own)
	return err
}

// raceFor returns a request of the call that ends at end. It is the second one of its binding.
func raceFor(t *testing.T, k *approval.Keeper, c *switchboard.Call, end func() time.Time) (id string, until time.Time) {
	t.Helper()
	if _, err := k.Require(nil).Call(t.Context(), c); codeOf(err) != switchboard.CodeApprovalPending {
		t.Fatal(err)
	}
	all, err := k.List(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	first := all[slices.IndexFunc(all, func(r *approval.Request) bool { return r.Asker.Principal == c.Principal.ID })]
	if _, err := k.Withdraw(t.Context(), &c.Principal, c.Task, first.ID()); err != nil {
		t.Fatal(err)
	}
	q := *first
	q.Until = end().Round(0).UTC()
	r, made, err := k.Ask(t.Context(), &q, approval.KeptCall{Params: c.Params})
	if err != nil || !made {
		t.Fatal(made, err)
	}
	return r.ID(), r.Until
}

// AP-05: approve, refuse, revoke, withdraw, use and the end of the time compete for requests. All answers fit one order of steps, and one end state.
func TestAP05TheStepsOfARequestAreLinearizable(t *testing.T) {
	law.Hold(t, law.Deterministic)
	seed := law.Seed(t)
	for name, open := range map[string]func(t *testing.T) func() store.Store{
		"memory": func(*testing.T) func() store.Store {
			s := store.NewMemory()
			return func() store.Store { return s }
		},
		"file": func(t *testing.T) func() store.Store {
			file := filepath.Join(t.TempDir(), "store.db")
			return func() store.Store { return openStore(t, "file:"+file) }
		},
		"redis": func(t *testing.T) func() store.Store {
			redistest.Need(t)
			url := redistest.Start(t).URL()
			return func() store.Store { return openStore(t, url) }
		},
	} {
		t.Run(name, func(t *testing.T) { raceSteps(t, seed, open(t)) })
	}
}

func openStore(t *testing.T, where string) store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), where, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func raceSteps(t *testing.T, seed uint64, open func() store.Store) {
	const racers, requests, steps = 6, 24, 5
	var all []racer
	for i := range racers {
		all = append(all, racer{newKeeper(t, open(), nil), fmt.Sprint("racer ", i)})
	}
	var mu sync.Mutex
	var ops []porcupine.Operation
	begun := time.Now()
	do := func(client int, until time.Time, in stepIn, ask func() (out stepOut, ok bool)) {
		call := time.Since(begun)
		in.early = time.Now().Before(until)
		out, ok := ask()
		out.late = !time.Now().Before(until)
		if !ok {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		ops = append(ops, porcupine.Operation{ClientId: client, Input: in, Call: int64(call), Output: out, Return: int64(time.Since(begun))})
	}
	for n := range requests {
		c := callOf(fmt.Sprintf(`{"n":%d}`, n))
		c.Principal.ID = fmt.Sprint("ci ", n)
		id, until := raceFor(t, all[0].Keeper, c, func() time.Time {
			if n%3 > 0 {
				return time.Now().Add(time.Hour)
			}
			return time.Now().Add(time.Duration(n) * time.Millisecond) // it expires during the race
		})
		c.Resumes = id // so that a call that comes too late asks for nothing new
		read := func(client int) {
			do(client, until, stepIn{request: id}, func() (stepOut, bool) {
				r, err := all[client].Find(t.Context(), "acme", id)
				if err != nil {
					t.Error(err)
					return stepOut{}, false
				}
				return stepOut{state: r.StateAt(time.Now()), by: r.By()}, true
			})
		}
		var racing sync.WaitGroup
		start := make(chan struct{})
		for i := range all {
			racing.Go(func() {
				<-start
				k := &all[i]
				luck := rand.New(rand.NewPCG(seed, uint64(n*racers+i)))
				officer := *approver
				officer.ID, officer.Credential = k.name, k.name
				for range steps {
					in := stepIn{request: id, by: k.name}
					var err error
					step := func(act approval.Action, ask func() error) {
						in.act = act
						do(i, until, in, func() (stepOut, bool) {
							err = ask()
							out, ok := stepOutOf(err)
							if !ok {
								t.Errorf("%s: %v", act, err)
							}
							return out, ok
						})
					}
					switch luck.IntN(8) {
					case 0:
						step(approval.ActRefuse, func() error {
							_, err := k.Decide(t.Context(), &officer, "acme", id, approval.Saying{})
							return err
						})
					case 1:
						step(approval.ActRevoke, func() error { _, err := k.Revoke(t.Context(), &officer, "acme", id); return err })
					case 2:
						in.by = c.Principal.ID
						step(approval.ActWithdraw, func() error {
							_, err := k.Withdraw(t.Context(), &c.Principal, c.Task, id)
							return err
						})
					case 3, 4:
						in.act = approval.ActUse
						do(i, until, in, func() (stepOut, bool) {
							err := k.use(t.Context(), c)
							out, ok := useOuts[codeOf(err)]
							if !ok && err != nil || codeOf(err) == switchboard.CodeApprovalRefused && !strings.Contains(err.Error(), id) {
								t.Errorf("use: %v", err)
							}
							return out, true
						})
					case 5:
						read(i)
					default:
						step(approval.ActApprove, func() error {
							_, err := k.Decide(t.Context(), &officer, "acme", id, approval.Saying{Yes: true})
							return err
						})
					}
				}
			})
		}
		close(start)
		racing.Wait()
		read(0) // the end state
	}
	ends := map[approval.State]int{}
	for _, op := range ops {
		if out := op.Output.(stepOut); out.first {
			ends[arrows[op.Input.(stepIn).act].to]++
		}
	}
	t.Logf("%d operations; first: %v", len(ops), ends)
	switch got := porcupine.CheckOperationsTimeout(oneRequest, ops, time.Minute); got {
	case porcupine.Ok:
	case porcupine.Unknown:
		wait.Late(t, "%d operations: %s", len(ops), got)
	default:
		for _, op := range slices.SortedFunc(slices.Values(ops), func(a, b porcupine.Operation) int { return int(a.Call - b.Call) }) {
			t.Log(op.Call, op.Return, oneRequest.DescribeOperation(op.Input, op.Output))
		}
		t.Errorf("%d operations: %s", len(ops), got)
	}
}
