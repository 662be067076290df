package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A pipes is a listener with connections inside the process, so that time can be simulated: a
// bubble may wait for a pipe, and not for the network.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
	case <-p.done: // a client that dials late may find the server gone
		_ = theirs.Close()
	}
	return ours
}

// inBubble runs a test in a bubble of time, with a gateway over pipes.
func inBubble(t *testing.T, f func(t *testing.T, w *world, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newGateway(t)
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		s := &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second}
		served := make(chan error)
		go func() { served <- s.Serve(p) }()
		was := http.DefaultClient.Transport
		tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return p.dial(), nil }}
		http.DefaultClient.Transport = tr
		w.url = "http://localhost"
		defer func() {
			http.DefaultClient.Transport = was
			tr.CloseIdleConnections()
			w.Close()
			_ = s.Close()
			if err := <-served; !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("serving ended: %v", err)
			}
		}()
		f(t, w, p)
	})
}

func TestAWaitingClientGetsComments(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		w.play("slow", func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			time.Sleep(2*gateway.KeepAlive + 2*time.Second)
			return switchboard.Result{JSON: []byte(`{"content":[]}`)}, nil
		})
		in := w.session(nil)
		res, body := w.post(legacyCall("1", "slow", ""), in)
		want := "id: 1-0\ndata: \n\n: still here\n\n: still here\n\nid: 1-1\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}\n\n"
		if res.Header.Get("Content-Type") != "text/event-stream" || body != want {
			t.Errorf("a client that reads events: %q", body)
		}
		in["Accept"] = "application/json"
		res, body = w.post(legacyCall("1", "slow", ""), in)
		if res.Header.Get("Content-Type") != "application/json" || body != `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}` {
			t.Errorf("a client that does not: %q", body)
		}
	})
}

func TestAQuietStreamIsKeptAlive(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		in := w.session(head{"Authorization": "Bearer bob"})
		res := w.open(t.Context(), http.MethodGet, "/mcp", "", in)
		defer res.Body.Close() //nolint:errcheck // closing it cannot fail the test
		start := time.Now()
		lines := bufio.NewReader(res.Body)
		if line, err := lines.ReadString('\n'); err != nil || line != "id: 0-0\n" || time.Since(start) > 0 {
			t.Errorf("after %s: %q %v", time.Since(start), line, err)
		}
		_, _ = lines.ReadString('\n')
		_, _ = lines.ReadString('\n')
		line, err := lines.ReadString('\n')
		if err != nil || line != ": still here\n" || time.Since(start) != gateway.KeepAlive {
			t.Errorf("after %s: %q %v", time.Since(start), line, err)
		}
		w.revoke("bob")
		if rest, err := io.ReadAll(res.Body); err != nil || strings.Contains(string(rest), "data") {
			t.Errorf("after the key was revoked: %q %v", rest, err)
		}
		if got := time.Since(start); got > 2*gateway.KeepAlive {
			t.Errorf("the stream of a revoked key ended after %s", got)
		}
	})
}

func TestAnUnusedSessionEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		in := w.session(nil)
		for range 3 {
			time.Sleep(session.Idle - time.Second)
			if res, _ := w.post(ping, in); res.StatusCode != 200 {
				t.Fatalf("in use: %s", res.Status)
			}
		}
		res := w.open(t.Context(), http.MethodGet, "/mcp", "", in)
		go io.Copy(io.Discard, res.Body) //nolint:errcheck // it ends with the stream
		time.Sleep(2 * session.Idle)
		if res, _ := w.post(ping, in); res.StatusCode != 200 {
			t.Fatalf("listening: %s", res.Status)
		}
		_ = res.Body.Close()
		time.Sleep(session.Idle + time.Second)
		if res, _ := w.post(ping, in); res.StatusCode != 404 {
			t.Errorf("idle: %s", res.Status)
		}
	})
}

func TestSessionsAreCappedForEachPrincipal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		bob, ping := head{"Authorization": "Bearer bob"}, `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		first := w.session(bob)
		time.Sleep(time.Second)
		second := w.session(bob)
		for range session.MaxSessionsEach - 2 {
			w.session(bob)
		}
		res, body := w.post(initialize, bob)
		if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" || !strings.Contains(body, "SB-ROUT-003") || !strings.Contains(body, "256 of your sessions are open, the limit for one principal; end one with DELETE") {
			t.Errorf("one too many: %s %s", res.Status, body)
		}
		w.session(head{"Authorization": "Bearer eve"}) // another principal
		time.Sleep(time.Minute)
		w.session(bob)  // in place of the session that was idle for longest
		synctest.Wait() // the stored session is deleted in the background, and could be found until then
		if res, _ := w.post(ping, first); res.StatusCode != 404 {
			t.Errorf("the session that was idle for longest: %s", res.Status)
		}
		if res, _ := w.post(ping, second); res.StatusCode != 200 {
			t.Errorf("the next one: %s", res.Status)
		}
		w.do(http.MethodDelete, "/mcp", "", second)
		w.session(bob) // in its place
	})
}

func TestStreamsAndCallsAreCappedForEachPrincipal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		listen, h := modern("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true},`, "")
		ctx, leave := context.WithCancel(t.Context())
		for range gateway.MaxStreamsEach {
			res := w.open(ctx, http.MethodPost, "/mcp", listen, h)
			defer res.Body.Close() //nolint:errcheck // closing it cannot fail the test
			if res.StatusCode != 200 {
				t.Fatal(res.Status)
			}
		}
		res, body := w.post(listen, h)
		if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" || !strings.Contains(body, "SB-ROUT-003") || !strings.Contains(body, "256 of your streams are open, the limit for one principal; close one") {
			t.Errorf("a stream too many: %s %s", res.Status, body)
		}
		leave()
		synctest.Wait()
		ctx, leave = context.WithCancel(t.Context())
		defer leave()
		if res := w.open(ctx, http.MethodPost, "/mcp", listen, h); res.StatusCode != 200 {
			t.Errorf("once others have gone: %s", res.Status)
		}
		in := w.session(nil)
		for range gateway.MaxStreamsEach {
			if res := w.open(ctx, http.MethodGet, "/mcp", "", in); res.StatusCode != 200 {
				t.Fatalf("GET that replaces the session's last: %s", res.Status)
			}
			synctest.Wait()
		}

		s := w.stalls()
		w.runs.Rebind(t.Context())
		call, h := modern("1", "tools/call", `"name":"stall",`, "stall")
		for range gateway.MaxCallsEach {
			go w.post(call, h)
		}
		synctest.Wait()
		if len(s.in) != gateway.MaxCallsEach {
			t.Fatalf("%d calls", len(s.in))
		}
		if _, body := w.post(call, h); !strings.Contains(body, "SB-ROUT-003") || !strings.Contains(body, "512 of your calls are in flight, the limit for one principal; wait for some to end") {
			t.Errorf("a call too many: %s", body)
		}
		close(s.out)
		synctest.Wait()
		if _, body := w.post(call, h); !strings.Contains(body, "went on") {
			t.Errorf("once others have ended: %s", body)
		}
	})
}

func TestRequestsOfOneSessionAreCapped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		s := w.stalls()
		w.runs.Rebind(t.Context())
		in := w.session(nil)
		call := func(id int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"stall","arguments":{}}}`, id)
		}
		for i := range session.MaxInFlight {
			go w.post(call(i), in)
		}
		synctest.Wait()
		if _, body := w.post(call(session.MaxInFlight), in); !strings.Contains(body, "SB-ROUT-003") || !strings.Contains(body, "256 requests of this session are in flight, its limit; wait for some to end") {
			t.Errorf("a request too many: %s", body)
		}
		close(s.out)
		synctest.Wait()
		if _, body := w.post(call(session.MaxInFlight), in); !strings.Contains(body, "went on") {
			t.Errorf("once others have ended: %s", body)
		}
	})
}

// docs/operate.md has all limits.
func TestTheLimitsAreThoseOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	for what, limit := range map[string]int{
		"sessions of one principal":         session.MaxSessionsEach,
		"streams of one principal":          gateway.MaxStreamsEach,
		"calls of one principal in flight":  gateway.MaxCallsEach,
		"requests of one session in flight": session.MaxInFlight,
		"runs of one principal":             run.MaxRuns,
		"a client's message, in MiB":        gateway.MaxMessage >> 20,
		"sessions in all":                   session.MaxSessions,
		"parked calls of one principal":     session.MaxParked,
	} {
		number := fmt.Sprint(limit)
		if limit >= 1000 {
			number = fmt.Sprintf("%d,%03d", limit/1000, limit%1000)
		}
		name, unit, _ := strings.Cut(what, ", in ")
		if row := strings.TrimSpace("| " + name + " | " + number + " " + unit); !strings.Contains(string(page), row) {
			t.Errorf("docs/operate.md has no row %q", row)
		}
	}
}

func TestRX03_SlowClientsAreLetGo(t *testing.T) {
	t.Run("a body that does not come", func(t *testing.T) {
		inBubble(t, func(t *testing.T, _ *world, p *pipes) {
			conn := p.dial()
			defer conn.Close() //nolint:errcheck // closing it cannot fail the test
			start := time.Now()
			_, _ = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
			tired := make(chan struct{})
			go func() { // one byte a second, until the other side gives up
				defer close(tired)
				for {
					if _, err := conn.Write([]byte(" ")); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			}()
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || res.StatusCode != http.StatusRequestTimeout || time.Since(start) > 31*time.Second {
				t.Errorf("after %s: %+v %v", time.Since(start), res, err)
			}
			_ = conn.Close()
			<-tired
		})
	})
	t.Run("a client that does not read its result", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world, p *pipes) {
			w.answers("big", `{"content":["`+strings.Repeat("x", 1<<20)+`"]}`)
			call, _ := modern("1", "tools/call", `"name":"big",`, "big")
			conn := p.dial()
			defer conn.Close() //nolint:errcheck // closing it cannot fail the test
			_, _ = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: big\r\nContent-Length: %d\r\n\r\n%s", len(call), call)
			time.Sleep(time.Minute)
			if n, err := io.Copy(io.Discard, conn); n > 1<<19 {
				t.Errorf("after a minute there were %d bytes to read, %v", n, err)
			}
		})
	})
	t.Run("a client that does not read", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world, p *pipes) {
			said, ended := 0, make(chan time.Duration, 1)
			w.play("talk", func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
				start := time.Now()
				for ctx.Err() == nil && said < 10_000 {
					c.Notify(switchboard.Notification{Method: "notifications/progress", Params: []byte(`{"progress":"` + strings.Repeat("x", 1000) + `"}`)})
					said++
				}
				if got := time.Since(start); got != 5*time.Second {
					t.Errorf("the server waited %s for the client", got)
				}
				<-ctx.Done()
				ended <- time.Since(start)
				return switchboard.Result{}, ctx.Err()
			})
			call, h := modern("1", "tools/call", `"name":"talk",`, "talk")
			conn := p.dial()
			defer conn.Close() //nolint:errcheck // closing it cannot fail the test
			_, _ = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: %s\r\nMcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: talk\r\nContent-Length: %d\r\n\r\n%s", both, len(call), call)
			if got := <-ended; got > time.Minute {
				t.Errorf("the call ended after %s", got)
			}
			if _, body := w.post(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+modernMeta+`}}`, head{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}); !strings.Contains(body, "result") {
				t.Errorf("another client: %s %v", body, h)
			}
		})
	})
}

// A legacy client may have lost only its connection; a modern one cancels by disconnecting.
func TestADisconnectCancelsACallInTheModernEraOnly(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, p *pipes) {
				s := w.stalls()
				body, h := modern("1", "tools/call", `"name":"stall",`, "stall")
				ended := 1
				if era == "legacy" {
					body, h = legacyCall("1", "stall", ""), w.session(nil)
					ended = 0
				}
				conn := p.dial()
				_, _ = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: %s\r\n", both)
				for name, value := range h {
					_, _ = fmt.Fprintf(conn, "%s: %s\r\n", name, value)
				}
				_, _ = fmt.Fprintf(conn, "Content-Length: %d\r\n\r\n%s", len(body), body)
				<-s.in
				_ = conn.Close()
				time.Sleep(3 * gateway.KeepAlive) // comments that are written meanwhile do not arrive
				synctest.Wait()
				if len(s.ended) != ended {
					t.Fatalf("%d calls have ended, want %d", len(s.ended), ended)
				}
				if era == "legacy" {
					w.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, h)
					<-s.ended
				}
			})
		})
	}
}

func TestTheClientOfACutCallIsToldItsOutcome(t *testing.T) {
	refused := func(code switchboard.Code) error { return switchboard.Refuse(code, "the callers own words") }
	for _, tt := range []struct {
		name string
		err  error // of the call, when it was cut
		want []string
	}{
		{"sent", refused(switchboard.CodeOutcomeUnknown), []string{`"isError":true`, "SB-EXEC-004", "Switchboard was stopped"}},
		{"nobody knows", context.Canceled, []string{`"isError":true`, "SB-EXEC-004", "Switchboard was stopped"}},
		{"not sent", refused(switchboard.CodeNotExecuted), []string{`"error":`, "SB-EXEC-002", "Switchboard was stopped"}},
		{"refused", refused(switchboard.CodeRateLimit), []string{"SB-ROUT-002", "the callers own words"}},
		{"the server's error", &switchboard.ServerError{Server: "s", Object: []byte(`{"code":4711}`)}, []string{`"error":{"code":4711}`}},
		{"an answer after all", nil, []string{`"result":{"content":["done"]`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, _ *pipes) {
				w.play("work", func(ctx context.Context, _ *switchboard.Call) (switchboard.Result, error) {
					<-ctx.Done()
					return switchboard.Result{JSON: []byte(`{"content":["done"]}`)}, tt.err
				})
				in := w.session(nil)
				answers := make(chan string, 2)
				go func() {
					_, body := w.post(legacyCall("1", "work", ""), in)
					answers <- body
				}()
				go func() {
					body, h := modern("1", "tools/call", `"name":"work",`, "work")
					_, got := w.post(body, h)
					answers <- got
				}()
				synctest.Wait()
				w.Close()
				synctest.Wait()
				if w.CallsInFlight() != 2 || len(answers) != 0 {
					t.Errorf("Close left %d calls, and %d answers", w.CallsInFlight(), len(answers))
				}
				if n := w.CutCalls(); n != 2 {
					t.Errorf("cut %d calls", n)
				}
				for range 2 {
					got := <-answers
					for _, want := range tt.want {
						if !strings.Contains(got, want) {
							t.Errorf("no %s in %s", want, got)
						}
					}
				}
				if w.CallsInFlight() != 0 {
					t.Errorf("%d calls are in flight afterwards", w.CallsInFlight())
				}
			})
		})
	}
	inBubble(t, func(t *testing.T, w *world, _ *pipes) {
		answer := make(chan string)
		go func() {
			body, h := modern("1", "tools/list", "", "")
			h["Switchboard-Task"] = "slow"
			_, got := w.post(body, h)
			answer <- got
		}()
		synctest.Wait()
		if n := w.CutCalls(); n != 0 {
			t.Errorf("%d calls after a list", n)
		}
		if got := <-answer; !strings.Contains(got, "Switchboard is stopping") || !strings.Contains(got, "SB-ROUT-003") {
			t.Errorf("a request that is no call: %s", got)
		}
	})
}
