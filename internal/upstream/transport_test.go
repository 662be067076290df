package upstream

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestAMethodThatIsNotValidInAHeaderIsNotSent(t *testing.T) {
	site := newSite(t, link.EraModern, nil)
	f := readyFleet(t, Options{}, site.server())
	c := echoCall("one", "{}")
	c.Method = "x\r\nEvil: 1"
	_, err := f.Call(t.Context(), c)
	wantCode(t, err, switchboard.CodeServerProtocol)
	for _, r := range site.requests(http.MethodPost) {
		if r.header.Get("Evil") != "" || r.msg.Method == c.Method {
			t.Errorf("sent: %v", r.header)
		}
	}
}

func TestEveryRequestHasTheConfiguredAddressAndHeaders(t *testing.T) {
	site := newSite(t, link.EraLegacy, nil)
	cfg := site.server()
	cfg.URL = strings.Replace(site.URL, "http://", "http://us%20er:pa%2Fss@", 1) + "/a%2Fb/mcp?q=1&r=%20#fragment"
	cfg.Headers = map[string]switchboard.Secret{
		"host": switchboard.NewSecret("other.example"), "user-agent": switchboard.NewSecret("Content-Length: 0"), "X-One": switchboard.NewSecret("é\t1"),
	}
	f := readyFleet(t, Options{}, cfg)
	if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "it is asked for a stream", func() bool { return len(site.requests(http.MethodGet)) > 0 })
	for _, r := range append(site.requests(http.MethodGet), site.requests(http.MethodPost)...) {
		h := r.header
		got := strings.Join([]string{r.host, r.uri, h.Get("Authorization"), h.Get("User-Agent"), h.Get("X-One")}, " ")
		if want := "other.example /a%2Fb/mcp?q=1&r=%20 Basic dXMgZXI6cGEvc3M= Content-Length: 0 é\t1"; got != want {
			t.Errorf("%s says %q, want %q", r.verb, got, want)
		}
	}
}

func TestACallEndsInTimeWhileItsAnswerKeepsComing(t *testing.T) {
	site := newSite(t, link.EraModern, onCalls(func(w http.ResponseWriter, r *http.Request, _ *msg) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000000")
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte(" "))
			_ = http.NewResponseController(w).Flush()
			<-tick.C
		}
	}))
	cfg := site.server()
	cfg.Timeout = time.Second
	f := readyFleet(t, Options{}, cfg)
	_, err := f.Call(t.Context(), echoCall("one", "{}"))
	wantCode(t, err, switchboard.CodeOutcomeUnknown)
}

func TestACallDoesNotWaitForItsStreamToEndAfterTheAnswer(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		t.Run(fmt.Sprint(lasting), func(t *testing.T) {
			site := newSite(t, link.EraModern, onCalls(func(w http.ResponseWriter, r *http.Request, m *msg) {
				writeEvent(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
				if lasting {
					<-r.Context().Done()
				}
			}))
			f := readyFleet(t, Options{}, site.server())
			took := time.Hour // the best of several, because the machine may be busy
			for range 5 {
				began := time.Now()
				if _, err := f.Call(t.Context(), echoCall("one", "{}")); err != nil {
					t.Fatal(err)
				}
				if took = min(took, time.Since(began)); took < link.DrainTimeout {
					break
				}
			}
			if lasting {
				if took >= link.DrainTimeout {
					t.Errorf("the calls waited %v", took)
				}
				return
			}
			p := f.server("one").opener.HTTP.Pool
			wait.Until(t, "the connection is kept", func() bool { return p.TakeIdle() != nil })
		})
	}
}

func TestInAHurryCallsOverHTTPAreCutOff(t *testing.T) {
	called := make(chan struct{})
	site := newSite(t, link.EraModern, onCalls(func(_ http.ResponseWriter, r *http.Request, _ *msg) {
		close(called)
		<-r.Context().Done()
	}))
	f := readyFleet(t, Options{}, site.server())
	ended := startAsync(func() error {
		_, err := f.Call(t.Context(), echoCall("one", "{}"))
		return err
	})
	<-called
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.Close(ctx)
	wantCode(t, <-ended, switchboard.CodeOutcomeUnknown)
}
