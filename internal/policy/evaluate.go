package policy

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// DefaultTimeLimit is how long one layer has to answer. What takes longer is
// denied. It is long, for a pause of the machine is no reason to deny.
const DefaultTimeLimit = time.Second

// An Engine evaluates, for all policies together, within bounds. Use NewEngine.
// It is safe for concurrent use.
//
// Each tenant has a few places, so that one tenant's evaluations leave processors to the others. An evaluation with
// builtins that nothing stops at work (see cost.go) runs beside its caller, and can run on when its time is over. It is
// overdue then, and keeps its place until it ends. While one of a tenant is overdue, the tenant begins no other of that kind. While
// as many are overdue as may be, no tenant does.
type Engine struct {
	limit  time.Duration
	places int // of each tenant
	most   int // evaluations that are overdue, of all tenants together
	jobs   chan func()

	mu      sync.Mutex
	tenants map[switchboard.TenantID]*share
	overdue int
	ended   chan struct{} // closed when one that is overdue ends

	asked, failed, ranOver atomic.Int64
}

// A share is one tenant's part of an Engine. It outlives the tenant's policies.
type share struct {
	places  chan struct{}
	overdue int // guarded by Engine.mu
}

// Counts says how many evaluations there were, how many of them failed, how many ran on when their time was over, and
// how many of these run now.
func (e *Engine) Counts() (asked, failed, ranOver, overdue int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked.Load(), e.failed.Load(), e.ranOver.Load(), int64(e.overdue)
}

// NewEngine returns an Engine that lets each evaluation take as long as limit, and each tenant evaluate in so many
// places at once. 0 means the default of either: DefaultTimeLimit, and half of the processors.
func NewEngine(limit time.Duration, places int) *Engine {
	processors := runtime.GOMAXPROCS(0)
	return &Engine{
		limit: cmp.Or(limit, DefaultTimeLimit), places: cmp.Or(places, max(1, processors/2)), most: max(1, processors-1),
		jobs: make(chan func()), tenants: map[switchboard.TenantID]*share{}, ended: make(chan struct{}),
	}
}

// share returns that of a tenant.
func (e *Engine) share(id switchboard.TenantID) *share {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.tenants[id]
	if s == nil {
		s = &share{places: make(chan struct{}, e.places)}
		e.tenants[id] = s
	}
	return s
}

type outcome struct {
	raw *raw
	err error
}

// raw is what a layer answered: each has no element where it is undefined.
type raw struct{ allowed, deny, obligations *ast.Term }

var (
	errTime    = errors.New("it took longer than it may")
	errCrowded = errors.New("too many evaluations are under way")
	errOverdue = errors.New("an evaluation of this tenant runs on although its time is over, and no other begins until it ends")
)

// stopped reports that it was not the policy's own doing that it did not
// answer, or that it may go on like this: asking again is of no use.
func stopped(err error) bool {
	return errors.Is(err, errTime) || errors.Is(err, errCrowded) || errors.Is(err, errOverdue) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// eval asks a layer in a place of the tenant and waits for its answer, but not for longer than it may
// take.
func (e *Engine) eval(ctx context.Context, s *share, l view, in *ast.Term, now time.Time) (r *raw, err error) {
	e.asked.Add(1)
	defer func() {
		if err != nil {
			e.failed.Add(1)
		}
	}()
	if !l.brisk {
		return e.evalBeside(ctx, s, func(c topdown.Cancel) (*raw, error) { return l.ask(in, now, c, nil) })
	}
	select {
	case s.places <- struct{}{}:
	default:
		if err := e.await(ctx, s); err != nil {
			return nil, err
		}
	}
	defer func() { <-s.places }()
	cancel := topdown.NewCancel()
	timer := time.AfterFunc(e.limit, cancel.Cancel)
	r, err = l.ask(in, now, cancel, nil)
	if !timer.Stop() && topdown.IsCancel(err) {
		return nil, fmt.Errorf("%w: %v", errTime, e.limit)
	}
	return r, err
}

// await waits for a place, for as long as an evaluation may take.
func (e *Engine) await(ctx context.Context, s *share) error {
	timer := time.NewTimer(e.limit)
	defer timer.Stop()
	select {
	case s.places <- struct{}{}:
		return nil
	case <-timer.C:
		return errCrowded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// evalBeside is eval on another goroutine, for what may run on when its time is over.
func (e *Engine) evalBeside(ctx context.Context, s *share, ask func(topdown.Cancel) (*raw, error)) (*raw, error) {
	if err := e.admit(ctx, s); err != nil {
		return nil, err
	}
	if err := e.await(ctx, s); err != nil {
		return nil, err
	}
	cancel := topdown.NewCancel()
	done, over := make(chan outcome, 1), make(chan struct{})
	var decided atomic.Bool // whether it ended in time: by whichever comes first, its end or the end of its time
	timer := time.AfterFunc(e.limit, func() {
		cancel.Cancel()
		e.begin(s)
		if !decided.CompareAndSwap(false, true) { // it has just ended
			e.end(s)
		}
		close(over)
	})
	e.start(func() {
		r, err := ask(cancel)
		if decided.CompareAndSwap(false, true) {
			timer.Stop()
		} else {
			e.end(s)
		}
		<-s.places
		done <- outcome{r, err}
	})
	select {
	case o := <-done:
		return o.raw, o.err
	case <-over:
		return nil, fmt.Errorf("%w: %v", errTime, e.limit)
	case <-ctx.Done():
		cancel.Cancel()
		return nil, ctx.Err()
	}
}

// admit waits while an evaluation of the tenant is overdue, or as many of all tenants as may be: for as long as an
// evaluation may take.
func (e *Engine) admit(ctx context.Context, s *share) error {
	var timer *time.Timer
	for {
		e.mu.Lock()
		own, all, ended := s.overdue, e.overdue, e.ended
		e.mu.Unlock()
		if own == 0 && all < e.most {
			return nil
		}
		if timer == nil {
			timer = time.NewTimer(e.limit)
			defer timer.Stop()
		}
		select {
		case <-ended:
		case <-timer.C:
			if own > 0 {
				return errOverdue
			}
			return errCrowded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin counts an evaluation whose time is over.
func (e *Engine) begin(s *share) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ranOver.Add(1)
	s.overdue++
	e.overdue++
}

// end counts one that was overdue and has ended.
func (e *Engine) end(s *share) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.overdue--
	e.overdue--
	close(e.ended)
	e.ended = make(chan struct{})
}

// start runs job on a goroutine that has nothing to do, or on a new one.
func (e *Engine) start(job func()) {
	select {
	case e.jobs <- job:
	default:
		go e.work(job)
	}
}

// idle is how long a goroutine waits for more to evaluate. It keeps the stack
// that it has grown: to grow another costs more than most evaluations.
const idle = 10 * time.Second

// work does job, and then what else comes, until nothing does.
func (e *Engine) work(job func()) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		job()
		timer.Reset(idle)
		select {
		case job = <-e.jobs:
		case <-timer.C:
			return
		}
	}
}

// ask evaluates on this goroutine. The clock and what is random are those of
// now, so that the same question has the same answer.
func (l *Layer) ask(in *ast.Term, now time.Time, cancel topdown.Cancel, tracer topdown.QueryTracer) (r *raw, err error) {
	defer func() {
		if p := recover(); p != nil {
			r, err = nil, fmt.Errorf("it panicked: %v\n%s", p, debug.Stack())
		}
	}()
	ctx := context.WithValue(context.Background(), metered{}, &meter{})
	txn, err := l.store.NewTransaction(ctx, storage.TransactionParams{Context: nil})
	if err != nil {
		return nil, err
	}
	defer l.store.Abort(ctx, txn)
	q := topdown.NewQuery(l.query).
		WithQueryCompiler(l.queries).
		WithCompiler(l.compiler).
		WithStore(l.store).
		WithTransaction(txn).
		WithInput(in).
		WithCancel(cancel).
		WithTime(now).
		WithSeed(seed(now)).
		WithStrictBuiltinErrors(true)
	if tracer != nil {
		q = q.WithQueryTracer(tracer)
	}
	err = q.Iter(ctx, func(qr topdown.QueryResult) error {
		r = l.read(qr)
		return nil
	})
	if err == nil && (r == nil || r.allowed == nil || r.deny == nil || r.obligations == nil) {
		err = errors.New("it has no result")
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// read takes the answers out of a result; nil where parts of one have not the same
// shape.
func (l *Layer) read(qr topdown.QueryResult) *raw {
	if l.asks == nil {
		return &raw{qr[nameAllowed], qr[nameDeny], qr[nameObligations]}
	}
	all := &raw{none, none, none}
	for _, a := range l.asks {
		one := &raw{none, none, none}
		switch a.answer {
		case nameAllowed:
			one.allowed = qr[a.variable]
		case nameDeny:
			one.deny = qr[a.variable]
		case nameObligations:
			one.obligations = qr[a.variable]
		}
		var ok bool
		if all, ok = all.join(one); !ok {
			return nil
		}
	}
	return all
}

// none is an answer of which nothing is said.
var none = ast.ArrayTerm()

// seed gives the random bytes of an instant. Nothing secret is made of them.
func seed(now time.Time) io.Reader {
	var s [32]byte
	binary.LittleEndian.PutUint64(s[:], uint64(now.UnixNano()))
	return rand.NewChaCha8(s)
}

func isCost(err error) bool {
	_, ok := errors.AsType[*costError](err)
	return ok
}

// fail denies every candidate that nobody has denied yet.
func (a *Answer) fail(kind Kind, err error) {
	why := &Denial{Code: switchboard.CodePolicyFailed, Layer: kind, Reasons: []string{err.Error()}, own: stopped(err) || isCost(err)}
	for i := range a.Verdicts {
		if a.Verdicts[i].Denied == nil || a.Verdicts[i].Denied.Code == switchboard.CodeDenied {
			a.Verdicts[i].Denied = why
		}
	}
}
