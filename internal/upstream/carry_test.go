package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A heldPort blocks the goroutine of a call until the test releases it.
type heldPort struct {
	deafPort
	held chan *pendingRequest
	free chan struct{}
}

func (p *heldPort) startBlocking(f *pendingRequest) {
	p.held <- f
	<-p.free
}

func TestNotificationsOnAnotherStreamReachTheCallInOrderAndNoneAfterItsEnd(t *testing.T) {
	p := &heldPort{held: make(chan *pendingRequest), free: make(chan struct{})}
	l := newLink(slog.New(slog.DiscardHandler), &mask.Mask{}, nil, "", nil)
	l.port = p
	f := l.newRequest("x", func([]byte) []byte { return nil })
	var said []string
	slow := make(chan struct{})
	ended := startAsync(func() error {
		return l.roundTrip(t.Context(), f, func(n switchboard.Notification) {
			<-slow
			said = append(said, n.Method) // the race detector finds concurrent calls
		})
	})
	<-p.held
	var want []string
	for i := range 1000 {
		want = append(want, fmt.Sprint(i))
		l.inbox.deliver(f, nil, switchboard.Notification{Method: want[i]})
	}
	own := startAsync(func() error {
		for range 100 {
			l.inbox.deliver(f, f, switchboard.Notification{Method: "own"})
		}
		return nil
	})
	f.finish(f.response.answer, 0, nil)
	close(slow) // most notifications are not delivered yet
	if err := <-own; err != nil {
		t.Fatal(err)
	}
	close(p.free)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	l.inbox.deliver(f, nil, switchboard.Notification{Method: "late"})
	if n := len(said); n != 1100 {
		t.Errorf("%d notifications", n)
	}
	said = slices.DeleteFunc(said, func(s string) bool { return s == "own" })
	if !slices.Equal(said, want) {
		t.Errorf("said %.100v", said)
	}
}

func TestASharedStreamDoesNotWaitForASlowClient(t *testing.T) {
	p := &heldPort{held: make(chan *pendingRequest), free: make(chan struct{})}
	l := newLink(slog.New(slog.DiscardHandler), &mask.Mask{}, nil, "", nil)
	l.port = p
	f := l.newRequest("x", func([]byte) []byte { return nil })
	hears := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := startAsync(func() error {
		return l.roundTrip(ctx, f, func(switchboard.Notification) {
			close(hears) // it gets at most one more
			<-ctx.Done()
		})
	})
	<-p.held
	l.inbox.deliver(f, nil, switchboard.Notification{Method: "first"})
	<-hears
	for range maxQueued + 100 {
		l.inbox.deliver(f, nil, switchboard.Notification{Method: "x"})
	}
	if n := l.inbox.dropped.Load(); n != 100 {
		t.Errorf("%d were dropped", n)
	}
	cancel()
	close(p.free)
	if err := asExchangeError(<-ended); err.kind != kindSilent || err.sent {
		t.Errorf("%+v", err)
	}
}

func TestAMethodThatIsNotValidInAHeaderIsNotSent(t *testing.T) {
	site := newSite(t, EraModern, nil)
	f := readyFleet(t, Options{}, site.server())
	c := echoCall("one", "{}")
	c.Method = "x\r\nEvil: 1"
	_, err := f.Call(t.Context(), c)
	wantCode(t, err, switchboard.CodeServerProtocol)
	for _, r := range site.requests(http.MethodPost) {
		if r.header.Get("Evil") != "" || r.msg.Method == c.Method {
			t.Errorf("sent: %v", r.header)
		}
	}
}

func TestEveryRequestHasTheConfiguredAddressAndHeaders(t *testing.T) {
	site := newSite(t, EraLegacy, nil)
	cfg := site.server()
	cfg.URL = strings.Replace(site.URL, "http://", "http://us%20er:pa%2Fss@", 1) + "/a%2Fb/mcp?q=1&r=%20#fragment"
	cfg.Headers = map[string]switchboard.Secret{
		"host": switchboard.NewSecret("other.example"), "user-agent": switchboard.NewSecret("Content-Length: 0"), "X-One": switchboard.NewSecret("é\t1"),
	}
	f := readyFleet(t, Options{}, cfg)
	if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "it is asked for a stream", func() bool { return len(site.requests(http.MethodGet)) > 0 })
	for _, r := range append(site.requests(http.MethodGet), site.requests(http.MethodPost)...) {
		h := r.header
		got := strings.Join([]string{r.host, r.uri, h.Get("Authorization"), h.Get("User-Agent"), h.Get("X-One")}, " ")
		if want := "other.example /a%2Fb/mcp?q=1&r=%20 Basic dXMgZXI6cGEvc3M= Content-Length: 0 é\t1"; got != want {
			t.Errorf("%s says %q, want %q", r.verb, got, want)
		}
	}
}

func TestAHeaderThatIsNotValidInHTTPIsRefusedAtOnce(t *testing.T) {
	site := newSite(t, EraModern, nil)
	for name, value := range map[string]string{"X": "a\r\nEvil: 1", "X\r\nEvil": "1", "": "1", "X Y": "1", "Y": "a\x00"} {
		cfg := site.server()
		cfg.Headers = map[string]switchboard.Secret{name: switchboard.NewSecret(value)}
		if _, err := newHTTPPort(&link{}, &cfg, newHTTPClients(cfg.URL)); err == nil {
			t.Errorf("%q: %q is accepted", name, value)
		}
	}
}

func TestACallEndsInTimeWhileItsAnswerKeepsComing(t *testing.T) {
	site := newSite(t, EraModern, onCalls(func(w http.ResponseWriter, r *http.Request, _ *msg) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000000")
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte(" "))
			_ = http.NewResponseController(w).Flush()
			<-tick.C
		}
	}))
	cfg := site.server()
	cfg.Timeout = time.Second
	f := readyFleet(t, Options{}, cfg)
	_, err := f.Call(t.Context(), echoCall("one", "{}"))
	wantCode(t, err, switchboard.CodeOutcomeUnknown)
}

func TestACallDoesNotWaitForItsStreamToEndAfterTheAnswer(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		t.Run(fmt.Sprint(lasting), func(t *testing.T) {
			site := newSite(t, EraModern, onCalls(func(w http.ResponseWriter, r *http.Request, m *msg) {
				writeEvent(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
				if lasting {
					<-r.Context().Done()
				}
			}))
			f := readyFleet(t, Options{}, site.server())
			took := time.Hour // the best of several, because the machine may be busy
			for range 5 {
				began := time.Now()
				if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
					t.Fatal(err)
				}
				if took = min(took, time.Since(began)); took < drainTimeout {
					break
				}
			}
			if lasting {
				if took >= drainTimeout {
					t.Errorf("the calls waited %v", took)
				}
				return
			}
			p := f.server("one").opener.httpClients.pool
			wait.Until(t, "the connection is kept", func() bool { return p.TakeIdle() != nil })
		})
	}
}

func TestInAHurryCallsOverHTTPAreCutOff(t *testing.T) {
	called := make(chan struct{})
	site := newSite(t, EraModern, onCalls(func(_ http.ResponseWriter, r *http.Request, _ *msg) {
		close(called)
		<-r.Context().Done()
	}))
	f := readyFleet(t, Options{}, site.server())
	ended := startAsync(func() error {
		_, err := f.Call(t.Context(), echoCall("one", "{}"))
		return err
	})
	<-called
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.Close(ctx)
	wantCode(t, <-ended, switchboard.CodeOutcomeUnknown)
}

func TestACallDoesNotReturnDuringANotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(slog.New(slog.DiscardHandler), &mask.Mask{}, nil, "", nil)
		l.port = deafPort{}
		f := l.newRequest("x", func([]byte) []byte { return nil })
		told := make(chan struct{})
		ended := startAsync(func() error {
			return l.roundTrip(t.Context(), f, func(switchboard.Notification) { <-told })
		})
		synctest.Wait()
		l.inbox.deliver(f, nil, switchboard.Notification{Method: "x"})
		f.finish(f.response.answer, 0, nil)
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("it has returned")
		}
		close(told)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// RX-06
func TestAttack10TheNotificationsOfACallHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f pendingRequest
		told := 0
		for f.notifications.allow(1, 1<<20) {
			told++
		}
		if told != notifyBurst {
			t.Errorf("%d at once", told)
		}
		time.Sleep(time.Second)
		for f.notifications.allow(1, 1<<20) {
			told++
		}
		if told != notifyBurst+notifyRate {
			t.Errorf("%d after a second", told)
		}
		var long pendingRequest
		if !long.notifications.allow(900, 1000) || long.notifications.allow(101, 1000) || !long.notifications.allow(100, 1000) {
			t.Error("their bytes are not counted")
		}
	})
}
