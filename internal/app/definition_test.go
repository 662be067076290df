package app

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A server that changes all its definitions at once does not fill the log.
func TestTheLogOfChangedDefinitionsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where the clock stands still
		var said strings.Builder
		tool := func(i, version int) *switchboard.Tool {
			var meta []string
			for n := range 30 {
				meta = append(meta, fmt.Sprintf(`"%s%d":%d`, strings.Repeat("x", 100), n, version))
			}
			return &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: fmt.Sprint("t", i)}, Digest: switchboard.Digest(fmt.Sprint(version)), Definition: []byte(`{"_meta":{` + strings.Join(meta, ",") + `}}`)}
		}
		var now []*switchboard.Tool
		for i := range 30 {
			now = append(now, tool(i, 2))
		}
		old := 0
		was := func(id switchboard.ToolID) (*switchboard.Tool, bool) {
			old++
			return tool(old, 1), id.Name != "t0" // which is new
		}
		logDefinitions(t.Context(), slog.New(slog.NewTextHandler(&said, nil)), was, now)
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		if len(lines) != maxLoggedDefinitions+1 || !strings.Contains(lines[maxLoggedDefinitions], "tools=9") {
			t.Errorf("%d lines:\n%s", len(lines), said.String())
		}
		if first := lines[0]; strings.Count(first, "_meta.") != maxLoggedMembers || len(first) > 1200 || !strings.Contains(first, "tool=t1") {
			t.Errorf("a line is %d bytes long: %s", len(first), first)
		}
	})
}
