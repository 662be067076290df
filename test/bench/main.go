// Command bench compares Switchboard with the alternatives between a client and a server: nothing, the reverse proxy of the standard library, a
// lean relay, and a simple gateway made with mcp-go. docs/benchmarks.md explains how to run it and what its figures mean.
//
// Each contestant and each backend is a process of its own, so that its time and
// memory can be measured separately. This program plays all of them except
// Switchboard, which is the real binary. The load generator checks every byte of
// every answer. Contestants take turns within each round, so that other work of
// the machine affects all of them alike.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	serverprocess "github.com/summit-switchboard/switchboard/internal/upstream/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := role(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errMissed):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
}

// role runs this process: as a part of the benchmark, or as the benchmark.
func role(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "backend":
			return runBackend(ctx, args[1:])
		case "proxy":
			return runProxy(ctx, args[1:])
		case "relay":
			return runRelay(ctx, args[1:])
		case "naive":
			return runNaive(ctx, args[1:])
		case "storm":
			return runStorm(ctx, args[1:])
		case "large":
			return runLarge(ctx, args[1:])
		case "serve":
			return runProfiled(ctx, args[1:])
		case "guard":
			serverprocess.Guard(os.Stdin, os.Stdout, args[1:])
			return nil
		}
	}
	return runBench(ctx, args, os.Stdout, os.Stderr)
}

// splitList splits a list with commas between. An empty text is an empty list.
func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

// errMissed says that a limit was missed, which the table has said already.
var errMissed = errors.New("a limit is missed")

func runBench(ctx context.Context, args []string, out, log io.Writer) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(log)
	only := f.String("only", "", "run these parts only, with commas between: "+strings.Join(partNames(), " "))
	among := f.String("among", "", "in the part \"calls\", compare only these contestants, with commas between; without it, all")
	rounds := f.Int("rounds", 7, "how often each contestant has its turn; figures are medians")
	lasting := f.Duration("burst", 300*time.Millisecond, "how long a turn lasts")
	short := f.Bool("short", false, "three rounds of 100ms: to see that it works, not how fast")
	calls := f.Int("calls", 20_000, "how many calls of each era the part \"check\" makes; 1000000 is what is promised")
	soak := f.Duration("lasting", 10*time.Minute, "how long the part \"soak\" takes, which runs only where -only names it")
	receipts := f.Int("receipts", largest.Receipts, "how many receipts the installation of the part \"admin\" has")
	folder := f.String("folder", "", "the `DIR` of the installation of the part \"admin\", which is kept: its store is written only once")
	check := f.Bool("check", false, "exit 1 when a limit is missed")
	era := f.String("era", "", "legacy or modern; without it, both")
	binaries := map[string]string{}
	f.Func("switchboard", "measure this binary too, `NAME=PATH`: an older one, to compare; as \"sb\", instead of the one that is built", func(s string) error {
		name, path, ok := strings.Cut(s, "=")
		if !ok || name == "" || path == "" {
			return errors.New("want NAME=PATH")
		}
		binaries[name] = path
		return nil
	})
	p := profile{}
	f.StringVar(&p.dir, "profile", "", "measure nothing; instead write profiles of a contestant under load into `DIR`")
	f.StringVar(&p.who, "who", ours, "with -profile: which contestant")
	f.StringVar(&p.load, "load", "call", "with -profile: call, reads, limited, effects, moved, list or cold; reads, limited and effects are the calls of the part \"state\", and with -who \"sb memory\" those without a file; moved is calls that another server takes, and with -who \"sb alone\" is those of that server")
	f.IntVar(&p.sessions, "sessions", 16, "with -profile: how many sessions")
	f.IntVar(&p.size, "size", 1<<10, "with -profile: the size of results")
	f.IntVar(&p.tools, "tools", 10, "with -profile: how many tools there are")
	f.BoolVar(&p.stdio, "stdio", false, "with -profile: the server behind is on stdio")
	f.DurationVar(&p.lasting, "for", 10*time.Second, "with -profile: how long")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *short {
		*rounds, *lasting, *calls = 3, 100*time.Millisecond, 2000
		*receipts = 20_000
	}
	if *rounds < 1 || *lasting <= 0 || *calls < 1 || f.NArg() > 0 || !slices.Contains([]string{"", legacy, modern}, *era) {
		f.Usage()
		return errors.New("bad usage")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left there is in the way of nobody
	a := arena{self: filepath.Join(dir, "bench"), dir: dir, binaries: binaries}
	if err := copyProgram(self, a.self); err != nil {
		return err
	}
	if p.dir != "" {
		p.era = *era
		return a.profile(ctx, p, out)
	}
	var others []string
	for name := range binaries {
		if name != ours {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	if a.binaries[ours] == "" {
		if a.binaries[ours], err = build(ctx, dir); err != nil {
			return err
		}
	}
	for _, binary := range append(slices.Collect(maps.Values(a.binaries)), a.self) {
		if err := dropCached(binary); err != nil {
			return err
		}
	}
	b := &bench{arena: a, rounds: *rounds, lasting: *lasting, calls: *calls, soaking: *soak, size: largest, folder: *folder, others: others, among: splitList(*among), log: log, tallies: map[string]*tally{}}
	b.size.Receipts = *receipts
	began := time.Now()
	for _, part := range parts {
		if *only == "" && part.name == soaking || *only != "" && !slices.Contains(splitList(*only), part.name) {
			continue
		}
		for _, e := range []string{legacy, modern} {
			if *era != "" && *era != e {
				continue
			}
			if part.once && e == modern {
				fmt.Fprintf(log, "bench: %s: is measured once, in legacy\n", part.name)
				continue
			}
			if err := part.run(b, ctx, e); err != nil {
				return fmt.Errorf("%s, %s: %w", part.name, e, err)
			}
			fmt.Fprintf(log, "bench: %s, %s: done after %s\n", part.name, e, time.Since(began).Round(time.Second))
		}
	}
	if !b.report(out) && *check {
		return errMissed
	}
	return nil
}
