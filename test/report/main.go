// Report reads what `go test -json` prints, and says what a person needs of it: a
// line for each package as it ends, then each failure with its own output and
// nothing of what passed, then what was skipped and why, and last how many tests
// passed, failed and were skipped. Its arguments are what was skipped before.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	require := flag.Bool("require", false, "fail where a test skips for want of something: its message begins with \"skipped: \"")
	flag.Parse()
	r := report{out: os.Stdout, require: *require, skips: flag.Args(), tests: map[key]*test{}, builds: map[string]*test{}}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	if !r.finish() {
		os.Exit(1)
	}
}

// An event is a line of what is read: see `go doc test2json`, and `go help
// buildjson` for those of the compiler.
type event struct {
	Action      string
	Package     string
	Test        string // "" is the package itself
	ImportPath  string // of what is built
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string  // the ImportPath for want of which the package failed
}

// A key names a test; its name is "" for what a package prints outside of any.
type key struct{ pkg, name string }

// A test is one that has not ended, with what it has printed.
type test struct {
	lines []string
	open  bool // the last of them goes on
	left  int  // out, between the first and the last
}

// Of a failure the beginning says what was wrong, and the end how it ended.
const first, last, width = 40, 40, 1000

// framing is what the runner of the tests adds to what they print.
var framing = regexp.MustCompile(`^(=== |\s*--- (PASS|FAIL|SKIP): |(PASS|FAIL)$|exit status )`)

// print takes a piece of output, which is a line or a part of a long one.
func (t *test) print(output string) {
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

// A failure is of a test, or of what the name says instead.
type failure struct {
	key
	text string
}

// report is what has been read so far.
type report struct {
	out     io.Writer
	require bool
	skips   []string // reasons, each once

	tests           map[key]*test
	builds          map[string]*test // by ImportPath
	failures        []failure
	passed, skipped int
}

// read takes events to their end. What is none is printed as it is.
func (r *report) read(from io.Reader) error {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
			r.take(&e)
		} else if line != "" {
			fmt.Fprint(r.out, line)
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
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
	case "output":
		if e.Test == "" && packageLine.MatchString(e.Output) {
			fmt.Fprint(r.out, e.Output)
		} else {
			of(r.tests, k).print(e.Output)
		}
	case "pass", "skip", "fail":
		r.end(e, k, of(r.tests, k))
		delete(r.tests, k)
	}
}

// of returns the test of that key, which may be new.
func of[K comparable](tests map[K]*test, k K) *test {
	if tests[k] == nil {
		tests[k] = &test{}
	}
	return tests[k]
}

// end takes the end of a test, or of a package.
func (r *report) end(e *event, k key, t *test) {
	switch {
	case e.Test == "" && e.Action == "fail":
		r.failPackage(k, t, e.FailedBuild != "")
	case e.Test == "":
	case e.Action == "pass":
		r.passed++
	case e.Action == "skip":
		r.skip(k, t)
	case len(t.lines) > 0 || !r.blames(func(f key) bool { return f.pkg == k.pkg && strings.HasPrefix(f.name, k.name+"/") }):
		r.fail(k, fmt.Sprintf(", %.2fs", e.Elapsed), t)
	}
}

func (r *report) blames(which func(key) bool) bool {
	return slices.ContainsFunc(r.failures, func(f failure) bool { return which(f.key) })
}

func (r *report) fail(k key, how string, t *test) {
	lines := t.lines
	if t.left > 0 {
		lines = slices.Insert(slices.Clone(lines), first, fmt.Sprintf("    … %d lines …", t.left))
	}
	lines = slices.Insert(lines, 0, fmt.Sprintf("--- FAIL: %s (%s%s)", k.name, k.pkg, how))
	r.failures = append(r.failures, failure{k, strings.Join(lines, "\n")})
}

// failPackage blames each test that had not ended when the package did: it has
// panicked, exited, or was waited for for too long.
func (r *report) failPackage(k key, t *test, unbuilt bool) {
	for _, other := range slices.SortedFunc(maps.Keys(r.tests), func(a, b key) int { return strings.Compare(a.name, b.name) }) {
		if unended := r.tests[other]; other.pkg == k.pkg && other.name != "" {
			delete(r.tests, other)
			if len(unended.lines) > 0 {
				r.fail(other, ", not ended", unended)
			}
		}
	}
	if len(t.lines) > 0 || !unbuilt && !r.blames(func(f key) bool { return f.pkg == k.pkg }) {
		r.fail(key{k.pkg, "outside of any test"}, "", t)
	}
}

// position is where a test logs.
var position = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

func (r *report) skip(k key, t *test) {
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

// finish prints what is told at the end, and reports whether nothing failed.
func (r *report) finish() bool {
	for _, k := range slices.Collect(maps.Keys(r.tests)) {
		if k.name != "" { // nobody has waited for the end
			r.failPackage(key{pkg: k.pkg}, &test{}, false)
		}
	}
	for _, f := range r.failures {
		fmt.Fprintf(r.out, "\n%s\n", f.text)
	}
	if len(r.failures) > 0 {
		fmt.Fprintln(r.out)
	}
	if len(r.skips) > 0 {
		fmt.Fprintf(r.out, "skipped: %s\n", strings.Join(r.skips, "; "))
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, len(r.failures), r.skipped)
	return len(r.failures) == 0
}
