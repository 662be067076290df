package link

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Whoever hears that an answer is too large may call again at once. A link whose answer has no end is of no use
// to that call: the call would fail as one that may have been executed.
func TestALinkEndsBeforeTheCallerHearsOfAnAnswerWithoutEnd(t *testing.T) {
	l := New(slog.New(slog.DiscardHandler), nil, ClientInfo{}, "", nil)
	l.Use(deafPort{}, true)
	f := l.newRequest(wire.MethodToolsCall, nil)
	if err := l.send(f); err != nil || !f.Sending.Claim() {
		t.Fatal(err)
	}
	f.response.mu.Lock() // the request cannot be finished yet
	var failing sync.WaitGroup
	failing.Go(func() { l.failTooLong(f.ID, 1000, Errorf(KindLost, true, "it has no end")) })
	select {
	case <-l.Requests.Done:
	case <-time.After(30 * time.Second):
		t.Error("the link has not ended, and the request is about to be finished")
	}
	f.response.mu.Unlock()
	failing.Wait()
	if err := f.response.err; err == nil || !strings.Contains(err.Error(), "of 1000 bytes or more") {
		t.Errorf("the request is finished with %v", err)
	}
}

// A server names a request in an answer without end that it has not got yet.
func TestARequestThatWasNotSentEndsWithTheLink(t *testing.T) {
	l := New(slog.New(slog.DiscardHandler), nil, ClientInfo{}, "", nil)
	l.Use(deafPort{}, true)
	f := l.newRequest(wire.MethodToolsCall, nil)
	if err := l.send(f); err != nil {
		t.Fatal(err)
	}
	l.failTooLong(f.ID, 1000, Errorf(KindLost, true, "it has no end"))
	if !f.isFinished() || AsError(f.response.err).Sent || f.Sending.Claim() {
		t.Errorf("finished %t with %+v, or it may still be sent", f.isFinished(), f.response.err)
	}
}
