package gateway_test

import (
	"context"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestEachClientGetsTheLogLevelThatItWants(t *testing.T) {
	w := newWorld(t)
	said := []string{"debug", "info", "warning", "error"}
	w.play("speaks", func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		for _, level := range said {
			c.Notify(switchboard.Notification{Method: "notifications/message", Params: []byte(`{"level":"` + level + `","data":1.0}`)})
		}
		return switchboard.Result{JSON: []byte(`{"asked":"` + c.LogLevel + `"}`)}, nil
	})
	heard := func(body string) (levels []string) {
		for _, level := range said {
			if strings.Contains(body, `"level":"`+level+`"`) {
				levels = append(levels, level)
			}
		}
		return levels
	}
	silent, loud := w.session(nil), w.session(nil)
	for level, in := range map[string]head{"error": silent, "debug": loud} {
		if _, body := w.post(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"`+level+`"}}`, in); !strings.Contains(body, `"result"`) {
			t.Fatal(body)
		}
	}
	for name, tt := range map[string]struct {
		in    head
		level string // of a modern client
		asked string
		want  int // how many of the messages, from the most severe
	}{
		"legacy, error":         {silent, "", "error", 1},
		"legacy, debug":         {loud, "", "debug", 4},
		"legacy, as it begins":  {w.session(nil), "", "info", 3},
		"modern, warning":       {nil, "warning", "warning", 2},
		"modern, without level": {nil, "", "", 0},
	} {
		message, h := legacyCall("1", "speaks", ""), tt.in
		if tt.in == nil {
			message, h = modern("1", "tools/call", `"name":"speaks",`, "speaks")
			if tt.level != "" {
				message = strings.Replace(message, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"`+tt.level+`",`, 1)
			}
		}
		_, body := w.post(message, h)
		if got := heard(body); len(got) != tt.want || !strings.Contains(body, `"asked":"`+tt.asked+`"`) {
			t.Errorf("%s: heard %q: %s", name, got, body)
		}
	}
}
