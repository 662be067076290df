package upstream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
)

func TestAServerThatIsGoneIsLookedForAndFoundSoonAfterItIsBack(t *testing.T) {
	gone, refused := link.Errorf(link.KindLost, true, "it ended"), link.Errorf(link.KindUnreachable, false, "no")
	for range 20 {
		r := retrySchedule{}
		if d := r.nextWait(StageConnect, refused, 0); d < task.FirstDelay/2 {
			t.Errorf("a server that was never up is retried after %s", d)
		}
		away := r.nextWait(StageServe, gone, time.Hour)
		if away > firstLookDelay {
			t.Errorf("first after %s", away)
		}
		looks := 1
		for ; away < time.Minute; looks++ {
			d := r.nextWait(StageConnect, refused, 0)
			if most := away/2 + firstLookDelay; d > most {
				t.Errorf("after %s it is retried in %s; want at most %s", away, d, most)
			}
			away += d
		}
		if looks < 15 || looks > 30 {
			t.Errorf("%d attempts to find it in a minute", looks)
		}
		// The port accepts connections again, but the server is not ready.
		if d := r.nextWait(StageConnect, link.Errorf(link.KindBroken, false, "503"), 0); d < task.FirstDelay/2 || d > task.FirstDelay {
			t.Errorf("after its answer, after %s", d)
		}
		if d := r.nextWait(StageConnect, link.Errorf(link.KindBroken, false, "503"), 0); d < task.FirstDelay || d > 2*task.FirstDelay {
			t.Errorf("then after %s", d)
		}
		if d := r.nextWait(StageServe, gone, time.Hour); d > firstLookDelay {
			t.Errorf("after another hour of service, %s", d)
		}
		if d := r.nextWait(StageConnect, gone, 3*time.Second); d < 3*time.Second {
			t.Errorf("a program that fails after three seconds is restarted after %s", d)
		}
	}
}

func TestAServerThatEndsAsSoonAsItServesIsStartedLessAndLessOften(t *testing.T) {
	r := retrySchedule{}
	for i := range 9 {
		most := min(task.FirstDelay<<i, task.LongestDelay)
		if d := r.nextWait(StageServe, link.Errorf(link.KindLost, true, "it ended"), time.Second); d < most/2 || d > most {
			t.Errorf("time %d after %s, want %s to %s", i, d, most/2, most)
		}
	}
}

func TestAWaitingCallUsesTheConnectionThatAnotherCallHasOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := false
		cn := newConnector(t.Context(), func(context.Context) (*link.Link, error) {
			if !there {
				return nil, link.Errorf(link.KindUnreachable, false, "no")
			}
			l := link.New(nil, &mask.Mask{}, nil, "", nil)
			l.Use(deafPort{}, false)
			return l, nil
		})
		for range 5 { // so that calls must wait before they dial
			if _, err := cn.get(t.Context(), dialAtOnce); err == nil {
				t.Fatal("it is there")
			}
		}
		began := time.Now()
		call := startAsync(func() error {
			_, err := cn.get(t.Context(), waitForPause)
			if took := time.Since(began); took != 100*time.Millisecond {
				t.Errorf("it waited %s", took)
			}
			return err
		})
		time.Sleep(100 * time.Millisecond)
		there = true
		if _, err := cn.get(t.Context(), dialAtOnce); err != nil {
			t.Error(err)
		}
		if err := <-call; err != nil {
			t.Error(err)
		}
	})
}

func TestAServerThatCannotBeReachedIsTriedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{})
		s := newServer(f, switchboard.Server{ID: "one"}, nil)
		var tries []time.Time
		s.connectors.connect = func(context.Context, linkScope) (*link.Link, error) {
			tries = append(tries, time.Now())
			return nil, link.Errorf(link.KindUnreachable, false, "no")
		}
		began := time.Now()
		go s.run()
		time.Sleep(10 * time.Minute)
		s.cancel()
		f.Close(t.Context())
		synctest.Wait()
		if first := tries[0].Sub(began); first != 0 {
			t.Errorf("the first attempt after %s", first)
		}
		for i := 1; i < len(tries); i++ {
			gap, most := tries[i].Sub(tries[i-1]), min(task.FirstDelay<<min(i-1, 20), task.LongestDelay)
			if gap < most/2 || gap > most {
				t.Errorf("attempt %d after %s, want %s to %s", i, gap, most/2, most)
			}
		}
		if n := len(tries); n < 20 || n > 60 {
			t.Errorf("%d attempts in ten minutes", n)
		}
	})
}

func TestCallsShareADialAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		cn := newConnector(t.Context(), func(context.Context) (*link.Link, error) {
			tries++
			time.Sleep(100 * time.Millisecond)
			return nil, link.Errorf(link.KindUnreachable, true, "no")
		})
		began := time.Now()
		for time.Since(began) < time.Minute {
			var calls [10]<-chan error
			for i := range calls {
				calls[i] = startAsync(func() error {
					_, err := cn.get(t.Context(), waitForPause)
					return err
				})
			}
			for _, c := range calls {
				if f := link.AsError(<-c); f.Kind != link.KindUnreachable || f.Sent {
					t.Fatalf("%+v", f)
				}
			}
		}
		if tries < 50 || tries > 70 {
			t.Errorf("%d attempts in a minute", tries)
		}

		cn = newConnector(t.Context(), func(context.Context) (*link.Link, error) { time.Sleep(time.Hour); return nil, errors.New("late") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := cn.get(ctx, waitForPause); link.AsError(err).Kind != link.KindSilent || link.AsError(err).Sent {
			t.Errorf("%+v", err)
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestALinkThatLivedLongIsRedialledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cn := newConnector(t.Context(), func(context.Context) (*link.Link, error) {
			l := link.New(nil, &mask.Mask{}, nil, "", nil)
			l.Use(deafPort{}, false)
			return l, nil
		})
		for _, tt := range []struct{ lived, wait time.Duration }{
			{time.Hour, 0}, {time.Second, 2 * task.FirstDelay}, {time.Second, 4 * task.FirstDelay}, {time.Hour, 0},
		} {
			l, err := cn.get(t.Context(), waitForPause)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(tt.lived)
			l.Close()
			began := time.Now()
			if _, err := cn.get(t.Context(), waitForPause); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited != tt.wait {
				t.Errorf("after %s of life it took %s, want %s", tt.lived, waited, tt.wait)
			}
		}
	})
}

func TestAConnectorThatIsClosedEndsItsDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cn := newConnector(t.Context(), func(ctx context.Context) (*link.Link, error) { <-ctx.Done(); return nil, ctx.Err() })
		go cn.get(t.Context(), dialAtOnce) //nolint:errcheck // nobody waits for it
		synctest.Wait()
		if !cn.close(true) {
			t.Error("it was not closed")
		}
	})
}
