package served_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/redistest"
)

// A company is three replicas that share a Redis, and a load balancer in front that
// sends each request to the next of them.
type company struct {
	t     *testing.T
	dir   string
	redis *redistest.Server // nil where it is not one alone
	url   string            // of the load balancer, without a path

	mu       sync.Mutex
	replicas []*gateway
	down     map[*gateway]bool // by what /readyz says
	next     int
	repeated int                       // calls that were made again, since the store was late; see patient
	hits     map[string]map[string]int // who asks → which replica → how often
}

// asks is the header by which a client of a test says who it is, to the load balancer.
const asks = "X-Test-Client"

// found starts a company on an archive that has no store.
func found(t *testing.T, archive string) *company {
	t.Helper()
	redis := redistest.Start(t)
	c := foundOn(t, redis.URL(), archive)
	c.redis = redis
	return c
}

// foundOn starts a company that shares the store.
func foundOn(t *testing.T, store, archive string) *company {
	t.Helper()
	c := &company{t: t, hits: map[string]map[string]int{}, down: map[*gateway]bool{}}
	c.dir = layOut(t, strings.Replace(archive, "-- switchboard.yaml --\n", fmt.Sprintf(`-- secret --
what all three of them know
-- switchboard.yaml --
store: %q
cluster: {secret: "${file:secret}", listen: "127.0.0.1:0"}
`, store), 1))
	for range 3 {
		c.hire()
	}
	balancer := httptest.NewServer(c)
	go c.watch(t.Context())
	t.Cleanup(func() {
		balancer.CloseClientConnections()
		balancer.Close()
	})
	c.url = balancer.URL
	t.Cleanup(func() { stopTogether(c.replicas) })
	return c
}

// stopTogether asks all of the replicas to stop. Each one tells load balancers so for some
// seconds, unless it is asked again: the cleanup of each asks again.
func stopTogether(replicas []*gateway) {
	for _, g := range replicas {
		_ = g.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// patient makes a call of load again for as long as it is refused because the store has
// not answered in time: nothing was done then, but that a limit may have counted it. It is
// for tests that take nothing from the store, on a machine that may be busy.
func (c *company) patient(s *httpSession, id int) attempt {
	for began := time.Now(); ; {
		a := s.try("post", id)
		code := codeOf(a.answer)
		if code != "SB-ROUT-004" && code != "SB-RCPT-001" || time.Since(began) > patience {
			return a
		}
		c.mu.Lock()
		c.repeated++
		c.mu.Unlock()
	}
}

// once makes a call of load, whatever comes of it.
func (*company) once(s *httpSession, id int) attempt { return s.try("post", id) }

// hire adds a replica.
func (c *company) hire() {
	c.t.Helper()
	g := serve(c.t, c.dir, "--data", filepath.Join(c.t.TempDir(), "data"))
	eventually(c.t, "a replica is ready", func() string {
		resp, err := http.Get(g.url + "/readyz")
		if err != nil {
			return err.Error()
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replicas = append(c.replicas, g)
}

// watch asks the replicas whether they are ready.
func (c *company) watch(ctx context.Context) {
	for every := time.NewTicker(200 * time.Millisecond); ctx.Err() == nil; <-every.C {
		c.mu.Lock()
		all := slices.Clone(c.replicas)
		c.mu.Unlock()
		for _, g := range all {
			resp, err := balancing.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, g.url+"/readyz", nil))
			c.mu.Lock()
			c.down[g] = err != nil || resp.StatusCode != http.StatusOK
			c.mu.Unlock()
			if err == nil {
				_ = resp.Body.Close()
			}
		}
	}
}

// end ends a replica with a signal, and returns when it is no more.
func (c *company) end(g *gateway, signal syscall.Signal) {
	_ = g.cmd.Process.Signal(signal)
	_ = g.cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.replicas {
		if c.replicas[i] == g {
			c.replicas = append(c.replicas[:i:i], c.replicas[i+1:]...)
			return
		}
	}
}

// open opens a client through the load balancer.
func (c *company) open(t *testing.T, who string, modern bool) *httpSession {
	t.Helper()
	return (&gateway{t: t, url: c.url}).open(t, "/mcp", modern, asks, who)
}

// turn returns the replicas that are ready, beginning with the one whose turn it is.
func (c *company) turn() []*gateway {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*gateway
	for i := range c.replicas {
		if g := c.replicas[(c.next+i)%len(c.replicas)]; !c.down[g] {
			all = append(all, g)
		}
	}
	c.next++
	return all
}

// reached returns how many replicas have answered who.
func (c *company) reached(who string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.hits[who])
}

// balancing makes a connection for each request, so that one that fails to be made, and nothing else,
// says that nothing was sent.
var balancing = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

// ServeHTTP is the load balancer: whoever refuses the connection, or answers that it
// is not available, is passed over, and nothing else is tried twice.
func (c *company) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	for _, g := range c.turn() {
		out, err := http.NewRequestWithContext(r.Context(), r.Method, g.url+r.URL.RequestURI(), bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		out.Header, out.Host = r.Header.Clone(), r.Host
		resp, err := balancing.RoundTrip(out)
		if refused := (*net.OpError)(nil); err != nil && errors.As(err, &refused) && refused.Op == "dial" {
			continue
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if resp.StatusCode == http.StatusServiceUnavailable {
			_ = resp.Body.Close()
			continue
		}
		c.mu.Lock()
		who := r.Header.Get(asks)
		if c.hits[who] == nil {
			c.hits[who] = map[string]int{}
		}
		c.hits[who][g.url]++
		c.mu.Unlock()
		passOn(w, resp)
		return
	}
	http.Error(w, "nobody is there", http.StatusServiceUnavailable)
}

// passOn writes an answer as it comes.
func passOn(w http.ResponseWriter, resp *http.Response) {
	defer func() { _ = resp.Body.Close() }()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	for buf := make([]byte, 32<<10); ; {
		n, err := resp.Body.Read(buf)
		_, _ = w.Write(buf[:n])
		_ = flush.Flush()
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// A ledger is a fake behind that counts how often it executes what, by the id in the
// arguments, and takes its time for it.
type ledger struct {
	*fake
	takes time.Duration

	mu       sync.Mutex
	executed map[string]int
}

func keepLedger(t *testing.T, takes time.Duration, args ...string) (l *ledger, url string) {
	t.Helper()
	l = &ledger{fake: newFake(args), takes: takes, executed: map[string]int{}}
	s := httptest.NewServer(l)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return l, s.URL
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var q fakeRequest
	if json.Unmarshal(body, &q) == nil && q.Method == "tools/call" {
		if id := string(q.Params.Arguments["id"]); id != "" {
			l.mu.Lock()
			l.executed[id]++
			l.mu.Unlock()
			<-time.After(l.takes)
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	l.fake.ServeHTTP(w, r)
}

// times returns how often what was executed, and how often anything.
func (l *ledger) times(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.executed[id]
}

// twice are the ids that were executed more than once.
func (l *ledger) twice() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, n := range l.executed {
		if n > 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

// An attempt is one call through the load balancer, and what became of it.
type attempt struct {
	id         int
	began, end time.Time
	status     int
	answer     message
	err        error
}

func (a attempt) good() bool {
	return a.err == nil && a.status == http.StatusOK && a.answer.Error == nil && codeOf(a.answer) == "" && strings.Contains(string(a.answer.Result), `\"id\":`+strconv.Itoa(a.id)+`}`)
}

func (a attempt) String() string {
	return fmt.Sprintf("call %d: %d %v %s", a.id, a.status, a.err, a.answer.raw)
}

// try calls a tool with an id, and takes what comes. Of an odd id it is an idempotency key
// too.
func (s *httpSession) try(tool string, id int) attempt {
	a := attempt{id: id, began: time.Now()}
	params := fmt.Sprintf(`{"name":%q,"arguments":{"id":%d}}`, tool, id)
	if keyed(id) {
		params = fmt.Sprintf(`{"_meta":{"io.switchboard/idempotency-key":"%d"},`, id) + strings.TrimPrefix(params, "{")
	}
	header := s.header.Clone()
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	if s.modern {
		params = withMeta(params)
		header.Set("Mcp-Protocol-Version", "2026-07-28")
		header.Set("Mcp-Method", "tools/call")
		header.Set("Mcp-Name", tool)
	} else {
		header.Set("Mcp-Session-Id", s.id)
		header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	req, err := http.NewRequest(http.MethodPost, s.url, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, id, params)))
	if err != nil {
		panic(err)
	}
	req.Header = header
	resp, err := patiently.Do(req)
	if err == nil {
		a.status = resp.StatusCode
		var raw []byte
		raw, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if at := strings.LastIndex(string(raw), "data: "); at >= 0 {
			raw = raw[at+len("data: "):]
		}
		a.answer = parse(raw)
	}
	a.err, a.end = err, time.Now()
	return a
}

// keyed reports whether a call with that id has a key.
func keyed(id int) bool { return id%2 == 1 }

var patiently = &http.Client{Timeout: patience}
