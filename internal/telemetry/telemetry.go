// Package telemetry counts what happens, and says so to Prometheus.
//
// It decides which labels there are, and that there are not many: servers and
// tenants, which are configured, and words of closed sets. Nothing of what a
// client or a server says is ever a label.
//
// What is counted here is counted without locks and without memory being made,
// in numbers of our own; a registry exists only while somebody asks. What others
// count, or is so at a moment, they are asked for then: a View. So it costs
// next to nothing where nobody asks.
package telemetry

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// How a call ended, where that is not by one of our codes.
const (
	outcomeOK     = "ok"           // with a result, whatever that says
	outcomeServerError  = "server_error" // with an error that is the server's answer
	outcomeCancelled = "cancelled"    // by its client, or because we stop
	outcomeInternal    = "internal"     // in a way that is no part of any contract
)

// outcomes are how calls can end: words before the codes. Outcomes are counted by
// their place in it.
var outcomes = append([]string{outcomeOK, outcomeServerError, outcomeCancelled, outcomeInternal}, refusalCodes()...)

const (
	indexOK = iota
	indexServerError
	indexCancelled
	indexInternal
	maxOutcomes = 64 // of room for them, a fixed size so that a count is a plain field
)

// codeIndex are where in outcomes the codes stand.
var codeIndex = func() map[switchboard.Code]int {
	m := map[switchboard.Code]int{}
	for i, o := range outcomes {
		m[switchboard.Code(o)] = i
	}
	return m
}()

func refusalCodes() (all []string) {
	for _, c := range switchboard.Codes() {
		all = append(all, string(c))
	}
	return all
}

// outcomeIndex says how a call ended that ended with err.
func outcomeIndex(ctx context.Context, err error) int {
	if err == nil {
		return indexOK
	}
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		if _, ours := errors.AsType[*switchboard.Error](context.Cause(ctx)); errors.Is(ctx.Err(), context.Canceled) && !ours {
			return indexCancelled // by its client, whatever is known of the outcome
		}
		if at, ok := codeIndex[own.Code]; ok {
			return at
		}
		return indexInternal
	}
	if _, ok := errors.AsType[*switchboard.ServerError](err); ok {
		return indexServerError
	}
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return indexCancelled
	}
	return indexInternal
}

// bucketBounds are the upper bounds of the histogram's buckets, but for the last,
// which has none.
var bucketBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// A series is the counts of the calls of one tenant for one server, or, with no
// tenant, of the attempts at the server.
type series struct {
	ended [maxOutcomes]atomic.Int64

	// Of attempts only.
	took        [len(bucketBounds) + 1]atomic.Int64
	nanoseconds atomic.Int64 // in all
}

type tenantServer struct {
	tenant switchboard.TenantID
	server switchboard.ServerID
}

// A table holds values that are found without a lock; that one is made is rare.
// The zero table is empty.
type lockFreeMap[K comparable, V any] struct {
	making sync.Mutex
	all    atomic.Pointer[map[K]*V]
}

// valueOf returns the value of k, which it makes where there is none.
func (t *lockFreeMap[K, V]) valueOf(k K) *V {
	if all := t.all.Load(); all != nil {
		if v := (*all)[k]; v != nil {
			return v
		}
	}
	t.making.Lock()
	defer t.making.Unlock()
	next := map[K]*V{}
	if all := t.all.Load(); all != nil {
		if v := (*all)[k]; v != nil {
			return v
		}
		maps.Copy(next, *all)
	}
	v := new(V)
	next[k] = v
	t.all.Store(&next)
	return v
}

// values gives what the table holds, in no order.
func (t *lockFreeMap[K, V]) values() map[K]*V {
	if all := t.all.Load(); all != nil {
		return *all
	}
	return nil
}

// A Recorder counts. The zero Recorder is ready. It is safe for concurrent use.
type Recorder struct {
	calls    lockFreeMap[tenantServer, series]
	attempts lockFreeMap[switchboard.ServerID, series]
	movedCalls    lockFreeMap[[2]switchboard.ServerID, atomic.Int64]
	changes  lockFreeMap[serverChange, atomic.Int64]
	probes   lockFreeMap[serverProbe, atomic.Int64]
	storeOperations   lockFreeMap[storeOperation, atomic.Int64]
	storeTimes  lockFreeMap[string, series] // by operation; only the times
	refusals  [maxOutcomes]atomic.Int64
	hops     lockFreeMap[string, atomic.Int64] // by outcome, as are these:
	keyedCalls    lockFreeMap[string, atomic.Int64]
	cacheableCalls   lockFreeMap[string, atomic.Int64]
	reloads  [3]atomic.Int64 // by their place in results

	process processRegistry
}

type serverChange struct {
	server          switchboard.ServerID
	what, to, cause string
}

type storeOperation struct{ what, outcome string }

type serverProbe struct {
	server switchboard.ServerID
	good   bool
}

// Calls returns a Caller that counts the calls of each tenant for each server, by
// how they end. It belongs around all others, so that it sees what clients see.
func (r *Recorder) Calls(next switchboard.Caller) switchboard.Caller {
	return &callCounter{&r.calls, next}
}

type callCounter struct {
	series *lockFreeMap[tenantServer, series]
	next   switchboard.Caller
}

// Call implements switchboard.Caller.
func (n *callCounter) Call(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
	result, err := n.next.Call(ctx, c)
	n.series.valueOf(tenantServer{c.Principal.Tenant, c.Server}).ended[outcomeIndex(ctx, err)].Add(1)
	return result, err
}

// Attempts returns a Caller that counts what is sent to each server, how it ends
// and how long that takes. It belongs right around the servers: a call that is
// moved is one at each of them, and one that is refused before is none.
func (r *Recorder) Attempts(next switchboard.Caller) switchboard.Caller {
	return &attemptTimer{&r.attempts, next}
}

type attemptTimer struct {
	series *lockFreeMap[switchboard.ServerID, series]
	next   switchboard.Caller
}

// clockStart is what times are counted from: to read the monotonic clock alone costs
// half.
var clockStart = time.Now()

// Call implements switchboard.Caller.
func (n *attemptTimer) Call(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
	began := time.Since(clockStart)
	result, err := n.next.Call(ctx, c)
	took := time.Since(clockStart) - began
	s := n.series.valueOf(c.Server)
	s.ended[outcomeIndex(ctx, err)].Add(1)
	s.took[bucketIndex(took)].Add(1)
	s.nanoseconds.Add(int64(took))
	return result, err
}

// bucketIndex is the place of the bucket that d falls into.
func bucketIndex(d time.Duration) int {
	for i, b := range bucketBounds {
		if d <= b {
			return i
		}
	}
	return len(bucketBounds)
}

// Refused counts that a client was refused something, a call or something else.
func (r *Recorder) Refused(code switchboard.Code) {
	if at, ok := codeIndex[code]; ok {
		r.refusals[at].Add(1)
	}
}

// Moved counts that a call for one server was served by another.
func (r *Recorder) Moved(from, to switchboard.ServerID) {
	r.movedCalls.valueOf([2]switchboard.ServerID{from, to}).Add(1)
}

// Changed counts that the state of a server, or with tool set of one of its tools,
// is another now; cause is the stage at which that began, or "".
func (r *Recorder) Changed(server switchboard.ServerID, tool bool, to, cause string) {
	what := "server"
	if tool {
		what = "tool"
	}
	r.changes.valueOf(serverChange{server, what, to, cause}).Add(1)
}

// Probed counts that a server was probed, and whether it answered well.
func (r *Recorder) Probed(server switchboard.ServerID, err error) {
	r.probes.valueOf(serverProbe{server, err == nil}).Add(1)
}

// Stored counts an operation of the store, how it ended, and how long it took.
func (r *Recorder) Stored(what, outcome string, took time.Duration) {
	r.storeOperations.valueOf(storeOperation{what, outcome}).Add(1)
	s := r.storeTimes.valueOf(what)
	s.took[bucketIndex(took)].Add(1)
	s.nanoseconds.Add(int64(took))
}

// Hopped counts that another replica was asked to answer a request, and how that ended.
func (r *Recorder) Hopped(outcome string) { r.hops.valueOf(outcome).Add(1) }

// Keyed counts what a call with an idempotency key has come to.
func (r *Recorder) Keyed(outcome string) { r.keyedCalls.valueOf(outcome).Add(1) }

// Cached counts what a call has come to whose result may be kept.
func (r *Recorder) Cached(outcome string) { r.cacheableCalls.valueOf(outcome).Add(1) }

// reloadResults are what can come of reading the configuration again.
var reloadResults = [...]string{"ok", "unchanged", "refused"}

// Reloaded counts that the configuration was read again, and whether it was the
// same, or was refused.
func (r *Recorder) Reloaded(same bool, err error) {
	at := 0
	switch {
	case err != nil:
		at = 2
	case same:
		at = 1
	}
	r.reloads[at].Add(1)
}
