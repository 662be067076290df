package gateway_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// lend makes a tool answer with a large result. Its memory is overwritten as soon as it is
// released. lend returns the expected text and the number of releases.
func (w *world) lend(tool, more string) (text string, released *atomic.Int32) {
	text = `{"content":["` + strings.Repeat("x", 300<<10) + `"]` + more + `}`
	released = new(atomic.Int32)
	w.play(tool, func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		lent := []byte(text)
		return switchboard.Result{JSON: lent, Release: func() {
			released.Add(1)
			for i := range lent {
				lent[i] = '!'
			}
		}}, nil
	})
	return text, released
}

func TestAResultsMemoryIsGivenBackOnceItHasBeenWritten(t *testing.T) {
	const more = `,"resultType":"complete","_meta":{"io.switchboard/x":1}`
	w := newWorld(t)
	text, released := w.lend("big", more)
	content := strings.TrimSuffix(strings.TrimPrefix(text, "{"), more+"}")
	check := func(t *testing.T, got string) {
		t.Helper()
		if !strings.Contains(got, content) || strings.Contains(got, "!") {
			t.Errorf("got %d bytes: %.100s … %s", len(got), got, got[max(0, len(got)-100):])
		}
		if n := released.Swap(0); n != 1 {
			t.Errorf("released %d times", n)
		}
	}
	session := w.session(nil)
	for what, accept := range map[string]string{"as JSON": both, "as an event": "text/event-stream"} {
		t.Run("legacy "+what, func(t *testing.T) {
			_, got := w.post(legacyCall("1", "big", ""), head{"Mcp-Session-Id": session["Mcp-Session-Id"], "Accept": accept})
			check(t, got)
		})
		t.Run("modern "+what, func(t *testing.T) {
			body, h := modern("1", "tools/call", `"name":"big",`, "big")
			h["Accept"] = accept
			_, got := w.post(body, h)
			check(t, got)
		})
	}
	t.Run("stdio", func(t *testing.T) {
		c := w.stdio(t.Context(), "")
		c.send(initialize)
		c.next()
		c.send(legacyCall("1", "big", ""))
		check(t, c.next())
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}
