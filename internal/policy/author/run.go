package author

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/summit-switchboard/switchboard/internal/policy"
)

// TestOutcome is how a test ended.
type TestOutcome string

// The outcomes.
const (
	Passed  TestOutcome = "pass"
	Failed  TestOutcome = "fail"
	Erred   TestOutcome = "error"   // it could not be evaluated
	Skipped TestOutcome = "skipped" // its name begins with todo_
)

// A TestReport holds the results of the tests of one layer.
type TestReport struct {
	Layer    string       `json:"layer"`
	Tests    []TestResult `json:"tests"` // by file and line
	Coverage []Coverage   `json:"coverage,omitempty"`
}

// A TestResult is the result of one test.
type TestResult struct {
	SourceLine
	Name    string      `json:"name"`
	Outcome TestOutcome `json:"outcome"`

	// Error says why the test could not be evaluated.
	Error string `json:"error,omitempty"`

	// At is the expression that did not hold. Values is its text, with the values of its variables
	// on the lines below.
	At     *SourceLine `json:"at,omitempty"`
	Values string      `json:"values,omitempty"`

	// Output is what the test printed.
	Output string `json:"output,omitempty"`
}

// Coverage says how much of one file of rules the tests have reached.
type Coverage struct {
	File    string  `json:"file"`
	Percent float64 `json:"percent"`
	Missed  []Lines `json:"missed,omitempty"`
}

// Lines is a range of lines in a file; Last is included.
type Lines struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Count returns the number of tests with the outcome.
func (r *TestReport) Count(o TestOutcome) int {
	n := 0
	for _, t := range r.Tests {
		if t.Outcome == o {
			n++
		}
	}
	return n
}

// RunTests runs the tests of a layer with names that match the regular expression only ("" means
// all). It is as strict as the judgment of calls: an error of a builtin is an error of the test.
// The error is switchboard.Faults if the files do not compile.
func RunTests(ctx context.Context, s *Sources, only string, coverage bool) (*TestReport, error) {
	covered := cover.New()
	results, modules, err := s.runTester(ctx, func(r *tester.Runner) {
		r.Filter(only)
		if coverage {
			r.SetCoverageQueryTracer(covered).SetCoverageRuns(nil)
		}
	})
	if err != nil {
		return nil, err
	}
	report := &TestReport{Layer: s.Name, Tests: []TestResult{}}
	var failed []string
	for _, r := range results {
		t := newTest(r)
		if t.Outcome == Failed {
			failed = append(failed, regexp.QuoteMeta(t.Name))
		}
		report.Tests = append(report.Tests, t)
	}
	slices.SortFunc(report.Tests, func(a, b TestResult) int { return compareLines(a.SourceLine, b.SourceLine) })
	if coverage {
		report.Coverage = coverageOf(covered.Report(modules))
	}
	if len(failed) == 0 {
		return report, nil
	}
	// Only failed tests are traced, because a trace is large.
	traces, _, err := s.runTester(ctx, func(r *tester.Runner) {
		r.EnableTracing(true).Filter("^(" + strings.Join(failed, "|") + ")$")
	})
	if err != nil {
		return nil, err
	}
	for _, r := range traces {
		i := slices.IndexFunc(report.Tests, func(t TestResult) bool { return t.Name == testName(r) })
		if e := whereItFailed(r); i >= 0 && e != nil {
			t := &report.Tests[i]
			at := lineOf(e.Location)
			t.At, t.Values = &at, valuesAt(e)
		}
	}
	return report, nil
}

// testLimit is the time limit of one test. It is long enough for a busy machine.
const testLimit = 30 * time.Second

// runTester compiles the files and runs their tests.
func (s *Sources) runTester(ctx context.Context, set func(*tester.Runner)) ([]*tester.Result, map[string]*ast.Module, error) {
	modules, store, err := s.parseModules()
	if err != nil {
		return nil, nil, err
	}
	r := tester.NewRunner().SetTimeout(testLimit).
		SetCompiler(policy.NewCompiler().WithEnablePrintStatements(true)).
		SetStore(store).
		SetModules(modules).
		RaiseBuiltinErrors(true)
	set(r)
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer store.Abort(ctx, txn)
	ch, err := r.RunTests(ctx, txn)
	if err != nil {
		return nil, nil, policy.FaultsOf(s.Name, err)
	}
	var results []*tester.Result
	for one := range ch {
		results = append(results, one)
	}
	return results, modules, ctx.Err()
}

func testName(r *tester.Result) string { return r.Package + "." + r.Name }

func newTest(r *tester.Result) TestResult {
	t := TestResult{SourceLine: lineOf(r.Location), Name: testName(r), Outcome: Passed, Output: strings.TrimSpace(string(r.Output))}
	switch {
	case r.Skip:
		t.Outcome = Skipped
	case r.Error != nil:
		t.Outcome, t.Error = Erred, r.Error.Error()
		if e, ok := errors.AsType[*topdown.Error](r.Error); ok && e.Location != nil {
			at := lineOf(e.Location)
			t.At, t.Error = &at, e.Message
		}
	case r.Fail:
		t.Outcome = Failed
	}
	return t
}

// whereItFailed returns the event at which the test's own body failed. Failures in the rules that
// the test refers to are not considered: most of them are intended.
func whereItFailed(r *tester.Result) *topdown.Event {
	for _, e := range r.Trace {
		rule, ok := e.Node.(*ast.Rule)
		if ok && e.Op == topdown.EnterOp && rule.Location != nil && lineOf(rule.Location) == lineOf(r.Location) {
			return furthestFailure(r.Trace, e.QueryID)
		}
	}
	return nil
}

// furthestFailure returns the failure of the last expression that a query reached. For an every
// expression, it is the failure in its body.
func furthestFailure(trace []*topdown.Event, query uint64) *topdown.Event {
	var found *topdown.Event
	var end int
	for i, e := range trace {
		expr, ok := e.Node.(*ast.Expr)
		if !ok || e.Op != topdown.FailOp || e.QueryID != query || e.Location == nil {
			continue
		}
		if found == nil || expr.Index >= found.Node.(*ast.Expr).Index {
			found, end = e, i
		}
	}
	if found == nil {
		return nil
	}
	if _, ok := found.Node.(*ast.Expr).Terms.(*ast.Every); ok {
		for _, e := range slices.Backward(trace[:end]) {
			if e.ParentID == query && e.Op == topdown.FailOp {
				if inner := furthestFailure(trace[:end], e.QueryID); inner != nil {
					return inner
				}
			}
		}
	}
	return found
}

// valuesAt returns the text of an expression with the values of its variables below.
func valuesAt(e *topdown.Event) string {
	var b strings.Builder
	if err := topdown.PrettyEvent(&b, e, topdown.PrettyEventOpts{PrettyVars: true}); err != nil {
		return string(e.Location.Text)
	}
	return undent(b.String())
}

// undent removes the indentation that all lines have in common.
func undent(text string) string {
	lines := strings.Split(strings.TrimRight(text, " \t\n"), "\n")
	margin := -1
	for _, l := range lines {
		if blank := len(l) - len(strings.TrimLeft(l, " \t")); len(l) > 0 && (margin < 0 || blank < margin) {
			margin = blank
		}
	}
	for i, l := range lines {
		lines[i] = strings.TrimRight(l[min(margin, len(l)):], " \t")
	}
	return strings.Join(lines, "\n")
}

// coverageOf returns the coverage without the tests themselves.
func coverageOf(r cover.Report) []Coverage {
	var out []Coverage
	for file, f := range r.Files {
		if policy.IsTest(file) || len(f.Covered)+len(f.NotCovered) == 0 {
			continue
		}
		c := Coverage{File: file, Percent: f.Coverage}
		for _, missed := range f.NotCovered {
			c.addMissed(Lines{missed.Start.Row, missed.End.Row})
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Coverage) int { return strings.Compare(a.File, b.File) })
	return out
}

// addMissed appends lines, joined with the previous ones if they are adjacent.
func (c *Coverage) addMissed(l Lines) {
	if n := len(c.Missed); n > 0 && l.First <= c.Missed[n-1].Last+1 {
		c.Missed[n-1].Last = max(c.Missed[n-1].Last, l.Last)
		return
	}
	c.Missed = append(c.Missed, l)
}
