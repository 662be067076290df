package verify

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// reportVersion is the format version of a TestReport.
const reportVersion = 1

// Least is the score, in thousandths, that a verified tool has at least.
const Least = 850

// A TestEnding is how a test ended.
type TestEnding string

// The outcomes. A skipped test counts neither for nor against the tool.
const (
	TestPassed  TestEnding = "passed"
	TestFailed  TestEnding = "failed"
	TestSkipped TestEnding = "skipped"
)

// A TestVerdict says how one test ended.
type TestVerdict struct {
	Name    TestName   `json:"name"`
	Weight  int        `json:"weight" doc:"In tenths."`
	Must    bool       `json:"must,omitempty" doc:"A tool that fails it is not verified, whatever its score."`
	Outcome TestEnding `json:"outcome"`
	Calls   int        `json:"calls,omitempty"`
	Why     string     `json:"why,omitempty"`
	Unmade  bool       `json:"unmade,omitempty" doc:"It has calls, and they could not be made or judged. A tool with such a test is not verified."`
}

// A TestReport says what a tool was seen to do. It is no proof: a server that knows the test can behave otherwise afterwards.
type TestReport struct {
	V       int                  `json:"v"`
	Server  switchboard.ServerID `json:"server"`
	Tool    string               `json:"tool"`
	Digest  string               `json:"digest" doc:"Of the definition that was verified."`
	Leave   Leave                `json:"leave,omitempty" doc:"Why the tool was exercised: walls, readonly or test. Absent if it was not."`
	NoLeave string               `json:"no_leave,omitempty" doc:"Why it was not exercised."`
	Walls   []string             `json:"walls,omitempty" doc:"The walls of its program, as the guard has reported them."`

	Tests    []TestVerdict `json:"tests"`
	Calls    int           `json:"calls,omitempty" doc:"How many calls were made."`
	Score    int           `json:"score" doc:"The weight of the tests that passed, divided by the weight of those that were run, in thousandths."`
	Verified bool          `json:"verified,omitempty"`
	Why      string        `json:"why,omitempty" doc:"Why it is not verified."`
	Void     string        `json:"void,omitempty" doc:"Why the report says nothing."`

	ReportTimes
}

// ReportTimes are the members of a report that differ from run to run.
type ReportTimes struct {
	At   time.Time `json:"at"`
	Took int64     `json:"took_ms"`
}

// conclude computes the score, and whether the tool is verified.
func (r *TestReport) conclude() {
	passed, ran := 0, 0
	for _, t := range r.Tests {
		switch t.Outcome {
		case TestPassed:
			passed += t.Weight
			ran += t.Weight
		case TestFailed:
			ran += t.Weight
		}
	}
	r.Score, r.Why = 0, ""
	if ran > 0 {
		r.Score = passed * 1000 / ran
	}
	switch must := r.FailedMust(); {
	case r.Void != "":
		r.Why = r.Void
	case r.Leave == LeaveNone:
		r.Why = "it was not exercised: " + cmp.Or(r.NoLeave, "nobody has given leave")
	case len(must) > 0:
		r.Why = "it fails " + joinNames(must)
	case r.test(Valid).Outcome != TestPassed:
		r.Why = "there was no valid call"
	case len(r.unmade()) > 0:
		r.Why = "not all tests were made: " + joinNames(r.unmade())
	case r.Score < Least:
		r.Why = fmt.Sprintf("its score %s is below %s", Thousandths(r.Score), Thousandths(Least))
	}
	r.Verified = r.Why == ""
}

// MakeVoid makes a report that says nothing, for the reason.
func (r *TestReport) MakeVoid(why string) {
	r.Void = why
	r.conclude()
}

// test returns the result of a test.
func (r *TestReport) test(name TestName) TestVerdict {
	for _, t := range r.Tests {
		if t.Name == name {
			return t
		}
	}
	return TestVerdict{Name: name, Outcome: TestSkipped}
}

// FailedMust returns the tests that a verified tool must pass and this one has failed, in their order. A void report has none.
func (r *TestReport) FailedMust() (names []TestName) {
	if r.Void != "" {
		return nil
	}
	for _, t := range r.Tests {
		if t.Must && t.Outcome == TestFailed {
			names = append(names, t.Name)
		}
	}
	return names
}

// WithoutValidCall reports whether no call with arguments that fit was answered: they were guesses, and were refused, or none were found.
func (r *TestReport) WithoutValidCall() bool { return r.test(Valid).Outcome == TestSkipped }

// unmade returns the tests that a verified tool must pass and that could not be made.
func (r *TestReport) unmade() (names []TestName) {
	for _, t := range r.Tests {
		if t.Must && t.Unmade {
			names = append(names, t.Name)
		}
	}
	return names
}

// Lifts reports whether the report says so much that it takes the place of an earlier one about the same definition: it is not void, and has made each test that the earlier one has
// failed.
func (r *TestReport) Lifts(earlier *TestReport) bool {
	if r.Void != "" || r.Leave == LeaveNone {
		return false
	}
	for _, name := range earlier.FailedMust() {
		if r.test(name).Outcome == TestSkipped {
			return false
		}
	}
	return true
}

func joinNames(names []TestName) string {
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = string(n)
	}
	return strings.Join(texts, ", ")
}

// Reason returns why the tool is not verified, with the reason of the test that decides; "" if it is verified.
func (r *TestReport) Reason() string {
	decides := r.test(Valid)
	if must := r.FailedMust(); len(must) > 0 {
		decides = r.test(must[0])
	}
	if r.Verified || r.Void != "" || r.Leave == LeaveNone || decides.Why == "" {
		return r.Why
	}
	return r.Why + ": " + decides.Why
}

// Thousandths spells a score: 0.85 for 850.
func Thousandths(n int) string {
	text := strings.TrimRight(fmt.Sprintf("%d.%03d", n/1000, n%1000), "0")
	if strings.HasSuffix(text, ".") {
		text += "0"
	}
	return text
}

// Canonical returns the report in canonical form.
func (r *TestReport) Canonical() []byte {
	text, err := canonical.Append(nil, canonical.Encode(r))
	if err != nil {
		panic("a report has no canonical form: " + err.Error()) // what Encode returns has one
	}
	return text
}

// maxReport limits the bytes of a report.
const maxReport = 64 << 10

// ReadReport reads a report, and recomputes what follows from its tests. The error says that it is no report of this version, or that it contradicts itself.
func ReadReport(text []byte) (*TestReport, error) {
	if len(text) > maxReport {
		return nil, errors.New("the report is too long")
	}
	r := &TestReport{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("this is no report: %w", err)
	}
	if r.V != reportVersion {
		return nil, fmt.Errorf("the report has the format version %d, and this Switchboard reads version %d", r.V, reportVersion)
	}
	if len(r.Tests) != len(tests) {
		return nil, errors.New("the report does not have all tests")
	}
	for i, t := range tests {
		if got := r.Tests[i]; got.Name != t.name || got.Weight != t.weight || got.Must != t.must {
			return nil, fmt.Errorf("the report has another test in the place of %s", t.name)
		}
	}
	said := *r
	r.conclude()
	if r.Score != said.Score || r.Verified != said.Verified || r.Why != said.Why {
		return nil, errors.New("the report contradicts itself")
	}
	return r, nil
}

// Text returns the report as a page for people.
func (r *TestReport) Text() string {
	var b strings.Builder
	state := "not verified: " + r.Why
	if r.Verified {
		state = "verified"
	}
	_, _ = fmt.Fprintf(&b, "%s/%s  score %s, %s\n", r.Server, scan.Spell(r.Tool), Thousandths(r.Score), scan.Spell(state)) // it never fails
	how := map[Leave]string{LeaveNone: "its definition alone was judged", LeaveWalls: "in walls with nothing behind them", LeaveReadOnly: "it only reads, as a trusted source says", LeaveTest: "in a declared test environment"}[r.Leave]
	_, _ = fmt.Fprintf(&b, "  %d calls; %s; %s\n", r.Calls, how, r.At.Format(time.RFC3339))
	if r.Calls == 0 {
		return b.String()
	}
	for _, t := range r.Tests {
		must := ""
		if t.Must {
			must = "must"
		}
		_, _ = fmt.Fprintf(&b, "  %-14s %-8s %-5s %s\n", t.Name, t.Outcome, must, scan.Spell(t.Why))
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// Same reports whether two reports say the same beside their times.
func Same(a, b *TestReport) bool {
	x, y := *a, *b
	x.ReportTimes, y.ReportTimes = ReportTimes{}, ReportTimes{}
	return slices.Equal(x.Canonical(), y.Canonical())
}
