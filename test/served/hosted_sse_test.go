package served_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// A server over HTTP with SSE demands the token for its stream, and its metadata says where to sign in, as at any other server.
func TestHosted3AServerOverHTTPWithSSEIsConnectedLikeAnyOther(t *testing.T) {
	t.Parallel()
	a := rig.ServeAuthority(t, time.Hour)
	h := rig.ServeSSEHostedBy(t, a)
	dir := rig.LayOut(t, fmt.Sprintf("-- switchboard.yaml --\nservers:\n  tracker: {transport: http, url: %q}\n", h.Resource))
	g := rig.ServeAtOnce(t, dir)
	rig.Eventually(t, "the server needs a connection", func() string {
		s := stateOf(t, dir)
		return rig.ReasonUnless(strings.Contains(s, "needs_connection") && strings.Contains(s, "switchboard server connect tracker"), s)
	})
	if strings.Contains(g.Logged(), "405") {
		t.Errorf("it is reported as a server that refuses requests:\n%s", g.Logged())
	}
	c := beginConnect(t, dir, "tracker")
	fmt.Fprintln(c.in, a.Consent(t, c.address, "ops-of-the-desk"))
	if said, code := c.end(); code != 0 || !strings.Contains(said, "files:read") {
		t.Fatalf("exit %d: %s", code, said)
	}
	awaitTools(t, g)
	for _, modern := range []bool{false, true} {
		if got := askWho(t, g.Open(t, "/mcp", modern)); got != "ops-of-the-desk" {
			t.Errorf("modern %v: whoami answers %q", modern, got)
		}
	}
	messages := 0
	for _, q := range h.Requests() {
		if !strings.Contains(q.Whole, "sessionid=") {
			continue
		}
		if messages++; h.PersonOf(&q) != "ops-of-the-desk" || q.Status/100 != 2 {
			t.Errorf("a message with the token of %q was answered with %d", h.PersonOf(&q), q.Status)
		}
	}
	if messages == 0 {
		t.Error("no message was sent")
	}
}
