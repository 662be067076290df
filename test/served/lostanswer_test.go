package served_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A losingProxy passes requests on. Of the first request that changes something, it loses the answer, after the change was made.
type losingProxy struct {
	next *httputil.ReverseProxy

	mu      sync.Mutex
	keys    []string // of the requests that change something
	answers []int
}

func (p *losingProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		p.next.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	p.next.ServeHTTP(answer, r)
	p.mu.Lock()
	p.keys, p.answers = append(p.keys, r.Header.Get("Idempotency-Key")), append(p.answers, answer.Code)
	first := len(p.keys) == 1
	p.mu.Unlock()
	if first {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// A command whose connection breaks after its change was made says what was done, and the change is made once.
func TestACommandWhoseAnswerIsLostMakesItsChangeOnce(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	admin, err := url.Parse(g.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	for _, tt := range []struct {
		args []string
		want string
	}{
		// Without a key, the repeat finds another entity tag, a key that is revoked, and a server that is disabled.
		{[]string{"config", "set", "tenants/acme/tenant.yaml", "mode", "assist"}, "is changed and in force"},
		{[]string{"server", "disable", "a", "--reason", "test"}, "a is disabled"},
		{[]string{"server", "enable", "a"}, "a is healthy"},
		{[]string{"key", "revoke", "bob", "--tenant", "umbrella"}, "is revoked"},
	} {
		p := &losingProxy{next: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(admin) }}}
		proxy := httptest.NewServer(p)
		out, errs, code := rig.CommandAs(t, elsewhere, keys["operator"], append(tt.args, "--url", proxy.URL)...)
		proxy.Close()
		if code != 0 || !strings.Contains(out, tt.want) {
			t.Errorf("%q: exit %d\n%s%s", tt.args, code, out, errs)
		}
		if len(p.keys) != 2 || p.keys[0] == "" || p.keys[0] != p.keys[1] || !slices.Equal(p.answers, []int{200, 200}) {
			t.Errorf("%q: the requests had the keys %q and the answers %v", tt.args, p.keys, p.answers)
		}
	}
	if ids := changesOf(t, g); len(ids) != 1 {
		t.Errorf("the history has the changes %q", ids)
	}
	rig.Eventually(t, "each action on a server or a key has one receipt of its outcome", func() string {
		a := g.AskAdmin(t, keys["operator"], "GET", "/v1/receipts?kind=admin&outcome=ok", "")
		for _, method := range []string{"disable", "enable", "revoke"} {
			if n := strings.Count(a.Body, `"method":"`+method+`"`); n != 1 {
				return a.Body
			}
		}
		return ""
	})
}
