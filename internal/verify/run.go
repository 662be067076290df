package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A Leave says why a tool may be exercised. The zero value is no leave: then only its definition is judged.
type Leave string

// The leaves.
const (
	LeaveNone     Leave = ""
	LeaveWalls    Leave = "walls"    // its program has walls with nothing behind them
	LeaveReadOnly Leave = "readonly" // a source that the operator trusts says that it only reads
	LeaveTest     Leave = "test"     // the operator has declared its server a test environment
)

// A Canary is a text that no answer may have, unless its call had it.
type Canary struct {
	Text  string
	Place string // where it is, in words
}

// RunOptions are the parts that a verification of one tool needs.
type RunOptions struct {
	// Caller is the server. Wrap puts policy, limits and receipts around it; nil puts nothing. The calls are made as Principal. Judgment returns what policy needs to judge a
	// call of the tool.
	Caller    switchboard.Caller
	Wrap      func(switchboard.Caller) switchboard.Caller
	Principal switchboard.Principal
	Judgment  func(*switchboard.Tool) *switchboard.Judgment

	// Leave says why the tool may be exercised; Why says why it may not.
	Leave Leave
	Why   string

	Walls  []string // that the program has, as its guard reports
	Limits CallLimits
	Place  TestPlace

	// Inspect returns a digest of the folder that the program may change, with everything in it; nil if there is no such folder.
	Inspect  func() (string, error)
	Canaries []Canary

	// Learn gets the result of each valid call; nil gets none. See Returned.
	Learn func(result []byte)

	// Mask replaces what differs from run to run in a text of a server, such as the path of the folder.
	Mask func(string) string
}

// A toolRun verifies one tool.
type toolRun struct {
	o         *RunOptions
	subject   *VerifiedTool
	tool      *switchboard.Tool
	judgments []*switchboard.Judgment
	caller    switchboard.Caller
	callTime  time.Duration
	until     time.Time // when the time for the tool is over

	plan    *CallPlan
	results map[TestName]*TestVerdict
	calls   int
	void    string // why the report says nothing

	seen          *callAnswer // of the call that is being made, as the server gave it
	previous      callAnswer
	previousState string
	observation
}

// An observation is what the calls have shown so far, beside the results of tests.
type observation struct {
	misfit string // of the first result that does not fit the output schema
	before string // the digest of the folder
	unseen string // why the folder cannot be seen

	refusals int    // valid calls that were refused honestly
	refusal  string // why the first one was
	valid    bool   // a valid call has succeeded
}

// Verify exercises the tool, and returns its report. The calls end with ctx, and then the report is void. tool is what policy judges: the tool as the catalog has it.
func Verify(ctx context.Context, s *VerifiedTool, tool *switchboard.Tool, o RunOptions) *TestReport {
	if o.Mask == nil {
		o.Mask = func(s string) string { return s }
	}
	o.Limits = o.Limits.Bounded()
	r := &toolRun{o: &o, subject: s, tool: tool, callTime: s.callTime(), plan: MakePlan(s, o.Limits, o.Place), results: map[TestName]*TestVerdict{}}
	r.caller = r.watched(o.Caller)
	if o.Wrap != nil {
		r.caller = o.Wrap(r.caller)
	}
	if o.Judgment != nil {
		r.judgments = []*switchboard.Judgment{o.Judgment(tool)}
	}
	for _, t := range tests {
		r.results[t.name] = &TestVerdict{Name: t.name, Weight: t.weight, Must: t.must, Outcome: TestSkipped, Why: r.plan.Skipped[t.name]}
	}
	for _, name := range r.plan.Dropped {
		r.results[name].Why, r.results[name].Unmade = "the limit of calls leaves none for it", true
	}
	report := &TestReport{V: reportVersion, Server: s.ID.Server, Tool: s.ID.Name, Digest: s.Digest, Leave: o.Leave, Walls: o.Walls}
	began := time.Now()
	if o.Leave == LeaveNone {
		for _, t := range r.results {
			t.Why = "it was not exercised"
		}
	} else {
		r.until = began.Add(o.Limits.Time)
		r.makeCalls(ctx)
		if report.Void = r.void; ctx.Err() != nil {
			report.Void = "the verification was stopped"
		}
	}
	for _, t := range tests {
		report.Tests = append(report.Tests, *r.results[t.name])
	}
	report.Calls, report.NoLeave = r.calls, r.shown(o.Why)
	report.At, report.Took = began.UTC().Truncate(time.Second), time.Since(began).Milliseconds()
	report.conclude()
	return report
}

// makeCalls makes the calls of the plan, until the time is over.
func (r *toolRun) makeCalls(ctx context.Context) {
	r.before = r.inspect()
	for i := range r.plan.Calls {
		c := &r.plan.Calls[i]
		if ctx.Err() != nil || !time.Now().Before(r.until) {
			r.skipRest(i)
			break
		}
		a := r.call(ctx, c.Arguments)
		if a.cut {
			if a.waited >= longWait {
				r.fail(InTime, fmt.Sprintf("a call had no answer within %s, when the time for the tool was over", a.waited.Round(time.Second)))
			}
			r.skipRest(i)
			break
		}
		if r.observe(c, a); r.void != "" {
			break
		}
	}
	r.concludeValid()
	r.concludeOutput()
	r.concludeReadOnly()
}

// skipRest notes which tests lack calls because the time was over.
func (r *toolRun) skipRest(from int) {
	for _, c := range r.plan.Calls[from:] {
		if t := r.results[c.Test]; t.Calls == 0 && t.Outcome == TestSkipped {
			t.Why, t.Unmade = "no time was left", true
		}
	}
}

// inspect returns the digest of the folder.
func (r *toolRun) inspect() string {
	if r.o.Inspect == nil {
		return ""
	}
	d, err := r.o.Inspect()
	if err != nil && r.unseen == "" {
		r.unseen = "the folder cannot be read: " + r.shown(err.Error())
	}
	return d
}

// observe judges an answer.
func (r *toolRun) observe(c *PlannedCall, a callAnswer) {
	t := r.results[c.Test]
	before, stateBefore := r.previous, r.previousState
	r.previous = callAnswer{ending: notMade, why: "the call before was not made"}
	if a.ending == notMade {
		if t.Outcome == TestSkipped && t.Why == "" {
			t.Why, t.Unmade = strings.TrimSpace(fmt.Sprintf("%s: Switchboard did not make the call: %s", a.code, r.shown(a.why))), true
		}
		return
	}
	if lost := a.ending == away || a.ending == died || a.ending == silent; lost && (r.o.Leave != LeaveWalls || a.ending == away && r.calls == 0) {
		r.void = "the server did not answer, or the connection to it broke" // which says nothing about the tool
		return
	}
	if a.ending == away {
		r.fail(Hostile, "the server did not come back after the calls before ("+c.About+")")
		return
	}
	r.calls++
	state := r.inspect()
	args := string(c.Arguments)
	r.judgeTime(&a)
	if what := disclosed(&a, args, r.o.Canaries); what != "" {
		r.fail(Hostile, "an answer discloses "+what+" ("+c.About+")")
	}
	if c.Test == Valid || c.Test == Idempotent || c.Test == Deterministic {
		r.judgeWords(&a)
	}
	switch c.Test {
	case Valid:
		r.observeValid(c, &a)
	case Idempotent, Deterministic:
		t.Calls++
		r.observeRepeat(c, t, &a, &before, state != stateBefore)
	default:
		t.Calls++
		r.judge(c, &a)
	}
	r.previous, r.previousState = a, state
}

// judgeTime judges how long a call took.
func (r *toolRun) judgeTime(a *callAnswer) {
	r.results[InTime].Calls++
	if a.ending == silent {
		r.fail(InTime, fmt.Sprintf("a call had no answer within %s", r.callTime))
		return
	}
	r.pass(InTime)
}

// judge judges an answer that must be of a kind.
func (r *toolRun) judge(c *PlannedCall, a *callAnswer) {
	switch {
	case a.ending == died:
		r.fail(c.Test, "the server ended or broke the connection ("+c.About+")")
	case a.ending == silent:
		r.fail(c.Test, "there was no answer ("+c.About+")")
	case a.ending == broken:
		r.fail(c.Test, "the answer is no valid one: "+r.shown(a.why)+" ("+c.About+")")
	case c.Want == WantRefusal && a.ending == succeeded:
		r.fail(c.Test, "it takes what its schema excludes, or does not mark the error ("+c.About+")")
	default:
		r.pass(c.Test)
	}
}

// observeValid judges the answer to arguments that fit.
func (r *toolRun) observeValid(c *PlannedCall, a *callAnswer) {
	t := r.results[Valid]
	t.Calls++
	switch a.ending {
	case succeeded:
		r.valid = true
		r.pass(Valid)
		if r.o.Learn != nil {
			r.o.Learn(a.result)
		}
	case refused:
		if c.Given && r.o.Leave != LeaveWalls { // behind walls, what the example needs may be missing
			r.fail(Valid, "it refuses "+c.About+": "+r.shown(a.why))
			return
		}
		if r.refusals++; r.refusal == "" {
			r.refusal = r.shown(a.why)
		}
	default:
		r.judge(c, a)
	}
}

// judgeWords judges the texts of the answer to a call without hostile arguments. Where other people may have written them, they are no fault of the tool.
func (r *toolRun) judgeWords(a *callAnswer) {
	t := r.results[Words]
	t.Calls++
	switch rules := wordsIn(a); {
	case len(rules) == 0:
		if a.ending == succeeded && t.Why == "" {
			r.pass(Words)
		}
	case r.o.Leave == LeaveWalls:
		r.fail(Words, "an answer has "+strings.Join(rules, ", "))
	default:
		t.Outcome, t.Why = TestSkipped, "an answer has "+strings.Join(rules, ", ")+"; others may have written it"
	}
}

// concludeValid skips the test of valid calls where guesses alone were refused.
func (r *toolRun) concludeValid() {
	t := r.results[Valid]
	if t.Outcome == TestSkipped && r.refusals > 0 {
		t.Why = "each call with arguments that fit was refused: " + r.refusal
	}
	if w := r.results[Words]; w.Outcome == TestSkipped && w.Why == "" {
		w.Why = "there was no valid call"
	}
}

// observeRepeat compares the answer to a repeated call with the one before.
func (r *toolRun) observeRepeat(c *PlannedCall, t *TestVerdict, a, before *callAnswer, changed bool) {
	if !c.Repeats {
		return
	}
	switch {
	case a.ending == died || a.ending == silent || a.ending == broken:
		r.judge(c, a)
	case before.ending != succeeded:
		t.Why = "the call is refused: " + r.shown(before.why)
	case c.Test == Idempotent && r.o.Inspect == nil:
		t.Why = "what it changes cannot be seen"
	case c.Test == Idempotent && r.unseen != "":
		t.Why, t.Unmade = r.unseen, true
	case c.Test == Idempotent && changed:
		r.fail(Idempotent, "the repeated call has changed the folder once more")
	case c.Test == Deterministic && (a.ending != before.ending || !sameContent(a.result, before.result)):
		r.fail(Deterministic, "the same call has another result")
	default:
		r.pass(c.Test)
	}
}

// sameContent reports whether two results are the same beside their _meta.
func sameContent(a, b []byte) bool {
	x, err1 := decodeSchema(a)
	y, err2 := decodeSchema(b)
	if err1 != nil || err2 != nil {
		return bytes.Equal(a, b)
	}
	for _, v := range []any{x, y} {
		if o, ok := v.(map[string]any); ok {
			delete(o, wire.MemberMeta)
		}
	}
	return reflect.DeepEqual(x, y)
}

// concludeOutput judges whether all results fit the output schema.
func (r *toolRun) concludeOutput() {
	t := r.results[Output]
	if t.Why != "" {
		return // it has no output schema
	}
	switch {
	case r.misfit != "":
		r.fail(Output, "a result does not fit its schema: "+r.shown(r.misfit))
	case r.valid:
		r.pass(Output)
	default:
		t.Why = "there was no valid call"
	}
	t.Calls = r.results[Valid].Calls
}

// concludeReadOnly judges whether the calls have changed anything.
func (r *toolRun) concludeReadOnly() {
	t := r.results[ReadOnly]
	if !r.subject.Contract.ReadOnly.Holds {
		return
	}
	switch {
	case r.o.Inspect == nil:
		t.Why = "what it changes cannot be seen"
	case r.calls == 0:
		t.Why = "no call was made"
	case r.inspect() != r.before && r.unseen == "":
		r.fail(ReadOnly, "it has changed the folder, though it is declared readonly")
	case r.unseen != "":
		t.Why, t.Unmade = r.unseen, true
	default:
		r.pass(ReadOnly)
	}
	t.Calls = r.calls
}

// pass notes that a call has passed a test. A test that has failed stays so.
func (r *toolRun) pass(name TestName) {
	if t := r.results[name]; t.Outcome != TestFailed {
		t.Outcome, t.Why, t.Unmade = TestPassed, "", false
	}
}

// fail notes why a test has failed, the first time.
func (r *toolRun) fail(name TestName, why string) {
	if t := r.results[name]; t.Outcome != TestFailed {
		t.Outcome, t.Why, t.Unmade = TestFailed, why, false
	}
}

// longWait is how long no answer is no chance.
const longWait = 10 * time.Second

// longNumber finds what differs from run to run in the texts of servers: ids, times, addresses. It also finds codes of Switchboard, which do not differ.
var longNumber = regexp.MustCompile(`\bSB-[A-Z]+-\d{3}\b|[0-9a-fA-F]{6,}|\d{3,}`)

// shown returns a text of a server as the report shows it: short, in one line, and the same in each run.
func (r *toolRun) shown(text string) string {
	text = r.o.Mask(text)
	text = longNumber.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "SB-") {
			return found
		}
		return "#"
	})
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxWhy {
		text = strings.ToValidUTF8(text[:maxWhy], "") + "…"
	}
	return text
}

// maxWhy limits the text of a server in a report, in bytes.
const maxWhy = 160

// Returned collects the scalars of a result by their names, so that later tools can be called with them.
func Returned(known map[string]any, result []byte) {
	structured, _ := wire.Field(result, "structuredContent")
	for name, raw := range wire.MembersAsBytes(structured) {
		if len(known) >= maxKnown {
			return
		}
		var v any
		if len(raw) < 256 && json.Unmarshal(raw, &v) == nil {
			switch v.(type) {
			case string, float64, bool:
				known[string(name)] = v
			}
		}
	}
}

// maxKnown limits how many values are remembered.
const maxKnown = 256
