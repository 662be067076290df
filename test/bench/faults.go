package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/officer"
	"github.com/summit-switchboard/switchboard/test/scratch"
)

// The baselines of the measurements with failing servers.
const (
	alone = "sb alone" // Switchboard before the second server only
	calm  = "sb calm"  // Switchboard, without calls that wait for the hanging server
)

// A behind is a server in a configuration.
type behind struct{ id, at string }

func overHTTP(id, url, more string) behind {
	return behind{id, fmt.Sprintf("{transport: http, url: %q, trust: operator%s}", url, more)}
}

// switchboardBefore serves the servers with the task. If task is "", the task names all their tools.
func (a *arena) switchboardBefore(ctx context.Context, name, era, task string, servers ...behind) (*contestant, error) {
	keys, rows := mint(2)
	var ids []string
	var list strings.Builder
	for _, s := range servers {
		ids = append(ids, s.id)
		fmt.Fprintf(&list, "  %s: %s\n", s.id, s.at)
	}
	all := strings.Join(ids, ", ")
	allow := ""
	if task == "" {
		allow = ", allow: [by_name]"
		task = `  - {tools: ["` + strings.Join(ids, `/*", "`) + `/*"]}` + "\n"
	}
	admin, err := scratch.Addr()
	if err != nil {
		return nil, err
	}
	person, hash := identity.Mint(identity.PersonPrefix)
	aside := fmt.Sprintf("admin: {listen: %q}\noperators: [{key: bench, hash: %q}]\n", admin, hash)
	p, err := a.serve(ctx, ours, map[string]string{
		"switchboard.yaml": aside + "servers:\n" + list.String() + "tenants:\n  default: {servers: [" + all + "]" + allow + "}\n",
		"tenants/default/tenant.yaml": `tenant: default
default_task: look
ranking:
  prefer:
    - {verb: search, resource: internet, servers: [` + all + `]}
    - {verb: write, resource: fs, servers: [` + all + `]}
limits:
  - {match: {constraint: rate_limited}, rate: 1000000/s, burst: 1000000}
` + rows,
		"tenants/default/tasks/look.yaml": "task_id: look\nrequired_capabilities:\n" + task,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c := &contestant{name: name, endpoint: endpoint{era: era, key: keys[0]}, keys: keys, pid: p.pid, side: p.side, stop: p.stop, admin: "http://" + admin, person: person}
	if c.url, err = url.Parse(p.address); err != nil {
		p.stop()
		return nil, err
	}
	return c, nil
}

// state returns what Switchboard says of the server's health.
func (c *contestant) state(ctx context.Context, server string) (string, error) {
	text, err := officer.ReadAs(ctx, c.person, c.admin+"/v1/status")
	if err != nil {
		return "", err
	}
	var st struct {
		Servers []struct {
			ID     string
			Health struct{ State string }
		}
	}
	if err := json.Unmarshal(text, &st); err != nil {
		return "", err
	}
	for _, s := range st.Servers {
		if s.ID == server {
			return s.Health.State, nil
		}
	}
	return "", fmt.Errorf("status says nothing of %s", server)
}

// until waits for the server to be in the state.
func (c *contestant) until(ctx context.Context, server, state string) error {
	for range 300 {
		now, err := c.state(ctx, server)
		if err != nil || now == state {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s: %s is never in %s", c.name, server, state)
}

// failTimeout is the timeout of the server that fails.
const failTimeout = 2 * time.Second

// failover measures calls that move to another server, because their own server is dead or hangs.
func (b *bench) failover(ctx context.Context, era string) error {
	for _, how := range []string{"dead", "hung"} {
		if err := b.failedOver(ctx, era, how); err != nil {
			return fmt.Errorf("%s: %w", how, err)
		}
	}
	return nil
}

func (b *bench) failedOver(ctx context.Context, era, how string) error {
	dir, err := os.MkdirTemp(b.dir, "")
	if err != nil {
		return err
	}
	ledger := filepath.Join(dir, "ledger")
	args := []string{"-era", era, "-ledger", ledger}
	first, err := b.live(ctx, args...)
	if err != nil {
		return err
	}
	gone := false
	defer func() {
		if !gone {
			_ = first.kill() // it may have ended
		}
	}()
	second, err := b.live(ctx, args...)
	if err != nil {
		return err
	}
	defer func() { second.stop() }()

	const task = `  - {verb: search, resource: internet, constraints: [readonly]}
  - {verb: write, resource: fs}
`
	one := overHTTP("first", first.address, fmt.Sprintf(", timeout: %s", failTimeout))
	two := overHTTP("second", second.address, "")
	s := &stage{era: era}
	defer s.strike()
	for _, c := range []struct {
		name    string
		servers []behind
	}{{alone, []behind{two}}, {ours, []behind{one, two}}} {
		started, err := b.switchboardBefore(ctx, c.name, era, task, c.servers...)
		if err != nil {
			return err
		}
		s.contestants = append(s.contestants, started)
	}
	both := s.contestants[1]
	const readers, writers = 8, 4
	clients := map[*contestant][]*client{}
	for _, c := range s.contestants {
		if clients[c], err = c.clients(readers); err != nil {
			return err
		}
		defer end(clients[c])
		b.tally(c.name, closed(clients[c], 0, calling(1<<10)).tally)
	}
	w, err := both.clients(writers)
	if err != nil {
		return err
	}
	defer end(w)
	for i, c := range w {
		c.name, c.tool = fmt.Sprintf("writer%d", i), record
	}

	// It fails while calls that may not be made twice are in flight.
	writing, enough := context.WithCancel(ctx)
	defer enough()
	var wrote tally
	var wait sync.WaitGroup
	wait.Go(func() {
		wrote = run(len(w), func(i int) (time.Duration, bool, error) {
			if writing.Err() != nil {
				return 0, false, nil
			}
			took, err := w[i].call(100)
			time.Sleep(time.Millisecond)
			return took, true, err
		}).tally
	})
	time.Sleep(100 * time.Millisecond)
	attempt := time.Duration(0) // a connection that is refused costs nothing
	if how == "dead" {
		gone = true
		err = first.kill()
	} else {
		attempt = failTimeout
		err = first.hang()
	}
	if err != nil {
		return err
	}
	callers := run(readers, onceEach(clients[both], calling(1<<10)))
	b.tally(ours, callers.tally)
	if err := both.until(ctx, "first", "quarantine"); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	enough()
	wait.Wait()

	what := fmt.Sprintf("%s, 1 KiB, the preferred server %s", era, how)
	b.figure("wait of the first callers beyond the attempt that fails, "+what, "ms").judge("sb", only).atMost(100).
		see(ours, micro(callers.at(1)-attempt)/1000)
	p50 := b.figure("p50, "+what, "µs").judge("sb / sb alone", toAlone).atMost(1.1)
	p99 := b.figure("p99, "+what, "µs")
	costs := b.figure("CPU a call, "+what, "µs")
	// More than one session would measure the processors.
	err = b.alternate(ctx, s, func(c *contestant) *client { return clients[c][0] }, calling(1<<10), func(name string, t turn) {
		costs.see(name, t.each())
		p50.see(name, micro(t.at(0.5)))
		p99.see(name, micro(t.at(0.99)))
	})
	if err != nil {
		return err
	}
	if state, err := both.state(ctx, "first"); err != nil || state != "quarantine" {
		return fmt.Errorf("the first server is in %q, %w", state, err)
	}
	if !gone { // it may execute its queue now
		if err := first.wake(); err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond)
	}
	b.figure("outcome unknown or refused, of calls that may not be made twice, "+what, "").see(ours, float64(wrote.lost))
	b.tally(ours, wrote.expected())
	for _, tool := range []string{record, echo} {
		twice, err := executed(ledger, tool)
		if err != nil {
			return err
		}
		if tool == record {
			b.figure("executed twice, "+what, "").judge("sb", only).atMost(0).see(ours, float64(twice))
		} else {
			b.figure("executed twice, of a tool that only reads, "+what, "").see(ours, float64(twice))
		}
	}
	return nil
}

// finely returns the bench with three turns in the time of one, for comparisons that need more turns on a busy machine.
func (b *bench) finely() *bench {
	fine := *b
	fine.rounds *= 3
	fine.lasting /= 3
	return &fine
}

// alternate gives one call to a session of each contestant in turn, again and again. So other work of the machine affects all contestants alike, even
// if it changes every moment. A round is as long as all its turns would be.
func (b *bench) alternate(ctx context.Context, s *stage, of func(*contestant) *client, do action, see func(name string, t turn)) error {
	n := len(s.contestants)
	for range b.rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		turns := make([]turn, n)
		for i, c := range s.contestants {
			before, err := cpu(c.pid)
			if err != nil {
				return err
			}
			turns[i] = turn{&burst{}, -before}
		}
		until := time.Now().Add(time.Duration(n) * b.lasting)
		for k := 0; time.Now().Before(until); k++ {
			for i := range n {
				i = (i + k) % n
				took, err := do(of(s.contestants[i]))
				if turns[i].count(err); err == nil {
					turns[i].latency = append(turns[i].latency, took)
				}
			}
		}
		for i, c := range s.contestants {
			after, err := cpu(c.pid)
			if err != nil {
				return err
			}
			turns[i].cpu += after
			slices.Sort(turns[i].latency)
			b.tally(c.name, turns[i].tally)
			see(c.name, turns[i])
		}
	}
	return nil
}

func only(at at) float64 { return at(ours) }

func toAlone(at at) float64 { return at(ours) / at(alone) }

func toCalm(at at) float64 { return at(ours) / at(calm) }

// expected returns the tally without lost answers: some calls must be lost when their server fails.
func (t tally) expected() tally {
	t.lost = 0
	if t.bad() == 0 {
		t.first = nil
	}
	return t
}

// onceEach has each client do one thing.
func onceEach(clients []*client, do action) func(i int) (time.Duration, bool, error) {
	done := make([]bool, len(clients))
	return func(i int) (time.Duration, bool, error) {
		if done[i] {
			return 0, false, nil
		}
		done[i] = true
		took, err := do(clients[i])
		return took, true, err
	}
}

// hungCalls is how many calls wait for the server that hangs.
const hungCalls = 200

// hung measures calls to one server while others wait for another, which hangs.
func (b *bench) hung(ctx context.Context, era string) error {
	still, err := b.live(ctx, "-era", era, "-first", "wait", "-tools", "1")
	if err != nil {
		return err
	}
	defer func() { _ = still.kill() }() // it may be gone
	well, err := b.live(ctx, "-era", era)
	if err != nil {
		return err
	}
	defer func() { well.stop() }()
	s := &stage{era: era}
	defer s.strike()
	clients := map[*contestant][]*client{}
	for _, name := range []string{calm, ours} {
		c, err := b.switchboardBefore(ctx, name, era, "", overHTTP("still", still.address, ", timeout: 10m"), overHTTP("well", well.address, ""))
		if err != nil {
			return err
		}
		s.contestants = append(s.contestants, c)
		if clients[c], err = c.clients(16); err != nil {
			return err
		}
		defer end(clients[c])
		b.tally(name, closed(clients[c], 0, calling(1<<10)).tally)
	}
	busy := s.contestants[1]
	busy.key = busy.keys[1]
	var waiting []*client
	for i := range hungCalls {
		e := busy.endpoint
		one, err := busy.client(e, fmt.Sprintf("waiting%d", i))
		if err != nil {
			return err
		}
		defer one.end()
		one.tool = "wait"
		if _, err := one.call(100); err != nil { // so that its connection is there
			return err
		}
		waiting = append(waiting, one)
	}
	if err := still.hang(); err != nil {
		return err
	}
	done := make(chan *burst, 1)
	go func() { done <- run(len(waiting), onceEach(waiting, calling(100))) }()
	time.Sleep(500 * time.Millisecond)

	what := fmt.Sprintf("%s, 1 KiB, 16 sessions, %d calls at another server, which hangs", era, hungCalls)
	p50 := b.figure("p50, "+what, "µs")
	p99 := b.figure("p99, "+what, "µs").judge("sb / sb calm", toCalm).atMost(1.5)
	behind := 0
	fine := b.finely()
	err = fine.rotate(ctx, s, clients, fine.closed, calling(1<<10), func(name string, t turn) {
		p50.see(name, micro(t.at(0.5)))
		p99.see(name, micro(t.at(0.99)))
		if name == ours {
			for i := len(t.latency) - 1; i >= 0 && t.latency[i] > held; i-- {
				behind++
			}
			behind += t.lost
		}
	})
	if err != nil {
		return err
	}
	select {
	case t := <-done:
		return fmt.Errorf("the calls did not wait: %s", &t.tally)
	default:
	}
	b.figure("waited behind them, "+what, "").judge("sb", only).atMost(0).see(ours, float64(behind))
	if err := still.wake(); err != nil {
		return err
	}
	b.tally(ours, (<-done).tally)
	return nil
}

// held is the latency of a call that counts as having waited behind the calls of the hanging server.
const held = time.Second
