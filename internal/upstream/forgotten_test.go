package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
)

// forgetfulSite returns a legacy site that answers with the status if it has forgotten the session.
func forgetfulSite(t *testing.T, status int) *site {
	var s *site
	s = newSite(t, link.EraLegacy, func(w http.ResponseWriter, r *http.Request, m *msg) bool {
		session := r.Header.Get("Mcp-Session-Id")
		switch {
		case session != "" && !s.knows(session):
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "no such session")
		case m != nil && m.Method == "initialize":
			s.mu.Lock()
			session = fmt.Sprintf("session-%d", len(s.seen))
			s.sessions[session] = true
			s.mu.Unlock()
			w.Header().Set("Mcp-Session-Id", session)
			writeResult(w, m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"completions":{},"resources":{"subscribe":true}}}`)
		case m != nil && session != "" && m.ID != nil && m.Method != "tools/list":
			writeResult(w, m, "{}")
		default:
			return false
		}
		return true
	})
	return s
}

// sessionsOf counts the sessions of the requests with the method.
func (s *site) sessionsOf(method string) int {
	seen := map[string]bool{}
	for _, r := range s.requests(method) {
		seen[r.header.Get("Mcp-Session-Id")] = true
	}
	return len(seen)
}

func TestNoClientNoticesThatItsSessionWasForgotten(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		for _, method := range []string{"tools/call", "resources/read", "prompts/get", "completion/complete"} {
			for who, client := range map[string]switchboard.Client{
				"": {},
				"who can be asked": {
					Session: "s", Capabilities: []byte(`{"elicitation":{},"roots":{}}`),
					Ask: func(context.Context, string, []byte) ([]byte, error) { return []byte(`{}`), nil },
				},
			} {
				t.Run(fmt.Sprint(status, method, who), func(t *testing.T) {
					site := forgetfulSite(t, status)
					cfg := site.server()
					cfg.Share = switchboard.SharePrincipal
					f := readyFleet(t, Options{}, cfg)
					c := echoCall("one", "{}")
					c.Method, c.Tool, c.Client = method, nil, client
					for range 2 {
						if _, err := f.Call(t.Context(), c); err != nil {
							t.Fatalf("it notices: %v", err)
						}
						site.forget()
					}
					// One request was answered, one was refused unread, one was answered.
					if n := len(site.requests(method)); n != 3 || site.sessionsOf(method) != 2 {
						t.Errorf("it got %d requests in %d sessions", n, site.sessionsOf(method))
					}
				})
			}
		}
	}
}

func TestASubscriptionOutlivesASessionThatWasForgotten(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			site := forgetfulSite(t, status)
			f := readyFleet(t, Options{}, site.server())
			u, _ := subscribeTo(t, f, "x:1")
			site.forget()
			c := echoCall("one", "{}")
			c.Method, c.Tool = "resources/read", nil
			if _, err := f.Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			u.await(t, "x:1") // updates may have been missed
			if n := site.sessionsOf("resources/subscribe"); n != 2 {
				t.Errorf("it was subscribed to in %d sessions", n)
			}
		})
	}
}
