// Runner runs the tests with `go test` and reports what a person needs to know: a line
// for each package as it ends, each failure with its own output and nothing of what
// passed, the tests that were late, what was skipped and why, the time by package with
// the slowest tests, and last how many tests passed, failed and were skipped.
//
// A test that failed only because an event was late (see test/wait) runs once more,
// alone. If it passes then, it counts as passed, and the run reports it as late. A
// test that is late twice makes the run red, and so do ten late tests. A failed claim
// about a law (see test/law) ends the run at once. Every other failure makes the run red.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/system"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// tooMany late tests make a run red, and none of them runs again: so many runs of one test each would take minutes, and show little.
const tooMany = 10

func main() {
	var o options
	flag.BoolVar(&o.require, "require", false, "fail where a test skips for want of something: its message begins with \"skipped: \"")
	flag.Func("skipped", "say at the end that this was `skipped` before; may be repeated", func(s string) error {
		o.skips = append(o.skips, s)
		return nil
	})
	flag.Func("race", "add these `flags` of go test for the packages of the program; in those below test/, a test may ask for a Switchboard that is built with them", func(s string) error {
		o.raceFlags = strings.Fields(s)
		return nil
	})
	flag.StringVar(&o.startWith, "start-with", "", "start with the packages whose `paths` end in one of these, with commas between them: those that take longest")
	flag.StringVar(&o.lateFile, "late", "", "append the tests that were late to this `file`, as rows of Markdown")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: runner [flags] [-- flags of go test] [packages]")
		flag.PrintDefaults()
	}
	flag.Parse()
	for _, arg := range flag.Args() {
		if strings.HasPrefix(arg, "-") {
			o.flags = append(o.flags, arg)
		} else {
			o.patterns = append(o.patterns, arg)
		}
	}
	green, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(2)
	}
	if !green {
		os.Exit(1)
	}
}

type options struct {
	require   bool
	skips     []string
	raceFlags []string // flags of go test for the packages that have the race detector
	startWith string
	lateFile  string   // "" is none
	flags     []string // of go test
	patterns  []string // none is ./...

	sequential map[string]bool // the packages that start no goroutine
}

// isOutside reports whether the package tests the program from outside: then the program
// has the race detector where the test asks for it, and the test does not.
func isOutside(pkg string) bool { return strings.Contains(pkg, "/test/") }

// isCommand reports whether the package is a program. Its tests start it hundreds of times, one command after the other, and with the race detector a start takes
// five times as long. What it calls has the race detector in tests of its own.
func isCommand(pkg string) bool { return strings.Contains(pkg, "/cmd/") }

// isPlain reports whether the tests of the package have no race detector.
func (o *options) isPlain(pkg string) bool {
	return len(o.raceFlags) == 0 || isOutside(pkg) || isCommand(pkg) || o.sequential[pkg]
}

// watchesLibraries reports whether the package has the race detector in the libraries of policies and of JSON Schema too. The others are compiled as the program is:
// so they are compiled once.
func watchesLibraries(pkg string) bool {
	return strings.Contains(pkg, "/internal/policy") || strings.Contains(pkg, "/internal/contract")
}

// flagsFor returns the flags of go test for the package.
func (o *options) flagsFor(pkg string) []string {
	switch {
	case o.isPlain(pkg):
		return o.flags
	case watchesLibraries(pkg):
		return slices.Concat(o.flags, o.raceFlags)
	}
	return slices.Concat(o.flags, programs.RaceFlags())
}

// envFor returns the environment of go test for the package. What has no race detector is compiled without C, as the Dockerfile has it: so it is compiled once.
func (o *options) envFor(env []string, pkg string) []string {
	if o.isPlain(pkg) {
		return slices.Concat(env, []string{programs.NoC})
	}
	return env
}

// run runs the tests, prints the report, and returns whether the run is green.
func run(o options) (green bool, err error) {
	packages, err := list(&o)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "switchboard-test-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	env := append(os.Environ(), wait.Env+"=1", programs.DirEnv+"="+dir)
	if len(o.raceFlags) > 0 {
		env = append(env, programs.RaceEnv+"=1")
	}
	// A tenth of the time of a test with the race detector is garbage collection.
	if os.Getenv("GOGC") == "" {
		env = append(env, "GOGC=400")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := newReport(os.Stdout, o.require, o.skips, cancel)
	go r.watchNull(ctx, isNullDevice)
	tracks, rest := o.schedule(packages)
	var running errgroup.Group
	for _, track := range tracks {
		running.Go(func() error {
			for b := range concat(track, rest) {
				flags := append([]string{fmt.Sprintf("-p=%d", b.atOnce)}, o.flagsFor(b.packages[0])...)
				if err := test(ctx, r, o.envFor(env, b.packages[0]), slices.Concat(flags, b.packages)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = running.Wait()
	r.close()
	if err == nil && len(r.failures) == 0 && len(r.late) < tooMany {
		err = again(ctx, r, env, &o)
	}
	green = r.finish()
	if o.lateFile != "" {
		err = errors.Join(err, r.appendLate(o.lateFile, time.Now()))
	}
	if ctx.Err() != nil && r.brokenLaw == "" {
		err = errors.Join(err, errors.New("the run was interrupted"))
	}
	return green && err == nil, err
}

// A batch is packages with the same flags of go test, of which some run at once.
type batch struct {
	atOnce   int
	packages []string
}

// schedule divides the packages, which are in their starting order, into tracks that run beside each other, and the rest. The batches of a track run one after
// the other; then the track takes from the rest, whose batches are one package each. Most tests wait more than they compute, so four packages run at a time: the
// first that tests from outside, which takes longest; two that start no program, of which those that start no goroutine are last; and one of the rest, which are
// the others that test from outside, and the commands.
func (o *options) schedule(packages []string) (tracks [][]batch, rest <-chan batch) {
	var first, outside, commands, sequential, libraries, inside []string
	for _, p := range packages {
		to := &inside
		switch {
		case isOutside(p) && len(first) == 0:
			to = &first
		case isOutside(p):
			to = &outside
		case isCommand(p):
			to = &commands
		case o.sequential[p]:
			to = &sequential
		case watchesLibraries(p):
			to = &libraries
		}
		*to = append(*to, p)
	}
	for _, track := range [][]batch{{{1, first}}, {}, {{2, inside}, {2, libraries}, {2, sequential}}} {
		tracks = append(tracks, slices.DeleteFunc(track, func(b batch) bool { return len(b.packages) == 0 }))
	}
	queue := make(chan batch, len(packages))
	for _, p := range slices.Concat(outside, commands) {
		queue <- batch{1, []string{p}}
	}
	close(queue)
	return tracks, queue
}

// concat returns the batches of a track, and then those that are left of the rest.
func concat(track []batch, rest <-chan batch) iter.Seq[batch] {
	return func(yield func(batch) bool) {
		for _, b := range track {
			if !yield(b) {
				return
			}
		}
		for b := range rest {
			if !yield(b) {
				return
			}
		}
	}
}

// list returns the packages in their starting order, and notes which of them start no goroutine.
func list(o *options) ([]string, error) {
	args := []string{"list", "-f={{.ImportPath}}\t{{.Dir}}"}
	for _, f := range o.flags {
		if strings.HasPrefix(f, "-tags") {
			args = append(args, f)
		}
	}
	if len(o.patterns) == 0 {
		args = append(args, "./...")
	}
	cmd := exec.Command("go", append(args, o.patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []string
	o.sequential = map[string]bool{}
	for line := range strings.Lines(string(out)) {
		pkg, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		packages = append(packages, pkg)
		if len(o.raceFlags) > 0 && !isOutside(pkg) {
			o.sequential[pkg] = !isConcurrent(dir)
		}
	}
	front := strings.Split(o.startWith, ",")
	place := func(p string) int {
		if i := slices.IndexFunc(front, func(end string) bool { return strings.HasSuffix(p, "/"+end) }); i >= 0 {
			return i
		}
		return len(front)
	}
	slices.SortStableFunc(packages, func(a, b string) int { return place(a) - place(b) })
	return packages, nil
}

// again runs each late test once more, alone.
func again(ctx context.Context, r *report, env []string, o *options) error {
	for _, l := range r.late {
		fmt.Fprintf(r.out, "late: %s (%s) runs once more, alone\n", l.name, l.pkg)
		second := newReport(io.Discard, r.require, nil, func() {})
		if err := test(ctx, second, o.envFor(env, l.pkg), append(o.flagsFor(l.pkg), "-run=^"+regexp.QuoteMeta(l.name)+"$", l.pkg)); err != nil {
			return err
		}
		second.close()
		switch {
		case len(second.failures) > 0:
			l.alone = wrongAlone
			r.failures = append(r.failures, second.failures...)
		case len(second.late) > 0:
			l.alone = lateAgain
		case second.passed == 0:
			l.alone = wrongAlone
			r.fail(l.key, ", was late and did not run again", &openTest{lines: []string{"go test ran no test of that name"}})
		default:
			l.alone = passedAlone
			r.passed++
		}
		if second.brokenLaw != "" {
			r.brokenLaw = second.brokenLaw
			return nil
		}
	}
	return nil
}

// test runs go test, and r reads its events.
func test(ctx context.Context, r *report, env, args []string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-count=1"}, args...)...)
	cmd.Env = env
	system.LeadGroup(cmd)
	cmd.Cancel = func() error { system.KillGroup(cmd.Process.Pid); return nil }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	failures, err := r.read(out)
	if err != nil {
		return err
	}
	var exit *exec.ExitError
	err = cmd.Wait()
	switch {
	case err == nil || failures > 0 || ctx.Err() != nil:
		return nil
	case errors.As(err, &exit): // go test has said why, and not as JSON
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fail(key{args[len(args)-1], "go test"}, "", &openTest{lines: []string{err.Error()}})
		return nil
	}
	return fmt.Errorf("go test: %w", err)
}
