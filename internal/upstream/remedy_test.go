package upstream

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
)

func TestStatusSaysWhichProgramIsMissing(t *testing.T) {
	bare := stdioFake("bare", "legacy")
	bare.Command = []string{"no-such-program"}
	for name, o := range map[string]Options{"alone": {}, "guarded": guardOptions()} {
		t.Run(name, func(t *testing.T) {
			f := openFleet(t, o, bare, shell("inner", "exec no-such-program"), shell("outer", "/dev/null"))
			for id, want := range map[switchboard.ServerID]string{
				"bare": `"no-such-program" was not found`, "inner": `"no-such-program" was not found`, "outer": `"/dev/null" may not be run`,
			} {
				awaitFailure(t, f, id, "the program is named", func(why *Failure) bool { return strings.Contains(why.Remedy, want) })
			}
		})
	}
}

func TestASlowStartIsReportedAsADownload(t *testing.T) {
	npx := filepath.Join(t.TempDir(), "npx")
	if err := os.WriteFile(npx, []byte("#!/bin/sh\necho 'npm http fetch GET' >&2\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	slow := stdioFake("slow", "legacy")
	slow.Command = []string{npx, "-y", "some-server"}
	f := openFleet(t, Options{StartDeadline: 200 * time.Millisecond}, slow, shell("other", "exec sleep 1000"))
	if st := status(t, f, "slow"); st.LastFailure != nil && time.Since(began) < 100*time.Millisecond {
		t.Errorf("at once it is called slow: %+v", st.LastFailure)
	}
	awaitFailure(t, f, "slow", "the download is named", func(why *Failure) bool {
		return strings.Contains(why.Message, "has not answered yet") && strings.Contains(why.Remedy, `"npx" is probably downloading`) &&
			slices.Equal(why.Stderr, []string{"npm http fetch GET"}) && !why.Since.Before(began)
	})
	awaitFailure(t, f, "other", "it is slow", func(why *Failure) bool { return why.Remedy == "" })
}

// A server that does not answer in time is ended and restarted. The remedy stays.
func TestATimedOutStartIsStillReportedAsADownload(t *testing.T) {
	f := New(Options{})
	defer f.Close(t.Context())
	for stage, want := range map[FailureStage]bool{StageConnect: true, StageServe: false} {
		s := newServer(f, switchboard.Server{ID: "one", Transport: switchboard.TransportStdio, Command: []string{"uvx", "some-server"}}, nil)
		s.recordDown(stage, link.Errorf(link.KindSilent, false, "too long"), time.Hour)
		if why := s.status().LastFailure; strings.Contains(why.Remedy, `"uvx" is probably downloading`) != want {
			t.Errorf("at the stage %s the failure is %+v", stage, why)
		}
		s.cancel()
	}
}

func TestALongStartDeadlineHidesNoSlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{StartDeadline: 10 * time.Minute})
		defer f.Close(t.Context())
		s := newServer(f, switchboard.Server{ID: "one"}, nil)
		defer s.cancel()
		s.facts.recordAttempt(time.Now())
		time.Sleep(slowStartTime)
		if why := s.status().LastFailure; why != nil {
			t.Errorf("within %s it is called slow: %+v", slowStartTime, why)
		}
		time.Sleep(time.Second)
		if s.status().LastFailure == nil {
			t.Errorf("after more than %s there is no failure", slowStartTime)
		}
	})
}

// The limits of a start hold for real servers. The test takes a minute, in which it waits.
func TestAStartEndsAMinuteAfterTheProgramHasReadAndNotBefore(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says what a program has read")
	}
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else its context does not end with the connection
		<-r.Context().Done()
	}))
	t.Cleanup(hangs.Close)
	f := openFleet(t, Options{}, shell("reads", "cat >/dev/null"), shell("downloads", "exec sleep 1000"),
		switchboard.Server{ID: "http", Transport: switchboard.TransportHTTP, URL: hangs.URL, Share: switchboard.ShareAll})
	<-time.After(process.StartTimeout)
	for _, id := range []switchboard.ServerID{"reads", "http"} {
		awaitFailure(t, f, id, string(id)+" is given up", func(why *Failure) bool { return !strings.Contains(why.Message, "has not answered yet") })
	}
	<-time.After(5 * time.Second) // for a restart, if it was given up
	if why := status(t, f, "downloads").LastFailure; why == nil || !strings.HasPrefix(why.Message, "it was started 1m") {
		t.Errorf("a program that has not read is given up: %+v", why)
	}
}
