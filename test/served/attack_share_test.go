package served_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// RX-10: one key fills a server with calls that do not end. Another tenant, and another key of the same tenant, still call that server.
func TestAttack8RX10OneTenantsSlowCallsLeavePlacesForItsNeighbors(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	dir := t.TempDir()
	until, marks := filepath.Join(dir, "until"), filepath.Join(dir, "marks")
	good := strings.Replace(rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "work")), "{", "{max_calls: 12, ", 1)
	keys, rows := map[string]string{}, map[string]string{}
	for _, who := range []string{"alice", "bob", "eve"} {
		keys[who], rows[who] = rig.NewKey(t, who)
	}
	tenant := func(id, keys string) string {
		return "-- tenants/" + id + "/tenant.yaml --\ntenant: " + id + "\ndefault_task: all\nkeys:\n" + keys +
			"-- tenants/" + id + "/tasks/all.yaml --\ntask_id: all\n" + rig.RequireAll
	}
	g := rig.Serve(t, rig.LayOut(t, "-- switchboard.yaml --\nservers:\n  "+good+"\ntenants:\n  acme: {servers: [a], allow: [by_name]}\n  other: {servers: [a], allow: [by_name]}\n"+
		tenant("acme", rows["alice"]+rows["bob"])+tenant("other", rows["eve"])))
	as := func(who string, modern bool) *rig.HTTPSession {
		return g.Open(t, "/mcp", modern, "Authorization", "Bearer "+keys[who])
	}
	var crowd sync.WaitGroup
	var mu sync.Mutex
	codes := map[string]int{}
	for i := range 40 {
		s := as("alice", i%2 == 0)
		crowd.Go(func() {
			m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"work","arguments":{"do":"await","until":%q}}`, until))
			mu.Lock()
			defer mu.Unlock()
			codes[rig.Code(m)]++
			if rig.Code(m) != "" && !strings.Contains(string(m.Raw), "the other slots are for other callers") {
				t.Errorf("%s", m.Raw)
			}
		})
	}
	const share = 4 // of 12: four are left to the tenant's others, and four to other tenants
	rig.AwaitCalls(t, marks, share)
	rig.Eventually(t, "the rest is refused", func() string {
		mu.Lock()
		defer mu.Unlock()
		if n := codes["SB-ROUT-003"]; n != 40-share {
			return fmt.Sprint(codes)
		}
		return ""
	})
	for i := range 20 {
		for _, who := range []string{"bob", "eve"} {
			if got := rig.Call(t, as(who, i%2 == 0), "work", `{}`); got != "" {
				t.Errorf("%s: %s", who, got)
			}
		}
	}
	if err := os.WriteFile(until, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	crowd.Wait()
	if codes[""] != share {
		t.Errorf("%v", codes)
	}
}
