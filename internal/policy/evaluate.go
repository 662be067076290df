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
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/summit-switchboard/switchboard/internal/policy/cost"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// DefaultTimeLimit is how long one layer may take to answer. If it takes longer, the candidates are
// denied. It is long, because a pause of the machine is no reason to deny.
const DefaultTimeLimit = time.Second

// An Engine evaluates for all policies, within limits. Use NewEngine. It is safe for concurrent
// use.
//
// Each tenant may run a few evaluations at once, so that one tenant leaves processors to the
// others. An evaluation with builtins that cannot be stopped (see package cost) runs on another
// goroutine than its caller, and can continue after its time limit. It is overdue then, and still
// counts as running until it ends. While an evaluation of a tenant is overdue, that tenant starts
// no other of this kind. While the maximum of all tenants is overdue, no tenant does.
type Engine struct {
	timeLimit   time.Duration
	concurrency int // concurrent evaluations of each tenant
	maxOverdue  int // overdue evaluations of all tenants
	jobs        chan func()
	terms       briefTerms

	mu      sync.Mutex
	tenants map[switchboard.TenantID]*tenantShare
	overdue int
	ended   chan struct{} // closed when an overdue evaluation ends

	evaluations, failed, ranOver atomic.Int64
}

// A tenantShare is one tenant's part of an Engine. It outlives the tenant's policies.
type tenantShare struct {
	running chan struct{}
	overdue int // guarded by Engine.mu
}

// Counts returns the number of evaluations, of failed ones, of those that exceeded their time
// limit, and of those of them that still run.
func (e *Engine) Counts() (asked, failed, ranOver, overdue int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.evaluations.Load(), e.failed.Load(), e.ranOver.Load(), int64(e.overdue)
}

// NewEngine returns an Engine with a time limit for each evaluation, and a limit for the concurrent
// evaluations of each tenant. 0 means the default: DefaultTimeLimit, and half of the processors.
func NewEngine(limit time.Duration, places int) *Engine {
	processors := runtime.GOMAXPROCS(0)
	return &Engine{
		timeLimit: cmp.Or(limit, DefaultTimeLimit), concurrency: cmp.Or(places, max(1, processors/2)), maxOverdue: max(1, processors-1),
		jobs: make(chan func()), tenants: map[switchboard.TenantID]*tenantShare{}, ended: make(chan struct{}),
	}
}

// shareOf returns the share of a tenant.
func (e *Engine) shareOf(id switchboard.TenantID) *tenantShare {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.tenants[id]
	if s == nil {
		s = &tenantShare{running: make(chan struct{}, e.concurrency)}
		e.tenants[id] = s
	}
	return s
}

type evalResult struct {
	raw *rawAnswer
	err error
}

// rawAnswer is the answer of a layer. Each list is empty if the value is undefined.
type rawAnswer struct{ allowed, deny, obligations *ast.Term }

var (
	errCrowded = errors.New("too many evaluations are running")
	errOverdue = errors.New("an evaluation of this tenant exceeded its time limit and still runs; no other starts until it ends")
)

// wasStopped reports whether the evaluation failed for a reason outside the policy, or because of
// its time limit. Then it is of no use to ask again.
func wasStopped(err error) bool {
	return errors.Is(err, cost.ErrTime) || errors.Is(err, errCrowded) || errors.Is(err, errOverdue) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// eval asks a layer, within the concurrency limit of the tenant and the time limit.
func (e *Engine) eval(ctx context.Context, s *tenantShare, l layerView, in *ast.Term, now time.Time) (r *rawAnswer, err error) {
	e.evaluations.Add(1)
	defer func() {
		if err != nil {
			e.failed.Add(1)
		}
	}()
	if !l.quick {
		return e.evalBeside(ctx, s, func(c topdown.Cancel) (*rawAnswer, error) { return l.evaluate(in, now, c, nil) })
	}
	select {
	case s.running <- struct{}{}:
	default:
		if err := e.acquire(ctx, s); err != nil {
			return nil, err
		}
	}
	defer func() { <-s.running }()
	cancel := topdown.NewCancel()
	timer := time.AfterFunc(e.timeLimit, cancel.Cancel)
	r, err = l.evaluate(in, now, cancel, nil)
	if !timer.Stop() && topdown.IsCancel(err) {
		return nil, fmt.Errorf("%w: %v", cost.ErrTime, e.timeLimit)
	}
	return r, err
}

// acquire waits until the tenant may run another evaluation, for the time limit at most.
func (e *Engine) acquire(ctx context.Context, s *tenantShare) error {
	timer := time.NewTimer(e.timeLimit)
	defer timer.Stop()
	select {
	case s.running <- struct{}{}:
		return nil
	case <-timer.C:
		return errCrowded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// evalBeside evaluates on another goroutine, for evaluations that may continue after their time
// limit.
func (e *Engine) evalBeside(ctx context.Context, s *tenantShare, ask func(topdown.Cancel) (*rawAnswer, error)) (*rawAnswer, error) {
	if err := e.awaitOverdue(ctx, s); err != nil {
		return nil, err
	}
	if err := e.acquire(ctx, s); err != nil {
		return nil, err
	}
	cancel := topdown.NewCancel()
	done, over := make(chan evalResult, 1), make(chan struct{})
	var decided atomic.Bool // whether it ended in time; set by the evaluation or by the timer, whichever is first
	timer := time.AfterFunc(e.timeLimit, func() {
		cancel.Cancel()
		e.countOverdue(s)
		if !decided.CompareAndSwap(false, true) { // it has just ended
			e.endOverdue(s)
		}
		close(over)
	})
	e.startJob(func() {
		r, err := ask(cancel)
		if decided.CompareAndSwap(false, true) {
			timer.Stop()
		} else {
			e.endOverdue(s)
		}
		<-s.running
		done <- evalResult{r, err}
	})
	select {
	case o := <-done:
		return o.raw, o.err
	case <-over:
		return nil, fmt.Errorf("%w: %v", cost.ErrTime, e.timeLimit)
	case <-ctx.Done():
		cancel.Cancel()
		return nil, ctx.Err()
	}
}

// JudgeInput asks a layer about an input document and adds its answer to a. The error says why the
// layer could not be evaluated; then a denies the candidates.
func (e *Engine) JudgeInput(ctx context.Context, l *Layer, in *ast.Term, candidates []*switchboard.Tool, now time.Time, a *Answer) error {
	raw, err := e.evalBeside(ctx, e.shareOf(""), func(c topdown.Cancel) (*rawAnswer, error) { return l.evaluate(in, now, c, nil) })
	if err != nil {
		a.denyRest(l.kind, err)
		return err
	}
	a.addLayer(l, raw, candidates)
	return nil
}

// TraceLayers calls f for each layer, with a function that evaluates the layer for q under a tracer. The evaluation may go on, and use the tracer, after that
// function has returned an error. The error of TraceLayers says why no layer can be evaluated.
func (p *Policy) TraceLayers(ctx context.Context, q *CandidateQuestion, f func(l *Layer, evaluate func(topdown.QueryTracer) error)) error {
	in, err := p.buildInput(q)
	if err != nil {
		return err
	}
	for _, v := range p.layers {
		f(v.Layer, func(t topdown.QueryTracer) error {
			_, err := p.engine.evalBeside(ctx, p.share, func(c topdown.Cancel) (*rawAnswer, error) { return v.evaluate(in, q.Now, c, t) })
			return err
		})
	}
	return nil
}

// awaitOverdue waits while an evaluation of the tenant, or the maximum of all tenants, is overdue,
// for the time limit at most.
func (e *Engine) awaitOverdue(ctx context.Context, s *tenantShare) error {
	var timer *time.Timer
	for {
		e.mu.Lock()
		own, all, ended := s.overdue, e.overdue, e.ended
		e.mu.Unlock()
		if own == 0 && all < e.maxOverdue {
			return nil
		}
		if timer == nil {
			timer = time.NewTimer(e.timeLimit)
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

// countOverdue counts an evaluation as overdue.
func (e *Engine) countOverdue(s *tenantShare) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ranOver.Add(1)
	s.overdue++
	e.overdue++
}

// endOverdue counts an overdue evaluation as ended.
func (e *Engine) endOverdue(s *tenantShare) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.overdue--
	e.overdue--
	close(e.ended)
	e.ended = make(chan struct{})
}

// startJob runs job on an idle goroutine, or on a new one.
func (e *Engine) startJob(job func()) {
	select {
	case e.jobs <- job:
	default:
		go e.runJobs(job)
	}
}

// idleTime is how long a goroutine waits for another job. It keeps its grown stack: growing a new
// one costs more than most evaluations.
const idleTime = 10 * time.Second

// runJobs runs job and further jobs, until none comes for a while.
func (e *Engine) runJobs(job func()) {
	timer := time.NewTimer(idleTime)
	defer timer.Stop()
	for {
		job()
		timer.Reset(idleTime)
		select {
		case job = <-e.jobs:
		case <-timer.C:
			return
		}
	}
}

// evaluate evaluates on this goroutine. Clock and random values depend on now alone, so that the
// same question has the same answer.
func (l *Layer) evaluate(in *ast.Term, now time.Time, cancel topdown.Cancel, tracer topdown.QueryTracer) (r *rawAnswer, err error) {
	err = l.run(l.query, l.queries, in, now, cancel, tracer, func(qr topdown.QueryResult) { r = l.readAnswers(qr) })
	if err == nil && (r == nil || r.allowed == nil || r.deny == nil || r.obligations == nil) {
		err = errors.New("it has no result")
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// run evaluates a compiled query, and calls each with its results.
func (l *Layer) run(query ast.Body, queries ast.QueryCompiler, in *ast.Term, now time.Time, cancel topdown.Cancel, tracer topdown.QueryTracer, each func(topdown.QueryResult)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v\n%s", p, debug.Stack())
		}
	}()
	ctx := cost.WithMeter(context.Background())
	txn, err := l.store.NewTransaction(ctx, storage.TransactionParams{Context: nil})
	if err != nil {
		return err
	}
	defer l.store.Abort(ctx, txn)
	q := topdown.NewQuery(query).
		WithQueryCompiler(queries).
		WithCompiler(l.compiler).
		WithStore(l.store).
		WithTransaction(txn).
		WithInput(in).
		WithCancel(cancel).
		WithTime(now).
		WithSeed(randomSeed(now)).
		WithStrictBuiltinErrors(true)
	if tracer != nil {
		q = q.WithQueryTracer(tracer).WithEarlyExit(false) // else of several bodies that hold, it sees the first one only
	}
	return q.Iter(ctx, func(qr topdown.QueryResult) error {
		each(qr)
		return nil
	})
}

// A preparedQuery is a compiled query.
type preparedQuery struct {
	body    ast.Body
	queries ast.QueryCompiler
}

// queryValue is the variable of a preparedQuery that holds its value.
const queryValue = "value"

// prepare compiles an expression, once for all layers of the same rules.
func (l *Layer) prepare(expression string) (*preparedQuery, error) {
	if known, ok := l.prepared.Load(expression); ok {
		return known.(*preparedQuery), nil
	}
	body, err := ast.ParseBodyWithOpts(queryValue+" = "+expression, parserOptions())
	if err != nil {
		return nil, err
	}
	q := &preparedQuery{queries: l.compiler.QueryCompiler()}
	if q.body, err = q.queries.Compile(body); err != nil {
		return nil, err
	}
	l.prepared.Store(expression, q)
	return q, nil
}

// Ask returns the value of an expression of Rego. It is for the few expressions of callers, since each is compiled once and
// kept. An expression without a value is an error.
func (l *Layer) Ask(ctx context.Context, expression string, in *ast.Term, now time.Time) (value ast.Value, err error) {
	q, err := l.prepare(expression)
	if err != nil {
		return nil, err
	}
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	err = l.run(q.body, q.queries, in, now, cancel, nil, func(qr topdown.QueryResult) {
		if t := qr[queryValue]; t != nil {
			value = t.Value
		}
	})
	if err == nil && value == nil {
		err = errors.New("it has no result")
	}
	return value, err
}

// RuleValue evaluates one rule by its reference. defined is false if the rule has no value for in.
func (l *Layer) RuleValue(ctx context.Context, ref string, in *ast.Term, now time.Time) (v any, defined bool, err error) {
	rs, err := rego.New(
		rego.Query(ref), rego.Compiler(l.compiler), rego.Store(l.store), rego.ParsedInput(in.Value),
		rego.Time(now), rego.Seed(randomSeed(now)), rego.StrictBuiltinErrors(true),
	).Eval(ctx)
	if err != nil || len(rs) == 0 {
		return nil, false, err
	}
	return rs[0].Expressions[0].Value, true, nil
}

// readAnswers reads the answers from a result. It returns nil if parts of an answer have different
// shapes.
func (l *Layer) readAnswers(qr topdown.QueryResult) *rawAnswer {
	if l.variables == nil {
		return &rawAnswer{qr[AnswerAllowed], qr[AnswerDeny], qr[AnswerObligations]}
	}
	all := &rawAnswer{undefinedAnswer, undefinedAnswer, undefinedAnswer}
	for _, a := range l.variables {
		one := &rawAnswer{undefinedAnswer, undefinedAnswer, undefinedAnswer}
		switch a.answer {
		case AnswerAllowed:
			one.allowed = qr[a.variable]
		case AnswerDeny:
			one.deny = qr[a.variable]
		case AnswerObligations:
			one.obligations = qr[a.variable]
		}
		var ok bool
		if all, ok = all.joinAnswers(one); !ok {
			return nil
		}
	}
	return all
}

// undefinedAnswer is an undefined answer.
var undefinedAnswer = ast.ArrayTerm()

// randomSeed returns random bytes that depend on now alone. Nothing secret is made from them.
func randomSeed(now time.Time) io.Reader {
	var s [32]byte
	binary.LittleEndian.PutUint64(s[:], uint64(now.UnixNano()))
	return rand.NewChaCha8(s)
}

func isCost(err error) bool {
	_, ok := errors.AsType[*cost.RefusedError](err)
	return ok
}

// denyRest denies every candidate that is not denied yet, and every one denied with SB-POL-001.
func (a *Answer) denyRest(kind LayerKind, err error) {
	why := &Denial{Code: switchboard.CodePolicyFailed, Layer: kind, Reasons: []string{err.Error()}, ownWords: wasStopped(err) || isCost(err)}
	for i := range a.Verdicts {
		if a.Verdicts[i].Denied == nil || a.Verdicts[i].Denied.Code == switchboard.CodeDenied {
			a.Verdicts[i].Denied = why
		}
	}
}
