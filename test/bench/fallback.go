package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/test/fault"
)

// turnTime is the pause of an agent between two calls, and fallbackTime the length of its conversation.
const (
	turnTime     = 100 * time.Millisecond
	fallbackTime = 15 * time.Second
)

// failures lists the ways to fail.
var failures = []struct {
	name  string
	stdio bool
	kind  fault.Kind // of the requests, over HTTP
}{
	{"stdio, killed", true, ""},
	{"stdio, hung", true, ""},
	{"HTTP, port refuses", false, fault.Refuse},
	{"HTTP, hung", false, fault.HangBefore},
	{"HTTP, 503", false, fault.Status503},
	{"HTTP, answers cut", false, fault.ResetAfter},
}

// fallback measures a client that calls and never lists again. The server of its tool fails, and another server has the same tool. The figures are the
// failed calls, and the time until the other server answers.
func (b *bench) fallback(ctx context.Context, era string) error {
	for _, f := range failures {
		for _, trust := range []string{"declared", "operator"} {
			what := fmt.Sprintf("%s, %s, trust: %s", era, f.name, trust)
			failed := b.figure("failed calls of a client, "+what, "")
			after := b.figure("until the other server serves, "+what, "s")
			for _, name := range append([]string{ours}, b.others...) {
				n, took, err := b.fallBack(ctx, name, era, trust, f.stdio, f.kind, strings.HasSuffix(f.name, "killed"))
				if err != nil {
					return fmt.Errorf("%s, %s: %w", name, what, err)
				}
				failed.see(name, float64(n))
				after.see(name, took.Seconds())
			}
		}
	}
	return nil
}

// fallBack has a client of the binary with that name call until its server has failed and another one serves. It
// gives fallbackTime where none does.
func (b *bench) fallBack(ctx context.Context, name, era, trust string, stdio bool, kind fault.Kind, killed bool) (failed int, took time.Duration, err error) {
	second, err := b.live(ctx, "-era", era, "-tools", "1")
	if err != nil {
		return 0, 0, err
	}
	defer func() { second.stop() }()
	var at string
	var fail func() error
	if stdio {
		at, fail, err = b.failingOnStdio(era, killed)
	} else {
		var stop func()
		at, fail, stop, err = b.failingOverHTTP(ctx, era, kind)
		defer stop()
	}
	if err != nil {
		return 0, 0, err
	}
	p, err := b.serve(ctx, name, map[string]string{
		"switchboard.yaml": fmt.Sprintf("servers:\n  first: {%s, trust: %s, timeout: 1s}\n  second: {transport: http, url: %q, trust: %s, timeout: 1s}\n", at, trust, second.address, trust) +
			"tenants:\n  default: {servers: [first, second]}\n",
		"tenants/default/tenant.yaml":     "tenant: default\ndefault_task: look\nranking: {prefer: [{verb: search, resource: internet, servers: [first, second]}]}\n",
		"tenants/default/tasks/look.yaml": "task_id: look\nrequired_capabilities:\n  - {verb: search, resource: internet}\n",
	})
	if err != nil {
		return 0, 0, err
	}
	defer p.stop()
	c := &contestant{name: name, endpoint: endpoint{era: era}}
	if c.url, err = url.Parse(p.address); err != nil {
		return 0, 0, err
	}
	one, err := c.client(c.endpoint, "agent")
	if err != nil {
		return 0, 0, err
	}
	defer one.end()
	if _, err := one.list(1); err != nil {
		return 0, 0, err
	}
	for range 5 {
		if _, err := one.call(100); err != nil {
			return 0, 0, fmt.Errorf("before anything fails: %w", err)
		}
	}
	if err := fail(); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for {
		_, err := one.call(100)
		if err == nil {
			return failed, time.Since(began), nil
		}
		failed++
		if time.Since(began) > fallbackTime {
			return failed, fallbackTime, nil
		}
		time.Sleep(turnTime)
	}
}

// failingOverHTTP starts a server that fails in that way once it is told to, for good.
func (b *bench) failingOverHTTP(ctx context.Context, era string, kind fault.Kind) (at string, fail func() error, stop func(), err error) {
	server, err := b.live(ctx, "-era", era, "-tools", "1")
	if err != nil {
		return "", nil, func() {}, err
	}
	transport := fault.Legacy
	if era == modern {
		transport = fault.Modern
	}
	before, err := fault.NewHTTP(transport, server.address, nil)
	if err != nil {
		server.stop()
		return "", nil, func() {}, err
	}
	fail = func() error {
		if kind == fault.Refuse {
			before.Arm(fault.Order{Kind: kind})
			return nil
		}
		for _, method := range []string{"", "ping", "tools/list", "server/discover", "initialize"} {
			before.Arm(fault.Order{Kind: kind, Method: method})
		}
		return nil
	}
	return fmt.Sprintf("transport: http, url: %q", before.URL), fail, func() { before.Disarm(); before.Close(); server.stop() }, nil
}

// failingOnStdio gives the command of a server that is killed, and cannot start again, or does nothing any more once
// it is told to.
func (b *bench) failingOnStdio(era string, killed bool) (at string, fail func() error, err error) {
	dir, err := os.MkdirTemp(b.dir, "")
	if err != nil {
		return "", nil, err
	}
	command := quoted([]string{b.self, "backend", "-stdio", "-era", era, "-tools", "1", "-nursery", dir})
	at = "transport: stdio, command: [" + strings.Join(command, ", ") + "]"
	if killed {
		return at, nursery(dir).kill, nil
	}
	return at, nursery(dir).hang, nil
}
