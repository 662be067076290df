package rig

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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

// StopOwner stops the owner of the open session, which still has calls of the session in flight, so that the session moves. It returns the old owner.
func (c *Replicas) StopOwner(t *testing.T, use func()) (home *Gateway) {
	t.Helper()
	all := c.TakeTurn()
	for _, g := range all {
		if strings.Contains(g.Logged(), "session opened") {
			home = g
		}
	}
	home.Signal(t, syscall.SIGTERM)
	Eventually(t, "the session is at another replica", func() string {
		use()
		for _, g := range all {
			if g != home && strings.Contains(g.Logged(), "session taken over") {
				return ""
			}
		}
		return "it is not"
	})
	return home
}

// Replicas are three replicas that share a Redis. A load balancer in front sends each request to the next one.
type Replicas struct {
	t     *testing.T
	Dir   string
	Redis *redistest.Server // nil for a store of another kind
	URL   string            // of the load balancer, without a path

	mu       sync.Mutex
	All      []*Gateway
	down     map[*Gateway]bool // by /readyz
	next     int
	Repeated int                       // calls that were repeated because the store was late; see CallPatiently
	hits     map[string]map[string]int // client → replica → number of requests
}

// ClientHeader names the client of a request, for the load balancer's counts.
const ClientHeader = "X-Test-Client"

// ServeReplicas starts replicas on an archive, with a Redis of their own.
func ServeReplicas(t *testing.T, archive string) *Replicas {
	t.Helper()
	redis := redistest.Start(t)
	c := ServeReplicasOn(t, redis.URL(), archive)
	c.Redis = redis
	return c
}

// ServeReplicasOn starts replicas that share the store.
func ServeReplicasOn(t *testing.T, store, archive string) *Replicas {
	t.Helper()
	c := &Replicas{t: t, hits: map[string]map[string]int{}, down: map[*Gateway]bool{}}
	c.Dir = LayOut(t, strings.Replace(archive, "-- switchboard.yaml --\n", fmt.Sprintf(`-- secret --
what all three of them know
-- switchboard.yaml --
store: %q
cluster: {secret: "${file:secret}", listen: "127.0.0.1:0"}
`, store), 1))
	for range 3 {
		c.Add()
	}
	balancer := httptest.NewServer(c)
	go c.watch(t.Context())
	t.Cleanup(func() {
		balancer.CloseClientConnections()
		balancer.Close()
	})
	c.URL = balancer.URL
	t.Cleanup(func() { StopTogether(c.All) })
	return c
}

// CallPatiently repeats a call while it is refused because the store was late. Such a call was not made, though a limit may have counted it. It is for
// tests that never stop the store, on a machine that may be busy.
func (c *Replicas) CallPatiently(s *HTTPSession, id int) Attempt {
	for began := time.Now(); ; {
		a := s.Try("post", id)
		code := Code(a.Answer)
		if code != "SB-ROUT-004" && code != "SB-RCPT-001" || time.Since(began) > Patience {
			return a
		}
		c.mu.Lock()
		c.Repeated++
		c.mu.Unlock()
	}
}

// CallOnce makes a call once.
func (*Replicas) CallOnce(s *HTTPSession, id int) Attempt { return s.Try("post", id) }

// Add adds a replica.
func (c *Replicas) Add() {
	c.t.Helper()
	g := Serve(c.t, c.Dir, "--data", filepath.Join(c.t.TempDir(), "data"))
	Eventually(c.t, "a replica is ready", func() string {
		resp, err := http.Get(g.URL + "/readyz")
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
	c.All = append(c.All, g)
}

// watch polls /readyz of the replicas.
func (c *Replicas) watch(ctx context.Context) {
	for every := time.NewTicker(200 * time.Millisecond); ctx.Err() == nil; <-every.C {
		c.mu.Lock()
		all := slices.Clone(c.All)
		c.mu.Unlock()
		for _, g := range all {
			resp, err := balancing.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, g.URL+"/readyz", nil))
			c.mu.Lock()
			c.down[g] = err != nil || resp.StatusCode != http.StatusOK
			c.mu.Unlock()
			if err == nil {
				_ = resp.Body.Close()
			}
		}
	}
}

// End ends a replica with a signal, and waits for its end.
func (c *Replicas) End(g *Gateway, signal syscall.Signal) {
	_ = g.Cmd.Process.Signal(signal)
	_ = g.Cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.All {
		if c.All[i] == g {
			c.All = append(c.All[:i:i], c.All[i+1:]...)
			return
		}
	}
}

// Open opens a client through the load balancer.
func (c *Replicas) Open(t *testing.T, who string, modern bool) *HTTPSession {
	t.Helper()
	return (&Gateway{T: t, URL: c.URL}).Open(t, "/mcp", modern, ClientHeader, who)
}

// TakeTurn returns the ready replicas. The first one is the next in turn.
func (c *Replicas) TakeTurn() []*Gateway {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*Gateway
	for i := range c.All {
		if g := c.All[(c.next+i)%len(c.All)]; !c.down[g] {
			all = append(all, g)
		}
	}
	c.next++
	return all
}

// CountReached returns how many replicas have answered the client who.
func (c *Replicas) CountReached(who string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.hits[who])
}

// balancing opens a connection for each request. So an error of dialling, and no other error, means that nothing was sent.
var balancing = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

// ServeHTTP is the load balancer: it goes to the next replica if one refuses the connection or answers 503, and repeats no other request.
func (c *Replicas) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	for _, g := range c.TakeTurn() {
		out, err := http.NewRequestWithContext(r.Context(), r.Method, g.URL+r.URL.RequestURI(), bytes.NewReader(body))
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
		who := r.Header.Get(ClientHeader)
		if c.hits[who] == nil {
			c.hits[who] = map[string]int{}
		}
		c.hits[who][g.URL]++
		c.mu.Unlock()
		passOn(w, resp)
		return
	}
	http.Error(w, "nobody is there", http.StatusServiceUnavailable)
}

// passOn forwards an answer unchanged.
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

// A Ledger is a fake server that counts its executions by the id in the arguments. Each execution takes some time.
type Ledger struct {
	*fakeserver.Server
	takes time.Duration

	mu       sync.Mutex
	Executed map[string]int
	during   func(id string)
}

// OnExecute calls during in each execution, after it is counted. It may panic with http.ErrAbortHandler.
func (l *Ledger) OnExecute(during func(id string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.during = during
}

// Total returns how many executions there were.
func (l *Ledger) Total() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.Executed {
		n += int64(c)
	}
	return n
}

// KeepLedger starts a Ledger over HTTP. args are those of fakeserver.New.
func KeepLedger(t *testing.T, takes time.Duration, args ...string) (l *Ledger, url string) {
	t.Helper()
	l = &Ledger{Server: fakeserver.New(args), takes: takes, Executed: map[string]int{}}
	s := httptest.NewServer(l)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return l, s.URL
}

func (l *Ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var q fakeserver.Request
	if json.Unmarshal(body, &q) == nil && q.Method == "tools/call" {
		if id := string(q.Params.Arguments["id"]); id != "" {
			l.mu.Lock()
			l.Executed[id]++
			during := l.during
			l.mu.Unlock()
			if during != nil {
				during(id)
			}
			<-time.After(l.takes)
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	l.Server.ServeHTTP(w, r)
}

// CountOf returns how often the call with the id was executed.
func (l *Ledger) CountOf(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Executed[id]
}

// Twice returns the ids of calls that were executed more than once.
func (l *Ledger) Twice() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, n := range l.Executed {
		if n > 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

// An Attempt is one call through the load balancer, with its outcome.
type Attempt struct {
	ID         int
	Began, End time.Time
	Status     int
	Answer     Message
	Err        error
}

// Good reports whether the call was answered with its own result.
func (a Attempt) Good() bool {
	return a.Err == nil && a.Status == http.StatusOK && a.Answer.Error == nil && Code(a.Answer) == "" && strings.Contains(string(a.Answer.Result), `\"id\":`+strconv.Itoa(a.ID)+`}`)
}

func (a Attempt) String() string {
	return fmt.Sprintf("call %d: %d %v %s", a.ID, a.Status, a.Err, a.Answer.Raw)
}

// HasKey reports whether Try adds an idempotency key to a call with this id.
func HasKey(id int) bool { return id%2 == 1 }

var patiently = &http.Client{Timeout: Patience}

// Everywhere repeats do until each replica has answered the client who.
func (c *Replicas) Everywhere(who string, do func(i int)) {
	c.t.Helper()
	for i := 0; i < 3 || c.CountReached(who) < 3; i++ {
		if i == 30 {
			c.t.Fatalf("%s has reached %d replicas", who, c.CountReached(who))
		}
		do(i)
	}
}

// Load makes calls by clients of both eras at the same time, until all are made or stop is closed. It returns their outcomes.
func (c *Replicas) Load(calls, clients int, stop <-chan struct{}, made *atomic.Int64, call func(s *HTTPSession, id int) Attempt) []Attempt {
	c.t.Helper()
	var sessions []*HTTPSession
	for i := range clients {
		sessions = append(sessions, c.Open(c.t, fmt.Sprint("load ", i), i%2 == 0))
	}
	var next atomic.Int64
	var mu sync.Mutex
	var all []Attempt
	var work sync.WaitGroup
	for _, s := range sessions {
		work.Go(func() {
			for {
				id := int(next.Add(1))
				select {
				case <-stop:
					return
				default:
				}
				if id > calls {
					return
				}
				a := call(s, id)
				made.Add(1)
				mu.Lock()
				all = append(all, a)
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return all
}
