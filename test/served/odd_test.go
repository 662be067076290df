package served_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// An oddity is what a server answers to one call in a hundred, in place of the result.
var oddities = map[string]func(w http.ResponseWriter){
	"503": func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
	"500": func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
	"no JSON": func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{")
	},
	"the connection is closed": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
}

// Number 4: a healthy server gives one odd answer in a hundred. It is never taken out of service, and nobody else's calls are
// touched.
func TestNames4OneOddAnswerInAHundredQuarantinesNobody(t *testing.T) {
	t.Parallel()
	var odd, answered atomic.Int64
	server := func(id string, stateless bool, seed uint64) string {
		tools := mcp.NewServer(&mcp.Implementation{Name: id, Version: "1"}, nil)
		tools.AddTool(&mcp.Tool{Name: "web_search", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			answered.Add(1)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "by " + id}}}, nil
		})
		speaks := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, &mcp.StreamableHTTPOptions{Stateless: stateless})
		kinds := slices.Sorted(func(yield func(string) bool) {
			for kind := range oddities {
				if !yield(kind) {
					return
				}
			}
		})
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(seed, 4))
		site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte(`"tools/call"`)) {
				mu.Lock()
				at, kind := rng.IntN(100), kinds[rng.IntN(len(kinds))]
				mu.Unlock()
				if at == 0 {
					odd.Add(1)
					oddities[kind](w)
					return
				}
			}
			speaks.ServeHTTP(w, r)
		}))
		t.Cleanup(func() {
			_ = site.Listener.Close()
			site.CloseClientConnections()
			site.Close()
		})
		return site.URL
	}
	for _, stateless := range []bool{false, true} {
		t.Run(map[bool]string{false: "legacy servers", true: "modern servers"}[stateless], func(t *testing.T) {
			dir := rig.LayOut(t, fmt.Sprintf(`
-- switchboard.yaml --
servers:
  ha: {transport: http, url: %q, class: paid_api}
  hb: {transport: http, url: %q, class: free_api}
tenants: {default: {servers: ["*"]}}
-- overlays/ha.yaml --
server: ha
tools: {web_search: {capabilities: [{verb: search, resource: internet}]}}
-- overlays/hb.yaml --
server: hb
tools: {web_search: {capabilities: [{verb: search, resource: internet}]}}
-- tenants/default/tenant.yaml --
`+fmt.Sprintf(twoClasses, "paid_api, free_api")+`
-- tenants/default/tasks/t.yaml --
task_id: t
required_capabilities: [{verb: search, resource: internet}]
`, server("ha", stateless, 1), server("hb", stateless, 2)))
			g := rig.Serve(t, dir)
			const each = 700 // calls of one client
			odd.Store(0)
			var failed, elsewhere atomic.Int64
			var all sync.WaitGroup
			for i, modern := range []bool{false, true, false, true} {
				s := g.Open(t, "/mcp", modern)
				all.Go(func() {
					for n := range each {
						body, extra := s.Request("tools/call", `{"name":"web_search","arguments":{}}`)
						m, _, err := s.Exchange(strings.Replace(body, `"id":7`, fmt.Sprintf(`"id":%d`, i*each+n+10), 1), extra)
						switch {
						case err != nil || rig.Code(m) != "":
							failed.Add(1)
						case m.Text() != "by ha":
							elsewhere.Add(1)
						}
					}
				})
			}
			all.Wait()
			t.Logf("of %d calls %d were answered oddly and %d failed; %d were served by the other server", 4*each, odd.Load(), failed.Load(), elsewhere.Load())
			if odd.Load() < 10 || failed.Load() != odd.Load() || elsewhere.Load() > 0 {
				t.Errorf("%d odd answers, %d failed calls, %d served by the other server", odd.Load(), failed.Load(), elsewhere.Load())
			}
			if said := g.Logged(); strings.Contains(said, "state=quarantine") || strings.Contains(said, "to=quarantine") || strings.Contains(said, "state=lost") {
				t.Error("a server was taken out of service")
			}
			series, values := g.Metrics()
			for name := range series {
				if strings.Contains(name, "state_changes") {
					t.Logf("%s", name)
				}
			}
			for name, n := range values {
				if strings.Contains(name, "state_changes") && (strings.Contains(name, "quarantine") || strings.Contains(name, "lost")) && n > 0 {
					t.Errorf("%s is %g", name, n)
				}
			}
		})
	}
}
