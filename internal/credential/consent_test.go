package credential

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// newTestBroker returns a broker with a vault in memory.
func newTestBroker(t *testing.T) *Broker {
	t.Helper()
	s := store.NewMemory()
	v, err := vault.Open(t.Context(), s, vault.Options{Keys: []switchboard.Secret{switchboard.NewSecret("a secret of thirty-two bytes, or so")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close(); _ = s.Close() })
	return NewBroker(Options{Vault: v})
}

func TestWhatAServerDemandsIsFoundOutWhicheverRequestItDemandsItFor(t *testing.T) {
	const demand = `Bearer scope="read"`
	for _, tt := range []struct {
		name              string
		initialize, list  int // HTTP status
		stream            int
		version           string // with which it must be asked for the list
		demands, isServer bool
	}{
		{"at once", 401, 0, 0, "", true, true},
		{"a legacy server, for the list", 200, 401, 0, "2025-11-25", true, true},
		{"a modern server, for the list", 400, 401, 0, "2026-07-28", true, true},
		{"a legacy server that demands nothing", 200, 200, 0, "2025-11-25", false, true},
		{"a legacy server that wants more before", 200, 400, 0, "2025-11-25", false, true},
		{"a modern server that demands nothing", 400, 200, 0, "2026-07-28", false, true},
		{"HTTP with SSE, for the stream", 405, 405, 401, "2026-07-28", true, true},
		{"HTTP with SSE that demands nothing", 404, 404, 200, "2026-07-28", false, true},
		{"no server", 404, 404, 404, "2026-07-28", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			listed := ""
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var m struct{ Method string }
				body, _ := io.ReadAll(r.Body)
				_ = json.Unmarshal(body, &m)
				status := tt.initialize
				if m.Method == "tools/list" {
					listed = r.Header.Get("Mcp-Protocol-Version")
					if status = tt.list; tt.initialize == 200 && r.Header.Get("Mcp-Session-Id") != "s1" {
						status = http.StatusNotFound
					}
				}
				if r.Method == http.MethodGet {
					status = tt.stream
					w.Header().Set("Content-Type", "text/event-stream")
				}
				w.Header().Set("Mcp-Session-Id", "s1")
				if status == 401 {
					w.Header().Set("WWW-Authenticate", demand)
				}
				w.WriteHeader(status)
				fmt.Fprint(w, `{}`)
				if status == http.StatusOK && r.Method == http.MethodGet { // it goes on
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}
			}))
			defer site.Close()
			s := &switchboard.Server{ID: "wiki", Transport: switchboard.TransportHTTP, URL: site.URL + "/mcp"}
			challenge, err := newTestBroker(t).askChallenge(t.Context(), s)
			if tt.demands != (err == nil) || tt.demands && challenge.Scope != "read" || !tt.demands && errors.Is(err, ErrNotDemanded) != tt.isServer {
				t.Errorf("%+v, %v", challenge, err)
			}
			if listed != tt.version {
				t.Errorf("the list was asked for with version %q, want %q", listed, tt.version)
			}
		})
	}
}
