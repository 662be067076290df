package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

// Switchboard with other stores than its file.
const (
	inMemory = "sb memory" // and without receipts
	onRedis  = "sb redis"
)

// The kinds of calls that a store has different work with. echo is under a rate limit.
const (
	unlimited = "tool_0001" // only reads, and nobody counts
	effective = "tool_0002" // has an effect, and waits for its intent
)

// stateful serves the stage's backend with the store that the name says. in is the folder
// where that is a file.
func (a *arena) stateful(ctx context.Context, s *stage, name, redis string) (in string, err error) {
	if in, err = os.MkdirTemp(a.dir, ""); err != nil {
		return "", err
	}
	return in, a.statefulIn(ctx, s, name, redis, in)
}

// statefulIn does the same with that folder.
func (a *arena) statefulIn(ctx context.Context, s *stage, name, redis, in string) error {
	where := fmt.Sprintf("store: %q\n", "file:"+filepath.Join(in, "store.db"))
	switch name {
	case inMemory:
		where = "store: \"memory:\"\n"
	case onRedis:
		where = fmt.Sprintf("store: %q\ncluster: {secret: \"${file:secret}\", listen: \"127.0.0.1:0\"}\n", redis)
	}
	backend, err := start(ctx, "", a.self, "backend", "-era", s.era, "-tools", fmt.Sprint(s.tools))
	if err != nil {
		return err
	}
	s.stops = append(s.stops, backend.stop)
	keys, rows := mint(1)
	binary := ours
	if a.binaries[name] != "" {
		binary = name
	}
	p, err := a.serve(ctx, binary, map[string]string{
		"switchboard.yaml": where + fmt.Sprintf("servers:\n  bench: {transport: http, url: %q, trust: operator}\ntenants:\n  default: {servers: [bench]}\n", backend.address),
		"secret":           strings.Repeat("0123456789abcdef", 4),
		"overlays/bench.yaml": `server: bench
tools:
  ` + unlimited + `: {replace: true, capabilities: [{verb: search, resource: internet, constraints: [readonly]}]}
  ` + effective + `: {replace: true, capabilities: [{verb: write, resource: fs}], stateful: true}
`,
		"tenants/default/tenant.yaml": `tenant: default
default_task: look
limits:
  - {match: {constraint: rate_limited}, rate: 1000000/s, burst: 1000000}
` + rows,
		"tenants/default/tasks/look.yaml": `task_id: look
required_capabilities:
  - {verb: search, resource: internet, constraints: [readonly]}
  - {verb: write, resource: fs}
`,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c := &contestant{name: name, endpoint: endpoint{era: s.era, key: keys[0]}, keys: keys, pid: p.pid, side: p.side, stop: p.stop}
	s.contestants = append(s.contestants, c)
	if c.url, err = url.Parse(p.address); err != nil {
		return err
	}
	return c.awake(s.tools)
}

// usings are calls of them, by the names that -load has.
var usings = map[string]string{"reads": unlimited, "limited": echo, "effects": effective}

// using is a call of that tool with a result of 1 KiB.
func using(tool string) action {
	return func(c *client) (time.Duration, error) {
		c.tool = tool
		return c.call(1 << 10)
	}
}

// state measures what stores and receipts cost.
func (b *bench) state(ctx context.Context, era string) error {
	process := &redistest.Process{}
	defer process.End()
	var redis *redistest.Server
	names := []string{inMemory, ours}
	address := ""
	if _, err := exec.LookPath("redis-server"); err == nil {
		redis = redistest.Start(process)
		names, address = append(names, onRedis), redis.URL()
	} else {
		fmt.Fprintln(b.log, "bench: state: redis-server is not installed; measured without")
	}
	s := &stage{era: era, tools: 10}
	defer s.strike()
	for _, name := range append(names, b.others...) {
		if _, err := b.stateful(ctx, s, name, address); err != nil {
			return err
		}
	}
	if err := b.idle(s); err != nil {
		return err
	}
	for _, kind := range []struct{ tool, what string }{{unlimited, "reads"}, {echo, "reads, rate limit"}, {effective, "with effect"}} {
		what := fmt.Sprintf("%s, 1 KiB, 16 sessions, %s", era, kind.what)
		costs, rate, p50 := b.figure("CPU a call, "+what, "µs"), b.figure("calls a second, "+what, "/s"), b.figure("p50, "+what, "µs")
		if kind.tool != effective {
			costs.judge("sb / sb memory", func(at at) float64 { return at(ours) / at(inMemory) }).atMost(1.1)
		}
		err := b.take(ctx, s, 16, b.closed, using(kind.tool), func(name string, t turn) {
			costs.see(name, t.each())
			rate.see(name, t.perSecond())
			p50.see(name, micro(t.at(0.5)))
		})
		if err != nil {
			return err
		}
	}
	for _, kind := range []struct{ tool, what string }{{unlimited, "reads"}, {effective, "with effect"}} {
		p50 := b.figure("p50, "+era+", 1 KiB, 1 session, "+kind.what, "µs")
		err := b.take(ctx, s, 1, b.closed, using(kind.tool), func(name string, t turn) { p50.see(name, micro(t.at(0.5))) })
		if err != nil {
			return err
		}
	}
	if redis != nil {
		if err := b.roundTrips(s.contestants[slices.Index(names, onRedis)], redis); err != nil {
			return err
		}
	}
	s.strike()
	return errors.Join(b.sustained(ctx, era, unlimited, 1), b.sustained(ctx, era, effective, 2), b.alone(ctx, era))
}

// idle weighs those that have answered one client.
func (b *bench) idle(s *stage) error {
	f := b.figure("memory, idle, by store, "+s.era, "MiB")
	for _, c := range s.contestants {
		w, _, err := c.weight()
		if err != nil {
			return err
		}
		f.see(c.name, w/(1<<20))
	}
	return nil
}

// benchFile opens a store of its own where those of contestants are.
func (b *bench) benchFile() (*store.File, error) {
	dir, err := os.MkdirTemp(b.dir, "")
	if err != nil {
		return nil, err
	}
	return store.OpenFile(filepath.Join(dir, "store.db"), store.FileOptions{})
}

// roundTrips counts the commands to Redis during calls that come one at a time. The count includes the process's own commands meanwhile.
func (b *bench) roundTrips(c *contestant, redis *redistest.Server) error {
	clients, err := c.clients(1)
	if err != nil {
		return err
	}
	defer end(clients)
	for _, kind := range []struct{ tool, what string }{{unlimited, "reads"}, {echo, "reads, rate limit"}, {effective, "with effect"}} {
		const calls = 500
		f := b.figure(fmt.Sprintf("commands to Redis a call, %s, 1 session, %s", c.era, kind.what), "")
		f.judge("sb redis", func(at at) float64 { return at(onRedis) }).atMost(2)
		n, err := during(redis, func() { b.tally(c.name, counted(clients, calls, using(kind.tool)).tally) })
		if err != nil {
			return err
		}
		f.see(onRedis, float64(n)/calls)
	}
	return nil
}

// during returns how many commands Redis is sent while do runs. Its own statistics count
// what scripts do besides; what it shows of each command tells them apart.
func during(redis *redistest.Server, do func()) (n int, err error) {
	conn, err := net.Dial("tcp", redis.Addr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return 0, err
	}
	shown := bufio.NewReader(conn)
	if _, err := shown.ReadString('\n'); err != nil { // +OK
		return 0, err
	}
	ended := make(chan error, 1)
	go func() {
		for {
			line, err := shown.ReadString('\n')
			if err != nil || strings.Contains(line, `"echo" "counted"`) {
				ended <- err
				return
			}
			if !strings.Contains(line, " lua] ") && !strings.Contains(line, `] "ping"`) && !strings.Contains(line, `] "hello"`) && !strings.Contains(line, `] "client"`) {
				n++
			}
		}
	}()
	do()
	redis.Do("echo", "counted")
	return n, <-ended
}

// sustained has 64 sessions make calls for as long as all rounds together, and then looks
// at what the file holds of them: each call has so many receipts.
func (b *bench) sustained(ctx context.Context, era, tool string, each int) error {
	s := &stage{era: era, tools: 10}
	defer s.strike()
	in, err := b.stateful(ctx, s, ours, "")
	if err != nil {
		return err
	}
	clients, err := s.contestants[0].clients(64)
	if err != nil {
		return err
	}
	t := closed(clients, time.Duration(b.rounds)*b.lasting*2, using(tool))
	end(clients)
	b.tally(ours, t.tally)
	s.strike()
	st, err := store.OpenFile(filepath.Join(in, "store.db"), store.FileOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	logs, err := st.Logs(ctx)
	if err != nil {
		return err
	}
	var entries uint64
	for _, log := range logs {
		if !strings.HasPrefix(log, "receipts/") { // an index of receipts has no receipts of its own
			continue
		}
		span, err := st.Span(ctx, log)
		if err != nil {
			return err
		}
		entries += span.Last
	}
	size, err := sizeOf(in)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s, 64 sessions, %s", era, plural(each, "receipt")+" a call")
	b.figure("receipts a second, served, "+what, "/s").see(ours, float64(entries)/t.took.Seconds())
	b.figure("receipts a call, "+what, "").judge("sb", func(at at) float64 { return at(ours) }).atLeast(float64(each)).see(ours, float64(entries)/float64(t.right))
	b.figure("bytes on disk a receipt, "+what, "B").see(ours, float64(size)/float64(entries))
	b.figure("24 h of 50 calls a second, "+what, "GB").see(ours, float64(size)/float64(t.right)*50*86400/1e9)
	return nil
}

func sizeOf(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

// alone has a book write the receipts of calls that cost nothing.
func (b *bench) alone(ctx context.Context, era string) error {
	if era == modern {
		return nil // is the same
	}
	f := b.figure("receipts a second, the chain alone on a file", "/s").judge("sb", func(at at) float64 { return at(ours) }).atLeast(15_000)
	text := strings.Repeat("0123456789abcdef", 64)
	for range b.rounds {
		st, err := b.benchFile()
		if err != nil {
			return err
		}
		book, err := receipt.Open(ctx, st, receipt.ChainOptions{Node: "n1", Key: receipt.NewKey(), DigestKey: receipt.NewKey(), Version: "bench", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return errors.Join(err, st.Close())
		}
		caller := book.RecordCalls(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			return switchboard.Result{JSON: []byte(`{"content":[{"type":"text","text":"` + text + `"}]}`)}, nil
		}))
		const workers, each = 4, 5000
		failed := make(chan error, workers)
		began := time.Now()
		var wait sync.WaitGroup
		for range workers {
			wait.Go(func() {
				call := &switchboard.Call{
					Principal: switchboard.Principal{Tenant: "acme", ID: "ci", Auth: switchboard.AuthAPIKey, Mode: switchboard.Assist},
					Task:      "look", Run: "00112233445566778899aabbccddeeff", Server: "bench", Method: wire.MethodToolsCall,
					Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: "bench", Name: echo}, Contract: switchboard.Contract{
						ReadOnly: switchboard.Fact{Holds: true, Source: "operator", Trusted: true},
					}},
					Target: echo, Params: []byte(`{"name":"echo","arguments":{"q":"` + text + `"}}`),
				}
				for n := 1; n <= each; n++ {
					_, err := caller.Call(ctx, call)
					if err == nil && n%1000 == 0 { // not faster than they can be written
						_, err = book.Write(ctx, &receipt.Receipt{Kind: receipt.Admin})
					}
					if err != nil {
						failed <- err
						return
					}
				}
			})
		}
		wait.Wait()
		err = book.Close(ctx)
		took, status := time.Since(began), book.Status()
		err = errors.Join(err, st.Close())
		select {
		case failure := <-failed:
			err = errors.Join(err, failure)
		default:
		}
		if err == nil && status.Lost > 0 {
			err = fmt.Errorf("%d receipts are lost", status.Lost)
		}
		if err != nil {
			return err
		}
		f.see(ours, float64(status.Seq)/took.Seconds())
	}
	return nil
}
