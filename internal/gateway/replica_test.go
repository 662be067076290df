package gateway_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A replica is one of several worlds that share a store.
type replica struct {
	*world
	cluster *cluster.Cluster
}

// kill ends the replica's connections with the others at once, without a message.
func (r *replica) kill() { r.cluster.Close() }

func replicas(t *testing.T, n int) []*replica {
	t.Helper()
	return replicasOf(t, slices.Repeat([]store.Store{store.NewMemory()}, n)...)
}

// replicasOf returns replicas, each with one of the stores, which share one backend.
func replicasOf(t *testing.T, stores ...store.Store) []*replica {
	t.Helper()
	var all []*replica
	for _, st := range stores {
		c, err := cluster.New(cluster.Options{Store: st, Secret: switchboard.NewSecret("sixteen bytes, or more"), Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		w := newReplica(t, st, c).reachable()
		c.Serve(w)
		ctx, stop := context.WithCancel(context.Background())
		c.Join(ctx)
		go w.Follow(ctx)
		t.Cleanup(func() { stop(); c.Close() })
		all = append(all, &replica{w, c})
	}
	wait.Until(t, "all replicas know each other", func() bool {
		for _, r := range all {
			if others, err := r.cluster.Others(t.Context()); err != nil || len(others) != len(stores)-1 {
				return false
			}
		}
		return true
	})
	return all
}

func TestASessionContinuesInTheNextProcess(t *testing.T) {
	st := store.NewMemory()
	first := newReplica(t, st, &cluster.Cluster{}).reachable()
	in := first.session(head{"Authorization": "Bearer bob"})
	if res, body := first.post(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}`, in); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, body)
	}
	ended := first.session(nil)
	if res, _ := first.do(http.MethodDelete, "/mcp", "", ended); res.StatusCode != http.StatusNoContent {
		t.Fatal(res.Status)
	}
	first.Close()

	second := newReplica(t, st, &cluster.Cluster{}).reachable()
	for range 2 {
		if res, body := second.post(legacyCall("1", "echo", `,"arguments":{"a":1.0}`), in); res.StatusCode != http.StatusOK || !strings.Contains(body, `{"a":1.0}`) {
			t.Errorf("%s %s", res.Status, body)
		}
	}
	if open, _ := second.CountOpen(); open != 1 {
		t.Errorf("%d sessions are open", open)
	}
	stolen := maps.Clone(in)
	stolen["Authorization"] = "Bearer eve"
	for what, h := range map[string]head{"another principal's": stolen, "one that has ended": ended} {
		if res, body := second.post(legacyCall("1", "echo", ""), h); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s %s", what, res.Status, body)
		}
	}
}

func TestALegacyClientCannotTellWhichReplicaAnswers(t *testing.T) {
	all := replicas(t, 3)
	bob := head{"Authorization": "Bearer bob"}
	came := all[0].asks()
	began, ended := make(chan struct{}), make(chan error, 1)
	all[0].play("slow", func(ctx context.Context, _ *switchboard.Call) (switchboard.Result, error) {
		close(began)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return switchboard.Result{}, ctx.Err()
	})
	in := all[0].able(bob)
	for i, r := range all {
		if _, body := r.post(legacyCall(fmt.Sprint(i), "echo", `,"arguments":{"n":12345678901234567890}`), in); !strings.Contains(body, `12345678901234567890`) {
			t.Errorf("replica %d: %s", i, body)
		}
		stolen := maps.Clone(in)
		stolen["Authorization"] = "Bearer eve"
		if res, _ := r.post(legacyCall("9", "echo", ""), stolen); res.StatusCode != http.StatusNotFound {
			t.Errorf("replica %d: another principal: %s", i, res.Status)
		}
	}
	if a, b := all[0].calls(), all[1].calls()+all[2].calls(); a != 3 || b != 0 {
		t.Errorf("%d calls were made at the owner, and %d elsewhere", a, b)
	}

	// The client is asked on a stream through one replica, and answers through another.
	s := all[1].stream(legacyCall(`"c"`, "ask", ""), in)
	defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
	if got := s.next(); !strings.Contains(got, `"method":"elicitation/create"`) {
		t.Fatalf("the question: %s", got)
	}
	if res, body := all[2].post(`{"jsonrpc":"2.0","id":1,"result":`+bobSays+`}`, in); res.StatusCode != http.StatusAccepted {
		t.Errorf("the answer: %s %s", res.Status, body)
	}
	if got := s.next(); !strings.Contains(got, "Bob") {
		t.Fatalf("the result: %s", got)
	}
	if err := <-came; err != nil {
		t.Error(err)
	}

	// It cancels through another replica than it calls through.
	var calling sync.WaitGroup
	calling.Go(func() { all[1].post(legacyCall(`"s"`, "slow", ""), in) }) //nolint:bodyclose // post has read it
	<-began
	all[2].post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}`, in)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "cancelled by the client") {
		t.Errorf("the call ends with %v", err)
	}
	calling.Wait()

	// It is notified of changes on a stream through any replica.
	res := all[2].open(t.Context(), http.MethodGet, "/mcp", "", in)
	defer res.Body.Close() //nolint:errcheck // closing it cannot fail the test
	all[0].desk.mu.Lock()
	all[0].desk.tools = append(all[0].desk.tools, "new")
	all[0].desk.mu.Unlock()
	all[0].runs.Rebind(t.Context())
	heard := make([]byte, 4096)
	for text := ""; !strings.Contains(text, "notifications/tools/list_changed"); {
		n, err := res.Body.Read(heard)
		if text += string(heard[:n]); err != nil {
			t.Fatalf("heard %q, and then %v", text, err)
		}
	}

	if res, _ := all[1].do(http.MethodDelete, "/mcp", "", in); res.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %s", res.Status)
	}
	for i, r := range all {
		if res, _ := r.post(legacyCall("1", "echo", ""), in); res.StatusCode != http.StatusNotFound {
			t.Errorf("replica %d, when the session has ended: %s", i, res.Status)
		}
	}
}

func TestAParkedCallIsReachedInOneHop(t *testing.T) {
	all := replicas(t, 3)
	came := all[0].asks()
	bob := head{"Authorization": "Bearer bob"}
	state, key := asked(t, all[0].try(try{h: bob, arguments: `"a":1`}))
	answers := `{"` + key + `":` + bobSays + `}`
	for what, r := range map[string]try{
		"another principal": {state: state, answers: answers, h: head{"Authorization": "Bearer eve"}, arguments: `"a":1`},
		"other arguments":   {state: state, answers: answers, h: bob, arguments: `"a":2`},
	} {
		if got := all[1].try(r); strings.Contains(got, "Bob") {
			t.Errorf("%s: %s", what, got)
		}
	}
	again := try{state: state, answers: answers, h: bob, arguments: `"a":1`}
	if got := all[1].try(again); !strings.Contains(got, "Bob") {
		t.Fatalf("the result: %s", got)
	}
	if err := <-came; err != nil {
		t.Error(err)
	}
	if got := all[2].try(again); !strings.Contains(got, "used already") {
		t.Errorf("a second answer: %s", got)
	}

	state, key = asked(t, all[0].try(try{h: bob}))
	all[0].kill()
	wait.Until(t, "a call that is parked at a dead replica is gone", func() bool {
		return strings.Contains(all[1].try(try{state: state, answers: `{"` + key + `":` + bobSays + `}`, h: bob}), "used already, has expired")
	})
}

func TestASessionIsTakenOverWhenItsReplicaIsGone(t *testing.T) {
	for how, end := range map[string]func(*replica){
		"killed": (*replica).kill,
		"stopped": func(r *replica) {
			r.Drain(closedAfter(0))
			r.cluster.Leave(context.Background())
		},
		"about to stop": func(r *replica) { r.Drain(closedAfter(0)) },
	} {
		t.Run(how, func(t *testing.T) {
			all := replicas(t, 3)
			for _, r := range all {
				r.asks()
			}
			in := all[0].able(nil)
			if res, _ := all[1].post(legacyCall("1", "echo", ""), in); res.StatusCode != http.StatusOK {
				t.Fatal(res.Status)
			}
			end(all[0])
			// A request that is sent while the connection breaks is in flight at the killed
			// replica.
			wait.Until(t, "the others have noticed", func() bool {
				res, body := all[1].post(legacyCall("1", "echo", ""), in)
				return res.StatusCode == http.StatusOK || !strings.Contains(body, string(switchboard.CodeOutcomeUnknown))
			})
			for i := range 4 {
				if res, body := all[1+i%2].post(legacyCall("1", "echo", ""), in); res.StatusCode != http.StatusOK {
					t.Errorf("%s %s", res.Status, body)
				}
			}
			if a, b := all[1].calls(), all[2].calls(); a+b != 5 || a*b != 0 {
				t.Errorf("the other replicas made %d and %d calls", a, b)
			}
			// The new owner asks under ids that the old one has not used, and reports that
			// everything may have changed.
			s := all[2].stream(legacyCall(`"c"`, "ask", ""), in)
			defer s.body.Close() //nolint:errcheck // closing it cannot fail the test
			if got := s.next(); !strings.Contains(got, `"id":1000001,`) {
				t.Errorf("the question: %s", got)
			}
			if res, body := all[1].post(`{"jsonrpc":"2.0","id":1000001,"result":`+bobSays+`}`, in); res.StatusCode != http.StatusAccepted {
				t.Errorf("the answer: %s %s", res.Status, body)
			}
			if got := s.next(); !strings.Contains(got, "Bob") {
				t.Errorf("the result: %s", got)
			}
			h := maps.Clone(in)
			h["Last-Event-ID"] = "0-7"
			res := all[2].open(t.Context(), http.MethodGet, "/mcp", "", h)
			defer res.Body.Close() //nolint:errcheck // closing it cannot fail the test
			text, _ := io.ReadAll(io.LimitReader(res.Body, 200))
			if res.StatusCode != http.StatusOK || !strings.Contains(string(text), "list_changed") {
				t.Errorf("a stream that is resumed: %s %s", res.Status, text)
			}
		})
	}
}

func TestACallThatIsLostWithItsReplicaHasAnUnknownOutcome(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	all := replicas(t, 2)
	began, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	all[0].play("slow", func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		close(began)
		<-over
		return switchboard.Result{}, errors.New("nobody waits")
	})
	in := all[0].session(nil)
	answer := make(chan string)
	go func() {
		_, body := all[1].post(legacyCall(`7`, "slow", ""), head{"Accept": "application/json", "Mcp-Session-Id": in["Mcp-Session-Id"]}) //nolint:bodyclose // post has read it
		answer <- body
	}()
	<-began
	all[0].kill()
	if got := <-answer; !strings.Contains(got, `"id":7`) || !strings.Contains(got, string(switchboard.CodeOutcomeUnknown)) {
		t.Errorf("answered with %s", got)
	}
	if n := all[1].calls(); n != 0 {
		t.Errorf("the call was made again, %d times", n)
	}
}

func TestWithoutTheStoreOnlySessionsOfThisReplicaAreFound(t *testing.T) {
	st := store.NewMemory()
	w := newReplica(t, st, &cluster.Cluster{}).reachable()
	in, unknown := w.session(nil), newReplica(t, st, &cluster.Cluster{}).reachable().session(nil)
	_ = st.Close()
	if res, body := w.post(legacyCall("1", "echo", ""), in); res.StatusCode != http.StatusOK {
		t.Errorf("a session of this replica needs no store: %s %s", res.Status, body)
	}
	if res, body := w.post(legacyCall("1", "echo", ""), unknown); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, string(switchboard.CodeStoreUnavailable)) {
		t.Errorf("another session: %s %s", res.Status, body)
	}
	if res, body := w.post(initialize, nil); !strings.Contains(body, string(switchboard.CodeStoreUnavailable)) || res.Header.Get("Mcp-Session-Id") != "" {
		t.Errorf("a new session: %s %s", res.Status, body)
	}
}

// A counted store counts how often a session is looked up in it.
type counted struct {
	store.Store
	looks atomic.Int64
}

func (c *counted) Value(ctx context.Context, k store.Key) (store.Value, error) {
	if strings.HasPrefix(k.Group, "sessions/") {
		c.looks.Add(1)
	}
	return c.Store.Value(ctx, k)
}

func TestAnUnmintedSessionIDCostsNoReadOfTheStore(t *testing.T) {
	st := &counted{Store: store.NewMemory()}
	first := newReplica(t, st, &cluster.Cluster{}).reachable()
	const header = "Mcp-Session-Id"
	in := first.session(head{"Authorization": "Bearer bob"})
	ended := first.session(head{"Authorization": "Bearer bob"})
	if res, _ := first.do(http.MethodDelete, "/mcp", "", ended); res.StatusCode != http.StatusNoContent {
		t.Fatal(res.Status)
	}
	first.Close()
	st.looks.Store(0)
	second := newReplica(t, st, &cluster.Cluster{}).reachable()
	id := in[header]
	made := []string{"x", rand.Text(), rand.Text() + rand.Text()[:16], id[1:], id + "A", id[:26], "A" + id[1:26] + ended[header][26:]}
	for range 100 {
		made = append(made, rand.Text()+id[26:])
	}
	for _, own := range made {
		h := maps.Clone(in)
		h[header] = own
		if res, body := second.post(legacyCall("1", "echo", ""), h); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s %s", own, res.Status, body)
		}
	}
	stolen := maps.Clone(in)
	stolen["Authorization"] = "Bearer eve"
	if res, body := second.post(legacyCall("1", "echo", ""), stolen); res.StatusCode != http.StatusNotFound {
		t.Errorf("another principal's session: %s %s", res.Status, body)
	}
	if res, _ := second.do(http.MethodGet, "/mcp", "", stolen); res.StatusCode != http.StatusNotFound {
		t.Errorf("the stream of another principal's session: %s", res.Status)
	}
	if n := st.looks.Load(); n != 0 {
		t.Errorf("the store was read %d times", n)
	}
	if res, body := second.post(legacyCall("1", "echo", ""), in); res.StatusCode != http.StatusOK || st.looks.Load() != 1 {
		t.Errorf("the open session: %s %s, %d reads of the store", res.Status, body, st.looks.Load())
	}
}
