package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A shaky store fails as the test says.
type shaky struct {
	store.Store

	mu     sync.Mutex
	fails  func(n int) failure // of the n-th use; nil means that no use fails
	uses   int
	silent bool // it passes no notice on
	heard  map[string]func([]byte)
}

// A failure is how a use of a store fails.
type failure int

const (
	works   failure = iota
	refuses         // does nothing, and returns an error
	forgets         // does it, and returns an error
)

var errShaky = fmt.Errorf("%w: it is shaky", store.ErrUnavailable)

func newShaky(st store.Store) *shaky { return &shaky{Store: st, heard: map[string]func([]byte){}} }

// fail makes the uses from now on fail as fails says.
func (s *shaky) fail(fails func(n int) failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails, s.uses = fails, 0
}

func (s *shaky) use() failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses++
	if s.fails == nil {
		return works
	}
	return s.fails(s.uses)
}

func (s *shaky) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if s.use() != works {
		return store.Value{}, errShaky
	}
	return s.Store.Value(ctx, k)
}

func (s *shaky) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	f := s.use()
	if f == refuses {
		return 0, errShaky
	}
	v, err := s.Store.Apply(ctx, c)
	if err == nil && f == forgets {
		return 0, errShaky
	}
	return v, err
}

func (s *shaky) Publish(ctx context.Context, topic string, data []byte) error {
	s.mu.Lock()
	silent := s.silent
	s.mu.Unlock()
	if silent {
		return nil
	}
	return s.Store.Publish(ctx, topic, data)
}

func (s *shaky) Subscribe(topic string, heard func([]byte)) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[topic] = heard
	return s.Store.Subscribe(topic, heard)
}

// missed tells all subscribers that they may have missed a notice.
func (s *shaky) missed() {
	s.mu.Lock()
	heard := s.heard
	s.mu.Unlock()
	for _, f := range heard {
		f(nil)
	}
}

// asksAs returns the id of the next question of the session's owner. The id shows how often the
// session was taken over.
func (w *world) asksAs(t *testing.T, in head) string {
	t.Helper()
	s := w.stream(legacyCall(`"c"`, "ask", ""), in)
	defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
	id := idOf(s.next())
	if res, body := w.post(`{"jsonrpc":"2.0","id":`+id+`,"result":`+bobSays+`}`, in); res.StatusCode != http.StatusAccepted {
		t.Fatalf("the answer: %s %s", res.Status, body)
	}
	s.next()
	return id
}

func TestAShortFailureOfTheStoreDoesNotMoveASession(t *testing.T) {
	for name, f := range map[string]failure{"not done": refuses, "done, but with an error": forgets} {
		t.Run(name, func(t *testing.T) {
			st := newShaky(store.NewMemory())
			w := newReplica(t, st, &cluster.Cluster{}).reachable()
			w.asks()
			in := w.able(nil)
			e := w.listen(wait.Context(t), http.MethodGet, "", in)
			st.fail(func(int) failure { return f })
			w.Sweep(t.Context())
			st.fail(nil)
			w.Sweep(t.Context())
			w.Sweep(t.Context())
			w.change("one")
			if got := e.next(); got != listChanged {
				t.Errorf("heard %s", got)
			}
			if id := w.asksAs(t, in); id != "1" {
				t.Errorf("the session has moved: the question has the id %s", id)
			}
		})
	}
}

// takenOver lets another replica take the session over because its owner's lease has expired.
func takenOver(t *testing.T, st store.Store, owner, other *replica, in head) {
	t.Helper()
	if _, err := st.Apply(t.Context(), store.Change{Group: "replicas", Writes: []store.Write{{Name: owner.cluster.Self(), Was: store.Any}}}); err != nil {
		t.Fatal(err)
	}
	before := other.calls()
	wait.Until(t, "another replica has taken the session over", func() bool {
		if res, body := other.post(legacyCall("1", "echo", ""), in); res.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", res.Status, body)
		}
		return other.calls() > before
	})
}

func TestAnOwnerThatWasTakenForDeadClosesItsStreams(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("the notice is lost %v", silent), func(t *testing.T) {
			st := store.NewMemory()
			first, second := newShaky(st), newShaky(st)
			second.silent = silent
			all := replicasOf(t, first, second)
			in := all[0].session(nil)
			ctx := wait.Context(t)
			e := all[0].listen(ctx, http.MethodGet, "", in)
			all[0].cluster.Leave(t.Context()) // its lease is not renewed, but it still runs, as a process that was paused does
			takenOver(t, st, all[0], all[1], in)
			if silent {
				first.missed()
			}
			for ev, err := e.event(); err == nil; ev, err = e.event() {
				t.Logf("heard %s", ev.Data)
			}
			if ctx.Err() != nil {
				wait.Late(t, "its stream goes on, and nobody says anything on it")
			}
			again := all[0].listen(wait.Context(t), http.MethodGet, "", in) // at the new owner
			again.next()
			all[1].change("one")
			for got := again.next(); got != listChanged; got = again.next() {
				t.Logf("heard %s", got)
			}
		})
	}
}

func TestSubscriptionsContinueAtTheNextOwner(t *testing.T) {
	st := store.NewMemory()
	both := offered(map[string][]string{"a": {"x:1"}, "b": {"x:2"}})
	first := newReplica(t, st, &cluster.Cluster{}).reachable()
	first.offer(both)
	in := first.session(nil)
	for _, uri := range []string{"x:1", "x:2"} {
		if _, body := first.post(about("resources/subscribe", uri), in); body != done {
			t.Fatalf("subscribe: %s", body)
		}
	}
	// The next owner does not know one of the servers yet, and keeps the subscription to it.
	second := newReplica(t, st, &cluster.Cluster{}).reachable()
	second.offer(offered(map[string][]string{"a": {"x:1"}}))
	e := second.listen(wait.Context(t), http.MethodGet, "", in)
	if _, body := second.post(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}`, in); body != done {
		t.Fatal(body)
	}
	heard := map[string]bool{}
	for !heard[updated("x:1")] { // it may have missed the first updates
		heard[e.next()] = true
	}
	second.awaitHoldings(1)
	second.offer(both)
	for !heard[updated("x:2")] {
		heard[e.next()] = true
	}
	second.awaitHoldings(2)
	third := newReplica(t, st, &cluster.Cluster{}).reachable()
	third.offer(both)
	if res, body := third.post(legacyCall("1", "echo", ""), in); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, body)
	}
	third.awaitHoldings(2)
}

func TestEventIDsOfTwoOwnersAreNotConfused(t *testing.T) {
	st := store.NewMemory()
	in := newReplica(t, st, &cluster.Cluster{}).reachable().session(nil)
	w := newReplica(t, st, &cluster.Cluster{}).reachable()
	e := w.listen(wait.Context(t), http.MethodGet, "", in)
	for i := range 3 {
		w.change(fmt.Sprint("tool", i))
		for got := e.next(); got != listChanged; got = e.next() {
			t.Logf("heard %s", got)
		}
	}
	// The client did not receive the last events. It knows the second event of the earlier owner.
	again := w.listen(wait.Context(t), http.MethodGet, "", after(in, "0-2"))
	var heard []string
	for range 5 { // the notification that everything may have changed, and three changes; the first of each is list_changed
		heard = append(heard, again.next())
	}
	if n := len(slices.DeleteFunc(heard, func(m string) bool { return m != listChanged })); n < 3 {
		t.Errorf("the client is notified of %d changes of the tools", n)
	}
}

func TestASessionThatWasReportedAsEndedIsNotFoundAgain(t *testing.T) {
	st := newShaky(store.NewMemory())
	w := newReplica(t, st, &cluster.Cluster{}).reachable()
	in := w.session(nil)
	st.fail(func(int) failure { return forgets })
	w.Sweep(t.Context()) // so that it does not know the version of its stored session
	st.fail(func(int) failure { return refuses })
	if res, body := w.do(http.MethodDelete, "/mcp", "", in); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, `"SB-ROUT-004"`) {
		t.Errorf("while the store is gone: %s %s", res.Status, body)
	}
	wait.Until(t, "both replicas have tried to write", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.uses >= 2
	})
	st.fail(nil)
	if res, body := w.do(http.MethodDelete, "/mcp", "", in); res.StatusCode != http.StatusNoContent {
		t.Errorf("again: %s %s", res.Status, body)
	}
	if res, body := w.post(legacyCall("1", "echo", ""), in); res.StatusCode != http.StatusNotFound {
		t.Errorf("afterwards: %s %s", res.Status, body)
	}
}

// Law 7: whichever use of the store fails, and however, each request ends with a code. When the
// store is back, everything works again.
func TestEachRequestEndsWithACodeWhereverTheStoreFails(t *testing.T) {
	shared := store.NewMemory()
	requests := []string{
		legacyCall("1", "echo", ""),
		legacyCall("1", "unheard-of", ""),
		about("resources/subscribe", "x:1"),
		`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}`,
		about("resources/unsubscribe", "x:1"),
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
	}
	good := func(t *testing.T, what string, res *http.Response, body string) (ok bool) {
		t.Helper()
		switch {
		case res.StatusCode == http.StatusOK && (strings.Contains(body, `"result"`) || strings.Contains(body, "unheard-of")):
			return true
		case !strings.Contains(body, `"SB-ROUT-004"`):
			t.Errorf("%s: %s %s", what, res.Status, body)
		}
		return false
	}
	for _, f := range []failure{refuses, forgets} {
		for n := 1; ; n++ {
			first, second := newShaky(shared), newShaky(shared)
			one, two := newReplica(t, first, &cluster.Cluster{}).reachable(), newReplica(t, second, &cluster.Cluster{}).reachable()
			for _, w := range []*world{one, two} {
				w.offer(offered(map[string][]string{"a": {"x:1"}}))
			}
			used := false
			for _, st := range []*shaky{first, second} {
				st.fail(func(i int) failure {
					if i != n {
						return works
					}
					used = true
					return f
				})
			}
			res, body := one.post(initialize, nil)
			if !good(t, "initialize", res, body) {
				res, body = one.post(initialize, nil)
				good(t, "initialize again", res, body)
			}
			in := head{"Mcp-Session-Id": res.Header.Get("Mcp-Session-Id")}
			for _, w := range []*world{one, two} { // the second replica takes it over
				for _, r := range requests {
					what := fmt.Sprintf("use %d, failing as %d: %s", n, f, r)
					if res, body := w.post(r, in); !good(t, what, res, body) {
						res, body = w.post(r, in)
						good(t, what+", again", res, body)
					}
				}
			}
			first.fail(nil)
			second.fail(nil)
			if res, _ := two.do(http.MethodDelete, "/mcp", "", in); res.StatusCode != http.StatusNoContent {
				t.Errorf("use %d, failing as %d: DELETE: %s", n, f, res.Status)
			}
			one.Close()
			two.Close()
			if !used {
				break
			}
		}
	}
}
