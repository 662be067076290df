package upstream

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/frame"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
)

// A site is a server over HTTP.
type site struct {
	*httptest.Server
	era link.Era

	// special sees each request first. m is nil for requests without a body.
	special func(w http.ResponseWriter, r *http.Request, m *msg) (done bool)

	mu       sync.Mutex
	seen     []siteRequest
	sessions map[string]bool
	changed  chan struct{} // each value is announced on a stream as list_changed
	tools    string
}

// A siteRequest is a request that a site has received.
type siteRequest struct {
	verb   string
	host   string
	uri    string
	header http.Header
	msg    *msg
}

func newSite(t *testing.T, era link.Era, special func(w http.ResponseWriter, r *http.Request, m *msg) bool) *site {
	s := &site{era: era, special: special, sessions: map[string]bool{}, changed: make(chan struct{}), tools: tool("echo")}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.down)
	return s
}

// down ends the site. It closes the listener first, so that no stream is opened again.
func (s *site) down() {
	_ = s.Listener.Close()
	s.CloseClientConnections()
	s.Close()
}

func (s *site) server() switchboard.Server {
	return switchboard.Server{
		ID: "one", Transport: switchboard.TransportHTTP, URL: s.URL, Share: switchboard.ShareAll,
		Headers: map[string]switchboard.Secret{"Authorization": switchboard.NewSecret("Bearer s3cret-s3cret")},
	}
}

// requests returns the requests with that method, of MCP or of HTTP.
func (s *site) requests(what string) []siteRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []siteRequest
	for _, r := range s.seen {
		if r.verb == what || r.msg != nil && r.msg.Method == what {
			found = append(found, r)
		}
	}
	return found
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m *msg
	if len(body) > 0 {
		m = parseMsg(body)
	}
	s.mu.Lock()
	s.seen = append(s.seen, siteRequest{r.Method, r.Host, r.RequestURI, r.Header.Clone(), m})
	special, era := s.special, s.era
	s.mu.Unlock()
	session := r.Header.Get("Mcp-Session-Id")
	switch {
	case special != nil && special(w, r, m):
	case session != "" && !s.knows(session):
		http.Error(w, "no such session", http.StatusNotFound)
	case session == "" && era == link.EraLegacy && (m == nil || m.Method != "initialize"):
		http.Error(w, "Bad Request: no session", http.StatusBadRequest)
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		delete(s.sessions, session)
		s.mu.Unlock()
	case r.Method == http.MethodGet && era == link.EraLegacy:
		s.stream(w, r, "")
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.ID == nil || m.Method == "":
		w.WriteHeader(http.StatusAccepted)
	case era == link.EraModern:
		s.modern(w, r, m)
	default:
		s.legacy(w, m)
	}
}

// set replaces special.
func (s *site) set(special func(w http.ResponseWriter, r *http.Request, m *msg) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.special = special
}

func (s *site) knows(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[session]
}

// forget drops all sessions, like a restart.
func (s *site) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

func (s *site) legacy(w http.ResponseWriter, m *msg) {
	switch m.Method {
	case "initialize":
		s.mu.Lock()
		session := fmt.Sprintf("session-%d", len(s.seen))
		s.sessions[session] = true
		s.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", session)
		writeResult(w, m, legacyHello)
	default:
		s.both(w, m)
	}
}

func (s *site) modern(w http.ResponseWriter, r *http.Request, m *msg) {
	switch {
	case !m.modern() || r.Header.Get("Mcp-Method") != m.Method || r.Header.Get("Mcp-Protocol-Version") != "2026-07-28":
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"header mismatch"}}`, m.ID)
	case m.Method == "server/discover":
		writeResult(w, m, modernHello)
	case m.Method == "subscriptions/listen":
		s.stream(w, r, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true}}}`)
	default:
		s.both(w, m)
	}
}

func (s *site) both(w http.ResponseWriter, m *msg) {
	switch m.Method {
	case "tools/list":
		s.mu.Lock()
		defer s.mu.Unlock()
		writeResult(w, m, `{"tools":[`+s.tools+`]}`)
	case "tools/call":
		writeResult(w, m, fmt.Sprintf(`{"content":[],"got":%s}`, m.Raw))
	case "logging/setLevel":
		writeResult(w, m, `{}`)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
	}
}

func writeResult(w http.ResponseWriter, m *msg, result string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// writeEvent writes an event and flushes it.
func writeEvent(w http.ResponseWriter, format string, args ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: %s\n\n", fmt.Sprintf(format, args...))
	_ = http.NewResponseController(w).Flush()
}

// stream announces changed tools for each value from changed, and ends with the request.
func (s *site) stream(w http.ResponseWriter, r *http.Request, first string) {
	writeEvent(w, "%s", first)
	for {
		select {
		case <-r.Context().Done():
			return
		case _, ok := <-s.changed:
			if !ok {
				return
			}
			writeEvent(w, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
	}
}

// onCalls returns a special for tools/call only.
func onCalls(f func(w http.ResponseWriter, r *http.Request, m *msg)) func(http.ResponseWriter, *http.Request, *msg) bool {
	return func(w http.ResponseWriter, r *http.Request, m *msg) bool {
		if m == nil || m.Method != "tools/call" {
			return false
		}
		f(w, r, m)
		return true
	}
}

var xs = strings.Repeat("x", frame.MaxMessage)
