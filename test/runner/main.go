// Runner runs the tests with `go test` and reports what a person needs to know: a line
// for each package as it ends, each failure with its own output and nothing of what
// passed, the tests that were late, what was skipped and why, the time by package with
// the slowest tests, and last how many tests passed, failed and were skipped.
//
// A test that failed only because an event was late (see test/wait) runs once more,
// alone. If it passes then, it counts as passed, and the run reports it as late. Three
// late tests make the run red, and so does a test that is late twice. A failed claim
// about a law (see test/law) ends the run at once. Every other failure makes the run red.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/test/wait"
)

// tooMany late tests make a run red: then the machine, or the build, is at fault.
const tooMany = 3

func main() {
	var o options
	flag.BoolVar(&o.require, "require", false, "fail where a test skips for want of something: its message begins with \"skipped: \"")
	flag.Func("skipped", "say at the end that this was `skipped` before; may be repeated", func(s string) error {
		o.skips = append(o.skips, s)
		return nil
	})
	flag.StringVar(&o.alone, "alone", "^$", "packages whose path matches this `regexp` run one by one, after all others, which run two at a time")
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
	require  bool
	skips    []string
	alone    string   // a regular expression
	lateFile string   // "" is none
	flags    []string // of go test
	patterns []string // none is ./...
}

// run runs the tests, prints the report, and returns whether the run is green.
func run(o options) (green bool, err error) {
	alone, err := regexp.Compile(o.alone)
	if err != nil {
		return false, err
	}
	packages, err := list(o)
	if err != nil {
		return false, err
	}
	r := newReport(os.Stdout, o.require, o.skips)
	var together, apart []string
	for _, p := range packages {
		if alone.MatchString(p) {
			apart = append(apart, p)
		} else {
			together = append(together, p)
		}
	}
	for _, group := range []struct {
		atOnce   int
		packages []string
	}{{2, together}, {1, apart}} {
		if len(group.packages) == 0 || r.brokenLaw != "" {
			continue
		}
		if err := test(r, slices.Concat([]string{fmt.Sprintf("-p=%d", group.atOnce)}, o.flags, group.packages)); err != nil {
			return false, err
		}
	}
	r.close()
	if len(r.failures) == 0 && len(r.late) < tooMany {
		if err := again(r, o.flags); err != nil {
			return false, err
		}
	}
	green = r.finish()
	if o.lateFile != "" {
		err = r.appendLate(o.lateFile, time.Now())
	}
	return green, err
}

func list(o options) ([]string, error) {
	args := []string{"list"}
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
	return strings.Fields(string(out)), nil
}

// again runs each late test once more, alone.
func again(r *report, flags []string) error {
	for _, l := range r.late {
		fmt.Fprintf(r.out, "late: %s (%s) runs once more, alone\n", l.name, l.pkg)
		second := newReport(io.Discard, r.require, nil)
		if err := test(second, slices.Concat([]string{"-p=1"}, flags, []string{"-run=^" + regexp.QuoteMeta(l.name) + "$", l.pkg})); err != nil {
			return err
		}
		second.close()
		switch {
		case len(second.failures) > 0:
			r.failures = append(r.failures, second.failures...)
		case len(second.late) > 0:
			l.twice = true
		case second.passed == 0:
			r.fail(l.key, ", was late and did not run again", &aTest{lines: []string{"go test ran no test of that name"}})
		default:
			r.passed++
		}
	}
	return nil
}

// test has r read what `go test -json` prints, and ends that once a law is broken.
func test(r *report, args []string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-count=1"}, args...)...)
	cmd.Env = append(os.Environ(), wait.Env+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	failed := len(r.failures)
	if err := r.read(out, cancel); err != nil {
		return err
	}
	var exit *exec.ExitError
	err = cmd.Wait()
	switch {
	case r.brokenLaw != "" || err == nil:
		return nil
	case errors.As(err, &exit) && len(r.failures) > failed:
		return nil
	case errors.As(err, &exit): // go test has said why, but not as JSON
		r.fail(key{cmp.Or(args[len(args)-1], "go test"), "go test"}, "", &aTest{lines: []string{err.Error()}})
		return nil
	}
	return fmt.Errorf("go test: %w", err)
}
