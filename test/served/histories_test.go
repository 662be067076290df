package served_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
)

var servedHistories = flag.Int("served-histories", 4, "how many random histories with real processes TestNamesServedHistories goes through")

// A peer is a real MCP server with the tool web_search, or without it. It can be killed, comes back at the same address, and
// offers the tool in one of some editions.
type peer struct {
	id      string
	tools   *mcp.Server
	site    *httptest.Server
	address string
	edition int // of peerEditions
	alive   bool
}

// peerEditions are what a peer can offer: no tool, or one of these schemas and descriptions. The last is stricter than the
// others.
var peerEditions = []struct{ description, schema string }{
	{},
	{"Searches.", `{"type":"object","properties":{"query":{"type":"string"}}}`},
	{"Searches the internet.", `{"type":"object","properties":{"query":{"type":"string"}}}`},
	{"Searches.", `{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}`},
}

const strictEdition = 3

func newPeer(t *testing.T, id string) *peer {
	t.Helper()
	p := &peer{id: id, tools: mcp.NewServer(&mcp.Implementation{Name: id, Version: "1"}, nil)}
	p.offer(1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.address = l.Addr().String()
	p.serve(l)
	t.Cleanup(func() {
		if p.alive {
			p.kill()
		}
	})
	return p
}

func (p *peer) serve(l net.Listener) {
	p.site = &httptest.Server{Listener: l, Config: &http.Server{Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return p.tools }, nil)}} //nolint:gosec // a test's
	p.site.Start()
	p.alive = true
}

func (p *peer) kill() {
	_ = p.site.Listener.Close()
	p.site.CloseClientConnections()
	p.site.Close()
	p.alive = false
}

func (p *peer) revive(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	p.serve(l)
}

// offer has the peer offer an edition. The tool answers with the name of the peer and the edition.
func (p *peer) offer(edition int) {
	p.edition = edition
	if edition == 0 {
		p.tools.RemoveTools("web_search")
	}
	if e := peerEditions[edition]; e.schema != "" {
		p.tools.AddTool(&mcp.Tool{Name: "web_search", Description: e.description, InputSchema: json.RawMessage(e.schema)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("served by %s, edition %d", p.id, edition)}}}, nil
			})
	}
}

// A chronicle is one random history: peers, switchboards before them, and clients of both eras.
type chronicle struct {
	t      *testing.T
	rng    *rand.Rand
	peers  []*peer
	homes  []*rig.Gateway // one, or three replicas
	said   []string       // what happened
	ranked []string       // the classes, best first
	gone   bool           // the last peer is not in the file
	silent bool           // the last peer's tool has no capability
	kills  bool           // peers are killed too: then a run may stay with a peer that new runs do not begin with

	clients []*witness
	asked   atomic.Int64
}

// A witness is a client that remembers which definition it was shown under each name.
type witness struct {
	name   string
	modern bool
	lists  bool // it lists again at each step
	id     string
	home   int
	shown  map[string]string // definitions, by name
}

func newChronicle(t *testing.T, seed uint64, replicas int) *chronicle {
	t.Helper()
	c := &chronicle{t: t, rng: rand.New(rand.NewPCG(seed, 17)), ranked: []string{"k0", "k1", "k2"}}
	for i := range 3 {
		c.peers = append(c.peers, newPeer(t, fmt.Sprintf("s%d", i)))
	}
	store := ""
	if replicas > 1 {
		store = fmt.Sprintf("store: %q\ncluster: {secret: \"${file:secret}\", listen: \"127.0.0.1:0\"}\nadmin: {edit: true}\n", redistest.Start(t).URL())
	}
	for range replicas {
		g := &rig.Gateway{T: t, Dir: t.TempDir()}
		c.homes = append(c.homes, g)
		rig.WriteFile(t, filepath.Join(g.Dir, "secret"), "what all replicas know\n")
		rig.WriteFile(t, filepath.Join(g.Dir, "store"), store)
	}
	c.write()
	for i, g := range c.homes {
		c.homes[i] = rig.Serve(t, g.Dir)
	}
	for i := range 2 {
		for _, lists := range []bool{false, true} {
			for _, modern := range []bool{false, true} {
				c.clients = append(c.clients, &witness{name: fmt.Sprintf("client %d, lists %v", i, lists), modern: modern, lists: lists, home: c.rng.IntN(len(c.homes)), shown: map[string]string{}})
			}
		}
	}
	for _, r := range c.clients {
		if !r.modern {
			r.id = c.homes[r.home].Open(t, "/mcp", false).ID
		}
		c.list(r)
	}
	return c
}

// write writes the configuration as it is now into all folders.
func (c *chronicle) write() {
	c.t.Helper()
	for _, g := range c.homes {
		text := "start_deadline: 5s\n" + rig.ReadFile(c.t, filepath.Join(g.Dir, "store")) + "servers:\n"
		for i, p := range c.peers {
			if !c.gone || i < 2 {
				text += fmt.Sprintf("  %s: {transport: http, url: \"http://%s/mcp\", class: k%d, health: {every: 1s, timeout: 1s}}\n", p.id, p.address, i)
			}
		}
		files := map[string]string{
			"switchboard.yaml":             text + "tenants: {default: {servers: [\"*\"], allow: [by_name]}}\n",
			"tenants/default/tenant.yaml":  "tenant: default\ndefault_task: t\nranking: {classes: [" + strings.Join(c.ranked, ", ") + "]}\n",
			"tenants/default/tasks/t.yaml": "task_id: t\nrequired_capabilities: [{verb: search, resource: internet}]\n",
			"overlays/s0.yaml":             "server: s0\ntools: {web_search: {capabilities: [{verb: search, resource: internet}]}}\n",
			"overlays/s1.yaml":             "server: s1\ntools: {web_search: {capabilities: [{verb: search, resource: internet}]}}\n",
			"overlays/s2.yaml":             "server: s2\ntools: {web_search: {capabilities: [{verb: search, resource: internet}]}}\n",
		}
		for i, p := range c.peers {
			task := "tenants/default/tasks/only-" + p.id + ".yaml"
			if files[task] = fmt.Sprintf("task_id: only-%s\nrequired_capabilities:\n  - {tools: [%s/web_search], optional: true}\n", p.id, p.id); i == 2 && c.gone {
				delete(files, task)
				_ = os.Remove(filepath.Join(g.Dir, task))
			}
		}
		if c.gone {
			delete(files, "overlays/s2.yaml")
			_ = os.Remove(filepath.Join(g.Dir, "overlays/s2.yaml"))
		} else if c.silent {
			files["overlays/s2.yaml"] = "server: s2\ntools: {web_search: {capabilities: [{verb: read, resource: fs}]}}\n"
		}
		for name, text := range files {
			rig.WriteFile(c.t, filepath.Join(g.Dir, name), text)
		}
	}
}

// reload has all replicas read what was written.
func (c *chronicle) reload() {
	c.t.Helper()
	c.write()
	for _, g := range c.homes {
		g.Reload(c.t)
	}
}

// step does one random thing.
func (c *chronicle) step() {
	c.t.Helper()
	p := c.peers[c.rng.IntN(3)]
	note := func(format string, args ...any) { c.said = append(c.said, fmt.Sprintf(format, args...)) }
	switch c.rng.IntN(7) {
	case 0:
		c.rng.Shuffle(3, func(i, j int) { c.ranked[i], c.ranked[j] = c.ranked[j], c.ranked[i] })
		note("ranked %v", c.ranked)
		c.reload()
	case 1:
		c.silent = !c.silent
		note("s2 without the capability: %v", c.silent)
		c.reload()
	case 2:
		c.gone = !c.gone
		note("s2 removed: %v", c.gone)
		c.reload()
	case 3:
		if !c.kills {
			return
		}
		if p.alive {
			note("%s killed", p.id)
			p.kill()
		} else {
			note("%s revived", p.id)
			p.revive(c.t)
		}
	case 4, 5:
		edition := c.rng.IntN(len(peerEditions))
		note("%s offers edition %d", p.id, edition)
		p.offer(edition)
	case 6:
		i := c.rng.IntN(len(c.homes))
		how := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[c.rng.IntN(2)]
		note("switchboard %d ends by %v, and starts again", i, how)
		g := c.homes[i]
		if err := g.Cmd.Process.Signal(how); err != nil {
			c.t.Fatal(err)
		}
		_ = g.Cmd.Wait()
		c.homes[i] = rig.Serve(c.t, g.Dir)
	}
}

// ask sends a request of a witness.
func (c *chronicle) ask(r *witness, method, params string) rig.Message {
	c.t.Helper()
	if !r.lists || len(c.homes) == 1 {
		r.home = c.rng.IntN(len(c.homes))
	}
	return c.askAt(r, r.home, method, params)
}

func (c *chronicle) askAt(r *witness, home int, method, params string) rig.Message {
	c.t.Helper()
	s := &rig.HTTPSession{URL: c.homes[home].URL + "/mcp", Modern: r.modern, ID: r.id, Header: http.Header{}}
	body, extra := s.Request(method, params)
	body = strings.Replace(body, `/clientInfo":{"name":"test"`, fmt.Sprintf(`/clientInfo":{"name":%q`, r.name), 1)
	body = strings.Replace(body, `"id":7,`, fmt.Sprintf(`"id":%d,`, c.asked.Add(1)), 1)
	m, _, err := s.Exchange(body, extra)
	if err != nil {
		c.t.Errorf("%s, modern %v: %s: %v", r.name, r.modern, method, err)
	}
	return m
}

// list has a witness list the tools, and returns the list.
func (c *chronicle) list(r *witness) string {
	c.t.Helper()
	m := c.ask(r, "tools/list", "")
	var list struct{ Tools []json.RawMessage }
	if m.Error != nil || json.Unmarshal(m.Result, &list) != nil {
		return rig.Code(m)
	}
	for _, definition := range list.Tools {
		r.learn(definition)
	}
	return string(m.Result)
}

func (r *witness) learn(definition []byte) {
	var d struct{ Name string }
	if json.Unmarshal(definition, &d) == nil && !strings.HasPrefix(d.Name, "switchboard_") {
		r.shown[d.Name] = string(definition)
	}
}

// fresh is the list of a client that has just come.
func (c *chronicle) fresh(modern bool) string {
	c.t.Helper()
	home := c.rng.IntN(len(c.homes))
	r := &witness{name: fmt.Sprint("fresh ", c.rng.Uint64()), modern: modern, shown: map[string]string{}, lists: true, home: home}
	if !modern {
		s := &rig.HTTPSession{URL: c.homes[home].URL + "/mcp", Header: http.Header{}}
		m, resp, err := s.Exchange(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"fresh","version":"1"}}}`, nil)
		if err != nil || rig.Code(m) != "" {
			return rig.Code(m)
		}
		r.id = resp.Header.Get("Mcp-Session-Id")
		defer c.leave(r, home)
	}
	m := c.askAt(r, home, "tools/list", "")
	if m.Error != nil {
		return rig.Code(m)
	}
	return string(m.Result)
}

// leave ends the session of a client.
func (c *chronicle) leave(r *witness, home int) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodDelete, c.homes[home].URL+"/mcp", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Mcp-Session-Id", r.id)
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

// offered reports whether any peer could serve now.
func (c *chronicle) offered() bool {
	for i, p := range c.peers {
		if p.alive && p.edition > 0 && (i < 2 || !c.gone && !c.silent) {
			return true
		}
	}
	return false
}

// strict reports whether a definition accepts less than the others.
func strict(definition string) bool { return strings.Contains(definition, `"required":["query"]`) }

// known waits until all switchboards know what the peers offer that are alive.
func (c *chronicle) known() {
	c.t.Helper()
	for _, g := range c.homes {
		for i, p := range c.peers {
			if !p.alive || i == 2 && c.gone {
				continue
			}
			rig.Eventually(c.t, fmt.Sprintf("%s knows what %s offers, after %q", g.URL, p.id, c.said), func() string {
				m, _, err := (&rig.HTTPSession{URL: g.URL + "/mcp/tasks/only-" + p.id, Modern: true, Header: http.Header{}}).Exchange(
					`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+rig.WithMeta("")+`}`,
					http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/list"}})
				if err != nil {
					return err.Error()
				}
				var list struct {
					Tools []struct {
						Name, Description string
						InputSchema       json.RawMessage
					}
				}
				_ = json.Unmarshal(m.Result, &list)
				got := ""
				for _, tool := range list.Tools {
					if tool.Name == "web_search" {
						got = tool.Description + string(tool.InputSchema)
					}
				}
				if e := peerEditions[p.edition]; got != e.description+e.schema {
					accept(c.t, g, p.id)
					return fmt.Sprintf("it lists %s", m.Raw)
				}
				return ""
			})
		}
	}
}

// settle waits until all switchboards show new clients what they show to old ones that list again.
func (c *chronicle) settle() {
	c.t.Helper()
	c.known()
	for _, modern := range []bool{false, true} {
		for _, r := range c.clients {
			if !r.lists || r.modern != modern {
				continue
			}
			rig.Eventually(c.t, fmt.Sprintf("%s, modern %v sees what new clients see, after %q", r.name, modern, c.said), func() string {
				if old, now := c.list(r), c.fresh(modern); old != now && !c.kills {
					return fmt.Sprintf("it sees %s, and a new one %s", old, now)
				}
				return ""
			})
		}
	}
}

// turn has a witness make two calls of a name at once, as a model does in one turn, until one is served or told how to go on.
func (c *chronicle) turn(r *witness, name string) {
	c.t.Helper()
	var last []string
	rig.Eventually(c.t, fmt.Sprintf("%s, modern %v: %s leads somewhere, after %q", r.name, r.modern, name, c.said), func() string {
		var both sync.WaitGroup
		answers := make([]rig.Message, 2)
		homes := []int{c.rng.IntN(len(c.homes)), c.rng.IntN(len(c.homes))}
		for i := range answers {
			both.Go(func() {
				answers[i] = c.askAt(r, homes[i], "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"query":"x"}}`, name))
			})
		}
		both.Wait()
		again, shown := "", r.shown[name] // before the turn
		for _, m := range answers {
			text, code := m.Text(), rig.Code(m)
			last = append(last, code+" "+text)
			var edition int
			var id string
			_, err := fmt.Sscanf(strings.Replace(text, ",", " ,", 1), "served by %s , edition %d", &id, &edition)
			switch {
			case code == "" && err == nil:
				if edition == strictEdition && !strict(shown) {
					c.t.Errorf("%s, modern %v: a call of %s, which was shown as %s, was executed as edition %d of %s, after %q", r.name, r.modern, name, shown, edition, id, c.said)
				}
			case code == "SB-CAP-008":
				_, definition, ok := strings.Cut(text, "\n{")
				if !ok {
					c.t.Errorf("%s: the answer gives no definition: %s", r.name, text)
				}
				r.learn([]byte("{" + definition))
			case code == "SB-EXEC-004":
				// A server was killed with the call under way.
			case !c.offered() && slices.Contains([]string{"SB-CAP-004", "SB-ROUT-001", "SB-DISC-002"}, code):
			case slices.Contains([]string{"SB-CAP-004", "SB-ROUT-001", "SB-DISC-002"}, code):
				again = code // it is served soon
			default:
				c.t.Errorf("%s, modern %v: %s, which was shown, gives %s %s after %q", r.name, r.modern, name, code, m.Raw, c.said)
			}
		}
		if again != "" {
			return fmt.Sprintf("%q", last)
		}
		return ""
	})
}

// Random histories with real servers and one or three real switchboards: edits, kills, restarts, tools that come, change and
// go. A new client sees, byte for byte, what an old one sees that lists again. Every name that was shown leads to a tool
// that accepts what was shown, or to an answer that says how to go on. Two calls are made in one turn, and modern clients
// share a run.
func TestNamesServedHistories(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.OneDecision)
	steps := 8
	for i := range *servedHistories {
		seed := uint64(i)
		if *servedHistories > 10 {
			seed = uint64(time.Now().UnixNano())
		}
		replicas := 1 + 2*(i%2)
		t.Run(fmt.Sprintf("%d, %d switchboards", seed, replicas), func(t *testing.T) {
			c := newChronicle(t, seed, replicas)
			c.kills = i/2%2 == 1
			for range steps {
				c.step()
				c.settle()
				for _, r := range c.clients {
					for _, name := range slices.Sorted(maps.Keys(r.shown)) {
						c.turn(r, name)
					}
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// accept accepts what a peer offers in place of the admitted definition, if Switchboard knows of it by now.
func accept(t *testing.T, g *rig.Gateway, server string) {
	t.Helper()
	query := "server=" + server + "&name=web_search"
	var d struct{ Offered, Digest, State string }
	if a := g.AskAdmin(t, "", http.MethodGet, "/v1/pins/one?"+query, ""); json.Unmarshal([]byte(a.Body), &d) != nil || d.Offered == "" && d.State == "active" {
		return
	}
	if a := g.AskAdmin(t, "", http.MethodPost, "/v1/pins/accept?"+query, fmt.Sprintf(`{"digest":%q}`, cmp.Or(d.Offered, d.Digest))); a.Status != http.StatusOK {
		t.Logf("what %s offers is not accepted: %s", server, a.Body)
	}
}
