package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/frame"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A notificationLog collects the notifications of a call.
type notificationLog struct {
	mu   sync.Mutex
	said []switchboard.Notification
}

func (h *notificationLog) notify(n switchboard.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, n)
}

func (h *notificationLog) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.said)
}

// startAsync runs f in a goroutine and returns a channel for its error.
func startAsync(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

func doCall(what string) *switchboard.Call { return echoCall("one", fmt.Sprintf(`{"do":%q}`, what)) }

func TestAServersErrorIsPassedOnWithoutItsSecret(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	f := readyFleet(t, Options{}, stdioFake("one", "calls", "TOKEN=hunter2-hunter2"))
	_, err := f.Call(t.Context(), doCall("error"))
	e, ok := errors.AsType[*switchboard.ServerError](err)
	if !ok {
		t.Fatal(err)
	}
	if got, want := string(e.Object), `{"code":-1234567,"message":"token is ***","data":{"n":12345678901234567890}}`; got != want {
		t.Errorf("object %s, want %s", got, want)
	}
}

func TestAnErrorResultLosesSecretsAndAGoodResultIsUnchanged(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	f := readyFleet(t, Options{}, stdioFake("one", "calls", "TOKEN=hunter2-hunter2"))
	for what, want := range map[string]string{
		"fail": `{"content":[{"type":"text","text":"token is ***"}], "isError" : true, "n":1.0}`,
		"work": `{"content":[{"type":"text","text":"token is hunter2-hunter2"}], "isError" : false, "n":1.0}`,
	} {
		result, err := f.Call(t.Context(), doCall(what))
		if err != nil || string(result.JSON) != want {
			t.Errorf("%s: %s, %v, want %s", what, result.JSON, err, want)
		}
	}
}

func TestAnswersToNoRequestAreDropped(t *testing.T) {
	f := readyFleet(t, Options{}, stdioFake("one", "calls"))
	result, err := f.Call(t.Context(), doCall("wrong-ids"))
	if err != nil || string(result.JSON) != `{"right":1}` {
		t.Fatalf("%s, %v", result.JSON, err)
	}
	wait.Until(t, "four messages are dropped", func() bool { return status(t, f, "one").Dropped == 4 })
}

func TestAServersPingIsAnsweredAndNothingElse(t *testing.T) {
	f := readyFleet(t, Options{}, stdioFake("one", "calls"))
	result, err := f.Call(t.Context(), doCall("ask"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"pong":{"jsonrpc":"2.0","id":"p1","result":{}},"refused":{"jsonrpc":"2.0","id":77,"error":{"code":-32601,"message":"the client offers no such method"}}}`
	if string(result.JSON) != want {
		t.Errorf("got  %s\nwant %s", result.JSON, want)
	}
}

func TestProgressArrivesInOrderBeforeTheResultUnderTheClientsToken(t *testing.T) {
	f := readyFleet(t, Options{}, stdioFake("one", "calls"))
	c := doCall("progress")
	c.Params = []byte(`{"name":"x","arguments":{"do":"progress"},"_meta":{"progressToken":1.5e300}}`)
	var h notificationLog
	c.Notify = h.notify
	result, err := f.Call(t.Context(), c)
	if err != nil || string(result.JSON) != `{"done":true}` {
		t.Fatalf("%s, %v", result.JSON, err)
	}
	if len(h.said) != 3000 {
		t.Fatalf("%d notifications, want 3000", len(h.said))
	}
	for i, n := range h.said {
		if want := fmt.Sprintf(`{"x":1.0,"progressToken":1.5e300,"progress":%d}`, i); string(n.Params) != want || n.Method != "notifications/progress" {
			t.Fatalf("notification %d is %s, want %s", i, n.Params, want)
		}
	}
}

func TestProgressOfACallThatAskedForNoneIsDropped(t *testing.T) {
	f := readyFleet(t, Options{}, stdioFake("one", "calls"))
	c := doCall("progress")
	c.Notify = func(n switchboard.Notification) { t.Errorf("notification %s", n.Params) }
	_, _ = f.Call(t.Context(), c) // the fake has no token, so it sends null
}

func TestALogMessageGoesToTheOnlyCallAtItsLevelOrIsDropped(t *testing.T) {
	f := readyFleet(t, Options{}, stdioFake("one", "calls"))
	for _, tt := range []struct {
		level  string
		others int
		want   int
	}{
		{"", 0, 0}, {"debug", 0, 3}, {"info", 0, 2}, {"emergency", 0, 0}, {"debug", 1, 0},
	} {
		t.Run(fmt.Sprintf("%q beside %d", tt.level, tt.others), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range tt.others {
				wg.Go(func() { _, _ = f.Call(ctx, doCall("never")) })
			}
			wait.Until(t, "the others are under way", func() bool { return pendingCount(f, "one") == tt.others })
			c := doCall("log")
			c.LogLevel = tt.level
			var h notificationLog
			c.Notify = h.notify
			if _, err := f.Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if h.count() != tt.want {
				t.Errorf("%d messages, want %d: %v", h.count(), tt.want, h.said)
			}
			if tt.want > 0 && string(h.said[tt.want-1].Params) != `{"level":"error","data":{"a":1.0}}` {
				t.Errorf("last is %s", h.said[tt.want-1].Params)
			}
			cancel()
			wg.Wait()
		})
	}
}

func TestNoCallWaitsForAServerThatDoesNotSetItsLevel(t *testing.T) {
	s := stdioFake("one", "silent-about-levels")
	s.Timeout = link.LogLevelTimeout / 2
	f := readyFleet(t, Options{}, s)
	c := echoCall("one", "{}")
	c.LogLevel = "info"
	result, err := f.Call(t.Context(), c)
	if err != nil || string(result.JSON) != `{"level":"info"}` {
		t.Errorf("%s, %v", result.JSON, err)
	}
}

// pendingCount returns how many requests were sent to the server and are not answered.
func pendingCount(f *Fleet, id switchboard.ServerID) int {
	s := f.server(id)
	s.connectors.main.mu.Lock()
	l := s.connectors.main.link
	s.connectors.main.mu.Unlock()
	return l.Requests.InFlight()
}

func TestCancellingACallNotifiesTheServerAndReleasesItsSlot(t *testing.T) {
	for _, kind := range []string{"calls", "calls-modern"} {
		t.Run(kind, func(t *testing.T) { testCancelling(t, kind) })
	}
}

func testCancelling(t *testing.T, kind string) {
	record := filepath.Join(t.TempDir(), "cancelled")
	f := readyFleet(t, Options{}, stdioFake("one", kind, "RECORD="+record))
	ctx, cancel := context.WithCancel(t.Context())
	ended := startAsync(func() error {
		_, err := f.Call(ctx, doCall("never"))
		return err
	})
	wait.Until(t, "the call is under way", func() bool { return pendingCount(f, "one") == 1 })
	cancel()
	wantCode(t, <-ended, switchboard.CodeOutcomeUnknown)
	if s := status(t, f, "one"); s.InFlight != 0 || f.server("one").gate.InFlight() != 0 {
		t.Errorf("%d calls are still counted", s.InFlight)
	}
	wait.Until(t, "the server is told", func() bool {
		told, _ := os.ReadFile(record)
		return bytes.HasPrefix(told, []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`))
	})
}

func TestTheErrorSaysWhatIsWrongWithAnAnswer(t *testing.T) {
	f := readyFleet(t, Options{}, stdioFake("one", "calls"))
	_, err := f.Call(t.Context(), doCall("no-object"))
	wantCode(t, err, switchboard.CodeResultInvalid)

	_, err = f.Call(t.Context(), doCall("large"))
	if e := wantRefusal(t, err, switchboard.CodeResultInvalid); !strings.Contains(e.Text, "16777") {
		t.Errorf("the error does not say the size: %s", e.Text)
	}
	if _, err := f.Call(t.Context(), doCall("anything")); err != nil {
		t.Errorf("after an answer that was too large: %v", err)
	}
}

func TestACallThatWasSentEndsAtItsDeadlineWithAnUnknownOutcome(t *testing.T) {
	s := stdioFake("one", "calls")
	s.Timeout = time.Second
	f := readyFleet(t, Options{}, s)
	_, err := f.Call(t.Context(), doCall("never"))
	wantCode(t, err, switchboard.CodeOutcomeUnknown)
}

func TestACallThatWasNeverSentIsNotExecuted(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	s := stdioFake("one", "deaf")
	s.Timeout = time.Second
	f := readyFleet(t, Options{}, s)
	// The first call fills the pipe, so that no byte of the second can leave.
	first := startAsync(func() error {
		_, err := f.Call(t.Context(), echoCall("one", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`))
		return err
	})
	wait.Until(t, "the first is being written", func() bool { return pendingCount(f, "one") == 1 })
	_, err := f.Call(t.Context(), echoCall("one", `{}`))
	wantCode(t, err, switchboard.CodeNotExecuted)
	wantCode(t, <-first, switchboard.CodeOutcomeUnknown)
}

func TestAKilledChildEndsItsCallAtOnceAndIsRestarted(t *testing.T) {
	s := stdioFake("one", "calls")
	s.Timeout = time.Hour
	f := readyFleet(t, Options{}, s)
	first := status(t, f, "one").PIDs
	bystander := startAsync(func() error {
		_, err := f.Call(t.Context(), doCall("never"))
		return err
	})
	wait.Until(t, "the call is under way", func() bool { return pendingCount(f, "one") == 1 })
	_, err := f.Call(t.Context(), doCall("die"))
	wantCode(t, err, switchboard.CodeOutcomeUnknown)
	if e := wantRefusal(t, <-bystander, switchboard.CodeOutcomeUnknown); !strings.Contains(e.Error(), "exit status 9") {
		t.Errorf("the error does not say how the process ended: %v", e)
	}

	// The next call reconnects by itself.
	result, err := f.Call(t.Context(), doCall("anything"))
	if err != nil {
		t.Fatal(err)
	}
	if pid := int(fields(t, result.JSON)["pid"].(float64)); pid == first[0] {
		t.Errorf("the same process %d", pid)
	}
	awaitState(t, f, "one", StateReady)
	if st := status(t, f, "one"); st.Restarts != 1 || st.Stale || st.LastFailure != nil {
		t.Errorf("status %+v", st)
	}
	assertGone(t, first[0])
}

func TestACallBeyondTheLimitIsRefused(t *testing.T) {
	f := readyFleet(t, Options{MaxInFlight: 3}, stdioFake("one", "calls"), stdioFake("two", "calls"))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { _, _ = f.Call(ctx, doCall("never")) })
	}
	wait.Until(t, "three are under way", func() bool { return pendingCount(f, "one") == 3 })
	_, err := f.Call(t.Context(), doCall("anything"))
	wantCode(t, err, switchboard.CodeOverloaded)
	if _, err := f.Call(t.Context(), echoCall("two", "{}")); err != nil {
		t.Errorf("the call to the other server: %v", err)
	}
	cancel()
	wg.Wait()
	if _, err := f.Call(t.Context(), doCall("anything")); err != nil {
		t.Errorf("with a free slot: %v", err)
	}
}

func TestACallToAnUnknownServerIsRefused(t *testing.T) {
	f := openFleet(t, Options{StartDeadline: 50 * time.Millisecond, StartWait: 50 * time.Millisecond},
		stdioFake("hang", "hang"),
		switchboard.Server{ID: "none", Transport: switchboard.TransportStdio, Command: []string{"no-such-program-here"}})
	for id, want := range map[string]switchboard.Code{
		"unknown": switchboard.CodeServerUnknown,
		"hang":    switchboard.CodeNoneHealthy,
		"none":    switchboard.CodeServerUnreachable,
	} {
		_, err := f.Call(t.Context(), echoCall(id, "{}"))
		if e, ok := errors.AsType[*switchboard.Error](err); !ok || e.Code != want && (id != "none" || e.Code != switchboard.CodeNoneHealthy) {
			t.Errorf("%s: %v, want %s", id, err, want)
		}
	}
}

func TestEachPrincipalHasAProcessOfItsOwnUnlessShared(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	pid := func(f *Fleet, tenant, who string) float64 {
		c := echoCall("one", "{}")
		c.Principal = switchboard.Principal{Tenant: switchboard.TenantID(tenant), ID: who}
		result, err := f.Call(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return fields(t, result.JSON)["pid"].(float64)
	}
	for _, tt := range []struct {
		share           switchboard.Share
		one             bool
		people, tenants bool // whether they share a process
		connections     int
	}{
		{switchboard.SharePrincipal, false, false, false, 4},
		{"", false, false, false, 4},
		{switchboard.ShareTenant, false, true, false, 3},
		{switchboard.ShareAll, false, true, true, 1},
		{switchboard.SharePrincipal, true, true, true, 1},
	} {
		t.Run(fmt.Sprintf("%s one=%v", tt.share, tt.one), func(t *testing.T) {
			s := stdioFake("one", "legacy")
			s.Share = tt.share
			f := readyFleet(t, Options{OnePrincipal: tt.one}, s)
			ann, bob, eve := pid(f, "acme", "ann"), pid(f, "acme", "bob"), pid(f, "other", "ann")
			if again := pid(f, "acme", "ann"); again != ann {
				t.Errorf("ann had process %v, and then %v", ann, again)
			}
			if got := ann == bob; got != tt.people {
				t.Errorf("two principals of a tenant share: %v", got)
			}
			if got := ann == eve; got != tt.tenants {
				t.Errorf("two tenants share: %v", got)
			}
			if st := status(t, f, "one"); st.Connections != tt.connections || len(st.PIDs) != tt.connections {
				t.Errorf("%d connections, want %d", st.Connections, tt.connections)
			}
		})
	}
}

func TestConnectionsOfPrincipalsAreLimitedAndClosedWhenIdle(t *testing.T) {
	s := stdioFake("one", "calls")
	s.Share = switchboard.SharePrincipal
	f := readyFleet(t, Options{MaxConnections: 3, IdleAfter: 50 * time.Millisecond}, s)
	as := func(who, what string) *switchboard.Call {
		c := doCall(what)
		c.Principal.ID = who
		return c
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, who := range []string{"ann", "bob"} {
		wg.Go(func() { _, _ = f.Call(ctx, as(who, "never")) })
	}
	wait.Until(t, "both are under way", func() bool {
		st := status(t, f, "one")
		return st.Connections == 3 && st.InFlight == 2
	})
	_, err := f.Call(t.Context(), as("eve", "anything"))
	wantCode(t, err, switchboard.CodeOverloaded)
	cancel()
	wg.Wait()
	if _, err := f.Call(t.Context(), as("eve", "anything")); err != nil {
		t.Errorf("an idle connection is not evicted: %v", err)
	}
	wait.Until(t, "only ours is left", func() bool { return status(t, f, "one").Connections == 1 })
	if _, err := f.Call(t.Context(), as("ann", "anything")); err != nil {
		t.Errorf("after its connection was closed: %v", err)
	}
}

func TestAResultMayBeAsLargeAsMaxResultAllows(t *testing.T) {
	t.Parallel()
	result := func(n int) string { return `{"text":"` + strings.Repeat("x", n) + `"}` }
	site := newSite(t, link.EraModern, onCalls(func(w http.ResponseWriter, _ *http.Request, m *msg) {
		writeResult(w, m, result(frame.MaxMessage))
	}))
	for name, s := range map[string]switchboard.Server{"over HTTP": site.server(), "on pipes": stdioFake("one", "calls")} {
		t.Run(name, func(t *testing.T) {
			for most, want := range map[int]switchboard.Code{0: switchboard.CodeResultInvalid, 64 << 10: switchboard.CodeResultInvalid, 32 << 20: ""} {
				s.MaxResult = most
				f := readyFleet(t, Options{}, s)
				got, err := f.Call(t.Context(), doCall("large"))
				own, _ := errors.AsType[*switchboard.Error](err)
				if own != nil && own.Code == switchboard.CodeOutcomeUnknown {
					wait.Late(t, "%v", err)
				}
				if want != "" && (own == nil || own.Code != want) {
					t.Errorf("at most %d: %v, want %s", most, err, want)
				}
				if want == "" && (err != nil || string(got.JSON) != result(frame.MaxMessage)) {
					t.Errorf("at most %d: %d bytes, %v", most, len(got.JSON), err)
				}
			}
		})
	}
}
