package history

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// bucketBounds are the upper bounds of the buckets of latencies, as in package telemetry. The last bucket is unbounded. To change them is to
// change the format of blocks.
var bucketBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// The indexes of the numbers of a pair.
const (
	numCalls     = iota // all of them, also those that the client has cancelled
	numFailed           // no result: the server's own error, or a server, the store or Switchboard failed
	numRefused          // no result, by a rule or for a mistake of the caller
	numMoved            // served by another server
	firstBucket         // latencies of the calls with a result and of those that failed
	firstCode    = firstBucket + len(bucketBounds) + 1
	otherCodes   = firstCode + len(refusalCodes) // refusals with a code that is not in refusalCodes
	firstExtra   = otherCodes + 1                // the numbers from here on are not about calls that end
	numSpent     = firstExtra                    // what was settled for attempts, in millionths of the currency
	numLists     = numSpent + 1                  // lists of tools that clients got; for this and the next ones see switchboard.ListCost
	numTokens    = numSpent + 2
	numFull      = numSpent + 3
	numUncounted = numSpent + 4
	numbers      = numUncounted + 1 // at most 64: a mask of them is one number
)

// refusalCodes are the codes that refusals are counted apart by. Their order is the format of blocks, as is that of all numbers. A new code at the end moves the
// numbers behind it: count blockFormat up, and read older blocks as they are.
var refusalCodes = [...]switchboard.Code{
	switchboard.CodeNoSuchTool, switchboard.CodeBadArguments, switchboard.CodeUnmet, switchboard.CodeMalformed, switchboard.CodeKeyTaken, switchboard.CodeNotNow, switchboard.CodeServedDifferently,
	switchboard.CodeDenied, switchboard.CodeObligation,
	switchboard.CodeNotAuthorized, switchboard.CodeConnectFirst, switchboard.CodeProviderAway,
	switchboard.CodeRateLimit,
	switchboard.CodeOverBudget, switchboard.CodeExpandDenied, switchboard.CodeNotInGroup, switchboard.CodeExpandFirst,
	switchboard.CodeBudgetExceeded, switchboard.CodeNotPriced,
	switchboard.CodeApprovalPending, switchboard.CodeApprovalRefused, switchboard.CodeApprovalGone,
	switchboard.CodeTooManyAsked,
	switchboard.CodeSuspended, switchboard.CodeRetired, switchboard.CodeNotLetIn,
}

// codesBefore4 is how many of refusalCodes the block formats before 4 have.
const codesBefore4 = 23

// numberOf returns the index of the number that counts refusals with the code.
func numberOf(code switchboard.Code) int {
	for i, c := range refusalCodes {
		if c == code {
			return firstCode + i
		}
	}
	return otherCodes
}

// counts are the numbers of one pair in one step.
type counts [numbers]uint64

func (c *counts) add(d *counts) {
	for i, n := range d {
		c[i] += n
	}
}

// A seriesKey is a pair of a tenant and the server that its calls were for. The zero pair is for the calls of all pairs beyond maxSeries.
type seriesKey struct {
	tenant switchboard.TenantID
	server switchboard.ServerID
}

// A liveSeries counts the calls of one pair since the process has started. take reads it.
type liveSeries struct {
	now  [numbers]atomic.Uint64
	read counts // what take has returned
	last time.Time
}

const (
	// maxLive limits how many pairs are counted apart. Calls of further pairs count for the zero pair.
	maxLive = 1024

	maxIdle = time.Hour   // how long a pair stays without a call
	leaves  = time.Minute // how long it is still read after that, because a call may have found it just before
)

// liveCounts have the calls that were counted since the start. A call finds its pair without a lock; the map is copied to add a pair or to
// remove idle ones, which is rare.
type liveCounts struct {
	rest liveSeries
	all  atomic.Pointer[map[seriesKey]*liveSeries]

	changing sync.Mutex // of all
	leaving  []leavingSeries
}

// A leavingSeries is removed, and still read.
type leavingSeries struct {
	pair seriesKey
	*liveSeries
}

func (l *liveCounts) init() { l.all.Store(&map[seriesKey]*liveSeries{}) }

// seriesOf returns the series that counts the pair's calls.
func (l *liveCounts) seriesOf(p seriesKey) *liveSeries {
	if s := (*l.all.Load())[p]; s != nil {
		return s
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	was := *l.all.Load()
	if s := was[p]; s != nil {
		return s
	}
	if len(was) >= maxLive || p == (seriesKey{}) || len(p.tenant) > maxName || len(p.server) > maxName {
		return &l.rest
	}
	next := maps.Clone(was)
	s := new(liveSeries)
	next[p] = s
	l.all.Store(&next)
	return s
}

// take returns what was counted since the last take. It removes the pairs without calls for an hour.
func (l *liveCounts) take(now time.Time) historyStep {
	l.changing.Lock()
	defer l.changing.Unlock()
	taken := historyStep{}
	for _, s := range l.leaving {
		s.takeInto(taken, s.pair, now)
	}
	l.leaving = slices.DeleteFunc(l.leaving, func(s leavingSeries) bool { return now.Sub(s.last) > maxIdle+leaves })
	var next map[seriesKey]*liveSeries
	for p, s := range *l.all.Load() {
		if s.takeInto(taken, p, now); now.Sub(s.last) <= maxIdle {
			continue
		}
		if next == nil {
			next = maps.Clone(*l.all.Load())
		}
		delete(next, p)
		l.leaving = append(l.leaving, leavingSeries{p, s})
	}
	if next != nil {
		l.all.Store(&next)
	}
	l.rest.takeInto(taken, seriesKey{}, now)
	return taken
}

// takeInto adds what was counted since the last take to the step.
func (s *liveSeries) takeInto(step historyStep, p seriesKey, now time.Time) {
	if s.last.IsZero() {
		s.last = now
	}
	var taken counts
	some, called := false, s.now[numCalls].Load() != s.read[numCalls]
	for i := range s.now {
		if i < firstExtra && !called { // a call that has not counted wholly
			continue
		}
		n := s.now[i].Load()
		taken[i], s.read[i] = n-s.read[i], n
		some = some || taken[i] > 0
	}
	if some {
		s.last = now
		step.at(p).add(&taken)
	}
}

// Count returns a Caller that counts each call, its outcome and its latency. Put it around all wrappers that can refuse a call or answer it:
// it must count what clients see.
func (h *History) Count(next switchboard.Caller) switchboard.Caller {
	return &historyCounter{&h.live, next}
}

type historyCounter struct {
	live *liveCounts
	next switchboard.Caller
}

// clockStart is the instant that latencies are measured from: to read only the monotonic clock costs half.
var clockStart = time.Now()

// Call implements switchboard.Caller.
func (c *historyCounter) Call(ctx context.Context, call *switchboard.Call) (switchboard.Result, error) {
	began := time.Since(clockStart)
	result, err := c.next.Call(ctx, call)
	took := time.Since(clockStart) - began
	s := c.live.seriesOf(seriesKey{call.Principal.Tenant, call.Server})
	outcome, code := -1, switchboard.Code("")
	if err != nil {
		outcome, code = outcomeOf(ctx, err)
	}
	switch outcome {
	case numCalls: // cancelled: neither a failure nor a latency
	case numRefused:
		s.now[numRefused].Add(1)
		s.now[numberOf(code)].Add(1)
	case numFailed:
		s.now[numFailed].Add(1)
		s.now[bucketOf(took)].Add(1)
	default:
		if result.Moved != nil && result.Repeated == nil { // a repeated result has moved when it was new
			s.now[numMoved].Add(1)
		}
		s.now[bucketOf(took)].Add(1)
	}
	s.now[numCalls].Add(1) // last: a take between the two reads the rest next time
	return result, err
}

// CountSpend counts what was settled for an attempt of the tenant at the server.
func (h *History) CountSpend(tenant switchboard.TenantID, server switchboard.ServerID, amount switchboard.Micros) {
	if amount > 0 {
		h.live.seriesOf(seriesKey{tenant, server}).now[numSpent].Add(uint64(amount))
	}
}

// CountLists counts what lists of tools have cost clients of the tenant. It counts for the pair of the tenant and no server.
func (h *History) CountLists(tenant switchboard.TenantID, n switchboard.ListCost) {
	now := &h.live.seriesOf(seriesKey{tenant: tenant}).now
	now[numLists].Add(uint64(n.Lists))         //nolint:gosec // this and the next ones are not negative
	now[numTokens].Add(uint64(n.Tokens))       //nolint:gosec // as above
	now[numFull].Add(uint64(n.Full))           //nolint:gosec // as above
	now[numUncounted].Add(uint64(n.Uncounted)) //nolint:gosec // as above
}

// outcomeOf returns how a call with an error counts: numFailed, numRefused with the code or, if its client has cancelled it, numCalls.
func outcomeOf(ctx context.Context, err error) (outcome int, code switchboard.Code) {
	own, ours := errors.AsType[*switchboard.Error](err)
	_, causedByUs := errors.AsType[*switchboard.Error](context.Cause(ctx))
	switch {
	case errors.Is(ctx.Err(), context.Canceled) && !causedByUs:
		return numCalls, ""
	case !ours && errors.Is(err, context.Canceled):
		return numCalls, ""
	case ours && isRefusal(own.Code):
		return numRefused, own.Code
	}
	return numFailed, ""
}

// isRefusal reports whether the code says that a rule forbids the call or that its caller made a mistake. Every other code says that
// something has failed.
func isRefusal(code switchboard.Code) bool {
	if code == switchboard.CodeRateLimit {
		return true
	}
	for _, family := range []string{"SB-DISC-", "SB-ROUT-", "SB-EXEC-", "SB-RCPT-"} {
		if strings.HasPrefix(string(code), family) {
			return false
		}
	}
	return code != switchboard.CodePolicyFailed
}

// bucketOf returns the index of the number that counts the latency d.
func bucketOf(d time.Duration) int {
	for i, b := range bucketBounds {
		if d <= b {
			return firstBucket + i
		}
	}
	return firstBucket + len(bucketBounds)
}
