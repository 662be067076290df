package policy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of evaluation.
const (
	// DefaultTimeLimit is how long one layer has to answer. What takes longer is
	// denied. It is long, for a pause of the machine is no reason to deny.
	DefaultTimeLimit = time.Second

	// DefaultRunning is how many evaluations may go on at once. Some go on after
	// their time, since nothing stops a builtin that is at work.
	DefaultRunning = 128
)

// An Engine evaluates, for all policies together, within bounds. Use NewEngine.
// It is safe for concurrent use.
type Engine struct {
	limit   time.Duration
	running chan struct{}
	jobs    chan func() // for those who run and have nothing to do

	asked, failed atomic.Int64
}

// Counts says how many evaluations there were, and how many of them failed.
func (e *Engine) Counts() (asked, failed int64) { return e.asked.Load(), e.failed.Load() }

// NewEngine returns an Engine that lets each evaluation take as long as limit,
// and so many run at once. 0 means the default of either.
func NewEngine(limit time.Duration, running int) *Engine {
	if limit == 0 {
		limit = DefaultTimeLimit
	}
	if running == 0 {
		running = DefaultRunning
	}
	return &Engine{limit: limit, running: make(chan struct{}, running), jobs: make(chan func())}
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
)

// stopped reports that it was not the policy's own doing that it did not
// answer, or that it may go on like this: asking again is of no use.
func stopped(err error) bool {
	return errors.Is(err, errTime) || errors.Is(err, errCrowded) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// eval asks a layer and waits for its answer, but not for longer than it may
// take.
func (e *Engine) eval(ctx context.Context, l view, in *ast.Term, now time.Time) (r *raw, err error) {
	e.asked.Add(1)
	defer func() {
		if err != nil {
			e.failed.Add(1)
		}
	}()
	if !l.brisk {
		return e.evalBeside(ctx, l.Layer, in, now, nil)
	}
	cancel := topdown.NewCancel()
	timer := time.AfterFunc(e.limit, cancel.Cancel)
	r, err = l.ask(in, now, cancel, nil)
	if !timer.Stop() && topdown.IsCancel(err) {
		return nil, fmt.Errorf("%w: %v", errTime, e.limit)
	}
	return r, err
}

// evalBeside is eval on another goroutine, for a layer with builtins that nothing
// stops once they are at work: such an evaluation goes on, and counts.
func (e *Engine) evalBeside(ctx context.Context, l *Layer, in *ast.Term, now time.Time, tracer topdown.QueryTracer) (*raw, error) {
	timer := time.NewTimer(e.limit)
	defer timer.Stop()
	cancel := topdown.NewCancel()
	done := make(chan outcome, 1)
	job := func() {
		r, err := l.ask(in, now, cancel, tracer)
		done <- outcome{r, err}
	}
	select {
	case e.jobs <- job: // somebody has nothing to do
	default:
		select {
		case e.jobs <- job:
		case e.running <- struct{}{}:
			go e.work(job)
		case <-timer.C:
			return nil, errCrowded
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case o := <-done:
		return o.raw, o.err
	case <-timer.C:
		cancel.Cancel()
		return nil, fmt.Errorf("%w: %v", errTime, e.limit)
	case <-ctx.Done():
		cancel.Cancel()
		return nil, ctx.Err()
	}
}

// idle is how long a goroutine waits for more to evaluate. It keeps the stack
// that it has grown: to grow another costs more than most evaluations.
const idle = 10 * time.Second

// work does job, and then what else comes, until nothing does.
func (e *Engine) work(job func()) {
	defer func() { <-e.running }()
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
	ctx := context.Background()
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

// fail denies every candidate that nobody has denied yet.
func (a *Answer) fail(kind Kind, err error) {
	why := &Denial{Code: switchboard.CodePolicyFailed, Layer: kind, Reasons: []string{err.Error()}}
	for i := range a.Verdicts {
		if a.Verdicts[i].Denied == nil || a.Verdicts[i].Denied.Code == switchboard.CodeDenied {
			a.Verdicts[i].Denied = why
		}
	}
}
