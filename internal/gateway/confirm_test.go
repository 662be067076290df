package gateway_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/gateway"
)

// bridged is stdio with a bridge at the other end, which the test plays.
func (w *world) bridged(ctx context.Context) *cable {
	c := w.cable()
	go func() {
		c.done <- w.ServeStdio(ctx, gateway.Stdio{In: c.theirIn, Out: c.theirOut, Principal: stdioPrincipal, Grace: nineSeconds, Confirms: true})
		_ = c.theirOut.Close()
	}()
	return c
}

const begin = `{"jsonrpc":"2.0","method":"io.switchboard/begin","params":{"id":%s}}`

func received(id string) string {
	return `{"jsonrpc":"2.0","method":"io.switchboard/received","params":{"id":` + id + `}}`
}

// A client may send more than it reads. The messages that it sends are read, so that it can go on.
func TestABridgeThatReadsNothingIsStillRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGateway(t)
		w.answers("big", `{"content":[{"type":"text","text":"`+strings.Repeat("x", 5<<20)+`"}]}`)
		c := w.bridged(t.Context())
		c.send(initialize)
		c.next()
		for _, id := range []string{"1", "2"} {
			c.send(legacyCall(id, "big", ""))
			if got := c.next(); got != received(id) {
				t.Errorf("the bridge is told %.100s", got)
			}
		}
		for _, id := range []string{"1", "2"} { // the first answer is being written, and the second one fills the outbox
			c.send(fmt.Sprintf(begin, id))
			synctest.Wait()
		}
		sent := make(chan struct{})
		go func() {
			for id := 3; id < 10; id++ {
				_, _ = io.WriteString(c.in, legacyCall(fmt.Sprint(id), "echo", "")+"\n")
			}
			close(sent)
		}()
		select {
		case <-sent:
		case <-time.After(time.Minute):
			t.Error("the messages of the client are not read")
		}
		for range 2 {
			if got := c.next(); !strings.Contains(got, "xxxxx") {
				t.Errorf("in the place of an answer: %.100s", got)
			}
		}
		for range 7 {
			if got := c.next(); !strings.Contains(got, "io.switchboard/received") {
				t.Errorf("the bridge is told %.100s", got)
			}
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
		if w.calls() != 2 {
			t.Errorf("%d calls were made, 2 were begun", w.calls())
		}
	})
}

// The stream of a modern client outlives the process, and is over only if the process that serves it says so.
func TestAStoppingProcessDoesNotEndTheStreamsOfABridge(t *testing.T) {
	for range 20 { // a single try may pass by chance
		synctest.Test(t, func(t *testing.T) {
			w := newGateway(t)
			c := w.bridged(t.Context())
			listen, _ := modern("7", "subscriptions/listen", `"notifications":{"toolsListChanged":true},`, "")
			c.send(listen)
			if got := c.next(); !strings.Contains(got, "acknowledged") {
				t.Errorf("the stream begins with %s", got)
			}
			w.Drain(closedAfter(0))
			if rest, err := io.ReadAll(c.out); err != nil || len(rest) > 0 {
				t.Errorf("the bridge gets %s, %v", rest, err)
			}
			if err := <-c.done; err != nil {
				t.Error(err)
			}
			_ = c.in.Close()
		})
	}
}

// The client has cancelled a request, and uses its id for another one at once. That one is answered, under its id.
func TestABridgeGetsAnAnswerUnderAnIDThatIsStillInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGateway(t)
		s := w.stalls()
		c := w.bridged(t.Context())
		c.send(initialize)
		c.next()
		c.send(legacyCall("1", "stall", ""))
		c.next()
		c.send(fmt.Sprintf(begin, "1"))
		<-s.in
		c.send(legacyCall("1", "echo", ""))
		if got := c.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"error"`) || !strings.Contains(got, "still in flight") {
			t.Errorf("it is answered with %s", got)
		}
		close(s.out)
		c.next()
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}
