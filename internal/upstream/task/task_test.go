package task

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAClosedGroupRefusesNewGoroutinesAndWaitsForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Tracker
		release := make(chan struct{})
		if !g.Run(func() { <-release }) || !g.Enter() || g.Size() != 2 {
			t.Fatal("an open group refuses a goroutine")
		}
		idle := g.Close()
		if g.Run(func() {}) || g.Enter() {
			t.Error("a closed group takes a goroutine")
		}
		g.Leave()
		synctest.Wait()
		select {
		case <-idle:
			t.Error("it is idle while a goroutine runs")
		default:
		}
		close(release)
		<-idle
	})
}

func TestAnEmptyGroupIsIdleAtOnce(t *testing.T) {
	var g Tracker
	<-g.Close()
}

func TestWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		WaitFor(make(chan struct{}), time.Second)
		if err := Sleep(t.Context(), time.Second); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Sleep(ended, time.Hour); err == nil {
			t.Error("it sleeps after the end of its context")
		}
	})
}
