package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// checkBlame checks whether an error says that the call was not sent, and that the server has
// failed.
func checkBlame(t *testing.T, err error, unsent, theirs bool) {
	t.Helper()
	e, ok := errors.AsType[*switchboard.Error](err)
	if !ok {
		t.Fatalf("no refusal: %v", err)
	}
	if e.Unsent != unsent || e.ServerFailed != theirs {
		t.Errorf("unsent %v, and the server failed %v; want %v and %v: %v", e.Unsent, e.ServerFailed, unsent, theirs, e)
	}
}

func TestWhoFailedOnPipesAndWhetherTheCallWasSent(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	brief := func(s switchboard.Server) switchboard.Server { s.Timeout = time.Second; return s }
	hurried := func(c *switchboard.Call) *switchboard.Call { c.NoWait = true; return c }
	bound := func(c *switchboard.Call) *switchboard.Call {
		c.Obligations.Timeout = time.Second
		return c
	}
	for _, tt := range []struct {
		name           string
		server         switchboard.Server
		call           *switchboard.Call
		unsent, theirs bool
	}{
		{"it dies", stdioFake("one", "calls"), doCall("die"), false, true},
		{"it answers nonsense", stdioFake("one", "calls"), doCall("no-object"), false, true},
		{"it answers too much", stdioFake("one", "calls"), doCall("large"), false, true},
		{"it floods", stdioFake("one", "calls"), doCall("flood-answers"), false, true},
		{"it hangs", brief(stdioFake("one", "calls")), doCall("never"), false, true},
		{"policy gave it no time", stdioFake("one", "calls"), bound(doCall("never")), false, false},
		{"it never starts", stdioFake("one", "hang"), echoCall("one", "{}"), true, true},
		{"it never starts, and there is somewhere else to go", stdioFake("one", "hang"), hurried(echoCall("one", "{}")), true, true},
		{"it cannot be started", switchboard.Server{ID: "one", Transport: switchboard.TransportStdio, Command: []string{"no-such-program-here"}}, echoCall("one", "{}"), true, true},
		{"there is none", stdioFake("other", "legacy"), echoCall("one", "{}"), true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := openFleet(t, Options{StartDeadline: time.Second, StartWait: time.Second}, tt.server)
			if !tt.unsent {
				awaitState(t, f, "one", StateReady)
			}
			_, err := f.Call(t.Context(), tt.call)
			checkBlame(t, err, tt.unsent, tt.theirs)
		})
	}
}

func TestWhoFailedWhenManyCallsMeet(t *testing.T) {
	t.Run("the server has as many as it may", func(t *testing.T) {
		f := readyFleet(t, Options{MaxInFlight: 1}, stdioFake("one", "calls"))
		ctx, cancel := context.WithCancel(t.Context())
		first := startAsync(func() error { _, err := f.Call(ctx, doCall("never")); return err })
		wait.Until(t, "one is under way", func() bool { return pendingCount(f, "one") == 1 })
		_, err := f.Call(t.Context(), doCall("anything"))
		checkBlame(t, err, true, false)
		cancel()
		checkBlame(t, <-first, false, false)
	})
	t.Run("as many clients", func(t *testing.T) {
		s := stdioFake("one", "calls")
		s.Share = switchboard.SharePrincipal
		f := readyFleet(t, Options{MaxConnections: 1}, s)
		_, err := f.Call(t.Context(), doCall("anything"))
		checkBlame(t, err, true, false)
	})
	t.Run("the pipe is full", func(t *testing.T) {
		s := stdioFake("one", "deaf")
		s.Timeout = time.Second
		f := readyFleet(t, Options{}, s)
		first := startAsync(func() error {
			_, err := f.Call(t.Context(), echoCall("one", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`))
			return err
		})
		wait.Until(t, "the first is being written", func() bool { return pendingCount(f, "one") == 1 })
		ctx, cancel := context.WithCancel(t.Context())
		second := startAsync(func() error { _, err := f.Call(ctx, echoCall("one", `{}`)); return err })
		wait.Until(t, "the second is there", func() bool { return status(t, f, "one").InFlight == 2 })
		cancel()
		checkBlame(t, <-second, true, false)
		checkBlame(t, <-first, false, true) // a part of it was sent
	})
	t.Run("we close", func(t *testing.T) {
		f := readyFleet(t, Options{}, stdioFake("one", "calls"))
		call := startAsync(func() error { _, err := f.Call(t.Context(), doCall("never")); return err })
		wait.Until(t, "it is under way", func() bool { return pendingCount(f, "one") == 1 })
		now, cancel := context.WithCancel(t.Context())
		cancel()
		f.Close(now)
		checkBlame(t, <-call, false, false)
	})
}

func TestWhoFailedOverHTTPAndWhetherTheCallWasSent(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	raw := func(last string) func(http.ResponseWriter, *http.Request, *msg) {
		return func(w http.ResponseWriter, _ *http.Request, _ *msg) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(c, last)
			_ = c.Close()
		}
	}
	says := func(code int) func(http.ResponseWriter, *http.Request, *msg) {
		return func(w http.ResponseWriter, _ *http.Request, _ *msg) { w.WriteHeader(code) }
	}
	for _, tt := range []struct {
		name   string
		era    link.Era
		answer func(http.ResponseWriter, *http.Request, *msg)
		theirs bool
	}{
		{"the connection is closed", link.EraModern, raw(""), true},
		{"half a header", link.EraModern, raw("HTTP/1.1 200 O"), true},
		{"half a body", link.EraModern, raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"), true},
		{"nonsense", link.EraModern, raw("nonsense\r\n\r\n"), true},
		{"500", link.EraModern, says(500), true},
		{"503", link.EraLegacy, says(503), true},
		{"404", link.EraModern, says(404), false},
		{"403", link.EraLegacy, says(403), false},
		{"429", link.EraModern, says(429), false},
		{"302", link.EraModern, says(302), true},
		{"202", link.EraModern, says(202), true},
		{"each session is forgotten", link.EraLegacy, says(404), true},
		{"too large", link.EraModern, func(w http.ResponseWriter, _ *http.Request, m *msg) { writeResult(w, m, `"`+xs+`"`) }, true},
		{"more is asked than was offered", link.EraModern, func(w http.ResponseWriter, _ *http.Request, m *msg) {
			writeResult(w, m, `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}`)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := readyFleet(t, Options{}, newSite(t, tt.era, onCalls(tt.answer)).server())
			_, err := f.Call(t.Context(), echoCall("one", "{}"))
			checkBlame(t, err, false, tt.theirs)
		})
	}
	t.Run("no header can say what is asked for", func(t *testing.T) {
		f := readyFleet(t, Options{}, newSite(t, link.EraModern, nil).server())
		c := echoCall("one", "{}")
		c.Method = "x\r\nEvil: 1"
		_, err := f.Call(t.Context(), c)
		checkBlame(t, err, true, false)
	})
	t.Run("nobody listens any more", func(t *testing.T) {
		site := newSite(t, link.EraModern, nil)
		f := readyFleet(t, Options{}, site.server())
		site.down()
		_, err := f.Call(t.Context(), echoCall("one", "{}"))
		checkBlame(t, err, true, true)
	})
	t.Run("nobody listens any more when the client has answered", func(t *testing.T) {
		site := newSite(t, link.EraModern, onCalls(func(w http.ResponseWriter, _ *http.Request, m *msg) {
			w.Header().Set("Connection", "close")
			writeResult(w, m, `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}`)
		}))
		f := readyFleet(t, Options{}, site.server())
		c := echoCall("one", "{}")
		c.Client = switchboard.Client{Capabilities: []byte(`{"elicitation":{}}`), Ask: func(context.Context, string, []byte) ([]byte, error) {
			site.down()
			return []byte("{}"), nil
		}}
		_, err := f.Call(t.Context(), c)
		checkBlame(t, err, false, true)
		wantCode(t, err, switchboard.CodeOutcomeUnknown)
	})
}

// A question runs on a goroutine of its own, where a panic would end the process.
func TestAPanicInAQuestionFailsOnlyItsCall(t *testing.T) {
	site := newSite(t, link.EraModern, onCalls(func(w http.ResponseWriter, _ *http.Request, m *msg) {
		writeResult(w, m, `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}`)
	}))
	f := readyFleet(t, Options{}, site.server())
	c := echoCall("one", "{}")
	c.Client = switchboard.Client{Capabilities: []byte(`{"elicitation":{}}`), Ask: func(context.Context, string, []byte) ([]byte, error) {
		panic("a bug of ours")
	}}
	if _, err := f.Call(t.Context(), c); err == nil {
		t.Error("the call succeeded")
	}
}

func TestWhoFailedOverSSEAndWhetherTheCallWasSent(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	says := func(code int) func(*sseSite, *sseStream, http.ResponseWriter) {
		return func(_ *sseSite, _ *sseStream, w http.ResponseWriter) { w.WriteHeader(code) }
	}
	for _, tt := range []struct {
		name   string
		answer func(o *sseSite, v *sseStream, w http.ResponseWriter)
		theirs bool
	}{
		{"each session is forgotten", says(404), true},
		{"400", says(400), false},
		{"429", says(429), false},
		{"500", says(500), true},
		{"the stream ends", func(o *sseSite, _ *sseStream, w http.ResponseWriter) { w.WriteHeader(202); o.end() }, true},
		{"a flood", func(_ *sseSite, v *sseStream, w http.ResponseWriter) {
			w.WriteHeader(202)
			for range link.MaxJunk + 1 {
				v.say("no message")
			}
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			site := newSSESite(t)
			site.special = onSSECalls(func(v *sseStream, w http.ResponseWriter, _ *http.Request, _ *msg) { tt.answer(site, v, w) })
			f := readyFleet(t, Options{}, site.server())
			_, err := f.Call(t.Context(), echoCall("one", "{}"))
			checkBlame(t, err, false, tt.theirs)
		})
	}
	t.Run("nobody takes what is posted", func(t *testing.T) {
		site := newSSESite(t)
		f := readyFleet(t, Options{StartDeadline: time.Second}, site.server())
		_ = site.Listener.Close()
		site.CloseClientConnections()
		_, err := f.Call(t.Context(), echoCall("one", "{}"))
		checkBlame(t, err, true, true)
	})
}
