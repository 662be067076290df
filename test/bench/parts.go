package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// A bench is one run of the benchmark.
type bench struct {
	arena
	rounds  int
	lasting time.Duration
	calls   int
	soaking time.Duration
	others  []string // further binaries of Switchboard
	log     io.Writer

	figures []*figure
	tallies map[string]*tally // of all answers, by contestant
}

// parts are what can be measured, each in both eras.
var parts = []struct {
	name string
	run  func(b *bench, ctx context.Context, era string) error
}{
	{"small", (*bench).small},
	{"large", (*bench).large},
	{"open", (*bench).open},
	{"list", (*bench).list},
	{"cold", (*bench).cold},
	{"stdio", (*bench).stdio},
	{"memory", (*bench).memory},
	{"check", (*bench).check},
	{"failover", (*bench).failover},
	{"fallback", (*bench).fallback},
	{"hung", (*bench).hung},
	{"neighbors", (*bench).neighbors},
	{"recovery", (*bench).recovery},
	{"search", (*bench).search},
	{"tokens", (*bench).tokens},
	{"state", (*bench).state},
	{soaking, (*bench).soak},
}

// soaking is the name of the part that takes long, and runs only where it is asked
// for.
const soaking = "soak"

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// A turn is what one contestant did in one round.
type turn struct {
	*burst
	cpu time.Duration // of the contestant
}

// closed is load from clients that wait for their answers.
func (b *bench) closed(clients []*client, do action) *burst { return closed(clients, b.lasting, do) }

// calling is a call with a result of that size.
func calling(size int) action {
	return func(c *client) (time.Duration, error) { return c.call(size) }
}

// listing is a tools/list of so many tools.
func listing(tools int) action {
	return func(c *client) (time.Duration, error) { return c.list(tools) }
}

// coldly is all that another client of the same kind does until its first
// result: connect, open, list, call. Then it ends.
func coldly(tools, size int) action {
	return func(like *client) (time.Duration, error) {
		c := newClient(like.endpoint, like.name)
		c.id = like.id // so that it asks what nobody has asked
		defer func() {
			like.id = c.id
			c.end()
		}()
		began := time.Now()
		if err := c.open(); err != nil {
			return 0, err
		}
		if _, err := c.list(tools); err != nil {
			return 0, err
		}
		_, err := c.call(size)
		return time.Since(began), err
	}
}

// each is the time on processors for each right answer, in microseconds.
func (t turn) each() float64 { return micro(t.cpu) / float64(max(t.right, 1)) }

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// take gives each contestant of the stage, with this many open sessions, its
// turn in every round. Before each, every session does the thing once, which
// does not count: what lay idle while others had their turn has closed
// connections and given back memory.
func (b *bench) take(ctx context.Context, s *stage, sessions int, load func([]*client, action) *burst, do action, see func(name string, t turn)) error {
	clients := map[*contestant][]*client{}
	defer func() {
		for _, all := range clients {
			end(all)
		}
	}()
	for _, c := range s.contestants {
		var err error
		if clients[c], err = c.clients(sessions); err != nil {
			return err
		}
	}
	return b.rotate(ctx, s, clients, load, do, see)
}

// rotate is take with sessions that are open already.
func (b *bench) rotate(ctx context.Context, s *stage, clients map[*contestant][]*client, load func([]*client, action) *burst, do action, see func(name string, t turn)) error {
	n := len(s.contestants)
	for r := range b.rounds {
		for i := range n {
			c := s.contestants[(i+r)%n]
			if err := ctx.Err(); err != nil {
				return err
			}
			b.tally(c.name, closed(clients[c], 0, do).tally)
			t, err := c.turn(func() *burst { return load(clients[c], do) })
			if err != nil {
				return err
			}
			b.tally(c.name, t.tally)
			see(c.name, t)
		}
	}
	return nil
}

// turn runs do, and looks at the contestant's clock before and after.
func (c *contestant) turn(do func() *burst) (t turn, err error) {
	var before, after time.Duration
	if c.pid != 0 {
		if before, err = cpu(c.pid); err != nil {
			return t, err
		}
	}
	t.burst = do()
	if c.pid != 0 {
		if after, err = cpu(c.pid); err != nil {
			return t, err
		}
	}
	t.cpu = after - before
	return t, nil
}

func (b *bench) tally(name string, t tally) {
	if b.tallies[name] == nil {
		b.tallies[name] = &tally{}
	}
	b.tallies[name].add(t)
}

// with is what goes on: the backend and these contestants, and all further
// binaries.
func (b *bench) with(ctx context.Context, s *stage, names ...string) (*stage, error) {
	return s, b.set(ctx, s, append(slices.Clone(names), b.others...)...)
}

// small measures calls with a result of 1 KiB.
func (b *bench) small(ctx context.Context, era string) error {
	s, err := b.with(ctx, &stage{era: era, tools: 10}, direct, proxy, naive, ours, keyless)
	if err != nil {
		return err
	}
	defer s.strike()
	for _, sessions := range []int{1, 16, 64} {
		what := fmt.Sprintf("%s, 1 KiB, %s", era, plural(sessions, "session"))
		costs := b.figure("CPU a call, "+what, "µs")
		rate := b.figure("calls a second, "+what, "/s")
		p50 := b.figure("p50, "+what, "µs")
		p99 := b.figure("p99, "+what, "µs")
		switch sessions {
		case 1:
			p50.judge("added, sb / P", func(at at) float64 {
				return (at(ours) - at(direct)) / (at(proxy) - at(direct))
			}).atMost(1.1)
		case 16:
			costs.judge("sb / P", toProxy).atMost(1.15)
		}
		err := b.take(ctx, s, sessions, b.closed, calling(1<<10), func(name string, t turn) {
			if name != direct {
				costs.see(name, t.each())
			}
			rate.see(name, t.perSecond())
			p50.see(name, micro(t.at(0.5)))
			p99.see(name, micro(t.at(0.99)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// large measures calls with results of 64 KiB and 1 MiB.
func (b *bench) large(ctx context.Context, era string) error {
	s, err := b.with(ctx, &stage{era: era, tools: 10}, direct, proxy, naive, ours)
	if err != nil {
		return err
	}
	defer s.strike()
	for _, size := range []struct {
		name  string
		bytes int
	}{{"64 KiB", 64 << 10}, {"1 MiB", 1 << 20}} {
		what := fmt.Sprintf("%s, %s, 16 sessions", era, size.name)
		costs := b.figure("CPU a call, "+what, "µs").judge("sb / P", toProxy).atMost(1.2)
		p50 := b.figure("p50, "+what, "µs")
		p99 := b.figure("p99, "+what, "µs")
		err := b.take(ctx, s, 16, b.closed, calling(size.bytes), func(name string, t turn) {
			if name != direct {
				costs.see(name, t.each())
			}
			p50.see(name, micro(t.at(0.5)))
			p99.see(name, micro(t.at(0.99)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// open measures latency under a load that does not wait for answers.
func (b *bench) open(ctx context.Context, era string) error {
	s, err := b.with(ctx, &stage{era: era, tools: 10}, direct, proxy, naive, ours)
	if err != nil {
		return err
	}
	defer s.strike()
	const rate = 1000
	what := fmt.Sprintf("%s, 1 KiB, %d calls a second whatever happens", era, rate)
	p50 := b.figure("p50, "+what, "µs")
	p99 := b.figure("p99, "+what, "µs")
	return b.take(ctx, s, 64, func(all []*client, do action) *burst {
		return open(all, rate, b.lasting, do)
	}, calling(1<<10), func(name string, t turn) {
		p50.see(name, micro(t.at(0.5)))
		p99.see(name, micro(t.at(0.99)))
	})
}

// manyTools is how many tools a big list has.
const manyTools = 1000

// list measures tools/list of a server with many tools.
func (b *bench) list(ctx context.Context, era string) error {
	s, err := b.with(ctx, &stage{era: era, tools: manyTools}, direct, proxy, naive, ours)
	if err != nil {
		return err
	}
	defer s.strike()
	what := fmt.Sprintf("%s, tools/list of %d tools, 4 sessions", era, manyTools)
	costs := b.figure("CPU a list, "+what, "µs").judge("sb / P", toProxy).atMost(0.8)
	p50 := b.figure("p50, "+what, "µs")
	return b.take(ctx, s, 4, b.closed, listing(manyTools), func(name string, t turn) {
		if name != direct {
			costs.see(name, t.each())
		}
		p50.see(name, micro(t.at(0.5)))
	})
}

// cold measures what a client waits for until its first result: connect, open,
// list, call.
func (b *bench) cold(ctx context.Context, era string) error {
	s, err := b.with(ctx, &stage{era: era, tools: 10}, direct, proxy, naive, ours)
	if err != nil {
		return err
	}
	defer s.strike()
	p50 := b.figure("p50 of connect, open, list and one call, "+era, "µs")
	costs := b.figure("CPU of the same, and of ending, "+era, "µs")
	if era == legacy {
		p50.judge("sb / P", toProxy).atMost(0.75)
	}
	return b.take(ctx, s, 1, b.closed, coldly(s.tools, 1<<10), func(name string, t turn) {
		p50.see(name, micro(t.at(0.5)))
		if name != direct {
			costs.see(name, t.each())
		}
	})
}

// stdio measures a server on stdio behind an HTTP front.
func (b *bench) stdio(ctx context.Context, era string) error {
	s, err := b.with(ctx, &stage{era: era, tools: 10, stdio: true}, naive, ours)
	if err != nil {
		return err
	}
	defer s.strike()
	what := fmt.Sprintf("%s, 1 KiB, 16 sessions, server on stdio", era)
	rate := b.figure("calls a second, "+what, "/s").judge("sb / naive", func(at at) float64 {
		return at(ours) / at(naive)
	}).atLeast(2)
	costs := b.figure("CPU a call, "+what, "µs")
	p50 := b.figure("p50, "+what, "µs")
	return b.take(ctx, s, 16, b.closed, calling(1<<10), func(name string, t turn) {
		rate.see(name, t.perSecond())
		costs.see(name, t.each())
		p50.see(name, micro(t.at(0.5)))
	})
}

// manySessions is how many sessions are open when one is weighed.
const manySessions = 500

// memory weighs fresh processes: with few tools, with many, and with sessions.
func (b *bench) memory(ctx context.Context, era string) error {
	if era == modern {
		return nil // has no sessions, and is the same otherwise
	}
	is := func(at at) float64 { return at(ours) }
	idle := b.figure("memory, idle", "MiB").judge("sb", is).atMost(30)
	many := b.figure(fmt.Sprintf("memory, %d tools", manyTools), "MiB").judge("sb", is).atMost(45)
	session := b.figure(fmt.Sprintf("memory of each of %d sessions, connected", manySessions), "KiB").judge("sb", is).atMost(24)
	stream := b.figure("memory of each open GET stream, besides", "KiB")
	for range min(b.rounds, 3) {
		for _, name := range append([]string{proxy, naive, ours}, b.others...) {
			if err := b.weigh(ctx, name, idle, many, session, stream); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) weigh(ctx context.Context, name string, idle, many, session, stream *figure) error {
	big := &stage{era: legacy, tools: manyTools}
	if err := b.set(ctx, big, name); err != nil {
		return err
	}
	weight, err := big.contestants[0].weight()
	big.strike()
	if err != nil {
		return err
	}
	many.see(name, weight/(1<<20))

	s := &stage{era: legacy, tools: 10}
	if err := b.set(ctx, s, name); err != nil {
		return err
	}
	defer s.strike()
	c := s.contestants[0]
	before, err := c.weight()
	if err != nil {
		return err
	}
	idle.see(name, before/(1<<20))
	all, err := c.clients(manySessions)
	if err != nil {
		return err
	}
	defer end(all)
	var t tally
	for _, one := range all { // in turn, so that what is weighed is the sessions and not the crowd
		_, err := one.call(1 << 10)
		t.count(err)
	}
	b.tally(name, t)
	with, err := c.weight()
	if err != nil {
		return err
	}
	session.see(name, (with-before)/manySessions/(1<<10))
	for _, one := range all {
		w, err := one.watch()
		if err != nil {
			return nil // who has no streams has none to weigh
		}
		defer func() { _ = w.Close() }()
	}
	watched, err := c.weight()
	if err != nil {
		return err
	}
	stream.see(name, (watched-with)/manySessions/(1<<10))
	return nil
}

// weight is the contestant's resident memory once it has come to rest.
func (c *contestant) weight() (float64, error) {
	time.Sleep(300 * time.Millisecond)
	m, err := memory(c.pid)
	return float64(m), err
}

// check makes many calls of mixed sizes, only to see that each is answered
// rightly.
func (b *bench) check(ctx context.Context, era string) error {
	s, err := b.with(ctx, &stage{era: era, tools: 10}, proxy, ours)
	if err != nil {
		return err
	}
	defer s.strike()
	bad := b.figure(fmt.Sprintf("wrong, lost or cut answers of %d, %s", b.calls, era), "").
		judge("sb", func(at at) float64 { return at(ours) }).atMost(0)
	sizes := []int{10, 1 << 10, 300, 5000, 1 << 10, 100, 20 << 10, 1 << 10}
	for _, who := range s.contestants {
		all, err := who.clients(16)
		if err != nil {
			return err
		}
		t := counted(all, b.calls, func(c *client) (time.Duration, error) {
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			return c.call(sizes[c.id%len(sizes)])
		})
		end(all)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		b.tally(who.name, t.tally)
		bad.see(who.name, float64(t.bad()))
	}
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
