package upstream

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/upstream/link"
)

func TestALegacyServerIsListedOnlyAfterItsStreamIsOpen(t *testing.T) {
	var opened atomic.Bool
	asked := make(chan struct{}, 1) // receives a request that came too early
	site := newSite(t, link.EraLegacy, nil)
	site.set(func(w http.ResponseWriter, r *http.Request, m *msg) bool {
		switch {
		case r.Method == http.MethodGet:
			select { // it is slow
			case <-asked:
			case <-time.After(50 * time.Millisecond):
			}
			opened.Store(true)
		case m != nil && m.Method == "tools/list" && !opened.Load():
			t.Error("it was listed before it could announce changes")
			select {
			case asked <- struct{}{}:
			default:
			}
		}
		return false
	})
	readyFleet(t, Options{}, site.server())
}

func TestALegacyServerThatNeverOpensItsStreamIsUsedAnyway(t *testing.T) {
	site := newSite(t, link.EraLegacy, func(_ http.ResponseWriter, r *http.Request, _ *msg) bool {
		if r.Method == http.MethodGet {
			<-r.Context().Done()
		}
		return r.Method == http.MethodGet
	})
	f := readyFleet(t, Options{}, site.server())
	if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
		t.Error(err)
	}
}
