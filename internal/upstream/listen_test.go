package upstream

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

func TestALegacyServerIsAskedForNothingBeforeItsStreamIsOpen(t *testing.T) {
	var opened atomic.Bool
	asked := make(chan struct{}, 1) // for something, too early
	site := newSite(t, EraLegacy, nil)
	site.set(func(w http.ResponseWriter, r *http.Request, m *msg) bool {
		switch {
		case r.Method == http.MethodGet:
			select { // it takes its time
			case <-asked:
			case <-time.After(50 * time.Millisecond):
			}
			opened.Store(true)
		case m != nil && m.Method == "tools/list" && !opened.Load():
			t.Error("it was listed, and could not have said that this has changed")
			select {
			case asked <- struct{}{}:
			default:
			}
		}
		return false
	})
	ready(t, Options{}, site.server())
}

func TestALegacyServerThatNeverBeginsItsStreamIsServedAllTheSame(t *testing.T) {
	site := newSite(t, EraLegacy, func(_ http.ResponseWriter, r *http.Request, _ *msg) bool {
		if r.Method == http.MethodGet {
			<-r.Context().Done()
		}
		return r.Method == http.MethodGet
	})
	f := ready(t, Options{}, site.server())
	if _, err := f.Call(t.Context(), use("one", "{}")); err != nil {
		t.Error(err)
	}
}
