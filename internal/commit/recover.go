package commit

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A machine that loses its power can lose the last changes of a file, but not an intent: the chains of receipts are other
// files. What survives of a file's changes is a prefix of them, in their order. Two things follow.
//
// Each hold that an intent names adds 1 to the counter of its group, in the same change. So the sum of the counter after the
// hold is the hold's number, and the file has lost exactly the holds with a number above its counter. This stays exact when the id
// of a hold is forgotten.
//
// A mark says that the file has what the intents of a chain name, up to a number of the chain. A mark is written after
// these changes, so wherever it survives, they do. A chain without a mark has no intent that names a hold.
const (
	counter    = "holds"    // the account that counts the holds of a group
	groupMarks = "intended" // the group of the store with the marks, by chain
	markEvery  = 1024       // receipts
)

// marks are the marks of the chain that this process writes.
type marks struct {
	mu     sync.Mutex
	node   atomic.Pointer[string] // the chain that has a mark
	marked uint64                 // its mark
}

func markWrite(node string, seq uint64) store.Write {
	return store.Write{Name: node, Was: store.Any, Data: strconv.AppendUint(nil, seq, 10)}
}

// ensure makes a mark in the chain that this process writes now, unless it has one.
func (m *marks) ensure(ctx context.Context, k *Committer) error {
	node := k.o.Intents.Node()
	if was := m.node.Load(); was != nil && *was == node {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last, err := receipt.Last(ctx, k.o.Store, node)
	if err == nil {
		_, err = k.o.Store.Apply(ctx, store.Change{Group: groupMarks, Durable: true, Writes: []store.Write{markWrite(node, last)}})
	}
	if err != nil {
		return switchboard.Unavailable("the call was not made, because its price could not be held", err)
	}
	m.marked = last
	m.node.Store(&node)
	return nil
}

// advance moves the mark of the chain, if it is at least least receipts behind.
func (m *marks) advance(k *Committer, least uint64) {
	node := m.node.Load()
	if node == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	last, err := receipt.Last(ctx, k.o.Store, *node)
	if err != nil || last < m.marked+least {
		return
	}
	if _, err := k.o.Store.Apply(ctx, store.Change{Group: groupMarks, Writes: []store.Write{markWrite(*node, last)}}); err == nil {
		m.marked = last
	}
}

// Recover does again what intents name and the store has lost: holds, and uses of approvals. It must be called before the first call,
// and by each process of the store.
func (k *Committer) Recover(ctx context.Context) error {
	if !k.file || !k.o.Intents.Durable() {
		return nil
	}
	nodes, err := receipt.Nodes(ctx, k.o.Store)
	if err != nil {
		return err
	}
	var lost intents
	var marks []store.Write
	for _, node := range nodes {
		mark, err := k.o.Store.Value(ctx, store.Key{Group: groupMarks, Name: node})
		if err != nil {
			return err
		}
		if mark.Version == 0 {
			continue
		}
		after, err := strconv.ParseUint(string(mark.Data), 10, 64)
		if err != nil {
			return fmt.Errorf("the mark of the receipts of node %s: %w", node, err)
		}
		last, err := receipt.ReadAfter(ctx, k.o.Store, node, after, lost.add)
		if err != nil {
			return err
		}
		if last > after {
			marks = append(marks, markWrite(node, last))
		}
	}
	if err := k.holdAgain(ctx, lost.holds); err != nil {
		return err
	}
	for _, u := range lost.used() {
		if k.o.Approvals == nil {
			break
		}
		if err := k.o.Approvals.Replay(ctx, u.Tenant, u.Approval.Request, u.Hold.ID); err != nil {
			return fmt.Errorf("the use of the approval %s: %w", u.Approval.Request, err)
		}
	}
	for some := range slices.Chunk(marks, store.MaxWrites) { // durable, and all that is above with it
		if _, err := k.o.Store.Apply(ctx, store.Change{Group: groupMarks, Durable: true, Writes: some}); err != nil {
			return err
		}
	}
	return k.marks.ensure(ctx, k)
}

// intents are what intents name that are behind the marks.
type intents struct {
	holds    []receipt.IntentHold
	uses     map[string]receipt.Receipt // by id of the intent
	returned []string                   // ids of intents whose approval was given back
}

// add adds what a receipt says.
func (i *intents) add(e *receipt.ChainEntry) {
	switch r := &e.Receipt; r.Kind {
	case receipt.Intent:
		if r.Hold.Number > 0 {
			i.holds = append(i.holds, r.Hold)
		}
		if r.Approval.Request != "" && r.Approval.Standing == "" { // the use of a standing yes is durable by itself
			if i.uses == nil {
				i.uses = map[string]receipt.Receipt{}
			}
			i.uses[e.ID()] = *r
		}
	case receipt.Call:
		for _, t := range r.Tries {
			if !t.Sent {
				i.returned = append(i.returned, t.Of)
			}
		}
		if use, ok := i.uses[r.Of]; ok && use.Approval.Request != r.Approval.Request {
			i.returned = append(i.returned, r.Of)
		}
	}
}

// used returns the intents with an approval that was not given back, sorted by time.
func (i *intents) used() []receipt.Receipt {
	for _, id := range i.returned {
		delete(i.uses, id)
	}
	all := make([]receipt.Receipt, 0, len(i.uses))
	for _, r := range i.uses {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b receipt.Receipt) int {
		return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.Hold.ID, b.Hold.ID))
	})
	return all
}

// holdAgain holds what the store has lost of these holds. The counter of each group goes on as if nothing was lost: so it does not
// matter if the machine stops meanwhile.
func (k *Committer) holdAgain(ctx context.Context, all []receipt.IntentHold) error {
	slices.SortFunc(all, func(a, b receipt.IntentHold) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), cmp.Compare(a.Number, b.Number))
	})
	count, again, now := int64(0), 0, time.Now()
	for i, h := range all {
		if i == 0 || h.Group != all[i-1].Group {
			sums, _, err := k.o.Store.Hold(ctx, h.Group, rand.Text(), store.HoldTerms{TTL: time.Second}, counterOf(0))
			if err != nil {
				return err
			}
			count = sums[0].Settled + sums[0].Held
		}
		if h.Number <= count {
			continue
		}
		accounts := []store.Account{counterOf(h.Number - count)}
		for _, a := range h.Accounts {
			if a.Ends.IsZero() || a.Ends.After(now.Add(time.Minute)) { // else its window has long ended
				accounts = append(accounts, store.Account{Name: a.Name, Max: store.MaxAmount, Amount: a.Amount, Ends: a.Ends})
			}
		}
		sums, held, err := k.o.Store.Hold(ctx, h.Group, h.ID, store.HoldTerms{TTL: time.Duration(h.TTL) * time.Microsecond}, accounts...)
		switch {
		case err != nil:
			return err
		case !held:
			return errors.New("an account is full that must hold what was held for a call before the machine stopped")
		}
		count = max(count, sums[0].Settled+sums[0].Held)
		again++
	}
	if again > 0 {
		k.o.Log.Warn("the store had lost what was held for calls before the machine stopped; the intents of these calls have restored it", "holds", again)
	}
	return nil
}

func counterOf(n int64) store.Account {
	return store.Account{Name: counter, Max: store.MaxAmount, Amount: n}
}
