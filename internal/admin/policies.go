package admin

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/heap"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A PolicyList says which policy files a tenant has, and whether they are in force.
type PolicyList struct {
	Tenant switchboard.TenantID `json:"tenant"`
	State  string               `json:"state"`            // in force, or why not
	Faults []string             `json:"faults,omitempty"` // of the tenant's files
	Digest switchboard.Digest   `json:"digest,omitempty"` // of the policy in force: the operator's layer and the tenant's
	Since  time.Time            `json:"since,omitzero"`   // when it last changed

	// Files are the tenant's own, sorted by path. A tenant without any has no layer of its own.
	Files []PolicyFileRow `json:"files"`

	// Operator are the files of the operator's layer, sorted by path. Shipped: they are part of Switchboard, because the operator has none.
	Operator []PolicyFileRow `json:"operator_files"`
	Shipped  bool            `json:"operator_files_shipped,omitempty"`
}

// A PolicyFileRow is one policy file.
type PolicyFileRow struct {
	Path   string             `json:"path"`   // in the tenant's folder of policies
	Digest switchboard.Digest `json:"digest"` // SHA-256 of its bytes
	Bytes  int                `json:"bytes"`
	Test   bool               `json:"test,omitempty"` // it holds tests
}

// ListPolicies returns the policy files of a tenant that the configuration has.
func ListPolicies(r *Reader, id switchboard.TenantID) *PolicyList {
	c := r.o.Configuration()
	l := &PolicyList{Tenant: id, State: "in force", Operator: []PolicyFileRow{}}
	if t := c.Tenants[id]; t != nil {
		l.Digest, l.Since = t.Rules.Digest(), c.PolicySince[id]
	}
	for _, p := range faultyParts(&c, id) {
		l.State = p.State
		l.Faults = append(l.Faults, p.Faults...)
	}
	l.Files = rowsOfPolicies(c.Config.TenantPolicies[id])
	for _, s := range policysource.Of(c.Config) {
		if s.Kind == policy.Operator {
			l.Operator, l.Shipped = rowsOfPolicies(s.Files), s.Shipped
		}
	}
	return l
}

// rowsOfPolicies returns the rows of files, sorted by path.
func rowsOfPolicies(files []switchboard.PolicyFile) []PolicyFileRow {
	all := []PolicyFileRow{}
	for _, f := range files {
		all = append(all, PolicyFileRow{f.Path, canonical.Sum(f.Data), len(f.Data), policy.IsTest(f.Path)})
	}
	slices.SortFunc(all, func(a, b PolicyFileRow) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

// A CandidateFile replaces, adds or removes a policy file in a run of tests.
type CandidateFile struct {
	Path string
	Text []byte // nil removes it
}

// A PolicyTestRun is a run of the tests of a tenant's policies.
type PolicyTestRun struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Passed int                  `json:"passed"`
	Failed int                  `json:"failed"` // also those that could not be evaluated

	// Stopped says why the tests were ended before their end. There are no results then.
	Stopped string `json:"stopped,omitempty"`

	Report *author.TestReport `json:"report,omitempty"`
}

// Bounds of runs of tests.
const (
	testRunTime      = 20 * time.Second
	testRunMemory    = 256 << 20 // that the heap may grow meanwhile, in bytes
	maxTestRuns      = 2         // and checks, at once; one for each tenant
	maxRuleCounts    = 2         // likewise: a count takes long, and keeps no author waiting
	maxReportedTests = 2000
	maxTestText      = 4096 // bytes of each text in a result
)

// A PolicyTester evaluates policies for their authors: it runs tests, looks for mistakes, and shows the values of rules. Use NewPolicyTester. It is safe for concurrent use.
type PolicyTester struct {
	reads  *Reader
	time   time.Duration
	memory uint64
	tests  *evaluationPlaces
	counts *evaluationPlaces // of rules

	inForce  lastRules
	memories ruleMemories
	openers  chan *replay.DecisionOpener // of counts that have ended
}

// NewPolicyTester returns a PolicyTester.
func NewPolicyTester(r *Reader) *PolicyTester {
	return &PolicyTester{
		reads: r, time: testRunTime, memory: testRunMemory,
		tests:   &evaluationPlaces{what: "policies are being tested or checked", most: maxTestRuns, taken: map[switchboard.TenantID]bool{}},
		counts:  &evaluationPlaces{what: "rules are being counted", most: maxRuleCounts, taken: map[switchboard.TenantID]bool{}},
		openers: make(chan *replay.DecisionOpener, maxRuleCounts),
	}
}

// Run runs the tests of the tenant's policies with candidates in the place of files. only is a regular expression for names of tests; "" means all. The error
// is a *switchboard.Error.
func (p *PolicyTester) Run(ctx context.Context, id switchboard.TenantID, candidates []CandidateFile, only string, coverage bool) (*PolicyTestRun, error) {
	if _, err := regexp.Compile(only); err != nil {
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "run is not a regular expression")
	}
	release, err := p.tests.take(id)
	if err != nil {
		return nil, err
	}
	defer release()
	return p.run(ctx, id, withCandidates(p.reads.o.Configuration().Config.TenantPolicies[id], candidates), only, coverage)
}

// run runs the tests of files.
func (p *PolicyTester) run(ctx context.Context, id switchboard.TenantID, files []switchboard.PolicyFile, only string, coverage bool) (*PolicyTestRun, error) {
	run := &PolicyTestRun{Tenant: id}
	var report *author.TestReport
	var err error
	run.Stopped, err = p.bounded(ctx, "the tests were stopped", func(ctx context.Context) (err error) {
		report, err = author.RunTests(ctx, &author.Sources{Kind: policy.Tenant, Tenant: id, Name: policyFolder(id), Files: files}, only, coverage)
		return err
	})
	if err != nil || run.Stopped != "" {
		return run, err
	}
	run.Report, run.Passed, run.Failed = report, report.Count(author.Passed), report.Count(author.Failed)+report.Count(author.Erred)
	report.Tests = report.Tests[:min(len(report.Tests), maxReportedTests)]
	for i := range report.Tests {
		for _, text := range []*string{&report.Tests[i].Error, &report.Tests[i].Values, &report.Tests[i].Output} {
			if len(*text) > maxTestText {
				*text = (*text)[:maxTestText] + "…"
			}
		}
	}
	return run, nil
}

// bounded evaluates policies within the bounds of time and memory. stopped says why it was ended before its end, and begins with what. The error is a *switchboard.Error.
func (p *PolicyTester) bounded(ctx context.Context, what string, evaluate func(ctx context.Context) error) (stopped string, err error) {
	timed, cancel := context.WithTimeout(ctx, p.time)
	defer cancel()
	limited, stop := heap.Limit(timed, p.memory)
	defer stop()
	err = evaluate(limited)
	if faults, ok := errors.AsType[switchboard.Faults](err); ok {
		return "", &switchboard.Error{Code: switchboard.CodeConfig, Text: faults.Error(), Hint: "nothing was evaluated"}
	}
	switch cause := context.Cause(limited); {
	case errors.Is(cause, heap.ErrGrown):
		return what + ": " + heap.ErrGrown.Error(), nil
	case errors.Is(cause, context.DeadlineExceeded):
		return what + ": this takes longer than " + p.time.String(), nil
	}
	if _, ok := errors.AsType[*switchboard.Error](err); err != nil && !ok {
		err = switchboard.Unavailable("the policies cannot be evaluated", err)
	}
	return "", err
}

// policyFolder returns the name of a tenant's folder of policies.
func policyFolder(id switchboard.TenantID) string { return "tenants/" + string(id) + "/policies" }

// evaluationPlaces limit how many evaluations of one kind run at once: one for each tenant.
type evaluationPlaces struct {
	what string // is being done, for a refusal
	most int    // of all tenants

	mu    sync.Mutex
	taken map[switchboard.TenantID]bool
}

// take takes the place of the tenant, until release is called. It refuses one more than may run.
func (e *evaluationPlaces) take(id switchboard.TenantID) (release func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taken[id] || len(e.taken) >= e.most {
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "%s, those of one tenant once and of %d at most; try again", e.what, e.most)
	}
	e.taken[id] = true
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.taken, id)
	}, nil
}

// withCandidates returns the files with candidates in their places.
func withCandidates(files []switchboard.PolicyFile, candidates []CandidateFile) []switchboard.PolicyFile {
	out := slices.Clone(files)
	for _, c := range candidates {
		out = slices.DeleteFunc(out, func(f switchboard.PolicyFile) bool { return f.Path == c.Path })
		if c.Text != nil {
			out = append(out, switchboard.PolicyFile{Name: c.Path, Path: c.Path, Data: c.Text})
		}
	}
	return out
}
