package served_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A test cannot bound the time of a call on every machine, but it can bound its allocations. Once, changes made calls dearer, and nobody noticed: they raised
// the allocations from 77 to 142. The bounds leave room for what runs in the background meanwhile.
func TestACallAllocatesLittle(t *testing.T) {
	for _, tt := range []struct {
		name, tool, constraints string
		most                    int
	}{
		{"a call that reads", `{"name":"first","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`, "readonly", 62},
		{"a call with an effect", `{"name":"first","inputSchema":{"type":"object"}}`, "", 92},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			behind := httptest.NewServer(fakeserver.New([]string{"marks=" + filepath.Join(t.TempDir(), "marks"), tt.tool}))
			t.Cleanup(behind.Close)
			g := rig.Serve(t, rig.LayOut(t, rig.Fakes(fmt.Sprintf("a: {transport: http, url: %q, trust: operator}", behind.URL+"/mcp"))+
				fmt.Sprintf("-- overlays/a.yaml --\nserver: a\ntools:\n  first: {capabilities: [{verb: search, resource: internet, constraints: [%s]}]}\n", tt.constraints)))
			rig.ListNames(t, g.Open(t, "/mcp", true)) // the server has started
			conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
			wait.Read(t, "a connection", err)
			defer conn.Close() //nolint:errcheck // the test is over
			answers := bufio.NewReader(conn)
			call := func(times int) {
				t.Helper()
				for i := range times {
					wait.Read(t, "a deadline", conn.SetDeadline(time.Now().Add(wait.Bound)))
					body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, i, rig.WithMeta(`{"name":"first","arguments":{}}`))
					_, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
						"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: first\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
					wait.Read(t, "the request", err)
					r, err := http.ReadResponse(answers, nil)
					wait.Read(t, "the response", err)
					text, err := io.ReadAll(r.Body)
					wait.Read(t, "the body", err)
					if !strings.Contains(string(text), `"result"`) || strings.Contains(string(text), `"isError":true`) {
						t.Fatalf("got %s %s", r.Status, text)
					}
				}
			}
			call(100) // what the first calls make, the others use
			const calls = 2000
			before := allocations(t, g)
			call(calls)
			each := float64(allocations(t, g)-before) / float64(calls)
			t.Logf("%.1f allocations", each)
			if each > float64(tt.most) {
				t.Errorf("it allocates %.1f times, and may %d times", each, tt.most)
			}
		})
	}
}

var mallocs = regexp.MustCompile(`(?m)^go_memstats_mallocs_total (\S+)$`)

// allocations returns how often Switchboard has allocated since its start.
func allocations(t *testing.T, g *rig.Gateway) int {
	t.Helper()
	page := g.AskAdmin(t, "", http.MethodGet, "/metrics", "").Body
	found := mallocs.FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the metrics do not have the allocations:\n%s", page)
	}
	n, err := strconv.ParseFloat(found[1], 64)
	wait.Read(t, "the allocations", err)
	return int(n)
}
