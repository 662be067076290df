package admin

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of the reading of receipts for the pace of budgets.
const (
	paceTime     = 2 * time.Second       // an answer waits at most, for all tenants together
	maxAwaited   = 10                    // tenants with budgets in one answer; an answer about more waits for no reading
	paceReadTime = time.Minute           // for one reading
	quickReading = 25 * time.Millisecond // a reading that took no longer is made again for each answer
	readingAge   = 20                    // a longer one is made again after so many times what it took
	readingRest  = 9                     // and then the next one waits so many times what it took, so that calls have the processors
	oldestPace   = time.Hour             // a reading that is older is not shown
	paceWeek     = 7 * 24 * time.Hour
)

// paceReadings have what the calls of the last week have cost, for each tenant that was asked about. To read the receipts of a tenant with many
// calls takes seconds: answers then show the last reading, and the next one is made behind them. Use newPaceReadings.
type paceReadings struct {
	mu           sync.Mutex
	of           map[switchboard.TenantID]*paceReading
	first, again chan struct{} // have an element while a reading is made: the first one of a tenant, or another one
}

func newPaceReadings() paceReadings {
	return paceReadings{of: map[switchboard.TenantID]*paceReading{}, first: make(chan struct{}, 1), again: make(chan struct{}, 1)}
}

// A paceReading is what was read for one tenant. Its fields are guarded by paceReadings.mu.
type paceReading struct {
	spending *budget.Spending // nil before the first reading
	err      error            // of the last one, after which spending is of the one before
	took     time.Duration
	running  chan struct{} // is closed after the reading that is being made; nil if none is
	behind   bool          // no answer waits for that one
	begun    time.Time     // when that was asked for
}

// isSlow reports whether answers do not wait for the next reading.
func (p *paceReading) isSlow() bool { return p.shown() != nil && p.took > quickReading }

// shown returns the last reading; nil if there is none, or if it is too old.
func (p *paceReading) shown() *budget.Spending {
	if p.spending == nil || time.Since(p.spending.At) > oldestPace {
		return nil
	}
	return p.spending
}

// spending returns what the calls of the tenant have cost; nil if that is not known at stopAt. An answer that does not wait gets the last reading, and the
// next one is made behind it.
func (r *BudgetReader) spending(ctx context.Context, id switchboard.TenantID, stopAt time.Time, waits bool) (*budget.Spending, error) {
	p := &r.paces
	p.mu.Lock()
	one := p.of[id]
	if one == nil {
		one = &paceReading{}
		p.of[id] = one
	}
	last := one.shown()
	waits = waits && !one.isSlow()
	if one.running == nil && (waits || last == nil || time.Since(last.At) >= readingAge*one.took) {
		one.running, one.begun, one.err, one.behind = make(chan struct{}), time.Now(), nil, !waits && last != nil
		go r.readSpending(id, one)
	}
	done := one.running
	waits = waits && (!one.behind || last == nil)
	if waited := one.begun.Add(paceTime); waited.Before(stopAt) {
		stopAt = waited // other answers have waited already
	}
	p.mu.Unlock()
	if !waits {
		return last, nil
	}
	timer := time.NewTimer(time.Until(stopAt))
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return one.shown(), one.err
}

// readSpending makes a reading.
func (r *BudgetReader) readSpending(id switchboard.TenantID, one *paceReading) {
	p, ctx := &r.paces, cmp.Or(r.reader.o.Stopping, context.Background())
	p.mu.Lock()
	turn := p.first
	if one.behind && one.shown() != nil {
		turn = p.again
	}
	p.mu.Unlock()
	turn <- struct{}{}
	defer func() { <-turn }()
	began, c := time.Now(), r.reader.o.Configuration()
	calls, looked, _, err := r.spentCalls(ctx, id, began.Add(-paceWeek), began.Add(paceReadTime))
	var spending *budget.Spending
	if t := c.Tenants[id]; err == nil && t != nil {
		spending = budget.SumUp(budgetsOf(c, id), t.Taxonomy, calls, looked, began)
	}
	took := time.Since(began)
	p.mu.Lock()
	if one.err, one.took = err, took; err == nil {
		one.spending = spending
	}
	close(one.running)
	one.running = nil
	p.mu.Unlock()
	if turn == p.again {
		select {
		case <-time.After(readingRest * took):
		case <-ctx.Done():
		}
	}
}

// budgetsOf returns the budgets that can count calls of the tenant.
func budgetsOf(c Configuration, id switchboard.TenantID) []*switchboard.Budget {
	t := c.Tenants[id]
	return budget.All(t.Tenant, c.Config.Overlays, t.Providers.Tools())
}
