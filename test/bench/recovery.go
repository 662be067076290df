package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
)

// away is for how long a server is dead, and tick how often each client calls.
const (
	away = time.Second
	tick = 40 * time.Millisecond
)

// recovery measures how long after the start of a server that was killed the
// first call works again.
func (b *bench) recovery(ctx context.Context, era string) error {
	over := []string{"HTTP", "HTTP with SSE", "stdio"}
	if era == modern {
		over = over[:1]
	}
	for _, transport := range over {
		what := fmt.Sprintf("%s, over %s, killed for %s", era, transport, away)
		r := recovery{
			first:  b.figure("from the start of the server to the first good call, "+what, "ms"),
			failed: b.figure("calls that failed meanwhile, "+what, ""),
			took:   b.figure("longest wait of a call, "+what, "ms"),
			lost:   b.figure("sessions lost, "+what, "").judge("sb", only).atMost(0),
		}
		for range min(b.rounds, 3) {
			if err := b.recover(ctx, era, transport, &r); err != nil {
				return fmt.Errorf("%s: %w", transport, err)
			}
		}
	}
	return nil
}

type recovery struct{ first, failed, took, lost *figure }

// A caller makes one call after the other, and connects again where it must.
type caller struct {
	dial func() (call func() error, hangUp func(), err error)

	mu   sync.Mutex
	good []time.Time   // when calls ended well
	took time.Duration // the longest
	tally
}

// run calls until ctx ends.
func (c *caller) run(ctx context.Context) {
	var call func() error
	var hangUp func()
	defer func() {
		if hangUp != nil {
			hangUp()
		}
	}()
	for range time.Tick(tick) {
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		var err error
		if call == nil {
			call, hangUp, err = c.dial()
		}
		if err == nil {
			err = call()
		}
		c.mu.Lock()
		now := time.Now()
		c.took = max(c.took, now.Sub(began))
		if err == nil {
			c.good = append(c.good, now)
		}
		c.count(err)
		c.mu.Unlock()
		if err != nil && hangUp != nil {
			hangUp()
			call, hangUp = nil, nil
		}
	}
}

// after returns the end of the first good call after t; false where there was none.
func (c *caller) after(t time.Time) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.good {
		if g.After(t) {
			return g, true
		}
	}
	return time.Time{}, false
}

// straight is a caller that talks to the server itself.
func straight(e endpoint, name string) *caller {
	n := 0
	return &caller{dial: func() (func() error, func(), error) {
		n++
		one := newClient(e, fmt.Sprintf("%s.%d", name, n))
		if err := one.open(); err != nil {
			one.hangUp()
			return nil, nil, err
		}
		return func() error { _, err := one.call(100); return err }, one.hangUp, nil
	}}
}

// library is a caller that talks to the server by mcp-go's client.
func library(ctx context.Context, name string, connect func() (*mcpclient.Client, error)) *caller {
	n := 0
	return &caller{dial: func() (func() error, func(), error) {
		c, err := connect()
		if err != nil {
			return nil, nil, err
		}
		hangUp := func() { _ = c.Close() } // it is of no use any more
		hello := mcp.InitializeRequest{}
		hello.Params.ProtocolVersion = legacyVersion
		hello.Params.ClientInfo = mcp.Implementation{Name: "direct", Version: "1"}
		short, cancel := context.WithTimeout(ctx, away)
		defer cancel()
		if _, err := c.Initialize(short, hello); err != nil {
			hangUp()
			return nil, nil, err
		}
		return func() error {
			n++
			short, cancel := context.WithTimeout(ctx, away)
			defer cancel()
			q := mcp.CallToolRequest{}
			q.Params.Name = echo
			q.Params.Arguments = map[string]any{"nonce": nonce(name, n), "size": 100}
			_, err := c.CallTool(short, q)
			return err
		}, hangUp, nil
	}}
}

// through is a caller that keeps its session for the whole measurement.
func through(one *client) *caller {
	c := &caller{}
	c.dial = func() (func() error, func(), error) {
		return func() error {
			_, err := one.call(100)
			return err
		}, func() {}, nil
	}
	return c
}

// recover kills a server once, and starts it again.
func (b *bench) recover(ctx context.Context, era, transport string, r *recovery) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := os.MkdirTemp(b.dir, "")
	if err != nil {
		return err
	}
	var server behind
	var kill, again func() error
	var straights []*caller
	if transport == "stdio" {
		command := []string{b.self, "backend", "-era", era, "-stdio", "-nursery", dir}
		server = behind{"bench", fmt.Sprintf("{transport: stdio, share: all, trust: operator, command: [%s]}", strings.Join(quoted(command), ", "))}
		kill, again = nursery(dir).kill, nursery(dir).open
		straights = append(straights, library(ctx, "direct", func() (*mcpclient.Client, error) {
			return mcpclient.NewStdioMCPClient(command[0], nil, command[1:]...)
		}))
	} else {
		args := []string{"-era", era}
		if transport == "HTTP with SSE" {
			args = append(args, "-sse")
		}
		l, err := b.live(ctx, args...)
		if err != nil {
			return err
		}
		defer func() { l.stop() }()
		server = overHTTP("bench", l.address, "")
		kill, again = l.kill, l.again
		at, err := url.Parse(l.address)
		if err != nil {
			return err
		}
		for i := range 4 {
			name := fmt.Sprintf("direct%d", i)
			if transport == "HTTP" {
				straights = append(straights, straight(endpoint{era: era, url: at}, name))
				continue
			}
			straights = append(straights, library(ctx, name, func() (*mcpclient.Client, error) {
				c, err := mcpclient.NewSSEMCPClient(at.String())
				if err != nil {
					return nil, err
				}
				return c, c.Start(ctx)
			}))
		}
	}
	sb, err := b.switchboardBefore(ctx, ours, era, "", server)
	if err != nil {
		return err
	}
	defer sb.stop()
	clients, err := sb.clients(4)
	if err != nil {
		return err
	}
	defer end(clients)
	b.tally(ours, closed(clients, 0, calling(100)).tally)
	var throughs []*caller
	for _, one := range clients {
		throughs = append(throughs, through(one))
	}
	var work sync.WaitGroup
	calling, enough := context.WithCancel(ctx)
	defer work.Wait()
	defer enough()
	for _, c := range append(straights, throughs...) {
		work.Go(func() { c.run(calling) })
	}
	time.Sleep(300 * time.Millisecond)
	if err := kill(); err != nil {
		return err
	}
	time.Sleep(away)
	began := time.Now()
	if err := again(); err != nil {
		return err
	}
	for name, callers := range map[string][]*caller{direct: straights, ours: throughs} {
		first := time.Duration(0)
		lost := 0
		for _, c := range callers {
			at, ok := c.waitFor(began, 20*time.Second)
			if !ok {
				lost++
				continue
			}
			first = cmp.Or(min(cmp.Or(first, time.Hour), at.Sub(began)), 1)
		}
		r.first.see(name, micro(first)/1000)
		if name == ours {
			r.lost.see(ours, float64(lost))
		}
	}
	enough()
	work.Wait()
	for name, callers := range map[string][]*caller{direct: straights, ours: throughs} {
		failed, took := 0, time.Duration(0)
		for _, c := range callers {
			failed += c.lost
			took = max(took, c.took)
			b.tally(name, c.expected())
		}
		r.failed.see(name, float64(failed)/float64(len(callers)))
		r.took.see(name, micro(took)/1000)
	}
	return nil
}

// waitFor waits for the first good call after t.
func (c *caller) waitFor(t time.Time, patience time.Duration) (time.Time, bool) {
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if at, ok := c.after(t); ok {
			return at, true
		}
	}
	return time.Time{}, false
}
