package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// An event is a line of JSON, as `go doc test2json` describes it, or `go help buildjson`
// for the compiler.
type event struct {
	Action      string
	Package     string
	Test        string // "" is the package itself
	ImportPath  string // of what is built
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string  // the ImportPath of the build that failed, if the package failed for that
	Key, Value  string  // of an attribute
}

// A key names a test. The name "" stands for the output of a package outside of any test.
type key struct{ pkg, name string }

// top returns the key of the test that k is part of.
func (k key) top() key {
	name, _, _ := strings.Cut(k.name, "/")
	return key{k.pkg, name}
}

// An openTest is a test that has not ended, with its output so far.
type openTest struct {
	lines []string
	open  bool // the last of them goes on
	left  int  // out, between the first and the last
	late  bool
}

// The first lines of a failure say what failed, and the last lines how it ended.
const first, last, width = 40, 40, 1000

// framing matches the lines that package testing adds to the output of tests.
var framing = regexp.MustCompile(`^(=== |\s*--- (PASS|FAIL|SKIP): |(PASS|FAIL)$|exit status )`)

// print takes a piece of output, which is a line or a part of a long one.
func (t *openTest) print(output string) {
	piece, ends := strings.CutSuffix(output, "\n")
	switch n := len(t.lines); {
	case t.open:
		t.lines[n-1] = cut(t.lines[n-1] + piece)
	case !framing.MatchString(piece):
		t.lines = append(t.lines, cut(piece))
	}
	t.open = !ends && len(t.lines) > 0
	if len(t.lines) > first+last {
		t.lines = slices.Delete(t.lines, first, first+1)
		t.left++
	}
}

func cut(line string) string {
	if len(line) <= width {
		return line
	}
	return strings.ToValidUTF8(line[:width], "") + "…"
}

// A failure is a failed test, or another failed step: then the name says which one.
type failure struct {
	key
	text string
}

// report holds the events so far.
type report struct {
	stop    func()     // ends all tests
	mu      sync.Mutex // held while an event is taken
	out     io.Writer
	require bool
	skips   []string // reasons, each once

	tests           map[key]*openTest
	builds          map[string]*openTest // by ImportPath
	laws, seeds     map[key]string       // by the test that has the attribute
	failures        []failure
	late            []*lateTest
	passed, skipped int
	brokenLaw       string // its number, once a claim about it has failed
	nullLost        string // what watchNull saw, "" if nothing

	packages, slowest []timed
}

// A lateTest is a test at the top level that was late, and did not fail otherwise.
type lateTest struct {
	key
	text, load string
	alone      outcome // when it ran once more, alone
}

// An outcome is how a late test ended when it ran once more, alone.
type outcome int

const (
	notRun outcome = iota // the run was red already
	passedAlone
	lateAgain
	wrongAlone
)

// timed is how long a test or a package took.
type timed struct {
	key
	seconds float64
}

func newReport(out io.Writer, require bool, skips []string, stop func()) *report {
	return &report{stop: stop, out: out, require: require, skips: skips, tests: map[key]*openTest{}, builds: map[string]*openTest{}, laws: map[key]string{}, seeds: map[key]string{}}
}

// read takes events to their end, and returns how many failures they told of. It may be
// called for several streams at once. Once a law is broken all of them are stopped. A line
// that is no event is printed as it is.
func (r *report) read(from io.Reader) (failures int, err error) {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadString('\n')
		failures += r.takeLine(line)
		switch {
		case err == io.EOF:
			return failures, nil
		case err != nil:
			return failures, err
		}
	}
}

// takeLine takes an event, or prints the line, and returns how many failures it told of.
func (r *report) takeLine(line string) (failures int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.brokenLaw != "" {
		return 0 // what is stopped fails
	}
	before := len(r.failures)
	var e event
	if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
		r.take(&e)
	} else if line != "" {
		fmt.Fprint(r.out, line)
	}
	if r.brokenLaw != "" {
		r.stop()
	}
	return len(r.failures) - before
}

// packageLine says how a package ended.
var packageLine = regexp.MustCompile(`^(ok  |FAIL|\?   )\t`)

func (r *report) take(e *event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		of(r.builds, e.ImportPath).print(e.Output)
	case "build-fail":
		r.fail(key{e.ImportPath, "build"}, "", of(r.builds, e.ImportPath))
	case "run":
		of(r.tests, k) // is open from now on
	case "output":
		if e.Test == "" && packageLine.MatchString(e.Output) {
			fmt.Fprint(r.out, e.Output)
		} else {
			of(r.tests, k).print(e.Output)
		}
	case "attr":
		switch e.Key {
		case wait.Attr:
			of(r.tests, k).late = true
		case law.Attr:
			r.laws[k] = e.Value
		case law.SeedAttr:
			r.seeds[k] = e.Value
		}
	case "pass", "skip", "fail":
		r.end(e, k, of(r.tests, k))
		delete(r.tests, k)
	}
}

// of returns the test of that key, which may be new.
func of[K comparable](tests map[K]*openTest, k K) *openTest {
	if tests[k] == nil {
		tests[k] = &openTest{}
	}
	return tests[k]
}

// end takes the end of a test, or of a package.
func (r *report) end(e *event, k key, t *openTest) {
	if e.Test == "" {
		r.packages = append(r.packages, timed{k, e.Elapsed})
	} else if k == k.top() {
		r.slowest = append(r.slowest, timed{k, e.Elapsed})
	}
	switch {
	case e.Test == "" && e.Action == "fail":
		r.failPackage(k, t, e.FailedBuild != "")
	case e.Test == "":
	case e.Action == "pass":
		r.passed++
	case e.Action == "skip" && t.late:
		r.addLate(k, t)
	case e.Action == "skip":
		r.skip(k, t)
	case len(t.lines) > 0 || !r.blames(func(f key) bool { return f.pkg == k.pkg && strings.HasPrefix(f.name, k.name+"/") }):
		r.failTest(k, fmt.Sprintf(", %.2fs", e.Elapsed), t)
	}
}

func (r *report) blames(which func(key) bool) bool {
	return slices.ContainsFunc(r.failures, func(f failure) bool { return which(f.key) })
}

// failTest notes that the test k failed, and whether that breaks a law.
func (r *report) failTest(k key, how string, t *openTest) {
	if number, holds := attribute(r.laws, k); holds {
		r.brokenLaw = number
		how += ", a claim about law " + number
	}
	r.fail(k, how, t)
}

// fail notes that k failed.
func (r *report) fail(k key, how string, t *openTest) {
	if seed, draws := attribute(r.seeds, k); draws {
		how += ", with " + law.SeedEnv + "=" + seed
	}
	r.failures = append(r.failures, failure{k, fmt.Sprintf("--- FAIL: %s (%s%s)\n", k.name, k.pkg, how) + t.text()})
}

// attribute returns the attribute of the test k, or of the nearest test that k is part of.
func attribute(of map[key]string, k key) (value string, there bool) {
	for {
		if value, there = of[k]; there {
			return value, true
		}
		up := strings.LastIndexByte(k.name, '/')
		if up < 0 {
			return "", false
		}
		k.name = k.name[:up]
	}
}

// text is what the test has printed, without its middle if that is long.
func (t *openTest) text() string {
	lines := t.lines
	if t.left > 0 {
		lines = slices.Insert(slices.Clone(lines), first, fmt.Sprintf("    … %d lines …", t.left))
	}
	return strings.Join(lines, "\n")
}

// addLate notes that the test k was late, with the load of the machine. A test at the top
// level counts once, however many of its parts were late.
func (r *report) addLate(k key, t *openTest) {
	if slices.ContainsFunc(r.late, func(l *lateTest) bool { return l.key == k.top() }) {
		return
	}
	r.late = append(r.late, &lateTest{key: k.top(), text: t.text(), load: load()})
}

// load is the load of the machine over the last one, five and fifteen minutes.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(text)); err == nil && len(f) >= 3 {
		return strings.Join(f[:3], " ")
	}
	return "unknown"
}

// failPackage blames each test that had not ended when the package did: it has
// panicked, exited, or was waited for for too long.
func (r *report) failPackage(k key, t *openTest, unbuilt bool) {
	var silent []string // those that have not ended, and said nothing
	for _, other := range slices.SortedFunc(maps.Keys(r.tests), func(a, b key) int { return strings.Compare(a.name, b.name) }) {
		if unended := r.tests[other]; other.pkg == k.pkg && other.name != "" {
			delete(r.tests, other)
			if len(unended.lines) > 0 {
				r.failTest(other, ", not ended", unended)
			} else {
				silent = append(silent, other.name)
			}
		}
	}
	if len(silent) > 0 && !unbuilt {
		t.print("not ended, with nothing to say: " + strings.Join(silent, ", ") + "\n")
	}
	if len(t.lines) > 0 || !unbuilt && !r.blames(func(f key) bool { return f.pkg == k.pkg }) {
		r.fail(key{k.pkg, "outside of any test"}, "", t)
	}
}

// position is where a test logs.
var position = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

func (r *report) skip(k key, t *openTest) {
	r.skipped++
	why := k.name + " says not why"
	if n := len(t.lines); n > 0 {
		why = strings.TrimSpace(position.ReplaceAllString(t.lines[n-1], ""))
	}
	why, wants := strings.CutPrefix(why, "skipped: ")
	if !slices.Contains(r.skips, why) {
		r.skips = append(r.skips, why)
	}
	if wants && r.require {
		r.fail(k, ", skipped where nothing may", t)
	}
}

// close blames the tests that have not ended for their end. No event follows.
func (r *report) close() {
	for _, k := range slices.Collect(maps.Keys(r.tests)) {
		if k.name != "" && r.brokenLaw == "" {
			r.failPackage(key{pkg: k.pkg}, &openTest{}, false)
		}
	}
	// If another part of a late test failed, the test is wrong.
	r.late = slices.DeleteFunc(r.late, func(l *lateTest) bool {
		return r.blames(func(f key) bool { return f.top() == l.key })
	})
}

// finish prints the end of the report, and returns whether the run is green.
func (r *report) finish() bool {
	for _, f := range r.failures {
		fmt.Fprintf(r.out, "\n%s\n", f.text)
	}
	red := len(r.failures)
	for _, l := range r.late {
		fmt.Fprintf(r.out, "\n--- LATE: %s (%s, load %s)\n%s\n", l.name, l.pkg, l.load, l.text)
		switch l.alone {
		case notRun:
			red++
			fmt.Fprintln(r.out, "It did not run again, since the run is red.")
		case passedAlone:
			fmt.Fprintln(r.out, "It passed when it ran alone.")
		case lateAgain:
			red++
			fmt.Fprintln(r.out, "It was late again when it ran alone: that is a failure.")
		case wrongAlone: // which is among the failures
			fmt.Fprintln(r.out, "It failed when it ran alone.")
		}
	}
	if len(r.late) >= tooMany {
		fmt.Fprintf(r.out, "\n%d tests were late; %d make a run red\n", len(r.late), tooMany)
	}
	if r.brokenLaw != "" {
		fmt.Fprintf(r.out, "\nlaw %s is broken: the run ended there\n", r.brokenLaw)
	}
	r.printTimes()
	r.mu.Lock()
	nullLost := r.nullLost
	r.mu.Unlock()
	if nullLost != "" {
		fmt.Fprintln(r.out, nullLost)
	}
	if len(r.skips) > 0 {
		fmt.Fprintf(r.out, "skipped: %s\n", strings.Join(r.skips, "; "))
	}
	if len(r.late) > 0 {
		fmt.Fprintf(r.out, "late: %s\n", strings.Join(names(r.late), ", "))
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, red, r.skipped)
	return red == 0
}

func names(late []*lateTest) (names []string) {
	for _, l := range late {
		names = append(names, l.name)
	}
	return names
}

// A package that took less than brief has no row of its own.
const brief, slow = 2.0, 5

// printTimes prints how long the packages took, and the slowest tests.
func (r *report) printTimes() {
	longest := func(a, b timed) int { return int(1000 * (b.seconds - a.seconds)) }
	slices.SortFunc(r.packages, longest)
	fmt.Fprintln(r.out, "\ntime by package, from its first test to its last:")
	short, sum := 0, 0.0
	for _, p := range r.packages {
		if p.seconds < brief {
			short++
			sum += p.seconds
			continue
		}
		fmt.Fprintf(r.out, "%7.1fs  %s\n", p.seconds, p.pkg)
	}
	fmt.Fprintf(r.out, "%7.1fs  %d others\n", sum, short)
	slices.SortFunc(r.slowest, longest)
	fmt.Fprintln(r.out, "the slowest tests:")
	for _, t := range r.slowest[:min(slow, len(r.slowest))] {
		fmt.Fprintf(r.out, "%7.1fs  %s (%s)\n", t.seconds, t.name, t.pkg)
	}
	fmt.Fprintln(r.out)
}

// appendLate adds a row for each late test to the file, which it creates if there are any.
func (r *report) appendLate(file string, now time.Time) error {
	if len(r.late) == 0 {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for _, l := range r.late {
		why := strings.Join(strings.Fields(l.text), " ")
		fmt.Fprintf(f, "| %s | %s | %s | %s | %s |\n", now.UTC().Format(time.DateOnly), l.name, l.pkg, l.load, cut(strings.ReplaceAll(why, "|", "\\|")))
	}
	return f.Close()
}
