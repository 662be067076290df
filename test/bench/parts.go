package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/test/large"
)

// A bench is one run of the benchmark.
type bench struct {
	arena
	rounds  int
	lasting time.Duration
	calls   int
	soaking time.Duration
	size    large.Installation // of the part "admin"
	folder  string             // of that installation; "" is a new one
	others  []string           // further binaries of Switchboard
	among   []string           // the only contestants of the part "calls"; none means all
	log     io.Writer

	figures []*figure
	tallies map[string]*tally // of all answers, by contestant
}

// parts are what can be measured, each in both eras, or in legacy alone if both are in it or make no difference.
var parts = []struct {
	name string
	run  func(b *bench, ctx context.Context, era string) error
	once bool
}{
	{"calls", (*bench).oneCall, false},
	{"large", (*bench).large, false},
	{"open", (*bench).open, false},
	{"list", (*bench).list, false},
	{"cold", (*bench).cold, false},
	{"stdio", (*bench).stdio, false},
	{"memory", (*bench).memory, true},
	{"start", (*bench).start, true},
	{"completion", (*bench).completion, true},
	{"check", (*bench).check, false},
	{"failover", (*bench).failover, false},
	{"fallback", (*bench).fallback, false},
	{"hung", (*bench).hung, false},
	{"neighbors", (*bench).neighbors, false},
	{"recovery", (*bench).recovery, false},
	{"search", (*bench).search, true},
	{"tokens", (*bench).tokens, false},
	{"state", (*bench).state, false},
	{"folding", (*bench).folding, false},
	{"admin", (*bench).admin, true},
	{"page", (*bench).page, true},
	{soaking, (*bench).soak, true},
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
// turn in every round. Each begins with a warm-up that does not count: a process that
// was idle while others had their turn has closed connections and released memory, and
// gets the memory back page by page.
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

// warmShare is how many times longer a turn is than its warm-up, in which every session does the thing at least once.
const warmShare = 3

// rotate is take with sessions that are open already.
func (b *bench) rotate(ctx context.Context, s *stage, clients map[*contestant][]*client, load func([]*client, action) *burst, do action, see func(name string, t turn)) error {
	for r := range b.rounds {
		order := rand.New(rand.NewPCG(1, uint64(r))).Perm(len(s.contestants)) // so that none always follows the same one
		for _, i := range order {
			c := s.contestants[i]
			if err := ctx.Err(); err != nil {
				return err
			}
			b.tally(c.name, closed(clients[c], b.lasting/warmShare, do).tally)
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

// oneCall measures calls with a result of 1 KiB: what a call costs that reads, and one that has an effect.
func (b *bench) oneCall(ctx context.Context, era string) error {
	names := []string{direct, proxy, untuned, floor, synced, naive, ours, ours + again, ours + effects, ours + newcomer, ours + keeper, ours + header, ours + hosted}
	for _, other := range b.others {
		names = append(names, other, other+effects, other+newcomer, other+keeper)
	}
	if len(b.among) > 0 {
		for _, name := range b.among {
			if !slices.Contains(names, name) {
				return fmt.Errorf("-among: %q is none of %q", name, names)
			}
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(b.among, name) })
	}
	s := &stage{era: era, tools: 10}
	if err := b.set(ctx, s, names...); err != nil {
		return err
	}
	defer s.strike()
	for _, sessions := range []int{1, 16, 64} {
		what := fmt.Sprintf("%s, 1 KiB, %s", era, plural(sessions, "session"))
		costs := b.figure("CPU a call, "+what, "µs")
		rate := b.figure("calls a second, "+what, "/s")
		p50 := b.figure("p50, "+what, "µs")
		p99 := b.figure("p99, "+what, "µs")
		turns := s
		if sessions == 1 {
			p50.judge("added, sb / P", func(at at) float64 {
				return (at(ours) - at(direct)) / (at(proxy) - at(direct))
			}).atMost(1.1)
			b.judgeWaits(p50)
			p50.inTable(era, "p50, 1 session")
		} else {
			turns = s.without(synced) // each of many calls would wait for those before it
		}
		if sessions == 16 {
			costs.judge("sb / P", ratio(ours, proxy)).atMost(1)
			costs.judge("sb effects / P", ratio(ours+effects, proxy)).atMost(1.5)
			costs.judge("sb default / P", ratio(ours+newcomer, proxy)).atMost(1.5)
			costs.judge("sb default file / P", ratio(ours+keeper, proxy)).atMost(1.5)
			costs.inTable(era, "CPU, 16 sessions")
			p50.inTable(era, "p50, 16 sessions")
		}
		if sessions <= 16 {
			for _, f := range []*figure{costs, p50} {
				f.compare("noise, sb again / sb", ratio(ours+again, ours))
				f.compare("sb hosted / sb header", ratio(ours+hosted, ours+header))
				for _, other := range b.others {
					for _, way := range []string{"", effects, newcomer, keeper} {
						f.compare(fmt.Sprintf("sb%s / %s%s", way, other, way), ratio(ours+way, other+way))
					}
				}
			}
		}
		err := b.take(ctx, turns, sessions, b.closed, calling(1<<10), func(name string, t turn) {
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

// maxBeyondSync is how much longer than one sync a call with an effect may wait, in microseconds.
const maxBeyondSync = 60

// judgeWaits compares the added wait of a call with an effect with that of a sync, both in the p50 of one session. The former is the difference of two
// Switchboards: the calls of one read, the calls of the other have an effect. The latter is the difference of two relays: one appends two entries to
// a file and has them on the disk before it forwards a call. Processors and disk rest between the calls of both alike.
func (b *bench) judgeWaits(p50 *figure) {
	sync := difference(synced, floor)
	p50.compare("a sync: relay synced - relay", sync)
	for _, name := range append([]string{ours}, b.others...) {
		wait := difference(name+effects, name)
		p50.compare(fmt.Sprintf("added wait: %s%s - %s", name, effects, name), wait)
		for _, way := range []string{newcomer, keeper} { // without keys and limits, so that less of it is a wait for the disk than it seems
			p50.compare(fmt.Sprintf("more than a call that reads: %s%s - %s", name, way, name), difference(name+way, name))
		}
		beyond := func(at at) float64 { return wait(at) - sync(at) }
		if as := fmt.Sprintf("added wait of %s%s, without a sync", name, effects); name == ours {
			p50.judge(as, beyond).atMost(maxBeyondSync)
		} else {
			p50.compare(as, beyond)
		}
	}
}

// without returns the stage without the contestant. It shares the others, and does not end them.
func (s *stage) without(name string) *stage {
	less := *s
	less.contestants = slices.DeleteFunc(slices.Clone(s.contestants), func(c *contestant) bool { return c.name == name })
	return &less
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
		costs := b.figure("CPU a call, "+what, "µs").judge("sb / P", ratio(ours, proxy)).atMost(1.2)
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
	costs := b.figure("CPU a list, "+what, "µs").judge("sb / P", ratio(ours, proxy)).atMost(0.8)
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
		p50.judge("sb / P", ratio(ours, proxy)).atMost(0.75)
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
func (b *bench) memory(ctx context.Context, _ string) error {
	is := func(at at) float64 { return at(ours) }
	idle := b.figure("memory, idle", "MiB").judge("sb", is).atMost(30)
	many := b.figure(fmt.Sprintf("memory, %d tools", manyTools), "MiB").judge("sb", is).atMost(40)
	session := b.figure(fmt.Sprintf("memory of each of %d sessions, connected", manySessions), "KiB").judge("sb", is).atMost(24)
	w := weights{
		idle: idle, idleOwn: b.figure("memory, idle, without pages of files", "MiB"),
		many: many, manyOwn: b.figure(fmt.Sprintf("memory, %d tools, without pages of files", manyTools), "MiB"),
		session: session, stream: b.figure("memory of each open GET stream, besides", "KiB"),
	}
	for range min(b.rounds, 3) {
		for _, name := range append([]string{proxy, untuned, floor, naive, ours}, b.others...) {
			if err := b.weigh(ctx, name, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// weights are the figures of the part memory.
type weights struct{ idle, idleOwn, many, manyOwn, session, stream *figure }

func (b *bench) weigh(ctx context.Context, name string, f weights) error {
	big := &stage{era: legacy, tools: manyTools}
	if err := b.set(ctx, big, name); err != nil {
		return err
	}
	resident, own, err := big.contestants[0].weight()
	big.strike()
	if err != nil {
		return err
	}
	f.many.see(name, resident/(1<<20))
	f.manyOwn.see(name, own/(1<<20))

	s := &stage{era: legacy, tools: 10}
	if err := b.set(ctx, s, name); err != nil {
		return err
	}
	defer s.strike()
	c := s.contestants[0]
	resident, before, err := c.weight()
	if err != nil {
		return err
	}
	f.idle.see(name, resident/(1<<20))
	f.idleOwn.see(name, before/(1<<20))
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
	_, with, err := c.weight()
	if err != nil {
		return err
	}
	f.session.see(name, (with-before)/manySessions/(1<<10))
	for _, one := range all {
		w, err := one.watch()
		if err != nil {
			return nil // who has no streams has none to weigh
		}
		defer func() { _ = w.Close() }()
	}
	_, watched, err := c.weight()
	if err != nil {
		return err
	}
	f.stream.see(name, (watched-with)/manySessions/(1<<10))
	return nil
}

// weight returns the contestant's resident memory at rest, and the part of it that is not pages of files. Sessions are
// weighed by that part, because their calls also bring back pages of the program.
func (c *contestant) weight() (resident, own float64, err error) {
	time.Sleep(2 * time.Second)
	r, o, err := memory(c.pid)
	return float64(r), float64(o), err
}

// start measures how long a Switchboard without servers takes until it is ready: from the moment before its process exists, until it has printed
// its address and has answered /healthz with 200. Its folder is empty except for the configuration, so it makes its store and its keys too.
func (b *bench) start(ctx context.Context, _ string) error {
	took := b.figure("start to ready, no servers", "ms").judge("sb", func(at at) float64 { return at(ours) }).atMost(60)
	for range b.rounds {
		for _, name := range append([]string{ours}, b.others...) {
			p, err := b.serve(ctx, name, map[string]string{"switchboard.yaml": "servers: {}\ntenants:\n  default: {servers: []}\n"})
			if err != nil {
				return err
			}
			err = healthy(ctx, p.address)
			ready := time.Since(p.began)
			p.stop()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			took.see(name, milli(ready))
		}
	}
	return nil
}

// healthy returns an error unless the Switchboard with that address answers /healthz with 200.
func healthy(ctx context.Context, address string) error { return answersWell(ctx, address, "/healthz") }

// answersWell returns an error unless the Switchboard with that address answers the path with 200.
func answersWell(ctx context.Context, address, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/mcp")+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // its text does not matter
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return nil
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
