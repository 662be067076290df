// Package telemetry counts events and serves the counts to Prometheus.
//
// It decides which labels there are, and keeps their number small: configured servers and tenants, and words
// of closed sets. No text of a client or a server becomes a label.
//
// Counting takes no locks and allocates nothing; a registry exists only during a scrape. Counts that other
// packages keep, and values of the moment, are read at the scrape only: the View. So telemetry costs next to
// nothing while it is not scraped.
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

// The outcomes of a call that ends without one of our codes.
const (
	outcomeOK          = "ok"           // with a result, also one that says isError
	outcomeServerError = "server_error" // with the server's own error response
	outcomeCancelled   = "cancelled"    // by its client, or because Switchboard stops
	outcomeInternal    = "internal"     // with an error that no contract describes
)

// outcomes are all outcomes of calls: these words, and then the codes. A count has the index of its outcome.
var outcomes = append([]string{outcomeOK, outcomeServerError, outcomeCancelled, outcomeInternal}, refusalCodes()...)

const (
	indexOK = iota
	indexServerError
	indexCancelled
	indexInternal
	maxOutcomes = 64 // the length of an array of counts: fixed, so that the array is a plain field
)

// codeIndex holds the index of each outcome, by code.
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

// outcomeIndex returns the index of the outcome of a call that ended with err.
func outcomeIndex(ctx context.Context, err error) int {
	if err == nil {
		return indexOK
	}
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		if _, ours := errors.AsType[*switchboard.Error](context.Cause(ctx)); errors.Is(ctx.Err(), context.Canceled) && !ours {
			return indexCancelled // by its client, also if the outcome is unknown
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

// bucketBounds are the upper bounds of the histogram's buckets. The last bucket is unbounded.
var bucketBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// A series counts the calls of one tenant for one server or, without a tenant, the attempts at one server.
type series struct {
	ended [maxOutcomes]atomic.Int64

	// Of attempts only:
	took        [len(bucketBounds) + 1]atomic.Int64
	nanoseconds atomic.Int64 // the sum of all durations
}

type tenantServer struct {
	tenant switchboard.TenantID
	server switchboard.ServerID
}

// A lockFreeMap finds values without a lock, and copies the map to add one, which is rare. The zero value is
// an empty map.
type lockFreeMap[K comparable, V any] struct {
	making sync.Mutex
	all    atomic.Pointer[map[K]*V]
}

// valueOf returns the value of k, and adds it if there is none.
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

// values returns all values by key. The caller must not change the map.
func (t *lockFreeMap[K, V]) values() map[K]*V {
	if all := t.all.Load(); all != nil {
		return *all
	}
	return nil
}

// A Recorder counts. The zero Recorder is ready for use. It is safe for concurrent use.
type Recorder struct {
	calls      lockFreeMap[tenantServer, series]
	attempts   lockFreeMap[switchboard.ServerID, series]
	movedCalls lockFreeMap[[2]switchboard.ServerID, atomic.Int64]
	stateCounts
	storeCounts
	refusals       [maxOutcomes]atomic.Int64
	hops           lockFreeMap[string, atomic.Int64] // by outcome, like the next two
	keyedCalls     lockFreeMap[string, atomic.Int64]
	cacheableCalls lockFreeMap[string, atomic.Int64]
	notices        lockFreeMap[noticeAttempt, atomic.Int64]
	costs          costCounts
	reloads        [3]atomic.Int64 // by their index in reloadResults
	atomProbes     [2]atomic.Int64 // by their index in probeResults

	process processRegistry
}

// stateCounts are changes of the states of servers and of their definitions, and what probes of servers have found.
type stateCounts struct {
	changes lockFreeMap[serverChange, atomic.Int64]
	probes  lockFreeMap[serverProbe, atomic.Int64]
	pins    lockFreeMap[definitionState, atomic.Int64]
}

// storeCounts are the operations of the store.
type storeCounts struct {
	storeOperations lockFreeMap[storeOperation, atomic.Int64]
	storeTimes      lockFreeMap[string, series] // by operation; only durations
}

// costCounts are what calls and lists have cost.
type costCounts struct {
	spent lockFreeMap[tenantServer, atomic.Int64] // in millionths of the currency
	lists lockFreeMap[switchboard.TenantID, listCosts]
}

// listCosts are sums of switchboard.ListCost.
type listCosts struct{ lists, tokens, full, uncounted atomic.Int64 }

type serverChange struct {
	server          switchboard.ServerID
	what, to, cause string
}

type definitionState struct {
	server       switchboard.ServerID
	state, class string
}

type storeOperation struct{ what, outcome string }

type noticeAttempt struct{ recipient, outcome string }

type serverProbe struct {
	server switchboard.ServerID
	good   bool
}

// Calls returns a Caller that counts the calls of each tenant for each server, by outcome. Put it around all
// other wrappers: it must count the outcomes that clients see.
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

// Attempts returns a Caller that counts the attempts at each server, their outcomes and their durations. Put
// it directly around the servers: a call that moves counts once at each server, and a call that is refused
// before counts at none.
func (r *Recorder) Attempts(next switchboard.Caller) switchboard.Caller {
	return &attemptTimer{&r.attempts, next}
}

type attemptTimer struct {
	series *lockFreeMap[switchboard.ServerID, series]
	next   switchboard.Caller
}

// clockStart is the instant that durations are measured from: to read only the monotonic clock costs half.
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

// bucketIndex returns the index of the bucket that d belongs to.
func bucketIndex(d time.Duration) int {
	for i, b := range bucketBounds {
		if d <= b {
			return i
		}
	}
	return len(bucketBounds)
}

// CountRefusal counts a refusal to a client, of a call or of another request.
func (r *Recorder) CountRefusal(code switchboard.Code) {
	if at, ok := codeIndex[code]; ok {
		r.refusals[at].Add(1)
	}
}

// CountMove counts a call for one server that another server served.
func (r *Recorder) CountMove(from, to switchboard.ServerID) {
	r.movedCalls.valueOf([2]switchboard.ServerID{from, to}).Add(1)
}

// CountStateChange counts a new state of a server or, if tool is set, of one of its tools. cause is the stage where
// the trouble began, or "".
func (r *Recorder) CountStateChange(server switchboard.ServerID, tool bool, to, cause string) {
	what := "server"
	if tool {
		what = "tool"
	}
	r.changes.valueOf(serverChange{server, what, to, cause}).Add(1)
}

// CountDefinitionChange counts a change of the state of a definition of the server that no person has made. class says what the offered definition means; "" if that does not
// matter.
func (r *Recorder) CountDefinitionChange(server switchboard.ServerID, state, class string) {
	r.pins.valueOf(definitionState{server, state, class}).Add(1)
}

// CountProbe counts a probe of a server, and whether it succeeded.
func (r *Recorder) CountProbe(server switchboard.ServerID, err error) {
	r.probes.valueOf(serverProbe{server, err == nil}).Add(1)
}

// probeResults are the results of probes.
var probeResults = [...]string{"failed", "ok"}

// CountAtomProbe counts a probe of an atom, and whether the atom was well.
func (r *Recorder) CountAtomProbe(well bool) { r.atomProbes[gaugeOf(well)].Add(1) }

// CountStoreOperation counts an operation of the store, its outcome and its duration.
func (r *Recorder) CountStoreOperation(what, outcome string, took time.Duration) {
	r.storeOperations.valueOf(storeOperation{what, outcome}).Add(1)
	s := r.storeTimes.valueOf(what)
	s.took[bucketIndex(took)].Add(1)
	s.nanoseconds.Add(int64(took))
}

// CountHop counts a request that was forwarded to another replica, and its outcome.
func (r *Recorder) CountHop(outcome string) { r.hops.valueOf(outcome).Add(1) }

// CountKeyedCall counts the outcome of a call with an idempotency key.
func (r *Recorder) CountKeyedCall(outcome string) { r.keyedCalls.valueOf(outcome).Add(1) }

// CountCacheableCall counts the outcome of a call with a result that may be cached.
func (r *Recorder) CountCacheableCall(outcome string) { r.cacheableCalls.valueOf(outcome).Add(1) }

// CountNotice counts how an attempt to deliver a notice to a recipient of the configuration ended, or that a notice was given up.
func (r *Recorder) CountNotice(recipient, outcome string) {
	r.notices.valueOf(noticeAttempt{recipient, outcome}).Add(1)
}

// reloadResults are the results of reading the configuration again.
var reloadResults = [...]string{"ok", "unchanged", "refused"}

// CountSpend counts what was settled for an attempt of the tenant at the server.
func (r *Recorder) CountSpend(tenant switchboard.TenantID, server switchboard.ServerID, amount switchboard.Micros) {
	r.costs.spent.valueOf(tenantServer{tenant, server}).Add(int64(amount))
}

// CountLists counts what lists of tools have cost clients of the tenant.
func (r *Recorder) CountLists(tenant switchboard.TenantID, n switchboard.ListCost) {
	c := r.costs.lists.valueOf(tenant)
	c.lists.Add(n.Lists)
	c.tokens.Add(n.Tokens)
	c.full.Add(n.Full)
	c.uncounted.Add(n.Uncounted)
}

// CountReload counts a reload of the configuration: unchanged if same is set, refused if err is not nil.
func (r *Recorder) CountReload(same bool, err error) {
	at := 0
	switch {
	case err != nil:
		at = 2
	case same:
		at = 1
	}
	r.reloads[at].Add(1)
}
