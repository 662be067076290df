// Package verification verifies servers: for officers, again by schedule, and again after a change that was accepted.
//
// It decides whether there is leave to exercise a tool. It verifies one server at a time, keeps the reports, and writes a receipt for each. Package verify
// decides about the calls and the meaning of their answers.
package verification

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/evidence"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify"
	"github.com/summit-switchboard/switchboard/internal/verify/bench"
)

// Tenant is the tenant of the calls that verify tools, in receipts and for policies: the operator's rules judge them, and no tenant's. No configuration can name it.
const Tenant switchboard.TenantID = "switchboard.verify"

const (
	startTime = time.Minute // for the program of a server
	lookEvery = time.Minute // at what is due
)

// A KnownTool is a tool as it is let in.
type KnownTool struct {
	*switchboard.Tool
	Digest   string    // of the admitted definition, with its scheme
	LetIn    time.Time // when a person has let that in; zero if none has
	Changed  bool      // its server offers another definition now
	Examples []json.RawMessage
}

// Options are the parts of a running Switchboard that a Verifier needs.
type Options struct {
	// Server returns the row of a server in force; nil if there is none.
	Server func(switchboard.ServerID) *switchboard.Server

	// Tools returns the tools that a server offers and that are let in or wait for that, sorted by name.
	Tools func(switchboard.ServerID) []KnownTool

	// Served calls the servers that serve clients. Offer returns what one of them offers, nil if it has never answered; Relist lists that again first, and says whether it could. Wrap puts policy, limits and receipts around a Caller; walled says that nothing is behind the walls of the program, so that
	// no person need be asked or told, and nothing is paid.
	Served switchboard.Caller
	Offer  func(id switchboard.ServerID) *switchboard.Offer
	Relist func(ctx context.Context, id switchboard.ServerID) (is *switchboard.Offer, listed bool)
	Wrap   func(next switchboard.Caller, walled bool) switchboard.Caller

	// Judgment returns what policy needs to judge a call of a tool.
	Judgment func(*switchboard.Tool) *switchboard.Judgment

	Bench bench.Options
	Book  *evidence.ReportBook

	// Archive keeps the text of a report by its digest. Record writes its receipt durably, and returns the id.
	Archive func(text []byte)
	Record  func(ctx context.Context, r *receipt.Receipt) (id string, err error)

	// Mine reports whether this process verifies by schedule: of the processes that share the store, one does.
	Mine func(ctx context.Context) bool

	// Work runs a function in the background. Stopping is done when Switchboard stops.
	Work     func(func())
	Stopping context.Context
	Log      *slog.Logger
}

// A Verifier verifies servers, one at a time. Use New. It is safe for concurrent use.
type Verifier struct {
	o Options

	mu      sync.Mutex
	running *Progress
	last    map[switchboard.ServerID]Progress
	tried   map[switchboard.ServerID]time.Time // when the last verification by schedule began
}

// New returns a Verifier.
func New(o Options) *Verifier {
	return &Verifier{o: o, last: map[switchboard.ServerID]Progress{}, tried: map[switchboard.ServerID]time.Time{}}
}

// Progress says how far a verification is.
type Progress struct {
	Server  switchboard.ServerID `json:"server"`
	Tool    string               `json:"tool,omitempty" doc:"The only tool that is verified; absent for all."`
	By      string               `json:"by" doc:"Who has started it; schedule if no person has."`
	Since   time.Time            `json:"since"`
	Running bool                 `json:"running"`
	Done    int                  `json:"done" doc:"How many tools are done."`
	Of      int                  `json:"of" doc:"How many there are."`
	Problem string               `json:"problem,omitempty" doc:"Why tools could not be exercised."`
}

// ErrBusy says that another server is being verified.
var ErrBusy = errors.New("another verification is running; one server is verified at a time")

// ErrUnknown says that there is no such server or tool.
var ErrUnknown = errors.New("there is no such server or tool")

// A ToolPlan is what a verification of one tool would call.
type ToolPlan struct {
	*verify.CallPlan
	Leave verify.Leave `json:"leave,omitempty" doc:"Why the tool may be exercised: walls, readonly or test. Absent: it may not, and nothing is called."`
	Why   string       `json:"why,omitempty" doc:"Why it may not."`
}

// Plan returns what a verification would call, without calling anything. Values that earlier tools return are not known yet.
func (v *Verifier) Plan(id switchboard.ServerID, tool string) ([]ToolPlan, error) {
	s, tools, err := v.find(id, tool)
	if err != nil {
		return nil, err
	}
	plans := []ToolPlan{}
	for i := range tools {
		place := verify.TestPlace{}
		leave, why := v.leaveOf(s, &tools[i])
		if leave == verify.LeaveWalls {
			place = (&bench.Bench{}).Place(nil)
		}
		p := ToolPlan{verify.MakePlan(subjectOf(s, &tools[i]), limitsOf(s), place), leave, why}
		if leave == verify.LeaveNone {
			p.Calls = []verify.PlannedCall{}
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// find returns the row of a server, and its tools, or the one that is named.
func (v *Verifier) find(id switchboard.ServerID, tool string) (*switchboard.Server, []KnownTool, error) {
	s := v.o.Server(id)
	if s == nil {
		return nil, nil, fmt.Errorf("server %.64q: %w", string(id), ErrUnknown)
	}
	tools := v.o.Tools(id)
	if tool == "" {
		return s, tools, nil
	}
	for _, t := range tools {
		if t.ID.Name == tool {
			return s, []KnownTool{t}, nil
		}
	}
	return nil, nil, fmt.Errorf("server %s, tool %.80q: %w", id, tool, ErrUnknown)
}

// leaveOf returns why a tool may be exercised, or why it may not. A program is exercised in walls, unless its row declares a test environment.
func (v *Verifier) leaveOf(s *switchboard.Server, t *KnownTool) (leave verify.Leave, why string) {
	switch {
	case s.Transport == switchboard.TransportStdio && !s.Verify.Test:
		return verify.LeaveWalls, ""
	case t.Changed:
		return verify.LeaveNone, "its server offers another definition than the one that is let in; accept it first, or wait until it offers that one again"
	case s.Verify.Test:
		return verify.LeaveTest, ""
	case t.Contract.OnlyReads():
		return verify.LeaveReadOnly, ""
	}
	return verify.LeaveNone, "it is no program here that could get walls, no trusted source says that it only reads, and its server is not declared as a test environment (verify: {environment: test})"
}

// subjectOf returns what is verified of a tool.
func subjectOf(s *switchboard.Server, t *KnownTool) *verify.VerifiedTool {
	return &verify.VerifiedTool{ID: t.ID, Digest: t.Digest, Definition: t.Definition, Contract: t.Contract, Examples: t.Examples, Timeout: s.Timeout}
}

func limitsOf(s *switchboard.Server) verify.CallLimits {
	return verify.CallLimits{Calls: s.Verify.Calls, Time: s.Verify.Time}
}

// Start begins to verify a server, or one tool of it, and does not wait. The error is ErrBusy or ErrUnknown.
func (v *Verifier) Start(id switchboard.ServerID, tool, by string) (Progress, error) {
	s, tools, err := v.find(id, tool)
	if err != nil {
		return Progress{}, err
	}
	p := &Progress{Server: id, Tool: tool, By: by, Since: time.Now().UTC().Truncate(time.Second), Running: true, Of: len(tools)}
	if err := v.begin(p); err != nil {
		return Progress{}, err
	}
	begun := *p
	v.o.Work(func() {
		ctx, cancel := context.WithTimeout(v.o.Stopping, startTime+time.Duration(len(tools))*(limitsOf(s).Bounded().Time+bench.ListTime))
		defer cancel()
		problem := v.verify(ctx, s, tools, by)
		v.mu.Lock()
		defer v.mu.Unlock()
		p.Running, p.Problem = false, problem
		v.running, v.last[id] = nil, *p
	})
	return begun, nil
}

// begin notes that a verification runs, unless one runs already.
func (v *Verifier) begin(p *Progress) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.running != nil {
		return fmt.Errorf("%s: %w", v.running.Server, ErrBusy)
	}
	v.running = p
	return nil
}

// Of returns how the last verification of a server went, and whether there was one since this process was started.
func (v *Verifier) Of(id switchboard.ServerID) (Progress, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.running != nil && v.running.Server == id {
		return *v.running, true
	}
	p, ok := v.last[id]
	return p, ok
}

// Reports returns the reports of a server, or of one tool of it, sorted by tool. The error is ErrUnknown.
func (v *Verifier) Reports(id switchboard.ServerID, tool string) ([]evidence.KeptReport, error) {
	if _, _, err := v.find(id, tool); err != nil {
		return nil, err
	}
	out := []evidence.KeptReport{}
	if all := v.o.Book.Of(id); all != nil {
		for name := range *all {
			if tool == "" || name == tool {
				out = append(out, *all.Newest(name))
			}
		}
	}
	slices.SortFunc(out, func(a, b evidence.KeptReport) int { return strings.Compare(a.Tool, b.Tool) })
	return out, nil
}

// verify verifies tools of a server, keeps their reports, and returns why it could not exercise them; "" if it could.
func (v *Verifier) verify(ctx context.Context, s *switchboard.Server, tools []KnownTool, by string) (problem string) {
	var b *bench.Bench
	if s.Transport == switchboard.TransportStdio && !s.Verify.Test {
		var err error
		if b, err = bench.Start(ctx, s, v.o.Bench); err != nil {
			problem = err.Error()
		} else {
			defer b.Close()
		}
	}
	known := map[string]any{}
	for i := range tools {
		if b != nil && i > 0 {
			if err := b.Restore(); err != nil {
				problem = "the scratch folder cannot be made again: " + err.Error()
				break
			}
		}
		r := v.verifyTool(ctx, s, &tools[i], b, problem, known)
		if ctx.Err() != nil {
			problem = "the verification was stopped"
			break
		}
		kept, err := v.record(ctx, r, by)
		if err == nil {
			err = v.Believe(ctx, kept)
		}
		if err != nil {
			v.o.Log.Warn("the report of a verification could not be kept", "server", s.ID, "tool", r.Tool, "err", err)
			problem = "a report could not be kept: " + err.Error()
			break
		}
		v.mu.Lock()
		v.running.Done++
		v.mu.Unlock()
	}
	return problem
}

// verifyTool verifies one tool. b is nil if there are no walls for the program, for the reason in problem.
func (v *Verifier) verifyTool(ctx context.Context, s *switchboard.Server, t *KnownTool, b *bench.Bench, problem string, known map[string]any) *verify.TestReport {
	leave, why := v.leaveOf(s, t)
	o := verify.RunOptions{
		Principal: switchboard.Principal{Tenant: Tenant, ID: "verification", Auth: switchboard.AuthLocal}, Judgment: v.o.Judgment, Leave: leave, Limits: limitsOf(s), Place: verify.TestPlace{Known: known},
		Learn: func(result []byte) { verify.Returned(known, result) },
	}
	subject := subjectOf(s, t)
	var was *switchboard.Offer // of a server that serves clients
	switch {
	case leave == verify.LeaveWalls && b == nil:
		o.Leave, why = verify.LeaveNone, problem
	case leave == verify.LeaveWalls:
		definition, digest, err := b.Definition(t.ID.Name, s.Admission.Volatile)
		if err != nil {
			o.Leave, why = verify.LeaveNone, "its program does not offer it in the walls: "+err.Error()
			break
		}
		subject.Definition, subject.Digest = definition, digest
		o.Caller, o.Walls, o.Place, o.Canaries, o.Mask, o.Inspect = b, b.Walls(), b.Place(known), b.Canaries(), b.Mask, b.Inspect
	case leave != verify.LeaveNone:
		o.Caller, was = v.o.Served, v.o.Offer(s.ID)
	}
	o.Wrap = func(next switchboard.Caller) switchboard.Caller { return v.o.Wrap(next, o.Leave == verify.LeaveWalls) }
	o.Why = why
	r := verify.Verify(ctx, subject, t.Tool, o)
	changed, listed := false, true
	switch o.Leave {
	case verify.LeaveNone:
	case verify.LeaveWalls:
		changed, listed = b.HasChanged(ctx, t.ID.Name, s.Admission.Volatile)
	default:
		changed, listed = v.hasChanged(ctx, s, t, was)
	}
	switch {
	case changed:
		r.MakeVoid("the server has changed the tool during the verification")
	case !listed && r.Verified: // what was found against the tool stands
		r.MakeVoid("its tools could not be listed again, so nobody knows whether the server has changed the tool during the verification")
	}
	return r
}

// hasChanged reports whether a server that serves clients offers another definition of the tool by now, or another one is let in. was is what it offered at first.
func (v *Verifier) hasChanged(ctx context.Context, s *switchboard.Server, t *KnownTool, was *switchboard.Offer) (changed, listed bool) {
	is, listed := v.o.Relist(ctx, s.ID)
	if was == nil || is == nil || bench.Differs(was, is, t.ID.Name, s.Admission.Volatile) {
		return true, listed
	}
	return !slices.ContainsFunc(v.o.Tools(s.ID), func(o KnownTool) bool { return o.ID == t.ID && o.Digest == t.Digest && !o.Changed }), listed
}

// Believe makes a report count: for its server, its tool, and the definition that it is about.
func (v *Verifier) Believe(ctx context.Context, r *evidence.KeptReport) error {
	return v.o.Book.Put(context.WithoutCancel(ctx), r.Server, []evidence.KeptReport{*r})
}

// record archives a report, and writes its receipt.
func (v *Verifier) record(ctx context.Context, r *verify.TestReport, by string) (*evidence.KeptReport, error) {
	text := r.Canonical()
	v.o.Archive(text)
	outcome := receipt.OK
	if !r.Verified {
		outcome = receipt.Failed
	}
	note := "score " + verify.Thousandths(r.Score) + ", verified"
	if !r.Verified {
		note = "score " + verify.Thousandths(r.Score) + ", not verified: " + r.Why
	}
	ctx = context.WithoutCancel(ctx)
	id, err := v.o.Record(ctx, &receipt.Receipt{Kind: receipt.Verified, Server: r.Server, Tool: r.Tool, Report: canonical.Sum(text), Outcome: outcome, Note: scan.Spell(note), Principal: receipt.Subject{ID: by}})
	if err != nil {
		return nil, err
	}
	return &evidence.KeptReport{TestReport: r, Receipt: id}, nil
}

// Run verifies what is due, until ctx ends: by schedule, and after a definition was accepted that the last report is not about.
func (v *Verifier) Run(ctx context.Context, servers func() []*switchboard.Server) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !v.o.Mine(ctx) {
			continue
		}
		for _, s := range servers() {
			if !v.isDue(s, time.Now()) {
				continue
			}
			if _, err := v.Start(s.ID, "", "schedule"); err == nil {
				v.mu.Lock()
				v.tried[s.ID] = time.Now()
				v.mu.Unlock()
				break
			}
		}
	}
}

// isDue reports whether a server must be verified again.
func (v *Verifier) isDue(s *switchboard.Server, now time.Time) bool {
	reports := v.o.Book.Of(s.ID)
	every := s.Verify.Every
	if every == 0 {
		if reports == nil {
			return false // no person has verified it yet
		}
		every = switchboard.DefaultVerifyEvery
	}
	v.mu.Lock()
	last, tried := v.tried[s.ID]
	v.mu.Unlock()
	if tried && now.Sub(last) < min(every, time.Hour) {
		return false // it has been tried just now, and may fail again
	}
	for _, t := range v.o.Tools(s.ID) {
		if a := t.Admission; a != nil && a.State == switchboard.LifeRetired {
			continue
		}
		r := reports.Newest(t.ID.Name)
		if r == nil || now.Sub(r.At) >= every || r.Digest != t.Digest && t.LetIn.After(r.At) {
			return true
		}
	}
	return false
}
