package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	gcpacing "github.com/summit-switchboard/switchboard/internal/heap"
	"github.com/summit-switchboard/switchboard/internal/importer"
)

// A profile names the contestant to profile, and the load.
type profile struct {
	dir, who, load, era   string
	sessions, size, tools int
	stdio                 bool
	lasting               time.Duration
}

// runProfiled is the life of a Switchboard that can be profiled. The real binary
// has no such door, so this one is the same parts put together here, on the
// configuration in the working directory.
func runProfiled(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	listen := f.String("listen", "", "where to serve")
	mcpConfig := f.String("mcp-config", "", "the mcpServers JSON of a client")
	data := f.String("data", "", "the folder for Switchboard's own data")
	if err := f.Parse(args); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if *data == "" && *mcpConfig == "" {
		*data = ".switchboard"
	}
	officers := app.OfficerOptions{Listen: true}
	if *mcpConfig == "" {
		officers.File = "switchboard.yaml"
	}
	a, err := app.New(ctx, app.Options{
		Guard: []string{self, "guard"},
		Load: func(ctx context.Context, o config.Options) (*config.Config, error) {
			o.Env = os.LookupEnv
			if *mcpConfig != "" {
				c, _, err := importer.Load(*mcpConfig, o)
				return c, err
			}
			return config.Load(ctx, "switchboard.yaml", o)
		},
		Serves:       true,
		Officers:     officers,
		Listen:       *listen,
		Log:          slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Data:         *data,
		Name:         "switchboard",
		Version:      "profiled",
		WholeResults: true,
	})
	if err != nil {
		return err
	}
	defer a.Stop()
	defer gcpacing.Watch()()
	side, err := sideDoor()
	if err != nil {
		return err
	}
	agents, _ := a.Addresses()
	fmt.Printf("http://%s/mcp %s\n", agents, side)
	return a.Serve(ctx)
}

// sideDoor serves profiles for as long as the process lives, and returns where.
func sideDoor() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/memstats", func(w http.ResponseWriter, _ *http.Request) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_ = json.NewEncoder(w).Encode(&m) // the reader notices what is missing
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }() // ends with the process
	return fmt.Sprintf("http://%s/debug/pprof/", l.Addr()), nil
}

// sideVariable is set in the environment of a process to profile.
const sideVariable = "BENCH_SIDE_DOOR"

// profile loads a contestant and writes where its time and memory went.
func (a *arena) profile(ctx context.Context, p profile, out io.Writer) error {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	s := &stage{era: cmp.Or(p.era, legacy), tools: p.tools, stdio: p.stdio}
	a.binaries[ours] = a.self
	if err := os.Setenv(sideVariable, "1"); err != nil {
		return err
	}
	fail := func() error { return nil }
	var err error
	if p.load == "moved" || p.who == alone {
		fail, err = a.pair(ctx, s, p.who)
	} else if usings[p.load] != "" {
		_, err = a.stateful(ctx, s, p.who, "")
	} else {
		err = a.set(ctx, s, p.who)
	}
	defer s.strike()
	if err != nil {
		return err
	}
	c := s.contestants[0]
	if c.side == "" {
		return fmt.Errorf("-who %q: want %q", p.who, []string{ours, ours + effects, ours + newcomer, ours + keeper, proxy, untuned, floor, naive})
	}
	all, err := c.clients(p.sessions)
	if err != nil {
		return err
	}
	defer end(all)
	if err := fail(); err != nil {
		return err
	}
	var do action
	switch p.load {
	case "call", "moved":
		do = calling(p.size)
	case "reads", "limited", "effects":
		do = using(usings[p.load])
	case "list":
		do = listing(p.tools)
	case "cold":
		do = coldly(p.tools, p.size)
	default:
		return fmt.Errorf("-load %q: want call, reads, limited, effects, moved, list or cold", p.load)
	}
	closed(all, time.Second, do) // to be warm

	before, err := allocated(ctx, c.side)
	if err != nil {
		return err
	}
	took := make(chan error, 1)
	go func() {
		took <- fetch(ctx, c.side, "profile", url.Values{"seconds": {fmt.Sprint(int(p.lasting.Seconds()))}}, filepath.Join(p.dir, "cpu.pprof"))
	}()
	t, err := c.turn(func() *burst { return closed(all, p.lasting, do) })
	if err != nil {
		return err
	}
	if err := <-took; err != nil {
		return err
	}
	after, err := allocated(ctx, c.side)
	if err != nil {
		return err
	}
	if err := fetch(ctx, c.side, "allocs", nil, filepath.Join(p.dir, "allocs.pprof")); err != nil {
		return err
	}
	calls := float64(max(t.right, 1))
	fmt.Fprintf(out, "%s\n%.0f/s, %.1f µs of CPU each; p50 %.0f µs, p99 %.0f µs\n%.1f allocations and %.0f bytes each; %.0f collections a second\n\n  go tool pprof -top -cum %s\n  go tool pprof -top -sample_index=alloc_space %s\n",
		&t.tally, t.perSecond(), t.each(), micro(t.at(0.5)), micro(t.at(0.99)),
		float64(after.Mallocs-before.Mallocs)/calls, float64(after.TotalAlloc-before.TotalAlloc)/calls, float64(after.NumGC-before.NumGC)/p.lasting.Seconds(), filepath.Join(p.dir, "cpu.pprof"), filepath.Join(p.dir, "allocs.pprof"))
	return nil
}

// pair sets Switchboard before two servers, or where it is to be alone before the
// second only. fail kills the first: the calls of sessions that are open move.
func (a *arena) pair(ctx context.Context, s *stage, name string) (fail func() error, err error) {
	var servers []behind
	var first *life
	for _, id := range []string{"first", "second"} {
		l, err := a.live(ctx, "-era", s.era)
		if err != nil {
			return nil, err
		}
		s.stops = append(s.stops, func() { l.stop() })
		servers, first = append(servers, overHTTP(id, l.address, "")), cmp.Or(first, l)
	}
	if name == alone {
		servers = servers[1:]
	}
	c, err := a.switchboardBefore(ctx, name, s.era, "  - {verb: search, resource: internet, constraints: [readonly]}\n", servers...)
	if err != nil {
		return nil, err
	}
	s.contestants = append(s.contestants, c)
	return func() error {
		if err := first.kill(); err != nil || name == alone {
			return err
		}
		one, err := c.client(c.endpoint, "first")
		if err != nil {
			return err
		}
		defer one.end()
		if _, err := one.call(100); err != nil {
			return err
		}
		return c.until(ctx, "first", "quarantine")
	}, nil
}

// fetch writes what the side door has to say into a file.
func fetch(ctx context.Context, side, what string, q url.Values, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(side, "/")+"/"+what+"?"+q.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", what, resp.Status, all)
	}
	return os.WriteFile(file, all, 0o600)
}

// allocated returns what the process behind the side door has allocated since its start.
func allocated(ctx context.Context, side string) (m runtime.MemStats, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(side, "/")+"/memstats", http.NoBody)
	if err != nil {
		return m, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return m, err
	}
	defer func() { _ = resp.Body.Close() }()
	return m, json.NewDecoder(resp.Body).Decode(&m)
}
