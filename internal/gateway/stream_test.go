package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

const listChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// An ear reads an event stream.
type ear struct {
	t      *testing.T
	res    *http.Response
	events *wire.EventReader
}

func (w *world) listen(ctx context.Context, method, body string, h head) *ear {
	w.t.Helper()
	res := w.open(ctx, method, "/mcp", body, h)
	w.t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(res.Body)
		w.t.Fatalf("no event stream: %s %s", res.Status, text)
	}
	return &ear{w.t, res, wire.NewEventReader(res.Body, 8<<20)}
}

// event returns the next event that is a message.
func (e *ear) event() (wire.Event, error) {
	for {
		if ev, err := e.events.Next(); err != nil || len(ev.Data) > 0 {
			return ev, err
		}
	}
}

// next returns the next message.
func (e *ear) next() string {
	e.t.Helper()
	ev, err := e.event()
	wait.Answered(e.t, e.res.Request.Context(), "the stream ended", err)
	return string(ev.Data)
}

// ends waits for the end of the stream. It fails if a message comes first.
func (e *ear) ends() {
	e.t.Helper()
	ev, err := e.event()
	if err == nil {
		e.t.Fatalf("the stream goes on: %s", ev.Data)
	}
	if errors.Is(e.res.Request.Context().Err(), context.DeadlineExceeded) {
		wait.Late(e.t, "the stream does not end")
	}
}

func TestALegacyClientIsNotifiedOfAChangedList(t *testing.T) {
	w := newWorld(t)
	in := w.session(nil)
	w.change("one") // before the stream is open
	first := w.listen(t.Context(), http.MethodGet, "", in)
	if got := first.next(); got != listChanged {
		t.Errorf("the notification of an earlier change: %s", got)
	}
	w.change("two")
	if got := first.next(); got != listChanged {
		t.Errorf("of a change: %s", got)
	}
	second := w.listen(t.Context(), http.MethodGet, "", in)
	first.ends() // the client has come back
	w.change("three")
	if got := second.next(); got != listChanged {
		t.Errorf("on the second stream: %s", got)
	}
	if _, body := w.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, in); !strings.Contains(body, `{"name":"three"`) {
		t.Errorf("the list: %s", body)
	}
	w.Close()
	second.ends()
}

func TestAModernClientGetsOnlyTheNotificationsThatItAskedFor(t *testing.T) {
	w := newWorld(t)
	body, h := modern(`"s-1"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true,"promptsListChanged":false,"somethingElse":true,"resourceSubscriptions":["x"]},`, "")
	e := w.listen(t.Context(), http.MethodPost, body, h)
	if got, want := e.next(), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s-1"},"notifications":{"toolsListChanged":true}}}`; got != want {
		t.Errorf("first: %s\nwant: %s", got, want)
	}
	for _, tool := range []string{"one", "two"} {
		w.change(tool)
		if got, want := e.next(), `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s-1"}}}`; got != want {
			t.Errorf("of a change: %s\nwant: %s", got, want)
		}
	}
	w.Close()
	if got := e.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"s-1","result":{"resultType":"complete",`) {
		t.Errorf("in the end: %s", got)
	}
	e.ends()
}

func TestAZ11_ARevokedKeyHearsNoMore(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	w := newWorld(t)
	in := w.session(head{"Authorization": "Bearer bob"})
	e := w.listen(t.Context(), http.MethodGet, "", in)
	w.revoke("bob")
	w.change("one")
	e.ends()
}

func TestARunSaysWhyItsTaskCannotBeMetAnyMore(t *testing.T) {
	w := newWorld(t)
	in := w.session(nil)
	e := w.listen(t.Context(), http.MethodGet, "", in)
	w.desk.mu.Lock()
	w.desk.reverse = true
	w.desk.mu.Unlock()
	w.runs.Rebind(t.Context())
	if got := e.next(); got != listChanged {
		t.Errorf("heard: %s", got)
	}
	for _, body := range []string{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, legacyCall("1", "echo", "")} {
		if _, got := w.post(body, in); !strings.Contains(got, `"data":{"code":"SB-CAP-004","retryable":"no","requirement":"search internet [readonly]","stage":"prune"`) || strings.Contains(got, "cause for the operator") {
			t.Errorf("%s:\n%s", body, got)
		}
	}
	if !strings.Contains(w.log.String(), "cause for the operator") {
		t.Error("the log does not say why")
	}
}

// A stall is a tool of that name that blocks its calls. in receives when one has begun. The call
// goes on when out is closed. When it is cancelled, it ends and ended receives.
type stall struct{ in, out, ended chan struct{} }

func (w *world) stalls() stall {
	s := stall{make(chan struct{}, 1000), make(chan struct{}), make(chan struct{}, 1000)}
	w.play("stall", func(ctx context.Context, _ *switchboard.Call) (switchboard.Result, error) {
		s.in <- struct{}{}
		select {
		case <-s.out:
			return switchboard.Result{JSON: []byte(`{"content":["went on"]}`)}, nil
		case <-ctx.Done():
			s.ended <- struct{}{}
			return switchboard.Result{}, ctx.Err()
		}
	})
	return s
}

func TestACancellationReachesOnlyItsCall(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cancel func(w *world, in head)
	}{
		{"notifications/cancelled", func(w *world, in head) {
			other := w.session(nil)
			note := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\u0061"}}`
			w.post(note, other) // the other client has a call with that id, but not this one
			if res, body := w.post(note, in); res.StatusCode != 202 || body != "" {
				w.t.Errorf("cancelled: %s %s", res.Status, body)
			}
		}},
		{"DELETE", func(w *world, in head) { w.do(http.MethodDelete, "/mcp", "", in) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			s := w.stalls()
			in := w.session(nil)
			bystander := make(chan string)
			go func() {
				_, body := w.post(legacyCall(`"a"`, "stall", ""), w.session(nil))
				bystander <- body
			}()
			<-s.in
			answer := make(chan string)
			go func() {
				res, body := w.post(legacyCall(`"a"`, "stall", ""), in)
				answer <- fmt.Sprint(res.StatusCode, body)
			}()
			<-s.in
			tt.cancel(w, in)
			<-s.ended
			if got := <-answer; got != "202" {
				t.Errorf("a cancelled call was answered: %s", got)
			}
			close(s.out)
			if got := <-bystander; !strings.Contains(got, "went on") {
				t.Errorf("the other client's call: %s", got)
			}
			if len(s.ended) != 0 {
				t.Error("another call was cancelled")
			}
		})
	}
}

func TestJS06_AnIDIsUnderWayOncePerClient(t *testing.T) {
	w := newWorld(t)
	s := w.stalls()
	in := w.session(nil)
	answers := make(chan string, 3)
	call := func(id string, h head) {
		_, body := w.post(legacyCall(id, "stall", ""), h)
		answers <- body
	}
	go call(`"a"`, in)
	<-s.in
	res, body := w.post(legacyCall(`"\u0061"`, "stall", ""), in)
	if res.StatusCode != 400 || errorCode(t, body) != -32600 {
		t.Errorf("the same id, in another spelling: %s %s", res.Status, body)
	}
	other := w.session(nil)
	go call(`"a"`, other)
	go call(`97`, in)
	<-s.in
	<-s.in
	close(s.out)
	for range 3 {
		if got := <-answers; !strings.Contains(got, "went on") {
			t.Errorf("answer: %s", got)
		}
	}
	if _, body := w.post(legacyCall(`"a"`, "echo", ""), in); !strings.Contains(body, `"result"`) {
		t.Errorf("the id once it is free: %s", body)
	}
}

func TestAZ03_TwoHundredCallersWithTheSameIDsGetTheirOwn(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	const callers, calls = 200, 10
	w := newWorld(t)
	w.play("mark", func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		args, _ := wire.Field(c.Params, "arguments")
		c.Notify(switchboard.Notification{Method: "notifications/progress", Params: args})
		return switchboard.Result{JSON: []byte(`{"mine":` + string(args) + `,"principal":"` + c.Principal.ID + `"}`)}, nil
	})
	old := http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = callers
	defer func() { http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = old }()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			who := fmt.Sprintf("p%d", i%7)
			auth := head{"Authorization": "Bearer " + who}
			var in head
			if i%2 == 0 {
				in = w.session(auth)
			}
			for n := range calls {
				args := fmt.Sprintf(`{"mark":"%d-%d"}`, i, n)
				body, h := modern("1", "tools/call", `"name":"mark","arguments":`+args+`,`, "mark")
				h["Authorization"] = auth["Authorization"]
				if in != nil {
					body, h = legacyCall("1", "mark", `,"arguments":`+args), in
				}
				_, got := w.post(body, h)
				if strings.Count(got, args) != 2 || strings.Count(got, `"mark":`) != 2 || !strings.Contains(got, `"principal":"`+who+`"`) {
					t.Errorf("caller %d got: %s", i, got)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestNoNotificationIsLostAndNoneComesAfterTheResult(t *testing.T) {
	const each, calls = 20_000, 3 // more than may wait
	w := newWorld(t)
	w.play("talk", func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		for i := range each {
			c.Notify(switchboard.Notification{Method: "notifications/progress", Params: fmt.Appendf(nil, `{"progressToken":1,"progress":%d}`, i)})
		}
		return switchboard.Result{JSON: []byte(`{"content":[]}`)}, nil
	})
	for range calls {
		body, h := modern("1", "tools/call", `"name":"talk",`, "talk")
		e := w.listen(t.Context(), http.MethodPost, body, h)
		for i := range each {
			if got, want := e.next(), fmt.Sprintf(`"progress":%d}`, i); !strings.Contains(got, want) {
				t.Fatalf("message %d is %s", i, got)
			}
		}
		if got := e.next(); !strings.Contains(got, `"result"`) {
			t.Fatalf("the last is %s", got)
		}
		e.ends()
	}
}

func TestSE01_SessionsAreUnguessableAndNeverAdopted(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	w := newWorld(t)
	var ids []string
	for range 50 {
		id := w.session(nil)["Mcp-Session-Id"]
		if len(id) < 26 || slices.Contains(ids, id) { // 26 letters of 5 bits
			t.Fatalf("session id %q", id)
		}
		ids = append(ids, id)
	}
	changed := []byte(ids[0])
	changed[3] ^= 1
	for _, id := range []string{"", "made-up", string(changed), strings.ToLower(ids[0]), ids[0] + "x", strings.Repeat("x", 10_000)} {
		for _, body := range []string{initialize, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`} {
			res, _ := w.post(body, head{"Mcp-Session-Id": id})
			if res.StatusCode != 404 || res.Header.Get("Mcp-Session-Id") != "" {
				t.Errorf("with the id %.40q: %s %v", id, res.Status, res.Header)
			}
		}
		if res, _ := w.do(http.MethodGet, "/mcp", "", head{"Mcp-Session-Id": id}); res.StatusCode != 404 {
			t.Errorf("GET with the id %.40q: %s", id, res.Status)
		}
	}
}

func TestAProgressTokenIsAStringOrAnIntegerAndArgumentsAreAnObject(t *testing.T) {
	w := newWorld(t)
	in := w.session(nil)
	for _, tt := range []struct {
		member string
		ok     bool
	}{
		{`"_meta":{"progressToken":"a"}`, true},
		{`"_meta":{"progressToken":""}`, true},
		{`"_meta":{"progressToken":-7}`, true},
		{`"_meta":{"progressToken":1.0}`, true},
		{`"_meta":{"progressToken":9007199254740993}`, true},
		{`"_meta":{"progressToken":1.5}`, false},
		{`"_meta":{"progressToken":1e-2}`, false},
		{`"_meta":{"progressToken":1e999}`, false},
		{`"_meta":{"progressToken":{}}`, false},
		{`"_meta":{"progressToken":[1]}`, false},
		{`"_meta":{"progressToken":true}`, false},
		{`"_meta":{"progressToken":null}`, false},
		{`"arguments":{}`, true},
		{`"arguments":null`, false},
		{`"arguments":[]`, false},
		{`"arguments":"{}"`, false},
	} {
		before := w.calls()
		_, body := w.post(legacyCall("1", "echo", ","+tt.member), in)
		if called := w.calls() > before; called != tt.ok || called == strings.Contains(body, `"code":-32602`) || !called && !strings.Contains(body, "leave it out if") {
			t.Errorf("%s: called: %t, %s", tt.member, called, body)
		}
	}
}

func TestACallCarriesTheClientsParamsAndItsPrincipal(t *testing.T) {
	w := newWorld(t)
	var got *switchboard.Call
	w.play("see", func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		got = c
		return switchboard.Result{}, errors.New("seen")
	})
	in := w.session(head{"Authorization": "Bearer bob", "Switchboard-Task": "play", "X-Tenant": "evil", "X-User": "root", "Mcp-Init-Host": "x"})
	params := `{ "_meta":{"progressToken":1e2,"vendor.example/x":1.0}, "arguments" : {"n":9007199254740993},"name":"see"}`
	w.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`, in)
	if got == nil {
		t.Fatal("no call")
	}
	if string(got.Params) != params {
		t.Errorf("params:\n got %s\nwant %s", got.Params, params)
	}
	if got.Principal.ID != "bob" || got.Principal.Tenant != "acme" || got.Task != "play" || got.Tool.ID.String() != "s/see" || len(got.Run) != 32 || got.LogLevel != "info" {
		t.Errorf("call: %+v", got)
	}
}
