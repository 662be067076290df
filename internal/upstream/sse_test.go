package upstream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// An sseSite is a server over HTTP with SSE. Its streams are at the configured address, and
// messages are posted to another one.
type sseSite struct {
	*httptest.Server
	refuses  int                                                                     // the status of a POST to the configured address
	endpoint string                                                                  // replaces the address of its endpoint
	begin    func(w http.ResponseWriter) (done bool)                                 // sees each stream first
	special  func(v *sseStream, w http.ResponseWriter, r *http.Request, m *msg) bool // sees each message first, before it is accepted
	takes    func(authorization string) bool                                         // of streams and messages; nil: it demands no token

	mu      sync.Mutex
	seen    []siteRequest
	visits  map[string]*sseStream
	instead http.Handler // replaces the site
}

// An sseStream is one stream of an sseSite.
type sseStream struct {
	id  string
	mu  sync.Mutex
	out http.ResponseWriter
	end context.CancelFunc
}

func (v *sseStream) say(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = fmt.Fprintf(v.out, "event: message\ndata: %s\n\n", fmt.Sprintf(format, args...))
	_ = http.NewResponseController(v.out).Flush()
}

func (v *sseStream) result(m *msg, result string) {
	v.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

func newSSESite(t *testing.T) *sseSite {
	o := &sseSite{refuses: http.StatusNotFound, visits: map[string]*sseStream{}}
	o.Server = httptest.NewServer(o)
	t.Cleanup(func() {
		_ = o.Listener.Close()
		o.CloseClientConnections()
		o.Close()
	})
	return o
}

func (o *sseSite) server() switchboard.Server {
	return switchboard.Server{
		ID: "one", Transport: switchboard.TransportHTTP, URL: o.URL + "/base/sse", Share: switchboard.ShareAll,
		Headers: map[string]switchboard.Secret{"Authorization": switchboard.NewSecret("Bearer s3cret-s3cret")},
	}
}

func (o *sseSite) requests(what string) []siteRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []siteRequest
	for _, r := range o.seen {
		if r.verb == what || r.msg != nil && r.msg.Method == what {
			found = append(found, r)
		}
	}
	return found
}

// end ends all streams and drops their sessions.
func (o *sseSite) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, v := range o.visits {
		v.end()
	}
	clear(o.visits)
}

func (o *sseSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m *msg
	if len(body) > 0 {
		m = parseMsg(body)
	}
	o.mu.Lock()
	o.seen = append(o.seen, siteRequest{verb: r.Method + " " + r.URL.Path, header: r.Header.Clone(), msg: m})
	v, special, instead := o.visits[r.URL.Query().Get("session")], o.special, o.instead
	o.mu.Unlock()
	if instead != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		instead.ServeHTTP(w, r)
		return
	}
	switch posted := r.URL.Path == "/base/sse" && r.Method != http.MethodGet; {
	case o.takes != nil && !posted && !o.takes(r.Header.Get("Authorization")):
		w.Header().Set("WWW-Authenticate", invalidToken)
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == "/base/sse" && r.Method == http.MethodGet:
		o.stream(w, r)
	case r.URL.Path == "/base/sse":
		http.Error(w, "no", o.refuses)
	case v == nil:
		http.Error(w, "no such session", http.StatusNotFound)
	case special != nil && special(v, w, r, m):
	default:
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "Accepted")
		o.answer(v, m)
	}
}

func (o *sseSite) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if o.begin != nil && o.begin(w) {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	o.mu.Lock()
	v := &sseStream{id: fmt.Sprint(len(o.seen)), out: w, end: cancel}
	o.visits[v.id] = v
	endpoint := o.endpoint
	if endpoint == "" {
		endpoint = "messages?session=" + v.id
	}
	o.mu.Unlock()
	v.mu.Lock()
	_, _ = fmt.Fprintf(w, ": hello\n\nevent: endpoint\ndata: %s\n\n", endpoint)
	_ = http.NewResponseController(w).Flush()
	v.mu.Unlock()
	<-ctx.Done()
	v.mu.Lock() // writing has ended
	v.out = discarded{}
	v.mu.Unlock()
}

// discarded replaces the writer of a stream that has ended.
type discarded struct{ http.ResponseWriter }

func (discarded) Write(b []byte) (int, error) { return len(b), nil }

func (o *sseSite) answer(v *sseStream, m *msg) {
	switch m.Method {
	case "initialize":
		v.result(m, strings.Replace(legacyHello, "2025-11-25", "2024-11-05", 1))
	case "tools/list":
		v.result(m, `{"tools":[`+tool("echo")+`]}`)
	case "ping":
		v.result(m, "{}")
	case "tools/call":
		v.result(m, fmt.Sprintf(`{"content":[],"visit":%q,"got":%s}`, v.id, m.Raw))
	}
}

// onSSECalls returns a special for tools/call only.
func onSSECalls(f func(v *sseStream, w http.ResponseWriter, r *http.Request, m *msg)) func(*sseStream, http.ResponseWriter, *http.Request, *msg) bool {
	return func(v *sseStream, w http.ResponseWriter, r *http.Request, m *msg) bool {
		if m.Method != "tools/call" {
			return false
		}
		f(v, w, r, m)
		return true
	}
}

func TestAServerOverHTTPWithSSEIsFoundAndRemembered(t *testing.T) {
	for _, refuses := range []int{400, 404, 405} {
		t.Run(fmt.Sprint(refuses), func(t *testing.T) {
			site := newSSESite(t)
			site.refuses = refuses
			f := readyFleet(t, Options{}, site.server())
			if s := status(t, f, "one"); s.Era != link.EraLegacy || !s.SSE || s.Version != "2024-11-05" || s.Tools != 1 {
				t.Errorf("status %+v", s)
			}
			if _, err := f.Call(t.Context(), echoCall("one", `{"n":1.0}`)); err != nil {
				t.Fatal(err)
			}
			for _, what := range []string{"GET /base/sse", "POST /base/messages"} {
				for _, r := range site.requests(what) {
					if r.header.Get("Authorization") != "Bearer s3cret-s3cret" {
						t.Errorf("%s without the credentials", what)
					}
				}
			}

			probes := len(site.requests("POST /base/sse"))
			site.end()
			wait.Until(t, "it is back", func() bool {
				s := status(t, f, "one")
				return s.Restarts == 1 && s.State == StateReady
			})
			if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
				t.Error(err)
			}
			if n := len(site.requests("POST /base/sse")); n != probes || probes != 2 {
				t.Errorf("the configured address got %d POSTs, then %d", probes, n-probes)
			}
		})
	}
}

// A freeDesk sends no token until the server demands one.
type freeDesk struct{ *tokenDesk }

func (d freeDesk) Held(p *switchboard.Principal) (link.ShownToken, bool) {
	d.mu.Lock()
	free := len(d.refused) == 0
	d.mu.Unlock()
	if free {
		return link.ShownToken{}, true
	}
	return d.tokenDesk.Held(p)
}

func (d freeDesk) Get(ctx context.Context, p *switchboard.Principal) (link.ShownToken, error) {
	if c, ok := d.Held(p); ok {
		return c, nil
	}
	return d.tokenDesk.Get(ctx, p)
}

func (d freeDesk) Refused(_ *switchboard.Principal, _ link.ShownToken, challenge []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = append(d.refused, strings.Join(challenge, "|"))
}

// Such a server refuses a POST to its address whoever asks, and demands the token for its stream alone.
func TestAServerOverHTTPWithSSEThatDemandsATokenNeedsAConnection(t *testing.T) {
	for _, refuses := range []int{400, 404, 405} {
		site := newSSESite(t)
		site.refuses = refuses
		site.takes = func(authorization string) bool { return authorization == "Bearer own-1" }
		desk := freeDesk{newTokenDesk()}
		cfg := site.server()
		cfg.Headers = nil
		var other atomic.Value // a failure of another kind
		f := openFleet(t, Options{
			Credentials: func(*switchboard.Server) link.Credentials { return desk },
			OnLink: func(_ switchboard.ServerID, up bool, why *Failure) {
				if !up && !why.NeedsConnection {
					other.Store(why.Message)
				}
			},
		}, cfg)
		awaitState(t, f, "one", StateNeedsConnection)
		if why := other.Load(); why != nil {
			t.Errorf("%d: before, it has failed: %v", refuses, why)
		}
		desk.connect("own")
		awaitState(t, f, "one", StateReady)
		c := echoCall("one", "{}")
		c.Principal.ID = "own"
		if _, err := f.Call(t.Context(), c); err != nil {
			t.Errorf("%d: %v", refuses, err)
		}
		for _, r := range site.requests("POST /base/messages") {
			if got := r.header.Get("Authorization"); got != "Bearer own-1" {
				t.Errorf("%d: a message carries %q", refuses, got)
			}
		}
	}
}

func TestAnEndpointOfAnotherOriginIsSentNothing(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	var robbed atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { robbed.Add(1) }))
	defer thief.Close()
	for _, endpoint := range []string{
		thief.URL + "/messages",
		strings.TrimPrefix(thief.URL, "http:") + "/messages",
		"https" + strings.TrimPrefix(thief.URL, "http"),
		"HTTPS://SAME/messages",
		"http://me:you@SAME/messages",
		"//localhost.example/messages",
		"ftp://SAME/",
		"javascript:alert(1)",
		"http://[::1",
		"/" + strings.Repeat("x", link.MaxEndpoint),
	} {
		t.Run(endpoint[:min(len(endpoint), 40)], func(t *testing.T) {
			site := newSSESite(t)
			site.endpoint = strings.Replace(endpoint, "SAME", site.Listener.Addr().String(), 1)
			f := openFleet(t, Options{}, site.server())
			awaitState(t, f, "one", StateRetrying)
			if s := status(t, f, "one"); !strings.Contains(s.LastFailure.Message, "the endpoint that it names is") {
				t.Errorf("failure %+v", s.LastFailure)
			}
			if n := len(site.requests("POST /base/messages")); n != 0 || robbed.Load() != 0 {
				t.Errorf("%d messages to the server, %d to the other", n, robbed.Load())
			}
		})
	}
	site := newSSESite(t)
	site.endpoint = "http://" + site.Listener.Addr().String() + "/base/messages?session=1"
	site.begin = func(http.ResponseWriter) bool {
		site.mu.Lock()
		defer site.mu.Unlock()
		site.seen = site.seen[:1] // so that the session is 1
		return false
	}
	readyFleet(t, Options{}, site.server()) // its own absolute address is accepted
}

func TestAServerWithNeitherTransportIsReportedAsRefusingTheNewer(t *testing.T) {
	for name, begin := range map[string]func(w http.ResponseWriter){
		"404":      func(w http.ResponseWriter) { w.WriteHeader(404) },
		"401":      func(w http.ResponseWriter) { w.WriteHeader(401) },
		"redirect": func(w http.ResponseWriter) { w.Header().Set("Location", "/base/messages"); w.WriteHeader(307) },
		"a page":   func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/html") },
		"nothing":  func(http.ResponseWriter) {},
		"another one": func(w http.ResponseWriter) {
			writeEvent(w, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			site := newSSESite(t)
			site.refuses = 405
			site.begin = func(w http.ResponseWriter) bool { begin(w); return true }
			f := openFleet(t, Options{}, site.server())
			awaitState(t, f, "one", StateRetrying)
			if s := status(t, f, "one"); s.SSE || !strings.Contains(s.LastFailure.Message, "405") {
				t.Errorf("%+v, failure %+v", s, s.LastFailure)
			}
			if n := len(site.requests("POST /base/messages")); n != 0 {
				t.Errorf("%d messages", n)
			}
		})
	}
}

func TestAServerThatHasLearntTheNewerTransportIsFoundAgain(t *testing.T) {
	site := newSSESite(t)
	f := readyFleet(t, Options{}, site.server())
	newer := newSite(t, link.EraModern, nil)
	site.mu.Lock()
	site.instead = newer
	site.mu.Unlock()
	site.end()
	wait.Until(t, "it is ready again", func() bool {
		s := status(t, f, "one")
		return s.State == StateReady && !s.SSE && s.Era == link.EraModern
	})
}

func TestNoCallIsExecutedTwiceOverSSE(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	hangUp := func(w http.ResponseWriter) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_ = c.Close()
	}
	accept := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusAccepted)
		_ = http.NewResponseController(w).Flush()
	}
	for _, tt := range []struct {
		name   string
		answer func(o *sseSite, v *sseStream, w http.ResponseWriter, r *http.Request, m *msg)
		code   switchboard.Code // "" if the call succeeds
		times  int              // number of POSTs
	}{
		{"the session is forgotten", func(o *sseSite, v *sseStream, w http.ResponseWriter, _ *http.Request, m *msg) {
			if len(o.requests("tools/call")) == 1 {
				w.WriteHeader(404)
				return
			}
			accept(w)
			v.result(m, "{}")
		}, "", 2},
		{"each session is forgotten", func(_ *sseSite, _ *sseStream, w http.ResponseWriter, _ *http.Request, _ *msg) { w.WriteHeader(404) }, switchboard.CodeServerUnreachable, 2},
		{"400", func(_ *sseSite, _ *sseStream, w http.ResponseWriter, _ *http.Request, _ *msg) { w.WriteHeader(400) }, switchboard.CodeServerFailed, 1},
		{"403", func(_ *sseSite, _ *sseStream, w http.ResponseWriter, _ *http.Request, _ *msg) { w.WriteHeader(403) }, switchboard.CodeServerFailed, 1},
		{"307", func(_ *sseSite, _ *sseStream, w http.ResponseWriter, _ *http.Request, _ *msg) {
			w.Header().Set("Location", "/base/messages?session=1")
			w.WriteHeader(307)
		}, switchboard.CodeServerFailed, 1},
		{"429", func(_ *sseSite, _ *sseStream, w http.ResponseWriter, _ *http.Request, _ *msg) { w.WriteHeader(429) }, switchboard.CodeRateLimit, 1},
		{"500", func(_ *sseSite, _ *sseStream, w http.ResponseWriter, _ *http.Request, _ *msg) { w.WriteHeader(500) }, switchboard.CodeOutcomeUnknown, 1},
		{"the connection breaks", func(_ *sseSite, _ *sseStream, w http.ResponseWriter, _ *http.Request, _ *msg) { hangUp(w) }, switchboard.CodeOutcomeUnknown, 1},
		{"the stream ends", func(o *sseSite, _ *sseStream, w http.ResponseWriter, _ *http.Request, _ *msg) { accept(w); o.end() }, switchboard.CodeOutcomeUnknown, 1},
		{"the stream ends first", func(o *sseSite, _ *sseStream, _ http.ResponseWriter, r *http.Request, _ *msg) {
			if len(o.requests("tools/call")) == 1 {
				o.end()
				<-r.Context().Done()
			}
		}, switchboard.CodeOutcomeUnknown, 1},
		{"an event is too large", func(_ *sseSite, v *sseStream, w http.ResponseWriter, _ *http.Request, m *msg) {
			accept(w)
			v.result(m, `"`+xs+`"`)
		}, switchboard.CodeResultInvalid, 1},
		{"an event has no end", func(_ *sseSite, v *sseStream, w http.ResponseWriter, _ *http.Request, m *msg) {
			accept(w)
			v.result(m, `"`+xs+xs+`"`)
		}, switchboard.CodeResultInvalid, 1},
		{"an event that is too large does not say of what it is", func(o *sseSite, v *sseStream, w http.ResponseWriter, _ *http.Request, m *msg) {
			accept(w)
			v.say(`{"x":"%s"}`, xs)
			v.result(m, "{}")
		}, "", 1},
		{"a flood", func(_ *sseSite, v *sseStream, w http.ResponseWriter, _ *http.Request, _ *msg) {
			accept(w)
			for range link.MaxJunk + 1 {
				v.say("no message")
			}
		}, switchboard.CodeOutcomeUnknown, 1},
		{"other answers come first", func(_ *sseSite, v *sseStream, w http.ResponseWriter, _ *http.Request, m *msg) {
			accept(w)
			v.say(`{"jsonrpc":"2.0","id":"%s","result":{}}`, m.ID)
			v.say(`{"jsonrpc":"2.0","id":4711,"result":{}}`)
			v.result(m, "{}")
		}, "", 1},
		{"the answer comes by the stream alone", func(_ *sseSite, v *sseStream, _ http.ResponseWriter, r *http.Request, m *msg) {
			v.result(m, "{}")
			<-r.Context().Done()
		}, "", 1},
		{"the answer comes before it is accepted", func(_ *sseSite, v *sseStream, w http.ResponseWriter, _ *http.Request, m *msg) {
			v.result(m, "{}")
			accept(w)
		}, "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			site := newSSESite(t)
			site.special = onSSECalls(func(v *sseStream, w http.ResponseWriter, r *http.Request, m *msg) { tt.answer(site, v, w, r, m) })
			f := readyFleet(t, Options{}, site.server())
			_, err := f.Call(t.Context(), echoCall("one", "{}"))
			if tt.code != "" {
				wantCode(t, err, tt.code)
			} else if err != nil {
				t.Error(err)
			}
			if n := len(site.requests("tools/call")); n != tt.times {
				t.Errorf("it got %d POSTs", n)
			}
			site.mu.Lock()
			site.special = nil
			site.mu.Unlock()
			wait.Until(t, "it serves the next", func() bool {
				_, err := f.Call(t.Context(), echoCall("one", "{}"))
				return err == nil
			})
		})
	}
}

func TestNotificationsOverSSEReachTheCallBeforeItsResult(t *testing.T) {
	answers := make(chan string, 1)
	site := newSSESite(t)
	site.special = func(v *sseStream, w http.ResponseWriter, _ *http.Request, m *msg) bool {
		w.WriteHeader(http.StatusAccepted)
		_ = http.NewResponseController(w).Flush()
		switch m.Method {
		case "":
			answers <- string(m.Raw)
		case "tools/call":
			v.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1.0}}`, m.Params.Meta["progressToken"])
			v.say(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
			v.result(m, fmt.Sprintf(`{"pong":%s}`, <-answers))
		default:
			site.answer(v, m)
		}
		return true
	}
	f := readyFleet(t, Options{}, site.server())
	var h notificationLog
	c := echoCall("one", "{}")
	c.Params = []byte(`{"_meta":{"progressToken":"t"}}`)
	c.Notify = h.notify
	result, err := f.Call(t.Context(), c)
	if err != nil || string(result.JSON) != `{"pong":{"jsonrpc":"2.0","id":"p","result":{}}}` {
		t.Errorf("%s, %v", result.JSON, err)
	}
	if h.count() != 1 || string(h.said[0].Params) != `{"progressToken":"t","progress":1.0}` {
		t.Errorf("heard %+v", h.said)
	}
}

func TestASSEServersQuestionReachesTheClientOfItsStreamAndNoOther(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	answers := make(map[string]chan string) // by stream
	var mu sync.Mutex
	answer := func(v *sseStream) chan string {
		mu.Lock()
		defer mu.Unlock()
		if answers[v.id] == nil {
			answers[v.id] = make(chan string, 1)
		}
		return answers[v.id]
	}
	site := newSSESite(t)
	var both sync.WaitGroup // both calls are in flight at once
	both.Add(2)
	site.special = func(v *sseStream, w http.ResponseWriter, _ *http.Request, m *msg) bool {
		w.WriteHeader(http.StatusAccepted)
		_ = http.NewResponseController(w).Flush()
		switch m.Method {
		case "":
			answer(v) <- string(m.Raw)
		case "tools/call":
			both.Done()
			both.Wait()
			v.say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
			v.result(m, <-answer(v))
		default:
			site.answer(v, m)
		}
		return true
	}
	cfg := site.server()
	cfg.Share = switchboard.SharePrincipal
	f := readyFleet(t, Options{}, cfg)
	call := func(session string) <-chan error {
		return startAsync(func() error {
			c := echoCall("one", "{}")
			c.Client = switchboard.Client{
				Session: session, Capabilities: []byte(`{"elicitation":{}}`),
				Ask: func(context.Context, string, []byte) ([]byte, error) {
					return []byte(`{"from":"` + session + `"}`), nil
				},
			}
			result, err := f.Call(t.Context(), c)
			if err == nil && !strings.Contains(string(result.JSON), session) {
				err = fmt.Errorf("%s got the answer to another call: %s", session, result.JSON)
			}
			return err
		})
	}
	ann, bob := call("ann"), call("bob")
	for _, got := range []<-chan error{ann, bob} {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

func TestCancellingOverSSENotifiesTheServer(t *testing.T) {
	started := make(chan string, 1)
	site := newSSESite(t)
	site.special = onSSECalls(func(_ *sseStream, w http.ResponseWriter, _ *http.Request, m *msg) {
		w.WriteHeader(http.StatusAccepted)
		started <- string(m.ID)
	})
	f := readyFleet(t, Options{}, site.server())
	ctx, cancel := context.WithCancel(t.Context())
	call := startAsync(func() error {
		_, err := f.Call(ctx, echoCall("one", "{}"))
		return err
	})
	id := <-started
	cancel()
	wantCode(t, <-call, switchboard.CodeOutcomeUnknown)
	wait.Until(t, "it is told by name", func() bool {
		told := site.requests("notifications/cancelled")
		return len(told) == 1 && string(told[0].msg.Params.RequestID) == id
	})
}

func TestAClientIsAskedAfterEarlierNotifications(t *testing.T) {
	answered := make(chan struct{}, 1)
	site := newSSESite(t)
	site.special = func(v *sseStream, w http.ResponseWriter, _ *http.Request, m *msg) bool {
		w.WriteHeader(http.StatusAccepted)
		switch m.Method {
		case "":
			answered <- struct{}{}
		case "tools/call":
			v.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, m.Params.Meta["progressToken"])
			v.say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
			<-answered
			v.result(m, "{}")
		default:
			site.answer(v, m)
		}
		return true
	}
	cfg := site.server()
	cfg.Share = switchboard.SharePrincipal
	f := readyFleet(t, Options{}, cfg)
	asked := make(chan struct{})
	c := echoCall("one", "{}")
	c.Params = []byte(`{"_meta":{"progressToken":"t"}}`)
	c.Notify = func(switchboard.Notification) {
		select {
		case <-asked:
			t.Error("it was asked while a notification was being delivered")
		case <-time.After(20 * time.Millisecond):
		}
	}
	c.Client = switchboard.Client{
		Session: "ann", Capabilities: []byte(`{"elicitation":{}}`),
		Ask: func(context.Context, string, []byte) ([]byte, error) {
			close(asked)
			return []byte(`{}`), nil
		},
	}
	if _, err := f.Call(t.Context(), c); err != nil {
		t.Error(err)
	}
	<-asked
}
