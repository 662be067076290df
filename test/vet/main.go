// Command vet does what go vet does, for other systems than this one.
//
//	go run ./test/vet windows darwin freebsd
//
// go vet compiles all that a package imports, which takes minutes for each system. This command reads the types from the sources instead: 13 s of a processor for
// each. So it finds code that does not compile for a system, in the program and in the tests, and prints all reports of the analyzers of go vet.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/passes/appends"
	"golang.org/x/tools/go/analysis/passes/asmdecl"
	"golang.org/x/tools/go/analysis/passes/assign"
	"golang.org/x/tools/go/analysis/passes/atomic"
	"golang.org/x/tools/go/analysis/passes/bools"
	"golang.org/x/tools/go/analysis/passes/buildtag"
	"golang.org/x/tools/go/analysis/passes/composite"
	"golang.org/x/tools/go/analysis/passes/copylock"
	"golang.org/x/tools/go/analysis/passes/defers"
	"golang.org/x/tools/go/analysis/passes/directive"
	"golang.org/x/tools/go/analysis/passes/errorsas"
	"golang.org/x/tools/go/analysis/passes/hostport"
	"golang.org/x/tools/go/analysis/passes/httpresponse"
	"golang.org/x/tools/go/analysis/passes/ifaceassert"
	"golang.org/x/tools/go/analysis/passes/loopclosure"
	"golang.org/x/tools/go/analysis/passes/lostcancel"
	"golang.org/x/tools/go/analysis/passes/nilfunc"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/passes/shift"
	"golang.org/x/tools/go/analysis/passes/sigchanyzer"
	"golang.org/x/tools/go/analysis/passes/slog"
	"golang.org/x/tools/go/analysis/passes/stdmethods"
	"golang.org/x/tools/go/analysis/passes/stdversion"
	"golang.org/x/tools/go/analysis/passes/stringintconv"
	"golang.org/x/tools/go/analysis/passes/structtag"
	"golang.org/x/tools/go/analysis/passes/testinggoroutine"
	"golang.org/x/tools/go/analysis/passes/tests"
	"golang.org/x/tools/go/analysis/passes/timeformat"
	"golang.org/x/tools/go/analysis/passes/unmarshal"
	"golang.org/x/tools/go/analysis/passes/unreachable"
	"golang.org/x/tools/go/analysis/passes/unsafeptr"
	"golang.org/x/tools/go/analysis/passes/unusedresult"
	"golang.org/x/tools/go/analysis/passes/waitgroup"
)

// analyzers has the analyzers of go vet. It omits two, for cgo and frame pointers, which are the same on every system.
var analyzers = []*analysis.Analyzer{
	appends.Analyzer, asmdecl.Analyzer, assign.Analyzer, atomic.Analyzer, bools.Analyzer, buildtag.Analyzer, composite.Analyzer, copylock.Analyzer,
	defers.Analyzer, directive.Analyzer, errorsas.Analyzer, hostport.Analyzer, httpresponse.Analyzer, ifaceassert.Analyzer, loopclosure.Analyzer,
	lostcancel.Analyzer, nilfunc.Analyzer, printf.Analyzer, shift.Analyzer, sigchanyzer.Analyzer, slog.Analyzer, stdmethods.Analyzer, stdversion.Analyzer,
	stringintconv.Analyzer, structtag.Analyzer, testinggoroutine.Analyzer, tests.Analyzer, timeformat.Analyzer, unmarshal.Analyzer, unreachable.Analyzer,
	unsafeptr.Analyzer, unusedresult.Analyzer, waitgroup.Analyzer,
}

// gcPercent is the target of the garbage collector, in place of 100. Most of the sources are kept until the end.
const gcPercent = 200

func main() {
	debug.SetGCPercent(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	found, err := vetSystems(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "vet:", err)
		os.Exit(2)
	case found > 0:
		os.Exit(1)
	}
}

// vetSystems prints what is found for each system, and returns how much that is.
func vetSystems(ctx context.Context, systems []string, out io.Writer) (found int, err error) {
	if len(systems) == 0 {
		return 0, fmt.Errorf("name the systems, as in GOOS")
	}
	for _, system := range systems {
		began := time.Now()
		lines, err := vet(ctx, ".", system, "./...")
		if err != nil {
			return found, err
		}
		for _, line := range lines {
			fmt.Fprintf(out, "%s: %s\n", system, line)
		}
		found += len(lines)
		fmt.Fprintf(out, "vetted for %s: %d findings, %s\n", system, len(lines), time.Since(began).Round(time.Second))
	}
	return found, nil
}

// vet returns what is found in the packages, sorted.
func vet(ctx context.Context, root, system string, patterns ...string) ([]string, error) {
	const arch = "amd64"
	all, faults, err := list(ctx, root, system, arch, patterns)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{} // a file is in several packages
	for _, fault := range faults {
		found[fault] = true
	}
	ours := load(all, arch)
	for _, p := range ours {
		for _, e := range p.Errors {
			found[strings.TrimPrefix(e.Pos+": "+e.Msg, ": ")] = true
		}
	}
	graph, err := checker.Analyze(analyzers, ours, nil)
	if err != nil {
		return nil, err
	}
	for _, action := range graph.Roots {
		if action.Err != nil && !action.Package.IllTyped && !strings.HasPrefix(action.Err.Error(), "failed prerequisites") {
			return nil, fmt.Errorf("%s: %w", action, action.Err)
		}
		for _, d := range action.Diagnostics {
			found[fmt.Sprintf("%s: %s: %s", action.Package.Fset.Position(d.Pos), action.Analyzer.Name, d.Message)] = true
		}
	}
	return sortedKeys(found), nil
}
