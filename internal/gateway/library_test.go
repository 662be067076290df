package gateway_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A library plays what servers have besides tools.
type library struct {
	mu    sync.Mutex
	held  map[*holding]bool
	begun int
	slow  chan struct{} // subscriptions to "x:slow" wait for it
	fails string        // the error object of all calls
}

// A holding is one subscription at a server.
type holding struct {
	call    *switchboard.Call
	updated func(string)
}

func (l *library) subscribe(ctx context.Context, c *switchboard.Call, updated func(string)) (func(), error) {
	if c.Target == "x:slow" {
		select {
		case <-l.slow:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if c.Target == "x:denied" {
		return nil, &switchboard.ServerError{Server: c.Server, Modern: true, Object: []byte(`{"code":-32602,"message":"no"}`)}
	}
	h := &holding{c, updated}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[*holding]bool{}
	}
	l.held[h] = true
	l.begun++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, h)
	}, nil
}

func (l *library) call(c *switchboard.Call) (switchboard.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fails != "" {
		modern := strings.HasPrefix(l.fails, "modern ")
		return switchboard.Result{}, &switchboard.ServerError{Server: c.Server, Modern: modern, Object: []byte(strings.TrimPrefix(l.fails, "modern "))}
	}
	return switchboard.Result{JSON: fmt.Appendf(nil, `{"by":%q,"target":%q,"contents":[{"uri":%[2]q},{"uri":"%[2]s/part","n":1.0},7],"params":%s}`, c.Server, c.Target, c.Params)}, nil
}

// holdings returns the subscriptions that servers have now.
func (l *library) holdings() []*holding {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.held))
}

// update reports an update of the resource, on each subscription of target.
func (l *library) update(target, uri string) {
	for _, h := range l.holdings() {
		if h.call.Target == target {
			h.updated(uri)
		}
	}
}

// offered returns the offers of servers with these resources.
func offered(servers map[string][]string) (offers []switchboard.Offer) {
	for _, id := range slices.Sorted(maps.Keys(servers)) {
		o := switchboard.Offer{Server: switchboard.ServerID(id), Capabilities: []byte(`{"resources":{}}`), Prompts: [][]byte{[]byte(`{"name":"greet"}`)}}
		for _, uri := range servers[id] {
			o.Resources = append(o.Resources, fmt.Appendf(nil, `{"uri":%q}`, uri))
		}
		offers = append(offers, o)
	}
	return offers
}

// offer makes these the servers that the task uses as a whole.
func (w *world) offer(offers []switchboard.Offer) {
	w.desk.mu.Lock()
	w.desk.whole = offers
	w.desk.mu.Unlock()
	w.runs.Rebind(context.Background())
}

func (w *world) awaitHoldings(n int) {
	w.t.Helper()
	wait.UntilNil(w.t, fmt.Sprintf("there are %d subscriptions at servers", n), func() error {
		if now := len(w.library.holdings()); now != n {
			return fmt.Errorf("there are %d", now)
		}
		return nil
	})
}

func about(method, uri string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"uri":"` + uri + `"}}`
}

func updated(uri string) string {
	return `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `"}}`
}

const (
	resourcesChanged = `{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`
	promptsChanged   = `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`
	done             = `{"jsonrpc":"2.0","id":1,"result":{}}`
)

func TestASubscriptionRestsWhileItsResourceIsHidden(t *testing.T) {
	w := newWorld(t)
	w.offer(offered(map[string][]string{"a": {"x:1", "x:2"}}))
	in := w.session(nil)
	for range 2 { // the second changes nothing
		if _, body := w.post(about("resources/subscribe", "x:1"), in); body != done {
			t.Fatalf("subscribe: %s", body)
		}
	}
	w.awaitHoldings(1)
	e := w.listen(t.Context(), http.MethodGet, "", in)
	w.library.update("x:1", "x:1")
	if got := e.next(); got != updated("x:1") {
		t.Errorf("heard %s", got)
	}
	stale := w.library.holdings()[0]
	w.offer(nil)
	if got := []string{e.next(), e.next()}; !slices.Equal(got, []string{resourcesChanged, promptsChanged}) {
		t.Errorf("heard %s", got)
	}
	stale.updated("x:1/hiding")
	w.awaitHoldings(0)
	stale.updated("x:1/hidden")
	if _, body := w.post(about("resources/subscribe", "x:2"), in); !strings.Contains(body, `"code":-32002,"message":"Resource not found: x:2"`) {
		t.Errorf("what is hidden: %s", body)
	}
	w.offer(offered(map[string][]string{"a": {"x:1"}}))
	w.awaitHoldings(1)
	heard := []string{e.next(), e.next(), e.next()}
	if slices.Sort(heard); !slices.Equal(heard, []string{promptsChanged, resourcesChanged, updated("x:1")}) {
		t.Errorf("when it is shown again: %s", heard)
	}
	w.library.update("x:1", "x:1")
	if got := e.next(); got != updated("x:1") {
		t.Errorf("afterwards: %s", got)
	}
	w.do(http.MethodDelete, "/mcp", "", in)
	w.awaitHoldings(0) // the session has ended
}

func TestUnsubscribeDropsQueuedUpdates(t *testing.T) {
	w := newWorld(t)
	w.offer(offered(map[string][]string{"a": {"x:1", "x:2", "x:2/part"}, "b": {"x:2", "x:2/part"}}))
	in := w.session(nil)
	const ofB = "switchboard://b/x:2"
	for _, uri := range []string{"x:1", ofB, ofB + "/part"} {
		if _, body := w.post(about("resources/subscribe", uri), in); body != done {
			t.Fatalf("%s: %s", uri, body)
		}
	}
	first := w.library.holdings()
	for range 3 { // no client listens yet, so they are merged
		w.library.update("x:1", "x:1")
		w.library.update("x:1", "x:1/part")
		w.library.update("x:2", "x:2")
	}
	w.library.update("x:2", "x:2/part")
	w.library.update("x:2/part", "x:2/part") // both name it
	w.post(about("resources/unsubscribe", "x:1"), in)
	w.awaitHoldings(2)
	for _, h := range first {
		if h.call.Target == "x:1" {
			h.updated("x:1") // the update was on its way at the unsubscribe
		}
	}
	e := w.listen(t.Context(), http.MethodGet, "", in)
	if got := []string{e.next(), e.next()}; !slices.Equal(got, []string{updated(ofB), updated(ofB + "/part")}) {
		t.Errorf("heard %s", got)
	}
	w.change("one")
	if got := e.next(); got != listChanged {
		t.Errorf("then %s", got)
	}
}

func TestASlowServerDelaysNoOtherSubscription(t *testing.T) {
	w := newWorld(t)
	w.library.slow = make(chan struct{})
	w.offer(offered(map[string][]string{"a": {"x:1", "x:slow"}}))
	in := w.session(nil)
	slow := make(chan string)
	go func() {
		_, body := w.post(strings.Replace(about("resources/subscribe", "x:slow"), `"id":1`, `"id":2`, 1), in)
		slow <- body
	}()
	if _, body := w.post(about("resources/subscribe", "x:1"), in); body != done {
		t.Errorf("the other: %s", body)
	}
	w.post(about("resources/unsubscribe", "x:1"), in)
	w.awaitHoldings(0)
	close(w.library.slow)
	if body := <-slow; body != strings.Replace(done, `"id":1`, `"id":2`, 1) {
		t.Errorf("the slow one: %s", body)
	}
	w.awaitHoldings(1)
}

func TestAModernClientGetsUpdatesOfGrantedResources(t *testing.T) {
	w := newWorld(t)
	w.offer(offered(map[string][]string{"a": {"x:1", "x:2", "x:denied"}, "b": {"x:2"}}))
	body, h := modern(`"l"`, "subscriptions/listen", `"notifications":{"promptsListChanged":true,"toolsListChanged":false,"resourceSubscriptions":["x:1","x:2","switchboard://a/x:denied","switchboard://b/x:2"]},`, "")
	e := w.listen(t.Context(), http.MethodPost, body, h)
	const tag = `"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}`
	want := `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{` + tag + `,"notifications":{"promptsListChanged":true,"resourceSubscriptions":["x:1","switchboard://b/x:2"]}}}`
	if got := e.next(); got != want {
		t.Fatalf("granted %s", got)
	}
	w.library.update("x:1", "x:1")
	if got := e.next(); got != strings.Replace(updated("x:1"), `"}}`, `",`+tag+`}}`, 1) {
		t.Errorf("heard %s", got)
	}
	w.change("one")                                                   // a tool; it does not want these notifications
	w.offer(offered(map[string][]string{"a": {"x:1"}, "b": {"x:2"}})) // and resources
	w.offer(nil)
	if got := e.next(); got != strings.Replace(promptsChanged, `changed"}`, `changed","params":{`+tag+`}}`, 1) {
		t.Errorf("heard %s", got)
	}
	w.awaitHoldings(0)
	w.offer(offered(map[string][]string{"a": {"x:1"}}))
	w.awaitHoldings(1)
	_ = e.res.Body.Close()
	w.awaitHoldings(0) // the stream has ended
}

func TestAClientHasALimitOfSubscriptionsAndSubscribesAsItCalls(t *testing.T) {
	w := newWorld(t)
	listed := []string{"x:more"}
	for i := range session.MaxSubscriptions {
		listed = append(listed, fmt.Sprint("x:", i))
	}
	w.offer(offered(map[string][]string{"a": listed}))
	res, _ := w.post(strings.Replace(initialize, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1), nil)
	in := head{"Mcp-Session-Id": res.Header.Get("Mcp-Session-Id")}
	for i := range session.MaxSubscriptions {
		if _, body := w.post(about("resources/subscribe", fmt.Sprint("x:", i)), in); !strings.Contains(body, `"result":{}`) {
			t.Fatalf("%d: %s", i, body)
		}
	}
	if _, body := w.post(about("resources/subscribe", "x:more"), in); !strings.Contains(body, `"SB-ROUT-003"`) {
		t.Errorf("one more: %s", body)
	}
	if _, body := w.post(about("resources/subscribe", "x:"+strings.Repeat("y", 9<<10)), in); !strings.Contains(body, `"code":-32002`) {
		t.Errorf("a long one: %.200s", body)
	}
	for _, h := range w.library.holdings() {
		if who := h.call.Client; who.Ask == nil || who.Session == "" || string(who.Capabilities) != `{"elicitation":{}}` {
			t.Fatalf("it subscribes as %+v", who)
		}
	}
}

func TestReadsAreMappedBackAndErrorsBridged(t *testing.T) {
	w := newWorld(t)
	w.offer(offered(map[string][]string{"a": {"x:1", "x:2", "x:denied"}, "b": {"x:2"}}))
	in := w.session(nil)
	const ofB = "switchboard://b/x:2"
	if _, body := w.post(about("resources/read", ofB), in); !strings.Contains(body, `"by":"b","target":"x:2","contents":[{"uri":"`+ofB+`"},{"uri":"`+ofB+`/part","n":1.0},7]`) {
		t.Errorf("read: %s", body)
	}
	if _, body := w.post(about("resources/read", "x:1"), in); !strings.Contains(body, `"contents":[{"uri":"x:1"},{"uri":"x:1/part","n":1.0},7]`) {
		t.Errorf("read: %s", body)
	}
	const unknown = `"message":"Resource not found: x:2","data":{"code":"SB-CAP-001","retryable":"no","uri":"x:2"}`
	for _, tt := range []struct {
		fails, method, uri string
		legacy, modern     string
		status             int // of the modern answer
	}{
		{"", "resources/read", "x:2", `"code":-32002,` + unknown, `"code":-32602,` + unknown, 400},
		{`{"code":-32002,"message":"m","data":{"n":1.0}}`, "resources/read", "x:1", `{"code":-32002,"message":"m","data":{"n":1.0}}`, `{"code":-32602,"message":"m","data":{"n":1.0}}`, 400},
		{`modern {"code":-32602,"message":"m"}`, "resources/read", "x:1", `{"code":-32002,"message":"m"}`, `{"code":-32602,"message":"m"}`, 400},
		{`{"code":-32601,"message":"m"}`, "resources/read", "x:1", `{"code":-32601,"message":"m"}`, `{"code":-32601,"message":"m"}`, 404},
		{`{"code":-32000,"message":"m"}`, "resources/read", "x:1", `{"code":-32000,"message":"m"}`, `{"code":-32000,"message":"m"}`, 200},
		{"", "lab/x", "", `"code":-32601`, `"code":-32601`, 404},
	} {
		w.library.mu.Lock()
		w.library.fails = tt.fails
		w.library.mu.Unlock()
		res, body := w.post(about(tt.method, tt.uri), in)
		if !strings.Contains(body, tt.legacy) || res.StatusCode != 200 {
			t.Errorf("%+v: %s %s", tt, res.Status, body)
		}
		message, h := modern("1", tt.method, `"uri":"`+tt.uri+`",`, tt.uri)
		res, body = w.post(message, h)
		if !strings.Contains(body, tt.modern) || res.StatusCode != tt.status {
			t.Errorf("%+v, modern: %s %s", tt, res.Status, body)
		}
	}
	if _, body := w.post(about("resources/subscribe", "switchboard://a/x:denied"), in); !strings.Contains(body, `{"code":-32002,"message":"no"}`) {
		t.Errorf("a subscription that is refused: %s", body)
	}
}
