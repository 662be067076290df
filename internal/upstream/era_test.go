package upstream

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestAnEraIsFoundFromWhateverAServerAnswers(t *testing.T) {
	rpc := func(status, code int, data string) func(w http.ResponseWriter, m *msg) {
		return func(w http.ResponseWriter, m *msg) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"%s}}`, m.ID, code, data)
		}
	}
	plain := func(status int) func(w http.ResponseWriter, m *msg) {
		return func(w http.ResponseWriter, _ *msg) {
			w.Header().Set("Location", "http://127.0.0.1:1/stolen")
			http.Error(w, "no", status)
		}
	}
	result := func(text string) func(w http.ResponseWriter, m *msg) {
		return func(w http.ResponseWriter, m *msg) { writeResult(w, m, text) }
	}
	for _, tt := range []struct {
		name     string
		discover func(w http.ResponseWriter, m *msg)
		era      link.Era
		fails    string
	}{
		{"400", plain(400), link.EraLegacy, ""},
		{"404", plain(404), link.EraLegacy, ""},
		{"405", plain(405), link.EraLegacy, ""},
		{"200 method not found", rpc(200, -32601, ""), link.EraLegacy, ""},
		{"404 method not found", rpc(404, -32601, ""), link.EraLegacy, ""},
		{"400 another code", rpc(400, -32000, ""), link.EraLegacy, ""},
		{"400 unsupported, legacy offered", rpc(400, -32022, `,"data":{"supported":["2025-06-18"]}`), link.EraLegacy, ""},
		{"empty result", result(`{}`), link.EraLegacy, ""},
		{"result without a modern version", result(`{"supportedVersions":["2025-11-25"],"capabilities":{}}`), link.EraLegacy, ""},
		{"result with a later version", result(`{"supportedVersions":["2031-01-01"],"capabilities":{}}`), link.EraLegacy, ""},
		{"result without capabilities", result(`{"supportedVersions":["2026-07-28"]}`), link.EraLegacy, ""},
		{"a page", func(w http.ResponseWriter, _ *msg) { _, _ = io.WriteString(w, "<html>") }, link.EraLegacy, ""},
		{"400 header mismatch", rpc(400, -32020, ""), link.EraModern, "-32020"},
		{"400 missing capability", rpc(400, -32021, ""), link.EraModern, "-32021"},
		{"400 unsupported", rpc(400, -32022, `,"data":{"supported":["2031-01-01"]}`), link.EraModern, "-32022"},
		{"401", plain(401), "", "401 Unauthorized: check the credentials"},
		{"403 with an error", rpc(403, -32601, ""), "", "403 Forbidden"},
		{"500", plain(500), "", "500 Internal"},
		{"503", plain(503), "", "503 Service"},
		{"302", plain(302), "", "302 Found: redirects are not followed"},
		{"308", plain(308), "", "308 Permanent Redirect: redirects are not followed"},
		{"307 to an address", func(w http.ResponseWriter, _ *msg) {
			w.Header().Set("Location", "http://me:s3cret@127.0.0.1/mcp/?key=s3cret#s3cret")
			w.WriteHeader(307)
		}, "", "redirects are not followed; configure the address that it names: http://127.0.0.1/mcp/"},
		{"result of a modern server", result(modernHello), link.EraModern, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			era := link.EraLegacy
			if tt.era == link.EraModern && tt.fails == "" {
				era = link.EraModern
			}
			site := newSite(t, era, func(w http.ResponseWriter, _ *http.Request, m *msg) bool {
				if m == nil || m.Method != "server/discover" {
					return false
				}
				tt.discover(w, m)
				return true
			})
			f := openFleet(t, Options{}, site.server())
			f.Ready(t.Context())
			s := status(t, f, "one")
			if s.Era != tt.era {
				t.Errorf("era %q, want %q", s.Era, tt.era)
			}
			if ok := s.State == StateReady; ok != (tt.fails == "") {
				t.Errorf("%s: %+v", s.State, s.LastFailure)
			}
			if tt.fails != "" && (s.LastFailure == nil || !strings.Contains(s.LastFailure.Message, tt.fails) || strings.Contains(s.LastFailure.Message, "s3cret")) {
				t.Errorf("failure %+v, want %q", s.LastFailure, tt.fails)
			}
			if n := len(site.requests("initialize")); n > 1 || n == 0 && tt.era == link.EraLegacy {
				t.Errorf("%d times initialize", n)
			}
		})
	}
}

func TestAServerOverHTTPThatIsSilentAtFirstIsTakenForWhatItAnswersThen(t *testing.T) {
	rpc := func(status, code int) func(w http.ResponseWriter, m *msg) {
		return func(w http.ResponseWriter, m *msg) {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"}}`, m.ID, code)
		}
	}
	for _, tt := range []struct {
		name       string
		era        link.Era
		initialize func(w http.ResponseWriter, m *msg) // nil: as its era demands
	}{
		{"a legacy server that answers no unknown method", link.EraLegacy, nil},
		{"a modern server that misses a header", link.EraModern, nil},
		{"a modern server that does not know the method", link.EraModern, rpc(404, -32601)},
		{"a modern server that names its version", link.EraModern, func(w http.ResponseWriter, m *msg) {
			w.Header().Set("Mcp-Session-Id", "none-that-it-knows-later")
			writeResult(w, m, `{"protocolVersion":"2026-07-28","capabilities":{},"serverInfo":{"name":"fake","version":"1"}}`)
		}},
		{"a modern server that answers with something else", link.EraModern, func(w http.ResponseWriter, m *msg) { writeResult(w, m, `{}`) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // it waits for a silence
			var site *site
			site = newSite(t, tt.era, func(w http.ResponseWriter, r *http.Request, m *msg) bool {
				switch {
				case m == nil:
				case m.Method == "server/discover" && len(site.requests("server/discover")) == 1:
					<-r.Context().Done()
					return true
				case m.Method == "initialize" && tt.initialize != nil:
					tt.initialize(w, m)
					return true
				}
				return false
			})
			f := openFleet(t, Options{StartDeadline: time.Minute}, site.server())
			f.Ready(t.Context())
			if s := status(t, f, "one"); s.Era != tt.era || s.State != StateReady || s.LastFailure != nil {
				t.Errorf("era %q, %s: %+v; want era %q, ready", s.Era, s.State, s.LastFailure, tt.era)
			}
			if n := len(site.requests("initialize")); n != 1 {
				t.Errorf("it got initialize %d times, want once", n)
			}
			if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDiscoverRetriesOnceWithAVersionThatTheServerNames(t *testing.T) {
	for _, tt := range []struct {
		name      string
		supported string
		refuses   int // number of refusals, which may exceed the number of requests
		asked     int // requests in the first attempt
		ready     bool
	}{
		{"once", `["2031-01-01","2026-07-28"]`, 1, 2, true},
		{"always", `["2026-07-28"]`, 1 << 30, 2, false},
		{"once, naming none that we speak", `["2031-01-01"]`, 1 << 30, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var site *site
			site = newSite(t, link.EraModern, func(w http.ResponseWriter, _ *http.Request, m *msg) bool {
				if m == nil || m.Method != "server/discover" || len(site.requests("server/discover")) > tt.refuses {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":%s}}}`, m.ID, tt.supported)
				return true
			})
			f := openFleet(t, Options{}, site.server())
			f.Ready(t.Context())
			asked := len(site.requests("server/discover"))
			if s := status(t, f, "one"); (s.State == StateReady) != tt.ready {
				t.Errorf("%s: %+v", s.State, s.LastFailure)
			}
			if asked != tt.asked || len(site.requests("initialize")) != 0 {
				t.Errorf("it got %d requests", asked)
			}
		})
	}
}

// A logBook stores the log output.
type logBook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestAServerOfBothErasStaysUpHoweverLateItAnswers(t *testing.T) {
	t.Parallel() // it waits for silences
	var logs logBook
	eras := map[switchboard.ServerID]link.Era{
		"at-once": link.EraModern,
		"starts":  link.EraModern, // time before it has read the request is no silence
		"late":    link.EraLegacy,
		"reverse": link.EraLegacy,
	}
	if runtime.GOOS != "linux" {
		eras["starts"] = link.EraLegacy
	}
	began := time.Now()
	f := openFleet(t, Options{Log: slog.New(slog.NewTextHandler(&logs, nil))},
		stdioFake("at-once", "speaks-both"), stdioFake("starts", "speaks-both-but-starts-late"),
		stdioFake("late", "speaks-both-late"), stdioFake("reverse", "speaks-both-late-and-legacy-first"))
	f.Ready(t.Context())
	if took := time.Since(began); took >= lateStart+link.ProbeSilence*7/8 && status(t, f, "starts").Era != eras["starts"] {
		wait.Late(t, "the server that starts late was up after %s, so that its answer may have come too long after it read the request", took)
	}
	for id, era := range eras {
		for range 3 {
			if err := f.Probe(t.Context(), id); err != nil {
				t.Errorf("%s: probe: %v", id, err)
			}
		}
		if _, err := f.Call(t.Context(), echoCall(string(id), "{}")); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if s := status(t, f, id); s.Era != era || s.Restarts != 0 || s.Dropped != 0 {
			t.Errorf("%s: %+v, want the era %s", id, s, era)
		}
	}
	if text := logs.String(); strings.Contains(text, "WARN") {
		t.Errorf("our own question caused a warning:\n%s", text)
	}
}

func TestAProbeThatTheEraOfTheConnectionCannotAnswerOpensANewConnection(t *testing.T) {
	f := readyFleet(t, Options{}, stdioFake("one", "discovers-once"))
	for range 3 {
		if err := f.Probe(t.Context(), "one"); err != nil {
			t.Errorf("a probe: %v", err)
		}
	}
}

func TestTheEraIsRememberedWhenASessionIsForgotten(t *testing.T) {
	site := newSite(t, link.EraLegacy, nil)
	f := readyFleet(t, Options{}, site.server())
	site.forget()
	if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
		t.Fatalf("a client notices: %v", err)
	}
	calls := site.requests("tools/call")
	if len(calls) != 2 || calls[0].header.Get("Mcp-Session-Id") == calls[1].header.Get("Mcp-Session-Id") {
		t.Errorf("%d calls", len(calls))
	}
	if n := len(site.requests("server/discover")); n != 1 {
		t.Errorf("it was probed %d times", n)
	}
	if n := len(site.requests("initialize")); n != 2 {
		t.Errorf("%d sessions were opened", n)
	}
	wait.Until(t, "all is as before", func() bool {
		s := status(t, f, "one")
		return s.State == StateReady && s.LastFailure == nil && !s.Stale
	})

	// A server that forgets each session at once does not cause an endless loop.
	site.set(func(_ http.ResponseWriter, _ *http.Request, m *msg) bool {
		if m != nil && m.Method == "tools/call" {
			site.forget()
		}
		return false
	})
	_, err := f.Call(t.Context(), echoCall("one", "{}"))
	wantCode(t, err, switchboard.CodeServerUnreachable)
	if n := len(site.requests("tools/call")); n != 4 {
		t.Errorf("it got %d requests", n-2)
	}
}

func TestASessionIsAlsoForgottenByServersThatSayBadRequest(t *testing.T) {
	for name, body := range map[string]string{
		"as an error": `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`,
		"as text":     "Invalid or missing session ID",
	} {
		t.Run(name, func(t *testing.T) {
			site := newSite(t, link.EraLegacy, nil)
			site.set(func(w http.ResponseWriter, r *http.Request, m *msg) bool {
				session := r.Header.Get("Mcp-Session-Id")
				refuses := m != nil && m.Params.Arguments["refuse"] == true
				if !refuses && (session == "" || site.knows(session)) {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, body)
				return true
			})
			f := readyFleet(t, Options{}, site.server())

			// A single refused request does not end the session.
			_, err := f.Call(t.Context(), echoCall("one", `{"refuse":true}`))
			if err == nil {
				t.Fatal("no error")
			}
			if n := len(site.requests("initialize")); n != 1 || len(site.requests("tools/call")) != 1 {
				t.Errorf("%d sessions after one refusal", n)
			}

			site.forget()
			if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
				t.Errorf("a client notices: %v", err)
			}
			if n := len(site.requests("initialize")); n != 2 {
				t.Errorf("%d sessions were opened", n)
			}
		})
	}
}

func TestAServerThatWasReplacedByOneOfTheOtherEraIsFoundAgain(t *testing.T) {
	for _, era := range eras {
		t.Run("was "+string(era), func(t *testing.T) {
			t.Parallel()
			site := newSite(t, era, nil)
			f := readyFleet(t, Options{}, site.server())
			other := map[link.Era]link.Era{link.EraLegacy: link.EraModern, link.EraModern: link.EraLegacy}[era]
			site.mu.Lock()
			site.era = other
			site.mu.Unlock()
			site.forget()
			site.CloseClientConnections() // its streams end, so that the server is listed again
			wait.Until(t, "it is ready in the other era", func() bool {
				s := status(t, f, "one")
				return s.Era == other && s.State == StateReady
			})
			if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAServerReplacedBeforeItOpenedItsStreamIsFoundAgain(t *testing.T) {
	t.Parallel()
	replaced := make(chan struct{})
	site := newSite(t, link.EraLegacy, func(_ http.ResponseWriter, r *http.Request, _ *msg) bool {
		if r.Method == http.MethodGet {
			<-replaced
		}
		return false
	})
	f := readyFleet(t, Options{}, site.server()) // waits for the stream, but not without a limit
	site.mu.Lock()
	site.era = link.EraModern
	site.mu.Unlock()
	site.forget()
	close(replaced)
	wait.Until(t, "it is ready in the other era", func() bool {
		s := status(t, f, "one")
		return s.Era == link.EraModern && s.State == StateReady
	})
}
