package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A page is told at most once a second, and of the types of events alone. Many pages are told one after the other.
func TestAPageIsToldThatSomethingHasChangedAndNoMore(t *testing.T) {
	for _, tt := range []struct {
		name  string
		live  liveness
		pages int
		most  time.Duration // until a page is told
	}{
		{"one page", onEvents, 1, time.Second},
		{"a page with figures", onFigures, 1, time.Second},
		{"200 pages", onEvents, 200, 8 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := httptest.NewRecorder()
				c := &changeWriter{ResponseWriter: w, header: http.Header{}, ctx: t.Context(), live: tt.live, open: func() int { return tt.pages }}
				c.WriteHeader(http.StatusOK)
				write := func(text string) (took time.Duration) {
					t.Helper()
					began := time.Now()
					if n, err := c.Write([]byte(text)); err != nil || n != len(text) {
						t.Fatal(n, err)
					}
					return time.Since(began)
				}
				const event = "id: b-%d\nevent: %s\ndata: {\"by\":\"secret\"}\n\n"
				write("id: b-1\n\n")
				write(fmt.Sprintf(event, 2, "server"))
				if took := write(fmt.Sprintf(event+event+event, 3, "server", 4, "approval", 5, "server")); took < time.Second || took > tt.most {
					t.Errorf("the second time, it is told after %v", took)
				}
				write("id: b-6\n\n")
				last := "event: alive\ndata: -\n\n"
				if tt.live == onFigures {
					last = "event: changed\ndata: figures\n\n"
				}
				if got, want := w.Body.String(), "retry: 2000\nid: b-1\nevent: alive\ndata: -\n\nid: b-2\nevent: changed\ndata: server\n\nid: b-5\nevent: changed\ndata: approval server\n\nid: b-6\n"+last; got != want {
					t.Errorf("the page is told\n%s\nwant\n%s", got, want)
				}
			})
		})
	}
}

func TestAFormTokenIsAnotherOneEachTimeAndBelongsToItsSession(t *testing.T) {
	t.Parallel()
	a, b := formToken("secret"), formToken("secret")
	if a == b || !isFormToken(a, "secret") || !isFormToken(b, "secret") {
		t.Errorf("the tokens of a session are %s and %s", a, b)
	}
	for _, wrong := range []string{"", formToken("other"), a[:64] + b[64:], a[:126], a + "00", strings.Repeat("x", 128)} {
		if isFormToken(wrong, "secret") {
			t.Errorf("%q is a token of the session", wrong)
		}
	}
}

func TestOpenPagesShareAnswersUntilTheNextEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l liveAnswers
		asked := 0
		ask := func() *keptAnswer { asked++; return &keptAnswer{status: asked} }
		for i, tt := range []struct {
			after, key string
			wait       time.Duration
			want       int
		}{
			{"b-1", "ann/now", 0, 1},
			{"b-1", "ann/now", 0, 1},
			{"b-1", "ben/now", 0, 2},
			{"b-1", "ann/now", shareTime / 2, 1},
			{"b-2", "ann/now", 0, 3},
			{"b-2", "ann/now", shareTime / 2, 3},
			{"b-2", "ann/now", shareTime, 4},
		} {
			time.Sleep(tt.wait)
			synctest.Wait()
			if got := l.share(tt.after, tt.key, ask).status; got != tt.want {
				t.Errorf("%d: %+v gets answer %d", i, tt, got)
			}
		}
		time.Sleep(2 * shareTime)
		synctest.Wait()
		if l.of != nil {
			t.Error("answers are kept when no page asks")
		}
	})
}
