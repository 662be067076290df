package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// talks makes a tool that sends progress the given number of times, as fast as it can, and returns
// how long that took.
func (w *world) talks(times int) (took <-chan time.Duration) {
	said := make(chan time.Duration, 1)
	w.play("talk", func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		start := time.Now()
		for i := range times {
			c.Notify(switchboard.Notification{Method: "notifications/progress", Params: fmt.Appendf(nil, `{"progressToken":1,"progress":%d}`, i)})
		}
		said <- time.Since(start)
		return switchboard.Result{JSON: []byte(`{"content":[]}`)}, nil
	})
	return said
}

func TestAClientThatIsOnlySlowLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const times = 20_000
		w := newGateway(t)
		w.talks(times)
		c := w.stdio(t.Context(), "")
		body, _ := modern("1", "tools/call", `"name":"talk",`, "talk")
		c.send(body)
		for i := range times {
			time.Sleep(time.Millisecond)
			if got := c.next(); !strings.Contains(got, fmt.Sprintf(`"progress":%d}`, i)) {
				t.Fatalf("message %d is %s", i, got)
			}
		}
		if got := c.next(); !strings.Contains(got, `"result"`) {
			t.Errorf("the last is %s", got)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestAServerDoesNotWaitLongForAClientThatReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGateway(t)
		took := w.talks(20_000)
		c := w.stdio(t.Context(), "")
		body, _ := modern("1", "tools/call", `"name":"talk",`, "talk")
		c.send(body)
		if got := <-took; got > 10*time.Second {
			t.Errorf("the server waited for %v", got)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}
