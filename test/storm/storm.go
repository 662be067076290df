// Package storm is a tenant that attacks its neighbors: it runs the abuse cases RX-01, RX-04, RX-06, RX-08, RX-09, RX-10 and JS-13 of docs/threats.md
// at the same time, with one key, and with servers of its own. Tests and benchmarks call another tenant's server meanwhile.
package storm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
)

// Sizes of the attack.
const (
	unfinished = 100     // requests that announce a body of bodySize and hold back its last byte
	bodySize   = 4 << 20 // bytes; the largest body that Switchboard reads
	unread     = 20      // answers of Big bytes that are not read
	hanging    = 400     // calls that their server does not answer
	flooded    = 4       // calls that send floodOf notifications each
	costly     = 32      // calls with patternText bytes for the tenant's regular expression
	idle       = 300     // connections with a stream that is not used

	bigResult   = 12 << 20
	floodOf     = 20_000
	patternText = 1_000_000

	hold = 5 * time.Second // how long a client waits for an answer or keeps one unread
)

// Files are a configuration with two tenants: "stormy" has the server at badURL (Server) and a program that writes bytes without a line break;
// "calm" has the server at goodURL. If badURL is "", the first tenant has no server. The default task of each names all its tools. stormyKey and
// calmKey are their API keys.
func Files(badURL, goodURL string) (files map[string]string, stormyKey, calmKey string) {
	stormyKey, stormyHash := identity.Mint(identity.AgentPrefix)
	calmKey, calmHash := identity.Mint(identity.AgentPrefix)
	tenant := func(id, hash string) string {
		return fmt.Sprintf("tenant: %s\ndefault_task: all\nlimits: [{match: {constraint: rate_limited}, rate: 1000000/s, burst: 1000000}]\nkeys:\n  - {id: one, hash: %q}\n", id, hash)
	}
	bad, theirs := "", ""
	if badURL != "" {
		bad = fmt.Sprintf("  bad: {transport: http, url: %q, timeout: 4s}\n  babble: {transport: stdio, command: [cat, /dev/zero]}\n", badURL)
		theirs = "bad, babble"
	}
	const all = "task_id: all\nrequired_capabilities:\n  - {tools: [\"*/*\"]}\n"
	return map[string]string{
		"switchboard.yaml": fmt.Sprintf(`start_deadline: 30s
servers:
%s  good: {transport: http, url: %q}
tenants:
  stormy: {servers: [%s], allow: [by_name]}
  calm: {servers: [good], allow: [by_name]}
`, bad, goodURL, theirs),
		"tenants/stormy/tenant.yaml":    tenant("stormy", stormyHash),
		"tenants/stormy/tasks/all.yaml": all,
		"tenants/stormy/policies/own.rego": `package switchboard.tenant
allowed_tools contains c.id if { some c in input.candidate_tools; input.phase != "call" }
allowed_tools contains c.id if { some c in input.candidate_tools; input.phase == "call"; not input.call.arguments.x }
allowed_tools contains c.id if { some c in input.candidate_tools; input.phase == "call"
	count(regex.find_n("(a?){500}(a?){499}b", input.call.arguments.x, -1)) == 0 }
`,
		"tenants/calm/tenant.yaml":    tenant("calm", calmHash),
		"tenants/calm/tasks/all.yaml": all,
		"tenants/calm/policies/own.rego": `package switchboard.tenant
allowed_tools contains c.id if some c in input.candidate_tools
deny[c.id] contains "no text" if { some c in input.candidate_tools; regex.match("^[g-z]+$", input.call.arguments.nonce) }
`,
	}, stormyKey, calmKey
}

// A Storm is the attack on the MCP endpoint at Address (host:port) with Key.
type Storm struct {
	Address, Key string

	done sync.Map // name of the attack to *atomic.Int64
}

// Run attacks until ctx ends. Each attack begins again at fixed times, even if the previous one was refused early: so the load does not depend on the
// target.
func (s *Storm) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, part := range []struct {
		name  string
		n     int
		every time.Duration
		do    func(ctx context.Context) error
	}{
		{"RX-01 unfinished", unfinished, hold, s.unfinished},
		{"RX-04 unread", unread, hold, func(ctx context.Context) error {
			return s.call(ctx, "big", `"_meta":{"io.switchboard/results":"whole"},"arguments":{}`, false)
		}},
		{"RX-04 idle", idle, hold, s.stream},
		{"RX-06 flood", flooded, time.Second, func(ctx context.Context) error {
			return s.call(ctx, "flood", `"_meta":{"progressToken":"p"},"arguments":{}`, true)
		}},
		{"RX-09 pattern", costly, time.Second / 2, func(ctx context.Context) error {
			return s.call(ctx, "work", `"arguments":{"x":"`+strings.Repeat("a", patternText)+`"}`, true)
		}},
		{"RX-10 hang", hanging, hold, func(ctx context.Context) error { return s.call(ctx, "hang", `"arguments":{}`, true) }},
	} {
		count := new(atomic.Int64)
		s.done.Store(part.name, count)
		for range part.n {
			all.Go(func() {
				for next := time.Now(); ctx.Err() == nil; {
					if part.do(ctx) == nil {
						count.Add(1)
					}
					next = next.Add(part.every)
					select {
					case <-ctx.Done():
					case <-time.After(time.Until(next)):
					}
				}
			})
		}
	}
	all.Wait()
}

// Done returns how often each attack ended: with an answer, or with a connection that the target closed.
func (s *Storm) Done() map[string]int64 {
	all := map[string]int64{}
	s.done.Range(func(name, count any) bool {
		all[name.(string)] = count.(*atomic.Int64).Load()
		return true
	})
	return all
}

// dial connects with a small receive buffer, for attacks that do not read.
func (s *Storm) dial(ctx context.Context) (net.Conn, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, hold)
	c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Address)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	return c, func() { stop(); cancel(); _ = c.Close() }, nil
}

// head returns the head of a request of the modern era.
func (s *Storm) head(method, more string, length int) string {
	return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\n%sContent-Length: %d\r\n\r\n", s.Address, s.Key, method, more, length)
}

const meta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"storm","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`

// call calls a tool. It reads the whole answer, or reads nothing until hold is over.
func (s *Storm) call(ctx context.Context, tool, params string, read bool) error {
	c, end, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer end()
	if at := strings.Index(params, `"_meta":{`); at >= 0 {
		at += len(`"_meta":{`)
		params = params[:at] + meta + "," + params[at:]
	} else {
		params = `"_meta":{` + meta + "}," + params
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,%s}}`, tool, params)
	if _, err := io.WriteString(c, s.head("tools/call", "Mcp-Name: "+tool+"\r\n", len(body))+body); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // the connection is closed anyway
	if !read {
		<-time.After(hold / 2)
		return nil
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// unfinished sends a large request without its last byte, and waits.
func (s *Storm) unfinished(ctx context.Context) error {
	c, end, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer end()
	go func() {
		_, _ = io.WriteString(c, s.head("tools/call", "Mcp-Name: work\r\n", bodySize)+strings.Repeat("x", bodySize-1))
	}()
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// stream opens a stream of changes, and leaves it there.
func (s *Storm) stream(ctx context.Context) error {
	c, end, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer end()
	body := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"_meta":{` + meta + `},"notifications":{"toolsListChanged":true}}}`
	if _, err := io.WriteString(c, s.head("subscriptions/listen", "", len(body))+body); err != nil {
		return err
	}
	if n, err := io.Copy(io.Discard, c); n == 0 {
		return err
	}
	return nil
}
