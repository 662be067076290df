package importer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/test/configtest"
)

// The unit of a timeout differs by client: a number up to 3600 is in seconds, and a larger one in milliseconds. Load and Convert agree on it.
func TestATimeoutIsTakenOver(t *testing.T) {
	const (
		number = "it is no number above 0"
		short  = "it is shorter than 0.1s"
		long   = "it is longer than 3600s"
	)
	for _, tt := range []struct {
		entry string
		want  time.Duration // 0 means the default
		note  string        // why it is left out
	}{
		{`"timeout": 1`, time.Second, ""},
		{`"timeout": 60`, time.Minute, ""},
		{`"timeout": 90.5`, 90500 * time.Millisecond, ""},
		{`"timeout": 0.1`, 100 * time.Millisecond, ""},
		{`"timeout": 3600`, time.Hour, ""},
		{`"timeout": 3601`, 3601 * time.Millisecond, ""},
		{`"timeout": 30000`, 30 * time.Second, ""},
		{`"timeout": 6e5`, 10 * time.Minute, ""},
		{`"timeout": 3600000`, time.Hour, ""},
		{`"timeout": 3600001`, 0, long},
		{`"timeout": 1e999`, 0, long},
		{`"timeout": 0.09`, 0, short},
		{`"timeout": 0`, 0, number},
		{`"timeout": -5`, 0, number},
		{`"timeout": -1e999`, 0, number},
		{`"timeout": "60"`, 0, number},
		{`"timeout": "60s"`, 0, number},
		{`"timeout": true`, 0, number},
		{`"timeout": null`, 0, ""},
		{`"timeout": [60]`, 0, number},
		{`"tool_timeout_sec": 120`, 2 * time.Minute, ""},
		{`"tool_timeout_sec": 1.5`, 1500 * time.Millisecond, ""},
		{`"tool_timeout_sec": 30000`, 0, long},
		{`"tool_timeout_sec": 0`, 0, number},
	} {
		for _, way := range []string{`"command": "x"`, `"url": "https://h.example/mcp"`} {
			opts := config.Options{Env: configtest.Env, Text: []byte(`{"mcpServers": {"a": {` + way + `, ` + tt.entry + `}}}`)}
			c, mapping, err := importer.Load("mcp.json", opts)
			if err != nil || c.Servers[0].Timeout != tt.want {
				t.Errorf("%s: %v, %v; want %v", tt.entry, c.Servers, err, tt.want)
				continue
			}
			var want []string
			if tt.note != "" {
				key, _, _ := strings.Cut(tt.entry, ":")
				want = []string{key + " is left out, so that the default of 60s counts: " + tt.note}
			}
			if fmt.Sprintf("%q", mapping[0].Notes) != fmt.Sprintf("%q", want) {
				t.Errorf("%s: the notes are %q, want %q", tt.entry, mapping[0].Notes, want)
			}
			text, secrets, mapping, err := importer.Convert("mcp.json", opts)
			if err != nil || fmt.Sprintf("%q", mapping[0].Notes) != fmt.Sprintf("%q", want) {
				t.Errorf("%s: Convert says %v, %q; want %q", tt.entry, err, mapping[0].Notes, want)
			}
			sameServers(t, c, text, secrets, mapping, configtest.Env)
		}
	}
}
