package upstream

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A linkLog records the calls of OnLink.
type linkLog struct {
	mu   sync.Mutex
	said []string
}

func (l *linkLog) on(id switchboard.ServerID, up bool, why *Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case up && why == nil:
		l.said = append(l.said, string(id)+" up")
	case !up && why != nil && why.Message != "" && !why.Since.IsZero():
		l.said = append(l.said, string(id)+" down at "+string(why.Stage))
	default:
		l.said = append(l.said, fmt.Sprintf("%s %v %+v", id, up, why))
	}
}

func (l *linkLog) heard(want ...string) func() bool {
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.Equal(l.said, want)
	}
}

func TestOnLinkReportsEachLossAndEachReturnOfTheConnection(t *testing.T) {
	var l linkLog
	f := openFleet(t, Options{OnLink: l.on}, stdioFake("one", "calls"))
	wait.Until(t, "it is up", l.heard("one up"))
	_, _ = f.Call(t.Context(), doCall("die"))
	wait.Until(t, "it was lost and is back", l.heard("one up", "one down at serve", "one up"))

	// A replaced server reports nothing more.
	was := f.server("one")
	defer func() {
		was.reportLink(true, nil)
		l.mu.Lock()
		defer l.mu.Unlock()
		if slices.Contains(l.said[3:], "one up") {
			t.Errorf("it got an event of a replaced server: %v", l.said)
		}
	}()
	f.Set([]switchboard.Server{stdioFake("one", "exit")})
	wait.Until(t, "the new one fails", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.Equal(l.said[:min(4, len(l.said))], []string{"one up", "one down at serve", "one up", "one down at connect"})
	})
}

func TestAProbeIsAnsweredByServersOfEachTransportAndEra(t *testing.T) {
	for name, s := range map[string]switchboard.Server{
		"legacy pipes": stdioFake("one", "legacy"), "modern pipes": stdioFake("one", "modern"),
		"legacy HTTP": newSite(t, link.EraLegacy, nil).server(), "modern HTTP": newSite(t, link.EraModern, nil).server(),
		"SSE": newSSESite(t).server(),
	} {
		t.Run(name, func(t *testing.T) {
			f := readyFleet(t, Options{}, s)
			if err := f.Probe(t.Context(), "one"); err != nil {
				t.Error(err)
			}
			if st := status(t, f, "one"); st.InFlight != 0 || st.Dropped != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		wantCode(t, openFleet(t, Options{}).Probe(t.Context(), "one"), switchboard.CodeServerUnknown)
	})
}

func TestAProbeFailsWhereTheServerDoesNotAnswerWell(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request, m *msg){
		"500":      func(w http.ResponseWriter, _ *http.Request, _ *msg) { w.WriteHeader(500) },
		"a page":   func(w http.ResponseWriter, _ *http.Request, _ *msg) { _, _ = w.Write([]byte("<html>")) },
		"no hello": func(w http.ResponseWriter, _ *http.Request, m *msg) { writeResult(w, m, "[]") },
		"silence":  func(_ http.ResponseWriter, r *http.Request, _ *msg) { <-r.Context().Done() },
	} {
		for _, era := range []link.Era{link.EraLegacy, link.EraModern} {
			t.Run(string(era)+" "+name, func(t *testing.T) {
				site := newSite(t, era, nil)
				f := readyFleet(t, Options{}, site.server())
				site.set(func(w http.ResponseWriter, r *http.Request, m *msg) bool {
					if m == nil || m.Method != "ping" && m.Method != "server/discover" {
						return false
					}
					answer(w, r, m)
					return true
				})
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if err := f.Probe(ctx, "one"); err == nil {
					t.Error("it counts as healthy")
				}
			})
		}
	}
}

func TestAProbeFindsAServerThatForgotTheSession(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			site := forgetfulSite(t, status)
			f := readyFleet(t, Options{}, site.server())
			site.forget()
			if err := f.Probe(t.Context(), "one"); err != nil {
				t.Error(err)
			}
			awaitState(t, f, "one", StateReady)
		})
	}
}

func TestAProbeReconnectsButRespectsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{})
		s := newServer(f, switchboard.Server{ID: "one"}, nil)
		var tries []time.Time
		s.connectors.connect = func(context.Context, linkScope) (*link.Link, error) {
			tries = append(tries, time.Now())
			return nil, link.Errorf(link.KindUnreachable, false, "no")
		}
		ended := time.Now().Add(time.Minute)
		for time.Now().Before(ended) {
			if err := s.probe(t.Context()); err == nil || err.Error() != "no" {
				t.Fatal(err)
			}
		}
		for i := 5; i < len(tries); i++ {
			if gap := tries[i].Sub(tries[i-1]); gap < callRedialPause {
				t.Errorf("attempt %d after %s", i, gap)
			}
		}
		if n := len(tries); n < 50 || n > 70 {
			t.Errorf("%d attempts in a minute", n)
		}
		s.cancel()
		if err := s.probe(t.Context()); err == nil {
			t.Error("a removed server is probed")
		}
		f.Close(t.Context())
	})
}

func TestACallWithNoWaitDoesNotWaitForAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{})
		s := newServer(f, switchboard.Server{ID: "one"}, nil)
		tries, answer := 0, error(nil)
		s.connectors.connect = func(context.Context, linkScope) (*link.Link, error) {
			tries++
			time.Sleep(100 * time.Millisecond)
			if answer != nil {
				return nil, answer
			}
			l := link.New(nil, &mask.Mask{}, nil, "", nil)
			l.Use(deafPort{}, false)
			return l, nil
		}
		try := func(cn *connector, took time.Duration, dials int, fails bool) {
			t.Helper()
			began, before := time.Now(), tries
			_, err := s.waitForLink(t.Context(), cn, true)
			if got := time.Since(began); got != took || tries-before != dials || (err != nil) != fails {
				t.Errorf("it took %s and %d attempts: %v; want %s and %d", got, tries-before, err, took, dials)
			}
			if err != nil && (link.AsError(err).Sent || !link.AsError(err).BlamesServer()) {
				t.Errorf("%+v", err)
			}
		}
		own := s.connectors.add(linkScope{principal: "ann"})
		try(own, 0, 0, true) // it has never answered
		s.facts.state = StateReady
		answer = link.Errorf(link.KindUnreachable, false, "no")
		try(own, 100*time.Millisecond, 1, true) // one attempt
		try(own, 0, 0, true)                    // not again so soon
		time.Sleep(callRedialPause)
		answer = nil
		try(own, 100*time.Millisecond, 1, false)
		l := own.current()
		l.Fail(link.Errorf(link.KindGone, true, "forgotten"))
		try(own, 100*time.Millisecond, 1, false) // the server is up
		s.facts.state, s.facts.failure = StateRetrying, &Failure{Message: "it has ended"}
		try(s.connectors.add(linkScope{principal: "bob"}), 0, 0, true)
		s.cancel()
		f.Close(t.Context())
	})
}

func TestARestartEndsAllProcessesAfterTheirCallsAndLosesNoCall(t *testing.T) {
	var l linkLog
	s := stdioFake("one", "calls")
	s.Share = switchboard.SharePrincipal
	f := readyFleet(t, Options{OnLink: l.on}, s)
	call := doCall("wait")
	waiting := startAsync(func() error { _, err := f.Call(t.Context(), call); return err })
	wait.Until(t, "both processes run", func() bool { return len(status(t, f, "one").PIDs) == 2 && status(t, f, "one").InFlight == 1 })
	before := status(t, f, "one").PIDs
	if err := f.Restart("one"); err != nil {
		t.Fatal(err)
	}
	result, err := f.Call(t.Context(), doCall("anything")) // this call waits
	if err != nil {
		t.Fatal(err)
	}
	if pid := int(fields(t, result.JSON)["pid"].(float64)); slices.Contains(before, pid) {
		t.Errorf("it was answered by the old process %d", pid)
	}
	if err := <-waiting; err != nil {
		t.Errorf("a call in flight was lost: %v", err)
	}
	for _, pid := range before {
		assertGone(t, pid)
	}
	wait.Until(t, "it is said", l.heard("one up", "one down at connect", "one up"))
	if err := f.Restart("none"); err == nil {
		t.Error("an unknown server was restarted")
	}
}

func TestARestartDoesNotWaitForACallThatHangs(t *testing.T) {
	t.Parallel()
	hangs := onCalls(func(_ http.ResponseWriter, r *http.Request, _ *msg) { <-r.Context().Done() })
	for name, s := range map[string]switchboard.Server{"pipes": stdioFake("one", "calls"), "HTTP": newSite(t, link.EraLegacy, hangs).server()} {
		t.Run(name, func(t *testing.T) {
			f := readyFleet(t, Options{}, s)
			call := startAsync(func() error { _, err := f.Call(t.Context(), doCall("never")); return err })
			wait.Until(t, "it is under way", func() bool { return pendingCount(f, "one") == 1 })
			if err := f.Restart("one"); err != nil {
				t.Fatal(err)
			}
			if err := f.Restart("one"); err != nil { // while the first call is in flight
				t.Fatal(err)
			}
			checkBlame(t, <-call, false, false)
			awaitState(t, f, "one", StateReady)
		})
	}
}
