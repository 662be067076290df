package upstream

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

var eras = []link.Era{link.EraLegacy, link.EraModern}

func TestTheRequestsToALegacyAndAModernServerOverHTTP(t *testing.T) {
	definition := `{"name":"naïve tool","inputSchema":{"type":"object","properties":{
		"where":{"type":"string","x-mcp-header":"Region"},
		"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"Count"}}},
		"sure":{"type":"boolean","x-mcp-header":"Sure"},
		"evil":{"type":"string","x-mcp-header":"X\r\nY"},
		"none":{"type":"string","x-mcp-header":"None"}}}}`
	params := `{ "name":"shown", "arguments":{"where":"zürich","deep":{"n":42.0},"sure":true,"evil":"x","big":12345678901234567890},
		"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/logLevel":"debug","io.switchboard/run":"r","traceparent":"00-1","progressToken":"mine"}, "extra":1.0}`
	for _, era := range eras {
		t.Run(string(era), func(t *testing.T) {
			site := newSite(t, era, nil)
			cfg := site.server()
			cfg.Headers["Idempotency-Key"] = switchboard.NewSecret("k")
			cfg.Headers["Mcp-Method"] = switchboard.NewSecret("evil")
			f := readyFleet(t, Options{Name: "sb", Version: "v9"}, cfg)
			c := echoCall("one", "{}")
			c.Tool = &switchboard.Tool{ID: switchboard.ToolID{Server: "one", Name: "naïve tool"}, Definition: []byte(definition)}
			c.Target = c.Tool.ID.Name
			c.Params, c.LogLevel = []byte(params), "warning"
			if _, err := f.Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			got := site.requests("tools/call")
			if len(got) != 1 {
				t.Fatalf("%d calls", len(got))
			}
			m, h := got[0].msg, got[0].header
			meta := `"_meta":{"traceparent":"00-1","progressToken":` + string(m.ID)
			if era == link.EraModern {
				meta += `,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"sb","version":"v9"},` +
					`"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"warning"`
			}
			want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{ "name":"naïve tool", "arguments":{"where":"zürich","deep":{"n":42.0},"sure":true,"evil":"x","big":12345678901234567890},
		%s}, "extra":1.0}}`, m.ID, meta)
			if string(m.Raw) != want {
				t.Errorf("body\n%s, want\n%s", m.Raw, want)
			}
			headers := map[string]string{
				"Authorization": "Bearer s3cret-s3cret", "Accept-Encoding": "identity", "Idempotency-Key": "", "Cookie": "",
				"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
				"Mcp-Param-None": "", "Mcp-Param-X": "",
			}
			if era == link.EraModern {
				headers["Mcp-Protocol-Version"], headers["Mcp-Session-Id"] = "2026-07-28", ""
				headers["Mcp-Method"], headers["Mcp-Name"] = "tools/call", "=?base64?bmHDr3ZlIHRvb2w=?="
				headers["Mcp-Param-Region"], headers["Mcp-Param-Count"], headers["Mcp-Param-Sure"] = "=?base64?esO8cmljaA==?=", "42", "true"
			} else {
				headers["Mcp-Protocol-Version"], headers["Mcp-Session-Id"] = "2025-11-25", h.Get("Mcp-Session-Id")
				headers["Mcp-Method"], headers["Mcp-Name"], headers["Mcp-Param-Region"] = "", "", ""
				if h.Get("Mcp-Session-Id") == "" {
					t.Error("no session")
				}
			}
			for name, want := range headers {
				if got := strings.Join(h.Values(name), "|"); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}

			f.Close(t.Context())
			if got := len(site.requests("DELETE")); got != map[link.Era]int{link.EraLegacy: 1}[era] {
				t.Errorf("%d sessions were ended", got)
			}
		})
	}
}

func TestNoCallIsExecutedTwiceOverHTTP(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	var executed atomic.Int32
	hijack := func(w http.ResponseWriter, last string) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(c, last)
		_ = c.Close()
	}
	for _, tt := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request, m *msg)
		code   switchboard.Code
	}{
		{"the connection is closed", func(w http.ResponseWriter, _ *http.Request, _ *msg) { hijack(w, "") }, switchboard.CodeOutcomeUnknown},
		{"half a header", func(w http.ResponseWriter, _ *http.Request, _ *msg) { hijack(w, "HTTP/1.1 200 O") }, switchboard.CodeOutcomeUnknown},
		{"half a body", func(w http.ResponseWriter, _ *http.Request, _ *msg) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		}, switchboard.CodeOutcomeUnknown},
		{"half a stream", func(w http.ResponseWriter, _ *http.Request, _ *msg) {
			writeEvent(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
		}, switchboard.CodeOutcomeUnknown},
		{"500", func(w http.ResponseWriter, _ *http.Request, _ *msg) { w.WriteHeader(500) }, switchboard.CodeOutcomeUnknown},
		{"502", func(w http.ResponseWriter, _ *http.Request, _ *msg) { w.WriteHeader(502) }, switchboard.CodeOutcomeUnknown},
		{"503", func(w http.ResponseWriter, _ *http.Request, _ *msg) { w.WriteHeader(503) }, switchboard.CodeOutcomeUnknown},
		{"429", func(w http.ResponseWriter, _ *http.Request, _ *msg) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(429)
		}, switchboard.CodeRateLimit},
		{"403", func(w http.ResponseWriter, _ *http.Request, _ *msg) { w.WriteHeader(403) }, switchboard.CodeServerFailed},
		{"307", func(w http.ResponseWriter, r *http.Request, _ *msg) {
			w.Header().Set("Location", "http://"+r.Host+"/other")
			w.WriteHeader(307)
		}, switchboard.CodeServerFailed},
		{"202", func(w http.ResponseWriter, _ *http.Request, _ *msg) { w.WriteHeader(202) }, switchboard.CodeResultInvalid},
		{"a page", func(w http.ResponseWriter, _ *http.Request, _ *msg) { _, _ = io.WriteString(w, "<html>") }, switchboard.CodeResultInvalid},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request, _ *msg) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{")
		}, switchboard.CodeResultInvalid},
		{"another id", func(w http.ResponseWriter, _ *http.Request, m *msg) {
			writeResult(w, &msg{ID: []byte(`"` + string(m.ID) + `"`)}, "{}")
		}, switchboard.CodeResultInvalid},
		{"a batch", func(w http.ResponseWriter, _ *http.Request, m *msg) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `[{"jsonrpc":"2.0","id":%s,"result":{}}]`, m.ID)
		}, switchboard.CodeResultInvalid},
		{"too large, said so", func(w http.ResponseWriter, _ *http.Request, m *msg) { writeResult(w, m, `"`+xs+`"`) }, switchboard.CodeResultInvalid},
		{"too large, in chunks", func(w http.ResponseWriter, _ *http.Request, m *msg) {
			_ = http.NewResponseController(w).Flush()
			writeResult(w, m, `"`+xs+`"`)
		}, switchboard.CodeResultInvalid},
		{"too large, an event", func(w http.ResponseWriter, _ *http.Request, m *msg) {
			writeEvent(w, `{"jsonrpc":"2.0","id":%s,"result":"%s"}`, m.ID, xs)
		}, switchboard.CodeResultInvalid},
		{"compressed", func(w http.ResponseWriter, _ *http.Request, m *msg) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = fmt.Fprintf(z, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
			_ = z.Close()
		}, switchboard.CodeResultInvalid},
		{"a flood", func(w http.ResponseWriter, r *http.Request, _ *msg) {
			for r.Context().Err() == nil {
				writeEvent(w, `not a message`)
			}
		}, switchboard.CodeOutcomeUnknown},
		{"input wanted", func(w http.ResponseWriter, _ *http.Request, m *msg) {
			writeResult(w, m, `{"x":[1],"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}`)
		}, switchboard.CodeServerFailed},
		{"nothing wanted", func(w http.ResponseWriter, _ *http.Request, m *msg) {
			writeResult(w, m, `{"x":[1],"resultType":"input_required","inputRequests":{}}`)
		}, switchboard.CodeResultInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			executed.Store(0)
			site := newSite(t, link.EraModern, onCalls(func(w http.ResponseWriter, r *http.Request, m *msg) {
				executed.Add(1)
				tt.answer(w, r, m)
			}))
			f := readyFleet(t, Options{}, site.server())
			_, err := f.Call(t.Context(), echoCall("one", "{}"))
			e := wantRefusal(t, err, tt.code)
			if n := executed.Load(); n != 1 {
				t.Errorf("it was executed %d times", n)
			}
			if strings.Contains(e.Text, site.URL) || strings.Contains(e.Error(), "s3cret") {
				t.Errorf("the log has too much: %v", e)
			}
			if tt.name == "429" && e.RetryAfter != 7*time.Second {
				t.Errorf("retry after %s", e.RetryAfter)
			}
			if s := status(t, f, "one"); s.State != StateReady {
				t.Errorf("%s: %+v", s.State, s.LastFailure)
			}
		})
	}
}

func TestAnErrorOfTheServersIsPassedOnWithAnyStatus(t *testing.T) {
	for _, status := range []int{200, 400, 404, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			site := newSite(t, link.EraModern, onCalls(func(w http.ResponseWriter, r *http.Request, m *msg) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"you sent %s"}}`, m.ID, r.Header.Get("Authorization"))
			}))
			f := readyFleet(t, Options{}, site.server())
			_, err := f.Call(t.Context(), echoCall("one", "{}"))
			e, ok := errors.AsType[*switchboard.ServerError](err)
			if !ok || string(e.Object) != `{"code":-32602,"message":"you sent ***"}` {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNotificationsOnACallsStreamComeInOrderBeforeTheResult(t *testing.T) {
	const n = 3000
	for _, era := range eras {
		t.Run(string(era), func(t *testing.T) {
			site := newSite(t, era, onCalls(func(w http.ResponseWriter, _ *http.Request, m *msg) {
				for i := range n {
					writeEvent(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.Params.Meta["progressToken"], i)
				}
				writeEvent(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":99999,"progress":1}}`)
				writeEvent(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1.0}}`)
				writeEvent(w, `{"jsonrpc":"2.0","id":%s,"result":{"last":1.0}}`, m.ID)
			}))
			f := readyFleet(t, Options{}, site.server())
			c := echoCall("one", "{}")
			c.Params = []byte(`{"_meta":{"progressToken":"t"}}`)
			c.LogLevel = "info"
			var h notificationLog
			c.Notify = h.notify
			result, err := f.Call(t.Context(), c)
			if err != nil || string(result.JSON) != `{"last":1.0}` {
				t.Fatalf("%s, %v", result.JSON, err)
			}
			if h.count() != n+1 {
				t.Fatalf("%d notifications, want %d", h.count(), n+1)
			}
			for i, said := range h.said[:n] {
				if want := fmt.Sprintf(`{"progressToken":"t","progress":%d}`, i); string(said.Params) != want {
					t.Fatalf("%d is %s", i, said.Params)
				}
			}
			if last := h.said[n]; string(last.Params) != `{"level":"error","data":1.0}` || last.Method != "notifications/message" {
				t.Errorf("last is %s", last.Params)
			}
		})
	}
}

func TestALegacyServerIsAskedOnceForTheMostVerboseLevel(t *testing.T) {
	site := newSite(t, link.EraLegacy, nil)
	f := readyFleet(t, Options{}, site.server())
	for _, level := range []string{"", "error", "error", "alert", "info", "warning", "no such level"} {
		c := echoCall("one", "{}")
		c.LogLevel = level
		if _, err := f.Call(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if want := map[string]int{"error": 1, "info": 2}[level]; len(site.requests("logging/setLevel")) < want {
			t.Errorf("%s: the call ended before the server got it", level)
		}
	}
	var asked []string
	for _, r := range site.requests("logging/setLevel") {
		asked = append(asked, r.msg.Params.Level)
	}
	if got := strings.Join(asked, ", "); got != "error, info" {
		t.Errorf("requested %s", got)
	}
}

func TestACallOverHTTPDoesNotWaitLongForAServerThatDoesNotSetItsLevel(t *testing.T) {
	site := newSite(t, link.EraLegacy, func(_ http.ResponseWriter, r *http.Request, m *msg) bool {
		if m == nil || m.Method != "logging/setLevel" {
			return false
		}
		<-r.Context().Done()
		return true
	})
	cfg := site.server()
	cfg.Timeout = link.LogLevelTimeout / 2
	f := readyFleet(t, Options{}, cfg)
	c := echoCall("one", "{}")
	c.LogLevel = "info"
	if _, err := f.Call(t.Context(), c); err != nil {
		t.Error(err)
	}
}

func TestCancellingOverHTTPNotifiesTheServerAsItsEraDemands(t *testing.T) {
	for _, era := range eras {
		t.Run(string(era), func(t *testing.T) {
			started, ended := make(chan string, 1), make(chan struct{})
			site := newSite(t, era, onCalls(func(_ http.ResponseWriter, r *http.Request, m *msg) {
				started <- string(m.ID)
				<-r.Context().Done()
				close(ended)
			}))
			f := readyFleet(t, Options{}, site.server())
			ctx, cancel := context.WithCancel(t.Context())
			call := startAsync(func() error {
				_, err := f.Call(ctx, echoCall("one", "{}"))
				return err
			})
			id := <-started
			cancel()
			wantCode(t, <-call, switchboard.CodeOutcomeUnknown)
			<-ended
			if era == link.EraModern {
				if n := len(site.requests("notifications/cancelled")); n != 0 {
					t.Errorf("%d notifications that the era does not have", n)
				}
				return
			}
			wait.Until(t, "it is told by name", func() bool {
				told := site.requests("notifications/cancelled")
				return len(told) == 1 && string(told[0].msg.Params.RequestID) == id
			})
		})
	}
}

func TestALegacyServerIsNotifiedOfEachOfManyCancelledCalls(t *testing.T) {
	const n = 200
	site := newSite(t, link.EraLegacy, onCalls(func(_ http.ResponseWriter, r *http.Request, _ *msg) { <-r.Context().Done() }))
	f := readyFleet(t, Options{}, site.server())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { _, _ = f.Call(ctx, echoCall("one", "{}")) })
	}
	wait.Until(t, "all are under way", func() bool { return len(site.requests("tools/call")) == n })
	cancel()
	wg.Wait()
	if st := status(t, f, "one"); st.InFlight != 0 || f.server("one").gate.InFlight() != 0 || pendingCount(f, "one") != 0 {
		t.Errorf("%+v", st)
	}
	wait.Until(t, "it is told of each", func() bool {
		told := map[string]bool{}
		for _, r := range site.requests("notifications/cancelled") {
			told[string(r.msg.Params.RequestID)] = true
		}
		for _, r := range site.requests("tools/call") {
			if !told[string(r.msg.ID)] {
				return false
			}
		}
		return len(told) == n
	})
}

func TestACallThatTimesOutIsCancelledAtItsServer(t *testing.T) {
	for _, era := range eras {
		t.Run(string(era), func(t *testing.T) {
			ended := make(chan struct{})
			site := newSite(t, era, onCalls(func(w http.ResponseWriter, r *http.Request, _ *msg) {
				writeEvent(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`) // the call has begun
				<-r.Context().Done()
				close(ended)
			}))
			s := site.server()
			s.Timeout = time.Second
			f := readyFleet(t, Options{}, s)
			_, err := f.Call(t.Context(), echoCall("one", "{}"))
			wantCode(t, err, switchboard.CodeOutcomeUnknown)
			<-ended
			want := map[link.Era]int{link.EraLegacy: 1}[era]
			wait.Until(t, "it is told", func() bool { return len(site.requests("notifications/cancelled")) == want })
		})
	}
}

func TestListChangesOverHTTPAreNoticedAlsoAfterTheStreamHasEnded(t *testing.T) {
	for _, era := range eras {
		t.Run(string(era), func(t *testing.T) {
			t.Parallel()
			site := newSite(t, era, nil)
			f := readyFleet(t, Options{}, site.server())
			become := func(name string) {
				site.mu.Lock()
				defer site.mu.Unlock()
				site.tools = tool(name)
			}
			offered := func(name string) func() bool {
				return func() bool { return string(f.Offers()[0].Tools[0]) == tool(name) }
			}
			become("second")
			site.changed <- struct{}{}
			wait.Until(t, "the second is offered", offered("second"))
			become("third")
			site.CloseClientConnections() // the change is not announced
			wait.Until(t, "the third is offered", offered("third"))
			become("fourth")
			site.changed <- struct{}{} // a stream was opened again
			wait.Until(t, "the fourth is offered", offered("fourth"))
			if s := status(t, f, "one"); s.Restarts != 0 {
				t.Errorf("%d restarts", s.Restarts)
			}
		})
	}
}

func TestAStreamThatALegacyServerEndsIsResumedAndTheCallNotRepeated(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	var call atomic.Pointer[msg]
	site := newSite(t, link.EraLegacy, func(w http.ResponseWriter, r *http.Request, m *msg) bool {
		switch {
		case m != nil && m.Method == "tools/call":
			call.Store(m)
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "id: e1\nretry: 1\ndata:\n\n")
			return true
		case r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "e1":
			writeEvent(w, `{"jsonrpc":"2.0","id":%s,"result":{"resumed":true}}`, call.Load().ID)
			return true
		}
		return false
	})
	f := readyFleet(t, Options{}, site.server())
	result, err := f.Call(t.Context(), echoCall("one", "{}"))
	if err != nil || string(result.JSON) != `{"resumed":true}` {
		t.Fatalf("%s, %v", result.JSON, err)
	}
	if n := len(site.requests("tools/call")); n != 1 {
		t.Errorf("it was called %d times", n)
	}
}

func TestACallIsPolledAtTheServersPaceUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	const polls, wait = 12, 60 * time.Millisecond
	var mu sync.Mutex
	var call *msg
	var told string       // the last event
	var began []time.Time // when each stream began
	site := newSite(t, link.EraLegacy, func(w http.ResponseWriter, r *http.Request, m *msg) bool {
		mu.Lock()
		defer mu.Unlock()
		switch last := r.Header.Get("Last-Event-Id"); {
		case m != nil && m.Method == "tools/call":
			call = m
		case last == "":
			return false
		case last != told:
			t.Errorf("resumed after %s, want %s", last, told)
		}
		began = append(began, time.Now())
		n := len(began)
		if n == 3 { // this answers nothing
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		w.Header().Set("Content-Type", "text/event-stream")
		told = fmt.Sprintf("e%d", n)
		_, _ = fmt.Fprintf(w, "id: %s\n", told)
		switch {
		case n == 1: // the wait is sent once and stays valid
			_, _ = fmt.Fprintf(w, "retry: %d\ndata:\n\n", wait.Milliseconds())
		case n <= polls:
			_, _ = fmt.Fprint(w, "data:\n\n")
		default:
			_, _ = fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%s,"result":{}}`+"\n\n", call.ID)
		}
		return true
	})
	f := readyFleet(t, Options{}, site.server())
	if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
		t.Fatal(err)
	}
	if n := len(site.requests("tools/call")); n != 1 {
		t.Errorf("it was called %d times", n)
	}
	for i := range began[1:] {
		if pause := began[i+1].Sub(began[i]); pause < wait {
			t.Errorf("stream %d began after %s, want %s", i+1, pause, wait)
		}
	}
}

func TestAStreamIsReopenedEvenIfTheServerRefusesAtFirst(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusConflict} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var opened atomic.Int32
			site := newSite(t, link.EraLegacy, nil)
			site.set(func(w http.ResponseWriter, r *http.Request, _ *msg) bool {
				if r.Method != http.MethodGet || r.Header.Get("Mcp-Session-Id") == "" {
					return false
				}
				switch opened.Add(1) {
				case 1:
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = fmt.Fprint(w, "id: e1\ndata:\n\n")
				case 2: // it has not noticed yet, or does not store events
					w.WriteHeader(status)
				default:
					if last := r.Header.Get("Last-Event-Id"); last != "" {
						t.Errorf("it was asked to resume after %s, which it has refused", last)
					}
					return false
				}
				return true
			})
			f := readyFleet(t, Options{}, site.server())
			wait.Until(t, "it is heard again", func() bool { return opened.Load() == 3 })
			site.mu.Lock()
			site.tools = tool("second")
			site.mu.Unlock()
			site.changed <- struct{}{}
			wait.Until(t, "the second is offered", func() bool { return string(f.Offers()[0].Tools[0]) == tool("second") })
		})
	}
}

func TestAServersRequestsOverHTTPAreAnswered(t *testing.T) {
	answers := make(chan string, 2)
	site := newSite(t, link.EraLegacy, nil)
	site.set(func(w http.ResponseWriter, _ *http.Request, m *msg) bool {
		switch {
		case m != nil && m.Method == "tools/call":
			writeEvent(w, `{"jsonrpc":"2.0","id":"a","method":"ping"}`)
			first := <-answers
			writeEvent(w, `{"jsonrpc":"2.0","id":"b","method":"elicitation/create","params":{}}`)
			writeEvent(w, `{"jsonrpc":"2.0","id":%s,"result":{"got":[%s,%s]}}`, m.ID, first, <-answers)
		case m != nil && m.Method == "" && m.ID != nil:
			answers <- string(m.Raw)
			w.WriteHeader(http.StatusAccepted)
		default:
			return false
		}
		return true
	})
	f := readyFleet(t, Options{}, site.server())
	result, err := f.Call(t.Context(), echoCall("one", "{}"))
	want := `{"got":[{"jsonrpc":"2.0","id":"a","result":{}},{"jsonrpc":"2.0","id":"b","error":{"code":-32601,"message":"the client offers no such method"}}]}`
	if err != nil || string(result.JSON) != want {
		t.Errorf("%s, %v", result.JSON, err)
	}
}

func TestSessionsArePerPrincipalAndModernServersNeedNone(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	for _, era := range eras {
		site := newSite(t, era, nil)
		cfg := site.server()
		cfg.Share = switchboard.SharePrincipal
		f := readyFleet(t, Options{}, cfg)
		for _, who := range []string{"ann", "bob", "ann"} {
			c := echoCall("one", "{}")
			c.Principal.ID = who
			if _, err := f.Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		calls := site.requests("tools/call")
		session := func(i int) string { return calls[i].header.Get("Mcp-Session-Id") }
		if apart := session(0) != session(1); apart != (era == link.EraLegacy) || session(0) != session(2) {
			t.Errorf("%s: sessions %q, %q, %q", era, session(0), session(1), session(2))
		}
	}
}

func TestAServerThatWasAwayIsFoundAgainByACall(t *testing.T) {
	for _, era := range eras {
		t.Run(string(era), func(t *testing.T) {
			t.Parallel()
			site := newSite(t, era, nil)
			address := site.Listener.Addr().String()
			f := readyFleet(t, Options{}, site.server())
			site.down()
			awaitState(t, f, "one", StateRetrying)
			_, err := f.Call(t.Context(), echoCall("one", "{}"))
			wantCode(t, err, switchboard.CodeServerUnreachable)
			if offers := f.Offers(); len(offers) != 1 || !offers[0].Stale {
				t.Errorf("offers %+v", offers)
			}

			wait.Until(t, "two attempts have failed", func() bool { return status(t, f, "one").Failed >= 2 })

			site.forget() // it returns as a process without state
			listener, err := net.Listen("tcp", address)
			if err != nil {
				t.Skipf("the port was taken meanwhile: %v", err)
			}
			site.Server = httptest.NewUnstartedServer(site)
			_ = site.Listener.Close()
			site.Listener = listener
			site.Start()
			if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
				t.Errorf("after its return: %v", err)
			}
			awaitState(t, f, "one", StateReady)
			if offers := f.Offers(); offers[0].Stale {
				t.Error("its offer is still stale")
			}
			if n := status(t, f, "one").Failed; n != 0 {
				t.Errorf("%d attempts count as failed since it was ready", n)
			}
		})
	}
}
