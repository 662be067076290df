package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/summit-switchboard/switchboard/test/storm"
)

// The baselines of a noisy neighbor: the same storm at a server that does nothing, twice, so that the second says what is noise.
const (
	aside      = "storm aside"
	asideAgain = "storm aside, again"
)

// stormLasts is how long a storm blows in each round. It begins stormGrows before anything is measured, and calls that hang have ended stormEnds later.
const (
	stormLasts = 4 * time.Second
	stormGrows = time.Second
	stormEnds  = 5 * time.Second
)

// runStorm is the life of a part of the storm: its server, the server that does nothing, or the clients that attack.
func runStorm(ctx context.Context, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "server":
		return listen(ctx, "127.0.0.1:0", storm.Server())
	case len(args) == 1 && args[0] == "null":
		return listen(ctx, "127.0.0.1:0", storm.Null())
	case len(args) == 3 && args[0] == "at":
		fmt.Println("it blows")
		(&storm.Storm{Address: args[1], Key: args[2]}).Run(ctx)
		return nil
	}
	return errors.New("want: storm server, storm null, or storm at ADDRESS KEY")
}

// neighbors measures the calls of a tenant while another tenant does the worst that it can, at Switchboard or at a server that does nothing.
func (b *bench) neighbors(ctx context.Context, era string) error {
	var stops []func()
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	begin := func(args ...string) (string, error) {
		p, err := start(ctx, "", b.self, args...)
		if err != nil {
			return "", err
		}
		stops = append(stops, p.stop)
		return p.address, nil
	}
	good, err := begin("backend", "-era", era, "-tools", "10")
	if err != nil {
		return err
	}
	bad, err := begin("storm", "server")
	if err != nil {
		return err
	}
	null, err := begin("storm", "null")
	if err != nil {
		return err
	}
	ask := func(bad string) (c *contestant, stormy string, clients []*client, err error) {
		files, stormy, key := storm.Files(bad, good)
		p, err := b.serve(ctx, ours, files)
		if err != nil {
			return nil, "", nil, err
		}
		stops = append(stops, p.stop)
		c = &contestant{name: ours, endpoint: endpoint{era: era, key: key}, pid: p.pid, side: p.side}
		if c.url, err = url.Parse(p.address); err != nil {
			return nil, "", nil, err
		}
		if err := c.awake(10); err != nil {
			return nil, "", nil, err
		}
		clients, err = c.clients(2)
		return c, stormy, clients, err
	}
	stormed, stormy, clients, err := ask(bad)
	if err != nil {
		return err
	}
	defer end(clients)
	_, _, calmClients, err := ask("")
	if err != nil {
		return err
	}
	defer end(calmClients)

	what := "a neighbor's call, " + era
	p50 := b.figure("p50 of "+what, "ms")
	p99 := b.figure("p99 of "+what, "ms").judge("sb / storm aside", func(at at) float64 { return at(ours) / at(aside) }).atMost(2)
	noise := b.figure("p99 of "+what+", noise", "").judge("storm aside, again / storm aside", func(at at) float64 { return at(asideAgain) / at(aside) }).atMost(2)
	refused := b.figure("calls of a neighbor that are not answered, "+era, "").judge("sb", func(at at) float64 { return at(ours) }).atMost(0)
	for range b.rounds {
		for _, at := range []struct {
			name, address string
			clients       []*client
		}{{aside, null, calmClients}, {ours, "http://" + stormed.url.Host, clients}, {asideAgain, null, calmClients}} {
			burst, err := b.besideStorm(ctx, at.address, stormy, at.clients)
			if err != nil {
				return err
			}
			b.tally(at.name, burst.tally)
			p50.see(at.name, milli(burst.at(0.5)))
			p99.see(at.name, milli(burst.at(0.99)))
			refused.see(at.name, float64(burst.bad()))
		}
		noise.see(ours, 1) // is judged by what p99 saw
		noise.values[aside], noise.values[asideAgain] = p99.values[aside], p99.values[asideAgain]
	}
	return nil
}

// besideStorm has the clients make calls while a storm blows at the address.
func (b *bench) besideStorm(ctx context.Context, address, key string, clients []*client) (*burst, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	blows, err := start(ctx, "", b.self, "storm", "at", at.Host, key)
	if err != nil {
		return nil, err
	}
	time.Sleep(stormGrows)
	got := closed(clients, stormLasts, calling(1<<10))
	blows.stop()
	time.Sleep(stormEnds)
	return got, nil
}

func milli(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
