package served_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// streamsOf opens what a key may listen on: a stream of a legacy session, and that of a modern client.
func streamsOf(t *testing.T, g *rig.Gateway, key string) map[string]<-chan string {
	t.Helper()
	auth := "Bearer " + key
	s := g.Open(t, "/mcp", false, "Authorization", auth)
	rig.ListNames(t, s)
	return map[string]<-chan string{
		"a legacy stream": follow(t, http.MethodGet, g.URL+"/mcp", "", http.Header{"Authorization": {auth}, "Mcp-Session-Id": {s.ID}, "Mcp-Protocol-Version": {"2025-11-25"}}),
		"a modern stream": follow(t, http.MethodPost, g.URL+"/mcp",
			`{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":`+rig.WithMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`,
			http.Header{"Authorization": {auth}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}}),
	}
}

// untilRefused waits until the key is refused with the code, and returns when it was.
func untilRefused(t *testing.T, g *rig.Gateway, key, code string) time.Time {
	t.Helper()
	rig.Eventually(t, "the key is refused", func() string {
		m, _ := g.Open(t, "/mcp", true, "Authorization", "Bearer "+key).Ask(t, "tools/list", "")
		if m.Error == nil || !strings.Contains(string(m.Error.Data), code) {
			return string(m.Raw)
		}
		return ""
	})
	return time.Now()
}

// AZ-11: streams that say nothing close too, long before they would be asked again who listens, which is each 15 seconds.
func TestAttack9AZ11StreamsOfAKeyThatIsRemovedOrExpiresAreClosedAtOnce(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	dir, keys := twoTenants(t)
	g := rig.Serve(t, dir)
	alice, bob := streamsOf(t, g, keys["alice"]), streamsOf(t, g, keys["bob"])
	file := filepath.Join(dir, "tenants/acme/tenant.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	closed := func(streams map[string]<-chan string, since time.Time) {
		t.Helper()
		for what, said := range streams {
			select {
			case <-said:
				t.Logf("%s closed %v after its key was refused", what, time.Since(since).Round(time.Millisecond))
			case <-time.After(10 * time.Second):
				t.Errorf("%s is still open", what)
			}
		}
	}
	var rest string
	for row := range strings.Lines(string(text)) {
		if !strings.Contains(row, "id: alice") {
			rest += row
		}
	}
	rig.WriteFile(t, file, rest)
	closed(alice, untilRefused(t, g, keys["alice"], "SB-AUTH-001"))
	for what, said := range bob {
		select {
		case <-said:
			t.Errorf("%s of another key is closed", what)
		default:
		}
	}

	end := time.Now().Add(4 * time.Second).UTC().Format(time.RFC3339)
	rig.WriteFile(t, file, strings.Replace(rest, "id: bob,", "id: bob, expires: "+end+",", 1))
	closed(bob, untilRefused(t, g, keys["bob"], "SB-AUTH-003"))
}

// SE-03: of fifty wrong keys at once, all but ten wait for their answer, and the log has one line.
func TestAttack11SE03WrongKeysAreSlowAndFillNoLog(t *testing.T) {
	t.Parallel()
	g, key := serveWithKey(t)
	var guessing sync.WaitGroup
	var quick atomic.Int64
	for range 50 {
		guessing.Go(func() {
			began := time.Now()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/mcp", strings.NewReader("{}"))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+identity.AgentPrefix+"wrong")
			resp, err := http.DefaultClient.Do(req)
			if err != nil || resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%v, %v", resp, err)
				return
			}
			_ = resp.Body.Close()
			if time.Since(began) < time.Second {
				quick.Add(1)
			}
		})
	}
	if got := rig.Call(t, g.Open(t, "/mcp", true, "Authorization", "Bearer "+key), "work", `{}`); got != "" {
		t.Errorf("with a key meanwhile: %s", got)
	}
	guessing.Wait()
	if n := quick.Load(); n > 10 {
		t.Errorf("%d of 50 were answered at once", n)
	}
	if n := strings.Count(g.Logged(), "refused a caller"); n != 1 {
		t.Errorf("the log has %d lines", n)
	}
}
