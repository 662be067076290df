package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/test/officer"
)

const (
	soakRate    = 200              // calls a second, besides what churn makes
	sampleEvery = 10 * time.Second // or a sixtieth of the time, where that is less
	lastTries   = 90               // of one a second: a session makes room for another once it has been idle for a minute
	warm        = 0.5              // of the time is not judged: what is kept for some minutes has yet to fill up
)

// soak has Switchboard serve for long while all that can come and go does, and
// looks whether it grows.
func (b *bench) soak(ctx context.Context, _ string) error {
	dir, err := os.MkdirTemp(b.dir, "")
	if err != nil {
		return err
	}
	old, err := b.live(ctx, "-era", legacy, "-tools", "1", "-first", "old")
	if err != nil {
		return err
	}
	defer func() { old.stop() }()
	young, err := b.live(ctx, "-era", modern, "-tools", "1", "-first", "young")
	if err != nil {
		return err
	}
	defer func() { young.stop() }()
	sse, err := b.live(ctx, "-sse", "-tools", "1", "-first", "sse")
	if err != nil {
		return err
	}
	defer func() { sse.stop() }()
	piped := nursery(dir)
	command := []string{b.self, "backend", "-stdio", "-nursery", dir, "-tools", "2", "-first", "piped", "-changing", "5s"}
	sb, err := b.switchboardBefore(ctx, ours, legacy, "",
		overHTTP("old", old.address, ", share: all, timeout: 2s"),
		overHTTP("young", young.address, ", share: all, timeout: 2s"),
		overHTTP("sse", sse.address, ", share: all, timeout: 2s"),
		behind{"piped", fmt.Sprintf("{transport: stdio, share: all, trust: operator, command: [%s]}", strings.Join(quoted(command), ", "))})
	if err != nil {
		return err
	}
	defer sb.stop()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over, enough := context.WithTimeout(ctx, b.soaking)
	defer enough()
	var seen sync.Map // of *tally by what it is of
	count := func(what string, err error) {
		if over.Err() != nil {
			return // the end cuts some
		}
		got, _ := seen.LoadOrStore(what, &sharedTally{})
		got.(*sharedTally).count(err)
	}
	var work sync.WaitGroup
	tools := []string{"old", "young", "sse", "piped"}
	again := func(every time.Duration, do func(i int)) {
		work.Go(func() {
			for i := 0; over.Err() == nil; i++ {
				began := time.Now()
				do(i)
				wait(over, every-time.Since(began))
			}
		})
	}
	visitor := func(i int) endpoint {
		e := sb.endpoint
		e.era = []string{legacy, modern}[i%2]
		return e
	}

	// The steady load: clients that stay.
	const steady = 20
	for n := range steady {
		one, err := sb.client(visitor(n), fmt.Sprintf("steady%d", n))
		if err != nil {
			return err
		}
		defer one.end()
		again(time.Second*steady/soakRate, func(i int) {
			one.tool = tools[(n+i)%len(tools)]
			_, err := one.call([]int{100, 1 << 10, 8 << 10}[i%3])
			count("steady", err)
		})
	}
	// Clients that come, look about and go. Those with a session leave it behind: so
	// many that after two minutes there are as many as one key may have.
	again(200*time.Millisecond, func(i int) {
		one := newClient(visitor(i), fmt.Sprintf("visitor%d", i))
		err := one.open()
		if err == nil {
			_, err = one.ask("tools/list", "", "")
		}
		if err == nil {
			one.tool = tools[i%len(tools)]
			_, err = one.call(1 << 10)
		}
		count("visits", err)
		one.hangUp()
	})
	// Calls that are given up: by hanging up, and by saying so.
	again(250*time.Millisecond, func(i int) {
		one := newClient(visitor(i), fmt.Sprintf("hasty%d", i))
		if one.open() != nil {
			return
		}
		one.tool = tools[i%3]
		hurry := time.AfterFunc(time.Duration(rand.N(3000))*time.Microsecond, one.interrupt)
		_, _ = one.call(256 << 10) // to be given up is what it is for
		if !hurry.Stop() && i%4 < 2 {
			other := newClient(one.endpoint, one.name)
			other.session = one.session
			_ = other.cancel(one.id) // and that may come late
			other.hangUp()
		}
		one.end()
	})
	// Readers of large results who take their time.
	again(500*time.Millisecond, func(i int) {
		one := newClient(visitor(i), fmt.Sprintf("slow%d", i))
		one.tool = tools[i%3]
		one.slow = 64 << 10
		err := one.open()
		if err == nil {
			_, err = one.call(2 << 20)
		}
		count("slow readers", err)
		one.end()
	})
	// Streams for notifications of changes that the clients do not read.
	again(time.Second, func(i int) {
		e := visitor(0)
		one := newClient(e, fmt.Sprintf("listener%d", i))
		if one.open() != nil {
			return
		}
		w, err := one.watch()
		if err == nil {
			wait(over, 5*time.Second)
			err = w.Close()
		}
		count("streams", err)
		one.end()
	})
	// Servers that die, and hang.
	kill := []func() error{old.kill, young.kill, sse.kill, piped.kill, old.hang}
	revive := []func() error{old.again, young.again, sse.again, piped.open, old.wake}
	var broken error
	again(7*time.Second, func(i int) {
		wait(over, 4*time.Second)
		i %= len(kill)
		if broken != nil || over.Err() != nil {
			return
		}
		if broken = kill[i](); broken == nil {
			wait(over, 2500*time.Millisecond)
			broken = revive[i]()
		}
	})

	samples, err := b.watchOver(over, sb)
	enough()
	work.Wait()
	if err == nil {
		err = broken
	}
	if err != nil || ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	b.flat(samples)
	for _, what := range []string{"steady", "visits", "slow readers", "streams"} {
		t, _ := seen.LoadOrStore(what, &sharedTally{})
		all := &t.(*sharedTally).tally
		b.figure("soak, "+what+": right", "").see(ours, float64(all.right))
		b.figure("soak, "+what+": failed, as some must", "").see(ours, float64(all.lost))
		if all.first != nil {
			fmt.Fprintf(b.log, "bench: soak, %s: the first that was not right: %.300v\n", what, all.first)
		}
		b.tally(ours, all.expected())
	}
	// What has been through all that serves as ever.
	for _, tool := range tools {
		one, err := sb.client(sb.endpoint, "last-"+tool)
		for left := lastTries; left > 0 && errors.Is(err, errLost); left-- { // visitors have left as many sessions as one key may have
			wait(ctx, time.Second)
			one, err = sb.client(sb.endpoint, "last-"+tool)
		}
		if err != nil {
			return err
		}
		one.tool = tool
		for range 200 {
			if _, err = one.call(1 << 10); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		b.tally(ours, counted([]*client{one}, 10, calling(1<<10)).tally)
		one.end()
	}
	return nil
}

// A sharedTally is one that several count in.
type sharedTally struct {
	mu sync.Mutex
	tally
}

func (t *sharedTally) count(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tally.count(err)
}

// wait waits, but not beyond the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// A sample is what a process had at one moment.
type sample struct {
	at   time.Duration
	have map[string]float64 // by what it is
}

// What is sampled, and by how much of itself each may be more in the last third of
// what is judged than in the first.
var sampled = []struct {
	what, unit string
	more       float64
}{
	{"resident", "MiB", 0.1},
	{"threads", "", 0.25},
	{"descriptors", "", 0.1},
	{"goroutines", "", 0.1},
	{"heap in use", "MiB", 0.25},
	{"heap that survives", "MiB", 0.1},
	{"processes below", "", 0.1},
}

// watchOver samples the contestant until ctx ends.
func (b *bench) watchOver(ctx context.Context, c *contestant) (all []sample, err error) {
	every := min(sampleEvery, b.soaking/60)
	began := time.Now()
	for {
		wait(ctx, every)
		if ctx.Err() != nil {
			return all, nil
		}
		have, err := c.sample(ctx)
		if ctx.Err() != nil {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		s := sample{time.Since(began), have}
		all = append(all, s)
		var line strings.Builder
		for _, x := range sampled {
			if v, ok := s.have[x.what]; ok {
				fmt.Fprintf(&line, ", %s %s", x.what, number(v))
			}
		}
		fmt.Fprintf(b.log, "bench: soak: %s%s\n", s.at.Round(time.Second), &line)
	}
}

// sample looks at the process from outside, and at its metrics.
func (c *contestant) sample(ctx context.Context) (map[string]float64, error) {
	have := map[string]float64{}
	resident, _, threads, err := vitals(c.pid)
	if err != nil {
		return nil, err
	}
	have["resident"], have["threads"] = float64(resident)/(1<<20), float64(threads)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.pid))
	if err != nil {
		return nil, err
	}
	have["descriptors"] = float64(len(files))
	have["processes below"] = float64(below(c.pid))
	text, err := officer.ReadAs(ctx, c.person, c.admin+"/metrics")
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		v, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
		case name == "go_goroutines":
			have["goroutines"] = v
		case name == "go_memstats_heap_inuse_bytes":
			have["heap in use"] = v / (1 << 20)
		case name == "go_memstats_next_gc_bytes": // twice what the last collection has left
			have["heap that survives"] = v / 2 / (1 << 20)
		}
	}
	return have, lines.Err()
}

// flat judges the samples.
func (b *bench) flat(all []sample) {
	judged := all[int(warm*float64(len(all))):]
	for _, x := range sampled {
		var at, values []float64
		for _, s := range judged {
			if v, ok := s.have[x.what]; ok {
				at, values = append(at, s.at.Minutes()), append(values, v)
			}
		}
		if len(values) < 3 {
			continue
		}
		third := len(values) / 3
		start, _, _ := median(values[:third])
		end, _, _ := median(values[len(values)-third:])
		b.figure("soak, "+x.what+": at the start", x.unit).see(ours, start)
		b.figure("soak, "+x.what+": at the end", x.unit).see(ours, end)
		b.figure("soak, "+x.what+": slope a minute", x.unit).see(ours, slope(at, values))
		b.figure("soak, "+x.what+": the last third to the first", "").judge("sb", only).atMost(1+x.more).see(ours, end/start)
	}
}

// slope returns the slope of the line that fits best.
func slope(x, y []float64) float64 {
	n := float64(len(x))
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	if d := n*sxx - sx*sx; d != 0 {
		return (n*sxy - sx*sy) / d
	}
	return math.NaN()
}

// interrupt closes the client's connection during its request.
func (c *client) interrupt() {
	if conn := c.dialled.Load(); conn != nil {
		_ = (*conn).Close()
	}
}

// cancel says that the request is not wanted any more.
func (c *client) cancel(id int) error {
	_, err := c.post(c.session, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+strconv.Itoa(id)+`}}`)
	return err
}

// A slowReader reads so many bytes at a time, and then rests.
type slowReader struct {
	net.Conn
	bytes int
}

// Read reads a little.
func (r slowReader) Read(p []byte) (int, error) {
	time.Sleep(50 * time.Millisecond)
	return r.Conn.Read(p[:min(len(p), r.bytes)])
}
